//! `ansible.cfg` isn't read; where it sets what netplay would need, that is said.

use super::Warning;
use crate::error::{Error, Kind};
use crate::source;
use std::path::Path;

/// What Ansible reads there and netplay takes from elsewhere: section, key, from where.
const SETTINGS: [(&str, &str, &str); 16] = [
    ("defaults", "inventory", "-i"),
    ("defaults", "remote_user", "the variable ansible_user"),
    ("defaults", "remote_port", "the variable ansible_port"),
    ("defaults", "private_key_file", "the variable ansible_ssh_private_key_file"),
    ("defaults", "host_key_checking", "--host-key-checking"),
    ("defaults", "vault_password_file", "--vault-password-file"),
    ("defaults", "hash_behaviour", "the filter combine"),
    ("defaults", "forks", "--forks"),
    ("defaults", "timeout", "--timeout"),
    ("defaults", "transport", "the variable ansible_connection"),
    ("privilege_escalation", "become", "the playbook's become"),
    ("privilege_escalation", "become_user", "the playbook's become_user"),
    ("privilege_escalation", "become_method", "sudo, always"),
    ("ssh_connection", "ssh_args", "the variable ansible_ssh_common_args"),
    ("ssh_connection", "ssh_common_args", "the variable ansible_ssh_common_args"),
    ("ssh_connection", "ssh_extra_args", "the variable ansible_ssh_extra_args"),
];

/// The warning about a file, if it sets something of interest.
pub(super) fn warning(path: &Path) -> Option<Warning> {
    let text = source::read(path, source::MAX_TEXT).ok()?;
    let text = String::from_utf8_lossy(&text);
    let (mut section, mut found) = ("", Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.split_once(']')) {
            section = name.0.trim();
        } else if let Some((key, _)) = line.split_once(['=', ':']) {
            let known = SETTINGS.iter().find(|(s, k, _)| *s == section && *k == key.trim());
            found.extend(known.map(|(_, key, instead)| format!("{key} (netplay: {instead})")));
        }
    }
    (!found.is_empty())
        .then(|| Error::new(Kind::Inventory, format!("{} isn't read; it sets {}", path.display(), found.join(", "))))
}
