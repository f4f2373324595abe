//! Tests of the lab itself: restarts, what the simulated firmware makes of them, the faults that a test can switch on, and
//! the trace of who was unavailable when.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::harness::{Host, Hosts, Kind, Trace, lab, ssh};

const CARD: &str = "0000:86:00.0";

/// Default, current and next value of a parameter.
fn values(host: Host<'_>, parameter: &str) -> String {
    host.card(&format!("show {CARD} {parameter}")).trim().to_owned()
}

fn poke(host: Host<'_>, parameter: &str, value: u32) {
    host.card(&format!("poke {CARD} {parameter} {value}"));
}

/// What a login says, or an empty text.
fn says(host: Host<'_>, command: &str) -> String {
    String::from_utf8(ssh(host.0, command).stdout).unwrap()
}

fn power_cycle(host: Host<'_>) {
    let boots = host.boots();
    lab(["powercycle", host.0]);
    host.wait_for_boot(boots + 1);
}

#[test]
fn a_boot_loads_what_is_set_unless_a_fault_keeps_the_card_from_it() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    host.card(&format!("add {CARD} interfaces=eth1 rdma=mlx5_0"));
    poke(host, "NUM_OF_VFS", 4);
    poke(host, "SRIOV_EN", 1);
    assert_eq!(values(host, "NUM_OF_VFS"), "0 0 4");
    host.reboot();
    assert_eq!(values(host, "NUM_OF_VFS"), "0 4 4");

    host.fault("cold");
    poke(host, "NUM_OF_VFS", 5);
    host.reboot();
    assert_eq!(values(host, "NUM_OF_VFS"), "0 4 5");
    power_cycle(host);
    assert_eq!(values(host, "NUM_OF_VFS"), "0 5 5");

    host.fault("none");
    host.fault("resets SRIOV_EN");
    poke(host, "NUM_OF_VFS", 6);
    host.reboot();
    assert_eq!(values(host, "NUM_OF_VFS"), "0 6 6");
    assert_eq!(values(host, "SRIOV_EN"), "False(0) False(0) False(0)");

    host.fault("none");
    host.fault("stubborn");
    poke(host, "NUM_OF_VFS", 7);
    power_cycle(host);
    assert_eq!(values(host, "NUM_OF_VFS"), "0 6 7");
}

#[test]
fn a_firmware_reset_is_what_some_cards_need() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    host.card(&format!("add {CARD} interfaces=eth1 rdma=mlx5_0"));
    let reset = |words: &str| host.sh(&format!("mstfwreset -d {CARD} {words}"));
    host.fault("fwreset");
    poke(host, "NUM_OF_VFS", 1);
    // What level 0 does isn't enough.
    reset("-y reset");
    host.reboot();
    assert_eq!(values(host, "NUM_OF_VFS"), "0 0 1");
    reset("-y -l 4 r");
    assert_eq!(values(host, "NUM_OF_VFS"), "0 0 1");
    host.reboot();
    assert_eq!(values(host, "NUM_OF_VFS"), "0 1 1");
    poke(host, "NUM_OF_VFS", 2);
    reset("-l 3 -y r");
    assert_eq!(values(host, "NUM_OF_VFS"), "0 2 2");
    // That was for one boot.
    host.reboot();
    poke(host, "NUM_OF_VFS", 3);
    host.reboot();
    assert_eq!(values(host, "NUM_OF_VFS"), "0 2 3");

    host.fault("cold");
    let levels = reset("q");
    assert!(
        levels.contains("\n4: Warm Reboot                                                   -Not Supported"),
        "{levels}"
    );
    host.sh(&format!("! mstfwreset -d {CARD} -y -l 4 r"));
    let calls = host.card("calls");
    let calls: Vec<_> = calls.lines().map(|line| line.split(r#", "at""#).next().unwrap()).collect();
    let call = |command, level| {
        format!(r#"{{"tool": "mstfwreset", "device": "{CARD}", "command": "firmware {command}", "level": "{level}""#)
    };
    assert_eq!(calls, [call("reset", 0), call("r", 4), call("r", 3), call("q", 0), call("r", 4)]);
}

#[test]
fn ports_come_back_late_and_slower() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    host.card(&format!("add {CARD} interfaces=eth1 rdma=mlx5_0"));
    let port = "cd /sys/class/infiniband/mlx5_0/ports/1; cat state phys_state";
    let speed = || host.sh("cat /sys/class/infiniband/mlx5_0/ports/1/rate /sys/class/net/eth1/speed");
    assert_eq!(speed(), "400 Gb/sec (4X NDR)\n10000\n");
    host.fault("port-down 30");
    host.fault("half-speed");
    host.reboot();
    assert_eq!(host.sh(port), "1: DOWN\n2: Polling\n");
    assert_eq!(speed(), "200 Gb/sec (2X NDR)\n5000\n");
    let (start, mut seen) = (Instant::now(), vec![]);
    while seen.last().is_none_or(|last| last != "4: ACTIVE\n5: LinkUp\n") {
        assert!(start.elapsed() < Duration::from_secs(60), "{seen:?}");
        let now = host.sh(port);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(seen[seen.len() - 2], "2: INIT\n5: LinkUp\n");
    // What the fault is, is the host's until it is switched off.
    host.fault("none");
    host.reboot();
    assert_eq!(speed(), "400 Gb/sec (4X NDR)\n10000\n");
    assert_eq!(host.sh(port), "4: ACTIVE\n5: LinkUp\n");
}

#[test]
fn a_shutdown_hangs_while_sshd_answers_and_a_boot_takes_its_time() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let (before, boots, trace) = (host.boot_id(), host.boots(), Trace::begin(&hosts));
    host.fault("slow-shutdown 4");
    host.fault("slow-boot 3");
    let start = Instant::now();
    ssh(host.0, "systemctl reboot");
    let mut hung = Duration::ZERO;
    while says(host, "cat /proc/sys/kernel/random/boot_id").trim() == before {
        hung = start.elapsed();
    }
    assert!(hung > Duration::from_secs(2), "the old boot answered for {hung:?}");
    host.wait_for_boot(boots + 1);
    assert_ne!(host.boot_id(), before);
    let events = trace.events();
    let [(down, _, false), (up, _, true)] = events[..] else { panic!("{events:?}") };
    // The shutdown that hangs counts: no job is on the node any more.
    assert!((7.0..start.elapsed().as_secs_f64()).contains(&(up - down)), "{events:?}");
}

#[test]
fn a_unit_fails_and_the_key_is_another_one() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let running = "systemctl is-system-running --wait || :; systemctl --failed --plain --no-legend | cut -d' ' -f1";
    assert_eq!(says(host, running), "running\n");
    host.fault("failed-unit");
    host.fault("new-host-key");
    host.reboot();
    let refused = ssh(host.0, "true");
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert!(complaint.contains("REMOTE HOST IDENTIFICATION HAS CHANGED"), "{complaint}");
    assert_eq!(host.sh(running), "degraded\nsimulated-failing.service\n");
}

#[test]
fn a_host_does_not_boot_until_the_fault_is_off() {
    let hosts = Hosts::take(Kind::Sysd, 2);
    let [host, other] = [0, 1].map(|i| hosts.each().nth(i).unwrap());
    let (boots, trace) = (host.boots(), Trace::begin(&hosts));
    host.fault("no-boot");
    ssh(host.0, "systemctl reboot");
    let start = Instant::now();
    while host.status() != ("off".to_owned(), boots) {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", host.status());
        std::thread::sleep(Duration::from_millis(50));
    }
    other.reboot();
    lab(["powercycle", host.0]);
    assert_eq!(host.status(), ("off".to_owned(), boots));
    assert_eq!(trace.most_down(), 2);
    host.fault("none");
    power_cycle(host);
    assert_eq!(says(host, "echo here"), "here\n");
    let order: Vec<_> = trace.events().into_iter().map(|(_, name, up)| (name, up)).collect();
    let [one, two] = [host.0, other.0].map(str::to_owned);
    assert_eq!(order, [(one.clone(), false), (two.clone(), false), (two, true), (one, true)]);
}

#[test]
fn a_power_cut_and_a_renewal_are_in_the_trace() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let trace = Trace::begin(&hosts);
    assert_eq!(trace.most_down(), 0);
    hosts.first().reset();
    assert_eq!(trace.most_down(), 1);
    lab(["renew"].into_iter().chain(hosts.names()));
    assert_eq!(trace.most_down(), 2);
    assert_eq!(trace.events().len(), 6);
}

/// The restart of a host without systemd is simulated by ending its first process: all that a reboot loses is lost.
#[test]
fn hosts_without_systemd_restart_when_they_are_asked_to() {
    let hosts = Hosts::take(Kind::Fleet, 4);
    let trace = Trace::begin(&hosts);
    let state = |host: Host<'_>| {
        host.sh(
            "cat /etc/machine-id /sys/class/net/eth1/mtu /proc/sys/net/core/wmem_max; ls /run/left 2>/dev/null || :",
        )
    };
    let asked = ["systemctl reboot", "sudo reboot", "shutdown -r now", "(sleep 1; systemctl --no-wall reboot) &"];
    for (host, command) in hosts.each().zip(asked) {
        host.card(&format!("add {CARD} interfaces=eth1 rdma=mlx5_0"));
        poke(host, "NUM_OF_VFS", 4);
        let before = (state(host), host.boot_id(), host.boots());
        host.sh("ip link set eth1 mtu 9000; sysctl -qw net.core.wmem_max=5; touch /run/left");
        assert_ne!(state(host), before.0);
        let user = if command.starts_with("sudo") { "ops@" } else { "" };
        assert!(ssh(&format!("{user}{}", host.0), command).status.success(), "{command}");
        host.wait_for_boot(before.2 + 1);
        assert_eq!(state(host), before.0, "{command}");
        assert_ne!(host.boot_id(), before.1);
        assert_eq!(values(host, "NUM_OF_VFS"), "0 4 4");
    }
    assert_eq!(trace.most_down(), 1);
    let ids: BTreeSet<_> = hosts.each().map(|host| host.sh("cat /etc/machine-id")).collect();
    assert_eq!(ids.len(), 4);
    // Who may not isn't obeyed, and what else is asked, Debian's own command answers.
    let host = hosts.first();
    let refused = ssh(&format!("ops@{}", host.0), "/usr/local/sbin/systemctl reboot");
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("authentication required"));
    assert_eq!(says(host, "systemctl is-system-running"), "offline\n");
    assert_eq!(trace.events().len(), 8);

    host.fault("slow-shutdown 3");
    let (before, boots) = (host.boot_id(), host.boots());
    ssh(host.0, "systemctl reboot");
    assert_eq!(says(host, "cat /proc/sys/kernel/random/boot_id").trim(), before);
    host.wait_for_boot(boots + 1);
    let events = trace.events();
    assert!(events[9].0 - events[8].0 > 3.0, "{events:?}");
}

/// As many hosts as a rolling reboot is tried with.
#[test]
fn sixty_hosts_restart_in_batches() {
    let hosts = Hosts::take(Kind::Fleet, 60);
    lab(["fault", &hosts.names().collect::<Vec<_>>().join(","), "slow-boot", "2"]);
    let trace = Trace::begin(&hosts);
    let all: Vec<_> = hosts.each().collect();
    for (number, batch) in all.chunks(12).enumerate() {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for host in batch {
                scope.spawn(|| ssh(host.0, "systemctl reboot"));
            }
        });
        while trace.events().len() < 24 * (number + 1) {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", trace.events());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let events = trace.events();
    assert_eq!(events.len(), 120);
    assert!((2..=12).contains(&trace.most_down()), "{events:?}");
    for name in hosts.names() {
        let times: Vec<_> = events.iter().filter(|event| event.1 == name).map(|event| event.0).collect();
        assert!(times[1] - times[0] > 2.0, "{name}: {times:?}");
    }
}

#[test]
fn faults_are_told_and_a_new_host_has_none() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let told = || lab(["fault", host.0]);
    host.fault("resets SRIOV_EN");
    host.fault("no-boot");
    assert_eq!(told(), format!("{} no-boot resets=SRIOV_EN\n", host.0));
    lab(["renew", host.0]);
    assert_eq!(told(), format!("{}\n", host.0));
}
