//! Values of INI inventories: what is a Python literal has its value, anything else is the text itself.
//!
//! Ansible's INI reader hands each value to Python's `ast.literal_eval`, on host lines and in `:vars` alike: `1`,
//! `1.5`, `True`, `None`, `'x'`, `[1, 'a']`, `{'k': 1}`, `1, 2` (a list) have a meaning; `true`, `yes`, `0644` and
//! `10.0.0.1` are no literals and so are strings. Where the text has the same meaning in YAML, the node keeps it as it
//! was written (`1.10` stays `1.10`). Complex numbers and `\N{…}` aren't read: such a value is its text.

use crate::source::Span;
use crate::yaml::{Node, Scalar, resolve};

/// How deep a literal may be nested; Python gives up at 200 and takes the text then, and so do we.
const MAX_DEPTH: usize = 100;

/// The value of a text that stands at a place.
pub(super) fn value(text: &str, place: &Span) -> Node {
    let mut parser = Parser { text, at: text.len() - text.trim_start_matches([' ', '\t']).len(), place };
    match parser.sequence(None, 0) {
        Some((items, comma)) if parser.end() => match (comma, items.len()) {
            (false, 1) => items.into_iter().next().unwrap_or_else(|| Node::string(place, text)),
            (_, 0) => Node::string(place, text),
            _ => Node::seq(place, items),
        },
        _ => Node::string(place, text),
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    place: &'t Span,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Skips blanks, and a comment: Python knows them in a literal.
    fn blanks(&mut self) {
        let rest = self.rest().trim_start_matches([' ', '\t', '\x0c']);
        self.at = if rest.starts_with('#') { self.text.len() } else { self.text.len() - rest.len() };
    }

    fn end(&mut self) -> bool {
        self.blanks();
        self.rest().is_empty()
    }

    fn take(&mut self, token: char) -> bool {
        self.blanks();
        let found = self.peek() == Some(token);
        self.at += if found { token.len_utf8() } else { 0 };
        found
    }

    fn closes(&mut self, close: Option<char>) -> bool {
        match close {
            Some(token) => self.take(token),
            None => self.end(),
        }
    }

    /// Values between commas up to the closing token, or to the end; and whether there was a comma.
    fn sequence(&mut self, close: Option<char>, depth: usize) -> Option<(Vec<Node>, bool)> {
        let (mut items, mut comma) = (Vec::new(), false);
        loop {
            if self.closes(close) {
                return Some((items, comma));
            }
            if !items.is_empty() && !comma {
                return None;
            }
            items.push(self.value(depth)?);
            if self.take(',') {
                comma = true;
            } else if self.closes(close) {
                return Some((items, comma));
            } else {
                return None;
            }
        }
    }

    fn value(&mut self, depth: usize) -> Option<Node> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.blanks();
        match self.peek()? {
            '[' => {
                self.at += 1;
                Some(Node::seq(self.place, self.sequence(Some(']'), depth + 1)?.0))
            }
            '(' => {
                self.at += 1;
                let (mut items, comma) = self.sequence(Some(')'), depth + 1)?;
                if items.len() == 1 && !comma { items.pop() } else { Some(Node::seq(self.place, items)) }
            }
            '{' => {
                self.at += 1;
                self.braces(depth + 1)
            }
            c if c.is_ascii_digit() || matches!(c, '+' | '-' | '.') => self.number(),
            _ => self.word(),
        }
    }

    /// A dictionary, or a set, which Ansible makes a list.
    fn braces(&mut self, depth: usize) -> Option<Node> {
        let (mut entries, mut items) = (Vec::<(Node, Node)>::new(), Vec::<Node>::new());
        loop {
            if self.take('}') {
                break;
            }
            let key = self.value(depth)?;
            if self.take(':') {
                key.text()?;
                let value = self.value(depth)?;
                entries.retain(|(k, _)| k.text() != key.text());
                entries.push((key, value));
            } else if items.iter().all(|i| i.scalar() != key.scalar()) {
                items.push(key);
            }
            if !self.take(',') && !self.rest().starts_with('}') {
                return None;
            }
        }
        match (entries.is_empty(), items.is_empty()) {
            (_, true) => Some(Node::map(self.place, entries)),
            (true, false) => Some(Node::seq(self.place, items)),
            (false, false) => None,
        }
    }

    fn number(&mut self) -> Option<Node> {
        let start = self.at;
        if matches!(self.peek(), Some('+' | '-')) {
            self.at += 1;
            self.blanks();
        }
        if self.rest().starts_with("...") && start == self.at {
            self.at += 3;
            return Some(Node::string(self.place, "..."));
        }
        let body = self.rest();
        let mut before = ' ';
        let length = body
            .find(|c: char| {
                let part =
                    c.is_ascii_alphanumeric() || matches!(c, '_' | '.') || (matches!(c, '+' | '-') && before == 'e');
                before = c.to_ascii_lowercase();
                !part
            })
            .unwrap_or(body.len());
        // `0xe+1` comes in one piece here, which is no number; to Python it is a sum, and no literal either.
        let digits = &body[..length];
        self.at += length;
        if body[length..].starts_with(|c: char| c.is_alphanumeric()) {
            return None;
        }
        let negative = self.text[start..].starts_with('-');
        let written = &self.text[start..self.at];
        if let Some(n) = integer(digits) {
            let n = if negative { n.checked_neg()? } else { n };
            let same = resolve(written) == Scalar::Int(n);
            return Some(Node::plain(self.place, if same { written.to_owned() } else { n.to_string() }));
        }
        let n = float(digits)? * if negative { -1.0 } else { 1.0 };
        if resolve(written) == Scalar::Float(n) {
            return Some(Node::plain(self.place, written));
        }
        Some(match serde_json::Number::from_f64(n) {
            Some(number) => Node::from_json(self.place, &serde_json::Value::Number(number)),
            None => Node::plain(self.place, if negative { "-.inf" } else { ".inf" }),
        })
    }

    fn word(&mut self) -> Option<Node> {
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let word = &rest[..length];
        if rest[length..].starts_with(['"', '\'']) {
            return self.strings();
        }
        self.at += length;
        match word {
            "True" => Some(Node::plain(self.place, "True")),
            "False" => Some(Node::plain(self.place, "False")),
            "None" => Some(Node::plain(self.place, "null")),
            "set" if self.take('(') && self.take(')') => Some(Node::seq(self.place, Vec::new())),
            _ => None,
        }
    }

    /// One or several string literals; neighbours are joined. Bytes are text to Ansible.
    fn strings(&mut self) -> Option<Node> {
        let (mut text, mut bytes) = (Vec::new(), None);
        loop {
            let rest = self.rest();
            let prefix = &rest[..rest.find(['"', '\''])?];
            let (raw, is_bytes) = match prefix.to_ascii_lowercase().as_str() {
                "" | "u" => (false, false),
                "r" => (true, false),
                "b" => (false, true),
                "br" | "rb" => (true, true),
                _ => return None,
            };
            if *bytes.get_or_insert(is_bytes) != is_bytes {
                return None;
            }
            self.at += prefix.len();
            self.string(raw, is_bytes, &mut text)?;
            self.blanks();
            let rest = self.rest();
            let next = rest.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            if !(rest.len() - next.len() <= 2 && next.starts_with(['"', '\''])) {
                return Some(Node::string(self.place, String::from_utf8(text).ok()?));
            }
        }
    }

    fn string(&mut self, raw: bool, bytes: bool, out: &mut Vec<u8>) -> Option<()> {
        let quote = self.peek()?;
        let triple = String::from(quote).repeat(3);
        let end = if self.rest().starts_with(&triple) { triple } else { String::from(quote) };
        self.at += end.len();
        loop {
            if self.rest().starts_with(&end) {
                self.at += end.len();
                return Some(());
            }
            let c = self.peek()?;
            self.at += c.len_utf8();
            if bytes && !c.is_ascii() {
                return None;
            }
            if c == '\\' {
                let escaped = self.peek()?;
                self.at += escaped.len_utf8();
                if raw {
                    push(out, c);
                    push(out, escaped);
                } else {
                    self.escape(escaped, bytes, out)?;
                }
            } else {
                push(out, c);
            }
        }
    }

    fn escape(&mut self, c: char, bytes: bool, out: &mut Vec<u8>) -> Option<()> {
        let simple = match c {
            '\\' | '\'' | '"' => c,
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '0'..='7' => {
                let rest = &self.text[self.at - 1..];
                let length = rest.bytes().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
                let code = u32::from_str_radix(&rest[..length], 8).ok()?;
                self.at += length - 1;
                return code_point(code, bytes, out);
            }
            'x' => return self.code(2, bytes, out),
            'u' if !bytes => return self.code(4, bytes, out),
            'U' if !bytes => return self.code(8, bytes, out),
            'N' if !bytes => return None,
            other => {
                out.push(b'\\');
                other
            }
        };
        push(out, simple);
        Some(())
    }

    fn code(&mut self, length: usize, bytes: bool, out: &mut Vec<u8>) -> Option<()> {
        let digits = self.rest().get(..length).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        self.at += length;
        code_point(u32::from_str_radix(digits, 16).ok()?, bytes, out)
    }
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn code_point(code: u32, bytes: bool, out: &mut Vec<u8>) -> Option<()> {
    if bytes {
        out.push(u8::try_from(code).ok()?);
    } else {
        push(out, char::from_u32(code)?);
    }
    Some(())
}

/// Digits of a base, single underscores between them, or one before the first if `lead`.
fn grouped(text: &str, lead: bool, base: u32) -> Option<String> {
    let text = if lead { text.strip_prefix('_').unwrap_or(text) } else { text };
    let whole = text.split('_').all(|part| !part.is_empty() && part.chars().all(|c| c.is_digit(base)));
    whole.then(|| text.replace('_', ""))
}

fn integer(text: &str) -> Option<i128> {
    let lower = text.to_ascii_lowercase();
    for (prefix, base) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = lower.strip_prefix(prefix) {
            return i128::from_str_radix(&grouped(digits, true, base)?, base).ok();
        }
    }
    let digits = grouped(text, false, 10)?;
    // `0644` is a syntax error to Python, `00` is zero.
    if digits.starts_with('0') && digits.bytes().any(|b| b != b'0') {
        return None;
    }
    digits.parse().ok()
}

fn float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let part = |t: &str| t.is_empty() || grouped(t, false, 10).is_some();
    match mantissa.split_once('.') {
        Some((whole, fraction)) if part(whole) && part(fraction) && mantissa.len() > 1 => {}
        None if exponent.is_some() && grouped(mantissa, false, 10).is_some() => {}
        _ => return None,
    }
    if let Some(exponent) = exponent {
        grouped(exponent.strip_prefix(['+', '-']).unwrap_or(exponent), false, 10)?;
    }
    text.replace('_', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use serde_json::json;

    fn read(text: &str) -> Node {
        value(text, &Span::start(&Source::new("hosts", text)))
    }

    /// Each pair was printed by Python 3.11: `ast.literal_eval`, or the text where it raises.
    #[test]
    fn values_mean_what_python_says() {
        for (text, meaning) in [
            ("1", json!(1)),
            ("-1", json!(-1)),
            ("+1", json!(1)),
            ("1_000", json!(1000)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("0b11", json!(3)),
            ("00", json!(0)),
            ("0644", json!("0644")),
            ("1__0", json!("1__0")),
            ("1.10", json!(1.1)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            (".", json!(".")),
            ("01.5", json!(1.5)),
            ("1e3", json!(1000.0)),
            ("1E-2", json!(0.01)),
            ("1e", json!("1e")),
            ("True", json!(true)),
            ("true", json!("true")),
            ("yes", json!("yes")),
            ("None", json!(null)),
            ("null", json!("null")),
            ("...", json!("...")),
            ("10.0.0.1", json!("10.0.0.1")),
            ("1:30", json!("1:30")),
            ("12abc", json!("12abc")),
            ("", json!("")),
            ("a b", json!("a b")),
            ("'x'", json!("x")),
            ("\"x\"", json!("x")),
            ("'a' \"b\"", json!("ab")),
            ("'a' b'c'", json!("'a' b'c'")),
            ("b'bytes'", json!("bytes")),
            ("r'\\d'", json!("\\d")),
            ("f'x'", json!("f'x'")),
            ("u'x'", json!("x")),
            ("'''t'''", json!("t")),
            ("'a\\tb\\x41\\u00e9\\101\\q'", json!("a\tbA\u{e9}A\\q")),
            ("'open", json!("'open")),
            ("[1, 'a', [True]]", json!([1, "a", [true]])),
            ("[1, a]", json!("[1, a]")),
            ("[]", json!([])),
            ("[,]", json!("[,]")),
            ("[1,]", json!([1])),
            ("[1 2]", json!("[1 2]")),
            ("()", json!([])),
            ("(1)", json!(1)),
            ("(1,)", json!([1])),
            ("1,2", json!([1, 2])),
            ("1,", json!([1])),
            (",", json!(",")),
            ("{'a': 1, 'b': {'c': None}}", json!({"a": 1, "b": {"c": null}})),
            ("{'a': 1, 'a': 2}", json!({"a": 2})),
            ("{}", json!({})),
            ("{1, 2, 1}", json!([1, 2])),
            ("{'a': 1, 2}", json!("{'a': 1, 2}")),
            ("{{ x }}", json!("{{ x }}")),
            ("set()", json!([])),
            ("1 # one", json!(1)),
            ("'a' # b", json!("a")),
            ("a # b", json!("a # b")),
            ("1 + 1", json!("1 + 1")),
            ("- 1", json!(-1)),
            ("--1", json!("--1")),
            ("0xe+1", json!("0xe+1")),
            ("-o Port=22", json!("-o Port=22")),
        ] {
            assert_eq!(read(text).to_json(), meaning, "{text}");
        }
        assert_eq!(read("1.10").text(), Some("1.10"));
        assert_eq!(read(&"[".repeat(300)).text(), Some("[".repeat(300).as_str()));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[-+.0-9xeEbru'\"\\\\\\[\\](){},:#_ é]{0,16}") {
            let _ = read(&text);
        }
    }
}
