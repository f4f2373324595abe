//! Filters, tests and functions that Ansible has and Jinja hasn't.

use super::value::{argument, bounded, place, spelt, to_value};
use crate::error::{Kind, suggest};
use crate::source::Source;
use crate::yaml::{self, Node, Scalar, Value as Tree};
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use regex::Regex;
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, RwLock};

/// The filters there are, for a misspelt one.
const FILTERS: &[&str] = &[
    "abs",
    "attr",
    "basename",
    "batch",
    "bool",
    "capitalize",
    "combine",
    "count",
    "d",
    "default",
    "dict2items",
    "dictsort",
    "dirname",
    "first",
    "float",
    "format",
    "from_json",
    "from_yaml",
    "groupby",
    "indent",
    "int",
    "items",
    "items2dict",
    "join",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "mandatory",
    "map",
    "max",
    "min",
    "quote",
    "regex_replace",
    "regex_search",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "select",
    "selectattr",
    "slice",
    "sort",
    "split",
    "string",
    "sum",
    "ternary",
    "title",
    "to_json",
    "to_nice_json",
    "to_nice_yaml",
    "to_yaml",
    "trim",
    "unique",
    "upper",
    "urlencode",
    "zip",
];

/// The tests there are.
const TESTS: &[&str] = &[
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "eq",
    "even",
    "false",
    "float",
    "ge",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "startingwith",
    "string",
    "true",
    "undefined",
    "upper",
    "version",
];

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("to_json", |v: &Value| json(v, None));
    env.add_filter("to_nice_json", |v: &Value, kwargs: Kwargs| {
        let indent = kwargs.get::<Option<usize>>("indent")?.unwrap_or(4);
        kwargs.assert_all_used()?;
        json(v, Some(indent))
    });
    env.add_filter("to_yaml", |v: &Value, kwargs: Kwargs| to_yaml(v, &kwargs, 2));
    env.add_filter("to_nice_yaml", |v: &Value, kwargs: Kwargs| to_yaml(v, &kwargs, 4));
    env.add_filter("from_json", from_json);
    env.add_filter("from_yaml", from_yaml);
    env.add_filter("regex_replace", regex_replace);
    env.add_filter("regex_search", regex_search);
    env.add_filter("combine", combine);
    env.add_filter("dict2items", dict2items);
    env.add_filter("items2dict", items2dict);
    env.add_filter("bool", truth);
    env.add_filter("ternary", |v: &Value, yes: Value, no: Value, null: Option<Value>| match null {
        Some(null) if v.is_none() => null,
        _ if v.is_true() => yes,
        _ => no,
    });
    env.add_filter("mandatory", |v: &Value, message: Option<String>| {
        if !v.is_undefined() {
            return Ok(v.clone());
        }
        Err(bad(message.unwrap_or_else(|| "a mandatory variable isn't defined".to_owned())))
    });
    env.add_filter("basename", |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned());
    env.add_filter("dirname", |path: &str| path.rsplit_once('/').map_or("", |(d, _)| d).to_owned());
    env.add_filter("quote", |v: &Value| {
        let text = text(v);
        if text.contains('\0') {
            Err(bad("a NUL character can't be quoted"))
        } else {
            Ok(crate::shell::python_quote(&text))
        }
    });
    env.add_test("version", version);
    for name in ["lookup", "query", "q"] {
        env.add_function(name, move |kind: Rest<Value>| -> Result<Value, Error> {
            let kind = kind.first().map(ToString::to_string).unwrap_or_default();
            let instead = match &*kind {
                "env" => "give the value by -e name=\"$VARIABLE\"",
                "file" | "template" => "use `src` of copy or template, or put the text into a file of `vars_files`",
                "vars" => "name the variable, or use `hostvars[inventory_hostname][name]`",
                _ => "put the value into a variable, or give it by -e @FILE",
            };
            Err(bad(format!("`{name}` isn't supported, as it reads from this machine: {instead}")))
        });
    }
}

/// What the engine calls unknown, by name, and the known names. It doesn't say which test `select` and the like were
/// given: that is the first word in quotes of the call, of `selectattr` the second.
pub(super) fn unknown(kind: ErrorKind, detail: &str, call: &str, functions: &[&str]) -> Option<(String, String)> {
    let (what, known) = match kind {
        ErrorKind::UnknownFilter => ("filter", FILTERS),
        ErrorKind::UnknownTest => ("test", TESTS),
        ErrorKind::UnknownFunction => ("function", functions),
        _ => return None,
    };
    let word = detail.strip_suffix(" is unknown").and_then(|told| told.rsplit(' ').next());
    let mut quoted = call.split(['\'', '"']).skip(1).step_by(2);
    let name = word.or_else(|| quoted.nth(usize::from(call.contains("attr("))))?;
    let short = name.rsplit('.').next().unwrap_or(name);
    Some((format!("there is no {what} `{name}`"), suggest(short, known)))
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// The text of a value, a number as it was written.
fn text(value: &Value) -> String {
    spelt(value).map_or_else(|| value.to_string(), |t| t.to_string())
}

/// JSON with the blanks that Python puts in: `{"a": 1, "b": [2, 3]}`.
fn json(value: &Value, indent: Option<usize>) -> Result<String, Error> {
    let json = argument(value)?.to_json();
    let mut out = String::new();
    if indent.is_some_and(|indent| indent > MAX_INDENT) {
        return Err(bad(format!("`indent` is at most {MAX_INDENT}")));
    }
    write_json(&json, indent, 0, &mut out)?;
    Ok(out)
}

/// How far a level of JSON can be indented.
const MAX_INDENT: usize = 100;

fn write_json(json: &serde_json::Value, indent: Option<usize>, depth: usize, out: &mut String) -> Result<(), Error> {
    bounded(out.len())?;
    let line = |depth: usize, out: &mut String| {
        if let Some(indent) = indent {
            out.push('\n');
            out.push_str(&" ".repeat(indent * depth));
        }
    };
    let separator = if indent.is_some() { "," } else { ", " };
    match json {
        serde_json::Value::Array(items) if !items.is_empty() => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { separator } else { "" });
                line(depth + 1, out);
                write_json(item, indent, depth + 1, out)?;
            }
            line(depth, out);
            out.push(']');
        }
        serde_json::Value::Object(entries) if !entries.is_empty() => {
            out.push('{');
            for (i, (key, item)) in entries.iter().enumerate() {
                out.push_str(if i > 0 { separator } else { "" });
                line(depth + 1, out);
                let _ = write!(out, "{}: ", serde_json::Value::from(&**key));
                write_json(item, indent, depth + 1, out)?;
            }
            line(depth, out);
            out.push('}');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
    Ok(())
}

fn from_json(value: &str) -> Result<Value, Error> {
    let json = serde_json::from_str(value).map_err(|e| bad(format!("not valid JSON: {e}")))?;
    Ok(to_value(&Node::from_json(&place(), &json)))
}

fn from_yaml(value: &str) -> Result<Value, Error> {
    let node = yaml::load_one(&Source::new("from_yaml", value), Kind::Playbook).map_err(|e| bad(e.message))?;
    Ok(node.map_or(Value::from(()), |n| to_value(&n)))
}

/// Block style, keys in their order.
fn to_yaml(value: &Value, kwargs: &Kwargs, default: usize) -> Result<String, Error> {
    let indent = kwargs.get::<Option<usize>>("indent")?.unwrap_or(default).clamp(2, 9);
    kwargs.assert_all_used()?;
    let node = argument(value)?;
    let mut out = String::new();
    write_yaml(&node, indent, 0, &mut out)?;
    Ok(format!("{}\n", out.strip_prefix('\n').unwrap_or(&out)))
}

fn write_yaml(node: &Node, indent: usize, depth: usize, out: &mut String) -> Result<(), Error> {
    bounded(out.len())?;
    let pad = " ".repeat(indent * depth);
    match &node.value {
        Tree::Seq(items) if items.is_empty() => out.push_str("[]"),
        Tree::Map(entries) if entries.is_empty() => out.push_str("{}"),
        Tree::Seq(items) => {
            for item in items.iter() {
                let _ = write!(out, "\n{pad}-{}", " ".repeat(indent - 1));
                let mut inner = String::new();
                write_yaml(item, indent, depth + 1, &mut inner)?;
                // What would begin on a line of its own stands behind the dash.
                out.push_str(inner.trim_start_matches('\n').trim_start_matches(' '));
            }
        }
        Tree::Map(entries) => {
            for (key, item) in entries.iter() {
                let _ = write!(out, "\n{pad}{}:", yaml_scalar(key));
                if matches!(&item.value, Tree::Seq(s) if !s.is_empty()) || item.as_map().is_some_and(|m| !m.is_empty())
                {
                    write_yaml(item, indent, depth + 1, out)?;
                } else {
                    out.push(' ');
                    write_yaml(item, indent, depth + 1, out)?;
                }
            }
        }
        _ => out.push_str(&yaml_scalar(node)),
    }
    Ok(())
}

fn yaml_scalar(node: &Node) -> String {
    match &node.value {
        Tree::Bool(b) => b.to_string(),
        Tree::Scalar { text, plain: true } if !matches!(node.scalar(), Some(Scalar::Str(_))) => {
            if text.is_empty() {
                "null".to_owned()
            } else {
                text.to_string()
            }
        }
        _ => {
            let text = node.text().unwrap_or_default();
            let odd = |c: char| c.is_control() || "\"'#&*!|>%@`{}[],?:\\".contains(c);
            let simple = matches!(yaml::resolve(text), Scalar::Str(_))
                && !text.contains(odd)
                && !text.starts_with(['-', '=', '~', ' ', '.'])
                && !text.ends_with(' ')
                // A key that would be taken for a merge.
                && text != "<<"
                && !text.is_empty();
            if simple {
                return text.to_owned();
            }
            // A JSON string is one of YAML's double-quoted ones, but for characters that YAML wants escaped.
            let mut out = String::new();
            for c in serde_json::Value::from(text).to_string().chars() {
                match c {
                    '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                        let _ = write!(out, "\\u{:04x}", u32::from(c));
                    }
                    c => out.push(c),
                }
            }
            out
        }
    }
}

static PATTERNS: LazyLock<RwLock<HashMap<String, Arc<Regex>>>> = LazyLock::new(RwLock::default);

fn pattern(written: &str, kwargs: &Kwargs) -> Result<Arc<Regex>, Error> {
    let ignorecase = kwargs.get::<Option<bool>>("ignorecase")?.unwrap_or_default();
    let multiline = kwargs.get::<Option<bool>>("multiline")?.unwrap_or_default();
    let flags = match (ignorecase, multiline) {
        (false, false) => "",
        (true, false) => "(?i)",
        (false, true) => "(?m)",
        (true, true) => "(?im)",
    };
    let written = format!("{flags}{written}");
    if let Some(found) = PATTERNS.read().unwrap_or_else(|e| e.into_inner()).get(&written) {
        return Ok(found.clone());
    }
    let made = Regex::new(&written).map_err(|e| {
        // The last line says what is wrong; those before it show where.
        let why = e.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        bad(format!("the regular expression `{written}` can't be used: {why}"))
    })?;
    let made = Arc::new(made);
    PATTERNS.write().unwrap_or_else(|e| e.into_inner()).insert(written, made.clone());
    Ok(made)
}

/// Python's `\1` and `\g<name>` as the engine of regular expressions wants them.
fn replacement(python: &str) -> String {
    let mut out = String::new();
    let mut rest = python.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek().copied()) {
            ('$', _) => out.push_str("$$"),
            ('\\', Some(d)) if d.is_ascii_digit() => {
                let mut number = String::new();
                while let Some(d) = rest.next_if(char::is_ascii_digit) {
                    number.push(d);
                }
                let _ = write!(out, "${{{number}}}");
            }
            ('\\', Some('g')) => {
                rest.next();
                let name: String = rest.by_ref().skip_while(|c| *c == '<').take_while(|c| *c != '>').collect();
                let _ = write!(out, "${{{name}}}");
            }
            ('\\', Some('\\')) => {
                rest.next();
                out.push('\\');
            }
            ('\\', Some('n')) => {
                rest.next();
                out.push('\n');
            }
            ('\\', Some('t')) => {
                rest.next();
                out.push('\t');
            }
            _ => out.push(c),
        }
    }
    out
}

fn regex_replace(value: &Value, regex: &str, with: Option<&str>, kwargs: Kwargs) -> Result<String, Error> {
    let pattern = pattern(regex, &kwargs)?;
    let count = kwargs.get::<Option<usize>>("count")?.unwrap_or(0);
    kwargs.assert_all_used()?;
    let (text, with) = (text(value), replacement(with.unwrap_or_default()));
    // Each match may become any length, so that it is counted while it is written.
    let length = Cell::new(text.len());
    let expanded = |found: &regex::Captures<'_>| {
        let mut out = String::new();
        if bounded(length.get()).is_ok() {
            found.expand(&with, &mut out);
            length.set(length.get() + out.len());
        }
        out
    };
    let replaced = pattern.replacen(&text, count, expanded).into_owned();
    bounded(length.get()).map(|()| replaced)
}

/// The methods of Python. Those of the engine's crate are free to `format` a number as wide as memory.
pub(super) fn method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let ("format", Some(text)) = (name, value.as_str()) {
        bounded(widths(text))?;
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// The sum of the numbers in the braces of a format.
fn widths(format: &str) -> usize {
    let fields = format.split('{').skip(1).filter_map(|field| field.split_once('}'));
    let numbers = fields.flat_map(|(field, _)| field.split(|c: char| !c.is_ascii_digit()));
    let widths = numbers.filter(|n| !n.is_empty()).map(|n| n.parse().unwrap_or(usize::MAX));
    widths.fold(0, usize::saturating_add)
}

/// The match; with group arguments (`'\\1'`, `'\\g<name>'`) a list of these; null where nothing matches.
fn regex_search(value: &Value, regex: &str, groups: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let pattern = pattern(regex, &kwargs)?;
    kwargs.assert_all_used()?;
    let text = text(value);
    let Some(found) = pattern.captures(&text) else { return Ok(Value::from(())) };
    if groups.is_empty() {
        return Ok(Value::from(&found[0]));
    }
    let mut out = Vec::new();
    for group in groups.iter() {
        let written = group.to_string();
        let name = written.trim_start_matches('\\').trim_start_matches("g<").trim_end_matches('>');
        let found = match name.parse::<usize>() {
            Ok(number) if number < pattern.captures_len() => found.get(number),
            Err(_) if pattern.capture_names().flatten().any(|n| n == name) => found.name(name),
            _ => return Err(bad(format!("the regular expression has no group `{written}`"))),
        };
        out.push(found.map_or(Value::from(()), |m| Value::from(m.as_str())));
    }
    Ok(Value::from(out))
}

/// Mappings merged, later ones winning; with `recursive=true` those inside too.
fn combine(first: &Value, others: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let recursive = kwargs.get::<Option<bool>>("recursive")?.unwrap_or_default();
    kwargs.assert_all_used()?;
    let mut all = Vec::new();
    for value in std::iter::once(first).chain(others.iter()) {
        let node = argument(value)?;
        match &node.value {
            Tree::Seq(items) => all.extend(items.iter().cloned()),
            _ => all.push(node),
        }
    }
    let mut result = Node::map(&place(), Vec::new());
    for node in all {
        if node.as_map().is_none() {
            return Err(bad(format!("`combine` takes mappings, not {}", node.describe())));
        }
        result = merge(&result, &node, recursive);
    }
    Ok(to_value(&result))
}

fn merge(below: &Node, above: &Node, recursive: bool) -> Node {
    let mut entries = below.as_map().unwrap_or_default().to_vec();
    for (key, value) in above.as_map().unwrap_or_default() {
        match entries.iter_mut().find(|(k, _)| k.text() == key.text()) {
            Some((_, old)) if recursive && old.as_map().is_some() && value.as_map().is_some() => {
                *old = merge(old, value, true);
            }
            Some((_, old)) => *old = value.clone(),
            None => entries.push((key.clone(), value.clone())),
        }
    }
    Node::map(&above.span, entries)
}

fn names(kwargs: &Kwargs) -> Result<(String, String), Error> {
    let key = kwargs.get::<Option<String>>("key_name")?.unwrap_or_else(|| "key".to_owned());
    let value = kwargs.get::<Option<String>>("value_name")?.unwrap_or_else(|| "value".to_owned());
    kwargs.assert_all_used()?;
    Ok((key, value))
}

fn dict2items(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let (key_name, value_name) = names(&kwargs)?;
    let node = argument(value)?;
    let Some(entries) = node.as_map() else {
        return Err(bad(format!("`dict2items` takes a mapping, not {}", node.describe())));
    };
    let span = place();
    let item = |(k, v): &(Node, Node)| {
        let key = Node::string(&k.span, k.text().unwrap_or_default());
        Node::map(&span, vec![(Node::string(&span, &*key_name), key), (Node::string(&span, &*value_name), v.clone())])
    };
    Ok(to_value(&Node::seq(&span, entries.iter().map(item).collect())))
}

fn items2dict(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let (key_name, value_name) = names(&kwargs)?;
    let node = argument(value)?;
    let Some(items) = node.as_seq() else {
        return Err(bad(format!("`items2dict` takes a list, not {}", node.describe())));
    };
    let mut entries: Vec<(Node, Node)> = Vec::new();
    for item in items {
        let (Some(key), Some(value)) = (item.get(&key_name), item.get(&value_name)) else {
            return Err(bad(format!("an item of the list has no `{key_name}` and `{value_name}`")));
        };
        match entries.iter_mut().find(|(k, _)| k.text() == key.text()) {
            Some((_, old)) => *old = value.clone(),
            None => entries.push((key.clone(), value.clone())),
        }
    }
    Ok(to_value(&Node::map(&place(), entries)))
}

/// As Ansible: `yes`, `on`, `true` and 1 are true, whatever their case; anything else is false.
fn truth(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Bool => value.is_true(),
        _ => matches!(&*value.to_string().to_lowercase(), "yes" | "on" | "true" | "1" | "1.0" | "y" | "t"),
    }
}

fn version(value: &Value, other: &Value, operator: Option<&str>, _kwargs: Kwargs) -> Result<bool, Error> {
    let order = compare_versions(&text(value), &text(other));
    Ok(match operator.unwrap_or("==") {
        "<" | "lt" => order.is_lt(),
        "<=" | "le" => order.is_le(),
        ">" | "gt" => order.is_gt(),
        ">=" | "ge" => order.is_ge(),
        "==" | "=" | "eq" => order.is_eq(),
        "!=" | "<>" | "ne" => order.is_ne(),
        unknown => return Err(bad(format!("`{unknown}` isn't an operator of `version`: <, <=, ==, !=, >=, >"))),
    })
}

/// Runs of digits are compared as numbers, other runs as text, a number after a text; what is longer is later.
fn compare_versions(a: &str, b: &str) -> Ordering {
    fn parts(version: &str) -> Vec<(bool, &str)> {
        let mut out = Vec::new();
        let mut rest = version.trim().trim_start_matches(['v', 'V']);
        while let Some(first) = rest.chars().next() {
            let digit = first.is_ascii_digit();
            let same = |c: char| c.is_ascii_digit() == digit && c.is_alphanumeric();
            let len = rest.find(|c| !same(c)).unwrap_or(rest.len());
            if len > 0 {
                out.push((digit, &rest[..len]));
            }
            rest = rest.get(len.max(if len == 0 { first.len_utf8() } else { 0 })..).unwrap_or_default();
        }
        out
    }
    let (a, b) = (parts(a), parts(b));
    for ((a_digit, a), (b_digit, b)) in a.iter().zip(&b) {
        let order = match (a_digit, b_digit) {
            (true, true) => {
                let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
                a.len().cmp(&b.len()).then_with(|| a.cmp(b))
            }
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => a.cmp(b),
        };
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        for (a, order, b) in [
            ("1.10", Ordering::Greater, "1.9"),
            ("1.10", Ordering::Equal, "1.10"),
            ("22.31.1014", Ordering::Less, "22.36.1010"),
            ("5.10.0-23-amd64", Ordering::Greater, "5.10"),
            ("6.1.0", Ordering::Less, "6.18"),
            ("2.0", Ordering::Greater, "2.0rc1".trim_end_matches("rc1").trim_end_matches("0")),
            ("v1.2", Ordering::Equal, "1.2"),
            ("10", Ordering::Greater, "9"),
        ] {
            assert_eq!(compare_versions(a, b), order, "{a} {b}");
        }
    }

    #[test]
    fn what_is_listed_is_there() {
        let mut env = Environment::new();
        add(&mut env);
        let fault = |text: String| env.compile_expression(&text).unwrap().eval(()).err().map(|e| e.kind());
        assert_eq!(fault("1|nope".to_owned()), Some(ErrorKind::UnknownFilter));
        assert_eq!(fault("1 is nope".to_owned()), Some(ErrorKind::UnknownTest));
        for name in FILTERS {
            assert_ne!(fault(format!("1|{name}")), Some(ErrorKind::UnknownFilter), "{name}");
        }
        for name in TESTS {
            assert_ne!(fault(format!("1 is {name}")), Some(ErrorKind::UnknownTest), "{name}");
        }
    }

    #[test]
    fn replacements_are_those_of_python() {
        assert_eq!(replacement(r"\1-\g<name>$"), "${1}-${name}$$");
        assert_eq!(Regex::new("(a)(b)").unwrap().replace_all("ab", &*replacement(r"\2\1")), "ba");
    }
}
