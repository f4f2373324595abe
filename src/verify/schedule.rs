//! Who is tested with whom, in rounds in which no host is in two tests: a round-robin tournament, or a part of it.

use std::fmt;
use std::str::FromStr;

/// Which pairs are tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pairs {
    /// Each host with one other, half the list away from it: one round, or two where their number is odd.
    #[default]
    Quick,
    /// Each host with the next one of the list, and the last with the first.
    Ring,
    /// Each host with each other: N-1 rounds, or N where their number is odd.
    Full,
    /// Each host with this many others, or nearly: so many rounds of a full tournament.
    Sample(usize),
}

impl FromStr for Pairs {
    type Err = String;

    fn from_str(text: &str) -> Result<Pairs, String> {
        match text {
            "quick" => Ok(Pairs::Quick),
            "ring" => Ok(Pairs::Ring),
            "full" => Ok(Pairs::Full),
            _ => match text.strip_prefix("sample:").map(str::parse) {
                Some(Ok(n)) if n > 0 => Ok(Pairs::Sample(n)),
                _ => Err("known: quick, ring, full, sample:N with N from 1".to_owned()),
            },
        }
    }
}

impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pairs::Quick => f.write_str("quick"),
            Pairs::Ring => f.write_str("ring"),
            Pairs::Full => f.write_str("full"),
            Pairs::Sample(n) => write!(f, "sample:{n}"),
        }
    }
}

/// Disjoint pairs of hosts, by their places in the list.
pub type Round = Vec<(usize, usize)>;

impl Pairs {
    /// The rounds for so many hosts. `seed` chooses which rounds a sample takes.
    pub fn rounds(self, hosts: usize, seed: u64) -> Vec<Round> {
        if hosts < 2 {
            return Vec::new();
        }
        match self {
            Pairs::Quick => {
                let half = hosts / 2;
                let first = (0..half).map(|i| (i, i + half)).collect();
                // Of an odd number the last one is left, and takes the first.
                let second = (hosts % 2 == 1).then(|| vec![(hosts - 1, 0)]);
                [Some(first), second].into_iter().flatten().collect()
            }
            Pairs::Ring => {
                let mut rounds = vec![Vec::new(); 3];
                // Of an odd number the last step would meet the first one in its round.
                let of = |i: usize| if hosts % 2 == 1 && i == hosts - 1 { 2 } else { i % 2 };
                (0..if hosts == 2 { 1 } else { hosts }).for_each(|i| rounds[of(i)].push((i, (i + 1) % hosts)));
                rounds.retain(|round| !round.is_empty());
                rounds
            }
            Pairs::Full => (0..tournament(hosts)).map(|r| round(hosts, r)).collect(),
            Pairs::Sample(n) => {
                let all = tournament(hosts);
                let n = n.min(all);
                let offset = usize::try_from(seed % all as u64).unwrap_or(0);
                (0..n).map(|i| round(hosts, (offset + i * all / n) % all)).collect()
            }
        }
    }
}

/// How many rounds a full tournament has.
fn tournament(hosts: usize) -> usize {
    if hosts.is_multiple_of(2) { hosts - 1 } else { hosts }
}

/// A round of the full tournament, by the circle method: one host stays, the others move by one place each round. Of an odd
/// number one stays for nobody, and whoever meets nobody rests.
fn round(hosts: usize, number: usize) -> Round {
    let places = hosts + hosts % 2;
    let circle = places - 1;
    let at = |place: usize| (number + place) % circle;
    let mut pairs = Vec::with_capacity(places / 2);
    if hosts.is_multiple_of(2) {
        pairs.push((at(0), hosts - 1));
    }
    pairs.extend((1..places / 2).map(|i| (at(i), at(circle - i))));
    pairs
}

/// Tests of these pairs in as few rounds as a simple rule finds, in which no host is twice.
pub fn disjoint(pairs: impl IntoIterator<Item = (usize, usize)>) -> Vec<Round> {
    let mut rounds: Vec<Round> = Vec::new();
    for (a, b) in pairs {
        let free = |round: &&mut Round| round.iter().all(|(x, y)| ![*x, *y].contains(&a) && ![*x, *y].contains(&b));
        match rounds.iter_mut().find(free) {
            Some(round) => round.push((a, b)),
            None => rounds.push(vec![(a, b)]),
        }
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn pairs(rounds: &[Round]) -> Vec<(usize, usize)> {
        rounds.iter().flatten().map(|&(a, b)| (a.min(b), a.max(b))).collect()
    }

    /// No host is twice in a round, none is its own peer, no pair comes twice.
    fn sound(hosts: usize, rounds: &[Round]) {
        for round in rounds {
            let mut seen = BTreeSet::new();
            for (a, b) in round {
                assert!(a != b && *a < hosts && *b < hosts, "{hosts}: {round:?}");
                assert!(seen.insert(*a) && seen.insert(*b), "{hosts}: {round:?}");
            }
        }
        let all = pairs(rounds);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{hosts}: {rounds:?}");
    }

    #[test]
    fn a_tournament_has_each_pair_once_in_as_few_rounds_as_there_can_be() {
        for hosts in (0..=66).chain([127, 200]) {
            let rounds = Pairs::Full.rounds(hosts, 0);
            sound(hosts, &rounds);
            let wanted = if hosts < 2 { 0 } else { hosts - 1 + hosts % 2 };
            assert_eq!(rounds.len(), wanted, "{hosts}");
            assert_eq!(pairs(&rounds).len(), hosts * hosts.saturating_sub(1) / 2, "{hosts}");
        }
    }

    #[test]
    fn a_part_of_it_leaves_nobody_out() {
        for hosts in 2..=67 {
            let partners = |rounds: &[Round]| {
                let mut count = vec![0; hosts];
                for (a, b) in rounds.iter().flatten() {
                    count[*a] += 1;
                    count[*b] += 1;
                }
                count
            };
            let quick = Pairs::Quick.rounds(hosts, 0);
            sound(hosts, &quick);
            assert_eq!(quick.len(), 1 + hosts % 2);
            assert!(partners(&quick).iter().all(|n| *n >= 1));
            let ring = Pairs::Ring.rounds(hosts, 0);
            sound(hosts, &ring);
            let of_each = if hosts == 2 { 1 } else { 2 };
            assert!(partners(&ring).iter().all(|n| *n == of_each), "{hosts}: {ring:?}");
            assert_eq!(ring.len(), if hosts == 2 { 1 } else { 2 + hosts % 2 }, "{hosts}");
            for (n, seed) in [(1, 0), (3, 7), (5, u64::MAX), (100, 3)] {
                let sample = Pairs::Sample(n).rounds(hosts, seed);
                sound(hosts, &sample);
                assert_eq!(sample.len(), n.min(tournament(hosts)));
                // In each round of an odd number one rests.
                assert!(partners(&sample).iter().all(|p| p + hosts % 2 >= sample.len()), "{hosts} {n}");
            }
        }
    }

    #[test]
    fn pairs_that_are_given_are_put_into_rounds() {
        assert_eq!(disjoint([(0, 1), (1, 2), (3, 4), (2, 0)]), [vec![(0, 1), (3, 4)], vec![(1, 2)], vec![(2, 0)]]);
    }

    #[test]
    fn names_of_parts() {
        for text in ["quick", "ring", "full", "sample:3"] {
            assert_eq!(text.parse::<Pairs>().unwrap().to_string(), text);
        }
        for text in ["", "all", "sample", "sample:", "sample:0", "sample:-1"] {
            assert!(text.parse::<Pairs>().is_err(), "{text}");
        }
    }
}
