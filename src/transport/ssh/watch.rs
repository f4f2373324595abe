//! A watch over calls of libssh2 that don't come back: in nonblocking mode too it reads for as long as the other side
//! sends, so that a host that sends without end keeps it for ever (`session_banner_receive` in its session.c).

use super::super::Deadline;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

/// What a deadline is overrun by at most; until then whoever waits for it notices himself.
const GRACE: Duration = Duration::from_secs(1);

/// Shuts a socket down some time after a deadline, unless this is dropped before: reading from it fails then.
pub(super) struct Watch {
    _held: Arc<Held>,
}

/// A socket for as long as it is watched.
struct Held(Arc<OwnedFd>);

type Watched = (Instant, Weak<Held>);

/// One thread for all; where it can't be started, nothing is watched.
static WATCHED: LazyLock<Sender<Watched>> = LazyLock::new(|| {
    let (send, sockets) = mpsc::channel::<Watched>();
    let watch = move || {
        let mut all: Vec<Watched> = Vec::new();
        loop {
            match sockets.recv_timeout(GRACE) {
                Ok(watched) => all.push(watched),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            all.retain(|(until, socket)| match socket.upgrade() {
                Some(socket) if *until <= now => {
                    // It may be shut down already, which is as well.
                    let _ = shutdown(&socket.0, Shutdown::Both);
                    false
                }
                found => found.is_some(),
            });
        }
    };
    // Without a thread the channel is closed, and what is sent is dropped.
    let _ = std::thread::Builder::new().name("watch".into()).spawn(watch);
    send
});

impl Watch {
    /// Watches over a socket.
    pub(super) fn over(socket: &Arc<OwnedFd>, deadline: &Deadline) -> Watch {
        let held = Arc::new(Held(socket.clone()));
        let _ = WATCHED.send((Instant::now() + deadline.left() + GRACE, Arc::downgrade(&held)));
        Watch { _held: held }
    }
}

#[cfg(test)]
mod tests {
    use super::super::link::{Link, Stop};
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_host_that_never_stops_talking_is_left() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let host = std::thread::spawn(move || while theirs.write_all(&[b'x'; 4096]).is_ok() {});
        let deadline = Deadline::after(Duration::from_millis(100), &Arc::default());
        let mut link = Link::new(Arc::new(ours.into()), (0, 0)).unwrap();
        let start = Instant::now();
        let watch = Watch::over(&link.socket, &deadline);
        let stop = link.drive(&deadline, ssh2::Session::handshake).unwrap_err();
        assert!(matches!(stop, Stop::Late), "{stop:?}");
        assert!(start.elapsed() < Duration::from_secs(20));
        // As long as one of them holds the socket, the host waits to go on talking.
        drop((watch, link));
        host.join().unwrap();
    }

    #[test]
    fn what_is_over_in_time_is_left_alone() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let socket = Arc::new(OwnedFd::from(ours));
        drop(Watch::over(&socket, &Deadline::after(Duration::ZERO, &Arc::default())));
        std::thread::sleep(GRACE * 3);
        theirs.write_all(b"x").unwrap();
    }
}
