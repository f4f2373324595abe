//! Coming back: a host is proven, its play goes on, and it is given back.

use super::down::PATIENCE;
use super::pulse::{Lack, Pulse};
use super::{Left, Reboot, Rest, Stage, TRIES, Trip, Turn, busy, drain, note, pause, pulse_of};
use crate::engine::visit::{Machine, Visit, Visited};
use crate::event::{BootStep, HostEvent, HostStatus, Problem};
use crate::plan::Rung;
use crate::resource::cards;
use crate::transport::FailureKind;
use std::time::{Duration, Instant};

/// What to do with a host that wasn't given back.
const BY_HAND: &str = "run this again when it is up, which gives it back, or give it back by hand";

impl Trip {
    /// Whether it is back: a new boot over a new connection, its system up, its ports and links as they were.
    pub(super) fn wait(&mut self, visit: &Visit<'_>, play: &Reboot) -> Result<Option<Duration>, Problem> {
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
        // One look that failed is no boot: where the old one is seen to run, the host hasn't gone down.
        self.lack = (if lack == Lack::Shutdown { lack } else { lack.max(self.lack.0) }, told);
        match lack {
            Lack::Shutdown => self.gone = None,
            _ => drop(self.gone.get_or_insert_with(Instant::now)),
        }
        let (late, hint) = match lack {
            Lack::Shutdown if self.drain.boots() => ("Slurm didn't boot it", PATIENCE),
            Lack::Shutdown if self.boot.rung == Rung::PowerCycle => {
                ("its power wasn't off", "its `power_cycle` command has to switch it off and on: try it by hand")
            }
            Lack::Shutdown => ("it didn't go down", "look what holds it up: `systemctl list-jobs` there"),
            Lack::Boot if self.lack.0 <= Lack::Boot => {
                ("it didn't come back", "look at its console; when it is back, run this again")
            }
            Lack::Boot | Lack::System => {
                ("its system didn't come up", "`systemctl list-jobs` there tells what is still being started")
            }
            Lack::Ports => ("it didn't come back as it was", "look at cable, switch port and subnet manager"),
        };
        // A host that is lost again, when it was seen to come up, has no new time for its boot.
        let stage = if lack == Lack::Boot { self.lack.0.min(Lack::System) } else { lack };
        let (since, limit) = self.limit(play, stage);
        if since.elapsed() < limit {
            return Ok(Some(pause(self.entered)));
        }
        let ordered = if self.ordered.is_empty() { String::new() } else { format!("; {}", self.ordered) };
        let of = if lack == Lack::Shutdown { "order" } else { "boot" };
        let message = format!("{late} within {} s of the {of}: {}{ordered}", limit.as_secs(), self.lack.1);
        Err(Problem { kind: "boot", message, hint: Some(hint.to_owned()) })
    }

    /// What of the play comes after the boot. Another boot may be due then, of what the first one revealed: the host stays
    /// drained for it.
    pub(super) fn go_on(mut self: Box<Self>, visit: &Visit<'_>) -> Box<Trip> {
        if self.boot.rung == Rung::PowerCycle
            && let Err(problem) = self.change(visit, &cards::power_was_cycled())
        {
            self.kept_mut().warnings.push(format!("that its power was cycled could not be noted: {}", problem.message));
        }
        let Trip { rest, boot, before, drain, drained, emptied, orphan, began, owner, admitted, made, .. } = *self;
        let (stage, rest, boot) = match rest {
            Rest::Over(event, kept) => (Stage::Release, Rest::Over(event, kept), boot),
            Rest::Play(paused) => match visit.resume(*paused, &boot) {
                Visited::Boot(paused, next) => (Stage::Note, Rest::Play(paused), next),
                // What is noted is this boot, which was just proven.
                Visited::Proof(paused, _) => (Stage::Wait, Rest::Play(paused), boot),
                Visited::Done(event, kept) => (Stage::Release, Rest::Over(event, kept), boot),
            },
        };
        let trip = Trip::at(stage, rest, boot, before, drain, drained);
        Box::new(Trip { began, emptied, orphan, owner, admitted, made, ..*trip })
    }

    /// Gives the host back, if all went well; otherwise it stays as it is, drained if it was.
    pub(super) fn release(mut self: Box<Self>, visit: &Visit<'_>, play: &Reboot) -> Turn {
        if self.lost() {
            let booted = self.admitted || self.kept().proven;
            self.stays_drained();
            let (event, machine) = self.over();
            let why =
                if booted { "it failed after its boot" } else { "it failed, and an earlier run's boot isn't over" };
            return Turn::Over(event, machine, Left::Away(why.to_owned()));
        }
        // By the note the next run gives it back, if this one couldn't.
        let undone = self.give_back(visit, play);
        if undone.is_err() && self.tries < TRIES {
            self.tries += 1;
            return Turn::Later(self, Duration::from_secs(5));
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

    /// Gives the host back and takes the note off it. That is only done to a host which was seen just now to be up and to stay
    /// so: nobody's work may land on one that goes down.
    fn give_back(&mut self, visit: &Visit<'_>, play: &Reboot) -> Result<(), Problem> {
        if self.orphan || (self.drained && self.drain.any()) {
            let doubt = |message: String| Problem { kind: "undrain", message, hint: Some(BY_HAND.to_owned()) };
            let folder = visit.shared.folders.run.as_str();
            // Also of a run that was interrupted.
            let calm = Visit {
                patient: true,
                play: visit.play.clone(),
                confirm: crate::engine::guard::Proof::default(),
                ..*visit
            };
            let answers = calm
                .look(self.kept_mut(), true, vec![Pulse::ask(folder)])
                .map_err(|p| doubt(format!("nobody knows whether it is up: {}", p.message)))?;
            let pulse = pulse_of(&answers, folder)?;
            if pulse.going_down() {
                return Err(doubt("it goes down".to_owned()));
            }
            if self.unbooted() && pulse.boot != self.before.boot {
                return Err(doubt("it has booted, and isn't proven".to_owned()));
            }
            if let Some(note) = self.kept().note.clone().filter(|note| self.owner.as_ref() != Some(&note.run)) {
                return Err(busy(&note));
            }
            self.undo(visit, play)?;
        }
        if self.owner.is_some()
            && let Err(problem) = self.change(visit, &note::remove(&visit.shared.folders))
        {
            self.kept_mut().warnings.push(format!("that it was to be booted stays noted on it: {}", problem.message));
        }
        Ok(())
    }

    fn undo(&mut self, visit: &Visit<'_>, play: &Reboot) -> Result<(), Problem> {
        if self.orphan {
            let message =
                "an earlier run drained it by a command, and this play's `drain` has none to give it back".to_owned();
            let hint =
                Some("run the play that has it, or give it back by hand and remove /var/lib/netplay/reboot".to_owned());
            return Err(Problem { kind: "undrain", message, hint });
        }
        let Some(script) = self.drain.undo(self.unbooted()).filter(|_| self.drained) else { return Ok(()) };
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
        let message = format!("giving it back failed: exit code {}{}", output.code, drain::saying(&output.complaint()));
        let hint = Some(format!("the command runs on {}; give it back by hand", play.desk.target.host));
        Err(Problem { kind: "undrain", message, hint })
    }

    /// It isn't booted, or came to nothing: it is given back if nothing is known to have been booted.
    pub(in super::super) fn fail(mut self: Box<Self>, visit: &Visit<'_>, play: &Reboot, mut problem: Problem) -> Turn {
        if self.stage == Stage::Wait && !self.unbooted() {
            self.keep(visit, play);
            self.stays_drained();
            let why = problem.message.clone();
            let (mut event, machine) = self.ended(visit, problem);
            // Another boot isn't what it waits for.
            event.reboot_pending.clear();
            return Turn::Over(event, machine, Left::Away(why));
        }
        if self.untouched() {
            let why = problem.message.clone();
            let (event, machine) = self.ended(visit, problem);
            return Turn::Over(event, machine, Left::Away(why));
        }
        // Nothing is known to have been booted: it is given back, if it stays up.
        let left = match (self.back_out(visit, play), problem.kind) {
            (Left::Back, "drained") => Left::Away(problem.message.clone()),
            (left, _) => left,
        };
        if left == Left::Back && self.drained && self.drain.undo(false).is_some() {
            problem.hint =
                Some(problem.hint.map_or("it was given back".to_owned(), |h| format!("it was given back; {h}")));
        }
        let (event, machine) = self.ended(visit, problem);
        Turn::Over(event, machine, left)
    }

    /// Whether Slurm was to boot it and hasn't yet, as far as that was seen: it is told not to.
    fn unbooted(&self) -> bool {
        self.stage == Stage::Wait && self.drain.boots() && self.lack.0 == Lack::Shutdown
    }

    /// Slurm doesn't boot later what this run has given up, and gives it no work.
    fn keep(&mut self, visit: &Visit<'_>, play: &Reboot) {
        let Some(script) = self.drain.keep() else { return };
        let said = match play.desk.run(visit, &script, 60, true) {
            Ok(output) if output.code == 0 => return,
            Ok(output) => drain::last_lines(&output.complaint()),
            Err(problem) => problem.message,
        };
        self.kept_mut().warnings.push(format!("Slurm may still boot it, as its order couldn't be taken back: {said}"));
    }

    /// Whether an earlier run has begun with it and this one doesn't know yet how far that is: it may go down any moment,
    /// and isn't given back.
    fn untouched(&self) -> bool {
        self.stage == Stage::Note && (matches!(self.rest, Rest::Over(..)) || self.begun())
    }

    fn back_out(&mut self, visit: &Visit<'_>, play: &Reboot) -> Left {
        match self.give_back(visit, play) {
            Ok(()) => Left::Back,
            Err(problem) => {
                let message = format!("it stays drained: {}", problem.message);
                self.kept_mut().warnings.push(message.clone());
                Left::Away(message)
            }
        }
    }

    pub(super) fn interrupt(mut self: Box<Self>, visit: &Visit<'_>, play: &Reboot) -> Turn {
        let kind = FailureKind::Interrupted.name();
        let problem = |message: &str| Problem { kind, message: message.to_owned(), hint: None };
        match self.stage {
            stage if !self.untouched() && (stage < Stage::Wait || self.unbooted()) => {
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
}
