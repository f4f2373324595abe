//! Lists of CPUs as the kernel writes them: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;

/// The greatest number of a CPU that a list may name; kernels are built for at most 8192 (linux, arch/x86/Kconfig).
const MOST: u32 = 8191;

/// A set of CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cpus(pub(super) BTreeSet<u32>);

impl Cpus {
    /// A list; nothing if it is none. White space around its parts doesn't count, nor does their order.
    pub(super) fn parse(text: &str) -> Option<Cpus> {
        let mut cpus = BTreeSet::new();
        for part in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |word: &str| {
                let digits = word.bytes().all(|b| b.is_ascii_digit());
                word.parse().ok().filter(|n| digits && *n <= MOST)
            };
            let (first, last): (u32, u32) = (number(first.trim())?, number(last.trim())?);
            if first > last {
                return None;
            }
            cpus.extend(first..=last);
        }
        Some(Cpus(cpus))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are in both.
    pub(super) fn within(&self, other: &Cpus) -> Cpus {
        Cpus(self.0.intersection(&other.0).copied().collect())
    }

    /// Those that aren't in the other.
    pub(super) fn without(&self, other: &Cpus) -> Cpus {
        Cpus(self.0.difference(&other.0).copied().collect())
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for &cpu in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let text =
            |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
        f.write_str(&ranges.iter().map(text).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(cpus in prop::collection::btree_set(0u32..300, 0..40)) {
            let cpus = Cpus(cpus);
            prop_assert_eq!(Cpus::parse(&cpus.to_string()), Some(cpus));
        }
    }

    #[test]
    fn lists_are_sets() {
        assert_eq!(Cpus::parse("0,1"), Cpus::parse("0-1\n"));
        assert_eq!(Cpus::parse(" 3, 0-1 ").unwrap().to_string(), "0-1,3");
        assert_eq!(Cpus::parse("\n"), Some(Cpus::default()));
        for wrong in ["x", "1-", "3-1", "1,,2", "0x2", "+1", "1-2-3", "99999"] {
            assert_eq!(Cpus::parse(wrong), None, "{wrong}");
        }
    }
}
