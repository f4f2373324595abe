//! What keeps a host's fabric from being used, whatever other hosts have.

use super::{Seen, Topic};
use crate::finding::{self, Finding};
use crate::resource::{Answers, Fragment, Group, Output, Question, Trouble, mlxconfig, sysctl};
use crate::shell::Script;
use serde_json::Value;
use std::sync::Arc;

/// The group. It has one argument, the empty one.
struct Traces;

/// An RDMA device, the file below `/dev/infiniband` that opens it, and that file's mode and group, as far as they are there.
type Opener = (String, Option<String>, Option<(u32, u32)>);

/// What was found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Found {
    /// irqbalance runs.
    balances: bool,
    /// netplay places interrupts.
    pinned: bool,
    /// Who asks.
    user: String,
    root: bool,
    /// KiB that it may lock; nothing without a limit.
    memlock: Option<u64>,
    verbs: Vec<Opener>,
    /// PCI functions that a virtual machine has.
    lent: Vec<String>,
    /// GPUs and the like.
    accelerators: Option<u32>,
}

impl Group for Traces {
    type Answer = Found;
    const NAME: &'static str = "traces of trouble";

    fn compose(_: &[&str]) -> Vec<Fragment> {
        vec![Script::new().line(include_str!("traces.sh")).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Found, Trouble>> {
        let one = |output: &Output| match output.code {
            0 => Ok(read(&output.text())),
            _ => Err(Trouble::new(format!("the host didn't say how its fabric is used: {}", output.complaint()))),
        };
        args.iter().map(|_| outputs.first().map_or_else(|| Err(Trouble::new("no answer")), one)).collect()
    }
}

fn read(text: &str) -> Found {
    let mut found = Found::default();
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["balances"] => found.balances = true,
            ["pinned"] => found.pinned = true,
            ["user", id, name @ ..] => {
                found.root = *id == "0";
                found.user = name.join(" ");
            }
            ["memlock", limit] => found.memlock = limit.parse().ok(),
            ["verbs", device, "none"] => found.verbs.push(((*device).to_owned(), None, None)),
            ["verbs", device, file, open @ ..] => {
                let open = match open {
                    [mode, group] => u32::from_str_radix(mode, 8).ok().zip(group.parse().ok()),
                    _ => None,
                };
                found.verbs.push(((*device).to_owned(), Some((*file).to_owned()), open));
            }
            ["lent", address] => found.lent.push((*address).to_owned()),
            ["accelerators", n] => found.accelerators = n.parse().ok(),
            _ => {}
        }
    }
    found
}

/// What has to be asked.
pub(super) fn questions() -> Vec<Question> {
    vec![Question::of::<Traces>(""), sysctl::survey()]
}

const CONGESTION: &str = "net/ipv4/tcp_congestion_control";

/// Takes in what is wrong.
pub(super) fn see(facts: &Value, answers: &Answers, seen: &mut Seen) {
    let mut lent: &[String] = &[];
    match answers.get::<Traces>("") {
        Ok(found) => {
            traces(found, seen);
            lent = &found.lent;
        }
        Err(trouble) => seen.unknown.push(trouble.message),
    }
    bonds(facts, seen);
    for card in mlxconfig::undriven(answers).unwrap_or_default().iter().filter(|card| !lent.contains(card)) {
        let evidence = format!("{card} has no RDMA device: no driver has taken it");
        seen.wrong(&finding::RDMA_DRIVER_MISSING, evidence, &[("pci", card.as_str())]);
    }
    let live =
        seen.values.iter().find(|(key, _)| &*key.name == "net.ipv4.tcp_congestion_control").map(|(_, v)| v.clone());
    if let (Ok(Some(asked)), Some(live)) = (sysctl::at_boot(answers, CONGESTION), live)
        && asked != live
    {
        let evidence = format!("the host's files ask for {asked}, and {live} is active");
        seen.wrong(&finding::CONGESTION_CONTROL_INACTIVE, evidence, &[("wanted", asked.as_str())]);
    }
}

/// KiB that a user of RDMA needs at least; less than this is a default of Linux (64 KiB, or 8 MiB by systemd).
const LITTLE_KIB: u64 = 64 * 1024;

fn traces(found: &Found, seen: &mut Seen) {
    if let Some(accelerators) = found.accelerators {
        seen.put(Topic::Shape, "accelerators", "", accelerators.to_string());
    }
    seen.put(Topic::Service, "irqbalance", "", if found.balances { "running" } else { "stopped" });
    if found.balances && found.pinned {
        let evidence = "irqbalance runs, and netplay has placed interrupts (/etc/netplay/reapply.d)";
        seen.wrong(&finding::IRQBALANCE_MOVES_INTERRUPTS, evidence, &[]);
    }
    for (device, file, mode) in &found.verbs {
        let words = [("device", device.as_str())];
        match (file, mode) {
            (None, _) => {
                seen.wrong(&finding::UVERBS_MISSING, format!("ib_uverbs has no device for {device}"), &words);
            }
            (Some(file), None) => {
                let evidence = format!("/dev/infiniband/{file}, which opens {device}, isn't there");
                seen.wrong(&finding::UVERBS_MISSING, evidence, &words);
            }
            // A group that isn't root's is how a site says who may.
            (Some(file), Some((mode, group))) if mode & 0o006 != 0o006 && (mode & 0o060 != 0o060 || *group == 0) => {
                let evidence = format!("/dev/infiniband/{file}, which opens {device}, has the mode {mode:04o}");
                seen.wrong(&finding::UVERBS_PERMISSIONS, evidence, &words);
            }
            _ => {}
        }
    }
    // Root may lock as much as it likes (CAP_IPC_LOCK), so that its limit tells nothing of others'.
    if let (Some(limit), false, false) = (found.memlock, found.root, found.verbs.is_empty())
        && limit < LITTLE_KIB
    {
        let evidence = format!("a login of {} may lock {limit} KiB of memory", found.user);
        seen.wrong(&finding::MEMLOCK_LIMITED, evidence, &[("user", found.user.as_str())]);
    }
}

/// Bonds of which not all ports have a carrier, or that have but one.
fn bonds(facts: &Value, seen: &mut Seen) {
    let interfaces = facts["interfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
    for bond in interfaces.iter().filter(|it| it["kind"] == "bond").filter_map(|it| it["name"].as_str()) {
        let ports: Vec<&Value> = interfaces.iter().filter(|it| it["master"] == bond).collect();
        let down = ports.iter().filter(|port| port["carrier"] != true).filter_map(|port| port["name"].as_str());
        let down: Vec<&str> = down.collect();
        let evidence = match (ports.as_slice(), down.as_slice()) {
            // With no leg at all it is a link that is down.
            ([only], []) => format!("{bond} has one port, {}", only["name"].as_str().unwrap_or_default()),
            (all, [_, ..]) if down.len() < all.len() => {
                format!(
                    "{bond} runs on {} of {} ports: no carrier at {}",
                    all.len() - down.len(),
                    all.len(),
                    down.join(", ")
                )
            }
            _ => continue,
        };
        let words = [("interface", bond), ("port", down.first().copied().unwrap_or("PORT"))];
        seen.wrong(&finding::BOND_ON_ONE_LEG, evidence, &words);
    }
}

impl Seen {
    /// Takes in what is wrong with the host.
    fn wrong(&mut self, known: &'static finding::Known, evidence: impl Into<String>, words: &[(&str, &str)]) {
        let host: Arc<str> = self.host.clone();
        self.wrong.push(Finding::new(known, [host], evidence, words));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(text: &str) -> Vec<(&'static str, String)> {
        let mut seen = Seen { host: "n1".into(), ..Seen::default() };
        traces(&read(text), &mut seen);
        seen.wrong.into_iter().map(|f| (f.name, f.evidence)).collect()
    }

    #[test]
    fn why_a_device_cannot_be_opened_is_told() {
        assert_eq!(found("user 1000 ops\nmemlock unlimited\nverbs mlx5_0 uverbs0 666 0\n"), []);
        assert_eq!(found("user 1000 ops\nmemlock unlimited\nverbs mlx5_0 uverbs0 660 118\n"), [], "a group may");
        assert_eq!(found("user 1000 ops\nmemlock unlimited\nverbs mlx5_0 uverbs0 660 0\n").len(), 1);
        assert_eq!(found("user 0 root\nmemlock 8192\nverbs mlx5_0 uverbs0 666 0\n"), [], "root needs no limit");
        assert_eq!(found("user 1000 ops\nmemlock 8192\n"), [], "without RDMA nobody locks memory");
        let all = found(
            "user 1000 ops\nmemlock 8192\nverbs mlx5_0 uverbs0 600 0\nverbs mlx5_1 uverbs1 \nverbs mlx5_2 none\n",
        );
        let told: Vec<(&str, &str)> = all.iter().map(|(name, evidence)| (*name, &**evidence)).collect();
        assert_eq!(
            told,
            [
                ("uverbs_permissions", "/dev/infiniband/uverbs0, which opens mlx5_0, has the mode 0600"),
                ("uverbs_missing", "/dev/infiniband/uverbs1, which opens mlx5_1, isn't there"),
                ("uverbs_missing", "ib_uverbs has no device for mlx5_2"),
                ("memlock_limited", "a login of ops may lock 8192 KiB of memory"),
            ]
        );
        let all = found("balances\npinned\nuser 0 root\n");
        assert_eq!(all[0].0, "irqbalance_moves_interrupts");
        assert_eq!(found("balances\nuser 0 root\n"), []);
    }

    #[test]
    fn a_bond_on_one_leg_is_told() {
        let port = |name: &str, carrier: Value| json!({"name": name, "kind": "ethernet", "master": "bond0", "carrier": carrier});
        let of = |ports: &[Value]| {
            let mut all = vec![json!({"name": "bond0", "kind": "bond", "master": null, "carrier": true})];
            all.extend_from_slice(ports);
            let mut seen = Seen { host: "n1".into(), ..Seen::default() };
            bonds(&json!({ "interfaces": all }), &mut seen);
            seen.wrong.into_iter().map(|f| f.evidence).collect::<Vec<_>>()
        };
        assert_eq!(of(&[port("eth1", json!(true)), port("eth2", json!(true))]), Vec::<String>::new());
        let one = ["bond0 runs on 1 of 2 ports: no carrier at eth2"];
        assert_eq!(of(&[port("eth1", json!(true)), port("eth2", json!(false))]), one);
        assert_eq!(of(&[port("eth1", json!(true)), port("eth2", Value::Null)]), one, "it is switched off");
        assert_eq!(of(&[port("eth1", json!(true))]), ["bond0 has one port, eth1"]);
        assert_eq!(of(&[port("eth1", json!(false)), port("eth2", json!(false))]), Vec::<String>::new());
        assert_eq!(of(&[]), Vec::<String>::new());
    }
}
