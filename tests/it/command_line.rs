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

/// 20,000 hosts of 1,000 racks, whose groups are nested in rows, halls and 60 levels above them: 5 MB of text.
fn large_inventory() -> String {
    let mut text = String::new();
    for rack in 0..1000 {
        text += &format!("[rack{rack:04}]\n");
        for host in 0..20 {
            let serial = "0123456789abcdef".repeat(10);
            text += &format!(
                "node{rack:04}_{host:02} ansible_host=10.{}.{}.{host} rack={rack} unit={host} rails=[1,2,3,4] mac=00:11:22:33:44:55 serial={serial}\n",
                rack / 250,
                rack % 250,
            );
        }
        text +=
            &format!("[row{:03}:children]\nrack{rack:04}\n[hall{:02}:children]\nrow{0:03}\n", rack / 10, rack / 100);
    }
    for hall in 0..10 {
        text += &format!("[level00:children]\nhall{hall:02}\n");
    }
    for level in 1..60 {
        text +=
            &format!("[level{level:02}:children]\nlevel{:02}\n[level{level:02}:vars]\nv{level}={level}\n", level - 1);
    }
    text
}

#[test]
fn an_inventory_of_20_000_hosts_needs_little() {
    let dir = tempfile::tempdir().unwrap();
    let text = large_inventory();
    assert!(text.len() > 5_000_000, "{}", text.len());
    std::fs::write(dir.path().join("hosts"), text).unwrap();
    // Processor time and memory are limited by the kernel, whatever else the machine does meanwhile. An unoptimised build
    // needs 3.4 s and 82 MB.
    let limited = "ulimit -t 10; ulimit -v 250000; export MALLOC_ARENA_MAX=1 RAYON_NUM_THREADS=2; exec \"$0\" inventory -i hosts --list --limit node0999_19";
    let mut shell = Command::new("sh");
    let out = shell.args(["-c", limited, env!("CARGO_BIN_EXE_netplay")]).current_dir(dir.path()).output().unwrap();
    assert!(out.status.success(), "{:?} {}", out.status, String::from_utf8_lossy(&out.stderr));
    let listed: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let host = &listed["_meta"]["hostvars"]["node0999_19"];
    assert_eq!((&host["rack"], &host["v59"], &host["ansible_host"]), (&999.into(), &59.into(), &"10.3.249.19".into()));
    assert_eq!(listed["level59"]["children"], serde_json::json!(["level58"]));
}
