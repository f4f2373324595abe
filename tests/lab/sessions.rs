//! What the tests of the transport alone are written with: sessions that they open themselves, keys and agents.

use crate::harness::{Host, env};
use netplay::source::{Source, Span};
use netplay::transport::sudo::{self, Elevated, Refusal};
use netplay::transport::{
    Carrier, Carriers, Deadline, Defaults, Dialogue, Exit, Failure, Gate, HostKeyChecking, Identity, Keyring, Limits,
    Password, Reply, Secret, Session, Target, Transport,
};
use netplay::yaml::Node;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Runs work in a thread that is in the controller's network namespace, where the hosts can be reached; threads that
/// it starts are there, too.
pub(crate) fn in_controller(work: impl FnOnce() + Send) {
    let enter_and_work = || {
        let mut holder = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/lab"))
            .args(["ctl", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        holder.stdout.as_mut().unwrap().read_exact(&mut [0]).expect("a process in the controller's namespace");
        let namespace = File::open(format!("/proc/{}/ns/net", holder.id())).unwrap();
        let network = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(namespace.as_fd(), network).unwrap();
        drop(holder.stdin.take());
        holder.wait().unwrap();
        work();
    };
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(enter_and_work).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// A dialogue that sends a script and keeps what comes, until a word comes.
pub(crate) struct Talk {
    script: Vec<u8>,
    until: &'static str,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Dialogue for Talk {
    fn begin(&mut self) -> Reply {
        Reply::Write { bytes: std::mem::take(&mut self.script), end: true }
    }
    fn stdout(&mut self, bytes: &[u8]) -> Reply {
        self.out.push_str(&String::from_utf8_lossy(bytes));
        if !self.until.is_empty() && self.out.contains(self.until) { Reply::Finish } else { Reply::More }
    }
    fn stderr(&mut self, bytes: &[u8]) -> Reply {
        self.err.push_str(&String::from_utf8_lossy(bytes));
        Reply::More
    }
}

pub(crate) fn talk(script: impl Into<Vec<u8>>, until: &'static str) -> Talk {
    Talk { script: script.into(), until, out: String::new(), err: String::new() }
}

pub(crate) fn within(seconds: u64) -> Deadline {
    Deadline::after(Duration::from_secs(seconds), &Arc::new(AtomicBool::new(false)))
}

/// A login with the lab's key, on a host by its address.
pub(crate) fn target(over: Carrier, host: Host<'_>, user: &str) -> Target {
    Target {
        host: host.0.to_owned(),
        carrier: over,
        address: host.address(),
        port: 22,
        user: user.to_owned(),
        password: None,
        identities: vec![env("LAB_KEY_ED25519").into()],
        identities_only: false,
        agent: None,
        host_key_checking: HostKeyChecking::Yes,
        known_hosts: vec![env("LAB_KNOWN_HOSTS").into()],
        host_key_alias: None,
        jumps: Vec::new(),
        proxy_command: None,
        connect_timeout: None,
        keepalive: (15, 3),
        arguments: Vec::new(),
    }
}

/// A login that fails takes up to 5 s: PAM lets one wait for about 2 s (pam_unix), by chance more or less, and sshd
/// rounds that up to its own delay of 5 to 10 ms times a power of two (`ensure_minimum_time_since` in auth2.c; 2.6 s
/// became 4.5 s here). Only tests of hosts that say nothing give it less.
pub(crate) const LOGIN: Duration = Duration::from_secs(20);

pub(crate) fn connect(target: &Target, login: Duration) -> Result<Box<dyn Session>, Failure> {
    let limits = Limits { connect: Duration::from_secs(3), login };
    carriers(limits).connect(&told(target), &Gate::new(16), &within(30))
}

pub(crate) fn carriers(limits: Limits) -> Carriers {
    Carriers::new(limits, Keyring::default(), env!("CARGO_BIN_EXE_netplay").into())
}

/// The target with what OpenSSH's client has to be told of it, unless that is there already.
pub(crate) fn told(target: &Target) -> Target {
    let mut target = target.clone();
    if target.carrier == Carrier::OpenSsh && target.arguments.is_empty() {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let files: Vec<String> = target.known_hosts.iter().map(|p| path(p)).collect();
        let mut options = vec![
            // The usual one costs both sides together a fifth of a second.
            "KexAlgorithms=curve25519-sha256".to_owned(),
            format!("UserKnownHostsFile={}", files.join(" ")),
            "GlobalKnownHostsFile=/dev/null".to_owned(),
            format!("IdentitiesOnly={}", if target.identities_only { "yes" } else { "no" }),
            format!("IdentityAgent={}", target.agent.as_deref().map_or("none".to_owned(), path)),
        ];
        options.extend(target.identities.is_empty().then(|| "IdentityFile=none".to_owned()));
        options.extend(target.proxy_command.iter().map(|command| format!("ProxyCommand={command}")));
        let (port, user) = (target.port.to_string(), target.user.clone());
        target.arguments = ["-F", "none", "-p", &port, "-l", &user].map(str::to_owned).into();
        target.arguments.extend(options.into_iter().flat_map(|option| ["-o".to_owned(), option]));
        target.arguments.extend(target.identities.iter().flat_map(|p| ["-i".to_owned(), path(p)]));
        target.arguments.extend(["--".to_owned(), target.address.clone()]);
    }
    target
}

/// A host that these arguments of ssh lead to.
pub(crate) fn with_arguments(over: Carrier, host: Host<'_>, arguments: &str) -> Target {
    let span = Span::start(&Source::new("test", ""));
    let lookup = |name: &str| {
        Ok(match name {
            "ansible_ssh_common_args" => Some(Node::string(&span, arguments)),
            "netplay_transport" if over == Carrier::OpenSsh => Some(Node::string(&span, "openssh")),
            _ => None,
        })
    };
    Target::from_variables(host.0, &lookup, &Defaults::load().unwrap()).unwrap()
}

/// Makes a pair of keys without a passphrase.
pub(crate) fn keygen(path: &Path) -> PathBuf {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
    assert!(made.unwrap().success());
    path.to_owned()
}

/// An agent of a test's own, in a folder.
pub(crate) struct Agent(Child, pub(crate) PathBuf);

impl Agent {
    pub(crate) fn start(folder: &Path) -> Agent {
        let socket = folder.join("agent");
        let child = Command::new("ssh-agent").args(["-D", "-a"]).arg(&socket).stdout(Stdio::null()).spawn().unwrap();
        while !socket.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Agent(child, socket)
    }

    pub(crate) fn add(&self, key: &Path) {
        let added = Command::new("ssh-add").arg("-q").arg(key).env("SSH_AUTH_SOCK", &self.1).status().unwrap();
        assert!(added.success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[track_caller]
pub(crate) fn session(target: &Target) -> Box<dyn Session> {
    connect(target, LOGIN).unwrap_or_else(|f| panic!("{:?} {} ({:?})", f.kind, f.message, f.hint))
}

#[track_caller]
pub(crate) fn failure(target: &Target) -> Failure {
    failure_within(target, LOGIN)
}

#[track_caller]
pub(crate) fn failure_within(target: &Target, login: Duration) -> Failure {
    match connect(target, login) {
        Ok(_) => panic!("a session with {}", target.host),
        Err(failure) => failure,
    }
}

/// Runs a script by the login shell's sh.
pub(crate) fn run(session: &mut dyn Session, script: &str) -> (Result<Exit, Failure>, Talk) {
    let mut talk = talk(script, "");
    let request = sudo::request(&Identity::Login, "", "n");
    (session.execute(&request, &mut talk, &within(20)), talk)
}

/// Becomes somebody and asks who that is: the answer, or why not, and what the exit was.
pub(crate) fn identity_of(
    session: &mut dyn Session,
    login: &str,
    identity: &Identity,
) -> (String, Option<Refusal>, Exit) {
    let mut inner = talk("{ printf '\\nnonce begin\\n'; id -un; echo \"$1\" | wc -w; exit 0; }\n", "");
    let deadline = within(10);
    let mut elevated = Elevated::new(&mut inner, identity, login, "f00d", &deadline);
    let exit = session.execute(&sudo::request(identity, login, "f00d"), &mut elevated, &deadline).unwrap();
    let refusal = elevated.refusal(Some(&exit));
    drop(elevated);
    (inner.out.split_once("nonce begin\n").map(|(_, rest)| rest.to_owned()).unwrap_or_default(), refusal, exit)
}

pub(crate) fn root(password: Option<&str>) -> Identity {
    Identity::Sudo { user: "root".into(), password: password.map(|p| Password::stored(Secret::new(p))) }
}
