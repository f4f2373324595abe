//! One execution of a visit: composed, sent, and read as it comes.

use super::batch::{Batch, Change, LOCK_SECONDS, Verb};
use super::boot::Note;
use super::guard::Standing;
use super::host::Going;
use super::reader::{Ending, Reader};
use super::visit::Stop;
use crate::event::{Event, Problem};
use crate::plan::{Owed, Ran, STEP_SECONDS, Segment, Who, Work};
use crate::resource::{Answers, Inquiry};
use crate::transport::{Deadline, Failure, FailureKind, Identity, never_began, sudo};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What an execution is for.
pub(super) struct Errand<'e> {
    pub(super) who: &'e Who,
    pub(super) segment: Option<&'e Segment>,
    pub(super) calm: bool,
    pub(super) inquiry: &'e Inquiry,
    /// What was armed before is looked at, for so many seconds.
    pub(super) found: Option<(u32, Verb)>,
    /// The nonce of the frames, where several executions have to share it.
    pub(super) nonce: Option<&'e Arc<str>>,
}

impl<'e> Errand<'e> {
    /// One that only asks.
    pub(super) fn of(who: &'e Who, inquiry: &'e Inquiry) -> Errand<'e> {
        Errand { who, segment: None, calm: false, inquiry, found: None, nonce: None }
    }
}

/// What came of one.
pub(super) struct Report {
    pub(super) answers: Option<Answers>,
    pub(super) steps: BTreeMap<u32, Ran>,
    pub(super) ending: Ending,
    pub(super) failure: Option<Failure>,
    pub(super) owed: Vec<Owed>,
    /// What stands of what was armed.
    pub(super) standing: Option<Standing>,
}

impl Going<'_> {
    /// An execution that only reads: one that breaks off is tried once more over a new session.
    pub(super) fn read(&mut self, who: &Who, inquiry: &Inquiry) -> Result<Report, Stop> {
        let mut calm = false;
        loop {
            let report = self.execute(&Errand { calm, ..Errand::of(who, inquiry) })?;
            match (&report.ending, &report.failure) {
                (Ending::Complete, _) => return Ok(report),
                (_, Some(failure)) if failure.kind == FailureKind::Lost && !self.reconnected => {
                    self.reconnected = true;
                    calm = true;
                    self.connect()?;
                }
                (_, Some(failure)) => return Err(Stop::Broken(problem(failure))),
                (ending, None) => return Err(Stop::Broken(ended(ending))),
            }
        }
    }

    /// One execution. An error is one of sudo or of a session that never ran the batch.
    pub(super) fn execute(&mut self, errand: &Errand<'_>) -> Result<Report, Stop> {
        let shared = self.visit.shared;
        let login = &self.visit.target.user;
        let identity = self.kept.identities.get(errand.who).cloned().unwrap_or_default();
        let root = match errand.who {
            Who::Login => login == "root",
            Who::User(user) => &**user == "root",
        };
        let nonce = match errand.nonce {
            Some(nonce) => nonce.clone(),
            None => nonce().map_err(Stop::Broken)?,
        };
        let generation = self.kept.generation.get(errand.who).copied();
        let batch = Batch {
            nonce: &nonce,
            run: &shared.run,
            folders: shared.folders.clone(),
            change: errand.segment.map(|s| Change {
                pieces: &s.pieces,
                generation,
                holder: &shared.holder,
                guard: s.guard.as_ref(),
            }),
            found: errand.found,
            calm: errand.calm && root,
            state: root,
            fragments: errand.inquiry.fragments(),
        };
        let (deadline, limit) = self.deadline_of(errand);
        let script = batch.compose();
        if shared.show_scripts {
            let hidden = "(a script with values of a no_log resource isn't shown)";
            let text = if self.kept.secret { hidden.into() } else { script.as_str().into() };
            (self.visit.events)(Event::Script { host: self.visit.target.host.as_str().into(), text });
        }
        let mut reader = Reader::new(&nonce, script);
        if errand.segment.is_some() {
            reader = reader.yields_to(&shared.interrupted);
        }
        let hastened = Arc::new(OnceLock::new());
        let deadline = deadline.or_sooner(&hastened);
        reader = reader.hastens(&hastened);
        let request = sudo::request(&identity, login, &nonce);
        let Some(session) = &mut self.session else {
            return Err(Stop::Broken(problem(&Failure::new(FailureKind::Lost, "there is no session"))));
        };
        self.kept.executions += 1;
        let mut elevated = sudo::Elevated::new(&mut reader, &identity, login, &nonce, &deadline);
        let asked = Instant::now();
        let result = session.execute(&request, &mut elevated, &deadline);
        let refusal = elevated.refusal(result.as_ref().ok());
        drop(elevated);
        if *reader.ending() == Ending::Silent {
            if let Some(refusal) = refusal {
                let user = match &identity {
                    Identity::Sudo { user, .. } => user.as_str(),
                    Identity::Login => login,
                };
                let (message, hint) = refusal.told(login, user);
                return Err(Stop::Broken(Problem { kind: "sudo", message, hint }));
            }
            if let Ok(exit) = &result {
                return Err(Stop::Broken(problem(&never_began(self.visit.target, &reader.noise(), exit))));
            }
        }
        // After a lost session it waits for what that has begun, which is no other run.
        if let Some(holder) = reader.waited_for().filter(|holder| *holder != shared.holder) {
            self.kept.warnings.push(format!("it had to wait for {holder}"));
        }
        let owed = self.take_state(errand.who, &reader);
        let failure = match result {
            Err(failure) if failure.kind == FailureKind::Timeout => {
                // A change that waits for its confirmation allows less than the limit.
                let seconds = asked.elapsed().min(limit).as_secs_f64().round();
                let message = format!("no answer within {seconds} s");
                Some(Failure::new(FailureKind::Timeout, message).hint("--timeout allows more"))
            }
            Err(failure) if failure.kind == FailureKind::Interrupted && errand.segment.is_some() => {
                let message = "a second interruption cut it off while steps were running, and they may run on";
                let hint = "run it again: what they did is seen then";
                Some(Failure::new(FailureKind::Interrupted, message).hint(hint))
            }
            Err(failure) => Some(failure),
            Ok(_) if *reader.ending() == Ending::Broken => {
                let message = match reader.noise() {
                    noise if noise.is_empty() => "the host's shell ended in the middle".to_owned(),
                    noise => format!("the host's shell ended in the middle: {noise}"),
                };
                Some(Failure::new(FailureKind::Lost, message))
            }
            Ok(_) => None,
        };
        if failure.is_some() {
            self.session = None;
        }
        let complete = *reader.ending() == Ending::Complete;
        let answers = complete.then(|| errand.inquiry.answers(reader.outputs(errand.inquiry.fragments())));
        let standing = reader.state().and_then(|state| Standing::of_state(&state));
        self.kept.standing.clone_from(&standing);
        Ok(Report { answers, steps: reader.steps(), ending: reader.ending().clone(), failure, owed, standing })
    }

    /// When an execution must have ended, beyond all deadlines on the host; and how long that is.
    fn deadline_of(&self, errand: &Errand<'_>) -> (Deadline, Duration) {
        // Beyond the deadlines on the host, so that those are seen to act: those of users' guards too.
        let guards = errand.inquiry.fragments().iter().filter_map(|f| f.user).map(u64::from).sum();
        let limit = self.visit.shared.limits.execution.max(Duration::from_secs(guards)) + Duration::from_secs(10);
        let Some(segment) = errand.segment else {
            let wait = if errand.calm { Duration::from_secs(LOCK_SECONDS.into()) } else { Duration::ZERO };
            return (self.hasty.within(limit + wait), limit + wait);
        };
        let own = segment
            .pieces
            .iter()
            .filter(|p| matches!(p.work, Work::Step(_) | Work::Joint(..)) && p.seconds != STEP_SECONDS);
        let own: u64 = own.map(|p| u64::from(p.seconds)).sum();
        let limit = limit + Duration::from_secs(own + u64::from(LOCK_SECONDS));
        (self.deadline.within(limit), limit)
    }

    fn take_state(&mut self, who: &Who, reader: &Reader) -> Vec<Owed> {
        let Some(state) = reader.state() else { return Vec::new() };
        let mut lines = state.lines();
        let Some(generation) = lines.next().and_then(|l| l.strip_prefix("root ")).and_then(|g| g.parse().ok()) else {
            return Vec::new();
        };
        self.kept.generation.insert(who.clone(), generation);
        // Whoever is root, the state is one.
        for value in self.kept.generation.values_mut() {
            *value = generation;
        }
        let mut lines = lines.peekable();
        if lines.next_if(|l| *l == "armed").is_some() {
            lines.by_ref().find(|l| *l == "end of armed");
        }
        self.kept.note = None;
        if lines.next_if(|l| *l == "note").is_some() {
            let noted: Vec<&str> = lines.by_ref().take_while(|l| *l != "end of note").collect();
            self.kept.note = Note::read(&noted.join("\n"));
            let path = format!("{}/reboot", self.visit.shared.folders.state);
            let warning =
                format!("what is noted in {path} of a boot can't be read: remove it if no run is booting this host");
            if self.kept.note.is_none() && !self.kept.warnings.contains(&warning) {
                self.kept.warnings.push(warning);
            }
        }
        let mut owed = Vec::new();
        while let (Some(address), Some(title), Some(run)) = (lines.next(), lines.next(), lines.next()) {
            owed.push(Owed { address: address.to_owned(), title: title.to_owned(), run: run.to_owned() });
        }
        owed
    }
}

pub(super) fn problem(failure: &Failure) -> Problem {
    Problem { kind: failure.kind.name(), message: failure.message.clone(), hint: failure.hint.clone() }
}

pub(super) fn ended(ending: &Ending) -> Problem {
    let (kind, message, hint) = match ending {
        Ending::Locked(holder) => (
            "lock",
            format!("{holder} is changing this host, and wasn't done after {LOCK_SECONDS} s"),
            Some("let it finish, then run it again"),
        ),
        Ending::Interrupted(holder) => (
            FailureKind::Interrupted.name(),
            format!("the run was interrupted while it waited for {holder}, and nothing was changed"),
            None,
        ),
        Ending::Armed(by) => (
            "lock",
            format!(
                "{by} has made a change that may cut the host off, and it isn't confirmed yet, or is being taken back; nothing was \
                 changed"
            ),
            Some(
                "let that run finish; if it is gone, the host takes the change back by itself: run this again after that",
            ),
        ),
        Ending::Unarmed(why) => (
            "risk",
            format!("the way back of what could cut off the session can't be stored on the host: {why}"),
            Some("nothing was changed; mend that on the host and run it again"),
        ),
        Ending::Unlockable(why) => (
            "lock",
            format!("nothing was changed, since no lock can be taken: {why}"),
            Some("make it so, then run it again"),
        ),
        _ => (FailureKind::Lost.name(), "the host's shell ended in the middle".to_owned(), None),
    };
    Problem { kind, message, hint: hint.map(str::to_owned) }
}

/// 16 random hexadecimal digits.
pub(super) fn nonce() -> Result<Arc<str>, Problem> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|e| Problem {
        kind: "internal",
        message: format!("this machine gives no random numbers: {e}"),
        hint: None,
    })?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>().into())
}
