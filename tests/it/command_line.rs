//! The program as it is called: what it prints, where, and its exit code.

use crate::junit_rules::read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs netplay in a folder, with a variable of the environment if one is given. Gives exit code, standard output and
/// standard error.
#[must_use]
pub(crate) fn netplay_with(folder: &Path, arguments: &[&str], variable: Option<(&str, &str)>) -> (i32, String, String) {
    let out = command(folder, arguments).envs(variable).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

#[must_use]
fn netplay(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    netplay_with(folder, arguments, None)
}

/// As a user whose home folder this is would call it there.
fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netplay"));
    command.args(arguments).current_dir(folder).env("HOME", folder);
    command.env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME").env_remove("ANSIBLE_VAULT_PASSWORD_FILE");
    command.env_remove("ANSIBLE_VAULT_IDENTITY_LIST");
    command
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
fn batches_that_boot_between_two_mtus_are_told() {
    let site = site();
    let told = |head: &str| {
        let play = format!("- hosts: all\n{head}  resources: [{{mtu: {{interface: eth0, mtu: 9000}}}}]\n");
        std::fs::write(site.path().join("site.yaml"), play).unwrap();
        let (code, out, err) = netplay(site.path(), &["validate", "-i", "hosts.yaml", "site.yaml"]);
        assert_eq!((code, out.as_str()), (0, "valid: 1 play, 1 resource, 3 hosts rendered\n"), "{err}");
        err
    };
    let err = told("  serial: 1\n  reboot: {max_unavailable: 1}\n");
    assert!(
        err.contains("hosts of later batches have another MTU on the same network") && err.contains("site.yaml:4:"),
        "{err}"
    );
    assert_eq!(told("  serial: 1\n"), "");
    assert_eq!(told("  reboot: {max_unavailable: 1}\n"), "");
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let site = site();
    let all = "- hosts: all\n  resources: [{assert: {that: 'true'}}]\n";
    std::fs::write(site.path().join("site.yaml"), format!("{all}{all}")).unwrap();
    let (code, out, err) = netplay(site.path(), &["validate", "-i", "hosts.yaml", "site.yaml"]);
    assert_eq!((code, out.as_str()), (0, "valid: 2 plays, 2 resources, 3 hosts rendered\n"), "{err}");
    let wrong = "- hosts: all
  resources:
    - mtu: {interface: eth0, mtu: x}
    - mtu: {interfce: eth0, mtu: 9000}
    - sysctl: {name: a.b}
    - service: {name: x, state: strted}
    - service: {name: x, state: strted}
      when: false
    - copy: {src: nowhere, dest: relative}
    - mtoo: {}
    - kernel_module: {name: 'a/b!'}
";
    std::fs::write(site.path().join("site.yaml"), wrong).unwrap();
    for command in ["validate", "apply"] {
        let (code, out, err) = netplay(site.path(), &[command, "-i", "hosts.yaml", "site.yaml"]);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        for line in [3, 4, 5, 6, 9, 10, 11] {
            assert!(err.contains(&format!("--> site.yaml:{line}:")), "{line}\n{err}");
        }
        assert_eq!(err.matches("error: ").count(), 8, "{err}");
    }
    let many = format!("- hosts: all\n  resources:\n{}", "  - mtoo: {}\n".repeat(50));
    std::fs::write(site.path().join("site.yaml"), many).unwrap();
    let (_, _, err) = netplay(site.path(), &["validate", "-i", "hosts.yaml", "site.yaml"]);
    assert!(err.ends_with("error: and 30 more errors\n"), "{err}");
}

#[test]
fn the_ways_of_a_boot_may_use_the_variables_of_the_play() {
    let site = site();
    let play = "- hosts: all
  vars: {out: 'drain {{ inventory_hostname }}', rack: r1}
  reboot: {domain: '{{ rack }}', drain: {command: '{{ out }}'}}
  resources: [{assert: {that: 'true'}}]
";
    std::fs::write(site.path().join("site.yaml"), play).unwrap();
    let validate = ["validate", "-i", "hosts.yaml", "site.yaml"];
    let (code, _, err) = netplay(site.path(), &validate);
    assert_eq!((code, err.as_str()), (0, ""));
    let play = play.replace("rack: r1", "rick: r1");
    std::fs::write(site.path().join("site.yaml"), play).unwrap();
    let (code, _, err) = netplay(site.path(), &validate);
    assert!(code == 1 && err.contains("`rack` isn't defined") && err.contains("site.yaml:3:"), "{err}");
}

#[test]
fn what_two_set_of_a_card_is_told_once_and_in_words() {
    let site = site();
    let play = "- hosts: all
  resources:
    - mlxconfig: {device: all, set: {NUM_OF_VFS: 4}}
    - mlxconfig: {device: mlx5_9, set: {NUM_OF_VFS: 8}}
";
    std::fs::write(site.path().join("site.yaml"), play).unwrap();
    let (code, _, err) = netplay(site.path(), &["validate", "-i", "hosts.yaml", "site.yaml"]);
    let told = "`mlxconfig:all` and `mlxconfig:mlx5_9` both set the card parameter NUM_OF_VFS of all cards";
    assert!(code == 1 && err.matches("both set").count() == 1 && err.contains(told), "{err}");
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
fn no_host_at_all_is_no_quiet_success() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    put("empty", "# nobody\n");
    put("hosts", "a1 ansible_connection=local\n[idle]\n");
    put("all.yaml", "- hosts: all\n  resources:\n    - assert: {that: 'true'}\n");
    put("idle.yaml", "- name: tune\n  hosts: idle\n  resources:\n    - assert: {that: 'true'}\n");
    put("none.yaml", "- name: tune\n  hosts: a1:!all\n  resources:\n    - assert: {that: 'true'}\n");
    put("local.yaml", "- hosts: localhost\n  resources:\n    - assert: {that: 'true'}\n");
    for command in [&["apply", "--check", "-i", "empty", "all.yaml"][..], &["facts", "-i", "empty"]] {
        let (code, out, err) = netplay(dir.path(), command);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains("error: the inventory empty has no hosts\n  help: "), "{err}");
    }
    // The machine itself needs no inventory.
    assert_eq!(netplay(dir.path(), &["apply", "--check", "-i", "empty", "local.yaml"]).0, 0);
    for (book, warning) in
        [("idle.yaml", "the group `idle` has no hosts"), ("none.yaml", "the play `tune` has no hosts: its")]
    {
        let (code, out, err) = netplay(dir.path(), &["apply", "-i", "hosts", book]);
        assert!(code == 0 && err.starts_with(&format!("warning: {warning}")), "{err}");
        assert!(out.contains("\nnothing was done: no play has a host ("), "{out}");
    }
    let (code, out, err) = netplay(dir.path(), &["run", "-i", "hosts", "-l", "a1:!all", "--", "true"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", "warning: --limit leaves no host\n"));
}

#[test]
fn a_misspelt_connection_variable_of_a_play_is_told() {
    let site = site();
    let book = "- hosts: a\n  vars: {ansible_becom: true}\n  vars_files: [more.json]\n  resources:\n    - assert: {that: 'true'}\n";
    std::fs::write(site.path().join("site.yaml"), book).unwrap();
    std::fs::write(site.path().join("more.json"), "{\"ansible_conection\": \"local\"}").unwrap();
    let (code, _, err) =
        netplay(site.path(), &["validate", "-i", "hosts.yaml", "site.yaml", "-e", "ansible_prot=22 ansible_user_id=1"]);
    let told = |name: &str, place: &str| {
        err.contains(&format!("warning: nothing reads the variable `{name}`\n    --> {place}"))
    };
    assert_eq!((code, err.matches("warning").count()), (0, 3), "{err}");
    assert!(told("ansible_becom", "site.yaml:2:25") && told("ansible_conection", "./more.json:1:"), "{err}");
    assert!(told("ansible_prot", "-e:1:1") && err.contains("did you mean `ansible_port`?"), "{err}");
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
    // needs 3.4 s and 82 MB. The limit is one of data: the address space has the program's own text in it as well, which grows with
    // whatever is added to it.
    let limited = "ulimit -t 10; ulimit -d 210000; export MALLOC_ARENA_MAX=1 RAYON_NUM_THREADS=2; exec \"$0\" inventory -i hosts --list --limit node0999_19";
    let mut shell = Command::new("sh");
    let out = shell.args(["-c", limited, env!("CARGO_BIN_EXE_netplay")]).current_dir(dir.path()).output().unwrap();
    assert!(out.status.success(), "{:?} {}", out.status, String::from_utf8_lossy(&out.stderr));
    let listed: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let host = &listed["_meta"]["hostvars"]["node0999_19"];
    assert_eq!((&host["rack"], &host["v59"], &host["ansible_host"]), (&999.into(), &59.into(), &"10.3.249.19".into()));
    assert_eq!(listed["level59"]["children"], serde_json::json!(["level58"]));
}

/// The logs of runs, the oldest first.
fn logs(home: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(home.join(".local/state/netplay")) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort_by_key(|path| path.metadata().unwrap().modified().unwrap());
    paths
}

fn events(log: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(log).unwrap();
    assert!(text.ends_with('\n'), "{text:?}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A site in which `a2` and `b1` fail while they are `bad`.
fn failing() -> tempfile::TempDir {
    let site = site();
    let play = |group: &str| {
        format!(
            "- name: play {group}\n  hosts: {group}\n  resources:\n    - assert: {{that: not bad | default(false)}}\n"
        )
    };
    std::fs::write(site.path().join("site.yaml"), play("a") + &play("b")).unwrap();
    let host = |name: &str| site.path().join("host_vars").join(name);
    std::fs::create_dir(site.path().join("host_vars")).unwrap();
    std::fs::write(host("a2"), "bad: true\n").unwrap();
    std::fs::write(host("b1"), "bad: true\n").unwrap();
    site
}

#[test]
fn each_run_leaves_a_log() {
    let site = failing();
    let (code, out, err) = netplay(site.path(), &["apply", "-i", "hosts.yaml", "site.yaml", "-e", "my_password=hush"]);
    assert_eq!((code, err.as_str()), (2, ""), "{out}");
    let [log] = &logs(site.path())[..] else { panic!("one log") };
    assert!(out.ends_with(&format!("log of this run: {}\n", log.display())), "{out}");
    let told = events(log);
    let (first, last) = (&told[0], &told[told.len() - 1]);
    assert_eq!((&first["event"], &first["command"]), (&"run_started".into(), &"apply".into()));
    assert_eq!(first["arguments"].as_array().unwrap()[4..], ["site.yaml", "-e", "(as before)"]);
    assert_eq!((&last["event"], &last["left"]), (&"run_finished".into(), &serde_json::json!(["a2", "b1"])));
    assert_eq!(last["log"], log.display().to_string());
    assert!(!std::fs::read_to_string(log).unwrap().contains("hush"));
    // What changes nothing and asks nothing of the user's leaves none.
    for quiet in ["facts", "inventory"] {
        assert_eq!(netplay(site.path(), &[quiet, "-i", "hosts.yaml"]).0, 0);
    }
    assert_eq!(netplay(site.path(), &["run", "-i", "hosts.yaml", "--", "true"]).0, 0);
    assert_eq!(logs(site.path()).len(), 2);
}

#[test]
fn a_state_folder_that_can_not_be_written_is_a_warning() {
    let site = site();
    let run = ["apply", "-i", "hosts.yaml", "site.yaml"];
    let out = command(site.path(), &run).env("XDG_STATE_HOME", "/dev/null/x").output().unwrap();
    assert_eq!(out.status.code(), Some(0));
    let told = String::from_utf8(out.stderr).unwrap();
    assert!(told.starts_with("warning: no log of this run is kept: /dev/null/x/netplay can't be written: "), "{told}");
    assert_eq!(told.lines().count(), 1);
}

#[test]
fn what_failed_is_done_again_and_nothing_else() {
    let site = failing();
    let again = |more: &[&str]| {
        netplay(site.path(), &[&["apply", "-i", "hosts.yaml", "site.yaml", "--limit", "@failed"], more].concat())
    };
    let visited = |out: &str| ["a1", "a2", "b1"].map(|host| out.lines().any(|line| line.starts_with(host)));
    let (code, out, err) = again(&[]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("error: there is no log of an earlier `apply` of "), "{err}");
    assert_eq!(netplay(site.path(), &["apply", "-i", "hosts.yaml", "site.yaml"]).0, 2);
    let (code, out, err) = again(&["-e", "{\"bad\": false}", "--check"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    // The check didn't count.
    let (code, out, _) = again(&[]);
    assert_eq!((code, visited(&out)), (2, [false, true, true]), "{out}");
    let (code, out, err) =
        netplay(site.path(), &["run", "-f1", "-i", "hosts.yaml", "-l", "@failed", "--", "echo here"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "a2,b1 (2 hosts)\n  here\n", ""));
    // One that has left the inventory is told, and the others are done.
    let hosts = std::fs::read_to_string(site.path().join("hosts.yaml")).unwrap();
    std::fs::write(site.path().join("hosts.yaml"), hosts.replace("{b1: }", "{b2: }")).unwrap();
    std::fs::remove_file(site.path().join("host_vars/a2")).unwrap();
    std::fs::remove_file(site.path().join("host_vars/b1")).unwrap();
    let (code, out, err) = again(&[]);
    assert_eq!((code, visited(&out)), (0, [false; 3]), "{out}");
    assert!(out.contains("nothing to do: 1 host as wanted"), "{out}");
    assert_eq!(err.matches("warning: hosts that failed are no longer in the inventory: b1").count(), 1, "{err}");
    // Nothing is left: nothing is done, and above all not everything.
    let (code, out, err) = again(&[]);
    assert_eq!(code, 0);
    assert!(out.contains("nothing was done: no play has a host"), "{out}");
    assert!(err.starts_with("warning: the last run left no host undone\n"), "{err}");
}

#[test]
fn a_run_that_was_killed_leaves_whole_lines_and_what_it_had_not_done() {
    let site = site();
    // The guard of the second host hangs, so that nothing is changed.
    let guard = "test {{ inventory_hostname }} = a1 || { touch {{ here }}/began; sleep 60; }";
    let play = format!("- hosts: a\n  serial: 1\n  resources:\n    - command: {{cmd: 'false', unless: '{guard}'}}\n");
    std::fs::write(site.path().join("site.yaml"), play).unwrap();
    let here = format!("here={}", site.path().display());
    let mut child = command(site.path(), &["apply", "-i", "hosts.yaml", "site.yaml", "-e", &here])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !site.path().join("began").exists() {
        assert!(start.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let told = events(&logs(site.path())[0]);
    let kinds: Vec<&str> = told.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["run_started", "play_started", "batch_started", "resource", "host", "batch_started"]);
    let (code, out, err) = netplay(site.path(), &["run", "-i", "hosts.yaml", "-l", "@failed", "--", "echo here"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "a2\n  here\n", ""));
}

#[test]
fn documents_of_a_run_can_be_read() {
    let site = failing();
    let outputs = ["--output", "junit=report.xml", "--output", "json"];
    let (code, out, _) = netplay(site.path(), &[&["apply", "-i", "hosts.yaml", "site.yaml"], &outputs[..]].concat());
    assert_eq!(code, 2);
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["totals"]["hosts"]["failed"], 2);
    assert_eq!(document["plays"][0]["hosts"].as_array().unwrap().len(), 2);
    let xml = std::fs::read_to_string(site.path().join("report.xml")).unwrap();
    let failed =
        read(&xml).values().flat_map(|cases| cases.values()).filter(|(verdict, _)| verdict == "failure").count();
    assert_eq!(failed, 2);
    for format in ["json=/dev/full", "junit=/dev/full"] {
        let (code, _, err) = netplay(
            site.path(),
            &["apply", "--check", "-i", "hosts.yaml", "site.yaml", "-e", "bad=", "--output", format],
        );
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("the output to /dev/full is incomplete"), "{err}");
    }
}

#[test]
fn scripts_that_are_shown_can_be_run() {
    let site = site();
    let play =
        "- hosts: a1\n  resources:\n    - command: {cmd: 'false', onlyif: \"echo \\\"it's\\n\\té\\\" >&2; exit 9\"}\n";
    std::fs::write(site.path().join("site.yaml"), play).unwrap();
    let (code, out, err) = netplay(site.path(), &["apply", "-vv", "-i", "hosts.yaml", "site.yaml"]);
    assert_eq!(code, 0, "{err}");
    let script = out.split_once("# a1: script of ").unwrap().1.split_once('\n').unwrap().1;
    let script = &script[..script.find("; exit 0\n}\n").unwrap() + 11];
    // Its argument is the session's own connection.
    let out = Command::new("/bin/sh").args(["-c", script, "sh", ""]).output().unwrap();
    assert_eq!((out.status.code(), out.stderr.as_slice()), (Some(0), &b""[..]));
    let told = String::from_utf8(out.stdout).unwrap();
    assert!(told.contains("it's\n\té\n") && told.ends_with(" end\n"), "{told}");
}

#[test]
fn completions_and_man_pages_are_made() {
    let dir = tempfile::tempdir().unwrap();
    for (shell, has) in [("bash", "complete -F"), ("zsh", "#compdef netplay"), ("fish", "complete -c netplay")] {
        let (code, out, err) = netplay(dir.path(), &["completions", shell]);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.contains(has) && out.contains("host-key-checking"), "{shell}: {out}");
    }
    let folder = dir.path().join("share/man1");
    assert_eq!(netplay(dir.path(), &["man", folder.to_str().unwrap()]), (0, String::new(), String::new()));
    for page in ["netplay", "netplay-apply", "netplay-inventory", "netplay-run"] {
        let text = std::fs::read_to_string(folder.join(format!("{page}.1"))).unwrap();
        assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{text}");
    }
    let (code, _, err) = netplay(dir.path(), &["man", "share/man1/netplay.1"]);
    assert!(code == 1 && err.starts_with("error: can't write man pages to share/man1/netplay.1: "), "{err}");
}

#[test]
fn settings_stand_for_options() {
    let site = site();
    std::fs::write(site.path().join("netplay.toml"), "inventory = \"hosts.yaml\"\noutput = \"json\"\n").unwrap();
    let (code, out, _) = netplay(site.path(), &["apply", "--check", "site.yaml"]);
    assert_eq!(code, 0);
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["totals"]["hosts"]["ok"], 3);
    assert!(netplay(site.path(), &["inventory", "--graph"]).1.contains("b1"));
}

#[test]
fn a_template_without_an_end_ends_the_command() {
    let site = site();
    let double = "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}";
    let play = format!(
        "- hosts: a1\n  vars:\n    same: \"{double}{{{{ n.a == n.b }}}}\"\n  resources:\n    - assert: {{that: same}}\n"
    );
    std::fs::write(site.path().join("site.yaml"), play).unwrap();
    let begun = Instant::now();
    let (code, out, err) = netplay(site.path(), &["validate", "-i", "hosts.yaml", "site.yaml"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.starts_with("error: this template isn't done after 10 seconds\n  --> site.yaml:3:11\n"), "{err}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// A real run with all sorts of outcomes, read as Jenkins and GitLab read it.
#[test]
fn a_report_keeps_to_what_its_readers_ask() {
    let site = site();
    let here = site.path().display();
    // The host h1 of this inventory has the secret.
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/vault");
    std::fs::copy(case.join("sealed/values/values.yaml"), site.path().join("sealed.yaml")).unwrap();
    let odd = r"printf '\\033[1mbold\\001 <&>]]> %s\\nsecond\\n' {{ hostvars.h1.direct }}; exit 3";
    let play = format!(
        "- hosts: a:b
  on_error: continue
  resources:
    - {{name: odd, command: {{cmd: \"{odd}\", unless: 'false'}}, no_log: false}}
    - {{name: after, command: {{cmd: 'true', unless: 'false'}}, after: odd}}
    - {{command: {{cmd: 'exit 4', unless: 'false'}}, ignore_errors: true}}
    - {{copy: {{dest: '{here}/{{{{ inventory_hostname }}}}', content: \"a\\n\"}}, notify: told}}
    - {{file: {{path: '{here}/never', state: absent}}, when: inventory_hostname == 'a1'}}
    - {{name: \"<title> & \\\"quote\\\"\", assert: {{that: 'true'}}}}
    - {{name: hidden, command: {{cmd: 'echo {{{{ hostvars.h1.direct }}}}; exit 5', unless: 'false'}}, no_log: true}}
  handlers:
    - {{name: told, command: {{cmd: 'true'}}}}
- hosts: b
  resources: [{{assert: {{that: 'false', msg: \"line 1\\nline 2\"}}}}]
"
    );
    std::fs::write(site.path().join("site.yaml"), play).unwrap();
    for more in [&["--diff"][..], &["--check"]] {
        let all = ["apply", "-i", "hosts.yaml", "-i", "sealed.yaml", "site.yaml", "--output", "junit=report.xml"];
        let password = case.join("password");
        let password = ("ANSIBLE_VAULT_PASSWORD_FILE", password.to_str().unwrap());
        let (code, _, err) = netplay_with(site.path(), &[&all[..], more].concat(), Some(password));
        assert_eq!(code, 2, "{err}");
        let xml = std::fs::read_to_string(site.path().join("report.xml")).unwrap();
        let suites = read(&xml);
        assert!(suites.len() >= 3, "{xml}");
        if more == ["--check"] {
            continue;
        }
        assert_eq!(suites.len(), 4, "{xml}");
        let a1 = &suites["hosts: a:b.a1"];
        let verdicts: Vec<&str> = a1.values().map(|(verdict, _)| verdict.as_str()).collect();
        for (verdict, count) in [("failure", 2), ("skipped", 2)] {
            assert_eq!(verdicts.iter().filter(|v| **v == verdict).count(), count, "{verdict} {a1:#?}");
        }
        assert!(!xml.contains("hunter2-hunter2"), "{xml}");
        let text = |part: &str| {
            &a1.iter().find(|(name, _)| name.contains(part)).unwrap_or_else(|| panic!("{part} {a1:#?}")).1.1
        };
        assert!(text("odd").starts_with("exit code 3: \\x1b[1mbold\\x01 <&>]]> (secret)\nsecond\n"), "{}", text("odd"));
        assert!(a1.values().any(|(_, text)| text.starts_with("failed, ignored: exit code 4")), "{a1:#?}");
        assert!(text("hidden").starts_with("the reason is hidden by no_log"), "{}", text("hidden"));
    }
}
