//! What comes next: what is settled, goes into the next segment, waits for a probe or for a boot.

use super::{Next, Now, Outcome, Plan, Status, Who, settle};
use crate::resource::{Assessment, Claim, Effect, Obstacle, Stale, Trouble, Weight};
use std::collections::BTreeSet;

impl Plan {
    /// Decides what comes next, and settles what needs no step.
    pub fn advance(&mut self) -> Next {
        loop {
            if self.gate.is_none() {
                self.close_gates();
            }
            let mut chosen: Vec<usize> = Vec::new();
            let mut waiting: Vec<usize> = Vec::new();
            let mut risky: Vec<usize> = Vec::new();
            for i in self.order.clone() {
                self.consider(i, &mut chosen, &mut waiting, &mut risky);
            }
            // What may cut the session off comes when nothing else is left to do before it.
            if let (true, Some(&first)) = (chosen.is_empty(), risky.first()) {
                let who = self.who[first].clone();
                risky.retain(|&i| self.who[i] == who);
                let handlers = self.risky_handlers(&who, &risky);
                return Next::Segment(self.guarded(who, risky, handlers));
            }
            let who = chosen.first().map(|&i| self.who[i].clone());
            // After a boot that is to come they would be called for again.
            let boot =
                self.policy.boots.is_some() && (self.due().is_some() || chosen.iter().any(|&i| self.will_wait(i)));
            let handlers = self.handlers(who.as_ref(), &chosen, waiting.is_empty() && !boot);
            if let Some(who) =
                who.or_else(|| handlers.first().map(|&h| self.who[self.play.resources.len() + h].clone()))
            {
                if chosen.is_empty() && handlers.iter().any(|&h| self.is_risky(self.play.resources.len() + h)) {
                    return Next::Segment(self.guarded(who, chosen, handlers));
                }
                return Next::Segment(self.segment(who, chosen, handlers));
            }
            if let Some(who) = self.unread(&waiting) {
                return Next::Probe(who);
            }
            if let Some(boot) = self.due() {
                return Next::Boot(boot);
            }
            let Some(&first) = waiting.first() else {
                if let Some(segment) = self.settlement() {
                    return Next::Segment(segment);
                }
                self.drop_handlers();
                self.warnings.extend(self.withheld());
                self.closed = true;
                return Next::Done;
            };
            // What it waits for won't happen any more; the others may wait only for this one.
            let trouble = match &self.slots[first].now {
                Now::NotYet(why) => why.clone(),
                _ => Trouble::new("its state could not be read again after what it depends on had changed"),
            };
            self.fail(first, "probe", trouble, Vec::new());
        }
    }

    /// A gate that failed (`assert`) ends the play on this host before anything is changed.
    pub(super) fn close_gates(&mut self) {
        for i in self.order.clone() {
            if !self.item(i).resource.gate() {
                continue;
            }
            if let Now::Ready(a) = &self.slots[i].now
                && let Some(obstacle) = &a.obstacle
                && !self.item(i).ignore_errors
            {
                let trouble = obstacle.trouble.clone();
                self.gate = Some(i);
                self.fail(i, "assert", trouble, Vec::new());
                break;
            }
        }
    }

    /// What becomes of one resource in this round: it is settled, chosen for the segment, or has to wait.
    pub(super) fn consider(
        &mut self,
        i: usize,
        chosen: &mut Vec<usize>,
        waiting: &mut Vec<usize>,
        risky: &mut Vec<usize>,
    ) {
        if matches!(self.slots[i].now, Now::Finished { .. }) {
            return;
        }
        if let Some(cause) = self.cause(i) {
            let because = self.because(cause);
            return self.finish(i, Outcome::of(i, Status::Skipped).because(because), Some(cause), false);
        }
        // What waits is done in another execution, and until then nothing is that stands behind it.
        if self.policy.stop_on_error && !waiting.is_empty() {
            return waiting.push(i);
        }
        let before: Vec<usize> = self.graph.before(i).collect();
        let open = |j: &usize| !matches!(self.slots[*j].now, Now::Finished { .. }) && !chosen.contains(j);
        if before.iter().any(open) {
            return waiting.push(i);
        }
        if self.graph.needed_by(i).any(|j| chosen.contains(&j) && self.will_wait(j)) {
            return waiting.push(i);
        }
        if let Some(j) = self.boot_before(i) {
            if self.due().is_some() {
                return waiting.push(i);
            }
            if !(self.policy.check && self.loads(j)) {
                let because = self.because(j);
                return self.finish(i, Outcome::of(i, Status::Skipped).because(because), Some(j), false);
            }
        }
        let moving = self.moving(i, chosen);
        let unknown = self.slots[i].stale || matches!(self.slots[i].now, Now::Unprobed);
        if !self.policy.check && (moving.is_some() || unknown) {
            return waiting.push(i);
        }
        // A check tells what there is now, and that an apply looks again.
        let (mut later, mut again) = (None, None);
        if let Some(j) = moving {
            let address = &self.item(j).address;
            later = Some(format!("can't be known before {address} has changed"));
            again = Some(format!("looked at again after {address} has changed"));
        }
        if let (Some(because), Now::NotYet(_)) = (&later, &self.slots[i].now) {
            let outcome = Outcome::of(i, Status::WouldChange).because(because.clone());
            return self.finish(i, outcome, None, false);
        }
        let assessment = match std::mem::replace(&mut self.slots[i].now, Now::Unprobed) {
            Now::Ready(assessment) => assessment,
            Now::NotYet(why) => return self.fail(i, "probe", self.lacking(i, why), Vec::new()),
            other => {
                self.slots[i].now = other;
                return waiting.push(i);
            }
        };
        let action = self.item(i).resource.action();
        if let Some(obstacle) = assessment.obstacle.as_ref().filter(|o| self.in_the_way(i, o, &assessment, chosen)) {
            if let Some(because) = later {
                let because = Some(format!("{because}; now {}", obstacle.trouble.message));
                let a = *assessment;
                let (changes, files, warnings) = (a.changes, a.files, a.warnings);
                let outcome = Outcome { changes, files, warnings, because, ..Outcome::of(i, Status::WouldChange) };
                return self.finish(i, outcome, None, false);
            }
            let trouble = self.lacking(i, obstacle.trouble.clone());
            return self.fail_with(i, "obstacle", trouble, *assessment);
        }
        if let Some(trouble) = self.not_taken(i, &assessment) {
            return self.fail_with(i, "firmware", trouble, *assessment);
        }
        if assessment.changes.is_empty() && !action {
            let because = again.map(|again| format!("as wanted now, {again}"));
            let outcome = Outcome { warnings: assessment.warnings, because, ..Outcome::of(i, Status::Ok) };
            return self.finish(i, outcome, None, true);
        }
        if let Some(trouble) = self.unconfirmable(&assessment) {
            return self.fail_with(i, "risk", trouble, *assessment);
        }
        if assessment.steps.is_empty() && !action && assessment.changes.iter().all(|c| c.effect != Effect::Now) {
            // All that can be done before the next boot was done by an earlier run.
            let a = *assessment;
            let outcome = Outcome::of(i, Status::RebootPending);
            let outcome = Outcome { changes: a.changes, warnings: a.warnings, because: again, ..outcome };
            return self.finish(i, outcome, None, true);
        }
        if self.policy.check {
            let mut assessment = assessment;
            assessment.warnings.extend(self.confirmation(&assessment));
            let mut outcome = Outcome::of(i, if action { Status::Skipped } else { Status::WouldChange });
            outcome.because = again;
            if action {
                outcome.because = Some("it runs in every apply, not under --check".to_owned());
            }
            let a = *assessment;
            return self.finish(
                i,
                Outcome { changes: a.changes, files: a.files, warnings: a.warnings, ..outcome },
                None,
                false,
            );
        }
        if assessment.steps.is_empty() {
            let trouble = Trouble::new(settle::differs(&assessment.changes));
            return self.fail_with(i, "verify", trouble, *assessment);
        }
        self.slots[i].now = Now::Ready(assessment);
        if self.goes_with_risk(i) {
            risky.push(i);
            waiting.push(i);
        } else if chosen.first().is_none_or(|&first| self.who[first] == self.who[i]) {
            chosen.push(i)
        } else {
            waiting.push(i)
        }
    }

    /// Whether an obstacle keeps a resource from being done in this round.
    pub(super) fn in_the_way(&self, i: usize, obstacle: &Obstacle, assessment: &Assessment, chosen: &[usize]) -> bool {
        match &obstacle.weight {
            Weight::Stops => true,
            Weight::Lasts => assessment.steps.is_empty() || self.policy.check,
            Weight::Unless(claims) => {
                let before = self.ancestors(i);
                let claimants = self.claimants(claims);
                let takes_away = |j: &usize| (claimants.contains(j) || self.brings(*j)) && self.would(*j, chosen);
                !before.iter().any(takes_away)
            }
            // A command claims nothing, since nobody knows what it does.
            Weight::Foreseen => {
                let mends = |j: &&usize| self.brings(**j) || self.item(**j).resource.claims().is_empty();
                let before = self.order.iter().take_while(|j| **j != i).filter(mends);
                self.policy.check && !before.into_iter().any(|j| self.would(*j, chosen) || self.acts(*j))
            }
        }
    }

    /// Whether a resource changes in this segment or (under `--check`) would have changed.
    pub(super) fn would(&self, j: usize, chosen: &[usize]) -> bool {
        chosen.contains(&j) || matches!(self.slots[j].now, Now::Finished { status: Status::WouldChange, .. })
    }

    /// Whether (under `--check`) it is something that an apply would do, changed or not.
    pub(super) fn acts(&self, j: usize) -> bool {
        let left_out = matches!(self.slots[j].now, Now::Finished { status: Status::Skipped, cause: None, .. });
        left_out && self.item(j).resource.action()
    }

    /// Whose failure keeps this one from being done, if any.
    pub(super) fn cause(&self, i: usize) -> Option<usize> {
        if let Some(gate) = self.gate {
            return Some(gate);
        }
        let failed = |j: usize| match &self.slots[j].now {
            Now::Finished { status: Status::RolledBack, .. } => Some(j),
            Now::Finished { status: Status::Failed, .. } if !self.item(j).ignore_errors => Some(j),
            Now::Finished { cause, .. } => *cause,
            _ => None,
        };
        if let Some(cause) = self.graph.needed_by(i).find_map(failed) {
            return Some(cause);
        }
        if !self.policy.stop_on_error {
            return None;
        }
        let at = self.order.iter().position(|&j| j == i)?;
        self.order[..at].iter().copied().find_map(failed)
    }

    pub(super) fn because(&self, cause: usize) -> String {
        let address = &self.item(cause).address;
        match self.pending_effect(cause) {
            None if matches!(self.slots[cause].now, Now::Finished { status: Status::RolledBack, .. }) => {
                format!("{address} was rolled back")
            }
            None => format!("{address} failed"),
            Some(Effect::PowerCycle) => format!("{address} takes effect at a power cycle"),
            Some(_) => format!("{address} takes effect at boot"),
        }
    }

    /// A change that is still to come, or (under `--check`) would have come, after which this one has to be probed.
    pub(super) fn moving(&self, i: usize, chosen: &[usize]) -> Option<usize> {
        let would = |j: &usize| self.would(*j, chosen);
        let resource = &self.item(i).resource;
        match (&self.slots[i].now, resource.stale_after()) {
            (Now::NotYet(_), _) | (_, Stale::AnyDependency) => self.ancestors(i).into_iter().find(would),
            (_, Stale::Claims(claims)) => self.claimants(&claims).into_iter().filter(|&j| j != i).find(would),
            (_, Stale::Never) => None,
        }
    }

    pub(super) fn claimants(&self, claims: &[Claim]) -> Vec<usize> {
        (0..self.play.resources.len())
            .filter(|&j| self.play.resources[j].resource.claims().iter().any(|c| claims.contains(c)))
            .collect()
    }

    pub(super) fn ancestors(&self, i: usize) -> Vec<usize> {
        let (mut found, mut todo) = (Vec::new(), vec![i]);
        while let Some(j) = todo.pop() {
            for before in self.graph.before(j).collect::<BTreeSet<_>>() {
                if !found.contains(&before) {
                    found.push(before);
                    todo.push(before);
                }
            }
        }
        found
    }

    /// The user whose probe is older than a change that somebody waits for.
    pub(super) fn unread(&self, waiting: &[usize]) -> Option<Who> {
        let pending = self.called_handlers().into_iter().map(|h| self.play.resources.len() + h);
        waiting
            .iter()
            .copied()
            .chain(pending)
            .find(|&i| {
                (self.slots[i].stale || matches!(self.slots[i].now, Now::Unprobed))
                    && !self.fresh.contains(&self.who[i])
            })
            .map(|i| self.who[i].clone())
    }
}
