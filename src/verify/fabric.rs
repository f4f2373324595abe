//! The fabric as the facts of its hosts tell it: which interfaces belong to it, and which of two hosts face each other.

use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// A host with its interfaces of the fabric.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node {
    /// Its name in the inventory.
    pub host: Arc<str>,
    /// Its interfaces of the fabric, in the kernel's order.
    pub nics: Vec<Nic>,
    /// All ports of RDMA devices.
    pub ports: Vec<Port>,
    /// Interfaces that no check names and that have no address, by which they could be of the fabric.
    pub bare: Vec<String>,
}

/// An interface of the fabric.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub mtu: u32,
    /// Mb/s, where the driver knows it.
    pub speed_mbps: Option<u64>,
    /// Whether there is a carrier; not known of one that is switched off.
    pub carrier: Option<bool>,
    /// Its PCI address.
    pub pci: Option<String>,
    /// How it talks to the machine.
    pub lanes: Option<Lanes>,
    /// Addresses with their prefix lengths; none of a link alone.
    pub addresses: Vec<String>,
    /// The RDMA device behind it.
    pub rdma: Option<String>,
}

/// How a card talks to the machine, and could. Source: sysfs, `current_link_speed` and the like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lanes {
    /// GT/s of a lane.
    pub speed_gts: f64,
    /// How many lanes.
    pub width: u64,
    /// GT/s of a lane that the card can.
    pub max_speed_gts: Option<f64>,
    /// Lanes that the card has.
    pub max_width: Option<u64>,
}

impl Lanes {
    /// What passes in one direction, in Gb/s: PCIe up to 5 GT/s codes 8 bits in 10, later generations 128 in 130; of that
    /// about 9 % are headers, with the usual payloads of 256 bytes (24 of them for a packet).
    pub fn gbps(&self) -> f64 {
        let coded = if self.speed_gts <= 5.0 { 0.8 } else { 128.0 / 130.0 };
        self.speed_gts * self.width as f64 * coded * 256.0 / 280.0
    }
}

/// A port of an RDMA device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Port {
    /// The device: `mlx5_0`.
    pub device: String,
    /// The port's number, from 1.
    pub port: u64,
    /// Its interface.
    pub netdev: Option<String>,
    /// `ACTIVE`, `INIT`, `DOWN`.
    pub state: Option<String>,
    /// `LINK_UP`, `POLLING`, `DISABLED`.
    pub phys_state: Option<String>,
    /// `InfiniBand`, `Ethernet`.
    pub link_layer: Option<String>,
    /// Gb/s.
    pub rate_gbps: Option<f64>,
    /// The index of the GID of RoCE v2 that stands for an IPv4 address.
    pub gid: Option<u64>,
}

/// Interfaces that no cable is behind: they carry no traffic between hosts of their own.
const INNER: &[&str] =
    &["loopback", "bridge", "dummy", "tun", "vxlan", "wireguard", "ifb", "vrf", "sit", "ipip", "gre"];

impl Node {
    /// From the facts of a host. Its fabric is the interfaces that are named, or else those with an RDMA device, or else all
    /// with an address that don't carry the session, or else the one that does.
    pub fn of_facts(host: &Arc<str>, facts: &Value, named: &[String]) -> Node {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let list = |key: &str| facts[key].as_array().map(Vec::as_slice).unwrap_or_default();
        let nic = |it: &Value| {
            let lanes = &it["pci_link"];
            Nic {
                name: text(&it["name"]).unwrap_or_default(),
                mtu: it["mtu"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
                speed_mbps: it["speed_mbps"].as_u64(),
                carrier: it["carrier"].as_bool(),
                pci: text(&it["pci"]),
                lanes: lanes["speed_gts"].as_f64().zip(lanes["width"].as_u64()).map(|(speed_gts, width)| Lanes {
                    speed_gts,
                    width,
                    max_speed_gts: lanes["max_speed_gts"].as_f64(),
                    max_width: lanes["max_width"].as_u64(),
                }),
                addresses: it["addresses"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(text)
                    .filter(|a| global(a))
                    .collect(),
                rdma: text(&it["rdma"]),
            }
        };
        let port = |it: &Value| Port {
            device: text(&it["name"]).unwrap_or_default(),
            port: it["port"].as_u64().unwrap_or(1),
            netdev: text(&it["netdev"]),
            state: text(&it["state"]),
            phys_state: text(&it["phys_state"]),
            link_layer: text(&it["link_layer"]),
            rate_gbps: it["rate_gbps"].as_f64(),
            gid: it["gid_rocev2"].as_u64(),
        };
        let outer =
            |it: &&Value| it["kind"].as_str().is_none_or(|kind| !INNER.contains(&kind)) && it["master"].is_null();
        let all: Vec<Nic> = list("interfaces").iter().filter(outer).map(nic).collect();
        let session = facts["session"]["interface"].as_str();
        let bare =
            all.iter().filter(|nic| named.is_empty() && nic.addresses.is_empty()).map(|nic| nic.name.clone()).collect();
        let pick = |wanted: &dyn Fn(&Nic) -> bool| all.iter().filter(|n| wanted(n)).cloned().collect::<Vec<_>>();
        let nics = if named.is_empty() {
            let tiers: [&dyn Fn(&Nic) -> bool; 3] = [
                &|n| n.rdma.is_some() && !n.addresses.is_empty(),
                &|n| !n.addresses.is_empty() && Some(n.name.as_str()) != session,
                &|n| !n.addresses.is_empty(),
            ];
            tiers.into_iter().map(pick).find(|nics| !nics.is_empty()).unwrap_or_default()
        } else {
            pick(&|n| named.contains(&n.name))
        };
        Node { host: host.clone(), nics, ports: list("rdma").iter().map(port).collect(), bare }
    }

    /// The interface of this name.
    pub fn nic(&self, name: &str) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.name == name)
    }
}

/// Interfaces without an address that are of the fabric on more than half of the hosts: the host, the interface, and on how many.
pub fn bare(nodes: &[Node]) -> Vec<(usize, &str, usize)> {
    let mut usual = BTreeMap::<&str, usize>::new();
    nodes.iter().flat_map(|n| &n.nics).for_each(|nic| *usual.entry(&nic.name).or_default() += 1);
    let all = nodes.iter().enumerate().flat_map(|(at, node)| node.bare.iter().map(move |name| (at, name.as_str())));
    let often = |(at, name)| Some((at, name, *usual.get(name)?));
    all.filter_map(often).filter(|(.., n)| n * 2 > nodes.len()).collect()
}

/// Whether an address is one by which other hosts reach it, over any link.
fn global(address: &str) -> bool {
    match parse(address) {
        Some((IpAddr::V4(ip), _)) => !ip.is_loopback() && !ip.is_link_local(),
        Some((IpAddr::V6(ip), _)) => !ip.is_loopback() && !ip.is_unicast_link_local(),
        None => false,
    }
}

fn parse(text: &str) -> Option<(IpAddr, u32)> {
    let (address, prefix) = text.split_once('/')?;
    Some((address.parse().ok()?, prefix.parse().ok()?))
}

/// Whether two addresses with prefix lengths are in one network. Addresses of a link alone name no interface at the other end.
pub fn same_network(a: &str, b: &str) -> bool {
    match (parse(a), parse(b)) {
        (Some((IpAddr::V4(a), prefix)), Some((IpAddr::V4(b), _))) => {
            (u32::from(a) ^ u32::from(b)).checked_shr(32 - prefix.min(32)).unwrap_or(0) == 0
        }
        (Some((IpAddr::V6(a), prefix)), Some((IpAddr::V6(b), _))) if !a.is_unicast_link_local() => {
            (u128::from(a) ^ u128::from(b)).checked_shr(128 - prefix.min(128)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// The network of an address with its prefix length.
pub fn network(address: &str) -> String {
    match parse(address) {
        Some((IpAddr::V4(ip), prefix)) => {
            let mask = u32::MAX.checked_shl(32 - prefix.min(32)).unwrap_or(0);
            format!("{}/{prefix}", std::net::Ipv4Addr::from(u32::from(ip) & mask))
        }
        Some((IpAddr::V6(ip), prefix)) => {
            let mask = u128::MAX.checked_shl(128 - prefix.min(128)).unwrap_or(0);
            format!("{}/{prefix}", std::net::Ipv6Addr::from(u128::from(ip) & mask))
        }
        None => address.to_owned(),
    }
}

/// Two interfaces that face each other on a rail, with the addresses by which they reach each other, without prefix
/// lengths. The first's is of the first host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facing {
    /// The interfaces, by their places in the nodes' lists.
    pub nics: (usize, usize),
    /// The addresses.
    pub addresses: (String, String),
}

/// The rails between two hosts: for each interface of the first the one of the second that is in the same network, or else
/// the one of the same name, where the fabric is routed.
pub fn facing(a: &Node, b: &Node) -> Vec<Facing> {
    let bare = |text: &str| text.split('/').next().unwrap_or_default().to_owned();
    let in_network = |i: usize| {
        a.nics[i].addresses.iter().find_map(|from| {
            b.nics.iter().enumerate().find_map(|(j, nic)| {
                let to = nic.addresses.iter().find(|to| same_network(from, to) && bare(from) != bare(to))?;
                Some(Facing { nics: (i, j), addresses: (bare(from), bare(to)) })
            })
        })
    };
    let by_name = |i: usize| {
        let j = b.nics.iter().position(|nic| nic.name == a.nics[i].name)?;
        let family = |text: &str| text.contains(':');
        a.nics[i].addresses.iter().find_map(|from| {
            let to = b.nics[j].addresses.iter().find(|to| family(from) == family(to) && bare(from) != bare(to))?;
            Some(Facing { nics: (i, j), addresses: (bare(from), bare(to)) })
        })
    };
    // A network that is there on both hosts is meant where names would pair another.
    (0..a.nics.len()).filter_map(|i| in_network(i).or_else(|| by_name(i))).collect()
}

/// Hosts that hang together by networks, or names of interfaces, by their places; those of a part in their order.
pub fn parts(nodes: &[Node]) -> Vec<Vec<usize>> {
    let mut part: Vec<usize> = (0..nodes.len()).collect();
    fn root(part: &[usize], mut at: usize) -> usize {
        while part[at] != at {
            at = part[at];
        }
        at
    }
    let mut first = HashMap::<String, usize>::new();
    for (at, node) in nodes.iter().enumerate() {
        for nic in &node.nics {
            for key in nic.addresses.iter().map(|a| network(a)).chain([nic.name.clone()]) {
                let other = *first.entry(key).or_insert(at);
                let (a, b) = (root(&part, at), root(&part, other));
                part[a.max(b)] = a.min(b);
            }
        }
    }
    let mut parts = BTreeMap::<usize, Vec<usize>>::new();
    (0..nodes.len()).for_each(|at| parts.entry(root(&part, at)).or_default().push(at));
    parts.into_values().collect()
}

/// The value that most have, and how many; of as many the greater one.
pub fn majority<T: Ord + Clone>(values: impl IntoIterator<Item = T>) -> Option<(T, usize)> {
    let mut counts = BTreeMap::<T, usize>::new();
    values.into_iter().for_each(|value| *counts.entry(value).or_default() += 1);
    counts.into_iter().max_by(|(a, n), (b, m)| n.cmp(m).then(a.cmp(b)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_interface_that_lacks_its_address_is_seen() {
        let node = |host: &str, nic: Option<&str>| {
            let nic = nic.map(|name| Nic { name: name.to_owned(), ..Nic::default() });
            let bare = if nic.is_none() { vec!["eth2".to_owned(), "eth3".to_owned()] } else { Vec::new() };
            Node { host: host.into(), nics: nic.into_iter().collect(), bare, ..Node::default() }
        };
        let nodes = [node("n1", Some("eth2")), node("n2", Some("eth2")), node("n3", None)];
        assert_eq!(bare(&nodes), [(2, "eth2", 2)]);
        assert_eq!(bare(&nodes[1..]), [], "half of them");
    }

    /// Facts with these interfaces: name, address, RDMA device.
    pub(crate) fn facts(interfaces: &[(&str, &str, Option<&str>)]) -> Value {
        let interface = |(name, address, rdma): &(&str, &str, Option<&str>)| {
            json!({"name": name, "kind": if *name == "lo" { "loopback" } else { "ethernet" }, "master": null, "mtu": 9000,
                "addresses": [address, "fe80::1/64"], "rdma": rdma, "carrier": true, "speed_mbps": 100_000})
        };
        json!({"interfaces": interfaces.iter().map(interface).collect::<Value>(), "session": {"interface": "eth0"}})
    }

    fn names(facts: &Value, named: &[&str]) -> Vec<String> {
        let named: Vec<String> = named.iter().map(|n| (*n).to_owned()).collect();
        Node::of_facts(&"n1".into(), facts, &named).nics.into_iter().map(|nic| nic.name).collect()
    }

    #[test]
    fn what_belongs_to_the_fabric() {
        let lo = ("lo", "127.0.0.1/8", None);
        let eth0 = ("eth0", "10.0.0.1/24", None);
        let eth1 = ("eth1", "10.1.0.1/24", None);
        let ib0 = ("ib0", "10.2.0.1/24", Some("mlx5_0"));
        assert_eq!(names(&facts(&[lo, eth0, eth1, ib0]), &[]), ["ib0"]);
        assert_eq!(names(&facts(&[lo, eth0, eth1]), &[]), ["eth1"]);
        assert_eq!(names(&facts(&[lo, eth0]), &[]), ["eth0"]);
        assert_eq!(names(&facts(&[lo]), &[]), [""; 0]);
        assert_eq!(names(&facts(&[lo, eth0, eth1, ib0]), &["eth0", "eth1"]), ["eth0", "eth1"]);
        let mut bridged = facts(&[eth0, eth1]);
        bridged["interfaces"][1]["master"] = json!("bond0");
        assert_eq!(names(&bridged, &[]), ["eth0"], "a port of a bond has no traffic of its own");
    }

    #[test]
    fn who_faces_whom() {
        let node = |all: &[(&str, &str)]| {
            let all: Vec<_> = all.iter().map(|(name, address)| (*name, *address, None)).collect();
            Node::of_facts(&"n".into(), &facts(&all), &[])
        };
        let told = |a: &[(&str, &str)], b: &[(&str, &str)]| -> Vec<(String, String)> {
            let (a, b) = (node(a), node(b));
            let nic =
                |f: Facing| (a.nics[f.nics.0].name.clone(), format!("{} {}", b.nics[f.nics.1].name, f.addresses.1));
            facing(&a, &b).into_iter().map(nic).collect()
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        // Names that differ, and networks that tell.
        assert_eq!(
            told(
                &[("eth1", "10.1.0.1/24"), ("eth2", "10.2.0.1/24")],
                &[("ens1", "10.2.0.2/24"), ("ens2", "10.1.0.2/24")]
            ),
            [pair("eth1", "ens2 10.1.0.2"), pair("eth2", "ens1 10.2.0.2")]
        );
        // Routed: each host has a network of its own.
        assert_eq!(told(&[("eth1", "10.1.0.1/31")], &[("eth1", "10.1.0.3/31")]), [pair("eth1", "eth1 10.1.0.3")]);
        assert_eq!(told(&[("eth1", "10.1.0.1/31")], &[("eth2", "10.1.0.3/31")]), []);
        // The same address on both is a mistake, and nobody to talk to.
        assert_eq!(told(&[("eth1", "10.1.0.1/24")], &[("eth1", "10.1.0.1/24")]), []);
    }

    #[test]
    fn what_hangs_together() {
        let node = |name: &str, address: &str| {
            let eth0 = ("eth0", "192.168.0.1/24", None);
            Node::of_facts(&"n".into(), &facts(&[eth0, (name, address, None)]), &[name.to_owned()])
        };
        let nodes = [
            node("eth1", "10.1.0.1/24"),
            node("ens9", "10.2.0.1/24"),
            node("ib0", "10.1.0.2/24"),
            node("ens9", "10.3.0.1/24"),
            node("none", "10.9.0.1/24"),
            node("eth1", "10.3.0.2/24"),
        ];
        assert_eq!(parts(&nodes), [vec![0, 1, 2, 3, 5], vec![4]]);
        assert_eq!(parts(&nodes[..4]), [vec![0, 2], vec![1, 3]]);
    }

    #[test]
    fn networks() {
        assert_eq!((network("10.1.2.3/16"), network("10.1.2.3/0")), ("10.1.0.0/16".to_owned(), "0.0.0.0/0".to_owned()));
        assert_eq!(network("fd00:1::9/64"), "fd00:1::/64");
    }

    #[test]
    fn what_pcie_lets_through() {
        let lanes = |speed_gts, width| Lanes { speed_gts, width, max_speed_gts: None, max_width: None };
        assert!((lanes(16.0, 16).gbps() - 230.4).abs() < 1.0 && (lanes(32.0, 8).gbps() - 230.4).abs() < 1.0);
        assert!((lanes(5.0, 8).gbps() - 29.2).abs() < 0.5);
    }

    #[test]
    fn the_value_of_most() {
        assert_eq!(majority([9000, 1500, 9000]), Some((9000, 2)));
        assert_eq!(majority([9000, 1500]), Some((9000, 1)));
        assert_eq!(majority::<u32>([]), None);
    }
}
