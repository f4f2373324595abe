//! What a dialogue wants written, and a conversation over three pipes.

use super::wait::{SLICE, wait};
use super::{Deadline, Dialogue, Exit, Failure, FailureKind, Reply};
use rustix::event::{PollFd, PollFlags};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// What a dialogue wants written and what isn't yet.
#[derive(Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    written: usize,
    end: bool,
}

impl Outbox {
    /// Does what the dialogue wants; true if it wants nothing more.
    pub(super) fn take(&mut self, reply: Reply) -> bool {
        match reply {
            Reply::More => false,
            Reply::Finish => true,
            Reply::Write { bytes, end } => {
                self.bytes.extend(bytes);
                self.end |= end;
                false
            }
        }
    }

    /// What is left to be written.
    pub(super) fn left(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// So many bytes of that were written.
    pub(super) fn wrote(&mut self, count: usize) {
        self.written += count;
        if self.left().is_empty() {
            (self.bytes, self.written) = (Vec::new(), 0);
        }
    }

    /// The other side reads no more: nothing is left for it, not even the end.
    pub(super) fn give_up(&mut self) {
        *self = Outbox::default();
    }

    /// Whether all is written, and nothing will follow.
    pub(super) fn over(&self) -> bool {
        self.end && self.left().is_empty()
    }
}

/// Who is at the other end of the pipes.
pub(super) trait Peer {
    /// How it ended, once it has; asked again and again after both outputs are closed.
    fn ended(&mut self) -> Result<Option<Exit>, Failure>;

    /// What else has to be heard meanwhile.
    fn attend(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// What there is something to attend to by.
    fn signs(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

/// Our ends of the pipes, those that aren't closed yet.
pub(super) struct Pipes {
    stdin: Option<File>,
    stdout: Option<File>,
    stderr: Option<File>,
    outgoing: Outbox,
}

impl Pipes {
    /// Of the other side's standard input, output and error.
    pub(super) fn new(stdin: OwnedFd, stdout: OwnedFd, stderr: OwnedFd) -> std::io::Result<Pipes> {
        for pipe in [&stdin, &stdout, &stderr] {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        let [stdin, stdout, stderr] = [stdin, stdout, stderr].map(|pipe| Some(File::from(pipe)));
        Ok(Pipes { stdin, stdout, stderr, outgoing: Outbox::default() })
    }

    /// Holds the dialogue, until it has enough or the other side has ended.
    pub(super) fn hold(
        mut self,
        dialogue: &mut dyn Dialogue,
        deadline: &Deadline,
        peer: &mut dyn Peer,
    ) -> Result<Exit, Failure> {
        let broken = |e: std::io::Error| Failure::new(FailureKind::Lost, format!("the shell's pipes broke: {e}"));
        if self.outgoing.take(dialogue.begin()) {
            return Ok(Exit::Finished);
        }
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let left = deadline.left();
            if left.is_zero() {
                return Err(deadline.passed());
            }
            peer.attend()?;
            let mut moved = self.write();
            for error in [false, true] {
                let got = if error { read(&mut self.stderr, &mut buffer) } else { read(&mut self.stdout, &mut buffer) };
                if let Some(n) = got.map_err(broken)? {
                    moved = true;
                    let bytes = &buffer[..n];
                    if self.outgoing.take(if error { dialogue.stderr(bytes) } else { dialogue.stdout(bytes) }) {
                        return Ok(Exit::Finished);
                    }
                }
            }
            if moved {
                continue;
            }
            if self.stdout.is_none() && self.stderr.is_none() {
                if let Some(exit) = peer.ended()? {
                    return Ok(exit);
                }
                // Both outputs are closed and it runs on: nothing need be there to be polled for its end.
                self.wait(left.min(Duration::from_millis(10)), peer);
            } else {
                self.wait(left.min(SLICE), peer);
            }
        }
    }

    /// Writes what is there to be written; true if something happened.
    fn write(&mut self) -> bool {
        let Some(stdin) = &mut self.stdin else { return false };
        let mut moved = false;
        while !self.outgoing.left().is_empty() {
            match stdin.write(self.outgoing.left()) {
                Ok(n) => {
                    self.outgoing.wrote(n);
                    moved = true;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return moved,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // It reads no more, which is its right; what it says about it is read.
                Err(_) => {
                    self.stdin = None;
                    return true;
                }
            }
        }
        if self.outgoing.over() {
            self.stdin = None;
            return true;
        }
        moved
    }

    fn wait(&self, time: Duration, peer: &dyn Peer) {
        let signs = peer.signs();
        let mut fds: Vec<PollFd<'_>> = signs.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        fds.extend(self.stdout.as_ref().map(|p| PollFd::new(p, PollFlags::IN)));
        fds.extend(self.stderr.as_ref().map(|p| PollFd::new(p, PollFlags::IN)));
        if !self.outgoing.left().is_empty() {
            fds.extend(self.stdin.as_ref().map(|p| PollFd::new(p, PollFlags::OUT)));
        }
        wait(&mut fds, time);
    }
}

/// Reads from a pipe, which is dropped at its end; nothing if nothing came.
fn read(pipe: &mut Option<File>, buffer: &mut [u8]) -> std::io::Result<Option<usize>> {
    let Some(from) = pipe else { return Ok(None) };
    match from.read(buffer) {
        Ok(0) => {
            *pipe = None;
            Ok(None)
        }
        Ok(n) => Ok(Some(n)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}
