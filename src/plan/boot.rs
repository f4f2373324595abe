//! Boots in the middle of a play: what waits for one, and what is judged anew after it.

use super::{Now, Outcome, Plan, Status};
use crate::resource::{Assessment, Change, Effect, Trouble};

/// What boots a host, the weaker first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// The host's own warm reboot.
    Reboot,
    /// Power off and on, by a command of the operator's. It is a boot as well.
    PowerCycle,
}

/// A boot that the host needs, and for what: all reasons that there are now, so that one boot does for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// By what.
    pub rung: Rung,
    /// The addresses of what waits for it, and what of it: `mlxconfig:all (NUM_OF_VFS)`.
    pub reasons: Vec<String>,
}

/// What waits for a boot, in words: `NUM_OF_VFS 16`.
fn what(change: &Change) -> String {
    let field = change.field.strip_suffix(" next boot").unwrap_or(&change.field);
    format!("{field} {}", show(&change.to))
}

fn show(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Rung {
    /// What is needed for a change to take effect, if it is a boot at all.
    fn of(effect: Effect) -> Option<Rung> {
        match effect {
            Effect::Now => None,
            Effect::Reboot => Some(Rung::Reboot),
            Effect::PowerCycle => Some(Rung::PowerCycle),
        }
    }
}

impl Plan {
    /// The next boot, if one is allowed and something waits for it for which the host wasn't booted yet. A host on which
    /// something has failed isn't taken away: it would stay so, as nobody gives back what has failed.
    pub(super) fn due(&self) -> Option<Boot> {
        self.wanted().filter(|_| !self.failed())
    }

    /// That a boot isn't made since something has failed, if so.
    pub(super) fn withheld(&self) -> Option<String> {
        let boot = self.wanted().filter(|_| self.failed())?;
        Some(format!("it isn't booted ({}), as it has failed: mend that and run this again", boot.reasons.join(", ")))
    }

    fn failed(&self) -> bool {
        let failed = |now: &Now| matches!(now, Now::Finished { status: Status::Failed, .. });
        (0..self.slots.len()).any(|i| failed(&self.slots[i].now) && !self.item(i).ignore_errors)
    }

    fn wanted(&self) -> Option<Boot> {
        if self.policy.check {
            return None;
        }
        let strongest = self.policy.boots?;
        let mut boot =
            self.play.boot_for.as_ref().map(|why| Boot { rung: Rung::Reboot, reasons: vec![why.to_string()] });
        for (i, changes) in self.waiting_for_boot() {
            let open = |c: &&Change| !self.booted_for.contains(&(i, c.field.clone(), c.to.clone()));
            let open: Vec<&Change> = changes.iter().filter(open).collect();
            let Some((rung, reason)) = self.reason(i, strongest, &open) else { continue };
            let boot = boot.get_or_insert(Boot { rung, reasons: Vec::new() });
            boot.rung = boot.rung.max(rung);
            boot.reasons.push(reason);
        }
        boot
    }

    /// Why a host would be booted for what waits for that, if it may be.
    pub fn foreseen(&self, outcome: &Outcome) -> Option<String> {
        let waits: Vec<&Change> = outcome.waits.iter().collect();
        self.reason(outcome.position, self.policy.boots?, &waits).map(|(_, reason)| reason)
    }

    /// By what a host is booted for these changes, and why, if so much may be done.
    fn reason(&self, i: usize, strongest: Rung, waits: &[&Change]) -> Option<(Rung, String)> {
        let rung = |c: &Change| Rung::of(c.effect).filter(|rung| *rung <= strongest);
        let due = || waits.iter().filter_map(|c| Some((rung(c)?, what(c))));
        let strongest = due().map(|(rung, _)| rung).max()?;
        let item = self.item(i);
        let mut fields: Vec<String> = due().map(|(_, what)| what).collect();
        fields.dedup();
        let reason = match item.no_log {
            true => item.address.to_string(),
            false => format!("{} ({})", item.address, fields.join(", ")),
        };
        Some((strongest, reason))
    }

    /// What has come to a pending reboot, and what of it.
    fn waiting_for_boot(&self) -> impl Iterator<Item = (usize, &[Change])> {
        self.finished
            .iter()
            .filter(|o| o.status == Status::RebootPending)
            .filter(|o| matches!(self.slots[o.position].now, Now::Finished { status: Status::RebootPending, .. }))
            .map(|o| (o.position, o.waits.as_slice()))
    }

    /// When what this one has set takes effect, if that is later.
    pub(super) fn pending_effect(&self, i: usize) -> Option<Effect> {
        let Now::Finished { status, .. } = self.slots[i].now else { return None };
        if !matches!(status, Status::RebootPending | Status::WouldChange) {
            return None;
        }
        let waits = self.finished.iter().find(|o| o.position == i).map_or(&[][..], |o| &o.waits);
        waits.iter().map(|c| c.effect).max_by_key(|e| *e == Effect::PowerCycle)
    }

    /// Whether the host may be booted by what this one waits for.
    pub(super) fn loads(&self, i: usize) -> bool {
        self.pending_effect(i).and_then(Rung::of).is_some_and(|rung| self.policy.boots.is_some_and(|b| rung <= b))
    }

    /// What this one comes after and isn't there before a boot.
    pub(super) fn boot_before(&self, i: usize) -> Option<usize> {
        self.graph.needed_by(i).find(|&j| self.pending_effect(j).is_some())
    }

    /// Whether this one is about to change what then waits for a boot.
    pub(super) fn will_wait(&self, j: usize) -> bool {
        matches!(&self.slots[j].now, Now::Ready(a) if a.changes.iter().any(|c| c.effect != Effect::Now))
    }

    /// The host was booted by this: all that was as wanted may not be so any more, and what waited has to be there. A
    /// probe follows.
    pub fn booted(&mut self, boot: &Boot) {
        let pending: Vec<(usize, String, serde_json::Value)> = self
            .waiting_for_boot()
            .flat_map(|(i, changes)| changes.iter().map(move |c| (i, c)))
            .filter(|(_, c)| Rung::of(c.effect).is_some_and(|needed| needed <= boot.rung))
            .map(|(i, c)| (i, c.field.clone(), c.to.clone()))
            .collect();
        self.booted_for.extend(pending);
        // An earlier run's boot may have been for something else.
        self.play.boot_for.take_if(|why| boot.reasons.iter().any(|reason| **reason == **why));
        let open = |plan: &Plan, o: &Outcome| {
            matches!(plan.slots[o.position].now, Now::Finished { verified: true, .. }) && !plan.is_handler(o.position)
        };
        let (kept, again): (Vec<Outcome>, Vec<Outcome>) =
            std::mem::take(&mut self.finished).into_iter().partition(|o| !open(self, o));
        self.finished = kept;
        for outcome in again {
            let slot = &mut self.slots[outcome.position];
            slot.now = Now::Unprobed;
            slot.earlier = Some(outcome);
        }
        for slot in &mut self.slots {
            if !matches!(slot.now, Now::Finished { .. }) {
                slot.now = Now::Unprobed;
                slot.stale = true;
            }
        }
        self.fresh.clear();
    }

    /// The host isn't booted in this visit: what waits for it stays pending, and what comes after that is skipped.
    pub fn not_booted(&mut self) {
        self.policy.boots = None;
    }

    /// That what the host was booted for isn't there: a second boot for it would not bring it either.
    pub(super) fn not_taken(&self, i: usize, now: &Assessment) -> Option<Trouble> {
        let address = &*self.item(i).address;
        let made = |c: &Change| {
            let what = what(c);
            self.made.iter().any(|why| {
                let of = why.strip_prefix(address).and_then(|rest| rest.strip_prefix(" (")?.strip_suffix(')'));
                of.is_some_and(|of| of.split(", ").any(|w| w == what))
            })
        };
        let waits = |c: &Change| self.booted_for.contains(&(i, c.field.clone(), c.to.clone())) || made(c);
        let earlier = self.slots[i].earlier.as_ref().is_some_and(|o| o.status == Status::RebootPending);
        let open: Vec<&Change> = now.changes.iter().filter(|c| c.effect != Effect::Now && waits(c)).collect();
        let open = if open.is_empty() { now.unapplied.iter().filter(|c| earlier || made(c)).collect() } else { open };
        if open.is_empty() {
            return None;
        }
        let each = open.iter().map(|c| {
            let field = c.field.strip_suffix(" next boot").unwrap_or(&c.field);
            let set = now.changes.iter().find(|s| s.effect == Effect::Now && s.field == format!("{field} next boot"));
            let next = set.map_or_else(|| show(&c.to), |set| show(&set.from));
            format!("{field} is {} now, {next} at the next boot, and {} is wanted", show(&c.from), show(&c.to))
        });
        let told = each.collect::<Vec<_>>().join("; ");
        Some(Trouble::new(format!("the firmware didn't take it: the host was booted for it, and {told}")).hint(
            "no second boot is made for it; look whether it needs a power cycle (`power_cycle` of the play's `reboot`), \
             another parameter first, or a newer firmware; to have it booted for this once more, remove /var/lib/netplay/reboot \
             there",
        ))
    }

    /// What of these changes takes effect at a boot.
    pub(super) fn later(changes: &[Change]) -> Vec<Change> {
        changes.iter().filter(|c| c.effect != Effect::Now).cloned().collect()
    }

    /// An outcome with what the same one had come to before the host was booted.
    pub(super) fn with_earlier(&mut self, i: usize, mut now: Outcome) -> Outcome {
        let Some(earlier) = self.slots[i].earlier.take() else { return now };
        let same = |a: &Change, b: &Change| a.field == b.field;
        match now.status {
            Status::Failed | Status::Skipped => {
                let open = |c: &&Change| !now.changes.iter().any(|n| same(n, c));
                let was = earlier.changes.iter().filter(|c| c.effect == Effect::Now);
                now.done.extend(was.filter(open).cloned().collect::<Vec<_>>());
            }
            status => {
                let open = |c: &Change| now.changes.iter().any(|n| same(n, c));
                // What waited for the boot and waits no more has come to pass: its next value and its current one are one.
                let passed = |c: &Change| c.effect != Effect::Now && !open(c);
                let mut changes: Vec<Change> = Vec::new();
                for change in &earlier.changes {
                    let next = change.field.strip_suffix(" next boot");
                    if !next.is_some_and(|field| earlier.changes.iter().any(|c| c.field == field && passed(c))) {
                        let effect = if passed(change) { Effect::Now } else { change.effect };
                        changes.push(Change { effect, ..change.clone() });
                    }
                }
                let again: Vec<Change> =
                    now.changes.iter().filter(|n| !changes.iter().any(|c| same(c, n))).cloned().collect();
                changes.extend(again);
                if status == Status::Ok && !changes.is_empty() {
                    now.status = Status::Changed;
                }
                now.changes = changes;
                if now.files.is_empty() {
                    now.files = earlier.files;
                }
            }
        }
        now
    }
}
