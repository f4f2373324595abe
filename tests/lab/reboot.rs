//! Boots in the middle of a play: rolling, proven, never twice for one reason. The cards and their faults are simulated; the
//! restarts are real.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Host, Hosts, Kind, Netplay, Run, Trace, ssh};
use crate::told::{Told, apply, told};

pub(crate) const CARD: &str = "0000:86:00.0";

/// Hosts with a simulated card.
pub(crate) fn hosts(count: usize) -> Hosts {
    let hosts = Hosts::take(Kind::Sysd, count);
    for host in hosts.each() {
        host.card(&format!("add {CARD} interfaces=eth1 rdma=mlx5_0 seconds=0"));
    }
    hosts
}

/// Virtual functions on the card, then a file that comes after it, and a live setting that a boot takes away.
pub(crate) fn playbook(reboot: &str) -> String {
    format!(
        "- hosts: all\n  become: true\n{reboot}  resources:\n    - mlxconfig: {{device: all, set: {{NUM_OF_VFS: 4}}}}\n    \
         - sysctl: {{name: net.ipv4.tcp_mtu_probing, value: 1, persist: false}}\n    - copy: {{dest: /etc/after, content: x}}\n      \
         after: mlxconfig:all\n"
    )
}

fn run(hosts: &Hosts, reboot: &str, arguments: &[&str], code: i32) -> Told {
    Told::by(&apply(hosts, &playbook(&format!("  reboot: {reboot}\n")), arguments), code)
}

/// The problem of a host, or of its card's resource.
pub(crate) fn problem(told_: &Told, host: &str) -> String {
    let host_event = told_.host(host);
    match host_event["error"] {
        Value::Null => told(told_.resource(host, "mlxconfig:all")),
        _ => told(host_event),
    }
}

/// A run that drains by commands which write into `log` of its folder.
fn logged(hosts: &Hosts) -> Netplay {
    let netplay = apply(hosts, "", &[]);
    let log = netplay.path("log").display().to_string();
    let echo = |word: &str| format!("'echo {word} {{{{ inventory_hostname }}}} >> {log}'");
    let (drain, undrain) = (echo("drain"), echo("undrain"));
    let reboot =
        format!("  reboot: {{max_unavailable: 2, timeout: 60, drain: {{command: {drain}, undrain: {undrain}}}}}\n");
    netplay.file("site.yaml", &playbook(&reboot))
}

pub(crate) fn boots(hosts: &Hosts) -> Vec<u32> {
    hosts.each().map(|host| host.boots()).collect()
}

#[test]
fn a_setting_is_carried_through_drain_boot_and_proof_within_the_budget() {
    let hosts = hosts(3);
    let before = boots(&hosts);
    // What it would be is told first, and touches nothing.
    let check = run(&hosts, "{max_unavailable: 2, timeout: 60}", &["--check"], 0);
    assert_eq!(check.count("would_change"), 9, "{}", check.run.stdout);
    let planned: Value =
        serde_json::from_str(check.run.stdout.lines().find(|l| l.contains("boots_planned")).unwrap()).unwrap();
    let names: Vec<&str> = planned["hosts"].as_array().unwrap().iter().map(|h| h["host"].as_str().unwrap()).collect();
    assert_eq!(names, hosts.names().collect::<Vec<_>>());
    assert_eq!(planned["hosts"][0]["reasons"], serde_json::json!(["mlxconfig:all (NUM_OF_VFS 4)"]), "{planned}");
    assert_eq!((&planned["at_once"], &planned["at_most_seconds"]), (&2.into(), &360.into()), "{planned}");
    assert_eq!(boots(&hosts), before);
    // A batch after the other, whatever the budget.
    let ramp = playbook("  serial: 1\n  reboot: {max_unavailable: 3, timeout: 60}\n");
    let check = Told::by(&apply(&hosts, &ramp, &["--check"]), 0).run.stdout;
    let planned: Value = serde_json::from_str(check.lines().find(|l| l.contains("boots_planned")).unwrap()).unwrap();
    assert_eq!((&planned["at_once"], &planned["at_most_seconds"]), (&1.into(), &540.into()), "{planned}");

    // Without leave to boot what depends on it is left out.
    let never = run(&hosts, "{max_unavailable: 2}", &["--reboot", "never"], 0);
    assert_eq!((never.count("reboot_pending"), never.count("skipped")), (3, 3), "{}", never.run.stdout);
    let because = never.resource(hosts.first().0, "copy:/etc/after")["because"].clone();
    assert_eq!(because, "mlxconfig:all takes effect at boot");
    assert_eq!(boots(&hosts), before);

    let (trace, first) = (Trace::begin(&hosts), logged(&hosts));
    let told = Told::by(&first, 0);
    assert_eq!((told.count("changed"), told.count("ok")), (9, 0), "{}", told.run.stdout);
    assert!(trace.most_down() <= 2, "{:?}", trace.events());
    assert_eq!(boots(&hosts), before.iter().map(|n| n + 1).collect::<Vec<_>>());
    for host in hosts.each() {
        assert_eq!(host.card(&format!("show {CARD} NUM_OF_VFS")).trim(), "0 4 4");
        // What the boot took away is there again.
        assert_eq!(host.sh("cat /proc/sys/net/ipv4/tcp_mtu_probing /etc/after"), "1\nx");
        host.sh("test ! -e /var/lib/netplay/reboot");
    }
    let log = std::fs::read_to_string(first.path("log")).unwrap();
    for name in hosts.names() {
        let of: Vec<&str> = log.lines().filter(|l| l.ends_with(name)).collect();
        assert_eq!(of, [format!("drain {name}"), format!("undrain {name}")], "{log}");
    }
    let again = Told::by(&first, 0);
    assert_eq!((again.count("ok"), again.count("changed")), (9, 0), "{}", again.run.stdout);
    assert_eq!(boots(&hosts), before.iter().map(|n| n + 1).collect::<Vec<_>>());
}

#[test]
fn what_a_boot_does_not_bring_fails_and_is_booted_for_once() {
    let hosts = hosts(3);
    let [stubborn, resets, fwreset] = hosts.each().collect::<Vec<_>>().try_into().unwrap();
    stubborn.fault("stubborn");
    resets.fault("resets NUM_OF_VFS");
    fwreset.fault("fwreset");
    let before = boots(&hosts);
    let told = run(&hosts, "{max_unavailable: 3, timeout: 60}", &[], 2);
    for host in [stubborn, fwreset] {
        let problem = problem(&told, host.0);
        assert!(
            problem.contains("the firmware didn't take it")
                && problem.contains("NUM_OF_VFS is 0 now, 4 at the next boot, and 4 is wanted"),
            "{problem}"
        );
        assert_eq!(told.resource(host.0, "copy:/etc/after")["because"], "mlxconfig:all failed");
    }
    let problem = problem(&told, resets.0);
    assert!(problem.contains("NUM_OF_VFS is 0 now, 0 at the next boot, and 4 is wanted"), "{problem}");
    let once: Vec<u32> = before.iter().map(|n| n + 1).collect();
    assert_eq!(boots(&hosts), once);
    // Nor does the next run boot for what is set and wasn't taken; a reset of the firmware is another matter.
    let names = format!("{},{}", stubborn.0, fwreset.0);
    let names = format!("{names},{}", resets.0);
    let again = run(&hosts, "{max_unavailable: 3, timeout: 60}", &["--limit", &names], 2);
    assert!(again.warnings().contains("NUM_OF_VFS is not reported as applied"), "{}", again.run.stdout);
    for host in hosts.each() {
        let problem = self::problem(&again, host.0);
        assert!(
            problem.contains("the firmware didn't take it") && problem.contains("/var/lib/netplay/reboot"),
            "{problem}"
        );
    }
    assert_eq!(boots(&hosts), once);
}

#[test]
fn a_firmware_reset_before_the_boot_and_a_power_cycle_where_the_device_says_so() {
    let hosts = hosts(3);
    let [fwreset, cold, refused] = hosts.each().collect::<Vec<_>>().try_into().unwrap();
    fwreset.fault("fwreset");
    cold.fault("cold");
    refused.fault("cold");
    let before = boots(&hosts);
    let lab = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/lab");
    let reboot = format!(
        "{{max_unavailable: 3, timeout: 60, firmware_reset: true, power_cycle: {{command: '{lab} powercycle {{{{ inventory_hostname }}}}'}}}}"
    );
    // Without a command for it, it is the honest end.
    let told = run(&hosts, "{timeout: 60}", &["--limit", refused.0], 0);
    assert_eq!(told.status("mlxconfig:all"), "reboot_pending");
    assert_eq!(told.resource(refused.0, "copy:/etc/after")["because"], "mlxconfig:all takes effect at a power cycle");
    assert_eq!(told.resource(refused.0, "mlxconfig:all")["changes"][1]["effect"], "power_cycle");
    assert_eq!(boots(&hosts), before);

    let both = format!("{},{}", fwreset.0, cold.0);
    let told = run(&hosts, &reboot, &["--limit", &both], 0);
    assert_eq!((told.count("changed"), told.count("failed")), (6, 0), "{}", told.run.stdout);
    for host in [fwreset, cold] {
        assert_eq!(host.card(&format!("show {CARD} NUM_OF_VFS")).trim(), "0 4 4");
    }
    // Whatever the command says, its power may have been off: that is waited for.
    let fails = reboot
        .replace("inventory_hostname }}'", "inventory_hostname }}; exit 1'")
        .replace("firmware_reset: true, ", "");
    cold.card(&format!("poke {CARD} NUM_OF_VFS 0"));
    cold.sh("rm -rf /var/lib/netplay/pending");
    let playbook = playbook(&format!("  reboot: {fails}\n")).replace("NUM_OF_VFS: 4", "NUM_OF_VFS: 5");
    let told = Told::by(&apply(&hosts, &playbook, &["--limit", cold.0]), 0);
    assert_eq!(told.status("mlxconfig:all"), "changed");
    // A warm boot by somebody else doesn't make it so, and isn't taken for a power cycle.
    refused.reboot();
    let told = run(&hosts, "{timeout: 60}", &["--limit", refused.0, "--detailed-exitcode"], 3);
    assert_eq!(told.status("mlxconfig:all"), "reboot_pending");
}

#[test]
fn a_host_is_back_when_it_is_as_it_was() {
    let hosts = hosts(3);
    let [slow, late, degraded] = hosts.each().collect::<Vec<_>>().try_into().unwrap();
    slow.fault("slow-shutdown 3");
    slow.fault("slow-boot 3");
    late.fault("port-down 4");
    degraded.fault("failed-unit");
    let told = run(&hosts, "{max_unavailable: 3, timeout: 60}", &[], 0);
    assert_eq!(told.count("failed"), 0, "{}", told.run.stdout);
    let warnings = told.warnings();
    assert!(warnings.contains("after the boot these units have failed: simulated-failing.service"), "{warnings}");
    assert_eq!(late.sh("cat /sys/class/infiniband/mlx5_0/ports/1/state"), "4: ACTIVE\n");
}

#[test]
fn hosts_that_do_not_come_back_end_the_run_and_are_named() {
    let hosts = hosts(3);
    let [half, gone, third] = hosts.each().collect::<Vec<_>>().try_into().unwrap();
    half.fault("half-speed");
    gone.fault("no-boot");
    let before = third.boots();
    let start = Instant::now();
    let told = run(&hosts, "{max_unavailable: 2, timeout: 15}", &[], 2);
    assert!(start.elapsed() < Duration::from_secs(90), "{:?}", start.elapsed());
    let problem_ = problem(&told, half.0);
    assert!(problem_.contains("the RDMA port mlx5_0/1 has 200 Gb/s, and had 400"), "{problem_}");
    let problem_ = problem(&told, gone.0);
    assert!(problem_.contains("it didn't come back within 15 s of the boot"), "{problem_}");
    // The budget is used up: the third isn't touched, and it is said why.
    let problem_ = problem(&told, third.0);
    assert!(problem_.contains("it isn't booted: 2 hosts may be unavailable at once"), "{problem_}");
    assert!(
        problem_.contains(half.0) && problem_.contains(gone.0) && problem_.contains("max_unavailable"),
        "{problem_}"
    );
    assert_eq!(third.boots(), before);

    // A host that is away already counts from the beginning.
    let told = run(&hosts, "{max_unavailable: 1, timeout: 15}", &["--limit", &format!("{},{}", gone.0, third.0)], 6);
    assert!(problem(&told, third.0).contains(&format!("{} (unreachable", gone.0)), "{}", told.run.stdout);
    assert_eq!(third.boots(), before);
}

#[test]
fn another_host_key_after_the_boot_is_told_at_once() {
    let hosts = hosts(1);
    hosts.first().fault("new-host-key");
    let told = run(&hosts, "{timeout: 60}", &[], 2);
    let problem = problem(&told, hosts.first().0);
    assert!(problem.starts_with("host_key: after the boot"), "{problem}");
}

#[test]
fn a_run_that_was_killed_is_finished_by_the_next_one() {
    let hosts = hosts(2);
    let before = boots(&hosts);
    let netplay = logged(&hosts);
    let mut child = netplay.start();
    let start = Instant::now();
    // Killed when the hosts have gone down.
    let trace = Trace::begin(&hosts);
    while trace.events().iter().filter(|(_, _, up)| !up).count() < 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "no host went down");
        std::thread::sleep(Duration::from_millis(100));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for (host, n) in hosts.each().zip(&before) {
        host.wait_for_boot(n + 1);
        assert!(host.sh("cat /var/lib/netplay/reboot").contains("drain command\n"));
    }
    // A check tells of it and changes nothing.
    let check = run(&hosts, "{max_unavailable: 2, timeout: 60}", &["--check"], 0);
    assert!(check.warnings().contains("didn't see to the rest"), "{}", check.run.stdout);
    let told = Told::by(&netplay, 0);
    assert!(told.warnings().contains("this run sees to the rest"), "{}", told.run.stdout);
    assert_eq!(boots(&hosts), before.iter().map(|n| n + 1).collect::<Vec<_>>(), "{}", told.run.stdout);
    let log = std::fs::read_to_string(netplay.path("log")).unwrap();
    let count = |word: &str| log.lines().filter(|l| l.split(' ').next() == Some(word)).count();
    assert_eq!((count("drain"), count("undrain")), (2, 2), "{log}");
    for host in hosts.each() {
        host.sh("test ! -e /var/lib/netplay/reboot");
        assert_eq!(host.sh("cat /etc/after"), "x");
    }
}

#[test]
fn a_second_run_keeps_off_and_what_is_going_down_is_waited_for() {
    let hosts = hosts(2);
    let [slow, other] = hosts.each().collect::<Vec<_>>().try_into().unwrap();
    slow.fault("slow-shutdown 12");
    let before = boots(&hosts);
    let netplay = logged(&hosts);
    let log = netplay.path("log");
    let logged = || std::fs::read_to_string(&log).unwrap_or_default();
    let mut child = netplay.start();
    let start = Instant::now();
    // While the first run lives, another one leaves its hosts alone.
    while slow.sh("cat /var/lib/netplay/reboot 2>/dev/null || :").is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "no note");
        std::thread::sleep(Duration::from_millis(100));
    }
    let second = Told::by(&apply(&hosts, &playbook("  reboot: {timeout: 60}\n"), &["--limit", slow.0]), 2);
    assert!(problem(&second, slow.0).contains("is booting it (mlxconfig:all"), "{}", second.run.stdout);
    while slow.sh("systemctl is-system-running || :") != "stopping\n" {
        assert!(start.elapsed() < Duration::from_secs(60), "it doesn't go down");
        std::thread::sleep(Duration::from_millis(100));
    }
    // When it is dead, the next one sees that the host goes down, and neither orders it again nor gives it back before.
    child.kill().unwrap();
    child.wait().unwrap();
    other.wait_for_boot(before[1] + 1);
    let third = Told::by(&netplay, 0);
    assert_eq!(boots(&hosts), before.iter().map(|n| n + 1).collect::<Vec<_>>(), "{}", third.run.stdout);
    assert_eq!(logged().lines().filter(|l| l.starts_with("undrain")).count(), 2, "{}", logged());

    // A host that couldn't be given back is given back by the next run.
    for host in hosts.each() {
        host.card(&format!("poke {CARD} NUM_OF_VFS 2"));
    }
    let limit = ["--limit", other.0];
    let reboot = "{timeout: 60, drain: {command: 'true', undrain: 'echo no way; exit 7'}}";
    let vfs = |n: u32| playbook(&format!("  reboot: {reboot}\n")).replace("NUM_OF_VFS: 4", &format!("NUM_OF_VFS: {n}"));
    let told_ = Told::by(&apply(&hosts, &vfs(2), &limit), 2);
    assert!(problem(&told_, other.0).contains("giving it back failed: exit code 7: no way"), "{}", told_.run.stdout);
    let mended = vfs(2).replace("echo no way; exit 7", "true");
    let told_ = Told::by(&apply(&hosts, &mended, &limit), 0);
    assert!(told_.warnings().contains("this run sees to the rest"), "{}", told_.run.stdout);
    other.sh("test ! -e /var/lib/netplay/reboot");
    assert_eq!(other.boots(), before[1] + 2);
}

#[test]
fn an_order_that_an_earlier_run_has_given_is_waited_for_before_the_host_is_given_back() {
    let hosts = hosts(1);
    let host = hosts.first();
    let before = host.boots();
    let netplay = logged(&hosts);
    let mut child = netplay.start();
    let start = Instant::now();
    while host.sh("ls /run/netplay/boot.sh 2>/dev/null || :").is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "no order");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // In the two seconds until it goes down, a run that needs no boot comes, and gives it back only after that.
    let log = netplay.path("log");
    let playbook = std::fs::read_to_string(netplay.path("site.yaml")).unwrap();
    let playbook = playbook.replace("device: all, set: {NUM_OF_VFS: 4}", "device: all, set: {SRIOV_EN: 0}");
    let playbook = playbook.replace(">> ", ">> /dev/null; cat /proc/uptime >> ");
    let (trace, other) = (Trace::begin(&hosts), apply(&hosts, &playbook, &[]));
    let mut run = other.run();
    // It may come just when the host lets nobody in any more: then it doesn't know, and gives nothing back.
    if run.code != Some(0) {
        host.wait_for_boot(before + 1);
        run = other.run();
    }
    let told_ = Told::from(run.exits(0));
    assert_eq!(host.boots(), before + 1, "{}", told_.run.stdout);
    let given_back = std::fs::read_to_string(log).unwrap();
    let given_back: f64 = given_back.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
    let up = trace.events().into_iter().filter(|(_, _, up)| *up).map(|(time, ..)| time).next_back().unwrap();
    assert!(given_back > up, "given back at {given_back}, up at {up}");
    host.sh("test ! -e /var/lib/netplay/reboot");
}

/// When, by the machine's uptime, a word was written with it into a log.
fn times(log: &str, word: &str) -> Vec<f64> {
    let time = |line: &str| line.split_once(' ').filter(|(w, _)| *w == word)?.1.split(' ').next()?.parse().ok();
    log.lines().filter_map(time).collect()
}

#[test]
fn no_host_is_given_back_that_boots_by_itself_or_is_gone() {
    let hosts = hosts(3);
    let [booted, gone, third] = hosts.each().collect::<Vec<_>>().try_into().unwrap();
    gone.fault("no-boot");
    let before = boots(&hosts);
    let netplay = apply(&hosts, "", &["--forks", "1"]);
    let log = netplay.path("log").display().to_string();
    let stamp = |word: &str| format!("echo {word} $(cat /proc/uptime) {{{{ inventory_hostname }}}} >> {log}");
    // Somebody boots two of them while they are drained, one of which doesn't come back.
    let reboot = format!(
        "  reboot: {{max_unavailable: 2, timeout: 20, drain: {{command: '{}; sleep 15', undrain: '{}'}}}}\n",
        stamp("drain"),
        stamp("undrain")
    );
    let netplay = netplay.file("site.yaml", &playbook(&reboot));
    let child = netplay.start();
    let start = Instant::now();
    while times(&std::fs::read_to_string(&log).unwrap_or_default(), "drain").len() < 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is drained");
        std::thread::sleep(Duration::from_millis(50));
    }
    // A drain that goes on holds up no other one.
    let began = times(&std::fs::read_to_string(&log).unwrap(), "drain");
    assert!(began[1] - began[0] < 15.0, "{began:?}");
    for host in [booted, gone] {
        ssh(host.0, "systemctl reboot");
    }
    let output = child.wait_with_output().unwrap();
    let told_ = Told::from(Run::from(output).exits(2));
    assert_eq!(told_.resource(booted.0, "copy:/etc/after")["status"], "changed", "{}", told_.run.stdout);
    let now = boots(&hosts);
    assert_eq!((now[0], now[2]), (before[0] + 1, before[2] + 1), "what somebody booted isn't booted again");
    let text = std::fs::read_to_string(&log).unwrap();
    let of = |host: &str| {
        text.lines().filter(|l| l.ends_with(host)).map(|l| l.split(' ').next().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(of(booted.0), ["drain", "undrain"], "{text}");
    assert_eq!(of(third.0), ["drain", "undrain"], "{text}");
    assert_eq!(of(gone.0), ["drain"], "{text}");
    assert!(told_.warnings().contains("it stays drained: nobody knows whether it is up"), "{}", told_.run.stdout);
}

#[test]
fn a_host_that_would_forget_it_is_told_beforehand_and_is_not_booted() {
    let hosts = hosts(1);
    let host = hosts.first();
    let before = host.boots();
    // Its root is said to be in memory, by a simulated grep.
    host.sh(
        "printf '%s\\n' '#!/bin/sh' 'case $* in *mountinfo*) echo \"27 1 0:2 / / rw - tmpfs tmpfs rw,size=8g\" ;;' \
         '*) exec /usr/bin/grep \"$@\" ;; esac' >/usr/local/sbin/grep; chmod +x /usr/local/sbin/grep",
    );
    let why = "what is written to its root doesn't survive a reboot (it is in memory)";
    let check = run(&hosts, "{timeout: 60}", &["--check"], 0);
    assert!(check.warnings().contains(&format!("it wouldn't be booted: {why}")), "{}", check.run.stdout);
    assert!(!check.run.stdout.contains("boots_planned"), "{}", check.run.stdout);
    let told_ = run(&hosts, "{timeout: 60}", &[], 2);
    assert!(problem(&told_, host.0).contains(&format!("it isn't booted: {why}")), "{}", told_.run.stdout);
    // The same of what netplay notes there.
    host.sh("rm /usr/local/sbin/grep; mkdir -p /var/lib/netplay; mount -t tmpfs tmpfs /var/lib/netplay");
    let why = "it wouldn't be booted: what is written to /var/lib/netplay doesn't survive a reboot (it is in memory)";
    let check = run(&hosts, "{timeout: 60}", &["--check"], 0);
    assert!(check.warnings().contains(why), "{}", check.run.stdout);
    run(&hosts, "{timeout: 60}", &[], 2);
    assert_eq!(host.boots(), before);
    host.sh("umount /var/lib/netplay");
}

#[test]
fn an_order_whose_answer_is_lost_and_a_play_that_has_not_what_it_was_for() {
    let hosts = hosts(2);
    let [lost, stubborn] = hosts.each().collect::<Vec<_>>().try_into().unwrap();
    stubborn.fault("stubborn");
    // systemd takes the order, and its answer doesn't arrive.
    lost.sh(
        "printf '%s\\n' '#!/bin/sh' '/usr/bin/systemd-run \"$@\"; echo Failed to start: Connection timed out >&2; exit 1' \
         >/usr/local/sbin/systemd-run; chmod +x /usr/local/sbin/systemd-run",
    );
    let before = boots(&hosts);
    let netplay = logged(&hosts);
    let told_ = Told::by(&netplay, 2);
    assert_eq!(told_.resource(lost.0, "mlxconfig:all")["status"], "changed", "{}", told_.run.stdout);
    let log = || std::fs::read_to_string(netplay.path("log")).unwrap();
    let undrained = |host: &str| log().lines().any(|l| l == format!("undrain {host}"));
    assert!(undrained(lost.0) && !undrained(stubborn.0), "{}", log());
    // Another play has nothing to say about the firmware: it doesn't give the host back, and does its own part.
    let site = std::fs::read_to_string(netplay.path("site.yaml")).unwrap();
    let from = site.find("    - mlxconfig").unwrap();
    let to = from + site[from..].find('\n').unwrap() + 1;
    let other = format!("{}{}", &site[..from], &site[to..]).replace("      after: mlxconfig:all\n", "");
    let told_ = Told::by(&apply(&hosts, &other, &["--limit", stubborn.0]), 0);
    assert!(told_.warnings().contains("it isn't given back; run a play that has it"), "{}", told_.run.stdout);
    assert!(!undrained(stubborn.0), "{}", log());
    assert_eq!(stubborn.sh("cat /etc/after"), "x");
    assert_eq!(boots(&hosts), before.iter().map(|n| n + 1).collect::<Vec<_>>());
}

#[test]
fn what_earlier_runs_have_begun_keeps_to_the_budget() {
    let hosts = Hosts::take(Kind::Fleet, 4);
    for host in hosts.each() {
        host.card(&format!("add {CARD} rdma=mlx5_0 seconds=0"));
        host.fault("slow-boot 4");
    }
    let before = boots(&hosts);
    let first = apply(&hosts, &playbook("  reboot: {max_unavailable: 4, timeout: 30}\n"), &[]);
    let trace = Trace::begin(&hosts);
    let mut child = first.start();
    let start = Instant::now();
    while trace.events().len() < 4 {
        assert!(start.elapsed() < Duration::from_secs(60), "they don't boot: {:?}", trace.events());
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    child.wait().unwrap();
    for (host, n) in hosts.each().zip(&before) {
        host.wait_for_boot(n + 1);
        host.sh("test -e /var/lib/netplay/reboot");
        host.fault("none");
    }
    // They serve again, each with a note: another value takes them down one after the other.
    let trace = Trace::begin(&hosts);
    let other = playbook("  reboot: {max_unavailable: 1, timeout: 30}\n").replace("NUM_OF_VFS: 4", "NUM_OF_VFS: 5");
    Told::by(&apply(&hosts, &other, &[]), 0);
    assert_eq!(trace.most_down(), 1, "{:?}", trace.events());
    assert_eq!(boots(&hosts), before.iter().map(|n| n + 2).collect::<Vec<_>>());
}

#[test]
fn hosts_are_booted_without_a_playbook_and_once_for_a_reason() {
    let hosts = Hosts::take(Kind::Sysd, 2);
    let before = boots(&hosts);
    let reboot = |more: &[&str]| {
        let all = [
            "reboot",
            "-i",
            "inventory.yaml",
            "--reason",
            "new kernel",
            "--set",
            "max_unavailable=2",
            "--set",
            "timeout=60",
        ];
        Netplay::new(&hosts, &[&all[..], more].concat())
    };
    let check = reboot(&["--check"]).run().exits(0);
    assert!(check.stdout.contains("would boot 2 hosts, at most 2 at once"), "{}", check.stdout);
    assert_eq!(boots(&hosts), before);
    let netplay = reboot(&[]);
    let mut child = netplay.start();
    let start = Instant::now();
    while boots(&hosts) != before.iter().map(|n| n + 1).collect::<Vec<_>>() {
        assert!(start.elapsed() < Duration::from_secs(60), "they don't boot");
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for (host, n) in hosts.each().zip(&before) {
        host.wait_for_boot(n + 1);
    }
    let status = || {
        let run = Netplay::new(&hosts, &["status", "-i", "inventory.yaml"]).run().exits(0);
        run.stdout + &run.stderr
    };
    if !status().contains("nothing is open") {
        assert!(status().contains("to boot it (new kernel); it wasn't drained; it has booted since"), "{}", status());
    }
    let finished = netplay.run().exits(0);
    assert!(finished.stdout.contains("2 hosts: 2 changed ("), "{}", finished.stdout);
    assert!(status().contains("nothing is open"), "{}", status());
    // The first run may have come to its end on one of them before it was killed: then it was asked for anew.
    assert!(boots(&hosts).iter().zip(&before).all(|(now, n)| *now <= n + 2), "{:?}", boots(&hosts));
}

#[test]
fn never_more_than_the_budget_are_away_though_the_controller_is_killed_and_hosts_are_lost() {
    const MOST: usize = 12;
    let hosts = Hosts::take(Kind::Fleet, 60);
    let names: Vec<&str> = hosts.names().collect();
    std::thread::scope(|scope| {
        for part in names.chunks(15) {
            scope.spawn(move || {
                for name in part {
                    Host(name).card(&format!("add {CARD} rdma=mlx5_0 seconds=0"));
                }
            });
        }
    });
    let (gone, stubborn) = (Host(names[7]), Host(names[20]));
    gone.fault("no-boot");
    stubborn.fault("stubborn");
    let before = boots(&hosts);
    let trace = Trace::begin(&hosts);
    let reboot = format!("  reboot: {{max_unavailable: {MOST}, timeout: 30}}\n");
    let netplay = apply(&hosts, &playbook(&reboot), &[]);
    // Twice the controller dies in the middle of it.
    for after in [8, 24] {
        let mut child = netplay.start();
        let start = Instant::now();
        while trace.events().iter().filter(|(_, _, up)| !up).count() < after {
            assert!(start.elapsed() < Duration::from_secs(180), "{:?}", trace.events());
            std::thread::sleep(Duration::from_millis(200));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Started again at once, it waits for those that are down, and none of them is lost but that which doesn't come back.
    let start = Instant::now();
    let last = Told::from(netplay.run());
    assert!(trace.most_down() <= MOST, "{:?}", trace.events());
    assert!(last.run.stdout.contains("\"step\":\"awaited\""), "{}", last.run.stdout);
    let open: Vec<&str> = names.iter().filter(|name| last.host(name)["status"] == "failed").copied().collect();
    assert!(open.iter().all(|name| *name == stubborn.0 || *name == gone.0), "{open:?}\n{}", last.run.stderr);
    let away = names.iter().filter(|name| last.host(name)["status"] == "unreachable");
    assert!(away.copied().all(|name| name == gone.0), "{}", last.run.stderr);
    for (host, n) in hosts.each().zip(before).filter(|(host, _)| host.0 != gone.0) {
        assert_eq!(host.boots(), n + 1, "{}: once, whatever happened", host.0);
    }
    assert!(start.elapsed() < Duration::from_secs(240), "{:?}", start.elapsed());
}
