//! YAML inventories, by the rules of ansible-core's `yaml` plugin.

use super::tree::{GroupId, Tree};
use super::{Meta, Warning, address};
use crate::error::Error;
use crate::yaml::Node;
use std::sync::Arc;

/// The keys of a group.
const KEYS: [&str; 3] = ["hosts", "vars", "children"];

/// Reads an inventory, whose root is a mapping of groups, into the tree.
pub(super) fn load(root: &Node, tree: &mut Tree, meta: &Meta) -> Result<Vec<Warning>, Error> {
    let mut reader = Reader { tree, meta, warnings: Vec::new() };
    for (name, group) in root.as_map().unwrap_or_default() {
        reader.group(name, group)?;
    }
    Ok(reader.warnings)
}

struct Reader<'a> {
    tree: &'a mut Tree,
    meta: &'a Meta,
    warnings: Vec<Warning>,
}

impl Reader<'_> {
    fn group(&mut self, name: &Node, group: &Node) -> Result<Option<GroupId>, Error> {
        let Some(text) = name.as_str().filter(|t| !t.is_empty()) else {
            return Err(not_a_name(name, "group"));
        };
        let entries = match group.as_map() {
            Some(entries) => entries,
            None if group.is_null() => &[],
            None => {
                let message = format!("`{text}` is skipped: a group is a mapping, not {}", group.describe());
                self.warnings
                    .push(Error::inventory(&group.span, message).hint("a group has `hosts`, `vars` or `children`"));
                return Ok(None);
            }
        };
        let id = self.tree.add_group(text);
        for (key, value) in entries {
            match key.text() {
                Some("vars") => {
                    for (name, value) in section(text, key, value)?.iter() {
                        self.tree.set_group_var(id, &Arc::from(name.text().unwrap_or_default()), value)?;
                    }
                }
                Some("children") => {
                    for (name, child) in section(text, key, value)?.iter() {
                        match self.group(name, child)? {
                            Some(child) => self.tree.add_child(id, child, &name.span)?,
                            None => return Err(Error::inventory(&child.span, "a child that isn't a group")),
                        }
                    }
                }
                Some("hosts") => {
                    for (name, vars) in section(text, key, value)?.iter() {
                        self.hosts(id, name, vars)?;
                    }
                }
                other => {
                    let message =
                        format!("unknown key `{}` in the group `{text}` is skipped", other.unwrap_or_default());
                    self.warnings.push(
                        Error::inventory(&key.span, message)
                            .hint(crate::error::suggest(other.unwrap_or_default(), &KEYS))
                            .hint("a group within a group stands under `children`"),
                    );
                }
            }
        }
        Ok(Some(id))
    }

    fn hosts(&mut self, group: GroupId, name: &Node, vars: &Node) -> Result<(), Error> {
        let Some(text) = name.as_str().filter(|t| !t.is_empty()) else {
            return Err(not_a_name(name, "host"));
        };
        let entries = match vars.as_map() {
            Some(entries) => entries,
            None if is_falsy(vars) => &[],
            None => {
                let message = format!("the variables of `{text}` are a mapping, not {}", vars.describe());
                return Err(Error::inventory(&vars.span, message).hint(format!("write `{text}: {{name: value}}`")));
            }
        };
        let (names, port) = address::expand(text, &name.span)?;
        let vars: Vec<_> = entries.iter().map(|(k, v)| (Arc::from(k.text().unwrap_or_default()), v.clone())).collect();
        let port = port.map(|p| Node::plain(&name.span, p.to_string()));
        self.meta.add_hosts(self.tree, &names, (port, &name.span), group, &vars)
    }
}

/// What Python takes for false is no variables at all to Ansible.
fn is_falsy(node: &Node) -> bool {
    node.is_null()
        || node.as_bool() == Some(false)
        || node.as_int() == Some(0)
        || node.as_str() == Some("")
        || node.as_seq().is_some_and(<[Node]>::is_empty)
}

fn not_a_name(node: &Node, what: &str) -> Error {
    let text = node.text().unwrap_or_default();
    Error::inventory(&node.span, format!("the name of a {what} must be text, and `{text}` is {}", node.describe()))
        .hint(format!("quote it: \"{text}\""))
}

/// The entries of a section; a lone text stands for one entry without a value, nothing for none.
fn section(group: &str, key: &Node, value: &Node) -> Result<Arc<Vec<(Node, Node)>>, Error> {
    use crate::yaml::Value;
    let key = key.text().unwrap_or_default();
    match &value.value {
        Value::Map(entries) => Ok(entries.clone()),
        _ if value.is_null() => Ok(Arc::default()),
        _ if value.as_str().is_some() => Ok(Arc::new(vec![(value.clone(), Node::plain(&value.span, ""))])),
        _ => {
            let message = format!("`{key}` of the group `{group}` is a mapping, not {}", value.describe());
            let hint = match value.as_seq() {
                Some(_) => "write `name:` instead of `- name`",
                None => "write `name:` lines below it",
            };
            Err(Error::inventory(&value.span, message).hint(hint))
        }
    }
}
