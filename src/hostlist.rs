//! Host names written as ranges: `node[001:128]`, `rack[a:d]`, `node[001-128,130]`, and the way back for output.
//!
//! Ansible's and Slurm's forms are read by one small parser. The crates of this purpose don't fit: `nodeset` is a set
//! (order is lost) over its own grammar with group lookups, `hostlist` and `hostlist-parser` give no places for an
//! error, and none of them knows Ansible's steps and letters.

use crate::error::{Error, Kind};
use crate::source::Span;
use std::collections::{BTreeSet, HashMap, HashSet};

/// How many names one expression may stand for, and about how many bytes they may have.
const MAX_NAMES: usize = 100_000;
const MAX_BYTES: usize = 64 << 20;

/// Ansible's order of letters (Python's `string.ascii_letters`).
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Whether a text holds a range.
pub(crate) fn has_range(text: &str) -> bool {
    text.contains('[') || text.contains(']')
}

/// Splits a list at the commas that are outside of brackets. Each part is trimmed and comes with the byte at which it
/// begins; empty ones are left out.
pub fn split_list(text: &str) -> Vec<(usize, &str)> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push((start, &text[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push((start, &text[start..]));
    parts
        .into_iter()
        .map(|(at, part)| (at + part.len() - part.trim_start().len(), part.trim()))
        .filter(|(_, part)| !part.is_empty())
        .collect()
}

/// The part of a place that a piece of its text covers; the whole place where it isn't written there as it is.
pub(crate) fn within(place: &Span, text: &str, from: usize, to: usize) -> Span {
    let line: String = place
        .source
        .text
        .lines()
        .nth(place.line.saturating_sub(1) as usize)
        .map(|l| l.chars().skip(place.column.saturating_sub(1) as usize).collect())
        .unwrap_or_default();
    let quoted = line.strip_prefix(['"', '\'']);
    let skip = match (line.starts_with(text), quoted) {
        (true, _) => 0,
        (false, Some(rest)) if rest.starts_with(text) => 1,
        _ => return place.clone(),
    };
    let count = |t: &str| t.chars().count();
    let column = place.column as usize + skip + count(&text[..from]);
    Span::at(&place.source, place.line as usize, column, count(&text[from..to]))
}

/// The names that an expression stands for, in its order, the rightmost range running fastest. A text without brackets
/// stands for itself.
///
/// Inside of brackets stand one or several of: a number, a letter, `begin:end`, `begin:end:step` (Ansible),
/// `begin-end`, `begin-end/step` (Slurm, ClusterShell). A `begin` with leading zeros gives the width of all of them.
///
/// # Errors
/// Brackets that don't match or are empty, ranges that run backwards, unequal widths, too many names. They point at
/// the range, as far as `place` is where the expression is written.
pub fn expand(text: &str, place: &Span) -> Result<Vec<String>, Error> {
    let mut names = vec![String::new()];
    let mut rest = text;
    // A name is hardly longer than what it is written as.
    let most = MAX_NAMES.min(MAX_BYTES / text.len().max(1));
    let offset = |rest: &str| text.len() - rest.len();
    let fail = |from: usize, to: usize, message: String| {
        Err(Error::new(Kind::Inventory, message).at(&within(place, text, from, to)))
    };
    while let Some(open) = rest.find(['[', ']']) {
        let at = offset(rest) + open;
        if rest.as_bytes()[open] == b']' {
            return fail(at, at + 1, format!("`]` without `[` in `{text}`"));
        }
        let Some(close) = rest[open..].find(']').map(|c| open + c) else {
            return fail(at, at + 1, format!("`[` without `]` in `{text}`"));
        };
        let inside = &rest[open + 1..close];
        let mut values = Vec::new();
        let mut begin = at + 1;
        for item in inside.split(',') {
            if let Err(message) = range(item, most / names.len().max(1), most, &mut values) {
                return fail(begin, begin + item.len(), message);
            }
            begin += item.len() + 1;
        }
        let head = &rest[..open];
        names = names.iter().flat_map(|name| values.iter().map(move |value| format!("{name}{head}{value}"))).collect();
        rest = &rest[close + 1..];
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// The values of one item between brackets, at most `room` together with those that are there, so that there are at most
/// `most` names.
fn range(item: &str, room: usize, most: usize, values: &mut Vec<String>) -> Result<(), String> {
    let item = item.trim();
    let number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let letter = |s: &str| (s.len() == 1).then(|| LETTERS.find(s)).flatten();
    let known = "a range is written `[001:128]`, `[1:9:2]`, `[a:d]` or `[001-128,130]`";
    if item.is_empty() {
        return Err(format!("an empty range: {known}"));
    }
    let mut colons = item.split(':');
    let (begin, end, step) = match (colons.next(), colons.next(), colons.next(), colons.next()) {
        (Some(begin), Some(end), step, None) => (if begin.is_empty() { "0" } else { begin }, end, step),
        (Some(_), None, ..) => {
            let (range, step) = item.split_once('/').map_or((item, None), |(r, s)| (r, Some(s)));
            let (begin, end) = range.split_once('-').unwrap_or((range, range));
            (begin, end, step)
        }
        _ => return Err(format!("`{item}` isn't a range: {known}")),
    };
    let step = match step {
        None => 1,
        Some(step) => match step.parse::<usize>() {
            Ok(n) if n > 0 && number(step) => n,
            _ => return Err(format!("the step of a range must be a positive number, not `{step}`")),
        },
    };
    let backwards = || format!("the range `{item}` runs backwards");
    let full = || format!("this stands for more than {most} names");
    if let (Some(first), Some(last)) = (letter(begin), letter(end)) {
        if first > last {
            return Err(backwards());
        }
        values.extend(LETTERS[first..=last].chars().step_by(step).map(String::from));
        return if values.len() > room { Err(full()) } else { Ok(()) };
    }
    if !number(begin) || !number(end) {
        return Err(format!("`{item}` isn't a range (brackets are never a choice of characters): {known}"));
    }
    let padded = |s: &str| s.len() > 1 && s.starts_with('0');
    let width = if padded(begin) { begin.len() } else { 0 };
    if (item.contains(':') && width > 0 && begin.len() != end.len())
        || (padded(end) && begin.len() != end.len())
        || end.len() < width
    {
        return Err(format!("`{begin}` and `{end}` must have the same number of digits"));
    }
    let (Ok(first), Ok(last)) = (begin.parse::<u64>(), end.parse::<u64>()) else {
        return Err(format!("a number in `{item}` is too large"));
    };
    if first > last {
        return Err(backwards());
    }
    if ((last - first) / step as u64) as usize >= room.saturating_sub(values.len()) {
        return Err(full());
    }
    values.extend((first..=last).step_by(step).map(|n| format!("{n:0width$}")));
    Ok(())
}

/// The numbers that one place of folded names runs over, as digits and value: `007` is `(3, 7)`.
type Numbers = BTreeSet<(usize, u64)>;

/// A name cut at its numbers: text and numbers take turns, text comes first.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Part {
    Text(String),
    Numbers(Numbers),
}

/// Names as short as they can be told: `gpu[001-126],login1`, `r[1-2]n[01-16]`. What it gives stands for the same
/// names again, each once ([`split_list`], [`expand`]). Names come in the order of their first member, numbers sorted.
pub fn fold<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut seen = HashSet::new();
    let mut items: Vec<Vec<Part>> = names.into_iter().filter(|name| seen.insert(*name)).map(cut).collect();
    // Names that differ in one place only become one item. Going from the last place to the first, each item stays
    // a product of its places, so that nothing is added.
    let longest = items.iter().map(Vec::len).max().unwrap_or(0);
    for place in (1..longest).step_by(2).rev() {
        let mut merged: Vec<Vec<Part>> = Vec::with_capacity(items.len());
        let mut found: HashMap<Vec<Part>, usize> = HashMap::new();
        for mut item in items {
            let Some(Part::Numbers(numbers)) = item.get_mut(place) else {
                merged.push(item);
                continue;
            };
            let numbers = std::mem::take(numbers);
            let at = *found.entry(item).or_insert_with_key(|item| {
                merged.push(item.clone());
                merged.len() - 1
            });
            if let Part::Numbers(all) = &mut merged[at][place] {
                all.extend(numbers);
            }
        }
        items = merged;
    }
    let shown = |item: Vec<Part>| -> String {
        item.iter()
            .map(|part| match part {
                Part::Text(text) => text.clone(),
                Part::Numbers(numbers) => show(numbers),
            })
            .collect()
    };
    items.into_iter().map(shown).collect::<Vec<_>>().join(",")
}

fn cut(name: &str) -> Vec<Part> {
    let (mut parts, mut text, mut rest) = (Vec::new(), String::new(), name);
    while let Some(first) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(first);
        let (digits, after) = from.split_at(from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len()));
        text.push_str(before);
        rest = after;
        match digits.parse::<u64>() {
            Ok(number) if digits.len() < 19 => {
                parts.push(Part::Text(std::mem::take(&mut text)));
                parts.push(Part::Numbers(BTreeSet::from([(digits.len(), number)])));
            }
            _ => text.push_str(digits),
        }
    }
    text.push_str(rest);
    parts.push(Part::Text(text));
    parts
}

fn show(numbers: &Numbers) -> String {
    let digits = |n: u64| n.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut runs: Vec<(usize, u64, u64)> = Vec::new();
    for &(width, number) in numbers {
        match runs.last_mut() {
            Some((w, first, last)) => {
                let padded = if *w > digits(*first) { *w } else { 0 };
                if number == *last + 1 && width == padded.max(digits(number)) {
                    *last = number;
                } else {
                    runs.push((width, number, number));
                }
            }
            None => runs.push((width, number, number)),
        }
    }
    let run = |&(w, first, last): &(usize, u64, u64)| match last - first {
        0 => format!("{first:0w$}"),
        _ => format!("{first:0w$}-{last:0w$}"),
    };
    let text = runs.iter().map(run).collect::<Vec<_>>().join(",");
    if numbers.len() == 1 { text } else { format!("[{text}]") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use proptest::prelude::*;

    fn place(text: &str) -> Span {
        Span::start(&Source::new("hosts.yaml", text))
    }

    fn names(text: &str) -> Vec<String> {
        split_list(text).iter().flat_map(|(_, part)| expand(part, &place(text)).unwrap()).collect()
    }

    fn error(text: &str) -> String {
        expand(text, &place(text)).unwrap_err().to_string()
    }

    #[test]
    fn ranges_of_ansible() {
        assert_eq!(names("n[1:3]"), ["n1", "n2", "n3"]);
        assert_eq!(names("n[08:11]"), ["n08", "n09", "n10", "n11"]);
        assert_eq!(names("n[1:9:4]x"), ["n1x", "n5x", "n9x"]);
        assert_eq!(names("n[:2]"), ["n0", "n1", "n2"]);
        assert_eq!(names("r[a:c]"), ["ra", "rb", "rc"]);
        assert_eq!(names("r[y:B]"), ["ry", "rz", "rA", "rB"]);
        assert_eq!(names("r[1:2]n[a:b]"), ["r1na", "r1nb", "r2na", "r2nb"]);
    }

    #[test]
    fn hostlists() {
        assert_eq!(names("n[001-003,7,010]"), ["n001", "n002", "n003", "n7", "n010"]);
        assert_eq!(names("n[01-16/5]"), ["n01", "n06", "n11", "n16"]);
        assert_eq!(names("n[98-101],login[1,2]"), ["n98", "n99", "n100", "n101", "login1", "login2"]);
        assert_eq!(names("n[08-12]").len(), 5);
        assert_eq!(names("r[2,1]"), ["r2", "r1"]);
    }

    #[test]
    fn wrong_ranges_point_at_themselves() {
        for (text, message, column) in [
            ("n[3:1]", "runs backwards", 3),
            ("n[01:100]", "same number of digits", 3),
            ("n[1-010]", "same number of digits", 3),
            ("n[1-2,abc]", "never a choice of characters", 7),
            ("n[]", "an empty range", 3),
            ("n[1:5:0]", "must be a positive number", 3),
            ("n[1:5:+1]", "must be a positive number", 3),
            ("n[-1]", "isn't a range", 3),
            ("n[1:5:-1]", "must be a positive number", 3),
            ("n[1:2:3:4]", "isn't a range", 3),
            ("n[1:2", "`[` without `]`", 2),
            ("n1]", "`]` without `[`", 3),
            ("n[1:99999999]", "more than 100000 names", 3),
            ("n[1:2000]m[1:2000]", "more than 100000 names", 12),
            ("n[1:99999999999999999999]", "too large", 3),
        ] {
            let e = error(text);
            assert!(e.contains(message), "{e}");
            assert!(e.contains(&format!("hosts.yaml:1:{column}\n")), "{column}: {e}");
        }
    }

    #[test]
    fn names_are_folded() {
        for (list, folded) in [
            ("gpu[001-126],login1", "gpu[001-126],login1"),
            ("n1,n2,n3,n5,x", "n[1-3,5],x"),
            ("n1,n2", "n[1-2]"),
            ("n09,n10,n9", "n[9,09-10]"),
            ("r[1-2]n[01-16]", "r[1-2]n[01-16]"),
            ("r1n1,r1n2,r2n1", "r1n[1-2],r2n1"),
            ("10.0.0.1,10.0.0.2,10.0.0.3", "10.0.0.[1-3]"),
            ("a,b,a", "a,b"),
            ("n[099-101]", "n[099-101]"),
            ("", ""),
        ] {
            assert_eq!(fold(names(list).iter().map(String::as_str)), folded, "{list}");
        }
    }

    proptest! {
        #[test]
        fn folding_loses_nothing(list in prop::collection::vec("[a-c]{0,1}[0-9]{0,3}(-[0-9]{1,2})?[a-b]?", 0..60)) {
            let list: Vec<String> = list.into_iter().filter(|n| !n.is_empty()).collect();
            let folded = fold(list.iter().map(String::as_str));
            let mut back = names(&folded);
            back.sort();
            let mut all = list.clone();
            all.sort();
            all.dedup();
            prop_assert_eq!(back, all, "{}", folded);
        }

        #[test]
        fn no_text_panics(text in "[a-c0-9,:/\\[\\]é-]{0,24}") {
            for (_, part) in split_list(&text) {
                let _ = expand(part, &place(&text));
            }
        }
    }
}
