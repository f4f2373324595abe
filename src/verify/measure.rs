//! What is measured from one host to another, a pair at a time: whether it is enough, and what is found where it isn't.

use super::blame::{Blamed, End, Tested};
use super::fabric::{Node, facing};
use super::path_mtu::doubled;
use super::ports::down;
use super::{Judged, Verdict};
use crate::finding::{self, Finding};
use std::collections::BTreeSet;

/// From one interface to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// Where it leaves.
    pub from: End,
    /// Where it goes to.
    pub to: End,
    /// The address that it leaves from.
    pub own: String,
    /// The address that it goes to.
    pub address: String,
}

/// Why a test wasn't good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Less than was wanted came through.
    Slow,
    /// Some packets were lost.
    Lossy,
    /// All were.
    Silent,
    /// No connection to the test's server came to be.
    Blocked {
        /// Its port.
        port: u16,
    },
    /// A tool isn't there, on this host: the one that sends, or the other one.
    Missing {
        /// Whether it is the one that sends.
        sender: bool,
        /// The tool.
        tool: &'static str,
        /// Debian's package of it.
        package: &'static str,
    },
    /// An interface has no RDMA device.
    NoDevice {
        /// Whether it is that of the one that sends.
        sender: bool,
    },
    /// The RDMA device can't be used: the driver, permissions, locked memory.
    Device,
    /// A connection of RDMA broke off, or didn't come to be: packets that vanish.
    Timeout,
    /// It couldn't be made.
    Failed {
        /// Whether that is so for the one that sends, and not for the other.
        sender: bool,
    },
}

/// What one test came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// From where to where.
    pub way: Way,
    /// What was measured.
    pub value: Option<f64>,
    /// What it was to be.
    pub wanted: Option<f64>,
    /// Why it was judged so.
    pub reason: String,
    /// What is wrong.
    pub fault: Option<Fault>,
    /// Whether it could be judged.
    pub judged: bool,
}

impl Measured {
    /// One that went wrong before there was a value.
    pub fn failed(way: &Way, fault: Fault, reason: impl Into<String>) -> Measured {
        Measured {
            way: way.clone(),
            value: None,
            wanted: None,
            reason: reason.into(),
            fault: Some(fault),
            judged: true,
        }
    }

    /// As a test for finding out whose fault it is; nothing of what says nothing of the fabric.
    pub fn tested(&self) -> Option<Tested> {
        let good = match self.fault {
            _ if !self.judged => return None,
            None => true,
            Some(
                Fault::Slow | Fault::Lossy | Fault::Silent | Fault::Blocked { .. } | Fault::Device | Fault::Timeout,
            ) => false,
            Some(Fault::Missing { .. } | Fault::NoDevice { .. } | Fault::Failed { .. }) => return None,
        };
        Some(Tested { from: self.way.from, to: self.way.to, good })
    }
}

/// A check that measures in pairs.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Its name.
    pub check: &'static str,
    /// The unit of its values.
    pub unit: &'static str,
    /// What is found where too little comes through.
    pub slow: &'static finding::Known,
}

/// The ways between two hosts, rail by rail, each in both directions.
pub fn ways(nodes: &[Node], (a, b): (usize, usize)) -> Vec<Way> {
    let both = |f: super::fabric::Facing| {
        let (from, to) = ((a, f.nics.0), (b, f.nics.1));
        let (own, address) = f.addresses;
        [
            Way { from, to, own: own.clone(), address: address.clone() },
            Way { from: to, to: from, own: address, address: own },
        ]
    };
    facing(&nodes[a], &nodes[b]).into_iter().flat_map(both).collect()
}

/// Leaves out what can't be measured, by its own fault and not by that of who it is tested with: interfaces without a carrier, and
/// those whose address another host has too. What was told of them before, by `told`, isn't told again. Hosts without any
/// other interface are left out as well.
pub fn fit(
    check: &'static str,
    nodes: &mut Vec<Node>,
    seats: &mut Vec<usize>,
    told: impl Fn(&Finding) -> bool,
    judged: &mut Judged,
) {
    let dark = |(host, node): (usize, &Node)| {
        let of = |(at, nic)| down(check, node, nic).map(|(verdict, found)| ((host, at), verdict, found));
        node.nics.iter().enumerate().filter_map(of).collect::<Vec<_>>()
    };
    let unfit: Vec<_> = nodes.iter().enumerate().flat_map(dark).chain(doubled(check, nodes)).collect();
    let mut out = BTreeSet::new();
    for (end, verdict, found) in unfit {
        if !out.insert(end) {
            continue;
        }
        if told(&found) {
            let reason = format!("left out: {}", verdict.reason);
            judged.verdicts.push(Verdict { reason, ..verdict }.skipped());
        } else {
            judged.failed(verdict, found);
        }
    }
    let empty: BTreeSet<usize> = out.iter().map(|end| end.0).collect();
    for (host, at) in out.into_iter().rev() {
        nodes[host].nics.remove(at);
    }
    for host in empty.into_iter().rev().filter(|host| nodes[*host].nics.is_empty()).collect::<Vec<_>>() {
        nodes.remove(host);
        seats.remove(host);
    }
}

/// Tells of hosts that nobody could be tested with, of the ways between all that were.
pub fn alone(nodes: &[Node], about: About, measured: &[Measured], lost: &BTreeSet<usize>, judged: &mut Judged) {
    for (at, node) in nodes.iter().enumerate() {
        if lost.contains(&at) || measured.iter().any(|one| one.way.from.0 == at || one.way.to.0 == at) {
            continue;
        }
        let verdict = |reason: &str| Verdict::of(about.check, &node.host, None, reason);
        let skipped = match nodes.len() {
            0 | 1 => Some("there is no other host to test it with"),
            _ if !lost.is_empty() => Some("the host was lost that it was to be tested with"),
            _ => None,
        };
        if let Some(why) = skipped {
            judged.verdicts.push(verdict(why).skipped());
            continue;
        }
        let reason = match node.nics.as_slice() {
            [] => "it has no interface of the fabric with an address".to_owned(),
            nics => {
                let names: Vec<&str> = nics.iter().map(|nic| nic.name.as_str()).collect();
                format!("no other host was there to be tested with in a network of {}", names.join(", "))
            }
        };
        let found = Finding::new(&finding::NO_PEER, [node.host.clone()], &*reason, &[]);
        judged.failed(verdict(&reason), found);
    }
}

/// Judges all of them.
pub fn judge(
    nodes: &[Node],
    about: About,
    measured: &[Measured],
    again: &[Measured],
    blamed: &[Blamed],
    judged: &mut Judged,
) {
    let name = |end: End| nodes[end.0].nics[end.1].name.as_str();
    let host = |end: End| &nodes[end.0].host;
    for one in measured {
        let (from, to) = (one.way.from, one.way.to);
        let verdict = Verdict::of(about.check, host(from), Some(name(from)), &*one.reason).towards(host(to), name(to));
        let verdict = Verdict { value: one.value, wanted: one.wanted, unit: about.unit, ..verdict };
        match &one.fault {
            _ if !one.judged => judged.verdicts.push(verdict.skipped()),
            None => judged.verdicts.push(verdict),
            Some(
                Fault::Slow | Fault::Lossy | Fault::Silent | Fault::Blocked { .. } | Fault::Device | Fault::Timeout,
            ) => {
                judged.verdicts.push(Verdict { ok: Some(false), ..verdict });
            }
            Some(Fault::Missing { sender, tool, package }) => {
                let whose = if *sender { from } else { to };
                let words = [("tool", *tool), ("package", *package)];
                let found = Finding::new(&finding::TOOL_MISSING, [host(whose).clone()], &*one.reason, &words);
                judged.failed(verdict, found);
            }
            Some(Fault::NoDevice { sender }) => {
                let whose = if *sender { from } else { to };
                let words = [("interface", name(whose))];
                let found = Finding::new(&finding::RDMA_UNUSABLE, [host(whose).clone()], &*one.reason, &words);
                judged.failed(verdict, found);
            }
            Some(Fault::Failed { sender }) => {
                let whose = if *sender { from } else { to };
                let words = [("check", about.check)];
                let found = Finding::new(&finding::TEST_FAILED, [host(whose).clone()], &*one.reason, &words);
                judged.failed(verdict, found);
            }
        }
    }
    for blamed in blamed {
        judged.find(found(nodes, about, measured, again, blamed));
    }
}

fn found(nodes: &[Node], about: About, measured: &[Measured], again: &[Measured], blamed: &Blamed) -> Finding {
    let name = |end: End| nodes[end.0].nics[end.1].name.as_str();
    let host = |end: End| nodes[end.0].host.clone();
    let bad = |one: &&Measured| one.tested().is_some_and(|t| !t.good);
    let (ends, place) = match blamed {
        Blamed::End { end, sends, gets } => {
            let direction = match (sends, gets) {
                (true, false) => "what it sends",
                (false, true) => "what it gets",
                _ => "both directions",
            };
            (vec![*end], format!("{} ({direction})", name(*end)))
        }
        Blamed::Pair(from, to) => {
            (vec![*from, *to], format!("from {} to {}, both good with others", name(*from), name(*to)))
        }
        Blamed::PairBothWays(a, b) => {
            (vec![*a, *b], format!("between {} and {}, both good with others", name(*a), name(*b)))
        }
        Blamed::All(ends) => (ends.clone(), format!("{}, between none of {} hosts", name(ends[0]), ends.len())),
        Blamed::Parts(parts) => {
            let hosts =
                |part: &Vec<End>| part.iter().map(|end| nodes[end.0].host.to_string()).collect::<Vec<_>>().join(",");
            let groups = parts.iter().map(hosts).collect::<Vec<_>>().join(" | ");
            (parts.concat(), format!("{}, only between these groups: {groups}", name(parts[0][0])))
        }
    };
    let place = if nodes.len() == 2 { place.replace(", both good with others", "") } else { place };
    let concerned = |one: &&Measured| match blamed {
        Blamed::End { end, sends, gets } => (*sends && one.way.from == *end) || (*gets && one.way.to == *end),
        _ => ends.contains(&one.way.from) && ends.contains(&one.way.to),
    };
    let those: Vec<&Measured> = measured.iter().filter(bad).filter(concerned).collect();
    let all = measured.iter().filter(concerned).filter(|one| one.tested().is_some()).count();
    let worst = those.iter().min_by(|a, b| {
        let key = |one: &Measured| match one.fault {
            Some(Fault::Lossy | Fault::Silent) => one.value.map_or(f64::NEG_INFINITY, |v| -v),
            _ => one.value.unwrap_or(f64::NEG_INFINITY),
        };
        key(a).total_cmp(&key(b))
    });
    let reason = worst.map_or_else(String::new, |one| one.reason.clone());
    let port = those.iter().find_map(|one| match one.fault {
        Some(Fault::Blocked { port }) => Some(port),
        _ => None,
    });
    let known = match worst.and_then(|one| one.fault.as_ref()) {
        Some(Fault::Lossy) => &finding::PACKET_LOSS,
        Some(Fault::Silent) => &finding::PEER_UNREACHABLE,
        Some(Fault::Blocked { .. }) => &finding::PORT_BLOCKED,
        Some(Fault::Device) => &finding::RDMA_UNUSABLE,
        Some(Fault::Timeout) => &finding::RDMA_TIMEOUT,
        Some(Fault::Slow) if matches!(blamed, Blamed::All(_)) && other_rails_are_good(measured, &ends) => {
            &finding::SLOW_RAIL
        }
        _ => about.slow,
    };
    let network = ends.first().and_then(|end| nodes[end.0].nics[end.1].addresses.first());
    let network = network.map_or_else(String::new, |address| super::fabric::network(address));
    let port = port.map_or_else(String::new, |p| p.to_string());
    let words = [
        ("interface", name(ends[0])),
        ("network", network.as_str()),
        ("port", &port),
        ("check", about.check),
        ("where", &place),
    ];
    let mut good: Vec<String> = again
        .iter()
        .filter(bad)
        .filter(concerned)
        .flat_map(|one| [one.way.from, one.way.to])
        .filter(|end| !ends.contains(end))
        .map(|end| nodes[end.0].host.to_string())
        .collect();
    good.sort();
    good.dedup();
    let again = match good.as_slice() {
        [] => String::new(),
        all => format!(", and again with {}, which is good with others", all.join(", ")),
    };
    let evidence = format!("{place}: {reason}, in {} of {all} tests{again}", those.len());
    let finding = Finding::new(known, ends.iter().map(|end| host(*end)), evidence, &words);
    match blamed {
        Blamed::Pair(from, to) | Blamed::PairBothWays(from, to) => finding.between(&host(*from), &host(*to)),
        _ => finding,
    }
}

/// Whether hosts have other interfaces than these, and all is good between those.
fn other_rails_are_good(measured: &[Measured], ends: &[End]) -> bool {
    let of_others = |one: &&Measured| !ends.contains(&one.way.from) && !ends.contains(&one.way.to);
    let mut others = measured.iter().filter(of_others).filter_map(Measured::tested).peekable();
    others.peek().is_some() && others.all(|test| test.good)
}

#[cfg(test)]
mod tests {
    use super::super::fabric::Nic;
    use super::super::{Pairs, blame};
    use super::*;

    fn nodes(hosts: usize) -> Vec<Node> {
        let node = |i: usize| {
            let nic = |rail: usize| Nic {
                name: format!("eth{rail}"),
                addresses: vec![format!("10.{rail}.0.{}/16", i + 1)],
                ..Nic::default()
            };
            Node { host: format!("n{i}").into(), nics: vec![nic(1), nic(2)], ..Node::default() }
        };
        (0..hosts).map(node).collect()
    }

    const ABOUT: About = About { check: "tcp", unit: "Gb/s", slow: &finding::TCP_SLOW };

    /// What is found of so many hosts where tests go so.
    fn found(hosts: usize, pairs: Pairs, fault: impl Fn(&Way) -> Option<Fault>) -> Vec<(&'static str, String, String)> {
        let nodes = nodes(hosts);
        let measure = |way: Way| {
            let fault = fault(&way);
            let value = if fault.is_some() { 1.0 } else { 9.0 };
            Measured {
                way,
                value: Some(value),
                wanted: Some(8.0),
                reason: format!("{value} Gb/s"),
                fault,
                judged: true,
            }
        };
        let all: Vec<Measured> =
            pairs.rounds(hosts, 0).into_iter().flatten().flat_map(|pair| ways(&nodes, pair)).map(measure).collect();
        let tests: Vec<Tested> = all.iter().filter_map(Measured::tested).collect();
        let suspects = blame::suspects(&tests);
        let again = blame::again(&suspects, &blame::proven(&tests, &suspects), |a, b| a.1 == b.1);
        let meant = |way: &Way| again.contains(&(way.from, way.to)) || again.contains(&(way.to, way.from));
        let second: Vec<Measured> =
            again.iter().flat_map(|(a, b)| ways(&nodes, (a.0, b.0))).filter(meant).map(measure).collect();
        let retried: Vec<Tested> = second.iter().filter_map(Measured::tested).collect();
        let mut judged = Judged::default();
        judge(&nodes, ABOUT, &all, &second, &blame::name(&tests, &retried), &mut judged);
        judged.findings.into_iter().map(|f| (f.name, f.hosts.join(","), f.evidence)).collect()
    }

    #[test]
    fn one_slow_rail_of_one_host_is_named() {
        let slow = |way: &Way| (way.from == (3, 1)).then_some(Fault::Slow);
        assert_eq!(found(8, Pairs::Quick, |_| None), []);
        let evidence = "eth2 (what it sends): 1 Gb/s, in 1 of 1 tests, and again with n0, which is good with others";
        assert_eq!(found(8, Pairs::Quick, slow), [("tcp_slow", "n3".to_owned(), evidence.to_owned())]);
        let evidence = "eth2 (what it sends): 1 Gb/s, in 7 of 7 tests, and again with n0, which is good with others";
        assert_eq!(found(8, Pairs::Full, slow), [("tcp_slow", "n3".to_owned(), evidence.to_owned())]);
    }

    #[test]
    fn what_cannot_be_measured_by_its_own_fault_is_left_out() {
        let nic = |name: &str, address: &str, carrier: bool| Nic {
            name: name.into(),
            addresses: vec![format!("{address}/16")],
            carrier: Some(carrier),
            ..Nic::default()
        };
        let node = |host: &str, nics: Vec<Nic>| Node { host: host.into(), nics, ..Node::default() };
        let mut nodes = vec![
            node("n0", vec![nic("eth1", "10.1.0.1", true), nic("eth2", "10.2.0.1", true)]),
            node("n1", vec![nic("eth1", "10.1.0.2", true), nic("eth2", "10.2.0.2", false)]),
            node("n2", vec![nic("eth1", "10.1.0.1", true)]),
        ];
        let mut seats = vec![5, 6, 7];
        let mut judged = Judged::default();
        fit("tcp", &mut nodes, &mut seats, |found| found.name == "link_down", &mut judged);
        let left: Vec<(&str, &str)> =
            nodes.iter().flat_map(|n| n.nics.iter().map(|nic| (&*n.host, nic.name.as_str()))).collect();
        assert_eq!((left, seats), (vec![("n0", "eth2"), ("n1", "eth1")], vec![5, 6]));
        let found: Vec<(&str, String)> = judged.findings.iter().map(|f| (f.name, f.hosts.join(","))).collect();
        assert_eq!(found, [("duplicate_address", "n0,n2".to_owned())]);
        let skipped: Vec<&str> = judged.verdicts.iter().filter(|v| v.ok.is_none()).map(|v| &*v.reason).collect();
        assert_eq!(skipped, ["left out: eth2 has no carrier"], "it was told before");
    }

    #[test]
    fn a_rail_that_is_slow_everywhere_is_named_as_that() {
        let slow = |way: &Way| (way.from.1 == 1).then_some(Fault::Slow);
        let all = found(4, Pairs::Full, slow);
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!((all[0].0, &*all[0].1), ("slow_rail", "n0,n1,n2,n3"));
        assert!(all[0].2.starts_with("eth2, between none of 4 hosts: 1 Gb/s"), "{}", all[0].2);
        let all = found(4, Pairs::Full, |_| Some(Fault::Slow));
        assert!(all.iter().all(|(name, ..)| *name == "tcp_slow"), "{all:?}");
    }

    #[test]
    fn the_fault_tells_what_is_found() {
        let of = |fault: Fault| {
            let found = found(4, Pairs::Ring, |way| (way.to.0 == 1).then(|| fault.clone()));
            found.into_iter().map(|(name, hosts, _)| format!("{name} {hosts}")).collect::<Vec<_>>()
        };
        assert_eq!(of(Fault::Lossy), ["packet_loss n1"; 2], "one a rail");
        assert_eq!(of(Fault::Silent), ["peer_unreachable n1"; 2]);
        assert_eq!(of(Fault::Blocked { port: 5201 }), ["port_blocked n1"; 2]);
        assert_eq!(of(Fault::Timeout), ["rdma_timeout n1"; 2]);
        assert_eq!(of(Fault::Failed { sender: false }), ["test_failed n1"], "all alike are one");
        let missing = |sender| Fault::Missing { sender, tool: "iperf3", package: "iperf3" };
        assert_eq!(of(missing(false)), ["tool_missing n1"]);
        assert_eq!(of(missing(true)), ["tool_missing n0,n2"]);
        assert_eq!(of(Fault::NoDevice { sender: true }), ["rdma_unusable n0,n2"]);
    }
}
