//! What checks of the fabric came to, as people read of it: a line a check, and each finding with what mends it.

use super::fold::Hosts;
use super::text::{Palette, clean, number};
use crate::event::{Finding, Verdict};
use std::sync::Arc;

/// Since it was last told.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// In the order in which they came.
    counts: Vec<Count>,
    findings: Vec<Finding>,
}

/// What one check came to.
#[derive(Debug)]
struct Count {
    check: &'static str,
    good: usize,
    bad: usize,
    /// How many weren't judged, and the first of them with why.
    open: usize,
    such_as: Option<(Arc<str>, String)>,
    /// Of those that were judged, in `unit`.
    values: Vec<f64>,
    unit: &'static str,
}

impl Checks {
    pub(super) fn verdict(&mut self, verdict: &Verdict) {
        let at = self.counts.iter().position(|count| count.check == verdict.check).unwrap_or_else(|| {
            let (check, unit, values) = (verdict.check, verdict.unit, Vec::new());
            self.counts.push(Count { check, good: 0, bad: 0, open: 0, such_as: None, values, unit });
            self.counts.len() - 1
        });
        let count = &mut self.counts[at];
        match verdict.ok {
            Some(true) => count.good += 1,
            Some(false) => count.bad += 1,
            None => {
                count.open += 1;
                count.such_as.get_or_insert_with(|| (verdict.host.clone(), verdict.reason.clone()));
            }
        }
        if let (true, Some(value)) = (verdict.unit == count.unit, verdict.value) {
            count.values.push(value);
        }
    }

    pub(super) fn finding(&mut self, finding: &Finding) {
        self.findings.push(finding.clone());
    }

    /// All of it, and forgets it; with `quiet` findings only.
    pub(super) fn take(&mut self, hosts: &mut Hosts, palette: Palette, quiet: bool) -> String {
        let mut text = String::new();
        let widest = self.counts.iter().map(|count| count.check.len()).max().unwrap_or(0);
        for Count { check, good, bad, open, such_as, mut values, unit } in std::mem::take(&mut self.counts) {
            if quiet {
                continue;
            }
            let all = format!("{} of {} good", number(good), number(good + bad));
            let judged = (good + bad > 0).then(|| if bad > 0 { palette.bad(&all) } else { palette.good(&all) });
            let left = such_as.map(|(host, why)| {
                let others = if open > 1 { ", such as" } else { ":" };
                format!("{} not judged{others} {}: {}", number(open), clean(&host), clean(&why))
            });
            let told: Vec<String> = judged.into_iter().chain(left).collect();
            let mut line = format!("{check:widest$}  {}", told.join(", "));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_judged_is_told_with_why() {
        let mut checks = Checks::default();
        let of = |host: &str, why: &str| Verdict::of("path_mtu", &host.into(), None, why.to_owned());
        let take = |checks: &mut Checks| checks.take(&mut Hosts::default(), Palette { on: false }, false);
        checks.verdict(&of("n1", "there is no other host to test it with").skipped());
        assert_eq!(take(&mut checks), "path_mtu  1 not judged: n1: there is no other host to test it with\n");
        checks.verdict(&of("n1", "good"));
        checks.verdict(&of("n2", "busy").skipped());
        checks.verdict(&of("n3", "busy").skipped());
        assert_eq!(take(&mut checks), "path_mtu  1 of 1 good, 2 not judged, such as n2: busy\n");
    }
}
