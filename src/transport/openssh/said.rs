//! What ssh says of a connection on its standard error, at LogLevel DEBUG1, and what that means.
//!
//! The words are those of OpenSSH's sshconnect.c, sshconnect2.c, kex.c, hostfile.c, channels.c and clientloop.c; they are
//! in English in every locale. Where they are unknown, the last of them are told as they are.

use super::super::refusal::REFUSES;
use super::super::{Failure, FailureKind, Target};
use std::path::Path;

/// How many lines are kept of what isn't understood at once, and how long each may be.
const KEPT: usize = 60;
const LONGEST: usize = 1000;

/// What was said so far.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The bytes of a line that isn't complete.
    rest: Vec<u8>,
    /// What isn't for debugging: errors and warnings, of ssh and of those that it started, and the host's banner.
    lines: Vec<String>,
    /// What each address of the host did.
    refusals: Vec<String>,
    /// Whether TCP, or what stands for it, is connected.
    established: bool,
    /// What the other side said before it named itself.
    preamble: Vec<String>,
    /// How it named itself.
    software: Option<String>,
    /// Its host key: type and fingerprint.
    key: Option<(String, String)>,
    /// How often it said which methods it accepts,
    pub(super) turns: usize,
    /// and which those are.
    methods: Option<String>,
    tried: Vec<String>,
}

impl Said {
    /// Takes in what came.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.rest);
                self.line(String::from_utf8_lossy(&line).trim_end());
            } else if self.rest.len() < LONGEST {
                self.rest.push(*byte);
            }
        }
    }

    fn line(&mut self, line: &str) {
        let Some(debug) = line.strip_prefix("debug1: ") else {
            // `Warning: Identity file /x not accessible: No such file or directory.`
            let missing = line.strip_prefix("Warning: Identity file ").and_then(|l| l.split_once(" not accessible: "));
            let missing = missing.or_else(|| line.strip_prefix("no such identity: ").and_then(|l| l.split_once(": ")));
            if let Some((path, why)) = missing {
                self.no_identity(path, why);
            } else if self.lines.len() < KEPT && !line.trim().is_empty() {
                self.lines.push(line.chars().filter(|c| !c.is_control()).collect());
            }
            return;
        };
        let after = |start: &str| debug.strip_prefix(start);
        if debug == "Connection established." || debug.starts_with("Executing proxy command") {
            self.established = true;
        } else if let Some((to, why)) = after("connect to address ").and_then(|d| d.split_once(": ")) {
            // `10.99.1.1 port 22`
            let (address, port) = to.split_once(" port ").unwrap_or((to, ""));
            let address =
                if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
            self.refusals.push(format!("{address} {}", does(why)));
        } else if let Some((_, text)) =
            after("kex_exchange_identification: banner line ").and_then(|d| d.split_once(": "))
        {
            if self.preamble.len() < 3 {
                self.preamble.push(text.to_owned());
            }
        } else if let Some((_, name)) = debug.split_once("remote software version ") {
            self.software.get_or_insert_with(|| name.chars().take(80).collect());
        } else if let Some(key) = after("Server host key: ").or_else(|| after("Server host certificate: ")) {
            if let Some((kind, rest)) = key.split_once(' ') {
                let print = rest.split([' ', ',']).next().unwrap_or(rest);
                self.key.get_or_insert_with(|| (kind.to_owned(), print.to_owned()));
            }
        } else if let Some(methods) = after("Authentications that can continue: ") {
            self.turns += 1;
            self.methods = Some(methods.to_owned());
        } else if let Some(offer) = after("Offering public key: ") {
            // `NAME TYPE SHA256:… explicit agent`
            let Some((name, rest)) = offer.split_once(" SHA256:") else { return };
            let name = name.rsplit_once(' ').map_or(name, |(name, _)| name);
            self.tried.push(if rest.ends_with(" agent") { format!("the agent's key {name}") } else { name.to_owned() });
        } else if let Some(path) = after("Trying private key: ") {
            // ssh says so of keys of usual names that aren't there, too.
            if Path::new(path).exists() {
                self.tried.push(path.to_owned());
            }
        } else if let Some((path, why)) = after("no such identity: ").and_then(|d| d.split_once(": ")) {
            self.no_identity(path, why);
        }
    }

    fn no_identity(&mut self, path: &str, why: &str) {
        let why =
            if why.starts_with("No such file") { "doesn't exist".to_owned() } else { format!("can't be read ({why})") };
        self.tried.push(format!("{path} {why}"));
    }

    /// Whether TCP, or what stands for it, is connected.
    pub(super) fn established(&self) -> bool {
        self.established
    }

    /// Notes something that was tried.
    pub(super) fn tries(&mut self, what: impl Into<String>) {
        self.tried.push(what.into());
    }

    /// What was tried to log in.
    pub(super) fn tried(&self) -> &[String] {
        &self.tried
    }

    fn find(&self, part: &str) -> Option<&str> {
        self.lines.iter().map(String::as_str).find(|line| line.contains(part))
    }

    fn after(&self, part: &str) -> Option<&str> {
        self.find(part).and_then(|line| line.split_once(part)).map(|(_, rest)| rest)
    }

    /// Why ssh has ended before there was a session.
    pub(super) fn refusal(&self, target: &Target, seconds: u64) -> Failure {
        if self.methods.is_some() {
            return self.login_refusal(target);
        }
        if let Some(failure) = self.key_refusal(target).or_else(|| self.way_refusal(target, seconds)) {
            return failure;
        }
        let closed = ["Connection closed by", "Connection reset by", "Connection closed by remote host"];
        let closed = closed.iter().any(|part| self.find(part).is_some());
        match &self.software {
            None => match self.preamble.first() {
                Some(line) if !line.contains("MaxStartups") && !line.starts_with("Not allowed") => {
                    Failure::no_ssh_server(line)
                }
                _ if self.find("banner line contains invalid characters").is_some() => Failure::new(
                    FailureKind::Handshake,
                    "what answers isn't an SSH server: it says something that is no text",
                )
                .hint("is the port right (ansible_port)?"),
                _ if self.find("timed out").is_some() => silent(target, seconds),
                _ if closed => Failure::dropped(),
                _ => self.other(FailureKind::Handshake),
            },
            Some(_) if self.find("timed out").is_some() => Failure::no_key_exchange(seconds),
            Some(name) => {
                let why = self.after("Unable to negotiate with ").and_then(|l| l.split_once(": ")).map(|(_, why)| why);
                let why = why.unwrap_or(if closed { "the host closed the connection" } else { self.last() });
                let failure = format!("the key exchange with the host's {name} failed: {why}");
                Failure::new(FailureKind::Handshake, failure).hint("its sshd's log says why")
            }
        }
    }

    /// What is wrong on the way to the host: ssh's own options, its name, TCP, a bastion, a proxy command.
    fn way_refusal(&self, target: &Target, seconds: u64) -> Option<Failure> {
        let bastion = target.jumps.last();
        let of = |name: &str| target.jumps.iter().find(|j| [j.host.as_str(), j.address.as_str()].contains(&name));
        let named = |failure: Failure, name: &str| match of(name) {
            Some(bastion) => failure.of_bastion(bastion),
            None => failure,
        };
        for part in
            ["ad configuration option", "unknown option", "illegal option", "command-line line 0: ", "usage: ssh "]
        {
            if let Some(line) = self.find(part).filter(|_| !self.established) {
                let failure = Failure::new(FailureKind::Connect, format!("ssh doesn't take its options: {line}"));
                return Some(failure.hint("see ansible_ssh_common_args, ansible_ssh_extra_args and ~/.ssh/config"));
            }
        }
        if let Some((name, why)) = self.after("Could not resolve hostname ").and_then(|l| l.split_once(": ")) {
            return Some(named(Failure::no_name(name, why), name));
        }
        if !self.refusals.is_empty() && !self.established {
            let timed = |r: &String| r.replace("doesn't answer", &format!("doesn't answer ({seconds} s)"));
            return Some(Failure::no_connection(&self.refusals.iter().map(timed).collect::<Vec<_>>()));
        }
        if let Some((to, why)) = self.after("connect to host ").and_then(|l| l.split_once(": ")) {
            let (name, port) = to.split_once(" port ").unwrap_or((to, ""));
            return Some(named(Failure::no_connection(&[format!("{name}:{port} {}", does(why))]), name));
        }
        if let (Some(bastion), Some(_)) = (bastion, self.find("stdio forwarding failed")) {
            let why = self.after("open failed: ").unwrap_or("forwarding failed");
            return Some(Failure::not_through(bastion, target, why));
        }
        // Of who asks on the way, only a bastion's ssh says this before the host's own methods are known.
        if let Some(line) = self.find(": Permission denied (") {
            let (who, methods) = line.split_once(": Permission denied (")?;
            let (user, name) = who.rsplit_once('@').unwrap_or(("", who));
            let asked = of(name).cloned().unwrap_or_else(|| Target { user: user.to_owned(), ..target.clone() });
            let methods = methods.trim_end_matches(['.', ')']);
            return Some(named(Failure::no_key_taken(&Target { user: user.to_owned(), ..asked }, methods, &[]), name));
        }
        if let Some(bastion) = bastion {
            // Two say it: the bastion's ssh, and the one that was to go through it.
            let dropped = self.lines.iter().filter(|l| l.starts_with("kex_exchange_identification: ")).count() > 1;
            return dropped.then(|| Failure::dropped().of_bastion(bastion));
        }
        if target.proxy_command.is_some() && self.software.is_none() {
            let ours = |line: &&String| {
                !line.starts_with("kex_exchange_identification: ") && !line.contains(" by UNKNOWN port 65535")
            };
            let said: Vec<&str> = self.lines.iter().filter(ours).map(String::as_str).collect();
            let failure = Failure::dropped();
            return Some(match said.is_empty() {
                true => failure,
                false => Failure {
                    message: format!("{}; the proxy command says: {}", failure.message, said.join(" ")),
                    ..failure
                },
            });
        }
        None
    }

    /// That the host's key is one that isn't to be trusted any more.
    pub(super) fn revoked(&self) -> Option<Failure> {
        // `The ED25519 host key for 10.99.1.1 is marked as revoked.`
        self.find("is marked as revoked").map(|_| Failure::revoked_key("a known_hosts file"))
    }

    /// What ssh holds against the host's key, or a bastion's.
    fn key_refusal(&self, target: &Target) -> Option<Failure> {
        let other = |line: &str| Failure::new(FailureKind::HostKey, line.trim_end_matches('.'));
        let Some((kind, print)) = &self.key else {
            let line = self.find("host key is known for").or_else(|| self.find("Host key verification failed"))?;
            let failure = other(line).hint("log in to it once by ssh and say yes");
            let bastion = target.jumps.iter().find(|j| line.contains(&j.address)).or(target.jumps.last())?;
            return Some(failure.of_bastion(bastion));
        };
        if let Some(failure) = self.revoked() {
            return Some(failure);
        }
        if self.find("HOST IDENTIFICATION HAS CHANGED").is_some() {
            // `Offending ED25519 key in /root/.ssh/known_hosts:2`
            let offending = self.after("Offending ").and_then(|l| l.split_once(" key in "));
            let (old, place) = offending.unwrap_or(("", "known_hosts:0"));
            let (file, line) = place.rsplit_once(':').unwrap_or((place, "0"));
            let shows = format!("{kind} {print}");
            let old = format!("another {old} key");
            return Some(Failure::changed_key(target, &shows, Path::new(file), line.parse().unwrap_or(0), &old));
        }
        if self.find("host key is known for").is_some() {
            return Some(Failure::unknown_key(target, kind, print));
        }
        let line = self.find("Certificate invalid").or_else(|| self.find("Host key verification failed"))?;
        Some(other(line).hint("try it by hand: ssh -v"))
    }

    /// Why the host didn't let us in.
    fn login_refusal(&self, target: &Target) -> Failure {
        let methods = self.methods.as_deref().unwrap_or_default();
        if self.find("Too many authentication failures").is_some() {
            return Failure::too_many_keys(target, &self.tried);
        }
        if self.find("authentication is disabled to avoid man-in-the-middle").is_some() {
            return Failure::not_let_in(target, "ssh gives no password to a host whose key has changed", &self.tried);
        }
        if self.find("Permission denied").is_none() {
            return match self.lines.last() {
                Some(line) if !line.contains("Connection closed") && !line.contains("Connection reset") => {
                    Failure::not_let_in(target, line, &self.tried)
                }
                _ => Failure::too_many_keys(target, &self.tried),
            };
        }
        let takes_password = methods.split(',').any(|m| matches!(m, "password" | "keyboard-interactive"));
        if target.password.is_some() && !takes_password {
            let why = format!("the host accepts no password, only {methods}");
            return Failure::not_let_in(target, &why, &self.tried);
        }
        let failure = Failure::no_key_taken(target, methods, &self.tried);
        match self.lines.iter().rev().find(|l| l.starts_with("sign_and_send_pubkey: ") || l.starts_with("Load key ")) {
            Some(line) => Failure { message: format!("{}; ssh says: {line}", failure.message), ..failure },
            None => failure,
        }
    }

    /// Why there is no session although ssh is still at it.
    pub(super) fn late(&self, target: &Target, seconds: u64) -> Failure {
        match (&self.methods, &self.software) {
            (None, None) if !self.established => {
                Failure::no_connection(&[format!("{}:{} doesn't answer ({seconds} s)", target.address, target.port)])
            }
            (None, None) => silent(target, seconds),
            (None, Some(_)) if self.key.is_none() => Failure::no_key_exchange(seconds),
            (None, Some(_)) => match &target.agent {
                // The agent is asked before the host is.
                Some(agent) => Failure::new(
                    FailureKind::Login,
                    format!(
                        "the login as {} didn't begin: the host, or the agent at {}, doesn't answer",
                        target.user,
                        agent.display()
                    ),
                )
                .hint("unset SSH_AUTH_SOCK, or name a key by ansible_ssh_private_key_file and set IdentityAgent none"),
                None => Failure::slow_login(&target.user),
            },
            (Some(_), _) => Failure::slow_login(&target.user),
        }
    }

    /// Why a session broke off.
    pub(super) fn lost(&self, target: &Target) -> Failure {
        let (interval, limit) = target.keepalive;
        // `Timeout, server 10.99.1.1 not responding.`
        if self.find("not responding").is_some() {
            return Failure::silent(limit, u64::from(interval) * u64::from(limit + 1));
        }
        if self.find("closed by remote host").is_some() || self.find("Connection closed by").is_some() {
            return Failure::lost("the host closed the connection");
        }
        if ["eset by", "Broken pipe"].iter().any(|part| self.find(part).is_some()) {
            return Failure::lost("the connection was reset");
        }
        Failure::lost(&format!("ssh has ended: {}", self.last()))
    }

    fn other(&self, kind: FailureKind) -> Failure {
        Failure::new(kind, format!("ssh has ended: {}", self.last())).hint("try it by hand: ssh -v")
    }

    fn last(&self) -> &str {
        self.lines.last().map_or("it says nothing", String::as_str)
    }
}

/// The failure of a host that hasn't named itself, or of a bastion before it: which of them isn't known.
fn silent(target: &Target, seconds: u64) -> Failure {
    match target.jumps.last() {
        Some(bastion) => Failure::not_through(bastion, target, &format!("no answer in {seconds} s")),
        None => Failure::no_banner(seconds),
    }
}

/// What an address does, by the error that connecting to it gave.
fn does(error: &str) -> String {
    match error {
        "Connection refused" => REFUSES.to_owned(),
        "No route to host" | "Network is unreachable" => "has no route to it".to_owned(),
        "Connection timed out" | "Operation timed out" => "doesn't answer".to_owned(),
        error => format!("fails ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Password, Secret};
    use super::*;

    /// What is said before the login, by OpenSSH 9.2.
    const CONNECTED: &str = "debug1: Connecting to 10.99.1.2 [10.99.1.2] port 22.\ndebug1: Connection established.\n";
    const NAMED: &str =
        "debug1: Remote protocol version 2.0, remote software version OpenSSH_9.2p1 Debian-2+deb12u10\n";
    const KEY: &str = "debug1: Server host key: ssh-ed25519 SHA256:DjyhFmgi\n";
    const METHODS: &str = "debug1: Authentications that can continue: publickey,password\n";
    const CLOSED: &str = "kex_exchange_identification: Connection closed by remote host\n";

    fn target() -> Target {
        Target { address: "10.99.1.2".into(), ..Target::for_tests("gpu1") }
    }

    fn behind() -> Target {
        Target { jumps: vec![Target { address: "10.0.0.1".into(), ..Target::for_tests("gw") }], ..target() }
    }

    #[track_caller]
    fn told(target: &Target, parts: &[&str], kind: FailureKind, message: &str) -> String {
        let mut said = Said::default();
        // However it arrives.
        for byte in parts.concat().as_bytes() {
            said.hear(&[*byte]);
        }
        let failure = said.refusal(target, 3);
        assert_eq!((failure.kind, failure.message.as_str()), (kind, message));
        failure.hint.unwrap_or_default()
    }

    #[test]
    fn the_way_to_a_host() {
        use FailureKind::{Connect, Handshake, Login, Name};
        let refused = "debug1: connect to address ::1 port 23: Connection refused\n\
                       debug1: connect to address 10.99.1.2 port 23: Connection timed out\n\
                       ssh: connect to host gpu1 port 23: Connection timed out\n";
        told(&target(), &[refused], Connect, "no connection: [::1]:23 refuses it, 10.99.1.2:23 doesn't answer (3 s)");
        let unknown = "ssh: Could not resolve hostname gpu1: Name or service not known\r\n";
        told(&target(), &[unknown], Name, "gpu1 can't be resolved: Name or service not known");
        let gw = "ssh: connect to host 10.0.0.1 port 22: No route to host\n";
        let proxy = "debug1: Executing proxy command: exec ssh -W '[10.99.1.2]:22' gw\n";
        let end = "Connection closed by UNKNOWN port 65535\n";
        told(
            &behind(),
            &[proxy, gw, CLOSED, end],
            Connect,
            "bastion gw: no connection: 10.0.0.1:22 has no route to it",
        );
        let through = "channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed\n";
        told(
            &behind(),
            &[proxy, through, CLOSED, end],
            Connect,
            "the bastion gw doesn't get through to 10.99.1.2:22: connect failed: Connection refused",
        );
        let denied = "root@10.0.0.1: Permission denied (publickey).\n";
        told(
            &behind(),
            &[proxy, denied, CLOSED, end],
            Login,
            "bastion gw: root isn't let in: the host accepts publickey; nothing to try",
        );
        let dropped = "the host closed the connection before it said anything";
        told(&behind(), &[proxy, CLOSED, CLOSED, end], Handshake, &format!("bastion gw: {dropped}"));
        told(&behind(), &[proxy, CLOSED, end], Handshake, dropped);
        let by_command = Target { proxy_command: Some("x".into()), ..target() };
        told(
            &by_command,
            &[proxy, "no way\n", CLOSED, end],
            Handshake,
            &format!("{dropped}; the proxy command says: no way"),
        );
        let hint = told(
            &target(),
            &["command-line: line 0: Bad configuration option: foobar\n"],
            Connect,
            "ssh doesn't take its options: command-line: line 0: Bad configuration option: foobar",
        );
        assert!(hint.contains("ansible_ssh_common_args"));
    }

    #[test]
    fn handshakes() {
        use FailureKind::Handshake;
        let ended = "Connection closed by 10.99.1.2 port 22\n";
        let preamble = "debug1: kex_exchange_identification: banner line 0: ";
        let dropped = "the host closed the connection before it said anything";
        told(&target(), &[CONNECTED, CLOSED, ended], Handshake, dropped);
        told(&target(), &[CONNECTED, preamble, "Exceeded MaxStartups\n", CLOSED, ended], Handshake, dropped);
        let http = [CONNECTED, preamble, "HTTP/1.1 400 Bad Request\n", CLOSED, ended];
        told(&target(), &http, Handshake, "what answers isn't an SSH server: it says HTTP/1.1 400 Bad Request");
        let late = "Connection timed out during banner exchange\n";
        let unnamed = "the host accepted the connection and didn't name itself as an SSH server within 3 s";
        told(&target(), &[CONNECTED, late], Handshake, unnamed);
        let way = "the bastion gw doesn't get through to 10.99.1.2:22: no answer in 3 s";
        told(&behind(), &["debug1: Executing proxy command: exec ssh\n", late], FailureKind::Connect, way);
        let kex = "the key exchange with the host's OpenSSH_9.2p1 Debian-2+deb12u10 failed: ";
        let no_cipher = "no matching cipher found. Their offer: aes128-ctr";
        let unable = format!("Unable to negotiate with 10.99.1.2 port 22: {no_cipher}\n");
        told(&target(), &[CONNECTED, NAMED, &unable], Handshake, &format!("{kex}{no_cipher}"));
        told(&target(), &[CONNECTED, NAMED, ended], Handshake, &format!("{kex}the host closed the connection"));
    }

    #[test]
    fn host_keys() {
        use FailureKind::HostKey;
        let failed = "Host key verification failed.\n";
        let unknown = "No ED25519 host key is known for 10.99.1.2 and you have requested strict checking.\n";
        let hint = told(
            &target(),
            &[CONNECTED, NAMED, KEY, unknown, failed],
            HostKey,
            "the host key of 10.99.1.2 isn't in known_hosts: ssh-ed25519 SHA256:DjyhFmgi",
        );
        assert!(hint.contains("accept-new"), "{hint}");
        let changed = "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n\
                       Offending ED25519 key in /tmp/my kh:7\n";
        let hint = told(
            &target(),
            &[CONNECTED, NAMED, KEY, changed, failed],
            HostKey,
            "the host key of 10.99.1.2 has changed: it shows ssh-ed25519 SHA256:DjyhFmgi, and /tmp/my kh:7 has another \
             ED25519 key",
        );
        assert!(hint.contains("ssh-keygen -f"), "{hint}");
        let revoked = "The ED25519 host key for 10.99.1.2 is marked as revoked.\n";
        let message = "the host shows a key that is revoked by a known_hosts file";
        told(&target(), &[CONNECTED, NAMED, KEY, revoked, failed], HostKey, message);
        let gw = "No ED25519 host key is known for 10.0.0.1 and you have requested strict checking.\n";
        let message = "bastion gw: No ED25519 host key is known for 10.0.0.1 and you have requested strict checking";
        told(&behind(), &[gw, failed, CLOSED], HostKey, message);
    }

    #[test]
    fn logins() {
        use FailureKind::Login;
        let begun = [CONNECTED, NAMED, KEY, METHODS].concat();
        let other = tempfile::NamedTempFile::new().unwrap();
        let other = other.path().display();
        let offers = &format!(
            "Warning: Identity file /none not accessible: No such file or directory.\n\
             debug1: Offering public key: /my key ED25519 SHA256:x explicit\n\
             debug1: Offering public key: me@home RSA SHA256:y agent\ndebug1: Trying private key: {other}\n\
             debug1: Trying private key: /nowhere/id_rsa\n"
        );
        let denied = "ops@10.99.1.2: Permission denied (publickey,password).\n";
        let tried = format!("tried: /none doesn't exist, /my key, the agent's key me@home, {other}");
        let hint = told(
            &target(),
            &[&begun, offers, denied],
            Login,
            &format!("ops isn't let in: the host accepts publickey,password; {tried}"),
        );
        assert!(hint.contains("ansible_user"), "{hint}");
        let many = "Received disconnect from 10.99.1.2 port 22:2: Too many authentication failures\n";
        let hint =
            told(&target(), &[&begun, many], Login, "ops isn't let in: the host ended the login; nothing to try");
        assert!(hint.contains("MaxAuthTries"), "{hint}");
        let with = Target { password: Some(Password::stored(Secret::new("x"))), ..target() };
        let keys_only = METHODS.replace(",password", "");
        told(
            &with,
            &[&begun, &keys_only, "ops@10.99.1.2: Permission denied (publickey).\n"],
            Login,
            "ops isn't let in: the host accepts no password, only publickey; nothing to try",
        );
    }

    #[test]
    fn sessions_that_break() {
        let lost = |text: &str| {
            let mut said = Said::default();
            said.hear(text.as_bytes());
            said.lost(&Target { keepalive: (15, 3), ..target() }).message
        };
        let was = |how: &str| format!("the session was lost: {how}");
        assert_eq!(lost("Timeout, server 10.99.1.2 not responding.\r\n"), was("3 keepalives in 60 s went unanswered"));
        assert_eq!(lost("Connection to 10.99.1.2 closed by remote host.\r\n"), was("the host closed the connection"));
        assert_eq!(lost("client_loop: send disconnect: Broken pipe\r\n"), was("the connection was reset"));
        assert_eq!(lost("odd\n"), was("ssh has ended: odd"));
    }
}
