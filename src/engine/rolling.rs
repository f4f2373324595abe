//! How a play goes through its hosts: batches, and when too many have failed. Pure.

use crate::playbook::Batch;

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

#[cfg(test)]
mod tests {
    use super::*;

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
