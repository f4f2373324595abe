//! `roce_qos` on hosts with simulated cards: stand-ins for `mlnx_qos`, `dcb` and `cma_roce_*` keep what is set in memory, as a
//! driver does, and log how they are called. Where a test says so, `dcb` is the real one, and its device has no DCB.

use crate::harness::{Host, Hosts, Kind, ssh};
use crate::outcome::apply;
use crate::told::{self, Told};
use std::time::{Duration, Instant};

const CARD: &str = "add 0000:86:00.0 interfaces=eth1 rdma=mlx5_0 seconds=0";

/// The calls of the tools since this was last asked.
fn calls(host: Host<'_>) -> Vec<String> {
    host.sh("simulated-qos calls").lines().map(str::to_owned).collect()
}

const READS: [&str; 3] = ["mlnx_qos -i eth1", "cma_roce_tos -d mlx5_0", "cma_roce_mode -d mlx5_0 -p 1"];

#[test]
fn all_of_it_once_and_again_after_a_boot() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    host.card(&format!("{CARD} qos=mlnx_qos"));
    host.sh("simulated-qos fault firmware lldpad");
    let play = told::play(
        "  - roce_qos: {interface: eth1, trust: dscp, pfc: [3], ecn: [3], cnp_dscp: 48, tos: 106, rdma_cm: 2, pause: false, \
           cable_length: 10, buffer_size: [130944, 130944, 0, 0, 0, 0, 0, 0]}\n",
    );
    let check = Told::by(&told::apply(&hosts, &play, &["--check"]), 0);
    assert_eq!(check.count("would_change"), 1, "{}", check.run.stdout);
    assert_eq!(calls(host), READS, "a check sets nothing");

    let first = Told::by(&told::apply(&hosts, &play, &[]), 0);
    assert_eq!((first.count("changed"), first.executions(host.0)), (1, 2), "{}", first.run.stdout);
    assert!(first.warnings().contains("lldpad runs on this host"), "{}", first.warnings());
    let fields = first.resource(host.0, "roce_qos:eth1")["changes"].to_string();
    for change in [
        r#""field":"dcbx","from":"firmware","to":"os""#,
        r#""field":"pfc","from":[],"to":[3]"#,
        r#""field":"ecn","from":[0,1,2,3,4,5,6,7],"to":[3]"#,
        r#""field":"traffic_class","from":null,"to":106"#,
        r#""field":"boot","from":null,"to":"re-applied""#,
    ] {
        assert!(sorted(&fields).contains(&sorted(change)), "{change}: {fields}");
    }
    let made = calls(host);
    let set = "mlnx_qos -i eth1 -d os --pfc 0,0,0,1,0,0,0,0 --cable_len 10 --trust dscp --buffer_size 130944,130944,0,0,0,0,0,0";
    let sets = [set, "cma_roce_tos -d mlx5_0 -t 106", "cma_roce_mode -d mlx5_0 -p 1 -m 2"];
    assert_eq!(made, [&READS[..], &sets, &READS].concat(), "one read of a kind in each probe, one set of a kind");
    // The driver's file reads otherwise than it was written.
    assert_eq!(host.sh("cat /sys/class/infiniband/mlx5_0/tc/1/traffic_class"), "Global tclass=106\n");

    let second = Told::by(&told::apply(&hosts, &play, &[]), 0);
    assert_eq!((second.count("ok"), second.executions(host.0)), (1, 1), "{}", second.run.stdout);
    assert_eq!(calls(host), READS);

    let boots = host.boots();
    ssh(host.0, "systemctl reboot");
    host.wait_for_boot(boots + 1);
    let start = Instant::now();
    while host
        .sh("systemctl show -p ActiveState,Result --value netplay-reapply; cat /run/simulated-qos.json || true")
        .lines()
        .count()
        < 3
    {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing was set again at the boot");
        std::thread::sleep(Duration::from_millis(200));
    }
    host.sh("systemctl start netplay-reapply");
    let third = Told::by(&told::apply(&hosts, &play, &["--check", "--detailed-exitcode"]), 0);
    assert_eq!(third.count("ok"), 1, "{}", third.run.stdout);

    // Somebody else sets one thing: only that is set again.
    host.sh("mlnx_qos -i eth1 --pfc 0,0,0,0,1,0,0,0 >/dev/null; simulated-qos calls");
    assert_eq!(Told::by(&told::apply(&hosts, &play, &[]), 0).count("changed"), 1);
    let sets: Vec<String> = calls(host).into_iter().filter(|call| !READS.contains(&call.as_str())).collect();
    assert_eq!(sets, ["mlnx_qos -i eth1 --pfc 0,0,0,1,0,0,0,0"]);
}

/// The characters of a text of JSON whose keys come in any order.
fn sorted(text: &str) -> String {
    text.replace("\"effect\":\"now\",", "")
}

#[test]
fn by_dcb_and_with_what_other_versions_print() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.card(&format!("{CARD} qos=dcb"));
    let dcb = "  - roce_qos: {interface: eth1, trust: dscp, pfc: [3, 4], cable_length: 5, buffer_size: [1280, 1280, 0, 0, 0, 0, 0, 0], persist: false}\n";
    let one = |resource: &str| {
        let mut outcomes = apply(&hosts, resource, "");
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        outcomes.remove(0)
    };
    one(dcb).is("changed");
    let made = calls(host);
    assert_eq!(made.iter().filter(|call| call.contains(" show ") && call.contains("-j pfc")).count(), 2, "{made:?}");
    assert!(
        made.contains(
            &"dcb pfc set dev eth1 prio-pfc 0:off 1:off 2:off 3:on 4:on 5:off 6:off 7:off delay 5".to_owned()
        ),
        "{made:?}"
    );
    one(dcb).is("ok");
    // What somebody has mapped stays; and PCP takes it all away.
    assert_eq!(host.sh("dcb -j app show dev eth1 dscp-prio | grep -o ',' | wc -l"), "127\n");
    one("  - roce_qos: {interface: eth1, trust: pcp, persist: false}\n").is("changed");
    assert_eq!(host.sh("dcb -j app show dev eth1 dscp-prio"), "{}\n");
    host.sh("dcb app add dev eth1 dscp-prio 26:5; simulated-qos calls");
    one("  - roce_qos: {interface: eth1, trust: dscp, persist: false}\n").is("ok");

    host.card(&format!("{CARD} qos=mlnx_qos"));
    let qos = "  - roce_qos: {interface: eth1, trust: dscp, pfc: [3], persist: false}\n";
    for (faults, status) in
        [("newer", "changed"), ("older no-buffers", "changed"), ("no-trust lldpad", "failed"), ("no-dcb", "failed")]
    {
        host.sh(&format!("simulated-qos fault {faults}"));
        let outcome = one(qos);
        assert_eq!(outcome.status, status, "{faults}: {outcome:?}");
        if status == "changed" {
            one(qos).is("ok");
        } else if faults == "no-dcb" {
            outcome.fails("`mlnx_qos` says: ETS features are not supported on your system");
        } else {
            // What can be set is set.
            assert!(outcome.error.contains("the trust of eth1 can't be set"), "{outcome:?}");
            assert!(host.sh("mlnx_qos -i eth1").contains("enabled     0   0   0   1 "));
        }
    }
    host.sh("simulated-qos fault no-rdma-cm");
    one("  - roce_qos: {interface: eth1, rdma_cm: 2, persist: false}\n").fails("Module rdma_cm is not loaded");
}

#[test]
fn a_device_without_any_of_it_says_so() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let outcome = |keys: &str| {
        apply(&hosts, &format!("  - roce_qos: {{interface: eth1, persist: false, {keys}}}\n"), "").remove(0)
    };
    // iproute2's own dcb, ethtool and sysfs, of a veth.
    outcome("pfc: [3]").fails("`dcb` says: Attribute read: Operation not supported");
    outcome("ecn: [3]").fails("the driver has no settings of ECN for eth1");
    outcome("tos: 106").fails("no RDMA device belongs to eth1");
    outcome("pause: true").fails("eth1 has no pause frames");
    outcome("pause: false").is("ok");
    apply(&hosts, "  - roce_qos: {interface: eth9, trust: dscp, persist: false}\n", "")
        .remove(0)
        .fails("no interface eth9");
    let booted = apply(&hosts, "  - roce_qos: {interface: eth1, pause: false}\n", "").remove(0);
    booted.fails("isn't run by systemd");
}
