//! `mtu` on real links: what lasts over a reboot, what stands on what, and what is refused.

use std::time::{Duration, Instant};

use crate::harness::{Host, Hosts, Kind, Netplay, ssh};
use crate::told::{Told, apply, play};

/// The MTU of an interface.
fn mtu(host: Host<'_>, interface: &str) -> String {
    host.sh(&format!("cat /sys/class/net/{interface}/mtu")).trim().to_owned()
}

#[test]
fn what_networkd_is_told_lasts_over_a_reboot() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let resources =
        "    - mtu: {interface: eth1, mtu: 9000}\n    - mtu: {interface: eth2, mtu: 4000, persist: false}\n";
    let netplay = apply(&hosts, &play(resources), &[]);
    let addresses = host.sh("ip -o -4 addr; ip route");
    let changed = Told::by(&netplay, 0);
    assert_eq!((changed.count("changed"), changed.executions(host.0)), (2, 2), "{}", changed.run.stdout);
    let told = changed.resource(host.0, "mtu:eth1")["changes"].clone();
    let change = |field: &str, from: serde_json::Value| serde_json::json!({"field": field, "from": from, "to": 9000, "effect": "now"});
    assert_eq!(told, serde_json::json!([change("live", 1500.into()), change("boot", serde_json::Value::Null)]));
    assert_eq!((mtu(host, "eth1"), mtu(host, "eth2")), ("9000".to_owned(), "4000".to_owned()));
    assert_eq!(host.sh("ip -o -4 addr; ip route"), addresses, "no owner is asked to apply anything");
    let converged = Told::by(&netplay, 0);
    assert_eq!((converged.count("ok"), converged.executions(host.0)), (2, 1), "{}", converged.run.stdout);

    let boots = host.boots();
    ssh(host.0, "systemctl reboot");
    host.wait_for_boot(boots + 1);
    let start = Instant::now();
    while mtu(host, "eth1") != "9000" {
        assert!(start.elapsed() < Duration::from_secs(60), "eth1 has {} after the boot", mtu(host, "eth1"));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(mtu(host, "eth2"), "1500", "only the live value was asked for");
    let again = Told::by(&netplay, 0);
    assert_eq!((again.status("mtu:eth1"), again.status("mtu:eth2")), ("ok", "changed"), "{}", again.run.stdout);
}

#[test]
fn what_wins_at_boot_is_named() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let netplay = apply(&hosts, &play("    - mtu: {interface: eth1, mtu: 9000}\n"), &[]);
    let folder = "/etc/systemd/network/10-eth1.network.d";
    host.sh(&format!("mkdir -p {folder}; printf '[Link]\\nMTUBytes=1400\\n' >{folder}/zzz.conf"));
    let run = Told::by(&netplay, 2);
    let said = run.error("mtu:eth1");
    assert!(said.contains(&format!("at boot 1400 wins: {folder}/zzz.conf:2")), "{said}");
    assert_eq!(mtu(host, "eth1"), "9000", "the live value is set all the same");
    assert_eq!(host.sh(&format!("ls {folder}")), "zzz.conf\n");
    // One that is read before ours doesn't stand in the way.
    host.sh(&format!("mv {folder}/zzz.conf {folder}/a.conf"));
    assert_eq!(Told::by(&netplay, 0).status("mtu:eth1"), "changed");
    assert_eq!(Told::by(&netplay, 0).status("mtu:eth1"), "ok");
}

#[test]
fn without_an_owner_the_live_value_is_all() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let netplay = apply(&hosts, &play("    - mtu: {interface: eth1, mtu: 9000}\n"), &[]);
    let run = Told::by(&netplay, 2);
    let said = run.error("mtu:eth1");
    assert!(
        said.contains("nothing was found that configures eth1 at boot") && said.contains("`persist: false`"),
        "{said}"
    );
    assert_eq!(mtu(host, "eth1"), "9000");
    let told = run.resource(host.0, "mtu:eth1");
    assert_eq!((&told["done"][0]["field"], &told["changes"]), (&"live".into(), &serde_json::json!([])));
    let netplay = netplay.file("site.yaml", &play("    - mtu: {interface: eth1, mtu: 9000, persist: false}\n"));
    assert_eq!(Told::by(&netplay, 0).status("mtu:eth1"), "ok");
}

#[test]
fn a_stack_is_raised_from_below_and_lowered_from_above_in_one_segment() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh("ip link add mv0 link eth1 type macvlan; ip link add mv1 link eth1 type macvlan");
    // The upper one stands first in the playbook.
    let stack = |mtu: u32| {
        play(&format!(
            "    - mtu: {{interface: mv0, mtu: {mtu}, persist: false}}\n    - mtu: {{interface: eth1, mtu: {mtu}, persist: \
             false}}\n"
        ))
    };
    let netplay = apply(&hosts, &stack(9000), &[]);
    let run = Told::by(&netplay, 0);
    assert_eq!((run.count("changed"), run.executions(host.0)), (2, 2), "{}", run.run.stdout);
    assert_eq!((mtu(host, "eth1"), mtu(host, "mv0")), ("9000".to_owned(), "9000".to_owned()));
    assert_eq!(mtu(host, "mv1"), "1500", "nobody asked for it");
    let netplay = netplay.file("site.yaml", &stack(1400));
    let run = Told::by(&netplay, 0);
    assert_eq!((run.count("changed"), run.executions(host.0)), (2, 2), "{}", run.run.stdout);
    assert!(run.warnings().contains("the kernel lowers mv0, mv1 with it"), "{}", run.warnings());
    assert_eq!((mtu(host, "eth1"), mtu(host, "mv1")), ("1400".to_owned(), "1400".to_owned()));
    // Alone, the upper one can't go over the one below.
    let netplay = netplay.file("site.yaml", &play("    - mtu: {interface: mv0, mtu: 9000, persist: false}\n"));
    let said = Told::by(&netplay, 2).error("mtu:mv0");
    assert!(said.contains("mv0 can't have a larger MTU than eth1, on which it stands and which has 1400"), "{said}");
}

#[test]
fn what_carries_the_session_is_confirmed_or_asked_for() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let resources = "    - mtu: {interface: eth0, mtu: 1400, persist: false}\n";
    let netplay = apply(&hosts, &play(resources), &[]);
    let check = Told::by(&apply(&hosts, &play(resources), &["--check"]), 0);
    assert!(
        check.warnings().contains("it could cut off the session (eth0 carries it): the host takes it back"),
        "{}",
        check.run.stdout
    );
    let told = Told::by(&netplay, 0);
    assert_eq!((told.status("mtu:eth0"), told.executions(host.0)), ("changed", 3), "probe, change, confirmation");
    assert_eq!(mtu(host, "eth0"), "1400");
    host.sh("ip link set eth0 mtu 1500");
    let netplay = netplay.file("site.yaml", &format!("{}  confirm: none\n", play(resources)));
    let told = Told::by(&netplay, 0);
    assert_eq!((told.status("mtu:eth0"), told.executions(host.0)), ("changed", 2));
    assert_eq!(mtu(host, "eth0"), "1400");
}

#[test]
fn what_can_not_be_is_refused_before_anything_is_touched() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let run = |resource: &str| Told::by(&apply(&hosts, &play(&format!("    - mtu: {resource}\n")), &[]), 2);
    let said = run("{interface: eth9, mtu: 9000, persist: false}").error("mtu:eth9");
    assert!(said.contains("this host has no interface eth9; it has lo, eth0, eth1, eth2"), "{said}");
    let said = run("{interface: eth1, mtu: 65536, persist: false}").error("mtu:eth1");
    assert!(said.contains("eth1 can't have an MTU of 65536: the most that its driver takes is 65535"), "{said}");
    assert_eq!(mtu(host, "eth1"), "1500");
}

#[test]
fn facts_are_the_hosts_own() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    host.sh("ip link set eth2 mtu 4000");
    let run = Netplay::new(&hosts, &["facts", "-i", "inventory.yaml"]).run().exits(0);
    let told: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let facts = &told[host.0];
    assert_eq!((&facts["host"]["name"], &facts["os"]["family"]), (&host.0.into(), &"debian".into()), "{facts:#}");
    assert_eq!(facts["host"]["boot_id"], host.boot_id());
    assert_eq!((&facts["service_manager"], &facts["host"]["virtual"]), (&"systemd".into(), &"systemd-nspawn".into()));
    let session = serde_json::json!({"interface": "eth0", "address": host.address()});
    assert_eq!(facts["session"], session);
    let interfaces = facts["interfaces"].as_array().unwrap();
    let of = |name: &str| interfaces.iter().find(|i| i["name"] == name).unwrap();
    assert_eq!((&of("eth2")["mtu"], &of("eth2")["owner"]), (&4000.into(), &"networkd".into()));
    assert_eq!((&of("lo")["owner"], &of("lo")["max_mtu"]), (&serde_json::Value::Null, &serde_json::Value::Null));
}
