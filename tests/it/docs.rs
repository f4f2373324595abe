//! The reference: what `netplay docs` prints, and that the pages in `docs/` leave nothing out.

use netplay::finding::{FINDINGS, Finding};
use netplay::inventory::vault::Vault;
use netplay::playbook::{COMMON_KEYS, Playbook};
use netplay::resource::TYPES;
use netplay::secret::Secrets;
use netplay::verify::CHECKS;
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
    written("docs/resources.md", &wanted);
}

#[test]
fn the_page_of_findings_is_what_the_program_prints() {
    let page = printed(&["docs", "findings"]);
    for known in FINDINGS {
        assert!(page.contains(&format!("\n## {}\n\n", known.name)), "{}", known.name);
    }
    written("docs/findings.md", &page);
}

/// That a page is as it is printed.
#[track_caller]
fn written(path: &str, wanted: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some_and(|v| !v.is_empty()) {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(path), wanted).unwrap();
    }
    let written = read(path);
    let differs = wanted.lines().zip(written.lines()).find(|(wanted, written)| wanted != written);
    assert!(wanted == written, "{path} is older than the program (UPDATE_DOCS=1 writes it anew): {differs:?}");
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

/// Words of the table of findings, as they may be.
const WORDS: &[(&str, &str)] = &[
    ("interface", "eth1"),
    ("values", "net.core.rmem_max: 134217728"),
    ("board", "MT_0000000838"),
    ("version", "28.39.1002"),
    ("user", "ops"),
    ("place", "eth1"),
    ("device", "mlx5_0"),
    ("wanted", "ETH"),
    ("mtu", "9000"),
    ("address", "10.1.0.3"),
    ("lanes", "16"),
    ("pci", "0000:86:00.0"),
    ("network", "10.1.0.0/16"),
    ("port", "5201"),
    ("check", "tcp"),
    ("tool", "iperf3"),
    ("package", "iperf3"),
    ("where", "a place"),
    ("why", "a reason"),
];

#[test]
fn what_mends_a_finding_can_be_put_into_a_playbook() {
    let (code, open) = (Regex::new("`([^`]+)`").unwrap(), Regex::new(r"\{[a-z_]+\}").unwrap());
    let mut lines = 0;
    for known in FINDINGS {
        let found = Finding::new(known, [], "", WORDS);
        assert!(!open.is_match(&found.cause) && !open.is_match(&found.remedy), "{found:?}");
        for line in code.captures_iter(&found.remedy).map(|c| c[1].to_owned()) {
            if TYPES.iter().any(|kind| line.starts_with(&format!("{}: ", kind.name()))) {
                let book = format!("- hosts: all\n  resources:\n    - {line}\n");
                let read = Playbook::of_text(known.name, book, &Vault::new(Secrets::default()));
                assert!(read.is_ok(), "{}", read.unwrap_err());
                lines += 1;
            }
        }
    }
    assert!(lines > 5);
}

#[test]
fn the_page_of_checks_leaves_nothing_out() {
    let page = read("docs/verify.md");
    for kind in CHECKS {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", kind.name)));
        let row = row.unwrap_or_else(|| panic!("docs/verify.md has no row of {}", kind.name));
        for key in kind.keys {
            assert!(row.contains(&format!("`{}`", key.name)), "{}: {}", kind.name, key.name);
        }
    }
}
