//! Whose fault it is: which interfaces explain the tests that failed, with whom they are tried again, and what is named then.

use std::collections::{BTreeMap, BTreeSet};

/// An interface: the host and the interface, by their places in the lists.
pub type End = (usize, usize);

/// A test from one interface to another one, and whether it was good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tested {
    /// Where it went out.
    pub from: End,
    /// Where it went to.
    pub to: End,
    /// Whether it was good.
    pub good: bool,
}

/// What is to blame.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blamed {
    /// This interface, also with another one that was proven good: what it sends, what it gets, or both.
    End {
        /// The interface.
        end: End,
        /// Whether what it sends is concerned.
        sends: bool,
        /// Whether what it gets is concerned.
        gets: bool,
    },
    /// What lies between these two, which are good with others: from the first to the second.
    Pair(End, End),
    /// The same the other way as well.
    PairBothWays(End, End),
    /// All of these, since none of them was good with anybody: what they share.
    All(Vec<End>),
    /// Groups that are good among themselves, and not with each other.
    Parts(Vec<Vec<End>>),
}

/// The fewest interfaces, or nearly, that all failed tests have in common: again and again those with the most failures that
/// nobody else explains. Of a test that failed alone these are both ends.
pub fn suspects(tests: &[Tested]) -> BTreeSet<End> {
    let mut open: Vec<&Tested> = tests.iter().filter(|t| !t.good).collect();
    let mut all = BTreeSet::new();
    while !open.is_empty() {
        let mut counts = BTreeMap::<End, usize>::new();
        for test in &open {
            *counts.entry(test.from).or_default() += 1;
            *counts.entry(test.to).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or_default();
        all.extend(counts.into_iter().filter(|(_, n)| *n == most).map(|(end, _)| end));
        open.retain(|t| !all.contains(&t.from) && !all.contains(&t.to));
    }
    all
}

/// Those that were good with somebody and explain no failure.
pub fn proven(tests: &[Tested], suspects: &BTreeSet<End>) -> BTreeSet<End> {
    tests.iter().filter(|t| t.good).flat_map(|t| [t.from, t.to]).filter(|end| !suspects.contains(end)).collect()
}

/// With whom each suspect is tried again: one that is proven good, on another host, and faces it. They are taken in turn, so
/// that as many as possible can be tried at once.
pub fn again(suspects: &BTreeSet<End>, proven: &BTreeSet<End>, faces: impl Fn(End, End) -> bool) -> Vec<(End, End)> {
    let mut used = BTreeMap::<End, usize>::new();
    let pair = |suspect: &End| {
        let others = proven.iter().filter(|good| good.0 != suspect.0 && faces(*suspect, **good));
        let good = *others.min_by_key(|good| used.get(*good).copied().unwrap_or_default())?;
        *used.entry(good).or_default() += 1;
        Some((*suspect, good))
    };
    suspects.iter().filter_map(pair).collect()
}

/// Who is tried with whom where nobody is proven good: of suspects that can't be tried again (by `again`) each with the next one that
/// it faces and wasn't tested with. If one of them is good then, it is the one to try others with; if none is, it is what
/// they share.
pub fn joined(
    suspects: &BTreeSet<End>,
    again: &[(End, End)],
    tests: &[Tested],
    faces: impl Fn(End, End) -> bool,
) -> Vec<(End, End)> {
    let tried: BTreeSet<End> = again.iter().map(|(suspect, _)| *suspect).collect();
    let known: BTreeSet<(End, End)> = tests.iter().flat_map(|t| [(t.from, t.to), (t.to, t.from)]).collect();
    let alone: Vec<End> = suspects.difference(&tried).copied().collect();
    let next = |(at, end): (usize, &End)| alone[at + 1..].iter().find(|next| next.0 != end.0 && faces(*end, **next));
    let pairs = alone.iter().enumerate().filter_map(|(at, end)| Some((*end, *next((at, end))?)));
    pairs.filter(|pair| !known.contains(pair)).collect()
}

/// Names what is to blame, by the first tests, and by those in which suspects were tried again with others that are good.
pub fn name(tests: &[Tested], retried: &[Tested]) -> Vec<Blamed> {
    let suspects = suspects(tests);
    let tried: BTreeSet<End> = retried.iter().flat_map(|t| [t.from, t.to]).collect();
    let mut named = BTreeSet::new();
    let bad = |end: End| {
        let sends = retried.iter().any(|t| t.from == end && !t.good);
        let gets = retried.iter().any(|t| t.to == end && !t.good);
        (suspects.contains(&end) && (sends || gets)).then_some(Blamed::End { end, sends, gets })
    };
    named.extend(suspects.iter().filter_map(|end| bad(*end)));
    // Nobody was good whom these could be tried with.
    let mut left: Vec<&Tested> = tests.iter().filter(|t| !t.good).collect();
    left.retain(|t| bad(t.from).is_none() && bad(t.to).is_none());
    let (alone, between): (Vec<&Tested>, Vec<&Tested>) =
        left.into_iter().partition(|t| !tried.contains(&t.from) && !tried.contains(&t.to));
    for test in between {
        pair(test, tests, &mut named);
    }
    for group in groups(alone.iter().map(|t| (t.from, t.to))) {
        let of_group = |t: &&Tested| group.contains(&t.from);
        match group.len() {
            0..=2 => alone.iter().copied().filter(of_group).for_each(|test| pair(test, tests, &mut named)),
            _ => {
                let good = tests.iter().filter(|t| t.good && group.contains(&t.from) && group.contains(&t.to));
                let parts = groups(good.map(|t| (t.from, t.to)));
                _ = named.insert(
                    match parts.iter().map(BTreeSet::len).sum::<usize>() == group.len() && parts.len() > 1 {
                        true => Blamed::Parts(parts.into_iter().map(|part| part.into_iter().collect()).collect()),
                        false => Blamed::All(group.into_iter().collect()),
                    },
                );
            }
        }
    }
    named.into_iter().collect()
}

fn pair(test: &Tested, tests: &[Tested], named: &mut BTreeSet<Blamed>) {
    let (from, to) = (test.from, test.to);
    let back = tests.iter().any(|t| t.from == to && t.to == from && !t.good);
    named.insert(match back {
        true => Blamed::PairBothWays(from.min(to), from.max(to)),
        false => Blamed::Pair(from, to),
    });
}

/// What hangs together by these.
fn groups(edges: impl IntoIterator<Item = (End, End)>) -> Vec<BTreeSet<End>> {
    let mut groups: Vec<BTreeSet<End>> = Vec::new();
    for (a, b) in edges {
        let mut group = BTreeSet::from([a, b]);
        groups.retain(|other| {
            let apart = other.is_disjoint(&group);
            if !apart {
                group.extend(other);
            }
            apart
        });
        groups.push(group);
    }
    groups.sort();
    groups
}

#[cfg(test)]
mod tests {
    use super::super::schedule::Pairs;
    use super::*;

    /// How tests between so many hosts with one interface each go, where those fail for which `fails` holds, and what is
    /// named after suspects were tried again.
    fn named(hosts: usize, pairs: Pairs, fails: impl Fn(usize, usize) -> bool) -> Vec<Blamed> {
        let test = |from: usize, to: usize| Tested { from: (from, 0), to: (to, 0), good: !fails(from, to) };
        let both = |(a, b): (usize, usize)| [test(a, b), test(b, a)];
        let mut tests: Vec<Tested> = pairs.rounds(hosts, 1).into_iter().flatten().flat_map(both).collect();
        let whom = |tests: &[Tested]| {
            let suspects = suspects(tests);
            let again = again(&suspects, &proven(tests, &suspects), |_, _| true);
            let more = joined(&suspects, &again, tests, |_, _| true);
            (again, more)
        };
        let (_, more) = whom(&tests);
        tests.extend(more.into_iter().flat_map(|(a, b)| both((a.0, b.0))));
        let (again, _) = whom(&tests);
        let retried: Vec<Tested> = again.into_iter().flat_map(|(s, g)| both((s.0, g.0))).collect();
        name(&tests, &retried)
    }

    fn end(host: usize, sends: bool, gets: bool) -> Blamed {
        Blamed::End { end: (host, 0), sends, gets }
    }

    const ALL: [Pairs; 4] = [Pairs::Quick, Pairs::Ring, Pairs::Full, Pairs::Sample(3)];

    #[test]
    fn a_bad_host_is_named_whatever_pairs_are_tested() {
        for pairs in ALL {
            for hosts in [4, 5, 16, 33] {
                for bad in [0, 1, hosts - 1] {
                    assert_eq!(
                        named(hosts, pairs, |a, b| a == bad || b == bad),
                        [end(bad, true, true)],
                        "{pairs} {hosts} {bad}"
                    );
                    assert_eq!(named(hosts, pairs, |a, _| a == bad), [end(bad, true, false)], "{pairs} {hosts} {bad}");
                    assert_eq!(named(hosts, pairs, |_, b| b == bad), [end(bad, false, true)], "{pairs} {hosts} {bad}");
                }
                assert_eq!(named(hosts, pairs, |_, _| false), []);
            }
        }
    }

    #[test]
    fn two_bad_hosts_are_both_named() {
        for pairs in ALL {
            let found = named(16, pairs, |a, b| [2, 5].contains(&a) || [2, 5].contains(&b));
            assert_eq!(found, [end(2, true, true), end(5, true, true)], "{pairs}");
        }
    }

    #[test]
    fn what_is_between_two_is_named_as_that() {
        let between = |a: usize, b: usize| (a, b) == (1, 2);
        assert_eq!(named(8, Pairs::Full, between), [Blamed::Pair((1, 0), (2, 0))]);
        let both = |a: usize, b: usize| between(a, b) || between(b, a);
        assert_eq!(named(8, Pairs::Ring, both), [Blamed::PairBothWays((1, 0), (2, 0))]);
        assert_eq!(named(2, Pairs::Quick, |a, _| a == 1), [Blamed::Pair((1, 0), (0, 0))], "two hosts have no third");
        assert_eq!(named(2, Pairs::Quick, |_, _| true), [Blamed::PairBothWays((0, 0), (1, 0))]);
    }

    #[test]
    fn what_all_share_is_named_once() {
        let all: Vec<End> = (0..6).map(|i| (i, 0)).collect();
        for pairs in ALL {
            assert_eq!(named(6, pairs, |_, _| true), [Blamed::All(all.clone())], "{pairs}");
        }
        // Half of them are bad, and each was tested with a good one.
        for hosts in [4, 8] {
            let found = named(hosts, Pairs::Quick, |a, b| a < hosts / 2 || b < hosts / 2);
            let wanted: Vec<Blamed> = (0..hosts / 2).map(|host| end(host, true, true)).collect();
            assert_eq!(found, wanted, "{hosts}");
        }
        let parts = vec![all[..3].to_vec(), all[3..].to_vec()];
        assert_eq!(named(6, Pairs::Full, |a, b| (a < 3) != (b < 3)), [Blamed::Parts(parts)]);
    }

    #[test]
    fn who_is_tried_again_with_whom() {
        let ends = |hosts: &[usize]| hosts.iter().map(|h| (*h, 0)).collect::<BTreeSet<End>>();
        let pairs = again(&ends(&[1, 2, 3]), &ends(&[4, 5]), |_, good| good != (5, 0));
        assert_eq!(pairs, [((1, 0), (4, 0)), ((2, 0), (4, 0)), ((3, 0), (4, 0))]);
        let pairs = again(&ends(&[1, 2]), &ends(&[4, 5]), |_, _| true);
        assert_eq!(pairs, [((1, 0), (4, 0)), ((2, 0), (5, 0))]);
        assert_eq!(again(&ends(&[1]), &BTreeSet::from([(1, 1)]), |_, _| true), [], "not with itself");
    }
}
