//! Runs over several hosts: how often a host is asked, who waits for whom, and what a run comes to.

use std::time::{Duration, Instant};

use crate::harness::{Host, Hosts, Kind, Netplay, all, env};
use crate::told::{Told, apply, play, told};

/// Resources of several types, a handler among them, that change something on a new host.
const USUAL: &str = "
- hosts: all
  resources:
    - file: {path: /srv/folder, state: directory}
    - copy: {dest: /srv/a, content: \"a\\n\"}
      notify: count
    - copy: {dest: /srv/b, content: \"b\\n\"}
      notify: count
    - sysctl: {values: {net.ipv4.tcp_mtu_probing: 1, net.ipv4.tcp_slow_start_after_idle: 0}}
    - mtu: {interface: eth1, mtu: 9000, persist: false}
    - command: {cmd: 'echo ran >>/srv/ran', creates: /srv/ran}
  handlers:
    - name: count
      command: {cmd: 'echo handled >>/srv/handled'}
";

#[test]
fn a_host_is_asked_once_and_changed_in_one_more() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let netplay = apply(&hosts, USUAL, &[]);
    let logins = |host: Host<'_>| host.sh("cat /var/log/sshd.log").matches("Accepted publickey").count();
    let seen = |host: Host<'_>| (host.sessions(), logins(host));
    let mut before: Vec<_> = hosts.each().map(seen).collect();
    let mut grown_by = |executions: usize, run: &Told| {
        for (host, before) in hosts.each().zip(&mut before) {
            let now = seen(host);
            assert_eq!((now.0 - before.0, now.1 - before.1), (executions, 1), "{}: {}", host.0, run.run.stdout);
            assert_eq!(run.executions(host.0), executions);
            *before = now;
        }
    };
    let changed = Told::by(&netplay, 0);
    assert_eq!((changed.count("changed"), changed.count("failed")), (14, 0), "{}", changed.run.stdout);
    grown_by(2, &changed);
    let converged = Told::by(&netplay, 0);
    assert_eq!((converged.count("changed"), converged.count("ok")), (0, 12), "{}", converged.run.stdout);
    grown_by(1, &converged);
    for host in hosts.each() {
        assert_eq!(host.sh("cat /srv/ran /srv/handled"), "ran\nhandled\n");
    }
    let facts = USUAL.replace("content: \"a\\n\"", "content: \"{{ facts.os.family }}\\n\"");
    let netplay = netplay.file("site.yaml", &facts);
    let changed = Told::by(&netplay, 0);
    grown_by(3, &changed);
    assert_eq!(hosts.first().sh("cat /srv/a"), "debian\n");
    grown_by(2, &Told::by(&netplay, 0));
}

#[test]
fn a_check_touches_nothing() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let netplay = apply(&hosts, USUAL, &["--check", "--diff", "--detailed-exitcode"]);
    // sshd and PAM note the login.
    let look = "find / /run -xdev -cnewer /root/before | grep -v '^/var/log\\|^/run/motd\\|^/run$\\|^/run/sshd' || true; \
                cat /proc/sys/net/ipv4/tcp_mtu_probing /sys/class/net/eth1/mtu";
    host.sh("touch /root/before; sleep 0.1");
    let told = Told::by(&netplay, 3);
    assert_eq!(told.count("would_change"), 7, "{}", told.run.stdout);
    assert_eq!(host.sh(look), "0\n1500\n");
}

#[test]
fn two_runs_at_once_do_nothing_twice() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let slow = play(
        "    - copy: {dest: /srv/x, content: new}
      notify: count
    - command: {cmd: 'sleep 6; echo ran >>/srv/ran', creates: /srv/ran}
  handlers:
    - name: count
      command: {cmd: 'echo handled >>/srv/handled'}
",
    );
    // One is started while the other has probed and not yet changed, and one while it changes.
    let runs = [0, 0, 1200].map(|wait| {
        let netplay = apply(&hosts, &slow, &[]);
        std::thread::sleep(Duration::from_millis(wait));
        (netplay.start(), netplay)
    });
    let told =
        runs.map(|(child, _folder)| Told::from(crate::harness::Run::from(child.wait_with_output().unwrap()).exits(0)));
    assert_eq!(host.sh("cat /srv/ran /srv/handled"), "ran\nhandled\n", "{told:#?}");
    let waited: Vec<_> = told.iter().filter(|told| told.warnings().contains("it had to wait for run ")).collect();
    assert_eq!(waited.len(), 2, "{told:#?}");
    assert!(waited[0].warnings().contains(" of root@"), "{}", waited[0].warnings());
    assert_eq!(told.iter().map(|told| told.count("changed")).sum::<usize>(), 3, "{told:#?}");
    assert_eq!(Told::by(&apply(&hosts, &slow, &[]), 0).count("changed"), 0);
}

#[test]
fn two_names_of_one_machine_are_told() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let (host, other) = (hosts.first(), hosts.each().nth(1).unwrap());
    let netplay = apply(&hosts, USUAL, &["-i", "more.yaml"]);
    let more = format!(
        "all: {{vars: {{ansible_user: root}}, hosts: {{again: {{ansible_host: {}, ansible_ssh_private_key_file: {}, \
         ansible_ssh_common_args: -o UserKnownHostsFile={}}}}}}}\n",
        host.address(),
        env("LAB_KEY_ED25519"),
        env("LAB_KNOWN_HOSTS")
    );
    let told = Told::by(&netplay.file("more.yaml", &more), 0);
    let warnings = told.warnings();
    let line = warnings.lines().find(|line| line.contains("the same machine")).unwrap_or_else(|| panic!("{warnings}"));
    assert!(line.contains(host.0) && line.contains("again") && !line.contains(other.0), "{line}");
    assert_eq!(host.sh("cat /srv/ran /srv/handled"), "ran\nhandled\n");
    assert_eq!(other.sh("cat /srv/ran /srv/handled"), "ran\nhandled\n");
}

#[test]
fn a_run_comes_to_what_its_worst_host_comes_to() {
    let hosts = Hosts::take(Kind::Fleet, 4);
    let names: Vec<&str> = hosts.names().collect();
    let [refused, gone, fails, fine] = names[..] else { panic!() };
    let playbook = play(
        "    - copy: {dest: /srv/x, content: new}
    - copy: {dest: /etc/hostname/x, content: new}
      when: broken is defined
",
    );
    let vars = format!(
        "all: {{hosts: {{{refused}: {{ansible_port: 23}}, {gone}: {{ansible_host: 10.99.250.250}}, {fails}: {{broken: 1}}}}}}\n"
    );
    let run = |limit: &[&str], code: i32| {
        let limit = limit.join(",");
        Told::by(&apply(&hosts, &playbook, &["-i", "more.yaml", "--limit", &limit]).file("more.yaml", &vars), code)
    };
    run(&[fine], 0);
    run(&[fails, fine], 2);
    let start = Instant::now();
    let unreachable = run(&[refused, gone, fine], 4);
    // No answer at all takes its time; the kernel's own "no route to host" comes after 3 s.
    assert!(start.elapsed() < Duration::from_secs(13), "{:?}", start.elapsed());
    for (host, text) in [(refused, "refuses"), (gone, "10.99.250.250")] {
        let event = unreachable.host(host);
        assert_eq!(event["status"], "unreachable");
        assert!(told(event).starts_with("connect: ") && told(event).contains(text), "{event}");
    }
    assert_eq!(unreachable.host(fine)["status"], "ok");
    let unknown =
        apply(&hosts, &playbook, &["--limit", gone, "-e", "ansible_ssh_common_args='-o UserKnownHostsFile=/dev/null'"]);
    let unknown = Told::by(&unknown, 4);
    assert!(told(unknown.host(gone)).starts_with("host_key: "), "{}", unknown.host(gone));
    let both = run(&[refused, fails, fine], 6);
    let again = both.run.stderr.lines().find(|line| line.contains("--limit")).unwrap_or_default();
    assert!(
        again.contains(&refused[2..]) && again.contains(&fails[2..]) && !again.contains(gone),
        "{}",
        both.run.stderr
    );
    assert_eq!(both.host(fine)["status"], "ok");
}

#[test]
fn batches_end_where_too_many_are_lost() {
    let hosts = Hosts::take(Kind::Fleet, 4);
    let names: Vec<&str> = hosts.names().collect();
    let vars = format!("all: {{hosts: {{{}: {{ansible_port: 23}}}}}}\n", names[1]);
    let plays = |policy: &str| {
        format!(
            "- hosts: fleet\n  serial: [1, 2]\n{policy}  resources:\n    - copy: {{dest: /srv/x, content: new}}\n- hosts: all\n  resources:\n    - copy: {{dest: /srv/y, content: new}}\n"
        )
    };
    let run = |policy: &str, code: i32| {
        Told::from(apply(&hosts, &plays(policy), &["-i", "more.yaml"]).file("more.yaml", &vars).run().exits(code))
    };
    // Half of the second batch is over 49 %: nothing further starts, and that is a failure beside the unreachable.
    run("  max_fail_percentage: 49\n", 6);
    let there = |name: &str| {
        hosts.each().filter(|host| !host.sh(&format!("ls /srv/{name} 2>&1 || true")).contains("No such")).count()
    };
    assert_eq!((there("x"), there("y")), (2, 0));
    run("  max_fail_percentage: 50\n", 4);
    assert_eq!((there("x"), there("y")), (3, 3));
}

#[test]
fn logins_of_all_kinds_come_to_the_same() {
    logins_of_all_kinds("ssh2");
}

#[test]
fn logins_of_all_kinds_come_to_the_same_over_openssh() {
    logins_of_all_kinds("openssh");
}

fn logins_of_all_kinds(transport: &str) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let become_root = |user: &str, more: &str, resources: &str, code: i32| {
        let playbook = format!("- hosts: all\n  become: true\n  resources:\n{resources}");
        let vars = format!(
            "all: {{hosts: {{{}: {{ansible_user: {user}, netplay_transport: {transport}, {more}}}}}}}\n",
            host.0
        );
        Told::by(&apply(&hosts, &playbook, &["-i", "more.yaml"]).file("more.yaml", &vars), code)
    };
    let copy = |user: &str| {
        format!(
            "    - copy: {{dest: /srv/{user}, content: {user}}}\n      notify: h\n  handlers:\n    - {{name: h, command: {{cmd: 'id -un >>/srv/handled'}}}}\n"
        )
    };
    for user in ["ops", "fishy", "cshell", "banner"] {
        let told = become_root(user, "", &copy(user), 0);
        assert_eq!((told.count("changed"), told.executions(host.0)), (2, 2), "{user}");
        assert_eq!(host.sh(&format!("stat -c '%U %s' /srv/{user}")), format!("root {}\n", user.len()));
        assert_eq!(become_root(user, "", &copy(user), 0).executions(host.0), 1, "{user}");
    }
    assert_eq!(host.sh("cat /srv/handled"), "root\n".repeat(4));
    let password = |word: &str| format!("ansible_become_password: '{word}'");
    become_root("pw", &password(env("LAB_PASSWORD")), &copy("pw"), 0);
    let refused = |user: &str, more: &str, text: &str| {
        let run = become_root(user, more, &copy("never"), 2);
        let event = run.host(host.0);
        assert_eq!(event["status"], "failed", "{event}");
        assert!(told(event).contains(text), "{event}");
    };
    refused("pw", &password("wrong"), "password");
    refused("pw", "", "password");
    refused("nosudo", "", "sudo");
    refused("forced", "", "This account runs one command: this one");
    refused("expired", "", "has expired");
    // One other user beside root: each is asked in an execution of its own.
    let other = "    - {copy: {dest: /home/nosudo/x, content: x}, become_user: nosudo}\n    - copy: {dest: /srv/two, content: x}\n";
    let told = become_root("ops", "", other, 0);
    assert_eq!((told.count("changed"), told.executions(host.0)), (2, 4), "{}", told.run.stdout);
    assert_eq!(host.sh("stat -c %U /home/nosudo/x /srv/two"), "nosudo\nroot\n");
    assert_eq!(become_root("ops", "", other, 0).executions(host.0), 2);
    refused("ops", "ansible_become_user: nobody-here", "unknown user nobody-here");
    host.sh("rm /usr/bin/sudo; test ! -e /srv/never");
    refused("ops", "", "sudo");
}

#[test]
fn one_session_is_enough_for_a_run() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    hosts.first().sh("echo MaxSessions 1 >/etc/ssh/sshd_config.d/a.conf; kill -HUP 1; sleep 0.3");
    let playbook = USUAL.replace("content: \"a\\n\"", "content: \"{{ facts.kernel }}\\n\"");
    let netplay = apply(&hosts, &playbook, &[]);
    assert_eq!(Told::by(&netplay, 0).executions(hosts.first().0), 3);
    assert_eq!(Told::by(&netplay, 0).executions(hosts.first().0), 2);
    let netplay = apply(&hosts, &playbook, &["-e", "netplay_transport=openssh"]);
    assert_eq!(Told::by(&netplay, 0).executions(hosts.first().0), 2);
}

#[test]
fn commands_run_on_the_fleet_and_their_output_is_folded() {
    let count = all(Kind::Fleet).len().min(4);
    let hosts = Hosts::take(Kind::Fleet, count);
    let run = Netplay::new(&hosts, &["run", "-i", "inventory.yaml", "--", "cat", "/etc/debian_version"]).run().exits(0);
    let version = hosts.first().sh("cat /etc/debian_version");
    assert_eq!((run.stdout.clone() + &run.stderr).matches(version.trim()).count(), 1, "{run:?}");
    let run = Netplay::new(&hosts, &["run", "-i", "inventory.yaml", "--", "exit 3"]).run();
    assert_eq!(run.code, Some(2), "{run:?}");
}
