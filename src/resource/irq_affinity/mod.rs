//! `irq_affinity`: which CPUs handle the interrupts of an interface's queues, now and after a boot.
//!
//! Numbers of interrupts change with every boot, reload of the driver and change of its channels, so that what is kept is
//! the script that finds them anew; it is also what sets the live values.

mod cpus;
mod probe;
#[cfg(test)]
mod tests;

use self::cpus::Cpus;
use self::probe::{Found, Interrupts, Irq, Of};
use super::probes::links::interface;
use super::reapply::{Kept, Reapply};
use super::service;
use super::spec::{Key, Spec, text};
use super::{Answers, Change, Claim, FileDiff, Need, Obstacle, Question, Reading, Resource, Stale, Step, Trouble};
use crate::error::{Error, nearest};
use crate::shell::Script;

/// Where the interrupts of an interface are handled.
#[derive(Debug)]
pub struct IrqAffinity {
    interface: String,
    policy: Policy,
    script: Script,
    kept: Reapply,
    image: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Policy {
    Local,
    Spread,
    All,
    These(Cpus),
}

/// What a probe found.
#[derive(Debug)]
pub struct State {
    /// Nothing in an image.
    live: Option<Of>,
    boot: Kept,
}

/// Where files of this type stand among those that are run at boot: behind those of `nic`, which make new interrupts.
const ORDER: u8 = 60;
const BALANCER: &str = "irqbalance.service";

impl Policy {
    fn word(&self) -> &'static str {
        match self {
            Policy::Local => "local",
            Policy::Spread => "spread",
            Policy::All => "all",
            Policy::These(_) => "these",
        }
    }

    /// The CPUs among which the queues are dealt out.
    fn cpus(&self, found: &Found) -> Cpus {
        if let Policy::These(cpus) = self {
            return cpus.clone();
        }
        let free = Some(found.online.without(&found.isolated)).filter(|c| !c.is_empty());
        let free = free.unwrap_or_else(|| found.online.clone());
        let set = match (self, &found.local) {
            (Policy::Local, Some(local)) => local.within(&free),
            _ => free.clone(),
        };
        if set.is_empty() { free } else { set }
    }

    /// Where an interrupt is to be handled, of this set.
    fn of(&self, irq: &Irq, set: &Cpus) -> Cpus {
        if *self == Policy::All {
            return set.clone();
        }
        let nth = irq.queue.checked_rem(set.0.len()).unwrap_or_default();
        Cpus(set.0.iter().nth(nth).copied().into_iter().collect())
    }
}

impl IrqAffinity {
    /// What is to be seen of the live part: nothing where there is none, or no interface.
    fn found<'a>(&self, now: &'a State) -> Option<&'a Found> {
        match &now.live {
            Some(Of::These(found)) => Some(found),
            _ => None,
        }
    }

    /// The interrupts that are handled elsewhere.
    fn astray<'a>(&self, found: &'a Found) -> Vec<&'a Irq> {
        let set = self.policy.cpus(found);
        found.queues.iter().filter(|irq| !irq.managed && irq.cpus != self.policy.of(irq, &set)).collect()
    }
}

impl Resource for IrqAffinity {
    type State = State;
    const TYPE: &'static str = "irq_affinity";
    const SUMMARY: &'static str = "Which CPUs handle the interrupts of a network interface, now and after a boot";
    const TOUCHES: &'static str = "\
        `/proc/irq/*/smp_affinity_list` of the interface's queues, and, to set them again after a boot or the reload of a \
        driver, a file in `/etc/netplay/reapply.d`, which `netplay-reapply.service` runs. irqbalance, which would undo it \
        within ten seconds, has to be stopped and disabled: that is for a `service`, which then comes before.";
    const KEYS: &'static [Key] = &[
        Key::required("interface", "string", "The interface of a network card, not a bond or VLAN on it: ens1f0np0."),
        Key::default(
            "policy",
            "local | spread | all",
            "local",
            "`local` deals the queues out to the CPUs that are near to the card (its NUMA node; all where that isn't \
             known), one each. `spread` takes all CPUs. `all` leaves each interrupt to all of them. None takes CPUs that \
             are offline or isolated (`isolcpus`).",
        ),
        Key::optional(
            "cpus",
            "string",
            "In the place of `policy`: the CPUs to which the queues are dealt out, such as `0-15` or `0,2,4`. All have to \
             be online; isolated ones are taken too.",
        ),
        Reapply::PERSIST,
        Key::refused("state", "interrupts always have a CPU; `policy: all` leaves them to all"),
    ];
    const EXAMPLE: &'static str = "\
- name: interrupts of the fabric's card on the CPUs next to it
  irq_affinity: {interface: ens1f0np0}
";

    fn parse(spec: &Spec<'_>) -> Result<IrqAffinity, Error> {
        let interface = interface(spec, "interface")?;
        let word = spec.choice("policy", &["local", "spread", "all"])?;
        let policy = match (word, spec.get("cpus")) {
            (Some(_), Some(node)) => {
                return Err(Error::playbook(&node.span, "`cpus` and `policy` exclude each other").hint("leave one out"));
            }
            (None, Some(node)) => {
                let list = text("cpus", node)?;
                let cpus = Cpus::parse(&list).filter(|cpus| !cpus.is_empty()).ok_or_else(|| {
                    Error::playbook(&node.span, format!("`cpus` can't be `{list}`"))
                        .hint("write numbers and ranges, such as `0-15` or `0,2,4`")
                })?;
                Policy::These(cpus)
            }
            (Some("spread"), None) => Policy::Spread,
            (Some("all"), None) => Policy::All,
            _ => Policy::Local,
        };
        let list = if let Policy::These(cpus) = &policy { cpus.to_string() } else { String::new() };
        let script = Script::new().set("i", &interface).set("policy", policy.word()).set("cpus", &list);
        let script = script.line(include_str!("place.sh"));
        let kept = Reapply::of(spec, ORDER, Self::TYPE, &interface, &script)?;
        Ok(IrqAffinity { interface, policy, script, kept, image: spec.image })
    }

    fn identity(&self) -> String {
        self.interface.clone()
    }

    fn claims(&self) -> Vec<Claim> {
        vec![Claim::new("interrupts", &self.interface), self.kept.claim()]
    }

    fn needs(&self, _now: Option<&State>) -> Vec<Need> {
        let after = self.makes_new().into_iter().chain([Claim::new("unit", BALANCER)]).map(Need::After);
        after.chain([Need::Without(Claim::new(service::RUNS, BALANCER))]).collect()
    }

    fn stale_after(&self) -> Stale {
        Stale::Claims(self.makes_new())
    }

    fn probe(&self) -> Vec<Question> {
        let mut questions = self.kept.questions();
        if !self.image {
            questions.push(Question::of::<Interrupts>(&self.interface));
        }
        questions
    }

    fn read(&self, answers: &Answers) -> Result<Reading<State>, Trouble> {
        let live = if self.image { None } else { Some(answers.get::<Interrupts>(&self.interface)?.clone()) };
        if let Some(Of::Gone(there)) = &live {
            let (name, all) = (&self.interface, there.join(", "));
            let trouble = Trouble::new(format!("this host has no interface {name}; it has {all}"));
            let near = nearest(name, there.iter().map(String::as_str));
            return Ok(Reading::NotYet(
                near.map(|near| format!("is it {near}?")).into_iter().fold(trouble, Trouble::hint),
            ));
        }
        Ok(Reading::State(State { live, boot: self.kept.read(answers)? }))
    }

    fn diff(&self, now: &State) -> Vec<Change> {
        let mut changes = Vec::new();
        if let Some(found) = self.found(now) {
            let astray = self.astray(found);
            if !astray.is_empty() {
                let shown: Vec<String> =
                    astray.iter().take(3).map(|irq| format!("{} on {}", irq.name, irq.cpus)).collect();
                let more = match astray.len().saturating_sub(3) {
                    0 => String::new(),
                    n => format!(" and {n} more"),
                };
                let set = self.policy.cpus(found);
                let to =
                    if self.policy == Policy::All { format!("each on {set}") } else { format!("one by one on {set}") };
                changes.push(Change::now("live", shown.join(", ") + &more, to));
            }
        }
        changes.extend(now.boot.change());
        changes
    }

    fn apply(&self, now: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.found(now).is_some_and(|found| !self.astray(found).is_empty()) {
            steps.push(Step::Run(self.script.clone()));
        }
        let possible = self.found(now).is_none_or(|found| !found.queues.is_empty());
        steps.extend(now.boot.steps(possible));
        steps
    }

    fn files(&self, now: &State) -> Vec<FileDiff> {
        now.boot.files()
    }

    fn obstacle(&self, now: &State) -> Option<Obstacle> {
        let name = &self.interface;
        let found = match &now.live {
            None => return now.boot.obstacle(),
            Some(Of::These(found)) => found,
            Some(_) => {
                let trouble = Trouble::new(format!("{name} has no interrupts of its own"));
                return Some(Obstacle::stops(
                    trouble.hint("only network cards do: name the ports of a bond, and what a VLAN stands on"),
                ));
            }
        };
        if let Policy::These(cpus) = &self.policy {
            let missing = cpus.without(&found.online);
            if !missing.is_empty() {
                let trouble = Trouble::new(format!("CPUs that aren't online on this host: {missing}"));
                return Some(Obstacle::stops(trouble.hint(format!("it has {}", found.online))));
            }
        }
        // First, since nobody in the play takes it away: irqbalance may be stopped by a resource before this one.
        if found.queues.is_empty() {
            let trouble = Trouble::new(format!("no queue of {name} has an interrupt"));
            return Some(Obstacle::lasts(trouble.hint(format!(
                "many drivers ask for them when the interface is switched on: `ip link set {name} up`"
            ))));
        }
        if found.balances || (found.balances_at_boot && self.kept.is_wanted()) {
            let when = if found.balances { "irqbalance runs" } else { "irqbalance starts at boot" };
            let trouble = Trouble::new(format!("{when}, and would undo it within ten seconds"));
            let hint = "put `service: {name: irqbalance, state: stopped, enabled: false}` before it";
            return Some(Obstacle::unless(trouble.hint(hint), vec![Claim::new("unit", BALANCER)]));
        }
        now.boot.obstacle()
    }

    fn warnings(&self, now: &State) -> Vec<String> {
        let mut warnings = now.boot.warnings();
        let Some(found) = self.found(now) else { return warnings };
        let managed = found.queues.iter().filter(|irq| irq.managed).count();
        if managed > 0 {
            let (of, name) = (found.queues.len(), &self.interface);
            warnings.push(format!(
                "{managed} of {of} interrupts of {name} are managed by the kernel, which places them itself"
            ));
        }
        let near = found.local.as_ref().filter(|_| self.policy == Policy::Local);
        if let Some(near) = near.filter(|near| near.within(&found.online).without(&found.isolated).is_empty()) {
            let name = &self.interface;
            warnings
                .push(format!("no CPU near to {name} ({near}) is online and not isolated, so that others are taken"));
        }
        warnings
    }
}

impl IrqAffinity {
    /// What gives the interface new interrupts: mlx5 sets its channels up anew for another MTU.
    fn makes_new(&self) -> Vec<Claim> {
        ["mtu", "nic"].map(|kind| Claim::new(kind, &self.interface)).into()
    }
}
