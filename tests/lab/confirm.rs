//! Changes that cut the session off: they are confirmed over a new connection, or the host takes them back.

use crate::harness::{Host, Hosts, Kind, Netplay, Run};
use crate::told::Told;
use std::time::{Duration, Instant};

fn play(hosts: &Hosts, confirm: &str, rest: &str) -> Netplay {
    let playbook = format!("- hosts: all\n  become: true\n  confirm: {confirm}\n{rest}");
    Netplay::new(hosts, &["apply", "-i", "inventory.yaml", "--output", "ndjson", "site.yaml"])
        .file("site.yaml", &playbook)
}

/// What is told of a resource that was rolled back or failed.
fn why(told: &Told, address: &str) -> String {
    let line = told.run.stdout.lines().find(|l| l.contains(&format!("\"address\":\"{address}\"")));
    line.unwrap_or_default().to_owned()
}

/// Nothing is left of what was armed, and nothing waits to take something back.
fn disarmed(host: Host<'_>) {
    host.sh(
        "sleep 1; [ -z \"$(ls -d /var/lib/netplay/armed /var/lib/netplay/armed.new /etc/systemd/system/netplay-back.service \
         /etc/systemd/system/sysinit.target.wants/netplay-back.service 2>/dev/null)\" ]
         for i in 1 2 3; do pgrep -f '[a]rmed/guard' || break; [ $i -lt 3 ] || exit 1; sleep 1; done
         if [ -d /run/systemd/system ]; then ! systemctl is-active --quiet netplay-late.timer netplay-guard.service; fi",
    );
}

const DROP: &str = "  resources:
    - firewall_rule: {name: lock-out, port: 22, protocol: tcp, action: drop}
    - copy: {dest: /etc/independent, content: x}
    - copy: {dest: /etc/dependent, content: x}
      after: firewall_rule:lock-out\n";

/// Has the tables there, so that what is compared is what a rule made.
fn tables(host: Host<'_>) {
    host.sh("for c in iptables ip6tables; do $c -A INPUT -j ACCEPT; $c -D INPUT -j ACCEPT; done");
}

/// The rules there are, and what is kept of them.
fn rules(host: Host<'_>) -> String {
    host.sh(
        "iptables-save 2>/dev/null | grep -v '^#' | sed 's/\\[.*\\]//'; nft list ruleset
         find /etc/netplay /etc/systemd /etc/udev/rules.d /etc/firewalld ! -type d -printf '%p %l %m %u %s\\n' 2>/dev/null | sort",
    )
}

#[test]
fn a_rule_that_locks_out_is_taken_back() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    tables(host);
    let before = rules(host);
    let told = Told::by(&play(&hosts, "{timeout: 5}", DROP), 2);
    assert_eq!(told.status("firewall_rule:lock-out"), "rolled_back", "{}", told.run.stdout);
    assert!(why(&told, "firewall_rule:lock-out").contains("the host is as it was before"), "{}", told.run.stdout);
    assert_eq!((told.status("copy:/etc/independent"), told.status("copy:/etc/dependent")), ("changed", "skipped"));
    assert_eq!(told.warnings(), "", "it was looked at again");
    assert_eq!(rules(host), before);
    disarmed(host);
}

#[test]
fn what_leaves_the_host_reachable_stays_and_costs_one_connection_more() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let netplay =
        play(&hosts, "{timeout: 30}", "  resources:\n    - mtu: {interface: eth0, mtu: 1400, persist: false}\n");
    let told = Told::by(&netplay, 0);
    for name in hosts.names() {
        assert_eq!(told.executions(name), 3, "{}", told.run.stdout);
        assert_eq!(told.resource(name, "mtu:eth0")["status"], "changed");
    }
    let again = Told::by(&netplay, 0);
    for (name, host) in hosts.names().zip(hosts.each()) {
        assert_eq!(
            (again.host(name)["executions"].clone(), host.sh("cat /sys/class/net/eth0/mtu")),
            (1.into(), "1400\n".into())
        );
        host.sh("test ! -e /var/lib/netplay/armed; ip link set eth0 mtu 1500");
    }
}

/// A network file with another address, or a configuration of sshd that it doesn't take, with the restart that uses it.
fn restarted(file: &str, content: &str, unit: &str) -> String {
    format!(
        "  resources:
    - copy:
        dest: {file}
        content: {content:?}
      notify: again
  handlers:
    - name: again
      service: {{name: {unit}, state: restarted}}\n"
    )
}

/// Has networkd drop the addresses that its files don't name, as it does on machines when udev tells it of a link.
fn drops_addresses(host: Host<'_>) {
    host.sh("d=/etc/systemd/system/systemd-networkd.service.d; mkdir -p $d
         printf '[Service]\nExecStartPost=networkctl reconfigure eth0\n' >$d/drops.conf; systemctl daemon-reload");
}

const MOVED: &str = "[Match]\nName=eth0\n\n[Network]\nLinkLocalAddressing=no\n\n[Address]\nAddress=10.99.222.222/16\n";

#[test]
fn a_file_goes_back_before_what_reads_it_is_restarted_again() {
    let hosts = Hosts::take(Kind::Sysd, 2);
    let [network, sshd] = hosts.each().collect::<Vec<_>>().try_into().unwrap();
    let path = "/etc/systemd/network/10-eth0.network";
    drops_addresses(network);
    let look = format!("stat -c '%a %U %G' {path}; cat {path}; ip -br -4 address show eth0");
    let before = network.sh(&format!("chmod 640 {path}; chgrp systemd-network {path}; {look}"));
    network.sh("setsid ip monitor address </dev/null >/srv/moves 2>&1 &");
    let limit = |host: Host<'_>, rest: &str| play(&hosts, "{timeout: 5}", rest).with(&["--limit", host.0]);
    let told = Told::by(&limit(network, &restarted(path, MOVED, "systemd-networkd")), 2);
    assert_eq!(told.status(&format!("copy:{path}")), "rolled_back", "{}", told.run.stdout);
    let moves = network.sh("pkill -x ip; cat /srv/moves");
    assert!(moves.lines().any(|l| l.starts_with("Deleted") && l.contains(&network.address())), "it had gone: {moves}");
    assert_eq!(network.sh(&look), before);
    disarmed(network);
    let path = "/etc/ssh/sshd_config.d/broken.conf";
    let told = Told::by(&limit(sshd, &restarted(path, "NoSuchOption yes\n", "ssh")), 2);
    assert_eq!(told.status(&format!("copy:{path}")), "rolled_back", "{}", told.run.stdout);
    sshd.sh(&format!("test ! -e {path}; systemctl is-active ssh"));
    disarmed(sshd);
}

/// What the kernel has that says how a host is reached.
const LIVE: &str = "cat /sys/class/net/eth0/mtu /sys/class/net/eth0/flags; ip -br -4 address show eth0; ip route";

#[test]
fn what_a_network_service_leaves_of_a_file_that_it_has_no_more_is_put_back() {
    let hosts = Hosts::take(Kind::Sysd, 3);
    let path = "/etc/systemd/network/10-eth0.network";
    // Started again with the former file, networkd keeps each of these: the first two hosts would be lost for good.
    let cases = [
        (
            "[Link]\nMTUBytes=9000\n",
            "for c in INPUT OUTPUT; do iptables -A $c -m length --length 1501:65535 -j DROP; done",
            "",
        ),
        ("[Route]\nDestination=10.99.0.0/24\nGateway=10.99.200.77\n", ":", ""),
        (
            "[Link]\nMTUBytes=4000\nARP=no\n[Address]\nAddress=10.55.0.1/24\n",
            ":",
            ", but for this: eth0 has the address 10.55.0.1/24 that it hadn't",
        ),
    ];
    std::thread::scope(|scope| {
        for (host, (more, before, stays)) in hosts.each().zip(cases) {
            let hosts = &hosts;
            scope.spawn(move || {
                let content = host.sh(&format!("{before}; cat {path}")) + "\n" + more;
                let was = host.sh(LIVE);
                let check = if stays.is_empty() { "" } else { ", command: 'false'" };
                let confirm = format!("{{timeout: 10{check}}}");
                let rest = restarted(path, &content, "systemd-networkd");
                let told = Told::by(&play(hosts, &confirm, &rest).with(&["--limit", host.0]), 2);
                let message = why(&told, &format!("copy:{path}"));
                assert!(
                    message.contains(&format!("; the host is as it was before{stays}\"")),
                    "{more}{}",
                    told.run.stdout
                );
                assert_eq!(told.status(&format!("copy:{path}")), "rolled_back", "{}", told.run.stdout);
                let now = host.sh(LIVE).replace("10.55.0.1/24 ", "");
                let now: Vec<&str> = now.lines().filter(|l| !l.starts_with("10.55.")).map(str::trim_end).collect();
                assert_eq!(now, was.lines().map(str::trim_end).collect::<Vec<_>>(), "{more}");
                disarmed(host);
            });
        }
    });
}

#[test]
fn sshd_goes_on_where_its_configuration_is_not_valid() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let folder = "/etc/ssh/sshd_config.d";
    let before = host.sh(&format!("ls {folder}; systemctl show -p MainPID ssh"));
    let reload =
        restarted(&format!("{folder}/own.conf"), "MaxStartups bogus\n", "ssh").replace("restarted", "reloaded");
    let told = Told::by(&play(&hosts, "{timeout: 20}", &reload), 2);
    let message = why(&told, &format!("copy:{folder}/own.conf"));
    assert!(message.contains("service:ssh failed: ") && message.contains("own.conf line 1"), "{message}");
    // Somebody has broken it by hand, and something else asks for a restart.
    host.sh(&format!("echo NoSuchOption yes >{folder}/hand.conf"));
    let told =
        Told::by(&play(&hosts, "{timeout: 20}", &restarted(&format!("{folder}/own.conf"), "# good\n", "ssh")), 2);
    assert_eq!(told.count("rolled_back"), 2, "{}", told.run.stdout);
    let message = why(&told, &format!("copy:{folder}/own.conf"));
    assert!(message.contains("ssh.service was left as it is") && message.contains("hand.conf"), "{message}");
    assert!(message.contains("as it was before, but for this: ssh.service runs on as it is"), "{message}");
    assert_eq!(host.sh(&format!("rm {folder}/hand.conf; ls {folder}; systemctl show -p MainPID ssh")), before);
    host.sh("[ -z \"$(ls /var/lib/netplay/owed 2>/dev/null)\" ]");
    disarmed(host);
}

#[test]
fn one_change_after_the_other_is_confirmed_and_the_last_file_of_its_folder_comes_back() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let both = |state: &str| {
        let rule = |name: &str, source: &str| {
            format!(
                "    - firewall_rule: {{name: {name}, port: 22, protocol: tcp, action: accept, source: {source}, state: {state}}}\n"
            )
        };
        format!("  resources:\n{}{}", rule("one", "10.99.0.0/16"), rule("two", "10.99.0.0/17"))
    };
    tables(host);
    Told::by(&play(&hosts, "{timeout: 20}", &both("present")), 0);
    let kept = || host.sh("cd /etc/netplay/reapply.d; stat -c '%n %a %U' .; stat -c '%n %a %U %Y' *; md5sum *");
    // Both take the session's port along: one is confirmed, and the other right after it.
    let told = Told::by(&play(&hosts, "{timeout: 20}", &both("absent")), 0);
    assert_eq!(told.count("changed"), 2, "{}", told.run.stdout);
    host.sh("test ! -e /etc/netplay/reapply.d");
    disarmed(host);
    // With the last file its folder goes, and comes back with it.
    Told::by(&play(&hosts, "{timeout: 20}", &both("present")), 0);
    let before = kept();
    let told = Told::by(&play(&hosts, "{timeout: 20, command: '[ -e /etc/netplay/reapply.d ]'}", &both("absent")), 2);
    assert_eq!((told.count("changed"), told.count("rolled_back")), (1, 1), "{}", told.run.stdout);
    let now = kept();
    assert_eq!(now.lines().count(), 3, "{now}");
    assert!(now.lines().all(|line| before.contains(line)), "{now}\ninstead of\n{before}");
    disarmed(host);
}

#[test]
fn a_command_that_makes_a_file_take_effect_is_taken_back_by_running_it_again() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let rest = "  resources:
    - copy: {dest: /etc/ssh/sshd_config.d/nobody.conf, content: \"AllowUsers nobody\\n\"}
      notify: again
  handlers:
    - name: again
      command: {cmd: systemctl restart ssh}\n";
    let check = Told::by(&play(&hosts, "{timeout: 5}", rest).with(&["--check"]), 0).warnings();
    assert!(check.contains("it makes /etc/ssh/sshd_config.d/nobody.conf take effect"), "{check}");
    let told = Told::by(&play(&hosts, "{timeout: 5}", rest), 2);
    assert_eq!(told.count("rolled_back"), 2, "{}", told.run.stdout);
    host.sh("test ! -e /etc/ssh/sshd_config.d/nobody.conf");
    Told::by(&play(&hosts, "{timeout: 5}", "  resources: [{assert: {that: 'true'}}]\n"), 0);
    disarmed(host);
}

fn wait_for(host: Host<'_>, script: &str) {
    let start = Instant::now();
    while host.sh(&format!("if {script}; then echo yes; fi")).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "{script}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn one_host_goes_first_and_the_others_are_spared() {
    let hosts = Hosts::take(Kind::Fleet, 4);
    let before: Vec<String> = hosts
        .each()
        .map(|host| {
            tables(host);
            rules(host)
        })
        .collect();
    let told = Told::by(&play(&hosts, "{timeout: 5}", DROP), 2);
    assert_eq!(told.count("rolled_back"), 1, "{}", told.run.stdout);
    let of = |host: Host<'_>| told.resource(host.0, "firewall_rule:lock-out")["status"].clone();
    let spared = hosts.each().filter(|host| of(*host) == "skipped").count();
    assert_eq!(spared, 3, "{}", told.run.stdout);
    assert!(told.run.stdout.contains("and is made on no other host"), "{}", told.run.stdout);
    // These have no systemd: a boot would not take it back, which is said.
    assert!(told.warnings().contains("wouldn't be taken back at a boot"), "{}", told.run.stdout);
    assert_eq!(hosts.each().map(rules).collect::<Vec<_>>(), before);
    // A good change goes on, all at once when the first is through.
    let mtu = "  resources:\n    - mtu: {interface: eth0, mtu: 1400, persist: false}\n";
    let told = Told::by(&play(&hosts, "{timeout: 30}", mtu), 0);
    assert_eq!(told.count("changed"), 4);
    hosts.each().for_each(|host| _ = host.sh("ip link set eth0 mtu 1500"));
}

#[test]
fn packets_of_full_size_pass_before_a_larger_mtu_stays() {
    let hosts = Hosts::take(Kind::Fleet, 3);
    let mtu = |mtu: u32, more: &[&str]| {
        let rest = format!("  resources:\n    - mtu: {{interface: eth1, mtu: {mtu}, persist: false}}\n");
        play(&hosts, "{timeout: 15, all: true, path_mtu: true}", &rest).with(more)
    };
    // As behind a switch that carries 1500: two have tried, and no third.
    hosts.each().for_each(|host| _ = host.sh("iptables -A INPUT -i eth1 -m length --length 1501:65535 -j DROP"));
    let told = Told::by(&mtu(9000, &[]), 2);
    assert_eq!((told.count("rolled_back"), told.count("skipped")), (2, 1), "{}", told.run.stdout);
    assert!(told.run.stdout.contains("packets of 9000 bytes don't pass between eth1 and np"), "{}", told.run.stdout);
    for host in hosts.each() {
        assert_eq!(host.sh("iptables -F INPUT; cat /sys/class/net/eth1/mtu"), "1500\n");
    }
    // What it carries is confirmed, of the first two by each other.
    let told = Told::by(&mtu(9000, &[]), 0);
    assert_eq!(told.count("changed"), 3, "{}", told.run.stdout);
    hosts.each().for_each(|host| _ = host.sh("ip link set eth1 mtu 1500"));
    // Alone there is nobody to send them to.
    hosts.first().sh("ip link set eth1 mtu 1400");
    let told = Told::by(&mtu(1500, &["--limit", hosts.first().0]), 2);
    assert_eq!(told.status("mtu:eth1"), "failed", "{}", told.run.stdout);
    assert!(told.run.stdout.contains("`path_mtu` needs two at once"), "{}", told.run.stdout);
    assert_eq!(hosts.first().sh("cat /sys/class/net/eth1/mtu; ip link set eth1 mtu 1500"), "1400\n");
}

#[test]
fn a_host_that_boots_meanwhile_takes_it_back_before_its_network_is_up() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let path = "/etc/systemd/network/10-eth0.network";
    let before = host.sh(&format!("cat {path}"));
    let boots = host.boots();
    let netplay = play(&hosts, "{timeout: 600}", &restarted(path, MOVED, "systemd-networkd"));
    let child = netplay.start();
    wait_for(host, "ip -br -4 address show eth0 | grep -q 10.99.222.222");
    host.reset();
    host.wait_for_boot(boots + 1);
    let told = Told::from(Run::from(child.wait_with_output().unwrap()));
    assert_eq!(told.status(&format!("copy:{path}")), "rolled_back", "{}", told.run.stdout);
    assert!(
        why(&told, &format!("copy:{path}")).contains("the host booted before it was confirmed"),
        "{}",
        told.run.stdout
    );
    assert_eq!(host.sh(&format!("cat {path}")), before);
    disarmed(host);
}

/// Starts it, and waits until a change waits for its confirmation on this host.
fn armed(netplay: &Netplay, host: Host<'_>) -> std::process::Child {
    let child = netplay.start();
    wait_for(host, "test -e /var/lib/netplay/armed/back && test -e /run/netplay/ended");
    child
}

#[test]
fn a_change_is_taken_back_though_the_process_that_would_is_killed() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    tables(host);
    let before = rules(host);
    let netplay = play(&hosts, "{timeout: 600}", DROP);
    let child = armed(&netplay, host);
    host.sh("systemctl kill --signal=KILL netplay-guard.service");
    let start = Instant::now();
    let told = Told::from(Run::from(child.wait_with_output().unwrap()).exits(2));
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
    assert_eq!(told.status("firewall_rule:lock-out"), "rolled_back", "{}", told.run.stdout);
    assert_eq!(rules(host), before);
    disarmed(host);
}

#[test]
fn a_controller_that_dies_leaves_nothing_changed() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    tables(host);
    let before = rules(host);
    let netplay = play(&hosts, "{timeout: 6}", DROP);
    let mut child = armed(&netplay, host);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(host, "test -e /var/lib/netplay/armed/undone");
    let status = Netplay::new(&hosts, &["status", "-i", "inventory.yaml"]).run().exits(0).stdout;
    assert!(status.contains("of root@") && status.contains("; nobody confirmed it, and it was taken back"), "{status}");
    assert_eq!(rules(host), before);
    // The next run says so, and goes on.
    let other = play(
        &hosts,
        "{timeout: 30}",
        "  resources:\n    - sysctl: {name: net.ipv4.tcp_mtu_probing, value: 1, persist: false}\n",
    );
    let told = Told::by(&other, 0);
    assert!(told.warnings().contains("nobody confirmed it, and it was taken back"), "{}", told.run.stdout);
    disarmed(host);
}

#[test]
fn while_one_waits_for_its_confirmation_no_other_changes_the_host() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let netplay = play(
        &hosts,
        "{timeout: 600, command: 'sleep 5'}",
        "  resources:\n    - mtu: {interface: eth0, mtu: 1400, persist: false}\n",
    );
    let child = armed(&netplay, host);
    // The timer that takes it back, should all else be gone, doesn't depend on the clock.
    let timer = host.sh("systemctl show netplay-late.timer -p TimersMonotonic -p TimersCalendar");
    assert!(timer.contains("OnActiveUSec") && !timer.contains("OnCalendar"), "{timer}");
    let other = play(
        &hosts,
        "{timeout: 30}",
        "  resources:\n    - sysctl: {name: net.ipv4.tcp_mtu_probing, value: 1, persist: false}\n",
    );
    let told = Told::by(&other, 2);
    assert!(told.run.stdout.contains("isn't confirmed yet, or is being taken back; nothing"), "{}", told.run.stdout);
    let told = Told::from(Run::from(child.wait_with_output().unwrap()).exits(0));
    assert_eq!(told.status("mtu:eth0"), "changed");
    assert_eq!(host.sh("cat /sys/class/net/eth0/mtu"), "1400\n");
    host.sh("ip link set eth0 mtu 1500");
    disarmed(host);
}

#[test]
fn a_check_that_fails_a_full_disk_and_a_way_back_that_fails() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let mtu =
        |interface: &str| format!("  resources:\n    - mtu: {{interface: {interface}, mtu: 1400, persist: false}}\n");
    let told = Told::by(&play(&hosts, "{timeout: 60, command: 'echo the storage is gone; exit 3'}", &mtu("eth0")), 2);
    assert!(
        why(&told, "mtu:eth0").contains("its check failed: exit code 3: the storage is gone"),
        "{}",
        told.run.stdout
    );
    assert_eq!(host.sh("cat /sys/class/net/eth0/mtu"), "1500\n");
    disarmed(host);
    // Where the way back can't be stored nothing is changed.
    host.sh("mkdir -p /var/lib/netplay; mount -t tmpfs -o size=8k tmpfs /var/lib/netplay");
    let told = Told::by(&play(&hosts, "{timeout: 60}", &mtu("eth0")), 2);
    assert!(why(&told, "mtu:eth0").contains("No space left on device"), "{}", told.run.stdout);
    assert_eq!(host.sh("umount /var/lib/netplay; cat /sys/class/net/eth0/mtu"), "1500\n");
    disarmed(host);
    // An interface that is gone can't be set back: the next run says so before it does anything.
    host.sh("ip link add d0 type dummy 2>/dev/null || ip link add d0 type veth peer name d1");
    let netplay = play(&hosts, "{timeout: 60, all: true, command: 'ip link del d0; false'}", &mtu("d0"));
    let told = Told::by(&netplay, 2);
    assert!(told.run.stdout.contains("not all of it could be"), "{}", told.run.stdout);
    let told = Told::by(&play(&hosts, "{timeout: 60}", &mtu("eth0")), 2);
    assert!(told.run.stdout.contains("sh /var/lib/netplay/armed/undone again"), "{}", told.run.stdout);
    assert_eq!(host.sh("cat /sys/class/net/eth0/mtu"), "1500\n");
    host.sh("ip link add d0 type veth peer name d1; sh /var/lib/netplay/armed/undone again && rm -r /var/lib/netplay/armed; ip link del d0");
    Told::by(&play(&hosts, "{timeout: 60}", &mtu("eth0")), 0);
    host.sh("ip link set eth0 mtu 1500");
    disarmed(host);
}

/// Applies [`DROP`] to a host by a run with these variables of all hosts, and finds it as it was.
fn comes_back(host: Host<'_>, hosts: &Hosts, what: &str, variables: &str) {
    tables(host);
    host.sh(what);
    let before = rules(host);
    let netplay = play(hosts, "{timeout: 5}", DROP).with(&["--limit", host.0]);
    let inventory = std::fs::read_to_string(netplay.path("inventory.yaml")).unwrap();
    let login = format!("    ansible_user: root\n{variables}");
    let login = if variables.contains("ansible_user") { variables } else { &login };
    let netplay = netplay.file("inventory.yaml", &inventory.replace("    ansible_user: root\n", login));
    let told = Told::by(&netplay, 2);
    assert_eq!(told.status("firewall_rule:lock-out"), "rolled_back", "{what} {variables}: {}", told.run.stdout);
    assert_eq!(rules(host), before, "{what} {variables}");
    disarmed(host);
}

#[test]
fn lean_hosts_and_other_ways_in_come_back_too() {
    let hosts = Hosts::take(Kind::Fleet, 5);
    let password = crate::harness::env("LAB_PASSWORD");
    let cases = [
        ("ln -sf busybox /bin/sh; ln -sf ../bin/busybox /usr/bin/timeout", String::new()),
        (
            "mount -t tmpfs -o noexec tmpfs /tmp; mount -t tmpfs -o noexec tmpfs /var/tmp; mount -t tmpfs -o noexec tmpfs /run; mkdir -m 755 /run/sshd",
            String::new(),
        ),
        ("rm /usr/bin/timeout /usr/bin/setsid", "    ansible_user: ops\n".to_owned()),
        (":", format!("    ansible_user: pw\n    ansible_become_password: {password}\n")),
        (":", "    netplay_transport: openssh\n".to_owned()),
    ];
    std::thread::scope(|scope| {
        for (host, (what, variables)) in hosts.each().zip(&cases) {
            let hosts = &hosts;
            scope.spawn(move || comes_back(host, hosts, what, variables));
        }
    });
}

#[test]
fn a_bastion_that_dies_in_between_costs_the_change_and_nothing_else() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let [jump, host] = hosts.each().collect::<Vec<_>>().try_into().unwrap();
    let rest = "  resources:\n    - mtu: {interface: eth0, mtu: 1400, persist: false}\n";
    let netplay = play(&hosts, "{timeout: 8}", rest).with(&["--limit", host.0]);
    let inventory = std::fs::read_to_string(netplay.path("inventory.yaml")).unwrap();
    let config = std::path::Path::new(crate::harness::env("LAB_INVENTORY")).with_file_name("ssh_config");
    let way = format!("{}: {{ansible_ssh_common_args: -F {} -J {}, ", host.0, config.display(), jump.0);
    let netplay = netplay.file("inventory.yaml", &inventory.replace(&format!("{}: {{", host.0), &way));
    let child = armed(&netplay, host);
    jump.freeze();
    wait_for(host, "test -e /var/lib/netplay/armed/undone");
    jump.thaw();
    let told = Told::from(Run::from(child.wait_with_output().unwrap()).exits(2));
    assert_eq!(told.status("mtu:eth0"), "rolled_back", "{}", told.run.stdout);
    assert_eq!(host.sh("cat /sys/class/net/eth0/mtu; ls -d /var/lib/netplay/armed 2>/dev/null || :"), "1500\n");
}

#[test]
fn a_bastion_that_leads_nowhere_any_more_takes_it_back() {
    let hosts = Hosts::take(Kind::Sysd, 2);
    let [jump, host] = hosts.each().collect::<Vec<_>>().try_into().unwrap();
    let rest = format!(
        "  resources:
    - copy: {{dest: /etc/ssh/sshd_config.d/forward.conf, content: \"AllowTcpForwarding no\\n\"}}
      when: inventory_hostname == '{}'
      notify: again
  handlers:
    - name: again
      service: {{name: ssh, state: restarted}}\n",
        jump.0
    );
    let config = std::path::Path::new(crate::harness::env("LAB_INVENTORY")).with_file_name("ssh_config");
    let way = format!("{}: {{ansible_ssh_common_args: -F {} -J {}, ", host.0, config.display(), jump.0);
    for transport in ["ssh2", "openssh"] {
        let netplay = play(&hosts, "{timeout: 20}", &rest);
        let inventory = std::fs::read_to_string(netplay.path("inventory.yaml")).unwrap();
        let inventory = inventory.replace(&format!("{}: {{", host.0), &way);
        let login = format!("    ansible_user: root\n    netplay_transport: {transport}\n");
        let netplay = netplay.file("inventory.yaml", &inventory.replace("    ansible_user: root\n", &login));
        let told = Told::by(&netplay, 2);
        let file = told.resource(jump.0, "copy:/etc/ssh/sshd_config.d/forward.conf");
        assert_eq!(file["status"], "rolled_back", "{}", told.run.stdout);
        let message = file["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("{}, which is reached through it, can't be any more: ", host.0)),
            "{message}"
        );
        assert_eq!(
            jump.sh("sshd -T | grep -i allowtcpforwarding; ls /etc/ssh/sshd_config.d"),
            "allowtcpforwarding yes\nlab.conf\n"
        );
        disarmed(jump);
    }
}

#[test]
fn a_second_interruption_ends_the_run_and_the_host_takes_it_back() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    tables(host);
    let before = rules(host);
    let netplay = play(
        &hosts,
        "{timeout: 8}",
        "  resources:\n    - firewall_rule: {name: lock-out, port: 22, protocol: tcp, action: drop}\n",
    );
    let child = armed(&netplay, host);
    let start = Instant::now();
    for _ in 0..2 {
        crate::breaks::signal(&child, "INT");
        std::thread::sleep(Duration::from_millis(500));
    }
    let run = Run::from(child.wait_with_output().unwrap()).exits(130);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(run.stdout.contains("the host takes it back by itself within 8 s"), "{}", run.stdout);
    wait_for(host, "test -e /var/lib/netplay/armed/undone");
    assert_eq!(rules(host), before);
}

#[test]
fn an_mtu_that_would_take_the_addresses_of_ipv6_away_is_refused() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh("ip address add fd00:5::4/64 dev eth0 nodad");
    let rest = "  resources:\n    - mtu: {interface: eth0, mtu: 1200, persist: false}\n";
    let told = Told::by(&play(&hosts, "{timeout: 5}", rest), 2);
    assert_eq!(told.status("mtu:eth0"), "failed", "{}", told.run.stdout);
    assert!(why(&told, "mtu:eth0").contains("can't take such a change back by itself"), "{}", told.run.stdout);
    assert_eq!(host.sh("cat /sys/class/net/eth0/mtu; ip -6 address show dev eth0 | grep -c fd00:5::4"), "1500\n1\n");
}
