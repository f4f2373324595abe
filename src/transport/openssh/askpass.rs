//! Answers to what ssh asks for. ssh runs a program with its question and reads the answer from that program's output:
//! it is netplay itself, which gets the answer from the run by a socket in the run's private folder. So a password is in
//! no argument, no environment and no file.

use rustix::event::{PollFd, PollFlags};
use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Names the socket; set for ssh, and by it for the program that it asks.
pub(super) const SOCKET: &str = "NETPLAY_ASKPASS";
/// The longest question that is read, in bytes.
const LONGEST: u64 = 4096;
/// How long the program may take to tell its question, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Does what ssh wants of the program it asks, if that is what this process was started as: the question is its first
/// argument. To be called before anything else.
pub fn askpass(question: Option<&OsStr>) -> Option<ExitCode> {
    let socket = std::env::var_os(SOCKET)?;
    let ask = || -> std::io::Result<Vec<u8>> {
        let mut run = UnixStream::connect(&socket)?;
        run.write_all(question.unwrap_or_default().as_encoded_bytes())?;
        run.shutdown(Shutdown::Write)?;
        let mut answer = Vec::new();
        run.read_to_end(&mut answer)?;
        Ok(answer)
    };
    // An answer ends with a line feed; without one there is none, and ssh takes the exit code for a refusal.
    let answered = |answer: Vec<u8>| answer.ends_with(b"\n") && std::io::stdout().write_all(&answer).is_ok();
    Some(if ask().is_ok_and(answered) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where the questions of one ssh arrive.
#[derive(Debug)]
pub(super) struct Desk {
    listener: UnixListener,
    path: PathBuf,
}

/// A question and who waits for the answer.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) text: String,
    from: UnixStream,
}

impl Desk {
    pub(super) fn open(path: PathBuf) -> std::io::Result<Desk> {
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        Ok(Desk { listener, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn sign(&self) -> PollFd<'_> {
        PollFd::new(&self.listener, PollFlags::IN)
    }

    /// The question that is there, if one is.
    pub(super) fn next(&self) -> std::io::Result<Option<Question>> {
        let from = match self.listener.accept() {
            Ok((from, _)) => from,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(None),
            Err(e) => return Err(e),
        };
        from.set_nonblocking(false)?;
        from.set_read_timeout(Some(PATIENCE))?;
        from.set_write_timeout(Some(PATIENCE))?;
        let mut text = Vec::new();
        (&from).take(LONGEST).read_to_end(&mut text)?;
        Ok(Some(Question { text: String::from_utf8_lossy(&text).into_owned(), from }))
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // The folder goes with all that is in it, later.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Question {
    /// Answers it. Dropped without, ssh is refused an answer.
    pub(super) fn answer(mut self, text: &str) {
        // ssh may be gone meanwhile; what becomes of it is seen elsewhere.
        let _ = self.from.write_all(format!("{text}\n").as_bytes());
    }
}
