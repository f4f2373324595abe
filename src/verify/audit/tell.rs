//! How differences are told: those of the same hosts together.

use super::divide::{Groups, Part};
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

/// How things divide hosts of which no value has more than half: the hosts that have one value, the most first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sides {
    label: String,
    sides: Vec<Vec<usize>>,
}

/// A thing with its value on each side.
type Tied = (Thing, Vec<String>);

/// What a thing is called, and where it is.
type Thing = (Arc<str>, Arc<str>);

/// All that differs.
#[derive(Debug, Default)]
pub(super) struct Differences {
    few: BTreeMap<(Topic, Others, Vec<usize>), Vec<Differs>>,
    tied: BTreeMap<(Topic, Sides), Vec<Tied>>,
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
    listed(names, "; ")
}

fn listed(names: &[String], between: &str) -> String {
    match names.len().saturating_sub(NAMED) {
        0 => names.join(between),
        more => format!("{}; and {more} more", names[..NAMED].join(between)),
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
            let everybody = part.values.iter().map(|(at, _)| *at).collect();
            if part.values.iter().any(|(at, _)| known(*at)) {
                return everybody;
            }
            let mut told: Vec<(&str, Vec<usize>)> = sides.into_iter().collect();
            told.sort_by(|(_, a), (_, b)| b.len().cmp(&a.len()).then(a.cmp(b)));
            let values = told.iter().map(|(value, _)| (*value).to_owned()).collect();
            let sides = Sides { label: part.label.clone(), sides: told.into_iter().map(|(_, hosts)| hosts).collect() };
            let thing = (key.name.clone(), key.place.clone());
            self.tied.entry((key.topic, sides)).or_default().push((thing, values));
            return everybody;
        }
        let mut differ = Vec::new();
        for (own, hosts) in sides.into_iter().filter(|(own, _)| *own != usual) {
            differ.extend(&hosts);
            let hosts: Vec<usize> = hosts.into_iter().filter(|at| !known(*at)).collect();
            if hosts.is_empty() {
                continue;
            }
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

    /// The findings: of a topic in which each of many hosts differs in something else, one.
    pub(super) fn findings(self, hosts: &[Seen], groups: &Groups<'_>) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut few = BTreeMap::<Topic, Vec<(Others, Vec<usize>, Vec<Differs>)>>::new();
        for ((topic, others, who), what) in self.few {
            few.entry(topic).or_default().push((others, who, what));
        }
        for (topic, all) in few {
            if all.len() > MOST {
                found.push(scattered(topic, &all, hosts));
            } else {
                found.extend(all.iter().map(|(others, who, what)| same(topic, others, who, what, hosts, groups)));
            }
        }
        let mut tied = BTreeMap::<Topic, Vec<(Sides, Vec<Tied>)>>::new();
        for ((topic, sides), what) in self.tied {
            tied.entry(topic).or_default().push((sides, what));
        }
        for (topic, all) in tied {
            if all.len() > MOST {
                found.push(undecided(topic, &all, hosts));
            } else {
                found.extend(all.iter().map(|(sides, what)| split(topic, sides, what, hosts)));
            }
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
fn same(
    topic: Topic,
    others: &Others,
    who: &[usize],
    what: &[Differs],
    hosts: &[Seen],
    groups: &Groups<'_>,
) -> Finding {
    let clause = |(one, all): &(Differs, Vec<Arc<str>>)| {
        format!("{} is {}, and not {}", of(&one.name, &places(all)), one.own, one.usual)
    };
    let clauses: Vec<String> = by_place(what).iter().map(clause).collect();
    // A group that differs as a whole may be meant to, or was forgotten as a whole.
    let group = groups.of_all(who).filter(|_| who.len() > 1);
    let group = group.map(|group| format!("; these are all hosts of {group}")).unwrap_or_default();
    finding(topic, who, format!("{}, {}{group}", some(&clauses), as_on(others)), what, hosts)
}

/// Many hosts of which each differs in something else.
fn scattered(topic: Topic, all: &[(Others, Vec<usize>, Vec<Differs>)], hosts: &[Seen]) -> Finding {
    let mut by_thing = BTreeMap::<(&Others, &Differs), Vec<usize>>::new();
    for (others, who, what) in all {
        what.iter().for_each(|one| by_thing.entry((others, one)).or_default().extend(who));
    }
    let clause = |((others, one), who): (&(&Others, &Differs), &Vec<usize>)| {
        let name = of(&one.name, &one.place);
        format!("{name} is {} on {}, and not {}, {}", one.own, folded(who, hosts), one.usual, as_on(others))
    };
    let clauses: Vec<String> = by_thing.iter().map(clause).collect();
    let who: BTreeSet<usize> = by_thing.values().flatten().copied().collect();
    let who: Vec<usize> = who.into_iter().collect();
    let what: Vec<Differs> = by_thing.keys().map(|(_, one)| (*one).clone()).collect();
    finding(topic, &who, some(&clauses), &what, hosts)
}

/// Things with their places, each name once.
fn things<'t>(what: impl IntoIterator<Item = &'t Thing>) -> String {
    let mut names = BTreeMap::<&str, Vec<Arc<str>>>::new();
    what.into_iter().for_each(|(name, place)| names.entry(name).or_default().push(place.clone()));
    some(&names.iter().map(|(name, all)| of(name, &places(all))).collect::<Vec<_>>())
}

/// What has to be set to something that only the operator knows.
fn open((name, place): &Thing) -> Differs {
    Differs { name: name.clone(), place: place.clone(), own: String::new(), usual: "VALUE".to_owned() }
}

fn members(sides: &Sides) -> BTreeSet<usize> {
    sides.sides.iter().flatten().copied().collect()
}

/// Hosts of which none is known to be right.
fn split(topic: Topic, sides: &Sides, what: &[Tied], hosts: &[Seen]) -> Finding {
    let mut by_values = BTreeMap::<&[String], Vec<&Thing>>::new();
    what.iter().for_each(|(thing, values)| by_values.entry(values).or_default().push(thing));
    let clause = |(values, all): (&&[String], &Vec<&Thing>)| {
        let side = |(value, who): (&String, &Vec<usize>)| format!("{value} on {}", folded(who, hosts));
        let told: Vec<String> = values.iter().zip(&sides.sides).map(side).collect();
        format!("{} is {}", things(all.iter().copied()), listed(&told, ", and "))
    };
    let clauses: Vec<String> = by_values.iter().map(clause).collect();
    let who: Vec<usize> = members(sides).into_iter().collect();
    let label = if sides.label.is_empty() { String::new() } else { format!(" {}", sides.label) };
    let evidence = format!("{}: no value has most of the {} hosts{label}", some(&clauses), who.len());
    finding(topic, &who, evidence, &what.iter().map(|(thing, _)| open(thing)).collect::<Vec<_>>(), hosts)
}

/// Many things, and of none a value that most hosts have.
fn undecided(topic: Topic, all: &[(Sides, Vec<Tied>)], hosts: &[Seen]) -> Finding {
    let what = || all.iter().flat_map(|(_, what)| what).map(|(thing, _)| thing);
    let who: BTreeSet<usize> = all.iter().flat_map(|(sides, _)| members(sides)).collect();
    let who: Vec<usize> = who.into_iter().collect();
    let evidence = format!("no value has most of the {} hosts, of {}", who.len(), things(what()));
    finding(topic, &who, evidence, &what().map(open).collect::<Vec<_>>(), hosts)
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
