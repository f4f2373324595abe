//! `mlxconfig` on hosts with simulated cards: a sysfs tree and stand-ins for the firmware tools, which keep current values and
//! those of the next boot, and log how they are called. No tool of NVIDIA's and no card is seen here.

use serde_json::Value;

use crate::harness::{Host, Hosts, Kind, Netplay};
use crate::outcome::{Outcome, apply};
use crate::told::{self, Told};

const ONE: &str = "0000:86:00.0";

fn one(hosts: &Hosts, keys: &str) -> Outcome {
    let mut outcomes = apply(hosts, &format!("  - mlxconfig: {keys}\n"), "");
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    outcomes.remove(0)
}

/// The calls of the tools since this was last asked: command and device of each, in their order.
fn calls(host: Host<'_>) -> Vec<(String, String, f64)> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let lines = host.card("calls");
    let call = |line: &str| {
        let call: Value = serde_json::from_str(line).unwrap();
        (text(&call["command"]), text(&call["device"]), call["at"].as_f64().unwrap())
    };
    lines.lines().map(call).collect()
}

/// How often the tools were called with a command.
fn count(calls: &[(String, String, f64)], command: &str) -> usize {
    calls.iter().filter(|(c, ..)| c == command).count()
}

#[test]
fn set_once_pending_until_the_boot_and_applied_after_it() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.card(&format!("add {ONE} ports=2 interfaces=eth1,eth2 rdma=mlx5_0,mlx5_1 seconds=0"));
    let play = told::play(
        "  - mlxconfig: {device: mlx5_0, set: {NUM_OF_VFS: 16, SRIOV_EN: true, CNP_DSCP_P1: 48}}\n  \
           - mlxconfig: {device: '86:00.1', set: {'HOST_CHAINING_DESCRIPTORS[2..3]': [5, 6]}}\n",
    );
    // A check says so and sets nothing.
    let check = Told::by(&told::apply(&hosts, &play, &["--check", "--detailed-exitcode"]), 3);
    assert_eq!(check.count("would_change"), 2, "{check:?}");
    assert_eq!(count(&calls(host), "set"), 0);
    // Two functions of one card are one device: one set for both resources.
    let first = Told::by(&told::apply(&hosts, &play, &["--detailed-exitcode"]), 3);
    assert_eq!(first.count("reboot_pending"), 2, "{first:?}");
    assert_eq!(first.executions(host.0), 2);
    assert_eq!(first.host(host.0)["status"], "changed");
    let made = calls(host);
    assert_eq!((count(&made, "set"), count(&made, "TWICE AT ONCE")), (1, 0), "{made:?}");
    assert_eq!(host.card(&format!("show {ONE} SRIOV_EN")), "False(0) False(0) True(1)\n");
    let note = host.sh("ls -ld /var/lib/netplay/pending/*; cat /var/lib/netplay/pending/*");
    assert!(
        note.starts_with("-rw------- ") && note.contains(&format!("SRIOV_EN 1 0 {} reboot", host.boot_id())),
        "{note}"
    );
    // Nothing changes any more, and the same reboots are pending.
    let second = Told::by(&told::apply(&hosts, &play, &["--detailed-exitcode"]), 3);
    assert_eq!(second.count("reboot_pending"), 2, "{second:?}");
    assert_eq!(second.executions(host.0), 1);
    assert_eq!(second.host(host.0)["status"], "ok");
    assert_eq!(second.host(host.0)["reboot_pending"].as_array().unwrap().len(), 2);
    assert_eq!(count(&calls(host), "set"), 0);
    host.reset();
    let third = Told::by(&told::apply(&hosts, &play, &["--detailed-exitcode"]), 0);
    assert_eq!((third.count("ok"), third.executions(host.0)), (2, 1), "{third:?}");
    assert_eq!(third.warnings(), "");
}

#[test]
fn one_query_for_each_card_and_look_all_at_once() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    for bus in 1..=8 {
        host.card(&format!("add 0000:0{bus}:00.0 ports=2 seconds=2"));
    }
    let resources = "  - mlxconfig: {device: all, set: {NUM_OF_VFS: 8}}\n  \
                     - mlxconfig: {device: '0000:03:00.0', set: {SRIOV_EN: 1}}\n  \
                     - mlxconfig: {device: '0000:03:00.1', set: {CNP_DSCP_P2: 26}}\n";
    let changed = apply(&hosts, resources, "");
    assert!(changed.iter().all(|o| o.status == "reboot_pending"), "{changed:?}");
    let all = changed.iter().find(|o| o.address == "mlxconfig:all").unwrap();
    // What is the same of all cards is told once.
    assert_eq!(all.changes, "NUM_OF_VFS next boot 0 8\nNUM_OF_VFS 0 8");
    let made = calls(host);
    assert_eq!(["q", "set", "TWICE AT ONCE"].map(|c| count(&made, c)), [16, 8, 0], "{made:?}");
    // Beside each other: all had begun before the first was done.
    for look in made.iter().filter(|(c, ..)| c == "q").collect::<Vec<_>>().chunks(8) {
        let end = made.iter().filter(|(c, _, at)| c == "end" && *at > look[0].2).map(|(_, _, at)| *at).reduce(f64::min);
        assert!(look.iter().all(|(_, _, at)| *at < end.unwrap()), "{made:?}");
    }
    let again = apply(&hosts, resources, "");
    assert!(again.iter().all(|o| o.status == "reboot_pending"), "{again:?}");
    let made = calls(host);
    assert_eq!(["q", "set", "TWICE AT ONCE"].map(|c| count(&made, c)), [8, 0, 0], "{made:?}");
}

#[test]
fn what_another_parameter_reveals_takes_two_boots() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.card(&format!("add {ONE} seconds=0 version=4.36"));
    let keys = "{device: '86:00.0', set: {ADVANCED_PCI_SETTINGS: 1, MAX_ACC_OUT_READ: 44, NUM_OF_VFS: 4}}";
    for (wave, sets) in [(1, 1), (2, 1)] {
        one(&hosts, keys).is("reboot_pending");
        one(&hosts, keys).is("reboot_pending");
        assert_eq!(count(&calls(host), "set"), sets, "wave {wave}");
        host.reset();
    }
    one(&hosts, keys).is("ok");
    assert_eq!(host.card(&format!("show {ONE} MAX_ACC_OUT_READ")), "0 44 44\n");
    // Back to the defaults, but for what is set.
    let reset = one(&hosts, "{device: '86:00.0', set: {NUM_OF_VFS: 4}, reset: true}");
    assert!(
        reset.changes.contains("MAX_ACC_OUT_READ next boot 44 0") && !reset.changes.contains("NUM_OF_VFS"),
        "{reset:?}"
    );
    reset.is("reboot_pending");
    host.reset();
    one(&hosts, "{device: '86:00.0', set: {NUM_OF_VFS: 4}, reset: true}").is("ok");
}

#[test]
fn a_boot_that_loads_nothing_is_told_and_not_asked_for_again() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.card(&format!("add {ONE} seconds=0"));
    let keys = "{device: all, set: {NUM_OF_VFS: 4}}";
    // The firmware keeps its current value, whatever it was told.
    host.card(&format!("fault {ONE} stubborn"));
    one(&hosts, keys).is("reboot_pending");
    host.reset();
    for _ in 0..2 {
        let after = one(&hosts, keys);
        assert!(
            after.warnings.contains("NUM_OF_VFS is not reported as applied: it is still 0 after a boot"),
            "{after:?}"
        );
        after.is("ok");
    }
    // Only a power cycle loads it: the tool says so, or else the levels of reset that the device supports.
    for fault in ["cold", "cold quiet"] {
        host.card(&format!("fault {ONE}"));
        host.card("power");
        host.card(&format!("fault {ONE} {fault}"));
        let value = if fault == "cold" { 5 } else { 6 };
        let keys = format!("{{device: all, set: {{NUM_OF_VFS: {value}}}}}");
        one(&hosts, &keys).is("reboot_pending");
        let play = told::play(&format!("  - mlxconfig: {keys}\n"));
        let told = Told::by(&told::apply(&hosts, &play, &[]), 0);
        assert_eq!(told.resource(host.0, "mlxconfig:all")["changes"][0]["effect"], "power_cycle", "{told:?}");
        // A warm boot is none, and it is waited for still.
        host.reset();
        one(&hosts, &keys).is("reboot_pending");
        host.card("power");
        let cycled = one(&hosts, &keys);
        assert_eq!(cycled.warnings, "", "{cycled:?}");
        cycled.is("ok");
    }
    // What somebody else has set is pending too, once.
    host.card(&format!("fault {ONE}"));
    host.card(&format!("poke {ONE} NUM_OF_VFS 7"));
    let keys = "{device: all, set: {NUM_OF_VFS: 7}}";
    for _ in 0..2 {
        one(&hosts, keys).is("reboot_pending");
    }
    assert_eq!(count(&calls(host), "set"), 3, "it was set once for each value above");
    // A device default that never changes is the default.
    host.card(&format!("fault {ONE} device-default"));
    one(&hosts, "{device: all, set: {ROCE_ENABLE: 1}}").is("ok");
}

#[test]
fn bad_days() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let keys = format!("{{device: '{ONE}', set: {{NUM_OF_VFS: 4}}}}");
    // No tool, no card.
    one(&hosts, &keys).fails("neither mlxconfig nor mstconfig is on this host install mstflint");
    host.card(&format!("add {ONE} ports=1 rdma=mlx5_0 seconds=0 tools=mft"));
    one(&hosts, "{device: '0000:87:00.0', set: {NUM_OF_VFS: 4}}").fails("this host has 0000:86:00.0 (mlx5_0)");
    one(&hosts, "{device: mlx5_7, set: {NUM_OF_VFS: 4}}").fails("no card has the RDMA device mlx5_7");
    // mst isn't started, and then it is.
    let mst = "{device: /dev/mst/mt4129_pciconf0, set: {CNP_DSCP_P1: 48}}";
    one(&hosts, mst).fails("there is no /dev/mst/mt4129_pciconf0 `mst start` (of MFT) makes it");
    host.sh("mst start");
    one(&hosts, mst).is("ok");
    // A port that the card doesn't have, and names that it doesn't.
    let ports = one(&hosts, "{device: all, set: {CNP_DSCP_P1: 48, CNP_DSCP_P2: 48}}");
    assert!(ports.warnings.contains("CNP_DSCP_P2 is left out: this card has no port 2"), "{ports:?}");
    ports.is("ok");
    one(&hosts, "{device: all, set: {NUM_OF_VFS: 4, NUM_OF_VF: 4}}").fails("no parameter NUM_OF_VF is it NUM_OF_VFS?");
    one(&hosts, "{device: all, set: {NUM_OF_VFS: 4, KEEP_ETH_LINK_UP_P1: sometimes}}")
        .fails("KEEP_ETH_LINK_UP_P1 can't be sometimes: it is true or false");
    one(&hosts, "{device: all, set: {NUM_OF_VFS: 4, LINK_TYPE_P1: ETHERNET}}")
        .fails("LINK_TYPE_P1 can't be ETHERNET: it can be IB(1), ETH(2)");
    host.card(&format!("fault {ONE} no-confs"));
    let refused = one(&hosts, "{device: all, set: {NUM_OF_VFS: 4, LINK_TYPE_P1: ETHERNET}}");
    assert!(refused.error.contains("(`mlxconfig -d 0000:86:00.0 show_confs` lists the values)"), "{refused:?}");
    refused.fails("Cannot set the value ETHERNET");
    one(&hosts, "{device: all, set: {'HOST_CHAINING_DESCRIPTORS[9]': 4}}").fails("Index 9 of the parameter");
    for (fault, why) in [
        ("livefish", "its firmware doesn't run (livefish mode)"),
        ("locked", "another tool holds its lock"),
        ("dies", "signal 11 ended mlxconfig before it had told all"),
        ("refuses", "the firmware returned bad status 0x5"),
        ("numbers", "shows ROCE_CONTROL as 2 and has no name for it, so `ROCE_ENABLE` can't be compared"),
    ] {
        host.card(&format!("fault {ONE} {fault}"));
        one(&hosts, "{device: all, set: {ROCE_CONTROL: ROCE_ENABLE, NUM_OF_VFS: 4}}").fails(why);
    }
    assert_eq!(host.card(&format!("show {ONE} NUM_OF_VFS")), "0 0 0\n");
    assert_eq!(host.sh("ls /var/lib/netplay/pending"), "", "what was refused isn't pending");
    // A table beside complaints is an answer, and so is one without current values.
    host.card(&format!("fault {ONE} exits-3"));
    one(&hosts, "{device: all, set: {NUM_OF_VFS: 0}}").is("ok");
    host.card(&format!("fault {ONE} no-e"));
    for status in ["reboot_pending", "reboot_pending"] {
        one(&hosts, &keys).is(status);
    }
    host.reset();
    one(&hosts, &keys).is("ok");
    // Of several cards one hangs: the others are set, and it is told at its deadline, which passes more quickly here.
    host.sh(
        "printf '#!/bin/sh\\nk=$1 n=$2 s=$3; shift 3; [ $s != 60 ] || s=2; exec /usr/bin/timeout $k $n $s \"$@\"\\n' \
         >/usr/local/sbin/timeout; chmod 755 /usr/local/sbin/timeout",
    );
    host.card("add 0000:87:00.0 seconds=0");
    host.card(&format!("fault {ONE} hangs"));
    let hung = one(&hosts, "{device: all, set: {NUM_OF_VFS: 5}}");
    assert_eq!(host.card("show 0000:87:00.0 NUM_OF_VFS"), "0 0 5\n");
    hung.fails("mstconfig didn't answer within 60 s");
}

#[test]
fn the_session_keeps_its_kind_of_network() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.card(&format!("add {ONE} ports=2 interfaces=eth0,eth1 rdma=mlx5_0,mlx5_1 seconds=0"));
    host.card("add 0000:87:00.0 interfaces=eth2 rdma=mlx5_2 seconds=0");
    one(&hosts, "{device: mlx5_1, set: {LINK_TYPE_P1: IB}}")
        .fails("would take the session's interface away: eth0 carries it");
    assert_eq!(count(&calls(host), "set"), 0);
    one(&hosts, "{device: mlx5_2, set: {LINK_TYPE_P1: IB}}").is("reboot_pending");
    one(&hosts, "{device: mlx5_1, set: {LINK_TYPE_P1: IB}, accept_session_loss: true}").is("reboot_pending");
}

/// A real reboot, by systemd.
#[test]
fn a_reboot_loads_it() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    host.card(&format!("add {ONE} interfaces=eth1 rdma=mlx5_0 seconds=0"));
    let keys = "{device: mlx5_0, set: {NUM_OF_VFS: 4}}";
    one(&hosts, keys).is("reboot_pending");
    let boots = host.boots();
    host.sh("systemctl --no-block reboot");
    host.wait_for_boot(boots + 1);
    one(&hosts, keys).is("ok");
    assert_eq!(host.sh("cat /sys/class/infiniband/mlx5_0/device/net/eth1/mtu"), "1500\n");
}

#[test]
fn firmware_that_is_burnt_and_does_not_run_is_a_pending_reboot() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let of = |version: &str| {
        let resource = format!("  - firmware: {{device: all, version: {{MT_0000000838: {version}}}}}\n");
        apply(&hosts, &resource, "").remove(0)
    };
    host.card(&format!("add {ONE} rdma=mlx5_0 psid=MT_0000000838"));
    of("28.39.1002").is("ok");
    of("'>= 28.40.1000'").fails("0000:86:00.0 (MT_0000000838) runs 28.39.1002, and has to run 28.40.1000 or later");
    host.card(&format!("add {ONE} image=28.40.1000"));
    for _ in 0..2 {
        of("'>= 28.40.1000'").is("reboot_pending");
    }
    of("28.39.1002").fails("has 28.40.1000 burnt, which runs from the next boot");
    // A boot that doesn't load it is told, and no other is asked for.
    host.card(&format!("fault {ONE} cold"));
    host.reset();
    of("'>= 28.40.1000'").fails("still runs 28.39.1002 after a boot, and 28.40.1000 is burnt");
    host.card(&format!("fault {ONE}"));
    host.card("power");
    host.card("boot");
    of("'>= 28.40.1000'").is("ok");
    // The card of a server's maker isn't one that is named; and a host without the tools knows what runs.
    host.card(&format!("add {ONE} psid=DEL0000000027 tools=none"));
    let other = of("'>= 28.40.1000'");
    assert!(other.warnings.contains("0000:86:00.0 is a DEL0000000027, which `version` doesn't name"), "{other:?}");
    other.is("ok");
}

/// What is misspelt is named by no card, and its firmware would never be looked at.
#[test]
fn a_board_identity_that_no_card_has_is_told_once() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    for (host, psid) in hosts.each().zip(["MT_0000000838", "MT_0000000223"]) {
        host.card(&format!("add {ONE} psid={psid}"));
    }
    let versions = "{MT_0000000838: 28.39.1002, MT_0000000223: 28.39.1002, MT_0000000839: 28.39.1002}";
    let play = told::play(&format!("  - firmware: {{device: all, version: {versions}}}\n"));
    let warning = "firmware:all: no card is a MT_0000000839, which `version` names: is it misspelt? (2 hosts)\n";
    assert_eq!(Told::by(&told::apply(&hosts, &play, &["--check"]), 0).warnings(), warning);
}

#[test]
fn facts_say_what_roce_hangs_on() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let roce = || {
        let run = Netplay::new(&hosts, &["facts", "-i", "inventory.yaml"]).run().exits(0);
        let facts: Value = serde_json::from_str(&run.stdout).unwrap();
        let ports = facts[host.0]["rdma"].as_array().unwrap().clone();
        ports
            .iter()
            .map(|p| format!("{} {} {} {}", p["netdev"], p["link_layer"], p["roce"]["lacks"], p["sm_lid"]))
            .collect::<Vec<_>>()
    };
    host.card(&format!("add {ONE} ports=2 interfaces=eth1,eth2 rdma=mlx5_0,mlx5_1 seconds=0"));
    assert_eq!(roce(), ["\"eth1\" \"Ethernet\" null null", "\"eth2\" \"Ethernet\" null null"]);
    assert_eq!(calls(host).len(), 0, "a card with RoCE is asked nothing");
    for (parameter, value) in [("ROCE_CONTROL", 1), ("LINK_TYPE_P2", 1)] {
        host.card(&format!("poke {ONE} {parameter} {value}"));
    }
    host.reset();
    assert_eq!(roce(), ["\"eth1\" \"Ethernet\" \"roce_control\" null", "\"eth2\" \"InfiniBand\" \"link_type\" 1"]);
}
