//! RDMA devices and their ports: sysfs in one process; `rdma link` for the interface of each port, where it is there;
//! `ibv_devinfo` for the MTU of InfiniBand ports alone, which nothing else tells.

use super::network::Device;
use crate::resource::probes::links::{Link, Links};
use crate::resource::{Fragment, Group, Output, Trouble};
use crate::shell::Script;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// The group. It has one argument, the empty one.
#[derive(Debug)]
pub(super) struct Rdma;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Files below /sys/class/infiniband, by their path.
    files: BTreeMap<String, String>,
    /// The interface of a port, by `DEVICE/PORT`, as `rdma` names it.
    netdevs: HashMap<String, String>,
    /// Bytes, by `DEVICE/PORT`, as `ibv_devinfo` tells it.
    mtus: HashMap<String, u32>,
}

/// One port of an RDMA device.
#[derive(Debug)]
pub(super) struct Port {
    /// The device's name: `mlx5_0`.
    pub(super) name: String,
    pub(super) firmware: Option<String>,
    port: u32,
    netdev: Option<String>,
    state: Option<String>,
    phys_state: Option<String>,
    link_layer: Option<String>,
    rate_gbps: Option<f64>,
    active_mtu: Option<u32>,
    board_id: Option<String>,
    gid_rocev2: Option<u32>,
}

// Unset GIDs give an error when their type is read, and are zero; those sought for RoCE v2 stand for an IPv4 address.
const ASK: &str = r#"cd /sys/class/infiniband 2>/dev/null || exit 0
set -- *; [ -e "$1" ] || exit 0
grep -asH '' -- */fw_ver */board_id */node_type */ports/*/state */ports/*/phys_state */ports/*/link_layer */ports/*/rate */ports/*/gid_attrs/ndevs/0
grep -asH 'v2' -- */ports/*/gid_attrs/types/*
grep -asHi '^0000:0000:0000:0000:0000:ffff:' -- */ports/*/gids/*
echo '== rdma'
! command -v rdma >/dev/null || lim 10 rdma -j link 2>/dev/null
echo
echo '== ibv_devinfo'
! grep -qs InfiniBand -- */ports/*/link_layer || ! command -v ibv_devinfo >/dev/null || lim 10 ibv_devinfo 2>/dev/null
exit 0"#;

impl Group for Rdma {
    type Answer = Found;
    const NAME: &'static str = "facts of RDMA";

    fn compose(_: &[&str]) -> Vec<Fragment> {
        vec![Script::new().line(ASK).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Found, Trouble>> {
        let read = |output: &Output| match output.code {
            0 => Ok(read(&output.text())),
            _ => Err(Trouble::new(format!("the RDMA devices can't be read: {}", output.complaint()))),
        };
        args.iter().map(|_| outputs.first().map_or_else(|| Err(Trouble::new("no answer")), read)).collect()
    }
}

fn read(text: &str) -> Found {
    let mut found = Found::default();
    let (files, rest) = text.split_once("== rdma\n").unwrap_or((text, ""));
    let (links, devices) = rest.split_once("== ibv_devinfo\n").unwrap_or((rest, ""));
    found.files = files.lines().filter_map(|l| l.split_once(':')).map(|(p, v)| (p.into(), v.trim().into())).collect();
    // A version without `-j` prints something else; then sysfs has to do.
    for link in serde_json::from_str::<Vec<Value>>(links).unwrap_or_default() {
        if let (Some(name), Some(port), Some(netdev)) =
            (link["ifname"].as_str(), link["port"].as_u64(), link["netdev"].as_str())
        {
            found.netdevs.insert(format!("{name}/{port}"), netdev.to_owned());
        }
    }
    let (mut name, mut port) = ("", "");
    for (key, value) in devices.lines().filter_map(|l| l.trim().split_once(':')) {
        match (key, value.trim()) {
            ("hca_id", value) => name = value,
            ("port", value) => port = value,
            ("active_mtu", value) => {
                if let Some(bytes) = value.split_whitespace().next().and_then(|v| v.parse().ok()) {
                    found.mtus.insert(format!("{name}/{port}"), bytes);
                }
            }
            _ => {}
        }
    }
    found
}

impl Found {
    /// The ports, by device and number.
    pub(super) fn ports(&self, links: Option<&Links>) -> Vec<Port> {
        let mut ports: Vec<Port> = self
            .files
            .keys()
            .filter_map(|path| {
                let (name, port) = path.strip_suffix("/link_layer")?.split_once("/ports/")?;
                Some(self.port(name, port.parse().ok()?, links))
            })
            .collect();
        ports.sort_by(|a, b| natural(&a.name).cmp(&natural(&b.name)).then(a.port.cmp(&b.port)));
        ports
    }

    fn port(&self, name: &str, port: u32, links: Option<&Links>) -> Port {
        let below = |file: &str| self.files.get(&format!("{name}/{file}")).filter(|v| !v.is_empty()).cloned();
        let of_port = |file: &str| below(&format!("ports/{port}/{file}"));
        let key = format!("{name}/{port}");
        let link_layer = of_port("link_layer");
        let ethernet = link_layer.as_deref() == Some("Ethernet");
        let netdev = self.netdevs.get(&key).cloned().or_else(|| of_port("gid_attrs/ndevs/0").filter(|_| ethernet));
        // `4: RNIC` is iWARP, which has no MTU of its own.
        let roce = ethernet && !below("node_type").is_some_and(|t| t.ends_with("RNIC"));
        let of_netdev = || links?.get(netdev.as_deref()?).and_then(|l| roce_mtu(l.mtu)).filter(|_| roce);
        let after_colon = |text: String| text.split_once(": ").map(|(_, name)| name.to_owned());
        let types = format!("{name}/ports/{port}/gid_attrs/types/");
        let gids = self.files.keys().filter_map(|path| path.strip_prefix(&types)?.parse::<u32>().ok());
        Port {
            firmware: below("fw_ver"),
            board_id: below("board_id"),
            state: of_port("state").and_then(after_colon),
            phys_state: of_port("phys_state").and_then(after_colon).map(|s| upper_snake(&s)),
            rate_gbps: of_port("rate").and_then(|r| r.split_whitespace().next()?.parse().ok()),
            active_mtu: self.mtus.get(&key).copied().or_else(of_netdev),
            gid_rocev2: gids.filter(|index| of_port(&format!("gids/{index}")).is_some()).min(),
            name: name.to_owned(),
            port,
            netdev,
            link_layer,
        }
    }
}

impl Port {
    /// Its facts.
    pub(super) fn value(&self) -> Value {
        json!({
            "name": self.name,
            "netdev": self.netdev,
            "port": self.port,
            "state": self.state,
            "phys_state": self.phys_state,
            "link_layer": self.link_layer,
            "rate_gbps": self.rate_gbps,
            "active_mtu": self.active_mtu,
            "firmware": self.firmware,
            "board_id": self.board_id,
            "gid_rocev2": self.gid_rocev2,
        })
    }
}

/// The port behind an interface: the one that says so, or, of an InfiniBand interface, the one of the same device and
/// number (`dev_port`, from 0; older cards have two ports in one device).
pub(super) fn port_of<'a>(ports: &'a [Port], link: &Link, device: Option<&Device>) -> Option<&'a Port> {
    let named = ports.iter().find(|p| p.netdev.as_ref() == Some(&link.name));
    let same = |p: &&Port, d: &Device| {
        p.netdev.is_none()
            && d.rdma.contains(&p.name)
            && d.number("dev_port").unwrap_or_default() + 1 == u64::from(p.port)
    };
    let device = device.filter(|_| link.kind == "infiniband");
    named.or_else(|| ports.iter().find(|p| device.is_some_and(|d| same(p, d))))
}

/// The MTU of a RoCE port over an interface of this MTU: the largest that leaves 96 bytes for headers (linux,
/// iboe_get_mtu).
fn roce_mtu(netdev: u32) -> Option<u32> {
    [4096, 2048, 1024, 512, 256].into_iter().find(|mtu| mtu + 96 <= netdev)
}

/// `LinkUp` of sysfs as `rdma` and ibv_devinfo write it: `LINK_UP`.
fn upper_snake(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_uppercase());
    }
    out
}

/// A name with its number apart, so that mlx5_2 comes before mlx5_10.
fn natural(name: &str) -> (&str, u32) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem, name[stem.len()..].parse().unwrap_or_default())
}
