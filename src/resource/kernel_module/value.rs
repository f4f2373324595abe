//! Values of parameters, as they are written and as the kernel shows them.

use crate::error::Error;
use crate::resource::spec::text;
use crate::yaml::{Node, Value};

/// A value as modprobe takes it: the text as it stands, a truth value of an expression as `1` or `0`, a list with commas.
pub(super) fn value_of(key: &str, node: &Node) -> Result<String, Error> {
    let value = match &node.value {
        Value::Bool(on) => u8::from(*on).to_string(),
        Value::Seq(items) => items.iter().map(|item| value_of(key, item)).collect::<Result<Vec<_>, _>>()?.join(","),
        _ => text(key, node)?,
    };
    // Not every kernel takes these words for truth values (lib/kstrtox.c, `kstrtobool`).
    let value = match value.trim() {
        "true" => "1",
        "false" => "0",
        other => other,
    };
    let value = value.to_owned();
    if value.is_empty() || value.chars().any(|c| c.is_whitespace() || c.is_control() || c == '"' || c == '\\') {
        return Err(Error::playbook(&node.span, format!("`{key}` can't be `{}`", value.escape_default()))
            .hint("a parameter's value has no blanks, quotes or backslashes in it, and isn't empty"));
    }
    Ok(value)
}

/// Whether two values are one: numbers as numbers, `Y` as `1` where one of them is a truth value of the kernel's, lists item
/// by item.
pub(super) fn same(wanted: &str, got: &str) -> bool {
    fn number(text: &str) -> Option<i128> {
        let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
        let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
        hex.map_or_else(|| digits.parse().ok(), |hex| i128::from_str_radix(hex, 16).ok()).map(|n| n * sign)
    }
    fn truth(text: &str) -> Option<bool> {
        match text.to_ascii_lowercase().as_str() {
            "y" | "yes" | "1" | "on" | "true" => Some(true),
            "n" | "no" | "0" | "off" | "false" => Some(false),
            _ => None,
        }
    }
    let (wanted, got) = (wanted.trim(), got.trim());
    if wanted == got || number(wanted).is_some_and(|w| number(got) == Some(w)) {
        return true;
    }
    if ["Y", "N", "y", "n"].iter().any(|letter| wanted == *letter || got == *letter) {
        return truth(wanted).is_some_and(|w| truth(got) == Some(w));
    }
    wanted.contains(',')
        && wanted.split(',').count() == got.split(',').count()
        && wanted.split(',').zip(got.split(',')).all(|(w, g)| same(w, g))
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn values_are_compared_as_values() {
        for (wanted, got) in [
            ("1", "Y"),
            ("yes", "Y"),
            ("0x10", "16"),
            ("N", "0"),
            ("1,2", "1,0x2"),
            ("Y,N", "1,0"),
            ("a", "a\n"),
            ("-1", "-1"),
        ] {
            assert!(same(wanted, got), "{wanted} {got}");
        }
        for (wanted, got) in [("1", "N"), ("10", "1"), ("1", "1,1"), ("2", "Y"), ("a", "A"), ("0", ""), ("yes", "1")] {
            assert!(!same(wanted, got), "{wanted} {got}");
        }
    }
}
