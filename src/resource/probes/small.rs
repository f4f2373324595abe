//! The text of many small files (`/proc`, `/sys`, configuration) in one process.
//!
//! `grep -aH '' FILE…` prints each line behind the name of its file and says on standard error what it couldn't read,
//! so that absent, empty and unreadable files are told apart. It is never `read v <FILE`: dash reads byte by byte, and
//! files in `/proc/sys` give the first byte only to that.

use crate::resource::{Fragment, Group, Output, Question, Trouble};
use crate::shell::Script;
use std::borrow::Cow;
use std::collections::HashSet;

/// The group. An argument is an absolute path; links are followed.
#[derive(Debug)]
pub struct SmallFile;

/// What a small file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Small {
    /// It isn't there, nor is what its link points to.
    Absent,
    /// Its lines, each ended by a newline, whether the last one is in the file or not. Where busybox' grep is the
    /// host's, a file that can be opened and then gives an error (`speed` of a link that is down) has none.
    Text(Vec<u8>),
    /// It is there, or may be, and can't be read: why.
    Unreadable(Trouble),
}

impl SmallFile {
    /// Asks for the text of a file.
    pub fn ask(path: impl Into<String>) -> Question {
        Question::of::<SmallFile>(path)
    }
}

impl Small {
    /// The bytes; nothing where the file isn't there.
    ///
    /// # Errors
    /// It can't be read.
    pub fn bytes(&self) -> Result<Option<&[u8]>, Trouble> {
        match self {
            Small::Absent => Ok(None),
            Small::Text(bytes) => Ok(Some(bytes)),
            Small::Unreadable(why) => Err(why.clone()),
        }
    }

    /// The text, bytes that aren't UTF-8 replaced; nothing where the file isn't there.
    ///
    /// # Errors
    /// As [`Small::bytes`].
    pub fn text(&self) -> Result<Option<Cow<'_, str>>, Trouble> {
        Ok(self.bytes()?.map(String::from_utf8_lossy))
    }

    /// The text without white space around it, as a value of `/proc` or `/sys` is meant.
    ///
    /// # Errors
    /// As [`Small::bytes`].
    pub fn value(&self) -> Result<Option<String>, Trouble> {
        Ok(self.text()?.map(|t| t.trim().to_owned()))
    }
}

impl Group for SmallFile {
    type Answer = Small;
    const NAME: &'static str = "files";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        rounds(args)
            .into_iter()
            .map(|round| {
                // busybox' grep takes a folder for an empty file.
                Script::new()
                    .args(round.iter().map(|&i| args[i]))
                    .line(r#"for f do shift; if [ -d "$f" ]; then echo "grep: $f: Is a directory" >&2; continue; fi; set -- "$@" "$f"; done"#)
                    .line(r#"[ $# -eq 0 ] || grep -aH '' -- "$@""#)
                    .into()
            })
            .collect()
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Small, Trouble>> {
        let mut answers: Vec<Result<Small, Trouble>> = vec![Err(Trouble::new("the host sent no answer")); args.len()];
        for (round, output) in rounds(args).into_iter().zip(outputs) {
            let names: Vec<&str> = round.iter().map(|&i| args[i]).collect();
            for (i, answer) in round.into_iter().zip(read(&names, output)) {
                answers[i] = answer;
            }
        }
        answers
    }
}

/// Which arguments are asked in one process: all but those whose name is another's with a colon behind it (`ifcfg-eth0`
/// and `ifcfg-eth0:1`), which couldn't be told from that one's lines. Each of them has a process of its own.
fn rounds(args: &[&str]) -> Vec<Vec<usize>> {
    let all: HashSet<&str> = args.iter().copied().collect();
    let doubtful = |name: &str| name.match_indices(':').any(|(at, _)| all.contains(&name[..at]));
    let (alone, together): (Vec<usize>, Vec<usize>) = (0..args.len()).partition(|&i| doubtful(args[i]));
    let mut rounds = Vec::new();
    if !together.is_empty() {
        rounds.push(together);
    }
    rounds.extend(alone.into_iter().map(|i| vec![i]));
    rounds
}

/// The answers to what one process was asked.
fn read(names: &[&str], output: &Output) -> Vec<Result<Small, Trouble>> {
    let failed = |why: String| vec![Err(Trouble::new(why)); names.len()];
    if !(0..=2).contains(&output.code) {
        return failed(format!("reading files failed: grep ended with {}: {}", output.code, output.complaint()));
    }
    let mut texts: Vec<Vec<u8>> = vec![Vec::new(); names.len()];
    let (mut rest, mut at) = (output.stdout.as_slice(), 0);
    while !rest.is_empty() {
        // Files come in their order, so that a line belongs to this file or to a later one.
        let found = (at..names.len())
            .find(|&i| rest.starts_with(names[i].as_bytes()) && rest.get(names[i].len()) == Some(&b':'));
        let Some(file) = found else {
            let line = rest.split(|&b| b == b'\n').next().unwrap_or_default();
            return failed(format!("reading files gave a line of no file: {}", String::from_utf8_lossy(line)));
        };
        at = file;
        rest = &rest[names[file].len() + 1..];
        let end = rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |n| n + 1);
        texts[file].extend_from_slice(&rest[..end]);
        rest = &rest[end..];
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = |name: &str| {
        let (_, after) = said.split_once(&format!("grep: {name}: "))?;
        after.lines().next().map(str::trim_end)
    };
    let reasons: Vec<Option<&str>> = names.iter().map(|name| reason(name)).collect();
    let unclear = output.code == 2 && reasons.iter().all(Option::is_none);
    let answer = |(i, text): (usize, Vec<u8>)| match reasons[i] {
        Some("No such file or directory" | "Not a directory") => Ok(Small::Absent),
        Some(why) => Ok(Small::Unreadable(unreadable(names[i], why))),
        None if unclear && text.is_empty() => {
            Err(Trouble::new(format!("{} can't be read: {}", names[i], output.complaint())))
        }
        None => Ok(Small::Text(text)),
    };
    texts.into_iter().enumerate().map(answer).collect()
}

/// That a file can't be read, with the remedy where it is a matter of rights.
pub(super) fn unreadable(path: &str, why: &str) -> Trouble {
    let mut letters = why.chars();
    let why: String = letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect();
    let trouble = Trouble::new(format!("{path} can't be read: {why}"));
    if why == "permission denied" { trouble.hint("`become: true` reads it as root") } else { trouble }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::{Shell, ask};
    use std::fs;

    fn text(text: &str) -> Small {
        Small::Text(text.into())
    }

    #[test]
    fn kinds_of_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| format!("{}/{name}", dir.path().display());
        let nasty =
            ["plain", "-n", "sp ace", "new\nline", "co:lon", "co", "co:lon:x", "$(id)", "'q\"", "back\\slash", "é"];
        for name in nasty {
            fs::write(path(name), format!("{name}:of\n\nlast")).unwrap();
        }
        fs::write(path("empty"), "").unwrap();
        fs::write(path("binary"), b"a\0b\xff\n").unwrap();
        fs::create_dir(path("folder")).unwrap();
        std::os::unix::fs::symlink("nowhere", path("dangling")).unwrap();
        std::os::unix::fs::symlink("plain", path("link")).unwrap();
        let others = ["empty", "binary", "folder", "dangling", "link", "nope", "plain/below"];
        let names: Vec<String> = nasty.iter().chain(&others).map(|n| path(n)).collect();
        for shell in Shell::ALL {
            let answers = ask(shell, names.iter().map(SmallFile::ask));
            let get = |name: &str| answers.get::<SmallFile>(&path(name)).unwrap();
            for name in nasty {
                assert_eq!(*get(name), text(&format!("{name}:of\n\nlast\n")), "{name:?} {shell:?}");
            }
            assert_eq!(*get("empty"), text(""), "{shell:?}");
            assert_eq!(*get("binary"), Small::Text(b"a\0b\xff\n".to_vec()));
            assert_eq!(*get("link"), text("plain:of\n\nlast\n"));
            for name in ["dangling", "nope", "plain/below"] {
                assert_eq!(*get(name), Small::Absent, "{name} {shell:?}");
            }
            assert_eq!(
                get("folder").text().unwrap_err().message,
                format!("{} can't be read: is a directory", path("folder")),
                "{shell:?}"
            );
        }
    }

    #[test]
    fn a_process_for_all_but_doubtful_names() {
        assert_eq!(SmallFile::compose(&["/a", "/a:1", "/b", "/sys/0000:86:00.0/x"]).len(), 2);
    }

    #[test]
    fn a_file_that_rights_forbid_is_not_absent() {
        let output = Output { code: 2, stdout: Vec::new(), stderr: b"grep: /x: Permission denied\n".to_vec() };
        let answers = SmallFile::split(&["/empty", "/x"], &[output]);
        assert_eq!(answers[0].as_ref().unwrap(), &text(""));
        let why = answers[1].as_ref().unwrap().text().unwrap_err();
        assert_eq!(why.message, "/x can't be read: permission denied");
        assert_eq!(why.hint.as_deref(), Some("`become: true` reads it as root"));
    }

    #[test]
    fn no_grep_is_no_answer() {
        let output = Output { code: 127, stdout: Vec::new(), stderr: b"sh: grep: not found\n".to_vec() };
        assert!(SmallFile::split(&["/x"], &[output])[0].is_err());
        let output = Output { code: 2, stdout: Vec::new(), stderr: b"grep: out of memory\n".to_vec() };
        assert!(SmallFile::split(&["/x"], &[output])[0].is_err());
    }
}
