//! nftables: the output of `nft -j list`, and rules for `nft -f`.

use super::chains::{Base, Chain, Place, Rule, Table, Verdict};
use super::cond::{Cond, Net};
use serde_json::Value as Json;
use std::fmt::Write as _;

/// The tables out of what `nft -j list` prints: its schema is libnftables-json(5). None where it is no such output.
pub(super) fn read(text: &str) -> Option<Vec<Table>> {
    let json: Json = serde_json::from_str(text).ok()?;
    let mut tables: Vec<Table> = Vec::new();
    for entry in json.get("nftables")?.as_array()? {
        let Some((kind, object)) = entry.as_object().and_then(|o| o.iter().next()) else { continue };
        let word = |key: &str| object.get(key).and_then(Json::as_str).unwrap_or_default();
        if kind == "table" {
            let place = Place::Nft(word("family").to_owned(), word("name").to_owned());
            tables.push(Table { place, chains: Default::default() });
            continue;
        }
        let place = Place::Nft(word("family").to_owned(), word("table").to_owned());
        let Some(table) = tables.iter_mut().find(|t| t.place == place) else { continue };
        match kind.as_str() {
            "chain" => {
                let base = object.get("hook").and_then(Json::as_str);
                let base = base.map(|hook| Base { hook: hook.to_owned(), drops: word("policy") == "drop" });
                table.chains.insert(word("name").to_owned(), Chain { base, rules: Vec::new() });
            }
            "rule" => {
                let comment = object.get("comment").and_then(Json::as_str).map(str::to_owned);
                let exprs = object.get("expr").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
                let mut rules = rules_of(exprs, comment, place.v6());
                let handle = object.get("handle").map(Json::to_string).unwrap_or_default();
                rules.iter_mut().for_each(|rule| rule.at.clone_from(&handle));
                table.chains.entry(word("chain").to_owned()).or_default().rules.extend(rules);
            }
            _ => {}
        }
    }
    Some(tables)
}

/// A rule out of its expressions; one that looks its verdict up in a map is one for each entry.
fn rules_of(exprs: &[Json], comment: Option<String>, v6: Option<bool>) -> Vec<Rule> {
    let mut rule = Rule { cond: Cond { v6, ..Cond::default() }, verdict: Verdict::Next, comment, at: String::new() };
    let mut entries: Vec<Rule> = Vec::new();
    for expr in exprs {
        let Some((kind, value)) = expr.as_object().and_then(|o| o.iter().next()) else { continue };
        match kind.as_str() {
            "match" => {
                let equal = matches!(value["op"].as_str(), Some("==" | "in"));
                if !equal || !narrow(&mut rule.cond, &value["left"], &value["right"]) {
                    rule.cond.other = true;
                }
            }
            "vmap" => match value["data"]["set"].as_array() {
                Some(data) => {
                    for entry in data {
                        let mut one = rule.clone();
                        one.cond.other |= !narrow(&mut one.cond, &value["key"], &entry[0]);
                        one.verdict = verdict(&entry[1]).unwrap_or(Verdict::Next);
                        entries.push(one);
                    }
                }
                None => rule.cond.other = true,
            },
            "counter" | "log" | "comment" | "notrack" => {}
            // A comment of iptables is a match that always holds.
            "xt" if value["name"] == "comment" => {}
            "limit" | "quota" | "xt" | "ct count" => rule.cond.other = true,
            _ => match verdict(expr) {
                Some(found) => rule.verdict = found,
                None => {
                    // What sets a mark or a set's entry matches all the same.
                    let sets = matches!(kind.as_str(), "mangle" | "set" | "map" | "meter");
                    rule.cond.other |= !sets;
                }
            },
        }
    }
    let mut out = if entries.is_empty() { vec![rule] } else { entries };
    for rule in &mut out {
        rule.cond = std::mem::take(&mut rule.cond).tidy();
    }
    out
}

fn verdict(expr: &Json) -> Option<Verdict> {
    let (kind, value) = expr.as_object()?.iter().next()?;
    let target = || value["target"].as_str().unwrap_or_default().to_owned();
    Some(match kind.as_str() {
        "accept" => Verdict::Accept,
        "drop" => Verdict::Drop,
        "reject" => Verdict::Reject,
        "return" => Verdict::Return,
        "continue" => Verdict::Next,
        "jump" => Verdict::Jump(target()),
        "goto" => Verdict::Goto(target()),
        _ => return None,
    })
}

/// Adds one match to a condition. False where it isn't understood, or doubles one that is there.
fn narrow(cond: &mut Cond, left: &Json, right: &Json) -> bool {
    let Some(values) = values(right) else { return false };
    let words = || values.iter().map(|v| v.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
    let (payload, meta) = (&left["payload"], &left["meta"]);
    let field = payload["field"].as_str().unwrap_or_default();
    match (payload["protocol"].as_str(), meta["key"].as_str()) {
        (Some(protocol @ ("tcp" | "udp" | "sctp" | "th" | "dccp" | "udplite")), _) if field == "dport" => {
            let Some(ports) = values.iter().map(|v| range(v)).collect::<Option<Vec<_>>>() else { return false };
            if protocol != "th" {
                cond.protocols = [protocol.to_owned()].into();
            }
            std::mem::replace(&mut cond.ports, ports).is_empty()
        }
        (Some("ip" | "ip6"), _) if field == "saddr" || field == "daddr" => {
            let Some(nets) = values.iter().map(|v| net(v)).collect::<Option<Vec<_>>>() else { return false };
            let place = if field == "saddr" { &mut cond.sources } else { &mut cond.destinations };
            std::mem::replace(place, nets).is_empty()
        }
        (Some("ip"), _) if field == "protocol" => protocols(cond, words(), Some(false)),
        (Some("ip6"), _) if field == "nexthdr" => protocols(cond, words(), Some(true)),
        (None, Some("l4proto")) => protocols(cond, words(), None),
        (None, Some("nfproto" | "protocol")) => match words().as_deref() {
            Some([one]) => {
                cond.v6 = Some(matches!(one.as_str(), "ipv6" | "ip6"));
                matches!(one.as_str(), "ipv4" | "ip" | "ipv6" | "ip6")
            }
            _ => false,
        },
        (None, Some("iifname" | "iif")) => names(&mut cond.inputs, words()),
        (None, Some("oifname" | "oif")) => names(&mut cond.outputs, words()),
        _ if left["ct"]["key"] == "state" => {
            cond.new = words().map(|w| w.iter().any(|s| s == "new"));
            cond.new.is_some()
        }
        _ => false,
    }
}

fn protocols(cond: &mut Cond, words: Option<Vec<String>>, v6: Option<bool>) -> bool {
    cond.v6 = cond.v6.or(v6);
    let words = words.map(|w| w.into_iter().map(|p| if p == "icmpv6" { "ipv6-icmp".to_owned() } else { p }).collect());
    match words {
        Some(words) => std::mem::replace(&mut cond.protocols, words).is_empty(),
        None => false,
    }
}

fn names(place: &mut std::collections::BTreeSet<String>, words: Option<Vec<String>>) -> bool {
    match words {
        Some(words) => std::mem::replace(place, words.into_iter().collect()).is_empty(),
        None => false,
    }
}

/// One value, or those of a set that stands in the rule; none of a set with a name.
fn values(right: &Json) -> Option<Vec<&Json>> {
    match right {
        Json::String(name) if name.starts_with('@') => None,
        Json::Object(o) if o.contains_key("set") => Some(o["set"].as_array()?.iter().collect()),
        Json::Array(all) => Some(all.iter().collect()),
        one => Some(vec![one]),
    }
}

fn range(value: &Json) -> Option<(u16, u16)> {
    let port = |v: &Json| v.as_u64().and_then(|n| u16::try_from(n).ok());
    match value["range"].as_array() {
        Some(ends) => Some((port(ends.first()?)?, port(ends.get(1)?)?)),
        None => port(value).map(|p| (p, p)),
    }
}

fn net(value: &Json) -> Option<Net> {
    match value.get("prefix") {
        Some(prefix) => Net::parse(&format!("{}/{}", prefix["addr"].as_str()?, prefix["len"].as_u64()?)),
        None => Net::parse(value.as_str()?),
    }
}

/// A rule as `nft` reads it, for a table of this family (nothing for one of both).
pub(super) fn write(cond: &Cond, verdict: &Verdict, comment: &str, of: Option<bool>) -> String {
    let mut out = String::new();
    let set = |words: Vec<String>| match words.as_slice() {
        [one] => one.clone(),
        several => format!("{{ {} }}", several.join(", ")),
    };
    let quoted = |names: &std::collections::BTreeSet<String>| set(names.iter().map(|n| format!("\"{n}\"")).collect());
    let addressed = !cond.sources.is_empty() || !cond.destinations.is_empty();
    if let (Some(v6), None, false) = (cond.v6, of, addressed) {
        _ = write!(out, "meta nfproto {} ", if v6 { "ipv6" } else { "ipv4" });
    }
    if !cond.inputs.is_empty() {
        _ = write!(out, "iifname {} ", quoted(&cond.inputs));
    }
    if !cond.outputs.is_empty() {
        _ = write!(out, "oifname {} ", quoted(&cond.outputs));
    }
    for (field, nets) in [("saddr", &cond.sources), ("daddr", &cond.destinations)] {
        if let Some(first) = nets.first() {
            let family = if first.v6() { "ip6" } else { "ip" };
            _ = write!(out, "{family} {field} {} ", set(nets.iter().map(Net::to_string).collect()));
        }
    }
    let range = |(low, high): &(u16, u16)| if low == high { low.to_string() } else { format!("{low}-{high}") };
    match (cond.protocols.first(), cond.ports.as_slice()) {
        (None, _) => {}
        (Some(_), []) => _ = write!(out, "meta l4proto {} ", set(cond.protocols.iter().cloned().collect())),
        (Some(protocol), ports) => _ = write!(out, "{protocol} dport {} ", set(ports.iter().map(range).collect())),
    }
    let verdict = match verdict {
        Verdict::Accept => "accept",
        Verdict::Drop => "drop",
        _ => "reject",
    };
    format!("{out}{verdict} comment \"{comment}\"")
}
