//! `path_mtu`: packets of full size between hosts, and what follows where they don't pass.

use super::blame::{Blamed, End, Tested};
use super::fabric::{Nic, Node, facing, majority, network};
use super::ping::{Ping, Pong};
use super::ports::down;
use super::schedule::Round;
use super::suite::PathMtu;
use super::{Judged, Verdict};
use crate::finding::{self, Finding};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A ping of the check.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Where it leaves.
    pub from: End,
    /// Where it goes to.
    pub to: End,
    /// It.
    pub ping: Ping,
}

/// The MTU that each interface is to have, by its name: the one that is asked for, or that of most interfaces of this name, or in
/// its network where no other host has that name.
pub fn sizes(nodes: &[Node], check: &PathMtu) -> HashMap<String, u32> {
    let mut by_name = HashMap::<&str, Vec<&Nic>>::new();
    let mut by_network = HashMap::<String, Vec<u32>>::new();
    for nic in nodes.iter().flat_map(|n| &n.nics) {
        by_name.entry(&nic.name).or_default().push(nic);
        for address in &nic.addresses {
            by_network.entry(network(address)).or_default().push(nic.mtu);
        }
    }
    let usual = |nics: &[&Nic]| match nics {
        [only] => {
            let around = only.addresses.iter().filter_map(|address| by_network.get(&network(address))).flatten();
            majority(around.copied()).map_or(only.mtu, |(mtu, _)| mtu)
        }
        all => majority(all.iter().map(|nic| nic.mtu)).map_or(1500, |(mtu, _)| mtu),
    };
    by_name.into_iter().map(|(name, nics)| (name.to_owned(), check.mtu.unwrap_or_else(|| usual(&nics)))).collect()
}

/// Addresses that interfaces of one name have on several hosts.
fn twice(nodes: &[Node]) -> BTreeMap<&str, Vec<End>> {
    let mut all = BTreeMap::<(&str, &str), Vec<End>>::new();
    for (host, node) in nodes.iter().enumerate() {
        for (at, nic) in node.nics.iter().enumerate() {
            for address in &nic.addresses {
                let ip = address.split('/').next().unwrap_or_default();
                all.entry((ip, &nic.name)).or_default().push((host, at));
            }
        }
    }
    all.into_iter().filter(|(_, ends)| ends.len() > 1).map(|((ip, _), ends)| (ip, ends)).collect()
}

/// Interfaces with an address that another host has too.
pub(super) fn doubled(check: &'static str, nodes: &[Node]) -> Vec<(End, Verdict, Finding)> {
    let mut all = Vec::new();
    for (address, ends) in twice(nodes) {
        let name = &nodes[ends[0].0].nics[ends[0].1].name;
        let hosts: Vec<&str> = ends.iter().map(|end| &*nodes[end.0].host).collect();
        let evidence = format!("{address} is the address of {name} on {}", hosts.join(", "));
        for end in ends {
            let host = &nodes[end.0].host;
            let words = [("interface", name.as_str()), ("address", address)];
            let found = Finding::new(&finding::DUPLICATE_ADDRESS, [host.clone()], &*evidence, &words);
            all.push((end, Verdict::of(check, host, Some(name), &*evidence), found));
        }
    }
    all
}

/// What can be told without a packet: interfaces without a carrier, with another host's address, or whose own MTU is too small.
/// They are tested no further.
pub fn unfit(nodes: &[Node], check: &PathMtu, sizes: &HashMap<String, u32>, judged: &mut Judged) -> BTreeSet<End> {
    let mut small = BTreeSet::new();
    for (end, verdict, found) in doubled("path_mtu", nodes) {
        judged.failed(verdict, found);
        small.insert(end);
    }
    for (host, node) in nodes.iter().enumerate() {
        for (at, nic) in node.nics.iter().enumerate() {
            if let Some(judgement) = down("path_mtu", node, nic) {
                small.insert((host, at));
                judged.failed(judgement.0, judgement.1);
                continue;
            }
            let wanted = sizes[&nic.name];
            if nic.mtu >= wanted {
                continue;
            }
            small.insert((host, at));
            let alike: Vec<u32> = nodes.iter().filter_map(|node| node.nic(&nic.name)).map(|nic| nic.mtu).collect();
            let why = match (check.mtu, alike.as_slice()) {
                (Some(_), _) => "is asked for".to_owned(),
                (None, [_]) => "is what most interfaces in its network have".to_owned(),
                (None, all) => {
                    let n = all.iter().filter(|mtu| **mtu == wanted).count();
                    format!("is what {n} of {} hosts have", all.len())
                }
            };
            let evidence = format!("{} has an MTU of {}, and {wanted} {why}", nic.name, nic.mtu);
            let words = [("interface", nic.name.as_str()), ("mtu", &wanted.to_string())];
            let found = Finding::new(&finding::MTU_TOO_SMALL, [node.host.clone()], &*evidence, &words);
            let verdict = Verdict::of("path_mtu", &node.host, Some(&nic.name), evidence);
            let verdict =
                Verdict { value: Some(nic.mtu.into()), wanted: Some(wanted.into()), unit: "bytes", ..verdict };
            judged.failed(verdict, found);
        }
    }
    small
}

/// The pings between two hosts, both ways, but for interfaces that are left out.
pub fn between(
    nodes: &[Node],
    sizes: &HashMap<String, u32>,
    (a, b): (usize, usize),
    without: &BTreeSet<End>,
) -> Vec<Trial> {
    let mut trials = Vec::new();
    for facing in facing(&nodes[a], &nodes[b]) {
        let (from, to) = ((a, facing.nics.0), (b, facing.nics.1));
        if without.contains(&from) || without.contains(&to) {
            continue;
        }
        let size = |end: End| sizes[&nodes[end.0].nics[end.1].name];
        let size = size(from).min(size(to));
        let ping = |end: End, address: &str| Ping {
            interface: nodes[end.0].nics[end.1].name.clone(),
            address: address.to_owned(),
            size,
        };
        trials.push(Trial { from, to, ping: ping(from, &facing.addresses.1) });
        trials.push(Trial { from: to, to: from, ping: ping(to, &facing.addresses.0) });
    }
    trials
}

/// All pings of these rounds, by the host that they leave.
pub fn plan(
    nodes: &[Node],
    sizes: &HashMap<String, u32>,
    rounds: &[Round],
    without: &BTreeSet<End>,
) -> BTreeMap<usize, Vec<Trial>> {
    let mut all = BTreeMap::<usize, Vec<Trial>>::new();
    for pair in rounds.iter().flatten() {
        for trial in between(nodes, sizes, *pair, without) {
            all.entry(trial.from.0).or_default().push(trial);
        }
    }
    all
}

/// Tells of hosts that have nobody to send to.
pub fn alone(
    nodes: &[Node],
    check: &PathMtu,
    plan: &BTreeMap<usize, Vec<Trial>>,
    without: &BTreeSet<End>,
    judged: &mut Judged,
) {
    for (at, node) in nodes.iter().enumerate() {
        let open: Vec<&str> = node
            .nics
            .iter()
            .enumerate()
            .filter(|(i, _)| !without.contains(&(at, *i)))
            .map(|(_, nic)| &*nic.name)
            .collect();
        let named = check.interfaces.iter().any(|name| node.nic(name).is_none());
        if plan.contains_key(&at) || named || (open.is_empty() && !node.nics.is_empty()) {
            continue;
        }
        let interface = open.first().copied().unwrap_or("an interface");
        let verdict = |reason: &str| Verdict::of("path_mtu", &node.host, open.first().copied(), reason);
        if nodes.len() < 2 {
            judged.verdicts.push(verdict("there is no other host to test it with").skipped());
        } else if plan.is_empty() && !without.is_empty() {
            judged.verdicts.push(verdict("the interfaces of all others were left out").skipped());
        } else {
            let reason = match open.as_slice() {
                [] => "it has no interface of the fabric with an address".to_owned(),
                all => format!("no other host is in a network of {}", all.join(", ")),
            };
            let found = Finding::new(&finding::NO_PEER, [node.host.clone()], &*reason, &[("interface", interface)]);
            judged.failed(verdict(&reason), found);
        }
    }
}

/// What came of a ping, and of small packets where none was answered.
#[derive(Debug, Clone)]
pub struct Result {
    /// It.
    pub trial: Trial,
    /// What became of it.
    pub whole: Pong,
    /// What became of small packets.
    pub small: Option<Pong>,
    /// How many of the requests came to the other side, where that was counted.
    pub arrived: Option<u64>,
    /// Whether the requests arrive and it is the answers that vanish.
    pub unanswered: bool,
}

impl Result {
    /// As a test: of one in which the packets were counted at the other side only their way there counts. Nothing where it
    /// couldn't be tried.
    pub fn tested(&self) -> Option<Tested> {
        let good = match (&self.whole, self.arrived) {
            (Pong::NoTool(_) | Pong::Untried(_), _) => return None,
            (_, Some(arrived)) => arrived > 0 && !self.unanswered,
            (Pong::Counted { received, .. }, None) => *received > 0,
            (Pong::TooLarge(_) | Pong::Failed(_), None) => false,
        };
        Some(Tested { from: self.trial.from, to: self.trial.to, good })
    }
}

/// Where requests arrive and no answer does, though what is sent the other way passes, the answers are what counts: a filter drops
/// them, or, where it is so in both directions, addresses or routes are wrong.
pub fn deaf(again: &mut [Result]) {
    let deaf = |r: &Result| r.arrived > Some(0) && matches!(r.whole, Pong::Counted { received: 0, .. });
    let way = |r: &Result| (r.trial.from, r.trial.to);
    let pass: BTreeSet<(End, End)> = again.iter().filter(|r| r.arrived > Some(0)).map(way).collect();
    let back = |r: &&mut Result| deaf(r) && pass.contains(&(r.trial.to, r.trial.from));
    again.iter_mut().filter(back).for_each(|r| r.unanswered = true);
}

/// Judges all pings: the first ones, and those that were made again, in which packets were counted where they arrived.
pub fn judge(nodes: &[Node], first: &[Result], again: &[Result], blamed: &[Blamed], judged: &mut Judged) {
    let name = |end: End| nodes[end.0].nics[end.1].name.as_str();
    let host = |end: End| &nodes[end.0].host;
    for result in first {
        let Trial { from, to, ping } = &result.trial;
        let verdict = |reason: String| {
            let verdict = Verdict::of("path_mtu", host(*from), Some(name(*from)), reason).towards(host(*to), name(*to));
            Verdict { wanted: Some(ping.size.into()), unit: "bytes", ..verdict }
        };
        match result.tested() {
            Some(Tested { good: true, .. }) => {
                let passed =
                    Verdict { value: Some(ping.size.into()), ..verdict("packets of this size pass".to_owned()) };
                judged.verdicts.push(passed);
            }
            Some(_) => judged.verdicts.push(Verdict { ok: Some(false), ..verdict(why(result)) }),
            None => {
                let (known, why) = match &result.whole {
                    Pong::NoTool(why) => (&finding::TOOL_MISSING, why.clone()),
                    Pong::Untried(why) => (&finding::TEST_FAILED, format!("ping: {why}")),
                    _ => continue,
                };
                let words = [("tool", "iputils' ping"), ("package", "iputils-ping"), ("check", "path_mtu")];
                judged.failed(verdict(why.clone()), Finding::new(known, [host(*from).clone()], why, &words));
            }
        }
    }
    for blamed in blamed {
        judged.find(found(nodes, first, again, blamed));
    }
}

/// Why packets didn't pass.
fn why(result: &Result) -> String {
    let size = result.trial.ping.size;
    let small = matches!(result.small, Some(Pong::Counted { received, .. }) if received > 0);
    match &result.whole {
        Pong::TooLarge(mtu) => {
            format!("no more than {mtu} bytes pass: a router on the way has told so, or the host's own route says so")
        }
        Pong::Failed(why) => format!("it couldn't be tried: {why}"),
        _ if small => format!("packets of {size} bytes vanish, small ones pass"),
        _ => "no packet passes, not even small ones".to_owned(),
    }
}

fn found(nodes: &[Node], first: &[Result], again: &[Result], blamed: &Blamed) -> Finding {
    let name = |end: End| nodes[end.0].nics[end.1].name.as_str();
    let host = |end: End| nodes[end.0].host.clone();
    let of = |end: End| {
        let about = |r: &&Result| r.trial.from == end || r.trial.to == end;
        let bad = |r: &&Result| r.tested().is_some_and(|t| !t.good);
        first.iter().filter(about).filter(bad).collect::<Vec<_>>()
    };
    let with = |end: End| {
        let mut peers: Vec<String> = of(end)
            .iter()
            .map(|r| if r.trial.from == end { r.trial.to } else { r.trial.from })
            .map(|peer| nodes[peer.0].host.to_string())
            .collect();
        peers.sort();
        peers.dedup();
        let tested = first.iter().filter(|r| r.trial.from == end || r.trial.to == end);
        let all: BTreeSet<usize> =
            tested.flat_map(|r| [r.trial.from.0, r.trial.to.0]).filter(|h| *h != end.0).collect();
        let retried = again.iter().filter(|r| r.trial.from == end).map(|r| nodes[r.trial.to.0].host.to_string());
        let retried: Vec<String> = retried.collect();
        let retried = match retried.as_slice() {
            [] => String::new(),
            all => format!(", and again not with {}, which is good with others", all.join(", ")),
        };
        format!("with {} of {} hosts{retried}", peers.len(), all.len())
    };
    let sample = |end: End| of(end).first().map_or_else(String::new, |r| why(r));
    let small = |ends: &[End]| {
        ends.iter().flat_map(|end| of(*end)).any(|r| {
            matches!(r.small, Some(Pong::Counted { received, .. }) if received > 0)
                || matches!(r.whole, Pong::TooLarge(_))
        })
    };
    let build = |ends: &[End], evidence: String, place: &str| {
        let known = if small(ends) { &finding::PATH_MTU } else { &finding::PEER_UNREACHABLE };
        let interface = ends.first().map_or("", |end| name(*end));
        let network = ends.first().and_then(|end| nodes[end.0].nics[end.1].addresses.first());
        let network = network.map_or_else(String::new, |address| super::fabric::network(address));
        let words = [("where", place), ("interface", interface), ("network", network.as_str())];
        Finding::new(known, ends.iter().map(|end| host(*end)), evidence, &words)
    };
    match blamed {
        Blamed::End { end, sends, gets } => {
            let direction = match (sends, gets) {
                (true, false) => "what it sends",
                (false, true) => "what it gets",
                _ => "both directions",
            };
            let unanswered = !sends && again.iter().any(|r| r.unanswered && r.trial.to == *end);
            let (direction, sample) = match unanswered {
                true => ("its answers", "requests arrive there, and no answer comes back".to_owned()),
                false => (direction, sample(*end)),
            };
            let evidence = format!("{} ({direction}): {sample}, {}{}", name(*end), with(*end), elsewhere(nodes, *end));
            build(&[*end], evidence, &format!("the port that {} of the host is plugged into", name(*end)))
        }
        Blamed::Pair(from, to) | Blamed::PairBothWays(from, to) => {
            let both = if matches!(blamed, Blamed::PairBothWays(..)) { ", both ways" } else { "" };
            let evidence = format!("from {} to {}{both}: {}", name(*from), name(*to), sample(*from));
            let place = "neither host has it with others, so that it is a hop which only these two share".to_owned();
            let place =
                if nodes.len() > 2 { place } else { "there is no third host to tell whose side it is".to_owned() };
            build(&[*from, *to], evidence, &place).between(&host(*from), &host(*to))
        }
        Blamed::All(ends) => {
            let evidence = format!("{}: {}, between none of {} hosts", name(ends[0]), sample(ends[0]), ends.len());
            build(ends, evidence, "all hosts have it: what they share")
        }
        Blamed::Parts(parts) => {
            let hosts =
                |part: &Vec<End>| part.iter().map(|end| nodes[end.0].host.to_string()).collect::<Vec<_>>().join(",");
            let told = parts.iter().map(hosts).collect::<Vec<_>>().join(" | ");
            let ends: Vec<End> = parts.concat();
            let evidence = format!("{}: {}, but only between these groups: {told}", name(ends[0]), sample(ends[0]));
            build(&ends, evidence, "the link between the switches of these groups")
        }
    }
}

/// That an interface is in another network than those of its name are on most hosts.
fn elsewhere(nodes: &[Node], end: End) -> String {
    let networks = |nic: &Nic| nic.addresses.first().map(|address| network(address));
    let own = &nodes[end.0].nics[end.1];
    let alike = nodes.iter().filter_map(|node| node.nic(&own.name)).filter_map(networks);
    match (networks(own), majority(alike)) {
        (Some(here), Some((there, n))) if here != there && n * 2 > nodes.len() => {
            format!("; it is in {here}, and {n} of {} hosts have it in {there}", nodes.len())
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::blame;
    use super::*;

    fn nodes(mtus: &[u32]) -> Vec<Node> {
        let node = |(i, mtu): (usize, &u32)| Node {
            host: format!("n{i}").into(),
            nics: vec![Nic {
                name: "eth1".into(),
                mtu: *mtu,
                carrier: Some(true),
                addresses: vec![format!("10.1.0.{}/16", i + 1)],
                ..Nic::default()
            }],
            ..Node::default()
        };
        mtus.iter().enumerate().map(node).collect()
    }

    #[test]
    fn an_own_mtu_that_is_too_small_is_named_without_a_packet() {
        let nodes = nodes(&[9000, 1500, 9000, 1500, 9000]);
        let mut judged = Judged::default();
        let check = PathMtu::default();
        let sizes = super::sizes(&nodes, &check);
        let small = unfit(&nodes, &check, &sizes, &mut judged);
        assert_eq!(small, BTreeSet::from([(1, 0), (3, 0)]));
        let [found] = judged.findings.as_slice() else { panic!("{judged:?}") };
        assert_eq!((found.name, found.hosts.join(",")), ("mtu_too_small", "n1,n3".to_owned()));
        assert_eq!(found.evidence, "eth1 has an MTU of 1500, and 9000 is what 3 of 5 hosts have");
        assert_eq!(found.remedy, "`mtu: {interface: eth1, mtu: 9000}`");
        let plan = plan(&nodes, &sizes, &[vec![(0, 1), (2, 4)]], &small);
        let told: Vec<String> =
            plan.values().flatten().map(|t| format!("{} {} {}", t.from.0, t.ping.address, t.ping.size)).collect();
        assert_eq!(told, ["2 10.1.0.5 9000", "4 10.1.0.3 9000"]);
        let asked = PathMtu { mtu: Some(9216), ..PathMtu::default() };
        assert_eq!(unfit(&nodes, &asked, &super::sizes(&nodes, &asked), &mut Judged::default()).len(), 5);
    }

    #[test]
    fn requests_that_arrive_and_are_never_answered_are_bad_both_ways() {
        let nodes = nodes(&[9000; 2]);
        let sizes = sizes(&nodes, &PathMtu::default());
        let again = |arrived: [u64; 2]| {
            let trials = between(&nodes, &sizes, (0, 1), &BTreeSet::new());
            let whole = Pong::Counted { sent: 3, received: 0 };
            let result = |(trial, arrived)| Result {
                trial,
                whole: whole.clone(),
                small: None,
                arrived: Some(arrived),
                unanswered: false,
            };
            let mut again: Vec<Result> = trials.into_iter().zip(arrived).map(result).collect();
            deaf(&mut again);
            again.iter().map(|r| r.tested().unwrap().good).collect::<Vec<_>>()
        };
        assert_eq!(again([3, 3]), [false, false]);
        assert_eq!(again([3, 0]), [true, false], "one direction is known to be good");
    }

    #[test]
    fn a_host_whose_answers_are_dropped_is_named() {
        // All requests arrive, and those to the host 1 are never answered.
        let nodes = nodes(&[9000; 4]);
        let sizes = sizes(&nodes, &PathMtu::default());
        let asked = |trial: Trial, arrived| {
            let received = if trial.to.0 == 1 { 0 } else { 3 };
            Result { trial, whole: Pong::Counted { sent: 3, received }, small: None, arrived, unanswered: false }
        };
        for pairs in [super::super::Pairs::Quick, super::super::Pairs::Full] {
            let plan = plan(&nodes, &sizes, &pairs.rounds(4, 0), &BTreeSet::new());
            let first: Vec<Result> = plan.into_values().flatten().map(|trial| asked(trial, None)).collect();
            let tests: Vec<Tested> = first.iter().filter_map(Result::tested).collect();
            let suspects = blame::suspects(&tests);
            let again = blame::again(&suspects, &blame::proven(&tests, &suspects), |_, _| true);
            let trials = again.iter().flat_map(|(a, b)| between(&nodes, &sizes, (a.0, b.0), &BTreeSet::new()));
            let mut second: Vec<Result> = trials.map(|trial| asked(trial, Some(3))).collect();
            deaf(&mut second);
            let retried: Vec<Tested> = second.iter().filter_map(Result::tested).collect();
            let named = blame::name(&tests, &retried);
            assert_eq!(named, [Blamed::End { end: (1, 0), sends: false, gets: true }], "{pairs:?}");
        }
    }

    #[test]
    fn an_address_that_two_hosts_have_is_told_and_not_tested() {
        let mut nodes = nodes(&[9000; 4]);
        nodes[3].nics[0].addresses = nodes[2].nics[0].addresses.clone();
        let mut judged = Judged::default();
        let sizes = sizes(&nodes, &PathMtu::default());
        assert_eq!(unfit(&nodes, &PathMtu::default(), &sizes, &mut judged), BTreeSet::from([(2, 0), (3, 0)]));
        let [found] = judged.findings.as_slice() else { panic!("{judged:?}") };
        assert_eq!((found.name, found.hosts.join(",")), ("duplicate_address", "n2,n3".to_owned()));
        assert_eq!(found.evidence, "10.1.0.3 is the address of eth1 on n2, n3");
    }

    #[test]
    fn another_network_than_most_have_is_told() {
        let mut nodes = nodes(&[9000; 4]);
        assert_eq!(elsewhere(&nodes, (3, 0)), "");
        nodes[3].nics[0].addresses = vec!["10.7.0.4/16".into()];
        assert_eq!(elsewhere(&nodes, (3, 0)), "; it is in 10.7.0.0/16, and 3 of 4 hosts have it in 10.1.0.0/16");
    }

    #[test]
    fn an_interface_that_others_have_by_no_name_or_network_is_measured_by_itself() {
        let mut nodes = nodes(&[9000, 9000]);
        nodes[0].nics.push(Nic {
            name: "eth2".into(),
            mtu: 1500,
            addresses: vec!["10.2.0.1/16".into()],
            ..Nic::default()
        });
        nodes[0].nics.push(Nic {
            name: "ens9".into(),
            mtu: 1500,
            addresses: vec!["10.1.0.9/16".into()],
            ..Nic::default()
        });
        let sizes = sizes(&nodes, &PathMtu::default());
        assert_eq!(["eth1", "eth2", "ens9"].map(|name| sizes[name]), [9000, 1500, 9000]);
        assert_eq!(super::sizes(&nodes[..1], &PathMtu::default())["eth2"], 1500, "alone");
    }

    #[test]
    fn what_vanishes_is_told_from_what_never_passes() {
        let nodes = nodes(&[9000; 4]);
        let counted = |received| Pong::Counted { sent: 3, received };
        let results = |whole: Pong, small: Option<Pong>| -> Vec<Result> {
            let plan = plan(
                &nodes,
                &sizes(&nodes, &PathMtu::default()),
                &super::super::Pairs::Full.rounds(4, 0),
                &BTreeSet::new(),
            );
            let result = |trial: Trial| match trial.from.0 == 2 || trial.to.0 == 2 {
                true => Result { trial, whole: whole.clone(), small: small.clone(), arrived: None, unanswered: false },
                false => Result { trial, whole: counted(3), small: None, arrived: None, unanswered: false },
            };
            plan.into_values().flatten().map(result).collect()
        };
        let blamed = [Blamed::End { end: (2, 0), sends: true, gets: false }];
        for (whole, small, name, told) in [
            (counted(0), Some(counted(2)), "path_mtu", "packets of 9000 bytes vanish, small ones pass"),
            (counted(0), Some(counted(0)), "peer_unreachable", "no packet passes, not even small ones"),
            (
                Pong::TooLarge(1500),
                None,
                "path_mtu",
                "no more than 1500 bytes pass: a router on the way has told so, or the host's own route says so",
            ),
        ] {
            let mut judged = Judged::default();
            judge(&nodes, &results(whole, small), &[], &blamed, &mut judged);
            let [found] = judged.findings.as_slice() else { panic!("{judged:?}") };
            assert_eq!((found.name, &*found.hosts[0]), (name, "n2"));
            assert_eq!(found.evidence, format!("eth1 (what it sends): {told}, with 3 of 3 hosts"));
            assert_eq!(judged.verdicts.iter().filter(|v| v.ok == Some(false)).count(), 6);
        }
    }
}
