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
    assert_eq!(evidence, "eth2 has an MTU of 1500, and 9000 is what most hosts have");
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
