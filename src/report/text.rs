//! How single things are written for people: numbers, times, values, colours, and text of hosts made harmless.

use console::Style;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

/// How many characters of one value are shown.
const LONGEST_VALUE: usize = 240;

/// Colours, or none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Palette {
    /// Whether there are any.
    pub(super) on: bool,
}

impl Palette {
    fn paint(self, style: Style, text: &str) -> String {
        style.force_styling(self.on).apply_to(text).to_string()
    }

    pub(super) fn good(self, text: &str) -> String {
        self.paint(Style::new().green(), text)
    }

    pub(super) fn change(self, text: &str) -> String {
        self.paint(Style::new().yellow(), text)
    }

    pub(super) fn bad(self, text: &str) -> String {
        self.paint(Style::new().red().bold(), text)
    }

    pub(super) fn removed(self, text: &str) -> String {
        self.paint(Style::new().red(), text)
    }

    pub(super) fn place(self, text: &str) -> String {
        self.paint(Style::new().cyan(), text)
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }
}

/// Whether a character would do something to a terminal, or to the order of what is read, other than stand there.
fn harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn escape(out: &mut String, c: char) {
    // Writing to a String can't fail.
    let _ = match c {
        '\n' => write!(out, "\\n"),
        '\r' => write!(out, "\\r"),
        '\t' => write!(out, "\\t"),
        c if u32::from(c) < 0x100 => write!(out, "\\x{:02x}", u32::from(c)),
        c => write!(out, "\\u{{{:x}}}", u32::from(c)),
    };
}

/// Text on one line, with everything escaped that could act on a terminal.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harmful(c) { escape(&mut out, c) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// The lines of a text, each cleaned, tabs kept.
pub(super) fn lines(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().map(|line| line.split('\t').map(clean).collect::<Vec<_>>().join("\t"))
}

/// Bytes of a host as text: what isn't UTF-8 becomes `\xNN`.
pub(super) fn from_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// A count with separators of thousands: `1,024`.
pub(super) fn number(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count with its noun: `1 host`, `1,024 hosts`.
pub(super) fn count(n: usize, noun: &str) -> String {
    format!("{} {noun}{}", number(n), if n == 1 { "" } else { "s" })
}

/// A time as it is read: `3.2 s`, `42 s`, `1 min 12 s`, `1 h 3 min`.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A value: strings bare unless that could be taken for something else, null as `absent`, the rest as JSON.
pub(super) fn value(value: &Value) -> String {
    let text = match value {
        Value::Null => return "absent".to_owned(),
        Value::String(s) if bare(s) => clean(s).into_owned(),
        other => clean(&other.to_string()).into_owned(),
    };
    let length = text.chars().count();
    if length <= LONGEST_VALUE {
        return text;
    }
    let shown: String = text.chars().take(LONGEST_VALUE).collect();
    format!("{shown}… ({} characters)", number(length))
}

/// Whether a string is told from null, JSON and the words around it without quotes.
fn bare(text: &str) -> bool {
    !text.is_empty()
        && text != "absent"
        && !text.starts_with(['"', '[', '{', '('])
        && text.trim() == text
        && !text.contains(" → ")
        && !text.contains(char::is_control)
}

/// Breaks a line at its blanks so that it fits into `width` columns, further lines indented by `indent`. Without a
/// width (a file, a pipe) it stays one line.
pub(super) fn wrap(text: &str, width: Option<usize>, indent: usize) -> String {
    // Narrower than this, broken lines are harder to read than what the terminal makes of them.
    let Some(width) = width.filter(|w| *w >= indent + 40) else { return text.to_owned() };
    let mut out = String::with_capacity(text.len() + 32);
    let mut column = 0;
    for (i, word) in text.split(' ').enumerate() {
        let length = console::measure_text_width(word);
        if i > 0 {
            if column + 1 + length > width && column > indent {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent));
                column = indent;
            } else {
                out.push(' ');
                column += 1;
            }
        }
        out.push_str(word);
        column += length;
    }
    out
}

/// Text filled with blanks up to `width` columns.
pub(super) fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(console::measure_text_width(text));
    format!("{text}{}", " ".repeat(missing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_and_times() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(n), text);
        }
        for (ms, text) in
            [(0, "0.0 s"), (3210, "3.2 s"), (42_900, "42 s"), (72_000, "1 min 12 s"), (3_780_000, "1 h 3 min")]
        {
            assert_eq!(duration(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn values_can_be_told_apart() {
        for (v, text) in [
            (json!(null), "absent"),
            (json!("absent"), "\"absent\""),
            (json!(""), "\"\""),
            (json!("4096 131072 6291456"), "4096 131072 6291456"),
            (json!(" a"), "\" a\""),
            (json!("a\nb"), "\"a\\nb\""),
            (json!("\u{1b}[2J"), "\"\\u001b[2J\""),
            (json!("a\u{202e}b"), "a\\u{202e}b"),
            (json!(0), "0"),
            (json!(false), "false"),
            (json!(["a", 1]), "[\"a\",1]"),
            (json!("[1]"), "\"[1]\""),
        ] {
            assert_eq!(value(&v), text);
        }
        assert!(value(&json!("x".repeat(5000))).ends_with("x… (5,000 characters)"));
    }

    #[test]
    fn nothing_acts_on_the_terminal() {
        assert_eq!(clean("a\u{1b}]0;x\u{7}b\r\u{9b}c\u{85}"), "a\\x1b]0;x\\x07b\\r\\x9bc\\x85");
        assert_eq!(lines("a\tb\n\u{1b}c\n").collect::<Vec<_>>(), ["a\tb", "\\x1bc"]);
        assert_eq!(from_bytes(b"gr\xfc\xdfe \xc3\xa9"), "gr\\xfc\\xdfe é");
    }

    #[test]
    fn long_lines_are_broken_where_there_is_a_width() {
        let text = "one two three four five six seven eight nine ten eleven twelve";
        assert_eq!(wrap(text, None, 4), text);
        assert_eq!(wrap(text, Some(44), 4), "one two three four five six seven eight nine\n    ten eleven twelve");
    }
}
