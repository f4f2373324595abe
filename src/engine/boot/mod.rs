//! Booting a host in the middle of its play: drained, booted, proven, given back. Each turn of a `Trip` is short; what it
//! waits for in between costs no thread.

pub mod drain;
mod note;
mod pulse;

pub use drain::Drain;
pub use note::Note;

use self::drain::Drained;
use self::pulse::{Lack, Pulse};
use super::host::{Kept, Machine, Paused, Place, Visit, Visited};
use crate::event::{BootEvent, BootStep, Event, HostEvent, HostStatus, Problem};
use crate::facts;
use crate::plan::{Boot, Rung};
use crate::playbook::Batch;
use crate::resource::{Answers, cards};
use crate::shell::Script;
use crate::transport::FailureKind;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a system may take to start its units after it answers; never more than the play gives its boot.
const SYSTEM: Duration = Duration::from_secs(300);
/// How long ports may take to become active then: a subnet manager's sweep takes tens of seconds.
const PORTS: Duration = Duration::from_secs(180);
/// Seconds that a command which cycles power may take.
const POWER_CYCLE: u32 = 120;
/// How often giving a host back is tried.
const TRIES: u32 = 3;

/// How a play boots its hosts.
pub struct Reboot {
    /// How many hosts may be unavailable at once.
    pub max_unavailable: Batch,
    /// How many hosts the play has before `--limit`.
    pub hosts: usize,
    /// How long a host may take from the order to boot until it answers with a new boot.
    pub timeout: Duration,
    /// How long draining may take.
    pub drain_timeout: Duration,
    /// Where the scheduler's and the operator's commands run.
    pub desk: Place,
    /// Whether cards' firmware is reset before the host boots.
    pub firmware_reset: bool,
    /// The play's hosts before `--limit` by the name that the scheduler has for them.
    pub nodes: HashMap<String, Arc<str>>,
}

/// What is to be known of one host for that.
#[derive(Debug, Clone, Default)]
pub struct Way {
    /// What fails together: at most one host of a domain is unavailable at once.
    pub domain: Option<String>,
    /// How it is drained.
    pub drain: Drain,
    /// What switches it off and on.
    pub power_cycle: Option<String>,
    /// Why it must not be booted in this run, if so.
    pub refused: Option<String>,
}

impl Reboot {
    /// How long so many rounds take at most.
    pub(super) fn at_most(&self, rounds: usize, drained: bool) -> Duration {
        let drain = if drained { self.drain_timeout } else { Duration::ZERO };
        let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        (drain + self.timeout + SYSTEM.min(self.timeout) + PORTS.min(self.timeout)).saturating_mul(rounds)
    }
}

/// A host on its way through a boot.
pub(super) struct Trip {
    /// For what.
    pub(super) boot: Boot,
    /// What is left of its play; nothing of it where an earlier run began the boot, and this one's play is over.
    rest: Rest,
    stage: Stage,
    began: Instant,
    /// When the stage began.
    entered: Instant,
    before: Pulse,
    drain: Drain,
    /// Whether netplay took work away from it.
    drained: bool,
    /// Whether nothing runs there any more.
    emptied: bool,
    /// Whether an earlier run drained it by a command that this play doesn't have.
    orphan: bool,
    /// What came of the order to boot, where that isn't sure.
    ordered: String,
    /// What it lacked last, and in words.
    lack: (Lack, String),
    tries: u32,
}

enum Rest {
    Play(Box<Paused>),
    Over(Box<HostEvent>, Box<Kept>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// To be noted on the host.
    Note,
    Drain,
    /// To be told to boot.
    Order,
    /// Until it is back.
    Wait,
    /// To be given back.
    Release,
}

/// What comes after a turn.
pub(super) enum Turn {
    /// Another turn, this much later.
    Later(Box<Trip>, Duration),
    /// Nothing.
    Over(Box<HostEvent>, Machine, Left),
}

/// How a host is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Left {
    /// Available.
    Back,
    /// As it was before: nothing was done to it.
    AsItWas,
    /// Not; why.
    Away(String),
}

impl Trip {
    /// A host that needs a boot.
    pub(super) fn new(paused: Box<Paused>, boot: Boot, way: &Way) -> Box<Trip> {
        // What an earlier run has drained is given back in its way.
        let noted = paused.kept.note.as_ref().filter(|note| note.drain != "none" && !way.drain.any());
        let drain = noted.map_or_else(|| way.drain.clone(), |note| Drain::of_note(&note.drain, &way.drain));
        let orphan = noted.is_some() && !drain.any();
        let trip = Trip::at(Stage::Note, Rest::Play(paused), boot, Pulse::default(), drain, false);
        Box::new(Trip { orphan, ..*trip })
    }

    /// A host that an earlier run has booted, and whose play goes on when that is proven.
    pub(super) fn proof(mut paused: Box<Paused>, note: Box<Note>, way: &Way) -> Box<Trip> {
        let drain = Drain::of_note(&note.drain, &way.drain);
        paused.kept.warnings.push(taken_over(&note));
        let boot = Boot { rung: note.rung, reasons: note.why };
        let orphan = note.drain != "none" && !drain.any();
        let trip = Trip::at(Stage::Wait, Rest::Play(paused), boot, note.before, drain, true);
        Box::new(Trip { orphan, ..*trip })
    }

    /// A host that an earlier run was about to boot, and which doesn't need it: it is given back, unless it goes down.
    pub(super) fn unfinished(event: Box<HostEvent>, mut kept: Box<Kept>, note: Note, way: &Way) -> Box<Trip> {
        let drain = Drain::of_note(&note.drain, &way.drain);
        if *kept.warnings != [taken_over(&note)] {
            kept.warnings.push(taken_over(&note));
        }
        let orphan = note.drain != "none" && !drain.any();
        let boot = Boot { rung: note.rung, reasons: note.why };
        let trip = Trip::at(Stage::Note, Rest::Over(event, kept), boot, note.before, drain, true);
        Box::new(Trip { orphan, ..*trip })
    }

    fn at(stage: Stage, rest: Rest, boot: Boot, before: Pulse, drain: Drain, drained: bool) -> Box<Trip> {
        let now = Instant::now();
        let lack = (Lack::Shutdown, String::new());
        Box::new(Trip {
            boot,
            rest,
            stage,
            began: now,
            entered: now,
            before,
            drain,
            drained,
            emptied: false,
            orphan: false,
            ordered: String::new(),
            lack,
            tries: 0,
        })
    }

    /// It may go now.
    pub(super) fn begin(&mut self) {
        self.began = Instant::now();
        self.entered = self.began;
    }

    /// Whether an earlier run has begun with it.
    pub(super) fn begun(&self) -> bool {
        self.kept().note.is_some()
    }

    fn kept(&self) -> &Kept {
        match &self.rest {
            Rest::Play(paused) => &paused.kept,
            Rest::Over(_, kept) => kept,
        }
    }

    fn kept_mut(&mut self) -> &mut Kept {
        match &mut self.rest {
            Rest::Play(paused) => &mut paused.kept,
            Rest::Over(_, kept) => kept,
        }
    }

    /// The host isn't booted: its play ends here, with what waits for the boot pending.
    pub(super) fn give_up(self: Box<Self>, visit: &Visit<'_>, problem: Problem) -> Turn {
        let (event, machine) = self.ended(visit, problem);
        Turn::Over(event, machine, Left::AsItWas)
    }

    fn ended(self: Box<Self>, visit: &Visit<'_>, problem: Problem) -> (Box<HostEvent>, Machine) {
        match self.rest {
            Rest::Play(paused) => {
                let (event, machine) = visit.give_up(*paused, problem);
                (Box::new(event), machine)
            }
            Rest::Over(mut event, mut kept) => {
                event.warnings.append(&mut kept.warnings);
                event.status = HostStatus::Failed;
                event.error = Some(problem);
                (event, kept.machine.take())
            }
        }
    }

    fn say(&self, visit: &Visit<'_>, step: BootStep, detail: String) {
        (visit.events)(Event::Boot(Box::new(BootEvent {
            play: visit.play.clone(),
            host: visit.target.host.as_str().into(),
            step,
            time: self.began.elapsed(),
            detail,
        })));
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.entered = Instant::now();
        self.tries = 0;
    }

    fn why(&self) -> String {
        self.boot.reasons.join(", ")
    }

    /// Goes on as far as that is possible without waiting.
    pub(super) fn turn(mut self: Box<Self>, visit: &Visit<'_>, play: &Reboot, way: &Way) -> Turn {
        loop {
            if visit.shared.interrupted.load(Ordering::Relaxed) {
                return self.interrupt(visit, play);
            }
            let stage = self.stage;
            let next = match stage {
                Stage::Note => self.note(visit, play, way),
                Stage::Drain => self.drain(visit, play),
                Stage::Order => self.order(visit, play, way),
                Stage::Wait => self.wait(visit, play),
                Stage::Release => return self.release(visit, play),
            };
            match next {
                Ok(Some(wait)) => return Turn::Later(self, wait),
                // It is back and proven: now what comes after the boot.
                Ok(None) if stage == Stage::Wait => self = self.go_on(visit),
                Ok(None) => {}
                Err(problem) => return self.fail(visit, play, problem),
            }
        }
    }

    /// Before anything is taken away: what the host is like is noted on it, and whether it may be booted at all.
    fn note(&mut self, visit: &Visit<'_>, play: &Reboot, way: &Way) -> Result<Option<Duration>, Problem> {
        if let Some(why) = &way.refused {
            return Err(refusal(why.clone()));
        }
        let known = self.kept().note.as_ref().map(|note| note.run.clone());
        let folder = visit.shared.folders.run.as_str();
        let answers = visit.look(self.kept_mut(), false, vec![Pulse::ask(folder), facts::of_host()])?;
        let pulse = pulse_of(&answers, folder)?;
        if let Some(note) = self.kept().note.clone().filter(|note| *note.run != *visit.shared.run) {
            if known.as_ref() != Some(&note.run) {
                return Err(busy(&note));
            }
            // What an earlier run ordered is under way.
            if pulse.boot == note.before.boot && pulse.going_down() {
                self.drain = Drain::of_note(&note.drain, &way.drain);
                (self.before, self.drained) = (note.before, true);
                self.say(visit, BootStep::Booting, self.why());
                self.enter(Stage::Wait);
                return Ok(None);
            }
        }
        if let Rest::Over(..) = self.rest {
            self.enter(Stage::Release);
            return Ok(None);
        }
        // Somebody has booted it since it was looked at, and that may have done.
        if self.before.boot.is_empty()
            && let Some((boot, _)) = self.kept().machine.clone().filter(|(boot, _)| *boot != pulse.boot)
        {
            self.before = Pulse { boot, ..pulse };
            self.enter(Stage::Wait);
            return Ok(None);
        }
        if let (Some(here), false) = (here(), pulse.machine.is_empty())
            && here == (pulse.boot.clone(), pulse.machine.clone())
        {
            return Err(refusal(
                "it is the machine that netplay runs on, and wouldn't see the run to its end".to_owned(),
            ));
        }
        if let Some(why) = facts::fleeting(&answers) {
            return Err(refusal(format!(
                "what is written to its root doesn't survive a reboot ({why}), so nothing would know afterwards that it was \
                 booted for this"
            )));
        }
        // After a first boot what counts is still what it was like before that.
        if self.before.boot.is_empty() {
            self.before = pulse;
        } else {
            self.before.boot = pulse.boot;
        }
        let mut script = note::write(
            &visit.shared.folders,
            (&visit.shared.run, &visit.shared.whence),
            &self.drain.noted(),
            &self.boot,
            &self.before,
        );
        let order = !self.drain.any() && self.boot.rung == Rung::Reboot;
        if order {
            script = script.user(order_script(visit, play).as_str());
            self.order_reboot(visit, &script)?;
        } else {
            self.change(visit, &script)?;
        }
        if order {
            self.say(visit, BootStep::Booting, self.why());
            self.enter(Stage::Wait);
        } else {
            self.enter(if self.drain.any() { Stage::Drain } else { Stage::Order });
            if self.drain.any() && !self.drained {
                self.say(visit, BootStep::Draining, self.drain.noted());
            }
        }
        Ok(None)
    }

    fn drain(&mut self, visit: &Visit<'_>, play: &Reboot) -> Result<Option<Duration>, Problem> {
        let script = self.drain.script(&visit.shared.run, &self.why());
        // For what a first boot has revealed it is still drained.
        let Some(script) = script.filter(|_| !self.emptied || self.drain.boots()) else {
            self.enter(Stage::Order);
            return Ok(None);
        };
        let command = matches!(self.drain, Drain::Command { .. });
        let seconds = if command { play.drain_timeout.as_secs() } else { 60 };
        // A command of the operator's that was begun is waited for: what it does later would be done to a host given back.
        let output = play.desk.run(visit, &script, u32::try_from(seconds).unwrap_or(u32::MAX), command);
        let verdict = match &output {
            Ok(output) => drain::judge(output, command, play.drain_timeout),
            Err(problem) => Drained::No(problem.message.clone()),
        };
        match verdict {
            Drained::Yes => {
                (self.drained, self.emptied) = (true, true);
                if self.drain.boots() {
                    self.say(visit, BootStep::Booting, format!("by Slurm, when its jobs have ended: {}", self.why()));
                    self.enter(Stage::Wait);
                } else {
                    self.say(visit, BootStep::Drained, self.drain.noted());
                    self.enter(Stage::Order);
                }
                Ok(None)
            }
            Drained::NotYet(why) => {
                self.drained = true;
                self.lack.1 = why;
                if self.entered.elapsed() < play.drain_timeout {
                    return Ok(Some(pause(self.entered)));
                }
                Err(Problem {
                    kind: "drain",
                    message: format!("it wasn't drained within {} s: {}", play.drain_timeout.as_secs(), self.lack.1),
                    hint: Some(
                        "it was given back; let what runs there end, or allow more by `drain_timeout`".to_owned(),
                    ),
                })
            }
            Drained::ByOthers(why) => Err(Problem {
                kind: "drained",
                message: format!("somebody else has taken it out of service, and it wasn't booted: {why}"),
                hint: Some("when they are done with it, put it back and run this again".to_owned()),
            }),
            Drained::No(why) => {
                // It may have got half-way; what isn't netplay's is left alone when it is given back.
                self.drained = true;
                Err(Problem {
                    kind: "drain",
                    message: format!("it couldn't be drained, and wasn't booted: {why}"),
                    hint: Some(format!("the command runs on {}", play.desk.target.host)),
                })
            }
        }
    }

    fn order(&mut self, visit: &Visit<'_>, play: &Reboot, way: &Way) -> Result<Option<Duration>, Problem> {
        match (self.boot.rung, &way.power_cycle) {
            (Rung::PowerCycle, Some(command)) => {
                self.change(visit, &Script::new().line("sync"))?;
                // Whatever it says, and if nobody knows what it says, the power may have been off.
                self.ordered = match play.desk.run(visit, &Script::new().user(command), POWER_CYCLE, true) {
                    Err(problem) => format!("what came of its power_cycle command isn't known: {}", problem.message),
                    Ok(output) => {
                        let said = drain::last_lines(&output.complaint());
                        match output.code {
                            124 | 137 => format!("its power_cycle command didn't end within {POWER_CYCLE} s: {said}"),
                            code => format!("its power_cycle command ended with {code}: {said}"),
                        }
                    }
                };
            }
            _ => self.order_reboot(visit, &order_script(visit, play))?,
        }
        self.say(visit, BootStep::Booting, self.why());
        self.enter(Stage::Wait);
        Ok(None)
    }

    /// Gives an order to boot. Where the session broke meanwhile nobody knows whether it arrived, and that is waited for.
    fn order_reboot(&mut self, visit: &Visit<'_>, script: &Script) -> Result<(), Problem> {
        match self.change(visit, script) {
            Err(p) if [FailureKind::Lost.name(), FailureKind::Timeout.name()].contains(&p.kind) => {
                self.ordered = format!("whether it was told to boot isn't known: {}", p.message);
                Ok(())
            }
            result => result,
        }
    }

    /// Whether it is back: a new boot over a new connection, its system up, its ports and links as they were.
    fn wait(&mut self, visit: &Visit<'_>, play: &Reboot) -> Result<Option<Duration>, Problem> {
        let folder = visit.shared.folders.run.as_str();
        let looked = visit.look(self.kept_mut(), true, vec![Pulse::ask(folder)]);
        let found = looked.and_then(|answers| pulse_of(&answers, folder));
        let lack = match &found {
            Ok(pulse) => pulse.lacks(&self.before),
            Err(problem) if problem.kind == FailureKind::HostKey.name() => {
                let message = format!("after the boot {}", problem.message);
                return Err(Problem { message, ..problem.clone() });
            }
            Err(problem) => Some((Lack::Boot, problem.message.clone())),
        };
        let Some((lack, told)) = lack else {
            let pulse = found?;
            if !pulse.failed.is_empty() {
                let units = pulse.failed.join(", ");
                self.kept_mut().warnings.push(format!("after the boot these units have failed: {units}"));
            }
            let resets: Vec<String> = pulse.resets.iter().map(|r| format!("before the boot, {r}")).collect();
            self.kept_mut().warnings.extend(resets);
            self.say(visit, BootStep::Back, format!("boot {}", pulse.boot));
            self.enter(Stage::Release);
            return Ok(None);
        };
        // The time of a system and of ports counts from when the host had got so far.
        if lack > self.lack.0.max(Lack::Boot) {
            self.entered = Instant::now();
        }
        self.lack = (lack.max(self.lack.0), told);
        let (limit, stage, hint) = match lack {
            Lack::Shutdown => (play.timeout, "it didn't go down", "look what holds it up: `systemctl list-jobs` there"),
            Lack::Boot if self.lack.0 <= Lack::Boot => {
                (play.timeout, "it didn't come back", "look at its console; when it is back, run this again")
            }
            Lack::Boot | Lack::System => (
                SYSTEM.min(play.timeout),
                "its system didn't come up",
                "`systemctl list-jobs` there tells what is still being started",
            ),
            Lack::Ports => (
                PORTS.min(play.timeout),
                "it didn't come back as it was",
                "look at cable, switch port and subnet manager",
            ),
        };
        let limit = if self.drain.boots() { limit + play.drain_timeout } else { limit };
        if self.entered.elapsed() < limit {
            return Ok(Some(pause(self.entered)));
        }
        let ordered = if self.ordered.is_empty() { String::new() } else { format!("; {}", self.ordered) };
        let message = format!("{stage} within {} s of the boot: {}{ordered}", limit.as_secs(), self.lack.1);
        Err(Problem { kind: "boot", message, hint: Some(hint.to_owned()) })
    }

    /// What of the play comes after the boot. Another boot may be due then, of what the first one revealed: the host stays
    /// drained for it.
    fn go_on(mut self: Box<Self>, visit: &Visit<'_>) -> Box<Trip> {
        let rung = self.boot.rung;
        if rung == Rung::PowerCycle
            && let Err(problem) = self.change(visit, &cards::power_was_cycled())
        {
            self.kept_mut().warnings.push(format!("that its power was cycled could not be noted: {}", problem.message));
        }
        let Trip { rest, boot, before, drain, drained, emptied, orphan, began, .. } = *self;
        let (stage, rest, boot) = match rest {
            Rest::Over(event, kept) => (Stage::Release, Rest::Over(event, kept), boot),
            Rest::Play(paused) => match visit.resume(*paused, rung) {
                Visited::Boot(paused, next) => (Stage::Note, Rest::Play(paused), next),
                // What is noted is this boot, which was just proven.
                Visited::Proof(paused, _) => (Stage::Wait, Rest::Play(paused), boot),
                Visited::Done(event, kept) => (Stage::Release, Rest::Over(event, kept), boot),
            },
        };
        Box::new(Trip { began, emptied, orphan, ..*Trip::at(stage, rest, boot, before, drain, drained) })
    }

    /// Gives the host back, if all went well; otherwise it stays as it is, drained if it was.
    fn release(mut self: Box<Self>, visit: &Visit<'_>, play: &Reboot) -> Turn {
        if let Rest::Over(event, _) = &self.rest
            && matches!(event.status, HostStatus::Failed | HostStatus::Unreachable)
        {
            self.stays_drained();
            let (event, machine) = self.over();
            return Turn::Over(event, machine, Left::Away("it failed after its boot".to_owned()));
        }
        let undone = self.undo(visit, play);
        if undone.is_err() && self.tries < TRIES {
            self.tries += 1;
            return Turn::Later(self, Duration::from_secs(5));
        }
        // By the note the next run gives it back, if this one couldn't.
        if undone.is_ok()
            && let Err(problem) = self.change(visit, &note::remove(&visit.shared.folders))
        {
            self.kept_mut().warnings.push(format!("that it was booted stays noted on it: {}", problem.message));
        }
        match undone {
            Ok(()) => {
                self.say(visit, BootStep::Done, if self.drain.any() { self.drain.noted() } else { String::new() });
                let (event, machine) = self.over();
                Turn::Over(event, machine, Left::Back)
            }
            Err(problem) => {
                let message = format!("it stays drained: {}", problem.message);
                let (mut event, machine) = self.over();
                event.status = HostStatus::Failed;
                event.error = Some(Problem { message: message.clone(), ..problem });
                Turn::Over(event, machine, Left::Away(message))
            }
        }
    }

    /// What its host has come to.
    fn over(self: Box<Self>) -> (Box<HostEvent>, Machine) {
        let Rest::Over(mut event, mut kept) = self.rest else {
            unreachable!("a host is released when its play is over")
        };
        event.executions = kept.executions;
        event.warnings.append(&mut kept.warnings);
        event.time = kept.elapsed();
        (event, kept.machine.take())
    }

    fn stays_drained(&mut self) {
        if !self.drained || !self.drain.any() {
            return;
        }
        let drain = self.drain.noted();
        self.kept_mut().warnings.push(format!(
            "it stays drained ({drain}): mend it and run this again, which gives it back, or give it back by hand"
        ));
    }

    fn undo(&mut self, visit: &Visit<'_>, play: &Reboot) -> Result<(), Problem> {
        if self.orphan {
            let message =
                "an earlier run drained it by a command, and this play's `drain` has none to give it back".to_owned();
            let hint =
                Some("run the play that has it, or give it back by hand and remove /var/lib/netplay/reboot".to_owned());
            return Err(Problem { kind: "undrain", message, hint });
        }
        let Some(script) = self.drain.undo().filter(|_| self.drained) else { return Ok(()) };
        let output = play.desk.run(visit, &script, 120, true)?;
        if output.code == 0 {
            return Ok(());
        }
        if drain::by_others(&output, &self.drain) {
            let said = output.complaint();
            self.kept_mut()
                .warnings
                .push(format!("somebody else keeps it out of service now, and it isn't given back: {said}"));
            return Ok(());
        }
        let said = drain::last_lines(&output.complaint());
        let message = format!("giving it back failed: exit code {}: {said}", output.code);
        let hint = Some(format!("the command runs on {}; give it back by hand", play.desk.target.host));
        Err(Problem { kind: "undrain", message, hint })
    }

    fn fail(mut self: Box<Self>, visit: &Visit<'_>, play: &Reboot, problem: Problem) -> Turn {
        // Slurm hasn't booted it yet: it is told not to.
        let unbooted = self.drain.boots() && self.lack.0 == Lack::Shutdown;
        if self.stage == Stage::Wait && !unbooted {
            self.stays_drained();
            let why = problem.message.clone();
            let (event, machine) = self.ended(visit, problem);
            return Turn::Over(event, machine, Left::Away(why));
        }
        if self.untouched() {
            let why = problem.message.clone();
            let (event, machine) = self.ended(visit, problem);
            return Turn::Over(event, machine, Left::Away(why));
        }
        // Nothing has been booted: it is given back.
        let left = match (self.back_out(visit, play), problem.kind) {
            (Left::Back, "drained") => Left::Away(problem.message.clone()),
            (left, _) => left,
        };
        let (event, machine) = self.ended(visit, problem);
        Turn::Over(event, machine, left)
    }

    /// Whether an earlier run has begun with it and this one doesn't know yet how far that is: it may go down any moment,
    /// and isn't given back.
    fn untouched(&self) -> bool {
        self.stage == Stage::Note && (matches!(self.rest, Rest::Over(..)) || self.begun())
    }

    fn back_out(&mut self, visit: &Visit<'_>, play: &Reboot) -> Left {
        if let Err(problem) = self.undo(visit, play) {
            let message = format!("it stays drained: {}", problem.message);
            self.kept_mut().warnings.push(message.clone());
            return Left::Away(message);
        }
        // Once it is known what it was like before, that may have been noted.
        if !self.before.boot.is_empty()
            && let Err(problem) = self.change(visit, &note::remove(&visit.shared.folders))
        {
            self.kept_mut().warnings.push(format!("that it was to be booted stays noted on it: {}", problem.message));
        }
        Left::Back
    }

    fn interrupt(mut self: Box<Self>, visit: &Visit<'_>, play: &Reboot) -> Turn {
        let kind = FailureKind::Interrupted.name();
        let problem = |message: &str| Problem { kind, message: message.to_owned(), hint: None };
        match self.stage {
            Stage::Note | Stage::Drain | Stage::Order if !self.untouched() => {
                let left = self.back_out(visit, play);
                let (event, machine) = self.ended(visit, problem("the run was interrupted before it was booted"));
                Turn::Over(event, machine, left)
            }
            _ => {
                let hint = "the next run finishes what is open; `netplay status` shows where it is".to_owned();
                let told = problem("the run was interrupted while it booted");
                let (event, machine) = self.ended(visit, Problem { hint: Some(hint), ..told });
                Turn::Over(event, machine, Left::Away("the run was interrupted while it booted".to_owned()))
            }
        }
    }

    fn change(&mut self, visit: &Visit<'_>, script: &Script) -> Result<(), Problem> {
        visit.alter(self.kept_mut(), script)
    }
}

fn pulse_of(answers: &Answers, folder: &str) -> Result<Pulse, Problem> {
    let pulse = answers.get::<Pulse>(folder);
    pulse.cloned().map_err(|t| Problem { kind: "probe", message: t.message, hint: t.hint })
}

/// How long until the next look: at first often, then less, so that little is lost of a short wait and little is asked in a
/// long one.
fn pause(since: Instant) -> Duration {
    (since.elapsed() / 25).clamp(Duration::from_millis(500), Duration::from_secs(15))
}

/// That a run sees to the rest of another one.
fn taken_over(note: &Note) -> String {
    format!("run {} began to boot it ({}); this run sees to the rest", note.run, note.why.join(", "))
}

/// That another run is at it.
pub(super) fn busy(note: &Note) -> Problem {
    Problem {
        kind: "reboot",
        message: format!("run {} of {} is booting it ({})", note.run, note.by, note.why.join(", ")),
        hint: Some("let that run finish, then run this again".to_owned()),
    }
}

fn refusal(why: String) -> Problem {
    Problem {
        kind: "reboot",
        message: format!("it isn't booted: {why}"),
        hint: Some("boot it yourself, or by `netplay reboot` when nothing else runs".to_owned()),
    }
}

/// Boot and machine of where netplay runs.
fn here() -> Option<(String, String)> {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
    Some((read("/proc/sys/kernel/random/boot_id")?, read("/etc/machine-id")?))
}

/// What makes a host boot a moment later, when the session that says so has ended. A kernel loaded by kexec would be booted
/// without resetting any card.
fn order_script(visit: &Visit<'_>, play: &Reboot) -> Script {
    let reset = if play.firmware_reset { include_str!("reset.sh") } else { "" };
    let go =
        format!("{reset}if [ -d /run/systemd/system ]; then systemctl reboot -i; else shutdown -r now || reboot; fi");
    let script = Script::new().set("R", &visit.shared.folders.run).set("go", &go);
    script.line(include_str!("order.sh"))
}
