//! Going down: a host is noted, drained and told to boot.

use super::drain::{self, Drained};
use super::{Drain, pulse::Pulse};
use super::{POWER_CYCLE, Reboot, Rest, Stage, Trip, Way, busy, note, passes, pause, pulse_of, refused};
use crate::engine::visit::Visit;
use crate::event::{BootStep, Problem};
use crate::plan::{Boot, Rung};
use crate::shell::Script;
use crate::transport::FailureKind;
use std::time::Duration;

impl Trip {
    /// Before anything is taken away: what the host is like is noted on it, and whether it may be booted at all.
    pub(super) fn note(&mut self, visit: &Visit<'_>, play: &Reboot, way: &Way) -> Result<Option<Duration>, Problem> {
        // Nothing is done to it any more, whatever it does.
        if self.lost() {
            self.enter(Stage::Release);
            return Ok(None);
        }
        if let Some(why) = way.refused.as_ref().or(self.kept().unbootable.as_ref()) {
            return Err(Problem {
                kind: "reboot",
                message: format!("it isn't booted: {why}"),
                hint: Some("boot it yourself, or by `netplay reboot` when nothing else runs".to_owned()),
            });
        }
        if let Some(noted) = &self.clash {
            let run = self.kept().note.as_ref().map(|note| note.run.as_str()).unwrap_or_default();
            return Err(Problem {
                kind: "drain",
                message: format!(
                    "it isn't booted: run {run} drained it by another `drain` ({noted}) than this play's ({}), which wouldn't give it \
                     back",
                    self.drain.noted()
                ),
                hint: Some(
                    "run the play once as it was then, which finishes it, or give it back by hand and remove \
                     /var/lib/netplay/reboot there"
                        .to_owned(),
                ),
            });
        }
        let known = self.kept().note.clone().filter(|note| *note.run != *visit.shared.run);
        let folder = visit.shared.folders.run.as_str();
        let looked = visit.look(self.kept_mut(), known.is_some(), vec![Pulse::ask(folder)]);
        let pulse = match (looked.and_then(|answers| pulse_of(&answers, folder)), &known) {
            (Ok(pulse), _) => pulse,
            // It may have gone down by the earlier run's order since it was visited.
            (Err(problem), Some(note)) if passes(&problem) && self.entered.elapsed() < play.timeout => {
                if self.tries == 0 {
                    self.tries = 1;
                    self.say(
                        visit,
                        BootStep::Awaited,
                        format!("run {} began to boot it: {}", note.run, problem.message),
                    );
                }
                return Ok(Some(pause(self.entered)));
            }
            (Err(problem), _) => return Err(problem),
        };
        let known = known.map(|note| note.run);
        if let Some(note) = self.kept().note.clone().filter(|note| *note.run != *visit.shared.run) {
            if known.as_ref() != Some(&note.run) {
                return Err(busy(&note));
            }
            // What an earlier run ordered is under way, or has come to pass since this host was visited.
            let goes = pulse.boot == note.before.boot && pulse.going_down();
            if goes || (pulse.boot != note.before.boot && !self.kept().proven) {
                self.drain = Drain::of_note(&note.drain, &way.drain);
                if goes {
                    self.say(visit, BootStep::Awaited, format!("it goes down: run {} had it boot", note.run));
                }
                (self.before, self.drained, self.owner) = (note.before, true, Some(note.run));
                self.kept_mut().proven = true;
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
        // After a first boot what counts is still what it was like before that.
        if self.before.boot.is_empty() {
            self.before = pulse;
        } else {
            self.before.boot = pulse.boot;
        }
        // A second boot's reasons join those of the first: what that didn't bring the next run has to know.
        let mut reasons = self.made.clone();
        reasons.extend(self.boot.reasons.iter().filter(|why| !self.made.contains(why)).cloned());
        self.made.clone_from(&reasons);
        let script = note::write(
            &visit.shared.folders,
            (&visit.shared.run, &visit.shared.whence),
            &self.drain.noted(),
            &Boot { reasons, ..self.boot.clone() },
            &self.before,
        );
        let order = !self.drain.any() && self.boot.rung == Rung::Reboot;
        self.owner = Some(visit.shared.run.to_string());
        if order {
            self.say(visit, BootStep::Booting, self.why());
            let script = script.user(self.order_script(visit, play).as_str());
            if let Some(noted) = self.order_reboot(visit, &script)? {
                return Ok(noted);
            }
        } else {
            self.change(visit, &script).map_err(unbooted)?;
        }
        if order {
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
        let script = self.drain.script(&visit.shared.run, &self.why(), self.emptied);
        // For what a first boot has revealed it is still drained.
        let Some(script) = script.filter(|_| !self.emptied || self.drain.boots()) else {
            self.enter(Stage::Order);
            return Ok(None);
        };
        let verdict = match self.drain.clone() {
            Drain::Command { drain, .. } => self.send(visit, play, &drain),
            _ => match play.desk.run(visit, &script, drain::SECONDS, false) {
                Ok(output) => drain::judge(&output, false, play.drain_timeout),
                Err(problem) => Drained::No(problem.message),
            },
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
                if self.entered.elapsed() < play.drain_timeout || self.on_errand() {
                    return Ok(Some(pause(self.entered)));
                }
                Err(Problem {
                    kind: "drain",
                    message: format!("it wasn't drained within {} s: {}", play.drain_timeout.as_secs(), self.lack.1),
                    hint: Some(PATIENCE.to_owned()),
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
        self.say(visit, BootStep::Booting, self.why());
        match (self.boot.rung, &way.power_cycle) {
            (Rung::PowerCycle, Some(command)) => {
                self.change(visit, &Script::new().line("sync")).map_err(unbooted)?;
                // Whatever it says, and if nobody knows what it says, the power may have been off.
                self.ordered = match play.desk.run(visit, &Script::new().user(command), POWER_CYCLE, true) {
                    Err(problem) => format!("what came of its power_cycle command isn't known: {}", problem.message),
                    Ok(output) => {
                        let said = drain::saying(&output.complaint());
                        match output.code {
                            124 | 137 => format!("its power_cycle command didn't end within {POWER_CYCLE} s{said}"),
                            code => format!("its power_cycle command ended with {code}{said}"),
                        }
                    }
                };
            }
            _ => {
                if let Some(next) = self.order_reboot(visit, &self.order_script(visit, play))? {
                    return Ok(next);
                }
            }
        }
        self.enter(Stage::Wait);
        Ok(None)
    }

    /// Gives an order to boot, and tells what is next if none is needed any more. Where nobody knows whether it arrived, it is
    /// waited for.
    fn order_reboot(&mut self, visit: &Visit<'_>, script: &Script) -> Result<Option<Option<Duration>>, Problem> {
        let unknown = |said: &str| format!("whether it was told to boot isn't known: {said}");
        match visit.alter(self.kept_mut(), script) {
            Err(p) if [FailureKind::Lost.name(), FailureKind::Timeout.name()].contains(&p.kind) => {
                self.ordered = unknown(&p.message);
            }
            Err(problem) => return Err(problem),
            Ok(output) => match output.code {
                0 => {}
                BOOTED => {
                    self.enter(Stage::Wait);
                    return Ok(Some(None));
                }
                UNKNOWN => self.ordered = unknown(&drain::last_lines(&output.complaint())),
                _ => return Err(unbooted(refused(&output))),
            },
        }
        Ok(None)
    }

    /// What makes a host boot a moment later, when the session that says so has ended: if it still runs the boot that is to
    /// end, and the note is this run's.
    fn order_script(&self, visit: &Visit<'_>, play: &Reboot) -> Script {
        let reset = if play.firmware_reset { include_str!("reset.sh") } else { "" };
        let go = format!(
            "{reset}if [ -d /run/systemd/system ]; then systemctl reboot -i; else shutdown -r now || reboot; fi"
        );
        Script::new()
            .set("L", &visit.shared.folders.state)
            .set("R", &visit.shared.folders.run)
            .set("run", &visit.shared.run)
            .set("boot", &self.before.boot)
            .set("go", &go)
            .line(include_str!("order.sh"))
    }
}

/// What to do where jobs don't end in time.
pub(super) const PATIENCE: &str = "let what runs there end, or allow more by `drain_timeout`";

fn unbooted(problem: Problem) -> Problem {
    Problem { message: format!("it isn't booted: {}", problem.message), ..problem }
}

/// What the order's script ends with where the host has booted since it was noted.
const BOOTED: i32 = 20;
/// What it ends with where the order was given and its answer was lost.
const UNKNOWN: i32 = 22;

#[cfg(test)]
mod tests {
    use crate::resource::trial::Shell;
    use crate::shell::Script;
    use std::time::{Duration, Instant};

    /// With a simulated kexec, as not every kernel has it: it unloads the kernel, or can't.
    #[test]
    fn a_kernel_that_was_loaded_by_kexec_is_unloaded_before_the_boot() {
        for shell in Shell::ALL {
            for (kexec, code) in [("rm /sys/kernel/kexec_loaded", 0), ("echo it is busy; exit 1", 1)] {
                let folder = tempfile::tempdir().unwrap();
                let (path, ordered) = (folder.path().display(), folder.path().join("ordered"));
                std::fs::write(folder.path().join("reboot"), "run r1\n").unwrap();
                let setup = format!(
                    "for d in /sys/kernel /usr/local/sbin /run; do mount -t tmpfs tmpfs $d; done
                     echo 1 >/sys/kernel/kexec_loaded; cd /usr/local/sbin
                     printf '%s\\n' '#!/bin/sh' '[ \"$*\" = -u ] || exit 9' '{kexec}' >kexec; chmod +x kexec; cd /"
                );
                let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
                let script = Script::new()
                    .set("L", &path.to_string())
                    .set("R", &format!("{path}/run"))
                    .set("run", "r1")
                    .set("boot", boot.trim())
                    .set("go", &format!(": >{path}/ordered"))
                    .line(include_str!("order.sh"));
                let output = shell.run_in_net(&setup, script.as_str());
                assert_eq!(output.code, code, "{shell:?}: {}", output.text());
                let start = Instant::now();
                while code == 0 && !ordered.exists() {
                    assert!(start.elapsed() < Duration::from_secs(20), "{shell:?}: no order");
                    std::thread::sleep(Duration::from_millis(10));
                }
                assert_eq!(
                    output.text().contains("it could not be unloaded"),
                    code == 1,
                    "{shell:?}: {}",
                    output.text()
                );
                assert_eq!(
                    folder.path().join("run/boot.sh").exists(),
                    code == 0,
                    "{shell:?}: who isn't told isn't marked"
                );
            }
        }
    }
}
