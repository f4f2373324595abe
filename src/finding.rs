//! Findings: what is wrong with a fabric, by name, with its likely cause and what mends it. Whatever looks at hosts names
//! what it finds by this table, so that each cause and remedy is worded once.

use std::sync::Arc;

/// A finding as it is known beforehand.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// Its name, by which scripts know it.
    pub name: &'static str,
    /// What is seen, in one sentence.
    pub seen: &'static str,
    /// The likely cause. `{word}` stands for what is known in the case at hand.
    pub cause: &'static str,
    /// What mends it: lines of a playbook and commands, in backticks. `{word}` as in `cause`.
    pub remedy: &'static str,
}

/// A finding at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its name.
    pub name: &'static str,
    /// The hosts that have it, each once.
    pub hosts: Vec<Arc<str>>,
    /// The two hosts between which it is, where neither of them has it alone. Packets from the first to the second are
    /// those concerned.
    pub pair: Option<(Arc<str>, Arc<str>)>,
    /// What was seen: values with their units.
    pub evidence: String,
    /// The likely cause.
    pub cause: String,
    /// What mends it.
    pub remedy: String,
}

impl Finding {
    /// One on these hosts; `words` are put in for `{word}` of the cause and the remedy.
    pub fn new(
        known: &'static Known,
        hosts: impl IntoIterator<Item = Arc<str>>,
        evidence: impl Into<String>,
        words: &[(&str, &str)],
    ) -> Finding {
        let put_in = |text: &str| {
            words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(&format!("{{{word}}}"), value))
        };
        let mut once: Vec<Arc<str>> = Vec::new();
        for host in hosts {
            if !once.contains(&host) {
                once.push(host);
            }
        }
        Finding {
            name: known.name,
            hosts: once,
            pair: None,
            evidence: evidence.into(),
            cause: put_in(known.cause),
            remedy: put_in(known.remedy),
        }
    }

    /// Whether it is the same thing of the same hosts, and maybe of more.
    pub fn tells(&self, other: &Finding) -> bool {
        (self.name, &self.evidence) == (other.name, &other.evidence)
            && other.hosts.iter().all(|host| self.hosts.contains(host))
    }

    /// The same between these two.
    #[must_use]
    pub fn between(mut self, from: &Arc<str>, to: &Arc<str>) -> Finding {
        self.pair = Some((from.clone(), to.clone()));
        self
    }
}

/// All that can be found, in the order of the names.
pub const FINDINGS: &[&Known] = &[
    &BOND_ON_ONE_LEG,
    &CONGESTION_CONTROL_INACTIVE,
    &DRIVER_DIFFERS,
    &DUPLICATE_ADDRESS,
    &ERROR_COUNTERS,
    &FIRMWARE_DIFFERS,
    &FIRMWARE_SETTINGS_DIFFER,
    &GOT_WORSE,
    &HARDWARE_DIFFERS,
    &IRQBALANCE_MOVES_INTERRUPTS,
    &KERNEL_DIFFERS,
    &LINK_DOWN,
    &LINK_LAYER_DIFFERS,
    &MEMLOCK_LIMITED,
    &MTU_DIFFERS,
    &MTU_TOO_SMALL,
    &NO_PEER,
    &NO_SUBNET_MANAGER,
    &PACKET_LOSS,
    &PATH_MTU,
    &PCIE_DEGRADED,
    &PEER_UNREACHABLE,
    &PORT_BLOCKED,
    &QOS_DIFFERS,
    &RDMA_DRIVER_MISSING,
    &RDMA_PORT_DOWN,
    &RDMA_SLOW,
    &RDMA_TIMEOUT,
    &RDMA_UNUSABLE,
    &RING_DROPS,
    &SERVICE_DIFFERS,
    &SLOW_RAIL,
    &SPEED_DIFFERS,
    &SSH_SMALL_PACKETS,
    &SYSCTL_DIFFERS,
    &TCP_SLOW,
    &TEST_FAILED,
    &TOOL_MISSING,
    &TWO_SUBNET_MANAGERS,
    &UVERBS_MISSING,
    &UVERBS_PERMISSIONS,
];

/// A bond lacks a port.
pub const BOND_ON_ONE_LEG: Known = Known {
    name: "bond_on_one_leg",
    seen: "A bond runs on fewer ports than it has, or has one only: half of its rate, and nothing left when that fails.",
    cause: "a cable or transceiver that is out or broken, a switch port that is shut, or a port that was taken out of the bond",
    remedy: "`ip link set {port} up`; if it stays down: `ethtool {port}`, `ethtool -m {port}`, the switch's port; `cat /proc/net/bonding/{interface}` shows its ports",
};

/// A congestion control isn't active.
pub const CONGESTION_CONTROL_INACTIVE: Known = Known {
    name: "congestion_control_inactive",
    seen: "The host's files ask for a congestion control of TCP (BBR), and another one is active.",
    cause: "its module isn't there or isn't loaded when the files are read (tcp_bbr), or somebody set another one since",
    remedy: "`sysctl: {name: net.ipv4.tcp_congestion_control, value: {wanted}}` brings the module too; `sysctl net.ipv4.tcp_available_congestion_control` shows what the kernel has",
};

/// Drivers differ.
pub const DRIVER_DIFFERS: Known = Known {
    name: "driver_differs",
    seen: "Hosts have another driver, or another version of it, than most others.",
    cause: "a driver that was installed, or updated with the kernel, on some hosts only",
    remedy: "install the same package everywhere (`package: {name: NAME}`), then `netplay reboot -i INVENTORY --limit HOSTS`; `modinfo DRIVER` shows the one of the next boot",
};

/// Two hosts have one address.
pub const DUPLICATE_ADDRESS: Known = Known {
    name: "duplicate_address",
    seen: "Two hosts have the same address on the same interface of the fabric.",
    cause: "an address that came with a copied file or image, or was given twice",
    remedy: "give one of them another address; `arping -D -I {interface} {address}` on a third host shows who answers",
};

/// Counters of errors rose.
pub const ERROR_COUNTERS: Known = Known {
    name: "error_counters",
    seen: "Counters of errors of a card or a port rose while the fabric was tested.",
    cause: "symbols and CRCs: a dirty or bent fibre, a cable or transceiver; discards and packets out of sequence: a queue without PFC, or a switch that drops; rings: too small",
    remedy: "`ethtool -S {place}`, `ethtool -m {place}`, `perfquery`; for discards `roce_qos: {interface: {place}, trust: dscp, pfc: [3], ecn: [3]}`; for rings `nic: {interface: {place}, rings: {rx: max}}`",
};

/// Firmware differs.
pub const FIRMWARE_DIFFERS: Known = Known {
    name: "firmware_differs",
    seen: "Network cards of one board identity (PSID) run another firmware than on most hosts.",
    cause: "cards that were exchanged, or left out when the others were burnt, or a new image that waits for a boot",
    remedy: "burn the image of the others (`mlxfwmanager`, `mstflint -d ADDRESS -i IMAGE burn`) and reboot; `firmware: {device: all, version: {{board}: '>= {version}'}}` keeps watch",
};

/// Parameters of cards differ.
pub const FIRMWARE_SETTINGS_DIFFER: Known = Known {
    name: "firmware_settings_differ",
    seen: "Parameters of network cards (mlxconfig) are others than on most hosts, now or at the next boot.",
    cause: "a card that was exchanged or reset, a host that was left out, or a change that waits for a boot",
    remedy: "`mlxconfig: {device: all, set: {{values}}}`, and a reboot",
};

/// Something got worse.
pub const GOT_WORSE: Known = Known {
    name: "got_worse",
    seen: "Less comes through than in earlier runs, or it takes longer, by more than it has varied.",
    cause: "what was changed since: firmware, a driver, a kernel, a cable, a switch; or somebody else's traffic",
    remedy: "`netplay audit` on its hosts; the logs of earlier runs tell since when ({check} of {interface}); measure again with nobody else there",
};

/// A card is missing.
pub const HARDWARE_DIFFERS: Known = Known {
    name: "hardware_differs",
    seen: "Hosts have another number of RDMA devices, or of interfaces of the fabric, than most others.",
    cause: "a card that failed or isn't seated, a driver that isn't loaded, an address that is missing, or virtual functions on some hosts only",
    remedy: "`lspci -d 15b3:` and `dmesg | grep mlx5` on a host that differs and on one that doesn't; `kernel_module: {name: mlx5_ib}` if the driver is missing",
};

/// irqbalance undoes irq_affinity.
pub const IRQBALANCE_MOVES_INTERRUPTS: Known = Known {
    name: "irqbalance_moves_interrupts",
    seen: "irqbalance runs on a host whose interrupts netplay has placed: it moves them again.",
    cause: "irqbalance was started, or installed, after `irq_affinity` was applied",
    remedy: "`service: {name: irqbalance, state: stopped, enabled: false}`, then `irq_affinity` again",
};

/// Kernels differ.
pub const KERNEL_DIFFERS: Known = Known {
    name: "kernel_differs",
    seen: "Hosts run another kernel than most others.",
    cause: "an update that wasn't made everywhere, or waits for a boot",
    remedy: "update them (`package: {name: NAME}`), then `netplay reboot -i INVENTORY --limit HOSTS`",
};

/// An interface of the fabric has no carrier.
pub const LINK_DOWN: Known = Known {
    name: "link_down",
    seen: "An interface that has a link on other hosts has none here.",
    cause: "a cable or transceiver that is out or broken, a switch port that is shut, or an interface that is switched off",
    remedy: "`ip link set {interface} up`; if it stays down: `ethtool {interface}`, `ethtool -m {interface}`, and the switch's port",
};

/// A port's link layer is another than its peers'.
pub const LINK_LAYER_DIFFERS: Known = Known {
    name: "link_layer_differs",
    seen: "An RDMA port is Ethernet where those of its peers are InfiniBand, or the other way round.",
    cause: "the card's firmware has another LINK_TYPE here",
    remedy: "`mlxconfig: {device: {device}, set: {LINK_TYPE_P1: {wanted}}}`, and a reboot",
};

/// Too little memory can be locked.
pub const MEMLOCK_LIMITED: Known = Known {
    name: "memlock_limited",
    seen: "A user may lock so little memory that RDMA can't register its buffers: `Cannot allocate memory`, `Couldn't allocate MR`.",
    cause: "no limit of locked memory was set for logins; services have their own",
    remedy: "`copy: {dest: /etc/security/limits.d/90-rdma.conf, content: '* - memlock unlimited'}` and a new login; for a service, such as slurmd, `LimitMEMLOCK=infinity` in its unit",
};

/// MTUs differ.
pub const MTU_DIFFERS: Known = Known {
    name: "mtu_differs",
    seen: "An interface has another MTU than the same one of most other hosts in its network.",
    cause: "it was changed on some hosts only: a play that was limited to others, a host that was down then, or installed anew since",
    remedy: "`mtu: {interface: {interface}, mtu: {mtu}}`",
};

/// An interface has a smaller MTU than it should.
pub const MTU_TOO_SMALL: Known = Known {
    name: "mtu_too_small",
    seen: "An interface of the fabric has a smaller MTU than was asked for, or than its peers on the rail have.",
    cause: "it was never raised on this host, or a boot or a restart of the network has set it back",
    remedy: "`mtu: {interface: {interface}, mtu: {mtu}}`",
};

/// A host has nobody to be tested with.
pub const NO_PEER: Known = Known {
    name: "no_peer",
    seen: "A host has no interface in a network that another host of the play is in.",
    cause: "an address of the fabric that is missing or has another prefix, or an interface of another name",
    remedy: "give the interface its address, name interfaces in the check (`interface: NAME`), or leave the host out: `--limit 'all:!NAME'`",
};

/// InfiniBand without a subnet manager.
pub const NO_SUBNET_MANAGER: Known = Known {
    name: "no_subnet_manager",
    seen: "The link of an InfiniBand port is up, and its state stays INIT.",
    cause: "no subnet manager has configured the port: none runs in this fabric, or it can't reach the port",
    remedy: "on one host of the fabric, or two: `service: {name: opensm, state: started, enabled: true}`",
};

/// Packets are lost.
pub const PACKET_LOSS: Known = Known {
    name: "packet_loss",
    seen: "Some of many packets that were sent don't arrive.",
    cause: "a dirty or bent fibre, a cable or transceiver that fails, a queue that overflows without flow control, or one leg of a bond that drops",
    remedy: "`ethtool -S {interface}` on the host (err, discard, drop), the same counters of the switch's port; then clean or change the cable",
};

/// Large packets vanish.
pub const PATH_MTU: Known = Known {
    name: "path_mtu",
    seen: "Small packets pass between two hosts, and those of the full MTU don't.",
    cause: "a hop between them has a smaller MTU: a switch port or VLAN that wasn't raised ({where})",
    remedy: "raise the MTU of the switch's ports to 9216 or more, and of the VLAN's interface where the fabric is routed; then `netplay verify` again",
};

/// PCIe below what the card can.
pub const PCIE_DEGRADED: Known = Known {
    name: "pcie_degraded",
    seen: "A network card talks to the machine over fewer PCIe lanes, or more slowly, than it can.",
    cause: "a card that isn't seated well, a slot with fewer lanes or of an older generation, or a setting of the BIOS (bifurcation, link speed)",
    remedy: "reseat the card, or move it to a slot of x{lanes}; `lspci -vv -s {pci}` shows what it can (LnkCap) and has (LnkSta)",
};

/// Nothing passes.
pub const PEER_UNREACHABLE: Known = Known {
    name: "peer_unreachable",
    seen: "Not even small packets pass between two hosts that should reach each other.",
    cause: "a firewall that drops ICMP, another VLAN, a wrong address or route, or a link that is up at its own end only ({where})",
    remedy: "`firewall_rule: {name: fabric-ping, protocol: icmp, source: {network}}` if a firewall is on; otherwise `ip neigh show dev {interface}` and the switch's VLAN",
};

/// A test's server isn't reached.
pub const PORT_BLOCKED: Known = Known {
    name: "port_blocked",
    seen: "Hosts reach each other, and the port of a test's server isn't reached.",
    cause: "a firewall, on the host or between",
    remedy: "`firewall_rule: {name: {check}, protocol: tcp, port: {port}, source: {network}}`",
};

/// Quality of service differs.
pub const QOS_DIFFERS: Known = Known {
    name: "qos_differs",
    seen: "Ports have another trust, PFC, ECN, pause or traffic class than on most hosts: what one pauses or marks others don't.",
    cause: "it was changed on some hosts only: a play that was limited to others, a host that was down then, or installed anew since, or a boot that lost it",
    remedy: "`roce_qos: {interface: {interface}, trust: dscp, pfc: [3], ecn: [3]}` with the values of most hosts, as on the switch",
};

/// No driver has taken a card.
pub const RDMA_DRIVER_MISSING: Known = Known {
    name: "rdma_driver_missing",
    seen: "A network card has no RDMA device, nor anything else that uses it.",
    cause: "a driver that isn't loaded or failed (mlx5_core, mlx5_ib), or firmware that doesn't run",
    remedy: "`kernel_module: {name: mlx5_core}`, `kernel_module: {name: mlx5_ib}`; `dmesg | grep -i {pci}` says why it failed",
};

/// An RDMA port isn't active.
pub const RDMA_PORT_DOWN: Known = Known {
    name: "rdma_port_down",
    seen: "An RDMA port that is ACTIVE on other hosts isn't here.",
    cause: "a cable or transceiver that is out or broken, a switch port that is shut, or, with RoCE, an interface that is switched off",
    remedy: "`ibstat {device}` and `rdma link show`; then the cable and the switch's port",
};

/// Too little comes through by RDMA.
pub const RDMA_SLOW: Known = Known {
    name: "rdma_slow",
    seen: "Less comes through by RDMA than the port and PCIe can carry, or a message takes longer than it may.",
    cause: "a queue that drops, or is paused by others (PFC and ECN set differently), relaxed ordering that is off, a small maximum read request, or a card far from the memory that is used",
    remedy: "`roce_qos: {interface: {interface}, trust: dscp, pfc: [3], ecn: [3]}` as on the switch, `nic: {interface: {interface}, max_read_request: 4096}`, `ethtool -S {interface}` (pause, discard)",
};

/// A connection of RDMA broke off.
pub const RDMA_TIMEOUT: Known = Known {
    name: "rdma_timeout",
    seen: "A connection of RDMA didn't come to be, or broke off in the middle of a test, though TCP works.",
    cause: "packets that vanish: an MTU that a hop doesn't pass, UDP port 4791 closed by a firewall, a GID of another type or address, or a queue that overflows without PFC and ECN",
    remedy: "`path_mtu` in a suite; `firewall_rule: {name: roce, protocol: udp, port: 4791, source: {network}}`; `roce_qos: {interface: {interface}, trust: dscp, pfc: [3], ecn: [3]}`",
};

/// An RDMA device can't be used.
pub const RDMA_UNUSABLE: Known = Known {
    name: "rdma_unusable",
    seen: "An RDMA device is missing, or can't be opened, or gives no memory or queue.",
    cause: "a driver that isn't loaded (mlx5_ib, ib_uverbs), rights on /dev/infiniband, or a limit of locked memory",
    remedy: "`kernel_module: {name: mlx5_ib}`, `kernel_module: {name: ib_uverbs}`; `ulimit -l` of the user who runs it should say unlimited: `copy: {dest: /etc/security/limits.d/rdma.conf, content: '* - memlock unlimited'}`",
};

/// Rings overflow.
pub const RING_DROPS: Known = Known {
    name: "ring_drops",
    seen: "Packets were dropped as the rings of a card, or its receive queue, were full while the fabric was tested.",
    cause: "rings that are too small, interrupts on few or far CPUs, or a CPU that saves power",
    remedy: "`nic: {interface: {place}, rings: {rx: max}}`, `irq_affinity: {interface: {place}}`; `ethtool -g {place}` shows what it has and can",
};

/// A service differs.
pub const SERVICE_DIFFERS: Known = Known {
    name: "service_differs",
    seen: "A service that moves interrupts runs on some hosts and not on others.",
    cause: "it was changed on some hosts only: a play that was limited to others, a host that was down then, or installed anew since",
    remedy: "`service: {name: irqbalance, state: started, enabled: true}`, or, where interrupts are placed by `irq_affinity`, `state: stopped` and `enabled: false`",
};

/// A rail is slow on all hosts.
pub const SLOW_RAIL: Known = Known {
    name: "slow_rail",
    seen: "Less comes through between all hosts on one rail, and enough on the others.",
    cause: "the switch of this rail: a port speed, an uplink, its PFC and ECN, or a rate limit",
    remedy: "the same test with one pair (`--limit`); on the switch of the rail: speeds, uplinks, drops and pause of its ports; `ethtool {interface}` on the hosts",
};

/// A link is slower than its peers'.
pub const SPEED_DIFFERS: Known = Known {
    name: "speed_differs",
    seen: "A link has another speed than the same one of most other hosts.",
    cause: "a link that came up with fewer lanes, a cable or transceiver of another speed, or a switch port that is set to it",
    remedy: "`ethtool {interface}` shows lanes and what is negotiated; reseat or change the cable, and look at the switch's port",
};

/// SSH hangs in its key exchange.
pub const SSH_SMALL_PACKETS: Known = Known {
    name: "ssh_small_packets",
    seen: "A host takes connections and names itself, and falls silent when larger packets have to come through.",
    cause: "an MTU on the way to the host that is smaller than its own, and ICMP that is dropped, so that it doesn't learn of that; or an sshd that hangs",
    remedy: "`ping -M do -s 1472 ADDRESS` and smaller sizes show what passes; raise the MTU of the hop, or lower the one of the interface that carries SSH: `mtu: {interface: NAME, mtu: 1500}`; until then `ip route replace NETWORK dev NAME mtu lock 1400` on its console",
};

/// Kernel parameters differ.
pub const SYSCTL_DIFFERS: Known = Known {
    name: "sysctl_differs",
    seen: "Kernel parameters have other values than on most hosts: only some hosts were changed.",
    cause: "it was changed on some hosts only: a play that was limited to others, a host that was down then, or installed anew since",
    remedy: "`sysctl: {values: {{values}}}`",
};

/// Too little comes through by TCP.
pub const TCP_SLOW: Known = Known {
    name: "tcp_slow",
    seen: "Less comes through by TCP than the link can carry.",
    cause: "segments that are sent again: loss on the way; none: interrupts on few or far CPUs, small socket buffers, an MTU of 1500, a CPU that saves power, a rate that is limited",
    remedy: "`loss` in a suite tells whether packets are lost; otherwise `irq_affinity: {interface: {interface}}`, `sysctl: {values: {net.core.rmem_max: 134217728, net.core.wmem_max: 134217728}}`, `mtu: {interface: {interface}, mtu: 9000}`, and `tc qdisc show dev {interface}`",
};

/// A test couldn't be made.
pub const TEST_FAILED: Known = Known {
    name: "test_failed",
    seen: "A test couldn't be made, so that nothing is known of what it is about.",
    cause: "what its tool says",
    remedy: "`netplay verify -vv` shows the commands of {check}, to be run by hand; what a user isn't permitted takes root's rights: `become: true` in the play",
};

/// A tool isn't there.
pub const TOOL_MISSING: Known = Known {
    name: "tool_missing",
    seen: "What a check needs isn't installed on a host.",
    cause: "{tool} isn't installed",
    remedy: "`package: {name: {package}}`",
};

/// Ports know different subnet managers.
pub const TWO_SUBNET_MANAGERS: Known = Known {
    name: "two_subnet_managers",
    seen: "Ports of one InfiniBand fabric know different subnet managers: there are two masters, or two fabrics.",
    cause: "a fabric that has fallen apart, or a second subnet manager that doesn't see the first",
    remedy: "`sminfo` and `ibnetdiscover` on a host of each side; where the fabric is whole, on all hosts but the one that is meant: `service: {name: opensm, state: stopped, enabled: false}`",
};

/// ib_uverbs isn't there.
pub const UVERBS_MISSING: Known = Known {
    name: "uverbs_missing",
    seen: "Programs can't open an RDMA device, as it has no file below /dev/infiniband.",
    cause: "ib_uverbs isn't loaded, or a container doesn't have the files",
    remedy: "`kernel_module: {name: ib_uverbs}`; in a container: give it /dev/infiniband",
};

/// Users may not open an RDMA device.
pub const UVERBS_PERMISSIONS: Known = Known {
    name: "uverbs_permissions",
    seen: "The file that opens an RDMA device may not be read and written by users.",
    cause: "a rule of udev that isn't there (rdma-core brings one) or another one that wins",
    remedy: "`package: {name: rdma-core}` and `udevadm trigger --subsystem-match=infiniband_verbs`; a rule: `KERNEL==\"uverbs*\", MODE=\"0666\"`",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_words_are_put_in() {
        assert!(FINDINGS.is_sorted_by(|a, b| a.name < b.name));
        for known in FINDINGS {
            assert!(known.seen.ends_with('.') && !known.cause.ends_with('.') && !known.remedy.ends_with('.'));
        }
        let n1: Arc<str> = "n1".into();
        let found = Finding::new(
            &MTU_TOO_SMALL,
            [n1.clone(), n1.clone()],
            "eth1 has 1500",
            &[("interface", "eth1"), ("mtu", "9000")],
        );
        assert_eq!((found.name, found.hosts.as_slice()), ("mtu_too_small", [n1].as_slice()));
        assert_eq!(found.remedy, "`mtu: {interface: eth1, mtu: 9000}`");
    }
}
