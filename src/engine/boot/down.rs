//! Going down: a host is noted, drained and told to boot.

use super::drain::{self, Drained};
use super::{Drain, pulse::Pulse};
use super::{POWER_CYCLE, Reboot, Rest, Stage, Trip, Way, busy, note, pause, pulse_of};
use crate::engine::host::Visit;
use crate::event::{BootStep, Problem};
use crate::facts;
use crate::plan::Rung;
use crate::shell::Script;
use crate::transport::FailureKind;
use std::time::Duration;

impl Trip {
    /// Before anything is taken away: what the host is like is noted on it, and whether it may be booted at all.
    pub(super) fn note(&mut self, visit: &Visit<'_>, play: &Reboot, way: &Way) -> Result<Option<Duration>, Problem> {
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

    pub(super) fn drain(&mut self, visit: &Visit<'_>, play: &Reboot) -> Result<Option<Duration>, Problem> {
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

    pub(super) fn order(&mut self, visit: &Visit<'_>, play: &Reboot, way: &Way) -> Result<Option<Duration>, Problem> {
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
