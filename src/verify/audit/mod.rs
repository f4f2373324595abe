//! `audit`: what has to be the same on hosts of a kind, and who differs.
//!
//! Each thing that is compared is a [`Key`] with a value on each host. Where most hosts have one value, the others are
//! told; where no value has more than half of the hosts, all sides are. Groups of the inventory that are other machines are
//! compared apart.

mod ask;
mod divide;
mod tell;
mod traces;

pub use ask::{questions, see};

use super::{Judged, Verdict};
use crate::finding::{self, Finding, Known};
use divide::{Groups, divide};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tell::Differences;

/// What a thing is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// What tells kinds of machines apart, and isn't told itself.
    Shape,
    /// How many cards and interfaces there are.
    Count,
    /// The kernel.
    Kernel,
    /// Drivers and their versions.
    Driver,
    /// Firmware of cards.
    Firmware,
    /// Parameters of cards.
    Parameter,
    /// The speed of a link.
    Speed,
    /// The MTU of an interface.
    Mtu,
    /// Quality of service of a port.
    Qos,
    /// Kernel parameters.
    Sysctl,
    /// What moves interrupts.
    Service,
    /// The subnet manager that a port knows.
    SubnetManager,
}

/// Whom a host is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Among {
    /// All hosts in the same network.
    Network,
    /// Hosts of its group, where groups of the inventory differ as a whole.
    Groups,
    /// The same with groups that are other machines: a rack that was forgotten is a group too.
    Kinds,
}

impl Topic {
    /// What its difference is called.
    fn known(self) -> &'static Known {
        match self {
            Topic::Shape | Topic::Count => &finding::HARDWARE_DIFFERS,
            Topic::Kernel => &finding::KERNEL_DIFFERS,
            Topic::Driver => &finding::DRIVER_DIFFERS,
            Topic::Firmware => &finding::FIRMWARE_DIFFERS,
            Topic::Parameter => &finding::FIRMWARE_SETTINGS_DIFFER,
            Topic::Speed => &finding::SPEED_DIFFERS,
            Topic::Mtu => &finding::MTU_DIFFERS,
            Topic::Qos => &finding::QOS_DIFFERS,
            Topic::Sysctl => &finding::SYSCTL_DIFFERS,
            Topic::Service => &finding::SERVICE_DIFFERS,
            Topic::SubnetManager => &finding::TWO_SUBNET_MANAGERS,
        }
    }

    /// The same that another check may have found already.
    fn found_before(self) -> Option<&'static str> {
        match self {
            Topic::Mtu => Some(finding::MTU_TOO_SMALL.name),
            Topic::Speed => Some(finding::SPEED_DIFFERS.name),
            _ => None,
        }
    }

    fn among(self) -> Among {
        match self {
            Topic::Mtu => Among::Network,
            Topic::Shape => Among::Groups,
            _ => Among::Kinds,
        }
    }
}

/// A thing that is compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What it is about.
    pub topic: Topic,
    /// What it is called: `MTU`, `net.core.rmem_max`.
    pub name: Arc<str>,
    /// Of what: an interface, a board; empty for the host as a whole.
    pub place: Arc<str>,
}

/// What is known of a host.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Its name.
    pub host: Arc<str>,
    /// What is compared, and what it has.
    pub values: BTreeMap<Key, String>,
    /// The networks of its interfaces of the fabric.
    pub networks: Vec<(String, String)>,
    /// The boards whose parameters are known: what isn't among the values is at its default.
    pub boards: BTreeSet<Arc<str>>,
    /// What couldn't be found out, and why.
    pub unknown: Vec<String>,
    /// What is wrong with it, whatever others have.
    pub wrong: Vec<Finding>,
}

impl Seen {
    /// Takes in a value.
    fn put(&mut self, topic: Topic, name: &str, place: &str, value: impl Into<String>) {
        self.values.insert(Key { topic, name: name.into(), place: place.into() }, value.into());
    }
}

/// Judges all hosts together. `groups` has the groups of the inventory of each host; `found` tells whether a finding of this name is known
/// of an interface of a host, so that it isn't told twice. Gives what was compared within groups, in words.
pub fn judge(
    hosts: &[Seen],
    groups: &HashMap<String, Vec<Arc<str>>>,
    found: &dyn Fn(&str, &str, &str) -> bool,
    judged: &mut Judged,
) -> Vec<String> {
    let mut by_key = HashMap::<&Key, Vec<(usize, &str)>>::new();
    for (at, host) in hosts.iter().enumerate() {
        for (key, value) in &host.values {
            by_key.entry(key).or_default().push((at, value));
        }
    }
    for (key, values) in by_key.iter_mut().filter(|(key, _)| key.topic == Topic::Parameter) {
        let told: BTreeSet<usize> = values.iter().map(|(at, _)| *at).collect();
        let silent = |(at, host): &(usize, &Seen)| host.boards.contains(&key.place) && !told.contains(at);
        values.extend(hosts.iter().enumerate().filter(silent).map(|(at, _)| (at, tell::DEFAULT)));
        values.sort_unstable();
    }
    let mut keys: Vec<(&Key, Vec<(usize, &str)>)> = by_key.into_iter().collect();
    // What tells kinds of machines apart comes first.
    keys.sort_unstable();
    let inventory = Groups::new(hosts.iter().map(|host| groups.get(&*host.host).map_or(&[][..], Vec::as_slice)));
    let mut kinds = BTreeSet::new();
    let mut compared = vec![0usize; hosts.len()];
    let mut differs = vec![BTreeSet::<Arc<str>>::new(); hosts.len()];
    let mut apart = BTreeMap::<Vec<(String, String)>, Vec<String>>::new();
    let mut differences = Differences::default();
    for (key, values) in &keys {
        let parts = match key.topic.among() {
            Among::Network => {
                let of = |host: &Seen| {
                    let own = host.networks.iter().filter(|(name, _)| **name == *key.place);
                    own.map(|(_, network)| network.as_str().into()).collect::<Vec<Arc<str>>>()
                };
                let networks: Vec<Vec<Arc<str>>> = hosts.iter().map(of).collect();
                let networks = Groups::new(networks.iter().map(Vec::as_slice));
                divide(&networks, values, &mut |_| true)
            }
            Among::Groups => divide(&inventory, values, &mut |group| {
                kinds.insert(group);
                true
            }),
            Among::Kinds => divide(&inventory, values, &mut |group| kinds.contains(&group)),
        };
        if key.topic == Topic::Shape {
            continue;
        }
        if parts.len() > 1 && key.topic.among() != Among::Network {
            let sides = parts.iter().map(|part| (part.label.clone(), part.usual().0.to_owned())).collect();
            apart.entry(sides).or_default().push(tell::name(key));
        }
        for part in parts.into_iter().filter(|part| part.values.len() > 1) {
            part.values.iter().for_each(|(at, _)| compared[*at] += 1);
            let known =
                |at: usize| key.topic.found_before().is_some_and(|name| found(&hosts[at].host, name, &key.place));
            for at in differences.of(key, &part, &known) {
                differs[at].insert(tell::name(key).into());
            }
        }
    }
    for finding in differences.findings(hosts, &inventory) {
        judged.find(finding);
    }
    for (at, host) in hosts.iter().enumerate() {
        host.wrong.iter().for_each(|finding| judged.find(finding.clone()));
        differs[at].extend(host.wrong.iter().map(|finding| Arc::from(finding.name)));
        let verdict = |reason: String| Verdict::of("audit", &host.host, None, reason);
        judged.verdicts.push(match (differs[at].len(), compared[at]) {
            (0, 0) => verdict("there is no other host to compare it with".to_owned()).skipped(),
            (0, n) => verdict(format!("{n} values as on other hosts")),
            (_, _) => {
                let what: Vec<&str> = differs[at].iter().map(|name| &**name).collect();
                Verdict { ok: Some(false), ..verdict(format!("differs: {}", what.join(", "))) }
            }
        });
        for unknown in &host.unknown {
            judged.verdicts.push(verdict(format!("not compared: {unknown}")).skipped());
        }
    }
    let told = |(sides, names): (Vec<(String, String)>, Vec<String>)| {
        let sides: Vec<String> = sides.into_iter().map(|(label, usual)| format!("{usual} {label}")).collect();
        format!("{}: {}", tell::some(&names), sides.join(", "))
    };
    apart.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests;
