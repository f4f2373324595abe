//! YAML as a tree that remembers where each value stands and how it was written.
//!
//! The parser is YAML 1.2 (`saphyr-parser`); what a plain scalar *means* follows YAML 1.1 as PyYAML reads it, because
//! that is what Ansible's inventories and playbooks were written for: `yes` is true, `0644` is octal. A scalar keeps
//! its text as well, so that a key that wants text gets just what was written.

mod syntax;

use crate::error::{Error, Kind};
use crate::source::{Source, Span};
use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use std::collections::HashMap;
use std::sync::Arc;

/// One value of a YAML tree. Clones are cheap: sequences and mappings are shared.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it stands.
    pub span: Span,
    /// Its own tag, as written (`!vault`); tags of YAML itself are resolved and not kept.
    pub tag: Option<Arc<str>>,
    /// What it is.
    pub value: Value,
}

/// What a [`Node`] holds.
#[derive(Clone, Debug)]
pub enum Value {
    /// A scalar as it was written.
    Scalar {
        /// Its text, after the style's own escapes.
        text: Arc<str>,
        /// Whether it was plain, so that its text has a meaning of its own (see [`Node::scalar`]); otherwise a string.
        plain: bool,
    },
    /// A truth value that an expression yielded; it has no text of its own.
    Bool(bool),
    /// A sequence.
    Seq(Arc<Vec<Node>>),
    /// A mapping in the order of the text. No key occurs twice.
    Map(Arc<Vec<(Node, Node)>>),
}

/// The meaning of a scalar by YAML 1.1.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// Empty, `~` or `null`.
    Null,
    /// `yes`, `no`, `on`, `off`, `true`, `false`.
    Bool(bool),
    /// Decimal, `0644` octal, `0x1f`, `0b1`, `1_000`, and base 60 (`1:30`).
    Int(i128),
    /// `1.5`, `1.0e+3`, `.inf`, `.nan`.
    Float(f64),
    /// Anything else, and all that was quoted.
    Str(&'a str),
}

impl Node {
    /// A plain scalar that stands at a place.
    pub fn plain(span: &Span, text: impl Into<Arc<str>>) -> Node {
        Node { span: span.clone(), tag: None, value: Value::Scalar { text: text.into(), plain: true } }
    }

    /// A string that stands at a place.
    pub fn string(span: &Span, text: impl Into<Arc<str>>) -> Node {
        Node { span: span.clone(), tag: None, value: Value::Scalar { text: text.into(), plain: false } }
    }

    /// A truth value that an expression at this place yielded.
    pub fn bool(span: &Span, value: bool) -> Node {
        Node { span: span.clone(), tag: None, value: Value::Bool(value) }
    }

    /// A sequence that stands at a place.
    pub fn seq(span: &Span, items: Vec<Node>) -> Node {
        Node { span: span.clone(), tag: None, value: Value::Seq(Arc::new(items)) }
    }

    /// A mapping that stands at a place.
    pub fn map(span: &Span, entries: Vec<(Node, Node)>) -> Node {
        Node { span: span.clone(), tag: None, value: Value::Map(Arc::new(entries)) }
    }

    /// The meaning of a scalar; nothing for a sequence or a mapping.
    pub fn scalar(&self) -> Option<Scalar<'_>> {
        match &self.value {
            Value::Scalar { text, plain: true } => Some(resolve(text)),
            Value::Scalar { text, plain: false } => Some(Scalar::Str(text)),
            Value::Bool(b) => Some(Scalar::Bool(*b)),
            Value::Seq(_) | Value::Map(_) => None,
        }
    }

    /// The text of a scalar as it was written; a computed truth value is `True` or `False`, as Jinja prints it.
    /// Nothing for a sequence or a mapping.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            Value::Bool(true) => Some("True"),
            Value::Bool(false) => Some("False"),
            Value::Seq(_) | Value::Map(_) => None,
        }
    }

    /// The text, if this is a string: a quoted scalar, or a plain one without another meaning.
    pub fn as_str(&self) -> Option<&str> {
        match self.scalar() {
            Some(Scalar::Str(s)) => Some(s),
            _ => None,
        }
    }

    /// Whether it is null.
    pub fn is_null(&self) -> bool {
        matches!(self.scalar(), Some(Scalar::Null))
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self.scalar() {
            Some(Scalar::Bool(b)) => Some(b),
            _ => None,
        }
    }

    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i128> {
        match self.scalar() {
            Some(Scalar::Int(i)) => Some(i),
            _ => None,
        }
    }

    /// The items, if it is a sequence.
    pub fn as_seq(&self) -> Option<&[Node]> {
        match &self.value {
            Value::Seq(items) => Some(items),
            _ => None,
        }
    }

    /// The entries, if it is a mapping.
    pub fn as_map(&self) -> Option<&[(Node, Node)]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The value of a key, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_map()?.iter().find(|(k, _)| k.text() == Some(key)).map(|(_, v)| v)
    }

    /// What it is, in words for an error: `an integer`, `a mapping`.
    pub fn describe(&self) -> &'static str {
        match self.scalar() {
            Some(Scalar::Null) => "nothing",
            Some(Scalar::Bool(_)) => "a boolean",
            Some(Scalar::Int(_)) => "an integer",
            Some(Scalar::Float(_)) => "a number",
            Some(Scalar::Str(_)) => "a string",
            None if self.as_seq().is_some() => "a list",
            None => "a mapping",
        }
    }

    /// The value as JSON, as PyYAML would load it: scalars by their meaning, keys as text. Integers beyond 64 bits and
    /// numbers that JSON lacks become strings.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Seq(items) => Json::Array(items.iter().map(Node::to_json).collect()),
            Value::Map(entries) => Json::Object(
                entries.iter().map(|(k, v)| (k.text().unwrap_or_default().to_owned(), v.to_json())).collect(),
            ),
            _ => match self.scalar() {
                None | Some(Scalar::Null) => Json::Null,
                Some(Scalar::Bool(b)) => Json::Bool(b),
                Some(Scalar::Int(i)) => match (i64::try_from(i), u64::try_from(i)) {
                    (Ok(i), _) => i.into(),
                    (_, Ok(u)) => u.into(),
                    _ => i.to_string().into(),
                },
                Some(Scalar::Float(f)) => {
                    serde_json::Number::from_f64(f).map_or_else(|| self.text().unwrap_or_default().into(), Json::Number)
                }
                Some(Scalar::Str(s)) => s.into(),
            },
        }
    }

    /// A tree of the values of a JSON document that stands at a place.
    pub fn from_json(span: &Span, json: &serde_json::Value) -> Node {
        use serde_json::Value as Json;
        match json {
            Json::Null => Node::plain(span, "null"),
            Json::Bool(b) => Node::bool(span, *b),
            Json::Number(n) => {
                // JSON writes `1e3`, which is a string by YAML 1.1.
                let text = n.to_string();
                if matches!(resolve(&text), Scalar::Str(_)) {
                    let written = format!("{:e}", n.as_f64().unwrap_or_default());
                    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
                    let dot = if mantissa.contains('.') { "" } else { ".0" };
                    let sign = if exponent.starts_with('-') { "" } else { "+" };
                    Node::plain(span, format!("{mantissa}{dot}e{sign}{exponent}"))
                } else {
                    Node::plain(span, text)
                }
            }
            Json::String(s) => Node::string(span, s.as_str()),
            Json::Array(items) => Node::seq(span, items.iter().map(|i| Node::from_json(span, i)).collect()),
            Json::Object(entries) => Node::map(
                span,
                entries.iter().map(|(k, v)| (Node::string(span, k.as_str()), Node::from_json(span, v))).collect(),
            ),
        }
    }
}

/// The meaning of a plain scalar by YAML 1.1 as PyYAML resolves it (yaml/resolver.py). Dates stay strings.
pub fn resolve(text: &str) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => return Scalar::Bool(true),
        "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => return Scalar::Bool(false),
        _ => {}
    }
    let first = text.as_bytes()[0];
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return Scalar::Str(text);
    }
    int(text).map(Scalar::Int).or_else(|| float(text).map(Scalar::Float)).unwrap_or(Scalar::Str(text))
}

fn int(text: &str) -> Option<i128> {
    let (sign, body) = match text.as_bytes()[0] {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let digits = |s: &str, radix: u32| {
        let s = s.replace('_', "");
        (!s.is_empty() && s.chars().all(|c| c.is_digit(radix))).then(|| i128::from_str_radix(&s, radix).ok())?
    };
    let value = if let Some(bits) = body.strip_prefix("0b") {
        digits(bits, 2)?
    } else if let Some(hex) = body.strip_prefix("0x") {
        digits(hex, 16)?
    } else if body == "0" {
        0
    } else if body.contains(':') {
        if !matches!(body.as_bytes().first(), Some(b'1'..=b'9')) {
            return None;
        }
        let mut parts = body.split(':');
        let mut value = digits(parts.next()?, 10)?;
        for part in parts {
            let small = !part.is_empty() && part.len() <= 2 && !part.contains('_');
            let part = digits(part, 10).filter(|p| small && *p < 60)?;
            value = value.checked_mul(60)?.checked_add(part)?;
        }
        value
    } else if let Some(octal) = body.strip_prefix('0') {
        digits(octal, 8)?
    } else {
        body.as_bytes().first().filter(|b| b.is_ascii_digit())?;
        digits(body, 10)?
    };
    Some(sign * value)
}

fn float(text: &str) -> Option<f64> {
    let (sign, body) = match text.as_bytes()[0] {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    match body {
        ".inf" | ".Inf" | ".INF" => return Some(sign * f64::INFINITY),
        ".nan" | ".NaN" | ".NAN" if body.len() == text.len() => return Some(f64::NAN),
        _ => {}
    }
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    let (whole, fraction) = mantissa.split_once('.')?;
    let part = |s: &str| s.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if exponent.is_none() && whole.contains(':') && part(fraction) {
        return sexagesimal(whole, fraction).map(|f| sign * f);
    }
    // PyYAML takes `+.5` for a string.
    let bare = whole.is_empty() && (body.len() < text.len() || !fraction.starts_with(|c: char| c.is_ascii_digit()));
    if !part(whole) || !part(fraction) || bare || whole.starts_with('_') {
        return None;
    }
    if let Some(exponent) = exponent {
        // PyYAML wants the sign: `1.0e3` is a string.
        let digits = exponent.strip_prefix(['+', '-'])?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
    }
    body.replace('_', "").parse::<f64>().ok().map(|f| sign * f)
}

/// A number of base 60 with a fraction: `1:30.5` is 90.5.
fn sexagesimal(whole: &str, fraction: &str) -> Option<f64> {
    let mut parts = whole.split(':');
    let first = parts.next().filter(|p| p.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut value = first.replace('_', "").parse::<f64>().ok()?;
    for part in parts {
        let digits = !part.is_empty() && part.len() <= 2 && part.bytes().all(|b| b.is_ascii_digit());
        value = value * 60.0 + part.parse::<f64>().ok().filter(|p| digits && *p < 60.0)?;
    }
    let fraction = format!("0.{}", fraction.replace('_', ""));
    Some(value + fraction.parse::<f64>().unwrap_or_default())
}

/// How deep a document may be nested.
const MAX_DEPTH: usize = 100;
/// How many values aliases may stand for, all together, beyond those that are written out.
const MAX_ALIASED: usize = 1_000_000;

/// Reads the documents of a text. An empty text has none.
///
/// # Errors
/// What the parser refuses, duplicate keys, unknown aliases, aliases that stand for too much, nesting beyond 100.
pub fn load(source: &Arc<Source>, kind: Kind) -> Result<Vec<Node>, Error> {
    let mut loader = Loader { source, kind, anchors: HashMap::new(), aliased: 0 };
    let mut parser = Parser::new_from_str(&source.text);
    let mut documents = Vec::new();
    loop {
        match loader.next(&mut parser)? {
            (Event::StreamEnd, _) => return Ok(documents),
            (Event::DocumentStart(_), _) => {
                loader.anchors.clear();
                let (event, span) = loader.next(&mut parser)?;
                documents.push(loader.node(&mut parser, event, span, 0)?.0);
            }
            _ => {}
        }
    }
}

/// Reads a text that is one document; nothing if it is empty or only comments.
///
/// # Errors
/// As [`load`], and a second document.
pub fn load_one(source: &Arc<Source>, kind: Kind) -> Result<Option<Node>, Error> {
    let mut documents = load(source, kind)?;
    if let Some(second) = documents.get(1) {
        return Err(Error::new(kind, "a second document in one file").at(&second.span).hint("remove the `---` line"));
    }
    Ok(documents.pop())
}

struct Loader<'s> {
    source: &'s Arc<Source>,
    kind: Kind,
    anchors: HashMap<usize, (Node, usize)>,
    aliased: usize,
}

type Spanned<'i> = (Event<'i>, saphyr_parser::Span);

impl Loader<'_> {
    fn error(&self, span: &Span, message: impl Into<String>) -> Error {
        Error::new(self.kind, message).at(span)
    }

    fn span(&self, span: saphyr_parser::Span) -> Span {
        let len =
            if span.end.line() == span.start.line() { span.end.col().saturating_sub(span.start.col()) } else { 1 };
        Span::at(self.source, span.start.line(), span.start.col() + 1, len)
    }

    fn next<'i>(&self, parser: &mut Parser<'i, saphyr_parser::StrInput<'i>>) -> Result<Spanned<'i>, Error> {
        match parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(e)) => {
                let span = Span::at(self.source, e.marker().line(), e.marker().col() + 1, 1);
                // The parser's own limit, which flow sequences reach before ours.
                if e.info() == "recursion limit exceeded" {
                    return Err(self.error(&span, format!("nested deeper than {MAX_DEPTH}")));
                }
                Err(syntax::explained(e.info(), self.source, &span, self.kind))
            }
            None => Ok((Event::StreamEnd, saphyr_parser::Span::default())),
        }
    }

    /// The node that an event begins, and how many values it stands for.
    fn node<'i>(
        &mut self,
        parser: &mut Parser<'i, saphyr_parser::StrInput<'i>>,
        event: Event<'i>,
        at: saphyr_parser::Span,
        depth: usize,
    ) -> Result<(Node, usize), Error> {
        let span = self.span(at);
        if depth > MAX_DEPTH {
            return Err(self.error(&span, format!("nested deeper than {MAX_DEPTH}")));
        }
        let (anchor, tag, value, size) = match event {
            Event::Alias(id) => {
                let Some((node, size)) = self.anchors.get(&id).cloned() else {
                    return Err(self.error(&span, "this alias stands inside the value that it names"));
                };
                self.aliased += size;
                if self.aliased > MAX_ALIASED {
                    let message = format!("the aliases of this file stand for more than {MAX_ALIASED} values");
                    return Err(self.error(&span, message).hint("write them out, or use variables"));
                }
                return Ok((node, size));
            }
            Event::Scalar(text, style, anchor, tag) => {
                let core = tag.as_ref().filter(|t| t.is_yaml_core_schema()).map(|t| t.suffix.clone());
                let plain = match core.as_deref() {
                    Some("str" | "binary") => false,
                    Some(_) => true,
                    None => style == ScalarStyle::Plain,
                };
                (anchor, tag, Value::Scalar { text: Arc::from(&*text), plain }, 1)
            }
            Event::SequenceStart(anchor, tag) => {
                let (mut items, mut size) = (Vec::new(), 1);
                loop {
                    let (event, at) = self.next(parser)?;
                    if matches!(event, Event::SequenceEnd) {
                        break;
                    }
                    let (item, n) = self.node(parser, event, at, depth + 1)?;
                    items.push(item);
                    size += n;
                }
                (anchor, tag, Value::Seq(Arc::new(items)), size)
            }
            Event::MappingStart(anchor, tag) => {
                let (entries, size) = self.mapping(parser, depth)?;
                (anchor, tag, Value::Map(Arc::new(entries)), size)
            }
            _ => return Err(self.error(&span, "not valid YAML: a value is missing")),
        };
        let tag = tag.filter(|t| !t.is_yaml_core_schema()).map(|t| Arc::from(written(&t)));
        let node = Node { span, tag, value };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok((node, size))
    }

    fn mapping<'i>(
        &mut self,
        parser: &mut Parser<'i, saphyr_parser::StrInput<'i>>,
        depth: usize,
    ) -> Result<(Vec<(Node, Node)>, usize), Error> {
        let (mut entries, mut size) = (Vec::<(Node, Node)>::new(), 1);
        let mut merges: Vec<Node> = Vec::new();
        let mut seen: HashMap<Arc<str>, Span> = HashMap::new();
        loop {
            let (event, at) = self.next(parser)?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let (key, n) = self.node(parser, event, at, depth + 1)?;
            let Value::Scalar { text, plain } = &key.value else {
                let error = self.error(&key.span, format!("a key must be a scalar, not {}", key.describe()));
                return Err(error.hint("a value that begins with `{{` must be quoted"));
            };
            let (text, plain) = (text.clone(), *plain);
            if let Some(first) = seen.insert(text.clone(), key.span.clone()) {
                return Err(self.error(&key.span, format!("duplicate key `{text}`")).also(&first, "first here"));
            }
            let (event, at) = self.next(parser)?;
            let (value, m) = self.node(parser, event, at, depth + 1)?;
            size += n + m;
            if &*text == "<<" && plain {
                let found = match &value.value {
                    Value::Map(_) => vec![value.clone()],
                    Value::Seq(items) if items.iter().all(|i| i.as_map().is_some()) => items.to_vec(),
                    _ => {
                        return Err(self.error(
                            &value.span,
                            format!("`<<` takes a mapping or a list of them, not {}", value.describe()),
                        ));
                    }
                };
                merges.extend(found);
            } else {
                entries.push((key, value));
            }
        }
        // Keys of the mapping itself win over merged ones, an earlier merge over a later one.
        for (key, value) in merges.iter().filter_map(Node::as_map).flatten() {
            let Value::Scalar { text, .. } = &key.value else { continue };
            if !seen.contains_key(text) {
                seen.insert(text.clone(), key.span.clone());
                entries.push((key.clone(), value.clone()));
            }
        }
        Ok((entries, size))
    }
}

fn written(tag: &Tag) -> String {
    format!("{}{}", tag.handle, tag.suffix)
}

/// Decodes the bytes of a file that is to be text: UTF-8, a byte order mark dropped, CRLF as newline.
///
/// # Errors
/// Bytes that aren't UTF-8, with the line; NUL bytes and other binary content.
pub fn decode(name: &str, bytes: Vec<u8>, kind: Kind) -> Result<Arc<Source>, Error> {
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => {
            let good = e.utf8_error().valid_up_to();
            let before = &e.as_bytes()[..good];
            let line = before.iter().filter(|b| **b == b'\n').count() + 1;
            let source = Source::new(name, String::from_utf8_lossy(e.as_bytes()));
            let column =
                before.rsplit(|b| *b == b'\n').next().map_or(0, |l| String::from_utf8_lossy(l).chars().count()) + 1;
            return Err(Error::new(kind, "not UTF-8")
                .at(&Span::at(&source, line, column, 1))
                .hint("convert the file to UTF-8, for example by `iconv -f latin1 -t utf-8`"));
        }
    };
    let text = match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    };
    let text = if text.contains('\r') { text.replace("\r\n", "\n") } else { text };
    Ok(Source::new(name, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Node {
        load_one(&Source::new("t.yaml", text), Kind::Playbook).unwrap().unwrap()
    }

    fn fails(text: &str) -> String {
        load_one(&Source::new("t.yaml", text), Kind::Playbook).unwrap_err().to_string()
    }

    #[test]
    fn scalars_mean_what_pyyaml_says() {
        use Scalar::*;
        for (text, meaning) in [
            ("yes", Bool(true)),
            ("Off", Bool(false)),
            ("y", Str("y")),
            ("~", Null),
            ("0644", Int(0o644)),
            ("0o644", Str("0o644")),
            ("089", Str("089")),
            ("9000", Int(9000)),
            ("-7", Int(-7)),
            ("1_000", Int(1000)),
            ("0x1F", Int(31)),
            ("0b11", Int(3)),
            ("1:30", Int(90)),
            ("01:30", Str("01:30")),
            ("1:60", Str("1:60")),
            ("11:22:33:44:55:06", Int(8_846_009_706)),
            ("1.10", Float(1.1)),
            ("1e3", Str("1e3")),
            ("1.0e3", Str("1.0e3")),
            ("1.0e+3", Float(1000.0)),
            ("-.inf", Float(f64::NEG_INFINITY)),
            (".5", Float(0.5)),
            ("-.5", Str("-.5")),
            ("1:30.5", Float(90.5)),
            ("-0:30.", Float(-30.0)),
            ("1:60.5", Str("1:60.5")),
            ("10.0.0.1", Str("10.0.0.1")),
            ("-", Str("-")),
            (".", Str(".")),
            ("2024-01-02", Str("2024-01-02")),
        ] {
            assert_eq!(resolve(text), meaning, "{text}");
        }
    }

    #[test]
    fn text_and_place_are_kept() {
        let node = one("a:\n  mode: 0644\n  b: \"yes\"\n  c: |\n    x\n");
        let mode = node.get("a").unwrap().get("mode").unwrap();
        assert_eq!((mode.text(), mode.as_int()), (Some("0644"), Some(0o644)));
        assert_eq!(mode.span.to_string(), "t.yaml:2:9");
        assert_eq!(mode.span.len, 4);
        assert_eq!(node.get("a").unwrap().get("b").unwrap().as_bool(), None);
        assert_eq!(node.get("a").unwrap().get("c").unwrap().text(), Some("x\n"));
    }

    #[test]
    fn merges_and_tags() {
        let node = one("base: &b {x: 1, y: 2}\nd: {<<: *b, y: 3}\nv: !vault |\n  $ANSIBLE\ns: !!str 12\n");
        let d = node.get("d").unwrap();
        assert_eq!(d.get("x").unwrap().as_int(), Some(1));
        assert_eq!(d.get("y").unwrap().as_int(), Some(3));
        assert_eq!(node.get("v").unwrap().tag.as_deref(), Some("!vault"));
        assert_eq!(node.get("s").unwrap().as_str(), Some("12"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(fails("a: 1\nb: 2\na: 3\n").starts_with("duplicate key `a`\n  --> t.yaml:3:1"));
        assert!(fails("a:\n\t- b\n").contains("never by tabs"), "{}", fails("a:\n\t- b\n"));
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..10 {
            bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "));
        }
        assert!(fails(&bomb).contains("aliases"), "{}", fails(&bomb));
        assert!(fails(&"[".repeat(150)).contains("nested deeper"), "{}", fails(&"[".repeat(150)));
        assert!(fails(&"[".repeat(5000)).contains("t.yaml:1:"));
        assert!(fails("a: &x [*x]").contains("inside the value"));
        assert!(load_one(&Source::new("t", "# nothing\n"), Kind::Playbook).unwrap().is_none());
    }

    #[test]
    fn files_are_decoded() {
        assert_eq!(decode("f", b"\xef\xbb\xbfa: 1\r\nb: 2\r\n".to_vec(), Kind::Playbook).unwrap().text, "a: 1\nb: 2\n");
        let error = decode("f", b"a: 1\nb: \xff\n".to_vec(), Kind::Playbook).unwrap_err().to_string();
        assert!(error.contains("f:2:4"), "{error}");
    }

    #[test]
    fn json_goes_through() {
        let span = Span::start(&Source::new("j", ""));
        let json = serde_json::json!({"a": [1, 1.5, true, null, "yes"], "b": {"c": 1e30}});
        assert_eq!(Node::from_json(&span, &json).to_json(), json);
    }
}
