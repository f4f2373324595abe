//! Encrypted values on real hosts: they arrive, and are found nowhere else. `tests/cases/vault` has them in the clear.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Host, Hosts, Kind, Netplay, env};

const TOKEN: &str = "it's \"the\" $token of \\all% hösts";
const WORD: &str = "swordfish-in-a-path";
const COOKIE: &str = "a1b2c3d4-e5f60718-293a4b5c-6d7e8f90";
/// A value of a `no_log` resource that isn't encrypted.
const HIDDEN: &str = "codfish-of-no-log";

const TEMPLATE: &str = "# the application\nport = 8080\ntoken = {{ token }}\nend\n";

const PLAYBOOK: &str = r#"
- hosts: all
  become: true
  vars: {hidden: codfish-of-no-log}
  resources:
  - copy: {dest: '/srv/{{ hidden }}', content: '{{ hidden }}', validate: 'false %s'}
    name: hides {{ hidden }}
    no_log: true
    ignore_errors: true
  - command: {cmd: 'true', changed_when: false}
    after: copy:/srv/{{ hidden }}
- hosts: all
  become: true
  resources:
  - name: the word {{ word }}
    template: {src: app.j2, dest: /srv/app.conf, validate: slow %s}
    notify: count {{ word }}
  - file: {path: '/srv/{{ word }}', state: directory}
  - sysctl: {name: net.ipv4.tcp_fastopen_key, value: '{{ cookie }}'}
  - command: {cmd: 'cat >/srv/asked', stdin: '{{ token }}', creates: /srv/asked}
  - command: {cmd: ['printf', '%s\n', '{{ token }}', '{{ word }}'], unless: 'test -e "/srv/none/{{ word }}"'}
    name: prints {{ word }}
  - command: {cmd: 'cat /srv/app.conf; cat /srv/app.conf | base64 -w 0; exit 3', changed_when: false}
    after: 'file:/srv/{{ word }}'
    name: '/srv/{{ word }}'
  - service: {name: '{{ word }}', state: started}
  handlers:
  - name: count {{ word }}
    command: {cmd: 'echo "{{ word }}" >>/srv/counted'}
"#;

fn sealed(file: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/cases/vault/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// A run with the values for all hosts, and the password for them.
fn netplay(hosts: &Hosts, arguments: &[&str]) -> Netplay {
    Netplay::new(hosts, arguments)
        .file("group_vars/all.yaml", &sealed("sealed/lab/values.yaml"))
        .file("vault-password", &sealed("password"))
        .file("site.yaml", PLAYBOOK)
        .file("templates/app.j2", TEMPLATE)
        .variable("ANSIBLE_VAULT_PASSWORD_FILE", "vault-password")
}

/// The secrets that a text has in it, in any of the forms that they may have there.
fn leaks(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let octal = TOKEN.replace('ö', "\\303\\266").replace('\\', "\\\\").replace('%', "%%");
    let parts = [
        TOKEN,
        WORD,
        COOKIE,
        HIDDEN,
        env("LAB_PASSWORD"),
        "$token of",
        "\"the\"",
        "\\\"the\\\"",
        "codfish",
        "swordfish",
    ];
    let base64 = ["c3dvcmRmaXNo", "N3b3JkZmlza", "HN3b3JkZmlz"];
    let all = parts.iter().map(|p| p.to_lowercase()).chain([octal.to_lowercase()]);
    let mut found: Vec<String> = all.filter(|p| lower.contains(p)).collect();
    found.extend(base64.iter().filter(|b| text.contains(*b)).map(|b| (*b).to_owned()));
    found
}

#[track_caller]
fn clean(what: &str, text: &str) {
    let found = leaks(text);
    assert!(found.is_empty(), "{what} has {found:?}:\n{text}");
}

/// How many files a run has written beside its input: none has a secret in it.
fn files(netplay: &Netplay) -> usize {
    let (mut folders, mut count) = (vec![netplay.path("")], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(netplay.path("")).unwrap().display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if !["site.yaml", "vault-password", "inventory.yaml"].contains(&&*name)
                && !name.starts_with("group_vars/")
                && !name.starts_with("templates/")
            {
                let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                assert!(text.len() > 100, "{name}: {text}");
                clean(&name, &text);
                count += 1;
            }
        }
    }
    count
}

fn arguments_of_processes() -> String {
    let out = Command::new("ps").args(["axww", "-o", "args"]).output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// What of these folders holds a secret.
fn holders(host: Host<'_>) -> String {
    let words = ["swordfish", "codfish", "$token of", COOKIE];
    let words = words.map(|w| format!("-e '{w}'")).join(" ");
    host.sh(&format!(
        "grep -rlF {words} /srv /etc /var /run /tmp /root /home /dev/shm 2>/dev/null | sort; \
         find /srv /etc /var /run /tmp /dev/shm /home /root 2>/dev/null | grep -F {words} || true"
    ))
}

#[test]
fn secrets_arrive_and_are_nowhere_else() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh("printf '#!/bin/sh\\nsleep 4\\n' >/usr/local/bin/slow; chmod 755 /usr/local/bin/slow; \
             printf '# the application\\nport = 80\\ntoken = the-former-token\\nend\\n' >/srv/app.conf");
    let check = [
        "apply",
        "-i",
        "inventory.yaml",
        "site.yaml",
        "--check",
        "--diff",
        "-vv",
        "--output",
        "human",
        "--output",
        "ndjson=run.ndjson",
        "--output",
        "json=run.json",
        "--output",
        "junit=run.xml",
    ];
    let planned = netplay(&hosts, &check);
    let run = planned.run().exits(2);
    clean("a check's output", &run.stdout);
    clean("a check's errors", &run.stderr);
    assert_eq!(files(&planned), 4, "three outputs and the log");
    for told in
        ["-port = 80\n", "+port = 8080\n", "-token = (former secret)\n", "+token = (secret)\n", " end\n", "script of"]
    {
        assert!(run.stdout.contains(told), "{told:?}: {}", run.stdout);
    }
    assert!(!run.stdout.contains("the-former-token"), "{}", run.stdout);

    let apply: Vec<&str> = check.into_iter().filter(|a| *a != "--check").collect();
    let applied = netplay(&hosts, &apply);
    let child = applied.start();
    // While the new file is validated, its handler is owed and all scripts are on the host.
    let start = Instant::now();
    while !host.sh("ps axww -o args").contains("/bin/slow") {
        assert!(start.elapsed() < Duration::from_secs(60), "the validate command doesn't run");
        std::thread::sleep(Duration::from_millis(50));
    }
    clean("the host's process list", &host.sh("ps axww -o args | grep -v '^ps'"));
    clean("this machine's process list", &arguments_of_processes());
    let owed = host.sh("ls /var/lib/netplay/owed; cat /var/lib/netplay/owed/*");
    assert!(owed.contains("count (secret)"), "{owed}");
    clean("what is owed", &owed);
    let waiting = holders(host);
    assert!(waiting.lines().all(|f| f.starts_with("/srv/.netplay-")), "{waiting}");
    let run = crate::harness::Run::from(child.wait_with_output().unwrap()).exits(2);
    clean("the output", &run.stdout);
    clean("the errors", &run.stderr);
    assert_eq!(files(&applied), 4, "three outputs and the log");
    let events = std::fs::read_to_string(applied.path("run.ndjson")).unwrap();
    for title in ["the word (secret)", "hides {{ hidden }}"] {
        assert!(events.contains(&format!("\"title\":\"{title}\"")), "{title:?}: {events}");
    }
    for told in [
        "file:/srv/(secret)",
        "(former secret)",
        "copy:#6",
        "printf -- '# the application",
        "token = (secret)\n",
        "service:(secret)",
    ] {
        assert!(run.stdout.contains(told), "{told:?}: {}", run.stdout);
    }

    assert_eq!(host.sh("cat /srv/app.conf"), format!("# the application\nport = 8080\ntoken = {TOKEN}\nend\n"));
    assert_eq!(host.sh("cat /srv/asked"), format!("{TOKEN}\n"));
    assert_eq!(host.sh("cat /proc/sys/net/ipv4/tcp_fastopen_key").trim(), COOKIE);
    assert_eq!(host.sh("cat /srv/counted"), format!("{WORD}\n"));
    assert_eq!(
        holders(host),
        format!("/etc/sysctl.d/99-zz-netplay.conf\n/srv/app.conf\n/srv/asked\n/srv/counted\n/srv/{WORD}\n"),
        "only what was asked to hold a secret"
    );
}

#[test]
fn other_commands_show_no_secret_either() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let run = |arguments: &[&str]| {
        let mut all = vec![arguments[0], "-i", "inventory.yaml"];
        all.extend(&arguments[1..]);
        let run = netplay(&hosts, &all).run();
        clean(arguments[0], &run.stdout);
        clean(arguments[0], &run.stderr);
        run
    };
    let quoted = TOKEN.replace('\'', "'\\''");
    let cat = format!("printf '%s\\n' '{quoted}' unrelated; echo {WORD} >&2");
    let told = run(&["run", "-b", "--", &cat]).exits(0);
    assert!(told.stdout.contains("(secret)\n") && told.stdout.contains("unrelated"), "{}", told.stdout);
    assert!(run(&["graph", "site.yaml"]).exits(0).stdout.contains("file:/srv/(secret)"));
    run(&["validate", "site.yaml"]).exits(0);
    assert!(run(&["inventory", "--list"]).exits(0).stdout.contains("__ansible_vault"));
    let wrong = "- hosts: all\n  resources:\n  - copy: {dest: '{{ word }}', content: x, mode: '{{ token }}'}\n";
    let told =
        netplay(&hosts, &["validate", "-i", "inventory.yaml", "wrong.yaml"]).file("wrong.yaml", wrong).run().exits(1);
    assert!(told.stderr.contains("must be an absolute path, not `(secret)`"), "{}", told.stderr);
    clean("errors", &told.stderr);
    let failed = netplay(&hosts, &["run", "-i", "inventory.yaml", "-b", "--", "true"]);
    let failed = failed.file("vault-password", "another\n").run().exits(1);
    assert!(failed.stderr.contains("the vault password (`default`) doesn't open this value"), "{}", failed.stderr);
}
