//! What the system's ssh brings with it: its processes, its sockets, the questions that it asks. And that a run tells
//! the same over all transports.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Host, Hosts, Kind, LAB, Netplay, env};
use crate::told::{Told, apply, play};

const OPENSSH: [&str; 2] = ["-e", "netplay_transport=openssh"];

/// A resource of each fate, with diffs, warnings, a handler, and what only root may read.
const ALL_KINDS: &str = "
    - sysctl: {name: net.ipv4.tcp_mtu_probing, value: 1}
    - copy: {dest: /srv/file, content: \"{{ facts.os.id }}\\nit's $HOME \\u00fc\\n\", mode: 0640}
      notify: count
    - file: {path: /srv/folder, state: directory}
      when: facts.os.family == 'redhat'
    - name: fails
      command: {cmd: 'cat; echo out; echo err >&2; exit 3', stdin: x, creates: /srv/never}
    - copy: {dest: /srv/after, content: x}
      after: fails
    - copy: {dest: /srv/no/folder, content: x}
    - command: {cmd: 'kill -KILL $$', creates: /srv/never}
    - command: {cmd: 'head -c 3000000 /dev/zero; echo ran >>/srv/ran', creates: /srv/ran}
    - assert: {that: ['facts.cpus.count > 0'], msg: no processors}
  handlers:
    - name: count
      command: {cmd: 'echo handled >>/srv/handled'}
";

/// What was told, without what differs from run to run and from host to host.
fn comparable(told: &str, host: &str) -> Vec<Value> {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                // What differs by the run, and what its command line says.
                for key in ["time", "seconds", "run", "again", "arguments", "inventory", "playbooks", "log"] {
                    map.remove(key);
                }
                map.values_mut().for_each(strip);
            }
            Value::Array(all) => all.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let read = |line: &str| {
        let mut value: Value = serde_json::from_str(&line.replace(host, "HOST")).unwrap();
        strip(&mut value);
        value
    };
    told.lines().map(read).collect()
}

/// A run with netplay on the host itself.
fn locally(host: Host<'_>, playbook: &str) -> [String; 2] {
    let netplay = std::env::var("NETPLAY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_netplay").to_owned());
    let mut copy = Command::new(LAB);
    copy.args(["exec", host.0, "sh", "-c", "cat >/root/netplay; chmod +x /root/netplay"]);
    assert!(copy.stdin(std::fs::File::open(netplay).unwrap()).status().unwrap().success());
    let quoted = playbook.replace('\'', "'\\''");
    host.sh(&format!("printf '%s' '{quoted}' >/root/site.yaml"));
    host.sh(&format!("echo 'all: {{hosts: {{{}: {{ansible_connection: local}}}}}}' >/root/inventory.yaml", host.0));
    let arguments = "apply -i inventory.yaml --output ndjson --diff site.yaml";
    [(); 2].map(|()| host.sh(&format!("cd /root; HOME=/root ./netplay {arguments} 2>/dev/null || test $? = 2")))
}

#[test]
fn all_transports_tell_the_same() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let [one, two] = [0, 1].map(|i| hosts.each().nth(i).unwrap());
    let playbook = play(ALL_KINDS);
    // The second run is that of a host which is as wanted, as far as it can be.
    let over = |transport: &str, host: Host<'_>| {
        let transport = format!("netplay_transport={transport}");
        let netplay = apply(&hosts, &playbook, &["--diff", "--limit", host.0, "-e", &transport]);
        [(); 2].map(|()| comparable(&netplay.run().exits(2).stdout, host.0))
    };
    let ssh2 = over("ssh2", one);
    assert!(ssh2[0].len() > 10, "{:?}", ssh2[0]);
    let openssh = over("openssh", two);
    one.sh("rm -rf /srv/* /etc/sysctl.d/99-zz-netplay.conf /var/lib/netplay /run/netplay; sysctl -q net.ipv4.tcp_mtu_probing=0");
    let local = locally(one, &playbook).map(|told| comparable(&told, one.0));
    for (name, other) in [("openssh", openssh), ("local", local)] {
        for (run, (theirs, ours)) in other.iter().zip(&ssh2).enumerate() {
            assert_eq!(theirs.len(), ours.len(), "{name}, run {run}: {theirs:#?} {ours:#?}");
            for (theirs, ours) in theirs.iter().zip(ours) {
                assert_eq!(theirs, ours, "{name}, run {run}");
            }
        }
    }
}

/// The processes whose command line holds this, by what `/proc` says of them.
fn processes(part: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).filter(|line| line.contains(part)).collect()
}

/// Waits until nothing of a run is left: neither its ssh, nor its folder.
#[track_caller]
fn leaves_nothing(folder: &std::path::Path) {
    let start = Instant::now();
    let left = || (processes(folder.to_str().unwrap()), std::fs::read_dir(folder).unwrap().count());
    while left() != (Vec::new(), 0) {
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", left());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn no_connection_outlives_its_run() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let slow = play("    - command: {cmd: 'touch /srv/begun; exec sleep 607', creates: /srv/never}\n");
    let mut arguments = OPENSSH.to_vec();
    let sockets = tempfile::tempdir().unwrap();
    let netplay = apply(&hosts, &slow, &arguments).variable("TMPDIR", sockets.path().to_str().unwrap());
    for signals in [&["KILL"][..], &["INT", "INT"], &["TERM", "TERM"]] {
        let child = netplay.start();
        let start = Instant::now();
        while host.sh("ls /srv").is_empty() {
            assert!(start.elapsed() < Duration::from_secs(20), "no step");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(processes(&format!("ssh -M -N -T -S {}", sockets.path().display())).len(), 1);
        for signal in signals {
            let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
            assert!(sent.success());
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(child.wait_with_output().unwrap());
        leaves_nothing(sockets.path());
        host.sh("rm /srv/begun; pkill -f '^sleep 607' || true");
    }
    // Nor after a run that ends by itself, well or not.
    arguments.extend(["--check"]);
    for (resources, code) in
        [("copy: {dest: /srv/x, content: x}", 0), ("command: {cmd: x, unless: 'kill -KILL $$'}", 2)]
    {
        let netplay = apply(&hosts, &play(&format!("    - {resources}\n")), &arguments);
        let run = netplay.variable("TMPDIR", sockets.path().to_str().unwrap()).run();
        assert!(run.code == Some(code) || run.code == Some(0), "{run:?}");
        leaves_nothing(sockets.path());
    }
}

#[test]
fn a_password_is_seen_nowhere() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let password = env("LAB_PASSWORD");
    let vars = format!(
        "all: {{hosts: {{{}: {{ansible_user: pw, ansible_become: true, ansible_ssh_private_key_file: /none, \
         ansible_password: '{password}', ansible_become_password: '{password}'}}}}}}\n",
        hosts.first().0
    );
    let mut arguments = OPENSSH.to_vec();
    arguments.extend(["-i", "more.yaml", "-vv"]);
    let netplay = apply(&hosts, &play("    - copy: {dest: /srv/x, content: x}\n"), &arguments).file("more.yaml", &vars);
    let mut child = netplay.start();
    let mut seen = 0;
    while child.try_wait().unwrap().is_none() {
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            for file in ["cmdline", "environ"] {
                let text = std::fs::read(process.path().join(file)).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                assert!(!text.contains(password), "{text}");
                seen += usize::from(text.contains("NETPLAY_ASKPASS="));
            }
        }
    }
    let told = Told::from(crate::harness::Run::from(child.wait_with_output().unwrap()).exits(0));
    assert_eq!(told.status("copy:/srv/x"), "changed");
    assert!(!(told.run.stdout.clone() + &told.run.stderr).contains(password));
    // The processes that had to do with it were there to be seen.
    assert!(seen > 0);
}

/// A run on a terminal: each of these is typed when this word comes. What was told, and the exit code.
fn on_a_terminal(netplay: &Netplay, arguments: &str, word: &str, typed: &[&str]) -> (String, Option<i32>) {
    let program = std::env::var("NETPLAY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_netplay").to_owned());
    let folder = netplay.path("");
    let mut child = Command::new("timeout")
        .args(["60", "script", "-qefc", &format!("{LAB} ctl {program} {arguments}"), "/dev/null"])
        .current_dir(&folder)
        .env("HOME", &folder)
        .env_remove("SSH_AUTH_SOCK")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut said, mut answered) = (String::new(), 0);
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = output.read(&mut buffer) {
        said.push_str(&String::from_utf8_lossy(&buffer[..n]));
        while answered < typed.len() && said.matches(word).count() > answered {
            // The prompt is there a moment before the terminal's echo is switched off.
            std::thread::sleep(Duration::from_millis(500));
            input.write_all(format!("{}\n", typed[answered]).as_bytes()).unwrap();
            answered += 1;
        }
    }
    drop(input);
    (said, child.wait().unwrap().code())
}

#[test]
fn a_passphrase_is_asked_for_once() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let folder = tempfile::tempdir().unwrap();
    let key: PathBuf = folder.path().join("locked");
    let keygen = ["-q", "-t", "ed25519", "-N", "open sesame", "-f"];
    assert!(Command::new("ssh-keygen").args(keygen).arg(&key).status().unwrap().success());
    let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
    for host in hosts.each() {
        host.sh(&format!("mkdir -p /root/.ssh; echo '{}' >>/root/.ssh/authorized_keys", public.trim()));
    }
    let netplay = Netplay::new(&hosts, &[]);
    let path = key.display();
    for transport in ["ssh2", "openssh"] {
        let arguments = format!(
            "run -i inventory.yaml -e ansible_ssh_private_key_file={path} -e netplay_transport={transport} -- id -un"
        );
        let (said, code) = on_a_terminal(&netplay, &arguments, "Passphrase of", &["wrong", "open sesame"]);
        assert_eq!((said.matches("Passphrase of").count(), code), (2, Some(0)), "{transport}: {said}");
        assert!(said.contains("that isn't its passphrase") && !said.contains("open sesame"), "{said}");
        // Nobody types one: the key is passed over.
        let (said, code) = on_a_terminal(&netplay, &arguments, "Passphrase of", &[""]);
        assert_eq!((said.matches("Passphrase of").count(), code), (1, Some(4)), "{transport}: {said}");
        assert!(said.contains("is encrypted and not in the agent"), "{transport}: {said}");
        // There is no terminal.
        let program = std::env::var("NETPLAY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_netplay").to_owned());
        let mut run = Command::new("setsid");
        run.args(["-w", "timeout", "60", LAB, "ctl", &program]).args(arguments.split(' '));
        run.current_dir(netplay.path("")).env("HOME", netplay.path("")).env_remove("SSH_AUTH_SOCK");
        let run = run.stdin(Stdio::null()).output();
        let run = crate::harness::Run::from(run.unwrap()).exits(4);
        assert!((run.stdout.clone() + &run.stderr).contains("or run netplay on a terminal"), "{run:?}");
    }
}

#[test]
fn without_ssh_it_says_so() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let empty = tempfile::tempdir().unwrap();
    let mut arguments = vec!["run", "-i", "inventory.yaml"];
    arguments.extend(OPENSSH);
    arguments.extend(["--", "true"]);
    let program = std::env::var("NETPLAY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_netplay").to_owned());
    let netplay = Netplay::new(&hosts, &[]);
    let run = Command::new(&program).args(&arguments).current_dir(netplay.path("")).env("PATH", empty.path()).output();
    let run = crate::harness::Run::from(run.unwrap()).exits(4);
    assert!((run.stdout.clone() + &run.stderr).contains("there is no program `ssh` on this machine"), "{run:?}");
}
