//! SSH by the system's OpenSSH client, for what libssh2 lacks: certificates, GSSAPI, security keys, and whatever else
//! `~/.ssh/config` may ask of it.
//!
//! A host has one connection, held by a client of its own (`ssh -M -N`) and used through its socket: [`mux`]. The user's
//! own masters are left alone. ssh reads its configuration itself; what netplay has to be sure of is given by options,
//! which win over it.

mod askpass;
mod folder;
mod mux;
mod said;

pub use askpass::askpass;

use super::gate::{Bastions, queued, retried};
use super::keys::Keyring;
use super::local::{end_group, reap};
use super::refusal::{ENCRYPTED, asks_for_change, expired};
use super::secret::Attempt;
use super::talk::{Peer, Pipes};
use super::wait::wait;
use super::{
    Deadline, Dialogue, Exit, Failure, FailureKind, Gate, HostKeyChecking, Limits, Reply, Session, Target, Transport,
};
use askpass::{Desk, Question, SOCKET};
use folder::Folder;
use mux::{Control, Message};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, kill_process};
use said::Said;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How often the master's socket is looked for.
const GLANCE: Duration = Duration::from_millis(10);
/// For how long a refused channel is asked for again: with `MaxSessions 1` the one before must have ended.
const CHANNEL_PATIENCE: Duration = Duration::from_secs(3);
/// How long a client that was told to end may take to say goodbye to the host.
const GOODBYE: Duration = Duration::from_millis(40);
/// The first version that asks a program of ours for passwords, whether or not there is a terminal
/// (`SSH_ASKPASS_REQUIRE`).
const ASKS_US: (u32, u32) = (8, 4);
/// The first version that knows `StrictHostKeyChecking accept-new`.
const OLDEST: (u32, u32) = (7, 6);

/// The transport of `netplay_transport: openssh`.
#[derive(Debug)]
pub struct OpenSsh {
    limits: Limits,
    bastions: Arc<Bastions>,
    keyring: Arc<Keyring>,
    /// What ssh runs to ask for a password: this program, which must begin with [`askpass`].
    asked: PathBuf,
    client: OnceLock<Result<Client, Failure>>,
}

/// The system's client, and where its sockets are.
#[derive(Debug)]
struct Client {
    version: (u32, u32),
    folder: Arc<Folder>,
}

impl OpenSsh {
    pub(super) fn new(limits: Limits, bastions: Arc<Bastions>, keyring: Arc<Keyring>, asked: PathBuf) -> OpenSsh {
        OpenSsh { limits, bastions, keyring, asked, client: OnceLock::new() }
    }

    fn client(&self) -> Result<&Client, Failure> {
        let start = || {
            let version = version(Path::new("ssh"))?;
            let folder = Folder::new().map_err(|e| {
                Failure::new(FailureKind::Connect, format!("there is no place for the sockets of ssh: {e}"))
                    .hint("set TMPDIR to a folder with a short name")
            })?;
            Ok(Client { version, folder: Arc::new(folder) })
        };
        self.client.get_or_init(start).as_ref().map_err(Clone::clone)
    }

    /// Starts a master and sees to it until it is logged in.
    fn open(&self, client: &Client, target: &Target, gate: &Gate, deadline: &Deadline) -> Result<Master, Failure> {
        let _permit = gate.enter(deadline).ok_or_else(|| queued(deadline))?;
        let broken = |e: std::io::Error| Failure::new(FailureKind::Connect, format!("ssh can't be started: {e}"));
        let desk = Desk::open(client.folder.socket()).map_err(broken)?;
        let limit = target.connect_timeout.unwrap_or(self.limits.connect);
        // Behind others it is connected when all of those are logged in to, which ssh counts as a part of connecting.
        let direct = target.jumps.is_empty() && target.proxy_command.is_none();
        let hops = u32::try_from(target.jumps.len()).unwrap_or(u32::MAX).max(1);
        let connect = if direct { limit } else { (limit + self.limits.login).saturating_mul(hops) };
        let mut master = Master::start(client, target, &desk, &self.asked, connect).map_err(broken)?;
        let mut login = Login {
            target,
            keyring: &self.keyring,
            attempt: None,
            answered: None,
            connected: false,
            until: deadline.within(connect + self.limits.login),
        };
        loop {
            master.listen();
            while let Some(question) = desk.next().map_err(broken)? {
                // It was asked after what was said before.
                master.listen();
                login.reply(question, &mut master.said, deadline, self.limits.login)?;
            }
            if let Some(failure) = master.said.revoked() {
                // Told to take any key, ssh would take this one.
                return Err(failure);
            }
            if master.socket.exists() {
                login.settle(true);
                return Ok(master);
            }
            let seconds = master.started.elapsed().as_secs();
            if direct && master.said.established() && !std::mem::replace(&mut login.connected, true) {
                login.until = deadline.within(self.limits.login);
            }
            if master.has_ended() {
                master.listen();
                return Err(login.refusal(&master.said, seconds));
            }
            if login.until.left().is_zero() {
                return Err(match login.until.cancelled() {
                    true => login.until.passed(),
                    false => master.said.late(target, seconds),
                });
            }
            let mut signs = vec![desk.sign()];
            signs.extend(master.stderr.as_ref().map(|s| PollFd::new(s, PollFlags::IN)));
            wait(&mut signs, login.until.left().min(GLANCE));
        }
    }
}

impl Transport for OpenSsh {
    fn connect(&self, target: &Target, gate: &Gate, deadline: &Deadline) -> Result<Box<dyn Session>, Failure> {
        let client = self.client()?;
        if target.password.is_some() && client.version < ASKS_US {
            let (major, minor) = client.version;
            return Err(Failure::new(
                FailureKind::Login,
                format!("the system's ssh is OpenSSH {major}.{minor}, and passwords need 8.4 or later"),
            )
            .hint("log in with a key, or use netplay_transport: ssh2"));
        }
        // ssh goes through all of them in one go. In one order for all hosts, so that none waits for another in a circle.
        let mut bastions: Vec<&Target> = target.jumps.iter().collect();
        bastions.sort_by_key(|b| (&b.address, b.port, &b.user));
        let gates: Vec<Arc<Gate>> = bastions.into_iter().map(|bastion| self.bastions.gate(bastion)).collect();
        let entered = gates.iter().map(|own| own.enter(deadline)).collect::<Option<Vec<_>>>();
        let _permits = entered.ok_or_else(|| queued(deadline))?;
        let master = retried(deadline, || self.open(client, target, gate, deadline))?;
        Ok(Box::new(Connection { master, target: target.clone(), executions: 0 }))
    }
}

/// The version of the system's client.
fn version(ssh: &Path) -> Result<(u32, u32), Failure> {
    let wrong = |message: String| {
        Failure::new(FailureKind::Connect, message)
            .hint("install OpenSSH's client (openssh-client, openssh-clients), or use netplay_transport: ssh2")
    };
    let output = Command::new(ssh).arg("-V").stdin(Stdio::null()).output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => wrong("there is no program `ssh` on this machine".to_owned()),
        _ => wrong(format!("the system's ssh can't be run: {e}")),
    })?;
    let text = String::from_utf8_lossy(&output.stderr);
    // `OpenSSH_9.2p1 Debian-2+deb12u6, OpenSSL 3.0.19`
    let numbers = text.split_once("OpenSSH_").map(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()));
    let mut numbers = numbers.into_iter().flatten().map_while(|n| n.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        return Err(wrong(format!("the system's ssh isn't OpenSSH: it says {}", text.trim())));
    };
    if (major, minor) < OLDEST {
        return Err(wrong(format!("the system's ssh is OpenSSH {major}.{minor}, and netplay needs 7.6 or later")));
    }
    Ok((major, minor))
}

/// A login under way.
struct Login<'t> {
    target: &'t Target,
    keyring: &'t Keyring,
    attempt: Option<Attempt<'t>>,
    /// After which of its turns the host was told the password.
    answered: Option<usize>,
    /// Whether TCP is connected.
    connected: bool,
    until: Deadline,
}

impl Login<'_> {
    fn settle(&mut self, good: bool) {
        if let Some(attempt) = self.attempt.take() {
            attempt.settle(good);
        }
    }

    /// Answers a question of ssh's. What can't be answered is a failure: ssh would go on with an empty password.
    fn reply(
        &mut self,
        question: Question,
        said: &mut Said,
        patience: &Deadline,
        limit: Duration,
    ) -> Result<(), Failure> {
        let target = self.target;
        let text = question.text.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.contains("(yes/no") {
            // Of the host itself ssh doesn't ask: this is a bastion's key.
            question.answer(if target.host_key_checking == HostKeyChecking::Yes { "no" } else { "yes" });
            return Ok(());
        }
        if let Some((_, path)) = text.split_once("passphrase for key '") {
            let path = path.trim_end_matches([':', '\'', ' ']);
            match self.keyring.passphrase(Path::new(path)) {
                Some(passphrase) => question.answer(passphrase.reveal()),
                // Without an answer ssh goes on with the next key.
                None => said.tries(format!("{path} {ENCRYPTED}")),
            }
            return Ok(());
        }
        // `(ops@gpu001) Password: ` or `ops@gpu001's password: `; a bastion's says its own name.
        let asks = |user: &str, name: &str| text.to_lowercase().contains(&format!("{user}@{name}").to_lowercase());
        if !asks(&target.user, &target.address) {
            let known = target.jumps.iter().find(|j| asks(&j.user, &j.address) || asks(&j.user, &j.host));
            if let Some(bastion) = known.or(target.jumps.last()) {
                let why = "it takes none of the keys and asks for a password, which bastions aren't given";
                return Err(Failure::not_let_in(bastion, why, &[])
                    .hint("log in to bastions with a key or an agent")
                    .of_bastion(bastion));
            }
        }
        if asks_for_change(&text) {
            self.settle(true);
            return Err(expired(&target.user));
        }
        if let Some(turn) = self.answered {
            self.settle(false);
            return Err(if said.turns > turn {
                Failure::wrong_password(target, said.tried())
            } else {
                let why = format!("the host asks for more than a password: {text}");
                Failure::not_let_in(target, &why, said.tried())
            });
        }
        let Some(password) = &target.password else {
            let why = format!("ssh asks for what netplay doesn't have: {text}");
            return Err(Failure::not_let_in(target, &why, said.tried()));
        };
        let attempt = match password.attempt(patience) {
            Ok(attempt) => attempt,
            Err(_) if patience.cancelled() => return Err(patience.passed()),
            Err(why) => return Err(Failure::not_let_in(target, why, said.tried())),
        };
        // Who waited for another host has the time of one login once more.
        self.until = patience.within(limit);
        self.answered = Some(said.turns);
        said.tries("the password");
        question.answer(attempt.reveal());
        self.attempt = Some(attempt);
        Ok(())
    }

    /// Why ssh has ended.
    fn refusal(&mut self, said: &Said, seconds: u64) -> Failure {
        if self.answered.is_some_and(|turn| said.turns > turn) {
            self.settle(false);
            return Failure::wrong_password(self.target, said.tried());
        }
        said.refusal(self.target, seconds)
    }
}

/// The client that holds the connection. Ended when dropped.
struct Master {
    child: Child,
    stderr: Option<ChildStderr>,
    socket: PathBuf,
    folder: Arc<Folder>,
    said: Said,
    started: Instant,
}

impl Master {
    fn start(
        client: &Client,
        target: &Target,
        desk: &Desk,
        asked: &Path,
        connect: Duration,
    ) -> std::io::Result<Master> {
        let socket = client.folder.socket();
        let mut command = Command::new("ssh");
        command
            .args(options(client, target, &socket, connect))
            .args(&target.arguments)
            .env("LC_ALL", "C")
            .env("SSH_ASKPASS", asked)
            .env("SSH_ASKPASS_REQUIRE", "force")
            .env(SOCKET, desk.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A group of its own: Ctrl-C reaches netplay alone, and what ssh starts (a proxy) ends with it.
            .process_group(0);
        let mut child = command.spawn()?;
        client.folder.watch(child.id());
        let stderr = child.stderr.take();
        let folder = client.folder.clone();
        let master = Master { child, stderr, socket, folder, said: Said::default(), started: Instant::now() };
        if let Some(stderr) = &master.stderr {
            rustix::io::ioctl_fionbio(stderr, true)?;
        }
        Ok(master)
    }

    /// Hears what ssh has said. It must be heard from time to time: ssh would wait for that.
    fn listen(&mut self) {
        let mut buffer = [0; 8192];
        while let Some(stderr) = &mut self.stderr {
            match stderr.read(&mut buffer) {
                Ok(0) => self.stderr = None,
                Ok(n) => self.said.hear(&buffer[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Why the connection is gone; ssh may be about to say it.
    fn lost(&mut self, target: &Target) -> Failure {
        reap(&mut self.child, Duration::from_millis(500));
        self.listen();
        self.said.lost(target)
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        if !self.has_ended() {
            // The client alone: it ends its proxy, and before that says goodbye through it.
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
            if !reap(&mut self.child, GOODBYE) {
                end_group(&mut self.child);
            }
        }
        self.folder.forget(self.child.id());
        // A client that was killed leaves it behind.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// What netplay has to be sure of, whatever the configuration says.
fn options(client: &Client, target: &Target, socket: &Path, connect: Duration) -> Vec<String> {
    let mut words: Vec<String> = ["-M", "-N", "-T", "-S"].map(Into::into).into();
    words.push(socket.display().to_string());
    let mut set = |key: &str, value: &str| words.extend(["-o".to_owned(), format!("{key}={value}")]);
    // A connection of this run, which stays in the foreground, forwards nothing, and speaks of what it does.
    for (key, value) in [
        ("ControlPersist", "no"),
        ("ForkAfterAuthentication", "no"),
        ("ClearAllForwardings", "yes"),
        ("PermitLocalCommand", "no"),
        ("ForwardX11", "no"),
        ("ForwardAgent", "no"),
        ("Tunnel", "no"),
        ("UpdateHostKeys", "no"),
        ("LogLevel", "DEBUG1"),
        ("NumberOfPasswordPrompts", "1"),
    ] {
        if key != "ForkAfterAuthentication" || client.version >= (8, 7) {
            set(key, value);
        }
    }
    set("BatchMode", if client.version < ASKS_US { "yes" } else { "no" });
    if target.password.is_none() {
        // An empty password would be one more failed login in the host's books.
        set("PasswordAuthentication", "no");
        set("ChallengeResponseAuthentication", "no");
    }
    set("ConnectTimeout", &connect.as_secs().max(1).to_string());
    set("ServerAliveInterval", &target.keepalive.0.to_string());
    set("ServerAliveCountMax", &target.keepalive.1.to_string());
    match target.host_key_checking {
        HostKeyChecking::Yes => set("StrictHostKeyChecking", "yes"),
        HostKeyChecking::AcceptNew => set("StrictHostKeyChecking", "accept-new"),
        HostKeyChecking::No => {
            set("StrictHostKeyChecking", "no");
            // New keys go to the first file; the others are read, for keys that are revoked.
            let files: String = target.known_hosts.iter().map(|f| format!(" \"{}\"", f.display())).collect();
            set("UserKnownHostsFile", &format!("/dev/null{files}"));
        }
    }
    words
}

/// A connection and the executions over it, one after the other.
struct Connection {
    master: Master,
    target: Target,
    executions: u32,
}

impl Connection {
    /// A session in which the request runs.
    fn session(&mut self, request: &str, deadline: &Deadline) -> Result<(Control, Pipes), Failure> {
        let patience = Instant::now() + CHANNEL_PATIENCE;
        loop {
            match self.ask(request, deadline)? {
                Ok(session) => return Ok(session),
                Err(_) if self.executions > 0 && Instant::now() < patience => {
                    std::thread::sleep(deadline.left().min(Duration::from_millis(20)));
                }
                Err(why) => return Err(Failure::no_channel(&why)),
            }
        }
    }

    /// Asks for a session once; ssh's words if the host opens none.
    fn ask(&mut self, request: &str, deadline: &Deadline) -> Result<Result<(Control, Pipes), String>, Failure> {
        let attempt = || -> std::io::Result<(Control, Pipes)> {
            let (their_in, our_in) = std::io::pipe()?;
            let (our_out, their_out) = std::io::pipe()?;
            let (our_err, their_err) = std::io::pipe()?;
            let mut control = Control::connect(&self.master.socket)?;
            control.open(request, [their_in.as_fd(), their_out.as_fd(), their_err.as_fd()])?;
            Ok((control, Pipes::new(our_in.into(), our_out.into(), our_err.into())?))
        };
        let (mut control, pipes) = match attempt() {
            Ok(session) => session,
            Err(_) if self.master.has_ended() => return Err(self.master.lost(&self.target)),
            Err(error) => return Err(Failure::lost(&format!("ssh doesn't answer ({error})"))),
        };
        loop {
            self.master.listen();
            match control.next() {
                Ok(Some(Message::Opened)) => return Ok(Ok((control, pipes))),
                Ok(Some(Message::Refused(why))) => return Ok(Err(why)),
                Ok(Some(Message::Hello(version))) if version != 4 => {
                    return Err(Failure::lost(&format!("ssh speaks version {version} of its protocol, and netplay 4")));
                }
                Ok(Some(_)) => {}
                Ok(None) if deadline.left().is_zero() => return Err(deadline.passed()),
                Ok(None) => control.wait(deadline),
                Err(_) => return Err(self.master.lost(&self.target)),
            }
        }
    }
}

impl Session for Connection {
    fn execute(&mut self, request: &str, dialogue: &mut dyn Dialogue, deadline: &Deadline) -> Result<Exit, Failure> {
        let (control, pipes) = self.session(request, deadline)?;
        self.executions += 1;
        let mut noting = Noting { inner: dialogue, first: Vec::new() };
        let mut remote = Remote { control, connection: self, code: None, over: false };
        let exit = pipes.hold(&mut noting, deadline, &mut remote)?;
        if remote.code.is_none() && exit != Exit::Finished && noting.first.starts_with(DENIED) {
            return Err(Failure::no_commands());
        }
        Ok(exit)
    }
}

/// What ssh writes to a session's standard error when the host refuses to run its command.
const DENIED: &[u8] = b"exec request failed on channel";

/// A dialogue of which the first words on standard error are noted.
struct Noting<'d> {
    inner: &'d mut dyn Dialogue,
    first: Vec<u8>,
}

impl Dialogue for Noting<'_> {
    fn begin(&mut self) -> Reply {
        self.inner.begin()
    }

    fn stdout(&mut self, bytes: &[u8]) -> Reply {
        self.inner.stdout(bytes)
    }

    fn stderr(&mut self, bytes: &[u8]) -> Reply {
        let room = DENIED.len() - self.first.len();
        self.first.extend(&bytes[..bytes.len().min(room)]);
        self.inner.stderr(bytes)
    }
}

/// The command at the other end of the connection.
struct Remote<'c> {
    control: Control,
    connection: &'c mut Connection,
    code: Option<u32>,
    /// Whether the session is over for ssh.
    over: bool,
}

impl Peer for Remote<'_> {
    fn ended(&mut self) -> Result<Option<Exit>, Failure> {
        if let Some(code) = self.code {
            return Ok(Some(Exit::Code(code.cast_signed())));
        }
        if !self.over {
            return Ok(None);
        }
        // A client that is about to end closes this first.
        if reap(&mut self.connection.master.child, Duration::from_millis(100)) {
            let connection = &mut *self.connection;
            return Err(connection.master.lost(&connection.target));
        }
        // ssh tells no code where there was a signal, and doesn't tell which.
        Ok(Some(Exit::Signal("unknown".to_owned())))
    }

    fn attend(&mut self) -> Result<(), Failure> {
        self.connection.master.listen();
        while !self.over {
            match self.control.next() {
                Ok(Some(Message::Exit(code))) => self.code = Some(code),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => self.over = true,
            }
        }
        Ok(())
    }

    fn signs(&self) -> Vec<BorrowedFd<'_>> {
        let mut signs = Vec::new();
        if !self.over {
            signs.push(self.control.sign());
        }
        signs.extend(self.connection.master.stderr.as_ref().map(AsFd::as_fd));
        signs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn which_ssh_there_is_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ssh");
        let says = |text: &str| {
            std::fs::write(&path, format!("#!/bin/sh\necho '{text}' >&2\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
            version(&path).map_err(|f| f.message)
        };
        assert_eq!(says("OpenSSH_9.2p1 Debian-2+deb12u6, OpenSSL 3.0.19"), Ok((9, 2)));
        assert_eq!(says("OpenSSH_10.0p2, LibreSSL"), Ok((10, 0)));
        assert_eq!(
            says("OpenSSH_7.4p1, OpenSSL 1.0.2k").unwrap_err(),
            "the system's ssh is OpenSSH 7.4, and netplay needs 7.6 or later"
        );
        assert_eq!(says("dropbear v2022").unwrap_err(), "the system's ssh isn't OpenSSH: it says dropbear v2022");
        let none = version(&folder.path().join("none")).unwrap_err();
        assert_eq!(none.message, "there is no program `ssh` on this machine");
        assert!(none.hint.unwrap().contains("openssh-client"));
    }
}
