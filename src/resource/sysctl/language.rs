//! What a playbook says of kernel parameters: their names and values.

use super::Setting;
use super::key::Parameter;
use super::value::squash;
use crate::error::Error;
use crate::resource::spec::{Spec, text};
use crate::yaml::{Node, Value};

/// The parameters that a resource names.
pub(super) fn settings(spec: &Spec<'_>, absent: bool) -> Result<Vec<Setting>, Error> {
    let pairs: Vec<(&Node, Option<&Node>)> = match (spec.entries("values")?, spec.get("name")) {
        (Some(_), Some(name)) => {
            return Err(Error::playbook(&name.span, "`name` and `values` exclude each other")
                .hint("write all parameters under `values`"));
        }
        (Some(entries), None) => {
            if let Some(stray) = spec.get("value") {
                return Err(Error::playbook(&stray.span, "`value` goes with `name`, not with `values`"));
            }
            entries.iter().map(|(name, value)| (name, Some(value))).collect()
        }
        (None, Some(name)) => vec![(name, if absent { None } else { Some(spec.need("value")?) })],
        (None, None) => {
            return Err(Error::playbook(&spec.node.span, "`sysctl` needs the key `values`, or `name` and `value`"));
        }
    };
    let mut found: Vec<Setting> = Vec::new();
    for (i, (name, written)) in pairs.iter().enumerate() {
        let key = Parameter::parse(&text("name", name)?).map_err(|t| {
            let error = Error::playbook(&name.span, t.message);
            t.hint.into_iter().fold(error, Error::hint)
        })?;
        if let Some(first) = found.iter().position(|s| s.key == key) {
            let (first, _) = pairs[first];
            return Err(
                Error::playbook(&pairs[i].0.span, format!("`{key}` is named twice")).also(&first.span, "first here")
            );
        }
        let value = written.filter(|_| !absent).map(|node| value(&key, node)).transpose()?;
        found.push(Setting { key, value });
    }
    match spec.get("values") {
        Some(node) if found.is_empty() => Err(Error::playbook(&node.span, "`values` is empty")),
        _ => Ok(found),
    }
}

/// A value as it is written to the kernel: the text as it stands, a truth value of an expression as 1 or 0, a list with
/// blanks between its items.
fn value(key: &Parameter, node: &Node) -> Result<String, Error> {
    if node.is_null() {
        return Err(Error::playbook(&node.span, format!("`{key}` has no value"))
            .hint("write `\"\"` for an empty value, or `state: absent`"));
    }
    let written = match &node.value {
        Value::Bool(on) => u8::from(*on).to_string(),
        Value::Seq(items) => items.iter().map(|item| value(key, item)).collect::<Result<Vec<_>, _>>()?.join(" "),
        _ => text(&key.to_string(), node)?,
    };
    let written = squash(&written);
    if written.chars().any(char::is_control) {
        return Err(Error::playbook(&node.span, format!("`{key}` can't have a control character in its value")));
    }
    // The kernel takes one page (fs/proc/proc_sysctl.c).
    if written.len() > 4000 {
        return Err(Error::playbook(&node.span, format!("the value of `{key}` is longer than the kernel takes")));
    }
    Ok(written)
}
