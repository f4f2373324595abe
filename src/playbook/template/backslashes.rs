//! Backslashes in the strings of expressions.
//!
//! In a playbook they stand for themselves, as with Ansible: `regex_replace('(\d+)', '\1')` has no escapes that Jinja
//! would take for its own. (In template files it is Jinja's rule that holds.) For the engine they are doubled; but for
//! one in front of the string's own quote, which keeps the string from ending there.

/// The same text with the backslashes doubled that stand in strings of expressions. `code`: all of it is one.
pub(super) fn doubled(text: &str, code: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut last = 0;
    for at in places(text, code) {
        out.push_str(&text[last..at]);
        out.push('\\');
        last = at;
    }
    out + &text[last..]
}

/// The byte of a text that a byte of the doubled one comes from.
pub(super) fn origin(text: &str, code: bool, doubled: usize) -> usize {
    let places = places(text, code);
    doubled - places.iter().enumerate().take_while(|(added, at)| **at + added < doubled).count()
}

/// Where a backslash is put in.
fn places(text: &str, code: bool) -> Vec<usize> {
    let mut found = Vec::new();
    if !text.contains('\\') {
        return found;
    }
    let bytes = text.as_bytes();
    let starts = |at: usize, what: &str| bytes[at..].starts_with(what.as_bytes());
    let mut inside = code;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'\'' | b'"') if inside => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    if bytes[at] == b'\\' {
                        match bytes.get(at + 1) {
                            Some(next) if *next == quote => {}
                            Some(b'\\') => found.extend([at, at + 1]),
                            _ => found.push(at),
                        }
                        at += 1;
                    }
                    at += 1;
                }
            }
            b'}' | b'%' if inside && !code && (starts(at, "}}") || starts(at, "%}")) => {
                inside = false;
                at += 1;
            }
            b'{' if !inside && (starts(at, "{{") || starts(at, "{%")) => {
                inside = true;
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_in_strings_of_expressions_are_doubled() {
        for (text, code, wanted) in [
            (r"a\b {{ x }}", false, r"a\b {{ x }}"),
            (r"a\b {{ '\d' }} \", false, r"a\b {{ '\\d' }} \"),
            (r"x | f('\1\2')", true, r"x | f('\\1\\2')"),
            (r"f('it\'s \n')", true, r"f('it\'s \\n')"),
            (r"f('a\\') ~ '\n'", true, r"f('a\\\\') ~ '\\n'"),
            ("f(\"a'\\t\")", true, "f(\"a'\\\\t\")"),
            (r"{% if '}}\d' %}\{% endif %}", false, r"{% if '}}\\d' %}\{% endif %}"),
        ] {
            assert_eq!(doubled(text, code), wanted);
        }
        let text = r"f('\d\d') + oops";
        let at = doubled(text, true).find("oops").unwrap();
        assert_eq!(origin(text, true, at), text.find("oops").unwrap());
        assert_eq!(origin(text, true, 2), 2);
    }
}
