//! iptables: the output of `iptables-save`, and rules for `iptables-restore`.

use super::chains::{Base, Chain, Place, Rule, Table, Verdict};
use super::cond::{Cond, Net};
use std::fmt::Write as _;

/// The table `filter` out of what `iptables-save` of this command prints. Where it prints none, nobody has asked for
/// it yet: the kernel then makes it with empty chains that accept.
pub(super) fn read(command: &str, saved: &str) -> Table {
    let place = Place::Iptables(command.to_owned());
    let v6 = place.v6();
    let mut table = Table { place, chains: Default::default() };
    for (name, hook) in [("INPUT", "input"), ("OUTPUT", "output")] {
        let base = Some(Base { hook: hook.to_owned(), drops: false });
        table.chains.insert(name.to_owned(), Chain { base, rules: Vec::new() });
    }
    let mut within = false;
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            within = name.trim_end() == "filter";
        } else if !within {
        } else if let Some(chain) = line.strip_prefix(':') {
            let mut words = chain.split_whitespace();
            let (Some(name), policy) = (words.next(), words.next()) else { continue };
            let chain = table.chains.entry(name.to_owned()).or_default();
            if let Some(base) = &mut chain.base {
                base.drops = policy == Some("DROP");
            }
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let words = words(rule);
            let Some((chain, options)) = words.split_first() else { continue };
            let rule = Rule { at: line.trim_end().to_owned(), ..rule_of(options, v6) };
            table.chains.entry(chain.clone()).or_default().rules.push(rule);
        }
    }
    table
}

/// The words of a line, as iptables quotes them: `"`, and `\` before `"` and `\`.
fn words(line: &str) -> Vec<String> {
    let (mut out, mut word, mut quoted, mut some) = (Vec::new(), String::new(), false, false);
    let mut letters = line.chars();
    while let Some(c) = letters.next() {
        match c {
            '"' => (quoted, some) = (!quoted, true),
            '\\' if quoted => word.extend(letters.next()),
            c if c.is_whitespace() && !quoted => {
                if some || !word.is_empty() {
                    out.push(std::mem::take(&mut word));
                }
                some = false;
            }
            c => word.push(c),
        }
    }
    if some || !word.is_empty() {
        out.push(word);
    }
    out
}

/// A rule out of its options.
pub(super) fn rule_of(options: &[String], v6: Option<bool>) -> Rule {
    let mut rule =
        Rule { cond: Cond { v6, ..Cond::default() }, verdict: Verdict::Next, comment: None, at: String::new() };
    let cond = &mut rule.cond;
    let is_option =
        |word: &&String| word.strip_prefix('-').is_some_and(|w| w.starts_with(|c: char| c == '-' || c.is_alphabetic()));
    let mut words = options.iter().peekable();
    while let Some(option) = words.next().map(String::as_str) {
        if option == "!" {
            // What is turned round is no condition that can be compared.
            cond.other = true;
            words.next();
            words.next_if(|w| !is_option(w));
            continue;
        }
        let value = if option == "--comment" { words.next() } else { words.next_if(|w| !is_option(w)) };
        let Some(value) = value.map(String::as_str).filter(|_| option.starts_with('-')) else {
            cond.other = true;
            continue;
        };
        match option {
            "-p" => _ = cond.protocols.insert(protocol(value)),
            "-s" => net(&mut cond.sources, &mut cond.other, value),
            "-d" => net(&mut cond.destinations, &mut cond.other, value),
            "-i" => _ = cond.inputs.insert(value.to_owned()),
            "-o" => _ = cond.outputs.insert(value.to_owned()),
            "--dport" | "--dports" => match value.split(',').map(range).collect::<Option<Vec<_>>>() {
                Some(ports) => cond.ports = ports,
                None => cond.other = true,
            },
            // A state has its `--ctstate` behind it; modules of which nothing else follows match by themselves.
            "-m" => {
                cond.other |= !matches!(value, "comment" | "multiport" | "conntrack" | "state" | "tcp" | "udp" | "sctp")
            }
            "--ctstate" | "--state" => cond.new = Some(value.split(',').any(|s| s == "NEW")),
            "--comment" => rule.comment = Some(value.to_owned()),
            "--reject-with" => {}
            "-g" => rule.verdict = Verdict::Goto(value.to_owned()),
            "-j" => {
                rule.verdict = match value {
                    "ACCEPT" => Verdict::Accept,
                    "DROP" => Verdict::Drop,
                    "REJECT" => Verdict::Reject,
                    "RETURN" => Verdict::Return,
                    chain => Verdict::Jump(chain.to_owned()),
                }
            }
            _ => cond.other = true,
        }
    }
    rule.cond = rule.cond.tidy();
    rule
}

fn protocol(name: &str) -> String {
    match name {
        "icmpv6" => "ipv6-icmp".to_owned(),
        name => name.to_owned(),
    }
}

fn net(nets: &mut Vec<Net>, other: &mut bool, value: &str) {
    match Net::parse(value) {
        Some(net) => nets.push(net),
        None => *other = true,
    }
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (low, high) = text.split_once(':').unwrap_or((text, text));
    Some((low.parse().ok()?, high.parse().ok()?))
}

/// A rule as `iptables-restore` reads it, from behind the name of the chain on. It has at most one source, one
/// destination and one protocol in this family.
pub(super) fn write(cond: &Cond, verdict: &Verdict, comment: &str) -> String {
    let mut out = String::new();
    for (option, words) in [
        ("-s", cond.sources.iter().map(Net::to_string).collect::<Vec<_>>()),
        ("-d", cond.destinations.iter().map(Net::to_string).collect()),
        ("-i", cond.inputs.iter().cloned().collect()),
        ("-o", cond.outputs.iter().cloned().collect()),
        ("-p", cond.protocols.iter().cloned().collect()),
    ] {
        words.iter().for_each(|word| _ = write!(out, "{option} {word} "));
    }
    let range = |(low, high): &(u16, u16)| if low == high { low.to_string() } else { format!("{low}:{high}") };
    match cond.ports.as_slice() {
        [] => {}
        [one] => {
            cond.protocols.iter().for_each(|p| _ = write!(out, "-m {p} "));
            _ = write!(out, "--dport {} ", range(one));
        }
        several => {
            _ = write!(out, "-m multiport --dports {} ", several.iter().map(range).collect::<Vec<_>>().join(","))
        }
    }
    let target = match verdict {
        Verdict::Accept => "ACCEPT",
        Verdict::Drop => "DROP",
        _ => "REJECT",
    };
    format!("{out}-m comment --comment \"{comment}\" -j {target}")
}
