//! What is to be done on one host in one play: assessments in, segments of steps out. Pure; the engine runs them.
//!
//! A *segment* is what one execution does: every resource whose dependencies are met or are in it, whose state is known
//! and isn't made stale by what runs before it, and which runs as the same user. The rest waits for the probe that
//! closes the segment. Handlers are the tail of the last segment.

mod boot;
mod handlers;
mod segment;
mod settle;

pub use boot::{Boot, Rung};

use crate::event::{Problem, Status};
use crate::graph::Graph;
use crate::playbook::{HostPlay, Item};
use crate::resource::{
    Answers, Assessment, Change, Effect, FileDiff, Need, Obstacle, Output, Question, Reading, Risk, Stale, Step,
    Trouble, Weight,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// As whom something runs on the host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Who {
    /// The login user.
    Login,
    /// Another one, by sudo.
    User(Arc<str>),
}

/// What the play says of all of its resources.
#[derive(Debug, Clone, Copy, Default)]
pub struct Policy {
    /// Only look (`--check`).
    pub check: bool,
    /// `on_error: stop`: after a failure nothing that stands behind it is done.
    pub stop_on_error: bool,
    /// `confirm: none`: steps that could cut off the session are taken.
    pub risk_accepted: bool,
    /// What the host may be booted by, the strongest; nothing where it may not be.
    pub boots: Option<Rung>,
}

/// What became of a resource or a handler.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its position: resources in the file's order, then handlers.
    pub position: usize,
    /// What it came to.
    pub status: Status,
    /// What changed, would change or is still to.
    pub changes: Vec<Change>,
    /// Of what failed: what was changed all the same.
    pub done: Vec<Change>,
    /// What of it takes effect at a boot that is still to come.
    pub waits: Vec<Change>,
    /// The files among that.
    pub files: Vec<FileDiff>,
    /// What the operator should know.
    pub warnings: Vec<String>,
    /// Why it failed.
    pub error: Option<Problem>,
    /// Whether its failure is to be ignored.
    pub ignored: bool,
    /// Why it was skipped, what can't be known, or who called for the handler.
    pub because: Option<String>,
}

/// What the engine has to do next.
#[derive(Debug)]
pub enum Next {
    /// Run these steps, then probe.
    Segment(Segment),
    /// Probe again, as this user.
    Probe(Who),
    /// Boot the host, then call [`Plan::booted`] and probe; or [`Plan::not_booted`].
    Boot(Boot),
    /// Nothing is left.
    Done,
}

/// The steps of one execution.
#[derive(Debug)]
pub struct Segment {
    /// As whom.
    pub who: Who,
    /// The steps in their order.
    pub pieces: Vec<Piece>,
    resources: Vec<usize>,
    handlers: Vec<usize>,
}

impl Segment {
    /// A step of the engine's own, which belongs to no resource.
    pub fn alone(who: Who, step: Step, seconds: u32) -> Segment {
        let work = Work::Step(step);
        let piece = Piece { id: 1, all: Vec::new(), any: Vec::new(), work, seconds, owner: None };
        Segment { who, pieces: vec![piece], resources: Vec::new(), handlers: Vec::new() }
    }
}

/// One step, and on which others of its segment it hangs.
#[derive(Debug)]
pub struct Piece {
    /// Its number, unique in the segment.
    pub id: u32,
    /// It runs only if all of these succeeded,
    pub all: Vec<u32>,
    /// and one of these, unless it is empty.
    pub any: Vec<u32>,
    /// What it does.
    pub work: Work,
    /// Seconds it may take.
    pub seconds: u32,
    owner: Option<usize>,
}

#[cfg(test)]
impl Piece {
    /// A step that belongs to no resource, for tests of what runs it.
    pub(crate) fn of_test(id: u32, all: &[u32], any: &[u32], work: Work, seconds: u32) -> Piece {
        Piece { id, all: all.to_vec(), any: any.to_vec(), work, seconds, owner: None }
    }
}

/// What a [`Piece`] does.
#[derive(Debug)]
pub enum Work {
    /// A resource's step.
    Step(Step),
    /// Notes on the host that this handler is owed.
    Owe(Owed),
    /// Takes that note back.
    Settle(Owed),
    /// What several resources do together: the step, and the numbers of the [`Work::Part`]s.
    Joint(Step, Vec<u32>),
    /// A resource's part of that. It has no text of its own, and its outcome is told by the joint.
    Part,
}

/// A handler that is owed, as it is noted on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owed {
    /// Its address.
    pub address: String,
    /// Its title.
    pub title: String,
    /// The run that owes it.
    pub run: String,
}

impl Owed {
    /// The three lines of the note.
    pub fn lines(&self) -> [String; 3] {
        [&self.address, &self.title, &self.run].map(|text| text.replace(['\n', '\r'], " "))
    }
}

/// What became of a [`Piece`].
#[derive(Debug, Clone)]
pub enum Ran {
    /// It ran to its end.
    Yes(Output),
    /// It did not run, because one that it hangs on did not succeed.
    Skipped,
    /// The session broke or its output can't be read: it may have run or not.
    Unknown(String),
}

/// Seconds a step may take unless its resource says otherwise.
pub const STEP_SECONDS: u32 = 120;

/// A host's play on its way.
#[derive(Debug)]
pub struct Plan {
    play: HostPlay,
    graph: Graph,
    order: Vec<usize>,
    who: Vec<Who>,
    policy: Policy,
    run: Arc<str>,
    slots: Vec<Slot>,
    owed: BTreeMap<usize, Debt>,
    /// The handlers that this visit itself has noted as owed.
    noted: BTreeSet<usize>,
    called: Vec<BTreeSet<usize>>,
    fresh: BTreeSet<Who>,
    finished: Vec<Outcome>,
    /// Whether no probe follows any more.
    closed: bool,
    gate: Option<usize>,
    warnings: Vec<String>,
    /// What the host was booted for in this visit: position, field, and what it was to be.
    booted_for: Vec<(usize, String, serde_json::Value)>,
    /// What an earlier run booted it for.
    made: Vec<String>,
    /// Files that changes were told of: what the changes were planned from, and what the last one made.
    told: BTreeMap<String, (Bytes, Bytes)>,
}

/// The bytes of a file, if it is there.
type Bytes = Option<Vec<u8>>;

/// A handler that is noted on the host as owed.
#[derive(Debug)]
struct Debt {
    /// The run that owes it.
    run: String,
    /// Who noted it, and can take the note back.
    who: Who,
    /// Whether it was noted in this visit, for what then may have changed nothing.
    ours: bool,
    note: Note,
}

/// What is known of the note of a [`Debt`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    There,
    /// The session broke when it was made.
    Unsure,
    /// It was taken back.
    Gone,
}

#[derive(Debug)]
struct Slot {
    now: Now,
    stale: bool,
    /// What it had come to when the host was booted.
    earlier: Option<Outcome>,
}

#[derive(Debug)]
enum Now {
    Unprobed,
    NotYet(Trouble),
    Ready(Box<Assessment>),
    Applied(Box<Applied>),
    Finished { status: Status, verified: bool, cause: Option<usize> },
}

#[derive(Debug)]
struct Applied {
    before: Assessment,
    /// Whether an action says that it changed something.
    changed: bool,
    unknown: Option<String>,
    /// Why one of its steps failed.
    failed: Option<Trouble>,
}

impl Plan {
    /// A plan in which nothing is known of the host yet. `who` tells of each resource, then of each handler, as whom it
    /// runs.
    pub fn new(play: HostPlay, graph: Graph, who: Vec<Who>, policy: Policy, run: &Arc<str>) -> Plan {
        let all = play.resources.len() + play.handlers.len();
        debug_assert_eq!(who.len(), all);
        Plan {
            order: graph.order(),
            warnings: graph.warnings.clone(),
            slots: (0..all).map(|_| Slot { now: Now::Unprobed, stale: false, earlier: None }).collect(),
            called: vec![BTreeSet::new(); play.handlers.len()],
            owed: BTreeMap::new(),
            noted: BTreeSet::new(),
            fresh: BTreeSet::new(),
            finished: Vec::new(),
            closed: false,
            told: BTreeMap::new(),
            gate: None,
            booted_for: Vec::new(),
            made: Vec::new(),
            run: run.clone(),
            play,
            graph,
            who,
            policy,
        }
    }

    /// The resource or handler at a position.
    pub fn item(&self, position: usize) -> &Item {
        let n = self.play.resources.len();
        if position < n { &self.play.resources[position] } else { &self.play.handlers[position - n] }
    }

    /// As whom the resource or handler at a position runs.
    pub fn who(&self, position: usize) -> &Who {
        &self.who[position]
    }

    /// Whether a position is that of a handler.
    pub fn is_handler(&self, position: usize) -> bool {
        position >= self.play.resources.len()
    }

    /// As whom the play does anything on this host.
    pub fn users(&self) -> BTreeSet<Who> {
        self.who.iter().cloned().collect()
    }

    /// What this user's probe asks: the state of all that runs as them.
    pub fn questions(&self, who: &Who) -> Vec<Question> {
        (0..self.slots.len()).filter(|&i| self.who[i] == *who).flat_map(|i| self.item(i).resource.probe()).collect()
    }

    /// Takes note of a handler that an earlier run owes, as this user read it. False if this play has none of that
    /// address.
    pub fn owe(&mut self, owed: &Owed, who: &Who) -> bool {
        let Some(h) = self.handler_of(owed) else { return false };
        let ours = owed.run == *self.run && self.noted.contains(&h);
        self.owed.insert(h, Debt { run: owed.run.clone(), who: who.clone(), ours, note: Note::There });
        true
    }

    /// Whether anything would change (`--check`).
    pub fn would_change(&self) -> bool {
        (0..self.play.resources.len()).any(|i| self.would(i, &[]))
    }

    /// Whether `when` or tags leave out on this host what has this address.
    pub fn leaves_out(&self, address: &str) -> bool {
        self.play.skipped.iter().any(|s| s.address.as_deref() == Some(address))
    }

    /// Whether the host is to be booted though no resource needs it, and wasn't yet.
    pub fn boot_asked(&self) -> bool {
        self.play.boot_for.is_some()
    }

    /// Takes note that an earlier run has booted the host for these reasons; whether that was what this one was asked for.
    pub fn boot_made(&mut self, reasons: &[String]) -> bool {
        let made = self.play.boot_for.as_ref().is_some_and(|why| reasons.iter().any(|r| **r == **why));
        if made {
            self.play.boot_for = None;
        }
        self.made = reasons.to_vec();
        made
    }

    fn handler_of(&self, owed: &Owed) -> Option<usize> {
        (0..self.play.handlers.len()).find(|&h| self.debt(h).lines()[0] == owed.lines()[0])
    }

    /// What has become clear since the last call. What a later probe may still belie comes at the end, so that each is
    /// told once.
    pub fn outcomes(&mut self) -> Vec<Outcome> {
        let told = std::mem::take(&mut self.finished);
        let open = |o: &Outcome| matches!(self.slots[o.position].now, Now::Finished { verified: true, .. });
        let (kept, told) = told.into_iter().partition(|o| !self.closed && open(o));
        self.finished = kept;
        told
    }

    /// What the operator should know of the play's graph on this host.
    pub fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Whether anything isn't settled yet.
    pub fn pending(&self) -> bool {
        self.slots.iter().take(self.play.resources.len()).any(|s| !matches!(s.now, Now::Finished { .. }))
    }

    /// Takes in what a user's probe answered.
    pub fn absorb(&mut self, who: &Who, answers: &Answers) {
        self.fresh.insert(who.clone());
        for i in (0..self.slots.len()).filter(|&i| self.who[i] == *who).collect::<Vec<_>>() {
            let resource = self.item(i).resource.clone();
            let reading = resource.assess(answers);
            self.slots[i].stale = false;
            match std::mem::replace(&mut self.slots[i].now, Now::Unprobed) {
                Now::Applied(applied) => self.verify(i, *applied, reading),
                Now::Finished { status, verified, cause } => {
                    self.slots[i].now = Now::Finished { status, verified, cause };
                    if verified {
                        self.recheck(i, reading);
                    }
                }
                _ => match reading {
                    Ok(Reading::State(assessment)) => {
                        if !self.is_handler(i) && !assessment.needs.is_empty() {
                            self.derive(i, &assessment.needs);
                        }
                        let missing = assessment.obstacle.as_ref().map(|o| &o.weight);
                        let missing = matches!(missing, Some(Weight::Unless(_)));
                        self.slots[i].now = Now::Ready(Box::new(assessment));
                        if missing {
                            self.look_ahead(i);
                        }
                    }
                    Ok(Reading::NotYet(why)) => {
                        self.slots[i].now = Now::NotYet(why);
                        self.look_ahead(i);
                    }
                    // A handler's probe matters only when it is called.
                    Err(trouble) if self.is_handler(i) => self.slots[i].now = Now::NotYet(trouble),
                    Err(trouble) => self.fail(i, "probe", trouble, Vec::new()),
                },
            }
        }
    }

    fn derive(&mut self, i: usize, needs: &[Need]) {
        let before = self.graph.warnings.len();
        self.graph.derive(i, needs, &self.play);
        self.warnings.extend_from_slice(&self.graph.warnings[before..]);
        self.order = self.graph.order();
    }

    /// What is missing for this one may come from what stands before it in the file.
    fn look_ahead(&mut self, i: usize) {
        let before: Vec<usize> = (0..i.min(self.play.resources.len())).filter(|&j| self.brings(j)).collect();
        if !self.is_handler(i) && !before.is_empty() {
            self.graph.follow(i, before.into_iter());
            self.order = self.graph.order();
        }
    }

    fn brings(&self, j: usize) -> bool {
        self.item(j).resource.brings()
    }

    /// The same failure, with what failed before it and may have brought what it lacks.
    fn lacking(&self, i: usize, mut trouble: Trouble) -> Trouble {
        let failed = |j: &usize| matches!(self.slots[*j].now, Now::Finished { status: Status::Failed, .. });
        if let Some(j) = self.graph.before(i).find(|j| failed(j) && self.brings(*j)) {
            let hint = format!("`{}` failed, which may have been to bring it", self.item(j).address);
            trouble.hint = Some(trouble.hint.map_or(hint.clone(), |own| format!("{hint}; otherwise {own}")));
        }
        trouble
    }

    /// Decides what comes next, and settles what needs no step.
    pub fn advance(&mut self) -> Next {
        loop {
            if self.gate.is_none() {
                self.close_gates();
            }
            let mut chosen: Vec<usize> = Vec::new();
            let mut waiting: Vec<usize> = Vec::new();
            for i in self.order.clone() {
                self.consider(i, &mut chosen, &mut waiting);
            }
            let who = chosen.first().map(|&i| self.who[i].clone());
            // After a boot that is to come they would be called for again.
            let boot =
                self.policy.boots.is_some() && (self.due().is_some() || chosen.iter().any(|&i| self.will_wait(i)));
            let handlers = self.handlers(who.as_ref(), &chosen, waiting.is_empty() && !boot);
            if let Some(who) =
                who.or_else(|| handlers.first().map(|&h| self.who[self.play.resources.len() + h].clone()))
            {
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
    fn close_gates(&mut self) {
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
    fn consider(&mut self, i: usize, chosen: &mut Vec<usize>, waiting: &mut Vec<usize>) {
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
        if let (Risk::Link(why), false) = (&assessment.risk, self.policy.risk_accepted) {
            let trouble = Trouble::new(format!("it could cut off the session: {why}")).hint(
                "this version can't undo such a change by itself yet; `confirm: none` in the play makes it all the same",
            );
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
        if chosen.first().is_none_or(|&first| self.who[first] == self.who[i]) {
            chosen.push(i)
        } else {
            waiting.push(i)
        }
    }

    /// Whether an obstacle keeps a resource from being done in this round.
    fn in_the_way(&self, i: usize, obstacle: &Obstacle, assessment: &Assessment, chosen: &[usize]) -> bool {
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
    fn would(&self, j: usize, chosen: &[usize]) -> bool {
        chosen.contains(&j) || matches!(self.slots[j].now, Now::Finished { status: Status::WouldChange, .. })
    }

    /// Whether (under `--check`) it is something that an apply would do, changed or not.
    fn acts(&self, j: usize) -> bool {
        let left_out = matches!(self.slots[j].now, Now::Finished { status: Status::Skipped, cause: None, .. });
        left_out && self.item(j).resource.action()
    }

    /// Whose failure keeps this one from being done, if any.
    fn cause(&self, i: usize) -> Option<usize> {
        if let Some(gate) = self.gate {
            return Some(gate);
        }
        let failed = |j: usize| match &self.slots[j].now {
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

    fn because(&self, cause: usize) -> String {
        let address = &self.item(cause).address;
        match self.pending_effect(cause) {
            None => format!("{address} failed"),
            Some(Effect::PowerCycle) => format!("{address} takes effect at a power cycle"),
            Some(_) => format!("{address} takes effect at boot"),
        }
    }

    /// A change that is still to come, or (under `--check`) would have come, after which this one has to be probed.
    fn moving(&self, i: usize, chosen: &[usize]) -> Option<usize> {
        let would = |j: &usize| self.would(*j, chosen);
        let resource = &self.item(i).resource;
        match (&self.slots[i].now, resource.stale_after()) {
            (Now::NotYet(_), _) | (_, Stale::AnyDependency) => self.ancestors(i).into_iter().find(would),
            (_, Stale::Claims(claims)) => self.claimants(&claims).into_iter().filter(|&j| j != i).find(would),
            (_, Stale::Never) => None,
        }
    }

    fn claimants(&self, claims: &[crate::resource::Claim]) -> Vec<usize> {
        (0..self.play.resources.len())
            .filter(|&j| self.play.resources[j].resource.claims().iter().any(|c| claims.contains(c)))
            .collect()
    }

    fn ancestors(&self, i: usize) -> Vec<usize> {
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
    fn unread(&self, waiting: &[usize]) -> Option<Who> {
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

    fn debt(&self, h: usize) -> Owed {
        let item = &self.play.handlers[h];
        Owed {
            address: item.address.to_string(),
            title: item.title.as_deref().unwrap_or(&item.address).to_owned(),
            run: self.run.to_string(),
        }
    }

    fn fail(&mut self, i: usize, kind: &'static str, trouble: Trouble, changes: Vec<Change>) {
        let error = Problem { kind, message: trouble.message, hint: trouble.hint };
        let ignored = self.item(i).ignore_errors;
        self.finish(i, Outcome { error: Some(error), changes, ignored, ..Outcome::of(i, Status::Failed) }, None, false);
    }

    fn fail_with(&mut self, i: usize, kind: &'static str, trouble: Trouble, a: Assessment) {
        let error = Problem { kind, message: trouble.message, hint: trouble.hint };
        let ignored = self.item(i).ignore_errors;
        let because =
            self.is_handler(i).then(|| self.why_handler(i - self.play.resources.len())).filter(|b| !b.is_empty());
        let outcome = Outcome::of(i, Status::Failed);
        let outcome = Outcome {
            error: Some(error),
            changes: a.changes,
            files: a.files,
            warnings: a.warnings,
            ignored,
            because,
            ..outcome
        };
        self.finish(i, outcome, None, false);
    }

    /// The same after steps were taken: what is left is still to change, the rest of it was done.
    fn fail_after(&mut self, i: usize, kind: &'static str, trouble: Trouble, before: Assessment, left: Vec<Change>) {
        let open = |c: &&Change| !left.iter().any(|l| l.field == c.field);
        let done: Vec<Change> = before.changes.iter().filter(open).cloned().collect();
        self.fail_with(i, kind, trouble, Assessment { changes: left, ..before });
        if let Some(outcome) = self.finished.iter_mut().find(|o| o.position == i) {
            outcome.done = done;
        }
    }

    /// Whether it is known to fail though its steps are taken: it calls for no handler then.
    fn doomed(&self, i: usize) -> bool {
        let lasts = |a: &Assessment| a.obstacle.as_ref().is_some_and(|o| o.weight == Weight::Lasts);
        matches!(&self.slots[i].now, Now::Ready(a) if lasts(a))
    }

    fn finish(&mut self, i: usize, mut outcome: Outcome, cause: Option<usize>, verified: bool) {
        self.compose(&mut outcome);
        let mut outcome = self.with_earlier(i, outcome);
        if outcome.waits.is_empty() && matches!(outcome.status, Status::RebootPending | Status::WouldChange) {
            outcome.waits = Plan::later(&outcome.changes);
        }
        self.slots[i].now = Now::Finished { status: outcome.status, verified, cause };
        self.finished.retain(|o| o.position != i);
        self.finished.push(outcome);
    }
}

impl Plan {
    /// What is told of a file that several write begins where the one told before it ended, though all were planned from
    /// what there was.
    fn compose(&mut self, outcome: &mut Outcome) {
        let written = matches!(outcome.status, Status::Changed | Status::WouldChange | Status::RebootPending);
        for file in &mut outcome.files {
            let was = file.before.clone();
            let edit = file.edit.take();
            let told = self.told.get(&file.path).filter(|(from, _)| *from == was);
            if let (Some(edit), Some((_, now))) = (edit, told) {
                *file = FileDiff { edit: None, ..edit.preview(now.as_deref()) };
            }
            if written {
                self.told.insert(file.path.clone(), (was, file.after.clone()));
            }
        }
    }
}

impl Outcome {
    fn of(position: usize, status: Status) -> Outcome {
        Outcome {
            position,
            status,
            changes: Vec::new(),
            done: Vec::new(),
            waits: Vec::new(),
            files: Vec::new(),
            warnings: Vec::new(),
            error: None,
            ignored: false,
            because: None,
        }
    }

    fn because(self, because: String) -> Outcome {
        Outcome { because: Some(because), ..self }
    }
}

#[cfg(test)]
pub(crate) mod tests;
