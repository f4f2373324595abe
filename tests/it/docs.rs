//! The reference: what `netplay docs` prints, and that the pages in `docs/` leave nothing out.

use netplay::playbook::COMMON_KEYS;
use netplay::resource::TYPES;
use regex::Regex;
use std::path::Path;
use std::process::{Command, Output};

fn netplay(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_netplay")).args(args).output().unwrap()
}

fn printed(args: &[&str]) -> String {
    let output = netplay(args);
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn the_page_of_resources_is_what_the_program_prints() {
    let mut wanted = printed(&["docs"]);
    for kind in TYPES {
        wanted += &format!("\n{}", printed(&["docs", kind.name()]));
    }
    if std::env::var_os("UPDATE_DOCS").is_some_and(|v| !v.is_empty()) {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/resources.md"), &wanted).unwrap();
    }
    let written = read("docs/resources.md");
    let differs = wanted.lines().zip(written.lines()).find(|(wanted, written)| wanted != written);
    assert!(wanted == written, "docs/resources.md is older than the types (UPDATE_DOCS=1 writes it anew): {differs:?}");
}

#[test]
fn a_type_that_is_not_there_has_a_remedy() {
    let output = netplay(&["docs", "mtus"]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.starts_with("error: there is no type `mtus`\n  help: did you mean `mtu`? known: assert, "), "{told}");
}

/// The strings of a constant list of the source.
fn listed(path: &str, name: &str) -> Vec<String> {
    let text = read(path);
    let list = Regex::new(&format!(r"(?s)\bconst {name}: [^=]*= &?\[(.*?)\];")).unwrap();
    let list = list.captures(&text).unwrap_or_else(|| panic!("{path} has no list {name}"))[1].to_owned();
    let names: Vec<String> = Regex::new(r#""(\w+)""#).unwrap().captures_iter(&list).map(|c| c[1].to_owned()).collect();
    assert!(names.len() > 1, "{name}");
    names
}

#[test]
fn the_page_of_playbooks_leaves_nothing_out() {
    let page = read("docs/playbook.md");
    let code: Vec<&str> = Regex::new("(?s)```.*?```|`[^`]+`").unwrap().find_iter(&page).map(|m| m.as_str()).collect();
    let code = code.join(" ").to_lowercase();
    let mut wanted: Vec<String> = COMMON_KEYS.iter().map(|k| k.name.to_owned()).collect();
    for (path, list) in [
        ("src/playbook/keys.rs", "PLAY"),
        ("src/playbook/keys.rs", "INCLUDE"),
        ("src/playbook/keys.rs", "LOOP"),
        ("src/playbook/vars.rs", "RESERVED"),
        ("src/playbook/template/filters.rs", "FILTERS"),
        ("src/playbook/template/filters.rs", "TESTS"),
        ("src/transport/options/asked.rs", "HONOURED"),
        ("src/transport/options/asked.rs", "WITHOUT_EFFECT"),
    ] {
        wanted.extend(listed(path, list));
    }
    let connection = read("src/transport/options/mod.rs");
    let variables = Regex::new(r#""((?:ansible|netplay)_[a-z_]+)""#).unwrap();
    wanted.extend(variables.captures_iter(&connection).map(|c| c[1].to_owned()));
    // The keys of the facts, from where they are made.
    let key = Regex::new(r#""(\w+)": "#).unwrap();
    for path in ["src/facts/mod.rs", "src/facts/host.rs", "src/facts/network.rs", "src/facts/rdma.rs"] {
        let text = read(path);
        let text = text.split("#[cfg(test)]").next().unwrap();
        wanted.extend(key.captures_iter(text).map(|c| c[1].to_owned()));
    }
    wanted.sort_unstable();
    wanted.dedup();
    wanted.retain(|name| !Regex::new(&format!(r"\b{name}\b")).unwrap().is_match(&code));
    assert!(wanted.is_empty(), "docs/playbook.md doesn't name {}", wanted.join(", "));
}
