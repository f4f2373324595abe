//! Values as firmware tools write them: `ETH(2)`, `16`, `per_mkey(0)`, `0x1f`.

use crate::error::nearest;
use crate::resource::Trouble;

/// What is true or false is so in every card.
const TRUTHS: [&str; 2] = ["True(1)", "False(0)"];

/// A value: its text, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) text: String,
    /// The word of an enumeration.
    name: Option<String>,
    number: Option<i128>,
}

impl Value {
    /// Reads a value: any text is one.
    pub(super) fn of(text: &str) -> Value {
        let (name, number) = match text.strip_suffix(')').and_then(|rest| rest.rsplit_once('(')) {
            Some((name, digits)) if !name.is_empty() && number(digits).is_some() => (Some(name), number(digits)),
            _ if number(text).is_some() => (None, number(text)),
            _ => (Some(text), None),
        };
        Value { text: text.to_owned(), name: name.map(str::to_owned), number }
    }

    /// Whether the tool doesn't know it: `N/A`, or an array as a whole.
    pub(super) fn unknown(&self) -> bool {
        self.text == "N/A" || self.array().is_some()
    }

    /// The range of the elements (`0..7`), if it stands for an array as a whole.
    pub(super) fn array(&self) -> Option<&str> {
        self.text.strip_prefix("Array[").and_then(|rest| rest.strip_suffix(']'))
    }

    /// Whether it only says that it is the default.
    fn device_default(&self) -> bool {
        self.name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case("DEVICE_DEFAULT"))
    }

    /// What it stands for, given the default: `DEVICE_DEFAULT` is that.
    pub(super) fn or_default<'a>(&'a self, default: Option<&'a Value>) -> &'a Value {
        default.filter(|d| self.device_default() && !d.unknown()).unwrap_or(self)
    }

    /// Whether two are the same: by their numbers, or else by their names in any case. Nothing if it can't be told, as one
    /// has but a name and the other a number.
    pub(super) fn same(&self, other: &Value) -> Option<bool> {
        if let (Some(a), Some(b)) = (self.number, other.number) {
            return Some(a == b);
        }
        if let (Some(a), Some(b)) = (&self.name, &other.name) {
            return Some(a.eq_ignore_ascii_case(b));
        }
        None
    }

    /// The number or else the word that tells which value it is.
    pub(super) fn key(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.plain())
    }

    /// Why it can't be a value of the parameter that has these, as far as they tell: another number for a name, or a word for
    /// what is true or false, or none of those that the tool lists.
    pub(super) fn unfit(&self, parameter: &str, seen: &[&Value], listed: &[Value]) -> Option<Trouble> {
        let same_name = |a: &Value| match (&a.name, &self.name) {
            (Some(a), Some(b)) => Some(a.eq_ignore_ascii_case(b)),
            _ => None,
        };
        let belies = |v: &&&Value| {
            v.number.is_some()
                && self.number.is_some()
                && same_name(v).is_some_and(|same| same != (v.number == self.number))
        };
        let other = |known: &Value| {
            Trouble::new(format!("{parameter} can't be {}: this card has {}", self.text, known.text))
                .hint("the name alone does, or the number alone")
        };
        if let Some(known) = seen.iter().find(belies) {
            return Some(other(known));
        }
        if !listed.is_empty() && !listed.iter().any(|known| known.same(self) == Some(true)) {
            let all: Vec<&str> = listed.iter().map(|known| known.text.as_str()).collect();
            let trouble = Trouble::new(format!("{parameter} can't be {}: it can be {}", self.text, all.join(", ")));
            let names = listed.iter().filter_map(|known| known.name.as_deref());
            let given = self.name.as_deref().map(str::to_ascii_uppercase);
            let near = given.and_then(|given| nearest(&given, names).map(|near| format!("is it {near}?")));
            return Some(trouble.hint(near.unwrap_or_else(|| "write one of these names, or its number".to_owned())));
        }
        let is_truth = seen.iter().any(|v| TRUTHS.contains(&v.text.as_str()));
        let fits = TRUTHS.iter().any(|truth| self.same(&Value::of(truth)) == Some(true));
        (is_truth && !fits).then(|| {
            Trouble::new(format!("{parameter} can't be {}: it is true or false", self.text))
                .hint("write `true` or `false`")
        })
    }

    /// What is written into a command or a note: the number where it is known.
    pub(super) fn plain(&self) -> String {
        self.number.map_or_else(|| self.text.clone(), |n| n.to_string())
    }

    /// Becomes what the card calls it, if this is the same; a name of which the number isn't known is at least written in
    /// the letters that its other names have, since the tools want it in the right case.
    pub(super) fn learn(&mut self, other: &Value) {
        if (self.number.is_none() || self.name.is_none()) && self.same(other) == Some(true) {
            other.clone_into(self);
        } else if let (true, Some(truth)) = (
            TRUTHS.contains(&other.text.as_str()),
            TRUTHS.map(Value::of).into_iter().find(|truth| self.same(truth) == Some(true)),
        ) {
            *self = truth;
        } else if let (None, Some(name)) = (self.number, &other.name) {
            if name.to_ascii_uppercase() == *name {
                *self = Value::of(&self.text.to_ascii_uppercase());
            } else if name.to_ascii_lowercase() == *name {
                *self = Value::of(&self.text.to_ascii_lowercase());
            }
        }
    }

    /// A number as one, all else as text.
    pub(super) fn json(&self) -> serde_json::Value {
        let unsigned = self.text.parse::<u64>().map(serde_json::Value::from);
        let number = unsigned.or_else(|_| self.text.parse::<i64>().map(serde_json::Value::from));
        number.unwrap_or_else(|_| self.text.as_str().into())
    }
}

fn number(text: &str) -> Option<i128> {
    let (digits, base) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text.strip_prefix('-').unwrap_or(text), 10),
    };
    // The parsers take a sign of their own, which no tool writes there.
    let number =
        i128::from_str_radix(digits, base).ok().filter(|_| digits.starts_with(|c: char| c.is_ascii_hexdigit()))?;
    Some(if text.starts_with('-') { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &str, b: &str) -> Option<bool> {
        Value::of(a).same(&Value::of(b))
    }

    #[test]
    fn what_a_parameter_cannot_be() {
        let unfit = |wanted: &str, seen: &[&str]| {
            let seen: Vec<Value> = seen.iter().map(|text| Value::of(text)).collect();
            Value::of(wanted).unfit("P", &seen.iter().collect::<Vec<_>>(), &[]).map(|t| t.message)
        };
        for right in ["True(1)", "0", "1", "false"] {
            assert_eq!(unfit(right, &["False(0)"]), None, "{right}");
        }
        assert_eq!(unfit("maybe", &["False(0)", "N/A"]).unwrap(), "P can't be maybe: it is true or false");
        assert_eq!(unfit("2", &["False(0)"]).unwrap(), "P can't be 2: it is true or false");
        assert_eq!(unfit("ETH(1)", &["ETH(2)"]).unwrap(), "P can't be ETH(1): this card has ETH(2)");
        assert_eq!(unfit("IB(2)", &["ETH(2)"]).unwrap(), "P can't be IB(2): this card has ETH(2)");
        for unknown in ["IB(1)", "IB", "7", "ETH(2)", "eth"] {
            assert_eq!(unfit(unknown, &["ETH(2)"]), None, "{unknown}");
        }
    }

    #[test]
    fn what_is_not_among_the_listed_values() {
        let listed = ["IB(1)", "ETH(2)", "VPI(3)"].map(Value::of);
        let unfit =
            |wanted: &str| Value::of(wanted).unfit("P", &[&listed[0]], &listed).map(|t| (t.message, t.hint.unwrap()));
        for right in ["eth", "2", "VPI", "ETH(2)"] {
            assert_eq!(unfit(right), None, "{right}");
        }
        let (message, hint) = unfit("ETHER").unwrap();
        assert_eq!(message, "P can't be ETHER: it can be IB(1), ETH(2), VPI(3)");
        assert_eq!(hint, "is it ETH?");
        assert_eq!(unfit("7").unwrap().1, "write one of these names, or its number");
    }

    #[test]
    fn names_and_numbers() {
        for (a, b) in
            [("ETH", "ETH(2)"), ("eth", "ETH(2)"), ("2", "ETH(2)"), ("ETH(2)", "2"), ("0x1f", "31"), ("_256KB(1)", "1")]
        {
            assert_eq!(same(a, b), Some(true), "{a} {b}");
        }
        for (a, b) in [("IB", "ETH(2)"), ("1", "ETH(2)"), ("ETH(1)", "ETH(2)"), ("0", "10"), ("N/A", "ETH(2)")] {
            assert_eq!(same(a, b), Some(false), "{a} {b}");
        }
        assert_eq!(same("ETH", "2"), None);
        assert_eq!(same("0", "N/A"), None);
        assert!(Value::of("Array[0..7]").unknown() && Value::of("N/A").unknown() && !Value::of("0").unknown());
    }

    #[test]
    fn a_device_default_is_the_default() {
        let (current, default) = (Value::of("DEVICE_DEFAULT(0)"), Value::of("ROCE_ENABLE(2)"));
        assert_eq!(current.or_default(Some(&default)), &default);
        assert_eq!(current.or_default(None), &current);
        assert_eq!(Value::of("NONE(0)").or_default(Some(&default)), &Value::of("NONE(0)"));
    }

    #[test]
    fn a_name_takes_the_number_that_the_card_gives_it() {
        let mut wanted = Value::of("eth");
        wanted.learn(&Value::of("IB(1)"));
        assert_eq!(wanted.plain(), "ETH");
        wanted.learn(&Value::of("ETH(2)"));
        let mut on = Value::of("1");
        on.learn(&Value::of("False(0)"));
        assert_eq!(on.text, "True(1)");
        assert_eq!((wanted.plain().as_str(), wanted.text.as_str()), ("2", "ETH(2)"));
    }
}
