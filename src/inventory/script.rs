//! Inventories as JSON: what a program answers to `--list`, and what `ansible-inventory --list` prints.

use super::tree::{GroupId, HostId, Tree};
use super::{Meta, read};
use crate::error::{Error, Kind};
use crate::source::Span;
use crate::yaml::{self, Node};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How much a program may print.
const MAX_OUTPUT: u64 = 1 << 29;

/// Whether a file is a program: executable, and a script or no text at all. An inventory on a file system that makes
/// everything executable is still read as a text, as Ansible does.
pub(super) fn is_program(path: &Path, bytes: &[u8]) -> bool {
    is_executable(path) && (bytes.starts_with(b"#!") || bytes.iter().take(1024).any(|b| *b == 0))
}

/// Whether anybody may execute a file.
pub(super) fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|m| m.permissions().mode() & 0o111 != 0)
}

/// Runs a program and reads its inventory into the tree.
pub(super) fn load(path: &Path, tree: &mut Tree, meta: &Meta, deadline: Duration) -> Result<(), Error> {
    let root = answer(path, &["--list"], deadline)?;
    let Some(root) = root.filter(|r| r.as_map().is_some()) else {
        return Err(Error::new(Kind::Inventory, format!("{} --list printed no JSON object", path.display()))
            .hint("an executable inventory answers with an object of groups"));
    };
    let hosts = groups(&root, tree, meta)?;
    if root.get("_meta").is_none() {
        for host in hosts {
            let name = tree.host(host).name.clone();
            if let Some(vars) = answer(path, &["--host", &name], deadline)? {
                host_vars(tree, host, &vars)?;
            }
        }
    }
    Ok(())
}

/// Whether a document is what `ansible-inventory --list` prints, rather than a YAML inventory.
pub(super) fn is_listing(root: &Node) -> bool {
    root.get("_meta").is_some_and(|meta| meta.as_map().is_some())
}

/// Reads the groups of a listing and their hosts' variables; gives the hosts.
pub(super) fn groups(root: &Node, tree: &mut Tree, meta: &Meta) -> Result<Vec<HostId>, Error> {
    let mut hosts = Vec::new();
    for (name, data) in root.as_map().unwrap_or_default() {
        let Some(text) = name.text().filter(|t| !t.is_empty()) else {
            return Err(Error::inventory(&name.span, "a group without a name"));
        };
        if text == "_meta" {
            continue;
        }
        let group = tree.add_group(text);
        let listed = match data.as_map() {
            None => Some(data),
            Some(_) if ["hosts", "vars", "children"].iter().all(|key| data.get(key).is_none()) => {
                // An old form: the variables of a host that is called as the group is.
                hosts.extend(add(tree, meta, &[(text.to_owned(), name.span.clone())], group));
                group_vars(tree, group, data)?;
                None
            }
            Some(_) => data.get("hosts"),
        };
        if let Some(listed) = listed {
            hosts.extend(add(tree, meta, &names(listed, text, "hosts")?, group));
        }
        if let Some(vars) = data.get("vars") {
            group_vars(tree, group, vars)?;
        }
        if let Some(children) = data.get("children") {
            for (child, place) in names(children, text, "children")? {
                let child = tree.add_group(&child);
                tree.add_child(group, child, &place)?;
            }
        }
    }
    hosts.sort_unstable();
    hosts.dedup();
    if let Some(vars) = root.get("_meta").and_then(|m| m.get("hostvars")) {
        if vars.as_map().is_none() {
            return Err(Error::inventory(&vars.span, format!("`hostvars` is an object, not {}", vars.describe())));
        }
        let known = vars.as_map().unwrap_or_default().iter();
        let known: std::collections::HashMap<&str, &Node> =
            known.filter_map(|(name, vars)| Some((name.text()?, vars))).collect();
        for host in &hosts {
            let name = tree.host(*host).name.clone();
            if let Some(vars) = known.get(&*name) {
                host_vars(tree, *host, vars)?;
            }
        }
    }
    Ok(hosts)
}

fn add(tree: &mut Tree, meta: &Meta, names: &[(String, Span)], group: GroupId) -> Vec<HostId> {
    names.iter().map(|(name, place)| meta.add_host(tree, name, (None, place), group)).collect()
}

fn names(list: &Node, group: &str, key: &str) -> Result<Vec<(String, Span)>, Error> {
    let Some(items) = list.as_seq() else {
        let message = format!("`{key}` of the group `{group}` is a list of names, not {}", list.describe());
        return Err(Error::inventory(&list.span, message));
    };
    let name = |item: &Node| match item.as_str() {
        Some(name) if !name.is_empty() => Ok((name.to_owned(), item.span.clone())),
        _ => Err(Error::inventory(&item.span, format!("a name must be a string, not {}", item.describe()))),
    };
    items.iter().map(name).collect()
}

fn entries(vars: &Node) -> Result<impl Iterator<Item = (Arc<str>, Node)>, Error> {
    let Some(entries) = vars.as_map() else {
        return Err(Error::inventory(&vars.span, format!("variables are an object, not {}", vars.describe())));
    };
    Ok(entries.iter().map(|(name, value)| (Arc::from(name.text().unwrap_or_default()), value.clone())))
}

fn group_vars(tree: &mut Tree, group: GroupId, vars: &Node) -> Result<(), Error> {
    entries(vars)?.try_for_each(|(name, value)| tree.set_group_var(group, &name, &value))
}

fn host_vars(tree: &mut Tree, host: HostId, vars: &Node) -> Result<(), Error> {
    entries(vars)?.try_for_each(|(name, value)| tree.set_host_var(host, &name, &value))
}

/// What a program prints, as JSON; nothing if that is nothing.
fn answer(path: &Path, arguments: &[&str], deadline: Duration) -> Result<Option<Node>, Error> {
    let command = format!("{} {}", path.display(), arguments.join(" "));
    let output = run(path, arguments, deadline, &command)?;
    let source = yaml::decode(&format!("output of {command}"), output, Kind::Inventory)?;
    if source.text.trim().is_empty() {
        return Ok(None);
    }
    if let Err(e) = serde_json::from_str::<serde::de::IgnoredAny>(&source.text) {
        let place = Span::at(&source, e.line(), e.column(), 1);
        return Err(Error::inventory(&place, format!("not valid JSON: {e}")).hint(format!(
            "{} is executable, so it is run as an inventory; if it is none, `chmod -x` it",
            path.display()
        )));
    }
    read::document(&source, Kind::Inventory)
}

fn run(path: &Path, arguments: &[&str], deadline: Duration, command: &str) -> Result<Vec<u8>, Error> {
    let wrong = |message: String| Error::new(Kind::Inventory, message);
    let start = Instant::now();
    let program = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| {
            wrong(format!("{} can't be run: {e}", path.display())).hint("if it is no program, `chmod -x` it")
        })?;
    let output = drain(child.stdout.take());
    let errors = drain(child.stderr.take());
    let left = || deadline.saturating_sub(start.elapsed());
    let read = output.recv_timeout(left());
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) if read.is_ok() => break status,
            Ok(_) if !left().is_zero() => thread::sleep(Duration::from_millis(2)),
            Ok(_) => {
                // What it started may live on and keep the pipes; the threads that read them end with them.
                let _ = child.kill();
                let _ = child.wait();
                return Err(wrong(format!("{command} didn't end within {} s", deadline.as_secs_f32()))
                    .hint("run it by hand to see what it waits for"));
            }
            Err(e) => return Err(wrong(format!("{command} can't be waited for: {e}"))),
        }
    };
    if status.success() {
        return Ok(read.unwrap_or_default());
    }
    let errors = errors.recv_timeout(left().min(Duration::from_secs(1))).unwrap_or_default();
    let errors = String::from_utf8_lossy(&errors);
    let said: Vec<&str> = errors.trim().lines().rev().take(5).collect();
    let error = wrong(format!("{command} failed: {status}"));
    Err(if said.is_empty() {
        error
    } else {
        error.hint(format!("it said: {}", said.into_iter().rev().collect::<Vec<_>>().join("\n        ")))
    })
}

/// Reads a pipe to its end on a thread of its own.
fn drain(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What came before a failure is what there is.
            let _ = pipe.take(MAX_OUTPUT).read_to_end(&mut bytes);
        }
        let _ = sender.send(bytes);
    });
    receiver
}
