//! Where something was written: a text with a name, and places in it.

use std::fmt;
use std::sync::Arc;

/// A text that was read: a file, an argument of the command line, or a program's output.
pub struct Source {
    /// What errors call it, usually the path as the user gave it.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// A source of this name and text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Source> {
        Arc::new(Source { name: name.into(), text: text.into() })
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

    /// The line of the text with the place underlined, without a final newline; nothing where the line isn't there.
    pub fn excerpt(&self) -> Option<String> {
        let line = self.source.text.lines().nth(self.line.saturating_sub(1) as usize)?;
        let number = self.line.to_string();
        let before: String = line
            .chars()
            .take(self.column.saturating_sub(1) as usize)
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        let left = line.chars().count().saturating_sub(self.column.saturating_sub(1) as usize);
        let marks = "^".repeat((self.len as usize).min(left.max(1)));
        let shown: String = line.chars().map(|c| if c != '\t' && c.is_control() { '\u{fffd}' } else { c }).collect();
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
}
