//! The keys that say what a rule matches.

use super::cond::{Cond, Net, joined};
use crate::error::Error;
use crate::resource::Spec;
use crate::resource::probes::links::interface;
use crate::source::Span;
use crate::yaml::Node;

/// What the rule matches.
pub(super) fn condition(spec: &Spec<'_>, out: bool) -> Result<Cond, Error> {
    let mut cond = Cond::default();
    for key in ["protocol", "port", "source", "destination", "interface", "family"] {
        let empty = |n: &&Node| n.is_null() || n.as_seq().is_some_and(<[Node]>::is_empty);
        if let Some(node) = spec.node.get(key).filter(empty) {
            let message = format!("`{key}` is empty, which doesn't make it a rule about all packets");
            return Err(Error::playbook(&node.span, message)
                .hint(format!("give it a value, or leave `{key}` out where the rule is to heed none")));
        }
    }
    let protocol = spec.choice("protocol", &["tcp", "udp", "sctp", "icmp"])?;
    cond.ports = ports(spec)?;
    match protocol {
        Some("icmp") => cond.protocols.extend(["icmp".to_owned(), "ipv6-icmp".to_owned()]),
        protocol => cond.protocols.extend(protocol.map(str::to_owned)),
    }
    if let (false, None | Some("icmp"), Some(at)) = (cond.ports.is_empty(), protocol, spec.get("port")) {
        return Err(Error::playbook(&at.span, "`port` needs `protocol: tcp`, `udp` or `sctp`"));
    }
    for (key, nets) in [("source", &mut cond.sources), ("destination", &mut cond.destinations)] {
        let Some(node) = spec.get(key) else { continue };
        let text = spec.need_text(key)?;
        let net = Net::parse(&text).ok_or_else(|| {
            Error::playbook(&node.span, format!("`{key}` takes an address or a network, not `{text}`"))
                .hint("write it like `10.0.0.0/8` or `fd00::/8`; several are several rules, by `loop`")
        })?;
        // All addresses of a family are that family.
        if net.length > 0 {
            nets.push(net);
        }
        family(&mut cond.v6, net.v6(), &node.span, key)?;
    }
    if let (Some(word), Some(node)) = (spec.choice("family", &["ipv4", "ipv6"])?, spec.get("family")) {
        family(&mut cond.v6, word == "ipv6", &node.span, "family")?;
    }
    if let Some(node) = spec.get("interface") {
        let name = interface(spec, "interface")?;
        if name.contains(|c: char| !c.is_ascii_alphanumeric() && !"._-@".contains(c)) || name.len() > 15 {
            return Err(Error::playbook(&node.span, format!("`{name}` can't be the interface of a rule"))
                .hint("at most 15 letters, digits, `.`, `_`, `-` and `@`; several are several rules, by `loop`"));
        }
        if out {
            cond.outputs.insert(name)
        } else {
            cond.inputs.insert(name)
        };
    }
    if let Some(v6) = cond.v6 {
        cond = cond.within(v6);
    }
    Ok(cond.tidy())
}

/// Notes that a key says which family the rule is of.
fn family(of: &mut Option<bool>, v6: bool, at: &Span, key: &str) -> Result<(), Error> {
    match of.replace(v6) {
        Some(other) if other != v6 => {
            let word = |v6| if v6 { "IPv6" } else { "IPv4" };
            let message = format!("`{key}` is of {}, and what stands before it is of {}", word(v6), word(other));
            Err(Error::playbook(at, message))
        }
        _ => Ok(()),
    }
}

fn ports(spec: &Spec<'_>) -> Result<Vec<(u16, u16)>, Error> {
    let Some(node) = spec.get("port") else { return Ok(Vec::new()) };
    let one = |node: &Node| {
        let text = node.text().unwrap_or_default().trim();
        let (low, high) = text.split_once(['-', ':']).unwrap_or((text, text));
        match (low.trim().parse::<u16>(), high.trim().parse::<u16>()) {
            (Ok(low), Ok(high)) if 0 < low && low <= high => Ok((low, high)),
            _ => Err(Error::playbook(&node.span, format!("`port` can't be {}", quoted(node)))
                .hint("it takes numbers from 1 to 65535, ranges like `18515-18530`, or a list of both")),
        }
    };
    let ports = match node.as_seq() {
        Some(items) => items.iter().map(one).collect::<Result<_, _>>()?,
        None => vec![one(node)?],
    };
    if ports.is_empty() {
        return Err(Error::playbook(&node.span, "`port` is an empty list")
            .hint("leave it out for all ports, or the whole rule out by `when: … | length > 0`"));
    }
    let ports = joined(ports);
    let slots: usize = ports.iter().map(|(low, high)| if low == high { 1 } else { 2 }).sum();
    if slots > 15 {
        let message = format!("`port` has {slots} ports, a range counting twice, and iptables takes 15 in one rule");
        return Err(Error::playbook(&node.span, message).hint("make two rules of it"));
    }
    Ok(ports)
}

fn quoted(node: &Node) -> String {
    node.text().map_or_else(|| node.describe().to_owned(), |text| format!("`{text}`"))
}
