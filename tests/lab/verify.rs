//! `netplay verify` on real hosts: real packets between real interfaces, and what it names when something is wrong.

use crate::harness::{Host, Hosts, Kind, Netplay, lab};
use crate::told::Told;

fn verify(hosts: &Hosts, arguments: &[&str]) -> Netplay {
    let mut all = vec!["verify", "-i", "inventory.yaml", "--output", "ndjson"];
    all.extend(arguments);
    Netplay::new(hosts, &all)
}

/// Has both fabric interfaces pass large packets.
fn jumbo(hosts: &Hosts) {
    for host in hosts.each() {
        host.sh("ip link set eth1 mtu 9000; ip link set eth2 mtu 9000");
    }
}

/// The other end of a host's interface, in the network between the hosts.
fn switch(host: Host<'_>, interface: &str, arguments: &[&str]) {
    let end = format!("{}-{interface}", host.0);
    let mut all = vec!["ctl", "ip", "link", "set", &end];
    all.extend(arguments);
    lab(all);
}

/// The only finding: its name, its hosts, what was seen.
fn found(told: &Told) -> (String, String, String) {
    let findings = told.findings();
    assert_eq!(findings.len(), 1, "{}", told.run.stdout);
    findings.into_iter().next().unwrap()
}

#[test]
fn small_mtus_and_black_holes_are_named_with_their_host() {
    let hosts = Hosts::take(Kind::Fleet, 4);
    jumbo(&hosts);
    let netplay = verify(&hosts, &[]);
    let told = Told::by(&netplay, 0);
    assert_eq!(told.findings(), []);
    assert_eq!(told.verdicts("path_mtu"), (8, 0), "two pairs, two rails, both ways");
    assert_eq!(told.verdicts("ports"), (8, 0));
    for name in hosts.names() {
        assert_eq!(told.executions(name), 2, "one for what it is, one for all its packets");
    }

    let names: Vec<&str> = hosts.names().collect();
    let bad = hosts.each().nth(2).unwrap();
    bad.sh("ip link set eth2 mtu 1500");
    let (name, host, evidence) = found(&Told::by(&netplay, 2));
    assert_eq!((&*name, &*host), ("mtu_too_small", names[2]));
    assert_eq!(evidence, "eth2 has an MTU of 1500, and 9000 is what 3 of 4 hosts have");
    bad.sh("ip link set eth2 mtu 9000");

    // A port of the switch that wasn't raised.
    switch(bad, "eth1", &["mtu", "1500"]);
    let told = Told::by(&netplay, 2);
    let (name, host, evidence) = found(&told);
    assert_eq!((&*name, &*host), ("path_mtu", names[2]), "its partner is found to be good with others");
    assert!(
        evidence.starts_with("eth1 (both directions): packets of 9000 bytes vanish, small ones pass"),
        "{evidence}"
    );
    let status = |name: &str| told.host(name)["status"].clone();
    assert_eq!((status(names[2]), status(names[0])), ("failed".into(), "ok".into()));
    switch(bad, "eth1", &["mtu", "9000"]);

    // In one direction alone.
    bad.sh("iptables -t raw -A PREROUTING -i eth1 -m length --length 5000:65535 -j DROP");
    let (name, host, evidence) = found(&Told::by(&netplay, 2));
    assert_eq!((&*name, &*host), ("path_mtu", names[2]));
    assert!(evidence.starts_with("eth1 (what it gets): "), "{evidence}");
    bad.sh("iptables -t raw -F; iptables -A INPUT -i eth1 -j DROP");
    let (name, host, evidence) = found(&Told::by(&netplay, 2));
    assert_eq!((&*name, &*host), ("peer_unreachable", names[2]));
    assert!(evidence.contains("no packet passes, not even small ones"), "{evidence}");
    bad.sh("iptables -F INPUT");

    // With a carrier that is gone nothing has to be sent to know it.
    switch(bad, "eth2", &["down"]);
    let down = ("link_down".to_owned(), names[2].to_owned(), "eth2 has no carrier".to_owned());
    assert_eq!(found(&Told::by(&netplay, 2)), down);
    switch(bad, "eth2", &["up"]);
}

#[test]
fn suites_say_what_is_checked_and_errors_say_where() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let suite = "- hosts: all\n  vars: {size: 1400}\n  checks:\n    - path_mtu: {interface: eth2, mtu: '{{ size }}'}\n";
    let told = Told::by(&verify(&hosts, &["suite.yaml"]).file("suite.yaml", suite), 0);
    assert_eq!((told.verdicts("path_mtu"), told.verdicts("ports")), ((2, 0), (0, 0)));
    let run = verify(&hosts, &["suite.yaml"])
        .file("suite.yaml", "- hosts: all\n  checks:\n    - path_mtu: {mtu: 9000}\n    - prots: {}\n  resources: []\n")
        .run()
        .exits(1);
    for told in
        ["suite.yaml:4:7", "there is no check `prots`", "ports", "suite.yaml:5:3", "a play can't have `resources` here"]
    {
        assert!(run.stderr.contains(told), "{told}: {}", run.stderr);
    }
    let run = verify(&hosts, &["suite.yaml"])
        .file("suite.yaml", "- hosts: all\n  checks:\n    - path_mtu: {interface: eth9}\n")
        .run()
        .exits(2);
    assert!(run.stdout.contains("it has no interface eth9; it has lo, eth0, eth1, eth2"), "{}", run.stdout);
}

/// Limits what a host sends by an interface. What passes through a bare link has no rate of its own to be judged by.
fn limit(host: Host<'_>, interface: &str, rate: &str) {
    host.sh(&format!("tc qdisc replace dev {interface} root tbf rate {rate} burst 256kb latency 20ms"));
}

/// The ways on which nothing of a test is left that runs: its servers end with it.
fn nothing_is_left(host: Host<'_>) {
    host.sh(
        "i=0; while pgrep -x iperf3 >/dev/null; do i=$((i + 1)); [ $i -lt 80 ] || { ps ax; exit 1; }; sleep 0.1; done",
    );
}

const TCP: &str = "- hosts: all\n  checks:\n    - tcp: {interface: eth1, seconds: 1, streams: 2, min: 0.07}\n";

#[test]
fn a_rate_that_is_halved_is_named_with_its_direction() {
    let hosts = Hosts::take(Kind::Fleet, 4);
    let names: Vec<&str> = hosts.names().collect();
    hosts.each().for_each(|host| limit(host, "eth1", "100mbit"));
    let netplay = verify(&hosts, &["suite.yaml"]).file("suite.yaml", TCP);
    let told = Told::by(&netplay, 0);
    assert_eq!((told.findings(), told.verdicts("tcp")), (vec![], (4, 0)));
    let bad = hosts.each().nth(1).unwrap();
    limit(bad, "eth1", "50mbit");
    let (name, host, evidence) = found(&Told::by(&netplay, 2));
    assert_eq!((&*name, &*host), ("tcp_slow", names[1]));
    assert!(
        evidence.starts_with("eth1 (what it sends): 0.05 Gb/s of at least 0.07 Gb/s (as `min` says)"),
        "{evidence}"
    );
    limit(bad, "eth1", "100mbit");

    // A firewall on the way to the servers, and a host without the tool.
    bad.sh("iptables -A INPUT -i eth1 -p tcp -m tcp --syn -j REJECT");
    let told = Told::by(&netplay, 2);
    let (name, host, evidence) = found(&told);
    assert_eq!((&*name, &*host), ("port_blocked", names[1]), "{evidence}");
    assert!(
        told.run.stdout.contains("`firewall_rule: {name: tcp, protocol: tcp, port: 5201, source: 10.101.0.0/16}`"),
        "{}",
        told.run.stdout
    );
    bad.sh("iptables -F INPUT; mv /usr/bin/iperf3 /usr/bin/iperf3.away");
    let (name, host, _) = found(&Told::by(&netplay, 2));
    assert_eq!((&*name, &*host), ("tool_missing", names[1]));
    bad.sh("mv /usr/bin/iperf3.away /usr/bin/iperf3");

    // Somebody else's server has the port: another one is taken.
    bad.sh("iperf3 -s -p 5201 >/dev/null 2>&1 &");
    assert_eq!(Told::by(&netplay, 0).findings(), []);
    bad.sh("pkill -x iperf3");
    hosts.each().for_each(nothing_is_left);
}

#[test]
fn loss_is_counted_in_each_direction_and_busy_hosts_are_left_out() {
    let hosts = Hosts::take(Kind::Fleet, 4);
    let names: Vec<&str> = hosts.names().collect();
    let suite = "- hosts: all\n  become: true\n  checks:\n    - loss: {interface: eth2, count: 2000}\n";
    let netplay = verify(&hosts, &["suite.yaml"]).file("suite.yaml", suite);
    let told = Told::by(&netplay, 0);
    assert_eq!((told.findings(), told.verdicts("loss")), (vec![], (4, 0)));
    let bad = hosts.each().nth(3).unwrap();
    // One in a hundred, on its way in.
    bad.sh("iptables -t raw -A PREROUTING -i eth2 -p icmp -m statistic --mode nth --every 100 --packet 0 -j DROP");
    let (name, host, evidence) = found(&Told::by(&netplay, 2));
    assert_eq!((&*name, &*host), ("packet_loss", names[3]));
    assert!(evidence.starts_with("eth2 (what it gets): ") && evidence.contains(" packets lost (1."), "{evidence}");

    // What stands in for a step of a job of Slurm: a process of that name. Its host isn't disturbed.
    bad.sh("cp /usr/bin/sleep /tmp/slurmstepd; /tmp/slurmstepd 300 >/dev/null 2>&1 &");
    let told = Told::by(&netplay, 0);
    assert_eq!(told.findings(), []);
    assert!(
        told.warnings().contains("left out of what takes its network for itself (a job of Slurm runs there)"),
        "{}",
        told.warnings()
    );
    assert!(told.verdicts("loss").0 >= 2, "the others are tested");
    let told = Told::by(&netplay.with(&["--on-busy", "run"]), 2);
    assert_eq!(found(&told).1, names[3]);
}

#[test]
fn a_controller_that_is_killed_and_a_host_that_dies_leave_no_server() {
    let hosts = Hosts::take(Kind::Fleet, 3);
    let names: Vec<&str> = hosts.names().collect();
    let suite = "- hosts: all\n  checks:\n    - tcp: {interface: eth1, seconds: 60, min: 0.001}\n";
    let netplay = verify(&hosts, &["suite.yaml"]).file("suite.yaml", suite);
    let mut child = netplay.start();
    let served = "i=0; while ! pgrep -x iperf3 >/dev/null; do i=$((i + 1)); [ $i -lt 300 ] || exit 1; sleep 0.1; done";
    hosts.each().take(2).for_each(|host| _ = host.sh(served));
    child.kill().unwrap();
    child.wait().unwrap();
    hosts.each().for_each(nothing_is_left);

    // A host that dies in the middle of a test: the others are judged, it is unreachable.
    let suite = "- hosts: all\n  checks:\n    - tcp: {interface: eth1, seconds: 6, min: 0.001}\n";
    let netplay = verify(&hosts, &["--pairs", "full", "suite.yaml"]).file("suite.yaml", suite);
    let child = netplay.start();
    let last = hosts.each().nth(2).unwrap();
    last.sh(served);
    let end = format!("{}-eth0", last.0);
    lab(["ctl", "ip", "link", "set", &end, "down"]);
    last.sh("ip link set eth1 down");
    let told = Told::from(crate::harness::Run::from(child.wait_with_output().unwrap()));
    lab(["ctl", "ip", "link", "set", &end, "up"]);
    last.sh("ip link set eth1 up");
    assert!(matches!(told.run.code, Some(4 | 6)), "{}\n{}", told.run.stdout, told.run.stderr);
    assert_eq!(told.host(names[2])["status"], "unreachable", "{}", told.run.stdout);
    assert!(told.verdicts("tcp").0 >= 2, "the pair that lives is measured: {}", told.run.stdout);
    hosts.each().for_each(nothing_is_left);
}

#[test]
fn perftest_runs_with_the_gid_of_each_host_and_a_slow_rail_is_named() {
    let hosts = Hosts::take(Kind::Fleet, 4);
    let names: Vec<&str> = hosts.names().collect();
    // There is no RDMA here: the cards are simulated, and so is perftest.
    let stand_in = include_str!("perftest.py");
    for host in hosts.each() {
        host.card("add 0000:86:00.0 interfaces=eth1 rdma=mlx5_0");
        host.sh(&format!(
            "cat >/usr/local/bin/ib_write_bw <<'END'\n{stand_in}END\nchmod 755 /usr/local/bin/ib_write_bw"
        ));
    }
    let suite = "- hosts: all\n  checks:\n    - rdma: {seconds: 1, size: 65536, min: 90}\n";
    let netplay = verify(&hosts, &["suite.yaml"]).file("suite.yaml", suite);
    let told = Told::by(&netplay, 0);
    assert_eq!((told.findings(), told.verdicts("rdma")), (vec![], (4, 0)));
    let calls = hosts.first().sh("cat /run/simulated-perftest.calls");
    let gid = hosts.first().sh(
        "cd /sys/class/infiniband/mlx5_0/ports/1; for i in gids/*; do grep -q 0000:ffff $i && grep -q v2 gid_attrs/types/${i#gids/} && echo ${i#gids/} && break; done",
    );
    assert!(
        calls.contains(&format!("-d mlx5_0 -i 1 -F -x {} -s 65536 -q 4 -D 1 --report_gbits -p 18515", gid.trim())),
        "{calls}"
    );

    let bad = hosts.each().nth(2).unwrap();
    for (fate, name, seen) in [
        ("45", "rdma_slow", "45.0 Gb/s of at least 90.0 Gb/s (as `min` says)"),
        ("lost", "rdma_timeout", "ib_write_bw: Completion with error at client"),
        ("device", "rdma_unusable", "Did not detect devices"),
    ] {
        bad.sh(&format!("echo {fate} >/run/simulated-perftest"));
        let (found, host, evidence) = found(&Told::by(&netplay, 2));
        assert_eq!((&*found, &*host), (name, names[2]), "{evidence}");
        assert!(evidence.contains(seen), "{evidence}");
    }
    bad.sh("rm /usr/local/bin/ib_write_bw");
    let (found, host, _) = found(&Told::by(&netplay, 2));
    assert_eq!((&*found, &*host), ("tool_missing", names[2]));
}

#[test]
fn a_rollout_stops_where_its_checks_fail() {
    let hosts = Hosts::take(Kind::Fleet, 4);
    let names: Vec<&str> = hosts.names().collect();
    let book = "- hosts: all\n  become: true\n  serial: 2\n  resources:\n    - mtu: {interface: eth1, mtu: 9000, persist: false}\n  \
                verify:\n    - path_mtu: {interface: eth1, mtu: 9000}\n";
    // A port of the switch in the second batch that wasn't raised.
    switch(hosts.each().nth(2).unwrap(), "eth1", &["mtu", "1500"]);
    let netplay = crate::told::apply(&hosts, book, &[]);
    let told = Told::by(&netplay, 2);
    assert_eq!(
        (told.resource(names[0], "mtu:eth1")["status"].clone(), told.verdicts("path_mtu")),
        ("changed".into(), (4, 2))
    );
    let (name, host, _) = found(&told);
    assert_eq!((&*name, &*host), ("path_mtu", names[2]));
    // A host alone would have nobody to be tested with, and would pass.
    let again = told.finished()["again"].to_string();
    assert!(again.contains("site.yaml") && !again.contains("--limit"), "{again}");
    switch(hosts.each().nth(2).unwrap(), "eth1", &["mtu", "9000"]);
    for host in hosts.each() {
        host.sh("ip link set eth1 mtu 1500");
    }
    switch(hosts.first(), "eth1", &["mtu", "1500"]);
    let told = Told::by(&netplay, 2);
    let finding = found(&told);
    assert_eq!((&*finding.0, &*finding.1), ("path_mtu", &*format!("{},{}", names[0], names[1])));
    let last = told.host(names[3]);
    assert_eq!(last["status"], "skipped");
    assert_eq!(last["error"]["message"], "the run was stopped: the checks of `verify` failed after batch 1");
    switch(hosts.first(), "eth1", &["mtu", "9000"]);
    assert_eq!(Told::by(&netplay, 0).findings(), []);
}

/// An audit as root, as parameters of cards are told to nobody else.
fn audit(hosts: &Hosts, arguments: &[&str]) -> Netplay {
    let mut all = vec!["audit", "-i", "inventory.yaml", "--become", "--output", "ndjson"];
    all.extend(arguments);
    Netplay::new(hosts, &all)
}

#[test]
fn hosts_that_differ_and_what_keeps_a_fabric_from_being_used_are_named() {
    let hosts = Hosts::take(Kind::Fleet, 5);
    let names: Vec<&str> = hosts.names().collect();
    let all: Vec<Host<'_>> = hosts.each().collect();
    // There is no card here, nor its firmware: they are simulated.
    for host in &all {
        host.card("add 0000:86:00.0 interfaces=eth1 rdma=mlx5_0");
        host.sh("sysctl -qw net.ipv4.tcp_mtu_probing=1");
    }
    let netplay = audit(&hosts, &[]);
    let told = Told::by(&netplay, 0);
    assert_eq!((told.findings(), told.verdicts("audit")), (vec![], (5, 0)), "{}", told.run.stdout);
    for name in &names {
        assert_eq!(told.executions(name), 1);
    }

    all[0].sh("ip link set eth2 mtu 9000");
    // BBR is asked for and isn't active.
    all[1].sh("sysctl -qw net.ipv4.tcp_mtu_probing=0 net.ipv4.tcp_sack=0; echo net.ipv4.tcp_congestion_control=bbr >/etc/sysctl.d/90-bbr.conf; sysctl -qw net.ipv4.tcp_congestion_control=reno");
    all[2].sh("mstconfig -d 0000:86:00.0 -y set CNP_DSCP_P1=26 >/dev/null; chmod 600 /dev/infiniband/uverbs0");
    all[3].card("add 0000:86:00.0 interfaces=eth1 rdma=mlx5_0 running=28.36.1010");
    // irqbalance (a process of that name) where netplay places interrupts.
    all[4].sh("mkdir -p /etc/netplay/reapply.d; : >/etc/netplay/reapply.d/60-irq_affinity-eth1; cp /usr/bin/sleep /tmp/irqbalance; /tmp/irqbalance 300 >/dev/null 2>&1 &");
    let told = Told::by(&netplay, 2);
    let mut found = told.findings();
    found.sort();
    let wanted = [
        ("congestion_control_inactive", 1, "the host's files ask for bbr, and reno is active"),
        ("firmware_differs", 3, "firmware of "),
        ("firmware_settings_differ", 2, "CNP_DSCP_P1 at the next boot of "),
        ("irqbalance_moves_interrupts", 4, "irqbalance runs, and netplay has placed interrupts "),
        ("mtu_differs", 0, "MTU of eth2 is 9000, and not 1500, as on 4 of 5 hosts"),
        ("service_differs", 4, "irqbalance is running, and not stopped, as on 4 of 5 hosts"),
        ("sysctl_differs", 1, "net.ipv4.tcp_congestion_control is reno, and not "),
        ("uverbs_permissions", 2, "/dev/infiniband/uverbs0, which opens mlx5_0, has the mode 0600"),
    ];
    assert_eq!(found.len(), wanted.len(), "{found:?}");
    for ((name, host, evidence), (wanted, whose, seen)) in found.iter().zip(wanted) {
        assert_eq!((&**name, &**host), (wanted, names[whose]), "{evidence}");
        assert!(evidence.starts_with(seen), "{evidence}");
    }
    let remedy = "net.ipv4.tcp_mtu_probing: 1, net.ipv4.tcp_sack: 1}}`";
    assert!(told.run.stdout.contains(remedy), "{}", told.run.stdout);

    // `verify` ends with the same, and what its own checks have found is told once.
    all[0].sh("ip link set eth1 mtu 9000");
    let told = Told::by(&verify(&hosts, &[]).with(&["--limit", &names[..2].join(",")]), 2);
    let found: Vec<(String, String)> = told.findings().into_iter().map(|(name, hosts, _)| (name, hosts)).collect();
    let both = names[..2].join(",");
    let wanted = [
        ("mtu_too_small", names[1]),
        ("mtu_differs", &*both),
        ("sysctl_differs", &*both),
        ("congestion_control_inactive", names[1]),
    ];
    assert_eq!(found, wanted.map(|(name, hosts)| (name.to_owned(), hosts.to_owned())), "{}", told.run.stdout);
    assert_eq!(told.executions(names[0]), 1, "no rail is fit for packets, and the audit takes no further one");
}

/// What stands behind a word at the beginning of a line of docs/verify.md.
fn documented(begin: &str) -> Vec<String> {
    let page = include_str!("../../docs/verify.md");
    let lines: Vec<String> = page.lines().filter_map(|line| line.strip_prefix(begin)).map(str::to_owned).collect();
    assert!(!lines.is_empty(), "{begin}");
    lines
}

/// A block of docs/verify.md with this file's name as its first line.
fn block(name: &str) -> &'static str {
    let page = include_str!("../../docs/verify.md");
    let (_, from) = page.split_once(&format!("```ini\n# {name}\n")).unwrap();
    from.split_once("```").unwrap().0
}

#[test]
fn what_got_worse_since_earlier_runs_is_told() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let names: Vec<&str> = hosts.names().collect();
    hosts.each().for_each(|host| limit(host, "eth1", "100mbit"));
    // As the documented unit has it.
    let line = documented("ExecStart=/usr/local/bin/netplay ").remove(0);
    let words: Vec<&str> = line.split(' ').collect();
    let suite = "- hosts: all\n  checks:\n    - tcp: {interface: eth1, seconds: 1, streams: 2, min: 0.02}\n";
    let site = "- hosts: all\n  become: true\n  resources:\n    - sysctl: {name: net.ipv4.tcp_sack, value: 1, persist: false}\n";
    let netplay = Netplay::new(&hosts, &words).file("suite.yaml", suite).file("site.yaml", site);
    let run = netplay.run().exits(0);
    assert!(run.stdout.contains("there is no earlier good run to compare with"), "{run:?}");
    limit(hosts.first(), "eth1", "60mbit");
    let run = netplay.run().exits(2);
    let told = std::fs::read_to_string(netplay.path("verify.ndjson")).unwrap();
    let told = Told::from(crate::harness::Run { stdout: told, stderr: run.stderr, code: run.code });
    let (name, host, evidence) = found(&told);
    assert_eq!((&*name, &*host), ("got_worse", &*names.join(",")));
    assert!(evidence.starts_with("tcp: eth1 to ") && evidence.contains(" in one good run before, "), "{evidence}");
    limit(hosts.first(), "eth1", "100mbit");

    // The documented pipeline: each of its commands, in the same folder.
    let mut netplay = netplay;
    for line in
        documented("netplay ").into_iter().filter(|line| line.contains("site.yaml") || line.contains("verify.xml"))
    {
        netplay = netplay.instead(&line.split(' ').collect::<Vec<_>>());
        netplay.run().exits(0);
    }
    assert!(std::fs::read_to_string(netplay.path("verify.xml")).unwrap().contains("<testsuite"));
    // A file that isn't one of an earlier run.
    let netplay = netplay.instead(&["verify", "-i", "inventory.yaml", "suite.yaml", "--compare", "site.yaml"]);
    let run = netplay.run().exits(1);
    assert!(run.stderr.contains("site.yaml has nothing that a run of `verify` measured"), "{}", run.stderr);
}

#[test]
fn the_documented_units_are_good() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    // A stand-in of netplay that says how it was called.
    host.sh("printf '#!/bin/sh\\necho \"$PWD $*\" >/run/netplay-called\\n' >/usr/local/bin/netplay; chmod 755 /usr/local/bin/netplay; mkdir -p /etc/netplay/site; useradd -r netplay; chmod 777 /run");
    for name in ["netplay-verify.service", "netplay-verify.timer"] {
        host.sh(&format!("cat >/etc/systemd/system/{name} <<'END'\n{}END", block(name)));
        let said = host.sh(&format!("systemd-analyze verify /etc/systemd/system/{name} 2>&1 | grep -F {name} || :"));
        assert_eq!(said, "", "{name}");
    }
    host.sh("systemctl daemon-reload; systemctl enable --now netplay-verify.timer 2>/dev/null; systemctl is-active netplay-verify.timer");
    host.sh("systemctl start netplay-verify.service");
    let called = host.sh("cat /run/netplay-called");
    assert_eq!(
        called.trim(),
        format!("/etc/netplay/site {}", documented("ExecStart=/usr/local/bin/netplay ").remove(0))
    );
}
