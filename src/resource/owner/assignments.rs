//! Files of shell assignments (ifcfg): `KEY=value` a line, values quoted as a shell reads them, comments. They are read
//! by value and edited line by line, so that what isn't asked for stays as it is.

use crate::resource::Trouble;
use crate::resource::keyfile::Edit;

/// The assignments of a file, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assignments {
    /// Them.
    pub all: Vec<Assignment>,
    /// Whether there is something else than assignments, comments and empty lines.
    pub other: bool,
}

/// One assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// What is set.
    pub key: String,
    /// Its value; nothing where only a shell could tell: `$OTHER`, a command.
    pub value: Option<String>,
    /// Its number in the file, from 1.
    pub number: usize,
    line: String,
    /// What stands in the line before the value and behind it.
    before: String,
    after: String,
    quote: Quote,
    /// Whether the value goes on in the next lines.
    long: bool,
    /// Whether something else stands on its line too: another assignment, a command.
    shared: bool,
    /// Whether its line isn't UTF-8, so that `line` isn't what stands in the file.
    odd: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quote {
    Bare,
    Single,
    Double,
}

impl Assignments {
    /// Reads the bytes of a file.
    pub fn parse(bytes: &[u8]) -> Assignments {
        let mut found = Assignments::default();
        let mut lines = bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|&b| b == b'\n').enumerate();
        while let Some((at, bytes)) = lines.next() {
            let mut odd = std::str::from_utf8(bytes).is_err();
            let line = &*String::from_utf8_lossy(bytes);
            let bare = line.trim_start();
            if bare.is_empty() || bare.starts_with('#') {
                continue;
            }
            let (mut whole, mut from, first) = (line.to_owned(), 0, found.all.len());
            // Those of a command that isn't complete yet: `A=1 id` sets A for that command alone.
            let mut pending = Vec::new();
            let assigns = loop {
                let Some((key, start)) = key(&whole[from..]).map(|(key, at)| (key.to_owned(), from + at)) else {
                    break false;
                };
                let mut word = Word::read(&whole[start..]);
                let long = word.open;
                while word.open {
                    let Some((_, next)) = lines.next() else { break };
                    odd |= std::str::from_utf8(next).is_err();
                    whole = whole + "\n" + &String::from_utf8_lossy(next);
                    word = Word::read(&whole[start..]);
                }
                let end = start + word.end;
                pending.push(Assignment {
                    key,
                    value: word.value,
                    number: at + 1,
                    before: whole[..start].to_owned(),
                    after: String::new(),
                    quote: word.quote,
                    long,
                    odd,
                    shared: false,
                    line: line.to_owned(),
                });
                let rest = whole[end..].trim_start_matches([' ', '\t']);
                let comment = |text: &str| text.is_empty() || text.starts_with('#');
                let blank = rest.len() < whole.len() - end;
                if rest.is_empty() || (blank && comment(rest)) {
                    found.all.append(&mut pending);
                    break true;
                }
                let next = match rest.strip_prefix(';') {
                    Some(next) => {
                        found.all.append(&mut pending);
                        next.trim_start_matches([' ', '\t'])
                    }
                    None if blank => rest,
                    None => break false,
                };
                if comment(next) {
                    break true;
                }
                from = whole.len() - next.len();
            };
            found.other |= !assigns;
            let shared = found.all.len() > first + 1 || !assigns;
            for it in &mut found.all[first..] {
                // Where its value ends is known by where what follows it begins.
                it.after = whole[it.before.len() + Word::read(&whole[it.before.len()..]).end..].to_owned();
                (it.odd, it.shared) = (odd, shared);
                // A character that stands for bytes is no value that can be compared.
                it.value = it.value.take().filter(|value| !odd || !value.contains('\u{fffd}'));
            }
        }
        found
    }

    /// The assignment of a key that counts, which is the last one.
    pub fn get(&self, key: &str) -> Option<&Assignment> {
        self.all.iter().rfind(|a| a.key == key)
    }

    /// Whether a key is as wanted: this value, or nothing where none is wanted.
    pub fn has(&self, key: &str, wanted: Option<&str>) -> bool {
        match (self.get(key), wanted) {
            (None, None) => true,
            (Some(found), Some(wanted)) => found.value.as_deref() == Some(wanted),
            _ => false,
        }
    }

    /// What is shown of a key: its value, or what stands in the file where only a shell could tell; null if absent.
    pub fn shown(&self, key: &str) -> serde_json::Value {
        self.get(key).map_or(serde_json::Value::Null, |a| {
            a.value.clone().unwrap_or_else(|| a.line[a.before.len()..].trim().to_owned()).into()
        })
    }

    /// The same edit with what makes a key so: its last assignment rewritten in its own way of quoting, or a new one at
    /// the end; where none is wanted, all of them removed.
    ///
    /// # Errors
    /// What would have to be changed goes on over several lines, or isn't UTF-8.
    pub fn edit(&self, edit: Edit, key: &str, wanted: Option<&str>) -> Result<Edit, Trouble> {
        let touched: Vec<&Assignment> = match wanted {
            Some(_) => self.get(key).into_iter().collect(),
            None => self.all.iter().filter(|a| a.key == key).collect(),
        };
        if let Some(long) = touched.iter().find(|a| a.long) {
            return Err(Trouble::new(format!("{key} goes on over several lines from line {} on", long.number))
                .hint("write it on one line there; netplay changes whole lines"));
        }
        if let Some(shared) = touched.iter().find(|a| a.shared) {
            return Err(Trouble::new(format!("{key} doesn't stand alone on line {}", shared.number))
                .hint("write it on a line of its own there; netplay changes whole lines"));
        }
        // The host compares bytes, and those aren't known any more.
        if let Some(odd) = touched.iter().find(|a| a.odd) {
            return Err(Trouble::new(format!("line {} isn't UTF-8, and {key} stands in it", odd.number))
                .hint("write that line anew by hand"));
        }
        Ok(match (wanted, touched.last()) {
            (None, _) => touched.iter().fold(edit, |edit, a| edit.remove(&a.line)),
            (Some(value), None) => edit.append(assign(key, value)),
            (Some(value), Some(last)) => {
                edit.replace(&last.line, format!("{}{}{}", last.before, last.quote.write(value), last.after))
            }
        })
    }
}

/// The line that gives a key this value.
pub fn assign(key: &str, value: &str) -> String {
    format!("{key}={}", Quote::Bare.write(value))
}

impl Quote {
    /// A value as a shell's word, quoted in this way where it can be.
    fn write(self, value: &str) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,+@%=".contains(c);
        match self {
            Quote::Single if !value.contains('\'') => format!("'{value}'"),
            Quote::Bare if !value.is_empty() && value.chars().all(plain) => value.to_owned(),
            _ => {
                let mut word = String::from("\"");
                for c in value.chars() {
                    if matches!(c, '"' | '\\' | '$' | '`') {
                        word.push('\\');
                    }
                    word.push(c);
                }
                word + "\""
            }
        }
    }
}

/// The key of a line that starts as an assignment, and where its value begins.
fn key(line: &str) -> Option<(&str, usize)> {
    let at = line.find('=')?;
    let name = line[..at].trim_start();
    let name = name.strip_prefix("export").filter(|n| n.starts_with([' ', '\t'])).map_or(name, str::trim_start);
    is_key(name).then_some((name, at + 1))
}

/// Whether a shell takes this as the name of a variable.
pub fn is_key(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() && name.chars().all(word)
}

/// A shell's word at the start of a text.
struct Word {
    value: Option<String>,
    /// Where it ends.
    end: usize,
    quote: Quote,
    /// Whether a quote isn't closed.
    open: bool,
}

impl Word {
    fn read(text: &str) -> Word {
        let (mut value, mut known) = (String::new(), true);
        let mut within = Quote::Bare;
        let quote = match text.chars().next() {
            Some('"') => Quote::Double,
            Some('\'') => Quote::Single,
            _ => Quote::Bare,
        };
        let (mut end, mut open) = (text.len(), false);
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            match (within, c) {
                (Quote::Bare, ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')') => {
                    end = at;
                    break;
                }
                (Quote::Bare, '\'') => within = Quote::Single,
                (Quote::Single, '\'') | (Quote::Double, '"') => within = Quote::Bare,
                (Quote::Single, c) => value.push(c),
                (Quote::Bare, '"') => within = Quote::Double,
                (Quote::Bare, '\\') => match chars.next() {
                    Some((_, '\n')) => {}
                    Some((_, c)) => value.push(c),
                    None => open = true,
                },
                (Quote::Double, '\\') => match chars.next() {
                    Some((_, '\n')) => {}
                    Some((_, c)) => {
                        if !matches!(c, '"' | '\\' | '$' | '`') {
                            value.push('\\');
                        }
                        value.push(c);
                    }
                    None => open = true,
                },
                (_, '$' | '`') => known = false,
                (Quote::Bare, '~') if at == 0 => known = false,
                (_, c) => value.push(c),
            }
        }
        open |= within != Quote::Bare;
        Word { value: known.then_some(value), end, quote, open }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn parse(text: &str) -> Assignments {
        Assignments::parse(text.as_bytes())
    }

    fn value(line: &str) -> Option<String> {
        parse(line).get("K").and_then(|a| a.value.clone())
    }

    #[test]
    fn values_are_read_as_a_shell_does() {
        for (line, meaning) in [
            ("K=yes", Some("yes")),
            ("K=", Some("")),
            ("K=\"two words\"  # note", Some("two words")),
            ("  export K='a\"b'", Some("a\"b")),
            ("K=a\"b c\"'d e'\\ f", Some("ab cd e f")),
            (r#"K="a\"b\\c\$d\`e\f""#, Some(r#"a"b\c$d`e\f"#)),
            ("K=1;", Some("1")),
            ("K=1\r\n", Some("1\r")),
            ("K=a#b", Some("a#b")),
            ("K=$OTHER", None),
            ("K=\"$(id)\"", None),
            ("K=`id`", None),
            ("K=1 id", None),
            ("K =1", None),
            ("# K=1", None),
            ("K=1\nK=2", Some("2")),
            ("K=\"a\nB=1\"", Some("a\nB=1")),
            ("A=1;K=3", Some("3")),
            ("A=1 K='3' # note", Some("3")),
            ("export A=1 ; export K=3;# note", Some("3")),
            ("K=3; id", Some("3")),
            ("A='x;y' ;K=3", Some("3")),
            ("A=1;K=3 id", None),
            ("A=1;# K=3", None),
            ("A=1 && K=3", None),
            ("A=\"1\n2\";K=3", Some("3")),
        ] {
            assert_eq!(value(line).as_deref(), meaning, "{line}");
        }
        let two = parse("A=\"x\nB=1\ny\"\nC=3\nif true; then D=4; fi\n");
        assert_eq!(two.all.iter().map(|a| (a.key.as_str(), a.number)).collect::<Vec<_>>(), [("A", 1), ("C", 4)]);
        assert!(two.other && !parse("# a\n\nB=1\n").other);
    }

    #[test]
    fn edits_keep_what_is_not_asked_for() {
        let text = "# top\nMTU=\"1500\"   # was 1400\nexport ONBOOT=no\nMTU=1400\nMTU='1500'\nLONG=\"a\nb\"\n";
        let found = parse(text);
        let edit = |key: &str, wanted: Option<&str>| {
            let edit = found.edit(Edit::of("/x"), key, wanted)?;
            Ok::<_, Trouble>(String::from_utf8(edit.preview(Some(text.as_bytes())).after.unwrap()).unwrap())
        };
        assert_eq!(edit("MTU", Some("9000")).unwrap(), text.replace("MTU='1500'", "MTU='9000'"));
        assert_eq!(edit("ONBOOT", Some("yes")).unwrap(), text.replace("ONBOOT=no", "ONBOOT=yes"));
        assert_eq!(edit("NEW", Some("a b")).unwrap(), format!("{text}NEW=\"a b\"\n"));
        assert_eq!(edit("MTU", None).unwrap(), "# top\nexport ONBOOT=no\nLONG=\"a\nb\"\n");
        assert_eq!(edit("LONG", Some("x")).unwrap_err().message, "LONG goes on over several lines from line 6 on");
        for (line, key) in [("A=1;MTU=3", "MTU"), ("A=1;MTU=3", "A"), ("MTU=3; id", "MTU"), ("A=1 MTU=3", "MTU")] {
            for wanted in [Some("9000"), None] {
                let refused = parse(line).edit(Edit::of("/x"), key, wanted).unwrap_err().message;
                assert_eq!(refused, format!("{key} doesn't stand alone on line 1"), "{line}");
            }
            assert!(parse(line).edit(Edit::of("/x"), "NEW", Some("1")).is_ok());
        }
        // What isn't UTF-8 is neither edited nor taken for the character that stands for it, which is one like others.
        let odd = Assignments::parse(b"A=1 # \xff\nB=\xff\nC=\xef\xbf\xbd\n");
        let refused = |key: &str| odd.edit(Edit::of("/x"), key, Some("2")).unwrap_err().message;
        assert_eq!(refused("A"), "line 1 isn't UTF-8, and A stands in it");
        assert_eq!(refused("B"), "line 2 isn't UTF-8, and B stands in it");
        assert!(odd.has("A", Some("1")) && !odd.has("B", Some("\u{fffd}")) && odd.has("C", Some("\u{fffd}")));
        assert_eq!(odd.edit(Edit::of("/x"), "C", Some("2")), Ok(Edit::of("/x").replace("C=\u{fffd}", "C=2")));
        let commented = parse("A=\"1\"   # note\n").edit(Edit::of("/x"), "A", Some("2")).unwrap();
        assert_eq!(commented, Edit::of("/x").replace("A=\"1\"   # note", "A=\"2\"   # note"));
        assert!(found.has("MTU", Some("1500")) && found.has("NONE", None) && !found.has("MTU", None));
        assert_eq!(parse("A=$B # x\n").shown("A"), "$B # x");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_shell_reads_what_is_written(value in "[^\u{0}\r\n]{0,12}") {
            for quote in [Quote::Bare, Quote::Single, Quote::Double] {
                let line = format!("K={}", quote.write(&value));
                let parsed = parse(&line);
                prop_assert_eq!(parsed.get("K").and_then(|a| a.value.as_deref()), Some(value.as_str()), "{}", &line);
                prop_assert!(!parsed.other);
                let out = Command::new("/bin/sh").args(["-c", &format!("{line}\nprintf %s \"$K\"")]).output().unwrap();
                prop_assert_eq!(out.stdout, value.as_bytes(), "{}", line);
            }
        }

        #[test]
        fn a_shell_agrees_on_any_line(line in "(A=[ab'\"]{0,3}[; ]{1,2}){0,2}K=[a-c'\" \\\\#~;]{0,10}") {
            let parsed = parse(&line);
            let Some(Assignment { value: Some(value), long: false, .. }) = parsed.get("K") else { return Ok(()) };
            let out = Command::new("/bin/sh").args(["-c", &format!("{line}\nprintf %s \"$K\"")]).output().unwrap();
            // A text that is no shell has no meaning.
            prop_assume!(out.status.success());
            prop_assert_eq!(out.stdout, value.as_bytes(), "{}", line);
        }
    }
}
