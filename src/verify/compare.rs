//! What got worse since an earlier run, beyond the noise of the same pair's own history.

use super::{Judged, Verdict};
use crate::finding::{self, Finding};
use std::collections::HashMap;

/// What was measured: the check, the host and its interface, the peer and its interface, the unit, and how many times before in
/// the same run.
pub type Place = (String, String, Option<String>, Option<(String, String)>, String, usize);

/// Values of earlier runs.
#[derive(Debug, Default)]
pub struct History {
    /// What is compared with.
    reference: HashMap<Place, Vec<f64>>,
    /// What tells the noise.
    all: HashMap<Place, Vec<f64>>,
}

impl History {
    /// Takes in a run; one that isn't a `reference` tells the noise alone.
    pub fn run(&mut self, values: impl IntoIterator<Item = (Place, f64)>, reference: bool) {
        for (place, value) in numbered(values) {
            if reference {
                self.reference.entry(place.clone()).or_default().push(value);
            }
            self.all.entry(place).or_default().push(value);
        }
    }

    /// Whether there is nothing to compare with.
    pub fn is_empty(&self) -> bool {
        self.reference.is_empty()
    }

    fn usual(&self, place: &Place) -> Option<Usual> {
        let reference = self.reference.get(place)?;
        Usual::of(reference, self.all.get(place).unwrap_or(reference))
    }
}

/// Tells values of one place in one run apart by their order: a suite may measure it several times.
fn numbered(values: impl IntoIterator<Item = (Place, f64)>) -> Vec<(Place, f64)> {
    let mut seen = HashMap::<Place, usize>::new();
    let number = |(place, value): (Place, f64)| {
        let count = seen.entry(place.clone()).or_default();
        *count += 1;
        let (check, host, interface, peer, unit, _) = place;
        ((check, host, interface, peer, unit, *count - 1), value)
    };
    values.into_iter().map(number).collect()
}

/// How many values tell the noise of a place.
const ENOUGH: usize = 4;
/// The noise of a place of which fewer are known, as a part of its value.
const ASSUMED: f64 = 0.10;
/// What is always taken for noise, as a part of the value.
const LEAST: f64 = 0.03;

/// How far from its usual value a place has been. Source: the median absolute deviation, of which 1.4826 is the standard deviation
/// of what is distributed normally; three of them are seldom passed by chance.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Usual {
    value: f64,
    noise: f64,
    runs: usize,
}

fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}

impl Usual {
    fn of(reference: &[f64], all: &[f64]) -> Option<Usual> {
        let value = median(reference.iter().copied())?;
        let middle = median(all.iter().copied())?;
        let spread = median(all.iter().map(|v| (v - middle).abs()))? * 1.4826 * 3.0;
        let least = value.abs() * if all.len() < ENOUGH { ASSUMED } else { LEAST };
        Some(Usual { value, noise: spread.max(least), runs: reference.len() })
    }
}

/// Where a value was measured, if one was that can be compared.
pub fn place(verdict: &Verdict) -> Option<(Place, f64)> {
    let value = verdict.value.filter(|value| value.is_finite() && !verdict.unit.is_empty())?;
    let peer = verdict.peer.as_ref().map(|(host, interface)| (host.to_string(), interface.clone()));
    let place = (
        verdict.check.to_owned(),
        verdict.host.to_string(),
        verdict.interface.clone(),
        peer,
        verdict.unit.to_owned(),
        0,
    );
    Some((place, value))
}

/// Whether more of it is worse.
fn costs(unit: &str) -> bool {
    matches!(unit, "%" | "µs")
}

/// Compares what was measured with its history; of what has none the number is given.
pub fn judge(verdicts: &[Verdict], history: &History, judged: &mut Judged) -> usize {
    let mut new = 0;
    let measured: Vec<(&Verdict, (Place, f64))> = verdicts.iter().filter_map(|v| Some((v, place(v)?))).collect();
    let places = numbered(measured.iter().map(|(_, value)| value.clone()));
    for ((verdict, _), (place, value)) in measured.iter().zip(places) {
        let Some(usual) = history.usual(&place) else {
            new += 1;
            continue;
        };
        let worse = if costs(verdict.unit) { value - usual.value } else { usual.value - value };
        if worse <= usual.noise {
            continue;
        }
        let (interface, unit) = (verdict.interface.as_deref().unwrap_or_default(), verdict.unit);
        let peer = verdict.peer.as_ref().map(|(host, interface)| format!(" to {host} {interface}")).unwrap_or_default();
        let runs = if usual.runs == 1 { "one good run".to_owned() } else { format!("{} good runs", usual.runs) };
        let evidence = format!(
            "{}: {interface}{peer}: {} {unit}, and {} {unit} in {runs} before, within {} {unit}",
            verdict.check,
            round(value),
            round(usual.value),
            round(usual.noise)
        );
        let words = [("check", verdict.check), ("interface", interface)];
        let hosts = [verdict.host.clone()].into_iter().chain(verdict.peer.iter().map(|(host, _)| host.clone()));
        let found = Finding::new(&finding::GOT_WORSE, hosts, evidence, &words);
        judged.find(match &verdict.peer {
            Some((peer, _)) => found.between(&verdict.host, peer),
            None => found,
        });
    }
    new
}

/// A value with as many digits as mean something.
fn round(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(unit: &'static str, value: f64) -> Verdict {
        let verdict = Verdict::of("tcp", &"n1".into(), Some("eth1"), "").towards(&"n2".into(), "eth1");
        Verdict { value: Some(value), unit, ..verdict }
    }

    fn found(unit: &'static str, before: &[f64], now: f64) -> Vec<String> {
        let mut history = History::default();
        before.iter().for_each(|value| history.run(place(&verdict(unit, *value)), true));
        let mut judged = Judged::default();
        let new = judge(&[verdict(unit, now)], &history, &mut judged);
        assert_eq!(new, usize::from(before.is_empty()));
        judged.findings.into_iter().map(|f| f.evidence).collect()
    }

    #[test]
    fn what_is_worse_than_the_noise_of_its_own_history_is_told() {
        let quiet = [94.0, 94.2, 93.9, 94.1, 94.0];
        assert_eq!(found("Gb/s", &quiet, 92.0), [""; 0], "3 % are noise always");
        let told = ["tcp: eth1 to n2 eth1: 90 Gb/s, and 94 Gb/s in 5 good runs before, within 2.8 Gb/s"];
        assert_eq!(found("Gb/s", &quiet, 90.0), told);
        assert_eq!(found("Gb/s", &quiet, 99.0), [""; 0], "it got better");
        let noisy = [94.0, 80.0, 88.0, 92.0, 84.0, 90.0];
        assert_eq!(found("Gb/s", &noisy, 78.0), [""; 0], "it was near to that before");
        assert_eq!(found("Gb/s", &noisy, 40.0).len(), 1);
        assert_eq!(found("Gb/s", &[94.0], 86.0), [""; 0], "of one run little is known");
        let told = ["tcp: eth1 to n2 eth1: 80 Gb/s, and 94 Gb/s in one good run before, within 9.4 Gb/s"];
        assert_eq!(found("Gb/s", &[94.0], 80.0), told);
        assert_eq!(found("Gb/s", &[], 1.0), [""; 0]);
    }

    #[test]
    fn of_losses_and_times_more_is_worse() {
        assert_eq!(found("µs", &[2.0, 2.1, 2.0, 1.9, 2.0], 1.0), [""; 0]);
        assert_eq!(found("µs", &[2.0, 2.1, 2.0, 1.9, 2.0], 4.0).len(), 1);
        assert_eq!(found("%", &[0.0, 0.0], 0.0), [""; 0]);
        assert_eq!(found("%", &[0.0, 0.0, 0.0, 0.0], 0.01).len(), 1, "none was lost before");
        assert_eq!(found("bytes", &[9000.0, 9000.0, 9000.0], 1500.0).len(), 1);
    }

    #[test]
    fn what_is_measured_twice_in_a_run_is_kept_apart() {
        let mut history = History::default();
        let both = [verdict("Gb/s", 94.0), verdict("Gb/s", 40.0)];
        history.run(both.iter().filter_map(place), true);
        let mut judged = Judged::default();
        assert_eq!((judge(&both, &history, &mut judged), judged.findings.len()), (0, 0));
        let swapped = [verdict("Gb/s", 40.0), verdict("Gb/s", 94.0)];
        assert_eq!((judge(&swapped, &history, &mut judged), judged.findings.len()), (0, 1));
        // Of runs that aren't compared with the noise is known.
        for value in [80.0, 92.0, 60.0, 75.0] {
            history.run([verdict("Gb/s", value)].iter().filter_map(place), false);
        }
        let mut judged = Judged::default();
        assert_eq!((judge(&[verdict("Gb/s", 70.0)], &history, &mut judged), judged.findings.len()), (0, 0));
    }

    #[test]
    fn one_outlier_in_its_history_hides_nothing() {
        assert_eq!(found("Gb/s", &[94.0, 94.1, 20.0, 94.0, 93.9], 60.0).len(), 1);
    }
}
