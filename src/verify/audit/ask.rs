//! What hosts are asked for an audit, beside the facts, and what of it is compared.

use super::tell::DEFAULT;
use super::{Seen, Topic, traces};
use crate::resource::probes::small::SmallFile;
use crate::resource::{Answers, Question, Trouble, mlxconfig, roce_qos};
use crate::verify::fabric::Node;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Kernel parameters that matter to the fabric and don't depend on how much memory a host has.
const PARAMETERS: &[&str] = &[
    "kernel.numa_balancing",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.conf.all.arp_announce",
    "net.ipv4.conf.all.arp_filter",
    "net.ipv4.conf.all.arp_ignore",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.conf.default.arp_announce",
    "net.ipv4.conf.default.arp_ignore",
    "net.ipv4.conf.default.rp_filter",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.neigh.default.gc_thresh1",
    "net.ipv4.neigh.default.gc_thresh2",
    "net.ipv4.neigh.default.gc_thresh3",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "vm.zone_reclaim_mode",
];

/// Drivers with a version of their own: those that don't come with the kernel.
const DRIVERS: &[&str] = &["bnxt_en", "bnxt_re", "ib_core", "ice", "irdma", "mlx4_core", "mlx5_core", "mlx5_ib"];

fn parameter(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

fn version(driver: &str) -> String {
    format!("/sys/module/{driver}/version")
}

/// Who made the machine, and what they call it. Source: sysfs-firmware-dmi, the files that all users may read.
const MACHINE: [&str; 2] = ["/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"];

/// All that has to be asked beside the facts.
pub fn questions() -> Vec<Question> {
    let files = PARAMETERS.iter().map(|name| parameter(name)).chain(DRIVERS.iter().map(|name| version(name)));
    let files = files.chain(MACHINE.map(str::to_owned));
    files.map(SmallFile::ask).chain([mlxconfig::survey(), roce_qos::survey()]).chain(traces::questions()).collect()
}

/// What is known of a host by its facts and the answers.
pub fn see(host: &Arc<str>, facts: &Value, answers: &Answers) -> Seen {
    let mut seen = Seen { host: host.clone(), ..Seen::default() };
    let node = Node::of_facts(host, facts, &[]);
    machine(facts, &node, &mut seen);
    interfaces(facts, &node, &mut seen);
    firmware(facts, &mut seen);
    files(facts, answers, &mut seen);
    match mlxconfig::surveyed(answers) {
        Ok(cards) => parameters(facts, cards, &mut seen),
        Err(trouble) => seen.unknown.push(format!("parameters of cards: {}", trouble.message)),
    }
    if let Ok(cards) = mlxconfig::count(answers) {
        seen.put(Topic::Shape, "cards", "", cards.to_string());
    }
    match roce_qos::surveyed(answers) {
        Ok(all) => {
            for (interface, name, value) in
                all.into_iter().flat_map(|(i, all)| all.into_iter().map(move |(name, value)| (i.clone(), name, value)))
            {
                seen.put(Topic::Qos, name, &interface, value);
            }
        }
        Err(trouble) => seen.unknown.push(format!("quality of service: {}", trouble.message)),
    }
    traces::see(facts, answers, &mut seen);
    seen
}

fn list<'v>(facts: &'v Value, key: &str) -> &'v [Value] {
    facts[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn machine(facts: &Value, node: &Node, seen: &mut Seen) {
    if let Some(kernel) = facts["kernel"].as_str() {
        seen.put(Topic::Kernel, "kernel", "", kernel);
    }
    if let Some(cpus) = facts["cpus"]["count"].as_u64() {
        seen.put(Topic::Shape, "CPUs", "", cpus.to_string());
    }
    if let Some(ports) = facts["rdma"].as_array() {
        let devices: BTreeSet<&str> = ports.iter().filter_map(|port| port["name"].as_str()).collect();
        seen.put(Topic::Count, "number of RDMA devices", "", devices.len().to_string());
        // A card that is missing, or has no driver, doesn't make it another kind of machine.
        let boards: BTreeSet<&str> = ports.iter().filter_map(|port| port["board_id"].as_str()).collect();
        if !boards.is_empty() {
            seen.put(Topic::Shape, "boards", "", boards.into_iter().collect::<Vec<_>>().join(" "));
        }
    }
    if facts["interfaces"].is_array() {
        seen.put(Topic::Count, "number of interfaces of the fabric", "", node.nics.len().to_string());
    }
}

/// Interfaces that are in use, of the fabric or not: those with an address or a carrier.
fn interfaces(facts: &Value, fabric: &Node, seen: &mut Seen) {
    let names: Vec<String> =
        list(facts, "interfaces").iter().filter_map(|it| it["name"].as_str()).map(str::to_owned).collect();
    let mut node = Node::of_facts(&fabric.host, facts, &names);
    node.nics.retain(|nic| !nic.addresses.is_empty() || nic.carrier == Some(true));
    for nic in &node.nics {
        seen.put(Topic::Mtu, "MTU", &nic.name, nic.mtu.to_string());
        seen.networks.extend(nic.addresses.first().map(|a| (nic.name.clone(), crate::verify::fabric::network(a))));
        if let Some(mbps) = nic.speed_mbps.filter(|_| nic.carrier == Some(true)) {
            seen.put(Topic::Speed, "speed", &nic.name, format!("{} Gb/s", mbps as f64 / 1000.0));
        }
    }
    for interface in list(facts, "interfaces") {
        let (Some(name), Some(driver)) = (interface["name"].as_str(), interface["driver"].as_str()) else { continue };
        if node.nic(name).is_some() {
            seen.put(Topic::Driver, "driver", name, driver);
        }
    }
    for port in node.ports.iter().filter(|port| port.netdev.as_ref().is_none_or(|name| node.nic(name).is_none())) {
        if let Some(rate) = port.rate_gbps.filter(|_| port.state.as_deref() == Some("ACTIVE")) {
            seen.put(Topic::Speed, "speed", &format!("{}/{}", port.device, port.port), format!("{rate} Gb/s"));
        }
    }
    for port in list(facts, "rdma") {
        if let (Some(device), Some(lid)) = (port["name"].as_str(), port["sm_lid"].as_u64()) {
            seen.put(Topic::SubnetManager, "subnet manager (LID)", device, lid.to_string());
        }
    }
}

/// Firmware, by the board identity; of cards that no RDMA driver tells of, by the driver.
fn firmware(facts: &Value, seen: &mut Seen) {
    let mut boards = BTreeMap::<&str, Vec<(&str, &str)>>::new();
    for port in list(facts, "rdma") {
        if let (Some(device), Some(board), Some(firmware)) =
            (port["name"].as_str(), port["board_id"].as_str(), port["firmware"].as_str())
        {
            boards.entry(board).or_default().push((device, firmware));
        }
    }
    for interface in list(facts, "interfaces").iter().filter(|interface| interface["rdma"].is_null()) {
        if let (Some(name), Some(driver), Some(firmware)) =
            (interface["name"].as_str(), interface["driver"].as_str(), interface["firmware"].as_str())
        {
            boards.entry(driver).or_default().push((name, firmware));
        }
    }
    for (board, all) in boards {
        seen.put(Topic::Firmware, "firmware", board, together(&all));
    }
}

/// The value of several devices: one where they are the same, and otherwise whose is which.
fn together(all: &[(&str, &str)]) -> String {
    let mut by_value = BTreeMap::<&str, Vec<&str>>::new();
    for (device, value) in all {
        let devices = by_value.entry(value).or_default();
        if !devices.contains(device) {
            devices.push(device);
        }
    }
    if let [one] = by_value.keys().collect::<Vec<_>>().as_slice() {
        return (**one).to_owned();
    }
    let told =
        |(value, devices): (&&str, &Vec<&str>)| format!("{value} ({})", crate::hostlist::fold(devices.iter().copied()));
    by_value.iter().map(told).collect::<Vec<_>>().join(" and ")
}

fn files(facts: &Value, answers: &Answers, seen: &mut Seen) {
    let mut troubles = BTreeSet::new();
    // Nothing where the host didn't say whether it has the file.
    let mut value = |path: &str| {
        let told = answers.get::<SmallFile>(path).and_then(|file| file.value());
        told.map_err(|trouble| troubles.insert(trouble.message)).ok()
    };
    for name in PARAMETERS {
        // What a kernel doesn't have isn't compared: it isn't 0, nor anything else.
        if let Some(Some(value)) = value(&parameter(name)) {
            seen.put(Topic::Sysctl, name, "", value.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    let used: BTreeSet<&str> = list(facts, "interfaces").iter().filter_map(|it| it["driver"].as_str()).collect();
    for name in DRIVERS {
        // A driver that comes with the kernel has no version of its own.
        let own = value(&version(name));
        let kernels = || used.contains(name).then(|| "the kernel's own".to_owned());
        if let Some(version) = own.and_then(|version| version.or_else(kernels)) {
            seen.put(Topic::Driver, "version", name, version);
        }
    }
    let machine: Vec<String> = MACHINE.iter().filter_map(|path| value(path)?).collect();
    if !machine.is_empty() {
        seen.put(Topic::Shape, "machine", "", machine.join(" "));
    }
    seen.unknown.extend(troubles);
}

/// Parameters of cards, by the board identity.
fn parameters(facts: &Value, cards: Vec<Result<mlxconfig::Surveyed, Trouble>>, seen: &mut Seen) {
    let mut boards = BTreeMap::<String, Vec<mlxconfig::Surveyed>>::new();
    for card in cards {
        match card {
            Ok(card) => {
                let port =
                    |port: &&Value| port["name"].as_str().is_some_and(|name| card.rdma.iter().any(|r| r == name));
                let board = list(facts, "rdma").iter().find(port).and_then(|port| port["board_id"].as_str());
                boards.entry(board.unwrap_or("cards without an RDMA device").to_owned()).or_default().push(card);
            }
            Err(trouble) => seen.unknown.push(format!("parameters of cards: {}", trouble.message)),
        }
    }
    for (board, cards) in boards {
        let names: BTreeSet<&String> = cards.iter().flat_map(|card| card.parameters.keys()).collect();
        for name in names {
            for (which, next) in [("at the next boot", true), ("now", false)] {
                let of = |card: &mlxconfig::Surveyed| {
                    let (now, boot) = card.parameters.get(name).cloned().unwrap_or_default();
                    (card.address.clone(), if next { boot } else { now }.unwrap_or_else(|| DEFAULT.to_owned()))
                };
                let all: Vec<(String, String)> = cards.iter().map(of).collect();
                let all: Vec<(&str, &str)> = all.iter().map(|(address, value)| (&**address, &**value)).collect();
                seen.put(Topic::Parameter, &format!("{name} {which}"), &board, together(&all));
            }
        }
        seen.boards.insert(board.as_str().into());
    }
}
