use super::*;
use crate::resource::trial::{Shell, ask};
use crate::resource::{Inquiry, Output, Trouble};

// A node with a RoCE card, an InfiniBand card, a card for management without RDMA, and a virtual function.
const LINKS: &str = r#"[
    {"ifindex":2,"ifname":"eno1","flags":["UP","LOWER_UP"],"mtu":1500,"operstate":"UP","link_type":"ether",
     "address":"b0:7b:25:00:00:01","min_mtu":68,"max_mtu":9702,"addr_info":[{"local":"10.1.0.5","prefixlen":16}]},
    {"ifindex":3,"ifname":"ens6f0np0","flags":["UP","LOWER_UP"],"mtu":9000,"operstate":"UP","link_type":"ether",
     "address":"b8:ce:f6:00:00:01","min_mtu":68,"max_mtu":9978,"addr_info":[{"local":"10.2.0.5","prefixlen":16}]},
    {"ifindex":4,"ifname":"ib0","flags":["UP","LOWER_UP"],"mtu":2044,"operstate":"UP","link_type":"infiniband",
     "address":"00:00:10:49:fe:80","min_mtu":0,"max_mtu":0,"addr_info":[]},
    {"ifindex":5,"ifname":"ens6f0v0","flags":[],"mtu":1500,"operstate":"DOWN","link_type":"ether",
     "address":"b8:ce:f6:00:00:02","min_mtu":68,"max_mtu":9978,"addr_info":[]}]"#;

const DEVICES: &str = "eno1/speed:25000
ens6f0np0/speed:400000
ens6f0v0/speed:-1
ib0/dev_port:0
eno1/device/numa_node:0
ens6f0np0/device/numa_node:1
ens6f0v0/device/numa_node:-1
eno1/device/uevent:DRIVER=bnxt_en
eno1/device/uevent:PCI_SLOT_NAME=0000:31:00.0
ens6f0np0/device/uevent:DRIVER=mlx5_core
ens6f0np0/device/uevent:PCI_SLOT_NAME=0000:86:00.0
ens6f0v0/device/uevent:DRIVER=mlx5_core
ib0/device/uevent:DRIVER=mlx5_core
ib0/device/uevent:PCI_SLOT_NAME=0000:ab:00.0
eno1/device/current_link_speed:8.0 GT/s PCIe
eno1/device/current_link_width:8
eno1/device/max_link_speed:16.0 GT/s PCIe
eno1/device/max_link_width:8
ens6f0v0/device/current_link_speed:Unknown
ens6f0v0/device/current_link_width:0
eno1/device/../uevent:PCI_SLOT_NAME=0000:30:02.0
ens6f0np0/device/infiniband/mlx5_0:
ib0/device/infiniband/mlx5_10:
eno1/ethtool:
driver: bnxt_en
version: 6.1.0
firmware-version: 226.0.145.0/pkg 22.31
expansion-rom-version:
";

const RDMA: &str = r#"mlx5_0/fw_ver:28.39.1002
mlx5_10/fw_ver:28.40.1000
mlx5_0/board_id:MT_0000000838
mlx5_10/board_id:DEL0000000027
mlx5_0/node_type:1: CA
mlx5_10/node_type:1: CA
mlx5_0/ports/1/state:4: ACTIVE
mlx5_10/ports/1/state:2: INIT
mlx5_0/ports/1/phys_state:5: LinkUp
mlx5_10/ports/1/phys_state:5: LinkUp
mlx5_0/ports/1/link_layer:Ethernet
mlx5_10/ports/1/link_layer:InfiniBand
mlx5_0/ports/1/sm_lid:0x0
mlx5_10/ports/1/sm_lid:0x30
mlx5_0/ports/1/rate:400 Gb/sec (4X NDR)
mlx5_10/ports/1/rate:2.5 Gb/sec (1X SDR)
mlx5_0/ports/1/gid_attrs/types/1:RoCE v2
mlx5_0/ports/1/gid_attrs/types/3:RoCE v2
mlx5_0/ports/1/gids/2:0000:0000:0000:0000:0000:ffff:0a02:0005
mlx5_0/ports/1/gids/3:0000:0000:0000:0000:0000:ffff:0a02:0005
== rdma
[{"ifindex":0,"ifname":"mlx5_0","port":1,"state":"ACTIVE","physical_state":"LINK_UP","netdev":"ens6f0np0","netdev_index":3},
 {"ifindex":1,"ifname":"mlx5_10","port":1,"subnet_prefix":"fe80:0000:0000:0000","lid":48,"state":"INIT","physical_state":"LINK_UP"}]
== ibv_devinfo
hca_id:	mlx5_10
	transport:			InfiniBand (0)
	fw_ver:				28.40.1000
		port:	1
			state:			PORT_INIT (2)
			max_mtu:		4096 (5)
			active_mtu:		4096 (5)
			link_layer:		InfiniBand
"#;

const HOST: &str = "fqdn gpu001.cluster.example
virtual none
manager systemd
MemTotal:       2113456128 kB

/proc/sys/kernel/hostname:gpu001
/proc/sys/kernel/osrelease:5.14.0-503.el9.x86_64
/proc/sys/kernel/random/boot_id:6d0f5b3c-2b5e-4a53-9a56-0c5a8e9d9a11
/etc/os-release:ID=\"rocky\"
/etc/os-release:ID_LIKE=\"rhel centos fedora\"
/etc/os-release:VERSION_ID=\"9.5\"
/usr/lib/os-release:ID=other
/sys/devices/system/cpu/present:0-127
/sys/devices/system/cpu/online:0-126
/sys/devices/system/cpu/isolated:
/sys/devices/system/node/node1/cpulist:64-127
/sys/devices/system/node/node0/cpulist:0-63
";

const OWNERS: &str = "== networkd\n/run/systemd/netif/links/3:NETWORK_FILE=/etc/systemd/network/rail.network\n\
                      == networkmanager\neno1:connected:u-1\nrc 0\nu-1:802-3-ethernet:yes:0:/etc/x:System eno1\nrc 0\n";

fn node(failing: Option<&str>) -> (Value, Vec<String>) {
    answered(failing, DEVICES, RDMA)
}

fn node_with(devices: &str, rdma: &str) -> (Value, Vec<String>) {
    answered(None, devices, rdma)
}

fn answered(failing: Option<&str>, devices: &str, rdma: &str) -> (Value, Vec<String>) {
    let inquiry = Inquiry::new(questions());
    let outcome = |group: &str| {
        if failing == Some(group) {
            return Err(Trouble::new("it was cut off"));
        }
        let text = match group {
            "links" => LINKS,
            "session" => "10.1.0.1 50412 10.1.0.5 22",
            "owners" => OWNERS,
            "facts of the host" => HOST,
            "the root file system" => "27 1 0:2 / / rw - tmpfs tmpfs rw,size=8g\n",
            "facts of the network" => devices,
            "facts of RDMA" => rdma,
            other => panic!("{other}"),
        };
        Ok(Output { stdout: text.into(), ..Output::default() })
    };
    let outcomes = inquiry.groups().map(|(group, _, _)| outcome(group)).collect();
    read(&inquiry.answers(outcomes))
}

/// Where RoCE is off no GID names the interface of a port, and `rdma` neither: sysfs has both on one device.
#[test]
fn a_port_without_roce_has_its_interface_all_the_same() {
    let off = RDMA.lines().filter(|l| !l.contains("/gid")).collect::<Vec<_>>().join("\n");
    let off = off.replace(r#","netdev":"ens6f0np0","netdev_index":3"#, "");
    let facts = node_with(DEVICES, &off).0;
    assert_eq!(facts["interfaces"][1]["rdma"], "mlx5_0");
    assert_eq!(
        [&facts["rdma"][0]["netdev"], &facts["rdma"][0]["gid_rocev2"], &facts["rdma"][0]["roce"]["on"]],
        [&json!("ens6f0np0"), &Value::Null, &json!(false)]
    );
    // Both ports of an older card are in one device.
    let second = DEVICES.replace("ib0/dev_port:0", "ib0/dev_port:1");
    let facts = node_with(&second, &off).0;
    assert_eq!((&facts["interfaces"][2]["rdma"], &facts["rdma"][1]["netdev"]), (&Value::Null, &Value::Null));
    // Of ports that are bonded the RDMA device names the bond.
    let bonded = RDMA.replace(r#""netdev":"ens6f0np0""#, r#""netdev":"bond0""#);
    let facts = node_with(DEVICES, &bonded).0;
    assert_eq!((&facts["interfaces"][1]["rdma"], &facts["rdma"][0]["netdev"]), (&"mlx5_0".into(), &"bond0".into()));
}

#[test]
fn a_node_with_every_kind_of_card() {
    let (facts, warnings) = node(None);
    assert_eq!(
        facts,
        json!({
            "host": {
                "name": "gpu001",
                "fqdn": "gpu001.cluster.example",
                "boot_id": "6d0f5b3c-2b5e-4a53-9a56-0c5a8e9d9a11",
                "virtual": null,
                "root_persistent": false,
            },
            "os": {"family": "redhat", "id": "rocky", "version": "9.5"},
            "kernel": "5.14.0-503.el9.x86_64",
            "cpus": {
                "count": 128,
                "online": "0-126",
                "isolated": null,
                "numa": [{"node": 0, "cpus": "0-63"}, {"node": 1, "cpus": "64-127"}],
            },
            "memory_mib": 2_063_922,
            "interfaces": [
                {
                    "name": "eno1", "kind": "ethernet", "master": null, "mtu": 1500, "min_mtu": 68, "max_mtu": 9702,
                    "speed_mbps": 25000, "state": "up", "carrier": true, "mac": "b0:7b:25:00:00:01",
                    "driver": "bnxt_en", "firmware": "226.0.145.0/pkg", "pci": "0000:31:00.0",
                    "pci_link": {"speed_gts": 8.0, "width": 8, "max_speed_gts": 16.0, "max_width": 8},
                    "numa": 0, "rdma": null, "addresses": ["10.1.0.5/16"], "owner": "networkmanager",
                },
                {
                    "name": "ens6f0np0", "kind": "ethernet", "master": null, "mtu": 9000, "min_mtu": 68,
                    "max_mtu": 9978, "speed_mbps": 400_000, "state": "up", "carrier": true,
                    "mac": "b8:ce:f6:00:00:01", "driver": "mlx5_core", "firmware": "28.39.1002",
                    "pci": "0000:86:00.0", "pci_link": null, "numa": 1, "rdma": "mlx5_0",
                    "addresses": ["10.2.0.5/16"], "owner": "networkd",
                },
                {
                    "name": "ib0", "kind": "infiniband", "master": null, "mtu": 2044, "min_mtu": 0, "max_mtu": null,
                    "speed_mbps": null, "state": "up", "carrier": true, "mac": "00:00:10:49:fe:80",
                    "driver": "mlx5_core", "firmware": "28.40.1000", "pci": "0000:ab:00.0", "pci_link": null,
                    "numa": null, "rdma": "mlx5_10", "addresses": [], "owner": null,
                },
                {
                    "name": "ens6f0v0", "kind": "ethernet", "master": null, "mtu": 1500, "min_mtu": 68,
                    "max_mtu": 9978, "speed_mbps": null, "state": "down", "carrier": null,
                    "mac": "b8:ce:f6:00:00:02", "driver": "mlx5_core", "firmware": null, "pci": null,
                    "pci_link": null, "numa": null, "rdma": null, "addresses": [], "owner": null,
                },
            ],
            "rdma": [
                {
                    "name": "mlx5_0", "netdev": "ens6f0np0", "port": 1, "state": "ACTIVE", "phys_state": "LINK_UP",
                    "link_layer": "Ethernet", "rate_gbps": 400.0, "active_mtu": 4096, "firmware": "28.39.1002",
                    "board_id": "MT_0000000838", "gid_rocev2": 3,
                    "roce": {"on": true, "lacks": null}, "sm_lid": null,
                },
                {
                    "name": "mlx5_10", "netdev": "ib0", "port": 1, "state": "INIT", "phys_state": "LINK_UP",
                    "link_layer": "InfiniBand", "rate_gbps": 2.5, "active_mtu": 4096, "firmware": "28.40.1000",
                    "board_id": "DEL0000000027", "gid_rocev2": null,
                    "roce": {"on": false, "lacks": "link_type"}, "sm_lid": 48,
                },
            ],
            "service_manager": "systemd",
            "session": {"interface": "eno1", "address": "10.1.0.5"},
        })
    );
    assert_eq!(
        warnings,
        [
            "what is written to this host's root doesn't survive a reboot (it is in memory): make what is to last in its \
          image"
        ]
    );
}

#[test]
fn what_playbooks_are_checked_against_is_what_there_is() {
    let (facts, _) = node(None);
    let keys = |value: &Value| value.as_object().map_or(Vec::new(), |o| o.keys().cloned().collect());
    let known = crate::playbook::FACTS;
    assert_eq!(keys(&facts), known.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (name, known) in known {
        assert_eq!(keys(&facts[name]), *known, "{name}");
    }
}

#[test]
fn what_could_not_be_found_out_is_null_and_said() {
    let (facts, warnings) = node(Some("links"));
    assert_eq!(facts["interfaces"], Value::Null);
    assert_eq!(facts["rdma"][0]["active_mtu"], Value::Null);
    assert_eq!(facts["session"], json!({"interface": null, "address": "10.1.0.5"}));
    assert_eq!(warnings[0], "a part of the facts is missing: it was cut off");
    let (facts, _) = node(Some("facts of RDMA"));
    assert_eq!((&facts["rdma"], &facts["interfaces"][1]["firmware"]), (&Value::Null, &Value::Null));
    let (facts, _) = node(Some("facts of the host"));
    assert_eq!((&facts["host"], &facts["kernel"]), (&Value::Null, &Value::Null));
    assert_eq!(facts["interfaces"][0]["name"], "eno1");
}

#[test]
fn this_machine_has_facts_in_every_shell() {
    let text = |path: &str| std::fs::read_to_string(path).unwrap().trim().to_owned();
    for shell in Shell::ALL {
        let (facts, _) = read(&ask(shell, questions()));
        assert_eq!(facts["kernel"], text("/proc/sys/kernel/osrelease"), "{shell:?}");
        assert_eq!(facts["host"]["boot_id"], text("/proc/sys/kernel/random/boot_id"));
        assert_eq!(facts["host"]["name"], text("/proc/sys/kernel/hostname"));
        assert_eq!(facts["cpus"]["online"], text("/sys/devices/system/cpu/online"));
        assert!(facts["memory_mib"].as_u64().unwrap() > 100 && facts["cpus"]["count"].as_u64().unwrap() > 0);
        let names: Vec<&str> =
            facts["interfaces"].as_array().unwrap().iter().filter_map(|i| i["name"].as_str()).collect();
        assert!(names.contains(&"lo"), "{shell:?}: {names:?}");
        assert!(facts["rdma"].is_array() && facts["session"].is_object(), "{shell:?}");
    }
}

#[test]
fn probes_say_nothing_on_standard_error() {
    let inquiry = Inquiry::new(questions());
    for shell in Shell::ALL {
        for fragment in inquiry.fragments() {
            let output = shell.run(fragment.script.as_str());
            assert_eq!((output.code, output.stderr.as_slice()), (0, &b""[..]), "{shell:?}: {}", output.complaint());
        }
    }
}
