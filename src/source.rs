//! Where something was written: a text with a name, and places in it.

use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

/// The most bytes of a file of YAML.
pub const MAX_TEXT: u64 = 256 << 20;
/// How many characters of a line are shown before and behind the place that is underlined.
const AROUND: usize = 100;
/// What statfs(2) says of a pipe without a name (linux/magic.h).
const PIPEFS_MAGIC: rustix::fs::FsWord = 0x5049_5045;

/// The bytes of a file. The null device is an empty one, and nothing else that isn't a file is read: a pipe that nobody
/// writes into holds up for ever whoever opens it, and one that is read twice is empty the second time.
///
/// # Errors
/// It can't be read, is no file, or has more than `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bytes(path, most, false)
}

/// The same of what is given on the command line, where a shell's `<(COMMAND)` and `/dev/stdin` are pipes without a name:
/// they end when who writes into them does.
///
/// # Errors
/// As there.
pub fn given(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bytes(path, most, true)
}

fn bytes(path: &Path, most: u64, pipes: bool) -> io::Result<Vec<u8>> {
    // Asked before it is opened, as opening a pipe waits for whoever writes into it.
    let meta = std::fs::metadata(path)?;
    let kind = meta.file_type();
    let null = rustix::fs::makedev(1, 3); // null(4)
    let no_file = if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    } else if kind.is_fifo() && pipes {
        (!nameless(path)).then_some("a pipe with a name; of pipes only `<(COMMAND)` and `/dev/stdin` are read")
    } else if kind.is_fifo() {
        Some("a pipe, not a file")
    } else if kind.is_socket() {
        Some("a socket, not a file")
    } else if kind.is_block_device() || kind.is_char_device() && meta.rdev() != null {
        Some("a device, not a file")
    } else {
        None
    };
    if let Some(what) = no_file {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}")));
    }
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if read as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// Whether a pipe is one of pipe(2), which the kernel keeps on a file system of its own; mkfifo(3) makes the others.
fn nameless(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|fs| fs.f_type == PIPEFS_MAGIC)
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
    use std::os::fd::AsRawFd as _;

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
    fn what_is_no_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for read in [read, given] {
            for (path, what) in [
                (path("pipe"), "a pipe"),
                (path("socket"), "a socket"),
                ("/dev/zero".into(), "a device"),
                (path("."), "is a directory"),
            ] {
                let error = read(&path, 10).unwrap_err().to_string();
                assert!(error.contains(what), "{error}");
            }
            assert_eq!(read(Path::new("/dev/null"), 10).unwrap(), b"");
        }
    }

    #[test]
    fn a_pipe_of_the_shell_is_read_where_the_user_names_it() {
        let (from, mut to) = io::pipe().unwrap();
        io::Write::write_all(&mut to, b"text").unwrap();
        drop(to);
        let path = format!("/dev/fd/{}", from.as_raw_fd());
        assert!(read(Path::new(&path), 10).unwrap_err().to_string().contains("a pipe"));
        assert_eq!(given(Path::new(&path), 10).unwrap(), b"text");
    }

    #[test]
    fn more_than_may_be_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "0123456789A").unwrap();
        assert_eq!(read(&folder.path().join("file"), 10).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read(&folder.path().join("file"), 11).unwrap(), b"0123456789A");
    }
}
