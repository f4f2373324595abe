//! Whether a host is up, and as it was before.

use crate::resource::{Fragment, Group, Output, Question, Trouble};
use crate::shell::Script;
use std::collections::BTreeMap;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Pulse {
    /// This boot's id (`/proc/sys/kernel/random/boot_id`).
    pub(super) boot: String,
    /// The machine's (`/etc/machine-id`).
    pub(super) machine: String,
    /// What `systemctl is-system-running` says; nothing where there is no systemd.
    pub(super) system: Option<String>,
    /// Whether it was told by netplay to boot, and hasn't yet.
    pub(super) ordered: bool,
    /// Units that failed.
    pub(super) failed: Vec<String>,
    /// The network cards' links that have a carrier, by the card's place and port: name and Mb/s.
    pub(super) links: BTreeMap<String, (String, f64)>,
    /// RDMA ports, by the card's place and port.
    pub(super) ports: BTreeMap<String, Port>,
    /// What resets of firmware before the boot said.
    pub(super) resets: Vec<String>,
}

/// An RDMA port.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Port {
    /// `mlx5_0/1`.
    pub(super) name: String,
    /// `ACTIVE`, `DOWN`, `INIT`, `ARMED`.
    pub(super) state: String,
    /// Gb/s.
    pub(super) rate: f64,
}

/// What a host lacks after a boot, in the order in which it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lack {
    /// The old boot still runs.
    Shutdown,
    /// It doesn't answer.
    Boot,
    /// Its units are still being started.
    System,
    /// RDMA ports and links.
    Ports,
}

impl Pulse {
    /// The question; `folder` is that of netplay's state of this boot.
    pub(super) fn ask(folder: &str) -> Question {
        Question::of::<Pulse>(folder)
    }

    /// Whether it goes down, or is about to.
    pub(super) fn going_down(&self) -> bool {
        self.ordered || self.system.as_deref() == Some("stopping")
    }

    /// What is lacking beside what was there before, and in words what that is.
    pub(super) fn lacks(&self, before: &Pulse) -> Option<(Lack, String)> {
        if self.boot == before.boot {
            return Some((Lack::Shutdown, format!("it still runs the boot {}", self.boot)));
        }
        if let Some(system @ ("initializing" | "starting" | "stopping" | "offline" | "" | "unknown")) =
            self.system.as_deref()
        {
            let system = if system.is_empty() { "unknown" } else { system };
            return Some((Lack::System, format!("its system is {system}")));
        }
        let mut wrong = Vec::new();
        for (place, was) in before.ports.iter().filter(|(_, port)| port.state == "ACTIVE") {
            match self.ports.get(place) {
                None => wrong.push(format!("the RDMA port {} is gone", was.name)),
                Some(is) if is.state != "ACTIVE" => {
                    wrong.push(format!("the RDMA port {} is {}, and was ACTIVE", is.name, is.state));
                }
                Some(is) if is.rate < was.rate => {
                    wrong.push(format!("the RDMA port {} has {} Gb/s, and had {}", is.name, is.rate, was.rate));
                }
                Some(_) => {}
            }
        }
        for (place, (name, was)) in &before.links {
            match self.links.get(place) {
                None => wrong.push(format!("the link of {name} isn't up, and was")),
                Some((name, is)) if is < was => wrong.push(format!("{name} has {is} Mb/s, and had {was}")),
                Some(_) => {}
            }
        }
        (!wrong.is_empty()).then(|| (Lack::Ports, wrong.join("; ")))
    }

    /// As lines that [`Pulse::read`] understands, for the note on the host.
    pub(super) fn lines(&self) -> Vec<String> {
        let links = self.links.iter().map(|(place, (name, speed))| format!("link {place} {name} {speed}"));
        let ports = self.ports.iter().map(|(place, p)| format!("port {place} {} {} {}", p.name, p.state, p.rate));
        [format!("boot_id {}", self.boot), format!("machine {}", self.machine)]
            .into_iter()
            .chain(links)
            .chain(ports)
            .collect()
    }

    /// Reads lines; those of another kind are passed over.
    pub(super) fn read<'a>(lines: impl Iterator<Item = &'a str>) -> Pulse {
        let mut pulse = Pulse::default();
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["boot_id", id] => (*id).clone_into(&mut pulse.boot),
                ["machine", id] => (*id).clone_into(&mut pulse.machine),
                ["system", rest @ ..] => pulse.system = Some(rest.join(" ")),
                ["going"] => pulse.ordered = true,
                ["unit", name] => pulse.failed.push((*name).to_owned()),
                ["link", place, name, speed] => {
                    let speed = speed.parse().unwrap_or(-1.0);
                    pulse.links.insert((*place).to_owned(), ((*name).to_owned(), speed));
                }
                ["port", place, name, state, rate] => {
                    let rate = rate.parse().unwrap_or(0.0);
                    let port = Port { name: (*name).to_owned(), state: (*state).to_owned(), rate };
                    pulse.ports.insert((*place).to_owned(), port);
                }
                ["reset", rest @ ..] => pulse.resets.push(rest.join(" ")),
                _ => {}
            }
        }
        pulse
    }
}

impl Group for Pulse {
    type Answer = Pulse;
    const NAME: &'static str = "pulse of the host";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        let folder = args.first().copied().unwrap_or_default();
        vec![Script::new().set("R", folder).line(include_str!("pulse.sh")).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Pulse, Trouble>> {
        let read = || {
            let text = outputs.first().map(Output::text).unwrap_or_default();
            let pulse = Pulse::read(text.lines());
            if pulse.boot.is_empty() {
                return Err(Trouble::new("the host doesn't tell which boot it runs (/proc/sys/kernel/random/boot_id)"));
            }
            Ok(pulse)
        };
        args.iter().map(|_| read()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "boot_id a\nmachine m\nsystem running\nlink 0000:86:00.0/0 eth2 200000\n\
                          port 0000:86:00.0/1 mlx5_0/1 ACTIVE 200\nport 0000:86:00.1/1 mlx5_1/1 DOWN 40\n";

    #[test]
    fn a_host_is_back_when_all_is_as_it_was() {
        let before = Pulse::read(BEFORE.lines());
        assert_eq!(Pulse::read(before.lines().iter().map(String::as_str)).links, before.links);
        let lack = |text: &str| Pulse::read(text.lines()).lacks(&before);
        let after = BEFORE.replace("boot_id a", "boot_id b");
        assert_eq!(lack(BEFORE), Some((Lack::Shutdown, "it still runs the boot a".into())));
        assert_eq!(lack(&after), None);
        let down = |text: &str| Pulse::read(text.lines()).going_down();
        assert!(!down(BEFORE) && down(&BEFORE.replace("running", "stopping")) && down(&format!("{BEFORE}going\n")));
        assert_eq!(lack(&after.replace("running", "degraded")), None);
        assert_eq!(lack(&after.replace("running", "starting")), Some((Lack::System, "its system is starting".into())));
        assert_eq!(
            lack(&after.replace("mlx5_0/1 ACTIVE 200", "mlx5_0/1 INIT 200")),
            Some((Lack::Ports, "the RDMA port mlx5_0/1 is INIT, and was ACTIVE".into()))
        );
        assert_eq!(
            lack(&after.replace("eth2 200000", "eth2 100000").replace("ACTIVE 200", "ACTIVE 100")),
            Some((
                Lack::Ports,
                "the RDMA port mlx5_0/1 has 100 Gb/s, and had 200; eth2 has 100000 Mb/s, and had 200000".into()
            ))
        );
        // The name goes with the kind of network.
        assert_eq!(lack(&after.replace("eth2", "ibs2").replace("mlx5_0", "rocep134s0f0")), None);
        assert_eq!(
            lack("boot_id b\nsystem running\n").unwrap().1,
            "the RDMA port mlx5_0/1 is gone; the link of eth2 isn't up, and was"
        );
    }
}
