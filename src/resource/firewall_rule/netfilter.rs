//! Rules that the kernel is told directly, by `nft` and the commands of iptables.
//!
//! An accept in one base chain doesn't override a drop in another, so that it has to be in each that would drop its
//! packets, whoever made that. In a table of nftables it is a rule among the others; for iptables it stands in a chain
//! of netplay's own, to which the first rule jumps. What drops or rejects has one place of its own.

use super::chains::{Fate, Look, Place, Table, Verdict};
use super::cond::{Cond, Net};
use super::probe::Found;
use super::{FirewallRule, iptables, nftables};
use crate::resource::{Change, Trouble};
use crate::shell::Script;
use serde_json::Value as Json;

/// What is to be done about a rule.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// What differs in the kernel.
    pub(super) changes: Vec<Change>,
    /// What mends it.
    pub(super) live: Option<Script>,
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
    fn of(place: &Place, base: &str) -> Seat {
        let chain = match (place, base) {
            (Place::Nft(..), base) => base,
            (Place::Iptables(_), "OUTPUT") => "NETPLAY-OUT",
            (Place::Iptables(_), _) => "NETPLAY-IN",
        };
        Seat { place: place.clone(), base: base.to_owned(), chain: chain.to_owned() }
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
        for seat in &seats {
            let (wrong, moves) = self.judge(found, seat);
            if let Some(from) = wrong {
                work.changes.push(Change::now(seat.place.name(&seat.base), from, self.described()));
                live.push(self.call(seat, true, moves));
            }
            boot.push(self.call(seat, true, false));
        }
        for (place, chain, rules) in self.strays(found, &seats) {
            let base = match chain.as_str() {
                "NETPLAY-OUT" => "OUTPUT",
                "NETPLAY-IN" => "INPUT",
                chain => chain,
            };
            work.changes.push(Change::now(place.name(base), rules, Json::Null));
            live.push(self.call(&Seat { place, base: base.to_owned(), chain }, false, false));
        }
        for table in &mut work.after {
            table.chains.values_mut().for_each(|c| c.rules.retain(|r| r.comment.as_ref() != Some(&self.comment())));
        }
        seats.iter().for_each(|seat| self.seat(&mut work.after, seat));
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
            seats.push(Seat::of(&own(), self.hook()));
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
            seats.push(Seat::of(&table.place, if self.out { "OUTPUT" } else { "INPUT" }));
        }
        if self.verdict != Verdict::Accept {
            return Ok(seats);
        }
        for (table, v6) in found.tables.iter().flat_map(|t| families.iter().map(move |v6| (t, *v6))) {
            if table.place.v6().is_some_and(|of| of != v6) || table.place == own() {
                continue;
            }
            for (base, _) in table.bases(self.hook()) {
                let seat = Seat::of(&table.place, base);
                if self.fate(table, base, v6, false) == Fate::Dropped && !seats.contains(&seat) {
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

    /// What is wrong with the rule at a seat, if anything, and whether the way to it has to move.
    fn judge(&self, found: &Found, seat: &Seat) -> (Option<Json>, bool) {
        let Some(table) = found.tables.iter().find(|t| t.place == seat.place) else { return (Some(Json::Null), false) };
        let chain = table.chains.get(&seat.chain);
        let comment = self.comment();
        let ours: Vec<_> =
            chain.into_iter().flat_map(|c| &c.rules).filter(|r| r.comment.as_ref() == Some(&comment)).collect();
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
        let wrong = match ours.as_slice() {
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
        };
        (wrong, jumps != 1 || late)
    }

    /// Where the rule is and doesn't belong: place, chain, what is there. One that is right and only not needed stays.
    fn strays(&self, found: &Found, seats: &[Seat]) -> Vec<(Place, String, String)> {
        let comment = self.comment();
        let mut strays = Vec::new();
        for table in &found.tables {
            for (name, chain) in &table.chains {
                if seats.iter().any(|s| s.place == table.place && s.chain == *name) {
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
        use super::chains::{Base, Chain, Rule};
        if !tables.iter().any(|t| t.place == seat.place) {
            let base = Base { hook: self.hook().to_owned(), drops: false };
            let chain = Chain { base: Some(base), rules: Vec::new() };
            tables.push(Table { place: seat.place.clone(), chains: [(seat.base.clone(), chain)].into() });
        }
        let Some(table) = tables.iter_mut().find(|t| t.place == seat.place) else { return };
        if seat.chain != seat.base {
            let base = table.chains.entry(seat.base.clone()).or_default();
            let jump = Verdict::Jump(seat.chain.clone());
            base.rules.retain(|r| r.verdict != jump);
            base.rules.insert(0, Rule { cond: Cond::default(), verdict: jump, comment: None });
        }
        let rules = &mut table.chains.entry(seat.chain.clone()).or_default().rules;
        let at = if self.verdict == Verdict::Accept { 0 } else { rules.len() };
        let comment = Some(self.comment());
        rules.insert(at, Rule { cond: self.cond_in(&seat.place), verdict: self.verdict.clone(), comment });
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

    /// The call that puts the rule there, or takes it away.
    fn call(&self, seat: &Seat, put: bool, moves: bool) -> Vec<String> {
        let how = match self.verdict {
            _ if !put => "",
            Verdict::Accept => "insert",
            _ => "add",
        };
        let (cond, comment) = (self.cond_in(&seat.place), self.comment());
        let moves = if moves { "move" } else { "" };
        match &seat.place {
            Place::Nft(family, table) => {
                let rule = nftables::write(&cond, &self.verdict, &comment, seat.place.v6());
                [BY_NFT, how, family, table, &seat.chain, &rule].map(str::to_owned).to_vec()
            }
            Place::Iptables(command) => {
                let rule = iptables::write(&cond, &self.verdict, &comment);
                [BY_IPTABLES, how, command, &seat.base, &seat.chain, moves, &rule].map(str::to_owned).to_vec()
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
