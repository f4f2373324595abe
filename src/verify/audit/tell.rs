//! How differences are told: those of the same hosts together.

use super::divide::Part;
use super::{Key, Seen, Topic};
use crate::finding::Finding;
use crate::hostlist;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many findings a topic may have before they are told by values in place of hosts.
const MOST: usize = 8;
/// How many things are named of a finding.
const NAMED: usize = 12;

/// One thing that differs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Differs {
    name: Arc<str>,
    place: Arc<str>,
    own: String,
    usual: String,
}

/// Who has what most have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Others {
    label: String,
    count: usize,
    all: usize,
}

/// The values of a thing of which none has more than half of the hosts, each with its hosts; the one that most have first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sides {
    label: String,
    sides: Vec<(String, Vec<usize>)>,
}

/// What a thing is called, and where it is.
type Thing = (Arc<str>, Arc<str>);

/// All that differs.
#[derive(Debug, Default)]
pub(super) struct Differences {
    few: BTreeMap<(Topic, Others, Vec<usize>), Vec<Differs>>,
    tied: BTreeMap<(Topic, Sides), Vec<Thing>>,
}

/// What a thing is called.
pub(super) fn name(key: &Key) -> String {
    of(&key.name, &key.place)
}

fn of(name: &str, place: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{name} of {place}") }
}

/// A list, of which at most so many are named.
pub(super) fn some(names: &[String]) -> String {
    match names.len().saturating_sub(NAMED) {
        0 => names.join("; "),
        more => format!("{}; and {more} more", names[..NAMED].join("; ")),
    }
}

impl Differences {
    /// Takes in who differs in a thing from most of those it is compared with. `known` tells of whom that was told already. Gives
    /// those who differ.
    pub(super) fn of(&mut self, key: &Key, part: &Part<'_>, known: &dyn Fn(usize) -> bool) -> Vec<usize> {
        let mut sides = BTreeMap::<&str, Vec<usize>>::new();
        part.values.iter().for_each(|(at, value)| sides.entry(value).or_default().push(*at));
        if sides.len() < 2 {
            return Vec::new();
        }
        let (usual, count) = part.usual();
        let all = part.values.len();
        if count * 2 <= all {
            if part.values.iter().any(|(at, _)| known(*at)) {
                return Vec::new();
            }
            let mut told: Vec<(String, Vec<usize>)> =
                sides.into_iter().map(|(v, hosts)| (v.to_owned(), hosts)).collect();
            told.sort_by_key(|(_, hosts)| std::cmp::Reverse(hosts.len()));
            let sides = Sides { label: part.label.clone(), sides: told };
            self.tied.entry((key.topic, sides)).or_default().push((key.name.clone(), key.place.clone()));
            return part.values.iter().map(|(at, _)| *at).collect();
        }
        let mut differ = Vec::new();
        for (own, hosts) in sides.into_iter().filter(|(own, _)| *own != usual) {
            let hosts: Vec<usize> = hosts.into_iter().filter(|at| !known(*at)).collect();
            if hosts.is_empty() {
                continue;
            }
            differ.extend(&hosts);
            let others = Others { label: part.label.clone(), count, all };
            self.few.entry((key.topic, others, hosts)).or_default().push(Differs {
                name: key.name.clone(),
                place: key.place.clone(),
                own: own.to_owned(),
                usual: usual.to_owned(),
            });
        }
        differ
    }

    /// The findings.
    pub(super) fn findings(self, hosts: &[Seen]) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut topics = BTreeMap::<(Topic, Others), Vec<(Vec<usize>, Vec<Differs>)>>::new();
        for ((topic, others, who), what) in self.few {
            topics.entry((topic, others)).or_default().push((who, what));
        }
        for ((topic, others), all) in topics {
            if all.len() > MOST {
                found.push(scattered(topic, &others, &all, hosts));
            } else {
                found.extend(all.iter().map(|(who, what)| few(topic, &others, who, what, hosts)));
            }
        }
        for ((topic, sides), what) in self.tied {
            found.push(tied(topic, &sides, &what, hosts));
        }
        found
    }
}

/// The names of hosts, folded.
fn folded(who: &[usize], hosts: &[Seen]) -> String {
    hostlist::fold(who.iter().map(|at| &*hosts[*at].host))
}

/// Things that are alike but for their places, each with all its places.
fn by_place(what: &[Differs]) -> Vec<(Differs, Vec<Arc<str>>)> {
    let mut told: Vec<(Differs, Vec<Arc<str>>)> = Vec::new();
    for one in what {
        let alike = |(other, _): &&mut (Differs, _)| {
            (&other.name, &other.own, &other.usual) == (&one.name, &one.own, &one.usual)
        };
        match told.iter_mut().find(alike) {
            Some((_, places)) => places.push(one.place.clone()),
            None => told.push((one.clone(), vec![one.place.clone()])),
        }
    }
    told
}

fn places(all: &[Arc<str>]) -> String {
    hostlist::fold(all.iter().map(|place| &**place).filter(|place| !place.is_empty()))
}

fn as_on(others: &Others) -> String {
    let label = if others.label.is_empty() { String::new() } else { format!(" {}", others.label) };
    format!("as on {} of {} hosts{label}", others.count, others.all)
}

/// Hosts that all differ in the same.
fn few(topic: Topic, others: &Others, who: &[usize], what: &[Differs], hosts: &[Seen]) -> Finding {
    let clause = |(one, all): &(Differs, Vec<Arc<str>>)| {
        format!("{} is {}, and not {}", of(&one.name, &places(all)), one.own, one.usual)
    };
    let clauses: Vec<String> = by_place(what).iter().map(clause).collect();
    let evidence = format!("{}, {}", some(&clauses), as_on(others));
    finding(topic, who, evidence, what, hosts)
}

/// Many hosts of which each differs in something else.
fn scattered(topic: Topic, others: &Others, all: &[(Vec<usize>, Vec<Differs>)], hosts: &[Seen]) -> Finding {
    let mut by_thing = BTreeMap::<&Differs, Vec<usize>>::new();
    for (who, what) in all {
        what.iter().for_each(|one| by_thing.entry(one).or_default().extend(who));
    }
    let clause = |(one, who): (&&Differs, &Vec<usize>)| {
        format!("{} is {} on {}, and not {}", of(&one.name, &one.place), one.own, folded(who, hosts), one.usual)
    };
    let clauses: Vec<String> = by_thing.iter().map(clause).collect();
    let who: BTreeSet<usize> = by_thing.values().flatten().copied().collect();
    let who: Vec<usize> = who.into_iter().collect();
    let what: Vec<Differs> = by_thing.keys().map(|one| (*one).clone()).collect();
    finding(topic, &who, format!("{}, {}", some(&clauses), as_on(others)), &what, hosts)
}

/// Hosts of which none is known to be right.
fn tied(topic: Topic, Sides { label, sides }: &Sides, what: &[Thing], hosts: &[Seen]) -> Finding {
    let mut names = BTreeMap::<&str, Vec<Arc<str>>>::new();
    what.iter().for_each(|(name, place)| names.entry(name).or_default().push(place.clone()));
    let names: Vec<String> = names.iter().map(|(name, all)| of(name, &places(all))).collect();
    let side = |(value, who): &(String, Vec<usize>)| format!("{value} on {}", folded(who, hosts));
    let told: Vec<String> = sides.iter().map(side).collect();
    let mut who: Vec<usize> = sides.iter().flat_map(|(_, who)| who.clone()).collect();
    who.sort_unstable();
    let label = if label.is_empty() { String::new() } else { format!(" {label}") };
    let evidence =
        format!("{} is {}: no value has most of the {} hosts{label}", some(&names), told.join(", and "), who.len());
    // Which one is meant nobody but the operator knows.
    let differs = |(name, place): &Thing| Differs {
        name: name.clone(),
        place: place.clone(),
        own: String::new(),
        usual: "VALUE".to_owned(),
    };
    finding(topic, &who, evidence, &what.iter().map(differs).collect::<Vec<_>>(), hosts)
}

fn finding(topic: Topic, who: &[usize], evidence: String, what: &[Differs], hosts: &[Seen]) -> Finding {
    // Of the value of the next boot, which is what can be set.
    let bare = |name: &str| name.split(' ').next().unwrap_or_default().to_owned();
    let mut values: Vec<String> = Vec::new();
    for one in what.iter().filter(|one| topic != Topic::Parameter || !one.usual.starts_with(DEFAULT)) {
        let value = format!("{}: {}", bare(&one.name), one.usual);
        if !values.contains(&value) && values.len() < NAMED {
            values.push(value);
        }
    }
    let first = what.first();
    let interface = first.map_or("", |one| &*one.place);
    let wanted = first.map_or("", |one| &*one.usual);
    let values = values.join(", ");
    let words = [
        ("values", values.as_str()),
        ("interface", interface),
        ("board", interface),
        ("mtu", wanted),
        ("version", wanted),
    ];
    let mut found = Finding::new(topic.known(), who.iter().map(|at| hosts[*at].host.clone()), evidence, &words);
    let default = |one: &&Differs| topic == Topic::Parameter && one.usual.starts_with(DEFAULT);
    if let Some(one) = what.iter().find(default) {
        found.remedy.push_str(&format!(
            "; back to its default: `mlxconfig -d ADDRESS reset {}`, or `mlxconfig: {{device: all, reset: true, set: {{…}}}}`, which resets all others too",
            bare(&one.name)
        ));
    }
    found
}

/// What is said of a parameter that isn't told, as it is at its default.
pub(super) const DEFAULT: &str = "its default";
