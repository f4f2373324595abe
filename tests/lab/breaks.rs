//! Sessions, runs and hosts that end in the middle: what is told of it is true, and the next run mends it.

use std::process::Child;
use std::time::{Duration, Instant};

use crate::harness::{Host, Hosts, Kind, Netplay, Run};
use crate::told::{Told, apply, told};

/// A slow step between two quick ones that have a handler.
const SLOW: &str = "
- hosts: all
  resources:
    - copy: {dest: /srv/first, content: new}
      notify: count
    - command: {cmd: 'echo $$ >/srv/begun; sleep 2; echo ran >>/srv/ran', creates: /srv/ran}
      after: copy:/srv/first
    - copy: {dest: /srv/last, content: new}
      after: command:#6
      notify: count
  handlers:
    - name: count
      command: {cmd: 'echo handled >>/srv/handled'}
";

/// A connection that is soon known to be lost.
const QUICK: &str = "ansible_ssh_extra_args: -o ConnectTimeout=2 -o ServerAliveInterval=1 -o ServerAliveCountMax=3\n";

/// All that a run may leave of itself in the folders of files that it writes.
const LEFTOVERS: &str = "find / -xdev -name '.netplay*' -o -xdev -name '*.new' -path '*netplay*'";

fn wait_for(host: Host<'_>, path: &str) {
    let start = Instant::now();
    while host.sh(&format!("ls {path} 2>/dev/null || true")).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "{}: no {path}", host.0);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn end(child: Child) -> Run {
    Run::from(child.wait_with_output().unwrap())
}

pub(crate) fn signal(child: &Child, name: &str) {
    let status = std::process::Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

/// Runs once more: all is as it should be then, and nothing was done twice.
#[track_caller]
fn mends(netplay: &Netplay, host: Host<'_>) -> Told {
    let mended = Told::by(netplay, 0);
    assert_eq!(
        host.sh("cat /srv/ran /srv/handled; printf ' ' | cat /srv/first - /srv/last"),
        "ran\nhandled\nnew new",
        "{}",
        mended.run.stdout
    );
    assert_eq!(host.sh(LEFTOVERS), "");
    assert_eq!(host.sh("ls /var/lib/netplay/owed"), "");
    let converged = Told::by(netplay, 0);
    assert_eq!((converged.count("changed"), converged.executions(host.0)), (0, 1), "{}", converged.run.stdout);
    mended
}

/// Kills the sessions of a user in the middle of a change.
fn a_killed_session(kind: Kind, user: &str, transport: &str) {
    let hosts = Hosts::take(kind, 1);
    let host = hosts.first();
    let vars = format!("all: {{hosts: {{{}: {{ansible_user: {user}, ansible_become: true}}}}}}\n", host.0);
    let transport = format!("netplay_transport={transport}");
    let netplay = apply(&hosts, SLOW, &["-i", "more.yaml", "-e", &transport]).file("more.yaml", &vars);
    let child = netplay.start();
    wait_for(host, "/srv/begun");
    host.sh(&format!("pkill -KILL -f '[s]shd: {user}@'"));
    let told = Told::from(end(child).exits(2));
    // Each is told as it is found over a new session, when the step that ran has ended.
    assert_eq!(told.status("copy:/srv/first"), "changed");
    assert_eq!(told.status("command:#6"), "changed");
    assert!(told.warnings().contains("it is as wanted now"), "{}", told.run.stdout);
    assert!(!told.warnings().contains("had to wait"), "{}", told.run.stdout);
    assert!(told.error("copy:/srv/last").starts_with("unknown: "), "{}", told.run.stdout);
    assert!(told.error("copy:/srv/last").contains("content: wanted sha256:"), "{}", told.run.stdout);
    assert_eq!(host.sh("cat /srv/ran; ls /srv/last /srv/handled 2>/dev/null || true"), "ran\n");
    mends(&netplay, host);
}

#[test]
fn a_session_that_is_killed_is_mended_by_the_next_run() {
    a_killed_session(Kind::Fleet, "root", "ssh2");
}

#[test]
fn a_session_that_is_killed_under_sudo_is_mended_by_the_next_run() {
    a_killed_session(Kind::Fleet, "ops", "ssh2");
}

#[test]
fn a_session_of_openssh_that_is_killed_is_mended_by_the_next_run() {
    a_killed_session(Kind::Fleet, "ops", "openssh");
}

#[test]
fn a_session_that_is_killed_under_logind_is_mended_by_the_next_run() {
    a_killed_session(Kind::Sysd, "ops", "ssh2");
}

#[test]
fn a_power_cut_is_mended_by_the_next_run() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let netplay = apply(&hosts, SLOW, &["-e", "@quick.yaml"]).file("quick.yaml", QUICK);
    let child = netplay.start();
    wait_for(host, "/srv/begun");
    host.reset();
    let told = Told::from(end(child).exits(2));
    assert_eq!(told.status("copy:/srv/first"), "changed");
    for address in ["command:#6", "copy:/srv/last"] {
        assert!(told.error(address).starts_with("unknown: "), "{}", told.error(address));
    }
    // What was owed before is owed after the boot.
    assert_eq!(host.sh("ls /var/lib/netplay/owed; ls /srv"), "command%3acount\nbegun\nfirst\n");
    mends(&netplay, host);
}

#[test]
fn a_run_that_is_killed_is_mended_by_the_next_one() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    // The next run must come while the step still runs, also on a busy machine.
    let netplay = apply(&hosts, &SLOW.replace("sleep 2", "sleep 6"), &[]);
    let mut child = netplay.start();
    wait_for(host, "/srv/begun");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(host.sh("ls /var/lib/netplay/owed"), "command%3acount\n");
    // The step still runs: the next run waits for it and looks again.
    let mended = mends(&netplay, host);
    assert!(mended.warnings().contains("it had to wait for run "), "{}", mended.run.stdout);
    let because = mended.resource(host.0, "command:count")["because"].as_str().unwrap().to_owned();
    assert!(because.contains("notified by copy:/srv/last") && because.contains("owed by run "), "{because}");
}

#[test]
fn what_a_killed_run_owes_is_done_by_the_next_one() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    // Here nothing is left to change but the handler.
    let playbook =
        SLOW.replace("    - copy: {dest: /srv/last, content: new}\n      after: command:#6\n      notify: count\n", "");
    let netplay = apply(&hosts, &playbook, &[]);
    let mut child = netplay.start();
    wait_for(host, "/srv/begun");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(host, "/srv/ran");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(host.sh("ls /srv/handled 2>/dev/null || true"), "");
    let foretold = Told::by(&apply(&hosts, &playbook, &["--check"]), 0);
    assert_eq!(foretold.status("command:count"), "would_change");
    let other = apply(&hosts, "- hosts: all\n  resources:\n    - copy: {dest: /srv/other, content: x}\n", &[]);
    assert!(Told::by(&other, 0).warnings().contains("it stays owed"));
    let mended = Told::by(&netplay, 0);
    assert_eq!((mended.count("ok"), mended.status("command:count")), (2, "changed"));
    assert!(mended.resource(host.0, "command:count")["because"].as_str().unwrap().starts_with("owed by run "));
    assert_eq!(host.sh("cat /srv/handled /srv/ran; ls /var/lib/netplay/owed"), "handled\nran\n");
    assert_eq!(Told::by(&netplay, 0).count("ok"), 2);
}

#[test]
fn half_a_file_is_never_seen() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh("echo old >/srv/big");
    let netplay = apply(&hosts, "- hosts: all\n  resources:\n    - copy: {dest: /srv/big, src: big}\n", &[]);
    let netplay = netplay.file("files/big", &"x".repeat(1 << 20));
    // Killed at times from the upload to the end.
    for i in 0..10 {
        let mut child = netplay.start();
        std::thread::sleep(Duration::from_millis(150 + 60 * i));
        child.kill().unwrap();
        child.wait().unwrap();
        let size = host.sh("wc -c </srv/big");
        assert!(["4", "1048576"].contains(&size.trim()), "{size}");
    }
    host.sh("echo old >/srv/big");
    Told::by(&netplay, 0);
    assert_eq!(host.sh("wc -c </srv/big; ls -A /srv"), "1048576\nbig\n");
}

#[test]
fn the_first_interruption_lets_steps_finish_and_the_second_does_not() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let (host, other) = (hosts.first(), hosts.each().nth(1).unwrap());
    let netplay = apply(&hosts, SLOW, &["--forks", "1"]);
    let child = netplay.start();
    wait_for(host, "/srv/begun");
    signal(&child, "INT");
    let told = Told::from(end(child).exits(130));
    assert_eq!(told.count("changed"), 4, "{}", told.run.stdout);
    assert_eq!(told.run.stdout.matches("a second Ctrl-C ends it at once").count(), 1, "{}", told.run.stdout);
    assert_eq!(host.sh("cat /srv/ran /srv/handled"), "ran\nhandled\n");
    // The host that wasn't begun isn't touched, and told as left out.
    assert_eq!(told.host(other.0)["status"], "skipped");
    assert_eq!((other.sh("ls /srv"), other.sessions()), (String::new(), 0));
    assert!(
        told.run.stderr.contains(&format!("--limit' {}", other.0))
            || told.run.stderr.contains(&format!("--limit {}", other.0)),
        "{}",
        told.run.stderr
    );

    host.sh("rm -r /srv/*");
    let child = netplay.start();
    wait_for(host, "/srv/begun");
    let start = Instant::now();
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(200));
    signal(&child, "INT");
    let told = Told::from(end(child).exits(130));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // What is left undone is told, by host and by resource.
    let cut = told.host(host.0);
    assert_eq!(cut["status"], "failed", "{}", told.run.stdout);
    assert!(self::told(cut).contains("cut it off while steps were running"), "{cut}");
    assert!(told.error("command:#6").contains("whether it was done isn't known"), "{}", told.run.stdout);
    assert_eq!(told.host(other.0)["status"], "skipped");
    assert!(told.run.stderr.contains("--limit"), "{}", told.run.stderr);
    let netplay = apply(&hosts, SLOW, &["--limit", host.0]);
    mends(&netplay, host);
}

#[test]
fn who_waits_for_the_lock_goes_away_at_the_first_interruption() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let first = apply(&hosts, &SLOW.replace("sleep 2", "sleep 6"), &[]);
    let first = first.start();
    wait_for(host, "/srv/begun");
    let playbook = "- hosts: all\n  resources:\n    - copy: {dest: /srv/other, content: x}\n";
    let waits = apply(&hosts, playbook, &[]);
    let child = waits.start();
    std::thread::sleep(Duration::from_secs(2));
    signal(&child, "INT");
    let told = Told::from(end(child).exits(130));
    assert_eq!(host.sh("ls /srv/ran /srv/other 2>/dev/null || true"), "", "{}", told.run.stdout);
    let error = told.host(host.0)["error"]["message"].to_string();
    assert!(error.contains("while it waited for run ") && error.contains("nothing was changed"), "{error}");
    end(first).exits(0);
    assert_eq!(host.sh("ls /srv/other 2>/dev/null || true"), "");
    assert_eq!(Told::by(&waits, 0).count("changed"), 1);
}

#[test]
fn an_interrupted_run_is_taken_up_by_the_next_one() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    // The command is in the first segment and in the way of the second, which is never begun.
    let playbook = SLOW
        .replace("      after: copy:/srv/first\n", "      notify: count\n")
        .replace("      after: command:#6\n", "")
        + "    - {name: late, command: {cmd: 'touch /srv/late'}}\n";
    let playbook = playbook.replace(
        "  handlers:\n",
        "    - command: {cmd: 'echo second >>/srv/second', creates: /srv/second}\n      after: command:#6\n      notify: late\n  handlers:\n",
    );
    let netplay = apply(&hosts, &playbook, &[]);
    let child = netplay.start();
    wait_for(host, "/srv/begun");
    signal(&child, "TERM");
    let told = Told::from(end(child).exits(130));
    assert_eq!(told.count("changed"), 3, "{}", told.run.stdout);
    let second = told.resource(host.0, "command:#10");
    assert_eq!(second["status"], "skipped");
    assert!(second["because"].as_str().unwrap().contains("interrupted"), "{second}");
    assert_eq!(
        host.sh("cat /srv/ran; ls /var/lib/netplay/owed; ls /srv/second /srv/late /srv/handled 2>/dev/null || true"),
        "ran\ncommand%3acount\n"
    );
    assert!(told.run.stderr.contains("count"), "{}", told.run.stderr);
    let mended = mends(&netplay, host);
    assert_eq!((mended.count("ok"), mended.count("changed")), (3, 3), "{}", mended.run.stdout);
    assert_eq!(host.sh("cat /srv/second; ls /srv/late"), "second\n/srv/late\n");
}

#[test]
fn an_interruption_waits_for_nothing_that_only_reads() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let (mute, slow) = (hosts.first(), hosts.each().nth(1).unwrap());
    mute.freeze();
    let playbook = "- hosts: all\n  resources:\n    - command: {cmd: 'touch /srv/x', unless: 'touch /srv/begun; sleep 30; false'}\n";
    let netplay = apply(&hosts, playbook, &[]);
    let child = netplay.start();
    wait_for(slow, "/srv/begun");
    let start = Instant::now();
    signal(&child, "INT");
    let told = Told::from(end(child).exits(130));
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(told.host(mute.0)["status"], "skipped", "{}", told.run.stdout);
    assert_eq!(told.status("command:#3"), "skipped", "{}", told.run.stdout);
    mute.thaw();
    assert_eq!(slow.sh("ls /srv"), "begun\n");
}

#[test]
fn a_step_that_hangs_is_ended_with_all_that_it_started() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let playbook = "- hosts: all\n  resources:
    - {command: {cmd: 'echo so far; (sleep 604; touch /srv/x); true', creates: /srv/x}, timeout: 1}
    - {command: {cmd: \"trap '' TERM; sleep 605; sleep 606\", creates: /srv/y}, timeout: 1}
    - copy: {dest: /srv/z, content: x}
";
    let start = Instant::now();
    let told = Told::by(&apply(&hosts, playbook, &[]), 2);
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
    for line in [3, 4] {
        assert!(told.error(&format!("command:#{line}")).contains("its deadline of 1 s"), "{}", told.run.stdout);
    }
    assert!(told.error("command:#3").contains("so far"));
    assert_eq!(told.status("copy:/srv/z"), "changed");
    assert_eq!(host.sh("pgrep -fa '^sleep 60' || true"), "");
}

#[test]
fn a_silent_host_holds_no_other_up() {
    let hosts = Hosts::take(Kind::Fleet, 3);
    let [mute, stuck, fine] = [0, 1, 2].map(|i| hosts.each().nth(i).unwrap());
    let playbook = SLOW.replace("sleep 2", "sleep 1");
    // One accepts and says nothing, one freezes in the middle of a change.
    mute.freeze();
    let netplay = apply(&hosts, &playbook, &["--timeout", "2", "-e", "@quick.yaml"]).file("quick.yaml", QUICK);
    let start = Instant::now();
    let child = netplay.start();
    wait_for(stuck, "/srv/begun");
    stuck.freeze();
    wait_for(fine, "/srv/handled");
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    let told = Told::from(end(child).exits(6));
    // Most of it is the login's 30 s.
    assert!(start.elapsed() < Duration::from_secs(50), "{:?}", start.elapsed());
    assert_eq!(told.host(fine.0)["status"], "changed");
    assert_eq!(told.host(mute.0)["status"], "unreachable");
    assert!(self::told(told.host(mute.0)).contains("didn't name itself"), "{}", told.host(mute.0));
    assert_eq!(told.host(stuck.0)["status"], "failed");
    let unknown = self::told(told.resource(stuck.0, "command:#6"));
    assert_eq!(unknown, "unknown: whether it was done isn't known: run it again");
    assert!(self::told(told.host(stuck.0)).contains("3 keepalives in 4 s went unanswered"), "{}", told.host(stuck.0));
    for host in [mute, stuck] {
        host.thaw();
    }
    let netplay = apply(&hosts, &playbook, &["--limit", stuck.0]);
    mends(&netplay, stuck);
}
