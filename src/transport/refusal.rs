//! Why a host wasn't reached, didn't let us in, or says something else in place of running a script: the words that all
//! transports have for it.

use super::{Exit, Failure, FailureKind, Target};
use std::path::Path;

/// What an address that nothing listens at does.
pub(super) const REFUSES: &str = "refuses it";

const DROPPED: &str = "the host closed the connection before it said anything";

impl Failure {
    /// Of a connection that was closed at once.
    pub(super) fn dropped() -> Failure {
        Failure::new(FailureKind::Handshake, DROPPED)
            .hint("its sshd may be at its MaxStartups, still starting, or closed to this address")
    }

    /// Whether it is that of [`Failure::dropped`], of the host or of a bastion.
    pub(super) fn is_dropped(&self) -> bool {
        self.kind == FailureKind::Handshake && self.message.ends_with(DROPPED)
    }

    /// The same, of a bastion on the way.
    pub(super) fn of_bastion(self, bastion: &Target) -> Failure {
        Failure { message: format!("bastion {}: {}", bastion.host, self.message), ..self }
    }

    /// Of a name that has no address.
    pub(super) fn no_name(name: &str, why: &str) -> Failure {
        Failure::new(FailureKind::Name, format!("{name} can't be resolved: {why}"))
            .hint("set ansible_host to its address")
    }

    /// Of a TCP connection that didn't come about, by what each address does.
    pub(super) fn no_connection(refusals: &[String]) -> Failure {
        let failure = Failure::new(FailureKind::Connect, format!("no connection: {}", refusals.join(", ")));
        if refusals.iter().all(|r| r.ends_with(REFUSES)) {
            failure.hint("no SSH server listens there; is the port right?")
        } else {
            failure
        }
    }

    /// Of a way that ends at a bastion.
    pub(super) fn not_through(bastion: &Target, to: &Target, why: &str) -> Failure {
        let Target { address, port, .. } = to;
        Failure::new(
            FailureKind::Connect,
            format!("the bastion {} doesn't get through to {address}:{port}: {why}", bastion.host),
        )
        .hint("is it up, is the address right as seen from the bastion, does its sshd allow TCP forwarding?")
    }

    /// Of a host that took the connection and says nothing.
    pub(super) fn no_banner(seconds: u64) -> Failure {
        let message =
            format!("the host accepted the connection and didn't name itself as an SSH server within {seconds} s");
        Failure::new(FailureKind::Handshake, message)
            .hint("its sshd hangs, the host is out of memory, or another service listens on this port")
    }

    /// Of a way that is open, and of which it can't be told whether it or the host at its end is silent.
    pub(super) fn nothing_through(what: &str, seconds: u64) -> Failure {
        Failure::new(FailureKind::Handshake, format!("nothing came through {what} within {seconds} s"))
            .hint("it hangs itself, it doesn't reach the host, or the host's sshd hangs")
    }

    /// Of a proxy command that ended, and how.
    pub(super) fn no_proxy(how: &str) -> Failure {
        Failure::new(FailureKind::Handshake, format!("the proxy command ended before the host said anything: {how}"))
            .hint("run it by hand on this machine")
    }

    /// Of a host that named itself and says nothing more.
    pub(super) fn no_key_exchange(seconds: u64) -> Failure {
        Failure::new(FailureKind::KeyExchange, format!("the host fell silent in the key exchange, for {seconds} s"))
            .hint("small packets pass and large ones may not: is an MTU on the way too small?")
    }

    /// Of something else that listens there.
    pub(super) fn no_ssh_server(says: &str) -> Failure {
        let says: String = says.chars().filter(|c| !c.is_control()).take(80).collect();
        Failure::new(FailureKind::Handshake, format!("what answers isn't an SSH server: it says {says}"))
            .hint("is the port right (ansible_port)?")
    }

    /// Of a login that takes longer than it may.
    pub(super) fn slow_login(user: &str) -> Failure {
        Failure::new(FailureKind::Login, format!("the login as {user} didn't end in time"))
            .hint("the host may wait for its directory service (LDAP, SSSD) or for DNS (UseDNS)")
    }

    /// Of a user who isn't let in, by what was tried.
    pub(super) fn not_let_in(target: &Target, why: &str, tried: &[String]) -> Failure {
        let tried = if tried.is_empty() { "nothing to try".to_owned() } else { format!("tried: {}", tried.join(", ")) };
        let locked = tried.contains(ENCRYPTED);
        let failure = Failure::new(FailureKind::Login, format!("{} isn't let in: {why}; {tried}", target.user));
        if locked {
            failure.hint(
                "add the encrypted key to an agent by ssh-add, or run netplay on a terminal and name the key \
                 (ansible_ssh_private_key_file): it asks for the passphrase then",
            )
        } else {
            failure
        }
    }

    /// The same where no key was taken and there is no password.
    pub(super) fn no_key_taken(target: &Target, methods: &str, tried: &[String]) -> Failure {
        let failure = Failure::not_let_in(target, &format!("the host accepts {methods}"), tried);
        if failure.hint.is_some() {
            return failure;
        }
        failure.hint(
            "is the user right (ansible_user), and is one of the keys in its authorized_keys? keys are named by \
             ansible_ssh_private_key_file or held by an agent; -k asks for a password",
        )
    }

    /// The same where a password was refused.
    pub(super) fn wrong_password(target: &Target, tried: &[String]) -> Failure {
        Failure::not_let_in(target, "the password was refused", tried)
            .hint("set ansible_password, or type it again with -k")
    }

    /// The same where the host had seen enough keys.
    pub(super) fn too_many_keys(target: &Target, tried: &[String]) -> Failure {
        Failure::not_let_in(target, "the host ended the login", tried).hint(
            "its sshd allows a few keys only (MaxAuthTries); IdentitiesOnly with IdentityFile offers the right one",
        )
    }

    /// Of a session for which the host opens no channel.
    pub(super) fn no_channel(why: &str) -> Failure {
        Failure::new(FailureKind::Refused, format!("the host let us in and opens no further session ({why})"))
            .hint("its sshd's MaxSessions is 0, or what was run before hasn't ended")
    }

    /// Of an account that may not run anything.
    pub(super) fn no_commands() -> Failure {
        Failure::new(FailureKind::Refused, "the host refuses to run commands")
            .hint("the account may be for file transfer or forwarding only")
    }

    /// Of a session in which nothing was heard any more.
    pub(super) fn silent(keepalives: u32, seconds: u64) -> Failure {
        Failure::new(
            FailureKind::Lost,
            format!("the session was lost: {keepalives} keepalives in {seconds} s went unanswered"),
        )
        .hint("the host hangs, was cut off, or went down; after that it is unknown how far it got")
    }

    /// Of a session that broke in another way.
    pub(super) fn lost(how: &str) -> Failure {
        Failure::new(FailureKind::Lost, format!("the session was lost: {how}"))
    }

    /// Of a host whose key nobody knows.
    pub(super) fn unknown_key(target: &Target, kind: &str, print: &str) -> Failure {
        let name = known_as(target);
        Failure::new(FailureKind::HostKey, format!("the host key of {name} isn't in known_hosts: {kind} {print}")).hint(
            format!(
                "compare the fingerprint, then {}; or take the keys of new hosts by --host-key-checking accept-new",
                adding(target),
            ),
        )
    }

    /// Of a host with another key than the one that this file has of it.
    pub(super) fn changed_key(target: &Target, shows: &str, file: &Path, line: usize, known: &str) -> Failure {
        let name = known_as(target);
        let file = file.display();
        Failure::new(
            FailureKind::HostKey,
            format!("the host key of {name} has changed: it shows {shows}, and {file}:{line} has {known}"),
        )
        .hint(format!(
            "if the host was reinstalled, forget the old key: ssh-keygen -f {file} -R '{name}'; otherwise somebody may \
             be in between"
        ))
    }

    /// Of a host with a key that is not to be trusted any more; with the place that says so.
    pub(super) fn revoked_key(place: &str) -> Failure {
        Failure::new(FailureKind::HostKey, format!("the host shows a key that is revoked by {place}"))
            .hint("don't connect before the host has a new key")
    }
}

/// What is said of a key that can't be used without its passphrase.
pub(super) const ENCRYPTED: &str = "is encrypted and not in the agent";

/// Whether a question that comes in place of a login asks for a new password.
pub(super) fn asks_for_change(question: &str) -> bool {
    let changes = ["new password", "current password", "old password", "change your password"];
    let question = question.to_lowercase();
    changes.iter().any(|part| question.contains(part))
}

/// The name that known_hosts is searched for.
pub(super) fn known_as(target: &Target) -> String {
    match (&target.host_key_alias, target.port) {
        (Some(alias), _) => alias.to_lowercase(),
        (None, 22) => target.address.to_lowercase(),
        (None, port) => format!("[{}]:{port}", target.address.to_lowercase()),
    }
}

/// How a key gets into known_hosts. What is behind another host, or has an alias, is nothing for ssh-keyscan; ssh asks.
fn adding(target: &Target) -> String {
    let port = |target: &Target| if target.port == 22 { String::new() } else { format!("-p {} ", target.port) };
    let file = target.known_hosts.first().map_or("~/.ssh/known_hosts".into(), |p| p.display().to_string());
    if file == "/dev/null" {
        return "take out UserKnownHostsFile=/dev/null, which keeps no key, and log in once by hand".to_owned();
    }
    let quote = |text: String| shlex::try_quote(&text).map_or(text.clone(), |q| q.into_owned());
    let mut options = String::new();
    match (&target.proxy_command, &target.jumps[..]) {
        (Some(command), _) => options = format!("-o {} ", quote(format!("ProxyCommand={command}"))),
        (None, jumps @ [_, ..]) => {
            let jump = |j: &Target| {
                let address = if j.address.contains(':') { format!("[{}]", j.address) } else { j.address.clone() };
                if j.port == 22 { format!("{}@{address}", j.user) } else { format!("{}@{address}:{}", j.user, j.port) }
            };
            options = format!("-J {} ", jumps.iter().map(jump).collect::<Vec<_>>().join(","));
        }
        (None, []) if target.host_key_alias.is_none() => {
            return format!("add it: ssh-keyscan {}{} >> {file}", port(target), target.address);
        }
        (None, []) => {}
    }
    if let Some(alias) = &target.host_key_alias {
        options += &format!("-o {} ", quote(format!("HostKeyAlias={alias}")));
    }
    if !file.ends_with("/.ssh/known_hosts") {
        options += &format!("-o {} ", quote(format!("UserKnownHostsFile={file}")));
    }
    format!("log in once by hand and say yes: ssh {options}{}{}@{}", port(target), target.user, target.address)
}

/// Why a request was taken and its script gave no sign of having begun, by what was said on both outputs and by how it
/// ended.
pub fn never_began(target: &Target, said: &str, exit: &Exit) -> Failure {
    let has = |part: &str| said.contains(part);
    let user = &target.user;
    // sshd and PAM: pam_unix, session.c.
    if has("Password change required") || has("password has expired") || has("must change your password") {
        return expired(user);
    }
    if has("account has expired") {
        return Failure::new(FailureKind::Login, format!("the account {user} has expired"))
            .hint("extend it by chage -E");
    }
    // nologin(8).
    if has("account is currently not available") {
        return Failure::new(FailureKind::Refused, format!("the account {user} has no login shell"))
            .hint("give it one by chsh, or log in as another user: ansible_user");
    }
    // OpenSSH's session.c, where the session's part of PAM failed; what was said is the message of the day.
    if *exit == Exit::Code(254) {
        return Failure::new(
            FailureKind::Refused,
            format!("the host let {user} in and then, most likely, PAM opened no session (exit code 254)"),
        )
        .hint("the log of its sshd names the module that failed: limits, a home directory, a full disk");
    }
    // A banner comes first, what matters last.
    let line = said.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("nothing at all");
    let line: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
    let how = match exit {
        Exit::Finished => String::new(),
        Exit::Code(code) => format!(", exit code {code}"),
        Exit::Signal(name) => format!(", ended by signal {name}"),
    };
    Failure::new(FailureKind::Refused, format!("the host doesn't run what is asked of it; it says: {line}{how}")).hint(
        "the account needs a login shell and no forced command (ForceCommand in sshd_config, command= in \
             authorized_keys), and the host a /bin/sh",
    )
}

/// The failure of a password that has to be changed first.
pub(super) fn expired(user: &str) -> Failure {
    Failure::new(FailureKind::Login, format!("the password of {user} has expired and has to be changed"))
        .hint("log in once by ssh and change it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_says_is_told() {
        let target = Target::for_tests("a");
        let tell = |said: &str, exit| {
            let failure = never_began(&target, said, &exit);
            (failure.kind, failure.message)
        };
        assert_eq!(
            tell(
                "WARNING: Your password has expired.\nPassword change required but no TTY available.\n",
                Exit::Code(1)
            ),
            (FailureKind::Login, "the password of ops has expired and has to be changed".to_owned())
        );
        assert_eq!(
            tell("This account is currently not available.\n", Exit::Code(1)),
            (FailureKind::Refused, "the account ops has no login shell".to_owned())
        );
        assert_eq!(
            tell("Welcome\nonly\u{7} backups\n\n", Exit::Code(0)),
            (
                FailureKind::Refused,
                "the host doesn't run what is asked of it; it says: only backups, exit code 0".to_owned()
            )
        );
        let (kind, message) = tell("Debian GNU/Linux comes with ABSOLUTELY NO WARRANTY,\n", Exit::Code(254));
        assert_eq!(kind, FailureKind::Refused);
        assert!(message.contains("PAM opened no session") && !message.contains("WARRANTY"), "{message}");
        assert!(tell("", Exit::Signal("KILL".into())).1.ends_with("it says: nothing at all, ended by signal KILL"));
    }
}
