//! What of a network card's settings a namespace's interfaces have: their features, by the real ethtool. Rings and channels
//! are in `machine.rs`.

use crate::harness::{Host, Hosts, Kind, ssh};
use crate::told::{Told, apply, play};

/// Whether features are on, in the order of their names.
fn features(host: Host<'_>, interface: &str) -> String {
    host.sh(&format!(
        "ethtool -k {interface} | grep -E '^(tcp-segmentation-offload|rx-gro-list|tx-vlan-offload):' | sort"
    ))
}

const OFF: &str = "rx-gro-list: off\ntcp-segmentation-offload: off\ntx-vlan-offload: on\n";
const WANTED: &str = "features: {tso: false, rx-gro-list: false, tx-vlan-offload: true}";

#[test]
fn features_are_set_with_one_read_an_interface() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    // The real ethtool, with a log of its calls.
    host.sh("mv /usr/sbin/ethtool /usr/sbin/ethtool.real
         printf '#!/bin/sh\\necho \"$*\" >>/calls\\nexec ethtool.real \"$@\"\\n' >/usr/sbin/ethtool; chmod +x /usr/sbin/ethtool");
    let calls = || host.sh("cat /calls; rm /calls");
    let both = format!(
        "    - nic: {{interface: eth1, {WANTED}, persist: false}}\n    - nic: {{interface: eth2, {WANTED}, persist: false}}\n"
    );
    let netplay = apply(&hosts, &play(&both), &[]);
    let changed = Told::by(&netplay, 0);
    assert_eq!((changed.count("changed"), changed.executions(host.0)), (2, 2), "{}", changed.run.stdout);
    let set = |i| format!("-K {i} tcp-segmentation-offload off rx-gro-list off tx-vlan-offload on\n");
    assert_eq!(calls(), format!("-k eth1\n-k eth2\n{}{}-k eth1\n-k eth2\n", set("eth1"), set("eth2")));
    assert_eq!((features(host, "eth1").as_str(), features(host, "eth2").as_str()), (OFF, OFF));
    calls();
    let again = Told::by(&netplay, 0);
    assert_eq!((again.count("ok"), again.executions(host.0)), (2, 1), "{}", again.run.stdout);
    assert_eq!(calls(), "-k eth1\n-k eth2\n");

    for (keys, why) in [
        (
            "interface: eth1, rings: {rx: 8192}",
            "eth1 has no rings to set: ethtool -g says `netlink error: Operation not supported`",
        ),
        ("interface: eth1, features: {rx-gro-lst: true}", "eth1 has no features.rx-gro-lst; is it rx-gro-list?"),
        (
            "interface: eth1, features: {rx-all: true}",
            "features.rx-all of eth1 can't be on: its driver has it fixed at off",
        ),
        ("interface: eth1, max_read_request: 4096", "setpci isn't on this host"),
        ("interface: eth8, features: {tso: false}", "this host has no interface eth8"),
    ] {
        let told = Told::by(&apply(&hosts, &play(&format!("    - nic: {{{keys}, persist: false}}\n")), &[]), 2);
        let said = told.error(&format!("nic:{}", &keys[11..15]));
        assert!(said.contains(why), "{said}");
    }
    assert!(calls().lines().all(|call| !call.starts_with("-K")), "nothing may be set where something is impossible");
    host.sh("rm /usr/sbin/ethtool");
    let said = Told::by(&netplay, 2).error("nic:eth1");
    assert!(said.contains("ethtool isn't on this host"), "{said}");
}

/// Simulates setpci, which keeps the word that it is asked for and takes `REGISTER=VALUE:MASK`.
const SETPCI: &str = r#"#!/bin/sh
[ "$1 $2" = "-s device" ] || exit 1
w=$(cat /word)
case $3 in
  CAP_EXP+8.w) echo $w ;;
  CAP_EXP+8.w=*) v=${3#*=}; m=0x${v#*:} v=0x${v%:*}; printf "%04x\n" $(( (0x$w & ~m) | (v & m) )) >/word ;;
  *) exit 1 ;;
esac
"#;

#[test]
fn a_simulated_setpci_is_asked_for_the_bits_of_the_read_request_alone() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh(&format!(
        "d=$(readlink -f /sys/class/net/eth1); mkdir -p /run/eth1/device; : >/run/eth1/device/config
         mount --bind /run/eth1 $d; printf '%s' '{SETPCI}' >/usr/bin/setpci; chmod +x /usr/bin/setpci; echo 2936 >/word"
    ));
    let netplay = apply(&hosts, &play("    - nic: {interface: eth1, max_read_request: 4096, persist: false}\n"), &[]);
    for (status, executions) in [("changed", 2), ("ok", 1)] {
        let told = Told::by(&netplay, 0);
        assert_eq!((told.status("nic:eth1"), told.executions(host.0)), (status, executions), "{}", told.run.stdout);
        assert_eq!(host.sh("cat /word"), "5936\n");
    }
}

#[test]
fn features_are_set_again_after_a_boot() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let netplay = apply(&hosts, &play(&format!("    - nic: {{interface: eth1, {WANTED}}}\n")), &[]);
    Told::by(&netplay, 0);
    let boots = host.boots();
    ssh(host.0, "systemctl reboot");
    host.wait_for_boot(boots + 1);
    host.sh("while s=$(systemctl is-system-running); [ $s = starting ] || [ $s = initializing ]; do sleep 0.1; done");
    assert_eq!(features(host, "eth1"), OFF);
    assert_ne!(features(host, "eth2"), OFF, "it isn't so by itself");
    let again = Told::by(&netplay, 0);
    assert_eq!((again.count("ok"), again.executions(host.0)), (1, 1), "{}", again.run.stdout);
}
