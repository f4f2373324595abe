//! `ports`: whether links are up, and as fast as the card and its peers.

use super::fabric::{Nic, Node, Port, majority};
use super::{Judged, Verdict};
use crate::finding::{self, Finding};
use std::collections::HashMap;

/// Judges the ports and interfaces of all hosts together.
pub fn judge(nodes: &[Node], judged: &mut Judged) {
    let usual = Usual::of(nodes);
    for node in nodes {
        if node.nics.is_empty() && node.ports.is_empty() {
            let reason = "it has no interface of the fabric: none with an address, and no RDMA port";
            let found = Finding::new(&finding::NO_PEER, [node.host.clone()], reason, &[("interface", "an interface")]);
            judged.failed(Verdict::of("ports", &node.host, None, reason), found);
        }
        node.nics.iter().for_each(|nic| interface(&usual, node, nic, judged));
        node.ports.iter().for_each(|port| rdma(&usual, node, port, judged));
    }
}

/// What is usual, found once: comparing each host with all would take the square of their number.
struct Usual {
    /// By interface: the speed of most, how many have it, and of how many it is known.
    speeds: HashMap<String, (u64, usize, usize)>,
    /// By device and port.
    ports: HashMap<(String, u64), Peers>,
}

/// The same port of all hosts.
#[derive(Default)]
struct Peers {
    all: usize,
    up: usize,
    layer: Option<(String, usize)>,
    /// In tenths of Gb/s.
    rate: Option<(u64, usize)>,
}

impl Usual {
    fn of(nodes: &[Node]) -> Usual {
        let mut speeds = HashMap::<String, Vec<u64>>::new();
        for nic in nodes.iter().flat_map(|n| &n.nics).filter(|n| n.carrier == Some(true)) {
            speeds.entry(nic.name.clone()).or_default().extend(nic.speed_mbps);
        }
        let speed = |(name, all): (String, Vec<u64>)| {
            let n = all.len();
            majority(all).map(|(most, of)| (name, (most, of, n)))
        };
        let mut ports = HashMap::<(String, u64), Vec<&Port>>::new();
        for port in nodes.iter().flat_map(|n| &n.ports) {
            ports.entry((port.device.clone(), port.port)).or_default().push(port);
        }
        let peers = |all: Vec<&Port>| {
            let up: Vec<&&Port> = all.iter().filter(|p| p.state.as_deref() == Some("ACTIVE")).collect();
            Peers {
                all: all.len(),
                up: up.len(),
                layer: majority(up.iter().filter_map(|p| p.link_layer.clone())),
                rate: majority(up.iter().filter_map(|p| p.rate_gbps).map(|r| (r * 10.0).round() as u64)),
            }
        };
        Usual {
            speeds: speeds.into_iter().filter_map(speed).collect(),
            ports: ports.into_iter().map(|(key, all)| (key, peers(all))).collect(),
        }
    }
}

/// That an interface has no carrier.
pub(super) fn down(check: &'static str, node: &Node, nic: &Nic) -> Option<(Verdict, Finding)> {
    let is = match nic.carrier {
        Some(true) => return None,
        Some(false) => "has no carrier",
        None => "is switched off",
    };
    let evidence = format!("{} {is}", nic.name);
    let found = Finding::new(&finding::LINK_DOWN, [node.host.clone()], &*evidence, &[("interface", nic.name.as_str())]);
    Some((Verdict::of(check, &node.host, Some(&nic.name), evidence), found))
}

fn interface(usual: &Usual, node: &Node, nic: &Nic, judged: &mut Judged) {
    let verdict = |reason: String| Verdict::of("ports", &node.host, Some(&nic.name), reason);
    let words = [("interface", nic.name.as_str())];
    let before = judged.verdicts.len();
    if let Some((verdict, found)) = down("ports", node, nic) {
        return judged.failed(verdict, found);
    }
    if let (Some(own), Some((most, of, all))) = (nic.speed_mbps, usual.speeds.get(&nic.name).copied())
        && own < most
    {
        let gbps = |mbps: u64| mbps as f64 / 1000.0;
        let evidence = format!("{} has {} Gb/s, and {} Gb/s on {of} of {} hosts", nic.name, gbps(own), gbps(most), all);
        let found = Finding::new(&finding::SPEED_DIFFERS, [node.host.clone()], &*evidence, &words);
        judged.failed(
            Verdict { value: Some(gbps(own)), wanted: Some(gbps(most)), unit: "Gb/s", ..verdict(evidence) },
            found,
        );
    }
    if let Some(lanes) = nic.lanes {
        let fewer = lanes.max_width.filter(|max| lanes.width < *max);
        let slower = lanes.max_speed_gts.filter(|max| lanes.speed_gts < *max);
        if fewer.is_some() || slower.is_some() {
            let (width, speed) = (fewer.unwrap_or(lanes.width), slower.unwrap_or(lanes.speed_gts));
            let evidence = format!(
                "{} talks to the machine by PCIe x{} at {} GT/s, and can x{width} at {speed} GT/s",
                nic.name, lanes.width, lanes.speed_gts
            );
            let words = [("pci", nic.pci.as_deref().unwrap_or("ADDRESS")), ("lanes", &width.to_string())];
            let found = Finding::new(&finding::PCIE_DEGRADED, [node.host.clone()], &*evidence, &words);
            judged.failed(verdict(evidence), found);
        }
    }
    if judged.verdicts.len() == before {
        let speed = nic.speed_mbps.map_or("up".to_owned(), |s| format!("up, {} Gb/s", s as f64 / 1000.0));
        judged.verdicts.push(verdict(speed));
    }
}

fn rdma(usual: &Usual, node: &Node, port: &Port, judged: &mut Judged) {
    let name = format!("{}/{}", port.device, port.port);
    let verdict = |reason: String| Verdict::of("ports", &node.host, Some(&name), reason);
    let peers = &usual.ports[&(port.device.clone(), port.port)];
    let state = port.state.as_deref().unwrap_or("of no known state");
    let phys = port.phys_state.as_deref().unwrap_or("unknown");
    let words = [("device", port.device.as_str())];
    if state != "ACTIVE" || phys != "LINK_UP" {
        let evidence = format!("{name} is {state}, its link {phys}");
        let fabric = port.netdev.as_ref().is_some_and(|name| node.nic(name).is_some());
        if peers.up == 0 && !fabric && state != "INIT" {
            // A second port without a cable, as everywhere.
            return judged.verdicts.push(Verdict::skipped(verdict(format!("{evidence}, as on all hosts: not in use"))));
        }
        let lost = state == "INIT" && phys == "LINK_UP" && port.link_layer.as_deref() == Some("InfiniBand");
        let known = if lost { &finding::NO_SUBNET_MANAGER } else { &finding::RDMA_PORT_DOWN };
        let found = Finding::new(known, [node.host.clone()], &*evidence, &words);
        return judged.failed(verdict(evidence), found);
    }
    let before = judged.verdicts.len();
    if let (Some(own), Some((most, of))) = (&port.link_layer, &peers.layer)
        && own != most
        && of * 2 > peers.all
    {
        let evidence = format!("{name} is {own}, and {most} on {of} of {} hosts", peers.all);
        let wanted = if *most == "Ethernet" { "ETH" } else { "IB" };
        let words = [("device", port.device.as_str()), ("wanted", wanted)];
        let found = Finding::new(&finding::LINK_LAYER_DIFFERS, [node.host.clone()], &*evidence, &words);
        judged.failed(verdict(evidence), found);
    }
    // Of a port with an interface the speed is told by that.
    let by_interface = port.netdev.as_ref().and_then(|name| node.nic(name)).is_some_and(|n| n.speed_mbps.is_some());
    if let (Some(own), Some((most, of)), false) = (port.rate_gbps, peers.rate, by_interface) {
        let most = most as f64 / 10.0;
        if own < most - 0.05 {
            let evidence = format!("{name} has {own} Gb/s, and {most} Gb/s on {of} of {} hosts", peers.all);
            let words = [("interface", port.netdev.as_deref().unwrap_or(&port.device))];
            let found = Finding::new(&finding::SPEED_DIFFERS, [node.host.clone()], &*evidence, &words);
            judged.failed(Verdict { value: Some(own), wanted: Some(most), unit: "Gb/s", ..verdict(evidence) }, found);
        }
    }
    if judged.verdicts.len() == before {
        judged
            .verdicts
            .push(verdict(format!("{state}, {}", port.link_layer.as_deref().unwrap_or("link layer unknown"))));
    }
}

#[cfg(test)]
mod tests {
    use super::super::fabric::Lanes;
    use super::*;

    fn node(host: &str) -> Node {
        let lanes = Lanes { speed_gts: 32.0, width: 16, max_speed_gts: Some(32.0), max_width: Some(16) };
        let nic = Nic {
            name: "eth1".into(),
            mtu: 9000,
            speed_mbps: Some(400_000),
            carrier: Some(true),
            pci: Some("0000:86:00.0".into()),
            lanes: Some(lanes),
            addresses: vec!["10.1.0.1/16".into()],
            rdma: None,
        };
        let port = |device: &str, state: &str, phys: &str| Port {
            device: device.into(),
            port: 1,
            state: Some(state.into()),
            phys_state: Some(phys.into()),
            link_layer: Some("InfiniBand".into()),
            rate_gbps: Some(400.0),
            ..Port::default()
        };
        let ports = vec![port("mlx5_0", "ACTIVE", "LINK_UP"), port("mlx5_1", "DOWN", "POLLING")];
        Node { host: host.into(), nics: vec![nic], ports, ..Node::default() }
    }

    fn judge(nodes: &[Node]) -> Judged {
        let mut judged = Judged::default();
        super::judge(nodes, &mut judged);
        judged
    }

    fn nodes(spoil: impl Fn(&mut Node)) -> Vec<Node> {
        let mut nodes: Vec<Node> = ["n1", "n2", "n3", "n4"].map(node).into();
        spoil(&mut nodes[1]);
        nodes
    }

    #[test]
    fn healthy_hosts_have_no_finding_and_unused_ports_are_left_out() {
        let judged = judge(&nodes(|_| ()));
        assert_eq!(judged.findings, []);
        let skipped: Vec<&str> = judged.verdicts.iter().filter(|v| v.ok.is_none()).map(|v| &*v.reason).collect();
        assert_eq!(skipped, ["mlx5_1/1 is DOWN, its link POLLING, as on all hosts: not in use"; 4]);
        assert_eq!(judged.verdicts.iter().filter(|v| v.ok == Some(true)).count(), 8);
    }

    type Spoil = fn(&mut Node);

    #[test]
    fn what_is_wrong_is_named_with_its_host() {
        let cases: &[(Spoil, &str, &str)] = &[
            (|n| n.nics[0].carrier = Some(false), "link_down", "eth1 has no carrier"),
            (|n| n.nics[0].carrier = None, "link_down", "eth1 is switched off"),
            (
                |n| n.nics[0].speed_mbps = Some(200_000),
                "speed_differs",
                "eth1 has 200 Gb/s, and 400 Gb/s on 3 of 4 hosts",
            ),
            (
                |n| n.nics[0].lanes.as_mut().unwrap().width = 8,
                "pcie_degraded",
                "eth1 talks to the machine by PCIe x8 at 32 GT/s, and can x16 at 32 GT/s",
            ),
            (|n| n.ports[0].state = Some("INIT".into()), "no_subnet_manager", "mlx5_0/1 is INIT, its link LINK_UP"),
            (
                |n| {
                    n.ports[0].state = Some("DOWN".into());
                    n.ports[0].phys_state = Some("DISABLED".into());
                },
                "rdma_port_down",
                "mlx5_0/1 is DOWN, its link DISABLED",
            ),
            (
                |n| n.ports[0].link_layer = Some("Ethernet".into()),
                "link_layer_differs",
                "mlx5_0/1 is Ethernet, and InfiniBand on 3 of 4 hosts",
            ),
            (
                |n| n.ports[0].rate_gbps = Some(200.0),
                "speed_differs",
                "mlx5_0/1 has 200 Gb/s, and 400 Gb/s on 3 of 4 hosts",
            ),
            (
                |n| {
                    n.nics.clear();
                    n.ports.clear();
                },
                "no_peer",
                "it has no interface of the fabric: none with an address, and no RDMA port",
            ),
        ];
        for (spoil, name, evidence) in cases {
            let judged = judge(&nodes(spoil));
            let found: Vec<_> =
                judged.findings.iter().map(|f| (f.name, f.hosts[0].to_string(), &*f.evidence)).collect();
            assert_eq!(found, [(*name, "n2".to_owned(), *evidence)]);
            let failed: Vec<_> = judged.verdicts.iter().filter(|v| v.ok == Some(false)).map(|v| &*v.host).collect();
            assert_eq!(failed, ["n2"], "{name}");
        }
    }
}
