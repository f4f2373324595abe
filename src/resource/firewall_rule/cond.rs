//! What a rule of a packet filter matches, and how that lies to what another one matches.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

/// The conditions of a rule. What is empty matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cond {
    /// Only IPv6, or only IPv4.
    pub(super) v6: Option<bool>,
    /// `tcp`, `udp`, `icmp`, `ipv6-icmp`, …
    pub(super) protocols: BTreeSet<String>,
    /// Destination ports, sorted and joined.
    pub(super) ports: Vec<(u16, u16)>,
    pub(super) sources: Vec<Net>,
    pub(super) destinations: Vec<Net>,
    /// Where packets come in.
    pub(super) inputs: BTreeSet<String>,
    /// Where they go out.
    pub(super) outputs: BTreeSet<String>,
    /// Whether the first packet of a connection matches, where the rule goes by the state of connections.
    pub(super) new: Option<bool>,
    /// It has conditions that aren't among these.
    pub(super) other: bool,
}

/// How the packets that a rule matches lie to ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// It matches none of ours.
    Apart,
    /// It matches some of ours.
    Some {
        /// By a source, a state or something unknown: an exception that somebody made on purpose.
        exception: bool,
    },
    /// It matches all of ours.
    All,
}

/// A network of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Net {
    pub(super) address: IpAddr,
    pub(super) length: u8,
}

impl Net {
    /// `10.1.2.3/24` is `10.1.2.0/24`, and an address alone has all its bits.
    pub(super) fn parse(text: &str) -> Option<Net> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv6() { 128 } else { 32 };
        let length = length.unwrap_or(bits);
        (length <= bits).then(|| Net { address: masked(address, length), length })
    }

    pub(super) fn of(address: IpAddr) -> Net {
        Net { address, length: if address.is_ipv6() { 128 } else { 32 } }
    }

    pub(super) fn v6(self) -> bool {
        self.address.is_ipv6()
    }

    fn holds(self, other: Net) -> bool {
        self.v6() == other.v6() && self.length <= other.length && masked(other.address, self.length) == self.address
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = if self.v6() { 128 } else { 32 };
        if self.length == all { write!(f, "{}", self.address) } else { write!(f, "{}/{}", self.address, self.length) }
    }
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(a) => IpAddr::V4((u32::from(a) & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)).into()),
        IpAddr::V6(a) => {
            IpAddr::V6((u128::from(a) & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)).into())
        }
    }
}

/// Sorts ranges of ports and joins those that touch.
pub(super) fn joined(mut ports: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    ports.sort_unstable();
    let mut out: Vec<(u16, u16)> = Vec::new();
    for (low, high) in ports {
        match out.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => out.push((low, high)),
        }
    }
    out
}

impl Cond {
    /// The same in a form in which two that match alike are equal: an address says which family it is.
    pub(super) fn tidy(mut self) -> Cond {
        self.ports = joined(self.ports);
        self.sources.sort_unstable();
        self.destinations.sort_unstable();
        let first = self.sources.iter().chain(&self.destinations).next().map(|n| n.v6());
        self.v6 = self.v6.or(first);
        self
    }

    /// What is left of it in one family, with ICMP by that family's name.
    pub(super) fn within(&self, v6: bool) -> Cond {
        let mut cond = Cond { v6: Some(v6), ..self.clone() };
        cond.protocols.remove(if v6 { "icmp" } else { "ipv6-icmp" });
        cond
    }

    /// How the packets of `self` lie to those of `ours`, a condition of one family.
    pub(super) fn fit(&self, ours: &Cond) -> Fit {
        if self.new == Some(false) || self.v6.is_some_and(|v6| Some(v6) != ours.v6) {
            return Fit::Apart;
        }
        let source = nets(&self.sources, &ours.sources);
        let plain = [
            names(&self.protocols, &ours.protocols),
            names(&self.inputs, &ours.inputs),
            names(&self.outputs, &ours.outputs),
            ports(&self.ports, &ours.ports),
            nets(&self.destinations, &ours.destinations),
        ];
        if source == Fit::Apart || plain.contains(&Fit::Apart) {
            return Fit::Apart;
        }
        // What a host says to itself is no part of what a rule is about that names no interface.
        let itself = |theirs: &BTreeSet<String>| theirs.len() == 1 && theirs.contains("lo");
        let loopback =
            ours.inputs.is_empty() && ours.outputs.is_empty() && (itself(&self.inputs) || itself(&self.outputs));
        if self.other || loopback || source != Fit::All {
            return Fit::Some { exception: true };
        }
        if plain.iter().all(|f| *f == Fit::All) { Fit::All } else { Fit::Some { exception: false } }
    }
}

const PART: Fit = Fit::Some { exception: false };

/// A `+` or `*` at the end of a name of an interface stands for any further letters.
fn is(theirs: &str, ours: &str) -> bool {
    theirs.strip_suffix(['+', '*']).map_or(theirs == ours, |stem| ours.starts_with(stem))
}

fn names(theirs: &BTreeSet<String>, ours: &BTreeSet<String>) -> Fit {
    if theirs.is_empty() {
        return Fit::All;
    }
    let hits = ours.iter().filter(|o| theirs.iter().any(|t| is(t, o))).count();
    match hits {
        _ if ours.is_empty() => PART,
        0 => Fit::Apart,
        n if n == ours.len() => Fit::All,
        _ => PART,
    }
}

fn ports(theirs: &[(u16, u16)], ours: &[(u16, u16)]) -> Fit {
    if theirs.is_empty() {
        return Fit::All;
    }
    if ours.is_empty() {
        return PART;
    }
    if ours.iter().all(|o| theirs.iter().any(|t| t.0 <= o.0 && o.1 <= t.1)) {
        return Fit::All;
    }
    let meet = ours.iter().any(|o| theirs.iter().any(|t| t.0 <= o.1 && o.0 <= t.1));
    if meet { PART } else { Fit::Apart }
}

fn nets(theirs: &[Net], ours: &[Net]) -> Fit {
    if theirs.is_empty() {
        return Fit::All;
    }
    if ours.is_empty() {
        return if theirs.iter().any(|t| t.length == 0) { Fit::All } else { PART };
    }
    if ours.iter().all(|o| theirs.iter().any(|t| t.holds(*o))) {
        return Fit::All;
    }
    let meet = ours.iter().any(|o| theirs.iter().any(|t| t.holds(*o) || o.holds(*t)));
    if meet { PART } else { Fit::Apart }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Net {
        Net::parse(text).unwrap()
    }

    #[test]
    fn networks_are_their_first_address() {
        assert_eq!(net("10.1.2.3/24").to_string(), "10.1.2.0/24");
        assert_eq!(net("0.0.0.0/0").to_string(), "0.0.0.0/0");
        assert_eq!(net("10.1.2.3").to_string(), "10.1.2.3");
        assert_eq!(net("fe80::1/10").to_string(), "fe80::/10");
        assert!(Net::parse("10.0.0.0/33").is_none() && Net::parse("host").is_none() && Net::parse("::/129").is_none());
        assert!(net("::/0").holds(net("fe80::/10")) && !net("::/0").holds(net("10.0.0.0/8")));
    }

    #[test]
    fn ports_are_joined() {
        assert_eq!(joined(vec![(5, 6), (1, 2), (3, 4), (9, 9), (8, 20)]), [(1, 6), (8, 20)]);
        assert_eq!(joined(vec![(65535, 65535), (1, 65535)]), [(1, 65535)]);
    }

    #[test]
    fn what_meets_what() {
        let ours = |edit: &dyn Fn(&mut Cond)| {
            let mut cond = Cond { v6: Some(false), ports: vec![(22, 22)], ..Cond::default() };
            cond.protocols.insert("tcp".into());
            edit(&mut cond);
            cond
        };
        let same = ours(&|_| {});
        let fit = |theirs: &Cond| theirs.fit(&same);
        assert_eq!(fit(&Cond::default()), Fit::All);
        assert_eq!(fit(&same), Fit::All);
        assert_eq!(fit(&Cond { v6: Some(true), ..Cond::default() }), Fit::Apart);
        assert_eq!(fit(&Cond { new: Some(false), ..Cond::default() }), Fit::Apart);
        assert_eq!(fit(&Cond { new: Some(true), ..Cond::default() }), Fit::All);
        assert_eq!(fit(&Cond { ports: vec![(1, 21), (23, 99)], ..Cond::default() }), Fit::Apart);
        assert_eq!(fit(&Cond { ports: vec![(1, 99)], ..Cond::default() }), Fit::All);
        assert_eq!(fit(&Cond { inputs: ["eth0".into()].into(), ..Cond::default() }), PART);
        assert_eq!(fit(&Cond { inputs: ["lo".into()].into(), ..Cond::default() }), Fit::Some { exception: true });
        assert_eq!(fit(&Cond { other: true, ..Cond::default() }), Fit::Some { exception: true });
        assert_eq!(fit(&Cond { sources: vec![net("10.0.0.0/8")], ..Cond::default() }), Fit::Some { exception: true });
        assert_eq!(fit(&Cond { sources: vec![net("0.0.0.0/0")], ..Cond::default() }), Fit::All);
        assert_eq!(fit(&ours(&|c| c.protocols = ["udp".into()].into())), Fit::Apart);
        let on = ours(&|c| c.inputs = ["eth1".into()].into());
        assert_eq!(Cond { inputs: ["eth+".into()].into(), ..Cond::default() }.fit(&on), Fit::All);
        assert_eq!(Cond { inputs: ["lo".into()].into(), ..Cond::default() }.fit(&on), Fit::Apart);
        let from = ours(&|c| c.sources = vec![net("10.1.0.0/16")]);
        assert_eq!(Cond { sources: vec![net("10.0.0.0/8")], ..Cond::default() }.fit(&from), Fit::All);
        assert_eq!(Cond { sources: vec![net("10.2.0.0/16")], ..Cond::default() }.fit(&from), Fit::Apart);
    }
}
