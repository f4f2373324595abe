//! What to do instead of what Ansible has and netplay hasn't.

use super::keys;
use crate::error::Error;
use crate::resource::AnyType;
use crate::yaml::Node;

/// Where a key stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Play,
    Resource,
    Include,
    Loop,
}

/// The remedy for a key of Ansible's.
pub(super) fn key(level: Level, name: &str) -> Option<&'static str> {
    if let Some(remedy) = common(name) {
        return Some(remedy);
    }
    Some(match (level, name) {
        (Level::Play, "tasks") => "what the hosts are to be is listed under `resources`",
        (Level::Play, "pre_tasks" | "post_tasks") => {
            "put it into `resources`: the file's order is kept, and `after` and `before` order what must be; or write a play of its own"
        }
        (Level::Play, "roles") => "include a file of resources by `- include: FILE`",
        (Level::Play, "gather_facts" | "gather_subset" | "gather_timeout" | "fact_path") => {
            "remove it: facts are read where a play names `facts`, and only there"
        }
        (Level::Play, "strategy") => "remove it: each host goes its own way, and `serial` makes batches",
        (Level::Play, "any_errors_fatal") => "write `max_fail_percentage: 0`",
        (Level::Play, "remote_user") => "set the variable `ansible_user`",
        (Level::Play, "port") => "set the variable `ansible_port`",
        (Level::Play, "connection") => "set the variable `ansible_connection`",
        (Level::Play, "vars_prompt") => "give the value by -e name=value",
        (Level::Play, "force_handlers") => "remove it: handlers run also when other resources failed",
        (Level::Play, "ignore_errors" | "no_log" | "timeout" | "notify") => "it is a key of each resource",
        (Level::Play, "when") => "narrow `hosts`, or put it on the resources",
        (Level::Play, "order") => "remove it: hosts are visited in the order of the pattern",
        (Level::Play, "loop") => "it is a key of each resource",
        (Level::Resource, name) if name.starts_with("with_") => match name {
            "with_dict" => "write `loop: \"{{ mapping | dict2items }}\"`, with `item.key` and `item.value`",
            "with_sequence" => "write `loop: \"{{ range(1, 5) | list }}\"`",
            _ => "write `loop:` with a list",
        },
        (Level::Resource, "register") => {
            "what a resource finds isn't seen by others: use `facts`, or let a change `notify` a handler"
        }
        (Level::Resource, "until" | "retries" | "delay") => {
            "a resource isn't tried again; let a `command` wait by itself"
        }
        (Level::Resource, "changed_when" | "creates" | "removes" | "chdir") => "it is a key inside of `command`",
        (Level::Resource, "failed_when") => "a `command` fails by its exit code: say it in its `cmd`",
        (Level::Resource, "args") => "put the keys into the mapping under the type",
        (Level::Resource, "listen") => "name the handler's title or address in `notify`",
        (Level::Resource, "block" | "rescue" | "always") => {
            "list the resources one by one; for a common `when`, put them into a file and `include` it"
        }
        (Level::Resource, "async" | "poll") => "give the resource a `timeout`",
        (Level::Resource, "action" | "local_action") => "write the type as the key",
        (Level::Resource, "include_tasks" | "import_tasks" | "include_role" | "import_role") => "write `include: FILE`",
        (Level::Resource, "any_errors_fatal") => "write `max_fail_percentage: 0` in the play, or use `assert`",
        (Level::Resource, "throttle") => "write `serial` in the play",
        (Level::Include, "loop") => "put the `loop` on the resources of the file",
        (Level::Include, "notify" | "after" | "before" | "ignore_errors" | "timeout" | "no_log" | "loop_control") => {
            "put it on the resources of the file"
        }
        (Level::Loop, "label") => "remove it: each round is told by its address",
        (Level::Loop, "pause" | "extended" | "break_when" | "extended_allitems") => "remove it",
        _ => return None,
    })
}

fn common(name: &str) -> Option<&'static str> {
    Some(match name {
        "become_method" | "become_flags" | "become_exe" => "remove it: `become` is by sudo",
        "environment" => "set it in the text of a `command`: `cmd: NAME=value tool`",
        "delegate_to" | "delegate_facts" => "write a play for that host",
        "run_once" => "write a play for one host, such as `hosts: GROUP[0]`",
        "check_mode" | "diff" => "it holds for a whole run: --check, --diff",
        "collections" | "module_defaults" | "debugger" => "remove it",
        _ => return None,
    })
}

/// The remedy for an entry of a playbook that isn't a play.
pub(super) fn playbook(key: &Node) -> Option<&'static str> {
    match key.text()?.rsplit('.').next()? {
        "import_playbook" => Some("name the playbooks on the command line, in their order"),
        "include" => {
            Some("an `include` stands among the `resources` of a play; playbooks are named on the command line")
        }
        _ => None,
    }
}

/// The remedy for the name of a module, without the collection in front.
pub(super) fn module(name: &str) -> Option<&'static str> {
    Some(match name {
        "shell" | "raw" | "script" | "win_command" => "use `command`: a string `cmd` is run by sh",
        "lineinfile" | "blockinfile" | "replace" | "ini_file" | "assemble" => {
            "use `copy` or `template` for the whole file; `sysctl` and `ifcfg` edit their files by key"
        }
        "systemd" | "systemd_service" | "sysvinit" => "use `service`",
        "apt" | "yum" | "dnf" | "dnf5" | "zypper" | "pip" => "use `package`",
        "modprobe" => "use `kernel_module`",
        "debug" => "remove it: `netplay validate`, and --check --diff, show what would be done",
        "set_fact" | "include_vars" => "use `vars` or `vars_files`: variables are rendered when they are used",
        "fail" => "use `assert`",
        "setup" | "gather_facts" | "stat" | "slurp" | "command_facts" | "service_facts" | "package_facts" => {
            "remove it: facts are under `facts`, and every resource looks at its own state"
        }
        "reboot" => {
            "it is a keyword of the play, `reboot: {max_unavailable: 1}`: hosts are booted where something needs it"
        }
        "wait_for" | "wait_for_connection" | "pause" => "remove it: a `command` can wait by itself",
        "get_url" | "unarchive" | "uri" | "git" => "use `command` with `creates`",
        "nmcli" | "interfaces_file" | "network_connections" => "use `mtu` or `ifcfg`",
        "firewalld" | "ufw" | "iptables" | "nftables" => "use `firewall_rule`",
        "meta" => "remove it: handlers run at the end of the play",
        "import_playbook" => "name the playbooks on the command line, in their order",
        _ => return None,
    })
}

/// A type whose keys stand beside it, as far to the left as itself, so that it is empty.
pub(super) fn unindented(entries: &[(Node, Node)], find: fn(&str) -> Option<&'static dyn AnyType>) -> Option<Error> {
    let name = |(key, _): &(Node, Node)| key.text().unwrap_or_default().to_owned();
    let at = entries.iter().position(|entry| entry.1.is_null() && find(&name(entry)).is_some())?;
    let kind = find(&name(&entries[at]))?;
    let own = |name: &str| kind.keys().iter().any(|key| key.name == name);
    let common = |name: &str| keys::COMMON.iter().any(|key| key.name == name);
    // Before the type, `name` is most likely the resource's own.
    let beside: Vec<&(Node, Node)> = entries
        .iter()
        .enumerate()
        .filter(|(i, entry)| *i != at && own(&name(entry)) && (*i > at || !common(&name(entry))))
        .map(|(_, entry)| entry)
        .collect();
    let stranger = |entry: &(Node, Node)| !own(&name(entry)) && !common(&name(entry));
    if entries.iter().enumerate().any(|(i, entry)| i != at && stranger(entry)) {
        return None;
    }
    let listed = beside.iter().map(|entry| format!("`{}`", name(entry))).collect::<Vec<_>>().join(", ");
    let message = format!("`{}` is empty, and what belongs into it stands beside it: {listed}", kind.name());
    Some(Error::playbook(&beside.first()?.0.span, message).hint(format!("indent these under `{}`", kind.name())))
}
