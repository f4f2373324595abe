//! The keys that a playbook has around its resources.

use crate::resource::Key;

/// The keys of a play.
pub(super) const PLAY: &[&str] = &[
    "name",
    "hosts",
    "become",
    "become_user",
    "vars",
    "vars_files",
    "serial",
    "max_fail_percentage",
    "on_error",
    "reboot",
    "confirm",
    "tags",
    "resources",
    "handlers",
    "verify",
    "checks",
];

/// The keys of an include.
pub(super) const INCLUDE: &[&str] = &["include", "name", "when", "vars", "tags", "become", "become_user"];

/// The keys of `loop_control`.
pub(super) const LOOP: &[&str] = &["loop_var", "index_var"];

/// The keys of every resource and handler, beside the one that names its type.
pub const COMMON: &[Key] = &[
    Key::optional("name", "string", "Its title, by which others can name it too."),
    Key::optional(
        "when",
        "expression, or a list",
        "It is left out unless this holds, all of a list; without `{{ }}`. In a loop it is asked for each round.",
    ),
    Key::optional("loop", "list", "It is there once for each item, which is `item` in it."),
    Key::optional("loop_control", "mapping", "`loop_var`: another name for `item`; `index_var`: a name for 0, 1, 2, …"),
    Key::optional("vars", "mapping", "Variables that only it sees."),
    Key::optional(
        "tags",
        "string, or a list",
        "For `--tags` and `--skip-tags`; the play's are added. Not in handlers.",
    ),
    Key::optional("after", "string, or a list", "Addresses or titles of what comes before it. Not in handlers."),
    Key::optional("before", "string, or a list", "Addresses or titles of what comes after it. Not in handlers."),
    Key::optional("notify", "string, or a list", "Handlers that a change of it calls for. Not in handlers."),
    Key::optional("become", "boolean", "Whether it is done as another user, by sudo. Not given, as the play has it."),
    Key::optional("become_user", "string", "Who that user is. Not given, the play's `become_user`, or else root."),
    Key::default(
        "ignore_errors",
        "boolean",
        "false",
        "Whether a failure of it is only told: what depends on it is done, and the host doesn't count as failed.",
    ),
    Key::default("timeout", "seconds", "120", "How long each of its steps may take, from 1 to 86400."),
    Key::default("no_log", "boolean", "false", "Whether its values are kept out of every output."),
];
