//! Tests of the lab itself: the other tests rely on these properties of its hosts.

use std::time::{Duration, Instant};

use crate::harness::{Host, Hosts, Kind, Netplay, all, bastion, env, lab, ssh};

const KINDS: [Kind; 3] = [Kind::Fleet, Kind::Hidden, Kind::Sysd];

#[track_caller]
fn ssh_says(target: &str, command: &str) -> String {
    let output = ssh(target, command);
    assert!(output.status.success(), "{target}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn hosts_answer_to_their_names() {
    for kind in KINDS {
        for name in Hosts::take(kind, all(kind).len().min(6)).names() {
            assert_eq!(ssh_says(name, "cat /etc/hostname"), format!("{name}\n"));
        }
    }
}

#[test]
fn the_management_network_and_both_rails_are_there() {
    for kind in [Kind::Fleet, Kind::Sysd] {
        let hosts = Hosts::take(kind, 2);
        let [one, other] = [0, 1].map(|i| hosts.each().nth(i).unwrap());
        let target = other.sh("ip -4 -o addr show dev eth2 | sed 's/.*inet //; s,/.*,,'");
        for host in [one, other] {
            assert_eq!(host.sh("cat /sys/class/net/eth[012]/mtu"), "1500\n1500\n1500\n");
            host.sh("ip link set eth2 mtu 9000");
        }
        one.sh(&format!("ping -q -c 1 -W 2 -M do -s 8972 {target}"));
        // The way back to the controller isn't touched.
        assert_eq!(ssh_says(one.0, "echo here"), "here\n");
    }
}

#[test]
fn a_reboot_is_a_real_one() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let (before, boots) = (host.boot_id(), host.boots());
    host.sh("echo net.core.rmem_max = 777777 > /etc/sysctl.d/50-lab.conf; sysctl -qw net.core.wmem_max=5");
    host.sh("ip link set eth1 mtu 9000; mkdir /etc/systemd/network/10-eth2.network.d");
    host.sh("printf '[Link]\\nMTUBytes=4000\\n' > /etc/systemd/network/10-eth2.network.d/mtu.conf");
    ssh(host.0, "systemctl reboot");
    let start = Instant::now();
    host.wait_for_boot(boots + 1);
    assert_ne!(host.boot_id(), before);
    // What was live is lost, what was written is applied.
    assert_eq!(host.sh("sysctl -n net.core.rmem_max net.core.wmem_max"), "777777\n212992\n");
    let mtus = || host.sh("cat /sys/class/net/eth[12]/mtu");
    while mtus() != "1500\n4000\n" {
        assert!(start.elapsed() < Duration::from_secs(60), "networkd has not set the MTU in a minute: {}", mtus());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn simulated_keys_behave_like_keys() {
    for kind in KINDS {
        let hosts = Hosts::take(kind, 1);
        let host = hosts.first();
        assert_eq!(host.sh("sysctl -qw net.core.rmem_max=134217728; cat /proc/sys/net/core/rmem_max"), "134217728\n");
        assert_eq!(
            host.sh("sysctl -w net.core.nonsense=1 2>&1 || echo refused; ls /proc/sys/net/core | grep nonsense || :"),
            "sysctl: cannot stat /proc/sys/net/core/nonsense: No such file or directory\nrefused\n"
        );
        host.sh("! echo 1 2>&1 > /proc/sys/net/core/nonsense");
        host.reset();
        assert_eq!(host.sh("cat /proc/sys/net/core/rmem_max"), "212992\n");
    }
}

#[test]
fn sessions_are_counted() {
    for kind in [Kind::Fleet, Kind::Sysd] {
        let hosts = Hosts::take(kind, 1);
        let host = hosts.first();
        assert_eq!(host.sessions(), 0);
        ssh_says(host.0, "true");
        ssh_says(host.0, "true");
        assert_eq!(host.sessions(), 2);
    }
}

#[test]
fn users_are_what_their_names_say() {
    for kind in [Kind::Fleet, Kind::Sysd] {
        let hosts = Hosts::take(kind, 1);
        let host = hosts.first();
        let says = |user: &str, command: &str| ssh_says(&format!("{user}@{}", host.0), command);
        for user in ["ops", "fishy", "cshell"] {
            assert_eq!(says(user, "sudo -n id -un"), "root\n", "{user}");
        }
        assert_eq!(says("fishy", "status fish-path"), "/usr/bin/fish\n");
        assert_eq!(says("cshell", "echo $shell"), "/bin/csh\n");
        assert_eq!(says("banner", "echo done"), "Welcome to the lab.\ndone\n");
        assert_eq!(says("forced", "echo done"), "This account runs one command: this one.\n");
        let sudo = format!("echo '{}' | sudo -S -p '' id -un", env("LAB_PASSWORD"));
        assert_eq!(says("pw", &sudo), "root\n");
        assert_eq!(says("pw", "sudo -n true 2>&1 || echo refused"), "sudo: a password is required\nrefused\n");
        assert_eq!(says("nosudo", "sudo -n true 2>/dev/null || echo refused"), "refused\n");
        let expired = ssh(&format!("expired@{}", host.0), "echo done");
        assert!(!expired.status.success() && !String::from_utf8_lossy(&expired.stdout).contains("done"));
    }
}

#[test]
fn hidden_hosts_are_behind_the_bastion() {
    let hosts = Hosts::take(Kind::Hidden, 1);
    let host = hosts.first();
    let direct = lab(["ctl", "sh", "-c", &format!("ip route get {} 2>&1 || :", host.address())]);
    assert!(direct.contains("unreachable"), "{direct}");
    let before = Host(bastion()).sessions();
    assert_eq!(ssh_says(host.0, "hostname"), format!("{}\n", host.0));
    // A jump forwards a connection; it starts no execution on the bastion.
    assert_eq!(Host(bastion()).sessions(), before);
}

#[test]
fn a_frozen_host_accepts_and_says_nothing() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let read = format!("exec 3<>/dev/tcp/{}/22 && echo accepted; read -rt 1 line <&3 || echo silent", host.address());
    host.freeze();
    assert_eq!(lab(["ctl", "bash", "-c", &read]), "accepted\nsilent\n");
    host.thaw();
    assert_eq!(ssh_says(host.0, "echo here"), "here\n");
}

#[test]
fn netplay_runs_where_the_hosts_are() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let netplay = Netplay::new(&hosts, &["--version"]).variable("LC_ALL", "C").stdin("not read");
    let run = netplay.run().exits(0);
    assert!(run.stdout.starts_with("netplay "), "{run:?}");
    let inventory = std::fs::read_to_string(netplay.path("inventory.yaml")).unwrap();
    let groups = inventory.split_once("  children:\n").unwrap().1;
    let [one, other] = [0, 1].map(|i| hosts.each().nth(i).unwrap());
    assert_eq!(
        groups.lines().filter(|line| !line.contains("ansible_ssh_common_args")).collect::<Vec<_>>(),
        [
            "    fleet:",
            "      hosts:",
            &format!("        {}: {{ansible_host: {}}}", one.0, one.address()),
            &format!("        {}: {{ansible_host: {}}}", other.0, other.address()),
            "    hidden:",
            "      vars:",
            "      hosts: {}",
            "    sysd:",
            "      hosts: {}",
            "    vm:",
            "      hosts: {}",
        ]
    );
    assert!(netplay.start().wait().unwrap().success());
}
