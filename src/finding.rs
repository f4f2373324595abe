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

    /// The same between these two.
    #[must_use]
    pub fn between(mut self, from: &Arc<str>, to: &Arc<str>) -> Finding {
        self.pair = Some((from.clone(), to.clone()));
        self
    }
}

/// All that can be found, in the order of the names.
pub const FINDINGS: &[&Known] = &[
    &DUPLICATE_ADDRESS,
    &ERROR_COUNTERS,
    &LINK_DOWN,
    &LINK_LAYER_DIFFERS,
    &MTU_TOO_SMALL,
    &NO_PEER,
    &NO_SUBNET_MANAGER,
    &PACKET_LOSS,
    &PATH_MTU,
    &PCIE_DEGRADED,
    &PEER_UNREACHABLE,
    &PORT_BLOCKED,
    &RDMA_PORT_DOWN,
    &RDMA_SLOW,
    &RDMA_TIMEOUT,
    &RDMA_UNUSABLE,
    &SPEED_DIFFERS,
    &TCP_SLOW,
    &TEST_FAILED,
    &TOOL_MISSING,
];

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

/// A link is slower than its peers'.
pub const SPEED_DIFFERS: Known = Known {
    name: "speed_differs",
    seen: "A link has another speed than the same one of most other hosts.",
    cause: "a link that came up with fewer lanes, a cable or transceiver of another speed, or a switch port that is set to it",
    remedy: "`ethtool {interface}` shows lanes and what is negotiated; reseat or change the cable, and look at the switch's port",
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
