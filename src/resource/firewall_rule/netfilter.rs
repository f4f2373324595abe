//! Rules that the kernel is told directly, by `nft` and the commands of iptables.
//!
//! An accept in one base chain doesn't override a drop in another, so that it has to be in each that would drop its
//! packets, whoever made that. It comes directly before the rule that would, so that what drops some of them for a reason
//! of its own (a ban, a state) stays before it. In a table of nftables it is a rule among the others; for iptables it stands
//! in a chain of netplay's own. What drops or rejects has one place of its own, before all that others let in; what netplay
//! lets in is kept from it there: for iptables, by a RETURN for each such rule.

use super::chains::{Base, CHAINS, Chain, Fate, Look, MARK, Place, Rule, Table, Verdict};
use super::cond::{Cond, Net};
use super::probe::Found;
use super::{FirewallRule, iptables, nftables};
use crate::resource::{Change, Trouble, Undo};
use crate::shell::Script;
use serde_json::Value as Json;

/// What is to be done about a rule.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// What differs in the kernel.
    pub(super) changes: Vec<Change>,
    /// What mends it.
    pub(super) live: Option<Script>,
    /// What takes that back, if that is possible.
    pub(super) undo: Option<Undo>,
    /// What makes it so from nothing, at boot.
    pub(super) boot: Option<Script>,
    /// What is lacking even then.
    pub(super) lacking: Option<Trouble>,
    /// The filter as it will be.
    after: Vec<Table>,
}

/// Where a rule belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seat {
    place: Place,
    /// The base chain by which packets come to it.
    base: String,
    /// The chain that holds it.
    chain: String,
}

impl Seat {
    /// Where a rule with this verdict is in a table, by way of a base chain.
    fn of(place: &Place, base: &str, verdict: &Verdict) -> Seat {
        let chain = match place {
            Place::Nft(..) => base,
            Place::Iptables(_) => CHAINS[usize::from(base == "OUTPUT")][usize::from(*verdict != Verdict::Accept)],
        };
        Seat { place: place.clone(), base: base.to_owned(), chain: chain.to_owned() }
    }

    /// The chains of which one holds the rule, whatever its verdict was.
    fn chains(&self) -> Vec<&str> {
        match &self.place {
            Place::Nft(..) => vec![&self.chain],
            Place::Iptables(_) => CHAINS[usize::from(self.base == "OUTPUT")].to_vec(),
        }
    }
}

fn own() -> Place {
    Place::Nft("inet".to_owned(), "netplay".to_owned())
}

impl FirewallRule {
    fn hook(&self) -> &'static str {
        if self.out { "output" } else { "input" }
    }

    /// What is to be done so that the rule is in force, where `nft` or iptables is what it belongs to.
    ///
    /// # Errors
    /// Why it can't be.
    pub(super) fn netfilter(&self, found: &Found, nft: bool) -> Result<Work, Trouble> {
        let seats = if self.present { self.seats(found, nft)? } else { Vec::new() };
        let mut work = Work::after(found);
        let (mut live, mut boot) = (Vec::new(), Vec::new());
        let mut undo = Some(Vec::new());
        let mut back =
            |seat: &Seat| undo = undo.take().and_then(|all| Some([vec![self.back(found, seat)?], all].concat()));
        for seat in &seats {
            if let Some(why) = self.passed_by(&found.tables, seat) {
                return Err(why);
            }
            let decider = self.decider(&found.tables, seat).map(|(_, rule)| rule);
            if let Some(from) = self.judge(found, seat) {
                work.changes.push(Change::now(seat.place.name(&seat.base), from, self.described()));
                live.push(self.call(seat, true, decider.map(|rule| rule.at.clone())));
                back(seat);
            }
            // A handle is another one after a boot. What drops all the rest is found without being named, so that the script
            // is the same with and without it.
            let rest = |rule: &Rule| rule.cond == Cond { v6: seat.place.v6(), ..Cond::default() };
            let words = |rule: &Rule| match (&seat.place, &rule.verdict) {
                (_, Verdict::Drop | Verdict::Reject) if rest(rule) => String::new(),
                (Place::Iptables(_), _) => rule.at.clone(),
                (_, Verdict::Jump(to)) => format!("jump {to}"),
                (_, Verdict::Goto(to)) => format!("goto {to}"),
                (_, Verdict::Return) => "return".to_owned(),
                _ => describe(&rule.cond, &rule.verdict),
            };
            boot.push(self.call(seat, true, decider.map(words)));
        }
        for (place, chain, rules) in self.strays(found, &seats) {
            let base = match CHAINS.iter().position(|pair| pair.contains(&chain.as_str())) {
                Some(0) => "INPUT",
                Some(_) => "OUTPUT",
                None => &chain,
            };
            work.changes.push(Change::now(place.name(base), rules, Json::Null));
            let seat = Seat { base: base.to_owned(), place, chain };
            live.push(self.call(&seat, false, None));
            back(&seat);
        }
        for table in &mut work.after {
            table.chains.values_mut().for_each(|c| c.rules.retain(|r| r.comment.as_ref() != Some(&self.comment())));
        }
        seats.iter().for_each(|seat| self.seat(&mut work.after, seat));
        work.after.iter_mut().for_each(exempt);
        work.undo = undo.map(|calls| Undo { steps: self.script(&calls).into_iter().collect(), ..Undo::default() });
        work.live = self.script(&live);
        work.boot = self.script(&boot);
        Ok(work)
    }

    /// The families that the rule is about and the host has.
    pub(super) fn families(&self, found: &Found) -> Result<Vec<bool>, Trouble> {
        match self.cond.v6 {
            Some(true) if !found.v6 => Err(Trouble::new("this host has no IPv6")
                .hint("leave the rule out there by `when`, or switch IPv6 on in the kernel")),
            Some(v6) => Ok(vec![v6]),
            None => Ok(if found.v6 { vec![false, true] } else { vec![false] }),
        }
    }

    fn seats(&self, found: &Found, nft: bool) -> Result<Vec<Seat>, Trouble> {
        let families = self.families(found)?;
        let mut seats = Vec::new();
        if nft {
            seats.push(Seat::of(&own(), self.hook(), &self.verdict));
        }
        for v6 in families.iter().filter(|_| !nft) {
            let command = if *v6 { "ip6tables" } else { "iptables" };
            if let Some(why) = found.failed.get(command) {
                return Err(Trouble::new(format!("{command} can't read its table `filter`: {why}"))
                    .hint("a rule was put into it by `nft`: `backend: nftables` can go on with that"));
            }
            let Some(table) = found.table(command) else {
                return Err(Trouble::new(format!("there is no {command} on this host"))
                    .hint("install iptables, or give the rule one `family`"));
            };
            seats.push(Seat::of(&table.place, if self.out { "OUTPUT" } else { "INPUT" }, &self.verdict));
        }
        if self.verdict != Verdict::Accept {
            return Ok(seats);
        }
        for (table, v6) in found.tables.iter().flat_map(|t| families.iter().map(move |v6| (t, *v6))) {
            if table.place.v6().is_some_and(|of| of != v6) || table.place == own() {
                continue;
            }
            // What another rule of netplay's lets in counts for nothing: it may go, and the same play may just have made it.
            let others = table.of_others();
            for (base, _) in table.bases(self.hook()) {
                let seat = Seat::of(&table.place, base, &self.verdict);
                if self.fate(&others, base, v6, false) == Fate::Dropped && !seats.contains(&seat) {
                    seats.push(seat);
                }
            }
        }
        Ok(seats)
    }

    pub(super) fn fate(&self, table: &Table, base: &str, v6: bool, with: bool) -> Fate {
        let cond = self.cond.within(v6);
        let comment = self.comment();
        table.fate(base, Look { cond: &cond, comment: &comment, with, accepts: self.verdict == Verdict::Accept })
    }

    /// That a chain which isn't the manager's would drop what the rule lets in.
    pub(super) fn others(&self, found: &Found, managed: impl Fn(&Table) -> bool, manager: &str) -> Option<Trouble> {
        let families = self.families(found).ok().filter(|_| self.verdict == Verdict::Accept)?;
        let tables = found.tables.iter().filter(|t| !managed(t));
        tables.flat_map(|t| families.iter().map(move |v6| (t, *v6))).find_map(|(table, v6)| {
            table.place.v6().is_none_or(|of| of == v6).then_some(())?;
            let (base, _) = table.bases(self.hook()).find(|(b, _)| self.fate(table, b, v6, false) == Fate::Dropped)?;
            Some(
                Trouble::new(format!(
                    "{} drops its packets all the same, and isn't {manager}'s",
                    table.place.name(base)
                ))
                .hint(format!("two of them filter this host: take away the rules that aren't {manager}'s")),
            )
        })
    }

    /// What the rule matches in a table.
    fn cond_in(&self, place: &Place) -> Cond {
        place.v6().map_or_else(|| self.cond.clone(), |v6| self.cond.within(v6))
    }

    /// The rule of others that would drop what the rule at a seat lets pass, and its place: before it belongs that rule.
    fn decider<'a>(&self, tables: &'a [Table], seat: &Seat) -> Option<(usize, &'a Rule)> {
        let table = tables.iter().find(|t| t.place == seat.place && t.place != own())?;
        let of = |v6: &bool| table.place.v6().is_none_or(|of| of == *v6) && self.cond.v6.is_none_or(|of| of == *v6);
        let at = |v6: bool| {
            let (cond, comment) = (self.cond.within(v6), self.comment());
            let look = Look { cond: &cond, comment: &comment, with: false, accepts: true };
            table.decider(&seat.base, look).filter(|(_, rule)| rule.verdict != Verdict::Accept)
        };
        let both = [false, true].into_iter().filter(of).filter_map(at);
        both.min_by_key(|(i, _)| *i).filter(|_| self.verdict == Verdict::Accept)
    }

    /// That a ban of others would be passed by. In a table of iptables all that netplay lets in has one place, before the
    /// first of the rules that would drop something of it: what stands between that one and another of them, and drops some
    /// of what only the other would drop, comes too late.
    fn passed_by(&self, tables: &[Table], seat: &Seat) -> Option<Trouble> {
        let (Verdict::Accept, Some(v6)) = (&self.verdict, seat.place.v6()) else { return None };
        let table = tables.iter().find(|t| t.place == seat.place).filter(|_| seat.chain != seat.base)?;
        let rules = &table.chains.get(&seat.base)?.rules;
        let before = |at: usize| rules[..at].iter().filter(|rule| !rule.is_netplays()).count();
        let others: Vec<&Rule> = rules.iter().filter(|rule| !rule.is_netplays()).collect();
        let due = |cond: &Cond, comment: &str| {
            let look = Look { cond: &cond.within(v6), comment, with: false, accepts: true };
            table
                .decider(&seat.base, look)
                .map_or((others.len(), false), |(at, rule)| (before(at), matches!(rule.verdict, Verdict::Accept)))
        };
        let comment = self.comment();
        // Before what others accept it needn't be.
        let own = match due(&self.cond, &comment) {
            (_, true) => others.len(),
            (at, false) => at,
        };
        let jump = Verdict::Jump(seat.chain.clone());
        let now = rules.iter().position(|rule| rule.verdict == jump).map(before);
        let place = now.map_or(own, |now| now.min(own));
        // What others of netplay's let in is told by them, unless this one moves it.
        let moves = now.is_some_and(|now| place < now);
        let let_in = table.chains.get(&seat.chain).map(|c| c.rules.as_slice()).unwrap_or_default().iter();
        let moved = let_in.filter(|rule| moves && rule.verdict == Verdict::Accept && rule.is_netplays());
        let moved = moved.filter_map(|rule| Some((&rule.cond, rule.comment.as_deref()?)));
        moved.chain([(&self.cond, comment.as_str())]).find_map(|(cond, name)| {
            let until = due(cond, name).0;
            let ban = others.get(place..until)?.iter().find(|rule| table.drops_some(rule, &cond.within(v6), 0))?;
            let first = others.get(place).map(|rule| rule.at.as_str()).unwrap_or_default();
            let name = name.trim_start_matches(MARK);
            let message = format!(
                "what `{name}` lets in would pass a ban of others by, `{}`: all that netplay lets in has one place in {}, before `{first}`",
                ban.at,
                seat.place.name(&seat.base)
            );
            Some(Trouble::new(message).hint("put that ban before the other rule: there it holds for all that comes in"))
        })
    }

    /// What is wrong with the rule at a seat, if anything.
    fn judge(&self, found: &Found, seat: &Seat) -> Option<Json> {
        let Some(table) = found.tables.iter().find(|t| t.place == seat.place) else { return Some(Json::Null) };
        let chains = seat.chains().into_iter().filter_map(|name| table.chains.get(name));
        let comment = self.comment();
        let ours: Vec<_> = chains.flat_map(|c| &c.rules).filter(|r| r.comment.as_ref() == Some(&comment)).collect();
        let jumps = match (&seat.place, table.chains.get(&seat.base)) {
            (Place::Iptables(_), Some(base)) => {
                let jump = Verdict::Jump(seat.chain.clone());
                let plain = Cond { v6: seat.place.v6(), ..Cond::default() };
                base.rules.iter().filter(|r| r.verdict == jump && r.cond == plain).count()
            }
            _ => 1,
        };
        let late = self.families(found).unwrap_or_default().into_iter().any(|v6| {
            let against = if self.verdict == Verdict::Accept { Fate::Dropped } else { Fate::Accepted };
            seat.place.v6().is_none_or(|of| of == v6)
                && table.chains.contains_key(&seat.base)
                && self.fate(table, &seat.base, v6, true) == against
        });
        match ours.as_slice() {
            [] => Some(Json::Null),
            [one] if one.verdict != self.verdict || one.cond != self.cond_in(&seat.place) => {
                Some(describe(&one.cond, &one.verdict).into())
            }
            [_] if jumps != 1 => Some(format!("{jumps} jumps to {} in {}", seat.chain, seat.base).into()),
            [_] if late => {
                let other = if self.verdict == Verdict::Accept { "drops" } else { "accepts" };
                Some(format!("behind a rule that {other}").into())
            }
            [_] => None,
            several => Some(format!("{} times", several.len()).into()),
        }
    }

    /// Where the rule is and doesn't belong: place, chain, what is there. One that is right and only not needed stays.
    fn strays(&self, found: &Found, seats: &[Seat]) -> Vec<(Place, String, String)> {
        let comment = self.comment();
        let mut strays = Vec::new();
        for table in &found.tables {
            for (name, chain) in &table.chains {
                if seats.iter().any(|s| s.place == table.place && s.chains().contains(&name.as_str())) {
                    continue;
                }
                let ours = chain.rules.iter().filter(|r| r.comment.as_ref() == Some(&comment));
                // In a table of the other family it would read the same.
                let foreign = self.cond.v6.zip(table.place.v6()).is_some_and(|(wanted, of)| wanted != of);
                let wrong = ours.filter(|r| {
                    !self.present || foreign || r.verdict != self.verdict || r.cond != self.cond_in(&table.place)
                });
                let told: Vec<String> = wrong.map(|r| describe(&r.cond, &r.verdict)).collect();
                if !told.is_empty() {
                    strays.push((table.place.clone(), name.clone(), told.join("; ")));
                }
            }
        }
        strays
    }

    /// Puts the rule where it belongs.
    fn seat(&self, tables: &mut Vec<Table>, seat: &Seat) {
        if !tables.iter().any(|t| t.place == seat.place) {
            let base = Base { hook: self.hook().to_owned(), drops: false };
            let chain = Chain { base: Some(base), rules: Vec::new() };
            tables.push(Table { place: seat.place.clone(), chains: [(seat.base.clone(), chain)].into() });
        }
        let decider = self.decider(tables, seat).map(|(_, rule)| rule.clone());
        let Some(table) = tables.iter_mut().find(|t| t.place == seat.place) else { return };
        let base = &mut table.chains.entry(seat.base.clone()).or_default().rules;
        let decides = |rules: &[Rule]| rules.iter().position(|r| Some(r) == decider.as_ref());
        if seat.chain != seat.base {
            let jump = Verdict::Jump(seat.chain.clone());
            base.retain(|r| r.verdict != jump);
            let at = if self.verdict == Verdict::Accept { decides(base).unwrap_or(base.len()) } else { 0 };
            base.insert(at, Rule { cond: Cond::default(), verdict: jump, comment: None, at: String::new() });
        }
        let rules = &mut table.chains.entry(seat.chain.clone()).or_default().rules;
        let at = match self.verdict {
            Verdict::Accept if seat.chain == seat.base && seat.place != own() => decides(rules).unwrap_or(rules.len()),
            Verdict::Accept => 0,
            _ => rules.len(),
        };
        let (comment, cond) = (Some(self.comment()), self.cond_in(&seat.place));
        rules.insert(at, Rule { cond, verdict: self.verdict.clone(), comment, at: String::new() });
    }

    pub(super) fn described(&self) -> String {
        describe(&self.cond, &self.verdict)
    }

    /// A script of these calls. One that fails doesn't keep the others from being made.
    fn script(&self, calls: &[Vec<String>]) -> Option<Script> {
        let mut script = Script::new().set("mark", &self.comment());
        for (name, text) in [(BY_NFT, include_str!("nftables.sh")), (BY_IPTABLES, include_str!("iptables.sh"))] {
            if calls.iter().any(|call| call.first().is_some_and(|f| f == name)) {
                script = script.line(text.trim_ascii_end());
            }
        }
        script = script.line("bad=");
        for call in calls {
            script = script.args(call).line("\"$@\" || bad=1");
        }
        (!calls.is_empty()).then(|| script.line("[ -z \"$bad\" ]"))
    }

    /// The call that makes a seat as it is now; nothing where its rule can't be put into words.
    fn back(&self, found: &Found, seat: &Seat) -> Option<Vec<String>> {
        let table = found.tables.iter().find(|t| t.place == seat.place);
        let comment = self.comment();
        let chains = seat.chains().into_iter().filter_map(|name| Some((name, table?.chains.get(name)?)));
        let at = |chain: &Chain| chain.rules.iter().position(|r| r.comment.as_ref() == Some(&comment));
        let Some((chain, at)) = chains.filter_map(|(_, chain)| Some((chain, at(chain)?))).next() else {
            return Some(self.call(seat, false, None));
        };
        let old = chain.rules.get(at).filter(|rule| !rule.cond.other)?;
        let next = chain.rules.get(at + 1).filter(|_| matches!(seat.place, Place::Nft(..)));
        Some(self.call_of(seat, (&old.cond, &old.verdict), true, next.map(|rule| rule.at.clone())))
    }

    /// The call that puts the rule there, or takes it away.
    fn call(&self, seat: &Seat, put: bool, before: Option<String>) -> Vec<String> {
        self.call_of(seat, (&self.cond_in(&seat.place), &self.verdict), put, before)
    }

    fn call_of(
        &self,
        seat: &Seat,
        (cond, verdict): (&Cond, &Verdict),
        put: bool,
        before: Option<String>,
    ) -> Vec<String> {
        let how = match verdict {
            _ if !put => "",
            Verdict::Accept => "insert",
            _ => "add",
        };
        let comment = self.comment();
        let before = before.unwrap_or_default();
        match &seat.place {
            Place::Nft(family, table) => {
                let rule = nftables::write(cond, verdict, &comment, seat.place.v6());
                [BY_NFT, how, family, table, &seat.chain, &before, &rule].map(str::to_owned).to_vec()
            }
            Place::Iptables(command) => {
                let rule = iptables::write(cond, verdict, &comment);
                let chain = CHAINS[usize::from(seat.base == "OUTPUT")][0];
                [BY_IPTABLES, how, command, &seat.base, chain, &before, &rule].map(str::to_owned).to_vec()
            }
        }
    }
}

/// The shell functions that put a rule into a chain.
const BY_NFT: &str = "netplay_nft";
const BY_IPTABLES: &str = "netplay_iptables";

impl Work {
    /// Nothing to be done so far.
    pub(super) fn after(found: &Found) -> Work {
        Work { after: found.tables.clone(), ..Work::default() }
    }

    /// Notes what a table will be.
    pub(super) fn replace(&mut self, table: Table) {
        self.after.retain(|t| t.place != table.place);
        self.after.push(table);
    }

    /// Whether something that is let in (or out, at the hook `output`) now will be dropped.
    pub(super) fn closes(&self, before: &[Table], cond: &Cond, hook: &str) -> bool {
        let dropped = |tables: &[Table]| {
            let look = Look { cond, comment: "", with: true, accepts: true };
            let of = |t: &&Table| t.place.v6().is_none_or(|v6| Some(v6) == cond.v6);
            tables.iter().filter(of).any(|t| t.bases(hook).any(|(base, _)| t.fate(base, look) == Fate::Dropped))
        };
        !dropped(before) && dropped(&self.after)
    }
}

/// Has what netplay lets pass kept from what it drops, as its script does.
fn exempt(table: &mut Table) {
    for [lets, drops] in CHAINS {
        let lets = table.chains.get(lets).map(|c| c.rules.clone()).unwrap_or_default();
        let Some(chain) = table.chains.get_mut(drops) else { continue };
        chain.rules.retain(|r| r.verdict != Verdict::Return);
        let lets = lets.into_iter().filter(|r| r.verdict == Verdict::Accept && r.is_netplays());
        chain.rules.splice(0..0, lets.map(|r| Rule { verdict: Verdict::Return, comment: None, ..r }));
    }
}

/// A rule in the words of nft.
pub(super) fn describe(cond: &Cond, verdict: &Verdict) -> String {
    let text = nftables::write(cond, verdict, "", None);
    text.split(" comment ").next().unwrap_or_default().to_owned()
}

/// One packet of the session, as it comes in.
pub(super) fn packet(source: Net, destination: Net, port: u16, input: Option<&str>) -> Cond {
    Cond {
        v6: Some(destination.v6()),
        protocols: ["tcp".to_owned()].into(),
        ports: vec![(port, port)],
        sources: vec![source],
        destinations: vec![destination],
        inputs: input.map(str::to_owned).into_iter().collect(),
        ..Cond::default()
    }
}
