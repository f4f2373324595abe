//! Values of kernel parameters, compared as the kernel means them.

use super::key::Parameter;
use crate::resource::Trouble;

/// The text with white space squashed to single blanks: `tcp_rmem` reads back with tabs.
pub(super) fn squash(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether two squashed values, read back or of a boot file, are the same to the kernel.
pub(super) fn same(path: &str, wanted: &str, got: &str) -> bool {
    if wanted == got {
        return true;
    }
    let (mut w, mut g): (Vec<&str>, Vec<&str>) = (wanted.split(' ').collect(), got.split(' ').collect());
    if is_set(path) {
        w.sort_unstable();
        g.sort_unstable();
    }
    let equal = |(w, g): (&&str, &&str)| {
        w == g || number(w).is_some_and(|n| Some(n) == number(g)) || ranges(w).is_some_and(|r| Some(r) == ranges(g))
    };
    w.len() == g.len() && w.iter().zip(&g).all(equal)
}

/// Whether the kernel gives a value back in just the words in which it is written: plain decimal numbers and words.
pub(super) fn reads_back(path: &str, value: &str) -> bool {
    !is_set(path)
        && value.split(' ').all(|w| match number(w) {
            Some(n) => n.to_string() == w,
            None => !w.contains([',', '-']) && !w.starts_with(|c: char| c.is_ascii_digit()),
        })
}

/// What can be known beforehand to be wrong in a value, from what the parameter holds now.
pub(super) fn unfit(key: &Parameter, wanted: &str, got: &str) -> Option<Trouble> {
    let integers = |text: &str| text.split(' ').all(|w| w.parse::<i128>().is_ok());
    if !integers(got) || TEXTS.contains(&key.path()) {
        return None;
    }
    let (given, taken) = (wanted.split(' ').count(), got.split(' ').count());
    if integers(wanted) && given != taken {
        let s = if taken == 1 { "" } else { "s" };
        let trouble = Trouble::new(format!("{key} takes {taken} number{s}, not {given}"));
        return Some(trouble.hint(format!("{key} is `{got}` now")));
    }
    let number = match wanted.to_ascii_lowercase().as_str() {
        "yes" | "on" | "true" | "enabled" => 1,
        "no" | "off" | "false" | "disabled" => 0,
        _ => {
            let word = wanted.split(' ').find(|w| !w.is_empty() && number(w).is_none() && ranges(w).is_none())?;
            let what = if got.contains(' ') { "numbers" } else { "a number" };
            return Some(
                Trouble::new(format!("{key} takes {what}, not `{word}`")).hint(format!("{key} is `{got}` now")),
            );
        }
    };
    Some(Trouble::new(format!("{key} takes a number, not `{wanted}`")).hint(format!("write `{key}: {number}`")))
}

/// What takes any text, or numbers in a notation of its own, though what it holds may look like a plain number.
const TEXTS: [&str; 8] = [
    "kernel/core_pattern",
    "kernel/domainname",
    "kernel/hostname",
    "kernel/hotplug",
    "kernel/modprobe",
    "kernel/poweroff_cmd",
    "net/core/flow_limit_cpu_bitmap",
    "net/core/rps_default_mask",
];

/// A value as JSON: a number where it is one plain integer, otherwise its text.
pub(super) fn json(value: &str) -> serde_json::Value {
    match value.parse::<i64>() {
        Ok(n) if n.to_string() == value => n.into(),
        _ => value.into(),
    }
}

/// Lists whose order the kernel chooses (tcp_cong.c).
fn is_set(path: &str) -> bool {
    path == "net/ipv4/tcp_allowed_congestion_control"
}

/// A number as the kernel reads it (sysctl.c, `strtoul_lenient` with base 0): decimal, `0x` hexadecimal, `0` octal.
fn number(word: &str) -> Option<i128> {
    let (sign, digits) = word.strip_prefix('-').map_or((1, word), |d| (-1, d));
    let (digits, radix) = match (digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")), digits) {
        (Some(hex), _) => (hex, 16),
        (None, "0") => ("0", 10),
        (None, d) => d.strip_prefix('0').map_or((d, 10), |octal| (octal, 8)),
    };
    let good = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    good.then(|| i128::from_str_radix(digits, radix).ok())?.map(|n| sign * n)
}

/// A list of numbers and ranges (`ip_local_reserved_ports`, `watchdog_cpumask`), merged: `1,2,5-7` is `1-2,5-7`.
fn ranges(word: &str) -> Option<Vec<(u64, u64)>> {
    let range = |part: &str| -> Option<(u64, u64)> {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse().ok())?;
        digits(from).zip(digits(to))
    };
    let mut all = word.split(',').map(range).collect::<Option<Vec<_>>>()?;
    all.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in all {
        match merged.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    Some(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_as_the_kernel_means_them() {
        for (wanted, got) in [
            ("4096 131072 33554432", "4096 131072 33554432"),
            ("0x10", "16"),
            ("010", "8"),
            ("-1", "-1"),
            ("8080,8081,9000-9002", "8080-8081,9000-9002"),
            ("0-3", "0-3"),
            ("", ""),
        ] {
            assert!(same("x/y", &squash(wanted), &squash(got)), "{wanted:?} {got:?}");
        }
        for (wanted, got) in [
            ("0", ""),
            ("", "0"),
            ("4096 87380", "4096 87380 67108864"),
            ("bbr", "cubic"),
            ("8080-8082", "8080,8082"),
            ("0-0-0-1", "0-0-0-2"),
            ("1", "1.0"),
        ] {
            assert!(!same("x/y", wanted, got), "{wanted:?} {got:?}");
        }
        assert!(same("net/ipv4/tcp_allowed_congestion_control", "reno bbr", "bbr reno"));
        assert!(!same("net/ipv4/tcp_rmem", "1 2 3", "3 2 1"));
    }

    #[test]
    fn what_reads_back_as_it_is() {
        for value in ["1", "-1", "4096 131072 33554432", "bbr", "fq_codel", "|/bin/x %p", ""] {
            assert!(reads_back("x/y", value), "{value}");
        }
        for value in ["0x10", "010", "8080,9000", "0-3", "1.5", "00ff"] {
            assert!(!reads_back("x/y", value), "{value}");
        }
    }

    #[test]
    fn what_cant_fit() {
        let of = |key, wanted, got| unfit(&Parameter::parse(key).unwrap(), wanted, got);
        let unfit = |wanted, got| of("a.k", wanted, got).map(|t| (t.message, t.hint.unwrap()));
        let told = |message: &str, hint: &str| Some((message.to_owned(), hint.to_owned()));
        assert_eq!(unfit("1 2", "1\t2\t3"), None, "what is read is squashed first");
        assert_eq!(unfit("1 2", "1 2 3"), told("a.k takes 3 numbers, not 2", "a.k is `1 2 3` now"));
        assert_eq!(unfit("Yes", "0"), told("a.k takes a number, not `Yes`", "write `a.k: 1`"));
        assert_eq!(unfit("abc", "0"), told("a.k takes a number, not `abc`", "a.k is `0` now"));
        assert_eq!(unfit("1 x 3", "1 2 3"), told("a.k takes numbers, not `x`", "a.k is `1 2 3` now"));
        assert_eq!(of("net.core.rps_default_mask", "ff", "00000003"), None);
        for (wanted, got) in [
            ("fq", "pfifo_fast"),
            ("core", "core"),
            ("8080,9000", "8080"),
            ("0-3", "0"),
            ("0x1f", "0"),
            ("1", "0"),
            ("", "1"),
        ] {
            assert_eq!(unfit(wanted, got), None, "{wanted:?} {got:?}");
        }
    }

    #[test]
    fn numbers_stay_numbers() {
        assert_eq!(json("134217728"), serde_json::json!(134_217_728));
        assert_eq!(json("010"), serde_json::json!("010"));
        assert_eq!(json("18446744073709551615"), serde_json::json!("18446744073709551615"));
    }
}
