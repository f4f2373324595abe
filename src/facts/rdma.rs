//! RDMA devices and their ports: sysfs in one process; `rdma link` for the interface of each port, where it is there;
//! `ibv_devinfo` for the MTU of InfiniBand ports alone, which nothing else tells; and of NVIDIA's cards without RoCE what that
//! hangs on, which takes a slow tool and is asked of no others.

use super::network::{Device, Found as Devices};
use super::roce::{Lacks, Why};
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
    /// Of devices without RoCE, what is known about why.
    why: HashMap<String, Why>,
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
    /// What it lacks for RoCE, of a port that could have it.
    roce: Option<Result<(), Lacks>>,
    /// The LID of the subnet manager that the port knows, on InfiniBand.
    sm_lid: Option<u32>,
}

// Unset GIDs give an error when their type is read, and are zero; those sought for RoCE v2 stand for an IPv4 address.
const ASK: &str = r#"cd /sys/class/infiniband 2>/dev/null || exit 0
set -- *; [ -e "$1" ] || exit 0
grep -asH '' -- */fw_ver */board_id */node_type */ports/*/state */ports/*/phys_state */ports/*/link_layer */ports/*/rate */ports/*/sm_lid */ports/*/gid_attrs/ndevs/0
grep -asH 'v2' -- */ports/*/gid_attrs/types/*
grep -asHi '^0000:0000:0000:0000:0000:ffff:' -- */ports/*/gids/*
echo '== rdma'
! command -v rdma >/dev/null || lim 10 rdma -j link 2>/dev/null
echo
echo '== ibv_devinfo'
! grep -qs InfiniBand -- */ports/*/link_layer || ! command -v ibv_devinfo >/dev/null || lim 10 ibv_devinfo 2>/dev/null
echo '== off'
off=
for d do
  if grep -qs Ethernet "$d"/ports/*/link_layer && grep -qs '^0x15b3' "$d/device/vendor" && [ ! -e "$d/device/physfn" ]; then
    grep -qs v2 "$d"/ports/*/gid_attrs/types/* || off="$off $d"
  fi
done
[ -n "$off" ] || exit 0
! command -v devlink >/dev/null || lim 10 devlink -j dev param show 2>/dev/null
echo
t=; for i in mlxconfig mstconfig; do command -v "$i" >/dev/null && t=$i && break; done
for d in $off; do
  a=$(readlink -f "$d/device")
  echo "== firmware $d ${a##*/}"
  [ -z "$t" ] || lim 20 "$t" -d "${a##*/}" -e q ROCE_CONTROL 2>/dev/null </dev/null || [ $? != 124 ] || t=
done
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
    let (links, rest) = rest.split_once("== ibv_devinfo\n").unwrap_or((rest, ""));
    let (devices, off) = rest.split_once("== off\n").unwrap_or((rest, ""));
    found.why = Why::read(off);
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
    pub(super) fn ports(&self, links: Option<&Links>, devices: Option<&Devices>) -> Vec<Port> {
        let mut ports: Vec<Port> = self
            .files
            .keys()
            .filter_map(|path| {
                let (name, port) = path.strip_suffix("/link_layer")?.split_once("/ports/")?;
                Some(self.port(name, port.parse().ok()?, links, devices))
            })
            .collect();
        ports.sort_by(|a, b| natural(&a.name).cmp(&natural(&b.name)).then(a.port.cmp(&b.port)));
        ports
    }

    fn port(&self, name: &str, port: u32, links: Option<&Links>, devices: Option<&Devices>) -> Port {
        let below = |file: &str| self.files.get(&format!("{name}/{file}")).filter(|v| !v.is_empty()).cloned();
        let of_port = |file: &str| below(&format!("ports/{port}/{file}"));
        let key = format!("{name}/{port}");
        let link_layer = of_port("link_layer");
        let ethernet = link_layer.as_deref() == Some("Ethernet");
        // Without RoCE a port has no GID that would name its interface, and on InfiniBand none does: the device then has
        // both. Of several interfaces on it the first is the port's own, and the others stand on that.
        let beside = || {
            let of = |link: &&Link| devices.and_then(|d| d.of(link)).is_some_and(|d| d.has(name, port));
            links?.all.iter().filter(of).min_by_key(|link| link.index).map(|link| link.name.clone())
        };
        let by_gid = || of_port("gid_attrs/ndevs/0").filter(|_| ethernet);
        let netdev = self.netdevs.get(&key).cloned().or_else(by_gid).or_else(beside);
        // `4: RNIC` is iWARP, which has no MTU of its own.
        let iwarp = below("node_type").is_some_and(|t| t.ends_with("RNIC"));
        let roce = ethernet && !iwarp;
        let of_netdev = || links?.get(netdev.as_deref()?).and_then(|l| roce_mtu(l.mtu)).filter(|_| roce);
        let after_colon = |text: String| text.split_once(": ").map(|(_, name)| name.to_owned());
        let types = format!("{name}/ports/{port}/gid_attrs/types/");
        let has_v2 = self.files.keys().any(|path| path.starts_with(&types));
        let roce_is = match link_layer.as_deref() {
            Some("Ethernet") if has_v2 => Some(Ok(())),
            Some("Ethernet") if !iwarp => Some(Err(self.why.get(name).map_or(Lacks::Gid, Why::lacks))),
            Some("InfiniBand") => Some(Err(Lacks::LinkType)),
            _ => None,
        };
        let hex = |text: String| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        let gids = self.files.keys().filter_map(|path| path.strip_prefix(&types)?.parse::<u32>().ok());
        Port {
            firmware: below("fw_ver"),
            board_id: below("board_id"),
            state: of_port("state").and_then(after_colon),
            phys_state: of_port("phys_state").and_then(after_colon).map(|s| upper_snake(&s)),
            rate_gbps: of_port("rate").and_then(|r| r.split_whitespace().next()?.parse().ok()),
            active_mtu: self.mtus.get(&key).copied().or_else(of_netdev),
            roce: roce_is,
            sm_lid: of_port("sm_lid").and_then(hex).filter(|lid| *lid != 0 && !ethernet),
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
            "roce": self.roce.map(|is| json!({ "on": is.is_ok(), "lacks": is.err().map(Lacks::name) })),
            "sm_lid": self.sm_lid,
        })
    }
}

/// The port behind an interface: the one that says so, or else the one of the same device. That is how `roce_qos` finds
/// it, and the only way of a port of a bond, whose RDMA device names the bond.
pub(super) fn port_of<'a>(ports: &'a [Port], link: &Link, device: Option<&Device>) -> Option<&'a Port> {
    let named = ports.iter().find(|p| p.netdev.as_ref() == Some(&link.name));
    named.or_else(|| ports.iter().find(|p| device.is_some_and(|d| d.has(&p.name, p.port))))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What ibstat tells of a port, as sysfs has it.
    fn sysfs(ibstat: &str) -> String {
        let (mut name, mut out) = ("mlx5_9", String::new());
        for (key, value) in ibstat.lines().filter_map(|l| l.trim().split_once(':').or_else(|| l.trim().split_once(' ')))
        {
            let value = value.trim();
            let line = match key {
                "CA" => {
                    name = value.trim_matches('\'');
                    continue;
                }
                "Firmware version" => format!("fw_ver:{value}"),
                "State" => {
                    let states = [("Active", "4: ACTIVE"), ("Initializing", "2: INIT"), ("Down", "1: DOWN")];
                    format!("ports/1/state:{}", states.iter().find(|(s, _)| *s == value).unwrap().1)
                }
                "Physical state" => format!("ports/1/phys_state:{}: {value}", if value == "LinkUp" { 5 } else { 2 }),
                "Rate" => format!("ports/1/rate:{value} Gb/sec (4X)"),
                "SM lid" => format!("ports/1/sm_lid:{:#x}", value.parse::<u32>().unwrap()),
                "Link layer" => format!("ports/1/link_layer:{value}"),
                _ => continue,
            };
            out += &format!("{name}/{line}\n");
        }
        out
    }

    #[test]
    fn ports_in_all_states() {
        let text = include_str!("samples/ibstat.txt");
        let blocks: Vec<&str> = text.split("# ").filter(|block| block.contains("Link layer")).collect();
        let told = |block: &&str| {
            let found = read(&sysfs(block));
            let port = found.ports(None, None).remove(0).value();
            let [name, state, firmware, rate, roce, sm] =
                ["name", "state", "firmware", "rate_gbps", "roce", "sm_lid"].map(|key| port[key].clone());
            json!([name, state, firmware, rate, roce["lacks"], sm])
        };
        assert_eq!(
            blocks.iter().map(told).collect::<Vec<_>>(),
            [
                json!(["mlx5_0", "ACTIVE", "28.40.1000", 200.0, "link_type", 48]),
                json!(["rdma0", "ACTIVE", "16.35.3006", 100.0, "gid", null]),
                // No subnet manager: the link is up, and nobody has given it an address.
                json!(["mlx5_0", "INIT", "12.20.1010", 100.0, "link_type", null]),
                json!(["rxe0", "ACTIVE", null, 2.5, "gid", null]),
            ]
        );
        let unplugged = text.split("# ").find(|block| block.contains("Polling")).unwrap();
        let found = read(&(sysfs(unplugged) + "mlx5_9/ports/1/link_layer:InfiniBand\n"));
        let port = found.ports(None, None).remove(0).value();
        assert_eq!([&port["state"], &port["phys_state"]], ["DOWN", "POLLING"]);
    }

    #[test]
    fn what_ibv_devinfo_and_rdma_print() {
        let text = include_str!("samples/ibv_devinfo_v.txt");
        let (port, head) = text.split_once("# head of").unwrap();
        let found = read(&format!("== rdma\n\n== ibv_devinfo\n{head}{port}"));
        assert_eq!(found.mtus, HashMap::from([("mlx5_0/1".to_owned(), 4096)]));
        // Its GIDs as sysfs has them, of which the probe takes the types of RoCE v2 and the addresses of IPv4.
        let mut files = "mlx5_0/ports/1/link_layer:Ethernet\n".to_owned();
        let gids = port.lines().filter_map(|l| l.trim().strip_prefix("GID[")?.split_once("]:"));
        for (index, (gid, kind)) in gids.filter_map(|(index, rest)| Some((index.trim(), rest.trim().split_once(", ")?)))
        {
            let gid: std::net::Ipv6Addr = gid.parse().unwrap();
            let below = |file: &str, value: &str| format!("mlx5_0/ports/1/{file}/{index}:{value}\n");
            files += &if kind == "RoCE v2" { below("gid_attrs/types", kind) } else { String::new() };
            let full = gid.segments().map(|part| format!("{part:04x}")).join(":");
            files += &if gid.to_ipv4_mapped().is_some() { below("gids", &full) } else { String::new() };
        }
        assert_eq!(files.lines().count(), 5, "{files}");
        let port = read(&files).ports(None, None).remove(0).value();
        assert_eq!([&port["gid_rocev2"], &port["roce"]["on"]], [&json!(3), &json!(true)]);
        let text = include_str!("samples/rdma_link.txt");
        let json = text.lines().find(|l| l.starts_with('[')).unwrap();
        let found = read(&format!("== rdma\n{json}\n== ibv_devinfo\n"));
        assert_eq!(found.netdevs, HashMap::from([("mlx5_0/1".to_owned(), "ens6f0np0".to_owned())]));
        // Versions that know no JSON print lines, from which nothing is taken: sysfs has it too.
        let lines: Vec<&str> = text.lines().filter(|l| l.contains("/1: ") || l.starts_with("link ")).collect();
        assert_eq!(lines.len(), 6);
        assert!(read(&format!("== rdma\n{}\n== ibv_devinfo\n", lines.join("\n"))).netdevs.is_empty());
    }
}
