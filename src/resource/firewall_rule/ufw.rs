//! ufw: its rules of the user, which it keeps in files and has in chains of iptables that end in its policy.
//!
//! ufw takes a rule once only, whatever its comment, so that one which is there already is as good as ours. Its files
//! hold each rule as a tuple (ufw, src/backend_iptables.py); live they have no comments.

use super::FirewallRule;
use super::chains::{Base, Chain, Fate, Place, Rule, Table, Verdict};
use super::cond::{Cond, Net, joined};
use super::netfilter::{Work, describe};
use super::probe::Found;
use crate::resource::{Change, Trouble, Undo};
use crate::shell::Script;

/// What its files say.
#[derive(Debug, Clone, Default)]
pub(super) struct Ufw {
    /// Whether it has rules of IPv6 at all.
    v6: bool,
    /// The rules in their order, each with whether it is of IPv6 and whether it is of what goes out.
    pub(super) rules: Vec<(bool, bool, Rule)>,
}

/// The chain that a rule of a file would be in, were the file a table.
const KEPT: &str = "kept";

pub(super) fn read(text: &str) -> Ufw {
    let mut ufw = Ufw::default();
    for line in text.lines() {
        match line.split_once(' ') {
            Some((family @ ("4" | "6"), tuple)) => ufw.rules.extend(rule(tuple, family == "6")),
            _ => ufw.v6 |= line.eq_ignore_ascii_case("IPV6=yes"),
        }
    }
    ufw
}

/// A rule out of `### tuple ### allow udp 4791 0.0.0.0/0 any 10.0.0.0/8 in_eth1 comment=6e65`: action, protocol,
/// destination's port and address, source's port and address, names of applications if there are some, direction.
fn rule(line: &str, v6: bool) -> Option<(bool, bool, Rule)> {
    let mut words: Vec<&str> = line.strip_prefix("### tuple ### ")?.split_whitespace().collect();
    let comment = words.pop_if(|w| w.starts_with("comment="));
    let comment = comment.and_then(|c| hex(c.strip_prefix("comment=")?));
    let [action, protocol, ports, destination, from, source, .., direction] = words.as_slice() else { return None };
    let mut cond = Cond { v6: Some(v6), other: *from != "any", ..Cond::default() };
    let verdict = match action.trim_end_matches("_log-all").trim_end_matches("_log") {
        "allow" => Verdict::Accept,
        "deny" => Verdict::Drop,
        "reject" => Verdict::Reject,
        // `limit` lets in what isn't too often; rules for what is passed on are no matter of ours.
        _ => return None,
    };
    if *protocol != "any" {
        cond.protocols.insert((*protocol).to_owned());
    }
    if *ports != "any" {
        let range = |p: &str| {
            let (low, high) = p.split_once(':').unwrap_or((p, p));
            Some((low.parse().ok()?, high.parse().ok()?))
        };
        cond.ports = joined(ports.split(',').map(range).collect::<Option<_>>()?);
    }
    for (text, nets) in [(source, &mut cond.sources), (destination, &mut cond.destinations)] {
        nets.extend(Net::parse(text).filter(|net| net.length > 0));
    }
    let (way, interface) = direction.split_once('_').unwrap_or((direction, ""));
    let out = way == "out";
    let interfaces = if out { &mut cond.outputs } else { &mut cond.inputs };
    interfaces.extend((!interface.is_empty()).then(|| interface.to_owned()));
    Some((v6, out, Rule { cond: cond.tidy(), verdict, comment, at: line.to_owned() }))
}

fn hex(text: &str) -> Option<String> {
    let bytes = (0..text.len()).step_by(2).map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok());
    String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()
}

impl FirewallRule {
    /// What is to be done so that ufw has the rule.
    ///
    /// # Errors
    /// Why it can't be.
    pub(super) fn ufw(&self, found: &Found, ufw: &Ufw) -> Result<Work, Trouble> {
        if let Some(protocol) = self.cond.protocols.iter().find(|p| !matches!(p.as_str(), "tcp" | "udp")) {
            let name = if protocol == "sctp" { "SCTP" } else { "ICMP" };
            return Err(Trouble::new(format!("ufw has no rules of {name}")).hint(
                "/etc/ufw/before.rules and before6.rules say what it does with that; leave the rule out by `when`",
            ));
        }
        if !self.persist && self.present {
            return Err(Trouble::new("ufw keeps each of its rules").hint("leave out `persist: false`"));
        }
        let families = self.families(found)?;
        if self.cond.v6 == Some(true) && !ufw.v6 {
            return Err(Trouble::new("ufw is told to have no rules of IPv6: IPV6=no in /etc/default/ufw"));
        }
        let mut work = Work::after(found);
        let mut script = Script::new().line(include_str!("ufw.sh").trim_ascii_end()).line("bad=");
        for v6 in [false, true].into_iter().filter(|v6| !v6 || (ufw.v6 && found.v6)) {
            let present = self.present && families.contains(&v6);
            let (wanted, comment) = (self.wanted(v6), self.comment());
            let kept = ufw.rules.iter().filter(|(six, out, _)| *six == v6 && *out == self.out);
            let kept: &Vec<Rule> = &kept.map(|(.., rule)| rule.clone()).collect();
            let mine = |r: &&Rule| r.cond == wanted.cond && r.verdict == wanted.verdict;
            let ours = ufw.rules.iter().filter(|(six, _, r)| *six == v6 && r.comment.as_ref() == Some(&comment));
            let stale: Vec<_> = ours.filter(|(_, out, r)| !present || *out != self.out || !mine(&r)).collect();
            let table = self.live(found, v6, kept)?;
            let late = self.late(&kept_table(kept, &wanted, v6), KEPT, v6) || self.late(&table, self.chain(v6), v6);
            let before = self.verdict == Verdict::Accept && self.late(&table, self.base(), v6);
            let there = kept.iter().any(|r| mine(&r));
            // ufw keeps one rule for the same packets, whatever becomes of them, and passes another one over.
            let same = |r: &&Rule| present && r.cond == wanted.cond && r.verdict != wanted.verdict;
            if let Some(other) = kept.iter().filter(same).find(|r| r.comment.as_ref() != Some(&comment)) {
                let said = words(other, v6, self.out).join(" ");
                return Err(Trouble::new(format!("ufw has a rule of others for the same packets: `ufw {said}`")).hint(
                    format!("it takes but one for them: leave this rule out by `when`, or, if theirs isn't needed, `ufw delete {said}`"),
                ));
            }
            let running = table.chains[self.chain(v6)].rules.iter().any(|r| mine(&r));
            let wrong = match stale.first() {
                Some((_, _, old)) => Some(describe(&old.cond, &old.verdict).into()),
                None if !present => None,
                None if !there => Some(serde_json::Value::Null),
                None if !running => Some("in its files, and not in force".into()),
                None if late => Some("behind a rule that decides".into()),
                None => None,
            };
            let mut after = table;
            let rules =
                &mut after.chains.get_mut(self.chain(v6)).map(|c| std::mem::take(&mut c.rules)).unwrap_or_default();
            rules.retain(|r| r.comment.as_ref() != Some(&comment));
            if present {
                let first = rules.iter().take_while(|r| netplays(r)).count();
                let at = if self.verdict == Verdict::Accept { 0 } else { first };
                rules.insert(at, Rule { comment: Some(comment.clone()), ..wanted.clone() });
            }
            if let Some(chain) = after.chains.get_mut(self.chain(v6)) {
                chain.rules = std::mem::take(rules);
            }
            work.replace(after);
            let Some(from) = wrong else {
                if present && before {
                    work.lacking = Some(
                        Trouble::new("rules that ufw has before those of users drop its packets")
                            .hint("/etc/ufw/before.rules and before6.rules are yours to change"),
                    );
                }
                continue;
            };
            let to = if present { self.described().into() } else { serde_json::Value::Null };
            work.changes.push(Change::now(if v6 { "ufw IPv6" } else { "ufw IPv4" }, from, to));
            let (first, stale): (Vec<_>, Vec<_>) =
                stale.into_iter().partition(|(_, out, r)| *out == self.out && same(&r));
            for (_, out, old) in first {
                script = script.args(words(old, v6, *out)).line("ufw --force delete \"$@\" || bad=1");
            }
            let again = there && (late || !running);
            for old in kept.iter().filter(|r| again && present && mine(r)) {
                script = script.args(words(old, v6, self.out)).line("ufw --force delete \"$@\" || bad=1");
            }
            if present && (!there || again) {
                let words = words(&wanted, v6, self.out).into_iter().chain(["comment".to_owned(), comment]);
                script = script.args(words).line(match (&self.verdict, v6) {
                    (Verdict::Accept, _) => "ufw prepend \"$@\" || bad=1",
                    (_, false) => "netplay_ufw user.rules \"$@\" || bad=1",
                    (_, true) => "netplay_ufw user6.rules \"$@\" || bad=1",
                });
            }
            // What was there goes when what replaces it is there.
            for (_, out, old) in stale {
                script = script.args(words(old, v6, *out)).line("ufw --force delete \"$@\" || bad=1");
            }
        }
        let files = ["user.rules", "user6.rules"].map(|file| format!("/etc/ufw/{file}")).into();
        work.undo = Some(Undo { files, steps: vec![Script::new().command(["ufw", "reload"])] });
        work.live = (!work.changes.is_empty()).then(|| script.line("[ -z \"$bad\" ]"));
        let managed = |t: &Table| matches!(&t.place, Place::Iptables(c) if c == "iptables" || c == "ip6tables");
        if self.present && work.lacking.is_none() {
            work.lacking = self.others(found, managed, "ufw");
        }
        if self.present && found.disabled("ufw.service") {
            work.lacking.get_or_insert(
                Trouble::new("ufw.service isn't enabled, so that none of ufw's rules are there after a boot")
                    .hint("`service: {name: ufw, enabled: true}`"),
            );
        }
        Ok(work)
    }

    fn base(&self) -> &'static str {
        if self.out { "OUTPUT" } else { "INPUT" }
    }

    fn chain(&self, v6: bool) -> &'static str {
        match (self.out, v6) {
            (false, false) => "ufw-user-input",
            (false, true) => "ufw6-user-input",
            (true, false) => "ufw-user-output",
            (true, true) => "ufw6-user-output",
        }
    }

    /// The rule as ufw has it in a family.
    fn wanted(&self, v6: bool) -> Rule {
        Rule {
            cond: self.cond.within(v6),
            verdict: self.verdict.clone(),
            comment: Some(self.comment()),
            at: String::new(),
        }
    }

    /// The table of a family as it runs, with the comments of the rules that ufw's file has.
    fn live(&self, found: &Found, v6: bool, kept: &[Rule]) -> Result<Table, Trouble> {
        let command = if v6 { "ip6tables" } else { "iptables" };
        let mut table = found.table(command).cloned();
        let Some(chain) = table.as_mut().and_then(|t| t.chains.get_mut(self.chain(v6))) else {
            return Err(Trouble::new("ufw is switched on, and its rules aren't in force")
                .hint("`ufw status` and the journal of ufw.service tell why; `ufw reload` sets them again"));
        };
        for rule in &mut chain.rules {
            let same = kept.iter().find(|k| k.cond == rule.cond && k.verdict == rule.verdict);
            rule.comment = same.and_then(|k| k.comment.clone());
            let wanted = self.wanted(v6);
            if rule.cond == wanted.cond && rule.verdict == wanted.verdict {
                rule.comment = wanted.comment;
            }
        }
        table.ok_or_else(|| Trouble::new("iptables isn't there"))
    }

    /// Whether something that decides otherwise comes before the rule.
    fn late(&self, table: &Table, base: &str, v6: bool) -> bool {
        let against = if self.verdict == Verdict::Accept { Fate::Dropped } else { Fate::Accepted };
        self.fate(table, base, v6, true) == against
    }
}

fn netplays(rule: &Rule) -> bool {
    rule.verdict == Verdict::Accept && rule.comment.as_ref().is_some_and(|c| c.starts_with(super::chains::MARK))
}

/// The rules of a file as a table, in which the wanted one has our comment.
fn kept_table(kept: &[Rule], wanted: &Rule, v6: bool) -> Table {
    let mut rules = kept.to_vec();
    for rule in &mut rules {
        if rule.cond == wanted.cond && rule.verdict == wanted.verdict {
            rule.comment.clone_from(&wanted.comment);
        }
    }
    // What no rule decides is the policy's, which isn't looked at here.
    let accepts = wanted.verdict == Verdict::Accept;
    let base = Base { hook: "input".to_owned(), drops: !accepts };
    let place = Place::Iptables(if v6 { "ip6tables" } else { "iptables" }.to_owned());
    Table { place, chains: [(KEPT.to_owned(), Chain { base: Some(base), rules })].into() }
}

/// The words by which ufw knows a rule, in this family alone.
fn words(rule: &Rule, v6: bool, out: bool) -> Vec<String> {
    let cond = &rule.cond;
    let action = match rule.verdict {
        Verdict::Accept => "allow",
        Verdict::Drop => "deny",
        _ => "reject",
    };
    let mut words = vec![action.to_owned(), if out { "out" } else { "in" }.to_owned()];
    for interface in cond.inputs.iter().chain(&cond.outputs) {
        words.extend(["on".to_owned(), interface.clone()]);
    }
    for protocol in &cond.protocols {
        words.extend(["proto".to_owned(), protocol.clone()]);
    }
    let any = if v6 { "::/0" } else { "0.0.0.0/0" };
    for (key, nets) in [("from", &cond.sources), ("to", &cond.destinations)] {
        words.extend([key.to_owned(), nets.first().map_or_else(|| any.to_owned(), Net::to_string)]);
    }
    if !cond.ports.is_empty() {
        let range = |(low, high): &(u16, u16)| if low == high { low.to_string() } else { format!("{low}:{high}") };
        words.extend(["port".to_owned(), cond.ports.iter().map(range).collect::<Vec<_>>().join(",")]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As ufw 0.36.2 wrote them.
    const FILES: &str = "\
IPV6=yes
4 ### tuple ### allow any any 0.0.0.0/0 any 0.0.0.0/0 in_eth1 comment=6e6574706c61793a616c6c65746831
4 ### tuple ### reject tcp 25 10.0.0.0/8 any 0.0.0.0/0 out comment=6e6574706c61793a6f7574
4 ### tuple ### allow tcp 5201,18515:18530 0.0.0.0/0 any 10.0.0.0/8 in_eth1 comment=6e6574706c61793a697065726633
4 ### tuple ### deny tcp 5201 0.0.0.0/0 any 0.0.0.0/0 in
4 ### tuple ### limit tcp 22 0.0.0.0/0 any 0.0.0.0/0 in
4 ### tuple ### allow_log tcp 80,443 0.0.0.0/0 any 0.0.0.0/0 WWW%20Full - in
6 ### tuple ### deny udp any fd00::1 any ::/0 in_eth2 comment=6e6574706c61793a7636
4 ### tuple ### route:allow tcp 80 0.0.0.0/0 any 0.0.0.0/0 in
";

    #[test]
    fn what_ufw_keeps_is_read_and_said_again() {
        let ufw = read(FILES);
        assert!(ufw.v6);
        let said: Vec<String> = ufw.rules.iter().map(|(v6, out, r)| words(r, *v6, *out).join(" ")).collect();
        assert_eq!(
            said,
            [
                "allow in on eth1 from 0.0.0.0/0 to 0.0.0.0/0",
                "reject out proto tcp from 0.0.0.0/0 to 10.0.0.0/8 port 25",
                "allow in on eth1 proto tcp from 10.0.0.0/8 to 0.0.0.0/0 port 5201,18515:18530",
                "deny in proto tcp from 0.0.0.0/0 to 0.0.0.0/0 port 5201",
                "allow in proto tcp from 0.0.0.0/0 to 0.0.0.0/0 port 80,443",
                "deny in on eth2 proto udp from ::/0 to fd00::1",
            ]
        );
        assert_eq!(ufw.rules[2].2.comment.as_deref(), Some("netplay:iperf3"));
        assert_eq!(ufw.rules[3].2.comment, None);
    }
}
