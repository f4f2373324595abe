//! The byte stream under an SSH connection: TCP, a channel through a bastion, or a command.

use super::super::refusal::REFUSES;
use super::super::wait::{SLICE, wait};
use super::super::{Deadline, Failure, FailureKind, Target};
use super::link::{Link, code};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use ssh2::Channel;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The addresses of a target, looked up in a thread of its own: a resolver may take minutes and can't be told to stop.
fn addresses(target: &Target, deadline: &Deadline) -> Result<Vec<SocketAddr>, Failure> {
    if let Ok(ip) = target.address.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, target.port)]);
    }
    let (name, port) = (target.address.clone(), target.port);
    let (send, answer) = mpsc::channel();
    let asked = name.clone();
    std::thread::Builder::new()
        .name("resolve".into())
        .spawn(move || send.send((asked.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>)))
        .map_err(|e| Failure::new(FailureKind::Name, format!("no thread to look {name} up: {e}")))?;
    let hint = "set ansible_host to its address";
    loop {
        match answer.recv_timeout(deadline.left().min(SLICE)) {
            Ok(Ok(found)) if !found.is_empty() => return Ok(found),
            Ok(Ok(_)) => return Err(Failure::new(FailureKind::Name, format!("{name} has no address")).hint(hint)),
            Ok(Err(e)) => {
                let text = e.to_string();
                let text = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
                return Err(Failure::no_name(&name, text));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(Failure::new(FailureKind::Name, format!("the look-up of {name} failed")));
            }
            Err(mpsc::RecvTimeoutError::Timeout) if deadline.left().is_zero() => {
                return Err(deadline
                    .over(FailureKind::Name, format!("the look-up of {name} got no answer"))
                    .hint(hint));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Connects by TCP. All addresses of the name are tried, in the resolver's order, each with its share of the time.
pub(super) fn tcp(target: &Target, deadline: &Deadline) -> Result<OwnedFd, Failure> {
    let addresses = addresses(target, deadline)?;
    let mut refusals = Vec::new();
    for (i, address) in addresses.iter().enumerate() {
        let share = u32::try_from(addresses.len() - i).unwrap_or(1);
        match connect(address, &deadline.within(deadline.left() / share)) {
            Ok(socket) => return Ok(socket),
            Err(reason) => refusals.push(format!("{address} {reason}")),
        }
        if deadline.left().is_zero() {
            break;
        }
    }
    Err(if deadline.cancelled() { deadline.passed() } else { Failure::no_connection(&refusals) })
}

/// The one address at which a target is reached directly, if there is just one.
pub(super) fn door(target: &Target, deadline: &Deadline) -> Option<SocketAddr> {
    if !target.jumps.is_empty() || target.proxy_command.is_some() {
        return None;
    }
    let addresses = addresses(target, deadline).ok()?;
    addresses.first().filter(|_| addresses.len() == 1).copied()
}

/// Begins a connection. Whether it is there already.
pub(super) fn begin(address: &SocketAddr) -> Result<(OwnedFd, bool), Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    // Small packets both ways: Nagle's algorithm would hold them back.
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    match net::connect(&socket, address) {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS) => Ok((socket, false)),
        Err(e) => Err(e),
    }
}

fn connect(address: &SocketAddr, deadline: &Deadline) -> Result<OwnedFd, String> {
    let told = |e: Errno| match e {
        Errno::CONNREFUSED => REFUSES.to_owned(),
        Errno::HOSTUNREACH | Errno::NETUNREACH => "has no route to it".to_owned(),
        Errno::TIMEDOUT => "doesn't answer".to_owned(),
        e => format!("fails ({e})"),
    };
    let start = std::time::Instant::now();
    let (socket, connected) = begin(address).map_err(told)?;
    if connected {
        return Ok(socket);
    }
    loop {
        let left = deadline.left();
        if left.is_zero() {
            return Err(format!("doesn't answer ({:.0} s)", start.elapsed().as_secs_f32()));
        }
        let mut fds = [PollFd::new(&socket, PollFlags::OUT)];
        wait(&mut fds, left.min(SLICE));
        if !fds[0].revents().is_empty() {
            return match sockopt::socket_error(&socket) {
                Ok(Ok(())) => Ok(socket),
                Ok(Err(e)) | Err(e) => Err(told(e)),
            };
        }
    }
}

/// Opens a channel through a bastion and moves its bytes to and from a socket, in a thread that ends with either side.
pub(super) fn through(mut bastion: Link, via: &Target, to: &Target, deadline: &Deadline) -> Result<OwnedFd, Failure> {
    let (host, port) = (to.address.as_str(), to.port);
    let channel = bastion.drive(deadline, |s| s.channel_direct_tcpip(host, port, None)).map_err(|stop| {
        if stop.code() == Some(code::CHANNEL_FAILURE) {
            let text = match &stop {
                super::link::Stop::Ssh(e) => e.message().to_owned(),
                _ => String::new(),
            };
            return Failure::not_through(via, to, &text);
        }
        match stop {
            super::link::Stop::Late => Failure::new(
                FailureKind::Connect,
                format!("the bastion {} got no connection to {host}:{port} in time", via.host),
            ),
            stop => stop.lost(),
        }
    })?;
    let broken = |e: std::io::Error| Failure::new(FailureKind::Connect, format!("no tunnel to the bastion: {e}"));
    let (ours, theirs) = UnixStream::pair().map_err(broken)?;
    ours.set_nonblocking(true).map_err(broken)?;
    theirs.set_nonblocking(true).map_err(broken)?;
    std::thread::Builder::new()
        .name(format!("via {}", via.host))
        .spawn(move || pump(bastion, channel, &ours))
        .map_err(broken)?;
    Ok(theirs.into())
}

fn pump(mut link: Link, mut channel: Channel, socket: &UnixStream) {
    let mut up = Pending::default();
    let mut down = Pending::default();
    let mut socket_ended = false;
    loop {
        let mut moved = false;
        let channel_ended = down.is_empty() && channel.eof();
        if channel_ended || (socket_ended && up.is_empty()) {
            return;
        }
        moved |= down.fill(&mut channel).is_some();
        match down.flush(&mut &*socket) {
            Ok(some) => moved |= some,
            Err(()) => return,
        }
        match up.fill(&mut &*socket) {
            Some(0) => socket_ended = true,
            Some(_) => moved = true,
            None => {}
        }
        match up.flush(&mut channel) {
            Ok(some) => moved |= some,
            Err(()) => return,
        }
        // Writing to the channel reads from the bastion, too.
        if moved || (down.is_empty() && (channel.eof() || channel.read_window().available > 0)) {
            continue;
        }
        let mut wanted = PollFlags::empty();
        if up.is_empty() && !socket_ended {
            wanted |= PollFlags::IN;
        }
        if !down.is_empty() {
            wanted |= PollFlags::OUT;
        }
        let mut fds = [PollFd::new(&link.socket, link.interest()), PollFd::new(socket, wanted)];
        wait(&mut fds, Duration::from_secs(1));
        let heard = !(fds[0].revents() & !PollFlags::OUT).is_empty();
        if link.tick(heard).is_err() {
            return;
        }
    }
}

/// Bytes on their way from one side to the other.
struct Pending {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Default for Pending {
    fn default() -> Pending {
        Pending { bytes: vec![0; 32 * 1024].into(), from: 0, to: 0 }
    }
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Reads more once all is written. How much came; `Some(0)` is the end or an error.
    fn fill(&mut self, from: &mut impl Read) -> Option<usize> {
        if !self.is_empty() {
            return None;
        }
        (self.from, self.to) = (0, 0);
        match from.read(&mut self.bytes) {
            Ok(n) => {
                self.to = n;
                Some(n)
            }
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => None,
            Err(_) => Some(0),
        }
    }

    /// Writes what is there. Whether something was written; an error when the other side is gone.
    fn flush(&mut self, to: &mut impl Write) -> Result<bool, ()> {
        if self.is_empty() {
            return Ok(false);
        }
        match to.write(&self.bytes[self.from..self.to]) {
            Ok(n) => {
                self.from += n;
                Ok(n > 0)
            }
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => Ok(false),
            Err(_) => Err(()),
        }
    }
}

/// A command whose standard input and output are the connection; ended when dropped.
#[derive(Debug)]
pub(super) struct Proxy(Child);

impl Proxy {
    /// Starts the command by `/bin/sh`.
    pub(super) fn start(command: &str) -> Result<(OwnedFd, Proxy), Failure> {
        let broken =
            |e: std::io::Error| Failure::new(FailureKind::Connect, format!("the proxy command can't be started: {e}"));
        let (ours, theirs) = UnixStream::pair().map_err(broken)?;
        ours.set_nonblocking(true).map_err(broken)?;
        let output: OwnedFd = theirs.try_clone().map_err(broken)?.into();
        let child = Command::new("/bin/sh")
            .arg("-c")
            .arg(format!("exec {command}"))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(output))
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(broken)?;
        Ok((ours.into(), Proxy(child)))
    }

    /// How it failed, if it has ended or does so in a moment, as its output has.
    pub(super) fn failed(&mut self) -> Option<String> {
        // Not collected, so that its group is still its own when that is ended.
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        for _ in 0..10 {
            if let Ok(Some(status)) = waitid(WaitId::Pid(Pid::from_child(&self.0)), how) {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(0), _) | (None, None) => None,
                    (Some(code), _) => Some(format!("exit code {code}")),
                    (_, Some(signal)) => Some(format!("signal {signal}")),
                };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// What it said on standard error so far, on one line.
    pub(super) fn said(&mut self) -> Option<String> {
        let mut text = [0; 1024];
        let stderr = self.0.stderr.as_mut()?;
        rustix::io::ioctl_fionbio(&*stderr, true).ok()?;
        let len = stderr.read(&mut text).ok().filter(|n| *n > 0)?;
        Some(String::from_utf8_lossy(&text[..len]).split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        super::super::local::end_group(&mut self.0);
    }
}
