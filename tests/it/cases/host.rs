//! Answers of the groups that read files, made of what a case says is on the host.

use netplay::resource::Output;
use netplay::resource::probes::whole::WholeFile;
use netplay::yaml::Node;
use std::fmt::Write as _;

/// What the host of a case answers to a group's arguments; nothing if it isn't a group of files.
pub(super) fn answer(host: &Node, group: &str, args: &[String]) -> Option<Output> {
    match group {
        "files" => Some(small(host, args)),
        "whole files" => Some(whole(host, args)),
        _ => None,
    }
}

/// What is at a path.
struct Thing<'a> {
    node: &'a Node,
    /// The path without links.
    real: String,
}

impl<'a> Thing<'a> {
    fn text(&self) -> Option<&'a str> {
        match self.node.as_map() {
            Some(_) => self.node.get("text").and_then(Node::text),
            None => self.node.text().filter(|t| *t != "directory"),
        }
    }
    fn directory(&self) -> bool {
        self.node.text() == Some("directory") || self.flag("directory")
    }
    fn flag(&self, key: &str) -> bool {
        self.node.get(key).and_then(Node::as_bool).unwrap_or_default()
    }
}

/// What is at a path, links followed: nothing where nothing is, and the path that was looked at last.
fn find<'a>(host: &'a Node, path: &str) -> Result<Thing<'a>, String> {
    let mut path = path.to_owned();
    for _ in 0..8 {
        let Some(node) = host.get(&path).filter(|n| !n.is_null()) else { return Err(path) };
        let Some(link) = node.get("link").and_then(Node::text) else { return Ok(Thing { node, real: path }) };
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        path = plain(&if link.starts_with('/') { link.to_owned() } else { format!("{parent}/{link}") });
    }
    Err(String::new())
}

/// A path without `.` and `..`.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|p| !p.is_empty() && *p != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    format!("/{}", parts.join("/"))
}

fn small(host: &Node, args: &[String]) -> Output {
    let (mut stdout, mut stderr) = (String::new(), String::new());
    for path in args {
        let reason = match find(host, path) {
            Err(_) => "No such file or directory",
            Ok(thing) if thing.directory() => "Is a directory",
            Ok(thing) if thing.flag("unreadable") => "Permission denied",
            Ok(thing) => {
                for line in thing.text().unwrap_or_default().lines() {
                    let _ = writeln!(stdout, "{path}:{line}");
                }
                continue;
            }
        };
        let _ = writeln!(stderr, "grep: {path}: {reason}");
    }
    Output { code: if stderr.is_empty() { 0 } else { 2 }, stdout: stdout.into_bytes(), stderr: stderr.into_bytes() }
}

/// The form is that of `src/resource/probes/whole.rs`, whose own tests hold it to what hosts print.
fn whole(host: &Node, args: &[String]) -> Output {
    let (mut stat, mut records, mut mounts) = (String::new(), String::new(), String::new());
    for arg in args {
        let (want, path) = arg.split_once(' ').unwrap();
        let link = host.get(path).and_then(|n| n.get("link")).and_then(Node::text).unwrap_or_default();
        let thing = match find(host, path) {
            Ok(thing) => thing,
            Err(last) => {
                let mut parents = last.match_indices('/').skip(1).map(|(at, _)| &last[..at]);
                let kind = if last.is_empty() || parents.clone().any(|p| find(host, p).is_ok_and(|t| !t.directory())) {
                    'b'
                } else if parents.any(|p| host.get(p).is_some_and(Node::is_null)) {
                    'p'
                } else {
                    'a'
                };
                let _ = writeln!(records, "{kind} {} {} - -\n{link}\n{last}", link.len(), last.len());
                continue;
            }
        };
        let get = |key: &str| thing.node.get(key).and_then(Node::text);
        let mode = get("mode").unwrap_or(if thing.directory() { "0755" } else { "0644" });
        let mode = u32::from_str_radix(mode, 8).unwrap();
        let owner = get("owner").unwrap_or("root:root");
        let (kind, bits) = if thing.directory() {
            ('d', 0o040_000)
        } else if thing.flag("other") {
            ('o', 0o010_000)
        } else {
            ('f', 0o100_000)
        };
        let text = thing.text().unwrap_or_default();
        let number = |name: &str| if name == "root" { 0 } else { 1000 };
        let (user, group) = owner.split_once(':').unwrap();
        let _ = writeln!(stat, "{:x} {} {} {} {owner}", mode | bits, number(user), number(group), text.len());
        let sum = match (kind, want) {
            ('f', "-") => "-",
            ('f', _) if thing.flag("unreadable") => "u",
            ('f', "*") => "!",
            ('f', _) if WholeFile::compare(path, text.as_bytes()) == *arg => "=",
            ('f', _) => "!",
            _ => "-",
        };
        let sent = sum == "!" && text.len() <= 900_000;
        let count = if sent { text.len().to_string() } else { "-".to_owned() };
        let _ = writeln!(records, "{kind} {} {} {sum} {count}\n{link}\n{}", link.len(), thing.real.len(), thing.real);
        if sent {
            let _ = writeln!(records, "{text}");
        }
        for (path, node) in host.as_map().unwrap() {
            if node.get("mounted").is_some() {
                let _ = writeln!(mounts, "9 1 0:9 / {} rw - tmpfs tmpfs rw", path.text().unwrap());
            }
        }
    }
    Output { code: 0, stdout: format!("{stat}\n{records}{mounts}").into_bytes(), stderr: Vec::new() }
}
