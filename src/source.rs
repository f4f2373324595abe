//! Where something was written: a text with a name, and places in it.

use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

/// The most bytes of a file of YAML.
pub const MAX_TEXT: u64 = 256 << 20;
/// How many characters of a line are shown before and behind the place that is underlined.
const AROUND: usize = 100;

/// The bytes of a file.
///
/// # Errors
/// It can't be read, or has more than `most` bytes. A device without end tells no size beforehand.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if read as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// A text that was read: a file, an argument of the command line, or a program's output.
pub struct Source {
    /// What errors call it, usually the path as the user gave it.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Whether it was encrypted where it comes from, so that no error may show a line of it.
    pub decrypted: bool,
}

impl Source {
    /// A source of this name and text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Source> {
        Arc::new(Source { name: name.into(), text: text.into(), decrypted: false })
    }

    /// The same of a text that was encrypted.
    pub fn decrypted(name: impl Into<String>, text: impl Into<String>) -> Arc<Source> {
        Arc::new(Source { name: name.into(), text: text.into(), decrypted: true })
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)
    }
}

/// A place in a [`Source`]. Lines and columns count from 1, columns in characters.
#[derive(Clone)]
pub struct Span {
    /// The text that it is a place of.
    pub source: Arc<Source>,
    /// The line.
    pub line: u32,
    /// The column of its first character.
    pub column: u32,
    /// How many characters it has on this line, at least 1.
    pub len: u32,
}

impl Span {
    /// The start of a text.
    pub fn start(source: &Arc<Source>) -> Span {
        Span { source: source.clone(), line: 1, column: 1, len: 1 }
    }

    /// A place in a text.
    pub fn at(source: &Arc<Source>, line: usize, column: usize, len: usize) -> Span {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Span { source: source.clone(), line: small(line), column: small(column.max(1)), len: small(len.max(1)) }
    }

    /// The line of the text with the place underlined, without a final newline; nothing where the line isn't there or
    /// mustn't be shown.
    pub fn excerpt(&self) -> Option<String> {
        if self.source.decrypted {
            return None;
        }
        let line = self.source.text.lines().nth(self.line.saturating_sub(1) as usize)?;
        let number = self.line.to_string();
        let column = self.column.saturating_sub(1) as usize;
        let chars = line.chars().count();
        let marked = (self.len as usize).min(chars.saturating_sub(column).max(1));
        // Of a long line, as generated JSON has it, what is near.
        let first = column.saturating_sub(AROUND);
        let end = column + marked.min(AROUND) + AROUND;
        let (cut, more) = (if first > 0 { "…" } else { "" }, if end < chars { "…" } else { "" });
        let near = || line.chars().skip(first);
        let before: String = near().take(column - first).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let before = format!("{}{before}", " ".repeat(cut.chars().count()));
        let marks = "^".repeat(marked.min(AROUND));
        let shown: String =
            near().take(end - first).map(|c| if c != '\t' && c.is_control() { '\u{fffd}' } else { c }).collect();
        let shown = format!("{cut}{shown}{more}");
        Some(format!("{number} | {shown}\n{} | {before}{marks}", " ".repeat(number.len())))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.source.name, self.line, self.column)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_underlined() {
        let source = Source::new("site.yaml", "- mtu:\n\tinterfase: eth0\n");
        let span = Span::at(&source, 2, 2, 9);
        assert_eq!(span.to_string(), "site.yaml:2:2");
        assert_eq!(span.excerpt().unwrap(), "2 | \tinterfase: eth0\n  | \t^^^^^^^^^");
    }

    #[test]
    fn of_a_long_line_what_is_near_is_shown() {
        let source = Source::new("x.json", format!("{}HERE{}", "a".repeat(5000), "b".repeat(5000)));
        let (a, b) = ("a".repeat(100), "b".repeat(100));
        let expected = format!("1 | …{a}HERE{b}…\n  |  {}^^^^", " ".repeat(100));
        assert_eq!(Span::at(&source, 1, 5001, 4).excerpt().unwrap(), expected);
        let whole = Span::at(&source, 1, 1, 10004).excerpt().unwrap();
        assert_eq!(whole, format!("1 | {a}{a}…\n  | {}", "^".repeat(100)));
    }

    #[test]
    fn what_has_no_end_is_refused() {
        assert_eq!(read(Path::new("/dev/zero"), 10).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read(Path::new("/dev/null"), 10).unwrap(), b"");
    }
}
