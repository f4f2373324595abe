//! What may cut the session off: it goes into segments of its own, which are taken back unless they are confirmed.

use super::settle::step_trouble;
use super::{Confirming, Guard, Now, Outcome, Piece, Plan, Ran, Segment, Status, Who};
use crate::event::Problem;
use crate::resource::service::says_how_it_is_reached;
use crate::resource::{Answers, Assessment, Change, Reading, Risk, Step, Trouble, Undo};
use std::collections::BTreeMap;

/// The files that its steps are known to write.
fn written(assessment: &Assessment) -> impl Iterator<Item = &String> {
    let put = assessment.steps.iter().filter_map(|step| match step {
        Step::Put(put) => Some(&put.path),
        Step::Run(_) | Step::Share(_) => None,
    });
    assessment.files.iter().map(|file| &file.path).chain(put)
}

impl Plan {
    /// Why something that may cut the session off isn't done, if it isn't.
    pub(super) fn unconfirmable(&self, assessment: &Assessment) -> Option<Trouble> {
        let Risk::Link(why) = &assessment.risk else { return None };
        let hint = match self.policy.confirm {
            Confirming::Never => return None,
            Confirming::Within { .. } if assessment.undo.is_some() => return None,
            Confirming::Within { .. } => {
                "netplay can't take such a change back by itself; `confirm: none` in the play makes it all the same"
            }
            Confirming::Impossible => {
                "no new connection can confirm it on the machine that netplay runs on; `confirm: none` in the play makes it all \
                 the same"
            }
        };
        Some(Trouble::new(format!("it could cut off the session: {why}")).hint(hint))
    }

    /// What a check tells of how something that may cut the session off would be done.
    pub(super) fn confirmation(&self, assessment: &Assessment) -> Option<String> {
        match (&assessment.risk, self.policy.confirm) {
            (Risk::Link(why), Confirming::Within { timeout, .. }) => Some(format!(
                "it could cut off the session ({why}): the host takes it back unless a new connection confirms it within {timeout} s"
            )),
            _ => None,
        }
    }

    /// A command that makes a file take effect by which the host is reached may cut the session off as well as a service that is
    /// restarted, and nobody knows what it does: it is taken back by running it again when the file is as it was.
    pub(super) fn imply_risks(&mut self) {
        let n = self.play.resources.len();
        for h in 0..self.play.handlers.len() {
            if self.item(n + h).resource.type_name() != "command" {
                continue;
            }
            let file = self.notifiers(h).find_map(|i| match &self.slots[i].now {
                Now::Ready(a) if !a.changes.is_empty() => written(a).find(|path| says_how_it_is_reached(path)).cloned(),
                _ => None,
            });
            if let (Some(file), Now::Ready(a)) = (file, &mut self.slots[n + h].now) {
                let steps = a.steps.iter().filter_map(|step| match step {
                    Step::Run(script) => Some(script.clone()),
                    Step::Put(_) | Step::Share(_) => None,
                });
                a.undo = Some(Undo { steps: steps.collect(), ..Undo::default() });
                a.risk = Risk::Link(format!("it makes {file} take effect"));
            }
        }
    }

    /// Whether what is to be done at a position goes into a segment that has to be confirmed.
    pub(super) fn is_risky(&self, i: usize) -> bool {
        let Now::Ready(a) = &self.slots[i].now else { return false };
        match self.policy.confirm {
            Confirming::Within { all, .. } => match a.risk {
                Risk::None => false,
                Risk::Beside => all && a.undo.is_some(),
                Risk::Link(_) => a.undo.is_some(),
            },
            Confirming::Never | Confirming::Impossible => false,
        }
    }

    /// Whether it or a handler that it calls for does: what a handler makes take effect is taken back with it.
    pub(super) fn goes_with_risk(&self, i: usize) -> bool {
        let n = self.play.resources.len();
        let calls = || self.graph.notify.get(i).into_iter().flatten();
        let has_way_back = || matches!(&self.slots[i].now, Now::Ready(a) if a.undo.is_some());
        self.is_risky(i) || (i < n && has_way_back() && calls().any(|&h| self.is_risky(n + h)))
    }

    /// The risky handlers that these call for.
    pub(super) fn risky_handlers(&self, who: &Who, resources: &[usize]) -> Vec<usize> {
        let n = self.play.resources.len();
        let called = |h: &usize| self.notifiers(*h).any(|i| resources.contains(&i) && !self.doomed(i));
        let ready = |h: &usize| self.is_risky(n + h) && self.who[n + h] == *who && self.judge_handler(*h).is_none();
        (0..self.play.handlers.len()).filter(called).filter(ready).collect()
    }

    /// A segment with its way back: what its handlers have restarted is restarted again when all else is as it was.
    pub(super) fn guarded(&mut self, who: Who, resources: Vec<usize>, handlers: Vec<usize>) -> Segment {
        let n = self.play.resources.len();
        let Confirming::Within { timeout, .. } = self.policy.confirm else {
            return self.segment(who, resources, handlers);
        };
        let mut guard =
            Guard { timeout, files: Vec::new(), undo: Vec::new(), raises: Vec::new(), handlers: Vec::new() };
        for i in resources.iter().rev().copied().chain(handlers.iter().map(|h| n + h)) {
            let Now::Ready(a) = &self.slots[i].now else { continue };
            let more = a.undo.iter().flat_map(|undo| &undo.files);
            for path in written(a).chain(more) {
                if !guard.files.contains(path) {
                    guard.files.push(path.clone());
                }
            }
            guard.undo.extend(a.undo.clone());
            guard.raises.extend(a.raises.clone());
        }
        guard.files.reverse();
        let segment = self.segment(who, resources, handlers);
        let of_handler = |piece: &&Piece| piece.owner.is_some_and(|i| i >= n);
        guard.handlers = segment.pieces.iter().filter(of_handler).map(|piece| piece.id).collect();
        Segment { guard: Some(guard), ..segment }
    }

    /// Why the host took a segment back by itself before its time was over: a handler of it failed, or a step ran over its time.
    pub fn broken_off(&self, segment: &Segment, ran: &BTreeMap<u32, Ran>) -> Option<String> {
        let handlers = segment.guard.as_ref().map(|guard| guard.handlers.as_slice()).unwrap_or_default();
        segment.pieces.iter().find_map(|piece| match ran.get(&piece.id) {
            Some(Ran::Yes(output))
                if matches!(output.code, 124 | 137) || (output.code != 0 && handlers.contains(&piece.id)) =>
            {
                let who = piece.owner.map_or_else(|| "a step".to_owned(), |i| self.item(i).address.to_string());
                Some(format!("{who} failed: {}", step_trouble(output, piece.seconds).message))
            }
            _ => None,
        })
    }

    /// A segment was taken back, or never begun; why is told of all in it, and what the host is like now, if that is known.
    pub fn taken_back(&mut self, segment: &Segment, status: Status, problem: &Problem, now: Option<&Answers>) {
        let n = self.play.resources.len();
        for i in segment.resources.iter().copied().chain(segment.handlers.iter().map(|h| n + h)) {
            let (changes, files, mut warnings) = match std::mem::replace(&mut self.slots[i].now, Now::Unprobed) {
                Now::Ready(a) => (a.changes, a.files, a.warnings),
                Now::Applied(applied) => (applied.before.changes, applied.before.files, applied.before.warnings),
                other => {
                    self.slots[i].now = other;
                    continue;
                }
            };
            if let Some(Ok(Reading::State(found))) = now.map(|now| self.item(i).resource.assess(now)) {
                let now = |was: &Change| {
                    let still = found.changes.iter().find(|c| c.field == was.field);
                    still.map_or_else(|| was.to.clone(), |c| c.from.clone())
                };
                let differs = |was: &&Change| now(was) != was.from;
                let show = |was: &Change| format!("{} was {} and is {}", was.field, was.from, now(was));
                let differing: Vec<String> = changes.iter().filter(differs).map(show).collect();
                if !differing.is_empty() {
                    warnings.push(format!("it isn't as it was before: {}", differing.join("; ")));
                }
            }
            let error = Some(problem.clone());
            self.finish(i, Outcome { error, changes, files, warnings, ..Outcome::of(i, status) }, None, false);
        }
    }
}
