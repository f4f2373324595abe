//! What a playbook wants of a card: the key `set`.

use super::value::Value;
use crate::error::Error;
use crate::resource::Spec;
use crate::resource::spec::text;
use crate::yaml::{Node, Scalar};

/// What guides set, and no firmware has.
pub(super) const ROCE_ENABLE: &str = "ROCE_ENABLE";
/// What they mean by it.
pub(super) const ROCE_CONTROL: &str = "ROCE_CONTROL";
/// How the parameters begin that say what kind of network a port is.
pub(super) const LINK_TYPE: &str = "LINK_TYPE";
/// How the parameters begin that reveal others.
pub(super) const ADVANCED: &str = "ADVANCED_";

/// A parameter, or an element of one, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// `NUM_OF_VFS`, `HOST_CHAINING_DESCRIPTORS[3]`.
    pub(super) name: String,
    pub(super) value: Value,
}

impl Setting {
    /// The parameter that it is, whatever it is called.
    pub(super) fn own_name(&self) -> &str {
        if self.name == ROCE_ENABLE { ROCE_CONTROL } else { &self.name }
    }
}

/// The settings of a resource, elements of arrays one by one.
///
/// # Errors
/// What is no name or no value, at its place; what is named twice.
pub(super) fn settings(spec: &Spec<'_>) -> Result<Vec<Setting>, Error> {
    let mut all: Vec<Setting> = Vec::new();
    for (key, node) in spec.entries("set")?.unwrap_or_default() {
        let wrong = |message: String| Error::playbook(&key.span, message);
        let name = text("set", key)?.trim().to_ascii_uppercase();
        let (base, index) = match name.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
            Some((base, index)) => (base.to_owned(), Some(index.to_owned())),
            None => (name.clone(), None),
        };
        let good = base.starts_with(|c: char| c.is_ascii_uppercase())
            && base.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        if !good {
            return Err(wrong(format!("`{name}` is no name of a parameter")).hint(
                "`mlxconfig -d DEVICE show_confs` lists them; elements of arrays are written `P[3]` or `P[0..3]`",
            ));
        }
        let names: Vec<String> = match index {
            None => vec![base],
            Some(index) => {
                let (first, last) = index.split_once("..").unwrap_or((&index, &index));
                let range = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
                let range = range.filter(|(first, last)| first <= last && last - first < 256).ok_or_else(|| {
                    wrong(format!("`[{index}]` is no range of elements")).hint("write `P[3]`, or `P[0..3]`")
                })?;
                (range.0..=range.1).map(|i| format!("{base}[{i}]")).collect()
            }
        };
        let values: Vec<Value> = match node.as_seq() {
            Some(items) if items.len() == names.len() && name.ends_with(']') => {
                items.iter().map(|item| value(&name, item)).collect::<Result<_, _>>()?
            }
            Some(items) => {
                let message = format!("`{name}` takes {} values, not a list of {}", names.len(), items.len());
                return Err(Error::playbook(&node.span, message)
                    .hint("a list gives each element of a range its value: `P[0..1]: [5, 6]`"));
            }
            None => vec![value(&name, node)?; names.len()],
        };
        for (name, value) in names.into_iter().zip(values) {
            let setting = Setting { name, value };
            if let Some(other) = all.iter().find(|s| s.own_name() == setting.own_name()) {
                let message = format!("`{}` is named twice", setting.name);
                let same = "ROCE_ENABLE is understood as ROCE_CONTROL: write that alone";
                let error = wrong(message);
                return Err(if other.name == setting.name { error } else { error.hint(same) });
            }
            all.push(setting);
        }
    }
    Ok(all)
}

/// A value: the text as it stands, a truth value as the tools write it.
fn value(name: &str, node: &Node) -> Result<Value, Error> {
    match node.scalar() {
        Some(Scalar::Bool(on)) => return Ok(truth(on)),
        Some(Scalar::Null) => {
            return Err(Error::playbook(&node.span, format!("`{name}` has no value"))
                .hint("leave it out to let it be; `reset: true` goes back to the defaults"));
        }
        _ => {}
    }
    let given = text(name, node)?;
    let given = given.trim();
    let good = |b: u8| b.is_ascii_alphanumeric() || b"_.,:+()-".contains(&b);
    if given.is_empty() || !given.bytes().all(good) {
        let message = format!("`{name}` can't be `{}`", given.escape_default());
        return Err(Error::playbook(&node.span, message)
            .hint("values are names or numbers, as `mlxconfig -d DEVICE show_confs` lists them"));
    }
    Ok(match given.to_ascii_lowercase().as_str() {
        "true" | "yes" => truth(true),
        "false" | "no" => truth(false),
        _ => Value::of(given),
    })
}

fn truth(on: bool) -> Value {
    Value::of(if on { "True(1)" } else { "False(0)" })
}
