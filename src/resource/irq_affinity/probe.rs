//! What is asked of a host about the interrupts of its interfaces.

use super::cpus::Cpus;
use crate::resource::{Fragment, Group, Output, Trouble};
use crate::shell::Script;
use std::collections::{HashMap, HashSet};

/// The group. An argument is the name of an interface.
pub(super) struct Interrupts;

/// One interrupt of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Irq {
    /// What the driver called it: `mlx5_comp0@pci:0000:86:00.0`.
    pub(super) name: String,
    /// The number of its queue: interrupts of the same one (`virtio1-input.0`, `virtio1-output.0`) share it.
    pub(super) queue: usize,
    /// Where it may be handled.
    pub(super) cpus: Cpus,
    /// Whether the kernel alone places it.
    pub(super) managed: bool,
}

/// The interrupts of an interface, and the CPUs of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Those of its queues, in the order of their numbers.
    pub(super) queues: Vec<Irq>,
    /// What its device is near to; nothing where that isn't known (a numa_node of -1).
    pub(super) local: Option<Cpus>,
    pub(super) online: Cpus,
    pub(super) isolated: Cpus,
    /// irqbalance runs.
    pub(super) balances: bool,
    /// It is started at boot.
    pub(super) balances_at_boot: bool,
}

/// The answer to one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Of {
    /// There is no such interface; those that there are.
    Gone(Vec<String>),
    /// It has no interrupts of its own.
    Nothing,
    These(Found),
}

impl Group for Interrupts {
    type Answer = Of;
    const NAME: &'static str = "interrupts";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        vec![Script::new().args(args).line(include_str!("probe.sh")).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Of, Trouble>> {
        let output = &outputs[0];
        let text = output.text();
        let all = All::read(&text);
        if output.code != 0 || all.online.is_empty() {
            let trouble = Trouble::new(format!("the host's interrupts can't be read: {}", output.complaint()));
            return vec![Err(trouble); args.len()];
        }
        args.iter().enumerate().map(|(i, name)| all.of(&(i + 1).to_string(), name)).collect()
    }
}

/// The lines of the probe.
#[derive(Default)]
struct All<'a> {
    /// Of the number of each interface: `irqs`, `none` or `gone`, with what stands behind.
    of: HashMap<(&'a str, &'a str), &'a str>,
    /// Of the name of each interface: `numa_node`, `local_cpulist`.
    near: HashMap<(&'a str, &'a str), &'a str>,
    names: HashMap<&'a str, &'a str>,
    cpus: HashMap<&'a str, Cpus>,
    managed: HashSet<&'a str>,
    /// Lines `NUMBER NAME` of what turned out to be managed.
    noted: HashSet<&'a str>,
    online: Cpus,
    isolated: Cpus,
    balances: bool,
    balances_at_boot: bool,
}

impl<'a> All<'a> {
    fn read(text: &'a str) -> All<'a> {
        let mut all = All::default();
        for line in text.lines() {
            match line {
                "balances" => all.balances = true,
                "balances at boot" => all.balances_at_boot = true,
                _ if line.starts_with('/') => all.file(line),
                _ => {
                    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
                    let (n, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                    match n.strip_prefix("/proc/irq/").and_then(|path| path.strip_suffix("/smp_affinity_list")) {
                        // `444 /proc/irq/36/smp_affinity_list`, as kernels from 6.11 on have it for what they manage.
                        Some(irq) if u32::from_str_radix(word, 8).is_ok_and(|mode| mode & 0o222 == 0) => {
                            all.managed.insert(irq);
                        }
                        Some(_) => {}
                        None => _ = all.of.insert((n, word), rest),
                    }
                }
            }
        }
        all
    }

    fn file(&mut self, line: &'a str) {
        if let Some((irq, name)) = line.strip_prefix("/proc/irq/").and_then(|l| l.strip_suffix('/')?.split_once('/')) {
            // Of a kernel without /sys/kernel/irq: the folder that is called like the interrupt.
            self.names.insert(irq, name);
            return;
        }
        let (path, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.trim();
        let list = || Cpus::parse(value).unwrap_or_default();
        if let Some(name) = path.strip_prefix("/sys/devices/system/cpu/") {
            *if name == "online" { &mut self.online } else { &mut self.isolated } = list();
        } else if let Some((name, file)) = path.strip_prefix("/sys/class/net/").and_then(|p| p.split_once("/device/")) {
            self.near.insert((name, file.trim_start_matches("../")), value);
        } else if path == "/run/netplay/managed-irqs" {
            self.noted.insert(value);
        } else if let Some(irq) = path.strip_prefix("/sys/kernel/irq/").and_then(|p| p.strip_suffix("/actions")) {
            self.names.insert(irq, value);
        } else if let Some(irq) = path.strip_prefix("/proc/irq/").and_then(|p| p.strip_suffix("/smp_affinity_list")) {
            self.cpus.insert(irq, list());
        }
    }

    fn of(&self, n: &str, name: &str) -> Result<Of, Trouble> {
        let get = |word| self.of.get(&(n, word)).copied();
        let Some(numbers) = get("irqs") else {
            return match (get("gone"), get("none")) {
                (Some(there), _) => Ok(Of::Gone(there.split_whitespace().map(str::to_owned).collect())),
                (_, Some(_)) => Ok(Of::Nothing),
                _ => Err(Trouble::new("the host didn't tell of its interrupts")),
            };
        };
        let mut numbers: Vec<(u32, &str)> =
            numbers.split_whitespace().filter_map(|irq| Some((irq.parse().ok()?, irq))).collect();
        numbers.sort_unstable();
        let mut queues = Vec::new();
        for (_, irq) in numbers {
            // What vanished meanwhile has no CPUs.
            let (Some(name), Some(cpus)) = (self.names.get(irq), self.cpus.get(irq)) else { continue };
            if is_queue(name) {
                let noted = format!("{irq} {name}");
                queues.push(Irq {
                    name: (*name).to_owned(),
                    queue: number(name).unwrap_or(queues.len()),
                    cpus: cpus.clone(),
                    managed: self.managed.contains(irq) || self.noted.contains(noted.as_str()),
                });
            }
        }
        let near = |file| self.near.get(&(name, file)).copied();
        let known = near("numa_node").is_some_and(|node| node != "-1");
        Ok(Of::These(Found {
            queues,
            local: near("local_cpulist").filter(|_| known).and_then(Cpus::parse),
            online: self.online.clone(),
            isolated: self.isolated.clone(),
            balances: self.balances,
            balances_at_boot: self.balances_at_boot,
        }))
    }
}

/// Whether an interrupt of this name is that of a queue, and not of events, commands or the link. One without a name was
/// never asked for by the driver.
fn is_queue(name: &str) -> bool {
    const OTHERS: [&str; 9] = ["async", "config", "misc", "mgmnt", "mgmt", "ctrl", "cmd", "pages", "admin"];
    !name.is_empty() && !OTHERS.iter().any(|other| name.contains(other))
}

/// The number at the end of a name, what stands behind an `@` apart: 0 of `eth0-TxRx-0`, 12 of `mlx5_comp12@pci:0000:86:00.0`.
fn number(name: &str) -> Option<usize> {
    let name = name.split('@').next().unwrap_or_default();
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name[name.len() - digits..].parse().ok()
}
