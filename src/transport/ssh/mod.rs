//! SSH by libssh2, in this process.

mod knock;
mod known_hosts;
mod link;
mod login;
mod route;
mod watch;

use super::gate::{Bastions, queued, retried};
use super::keys::Keyring;
use super::talk::Outbox;
use super::wait::SLICE;
use super::{Deadline, Dialogue, Exit, Failure, FailureKind, Gate, Limits, Session, Target, Transport};
pub use knock::Knock;
use known_hosts::KnownHosts;
use link::{Link, Stop, code, number};
use ssh2::{Channel, MethodType};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use watch::Watch;

/// For how long a refused channel is asked for again: with `MaxSessions 1` the one before must have ended.
const CHANNEL_PATIENCE: Duration = Duration::from_secs(3);

/// Key exchanges in the order of what they cost: curve25519 takes the client 5 ms, a group of 8,192 bits a hundred.
const KEX: &str = "curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,ecdh-sha2-nistp384,\
                   ecdh-sha2-nistp521,diffie-hellman-group14-sha256,diffie-hellman-group-exchange-sha256,\
                   diffie-hellman-group16-sha512,diffie-hellman-group18-sha512,diffie-hellman-group14-sha1";

/// The transport of `ansible_connection: ssh`.
#[derive(Debug, Default)]
pub struct Ssh {
    limits: Limits,
    known_hosts: KnownHosts,
    bastions: Arc<Bastions>,
    keyring: Arc<Keyring>,
}

impl Ssh {
    /// With these limits, and what it shares with other transports: the gates of bastions and unlocked keys.
    pub(super) fn new(limits: Limits, bastions: Arc<Bastions>, keyring: Arc<Keyring>) -> Ssh {
        Ssh { limits, bastions, keyring, ..Ssh::default() }
    }

    /// A connection that is logged in, over all jumps.
    fn open(&self, target: &Target, gate: &Gate, deadline: &Deadline) -> Result<Link, Failure> {
        let mut way: Option<(&Target, Link)> = None;
        for bastion in &target.jumps {
            let own = self.bastions.gate(bastion);
            // Held before TCP connects: what a bastion counts is connections that aren't logged in yet.
            let permit = own.enter(deadline).ok_or_else(|| queued(deadline))?;
            let link = self.hop(bastion, way, gate, deadline);
            drop(permit);
            way = Some((bastion, link.map_err(|f| f.of_bastion(bastion))?));
        }
        self.hop(target, way, gate, deadline)
    }

    /// One connection, over the one before it.
    fn hop(
        &self,
        target: &Target,
        way: Option<(&Target, Link)>,
        gate: &Gate,
        deadline: &Deadline,
    ) -> Result<Link, Failure> {
        let connecting = || deadline.within(target.connect_timeout.unwrap_or(self.limits.connect));
        if let Some((via, bastion)) = way {
            let socket = route::through(bastion, via, target, &connecting())?;
            return self.greet(target, socket, Way::Bastion(via), gate, deadline);
        }
        if let Some(command) = &target.proxy_command {
            let (socket, mut proxy) = route::Proxy::start(command)?;
            return match self.greet(target, socket, Way::Command, gate, deadline) {
                Ok(mut link) => {
                    link.proxy = Some(proxy);
                    Ok(link)
                }
                Err(failure) => {
                    let failure = match proxy.failed().filter(|_| failure.is_dropped()) {
                        Some(how) => Failure::no_proxy(&how),
                        None => failure,
                    };
                    Err(match proxy.said() {
                        Some(text) => Failure {
                            message: format!("{}; the proxy command says: {text}", failure.message),
                            ..failure
                        },
                        None => failure,
                    })
                }
            };
        }
        self.greet(target, route::tcp(target, &connecting())?, Way::Direct, gate, deadline)
    }

    /// Handshake, host key and login over a connected socket.
    fn greet(
        &self,
        target: &Target,
        socket: OwnedFd,
        way: Way<'_>,
        gate: &Gate,
        deadline: &Deadline,
    ) -> Result<Link, Failure> {
        let _permit = gate.enter(deadline).ok_or_else(|| queued(deadline))?;
        let start = Instant::now();
        let until = deadline.within(self.limits.login);
        let broken = |e: ssh2::Error| Failure::new(FailureKind::Handshake, format!("libssh2: {}", e.message()));
        let mut link = Link::new(Arc::new(socket), target.keepalive).map_err(broken)?;
        link.session.method_pref(MethodType::Kex, KEX).map_err(broken)?;
        let known = self.known_hosts.find(target)?;
        link.session.method_pref(MethodType::HostKey, &known_hosts::algorithms(&known)).map_err(broken)?;
        let watch = Watch::over(&link.socket, &until);
        if let Err(stop) = link.drive(&until, ssh2::Session::handshake) {
            return Err(handshake_failure(&link, stop, way, &until, start.elapsed()));
        }
        drop(watch);
        // Who waits for a password to be tried on another host has longer than the time of one login.
        let _watch = Watch::over(&link.socket, deadline);
        let key = link.session.host_key().map(|(key, _)| key.to_vec());
        let key = key.ok_or_else(|| Failure::new(FailureKind::Handshake, "the host showed no host key"))?;
        self.known_hosts.check(target, &key, &known)?;
        login::login(&mut link, target, &until, deadline, self.limits.login, &self.keyring)?;
        Ok(link)
    }
}

impl Transport for Ssh {
    fn door(&self, target: &Target, deadline: &Deadline) -> Option<SocketAddr> {
        route::door(target, deadline)
    }

    fn connect(&self, target: &Target, gate: &Gate, deadline: &Deadline) -> Result<Box<dyn Session>, Failure> {
        let link = retried(deadline, || self.open(target, gate, deadline))?;
        Ok(Box::new(Channels { link, executions: 0, stuck: false }))
    }
}

/// What carries a connection.
#[derive(Clone, Copy)]
enum Way<'a> {
    /// TCP.
    Direct,
    /// A channel through this bastion.
    Bastion(&'a Target),
    /// A proxy command.
    Command,
}

fn handshake_failure(link: &Link, stop: Stop, way: Way<'_>, deadline: &Deadline, time: Duration) -> Failure {
    let said = link.session.banner_bytes().map(|b| String::from_utf8_lossy(b).into_owned()).unwrap_or_default();
    let named = said.starts_with("SSH-");
    // sshd tells some of those that it drops why, in a line before its name.
    let other = !said.is_empty() && !named && !said.contains("MaxStartups") && !said.starts_with("Not allowed");
    let fail = |message: String| deadline.over(FailureKind::Handshake, message);
    let seconds = time.as_secs();
    match &stop {
        Stop::Interrupted => stop.lost(),
        Stop::Late | Stop::Silent(..) if deadline.cancelled() => Stop::Interrupted.lost(),
        Stop::Late | Stop::Silent(..) if named => Failure::no_key_exchange(seconds),
        Stop::Late | Stop::Silent(..) => match way {
            Way::Direct => Failure::no_banner(seconds),
            Way::Bastion(via) => Failure::nothing_through(&format!("the bastion {}", via.host), seconds),
            Way::Command => Failure::nothing_through("the proxy command", seconds),
        },
        Stop::Ssh(error) => match number(error) {
            _ if other => Failure::no_ssh_server(&said),
            _ if !named && stop.is_loss() => Failure::dropped(),
            _ if !named => fail(format!("what answers isn't an SSH server ({})", error.message())),
            _ if stop.is_loss() => {
                fail("the host closed the connection in the key exchange".to_owned()).hint("its sshd's log says why")
            }
            // libssh2 doesn't tell these two apart.
            code::KEX_FAILURE => fail(format!("the key exchange with the host's {} failed", name(&said)))
                .hint("it shares no algorithms with libssh2, or closed the connection; its sshd's log says which"),
            _ => fail(format!("the key exchange with the host's {} failed: {}", name(&said), error.message())),
        },
    }
}

/// The server's software out of how it names itself: `SSH-2.0-OpenSSH_9.2p1 Debian-2`.
fn name(said: &str) -> String {
    said.splitn(3, '-').nth(2).unwrap_or(said).chars().filter(|c| !c.is_control()).take(80).collect()
}

/// A session and the channels of its executions, one after the other.
struct Channels {
    link: Link,
    executions: u32,
    /// Whether a packet was left half sent, so that nothing else can be.
    stuck: bool,
}

impl Channels {
    fn channel(&mut self, deadline: &Deadline) -> Result<Channel, Failure> {
        let patience = Instant::now() + CHANNEL_PATIENCE;
        loop {
            match self.link.drive(deadline, |s| s.channel_session()) {
                Ok(channel) => return Ok(channel),
                Err(stop) if stop.code() != Some(code::CHANNEL_FAILURE) => return Err(stop.lost()),
                Err(_) if self.executions > 0 && Instant::now() < patience => {
                    self.link.wait(deadline, Duration::from_millis(20)).map_err(Stop::lost)?;
                }
                Err(Stop::Ssh(e)) => {
                    return Err(Failure::no_channel(e.message()));
                }
                Err(stop) => return Err(stop.lost()),
            }
        }
    }
}

impl Session for Channels {
    fn execute(&mut self, request: &str, dialogue: &mut dyn Dialogue, deadline: &Deadline) -> Result<Exit, Failure> {
        if self.stuck {
            return Err(Failure::lost("the host stopped reading"));
        }
        let _watch = Watch::over(&self.link.socket, deadline);
        let mut channel = self.channel(deadline)?;
        self.executions += 1;
        self.link.drive(deadline, |_| channel.exec(request)).map_err(|stop| match stop.code() {
            Some(code::CHANNEL_REQUEST_DENIED) => Failure::no_commands(),
            _ => stop.lost(),
        })?;
        let mut talk = Talk { channel, outgoing: Outbox::default(), ended: false };
        let exit = talk.hold(&mut self.link, dialogue, deadline)?;
        if exit == Exit::Finished && !talk.settle(&mut self.link, deadline) {
            self.stuck = true;
        }
        self.link.retire(talk.channel);
        Ok(exit)
    }
}

/// One execution's conversation.
struct Talk {
    channel: Channel,
    outgoing: Outbox,
    /// Whether the other side was told that nothing follows.
    ended: bool,
}

impl Talk {
    fn hold(&mut self, link: &mut Link, dialogue: &mut dyn Dialogue, deadline: &Deadline) -> Result<Exit, Failure> {
        if self.outgoing.take(dialogue.begin()) {
            return Ok(Exit::Finished);
        }
        let mut buffer = vec![0; 32 * 1024];
        loop {
            link.nurse();
            let mut moved = false;
            for stream in [0, 1] {
                match self.channel.stream(stream).read(&mut buffer) {
                    Ok(0) => {}
                    Ok(n) => {
                        moved = true;
                        let bytes = &buffer[..n];
                        let reply = if stream == 0 { dialogue.stdout(bytes) } else { dialogue.stderr(bytes) };
                        if self.outgoing.take(reply) {
                            return Ok(Exit::Finished);
                        }
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return Err(last(link).lost()),
                }
            }
            moved |= self.write(link)?;
            if self.channel.eof() {
                match self.channel.wait_close() {
                    Ok(()) => return self.exit(),
                    Err(e) if number(&e) == code::AGAIN => {}
                    Err(e) => return Err(Stop::Ssh(e).lost()),
                }
            }
            // What the calls above read for another stream than their own is in libssh2's hands, not in the socket.
            moved |= self.channel.read_window().available > 0;
            // Output without end must not carry an execution past its deadline.
            link.wait(deadline, if moved { Duration::ZERO } else { SLICE }).map_err(Stop::lost)?;
        }
    }

    /// Writes what is there to be written; true if something happened.
    fn write(&mut self, link: &Link) -> Result<bool, Failure> {
        let mut moved = false;
        while !self.outgoing.left().is_empty() {
            match self.channel.write(self.outgoing.left()) {
                Ok(n) => {
                    self.outgoing.wrote(n);
                    moved = true;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(moved),
                Err(_) => {
                    let stop = last(link);
                    if stop.is_loss() {
                        return Err(stop.lost());
                    }
                    // It reads no more, which is its right; what it says about it is read.
                    self.outgoing.give_up();
                }
            }
        }
        if self.outgoing.over() && !self.ended {
            match self.channel.send_eof() {
                Ok(()) => self.ended = true,
                Err(e) if number(&e) == code::AGAIN => return Ok(moved),
                Err(e) => match Stop::Ssh(e) {
                    stop if stop.is_loss() => return Err(stop.lost()),
                    _ => self.ended = true,
                },
            }
            return Ok(true);
        }
        Ok(moved)
    }

    /// Sends the rest of a packet that was sent in part, which libssh2 wants before any other; false if the other side
    /// doesn't take it.
    fn settle(&mut self, link: &mut Link, deadline: &Deadline) -> bool {
        let deadline = deadline.within(Duration::from_secs(2));
        let full = |link: &Link| link.interest().contains(rustix::event::PollFlags::OUT);
        while !self.outgoing.left().is_empty() && full(link) {
            if link.wait(&deadline, SLICE).is_err() || self.write(link).is_err() {
                return false;
            }
        }
        true
    }

    fn exit(&self) -> Result<Exit, Failure> {
        let broken = |e: ssh2::Error| Stop::Ssh(e).lost();
        if let Some(signal) = self.channel.exit_signal().map_err(broken)?.exit_signal {
            return Ok(Exit::Signal(signal));
        }
        Ok(Exit::Code(self.channel.exit_status().map_err(broken)?))
    }
}

/// The error that libssh2 told last; reading and writing give it without its number.
fn last(link: &Link) -> Stop {
    Stop::Ssh(ssh2::Error::last_session_error(&link.session).unwrap_or_else(ssh2::Error::unknown))
}
