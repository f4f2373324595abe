//! What the parser says of a text that is no YAML, in words that say what to look at.

use crate::error::{Error, Kind};
use crate::source::{Source, Span};
use std::sync::Arc;

/// The error of what the parser found at a place.
pub(super) fn explained(info: &str, source: &Arc<Source>, span: &Span, kind: Kind) -> Error {
    let (line, column, text) = (span.line as usize, span.column as usize, &source.text);
    let error = |message: &str| Error::new(kind, format!("not valid YAML: {message}")).at(span);
    let at = text.lines().nth(line - 1).unwrap_or_default();
    let before: String = at.chars().take(column - 1).collect();
    let above = text.lines().take(line - 1).enumerate().filter(|(_, l)| !l.trim().is_empty());
    let above = above.filter(|(_, l)| !l.trim_start().starts_with('#')).last();
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let told = |message: &str, hint: &str| error(message).hint(hint);
    let beside = |error: Error, (n, l): (usize, &str)| {
        let (from, length) = (indent(l) + 1, l.trim().chars().count());
        error.also(&Span::at(source, n + 1, from, length), "the line above")
    };
    if at.trim_start_matches(' ').starts_with('\t') {
        return told(info, "YAML is indented by spaces, never by tabs");
    }
    if at.contains("{{") && !before.contains(['"', '\'']) {
        return told(info, "a value that begins with `{{` must be quoted");
    }
    match info {
        "while parsing a block mapping, did not find expected key"
        | "while parsing a block collection, did not find expected '-' indicator"
            if before.trim().is_empty() =>
        {
            let error = told(
                "the indentation of this line fits none of the blocks above it",
                "the keys of one mapping, and the `-` of one list, stand in one column",
            );
            above.into_iter().fold(error, beside)
        }
        "mapping values are not allowed in this context" => match before.contains(": ") {
            true => told(
                "this is the second `: ` of a value that isn't quoted",
                "quote the value that has `: ` in it, or begin a line for the second key",
            ),
            false => match above {
                Some(above) => beside(
                    told(
                        "a key can't stand here, where the value of the line above goes on",
                        "keys of one mapping stand in one column; a key with a mapping below it has nothing behind its colon",
                    ),
                    above,
                ),
                None => error(info),
            },
        },
        "while parsing a flow mapping, did not find expected ',' or '}'" => told(
            "a `{` isn't closed before this, or a comma is missing",
            "write `{key: value, key: value}`; text with one of `{}[],` in it must be quoted",
        ),
        "while parsing a flow sequence, expected ',' or ']'" => told(
            "a `[` isn't closed before this, or a comma is missing",
            "write `[value, value]`; text with one of `{}[],` in it must be quoted",
        ),
        "invalid indentation in quoted scalar"
        | "while scanning a quoted scalar, found unexpected end of stream"
        | "while scanning a quoted scalar, found unexpected document indicator" => {
            told("the quote that begins here isn't closed", "close it; in double quotes `\\\"` is a quote")
        }
        "invalid trailing content after double-quoted scalar" => {
            told("something stands behind the closing quote", "quote the whole value, or none of it")
        }
        "illegal placement of ':' indicator" => {
            told("a `:` can't stand here", "is a `[` or a `{` above not closed, or a quote?")
        }
        "while parsing node, found unknown anchor" => {
            told("there is no anchor of this name", "text that begins with `*` must be quoted")
        }
        _ => match info.strip_prefix("unexpected character: `").and_then(|rest| rest.strip_suffix('\'')) {
            Some(odd) => told(&format!("a value can't begin with `{odd}`"), "quote the value"),
            None => error(info),
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Kind;
    use crate::source::Source;
    use crate::yaml::load_one;

    #[test]
    fn what_is_no_yaml_is_told_in_plain_words() {
        for (text, place, told) in [
            (
                "- hosts: all\n  resources:\n    - a: 1\n\n    # note\n   - b: 1\n",
                "t:6:4",
                "the line above:\n  --> t:3:5\n   3 |     - a: 1\n",
            ),
            ("- hosts: all\n  vars:\n    a: 1\n   b: 1\n", "t:4:4", "fits none of the blocks above"),
            ("- hosts: all\n resources:\n", "t:2:2", "the line above:\n  --> t:1:1\n"),
            (
                "- hosts: all\nresources:\n",
                "t:2:1",
                "keys of one mapping, and the `-` of one list, stand in one column",
            ),
            ("a: b\n  c: 1\n", "t:2:4", "the line above:\n  --> t:1:1\n"),
            ("a:\n  b\n  c: 1\n", "t:3:4", "the line above:\n  --> t:2:3\n"),
            ("a: b: c\n", "t:1:5", "this is the second `: `"),
            ("- {a: b\n- {c: d}\n", "t:2:3", "a `{` isn't closed before this"),
            ("a: [b\nc: d\n", "t:2:2", "is a `[` or a `{` above not closed"),
            ("a:\n  b: \"c\nd: 1\n", "t:", "isn't closed"),
            ("a: 'b\n", "t:1:4", "the quote that begins here isn't closed"),
            ("a: \"b\" c\n", "t:1:8", "behind the closing quote"),
            ("a: @b\n", "t:1:4", "a value can't begin with `@`"),
            ("a: %b\n", "t:1:4", "a value can't begin with `%`"),
            ("a: *.rpm\n", "t:1:4", "text that begins with `*` must be quoted"),
            ("a:\n\t- b\n", "t:2", "never by tabs"),
            ("a: {{ b }}\n", "t:1", "must be quoted"),
            ("a: {{ b }} {{ c }}\n", "t:1", "must be quoted"),
        ] {
            let error = load_one(&Source::new("t", text), Kind::Playbook).unwrap_err().to_string();
            assert!(error.contains(&format!("\n  --> {place}")) && error.contains(told), "{text}\n{error}");
        }
    }
}
