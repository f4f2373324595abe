//! Whether a host takes TCP connections, found out without a thread that waits for it.

use super::route;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// A connection that was begun, and that nobody waits for; it is closed when this is dropped.
#[derive(Debug)]
pub struct Knock(Option<OwnedFd>);

impl Knock {
    /// Begins one.
    pub fn at(address: &SocketAddr) -> Knock {
        Knock(route::begin(address).ok().map(|(socket, _)| socket))
    }

    /// Whether it was taken; nothing as long as there is no answer.
    pub fn answer(&self) -> Option<bool> {
        let Some(socket) = &self.0 else { return Some(false) };
        let mut fds = [PollFd::new(socket, PollFlags::OUT)];
        let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        let events = fds[0].revents();
        (!events.is_empty()).then(|| matches!(sockopt::socket_error(socket), Ok(Ok(()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    fn answer(knock: &Knock) -> Option<bool> {
        let start = Instant::now();
        loop {
            match knock.answer() {
                None if start.elapsed() < Duration::from_secs(1) => std::thread::sleep(Duration::from_millis(1)),
                answer => return answer,
            }
        }
    }

    #[test]
    fn a_host_takes_connections_refuses_them_or_says_nothing() {
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = open.local_addr().unwrap();
        assert_eq!(answer(&Knock::at(&address)), Some(true));
        drop(open);
        assert_eq!(answer(&Knock::at(&address)), Some(false));
        // Whose queue is full says nothing, like one that is off.
        let full =
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
        rustix::net::bind(&full, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        rustix::net::listen(&full, 0).unwrap();
        let address = SocketAddr::try_from(rustix::net::getsockname(&full).unwrap()).unwrap();
        let _taken = TcpStream::connect(address).unwrap();
        assert_eq!(answer(&Knock::at(&address)), None);
    }
}
