//! What no output may show: passwords, and all that comes out of a vault.
//!
//! A value that was decrypted is put into the [`Secrets`] of the process, and each place where text leaves it (events on
//! their way to the reporters, errors, warnings, what a command prints) looks for them there, whatever way they took.
//! They are known by their text: a secret is found line by line, in the forms that shells, JSON, URLs and base64 give
//! it. What the text isn't a part of any more (a hash, the characters in another order) isn't found.

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What stands in the place of a secret.
pub const MASK: &str = "(secret)";

/// Shorter lines of a secret aren't looked for: `1` or `eth` would be found everywhere.
const SHORTEST: usize = 4;
/// Shorter lines are found as whole words only, as they are written.
const LONG: usize = 8;

/// From this size on an output may be the end of a longer one: the last 64 KiB of what a command prints are kept.
const TAIL: usize = 60_000;

/// A text that no output may show. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// A secret of this text.
    pub fn new(text: impl Into<Arc<str>>) -> Secret {
        Secret(text.into())
    }

    /// The text itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// The secrets that were met so far. Clones are the same set.
#[derive(Clone, Default)]
pub struct Secrets(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Whether there are any: most runs have none, and pay nothing.
    any: AtomicBool,
    set: Mutex<Set>,
}

#[derive(Default)]
struct Set {
    lines: HashSet<Box<[u8]>>,
    /// What isn't in a level yet.
    fresh: Vec<Pattern>,
    /// Each at least as large as the next, so that adding one secret after the other costs no rebuilding of all.
    levels: Vec<Arc<Level>>,
}

/// One form of a line of a secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pattern {
    bytes: Vec<u8>,
    /// Found only where letters and digits end: the line is short.
    word: bool,
    /// Found only in this case.
    exact: bool,
}

struct Level {
    patterns: Vec<Pattern>,
    /// None where they are too many to be looked for: then nothing may be shown.
    automaton: Option<AhoCorasick>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secrets>")
    }
}

impl Secrets {
    /// Adds a secret: each of its lines, without the blanks around it.
    pub fn add(&self, secret: &[u8]) {
        let mut set = self.set();
        for line in secret.split(|b| matches!(b, b'\n' | b'\r')).map(<[u8]>::trim_ascii) {
            if line.len() >= SHORTEST && !common(line) && set.lines.insert(line.into()) {
                set.fresh.extend(forms(line));
                self.0.any.store(true, Ordering::Release);
            }
        }
    }

    /// Whether none was met.
    pub fn is_empty(&self) -> bool {
        !self.0.any.load(Ordering::Acquire)
    }

    /// The text with [`MASK`] for each secret.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.redact_bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => {
                Cow::Owned(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into()))
            }
        }
    }

    /// The bytes with [`MASK`] for each secret.
    pub fn redact_bytes<'t>(&self, bytes: &'t [u8]) -> Cow<'t, [u8]> {
        let found = self.find(bytes);
        if found.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let (mut out, mut from) = (Vec::with_capacity(bytes.len()), 0);
        for range in found {
            out.extend_from_slice(&bytes[from..range.start]);
            out.extend_from_slice(MASK.as_bytes());
            from = range.end;
        }
        out.extend_from_slice(&bytes[from..]);
        Cow::Owned(out)
    }

    /// Where secrets stand, in order; those that touch are one.
    fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        if self.is_empty() || bytes.len() < SHORTEST {
            return Vec::new();
        }
        let levels = self.set().levels();
        let mut found: Vec<Range<usize>> = levels.iter().flat_map(|level| level.find(bytes)).collect();
        found.extend(self.cut(bytes));
        found.sort_unstable_by_key(|r| r.start);
        found.dedup_by(|next, last| {
            let touch = next.start <= last.end;
            last.end = if touch { last.end.max(next.end) } else { last.end };
            touch
        });
        found
    }

    /// What is left of secrets that were cut: before and behind an ellipsis, and where a long output begins, of which only
    /// the end was kept.
    fn cut(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        const ELLIPSIS: &[u8] = "…".as_bytes();
        let marks = bytes.windows(ELLIPSIS.len()).enumerate().filter(|(_, w)| *w == ELLIPSIS).map(|(at, _)| at);
        let (mut ends, mut starts) = (Vec::new(), Vec::new());
        for at in marks {
            ends.push(bytes[..at].trim_ascii_end().len());
            let rest = &bytes[at + ELLIPSIS.len()..];
            starts.push(bytes.len() - rest.trim_ascii_start().len());
        }
        if bytes.len() >= TAIL {
            starts.push(0);
        }
        if ends.is_empty() && starts.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for line in &self.set().lines {
            let longest = |fits: &dyn Fn(usize) -> bool| (SHORTEST..line.len()).rev().find(|n| fits(*n));
            for &end in &ends {
                found.extend(longest(&|n| bytes[..end].ends_with(&line[..n])).map(|n| end - n..end));
            }
            for &start in &starts {
                let rest = &bytes[start..];
                found.extend(longest(&|n| rest.starts_with(&line[line.len() - n..])).map(|n| start..start + n));
            }
        }
        found
    }

    fn set(&self) -> std::sync::MutexGuard<'_, Set> {
        self.0.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Set {
    fn levels(&mut self) -> Vec<Arc<Level>> {
        if !self.fresh.is_empty() {
            let mut patterns = std::mem::take(&mut self.fresh);
            while let Some(last) = self.levels.pop_if(|l| l.patterns.len() <= patterns.len()) {
                patterns.extend(last.patterns.iter().cloned());
            }
            self.levels.push(Arc::new(Level::new(patterns)));
        }
        self.levels.clone()
    }
}

impl Level {
    fn new(patterns: Vec<Pattern>) -> Level {
        let bytes = patterns.iter().map(|p| &p.bytes);
        let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(bytes).ok();
        Level { patterns, automaton }
    }

    fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let word = |at: Option<&u8>| at.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        let holds = |range: &Range<usize>, p: &Pattern| {
            (!p.exact || bytes[range.clone()] == *p.bytes)
                && (!p.word
                    || !(word(range.start.checked_sub(1).and_then(|b| bytes.get(b))) || word(bytes.get(range.end))))
        };
        let Some(automaton) = &self.automaton else { return std::iter::once(0..bytes.len()).collect() };
        let matches = automaton.find_overlapping_iter(bytes);
        matches.filter(|m| holds(&m.range(), &self.patterns[m.pattern()])).map(|m| m.range()).collect()
    }
}

/// Words that would be found everywhere and tell nothing.
fn common(line: &[u8]) -> bool {
    ["true", "false", "null", "none"].iter().any(|word| line.eq_ignore_ascii_case(word.as_bytes()))
}

/// The forms in which a line may turn up.
fn forms(line: &[u8]) -> Vec<Pattern> {
    let word = line.len() < LONG;
    let (mut plain, mut exact) = (BTreeSet::new(), BTreeSet::new());
    // What a template's filters and other programs make of it,
    let text = String::from_utf8_lossy(line);
    let inner = |text: &str| {
        let json = serde_json::Value::from(text).to_string();
        json[1..json.len() - 1].to_owned()
    };
    let mut bare = vec![line.to_vec(), text.to_uppercase().into_bytes(), text.to_lowercase().into_bytes()];
    let json = inner(&text);
    bare.extend([ascii(&json).into_bytes(), inner(&json).into_bytes(), json.into_bytes()]);
    let mut written: BTreeSet<Vec<u8>> = bare.iter().map(|form| double_quoted(form)).collect();
    written.extend(bare.iter().map(|form| replace(form, |b| (b == b'\'').then_some("'\"'\"'"))));
    written.extend(["-_.~", "-_.~/", "-_.", "-_./"].map(|kept| percent(line, kept).into_bytes()));
    written.extend(bare);
    for form in written {
        // and that in a file's content, as `print_bytes` writes it; either as a word of a shell script, within one that
        // is quoted itself, and so on.
        for mut form in [printf(&form), form] {
            for _ in 0..4 {
                plain.insert(form.clone());
                form = replace(&form, |b| (b == b'\'').then_some("'\\''"));
            }
        }
    }
    if !word {
        // Three bytes are four characters; those that other bytes have a part in are left out.
        for shift in 0..3 {
            let padded: Vec<u8> = std::iter::repeat_n(0, shift).chain(line.iter().copied()).collect();
            let encoded = STANDARD_NO_PAD.encode(&padded);
            let end = encoded.len() - usize::from(!padded.len().is_multiple_of(3));
            exact.insert(encoded.as_bytes()[(shift * 4).div_ceil(3)..end].to_vec());
        }
    }
    let plain = plain.into_iter().map(|bytes| Pattern { bytes, word, exact: word });
    plain.chain(exact.into_iter().map(|bytes| Pattern { bytes, word: false, exact: true })).collect()
}

/// As it stands between the double quotes of a shell.
fn double_quoted(line: &[u8]) -> Vec<u8> {
    replace(line, |b| match b {
        b'"' => Some("\\\""),
        b'\\' => Some("\\\\"),
        b'$' => Some("\\$"),
        b'`' => Some("\\`"),
        _ => None,
    })
}

fn replace(bytes: &[u8], with: impl Fn(u8) -> Option<&'static str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for &b in bytes {
        match with(b) {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => out.push(b),
        }
    }
    out
}

/// As the format of a shell's `printf`, what isn't printable in octal.
fn printf(line: &[u8]) -> Vec<u8> {
    let mut out = String::new();
    for &b in line {
        match b {
            b'\\' => out.push_str("\\\\"),
            b'%' => out.push_str("%%"),
            b'\t' | 0x20..=0x7e => out.push(char::from(b)),
            b => _ = write!(out, "\\{b:03o}"),
        }
    }
    replace(out.as_bytes(), |b| (b == b'\'').then_some("'\\''"))
}

/// JSON with nothing but ASCII in it, as Python writes it.
fn ascii(json: &str) -> String {
    let mut out = String::new();
    for unit in json.encode_utf16() {
        match u8::try_from(unit).ok().filter(u8::is_ascii) {
            Some(b) => out.push(char::from(b)),
            None => _ = write!(out, "\\u{unit:04x}"),
        }
    }
    out
}

fn percent(line: &[u8], kept: &str) -> String {
    let mut out = String::new();
    for &b in line {
        if b.is_ascii_alphanumeric() || kept.as_bytes().contains(&b) {
            out.push(char::from(b));
        } else {
            let _ = write!(out, "%{b:02x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::{Script, print_bytes};
    use proptest::prelude::*;

    fn of(secrets: &[&str]) -> Secrets {
        let set = Secrets::default();
        secrets.iter().for_each(|s| set.add(s.as_bytes()));
        set
    }

    #[test]
    fn where_there_are_none_nothing_is_copied() {
        assert!(matches!(Secrets::default().redact("hunter2-hunter2"), Cow::Borrowed(_)));
        assert!(matches!(of(&["hunter2-hunter2"]).redact("nothing of it"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_secret_is_replaced_wherever_it_stands() {
        let set = of(&["hunter2-hunter2", "swordfish9"]);
        assert_eq!(set.redact("a=hunter2-hunter2;b=xswordfish9x"), "a=(secret);b=x(secret)x");
        assert_eq!(set.redact("HUNTER2-Hunter2"), "(secret)");
        // Two that overlap leave nothing of either.
        assert_eq!(of(&["abcdefgh1", "fgh1ijklm"]).redact("<abcdefgh1ijklm>"), "<(secret)>");
        assert_eq!(of(&["abcdefgh1", "abcdefgh1234"]).redact("<abcdefgh1234>"), "<(secret)>");
    }

    #[test]
    fn each_line_of_a_secret_is_one() {
        let set = of(&["-----BEGIN KEY-----\r\n  b3BlbnNzaC1rZXk\n\nx\n-----END KEY-----\n"]);
        assert_eq!(set.redact("key: b3BlbnNzaC1rZXk, x"), "key: (secret), x");
        assert_eq!(set.redact("-----BEGIN KEY-----\nb3BlbnNzaC1rZXk\n"), "(secret)\n(secret)\n");
    }

    #[test]
    fn short_ones_are_whole_words_or_nothing() {
        let set = of(&["1", "eth", "toor", "true", "9000"]);
        assert_eq!(
            set.redact("toor: toor2 Toor _toor mtu 9000, 19000 1 eth true"),
            "(secret): toor2 Toor _toor mtu (secret), 19000 1 eth true"
        );
    }

    #[test]
    fn a_secret_that_was_cut_leaves_nothing() {
        let long: String = (0..200).map(|n| format!("{n:03}x")).collect();
        let set = of(&[&long, "hunter2-hunter2"]);
        let cut = |text: &str| set.redact(text).into_owned();
        assert_eq!(
            cut(&format!("key {} … 300 characters … {} end", &long[..296], &long[600..])),
            "key (secret) … 300 characters … (secret) end"
        );
        assert_eq!(cut("say hunter2-hunt … 9 characters … ter2 x"), "say (secret) … 9 characters … (secret) x");
        let output = format!("ter2-hunter2\n{}", "line\n".repeat(20_000));
        assert!(cut(&output).starts_with("(secret)\nline\n"));
    }

    #[test]
    fn many_secrets_added_one_by_one_are_all_found() {
        let set = Secrets::default();
        for n in 0..300 {
            set.add(format!("secret-number-{n:04}").as_bytes());
            assert_eq!(set.redact(&format!("secret-number-{n:04}")), MASK);
        }
        assert!((0..300).all(|n| set.redact(&format!("secret-number-{n:04}")) == MASK));
        assert!(set.set().levels.len() < 10);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn no_form_of_a_secret_gets_through(
            secret in "[ -~é€\u{1f600}]{8,24}", before in "[a-c]{0,3}", depth in 0..3usize,
        ) {
            let secret = secret.trim();
            prop_assume!(secret.len() >= LONG);
            let set = of(&[secret]);
            let mut script = Script::new().command([secret]).as_str().to_owned();
            for _ in 0..depth {
                script = Script::new().command([&script]).as_str().to_owned();
            }
            let put = print_bytes(format!("{before}{secret}\n").as_bytes());
            let json = serde_json::json!({ "v": secret }).to_string();
            let quoted = format!("a={}", crate::shell::python_quote(&format!("{before} {secret}")));
            let nested = format!("a={}", crate::shell::python_quote(&json));
            let again = serde_json::Value::from(&*json).to_string();
            let url = format!("//u:{}@h", percent(secret.as_bytes(), "-_./"));
            let files = [&json, &quoted, &nested, &again, &url].map(|text| print_bytes(text.as_bytes()));
            let steps = files.each_ref().map(|text| Script::new().command([text]).as_str().to_owned());
            let forms = [("script", &script), ("printf", &put), ("json", &json), ("quoted", &quoted), ("nested", &nested), ("again", &again), ("url", &url)];
            let forms = forms.into_iter().chain(files.iter().chain(&steps).map(|text| ("file", text)));
            for (form, text) in forms.chain([("bare", &secret.to_owned())]) {
                prop_assert!(set.redact(text).contains(MASK), "{form}: {text}");
            }
            let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{before}{secret}"));
            // What shares a character with its neighbours is left of it.
            let left = set.redact(&encoded).replace(MASK, "");
            prop_assert!(left.len() <= before.len() * 4 / 3 + 6, "{encoded}: {left}");
        }
    }
}
