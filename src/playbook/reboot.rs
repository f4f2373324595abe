//! `reboot` of a play: how its hosts are booted where something takes effect only then.

use super::load;
use super::template::{self, Fail};
use super::vars::{Scope, Variables};
use super::written::{Batch, Play};
use crate::error::{Error, Errors, suggest};
use crate::resource::{Key, spec};
use crate::yaml::Node;
use std::sync::Arc;

/// Its keys.
pub const REBOOT_KEYS: &[Key] = &[
    Key::default(
        "max_unavailable",
        "integer, or a percentage",
        "1",
        "How many of the play's hosts may be unavailable at once, whatever the reason: those on their way through a boot, those \
         that failed or didn't come back, those that were down or drained by others. A percentage is of all hosts of the play, \
         before `--limit`. Of several plays of a run the least holds.",
    ),
    Key::optional(
        "domain",
        "string",
        "What fails together, such as `{{ rack }}`: of each domain at most one host is away at once.",
    ),
    Key::default(
        "timeout",
        "seconds",
        "900",
        "How long a host may take from the order to boot until it answers with a new boot.",
    ),
    Key::default(
        "drain",
        "none | slurm | kubernetes | mapping",
        "none",
        "How work is taken away from a host before, and given back after. `{command: …, undrain: …}` are commands of your own; \
         the former ends with 0 when the host is drained.",
    ),
    Key::default(
        "drain_timeout",
        "seconds",
        "3600",
        "How long draining may take. After that the host is given back, and fails.",
    ),
    Key::optional(
        "drain_on",
        "host",
        "Where the commands of `drain` and `power_cycle` run: a host of the inventory. Not given, the machine that netplay runs on.",
    ),
    Key::optional(
        "via",
        "slurm",
        "Has Slurm boot the hosts itself (`scontrol reboot ASAP`, by its RebootProgram) when their jobs have ended. It drains \
         and resumes them.",
    ),
    Key::optional(
        "power_cycle",
        "mapping",
        "`{command: …}`: switches a host's power off and on, for what the device says that a warm reboot doesn't load. The host \
         isn't shut down before, only synced. Without it such a change is told as pending.",
    ),
    Key::default(
        "firmware_reset",
        "boolean",
        "false",
        "Whether the firmware of NVIDIA's cards is reset (`mlxfwreset` or `mstfwreset`, level 3) directly before the boot, as some \
         servers need it.",
    ),
];

/// What it says of the play as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Reboot {
    /// How many hosts may be unavailable at once.
    pub max_unavailable: Batch,
    /// Seconds until a host answers with a new boot.
    pub timeout: u32,
    /// Seconds until it is drained.
    pub drain_timeout: u32,
    /// The host where the scheduler's commands run; nothing for this machine.
    pub drain_on: Option<Arc<str>>,
    /// Whether cards' firmware is reset before.
    pub firmware_reset: bool,
}

/// What it says of one host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostReboot {
    /// What fails together with it.
    pub domain: Option<String>,
    /// How it is drained.
    pub drain: Drain,
    /// What switches its power off and on.
    pub power_cycle: Option<String>,
}

/// How hosts are drained.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Drain {
    /// Not at all.
    #[default]
    None,
    /// By Slurm.
    Slurm,
    /// By Slurm, which boots them itself.
    SlurmReboots,
    /// By Kubernetes.
    Kubernetes,
    /// By commands.
    Command {
        /// Ends with 0 when the host is drained.
        drain: String,
        /// Gives it back.
        undrain: Option<String>,
    },
}

impl Default for Reboot {
    fn default() -> Reboot {
        Reboot {
            max_unavailable: Batch::Hosts(1),
            timeout: 900,
            drain_timeout: 3600,
            drain_on: None,
            firmware_reset: false,
        }
    }
}

/// What is wrong in it offline.
pub(super) fn check(node: &Node) -> Vec<Error> {
    let mut errors = spec::check("reboot", node, REBOOT_KEYS);
    template::check(node, &mut errors);
    if errors.is_empty() {
        // Values that are there already are judged now, and where they stand.
        for key in WHOLE.iter().chain(&HOSTS) {
            let Some(value) = node.get(key).filter(|n| !n.is_null() && !template::templated(n)) else { continue };
            let judged = match WHOLE.contains(key) {
                true => whole(&mut Reboot::default(), key, value),
                false => of_host(&mut HostReboot::default(), key, value),
            };
            errors.extend(judged.err());
        }
        if let (Some(_), Some(drain)) = (node.get("via"), node.get("drain")) {
            errors.push(Error::playbook(&drain.span, "`via: slurm` drains by itself").hint("leave `drain` out"));
        }
    }
    errors
}

const WHOLE: [&str; 5] = ["max_unavailable", "timeout", "drain_timeout", "drain_on", "firmware_reset"];
const HOSTS: [&str; 4] = ["domain", "drain", "via", "power_cycle"];

fn whole(reboot: &mut Reboot, key: &str, node: &Node) -> Result<(), Error> {
    let seconds = |key| spec::int(key, node, 1..=604_800).map(|s| u32::try_from(s).unwrap_or(u32::MAX));
    match key {
        "max_unavailable" => reboot.max_unavailable = load::batch(key, node)?,
        "timeout" => reboot.timeout = seconds("timeout")?,
        "drain_timeout" => reboot.drain_timeout = seconds("drain_timeout")?,
        "drain_on" => reboot.drain_on = Some(spec::text(key, node)?.into()),
        _ => reboot.firmware_reset = spec::truth(key, node)?,
    }
    Ok(())
}

fn of_host(reboot: &mut HostReboot, key: &str, node: &Node) -> Result<(), Error> {
    let command = |node: &Node, key: &'static str| match node.get(key) {
        Some(text) => spec::text(key, text).map(Some),
        None => Ok(None),
    };
    let keys = |node: &Node, known: &[&str]| -> Result<(), Error> {
        for (key, _) in node.as_map().unwrap_or_default() {
            let name = key.text().unwrap_or_default();
            if !known.contains(&name) {
                return Err(Error::playbook(&key.span, format!("unknown key `{name}`")).hint(suggest(name, known)));
            }
        }
        Ok(())
    };
    let missing = |node: &Node, what: &str, example: &'static str| {
        Error::playbook(&node.span, format!("`{what}` needs a `command`")).hint(example)
    };
    match key {
        "domain" => reboot.domain = Some(spec::text(key, node)?),
        "via" => match spec::text(key, node)?.as_str() {
            "slurm" => reboot.drain = Drain::SlurmReboots,
            other => return Err(Error::playbook(&node.span, format!("`via` can't be `{other}`")).hint("known: slurm")),
        },
        "drain" if node.as_map().is_some() => {
            keys(node, &["command", "undrain"])?;
            let example = "write `drain: {command: …, undrain: …}`, or `drain: slurm`, `drain: kubernetes`";
            let drain = command(node, "command")?.ok_or_else(|| missing(node, "drain", example))?;
            reboot.drain = Drain::Command { drain, undrain: command(node, "undrain")? };
        }
        "drain" => {
            reboot.drain = match spec::text(key, node)?.as_str() {
                "none" => Drain::None,
                "slurm" => Drain::Slurm,
                "kubernetes" => Drain::Kubernetes,
                other => {
                    let error = Error::playbook(&node.span, format!("`drain` can't be `{other}`"));
                    let known = suggest(other, &["none", "slurm", "kubernetes"]);
                    return Err(error.hint(format!("{known}, or {{command: …, undrain: …}}")));
                }
            }
        }
        _ => {
            let example = "write `power_cycle: {command: ipmitool -H {{ bmc }} … chassis power cycle}`";
            keys(node, &["command"])?;
            reboot.power_cycle = Some(command(node, "command")?.ok_or_else(|| missing(node, "power_cycle", example))?);
        }
    }
    Ok(())
}

impl Play {
    /// Whether it boots its hosts.
    pub fn reboots(&self) -> bool {
        self.reboot.is_some()
    }

    /// Whether it has a command that switches hosts off and on.
    pub fn cycles_power(&self) -> bool {
        self.reboot.as_ref().is_some_and(|n| n.get("power_cycle").is_some_and(|n| !n.is_null()))
    }

    /// What its `reboot` says of the play as a whole, and else the defaults.
    pub(super) fn reboot(&self, scope: &Arc<Scope>) -> Result<Reboot, Errors> {
        let mut reboot = Reboot::default();
        for key in WHOLE {
            if let Some(node) = self.reboot_value(key, scope)? {
                whole(&mut reboot, key, &node)?;
            }
        }
        Ok(reboot)
    }

    /// What its `reboot` says of a host, and else the defaults.
    ///
    /// # Errors
    /// What is wrong in it on this host.
    pub fn host_reboot(&self, variables: &Variables) -> Result<HostReboot, Errors> {
        let mut reboot = HostReboot::default();
        for key in HOSTS {
            if let Some(node) = self.reboot_value(key, &variables.0)? {
                of_host(&mut reboot, key, &node)?;
            }
        }
        Ok(reboot)
    }

    fn reboot_value(&self, key: &str, scope: &Arc<Scope>) -> Result<Option<Node>, Errors> {
        let Some(node) = self.reboot.as_ref().and_then(|n| n.get(key)).filter(|n| !n.is_null()) else {
            return Ok(None);
        };
        template::render(node, scope).map_err(|fail| {
            Errors::from(match fail {
                Fail::Facts => Error::playbook(&node.span, "this can't depend on facts"),
                Fail::Undefined(e) | Fail::Error(e) => *e,
            })
        })
    }
}
