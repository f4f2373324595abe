//! What `ansible-inventory` prints of an inventory: `--list`, `--graph`, `--host`.

use super::tree::{GroupId, HostId};
use super::vault::is_sealed;
use super::{Inventory, Vars};
use crate::error::{Error, Kind, nearest};
use crate::secret::MASK;
use crate::yaml::{Node, Scalar, Value};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, HashSet};

/// Names that Ansible gives values to itself, so that it doesn't print them (`INTERNAL_STATIC_VARS` of ansible-core).
const INTERNAL: [&str; 34] = [
    "ansible_async_path",
    "ansible_collection_name",
    "ansible_config_file",
    "ansible_dependent_role_names",
    "ansible_diff_mode",
    "ansible_facts",
    "ansible_forks",
    "ansible_inventory_sources",
    "ansible_limit",
    "ansible_play_batch",
    "ansible_play_hosts",
    "ansible_play_hosts_all",
    "ansible_play_role_names",
    "ansible_playbook_python",
    "ansible_role_name",
    "ansible_role_names",
    "ansible_run_tags",
    "ansible_skip_tags",
    "ansible_verbosity",
    "ansible_version",
    "group_names",
    "groups",
    "hostvars",
    "inventory_dir",
    "inventory_file",
    "inventory_hostname",
    "inventory_hostname_short",
    "play_hosts",
    "playbook_dir",
    "role_name",
    "role_names",
    "role_path",
    "role_uuid",
    "omit",
];

impl Inventory {
    /// What `ansible-inventory --list` prints: groups with `hosts` and `children`, `_meta.hostvars` with the variables
    /// of each host merged and not rendered, keys sorted. With `only`, as with `--limit`: only these hosts.
    pub fn to_list_json(&self, only: Option<&[HostId]>) -> Json {
        let shown: HashSet<HostId> = match only {
            Some(hosts) => hosts.iter().copied().collect(),
            None => self.hosts().collect(),
        };
        let mut top = BTreeMap::new();
        for (at, group) in self.tree.groups.iter().enumerate() {
            let name = |id: &GroupId| Json::from(&*self.tree.group(*id).name);
            let mut entry = Map::new();
            if !group.children.is_empty() {
                entry.insert("children".into(), group.children.iter().map(name).collect());
            }
            if GroupId::at(at) != GroupId::ALL {
                let hosts: Vec<Json> = group
                    .hosts
                    .iter()
                    .filter(|h| shown.contains(h))
                    .map(|h| Json::from(&*self.tree.host(*h).name))
                    .collect();
                if !hosts.is_empty() {
                    entry.insert("hosts".into(), hosts.into());
                }
            }
            if !entry.is_empty() {
                top.insert(group.name.to_string(), Json::Object(entry));
            }
        }
        let vars: BTreeMap<String, Json> = self
            .hosts()
            .filter(|h| shown.contains(h))
            .map(|h| (self.name(h).to_string(), self.to_host_json(h)))
            .filter(|(_, vars)| vars.as_object().is_some_and(|v| !v.is_empty()))
            .collect();
        let vars: Map<String, Json> = vars.into_iter().collect();
        top.insert("_meta".into(), json!({"hostvars": vars, "profile": "inventory_legacy"}));
        Json::Object(top.into_iter().collect())
    }

    /// What `ansible-inventory --host` prints: the variables of a host, merged and not rendered, keys sorted.
    pub fn to_host_json(&self, host: HostId) -> Json {
        object(&self.vars(host))
    }

    /// What `ansible-inventory --graph` prints: the tree of groups and hosts below `all`, or below a group. No final
    /// newline.
    ///
    /// # Errors
    /// A group that isn't there.
    pub fn to_graph(&self, group: Option<&str>) -> Result<String, Error> {
        let name = group.unwrap_or("all");
        let Some(id) = self.tree.find_group(name) else {
            let error = Error::new(Kind::Inventory, format!("no group is called `{name}`"));
            let near = nearest(name, self.tree.groups.iter().map(|g| &*g.name));
            return Err(match near {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error,
            });
        };
        let mut lines = Vec::new();
        self.graph(id, 0, &mut lines);
        Ok(lines.join("\n"))
    }

    fn graph(&self, id: GroupId, depth: usize, lines: &mut Vec<String>) {
        let line = |name: &str, depth: usize| match depth {
            0 => name.to_owned(),
            _ => format!("{}--{name}", "  |".repeat(depth)),
        };
        let group = self.tree.group(id);
        lines.push(line(&format!("@{}:", group.name), depth));
        for child in &group.children {
            self.graph(*child, depth + 1, lines);
        }
        if id != GroupId::ALL {
            lines.extend(group.hosts.iter().map(|h| line(&self.tree.host(*h).name, depth + 1)));
        }
    }
}

/// JSON as Ansible prints it: indented by 4, without a final newline.
pub fn to_text(json: &Json) -> String {
    use serde::Serialize;
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Writing to memory doesn't fail, and a JSON value has no keys that aren't strings.
    let _ = json.serialize(&mut serializer);
    String::from_utf8(bytes).unwrap_or_default()
}

fn object(vars: &Vars) -> Json {
    let shown = vars.iter().filter(|(name, _)| !INTERNAL.contains(&&***name));
    Json::Object(shown.map(|(name, value)| (name.to_string(), value_of(value, false))).collect())
}

/// A value as Ansible's encoder writes it: keys sorted, vaulted and unsafe strings as objects. Of an encrypted file, no
/// value is shown.
fn value_of(node: &Node, is_unsafe: bool) -> Json {
    let is_unsafe = is_unsafe || node.tag.as_deref() == Some("!unsafe");
    match &node.value {
        Value::Seq(items) => items.iter().map(|item| value_of(item, is_unsafe)).collect(),
        Value::Map(entries) => {
            let sorted: BTreeMap<String, Json> =
                entries.iter().map(|(k, v)| (key_of(k), value_of(v, is_unsafe))).collect();
            Json::Object(sorted.into_iter().collect())
        }
        _ if is_sealed(node) => json!({"__ansible_vault": node.text().unwrap_or_default()}),
        Value::Scalar { .. } if node.span.source.decrypted => MASK.into(),
        _ if is_unsafe && node.as_str().is_some() => json!({"__ansible_unsafe": node.text().unwrap_or_default()}),
        _ => node.to_json(),
    }
}

/// A key as Python's `json` writes it.
fn key_of(key: &Node) -> String {
    match key.scalar() {
        Some(Scalar::Bool(b)) => b.to_string(),
        Some(Scalar::Int(n)) => n.to_string(),
        Some(Scalar::Null) => "null".to_owned(),
        _ => key.text().unwrap_or_default().to_owned(),
    }
}
