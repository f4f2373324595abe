//! What is to be done on one host in one play: assessments in, segments of steps out. Pure; the engine runs them.
//!
//! A *segment* is what one execution does: every resource whose dependencies are met or are in it, whose state is known
//! and isn't made stale by what runs before it, and which runs as the same user. The rest waits for the probe that
//! closes the segment. Handlers are the tail of the last segment.

use crate::error::Error;
use crate::event::{Problem, Status};
use crate::graph::Graph;
use crate::playbook::{HostPlay, Item};
use crate::resource::{
    Answers, Assessment, Change, Effect, FileDiff, Need, Output, Question, Reading, Risk, Stale, Step, Trouble,
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
    /// Whether a handler is to be noted as owed, for which root's rights are needed.
    pub owes: bool,
    resources: Vec<usize>,
    handlers: Vec<usize>,
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
    owed: BTreeMap<usize, String>,
    called: Vec<BTreeSet<usize>>,
    fresh: BTreeSet<Who>,
    finished: Vec<Outcome>,
    gate: Option<usize>,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct Slot {
    now: Now,
    stale: bool,
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
            slots: (0..all).map(|_| Slot { now: Now::Unprobed, stale: false }).collect(),
            called: vec![BTreeSet::new(); play.handlers.len()],
            owed: BTreeMap::new(),
            fresh: BTreeSet::new(),
            finished: Vec::new(),
            gate: None,
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

    /// Takes note of a handler that an earlier run owes. False if this play has none of that address.
    pub fn owe(&mut self, owed: &Owed) -> bool {
        match self.play.handlers.iter().position(|h| *h.address == *owed.address) {
            Some(h) => {
                self.owed.insert(h, owed.run.clone());
                true
            }
            None => false,
        }
    }

    /// What has become clear since the last call.
    pub fn outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.finished)
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
                        self.slots[i].now = Now::Ready(Box::new(assessment));
                    }
                    Ok(Reading::NotYet(why)) => self.slots[i].now = Now::NotYet(why),
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

    /// Decides what comes next, and settles what needs no step.
    pub fn next(&mut self) -> Next {
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
            let handlers = self.handlers(who.as_ref(), &chosen, waiting.is_empty());
            if let Some(who) =
                who.or_else(|| handlers.first().map(|&h| self.who[self.play.resources.len() + h].clone()))
            {
                return Next::Segment(self.segment(who, chosen, handlers));
            }
            if let Some(who) = self.unread(&waiting) {
                return Next::Probe(who);
            }
            if waiting.is_empty() {
                self.drop_handlers();
                return Next::Done;
            }
            // Nothing that is waited for will happen any more.
            for i in waiting {
                let trouble = match &self.slots[i].now {
                    Now::NotYet(why) => why.clone(),
                    _ => Trouble::new("its state could not be read again after what it depends on had changed"),
                };
                self.fail(i, "probe", trouble, Vec::new());
            }
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
        let before: Vec<usize> = self.graph.before(i).collect();
        let open = |j: &usize| !matches!(self.slots[*j].now, Now::Finished { .. }) && !chosen.contains(j);
        if before.iter().any(open) {
            return waiting.push(i);
        }
        let moving = self.moving(i, chosen);
        let unknown = self.slots[i].stale || matches!(self.slots[i].now, Now::Unprobed);
        if self.policy.check {
            if let Some(j) = moving {
                let because = format!("can't be known before {} has changed", self.item(j).address);
                return self.finish(i, Outcome::of(i, Status::WouldChange).because(because), None, false);
            }
        } else if moving.is_some() || unknown {
            return waiting.push(i);
        }
        let assessment = match std::mem::replace(&mut self.slots[i].now, Now::Unprobed) {
            Now::Ready(assessment) => assessment,
            Now::NotYet(why) => return self.fail(i, "probe", why, Vec::new()),
            other => {
                self.slots[i].now = other;
                return waiting.push(i);
            }
        };
        let action = self.item(i).resource.action();
        if let Some(obstacle) =
            assessment.obstacle.as_ref().filter(|o| !o.partly || assessment.steps.is_empty() || self.policy.check)
        {
            let trouble = obstacle.trouble.clone();
            return self.fail_with(i, "obstacle", trouble, *assessment);
        }
        if assessment.changes.is_empty() && !action {
            let outcome = Outcome { warnings: assessment.warnings, ..Outcome::of(i, Status::Ok) };
            return self.finish(i, outcome, None, true);
        }
        if let (Risk::Link(why), false) = (&assessment.risk, self.policy.risk_accepted) {
            let trouble = Trouble::new(format!("it could cut off the session: {why}")).hint(
                "this version can't undo such a change by itself yet; `confirm: none` in the play makes it all the same",
            );
            return self.fail_with(i, "risk", trouble, *assessment);
        }
        if self.policy.check {
            let mut outcome = Outcome::of(i, if action { Status::Skipped } else { Status::WouldChange });
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
            let trouble = Trouble::new(differs(&assessment.changes));
            return self.fail_with(i, "verify", trouble, *assessment);
        }
        self.slots[i].now = Now::Ready(assessment);
        if chosen.first().is_none_or(|&first| self.who[first] == self.who[i]) {
            chosen.push(i)
        } else {
            waiting.push(i)
        }
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
        if let Some(cause) = self.graph.before(i).find_map(failed) {
            return Some(cause);
        }
        if !self.policy.stop_on_error {
            return None;
        }
        let at = self.order.iter().position(|&j| j == i)?;
        self.order[..at].iter().copied().find_map(failed)
    }

    fn because(&self, cause: usize) -> String {
        format!("{} failed", self.item(cause).address)
    }

    /// A change that is still to come, or (under `--check`) would have come, after which this one has to be probed.
    fn moving(&self, i: usize, chosen: &[usize]) -> Option<usize> {
        let would = |j: &usize| {
            chosen.contains(j) || matches!(self.slots[*j].now, Now::Finished { status: Status::WouldChange, .. })
        };
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

    /// The handlers that are called for and not done.
    fn called_handlers(&self) -> Vec<usize> {
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

    fn notifiers(&self, h: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.slots.len()).filter(move |&i| self.graph.notify[i].contains(&h))
    }

    /// The handlers that go into the segment of these resources, which is the last one if `last`.
    fn handlers(&mut self, who: Option<&Who>, chosen: &[usize], last: bool) -> Vec<usize> {
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
            let by_segment: Vec<usize> =
                self.notifiers(h).filter(|i| chosen.contains(i) || taken.iter().any(|t| n + t == *i)).collect();
            if !called.contains(&h) && by_segment.is_empty() {
                continue;
            }
            // An action of the segment tells only afterwards whether it changed anything.
            let undecided = by_segment.iter().any(|&i| i < n && self.item(i).resource.action()) && !called.contains(&h);
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

    fn foretell_handler(&mut self, h: usize) {
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

    fn why_handler(&self, h: usize) -> String {
        let by: Vec<&str> = self.called[h].iter().map(|&i| &*self.item(i).address).collect();
        let owed = self.owed.get(&h).filter(|run| **run != *self.run);
        let notified = (!by.is_empty()).then(|| format!("notified by {}", by.join(", ")));
        notified.into_iter().chain(owed.map(|run| format!("owed by run {run}"))).collect::<Vec<_>>().join(", ")
    }

    /// Handlers that nobody called are no outcome; those that stay owed are told.
    fn drop_handlers(&mut self) {
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

    fn segment(&mut self, who: Who, resources: Vec<usize>, handlers: Vec<usize>) -> Segment {
        let n = self.play.resources.len();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut last: BTreeMap<usize, u32> = BTreeMap::new();
        let mut owing: BTreeMap<usize, u32> = BTreeMap::new();
        let mut id = 0;
        let mut push =
            |pieces: &mut Vec<Piece>, all: Vec<u32>, any: Vec<u32>, work: Work, seconds: u32, owner: Option<usize>| {
                id += 1;
                pieces.push(Piece { id, all, any, work, seconds, owner });
                id
            };
        let mut previous: Option<u32> = None;
        for i in resources.iter().copied().chain(handlers.iter().map(|h| n + h)) {
            let mut all: Vec<u32> = Vec::new();
            let mut any: Vec<u32> = Vec::new();
            for &h in &self.graph.notify[i] {
                if !self.owed.contains_key(&h) && !owing.contains_key(&h) {
                    let at = push(&mut pieces, vec![], vec![], Work::Owe(self.debt(h)), STEP_SECONDS, None);
                    owing.insert(h, at);
                }
                all.extend(owing.get(&h));
            }
            if i < n {
                all.extend(self.graph.before(i).filter(|j| !self.item(*j).ignore_errors).filter_map(|j| last.get(&j)));
                if self.policy.stop_on_error && !resources.is_empty() {
                    all.extend(previous);
                }
            } else if self.called[i - n].is_empty() {
                any.extend(self.notifiers(i - n).filter_map(|j| last.get(&j)));
            }
            let seconds = self.item(i).timeout.unwrap_or(STEP_SECONDS);
            let steps = match &mut self.slots[i].now {
                Now::Ready(a) => std::mem::take(&mut a.steps),
                _ => Vec::new(),
            };
            for step in steps {
                let at = push(
                    &mut pieces,
                    std::mem::take(&mut all),
                    std::mem::take(&mut any),
                    Work::Step(step),
                    seconds,
                    Some(i),
                );
                all.push(at);
                last.insert(i, at);
            }
            if i < n {
                if !self.item(i).ignore_errors {
                    previous = last.get(&i).copied();
                }
            } else if let Some(&done) = last.get(&i) {
                push(&mut pieces, vec![done], vec![], Work::Settle(self.debt(i - n)), STEP_SECONDS, None);
            }
        }
        Segment { who, owes: !owing.is_empty(), pieces, resources, handlers }
    }

    fn debt(&self, h: usize) -> Owed {
        let item = &self.play.handlers[h];
        Owed {
            address: item.address.to_string(),
            title: item.title.as_deref().unwrap_or(&item.address).to_owned(),
            run: self.run.to_string(),
        }
    }

    /// Takes in what became of a segment's steps. The probe that closes the segment is absorbed after it.
    pub fn settle(&mut self, segment: &Segment, ran: &BTreeMap<u32, Ran>) {
        let n = self.play.resources.len();
        // What was owed is noted on the host now, whatever became of those that owe it.
        for piece in &segment.pieces {
            if let (Work::Owe(owed), Some(Ran::Yes(output))) = (&piece.work, ran.get(&piece.id))
                && output.code == 0
                && let Some(h) = self.play.handlers.iter().position(|i| *i.address == *owed.address)
            {
                self.owed.insert(h, owed.run.clone());
            }
        }
        for i in segment.resources.iter().copied().chain(segment.handlers.iter().map(|h| n + h)) {
            let pieces: Vec<&Piece> = segment.pieces.iter().filter(|p| p.owner == Some(i)).collect();
            self.settle_item(i, &pieces, segment, ran);
        }
        // A change makes the knowledge of all other users old, and some of what is known stale.
        self.fresh.clear();
        for i in 0..self.slots.len() {
            let applied = |j: &usize| matches!(self.slots[*j].now, Now::Applied(_));
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

    /// Takes a segment back that was not run, since the host is no longer as it was probed.
    pub fn retract(&mut self, segment: &Segment) {
        let n = self.play.resources.len();
        for i in segment.resources.iter().copied().chain(segment.handlers.iter().map(|h| n + h)) {
            self.slots[i] = Slot { now: Now::Unprobed, stale: true };
        }
        self.fresh.clear();
    }

    fn settle_item(&mut self, i: usize, pieces: &[&Piece], segment: &Segment, ran: &BTreeMap<u32, Ran>) {
        let n = self.play.resources.len();
        let before = match std::mem::replace(&mut self.slots[i].now, Now::Unprobed) {
            Now::Ready(before) => *before,
            other => {
                self.slots[i].now = other;
                return;
            }
        };
        let mut outputs = Vec::new();
        let mut unknown = None;
        for piece in pieces {
            match ran.get(&piece.id) {
                Some(Ran::Yes(output)) if output.code == 0 => outputs.push(output.clone()),
                Some(Ran::Yes(output)) => {
                    let trouble = step_trouble(output, piece.seconds);
                    if i >= n {
                        self.because_of_segment(i - n, segment);
                    }
                    return self.fail_with(i, "step", trouble, before);
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
        let mut changed = true;
        if self.item(i).resource.action() && unknown.is_none() {
            match self.item(i).resource.changed(&outputs) {
                Ok(verdict) => changed = verdict,
                Err(error) => return self.fail_with(i, "expression", trouble_of(&error), before),
            }
        }
        if changed {
            for &h in &self.graph.notify[i] {
                self.called[h].insert(i);
            }
        }
        self.slots[i].now = Now::Applied(Box::new(Applied { before, changed, unknown }));
    }

    fn because_of_segment(&mut self, h: usize, segment: &Segment) {
        let by: Vec<usize> = self.notifiers(h).filter(|i| segment.resources.contains(i)).collect();
        self.called[h].extend(by);
    }

    /// A step did not run because one that it hangs on failed: tells which, or that a handler wasn't called after all.
    fn skipped(&mut self, i: usize, piece: &Piece, segment: &Segment, ran: &BTreeMap<u32, Ran>, before: Assessment) {
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
    fn verify(&mut self, i: usize, applied: Applied, reading: Result<Reading<Assessment>, Trouble>) {
        let Applied { before, changed, unknown } = applied;
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
                return self.fail_with(i, "unknown", trouble, before);
            }
            warnings.push(format!("{why}, but it is as wanted now"));
        }
        let later = |c: &Change| c.effect != Effect::Now;
        if let Some(now) =
            Some(after.remaining.iter().filter(|c| !later(c)).cloned().collect::<Vec<_>>()).filter(|r| !r.is_empty())
        {
            let mut trouble = Trouble::new(differs(&now));
            trouble.hint = after.obstacle.as_ref().and_then(|o| o.trouble.hint.clone());
            return self.fail_with(i, "verify", trouble, Assessment { warnings, changes: now, ..before });
        }
        if let Some(obstacle) = after.obstacle.as_ref().or(before.obstacle.as_ref().filter(|o| o.partly)) {
            let trouble = obstacle.trouble.clone();
            return self.fail_with(i, "obstacle", trouble, Assessment { warnings, ..before });
        }
        let status = match (changed, after.remaining.iter().chain(&before.changes).any(later)) {
            (_, true) => Status::RebootPending,
            (true, false) => Status::Changed,
            (false, false) => Status::Ok,
        };
        let outcome =
            Outcome { changes: before.changes, files: before.files, warnings, because, ..Outcome::of(i, status) };
        let verified = !self.item(i).resource.action();
        self.finish(i, outcome, None, verified);
    }

    /// What was found or made as wanted must still be so when the host is probed again.
    fn recheck(&mut self, i: usize, reading: Result<Reading<Assessment>, Trouble>) {
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
        for i in 0..self.play.resources.len() + self.play.handlers.len() {
            match std::mem::replace(&mut self.slots[i].now, Now::Unprobed) {
                Now::Applied(applied) => {
                    let trouble = Trouble::new(format!("not verified: {}", problem.message)).hint("run it again");
                    self.fail_with(i, "unknown", trouble, applied.before);
                }
                done @ Now::Finished { .. } => self.slots[i].now = done,
                _ if self.is_handler(i) && self.called[i - self.play.resources.len()].is_empty() => {}
                _ => self.finish(i, Outcome::of(i, Status::Skipped).because(problem.message.clone()), None, false),
            }
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

    fn finish(&mut self, i: usize, outcome: Outcome, cause: Option<usize>, verified: bool) {
        self.slots[i].now = Now::Finished { status: outcome.status, verified, cause };
        self.finished.push(outcome);
    }
}

impl Outcome {
    fn of(position: usize, status: Status) -> Outcome {
        Outcome {
            position,
            status,
            changes: Vec::new(),
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

/// `mtu: wanted 9000, got 1500`.
fn differs(changes: &[Change]) -> String {
    let show = |v: &serde_json::Value| match v {
        serde_json::Value::Null => "absent".to_owned(),
        serde_json::Value::String(s) => s.clone(),
        other => other.to_string(),
    };
    let one = |c: &Change| format!("{}: wanted {}, got {}", c.field, show(&c.to), show(&c.from));
    changes.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn step_trouble(output: &Output, seconds: u32) -> Trouble {
    let said = output.complaint();
    let tail: Vec<&str> = said.lines().rev().take(20).collect();
    let said = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
    match output.code {
        124 | 137 | 143 => {
            let message =
                format!("it was ended, most likely by its deadline of {seconds} s (exit code {})", output.code);
            let message = if said.is_empty() { message } else { format!("{message}: {said}") };
            Trouble::new(message).hint("give the resource a longer `timeout`, or find out why it hangs")
        }
        code if said.is_empty() => Trouble::new(format!("exit code {code}, and it said nothing")),
        code => Trouble::new(format!("exit code {code}: {said}")),
    }
}

fn trouble_of(error: &Error) -> Trouble {
    Trouble::new(error.to_string())
}

#[cfg(test)]
pub(crate) mod tests;
