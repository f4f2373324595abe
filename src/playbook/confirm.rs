//! `confirm` of a play: how changes that may cut a host off are confirmed over a new connection, or taken back.

use super::template;
use crate::error::{Error, Errors};
use crate::resource::{Key, spec};
use crate::yaml::Node;
use std::sync::Arc;

/// Its keys.
pub const CONFIRM_KEYS: &[Key] = &[
    Key::default(
        "timeout",
        "seconds",
        "60",
        "How long after such a change a host waits for its confirmation before it takes it back.",
    ),
    Key::default(
        "all",
        "boolean",
        "false",
        "Whether changes of interfaces, links and rules that don't carry the session are confirmed too.",
    ),
    Key::default(
        "path_mtu",
        "boolean",
        "false",
        "Whether a larger MTU is confirmed only when packets of full size, unfragmented, have passed between this host and another \
         one of the play that has it too. Two hosts go first then.",
    ),
    Key::optional(
        "command",
        "string",
        "A command that must succeed on the host after the change, as root, by sh: otherwise it is taken back.",
    ),
];

/// What it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirm {
    /// Seconds from the end of a change until the host takes it back.
    pub timeout: u32,
    /// Whether what doesn't carry the session is confirmed too.
    pub all: bool,
    /// Whether packets of full size have to pass where an MTU was raised.
    pub path_mtu: bool,
    /// What must succeed on the host before.
    pub command: Option<Arc<str>>,
}

impl Default for Confirm {
    fn default() -> Confirm {
        Confirm { timeout: 60, all: false, path_mtu: false, command: None }
    }
}

/// Reads it. Nothing for `none`: such changes are made unconfirmed.
pub(super) fn read(node: Option<&Node>) -> Result<Option<Confirm>, Errors> {
    let mut confirm = Confirm::default();
    let Some(node) = node.filter(|n| !n.is_null()) else { return Ok(Some(confirm)) };
    if node.text() == Some("none") {
        return Ok(None);
    }
    if node.as_map().is_none() {
        let error =
            Error::playbook(&node.span, format!("`confirm` takes a mapping or `none`, not {}", node.describe()));
        let hint = "write `confirm: {timeout: 60}`, or `confirm: none` to have such changes made unconfirmed";
        return Err(error.hint(hint).into());
    }
    let mut errors = spec::check("confirm", node, CONFIRM_KEYS);
    for (key, value) in node.as_map().into_iter().flatten().filter(|(_, value)| template::templated(value)) {
        let message = format!(
            "`{}` of `confirm` is the same for all hosts, and can't be a template",
            key.text().unwrap_or_default()
        );
        errors.push(
            Error::playbook(&value.span, message).hint("write what it is to be; a command may ask the host itself"),
        );
    }
    if !errors.is_empty() {
        return Err(Errors(errors));
    }
    let mut keep = |found: Result<(), Error>| errors.extend(found.err());
    let get = |key: &str| node.get(key).filter(|n| !n.is_null());
    if let Some(value) = get("timeout") {
        keep(spec::int("timeout", value, 5..=3600).map(|n| confirm.timeout = u32::try_from(n).unwrap_or(60)));
    }
    if let Some(value) = get("all") {
        keep(spec::truth("all", value).map(|all| confirm.all = all));
    }
    if let Some(value) = get("path_mtu") {
        keep(spec::truth("path_mtu", value).map(|path| confirm.path_mtu = path));
    }
    if let Some(value) = get("command") {
        keep(spec::text("command", value).and_then(|text| {
            if text.trim().is_empty() {
                return Err(Error::playbook(&value.span, "`command` of `confirm` is empty").hint("leave it out"));
            }
            confirm.command = Some(text.into());
            Ok(())
        }));
    }
    if errors.is_empty() { Ok(Some(confirm)) } else { Err(Errors(errors)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::yaml;

    fn told(text: &str) -> String {
        let node =
            yaml::load_one(&Source::new("site.yaml", text.to_owned()), crate::error::Kind::Playbook).unwrap().unwrap();
        match read(node.get("confirm")) {
            Ok(confirm) => format!("{confirm:?}"),
            Err(errors) => errors.to_string(),
        }
    }

    #[test]
    fn what_it_cannot_be_is_told() {
        assert_eq!(told("confirm: none"), "None");
        assert!(told("confirm: {command: 'true', timeout: 5}").contains("timeout: 5"));
        assert!(told("confirm: false").contains("`confirm: none`"));
        for wrong in ["command: \"test {{ inventory_hostname }} = a\"", "timeout: \"{{ t }}\""] {
            assert!(told(&format!("confirm: {{{wrong}}}")).contains("can't be a template"), "{wrong}");
        }
        assert!(told("confirm: {command: ' '}").contains("is empty"));
        assert!(told("confirm: {timeout: 3}").contains("5"));
    }
}
