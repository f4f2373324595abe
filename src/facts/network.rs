//! The devices behind interfaces: sysfs in one process, and `ethtool -i` for the firmware of network cards that no RDMA
//! driver tells it of.

use super::rdma::Port;
use crate::resource::probes::links::Link;
use crate::resource::{Fragment, Group, Output, Trouble};
use crate::shell::Script;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The group. It has one argument, the empty one.
#[derive(Debug)]
pub(super) struct Devices;

/// The devices, by interface.
#[derive(Debug, Default)]
pub(super) struct Found(HashMap<String, Device>);

/// What is behind an interface.
#[derive(Debug, Default)]
pub(super) struct Device {
    /// Attributes of sysfs, by their path below /sys/class/net/NAME.
    attributes: HashMap<String, String>,
    /// Lines `KEY=value` of the device's `uevent` and, for virtio, of the one above.
    events: HashMap<String, String>,
    firmware: Option<String>,
    /// RDMA devices of the same device.
    rdma: Vec<String>,
}

impl Found {
    pub(super) fn of(&self, link: &Link) -> Option<&Device> {
        self.0.get(&link.name)
    }
}

// `device/config` is what only PCI devices have, and `physfn` only virtual functions, whose firmware is their card's.
const ASK: &str = r#"cd /sys/class/net 2>/dev/null || exit 0
grep -asH '' -- */speed */dev_port */device/numa_node */device/uevent */device/current_link_speed */device/current_link_width \
  */device/max_link_speed */device/max_link_width
grep -asH '^PCI_SLOT_NAME=' -- */device/../uevent
for d in */device/infiniband/*; do [ ! -e "$d" ] || printf '%s:\n' "$d"; done
command -v ethtool >/dev/null || exit 0
set --
for d in */device/config; do
  i=${d%%/*}
  [ ! -e "$d" ] || [ -e "$i/device/physfn" ] || [ -d "$i/device/infiniband" ] || set -- "$@" "$i"
done
[ $# -eq 0 ] || lim 10 /bin/sh -c 'for i do printf "%s/ethtool:\n" "$i"; ethtool -i "$i"; done' sh "$@"
exit 0"#;

impl Group for Devices {
    type Answer = Found;
    const NAME: &'static str = "facts of the network";

    fn compose(_: &[&str]) -> Vec<Fragment> {
        vec![Script::new().line(ASK).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Found, Trouble>> {
        let read = |output: &Output| match output.code {
            0 => Ok(read(&output.text())),
            _ => Err(Trouble::new(format!("the network devices can't be read: {}", output.complaint()))),
        };
        args.iter().map(|_| outputs.first().map_or_else(|| Err(Trouble::new("no answer")), read)).collect()
    }
}

fn read(text: &str) -> Found {
    let mut found = Found::default();
    let mut asked = "";
    for line in text.lines() {
        // `ethtool -i` prints `firmware-version: 28.39.1002 (MT_0000000838)`; the rest of a value may be empty.
        if let Some(version) = line.strip_prefix("firmware-version:") {
            let version = version.split_whitespace().next().map(str::to_owned);
            found.0.entry(asked.to_owned()).or_default().firmware = version;
            continue;
        }
        let Some((name, (attribute, value))) = line.split_once('/').and_then(|(n, r)| Some((n, r.split_once(':')?)))
        else {
            continue;
        };
        let device = found.0.entry(name.to_owned()).or_default();
        match attribute {
            "ethtool" => asked = name,
            "device/uevent" | "device/../uevent" => {
                if let Some((key, value)) = value.split_once('=') {
                    let above = if attribute == "device/uevent" { "" } else { "../" };
                    device.events.insert(format!("{above}{key}"), value.to_owned());
                }
            }
            _ => match attribute.strip_prefix("device/infiniband/") {
                Some(rdma) => device.rdma.push(rdma.to_owned()),
                None => {
                    device.attributes.insert(attribute.to_owned(), value.trim().to_owned());
                }
            },
        }
    }
    found
}

impl Device {
    /// Whether this port of an RDMA device is on it: the one of the same number (`dev_port`, from 0; older cards have two
    /// ports in one device).
    pub(super) fn has(&self, rdma: &str, port: u32) -> bool {
        self.rdma.iter().any(|name| name == rdma) && self.number("dev_port").unwrap_or_default() + 1 == u64::from(port)
    }

    fn number(&self, attribute: &str) -> Option<u64> {
        self.attributes.get(attribute)?.parse().ok()
    }

    fn pci(&self) -> Option<&str> {
        let event = |key: &str| self.events.get(key).map(String::as_str);
        let above = || event("../PCI_SLOT_NAME").filter(|_| event("DRIVER") == Some("virtio_net"));
        event("PCI_SLOT_NAME").or_else(above)
    }

    /// How fast the card can talk to the machine, and could: GT/s of a lane, and lanes. A virtual function says 0 lanes.
    fn pci_link(&self) -> Option<Value> {
        let speed = |name: &str| {
            let text = self.attributes.get(&format!("device/{name}_link_speed"))?;
            text.split_whitespace().next()?.parse::<f64>().ok()
        };
        let width = |name: &str| self.number(&format!("device/{name}_link_width")).filter(|w| (1..=32).contains(w));
        Some(json!({
            "speed_gts": speed("current")?,
            "width": width("current")?,
            "max_speed_gts": speed("max"),
            "max_width": width("max"),
        }))
    }
}

/// The facts of one interface.
pub(super) fn interface(link: &Link, device: Option<&Device>, port: Option<&Port>, owner: Option<&str>) -> Value {
    // -1, as an unsigned number of 32 bits too: the driver doesn't know.
    let speed = device.and_then(|d| d.number("speed")).filter(|s| (1..u64::from(u32::MAX)).contains(s));
    json!({
        "name": link.name,
        "kind": link.kind,
        "master": link.master,
        "mtu": link.mtu,
        "min_mtu": link.min_mtu,
        "max_mtu": link.max_mtu,
        "speed_mbps": speed,
        "state": link.state,
        "carrier": link.carrier,
        "mac": link.mac,
        "driver": device.and_then(|d| d.events.get("DRIVER")),
        "firmware": device.and_then(|d| d.firmware.as_deref()).or(port.and_then(|p| p.firmware.as_deref())),
        "pci": device.and_then(Device::pci),
        "pci_link": device.and_then(Device::pci_link),
        "numa": device.and_then(|d| d.number("device/numa_node")),
        "rdma": port.map(|p| &p.name),
        "addresses": link.addresses,
        "owner": owner,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ethtool_tells_of_firmware() {
        let sample = include_str!("samples/ethtool_i.txt");
        let of = |text: &str| read(&format!("eno1/ethtool:\n{text}eno2/ethtool:\n")).0["eno1"].firmware.clone();
        assert_eq!(of(sample).as_deref(), Some("28.39.1002"));
        assert_eq!(of(&sample.replace("1002", "1002 (MT_0000000838)")).as_deref(), Some("28.39.1002"));
        // Drivers without a firmware leave it empty.
        assert_eq!(of(&sample.replace("28.39.1002", "")), None);
    }
}
