//! This machine itself: requests are run by `/bin/sh` as child processes.

use super::talk::{Peer, Pipes};
use super::{Deadline, Dialogue, Exit, Failure, FailureKind, Gate, Session, Target, Transport};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The transport of `ansible_connection: local`.
#[derive(Debug)]
pub struct Local {
    shell: Vec<OsString>,
}

impl Local {
    /// Requests are run by `/bin/sh -c`.
    pub fn new() -> Local {
        Local::with_shell(["/bin/sh"])
    }

    /// Requests are run by the shell of another root folder, with the machine's `/proc`, `/sys` and `/dev` in it: scripts
    /// need `/dev/null` and `/proc/self`, which an unpacked image lacks. They are mounted for these processes alone
    /// (unshare(1)), so that nothing has to be taken away again.
    pub fn in_root(root: &Path) -> Local {
        const ENTER: &str = r#"for d in proc sys dev; do
  [ "$0/$d" -ef "/$d" ] || mount --rbind "/$d" "$0/$d" || { echo "the image needs an empty folder /$d" >&2; exit 1; }
done
exec chroot "$0" /bin/sh "$@""#;
        let own = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", ENTER].map(OsStr::new);
        Local::with_shell(own.into_iter().chain([root.as_os_str()]))
    }

    /// Tries what every request needs.
    ///
    /// # Errors
    /// What was said.
    pub fn try_shell(&self) -> Result<(), String> {
        let Some((program, arguments)) = self.shell.split_first() else { return Ok(()) };
        match Command::new(program).args(arguments).args(["-c", ":"]).stdin(Stdio::null()).output() {
            Err(e) => Err(format!("{} can't be run: {e}", program.display())),
            Ok(tried) if tried.status.success() => Ok(()),
            Ok(tried) => Err(String::from_utf8_lossy(tried.stderr.trim_ascii()).into_owned()),
        }
    }

    /// Requests are run by this program and its arguments, `-c` and the request behind them.
    pub fn with_shell<S: Into<OsString>>(shell: impl IntoIterator<Item = S>) -> Local {
        Local { shell: shell.into_iter().map(Into::into).collect() }
    }
}

impl Default for Local {
    fn default() -> Local {
        Local::new()
    }
}

impl Transport for Local {
    fn connect(&self, _: &Target, _: &Gate, _: &Deadline) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(Here { shell: self.shell.clone() }))
    }
}

struct Here {
    shell: Vec<OsString>,
}

impl Session for Here {
    fn execute(&mut self, request: &str, dialogue: &mut dyn Dialogue, deadline: &Deadline) -> Result<Exit, Failure> {
        let refused = |what: &str| Failure::new(FailureKind::Refused, format!("/bin/sh can't be run: {what}"));
        let (program, arguments) = self.shell.split_first().ok_or_else(|| refused("no shell was named"))?;
        let child = Command::new(program)
            .args(arguments)
            .arg("-c")
            .arg(request)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, so that Ctrl-C reaches netplay alone and running steps can finish.
            .process_group(0)
            .spawn()
            .map_err(|e| refused(&e.to_string()))?;
        let mut running = Running { child, over: false };
        let child = &mut running.child;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(refused("it has no pipes"));
        };
        let pipes = Pipes::new(stdin.into(), stdout.into(), stderr.into()).map_err(broken)?;
        let exit = pipes.hold(dialogue, deadline, &mut running);
        running.over = exit.is_ok();
        exit
    }
}

/// A child whose group is killed when it is dropped before its conversation was over.
struct Running {
    child: Child,
    over: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.over {
            // It may run on, as it would after the end of an SSH channel; usually it has ended, or is about to.
            reap(&mut self.child, Duration::from_millis(50));
        } else {
            end_group(&mut self.child);
        }
    }
}

/// Kills a child that leads a process group, and its group.
pub(super) fn end_group(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    reap(child, Duration::from_secs(1));
}

/// Collects a child that is about to end, so that no zombie stays; true if it has ended. It isn't waited for longer than
/// this.
pub(super) fn reap(child: &mut Child, at_most: Duration) -> bool {
    let end = Instant::now() + at_most;
    let mut pause = Duration::from_micros(200);
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    true
}

impl Peer for Running {
    fn ended(&mut self) -> Result<Option<Exit>, Failure> {
        Ok(self.child.try_wait().map_err(broken)?.map(|status| match status.code() {
            Some(code) => Exit::Code(code),
            None => Exit::Signal(signal_name(&status.to_string())),
        }))
    }
}

fn broken(error: std::io::Error) -> Failure {
    Failure::new(FailureKind::Lost, format!("the shell's pipes broke: {error}"))
}

/// The name of a signal as SSH tells it, without SIG (RFC 4254, 6.10), from std's words: `signal: 9 (SIGKILL)`.
fn signal_name(status: &str) -> String {
    let name = status.split_once("(SIG").and_then(|(_, rest)| rest.split_once(')'));
    name.map_or(status, |(name, _)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::Reply;
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Collect {
        send: Vec<u8>,
        until: &'static str,
        out: Vec<u8>,
        err: Vec<u8>,
    }

    impl Dialogue for Collect {
        fn begin(&mut self) -> Reply {
            Reply::Write { bytes: std::mem::take(&mut self.send), end: true }
        }
        fn stdout(&mut self, bytes: &[u8]) -> Reply {
            self.out.extend(bytes);
            if !self.until.is_empty() && String::from_utf8_lossy(&self.out).contains(self.until) {
                return Reply::Finish;
            }
            Reply::More
        }
        fn stderr(&mut self, bytes: &[u8]) -> Reply {
            self.err.extend(bytes);
            Reply::More
        }
    }

    fn run(
        request: &str,
        send: impl Into<Vec<u8>>,
        until: &'static str,
        millis: u64,
    ) -> (Result<Exit, Failure>, Collect) {
        let mut talk = Collect { send: send.into(), until, out: Vec::new(), err: Vec::new() };
        let deadline = Deadline::after(Duration::from_millis(millis), &Arc::new(AtomicBool::new(false)));
        let mut session = Local::new().connect(&Target::for_tests("here"), &Gate::new(1), &deadline).unwrap();
        (session.execute(request, &mut talk, &deadline), talk)
    }

    #[test]
    fn both_outputs_and_the_way_it_ended_are_told() {
        let (exit, talk) = run("exec /bin/sh -s", "echo out; echo err >&2; exit 7\n", "", 5000);
        assert_eq!((exit, &talk.out[..], &talk.err[..]), (Ok(Exit::Code(7)), &b"out\n"[..], &b"err\n"[..]));
        assert_eq!(run("kill -TERM $$", "", "", 5000).0, Ok(Exit::Signal("TERM".into())));
    }

    #[test]
    fn neither_side_waits_for_the_other() {
        let much = vec![b'x'; 5_000_000];
        let (exit, talk) = run("tee /dev/stderr", much.clone(), "", 20_000);
        assert_eq!(exit, Ok(Exit::Code(0)));
        assert!(talk.out == much && talk.err == much);
        // It doesn't read at all.
        assert_eq!(run("exec 0<&-; sleep 0.1; exit 3", much, "", 5000).0, Ok(Exit::Code(3)));
    }

    #[test]
    fn a_child_in_the_background_holds_nothing_up() {
        let start = Instant::now();
        let (exit, _) = run("sleep 7 & echo done", "", "done", 5000);
        assert_eq!(exit, Ok(Exit::Finished));
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }

    #[test]
    fn the_deadline_ends_the_whole_group() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("late");
        let (exit, _) = run(&format!("(sleep 0.6; echo x >{}) & wait", file.display()), "", "", 200);
        assert_eq!(exit.unwrap_err().kind, FailureKind::Timeout);
        std::thread::sleep(Duration::from_millis(700));
        assert!(!file.exists());
    }

    #[test]
    fn an_interruption_ends_it() {
        let flag = Arc::new(AtomicBool::new(false));
        let deadline = Deadline::after(Duration::from_secs(20), &flag);
        let mut talk = Collect { send: Vec::new(), until: "", out: Vec::new(), err: Vec::new() };
        let mut session = Local::new().connect(&Target::for_tests("here"), &Gate::new(1), &deadline).unwrap();
        let failure = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                flag.store(true, Ordering::Relaxed);
            });
            session.execute("sleep 10", &mut talk, &deadline).unwrap_err()
        });
        assert_eq!(failure.kind, FailureKind::Interrupted);
    }
}
