//! The direction of imports. A module may use only what stands in its row; a new edge is a decision, made here.

use regex::Regex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const EDGES: &[(&str, &[&str])] = &[
    ("source", &[]),
    ("error", &["source"]),
    ("yaml", &["error", "source"]),
    ("secret", &[]),
    ("shell", &[]),
    ("hostlist", &["error", "source"]),
    ("inventory", &["error", "hostlist", "secret", "source", "yaml"]),
    ("resource", &["error", "shell", "source", "yaml"]),
    ("facts", &["resource", "shell"]),
    ("finding", &[]),
    ("event", &["finding", "resource"]),
    ("verify", &["error", "event", "finding", "hostlist", "resource", "shell", "yaml"]),
    ("playbook", &["error", "inventory", "resource", "shell", "source", "verify", "yaml"]),
    ("graph", &["error", "playbook", "resource"]),
    ("plan", &["error", "event", "graph", "playbook", "resource"]),
    ("transport", &["error", "secret", "source", "yaml"]),
    ("engine", &["event", "facts", "finding", "graph", "plan", "playbook", "resource", "shell", "transport", "verify"]),
    ("report", &["error", "event", "hostlist", "secret"]),
    ("logs", &["error"]),
    (
        "commands",
        &[
            "cli",
            "engine",
            "error",
            "event",
            "facts",
            "finding",
            "graph",
            "hostlist",
            "inventory",
            "logs",
            "plan",
            "playbook",
            "report",
            "resource",
            "secret",
            "shell",
            "source",
            "transport",
            "verify",
            "yaml",
        ],
    ),
    ("cli", &["commands", "error", "playbook", "report", "secret", "source", "transport", "verify"]),
    ("lib", &[]),
    ("main", &[]),
];

/// Crates that only one module may name, so that they can be replaced there.
const OWNERS: &[(&str, &str)] = &[
    ("saphyr_parser", "yaml"),
    ("minijinja", "playbook"),
    ("minijinja_contrib", "playbook"),
    ("ssh2", "transport"),
    ("ssh_key", "transport"),
    ("clap", "cli"),
    ("clap_complete", "cli"),
    ("clap_mangen", "cli"),
    ("toml", "cli"),
    ("similar", "report"),
    ("indicatif", "report"),
    ("petgraph", "graph"),
    ("rpassword", "commands"),
    ("aho_corasick", "secret"),
    ("aes", "inventory"),
    ("ctr", "inventory"),
    ("pbkdf2", "inventory"),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The text of a file that is compiled into the program: without its tests and comments.
fn program(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let text = match text.find("#[cfg(test)]\nmod tests {") {
        Some(at) => text[..at].to_owned(),
        None => text,
    };
    text.lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn modules() -> BTreeMap<String, Vec<(PathBuf, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut modules = BTreeMap::<String, Vec<(PathBuf, String)>>::new();
    for file in files {
        let inner = file.strip_prefix(&root).unwrap().to_owned();
        if inner.components().any(|c| matches!(c.as_os_str().to_str(), Some("tests.rs" | "tests"))) {
            continue;
        }
        let first = inner.components().next().unwrap().as_os_str().to_str().unwrap();
        modules.entry(first.trim_end_matches(".rs").to_owned()).or_default().push((inner, program(&file)));
    }
    assert!(modules.len() > 10);
    modules
}

#[test]
fn imports_go_one_way() {
    let edge = Regex::new(r"\bcrate::([a-z0-9_]+)").unwrap();
    let group = Regex::new(r"\bcrate::\{").unwrap();
    let mut wrong = Vec::new();
    for (module, files) in modules() {
        let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == module) else {
            wrong.push(format!("src/{module} has no row in this test"));
            continue;
        };
        for (file, text) in files {
            assert!(!group.is_match(&text), "{}: write `use crate::…` one module a line", file.display());
            for found in edge.captures_iter(&text) {
                let other = &found[1];
                if other != module && !allowed.contains(&other) {
                    wrong.push(format!("src/{} uses {other}, which {module} may not", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_rows_have_no_cycle_but_the_command_line() {
    // In the order of the rows each module uses only earlier ones; `cli` and `commands` know each other.
    for (i, (module, uses)) in EDGES.iter().enumerate() {
        for other in *uses {
            let at = EDGES.iter().position(|(name, _)| name == other).unwrap();
            assert!(at < i || (*module, *other) == ("commands", "cli"), "{module} → {other}");
        }
    }
}

#[test]
fn a_crate_has_one_owner() {
    let mut wrong = Vec::new();
    for (module, files) in modules() {
        for (file, text) in files {
            for (name, owner) in OWNERS {
                let used = Regex::new(&format!(r"\b{name}::")).unwrap().is_match(&text);
                if used && module != *owner {
                    wrong.push(format!("src/{} names the crate {name}, which only {owner} may", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
