//! What needs a kernel of its own: bonds and VLANs, modules, parameters that no namespace has, and a real boot.
//!
//! The tests share one machine, as a boot of it takes long, and each leaves it as it was.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Host, Hosts, Kind, Netplay, ssh};
use crate::told::{Told, apply, play};

/// The MTUs of the stack, from below: `eth1 eth2 bond0 bond0.7`.
fn mtus(host: Host<'_>) -> String {
    host.sh("cd /sys/class/net; for i in eth1 eth2 bond0 bond0.7; do cat $i/mtu 2>/dev/null || echo none; done | xargs")
        .trim()
        .to_owned()
}

#[track_caller]
fn wait_for_mtus(host: Host<'_>, wanted: &str) {
    let start = Instant::now();
    while mtus(host) != wanted {
        assert!(start.elapsed() < Duration::from_secs(60), "{} instead of {wanted} after a minute", mtus(host));
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// What a test may leave behind: modules, interfaces, files, values.
fn picture(host: Host<'_>) -> String {
    host.sh(
        "cd /sys/module; for m in */initstate; do echo ${m%/*}; done; ls /sys/class/net /etc/modules-load.d /etc/modprobe.d \
         /etc/sysctl.d /etc/systemd/network; sysctl net.core.rmem_max net.core.rps_sock_flow_entries \
         net.ipv4.tcp_congestion_control; cat /sys/class/net/eth[012]/mtu",
    )
}

/// Unloads the modules that weren't there, and asserts that nothing else is left behind.
#[track_caller]
fn leave(host: Host<'_>, before: &str) {
    let start = Instant::now();
    // Those that others use go in a later round: other modules, and sockets that are still closing.
    loop {
        host.sh(&format!(
            "cd /sys/module; before='{before}'; for m in */initstate; do m=${{m%/*}}
               echo \"$before\" | grep -qxF $m || rmmod $m 2>/dev/null || :; done"
        ));
        let now = picture(host);
        if now == before {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{now}\ninstead of\n{before}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The facts of an interface.
fn interface(hosts: &Hosts, name: &str) -> Value {
    let run = Netplay::new(hosts, &["facts", "-i", "inventory.yaml"]).run().exits(0);
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    let interfaces = told[hosts.first().0]["interfaces"].as_array().unwrap();
    interfaces.iter().find(|i| i["name"] == name).unwrap_or_else(|| panic!("no {name} in {interfaces:?}")).clone()
}

#[test]
fn a_bond_and_its_vlan_are_raised_from_below_and_lowered_from_above() {
    let hosts = Hosts::take(Kind::Vm, 1);
    let host = hosts.first();
    let before = picture(host);
    host.sh("ip link add bond0 type bond mode active-backup miimon 100
         for i in eth1 eth2; do ip link set $i down; ip link set $i master bond0; done
         ip link set bond0 up; ip link add link bond0 name bond0.7 type vlan id 7; ip link set bond0.7 up");
    // The upper one stands first in the playbook.
    let stack = |mtu: u32| {
        let one = |i| format!("    - mtu: {{interface: {i}, mtu: {mtu}, persist: false}}\n");
        play(&["bond0.7", "eth1", "bond0"].map(one).concat())
    };
    let mut netplay = apply(&hosts, "", &[]);
    for mtu in [9000, 1500] {
        netplay = netplay.file("site.yaml", &stack(mtu));
        let told = Told::by(&netplay, 0);
        assert_eq!(mtus(host), [mtu.to_string().as_str(); 4].join(" "), "{}", told.run.stdout);
        assert_eq!((told.count("changed"), told.executions(host.0)), (3, 2), "{}", told.run.stdout);
        assert!(told.warnings().contains("eth1 is a port of bond0"), "{}", told.warnings());
        let again = Told::by(&netplay, 0);
        assert_eq!((again.count("ok"), again.executions(host.0)), (3, 1), "{}", again.run.stdout);
    }

    let refused = |resource: &str, address: &str, why: &str| {
        let resources = format!("    - mtu: {{{resource}, persist: false}}\n");
        let said = Told::by(&apply(&hosts, &play(&resources), &[]), 2).error(address);
        assert!(said.contains(why), "{said}");
        assert_eq!(mtus(host), "1500 1500 1500 1500");
    };
    refused("interface: eth1, mtu: 9000", "mtu:eth1", "eth1 is a port of bond0, which carries its own MTU down to it");
    refused(
        "interface: bond0.7, mtu: 9000",
        "mtu:bond0.7",
        "bond0.7 can't have a larger MTU than bond0, on which it stands and which has 1500",
    );
    host.sh("ip link del bond0; networkctl reconfigure eth1 eth2");
    leave(host, &before);
}

/// What networkd makes at boot: a bond of both rails and a VLAN on it. Their names sort before the lab's own files.
const STACK: [(&str, &str); 5] = [
    ("bond0.netdev", "[NetDev]\nName=bond0\nKind=bond\n[Bond]\nMode=active-backup\n"),
    ("vlan.netdev", "[NetDev]\nName=bond0.7\nKind=vlan\n[VLAN]\nId=7\n"),
    ("ports.network", "[Match]\nName=eth1 eth2\n[Network]\nBond=bond0\n"),
    ("bond0.network", "[Match]\nName=bond0\n[Network]\nVLAN=bond0.7\nLinkLocalAddressing=no\n"),
    ("vlan.network", "[Match]\nName=bond0.7\n[Network]\nLinkLocalAddressing=no\n"),
];

#[test]
fn what_is_written_lasts_over_a_reboot() {
    let hosts = Hosts::take(Kind::Vm, 1);
    let host = hosts.first();
    let before = picture(host);
    for (name, text) in STACK {
        host.sh(&format!("printf '{}' >/etc/systemd/network/05-{name}", text.replace('\n', "\\n")));
    }
    host.sh("networkctl reload; modprobe dummy numdummies=1; modprobe 8021q");
    wait_for_mtus(host, "1500 1500 1500 1500");
    let resources = "    - mtu: {interface: bond0.7, mtu: 9000}
    - mtu: {interface: bond0, mtu: 9000}
    - sysctl: {values: {net.ipv4.tcp_congestion_control: bbr, net.core.rmem_max: 134217728, net.netfilter.nf_conntrack_max: 500000}}
    - kernel_module: {name: nf_conntrack, params: {hashsize: 65536}}
    - kernel_module: {name: sch_netem}
    - kernel_module: {name: dummy, state: absent}\n";
    let netplay = apply(&hosts, &play(resources), &[]);
    let live = "cat /proc/sys/net/ipv4/tcp_congestion_control /proc/sys/net/core/rmem_max \
                /proc/sys/net/netfilter/nf_conntrack_max /sys/module/nf_conntrack/parameters/hashsize \
                2>/dev/null || :
                for m in tcp_bbr nf_conntrack sch_netem dummy; do [ -e /sys/module/$m/initstate ] && echo $m; done; :";
    assert_eq!(host.sh(live), "cubic\n212992\ndummy\n");
    let changed = Told::by(&netplay, 0);
    assert_eq!(changed.count("changed"), 6, "{}", changed.run.stdout);
    let is_right = || {
        assert_eq!(host.sh(live), "bbr\n134217728\n500000\n65536\ntcp_bbr\nnf_conntrack\nsch_netem\n");
        let again = Told::by(&netplay, 0);
        assert_eq!((again.count("ok"), again.executions(host.0)), (6, 1), "{}", again.run.stdout);
    };
    wait_for_mtus(host, "9000 9000 9000 9000");
    is_right();

    let (boot, boots) = (host.boot_id(), host.boots());
    ssh(host.0, "systemctl reboot");
    host.wait_for_boot(boots + 1);
    assert_ne!(host.boot_id(), boot);
    wait_for_mtus(host, "9000 9000 9000 9000");
    is_right();
    for (name, kind, master) in
        [("eth1", "ethernet", "bond0".into()), ("bond0", "bond", Value::Null), ("bond0.7", "vlan", Value::Null)]
    {
        let told = interface(&hosts, name);
        assert_eq!((&told["kind"], &told["master"], &told["mtu"]), (&kind.into(), &master, &9000.into()), "{told}");
    }

    host.sh("cd /etc; rm -r systemd/network/05-* sysctl.d/99-zz-netplay.conf modprobe.d/zz-netplay-*
         rm modules-load.d/tcp_bbr.conf modules-load.d/nf_conntrack.conf modules-load.d/sch_netem.conf
         ip link del bond0; networkctl reload; networkctl reconfigure eth1 eth2
         sysctl -qw net.ipv4.tcp_congestion_control=cubic net.core.rmem_max=212992
         systemctl restart ssh # whose socket listens with what was the default when it was made");
    leave(host, &before);
}

#[test]
fn what_a_real_kernel_refuses_and_rounds() {
    let hosts = Hosts::take(Kind::Vm, 1);
    let host = hosts.first();
    let before = picture(host);
    host.sh("modprobe 8021q");
    let resources = "    - sysctl: {name: net.core.rmem_max, value: 100, persist: false}
    - sysctl: {name: net.core.rps_sock_flow_entries, value: 3000, persist: false}
    - kernel_module: {name: mrp, state: absent, persist: false}
    - kernel_module: {name: no-such-module, persist: false}
    - kernel_module: {name: nf_conntrack, params: {hashsize: 16384}, persist: false}\n";
    let netplay = apply(&hosts, &play(resources), &[]);
    let told = Told::by(&netplay, 2);
    for (address, why) in [
        ("sysctl:net.core.rmem_max", "net.core.rmem_max = 100: Invalid argument"),
        ("sysctl:net.core.rps_sock_flow_entries", "the kernel took it without an error, and it reads `4096`"),
        ("kernel_module:mrp", "mrp is in use by 8021q, so it isn't unloaded"),
        ("kernel_module:no_such_module", "no_such_module"),
    ] {
        let said = told.error(address);
        assert!(said.contains(why), "{address}: {said}");
    }
    assert_eq!(told.status("kernel_module:nf_conntrack"), "changed");
    // One that is loaded is never unloaded for a parameter; this one can be written.
    let other = netplay.file(
        "site.yaml",
        &play("    - kernel_module: {name: nf_conntrack, params: {hashsize: 32768}, persist: false}\n"),
    );
    assert_eq!(Told::by(&other, 0).status("kernel_module:nf_conntrack"), "changed");
    assert_eq!(Told::by(&other, 0).status("kernel_module:nf_conntrack"), "ok");
    assert_eq!(host.sh("cat /sys/module/nf_conntrack/parameters/hashsize"), "32768\n");
    host.sh("sysctl -qw net.core.rps_sock_flow_entries=0");
    leave(host, &before);
}

#[test]
fn what_later_tests_need_is_in_its_kernel() {
    let hosts = Hosts::take(Kind::Vm, 1);
    let host = hosts.first();
    let before = picture(host);
    host.sh("for m in bonding 8021q dummy sch_netem sch_fq tcp_bbr nf_tables ip6_tables rdma_rxe mlx5_core mlx5_ib; do
           modprobe $m; done
         # The link may still be coming up after the test before, and with it the port.
         rdma link add rxe1 type rxe netdev eth1; n=0
         until ibv_devinfo -d rxe1 | grep -q PORT_ACTIVE; do
           [ $((n += 1)) -lt 100 ] || { ibv_devinfo -d rxe1; ip link show eth1; exit 1; }; sleep 0.2
         done; rdma link del rxe1
         tc qdisc add dev eth1 root netem delay 10ms; tc qdisc del dev eth1 root
         irq=$(grep virtio.*-input.0 /proc/interrupts | tail -n 1 | cut -d: -f1)
         pkill -STOP irqbalance || :
         echo 2 >/proc/irq/$((irq))/smp_affinity; [ $(cat /proc/irq/$((irq))/smp_affinity) = 2 ] || { echo irq $irq; exit 1; }
         pkill -CONT irqbalance || :
         ethtool -G eth1 rx 128; ethtool -g eth1 | grep -c '^RX:.*128'; ethtool -G eth1 rx 256
         iptables -A INPUT -i eth9 -j DROP; iptables -D INPUT -i eth9 -j DROP; nft add table ip t; nft flush ruleset");
    leave(host, &before);
}

#[test]
fn it_is_a_host_like_the_others() {
    let hosts = Hosts::take(Kind::Vm, 1);
    let host = hosts.first();
    let before = host.sessions();
    let run = ssh(&format!("ops@{}", host.0), "sudo -n cat /etc/hostname /proc/sys/kernel/osrelease");
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(said.starts_with(&format!("{}\n", host.0)), "{said}");
    assert_eq!(host.sessions(), before + 1);
    // A kernel of its own, not the machine's.
    let ours = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_ne!(said.lines().nth(1), Some(ours.trim()));
}

/// Where the interrupts of an interface's queues are handled, in the order of their numbers.
fn affinities(host: Host<'_>, interface: &str) -> String {
    host.sh(&format!(
        "for f in /sys/class/net/{interface}/device/../msi_irqs/*; do q=${{f##*/}}
           case $(cat /sys/kernel/irq/$q/actions) in *put.*) cat /proc/irq/$q/smp_affinity_list ;; esac; done | xargs"
    ))
    .trim()
    .to_owned()
}

/// Without irqbalance, or with it as it was. Not by a `service`: each reload of systemd takes long here.
fn balance(host: Host<'_>, on: bool) {
    let link = "/etc/systemd/system/multi-user.target.wants/irqbalance.service";
    host.sh(&match on {
        true => format!("ln -s /lib/systemd/system/irqbalance.service {link}; systemctl start irqbalance"),
        false => format!("systemctl stop irqbalance; rm {link}"),
    });
}

/// Real interrupts, of virtio cards with two queues, and a driver that really lets a card go and takes it again.
#[test]
fn interrupts_stay_where_they_were_put_when_the_driver_is_loaded_anew() {
    let hosts = Hosts::take(Kind::Vm, 1);
    let host = hosts.first();
    let before = picture(host);
    balance(host, false);
    let resources = "    - irq_affinity: {interface: eth1}
    - irq_affinity: {interface: eth2, cpus: 1}\n";
    let netplay = apply(&hosts, &play(resources), &[]);
    let changed = Told::by(&netplay, 0);
    assert_eq!((changed.count("failed"), changed.executions(host.0)), (0, 2), "{}", changed.run.stdout);
    assert_eq!((affinities(host, "eth1").as_str(), affinities(host, "eth2").as_str()), ("0 0 1 1", "1 1 1 1"));
    let again = Told::by(&netplay, 0);
    assert_eq!((again.count("ok"), again.executions(host.0)), (2, 1), "{}", again.run.stdout);

    // The driver puts the interrupts of each queue on a CPU of its own as it takes the card.
    host.sh("d=$(basename $(readlink -f /sys/class/net/eth2/device)); cd /sys/bus/virtio/drivers/virtio_net
         echo $d >unbind; [ ! -e /sys/class/net/eth2 ]; echo $d >bind");
    let start = Instant::now();
    while affinities(host, "eth2") != "1 1 1 1" {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", host.sh("journalctl -b -u netplay-reapply -o cat"));
        std::thread::sleep(Duration::from_millis(500));
    }
    host.sh("until [ $(systemctl is-active netplay-reapply) = inactive ]; do sleep 0.5; done");
    assert!(host.sh("journalctl -b -u netplay-reapply -o cat").contains("eth2: 4 interrupts of queues, "));

    // An interrupt that the kernel manages (of a disk) stands in for one of the card's: it refuses another CPU.
    let disk = host.sh("grep -l 'virtio[0-9]*-req.1' /sys/kernel/irq/*/actions | head -n 1 | cut -d/ -f5");
    let disk = disk.trim();
    let was = host.sh(&format!("cat /proc/irq/{disk}/smp_affinity_list"));
    host.sh(&format!(
        "d=$(readlink -f /sys/class/net/eth2/device/..)/msi_irqs; mkdir /run/msi; cp -r $d/. /run/msi; echo >/run/msi/{disk}
         mount --bind /run/msi $d"
    ));
    let managed = play("    - irq_affinity: {interface: eth2, cpus: 0}\n");
    let managed = apply(&hosts, &managed, &[]);
    for (status, executions) in [("changed", 2), ("ok", 1)] {
        let told = Told::by(&managed, 0);
        assert_eq!(
            (told.status("irq_affinity:eth2"), told.executions(host.0)),
            (status, executions),
            "{}",
            told.run.stdout
        );
        assert!(told.warnings().contains("1 of 5 interrupts of eth2 are managed by the kernel"), "{}", told.warnings());
    }
    assert_eq!(host.sh(&format!("cat /proc/irq/{disk}/smp_affinity_list")), was);
    assert_eq!(affinities(host, "eth2"), "0 0 0 0");

    host.sh("umount $(readlink -f /sys/class/net/eth2/device/..)/msi_irqs; rm -r /run/msi /run/netplay/managed-irqs");
    let gone = play(
        "    - irq_affinity: {interface: eth1, policy: all, persist: false}
    - irq_affinity: {interface: eth2, policy: all, persist: false}\n",
    );
    Told::by(&apply(&hosts, &gone, &[]), 0);
    assert_eq!(host.sh("find /etc -name '*netplay-reapply*'"), "");
    host.sh("networkctl reconfigure eth2");
    balance(host, true);
    leave(host, &before);
}

/// Rings and channels of real virtio cards. A driver with other channels puts their interrupts elsewhere.
#[test]
fn rings_and_channels_are_set_and_the_interrupts_after_them() {
    let hosts = Hosts::take(Kind::Vm, 1);
    let host = hosts.first();
    let before = picture(host);
    let show = "ethtool -g eth1 | grep -E '^[RT]X:' | tail -n 2; ethtool -l eth1 | grep Combined | tail -n 1";
    let initial = host.sh(show);
    balance(host, false);
    let affinity = "    - irq_affinity: {interface: eth1, cpus: 1, persist: false}\n";
    Told::by(&apply(&hosts, &play(affinity), &[]), 0);
    assert_eq!(affinities(host, "eth1"), "1 1 1 1");

    let nic = "    - nic: {interface: eth1, rings: {rx: 128, tx: 64}, channels: {combined: 1}, persist: false}\n";
    let netplay = apply(&hosts, &play(&format!("{affinity}{nic}")), &[]);
    let told = Told::by(&netplay, 0);
    assert_eq!(told.status("nic:eth1"), "changed", "{}", told.run.stdout);
    let words: Vec<String> = host.sh(show).split_whitespace().map(str::to_owned).collect();
    assert_eq!(words, ["RX:", "128", "TX:", "64", "Combined:", "1"]);
    assert_eq!(affinities(host, "eth1"), "1 1 1 1", "{}", told.run.stdout);
    let again = Told::by(&netplay, 0);
    assert_eq!((again.count("ok"), again.executions(host.0)), (2, 1), "{}", again.run.stdout);

    let refused = "    - nic: {interface: eth1, rings: {rx: 8192}, channels: {combined: 64}, max_read_request: 512, persist: false}\n";
    let said = Told::by(&apply(&hosts, &play(refused), &[]), 2).error("nic:eth1");
    for why in
        ["rings.rx of eth1 can't be 8192: the most that the device has is 256", "channels.combined of eth1 can't be 64"]
    {
        assert!(said.contains(why), "{said}");
    }
    assert!(said.contains("eth1 has no max_read_request to set: setpci says `setpci: "), "no PCI Express: {said}");

    host.sh("ethtool -G eth1 rx 256 tx 256; ethtool -L eth1 combined 2");
    balance(host, true);
    assert_eq!(host.sh(show), initial);
    leave(host, &before);
}

/// RoCE in software on `eth1`, which a boot forgets: a unit makes it again, as late as it may be.
const RXE: &str = "[Unit]\nAfter=netplay-reapply.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -c \"modprobe rdma_rxe; rdma link add rxe1 type rxe netdev eth1\"\n[Install]\nWantedBy=multi-user.target\n";
const LIVE: &str = "net.core.rmem_max net.core.wmem_max net.ipv4.tcp_rmem net.ipv4.tcp_wmem net.ipv4.tcp_congestion_control \
    net.ipv4.tcp_mtu_probing";

/// The playbook that is shipped, where modules, rings, interrupts and all parameters of the kernel are real, and RoCE too, in
/// software. Its card has no priorities (`qos` is left out); what `roce_qos` sets in configfs is real.
#[test]
fn the_shipped_playbook_converges_and_lasts_over_a_reboot() {
    let hosts = Hosts::take(Kind::Vm, 1);
    let host = hosts.first();
    let before = picture(host);
    let values = host.sh(&format!("sysctl {LIVE}"));
    host.sh(&format!(
        "cd /etc/systemd/system; printf '{}' >rxe.service; ln -s ../rxe.service multi-user.target.wants/
         modprobe rdma_rxe; rdma link add rxe1 type rxe netdev eth1",
        RXE.replace('\n', "\\n")
    ));
    let playbook = concat!(env!("CARGO_MANIFEST_DIR"), "/playbooks/site.yaml");
    let vars =
        r#"{"fabric_interfaces": ["eth1"], "fabric_ring_size": 128, "rdma_modules": ["rdma_ucm"], "roce_priority": 3}"#;
    let site = ["apply", "-i", "inventory.yaml", "--output", "ndjson", playbook, "-e", vars, "--skip-tags", "qos"];
    let site = Netplay::new(&hosts, &site);
    let first = Told::by(&site, 0);
    assert_eq!((first.count("changed"), first.count("failed")), (8, 0), "{}", first.run.stdout);
    let cm = "    - roce_qos: {interface: eth1, tos: 106, rdma_cm: 2, pause: false}\n";
    let cm = apply(&hosts, &play(cm), &[]);
    let told = Told::by(&cm, 0);
    let changes = told.resource(host.0, "roce_qos:eth1")["changes"].to_string();
    assert!(changes.contains("tos") && !changes.contains("pause"), "{changes}");
    let nothing_changes = || {
        let again = Told::by(&site, 0);
        assert_eq!((again.count("changed"), again.count("failed")), (0, 0), "{}", again.run.stdout);
        assert_eq!(again.executions_of("Tune the hosts of the fabric", host.0), 2, "one for the facts");
    };
    nothing_changes();
    host.reboot();
    wait_for_mtus(host, "9000 1500 none none");
    // The device is new after netplay-reapply has run, and failed for want of it: it runs again then.
    host.sh("n=0; until grep -qsx 106 /sys/kernel/config/rdma_cm/rxe1/ports/1/default_roce_tos; do
           [ $((n += 1)) -lt 240 ] || { systemctl status rxe netplay-reapply; exit 1; }; sleep 0.5
         done; until [ $(systemctl is-active netplay-reapply) != activating ]; do sleep 0.5; done");
    nothing_changes();
    let told = Told::by(&cm, 0);
    assert_eq!((told.count("ok"), told.executions(host.0)), (1, 1), "{}", told.run.stdout);
    let set = "cd /sys/kernel/config/rdma_cm/rxe1/ports/1; cat default_roce_tos default_roce_mode
         ethtool -g eth1 | grep -c '^[RT]X:.*128'; ls -d /sys/module/rdma_ucm; sysctl -n net.core.rmem_max";
    assert_eq!(host.sh(set), "106\nRoCE v2\n2\n/sys/module/rdma_ucm\n134217728\n");
    assert_eq!(affinities(host, "eth1"), "0 0 1 1");
    // Its port, as the kernel has it.
    let run = Netplay::new(&hosts, &["facts", "-i", "inventory.yaml"]).run().exits(0);
    let facts: Value = serde_json::from_str(&run.stdout).unwrap();
    let port = &facts[host.0]["rdma"][0];
    let keys = ["name", "netdev", "port", "state", "phys_state", "link_layer", "active_mtu", "roce", "sm_lid"];
    assert_eq!(
        keys.map(|key| port[key].to_string()).join(" "),
        r#""rxe1" "eth1" 1 "ACTIVE" "LINK_UP" "Ethernet" 4096 {"on":true,"lacks":null} null"#
    );
    let gid = host.sh(&format!("cat /sys/class/infiniband/rxe1/ports/1/gids/{}", port["gid_rocev2"]));
    assert!(gid.starts_with("0000:0000:0000:0000:0000:ffff:"), "{gid}");

    let undo: String = values.lines().map(|line| format!("sysctl -qw '{line}'\n")).collect();
    host.sh(&format!(
        "rmdir /sys/kernel/config/rdma_cm/rxe1; rdma link del rxe1; ! mountpoint -q /sys/kernel/config || umount /sys/kernel/config
         cd /etc; rm -r sysctl.d/99-zz-netplay.conf modules-load.d/tcp_bbr.conf modules-load.d/rdma_ucm.conf security/limits.d/90-rdma.conf \
           systemd/network/10-eth1.network.d netplay udev/rules.d/99-netplay-reapply.rules
         rm systemd/system/rxe.service systemd/system/netplay-reapply.service systemd/system/multi-user.target.wants/*re*apply* \
           systemd/system/multi-user.target.wants/rxe.service
         networkctl reload; networkctl reconfigure eth1; ip link set eth1 mtu 1500; ethtool -G eth1 rx 256 tx 256; {undo}
         systemctl restart ssh # whose socket listens with what was the default when it was made"
    ));
    balance(host, true);
    leave(host, &before);
}

#[test]
fn a_clock_that_jumps_does_not_change_when_something_is_taken_back() {
    let hosts = Hosts::take(Kind::Vm, 1);
    let host = hosts.first();
    let playbook = "- hosts: all
  become: true
  confirm: {timeout: 20, all: true, command: sleep 25}
  resources:
    - mtu: {interface: eth1, mtu: 1400, persist: false}\n";
    let netplay = Netplay::new(&hosts, &["apply", "-i", "inventory.yaml", "--output", "ndjson", "site.yaml"]);
    let netplay = netplay.file("site.yaml", playbook);
    let child = netplay.start();
    let until = |script: &str| {
        let start = Instant::now();
        while host.sh(&format!("if {script}; then echo yes; fi")).is_empty() {
            assert!(start.elapsed() < Duration::from_secs(90), "{script}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    until("test -e /run/netplay/ended");
    // What is left of the 20 s is counted by the machine, whatever its clock says and whoever is there to see it.
    host.sh("cut -d ' ' -f 1 /proc/uptime >/run/began; date -s '+2 hours'");
    let mut child = child;
    child.kill().unwrap();
    child.wait().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(
        host.sh("ls /var/lib/netplay/armed/back; date -s '-4 hours' >/dev/null"),
        "/var/lib/netplay/armed/back\n"
    );
    until("test -e /var/lib/netplay/armed/undone");
    let took = host.sh("read e rest </proc/uptime; read b </run/began; echo $((${e%.*} - ${b%.*}))");
    host.sh(&format!("date -s @{}", std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()));
    let took: u32 = took.trim().parse().unwrap();
    assert!((15..=40).contains(&took), "{took} s");
    assert_eq!(host.sh("cat /sys/class/net/eth1/mtu; rm -r /var/lib/netplay/armed /run/netplay /run/began"), "1500\n");
}
