//! What is to be done on one host in one play: assessments in, segments of steps out. Pure; the engine runs them.
//!
//! A *segment* is what one execution does: every resource whose dependencies are met or are in it, whose state is known
//! and isn't made stale by what runs before it, and which runs as the same user. The rest waits for the probe that
//! closes the segment. Handlers are the tail of the last segment.

mod advance;
mod boot;
mod guard;
mod handlers;
mod segment;
mod settle;

pub use boot::{Boot, Rung};

use crate::event::{Problem, Status};
use crate::graph::Graph;
use crate::playbook::{HostPlay, Item};
use crate::resource::{
    Answers, Assessment, Change, FileDiff, Need, Output, Question, Reading, Step, Trouble, Undo, Weight,
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
    /// How steps that could cut off the session are taken.
    pub confirm: Confirming,
    /// What the host may be booted by, the strongest; nothing where it may not be.
    pub boots: Option<Rung>,
}

/// How steps that could cut off the session are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirming {
    /// Like all others (`confirm: none`).
    Never,
    /// In segments that are taken back unless a new connection confirms them, so many seconds after their end; with `all`
    /// also what could be confirmed and doesn't carry the session.
    Within {
        /// Seconds.
        timeout: u32,
        /// Whether what doesn't carry the session is confirmed too.
        all: bool,
    },
    /// Not at all, as there is no connection that could confirm them.
    Impossible,
}

impl Default for Confirming {
    fn default() -> Confirming {
        Confirming::Within { timeout: 60, all: false }
    }
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
    /// The way back, where they may cut the session off.
    pub guard: Option<Guard>,
    resources: Vec<usize>,
    handlers: Vec<usize>,
}

impl Segment {
    /// Whether it runs handlers, which restart or reload what goes on by itself after that.
    pub fn restarts(&self) -> bool {
        !self.handlers.is_empty()
    }

    /// A step of the engine's own, which belongs to no resource.
    pub fn alone(who: Who, step: Step, seconds: u32) -> Segment {
        let work = Work::Step(step);
        let piece = Piece { id: 1, all: Vec::new(), any: Vec::new(), work, seconds, owner: None };
        Segment { who, pieces: vec![piece], guard: None, resources: Vec::new(), handlers: Vec::new() }
    }
}

/// How a segment that may cut the session off is taken back unless a new connection confirms it in time.
#[derive(Debug, Clone)]
pub struct Guard {
    /// Seconds from the end of the steps until they are taken back.
    pub timeout: u32,
    /// The files that the steps write.
    pub files: Vec<String>,
    /// What takes the rest back.
    pub undo: Vec<Undo>,
    /// The interfaces whose MTU is raised, and to what.
    pub raises: Vec<(String, u32)>,
    /// The numbers of the steps of its handlers: where one fails all is taken back at once, as what was to take effect hasn't.
    pub handlers: Vec<u32>,
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
    /// What it names in vain, once its state was known.
    in_vain: Option<Vec<String>>,
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
            slots: (0..all).map(|_| Slot { now: Now::Unprobed, stale: false, in_vain: None, earlier: None }).collect(),
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

    /// What the resource at a position names and the host has nothing of; nothing where that isn't known.
    pub fn in_vain(&self, position: usize) -> Option<Vec<String>> {
        self.slots[position].in_vain.clone()
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

    /// The first of these reasons of a boot whose resource the play doesn't have. What isn't of a resource is no lack.
    pub fn lacks<'r>(&self, reasons: &'r [String]) -> Option<&'r str> {
        let address = |why: &'r String| why.split_once(" (").map_or(why.as_str(), |(address, _)| address);
        let known = |address: &str| self.play.resources.iter().any(|item| &*item.address == address);
        let is_one = |address: &str| crate::resource::find(address.split(':').next().unwrap_or_default()).is_some();
        reasons.iter().map(address).find(|address| is_one(address) && !known(address))
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
            if let Ok(Reading::State(assessment)) = &reading {
                self.slots[i].in_vain = Some(assessment.in_vain.clone());
            }
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
        self.imply_risks();
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
