//! Booting a host in the middle of its play: drained, booted, proven, given back. Each turn of a `Trip` is short; what it
//! waits for in between costs no thread.

mod census;
mod down;
mod drain;
mod errand;
mod note;
mod pulse;
mod up;

pub use census::Unavailable;
pub use drain::Drain;
pub use note::{Note, whence};

pub(super) use self::census::Census;
use self::pulse::{Lack, Pulse};
use super::host::Kept;
pub(super) use super::visit::QUICK;
use super::visit::{Machine, Paused, Place, Visit};
use crate::event::{BootEvent, BootStep, Event, HostEvent, HostStatus, Problem};
use crate::plan::Boot;
use crate::playbook::Batch;
use crate::resource::{Answers, Output};
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
    /// What fails together with each of these hosts: at most one host of a domain is unavailable at once.
    pub domains: HashMap<Arc<str>, String>,
}

/// What is to be known of one host for that.
#[derive(Debug, Clone, Default)]
pub struct Way {
    /// How it is drained.
    pub drain: Drain,
    /// What switches it off and on.
    pub power_cycle: Option<String>,
    /// Why it must not be booted in this run, if so.
    pub refused: Option<String>,
    /// That an earlier run had it boot, if it may still be on its way.
    pub awaited: Option<Awaited>,
}

/// What the log of an earlier run of this machine tells of a host that it had boot, and that it didn't see back.
#[derive(Debug, Clone)]
pub struct Awaited {
    /// The run.
    pub run: String,
    /// How long ago it had it boot.
    pub ago: Duration,
    /// How long after this the host may take until it answers.
    pub timeout: Duration,
    /// When this was found.
    pub found: Instant,
}

impl Awaited {
    /// Since the order to boot.
    pub(super) fn ago(&self) -> Duration {
        self.ago + self.found.elapsed()
    }

    /// Whether it may still be on its way.
    pub(super) fn due(&self) -> bool {
        self.ago() < self.timeout
    }

    /// When to look next.
    pub(super) fn pause(&self) -> Duration {
        pause(self.found)
    }

    /// What is told of it.
    pub(super) fn told(&self) -> String {
        format!(
            "run {} had it boot {} s ago; it has up to {} s for that",
            self.run,
            self.ago().as_secs(),
            self.timeout.as_secs()
        )
    }
}

/// Whether a host that an earlier run had boot is still down, or goes down just now: a visit would break off in the middle.
pub(super) fn absent(visit: &Visit<'_>) -> bool {
    let folder = visit.shared.folders.run.as_str();
    let looked = visit.look(&mut Kept::default(), true, vec![Pulse::ask(folder)]);
    match looked.and_then(|answers| pulse_of(&answers, folder)) {
        Ok(pulse) => pulse.going_down(),
        Err(problem) => passes(&problem),
    }
}

/// Whether a host that goes down or comes up may fail to answer so.
fn passes(problem: &Problem) -> bool {
    use FailureKind::{Connect, Handshake, Login, Lost, Refused, Timeout};
    [Connect, Handshake, Login, Refused, Lost, Timeout].iter().any(|kind| kind.name() == problem.kind)
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
    /// Whether it was counted who is away since it was drained.
    counted: bool,
    /// Whether nothing runs there any more.
    emptied: bool,
    /// Where the operator's command that drains it is under way.
    errand: Option<String>,
    /// Whether an earlier run drained it by a command that this play doesn't have.
    orphan: bool,
    /// How an earlier run drained it, where this play's way wouldn't undo that.
    clash: Option<String>,
    /// What came of the order to boot, where that isn't sure.
    ordered: String,
    /// Whose note is on the host, once there is one.
    owner: Option<String>,
    /// Whether it may take the host down: it has a place in the budget.
    admitted: bool,
    /// For what this run has booted it already.
    made: Vec<String>,
    /// What it lacked last, and in words.
    lack: (Lack, String),
    /// Since when it hasn't been seen to run its old boot.
    gone: Option<Instant>,
    tries: u32,
}

enum Rest {
    Play(Box<Paused>),
    Over(Box<HostEvent>, Box<Kept>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
    /// A boot for which it has to be admitted.
    Needs(Box<Trip>),
    /// It was drained just now: who is away has to be counted once more.
    Counts(Box<Trip>),
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
        let noted = paused.kept.note.as_ref().filter(|note| note.drain != "none");
        let earlier = noted.map(|note| (note.drain.clone(), Drain::of_note(&note.drain, &way.drain)));
        let (drain, orphan, clash) = match earlier {
            None => (way.drain.clone(), false, None),
            Some((_, drain)) if !way.drain.any() => (drain.clone(), !drain.any(), None),
            Some((_, drain)) if drain.undone_by(&way.drain) => (way.drain.clone(), false, None),
            Some((noted, _)) => (way.drain.clone(), false, Some(noted)),
        };
        let trip = Trip::at(Stage::Note, Rest::Play(paused), boot, Pulse::default(), drain, false);
        Box::new(Trip { orphan, clash, ..*trip })
    }

    /// A host that an earlier run has booted, and whose play goes on when that is proven.
    pub(super) fn proof(mut paused: Box<Paused>, note: Box<Note>, way: &Way) -> Box<Trip> {
        let drain = Drain::of_note(&note.drain, &way.drain);
        paused.kept.warnings.push(taken_over(&note));
        let boot = Boot { rung: note.rung, reasons: note.why };
        let orphan = note.drain != "none" && !drain.any();
        let trip = Trip::at(Stage::Wait, Rest::Play(paused), boot, note.before, drain, true);
        Box::new(Trip { orphan, owner: Some(note.run), ..*trip })
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
        Box::new(Trip { orphan, owner: Some(note.run), ..*trip })
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
            counted: false,
            emptied: false,
            errand: None,
            orphan: false,
            clash: None,
            ordered: String::new(),
            owner: None,
            admitted: false,
            made: Vec::new(),
            lack,
            gone: None,
            tries: 0,
        })
    }

    /// It may go now.
    pub(super) fn begin(&mut self) {
        self.began = Instant::now();
        self.entered = self.began;
        self.admitted = true;
    }

    /// Whether an earlier run has begun with it.
    pub(super) fn begun(&self) -> bool {
        self.kept().note.is_some()
    }

    /// When to look again at a host that didn't answer when it was looked at last, and may take longer. One that still runs its
    /// old boot isn't knocked at: its sshd counts connections without a login, and some close the door for them.
    pub(super) fn down(&self, play: &Reboot) -> Option<Duration> {
        let (since, limit) = self.limit(play, Lack::Boot);
        let down = self.stage == Stage::Wait && self.lack.0 == Lack::Boot && since.elapsed() < limit;
        down.then(|| pause(self.entered))
    }

    /// Since when it may lack this, and how long. What Slurm boots goes down when its jobs have ended, and has the
    /// time of a boot from then on.
    fn limit(&self, play: &Reboot, lack: Lack) -> (Instant, Duration) {
        match lack {
            Lack::Shutdown if self.drain.boots() => (self.entered, play.timeout + play.drain_timeout),
            Lack::Boot if self.drain.boots() => (self.gone.unwrap_or(self.entered), play.timeout),
            Lack::Shutdown | Lack::Boot => (self.entered, play.timeout),
            Lack::System => (self.entered, SYSTEM.min(play.timeout)),
            Lack::Ports => (self.entered, PORTS.min(play.timeout)),
        }
    }

    /// Whether its play is over and came to nothing.
    fn lost(&self) -> bool {
        matches!(&self.rest, Rest::Over(event, _) if matches!(event.status, HostStatus::Failed | HostStatus::Unreachable))
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
                // What it has failed of stays what is told.
                if matches!(event.status, HostStatus::Failed | HostStatus::Unreachable) {
                    event.warnings.push(problem.message);
                } else {
                    event.status = HostStatus::Failed;
                    event.error = Some(problem);
                }
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
            if visit.shared.interrupted.load(Ordering::Relaxed) && !self.on_errand() {
                return self.interrupt(visit, play);
            }
            let stage = self.stage;
            let counts = stage == Stage::Drain && !self.counted && !self.emptied;
            let next = match stage {
                Stage::Note => self.note(visit, play, way),
                Stage::Drain => self.drain(visit, play),
                Stage::Order => self.order(visit, play, way),
                Stage::Wait => self.wait(visit, play),
                Stage::Release => return self.release(visit, play),
            };
            match next {
                // What another run has drained in the same seconds is seen now, as it sees this. What Slurm boots itself may be
                // going down already.
                Ok(_) if counts && self.drained && !self.drain.boots() && Census::of(&self.drain).is_some() => {
                    self.counted = true;
                    return Turn::Counts(self);
                }
                Ok(Some(wait)) => return Turn::Later(self, wait),
                // It is back and proven: now what comes after the boot.
                Ok(None) if stage == Stage::Wait => {
                    self = self.go_on(visit);
                    if self.stage == Stage::Note && !self.admitted {
                        return Turn::Needs(self);
                    }
                }
                Ok(None) => {}
                Err(problem) => return self.fail(visit, play, problem),
            }
        }
    }

    fn change(&mut self, visit: &Visit<'_>, script: &Script) -> Result<(), Problem> {
        let output = visit.alter(self.kept_mut(), script)?;
        if output.code == 0 { Ok(()) } else { Err(refused(&output)) }
    }
}

/// That a script of netplay's own failed on the host.
fn refused(output: &Output) -> Problem {
    let message = format!("exit code {}: {}", output.code, drain::last_lines(&output.complaint()));
    Problem { kind: "step", message, hint: None }
}

fn pulse_of(answers: &Answers, folder: &str) -> Result<Pulse, Problem> {
    let pulse = answers.get::<Pulse>(folder);
    pulse.cloned().map_err(|t| Problem { kind: "probe", message: t.message, hint: t.hint })
}

/// How long until the next look: at first often, then less, so that little is lost of a short wait and little is asked in a
/// long one.
fn pause(since: Instant) -> Duration {
    (since.elapsed() / 50).clamp(Duration::from_millis(250), Duration::from_secs(15))
}

/// That a run sees to the rest of another one.
fn taken_over(note: &Note) -> String {
    format!("run {} began to boot it ({}); this run sees to the rest", note.run, note.why.join(", "))
}

/// That another run is at it.
pub(super) fn busy(note: &Note) -> Problem {
    Problem {
        kind: "reboot",
        message: format!("run {} of {} is booting it ({})", note.run, note.runner(), note.why.join(", ")),
        hint: Some("let that run finish, then run this again".to_owned()),
    }
}

#[cfg(test)]
mod tests;
