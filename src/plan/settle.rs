//! What became of a segment: its steps, then the probe that closes it.

use super::{Applied, Debt, Note, Now, Outcome, Piece, Plan, Ran, Segment, Work};
use crate::error::Error;
use crate::event::{Problem, Status};
use crate::resource::{Assessment, Change, Effect, Output, Reading, Stale, Trouble, Weight, joint};
use std::collections::{BTreeMap, BTreeSet};

impl Plan {
    /// Takes in what became of a segment's steps. The probe that closes the segment is absorbed after it.
    pub fn settle(&mut self, segment: &Segment, ran: &BTreeMap<u32, Ran>) {
        let ran = &with_parts(segment, ran);
        let n = self.play.resources.len();
        // What was owed is noted on the host now, whatever became of those that owe it.
        for piece in &segment.pieces {
            let (Work::Owe(owed) | Work::Settle(owed)) = &piece.work else { continue };
            let Some(h) = self.handler_of(owed) else { continue };
            let done = match ran.get(&piece.id) {
                Some(Ran::Yes(output)) => Some(output),
                Some(Ran::Skipped) => continue,
                Some(Ran::Unknown(_)) | None => None,
            };
            match (&piece.work, done) {
                (Work::Owe(_), Some(Output { code: 0, .. }) | None) => {
                    self.noted.insert(h);
                    let (run, who) = (owed.run.clone(), segment.who.clone());
                    let note = if done.is_some() { Note::There } else { Note::Unsure };
                    self.owed.insert(h, Debt { run, who, ours: true, note });
                }
                (Work::Settle(_), Some(output)) => {
                    let Some(debt) = self.owed.get_mut(&h) else { continue };
                    let was = std::mem::replace(&mut debt.note, Note::Gone);
                    if output.code != 0 && was == Note::There {
                        let (title, said) = (&owed.title, output.complaint());
                        self.warnings
                            .push(format!("`{title}` stays noted as owed, and the next run does it again: {said}"));
                    }
                }
                _ => {}
            }
        }
        for i in segment.resources.iter().copied().chain(segment.handlers.iter().map(|h| n + h)) {
            let pieces: Vec<&Piece> = segment.pieces.iter().filter(|p| p.owner == Some(i)).collect();
            self.settle_item(i, &pieces, segment, ran);
        }
        // A change makes the knowledge of all other users old, and some of what is known stale; also one that failed,
        // which may have got half-way.
        self.fresh.clear();
        let ran = |p: &&Piece| !matches!(ran.get(&p.id), Some(Ran::Skipped));
        let touched: BTreeSet<usize> = segment.pieces.iter().filter(ran).filter_map(|p| p.owner).collect();
        for i in 0..self.slots.len() {
            let applied = |j: &usize| touched.contains(j);
            let stale = match (&self.slots[i].now, self.item(i).resource.stale_after()) {
                (Now::Finished { .. } | Now::Applied(_), _) => false,
                _ if i >= n => true,
                (Now::NotYet(_), _) | (_, Stale::AnyDependency) => self.ancestors(i).iter().any(applied),
                (_, Stale::Claims(claims)) => self.claimants(&claims).iter().any(applied),
                (_, Stale::Never) => false,
            };
            self.slots[i].stale |= stale;
        }
    }

    /// Takes a segment back that was not run, since the host is no longer as it was probed; nor is what it was owed.
    pub fn retract(&mut self, segment: &Segment) {
        let n = self.play.resources.len();
        for i in segment.resources.iter().copied().chain(segment.handlers.iter().map(|h| n + h)) {
            self.slots[i].now = Now::Unprobed;
            self.slots[i].stale = true;
        }
        self.owed.clear();
        self.fresh.clear();
    }

    pub(super) fn settle_item(&mut self, i: usize, pieces: &[&Piece], segment: &Segment, ran: &BTreeMap<u32, Ran>) {
        let n = self.play.resources.len();
        let before = match std::mem::replace(&mut self.slots[i].now, Now::Unprobed) {
            Now::Ready(before) => *before,
            other => {
                self.slots[i].now = other;
                return;
            }
        };
        let mut outputs = Vec::new();
        let (mut unknown, mut failed) = (None, None);
        for piece in pieces {
            match ran.get(&piece.id) {
                Some(Ran::Yes(output)) if output.code == 0 => outputs.push(output.clone()),
                Some(Ran::Yes(output)) => {
                    // What is told of a part stands for itself: the exit code is that of the whole.
                    let own = output.complaint();
                    failed = Some(match piece.work {
                        Work::Part if output.code == 1 && !own.is_empty() => Trouble::new(own),
                        _ => step_trouble(output, piece.seconds),
                    });
                    break;
                }
                Some(Ran::Skipped) if outputs.is_empty() => return self.skipped(i, piece, segment, ran, before),
                Some(Ran::Skipped) => unknown = Some("one of its steps did not run".to_owned()),
                Some(Ran::Unknown(why)) => unknown = Some(why.clone()),
                None => unknown = Some("the session ended before it was done".to_owned()),
            }
            if unknown.is_some() {
                break;
            }
        }
        if failed.is_some() {
            if i >= n {
                self.because_of_segment(i - n, segment);
            }
            self.slots[i].now = Now::Applied(Box::new(Applied { before, changed: false, unknown: None, failed }));
            return;
        }
        let mut changed = true;
        if self.item(i).resource.action() && unknown.is_none() {
            match self.item(i).resource.changed(&outputs) {
                Ok(verdict) => changed = verdict,
                Err(error) => return self.fail_with(i, "expression", trouble_of(&error), before),
            }
        }
        let doomed = before.obstacle.as_ref().is_some_and(|o| o.weight == Weight::Lasts);
        if changed && !doomed {
            for &h in self.graph.notify.get(i).into_iter().flatten() {
                self.called[h].insert(i);
            }
        }
        self.slots[i].now = Now::Applied(Box::new(Applied { before, changed, unknown, failed }));
    }

    pub(super) fn because_of_segment(&mut self, h: usize, segment: &Segment) {
        let by: Vec<usize> = self.notifiers(h).filter(|i| segment.resources.contains(i)).collect();
        self.called[h].extend(by);
    }

    /// A step did not run because one that it hangs on failed: tells which, or that a handler wasn't called after all.
    pub(super) fn skipped(
        &mut self,
        i: usize,
        piece: &Piece,
        segment: &Segment,
        ran: &BTreeMap<u32, Ran>,
        before: Assessment,
    ) {
        let failed = |id: &u32| !matches!(ran.get(id), Some(Ran::Yes(o)) if o.code == 0);
        let culprit = piece.all.iter().find(|id| failed(id)).and_then(|id| segment.pieces.iter().find(|p| p.id == *id));
        match culprit.map(|p| (&p.work, p.owner, p.id)) {
            Some((Work::Owe(owed), _, id)) => {
                let why = match ran.get(&id) {
                    Some(Ran::Yes(output)) => output.complaint(),
                    _ => "it did not run".to_owned(),
                };
                let message = format!(
                    "nothing was changed, since it can't be noted that `{}` has to run after it: {why}",
                    owed.title
                );
                self.fail_with(
                    i,
                    "state",
                    Trouble::new(message).hint("/var/lib/netplay must be writable on the host"),
                    before,
                );
            }
            Some((_, Some(owner), _)) => {
                let cause = match &self.slots[owner].now {
                    Now::Finished { cause: Some(cause), .. } => *cause,
                    _ => owner,
                };
                let because = self.because(cause);
                self.finish(i, Outcome::of(i, Status::Skipped).because(because), Some(cause), false);
            }
            _ if self.is_handler(i) => {
                // None of those that notify it succeeded.
                self.slots[i].now = Now::Ready(Box::new(before));
                self.slots[i].stale = true;
            }
            _ => self.fail_with(i, "unknown", Trouble::new("its step did not run"), before),
        }
    }

    /// Judges what was applied by the probe that followed.
    pub(super) fn verify(&mut self, i: usize, applied: Applied, reading: Result<Reading<Assessment>, Trouble>) {
        let Applied { before, changed, unknown, failed } = applied;
        if let Some(trouble) = failed {
            // It may have got half-way: what is left is what the probe says.
            return match reading {
                Ok(Reading::State(after)) => self.fail_after(i, "step", trouble, before, after.changes),
                Ok(Reading::NotYet(_)) | Err(_) => self.fail_with(i, "step", trouble, before),
            };
        }
        let after = match reading {
            Ok(Reading::State(after)) => after,
            Ok(Reading::NotYet(why)) | Err(why) => {
                let kind = if unknown.is_some() { "unknown" } else { "verify" };
                return self.fail_with(i, kind, why, before);
            }
        };
        let mut warnings = before.warnings.clone();
        warnings.extend(after.warnings.iter().filter(|w| !before.warnings.contains(w)).cloned());
        let because = self.is_handler(i).then(|| self.why_handler(i - self.play.resources.len()));
        if let Some(why) = unknown {
            let action = self.item(i).resource.action();
            if action || !after.remaining.is_empty() {
                let seen = if action { "whether it ran can't be told".to_owned() } else { differs(&after.remaining) };
                let trouble = Trouble::new(format!("{why}: {seen}")).hint("run it again");
                return self.fail_after(i, "unknown", trouble, before, after.changes);
            }
            warnings.push(format!("{why}, but it is as wanted now"));
        }
        let later = |c: &Change| c.effect != Effect::Now;
        if let Some(now) =
            Some(after.remaining.iter().filter(|c| !later(c)).cloned().collect::<Vec<_>>()).filter(|r| !r.is_empty())
        {
            let mut trouble = Trouble::new(differs(&now));
            trouble.hint = after.obstacle.as_ref().and_then(|o| o.trouble.hint.clone());
            // What was to follow at the next boot follows no more.
            return self.fail_after(i, "verify", trouble, Assessment { warnings, ..before }, after.remaining);
        }
        if let Some(obstacle) = after
            .obstacle
            .as_ref()
            .filter(|o| o.weight != Weight::Foreseen)
            .or(before.obstacle.as_ref().filter(|o| o.weight == Weight::Lasts))
        {
            let trouble = obstacle.trouble.clone();
            let left = after.changes.iter().filter(|c| !later(c)).cloned().collect();
            return self.fail_after(i, "obstacle", trouble, Assessment { warnings, ..before }, left);
        }
        if let Some(trouble) = self.not_taken(i, &after) {
            return self.fail_with(i, "firmware", trouble, Assessment { warnings, ..after });
        }
        let waits = Plan::later(&after.remaining);
        let status = match (changed, waits.is_empty() && !before.changes.iter().any(later)) {
            (_, false) => Status::RebootPending,
            (true, true) => Status::Changed,
            (false, true) => Status::Ok,
        };
        // Some devices tell only afterwards that it takes more than a reboot.
        let when = |c: &Change| waits.iter().find(|w| w.field == c.field).map_or(c.effect, |w| w.effect);
        let changes = before.changes.into_iter().map(|c| Change { effect: when(&c), ..c }).collect();
        let outcome = Outcome { changes, waits, files: before.files, warnings, because, ..Outcome::of(i, status) };
        let verified = !self.item(i).resource.action();
        self.finish(i, outcome, None, verified);
    }

    /// What was found or made as wanted must still be so when the host is probed again.
    pub(super) fn recheck(&mut self, i: usize, reading: Result<Reading<Assessment>, Trouble>) {
        if let Ok(Reading::State(a)) = reading
            && a.remaining.iter().any(|c| c.effect == Effect::Now)
        {
            let message =
                format!("it was as wanted, then something else in this play changed it: {}", differs(&a.remaining));
            let trouble = Trouble::new(message)
                .hint("two resources of the play work against each other, or one needs an `after`");
            self.fail_with(i, "verify", trouble, a);
        }
    }

    /// The session is gone for good: what was under way is unknown, what is left is not done.
    pub fn abandon(&mut self, problem: &Problem) {
        self.closed = true;
        for i in 0..self.play.resources.len() + self.play.handlers.len() {
            match std::mem::replace(&mut self.slots[i].now, Now::Unprobed) {
                Now::Applied(applied) => {
                    let Applied { before, unknown, failed, .. } = *applied;
                    // Why is told once, of the host.
                    let open = |message: &str| ("unknown", Trouble::new(message).hint("run it again"));
                    let (kind, trouble) = match (failed, unknown) {
                        (Some(trouble), _) => ("step", trouble),
                        (None, None) => open("its steps ran, and what came of them could not be seen"),
                        (None, Some(_)) => open("whether it was done isn't known"),
                    };
                    self.fail_with(i, kind, trouble, before);
                }
                done @ Now::Finished { .. } => self.slots[i].now = done,
                _ if self.is_handler(i) && self.called[i - self.play.resources.len()].is_empty() => {}
                _ => self.finish(i, Outcome::of(i, Status::Skipped).because(problem.message.clone()), None, false),
            }
        }
    }
}

/// The same with what became of the parts of what was done together.
fn with_parts(segment: &Segment, ran: &BTreeMap<u32, Ran>) -> BTreeMap<u32, Ran> {
    let mut all = ran.clone();
    for piece in &segment.pieces {
        let Work::Joint(_, ids) = &piece.work else { continue };
        let Some(whole) = ran.get(&piece.id) else { continue };
        let lost = || Ran::Unknown("what came of it was lost".to_owned());
        let each = match whole {
            Ran::Yes(output) => joint::parts(output, ids.len()).into_iter().map(|p| p.map_or_else(lost, Ran::Yes)),
            other => {
                all.extend(ids.iter().map(|&id| (id, other.clone())));
                continue;
            }
        };
        all.extend(ids.iter().copied().zip(each));
    }
    all
}

/// `mtu: wanted 9000, got 1500`.
pub(super) fn differs(changes: &[Change]) -> String {
    let show = |v: &serde_json::Value| match v {
        serde_json::Value::Null => "absent".to_owned(),
        serde_json::Value::String(s) => s.clone(),
        other => other.to_string(),
    };
    let one = |c: &Change| format!("{}: wanted {}, got {}", c.field, show(&c.to), show(&c.from));
    changes.iter().map(one).collect::<Vec<_>>().join("; ")
}

pub(super) fn step_trouble(output: &Output, seconds: u32) -> Trouble {
    let said = output.complaint();
    let tail: Vec<&str> = said.lines().rev().take(20).collect();
    let said = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
    match output.code {
        124 | 137 | 143 => {
            // A deadline sends signal 15, and 9 where that is ignored; its own exit code of 124 tells of the first alone.
            let message = match output.code {
                137 => format!("killed by signal 9: its deadline of {seconds} s, want of memory, or a `kill -9`"),
                143 => format!("ended by signal 15: its deadline of {seconds} s, or a `kill`"),
                _ => format!("ended, most likely by its deadline of {seconds} s"),
            };
            let message = format!("it was {message} (exit code {})", output.code);
            let message = if said.is_empty() { message } else { format!("{message}: {said}") };
            Trouble::new(message).hint(match output.code {
                137 => {
                    "look for `Out of memory` in the host's dmesg; where it took that long, give the resource a longer \
                     `timeout`"
                }
                143 => "where it took that long, give the resource a longer `timeout`, or find out why it hangs",
                _ => "give the resource a longer `timeout`, or find out why it hangs",
            })
        }
        code if said.is_empty() => Trouble::new(format!("exit code {code}, and it said nothing")),
        code => Trouble::new(format!("exit code {code}: {said}")),
    }
}

fn trouble_of(error: &Error) -> Trouble {
    Trouble::new(error.to_string())
}
