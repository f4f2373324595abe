//! The line that moves while a run is under way; on a terminal only.

use super::text::{clean, number};
use crate::event::Stage;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Up to how many hosts that are still under way are named.
const FEW: usize = 3;

/// How far a play is.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    state: State,
}

#[derive(Debug, Default)]
struct State {
    total: usize,
    done: usize,
    running: BTreeMap<Arc<str>, Stage>,
}

impl Progress {
    /// A line on this terminal; it shows nothing where that isn't one.
    pub(super) fn new(target: ProgressDrawTarget) -> Progress {
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise}  {wide_msg}") {
            bar.set_style(style);
        }
        Progress { bar, state: State::default() }
    }

    /// A play with this many hosts begins.
    pub(super) fn play(&mut self, hosts: usize) {
        self.state = State { total: hosts, ..State::default() };
        self.bar.enable_steady_tick(Duration::from_millis(250));
        self.show();
    }

    /// A host is at this stage.
    pub(super) fn stage(&mut self, host: &Arc<str>, stage: Stage) {
        match stage {
            Stage::Done => self.state.running.remove(host),
            stage => self.state.running.insert(host.clone(), stage),
        };
        self.show();
    }

    /// A host is done.
    pub(super) fn done(&mut self, host: &Arc<str>) {
        self.state.running.remove(host);
        self.state.done += 1;
        self.show();
    }

    /// Takes the line away while something is written.
    pub(super) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    /// Takes the line away for good.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self) {
        self.bar.set_message(self.state.line());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

impl State {
    /// `1,020 of 1,024 hosts  2 probing, 1 changing`, and the last ones by name.
    fn line(&self) -> String {
        let mut line = format!("{} of {} hosts", number(self.done), number(self.total));
        let word = |stage| match stage {
            Stage::Connecting => "connecting",
            Stage::Probing => "probing",
            Stage::Changing => "changing",
            Stage::Waiting => "booting",
            Stage::Done => "done",
        };
        let parts: Vec<String> = if self.running.len() <= FEW {
            self.running.iter().map(|(host, stage)| format!("{} {}", clean(host), word(*stage))).collect()
        } else {
            let of = |stage| self.running.values().filter(|s| **s == stage).count();
            let stages = [Stage::Connecting, Stage::Probing, Stage::Changing, Stage::Waiting];
            let counts = stages.into_iter().map(|stage| (of(stage), stage)).filter(|(n, _)| *n > 0);
            counts.map(|(n, stage)| format!("{} {}", number(n), word(stage))).collect()
        };
        if !parts.is_empty() {
            line.push_str(&format!("  {}", parts.join(", ")));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_counts_and_names_the_last() {
        let mut progress = Progress::new(ProgressDrawTarget::hidden());
        progress.play(1024);
        let host = |n: usize| Arc::from(format!("gpu{n:03}"));
        for n in 0..6 {
            progress.stage(&host(n), if n < 4 { Stage::Probing } else { Stage::Changing });
        }
        assert_eq!(progress.state.line(), "0 of 1,024 hosts  4 probing, 2 changing");
        for n in 0..4 {
            progress.stage(&host(n), Stage::Done);
            progress.done(&host(n));
        }
        assert_eq!(progress.state.line(), "4 of 1,024 hosts  gpu004 changing, gpu005 changing");
    }
}
