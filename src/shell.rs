//! The only builder of shell text. What a user can set reaches a shell through [`quote`], by way of [`Script`].

use std::fmt::Write as _;

/// Shell text that is sent to hosts. It must run alike under dash, bash and busybox.
///
/// Text of the program's own comes in by [`Script::line`], which takes only literals; everything else as the quoted
/// word of a [`Script::command`] or the value of a [`Script::set`] variable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script(String);

impl Script {
    /// An empty script.
    pub fn new() -> Script {
        Script::default()
    }

    /// The same with a line of the program's own.
    #[must_use]
    pub fn line(mut self, text: &'static str) -> Script {
        self.0.push_str(text);
        self.0.push('\n');
        self
    }

    /// The same with a simple command, each word quoted.
    #[must_use]
    pub fn command<W: AsRef<str>>(mut self, words: impl IntoIterator<Item = W>) -> Script {
        for (i, word) in words.into_iter().enumerate() {
            if i > 0 {
                self.0.push(' ');
            }
            self.0.push_str(&quote(word.as_ref()));
        }
        self.0.push('\n');
        self
    }

    /// The same with a shell variable set to this text, for the lines that follow.
    #[must_use]
    pub fn set(mut self, name: &'static str, value: &str) -> Script {
        let _ = writeln!(self.0, "{name}={}", quote(value));
        self
    }

    /// The same with the positional parameters set to these texts.
    #[must_use]
    pub fn args<W: AsRef<str>>(mut self, words: impl IntoIterator<Item = W>) -> Script {
        self.0.push_str("set --");
        for word in words {
            self.0.push(' ');
            self.0.push_str(&quote(word.as_ref()));
        }
        self.0.push('\n');
        self
    }

    /// The same with shell text that a user wrote to be run as it is: the string of a `command`, a guard.
    #[must_use]
    pub fn user(mut self, text: &str) -> Script {
        self.0.push_str(text);
        self.0.push('\n');
        self
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The shell function `led PATH`: whether a link may be followed, and if not, why. It may not be one that somebody put
/// into a folder like /tmp to have us write elsewhere; the kernel's own protection against that
/// (fs.protected_symlinks) ends where `readlink` begins.
pub const LED: &str = include_str!("led.sh");

/// Two shell functions for a new file `$t` that takes the place of `$p`; on a failure they call `no MESSAGE`, which must
/// not return. `NL` is a newline.
///
/// `keep MODE` gives the file that is open as descriptor 8 the ACL and the extended attributes of `$p`. They go by way of
/// an empty file that gets the mode first, so that nobody may read more meanwhile than in the end, and by descriptors,
/// as whoever owns the folder can give names to something else. Without coreutils' `cp` they aren't kept.
///
/// `place replace` renames it, with the SELinux context of what was there; `place in-place` writes a mount point, which
/// can't be replaced, and puts back what was there if that fails.
pub const REPLACE: &str = include_str!("replace.sh");

/// One word of shell text that means just this string. A NUL can't be in a shell's word: it is left out, and keys
/// refuse it long before.
pub fn quote(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/' | b':' | b',' | b'+' | b'@');
    if !text.is_empty() && !text.starts_with('-') && text.bytes().all(plain) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('\'');
    for c in text.chars() {
        match c {
            '\'' => out.push_str("'\\''"),
            '\0' => {}
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// A word of a shell script as Python's `shlex.quote` writes it, which is the filter `quote` of Ansible: each character
/// is written alike wherever it stands, so that a secret in it is found.
pub fn python_quote(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    if !text.is_empty() && text.chars().all(safe) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r#"'"'"'"#))
}

/// Shell text that prints these bytes by the builtin `printf`, some lines at a time: none is cut, so that a secret in it
/// is found. Never a here-document (bash puts a large one into /tmp) and never a process argument.
pub fn print_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + bytes.len() / 8 + 16);
    if bytes.is_empty() {
        out.push_str(":\n");
    }
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = rest.iter().skip(4096).position(|b| *b == b'\n').map_or(rest.len(), |at| 4096 + at + 1);
        let chunk;
        (chunk, rest) = rest.split_at(end);
        out.push_str("printf -- '");
        for &b in chunk {
            match b {
                b'\'' => out.push_str("'\\''"),
                b'\\' => out.push_str("\\\\"),
                b'%' => out.push_str("%%"),
                b'\n' | b'\t' | 0x20..=0x7e => out.push(char::from(b)),
                b => {
                    let _ = write!(out, "\\{b:03o}");
                }
            }
        }
        out.push_str("'\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn sh(script: &str) -> Vec<u8> {
        let out = Command::new("/bin/sh").args(["-c", script]).output().unwrap();
        assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn words_survive_a_shell(words in prop::collection::vec("[^\u{0}]{0,20}", 1..8)) {
            let script = Script::new().args(&words).line(r#"for w in "$@"; do printf '%s\001' "$w"; done"#);
            let expected: Vec<u8> = words.iter().flat_map(|w| [w.as_bytes(), b"\x01"].concat()).collect();
            prop_assert_eq!(sh(script.as_str()), expected);
        }

        #[test]
        fn bytes_survive_printf(bytes in prop::collection::vec(any::<u8>(), 0..6000)) {
            prop_assert_eq!(sh(&print_bytes(&bytes)), bytes);
        }
    }

    #[test]
    fn the_filter_quotes_as_python_does() {
        for (text, quoted) in [
            ("", "''"),
            ("a-b_c@d%e+f=g:h,i.j/k", "a-b_c@d%e+f=g:h,i.j/k"),
            ("a b", "'a b'"),
            ("it's $x", r#"'it'"'"'s $x'"#),
            ("é", "'é'"),
        ] {
            assert_eq!(python_quote(text), quoted);
            assert_eq!(sh(&format!("printf %s {quoted}")), text.as_bytes());
        }
    }

    #[test]
    fn nasty_words() {
        for word in ["", "-n", "--", "$(reboot)", "`x`", "a'b", "%s", "\\", "a\nb", "~", "*", "#", "é", "=x"] {
            assert_eq!(sh(&format!("printf %s {}", quote(word))), word.as_bytes(), "{word:?}");
        }
        assert_eq!(quote("/etc/x"), "/etc/x");
    }
}
