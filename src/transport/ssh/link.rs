//! One SSH connection driven without ever blocking: libssh2 in nonblocking mode and `poll`.
//!
//! libssh2's blocking mode waits without end on drop, on close, in a rekey and when two streams of a channel are read
//! (libssh2/libssh2#232, #1188; rust-lang/ssh2-rs#22, #165).

use super::super::wait::{SLICE, wait};
use super::super::{Deadline, Failure, FailureKind};
use super::route::Proxy;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{Shutdown, shutdown};
use ssh2::{BlockDirections, Channel, ErrorCode, Session};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// libssh2's error codes (libssh2.h) that are told apart here.
pub(super) mod code {
    pub(in crate::transport) const KEX_FAILURE: i32 = -5;
    pub(in crate::transport) const SOCKET_SEND: i32 = -7;
    pub(in crate::transport) const SOCKET_DISCONNECT: i32 = -13;
    pub(in crate::transport) const PASSWORD_EXPIRED: i32 = -15;
    pub(in crate::transport) const FILE: i32 = -16;
    pub(in crate::transport) const AUTHENTICATION_FAILED: i32 = -18;
    pub(in crate::transport) const PUBLICKEY_UNVERIFIED: i32 = -19;
    pub(in crate::transport) const CHANNEL_FAILURE: i32 = -21;
    pub(in crate::transport) const CHANNEL_REQUEST_DENIED: i32 = -22;
    pub(in crate::transport) const AGAIN: i32 = -37;
    pub(in crate::transport) const SOCKET_RECV: i32 = -43;
}

/// Why a call of libssh2 came to nothing.
#[derive(Debug)]
pub(super) enum Stop {
    /// libssh2's own error.
    Ssh(ssh2::Error),
    /// The deadline passed.
    Late,
    /// The run was interrupted.
    Interrupted,
    /// This many keepalives, over this many seconds, went unanswered.
    Silent(u32, u64),
}

impl Stop {
    /// libssh2's code, if it is an error of libssh2.
    pub(super) fn code(&self) -> Option<i32> {
        match self {
            Stop::Ssh(error) => Some(number(error)),
            _ => None,
        }
    }

    /// Whether the connection is gone, so that nothing more can be asked of it.
    pub(super) fn is_loss(&self) -> bool {
        match self.code() {
            Some(n) => matches!(n, code::SOCKET_SEND | code::SOCKET_DISCONNECT | code::SOCKET_RECV),
            None => true,
        }
    }

    /// The failure of an established session.
    pub(super) fn lost(self) -> Failure {
        match self {
            Stop::Late => Failure::new(FailureKind::Timeout, "the deadline passed"),
            Stop::Interrupted => Failure::new(FailureKind::Interrupted, "the run was interrupted"),
            Stop::Silent(count, seconds) => Failure::silent(count, seconds),
            Stop::Ssh(error) => Failure::lost(match number(&error) {
                code::SOCKET_DISCONNECT => "the host closed the connection",
                code::SOCKET_SEND | code::SOCKET_RECV => "the connection was reset",
                _ => error.message(),
            }),
        }
    }
}

/// The number of a libssh2 error.
pub(super) fn number(error: &ssh2::Error) -> i32 {
    match error.code() {
        ErrorCode::Session(n) | ErrorCode::SFTP(n) => n,
    }
}

/// A connection.
pub(super) struct Link {
    pub(super) session: Session,
    pub(super) socket: Arc<OwnedFd>,
    /// Seconds between keepalives and how many may go unanswered.
    keepalive: (u32, u32),
    heard: Instant,
    unanswered: u32,
    /// Channels that we closed and the other side not yet.
    closing: Vec<Channel>,
    /// Whether another thread may hang in a call of libssh2, which holds the session's lock.
    pub(super) abandoned: bool,
    /// The command that carries the connection.
    pub(super) proxy: Option<Proxy>,
}

impl Link {
    /// A connection over this socket, before the handshake.
    pub(super) fn new(socket: Arc<OwnedFd>, keepalive: (u32, u32)) -> Result<Link, ssh2::Error> {
        let mut session = Session::new()?;
        session.set_tcp_stream(socket.clone());
        session.set_blocking(false);
        // libssh2 makes one second two (libssh2_keepalive_config), so shorter intervals aren't asked of it.
        session.set_keepalive(true, keepalive.0.max(2));
        Ok(Link {
            session,
            socket,
            keepalive,
            heard: Instant::now(),
            unanswered: 0,
            closing: Vec::new(),
            abandoned: false,
            proxy: None,
        })
    }

    /// Calls libssh2 until it has done it, waiting for the socket in between.
    pub(super) fn drive<T>(
        &mut self,
        deadline: &Deadline,
        mut call: impl FnMut(&mut Session) -> Result<T, ssh2::Error>,
    ) -> Result<T, Stop> {
        loop {
            self.nurse();
            match call(&mut self.session) {
                Err(error) if number(&error) == code::AGAIN => self.wait(deadline, SLICE)?,
                // Late, what was watched over is shut down.
                Err(_) if deadline.left().is_zero() => {
                    return Err(if deadline.cancelled() { Stop::Interrupted } else { Stop::Late });
                }
                Err(error) => return Err(Stop::Ssh(error)),
                Ok(done) => return Ok(done),
            }
        }
    }

    /// Goes on with closing channels, to be called before anything else is tried: a packet of theirs that was sent in
    /// part blocks all others until their own call has sent the rest.
    pub(super) fn nurse(&mut self) {
        self.closing.retain_mut(|channel| matches!(channel.close(), Err(e) if number(&e) == code::AGAIN));
    }

    /// Waits until the socket is ready for what libssh2 wants, for this time at most. Each call of libssh2 reads all
    /// that the socket has, for whichever channel and stream: to be called only where nothing read before is left.
    pub(super) fn wait(&mut self, deadline: &Deadline, at_most: Duration) -> Result<(), Stop> {
        let left = deadline.left();
        if left.is_zero() {
            return Err(if deadline.cancelled() { Stop::Interrupted } else { Stop::Late });
        }
        let mut fds = [PollFd::new(&self.socket, self.interest())];
        wait(&mut fds, left.min(at_most).min(SLICE));
        let heard = fds[0].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
        self.tick(heard)
    }

    /// What to poll the socket for.
    pub(super) fn interest(&self) -> PollFlags {
        match self.session.block_directions() {
            BlockDirections::Outbound | BlockDirections::Both => PollFlags::IN | PollFlags::OUT,
            BlockDirections::Inbound | BlockDirections::None => PollFlags::IN,
        }
    }

    /// Keeps the connection alive; to be called after each wait, with whether something came.
    pub(super) fn tick(&mut self, heard: bool) -> Result<(), Stop> {
        let now = Instant::now();
        if heard {
            self.heard = now;
            self.unanswered = 0;
            return Ok(());
        }
        let (interval, limit) = self.keepalive;
        if interval == 0 || !self.session.authenticated() {
            return Ok(());
        }
        let silence = now.duration_since(self.heard).as_secs();
        if silence < u64::from(interval) * u64::from(self.unanswered + 1) {
            return Ok(());
        }
        if self.unanswered >= limit {
            return Err(Stop::Silent(self.unanswered, silence));
        }
        self.unanswered += 1;
        // libssh2 can't resume a keepalive that was sent in part, so none is sent while the socket is full; the silence
        // is counted all the same.
        if matches!(self.session.block_directions(), BlockDirections::Outbound | BlockDirections::Both) {
            return Ok(());
        }
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        wait(&mut fds, Duration::ZERO);
        if fds[0].revents().contains(PollFlags::OUT) {
            self.session.keepalive_send().map_err(Stop::Ssh)?;
        }
        Ok(())
    }

    /// Closes a channel without waiting for the other side: a child in the background may keep it open for ever.
    pub(super) fn retire(&mut self, mut channel: Channel) {
        if matches!(channel.close(), Err(e) if number(&e) == code::AGAIN) {
            self.closing.push(channel);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !self.abandoned {
            // One try to say goodbye, so that the host's log doesn't tell of a reset.
            let _ = self.session.disconnect(None, "done", None);
        }
        // With the socket shut down each send of libssh2 fails at once, and freeing channels and session can't wait.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}
