//! What checks of the fabric came to, as people read of it: a line a check, and each finding with what mends it.

use super::fold::Hosts;
use super::text::{Palette, clean, number};
use crate::event::{Finding, Verdict};

/// Since it was last told.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// By check, in the order in which they came: how many were good, bad, not judged, and the values of those judged.
    counts: Vec<(&'static str, [usize; 3], Vec<f64>, &'static str)>,
    findings: Vec<Finding>,
}

impl Checks {
    pub(super) fn verdict(&mut self, verdict: &Verdict) {
        let at = self.counts.iter().position(|(check, ..)| *check == verdict.check).unwrap_or_else(|| {
            self.counts.push((verdict.check, [0; 3], Vec::new(), verdict.unit));
            self.counts.len() - 1
        });
        let (_, counts, values, unit) = &mut self.counts[at];
        counts[match verdict.ok {
            Some(true) => 0,
            Some(false) => 1,
            None => 2,
        }] += 1;
        if let (true, Some(value)) = (verdict.unit == *unit, verdict.value) {
            values.push(value);
        }
    }

    pub(super) fn finding(&mut self, finding: &Finding) {
        self.findings.push(finding.clone());
    }

    /// All of it, and forgets it; with `quiet` findings only.
    pub(super) fn take(&mut self, hosts: &mut Hosts, palette: Palette, quiet: bool) -> String {
        let mut text = String::new();
        let widest = self.counts.iter().map(|(check, ..)| check.len()).max().unwrap_or(0);
        for (check, [good, bad, skipped], mut values, unit) in std::mem::take(&mut self.counts) {
            if quiet {
                continue;
            }
            let all = format!("{} of {} good", number(good), number(good + bad));
            let mut line = format!("{check:widest$}  {}", if bad > 0 { palette.bad(&all) } else { palette.good(&all) });
            if skipped > 0 {
                line.push_str(&format!(", {} not judged", number(skipped)));
            }
            values.sort_by(f64::total_cmp);
            if let ([first, .., last], false) = (values.as_slice(), unit.is_empty()) {
                let range =
                    if first == last { round(*first) } else { format!("{} to {}", round(*first), round(*last)) };
                line.push_str(&format!("  {range} {unit}"));
            }
            text.push_str(&line);
            text.push('\n');
        }
        for finding in std::mem::take(&mut self.findings) {
            let numbers: Vec<u32> = finding.hosts.iter().map(|host| hosts.number(host)).collect();
            let whom = match &finding.pair {
                Some((from, to)) => format!("{} → {}", clean(from), clean(to)),
                None => hosts.list(&numbers).to_string(),
            };
            text.push_str(&format!(
                "\n{}: {}\n  {}\n  cause:  {}\n  remedy: {}\n",
                palette.bad(finding.name),
                palette.place(&whom),
                clean(&finding.evidence),
                clean(&finding.cause),
                palette.bold(&clean(&finding.remedy))
            ));
        }
        text
    }
}

/// A value with as many digits as mean something.
fn round(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
