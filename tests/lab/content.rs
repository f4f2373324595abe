//! The playbook that is shipped, on hosts that were never touched.

use std::time::{Duration, Instant};

use crate::harness::{Host, Hosts, Kind, Netplay, ssh};
use crate::told::Told;

#[test]
fn the_shipped_playbook_converges_and_lasts_over_a_reboot() {
    let hosts = Hosts::take(Kind::Sysd, 2);
    let playbook = concat!(env!("CARGO_MANIFEST_DIR"), "/playbooks/site.yaml");
    for host in hosts.each() {
        host.card("add 0000:86:00.0 ports=2 interfaces=eth1,eth2 rdma=mlx5_0,mlx5_1 psid=MT_0000000838 qos=mlnx_qos seconds=0");
        host.card("poke 0000:86:00.0 ROCE_CONTROL 1");
        // And an InfiniBand card, whose port knows the subnet manager at LID 1.
        host.card("add 0000:87:00.0 rdma=mlx5_2 psid=MT_0000000838 seconds=0");
        host.card("poke 0000:87:00.0 LINK_TYPE_P1 1");
        host.reset();
    }
    let vars = r#"{"fabric_interfaces": ["eth1", "eth2"], "roce_priority": 3, "irqbalance": true, "firewall": true, "nic_tools": "",
        "nic_settings": {"ROCE_ENABLE": 1, "SRIOV_EN": true, "NUM_OF_VFS": 4},
        "nic_firmware": {"MT_0000000838": ">= 28.39.1002"}}"#;
    let netplay = Netplay::new(&hosts, &["apply", "-i", "inventory.yaml", "--output", "ndjson", playbook, "-e", vars]);
    let first = Told::by(&netplay, 0);
    assert!(first.count("changed") >= 18, "{}", first.run.stdout);
    assert_eq!(first.count("reboot_pending"), 2, "{}", first.run.stdout);
    // The firmware keeps RoCE off until the boot: what belongs to it is set all the same, and that is told.
    for (host, port, device) in hosts.each().flat_map(|h| [(h.0, "eth1", "mlx5_0"), (h.0, "eth2", "mlx5_1")]) {
        let told = first.resource(host, &format!("roce_qos:{port}"));
        assert_eq!(told["status"], "changed", "{told}");
        assert!(told["warnings"].to_string().contains(&format!("RoCE is off on {device}")), "{told}");
    }
    let second = Told::by(&netplay, 0);
    assert_eq!((second.count("changed"), second.count("failed")), (0, 0), "{}", second.run.stdout);
    // The same reboots are pending until there was one.
    assert_eq!(second.count("reboot_pending"), 2, "{}", second.run.stdout);
    let host = hosts.first();
    let executions = second.executions_of("Tune the hosts of the fabric", host.0);
    assert_eq!(executions, 2, "one for the facts, one for the states");

    let boots: Vec<u32> = hosts.each().map(Host::boots).collect();
    hosts.each().for_each(|host| _ = ssh(host.0, "systemctl reboot"));
    for (host, boots) in hosts.each().zip(boots) {
        host.wait_for_boot(boots + 1);
        // networkd sets the MTU a moment after sshd answers.
        let start = Instant::now();
        while host.sh("cat /sys/class/net/eth1/mtu /sys/class/net/eth2/mtu") != "9000\n9000\n" {
            assert!(start.elapsed() < Duration::from_secs(60), "the MTU is gone after the boot of {}", host.0);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let third = Told::by(&netplay, 0);
    let counts = ["changed", "failed", "reboot_pending"].map(|status| third.count(status));
    assert_eq!(counts, [0, 0, 0], "{}", third.run.stdout);
    for host in hosts.each() {
        assert_eq!(third.executions_of("Tune the hosts of the fabric", host.0), 2);
        let qos = third.resource(host.0, "roce_qos:eth1");
        assert_eq!((&qos["status"], &qos["warnings"]), (&"ok".into(), &serde_json::json!([])), "{qos}");
    }

    // An InfiniBand port that knows no subnet manager.
    let fabric = Netplay::new(&hosts, &["apply", "-i", "inventory.yaml", playbook, "--tags", "ib"]);
    fabric.run().exits(0);
    host.sh("echo 0x0 >/sys/class/infiniband/mlx5_2/ports/1/sm_lid");
    let run = fabric.run().exits(2);
    assert!(run.stdout.contains("mlx5_2 knows no subnet manager"), "{}", run.stdout);
    host.sh("echo 0x1 >/sys/class/infiniband/mlx5_2/ports/1/sm_lid");

    // A port that isn't there is told.
    let more = r#"{"fabric_interfaces": ["eth1", "eth2", "eth11"], "firewall": false}"#;
    let check = ["apply", "-i", "inventory.yaml", "--check", playbook, "-e", vars, "-e", more];
    let run = Netplay::new(&hosts, &check).run().exits(0);
    assert!(run.stdout.contains("failed, ignored: this host has no eth11"), "{}", run.stdout);
}
