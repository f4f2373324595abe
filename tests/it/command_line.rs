//! The program as it is called: what it prints, where, and its exit code.

use std::path::Path;
use std::process::Command;

/// Runs netplay in a folder. Gives exit code, standard output and standard error.
#[must_use]
fn netplay(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netplay"));
    let out = command.args(arguments).current_dir(folder).env("HOME", folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

/// A folder with an inventory of `a1`, `a2` and `b1`, and a playbook with a play for each of their groups.
fn site() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let inventory =
        "all: {vars: {ansible_connection: local}, children: {a: {hosts: {a1: , a2: }}, b: {hosts: {b1: }}}}\n";
    let play =
        |group: &str| format!("- name: play {group}\n  hosts: {group}\n  resources:\n    - assert: {{that: 'true'}}\n");
    std::fs::write(dir.path().join("hosts.yaml"), inventory).unwrap();
    std::fs::write(dir.path().join("site.yaml"), play("a") + &play("b")).unwrap();
    dir
}

#[test]
fn an_inventory_ends_in_a_newline() {
    let site = site();
    for (option, end) in [("--list", "\n}\n"), ("--graph", "--b1\n"), ("--host=a1", "\n}\n")] {
        let (code, out, err) = netplay(site.path(), &["inventory", "-i", "hosts.yaml", option]);
        assert_eq!((code, err.as_str()), (0, ""), "{option}");
        assert!(out.ends_with(end), "{option}: {out:?}");
    }
}

#[test]
fn a_limit_that_leaves_a_play_without_hosts_is_told() {
    let site = site();
    let limited =
        |limit: &str| netplay(site.path(), &["apply", "--check", "-i", "hosts.yaml", "site.yaml", "-l", limit]);
    let (code, out, err) = limited("b");
    assert_eq!((code, err.as_str()), (0, "warning: --limit leaves no host of `play a` (2 hosts)\n"), "{out}");
    assert!(out.contains("b1"), "{out}");
    let (code, out, err) = limited("all:!a:!b");
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    let told =
        "error: --limit leaves no host of `play a` (2 hosts), nor of `play b` (1 host)\n  help: netplay inventory";
    assert!(err.starts_with(told), "{err}");
    assert_eq!(limited("all").2, "");
}

#[test]
fn an_output_that_can_not_be_written_fails_the_run() {
    let site = site();
    let full = ["apply", "--check", "-i", "hosts.yaml", "site.yaml", "--output", "ndjson=/dev/full"];
    let (code, _, err) = netplay(site.path(), &full);
    // Not 1, which says that nothing was touched.
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("the output to /dev/full is incomplete"), "{err}");
}
