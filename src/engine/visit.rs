//! A visit to a host: what it needs to know, where it may stop, and how it ended.

use super::batch::Folders;
use super::boot::Note;
use super::guard::{Canary, Proof};
use super::host::{Going, Kept};
use crate::event::{Event, HostEvent, HostStatus, Problem, Stage, Status};
use crate::plan::{Boot, Plan, Policy, STEP_SECONDS};
use crate::playbook::{Become, HostPlay};
use crate::resource::probes::line::CommandLine;
use crate::resource::{Answers, Inquiry, Output, Question};
use crate::shell::Script;
use crate::transport::{Deadline, FailureKind, Gate, Identity, Target, Transport};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long the parts of a visit may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// TCP, handshake and login.
    pub login: Duration,
    /// An execution, to which the resources' own timeouts are added.
    pub execution: Duration,
    /// All of it.
    pub visit: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            login: Duration::from_secs(40),
            execution: Duration::from_secs(u64::from(STEP_SECONDS)),
            visit: Duration::from_secs(30 * 60),
        }
    }
}

/// What all visits of a run share.
pub struct Shared {
    /// What opens sessions.
    pub transport: Box<dyn Transport>,
    /// How many handshakes may be under way.
    pub gate: Gate,
    /// How long things may take.
    pub limits: Limits,
    /// Where the state is on the hosts.
    pub folders: Folders,
    /// The run's id.
    pub run: Arc<str>,
    /// Who changes, for others that wait for the lock.
    pub holder: String,
    /// Who runs it, on which machine, and as which process, by [`super::boot::whence`].
    pub whence: String,
    /// Whether each script is told before it is sent (`-vv`).
    pub show_scripts: bool,
    /// Set when the run is interrupted.
    pub interrupted: Arc<AtomicBool>,
    /// Set when it is interrupted a second time: steps that run aren't waited for any more.
    pub cut: Arc<AtomicBool>,
}

/// What a visit needs to know of its host beyond the play.
pub trait Site: Sync {
    /// The play with the host's facts known.
    ///
    /// # Errors
    /// What is wrong in it on this host.
    fn with_facts(&self, facts: &serde_json::Value) -> Result<HostPlay, String>;
    /// Who runs what has these keywords.
    ///
    /// # Errors
    /// A variable of the connection that can't be.
    fn identity(&self, keywords: &Become) -> Result<Identity, String>;
    /// Whether any play of the run has a handler of this address for the host.
    fn knows_handler(&self, address: &str) -> bool;
}

/// A visit to be made.
pub struct Visit<'a> {
    /// What the run shares.
    pub shared: &'a Shared,
    /// How the host is reached.
    pub target: &'a Target,
    /// What is known of the host.
    pub site: &'a dyn Site,
    /// The play's name.
    pub play: Arc<str>,
    /// Its policy.
    pub policy: Policy,
    /// Where events go.
    pub events: &'a (dyn Fn(Event) + Sync),
    /// Whether it goes on though the run is interrupted, as it takes something back.
    pub patient: bool,
    /// What has to be true before a change that may cut the session off is confirmed.
    pub confirm: Proof,
    /// Which host goes first with such a change.
    pub canary: Option<&'a Canary>,
}

/// Where commands run that aren't a host's own: this machine, or a host of the inventory.
pub struct Place {
    /// How it is reached.
    pub target: Target,
    /// What else is to be known of it.
    pub site: Box<dyn Site + Send>,
    /// As whom.
    pub keywords: Become,
}

impl Place {
    /// Runs a script there for a visit. What it gave, also if that is a failure.
    ///
    /// # Errors
    /// It could not be run.
    pub(super) fn run(
        &self,
        visit: &Visit<'_>,
        script: &Script,
        seconds: u32,
        patient: bool,
    ) -> Result<Output, Problem> {
        let argument = CommandLine::argument(seconds, script.as_str());
        let answers = self.ask(visit, [CommandLine::ask(&argument)], patient)?;
        answers.get::<CommandLine>(&argument).cloned().map_err(|t| Problem {
            kind: "probe",
            message: t.message,
            hint: t.hint,
        })
    }

    /// Asks there for a visit.
    ///
    /// # Errors
    /// It could not be asked.
    pub(super) fn ask(
        &self,
        visit: &Visit<'_>,
        questions: impl IntoIterator<Item = Question>,
        patient: bool,
    ) -> Result<Answers, Problem> {
        let scripts = |event: Event| {
            if let Event::Script { .. } = event {
                (visit.events)(event);
            }
        };
        let there = Visit {
            target: &self.target,
            site: &*self.site,
            play: visit.play.clone(),
            policy: Policy::default(),
            events: &scripts,
            shared: visit.shared,
            patient,
            confirm: Proof::default(),
            canary: None,
        };
        let (event, answers) = there.ask(&Inquiry::new(questions), &self.keywords);
        answers.ok_or_else(|| {
            let host = &self.target.host;
            let lost = Problem { kind: "lost", message: "no answer".to_owned(), hint: None };
            let problem = event.error.unwrap_or(lost);
            Problem { message: format!("on {host}: {}", problem.message), ..problem }
        })
    }
}

/// A visit that a boot interrupts: what is left of it.
pub(super) struct Paused {
    plan: Plan,
    pub(super) kept: Kept,
}

/// How a visit ended.
pub(super) enum Visited {
    /// Its play is over.
    Done(Box<HostEvent>, Box<Kept>),
    /// It goes on after a boot.
    Boot(Box<Paused>, Boot),
    /// An earlier run has booted it: it goes on when that is proven.
    Proof(Box<Paused>, Box<Note>),
}

/// What a plan waits for.
pub(super) enum Pause {
    Boot(Boot),
    Proof(Box<Note>),
}

/// What a visit found of the machine: its boot_id and machine-id, if both could be read.
pub type Machine = Option<(String, String)>;

/// Seconds that a host which may not be there is given for its TCP connection, and four times that for all.
pub(super) const QUICK: Duration = Duration::from_secs(4);
/// As whom a host is booted.
pub(super) const ROOT: Become = Become { enabled: true, user: None };

/// How a visit ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// There is no session.
    Unreachable(Problem),
    /// There was one, and it's no use going on.
    Broken(Problem),
}

impl Stop {
    pub(super) fn problem(self) -> Problem {
        let (Stop::Unreachable(problem) | Stop::Broken(problem)) = self;
        problem
    }
}

impl Visit<'_> {
    /// Makes the visit and tells all that becomes of it, up to its end or to a boot.
    pub(super) fn make(&self, play: HostPlay) -> Visited {
        let mut going = self.set_out(Kept::default());
        let result = going.run(play);
        self.visited(going, result)
    }

    /// Goes on with a visit after a boot by this.
    pub(super) fn resume(&self, paused: Paused, boot: &Boot) -> Visited {
        let Paused { mut plan, mut kept } = paused;
        kept.generation.clear();
        let mut going = self.set_out(kept);
        let asked = plan.boot_asked();
        plan.booted(boot);
        going.kept.changed |= asked && !plan.boot_asked();
        let result = match going.connect() {
            Ok(()) => going.go_on(plan),
            Err(stop) => going.finish(plan, Err(stop)).map(|()| None),
        };
        self.visited(going, result)
    }

    /// Ends a visit that waits for a boot which isn't made.
    pub(super) fn give_up(&self, paused: Paused, problem: Problem) -> (HostEvent, Machine) {
        let Paused { plan, kept } = paused;
        let mut going = self.set_out(kept);
        let result = going.finish(plan, Err(Stop::Broken(problem)));
        let event = self.close(&mut going, result);
        (event, going.kept.machine.take())
    }

    fn visited(&self, mut going: Going<'_>, result: Result<Option<(Plan, Pause)>, Stop>) -> Visited {
        let result = match result {
            Ok(Some((plan, pause))) => {
                self.stage(Stage::Waiting);
                let paused = Box::new(Paused { plan, kept: going.kept });
                return match pause {
                    Pause::Boot(boot) => Visited::Boot(paused, boot),
                    Pause::Proof(note) => Visited::Proof(paused, note),
                };
            }
            Ok(None) => Ok(()),
            Err(stop) => Err(stop),
        };
        let event = self.close(&mut going, result);
        Visited::Done(Box::new(event), Box::new(going.kept))
    }

    /// Asks these questions as root over a new session; `quick` for a host that may not be there at all.
    pub(super) fn look(&self, kept: &mut Kept, quick: bool, questions: Vec<Question>) -> Result<Answers, Problem> {
        let mut target = self.target.clone();
        if quick {
            target.connect_timeout = Some(QUICK);
        }
        let visit = Visit { target: &target, play: self.play.clone(), confirm: Proof::default(), ..*self };
        let mut going = visit.set_out(std::mem::take(kept));
        if quick {
            going.hasty = going.hasty.within(4 * QUICK);
            going.reconnected = true;
        }
        let asked = || {
            going.connect()?;
            let who = going.who(&ROOT)?;
            going.read(&who, &Inquiry::new(questions))
        };
        let result = asked();
        *kept = going.kept;
        result.map(|report| report.answers.unwrap_or_default()).map_err(Stop::problem)
    }

    /// Where it can be seen whether the host is there at all.
    pub(super) fn door(&self) -> Option<SocketAddr> {
        let deadline = Deadline::after(QUICK, &self.shared.interrupted);
        self.shared.transport.door(self.target, &deadline)
    }

    /// Runs a script as root over a new session, under the host's lock. What it gave, also if that is a failure.
    pub(super) fn alter(&self, kept: &mut Kept, script: &Script) -> Result<Output, Problem> {
        let visit = Visit { patient: true, play: self.play.clone(), confirm: Proof::default(), ..*self };
        let mut going = visit.set_out(std::mem::take(kept));
        let result = going.alter(script);
        *kept = going.kept;
        result.map_err(Stop::problem)
    }

    pub(super) fn set_out(&self, kept: Kept) -> Going<'_> {
        let deadline = Deadline::after(self.shared.limits.visit, &self.shared.cut);
        let hasty = Deadline::after(self.shared.limits.visit, &self.shared.interrupted);
        Going {
            visit: self,
            session: None,
            hasty: if self.patient { deadline.clone() } else { hasty },
            deadline,
            reconnected: false,
            kept,
        }
    }

    pub(super) fn close(&self, going: &mut Going<'_>, result: Result<(), Stop>) -> HostEvent {
        let count = |s: Status| going.kept.tally.get(&s).copied().unwrap_or(0);
        let failed = count(Status::Failed) > going.kept.ignored;
        let changed = count(Status::Changed) + count(Status::WouldChange) > 0 || going.kept.changed;
        let (status, error) = match result {
            Err(Stop::Unreachable(problem)) if problem.kind == FailureKind::Interrupted.name() => {
                (HostStatus::Skipped, Some(problem))
            }
            Err(Stop::Unreachable(problem)) => (HostStatus::Unreachable, Some(problem)),
            Err(Stop::Broken(problem)) => (HostStatus::Failed, Some(problem)),
            Ok(()) if failed => (HostStatus::Failed, None),
            Ok(()) if changed => (HostStatus::Changed, None),
            Ok(()) => (HostStatus::Ok, None),
        };
        self.stage(Stage::Done);
        HostEvent {
            play: self.play.clone(),
            host: self.target.host.as_str().into(),
            status,
            executions: going.kept.executions,
            time: going.kept.elapsed(),
            warnings: std::mem::take(&mut going.kept.warnings),
            reboot_pending: std::mem::take(&mut going.kept.reboot),
            error,
        }
    }

    /// Asks a host without a play, as whom these keywords say. The event tells how it went.
    pub fn ask(&self, inquiry: &Inquiry, keywords: &Become) -> (HostEvent, Option<Answers>) {
        let mut going = self.set_out(Kept::default());
        let (result, answers) = match going.ask(inquiry, keywords) {
            Ok(answers) => (Ok(()), Some(answers)),
            Err(stop) => (Err(stop), None),
        };
        (self.close(&mut going, result), answers)
    }

    pub(super) fn stage(&self, stage: Stage) {
        (self.events)(Event::HostStage { host: self.target.host.as_str().into(), stage });
    }
}
