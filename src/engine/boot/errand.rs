//! A command of the operator's that may take an hour: it runs by itself where it is to run, and is asked now and then how far it
//! is. So it holds no thread and no session, however many hosts are drained at once.

use super::drain::{self, Drained, judge};
use super::{Reboot, Trip};
use crate::engine::visit::Visit;
use crate::resource::Output;
use crate::shell::Script;
use crate::transport::FailureKind;
use std::time::Duration;

/// Seconds that asking may take.
const ASK: u32 = 60;

/// Begins with a command, or asks how far the one in this folder is.
fn script(command: &str, limit: Duration, folder: Option<&str>) -> Script {
    Script::new()
        .set("cmd", command)
        .set("seconds", &limit.as_secs().to_string())
        .set("d", folder.unwrap_or_default())
        .line(include_str!("errand.sh"))
}

/// What that printed.
#[derive(Debug, PartialEq)]
enum Found {
    /// Where it runs, if it was begun just now.
    UnderWay(Option<String>),
    /// Its exit code and what it printed.
    Ended(Output),
    /// It can't be begun, or nobody knows.
    Lost(String),
}

fn read(output: &Output) -> Found {
    let text = output.text();
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let (folder, rest) = match first.strip_prefix("in ") {
        Some(folder) => (Some(folder.to_owned()), rest),
        None => (None, &*text),
    };
    if output.code != 0 {
        return Found::Lost(drain::last_lines(rest));
    }
    let Some((code, said)) = rest.strip_prefix("ended ").and_then(|rest| rest.split_once('\n')) else {
        return Found::UnderWay(folder);
    };
    let code = code.parse().unwrap_or(255);
    Found::Ended(Output { code, stdout: said.as_bytes().to_vec(), stderr: Vec::new() })
}

impl Trip {
    /// Whether a command of the operator's is under way for it: that is waited for, as what it does later would be done to a host
    /// given back.
    pub(super) fn on_errand(&self) -> bool {
        self.errand.is_some()
    }

    /// Drains by a command.
    pub(super) fn send(&mut self, visit: &Visit<'_>, play: &Reboot, command: &str) -> Drained {
        let limit = play.drain_timeout;
        // Where there is no timeout(1), nothing ends it.
        let late = self.entered.elapsed() > limit + Duration::from_secs(30);
        let over = |why: &str| Drained::No(format!("its command didn't end within {} s: {why}", limit.as_secs()));
        let output = play.desk.run(visit, &script(command, limit, self.errand.as_deref()), ASK, true);
        match output.map(|output| read(&output)) {
            Ok(Found::Ended(output)) => {
                self.errand = None;
                judge(&output, true, limit)
            }
            Ok(Found::Lost(why)) => {
                self.errand = None;
                Drained::No(why)
            }
            Ok(Found::UnderWay(_)) if late => over("it still runs"),
            Ok(Found::UnderWay(folder)) => {
                self.errand = folder.or(self.errand.take());
                Drained::NotYet("its command still runs".to_owned())
            }
            Err(problem) if problem.kind == FailureKind::Interrupted.name() || self.errand.is_none() => {
                Drained::No(problem.message)
            }
            // Whoever can't be asked just now is asked again.
            Err(problem) if late => over(&problem.message),
            Err(problem) => Drained::NotYet(problem.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::Shell;
    use std::time::Instant;

    fn ended(code: i32, said: &str) -> Found {
        Found::Ended(Output { code, stdout: said.into(), stderr: Vec::new() })
    }

    #[test]
    fn a_command_runs_by_itself_and_is_asked_how_far_it_is() {
        let limit = Duration::from_secs(60);
        for shell in Shell::ALL {
            let run =
                |command: &str, limit, folder: Option<&str>| read(&shell.run(script(command, limit, folder).as_str()));
            assert_eq!(run("echo done; pwd", limit, None), ended(0, "done\n/\n"), "{shell:?}");
            assert_eq!(run("echo no way >&2; exit 10", limit, None), ended(10, "no way\n"), "{shell:?}");
            // What takes longer goes on when nobody asks.
            let begun = run("sleep 3; echo late; exit 7", limit, None);
            let Found::UnderWay(Some(folder)) = begun else { panic!("{shell:?}: {begun:?}") };
            let start = Instant::now();
            let last = loop {
                let asked = run("", limit, Some(&folder));
                if asked != Found::UnderWay(None) {
                    break asked;
                }
                assert!(start.elapsed() < Duration::from_secs(30), "{shell:?}");
            };
            assert_eq!(last, ended(7, "late\n"), "{shell:?}");
            assert!(!std::path::Path::new(&folder).exists(), "{shell:?}: {folder}");
            assert!(matches!(run("", limit, Some(&folder)), Found::Lost(why) if why.contains("is gone")), "{shell:?}");
            // Of what a command prints 64 KiB are kept, from its end: how it ended has to be among them.
            let long = shell.run(script("yes 0123456789 | head -c 200000; exit 6", limit, None).as_str());
            assert!(long.stdout.len() < 65536, "{shell:?}: {}", long.stdout.len());
            assert!(matches!(read(&long), Found::Ended(output) if output.code == 6), "{shell:?}");
            // It is ended when its time is over, and told as that.
            let begun = run("sleep 60", Duration::from_secs(2), None);
            let Found::UnderWay(Some(folder)) = begun else { panic!("{shell:?}: {begun:?}") };
            let last = (0..20).map(|_| run("", limit, Some(&folder))).find(|f| *f != Found::UnderWay(None));
            let Some(Found::Ended(output)) = last else { panic!("{shell:?}: {last:?}") };
            assert!([124, 143].contains(&output.code), "{shell:?}: {output:?}");
        }
    }
}
