//! Hosts that differ on purpose: those of a group of the inventory have one value, all others another one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The groups of the hosts.
pub(super) struct Groups<'g> {
    names: Vec<&'g str>,
    /// By the number of the host.
    of: Vec<Vec<usize>>,
}

/// Hosts that are compared with each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<'v> {
    /// Which they are: `of gpu`, `outside of storage`; empty for all.
    pub(super) label: String,
    /// The hosts by their numbers, with their values.
    pub(super) values: Vec<(usize, &'v str)>,
}

impl Part<'_> {
    /// The value that most have, and how many.
    pub(super) fn usual(&self) -> (&str, usize) {
        let mut counts = HashMap::<&str, usize>::new();
        self.values.iter().for_each(|(_, value)| *counts.entry(value).or_default() += 1);
        most(counts)
    }
}

impl<'g> Groups<'g> {
    /// From the names of the groups of each host, in their order.
    pub(super) fn new(hosts: impl Iterator<Item = &'g [Arc<str>]>) -> Groups<'g> {
        let mut numbers = HashMap::<&str, usize>::new();
        let mut names = Vec::new();
        let mut number = |name: &'g Arc<str>| {
            *numbers.entry(name).or_insert_with(|| {
                names.push(&**name);
                names.len() - 1
            })
        };
        let of = hosts.map(|groups| groups.iter().map(&mut number).collect()).collect();
        Groups { names, of }
    }

    /// A group that has exactly these hosts, in their order, if one has.
    pub(super) fn of_all(&self, who: &[usize]) -> Option<&'g str> {
        let has = |group: &&usize| {
            let members = self.of.iter().enumerate().filter(|(_, groups)| groups.contains(group)).map(|(at, _)| at);
            members.eq(who.iter().copied())
        };
        self.of[*who.first()?].iter().find(has).map(|group| self.names[*group])
    }

    /// How these hosts are called: by a group that has exactly them among `all`, or as those that are in a group and not in others.
    fn label(&self, values: &[(usize, &str)], all: &[(usize, &str)], inside: &[usize], outside: &[usize]) -> String {
        let mut counts = BTreeMap::<usize, usize>::new();
        values.iter().flat_map(|(at, _)| &self.of[*at]).for_each(|group| *counts.entry(*group).or_default() += 1);
        let exact = |group: &usize| {
            counts[group] == values.len()
                && all.iter().filter(|(at, _)| self.of[*at].contains(group)).count() == values.len()
        };
        let named = inside.iter().rev().chain(counts.keys()).find(|group| counts.contains_key(group) && exact(group));
        let list = |groups: &[usize]| groups.iter().map(|group| self.names[*group]).collect::<Vec<_>>().join(", ");
        match (named, inside, outside) {
            (Some(group), ..) => format!("of {}", self.names[*group]),
            (None, [], outside) => format!("outside of {}", list(outside)),
            (None, [.., last], []) => format!("of {}", self.names[*last]),
            (None, [.., last], outside) => format!("of {} outside of {}", self.names[*last], list(outside)),
        }
    }
}

fn most(counts: HashMap<&str, usize>) -> (&str, usize) {
    counts.into_iter().max_by(|(a, n), (b, m)| n.cmp(m).then(b.cmp(a))).unwrap_or_default()
}

/// Divides hosts where a group of them has one value and the others have another one: nine in ten of each side, and at least two
/// hosts. `allowed` says whether a group may.
pub(super) fn divide<'v>(
    groups: &Groups<'_>,
    values: &[(usize, &'v str)],
    allowed: &mut dyn FnMut(usize) -> bool,
) -> Vec<Part<'v>> {
    let mut done = Vec::new();
    let mut open = vec![(values.to_vec(), Vec::new(), Vec::new())];
    while let Some((values, inside, outside)) = open.pop() {
        match split(groups, &values, allowed) {
            Some(group) => {
                let (of, others) = values.into_iter().partition(|(at, _)| groups.of[*at].contains(&group));
                open.push((others, inside.clone(), [outside.as_slice(), &[group]].concat()));
                open.push((of, [inside.as_slice(), &[group]].concat(), outside));
            }
            None => done.push((values, inside, outside)),
        }
    }
    if let [(all, _, _)] = done.as_mut_slice() {
        return vec![Part { label: String::new(), values: std::mem::take(all) }];
    }
    let part = |(own, inside, outside): (Vec<(usize, &'v str)>, Vec<usize>, Vec<usize>)| {
        let label = groups.label(&own, values, &inside, &outside);
        Part { label, values: own }
    };
    done.into_iter().map(part).collect()
}

/// The group by which these are to be divided, if one is.
fn split(groups: &Groups<'_>, values: &[(usize, &str)], allowed: &mut dyn FnMut(usize) -> bool) -> Option<usize> {
    let mut all = HashMap::<&str, usize>::new();
    values.iter().for_each(|(_, value)| *all.entry(value).or_default() += 1);
    if all.len() < 2 {
        return None;
    }
    let mut inside = BTreeMap::<usize, HashMap<&str, usize>>::new();
    for (at, value) in values {
        for group in &groups.of[*at] {
            *inside.entry(*group).or_default().entry(value).or_default() += 1;
        }
    }
    let clear = |n: usize, of: usize| of >= 2 && n * 10 >= of * 9;
    let side = |(group, inside): (usize, HashMap<&str, usize>)| {
        let of: usize = inside.values().sum();
        let outside = all.iter().map(|(value, n)| (*value, n - inside.get(value).copied().unwrap_or(0))).collect();
        let ((own, n), (other, m)) = (most(inside), most(outside));
        let good = own != other && clear(n, of) && clear(m, values.len() - of);
        // The fewest that differ, then the largest group.
        good.then_some((values.len() - n - m, std::cmp::Reverse(of), group))
    };
    let mut found: Vec<_> = inside.into_iter().filter_map(side).collect();
    found.sort_unstable();
    found.into_iter().map(|(.., group)| group).find(|group| allowed(*group))
}
