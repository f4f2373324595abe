//! A transport for tests of what stands above it: requests run in shells of this machine, whose sessions can be made
//! to break where a test wants it. It counts what is asked of it.

use super::{Deadline, Dialogue, Exit, Failure, FailureKind, Gate, Local, Reply, Session, Target, Transport};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What goes wrong with a host.
#[derive(Debug, Clone, Default)]
pub struct Fault {
    /// No session: connecting fails so.
    pub refuse: Option<Failure>,
    /// Which of its executions goes wrong, from 1; 0 for each.
    pub execution: usize,
    /// The session breaks after this many bytes to the host; the shell there sees the end of its input.
    pub cut_upload: Option<usize>,
    /// The session breaks after this many bytes of standard output.
    pub cut_download: Option<usize>,
    /// Nothing is answered until the deadline.
    pub hang: bool,
    /// Each execution starts this much later.
    pub delay: Duration,
}

/// What was asked of a host.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Sessions.
    pub connects: usize,
    /// The request and what was written to it, of each execution.
    pub executions: Vec<(String, Vec<u8>)>,
}

/// The transport. Clones share what they have seen.
#[derive(Debug, Clone)]
pub struct Fake {
    /// Stands in for `/bin/sh` in requests.
    shell: String,
    hosts: Arc<Mutex<HashMap<String, (Fault, Seen)>>>,
}

impl Fake {
    /// Requests run by this shell: `/bin/sh`, `busybox sh`.
    pub fn new(shell: impl Into<String>) -> Fake {
        Fake { shell: shell.into(), hosts: Arc::default() }
    }

    /// Has something go wrong with a host from now on.
    pub fn fault(&self, host: &str, fault: Fault) {
        self.hosts().entry(host.to_owned()).or_default().0 = fault;
    }

    /// What was asked of a host so far.
    pub fn seen(&self, host: &str) -> Seen {
        self.hosts().get(host).map(|(_, seen)| seen.clone()).unwrap_or_default()
    }

    fn hosts(&self) -> MutexGuard<'_, HashMap<String, (Fault, Seen)>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Fake {
    fn connect(&self, target: &Target, gate: &Gate, deadline: &Deadline) -> Result<Box<dyn Session>, Failure> {
        let refuse = {
            let mut hosts = self.hosts();
            let (fault, seen) = hosts.entry(target.host.clone()).or_default();
            seen.connects += 1;
            fault.refuse.clone()
        };
        if let Some(failure) = refuse {
            return Err(failure);
        }
        let session = Local::new().connect(target, gate, deadline)?;
        Ok(Box::new(Faulty { fake: self.clone(), host: target.host.clone(), session, broken: false }))
    }
}

struct Faulty {
    fake: Fake,
    host: String,
    session: Box<dyn Session>,
    broken: bool,
}

impl Session for Faulty {
    fn execute(&mut self, request: &str, dialogue: &mut dyn Dialogue, deadline: &Deadline) -> Result<Exit, Failure> {
        let lost = || Failure::new(FailureKind::Lost, "the session was lost: a test cut it");
        if self.broken {
            return Err(lost());
        }
        let (fault, index) = {
            let mut hosts = self.fake.hosts();
            let (fault, seen) = hosts.entry(self.host.clone()).or_default();
            seen.executions.push((request.to_owned(), Vec::new()));
            let number = seen.executions.len();
            let applies = fault.execution == 0 || fault.execution == number;
            (if applies { fault.clone() } else { Fault::default() }, number - 1)
        };
        std::thread::sleep(deadline.left().min(fault.delay));
        if fault.hang {
            while !deadline.left().is_zero() {
                std::thread::sleep(deadline.left().min(Duration::from_millis(20)));
            }
            self.broken = true;
            let kind = if deadline.cancelled() { FailureKind::Interrupted } else { FailureKind::Timeout };
            return Err(Failure::new(kind, "nothing came before the deadline"));
        }
        let mut tap = Tap { inner: dialogue, fault, written: Vec::new(), read: 0, cut: false };
        let exit = self.session.execute(&request.replace("/bin/sh", &self.fake.shell), &mut tap, deadline);
        let (written, cut) = (std::mem::take(&mut tap.written), tap.cut);
        if let Some((_, seen)) = self.fake.hosts().get_mut(&self.host) {
            seen.executions[index].1 = written;
        }
        self.broken = cut || exit.is_err();
        if cut { Err(lost()) } else { exit }
    }
}

/// Stands between shell and dialogue.
struct Tap<'d> {
    inner: &'d mut dyn Dialogue,
    fault: Fault,
    written: Vec<u8>,
    read: usize,
    cut: bool,
}

impl Tap<'_> {
    fn pass(&mut self, reply: Reply) -> Reply {
        let Reply::Write { mut bytes, end } = reply else { return reply };
        let left = self.fault.cut_upload.map_or(usize::MAX, |at| at - self.written.len());
        let cut = bytes.len() > left;
        bytes.truncate(left);
        self.written.extend(&bytes);
        self.cut = cut;
        Reply::Write { bytes, end: end || cut }
    }
}

impl Dialogue for Tap<'_> {
    fn begin(&mut self) -> Reply {
        let reply = self.inner.begin();
        self.pass(reply)
    }

    fn stdout(&mut self, bytes: &[u8]) -> Reply {
        // With its input ended the shell runs on by itself, unheard.
        if self.cut {
            return Reply::More;
        }
        let left = self.fault.cut_download.map_or(usize::MAX, |at| at - self.read);
        if bytes.len() > left {
            self.inner.stdout(&bytes[..left]);
            self.cut = true;
            return Reply::Finish;
        }
        self.read += bytes.len();
        let reply = self.inner.stdout(bytes);
        self.pass(reply)
    }

    fn stderr(&mut self, bytes: &[u8]) -> Reply {
        if self.cut {
            return Reply::More;
        }
        let reply = self.inner.stderr(bytes);
        self.pass(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    struct Talk(Vec<u8>);

    const SCRIPT: &[u8] = b"{ echo begin; echo middle; echo end; exit 0; }\n";

    impl Dialogue for Talk {
        fn begin(&mut self) -> Reply {
            Reply::Write { bytes: SCRIPT.to_vec(), end: true }
        }
        fn stdout(&mut self, bytes: &[u8]) -> Reply {
            self.0.extend(bytes);
            Reply::More
        }
        fn stderr(&mut self, _: &[u8]) -> Reply {
            Reply::More
        }
    }

    fn visit(fake: &Fake, executions: usize) -> Vec<(Result<Exit, FailureKind>, String)> {
        let deadline = Deadline::after(Duration::from_secs(1), &Arc::new(AtomicBool::new(false)));
        let mut session = match fake.connect(&Target::for_tests("a"), &Gate::new(1), &deadline) {
            Ok(session) => session,
            Err(failure) => return vec![(Err(failure.kind), String::new())],
        };
        let execute = |_| {
            let mut talk = Talk(Vec::new());
            let exit = session.execute("exec /bin/sh -s", &mut talk, &deadline.within(Duration::from_millis(300)));
            (exit.map_err(|f| f.kind), String::from_utf8(talk.0).unwrap())
        };
        (0..executions).map(execute).collect()
    }

    #[test]
    fn faults_come_where_they_are_wished() {
        let fake = Fake::new("/bin/sh");
        let all = || (Ok(Exit::Code(0)), "begin\nmiddle\nend\n".to_owned());
        let lost = |text: &str| (Err(FailureKind::Lost), text.to_owned());
        assert_eq!(visit(&fake, 1), [all()]);
        assert_eq!(fake.seen("a").executions, [("exec /bin/sh -s".to_owned(), SCRIPT.to_vec())]);
        // A cut group runs nothing; the session is of no use after.
        for at in 0..SCRIPT.len() - 1 {
            fake.fault("a", Fault { cut_upload: Some(at), ..Fault::default() });
            assert_eq!(visit(&fake, 2), [lost(""), lost("")], "{at}");
        }
        fake.fault("a", Fault { cut_download: Some(8), ..Fault::default() });
        assert_eq!(visit(&fake, 1), [lost("begin\nmi")]);
        let seen = fake.seen("a");
        fake.fault("a", Fault { execution: seen.executions.len() + 2, hang: true, ..Fault::default() });
        assert_eq!(visit(&fake, 2), [all(), (Err(FailureKind::Timeout), String::new())]);
        fake.fault("a", Fault { refuse: Some(Failure::new(FailureKind::Login, "no")), ..Fault::default() });
        assert_eq!(visit(&fake, 1), [(Err(FailureKind::Login), String::new())]);
        assert_eq!(fake.seen("a").connects, seen.connects + 2);
        assert_eq!(fake.seen("b").connects, 0);
    }
}
