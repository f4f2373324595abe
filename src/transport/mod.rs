//! How netplay reaches a host: one [`Session`] a visit, in which requests are executed one after the other.
//!
//! A transport moves bytes and knows nothing of resources. What is said in an execution is a [`Dialogue`]: the
//! transport calls it with whatever arrives and writes what it answers. Each call ends by its [`Deadline`], whatever
//! the other side does.

mod agent;
pub mod fake;
mod gate;
mod keys;
mod local;
mod openssh;
mod options;
mod refusal;
mod secret;
mod ssh;
mod ssh_config;
pub mod sudo;
mod talk;
mod wait;

pub use crate::secret::Secret;
pub use gate::{Gate, Permit};
pub use keys::Keyring;
pub use local::Local;
pub use openssh::{OpenSsh, askpass};
pub use options::{Defaults, Lookup, become_from_variables};
pub use refusal::never_began;
pub use secret::{Attempt, Password};
pub use ssh::{Knock, Ssh};

use gate::Bastions;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Which transport carries a host's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// libssh2, in this process.
    Ssh2,
    /// The system's OpenSSH client.
    OpenSsh,
    /// This machine itself, by `/bin/sh`.
    Local,
}

/// How host keys are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostKeyChecking {
    /// Only a host whose key is in known_hosts.
    #[default]
    Yes,
    /// An unknown host's key is stored, a changed one refused.
    AcceptNew,
    /// Any key is taken; nothing is stored.
    No,
}

/// A host and all that is needed to log in to it, from the inventory's variables and `~/.ssh/config`.
#[derive(Debug, Clone)]
pub struct Target {
    /// The host's name in the inventory.
    pub host: String,
    /// What carries the session.
    pub carrier: Carrier,
    /// Name or address to connect to.
    pub address: String,
    /// TCP port.
    pub port: u16,
    /// Login name.
    pub user: String,
    /// The login password.
    pub password: Option<Password>,
    /// Private keys to try, in this order; those that don't exist are passed over unless they were named.
    pub identities: Vec<PathBuf>,
    /// Whether only `identities` are tried, also of the agent's keys.
    pub identities_only: bool,
    /// Socket of the agent; nothing for none.
    pub agent: Option<PathBuf>,
    /// How the host's key is checked.
    pub host_key_checking: HostKeyChecking,
    /// known_hosts files; the first is the one that `accept-new` writes.
    pub known_hosts: Vec<PathBuf>,
    /// The name that known_hosts is searched for in place of the address (`HostKeyAlias`).
    pub host_key_alias: Option<String>,
    /// Hosts to go through, the nearest first.
    pub jumps: Vec<Target>,
    /// A command whose standard input and output are the connection.
    pub proxy_command: Option<String>,
    /// Limit for TCP connect; the run's, unless the host has its own.
    pub connect_timeout: Option<Duration>,
    /// Seconds between keepalives, 0 for none, and how many may go unanswered.
    pub keepalive: (u32, u32),
    /// What OpenSSH's client is told: options, the stronger first, and the destination. It finds out for itself what
    /// they and its configuration mean; what the other fields hold of that is for netplay's own use.
    pub arguments: Vec<String>,
}

#[cfg(test)]
impl Target {
    /// `ops` on a host, by its name and nothing else.
    pub(crate) fn for_tests(address: &str) -> Target {
        Target {
            host: address.to_owned(),
            carrier: Carrier::Ssh2,
            address: address.to_owned(),
            port: 22,
            user: "ops".to_owned(),
            password: None,
            identities: Vec::new(),
            identities_only: false,
            agent: None,
            host_key_checking: HostKeyChecking::Yes,
            known_hosts: Vec::new(),
            host_key_alias: None,
            jumps: Vec::new(),
            proxy_command: None,
            connect_timeout: None,
            keepalive: (0, 0),
            arguments: Vec::new(),
        }
    }
}

/// Who runs an execution on the host.
#[derive(Debug, Clone, Default)]
pub enum Identity {
    /// The login user.
    #[default]
    Login,
    /// Another one, by sudo.
    Sudo {
        /// Whom; `root` mostly.
        user: String,
        /// The password that sudo asks for, if there is one.
        password: Option<Password>,
    },
}

/// When a call must have ended, and a flag that ends it before.
#[derive(Debug, Clone)]
pub struct Deadline {
    at: Instant,
    cancel: Arc<AtomicBool>,
    sooner: Option<Arc<OnceLock<Instant>>>,
}

impl Deadline {
    /// A deadline this far from now, cut short when the flag is set.
    pub fn after(time: Duration, cancel: &Arc<AtomicBool>) -> Deadline {
        Deadline { at: Instant::now() + time, cancel: cancel.clone(), sooner: None }
    }

    /// The earlier of this one and one this far from now.
    #[must_use]
    pub fn within(&self, time: Duration) -> Deadline {
        Deadline { at: self.at.min(Instant::now() + time), ..self.clone() }
    }

    /// The same, but that it passes when this says so, once it does.
    #[must_use]
    pub fn or_sooner(&self, at: &Arc<OnceLock<Instant>>) -> Deadline {
        Deadline { sooner: Some(at.clone()), ..self.clone() }
    }

    /// What is left of it; zero when it has passed or was cancelled.
    pub fn left(&self) -> Duration {
        let at = self.sooner.as_ref().and_then(|sooner| sooner.get()).map_or(self.at, |sooner| self.at.min(*sooner));
        if self.cancelled() { Duration::ZERO } else { at.saturating_duration_since(Instant::now()) }
    }

    /// The failure of what went on until it passed.
    pub(crate) fn passed(&self) -> Failure {
        self.over(FailureKind::Timeout, "the deadline passed")
    }

    /// The failure of this kind, or that the run was interrupted.
    pub(crate) fn over(&self, kind: FailureKind, message: impl Into<String>) -> Failure {
        if self.cancelled() {
            Failure::new(FailureKind::Interrupted, "the run was interrupted")
        } else {
            Failure::new(kind, message)
        }
    }

    /// Whether it was cut short.
    pub fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

/// What a [`Dialogue`] wants next.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// More of what comes.
    More,
    /// These bytes written to the other side's standard input, which is then closed if `end`.
    Write {
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether they are the last.
        end: bool,
    },
    /// Nothing more: the execution is over, whether or not the other side has closed its output.
    Finish,
}

/// The conversation of one execution.
pub trait Dialogue {
    /// What is said first.
    fn begin(&mut self) -> Reply;
    /// Bytes of the other side's standard output.
    fn stdout(&mut self, bytes: &[u8]) -> Reply;
    /// Bytes of its standard error.
    fn stderr(&mut self, bytes: &[u8]) -> Reply;
}

/// How an execution ended on the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// The dialogue had enough.
    Finished,
    /// With this exit code.
    Code(i32),
    /// By this signal (`KILL`).
    Signal(String),
}

/// Why there is no session, or no longer one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its kind, which scripts see as `error.kind`.
    pub kind: FailureKind,
    /// What happened, in one sentence without a full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into(), hint: None }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The kinds of [`Failure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The name has no address.
    Name,
    /// No TCP connection: refused, no route, or no answer in time.
    Connect,
    /// The other side isn't an SSH server, or none that we can talk to, or says nothing.
    Handshake,
    /// It is an SSH server, and fell silent in the key exchange, when packets are larger.
    KeyExchange,
    /// Its host key is unknown, has changed, or was revoked.
    HostKey,
    /// It doesn't let us in.
    Login,
    /// It let us in and refuses to run what we ask (a forced command, a disabled account, no further sessions).
    Refused,
    /// The session broke.
    Lost,
    /// The deadline passed.
    Timeout,
    /// The run was interrupted.
    Interrupted,
}

impl FailureKind {
    /// As scripts see it.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Name => "name",
            FailureKind::Connect => "connect",
            FailureKind::Handshake => "handshake",
            FailureKind::KeyExchange => "key_exchange",
            FailureKind::HostKey => "host_key",
            FailureKind::Login => "login",
            FailureKind::Refused => "refused",
            FailureKind::Lost => "lost",
            FailureKind::Timeout => "timeout",
            FailureKind::Interrupted => "interrupted",
        }
    }
}

/// Opens sessions. Shared by all visits of a run.
pub trait Transport: Send + Sync {
    /// Connects and logs in. A permit of `gate` is held from the TCP connection to the end of the login.
    ///
    /// # Errors
    /// Why there is no session.
    fn connect(&self, target: &Target, gate: &Gate, deadline: &Deadline) -> Result<Box<dyn Session>, Failure>;

    /// Where a [`Knock`] tells whether a host is there at all; nothing where that would say nothing, as it isn't reached directly.
    fn door(&self, _target: &Target, _deadline: &Deadline) -> Option<SocketAddr> {
        None
    }
}

/// A session with one host. Dropping it ends it at once and never waits for the other side.
pub trait Session: Send {
    /// Runs one request by the login shell and holds the dialogue with it. What the other side's standard error says
    /// is read as it comes, so that neither side ever waits for the other. After a failure the session is useless.
    ///
    /// # Errors
    /// The session broke, the deadline passed, or the request was refused.
    fn execute(&mut self, request: &str, dialogue: &mut dyn Dialogue, deadline: &Deadline) -> Result<Exit, Failure>;
}

/// How long the parts of a connect may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// TCP, for hosts without a limit of their own.
    pub connect: Duration,
    /// From the TCP connection to the end of the login.
    pub login: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connect: Duration::from_secs(10), login: Duration::from_secs(30) }
    }
}

/// Names of key files in `~/.ssh` that are tried without being named.
const USUAL_KEYS: [&str; 3] = ["id_ed25519", "id_ecdsa", "id_rsa"];

/// The transports of a run: each target by its own.
#[derive(Debug)]
pub struct Carriers {
    ssh: Ssh,
    openssh: OpenSsh,
    local: Local,
}

impl Carriers {
    /// With these limits for SSH and these keys unlocked. OpenSSH's client runs `asked` when it wants a password: a
    /// program that begins with [`askpass`].
    pub fn new(limits: Limits, keyring: Keyring, asked: PathBuf) -> Carriers {
        let (bastions, keyring) = (Arc::new(Bastions::default()), Arc::new(keyring));
        Carriers {
            ssh: Ssh::new(limits, bastions.clone(), keyring.clone()),
            openssh: OpenSsh::new(limits, bastions, keyring, asked),
            local: Local::new(),
        }
    }

    /// The same with what is local done in another root folder.
    #[must_use]
    pub fn in_root(self, root: &Path) -> Carriers {
        Carriers { local: Local::in_root(root), ..self }
    }
}

impl Transport for Carriers {
    fn connect(&self, target: &Target, gate: &Gate, deadline: &Deadline) -> Result<Box<dyn Session>, Failure> {
        match target.carrier {
            Carrier::Ssh2 => self.ssh.connect(target, gate, deadline),
            Carrier::OpenSsh => self.openssh.connect(target, gate, deadline),
            Carrier::Local => self.local.connect(target, gate, deadline),
        }
    }

    fn door(&self, target: &Target, deadline: &Deadline) -> Option<SocketAddr> {
        (target.carrier == Carrier::Ssh2).then(|| self.ssh.door(target, deadline))?
    }
}
