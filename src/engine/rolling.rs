//! How a play goes through its hosts: batches, when too many have failed, and how many may be away at once. Pure.

use crate::playbook::Batch;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The sizes of a play's batches. Sizes are taken in turn and the last repeats; a percentage is of all hosts of the
/// play, rounded down, and at least one host. No size means one batch of all.
pub(super) fn batches(hosts: usize, serial: &[Batch]) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut left = hosts;
    let mut at = 0;
    while left > 0 {
        let size = match serial.get(at).or(serial.last()) {
            None => left,
            Some(Batch::Hosts(n)) => (*n).max(1),
            Some(Batch::Percent(p)) => share(hosts, *p).max(1),
        };
        sizes.push(size.min(left));
        left -= size.min(left);
        at += 1;
    }
    sizes
}

fn share(hosts: usize, percent: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a number of hosts is small and not negative"
    )]
    let share = (hosts as f64 * percent / 100.0).floor() as usize;
    share
}

/// Whether a batch lost so many of its hosts that the run stops: more than this percentage, or all of them where none
/// is set.
pub(super) fn over(lost: usize, batch: usize, max_fail_percentage: Option<f64>) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "a number of hosts is small")]
    match max_fail_percentage {
        Some(limit) => lost as f64 * 100.0 > limit * batch as f64,
        None => batch > 0 && lost == batch,
    }
}

/// How many of so many hosts may be unavailable: of a percentage at least one, and never more than there are.
pub(super) fn at_most(hosts: usize, most: &Batch) -> usize {
    match most {
        Batch::Hosts(n) => (*n).max(1),
        Batch::Percent(p) => share(hosts, *p).max(1),
    }
}

/// A host that isn't available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Away {
    /// What fails together with it.
    pub(super) domain: Option<String>,
    /// Why, where this run can't change it; nothing while it is on its way through a boot.
    pub(super) lost: Option<String>,
}

/// What becomes of the hosts that wait for a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Admission {
    /// These may go, by their place in the list; none, if they wait for others to come back.
    Go(Vec<usize>),
    /// None ever may: what is away doesn't come back in this run.
    Spent,
}

/// Which of the hosts that wait may be taken away, in their order: so many that at most `most` are away, and of each
/// domain one.
pub(super) fn admit(most: usize, away: &BTreeMap<Arc<str>, Away>, waiting: &[Option<String>]) -> Admission {
    let mut room = most.saturating_sub(away.len());
    let mut taken: Vec<&str> = away.values().filter_map(|a| a.domain.as_deref()).collect();
    let mut going = Vec::new();
    for (i, domain) in waiting.iter().enumerate() {
        if room == 0 {
            break;
        }
        if domain.as_deref().is_some_and(|d| taken.contains(&d)) {
            continue;
        }
        taken.extend(domain.as_deref());
        going.push(i);
        room -= 1;
    }
    let under_way = away.values().any(|a| a.lost.is_none());
    if going.is_empty() && !under_way && !waiting.is_empty() { Admission::Spent } else { Admission::Go(going) }
}

/// What becomes of a host that was drained and not yet booted, when the scheduler was asked again after that: another run may
/// have drained hosts of its own in the same seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// It may be booted.
    Holds,
    /// Too many are away, but only with hosts of runs that give way to this one, when they see it.
    Disputed,
    /// Too many are away: it is given back.
    Yields,
}

/// Whether a drained host may be booted, beside all that are away, itself among them; those that `behind` says give way.
pub(super) fn claim(
    most: usize,
    away: &BTreeMap<Arc<str>, Away>,
    host: &Arc<str>,
    behind: impl Fn(&Arc<str>) -> bool,
) -> Claim {
    let domain = away.get(host).and_then(|away| away.domain.as_ref());
    let fits = |counts: &dyn Fn(&Arc<str>) -> bool| {
        let others = || away.iter().filter(|(name, _)| *name != host && counts(name));
        others().count() < most && (domain.is_none() || others().all(|(_, other)| other.domain.as_ref() != domain))
    };
    match (fits(&|_| true), fits(&|name| !behind(name))) {
        (true, _) => Claim::Holds,
        (false, true) => Claim::Disputed,
        (false, false) => Claim::Yields,
    }
}

/// In which rounds hosts of these domains would go, if each round ended before the next began, and each batch of the play before
/// the next one; those that never may go, since what is lost doesn't come back, are in none. `batches` tells of each host in
/// which it is, in order.
pub(super) fn rounds(
    most: usize,
    away: &BTreeMap<Arc<str>, Away>,
    domains: &[Option<String>],
    batches: &[usize],
) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..domains.len()).collect();
    let of_batch = |batch: &[usize]| rounds_of(most, away, domains, batch.to_vec());
    all.chunk_by(|a, b| batches[*a] == batches[*b]).flat_map(of_batch).collect()
}

fn rounds_of(
    most: usize,
    away: &BTreeMap<Arc<str>, Away>,
    domains: &[Option<String>],
    mut left: Vec<usize>,
) -> Vec<Vec<usize>> {
    let mut rounds = Vec::new();
    while !left.is_empty() {
        let waiting: Vec<Option<String>> = left.iter().map(|&i| domains[i].clone()).collect();
        let going = match admit(most, away, &waiting) {
            Admission::Go(going) if !going.is_empty() => going,
            _ => break,
        };
        let going: Vec<usize> = going.into_iter().map(|at| left[at]).collect();
        left.retain(|i| !going.contains(i));
        rounds.push(going);
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_are_away_than_may_be() {
        let host = |i: usize| -> Arc<str> { format!("n{i}").into() };
        let away = |list: &[(usize, Option<&str>, Option<&str>)]| -> BTreeMap<Arc<str>, Away> {
            let one = |(i, domain, lost): &(usize, Option<&str>, Option<&str>)| {
                (host(*i), Away { domain: domain.map(Into::into), lost: lost.map(Into::into) })
            };
            list.iter().map(one).collect()
        };
        let none = || vec![None; 5];
        assert_eq!(admit(2, &away(&[]), &none()), Admission::Go(vec![0, 1]));
        assert_eq!(admit(2, &away(&[(9, None, None)]), &none()), Admission::Go(vec![0]));
        assert_eq!(admit(2, &away(&[(9, None, None), (8, None, Some("down"))]), &none()), Admission::Go(vec![]));
        assert_eq!(admit(1, &away(&[(8, None, Some("down"))]), &none()), Admission::Spent);
        assert_eq!(admit(1, &away(&[(8, None, Some("down"))]), &[]), Admission::Go(vec![]));
        // One of each domain; one that is lost keeps its domain.
        let racks: Vec<Option<String>> = ["a", "a", "b", "c"].map(|r| Some(r.to_owned())).into();
        assert_eq!(admit(9, &away(&[]), &racks), Admission::Go(vec![0, 2, 3]));
        assert_eq!(admit(9, &away(&[(9, Some("b"), Some("down"))]), &racks), Admission::Go(vec![0, 3]));
        assert_eq!(admit(9, &away(&[(9, Some("a"), Some("down"))]), &racks[..2]), Admission::Spent);
        let of = |racks: &[&str]| -> Vec<_> { racks.iter().map(|r| Some((*r).to_owned())).collect() };
        let racks = of(&["a", "a", "b", "b"]);
        let all = [0; 5];
        assert_eq!(rounds(4, &away(&[]), &racks, &all), [vec![0, 2], vec![1, 3]]);
        assert_eq!(rounds(4, &away(&[(9, Some("b"), Some("down"))]), &racks, &all), [vec![0], vec![1]]);
        assert_eq!(rounds(2, &away(&[]), &none(), &all), [vec![0, 1], vec![2, 3], vec![4]]);
        let one = away(&[(9, None, Some("down"))]);
        assert_eq!(rounds(2, &one, &none(), &all), [vec![0], vec![1], vec![2], vec![3], vec![4]]);
        assert_eq!(rounds(1, &one, &none(), &all), [[0; 0]; 0]);
        // A batch waits for the one before it.
        assert_eq!(rounds(2, &away(&[]), &none(), &[0, 1, 1, 1, 2]), [vec![0], vec![1, 2], vec![3], vec![4]]);
        assert_eq!(rounds(4, &away(&[]), &racks, &[0, 0, 0, 1]), [vec![0, 2], vec![1], vec![3]]);
        assert_eq!(at_most(100, &Batch::Percent(5.0)), 5);
        assert_eq!(at_most(10, &Batch::Percent(5.0)), 1);
        assert_eq!(at_most(10, &Batch::Hosts(3)), 3);
    }

    #[test]
    fn of_two_runs_at_the_same_moment_one_gives_way() {
        let away = |list: &[(&str, Option<&str>, bool)]| -> BTreeMap<Arc<str>, Away> {
            let one = |(name, domain, lost): &(&str, Option<&str>, bool)| {
                let away = Away { domain: domain.map(Into::into), lost: lost.then(|| "drained".to_owned()) };
                (Arc::from(*name), away)
            };
            list.iter().map(one).collect()
        };
        let claim = |most, list: &[(&str, Option<&str>, bool)], behind: &[&str]| {
            super::claim(most, &away(list), &"n1".into(), |host| behind.contains(&&**host))
        };
        let (own, other) = (("n1", None, false), ("n2", None, true));
        assert_eq!(claim(1, &[own], &[]), Claim::Holds);
        assert_eq!(claim(2, &[own, other], &[]), Claim::Holds);
        assert_eq!(claim(1, &[own, other], &[]), Claim::Yields);
        assert_eq!(claim(1, &[own, other], &["n2"]), Claim::Disputed);
        assert_eq!(claim(1, &[own, other, ("n3", None, true)], &["n2"]), Claim::Yields);
        let (own, other) = (("n1", Some("rack1"), false), ("n2", Some("rack1"), true));
        assert_eq!(claim(9, &[own, ("n2", Some("rack2"), true)], &[]), Claim::Holds);
        assert_eq!(claim(9, &[own, other], &[]), Claim::Yields);
        assert_eq!(claim(9, &[own, other], &["n2"]), Claim::Disputed);
    }

    #[test]
    fn ramps() {
        use Batch::{Hosts, Percent};
        assert_eq!(batches(10, &[]), [10]);
        assert_eq!(batches(10, &[Hosts(3)]), [3, 3, 3, 1]);
        assert_eq!(batches(100, &[Hosts(1), Percent(10.0), Percent(50.0)]), [1, 10, 50, 39]);
        assert_eq!(batches(3, &[Percent(10.0)]), [1, 1, 1]);
        assert_eq!(batches(0, &[Hosts(3)]), [0; 0]);
        assert_eq!(batches(2, &[Hosts(0)]), [1, 1]);
    }

    #[test]
    fn too_many_failures() {
        assert!(!over(0, 10, Some(0.0)) && over(1, 10, Some(0.0)));
        assert!(!over(1, 20, Some(5.0)) && over(2, 20, Some(5.0)));
        assert!(!over(9, 10, None) && over(10, 10, None) && !over(0, 0, None));
        assert!(!over(10, 10, Some(100.0)));
    }
}
