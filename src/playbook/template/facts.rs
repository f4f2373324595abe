//! Facts that there aren't, found without a host: what `facts` holds is part of the language.

use super::error::within;
use crate::error::{Error, suggest};
use crate::yaml::Node;

/// The facts, and the keys of those that are mappings.
pub(crate) const SHAPE: &[(&str, &[&str])] = &[
    ("host", &["name", "fqdn", "boot_id", "virtual", "root_persistent"]),
    ("os", &["family", "id", "version"]),
    ("kernel", &[]),
    ("cpus", &["count", "online", "isolated", "numa"]),
    ("memory_mib", &[]),
    ("interfaces", &[]),
    ("rdma", &[]),
    ("service_manager", &[]),
    ("session", &["interface", "address"]),
];

/// What mappings have beside their keys, as in Python.
const METHODS: &[&str] = &["get", "items", "keys", "values"];

/// Whether a text names facts by a path. Who asks whether something is defined knows that it may not be.
pub(super) fn named(text: &str) -> bool {
    text.contains("facts.") && !["default", "defined", "d("].iter().any(|guard| text.contains(guard))
}

/// An error for each path into the facts that leads nowhere: `facts.os.famly`.
pub(super) fn misspelt(node: &Node, text: &str, paths: impl IntoIterator<Item = String>) -> Vec<Error> {
    let wrong = |path: String| {
        let mut words = path.strip_prefix("facts.")?.split('.');
        let first = words.next()?;
        let known: Vec<&str> = SHAPE.iter().map(|(name, _)| *name).collect();
        let (parent, name, known) = match SHAPE.iter().find(|(name, _)| *name == first) {
            None => ("facts".to_owned(), first, known),
            Some((_, [])) => return None,
            Some((_, keys)) => (format!("facts.{first}"), words.next()?, keys.to_vec()),
        };
        if known.contains(&name) || METHODS.contains(&name) {
            return None;
        }
        let written = format!("{parent}.{name}");
        let place = match text.find(&written) {
            Some(at) => within(node, at..at + written.len()),
            None => node.span.clone(),
        };
        Some(Error::playbook(&place, format!("`{parent}` has no `{name}`")).hint(suggest(name, &known)))
    };
    let mut errors: Vec<Error> = paths.into_iter().filter_map(wrong).collect();
    errors.sort_by_key(|e| e.place.as_ref().map(|p| (p.line, p.column)));
    errors
}
