//! Handlers: which are called for, when they run, and what stays owed.

use super::{Now, Outcome, Plan, Who};
use crate::event::Status;
use crate::resource::{Risk, Trouble};

impl Plan {
    /// The handlers that are called for and not done.
    pub(super) fn called_handlers(&self) -> Vec<usize> {
        let n = self.play.resources.len();
        (0..self.play.handlers.len())
            .filter(|&h| !matches!(self.slots[n + h].now, Now::Finished { .. }))
            .filter(|&h| {
                let failed = self
                    .notifiers(h)
                    .any(|i| matches!(self.slots[i].now, Now::Finished { status: Status::Failed, .. }));
                !self.called[h].is_empty() || (self.owed.contains_key(&h) && !failed && self.gate.is_none())
            })
            .collect()
    }

    pub(super) fn notifiers(&self, h: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.play.resources.len()).filter(move |&i| self.graph.notify[i].contains(&h))
    }

    /// The handlers that go into the segment of these resources, which is the last one if `last`.
    pub(super) fn handlers(&mut self, who: Option<&Who>, chosen: &[usize], last: bool) -> Vec<usize> {
        let n = self.play.resources.len();
        if !last {
            return Vec::new();
        }
        if self.policy.check {
            for h in 0..self.play.handlers.len() {
                self.foretell_handler(h);
            }
            return Vec::new();
        }
        let mut who = who.cloned();
        let mut taken: Vec<usize> = Vec::new();
        let called = self.called_handlers();
        for h in 0..self.play.handlers.len() {
            if matches!(self.slots[n + h].now, Now::Finished { .. }) {
                continue;
            }
            let by_segment: Vec<usize> = self.notifiers(h).filter(|i| chosen.contains(i)).collect();
            if !called.contains(&h) && by_segment.is_empty() {
                continue;
            }
            // An action of the segment tells only afterwards whether it changed anything.
            let undecided = by_segment.iter().any(|&i| self.item(i).resource.action()) && !called.contains(&h);
            let moved = self.moving(n + h, chosen).is_some() || self.slots[n + h].stale;
            let stale = moved || matches!(self.slots[n + h].now, Now::Unprobed);
            if undecided || (stale && !(chosen.is_empty() && taken.is_empty() && self.fresh.contains(&self.who[n + h])))
            {
                break;
            }
            if who.as_ref().is_some_and(|w| *w != self.who[n + h]) {
                break;
            }
            match &self.slots[n + h].now {
                Now::Ready(a) => {
                    if let Some(obstacle) = &a.obstacle {
                        let trouble = obstacle.trouble.clone();
                        self.fail(n + h, "obstacle", trouble, Vec::new());
                        continue;
                    }
                    if a.steps.is_empty() {
                        let because = self.why_handler(h);
                        self.finish(n + h, Outcome::of(n + h, Status::Ok).because(because), None, false);
                        continue;
                    }
                    if let (Risk::Link(why), false) = (&a.risk, self.policy.risk_accepted) {
                        let trouble = Trouble::new(format!("it could cut off the session: {why}"))
                            .hint("`confirm: none` in the play runs it all the same; until then it stays owed");
                        self.fail(n + h, "risk", trouble, Vec::new());
                        continue;
                    }
                }
                Now::NotYet(why) => {
                    let why = why.clone();
                    if !chosen.is_empty() {
                        break;
                    }
                    self.fail(n + h, "probe", why, Vec::new());
                    continue;
                }
                _ => break,
            }
            who.get_or_insert_with(|| self.who[n + h].clone());
            taken.push(h);
        }
        taken
    }

    pub(super) fn foretell_handler(&mut self, h: usize) {
        let n = self.play.resources.len();
        if matches!(self.slots[n + h].now, Now::Finished { .. }) {
            return;
        }
        for i in self.notifiers(h).collect::<Vec<_>>() {
            if matches!(self.slots[i].now, Now::Finished { status: Status::WouldChange, .. }) {
                self.called[h].insert(i);
            }
        }
        if self.called_handlers().contains(&h) {
            let because = self.why_handler(h);
            let (changes, files, warnings) = match std::mem::replace(&mut self.slots[n + h].now, Now::Unprobed) {
                Now::Ready(a) => (a.changes, a.files, a.warnings),
                _ => Default::default(),
            };
            let outcome = Outcome { changes, files, warnings, ..Outcome::of(n + h, Status::WouldChange) };
            self.finish(n + h, outcome.because(because), None, false);
        }
    }

    pub(super) fn why_handler(&self, h: usize) -> String {
        let by: Vec<&str> = self.called[h].iter().map(|&i| &*self.item(i).address).collect();
        let owed = self.owed.get(&h).filter(|run| **run != *self.run);
        let notified = (!by.is_empty()).then(|| format!("notified by {}", by.join(", ")));
        notified.into_iter().chain(owed.map(|run| format!("owed by run {run}"))).collect::<Vec<_>>().join(", ")
    }

    /// Handlers that nobody called are no outcome; those that stay owed are told.
    pub(super) fn drop_handlers(&mut self) {
        let n = self.play.resources.len();
        for h in 0..self.play.handlers.len() {
            if matches!(self.slots[n + h].now, Now::Finished { .. }) {
                continue;
            }
            if let Some(run) = self.owed.get(&h) {
                let because = format!("owed by run {run}, and stays so as long as what notifies it fails");
                self.finish(n + h, Outcome::of(n + h, Status::Skipped).because(because), None, false);
            } else {
                self.slots[n + h].now = Now::Finished { status: Status::Ok, verified: false, cause: None };
            }
        }
    }
}
