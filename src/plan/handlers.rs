//! Handlers: which are called for, when they run, and what stays owed.

use super::{Debt, Note, Now, Outcome, Piece, Plan, STEP_SECONDS, Segment, Who, Work};
use crate::event::{Problem, Status};
use crate::resource::Trouble;

impl Plan {
    /// The handlers that are called for and not done.
    pub(super) fn called_handlers(&self) -> Vec<usize> {
        let n = self.play.resources.len();
        (0..self.play.handlers.len())
            .filter(|&h| !matches!(self.slots[n + h].now, Now::Finished { .. }))
            .filter(|&h| {
                let due = self.owed.get(&h).is_some_and(|debt| !debt.ours);
                !self.called[h].is_empty() || (due && !self.failed_notifier(h) && self.gate.is_none())
            })
            .collect()
    }

    fn failed_notifier(&self, h: usize) -> bool {
        self.notifiers(h).any(|i| matches!(self.slots[i].now, Now::Finished { status: Status::Failed, .. }))
    }

    /// Takes back on the host what is owed no more and could not be taken back where the handler ran: the note is
    /// another user's, there was nothing to do, or who called for the handler turned out to have changed nothing.
    pub(super) fn settlement(&self) -> Option<Segment> {
        let n = self.play.resources.len();
        let paid = |(h, debt): &(&usize, &Debt)| match self.slots[n + **h].now {
            Now::Finished { status, .. } => !matches!(status, Status::Failed | Status::Skipped),
            _ => debt.ours && !self.failed_notifier(**h),
        };
        if self.policy.check {
            return None;
        }
        let open = || self.owed.iter().filter(|(_, debt)| debt.note != Note::Gone).filter(paid);
        let who = open().next()?.1.who.clone();
        let paid = open().filter(|(_, debt)| debt.who == who);
        let pieces = paid.zip(1..).map(|((&h, _), id)| Piece {
            id,
            all: Vec::new(),
            any: Vec::new(),
            work: Work::Settle(self.debt(h)),
            seconds: STEP_SECONDS,
            owner: None,
        });
        Some(Segment { pieces: pieces.collect(), who, guard: None, resources: Vec::new(), handlers: Vec::new() })
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
            let by_segment: Vec<usize> = self.notifiers(h).filter(|i| chosen.contains(i) && !self.doomed(*i)).collect();
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
            if let Some(judgement) = self.judge_handler(h) {
                // Only the segment tells whether it is called for at all.
                if !chosen.is_empty() || !taken.is_empty() {
                    break;
                }
                self.finish_handler(h, judgement);
                continue;
            }
            if !matches!(self.slots[n + h].now, Now::Ready(_)) {
                break;
            }
            // What may cut the session off has a segment of its own.
            let risky = self.is_risky(n + h);
            if (risky && !chosen.is_empty()) || taken.last().is_some_and(|&t| self.is_risky(n + t) != risky) {
                break;
            }
            who.get_or_insert_with(|| self.who[n + h].clone());
            taken.push(h);
        }
        taken
    }

    /// What becomes of a handler that isn't run though it is called for: there is nothing to do, or this is why not.
    pub(super) fn judge_handler(&self, h: usize) -> Option<Result<(), (&'static str, Trouble)>> {
        match &self.slots[self.play.resources.len() + h].now {
            Now::NotYet(why) => Some(Err(("probe", why.clone()))),
            Now::Ready(a) => match &a.obstacle {
                Some(obstacle) => Some(Err(("obstacle", obstacle.trouble.clone()))),
                _ if a.steps.is_empty() => Some(Ok(())),
                _ => self.unconfirmable(a).map(|trouble| Err(("risk", trouble))),
            },
            _ => None,
        }
    }

    fn finish_handler(&mut self, h: usize, judgement: Result<(), (&'static str, Trouble)>) {
        let at = self.play.resources.len() + h;
        let because = self.why_handler(h);
        let outcome = match judgement {
            Ok(()) => Outcome::of(at, Status::Ok),
            Err((kind, trouble)) => Outcome {
                error: Some(Problem { kind, message: trouble.message, hint: trouble.hint }),
                ignored: self.item(at).ignore_errors,
                ..Outcome::of(at, Status::Failed)
            },
        };
        self.finish(at, outcome.because(because), None, false);
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
            // What stands in the way now may not do so any more when what this handler stands on has changed.
            let lasting = |judgement: &Result<(), (&str, Trouble)>| {
                matches!(judgement, Ok(()) | Err(("risk", _))) || !self.may_mend(n + h)
            };
            if self.moving(n + h, &[]).is_none()
                && let Some(judgement) = self.judge_handler(h).filter(lasting)
            {
                return self.finish_handler(h, judgement);
            }
            let because = self.why_handler(h);
            let (changes, files, warnings) = match std::mem::replace(&mut self.slots[n + h].now, Now::Unprobed) {
                Now::Ready(mut a) => {
                    a.warnings.extend(self.confirmation(&a));
                    (a.changes, a.files, a.warnings)
                }
                _ => Default::default(),
            };
            let outcome = Outcome { changes, files, warnings, ..Outcome::of(n + h, Status::WouldChange) };
            self.finish(n + h, outcome.because(because), None, false);
        }
    }

    /// Whether something that would change could take away what stands in a handler's way: what it stands on, or a
    /// command, of which nobody knows what it makes.
    fn may_mend(&self, handler: usize) -> bool {
        let resource = &self.item(handler).resource;
        let own = resource.claims();
        let needed: Vec<usize> = resource.needs().iter().flat_map(|need| self.graph.claimants(need)).collect();
        (0..self.play.resources.len()).filter(|&i| self.would(i, &[])).any(|i| {
            let claims = self.item(i).resource.claims();
            claims.is_empty() || needed.contains(&i) || claims.iter().any(|c| own.contains(c))
        })
    }

    pub(super) fn why_handler(&self, h: usize) -> String {
        let by: Vec<&str> = self.called[h].iter().map(|&i| &*self.item(i).address).collect();
        let owed = self.owed.get(&h).filter(|debt| !debt.ours).map(|debt| &debt.run);
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
            if let Some(Debt { run, note: Note::There | Note::Unsure, .. }) = self.owed.get(&h) {
                let because = format!("owed by run {run}, and stays so as long as what notifies it fails");
                self.finish(n + h, Outcome::of(n + h, Status::Skipped).because(because), None, false);
            } else {
                self.slots[n + h].now = Now::Finished { status: Status::Ok, verified: false, cause: None };
            }
        }
    }
}
