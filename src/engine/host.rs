//! A visit under way: a host's play carried out over one session.

use super::boot::Note;
use super::execution::{Errand, ended, problem};
use super::guard::{Armed, Standing};
use super::reader::Ending;
use super::rights;
use super::visit::{Machine, Pause, ROOT, Stop, Visit};
use crate::event::{Event, Problem, ResourceEvent, Stage, Status};
use crate::facts;
use crate::graph;
use crate::plan::{Confirming, Next, Outcome, Owed, Plan, Ran, STEP_SECONDS, Segment, Who};
use crate::playbook::{Become, HostPlay};
use crate::resource::probes::small::SmallFile;
use crate::resource::{Answers, Effect, Inquiry, Output, Step};
use crate::shell::Script;
use crate::transport::{Carrier, Deadline, FailureKind, Identity, Session};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A visit under way.
pub(super) struct Going<'v> {
    pub(super) visit: &'v Visit<'v>,
    pub(super) session: Option<Box<dyn Session>>,
    /// The visit's end. A change is not cut short by the first interruption,
    pub(super) deadline: Deadline,
    /// everything else is.
    pub(super) hasty: Deadline,
    pub(super) reconnected: bool,
    pub(super) kept: Kept,
}

/// What a visit keeps over a boot.
pub(super) struct Kept {
    began: Instant,
    pub(super) executions: u32,
    pub(super) identities: HashMap<Who, Identity>,
    /// The generation of the host's state as last read, where the user is root.
    pub(super) generation: BTreeMap<Who, u64>,
    pub(super) warnings: Vec<String>,
    pub(super) tally: BTreeMap<Status, usize>,
    pub(super) ignored: usize,
    pub(super) reboot: Vec<String>,
    /// Whether something was changed that now waits for a boot.
    pub(super) changed: bool,
    pub(super) machine: Machine,
    /// Whether scripts hold values that no output may show.
    pub(super) secret: bool,
    /// What is noted on the host of a boot that isn't over.
    pub(super) note: Option<Note>,
    /// Whether what an earlier run booted was handed over to be proven.
    pub(super) proven: bool,
    /// Whether an earlier run has begun a boot for what this play doesn't have.
    pub(super) foreign: bool,
    /// What stands of what was armed, as last read.
    pub(super) standing: Option<Standing>,
    /// Why it would be booted, after a check.
    pub(super) foreseen: Vec<String>,
    /// Why it is never booted, if it isn't.
    pub(super) unbootable: Option<String>,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept {
            began: Instant::now(),
            executions: 0,
            identities: HashMap::new(),
            generation: BTreeMap::new(),
            warnings: Vec::new(),
            tally: BTreeMap::new(),
            ignored: 0,
            reboot: Vec::new(),
            changed: false,
            machine: None,
            secret: false,
            note: None,
            proven: false,
            foreign: false,
            standing: None,
            foreseen: Vec::new(),
            unbootable: None,
        }
    }
}

impl Kept {
    /// Since when the visit has gone on, boots included.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Going<'_> {
    /// Asks the host, over the session there is or a new one.
    pub(super) fn ask(&mut self, inquiry: &Inquiry, keywords: &Become) -> Result<Answers, Stop> {
        if self.session.is_none() {
            self.connect()?;
        }
        let who = self.who(keywords)?;
        self.visit.stage(Stage::Probing);
        Ok(self.read(&who, inquiry)?.answers.unwrap_or_default())
    }

    /// Begins anew with the time that a visit may take, for one in which a host waits for its turn.
    pub(super) fn renew(&mut self) {
        let shared = self.visit.shared;
        self.deadline = Deadline::after(shared.limits.visit, &shared.cut);
        self.hasty = Deadline::after(shared.limits.visit, &shared.interrupted);
        self.reconnected = false;
    }

    pub(super) fn run(&mut self, play: HostPlay) -> Result<Option<(Plan, Pause)>, Stop> {
        self.connect()?;
        let play = if play.wants_facts { self.facts(&play.become_)? } else { play };
        if let Some(why) = play.boot_for.as_ref().filter(|_| self.visit.policy.check) {
            self.kept.reboot.push(why.to_string());
            self.kept.foreseen.push(why.to_string());
        }
        let asked = play.boot_for.is_some() && !self.visit.policy.check;
        if play.resources.is_empty() && play.handlers.is_empty() && !asked {
            self.skips(&play);
            return Ok(None);
        }
        self.kept.secret = play.resources.iter().chain(&play.handlers).any(|i| i.no_log);
        let graph = graph::build(&play).map_err(|errors| {
            let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            Stop::Broken(Problem { kind: "playbook", message: text, hint: None })
        })?;
        let mut who = Vec::new();
        for item in play.resources.iter().chain(&play.handlers) {
            who.push(self.who(&item.become_)?);
        }
        self.skips(&play);
        let mut policy = self.visit.policy;
        if policy.confirm != Confirming::Never && self.visit.target.carrier == Carrier::Local {
            policy.confirm = Confirming::Impossible;
        }
        let plan = Plan::new(play, graph, who, policy, &self.visit.shared.run);
        self.go_on(plan)
    }

    /// Carries a plan out, from its probe to its end or to a boot.
    pub(super) fn go_on(&mut self, mut plan: Plan) -> Result<Option<(Plan, Pause)>, Stop> {
        let result = match self.carry_out(&mut plan) {
            Ok(Some(pause)) => return Ok(Some((plan, pause))),
            Ok(None) => Ok(()),
            Err(stop) => Err(stop),
        };
        self.finish(plan, result).map(|()| None)
    }

    /// Tells what a plan has come to.
    pub(super) fn finish(&mut self, mut plan: Plan, result: Result<(), Stop>) -> Result<(), Stop> {
        let would = plan.would_change();
        if self.visit.policy.check && would && self.kept.generation.is_empty() {
            let users = plan.users();
            let told: Vec<String> = users.iter().map(|who| rights::remedy(who, &self.visit.target.user)).collect();
            self.kept.warnings.push(format!(
                "these changes would be made without root's rights, and what needs them would fail: {}",
                told.join("; ")
            ));
        }
        if let Err(Stop::Broken(problem) | Stop::Unreachable(problem)) = &result {
            plan.abandon(problem);
        }
        self.tell(&mut plan);
        let mut warnings = plan.warnings();
        warnings.retain(|w| !self.kept.warnings.contains(w));
        self.kept.warnings.extend(warnings);
        if let Some(note) =
            self.kept.note.as_ref().filter(|_| self.visit.policy.check || self.visit.policy.boots.is_none())
        {
            self.kept.warnings.push(format!(
                "run {} began to boot it ({}), drained: {}, and didn't see to the rest: `netplay status` shows it, and an \
                 apply with `--reboot needed` finishes it",
                note.run,
                note.why.join(", "),
                note.drain
            ));
        }
        result
    }

    fn carry_out(&mut self, plan: &mut Plan) -> Result<Option<Pause>, Stop> {
        self.visit.stage(Stage::Probing);
        // Who has no resources runs as nobody, and is looked at as root.
        if plan.users().is_empty() {
            let who = self.who(&ROOT)?;
            self.probe(plan, &who, true)?;
        }
        self.survey(plan, true)?;
        if let Some(standing) = self.kept.standing.clone().filter(Standing::is_open) {
            if standing.stage == Armed::Failed && !self.visit.policy.check {
                return Err(Stop::Broken(super::guard::failed(&standing)));
            }
            self.kept.warnings.push(standing.told());
        }
        if let Some(note) = self.kept.note.clone().filter(|n| *n.run != *self.visit.shared.run && !self.kept.proven) {
            let policy = self.visit.policy;
            if note.is_alive(&self.visit.shared.whence) && !policy.check {
                return Err(Stop::Broken(super::boot::busy(&note)));
            }
            let lacking = plan.lacks(&note.why).filter(|_| policy.boots.is_some() && !policy.check);
            if let Some(address) = lacking {
                self.kept.foreign = true;
                self.kept.warnings.push(format!(
                    "run {} began to boot it for {address}, which this play doesn't have, so nobody knows here whether that came \
                     of it: it isn't given back; run a play that has it",
                    note.run
                ));
            } else if self.kept.machine.as_ref().is_some_and(|(boot, _)| boot != note.boot()) {
                // An earlier run booted it for just this.
                self.kept.changed |= plan.boot_made(&note.why);
                if policy.boots.is_some() && !policy.check {
                    self.kept.proven = true;
                    return Ok(Some(Pause::Proof(Box::new(note))));
                }
            }
        }
        let mut moved = 0;
        loop {
            let next = plan.advance();
            self.tell(plan);
            match next {
                Next::Done => return Ok(None),
                Next::Boot(boot) => return Ok(Some(Pause::Boot(boot))),
                Next::Probe(who) => {
                    self.probe(plan, &who, false)?;
                }
                Next::Segment(segment) => {
                    if self.visit.shared.interrupted.load(Ordering::Relaxed) {
                        return Err(Stop::Broken(Problem {
                            kind: FailureKind::Interrupted.name(),
                            message: "the run was interrupted before this was done".to_owned(),
                            hint: None,
                        }));
                    }
                    let done = match &segment.guard {
                        Some(guard) => self.guarded(plan, &segment, guard)?,
                        None => self.change(plan, &segment)?,
                    };
                    if !done {
                        moved += 1;
                        if moved > 3 {
                            return Err(Stop::Broken(moved_on()));
                        }
                        plan.retract(&segment);
                        self.survey(plan, false)?;
                    }
                }
            }
        }
    }

    /// Runs a script of netplay's own as root, under the host's lock.
    pub(super) fn alter(&mut self, script: &Script) -> Result<Output, Stop> {
        self.connect()?;
        let who = self.who(&ROOT)?;
        let inquiry = Inquiry::new([]);
        for _ in 0..4 {
            if !self.kept.generation.contains_key(&who) {
                self.read(&who, &inquiry)?;
            }
            let segment = Segment::alone(who.clone(), Step::Run(script.clone()), STEP_SECONDS);
            let report = self.execute(&Errand { segment: Some(&segment), ..Errand::of(&who, &inquiry) })?;
            if report.ending == Ending::Moved {
                self.kept.generation.clear();
                continue;
            }
            return match (report.steps.into_values().next(), &report.failure) {
                (Some(Ran::Yes(output)), _) => Ok(output),
                // Whether it ran isn't known.
                (_, Some(failure)) => Err(Stop::Broken(problem(failure))),
                (_, None) => Err(Stop::Broken(ended(&report.ending))),
            };
        }
        Err(Stop::Broken(moved_on()))
    }

    /// Probes as every user of the play, and learns which handlers earlier runs owe.
    fn survey(&mut self, plan: &mut Plan, mut first: bool) -> Result<(), Stop> {
        for who in plan.users() {
            for owed in self.probe(plan, &who, std::mem::take(&mut first))? {
                if !plan.owe(&owed, &who) && !self.visit.site.knows_handler(&owed.address) {
                    let why = match plan.leaves_out(&owed.address) {
                        true => "which `when` or tags leave out here",
                        false => "which this playbook doesn't have",
                    };
                    self.kept.warnings.push(format!(
                        "run {} owes this host the handler `{}` ({}), {why}; it stays owed until a run has it, or its \
                         note is removed: {}",
                        owed.run,
                        owed.title,
                        owed.address,
                        self.visit.shared.folders.owed(&owed.address)
                    ));
                }
            }
        }
        Ok(())
    }

    pub(super) fn connect(&mut self) -> Result<(), Stop> {
        let visit = self.visit;
        visit.stage(Stage::Connecting);
        let deadline = self.hasty.within(visit.shared.limits.login + visit.target.connect_timeout.unwrap_or_default());
        match visit.shared.transport.connect(visit.target, &visit.shared.gate, &deadline) {
            Ok(session) => {
                self.session = Some(session);
                Ok(())
            }
            Err(failure) => Err(Stop::Unreachable(problem(&failure))),
        }
    }

    pub(super) fn who(&mut self, keywords: &Become) -> Result<Who, Stop> {
        let broken = |message: String| Stop::Broken(Problem { kind: "inventory", message, hint: None });
        let identity = self.visit.site.identity(keywords).map_err(broken)?;
        let who = match &identity {
            Identity::Sudo { user, .. } if *user != self.visit.target.user => Who::User(user.as_str().into()),
            _ => Who::Login,
        };
        self.kept.identities.entry(who.clone()).or_insert(identity);
        Ok(who)
    }

    fn facts(&mut self, keywords: &Become) -> Result<HostPlay, Stop> {
        self.visit.stage(Stage::Probing);
        let who = self.who(keywords)?;
        let inquiry = Inquiry::new(facts::questions());
        let report = self.read(&who, &inquiry)?;
        let (facts, warnings) = facts::read(&report.answers.unwrap_or_default());
        self.kept.warnings.extend(warnings);
        self.visit
            .site
            .with_facts(&facts)
            .map_err(|message| Stop::Broken(Problem { kind: "playbook", message, hint: None }))
    }

    /// Probes all that runs as this user and takes the answers in. Gives the handlers that are owed.
    fn probe(&mut self, plan: &mut Plan, who: &Who, first: bool) -> Result<Vec<Owed>, Stop> {
        let mut questions = plan.questions(who);
        if first {
            questions.extend(MACHINE.map(SmallFile::ask));
            questions.extend(self.visit.policy.boots.map(|_| facts::root()));
        }
        let inquiry = Inquiry::new(questions);
        let report = self.read(who, &inquiry)?;
        let answers = report.answers.unwrap_or_default();
        if first {
            self.kept.machine = machine(&answers);
            self.kept.unbootable = self.unbootable(&answers);
        }
        plan.absorb(who, &answers);
        Ok(report.owed)
    }

    /// Why the host is never booted, if it isn't.
    fn unbootable(&self, answers: &Answers) -> Option<String> {
        let read =
            |path: &str| std::fs::read_to_string(path).ok().map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
        let here = || Some((read(MACHINE[0])?, read(MACHINE[1])?));
        if self.kept.machine.is_some() && self.kept.machine == here() {
            return Some("it is the machine that netplay runs on, and wouldn't see the run to its end".to_owned());
        }
        facts::fleeting(answers).map(|(place, why)| {
            format!(
                "what is written to {place} doesn't survive a reboot ({why}), so nothing would know afterwards that it was \
                 booted for this"
            )
        })
    }

    /// Runs a segment and takes in what became of it. False if the host has moved on since it was probed, so that
    /// nothing was run.
    fn change(&mut self, plan: &mut Plan, segment: &Segment) -> Result<bool, Stop> {
        self.visit.stage(Stage::Changing);
        if !self.kept.generation.contains_key(&segment.who)
            && self.kept.warnings.iter().all(|w| !w.starts_with("without root"))
        {
            self.kept.warnings.push(
                "without root's rights no lock is taken on the host, and handlers owed by earlier runs aren't known"
                    .to_owned(),
            );
        }
        let inquiry = Inquiry::new(plan.questions(&segment.who));
        let errand = Errand { segment: Some(segment), ..Errand::of(&segment.who, &inquiry) };
        let report = self.execute(&errand)?;
        if report.ending == Ending::Moved {
            return Ok(false);
        }
        if matches!(
            report.ending,
            Ending::Locked(_) | Ending::Armed(_) | Ending::Unlockable(_) | Ending::Interrupted(_)
        ) {
            return Err(Stop::Broken(ended(&report.ending)));
        }
        if let (Ending::Silent, None) = (&report.ending, &report.failure) {
            return Err(Stop::Broken(ended(&report.ending)));
        }
        let steps = match &report.failure {
            None => report.steps,
            // A step without a frame may have run: all that is left is unknown.
            Some(failure) => {
                let unknown = |p: &crate::plan::Piece| (p.id, Ran::Unknown(failure.message.clone()));
                let mut all: BTreeMap<u32, Ran> = segment.pieces.iter().map(unknown).collect();
                all.extend(report.steps);
                all
            }
        };
        plan.settle(segment, &steps);
        match (report.answers, report.failure) {
            (Some(answers), _) => plan.absorb(&segment.who, &answers),
            (None, failure) => {
                // Settled by probing again over a new session, when what still runs there has ended.
                let told = failure.as_ref().map_or_else(|| ended(&report.ending), problem);
                if self.reconnected || self.visit.shared.interrupted.load(Ordering::Relaxed) {
                    return Err(Stop::Broken(told));
                }
                self.reconnected = true;
                self.connect().map_err(|stop| match stop {
                    Stop::Unreachable(p) | Stop::Broken(p) => Stop::Broken(Problem {
                        message: format!("{}, and then: {}", told.message, p.message),
                        ..told.clone()
                    }),
                })?;
                let report = self.execute(&Errand { segment: None, calm: true, ..errand })?;
                match report.answers {
                    Some(answers) => plan.absorb(&segment.who, &answers),
                    None => return Err(Stop::Broken(told)),
                }
            }
        }
        Ok(true)
    }

    /// What `when` left out.
    fn skips(&self, play: &HostPlay) {
        let n = play.resources.len() + play.handlers.len();
        for (i, skipped) in play.skipped.iter().enumerate() {
            let address = skipped.address.clone().or_else(|| skipped.title.clone());
            (self.visit.events)(Event::Resource(Box::new(ResourceEvent {
                play: self.visit.play.clone(),
                host: self.visit.target.host.as_str().into(),
                address: address.unwrap_or_else(|| format!("line {}", skipped.place.line).into()),
                title: skipped.title.clone(),
                handler: false,
                position: n + i,
                status: Status::Skipped,
                changes: Vec::new(),
                done: Vec::new(),
                files: Vec::new(),
                warnings: Vec::new(),
                error: None,
                ignored: false,
                because: Some(skipped.why.to_string()),
                in_vain: None,
            })));
        }
    }

    fn tell(&mut self, plan: &mut Plan) {
        for mut outcome in plan.outcomes() {
            if let Some(error) = &mut outcome.error {
                rights::explain(error, plan.who(outcome.position), &self.visit.target.user);
            }
            *self.kept.tally.entry(outcome.status).or_default() += 1;
            self.kept.ignored += usize::from(outcome.status == Status::Failed && outcome.ignored);
            if self.visit.policy.check {
                self.kept.foreseen.extend(plan.foreseen(&outcome));
            }
            let item = plan.item(outcome.position);
            if !outcome.waits.is_empty() && outcome.status == Status::WouldChange {
                self.kept.reboot.push(item.address.to_string());
            }
            if outcome.status == Status::RebootPending {
                self.kept.reboot.push(item.address.to_string());
                // What an earlier run has set and only waits for the boot is no change of this one.
                self.kept.changed |= outcome.changes.iter().any(|c| c.effect == Effect::Now);
            }
            let outcome = if item.no_log { hide(outcome) } else { outcome };
            (self.visit.events)(Event::Resource(Box::new(ResourceEvent {
                play: self.visit.play.clone(),
                host: self.visit.target.host.as_str().into(),
                address: item.address.clone(),
                title: item.title.clone(),
                handler: plan.is_handler(outcome.position),
                position: outcome.position,
                status: outcome.status,
                changes: outcome.changes,
                done: outcome.done,
                files: outcome.files,
                warnings: outcome.warnings,
                error: outcome.error,
                ignored: outcome.ignored,
                because: outcome.because,
                in_vain: plan.in_vain(outcome.position).filter(|_| !item.no_log),
            })));
        }
    }
}

/// Takes the values of a `no_log` resource out of what is told of it.
fn hide(mut outcome: Outcome) -> Outcome {
    // The name of what changes may hold values too: that of a guard is its text.
    outcome.waits.clear();
    for change in outcome.changes.iter_mut().chain(&mut outcome.done) {
        change.field = "(no_log)".to_owned();
        change.from = "(no_log)".into();
        change.to = "(no_log)".into();
    }
    outcome.changes.dedup();
    outcome.done.dedup();
    outcome.files.clear();
    outcome.warnings.clear();
    if let Some(error) = &mut outcome.error {
        error.message = "the reason is hidden by no_log".to_owned();
        error.hint = Some("run it without `no_log` on a host where its values may be seen".to_owned());
    }
    outcome
}

/// What changes with each boot.
pub(super) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const MACHINE: [&str; 2] = [BOOT_ID, "/etc/machine-id"];

fn machine(answers: &Answers) -> Machine {
    let read = |path: &str| answers.get::<SmallFile>(path).ok()?.value().ok()?.filter(|v| !v.is_empty());
    Some((read(MACHINE[0])?, read(MACHINE[1])?))
}

fn moved_on() -> Problem {
    Problem {
        kind: "lock",
        message: "another run changed this host between our probe and our change, three times".to_owned(),
        hint: Some("let the other run finish, then run it again".to_owned()),
    }
}
