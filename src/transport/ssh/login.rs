//! The login: agent, key files, password.

use super::super::refusal::expired;
use super::super::wait::{SLICE, wait};
use super::super::{Deadline, Failure, FailureKind, Target};
use super::link::{Link, Stop, code, number};
use super::route::over;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::event::{PollFd, PollFlags};
use ssh2::{KeyboardInteractivePrompt, Prompt, Session};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Logs in until `deadline`, or says why not. Where another host tries a typed password first, it waits for that as
/// long as `patience` allows, and has `limit` once more then: one host that hangs must not fail all others.
pub(super) fn login(
    link: &mut Link,
    target: &Target,
    deadline: &Deadline,
    patience: &Deadline,
    limit: Duration,
) -> Result<(), Failure> {
    let user = target.user.as_str();
    let mut tried = Vec::new();
    let lost = |stop: Stop, tried: &[String]| match stop {
        Stop::Interrupted => stop.lost(),
        Stop::Ssh(_) => refused(target, "the host ended the login", tried).hint(
            "its sshd allows a few keys only (MaxAuthTries); IdentitiesOnly with IdentityFile offers the right one",
        ),
        Stop::Late | Stop::Silent(..) => {
            over(deadline, FailureKind::Login, format!("the login as {user} didn't end in time"))
                .hint("the host may wait for its directory service (LDAP, SSSD) or for DNS (UseDNS)")
        }
    };
    let list = |link: &mut Link| link.drive(deadline, |s| s.auth_methods(user).map(str::to_owned));
    let mut methods = list(link).map_err(|stop| lost(stop, &tried))?;
    if link.session.authenticated() {
        return Ok(());
    }
    let accepts = |methods: &str, method: &str| methods.split(',').any(|m| m == method);
    let takes_password = |methods: &str| accepts(methods, "password") || accepts(methods, "keyboard-interactive");
    if accepts(&methods, "publickey") {
        let keys = Keys::of(target);
        let outcome = match &target.agent {
            None => keys.offer(&link.session, &link.socket, None, deadline),
            Some(agent) => beside(link, keys, agent.clone(), deadline)?,
        };
        tried.extend(outcome.tried);
        match outcome.result {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(stop) => return Err(lost(stop, &tried)),
        }
        if !takes_password(&methods) {
            // A key that was taken may be the first half only (AuthenticationMethods); what is missing is told now.
            methods = list(link).unwrap_or(methods);
        }
    }
    let Some(password) = &target.password else {
        let hint = "is the user right (ansible_user), and is one of the keys in its authorized_keys? keys are named by \
                    ansible_ssh_private_key_file or held by an agent; -k asks for a password";
        let failure = refused(target, &format!("the host accepts {methods}"), &tried);
        return Err(if failure.hint.is_none() { failure.hint(hint) } else { failure });
    };
    if !takes_password(&methods) {
        return Err(refused(target, &format!("the host accepts no password, only {methods}"), &tried));
    }
    let again = "set ansible_password, or type it again with -k";
    let attempt = match password.attempt(patience) {
        Ok(attempt) => attempt,
        Err(_) if deadline.cancelled() => return Err(Stop::Interrupted.lost()),
        Err(why) => return Err(refused(target, why, &tried)),
    };
    let deadline = &patience.within(limit);
    let mut prompter = Prompter { password: attempt.reveal().to_owned(), asked: Vec::new() };
    let result = if accepts(&methods, "password") {
        link.drive(deadline, |s| s.userauth_password(user, &prompter.password))
    } else {
        link.drive(deadline, |s| s.userauth_keyboard_interactive(user, &mut prompter))
    };
    tried.push("the password".to_owned());
    match result {
        Ok(()) => {
            attempt.settle(true);
            Ok(())
        }
        Err(stop) if stop.code() == Some(code::PASSWORD_EXPIRED) || prompter.is_change() => {
            attempt.settle(true);
            Err(expired(user))
        }
        Err(stop) if stop.code() == Some(code::AUTHENTICATION_FAILED) => {
            attempt.settle(false);
            Err(match prompter.asked.get(1) {
                Some(second) => refused(target, &format!("the host asks for more than a password: {second}"), &tried),
                None => refused(target, "the password was refused", &tried).hint(again),
            })
        }
        Err(stop) => Err(lost(stop, &tried)),
    }
}

fn refused(target: &Target, why: &str, tried: &[String]) -> Failure {
    let tried = if tried.is_empty() { "nothing to try".to_owned() } else { format!("tried: {}", tried.join(", ")) };
    let locked = tried.contains("is encrypted");
    let failure = Failure::new(FailureKind::Login, format!("{} isn't let in: {why}; {tried}", target.user));
    if locked {
        failure.hint("add the encrypted key to an agent by ssh-add; netplay itself can't ask for passphrases yet")
    } else {
        failure
    }
}

/// The keys to offer, in parts that come one after the other.
struct Keys {
    user: String,
    /// Key files that were named.
    named: Vec<PathBuf>,
    /// Those that are tried because they have a default name.
    usual: Vec<PathBuf>,
    only_these: bool,
}

/// What offering keys came to.
struct Outcome {
    result: Result<bool, Stop>,
    tried: Vec<String>,
}

impl Keys {
    fn of(target: &Target) -> Keys {
        let (usual, named) = target.identities.iter().cloned().partition(|p| is_usual(p));
        Keys { user: target.user.clone(), named, usual, only_these: target.identities_only }
    }

    /// Offers, until one is taken: the agent's copies of our files, named files, other keys of the agent, and files
    /// of usual names. A server counts each key, so what is likeliest comes first.
    fn offer(&self, session: &Session, socket: &OwnedFd, agent: Option<&Path>, deadline: &Deadline) -> Outcome {
        let mut tried = Vec::new();
        let result = self.offer_all(session, socket, agent, deadline, &mut tried);
        Outcome { result, tried }
    }

    fn offer_all(
        &self,
        session: &Session,
        socket: &OwnedFd,
        agent: Option<&Path>,
        deadline: &Deadline,
        tried: &mut Vec<String>,
    ) -> Result<bool, Stop> {
        let mut held = None;
        if let Some(path) = agent {
            match connect_agent(session, path) {
                Ok(agent) => held = Some(agent),
                Err(e) => tried.push(format!("the agent at {} ({})", path.display(), e.message())),
            }
        }
        let files: Vec<(&PathBuf, Option<Vec<u8>>)> = if held.is_some() {
            self.named.iter().chain(&self.usual).map(|path| (path, public_blob(path))).collect()
        } else {
            Vec::new()
        };
        let by_agent = |wanted: &dyn Fn(&[u8]) -> bool, tried: &mut Vec<String>| -> Result<bool, Stop> {
            let Some((agent, keys)) = &held else { return Ok(false) };
            for key in keys.iter().filter(|k| wanted(k.blob())) {
                tried.push(format!("the agent's key {}", key.comment()));
                if accepted(session, socket, deadline, tried, || agent.userauth(&self.user, key))? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let in_agent = |path: &PathBuf| {
            let blob = files.iter().find(|(p, _)| *p == path).and_then(|(_, blob)| blob.as_ref());
            blob.is_some_and(|blob| held.as_ref().is_some_and(|(_, keys)| keys.iter().any(|k| k.blob() == blob)))
        };
        let is_ours = |blob: &[u8]| files.iter().any(|(_, b)| b.as_deref() == Some(blob));
        let by_files = |paths: &[PathBuf], tried: &mut Vec<String>| -> Result<bool, Stop> {
            for path in paths.iter().filter(|path| !in_agent(path)) {
                let shown = path.display();
                match read_key(path) {
                    Ok(text) => {
                        tried.push(shown.to_string());
                        let call = || session.userauth_pubkey_memory(&self.user, None, &text, None);
                        if accepted(session, socket, deadline, tried, call)? {
                            return Ok(true);
                        }
                    }
                    Err(why) => tried.push(format!("{shown} {why}")),
                }
            }
            Ok(false)
        };
        Ok(by_agent(&is_ours, tried)?
            || by_files(&self.named, tried)?
            || (!self.only_these && by_agent(&|blob| !is_ours(blob), tried)?)
            || by_files(&self.usual, tried)?)
    }
}

/// Offers keys in another thread: libssh2 talks to the agent in blocking mode, and one that waits for its owner's
/// consent, or is at the end of a dead connection, may take for ever.
fn beside(link: &mut Link, keys: Keys, agent: PathBuf, deadline: &Deadline) -> Result<Outcome, Failure> {
    let (session, socket, until) = (link.session.clone(), Arc::clone(&link.socket), deadline.clone());
    let (send, answer) = mpsc::channel();
    let path = agent.clone();
    std::thread::Builder::new()
        .name("agent".into())
        .spawn(move || send.send(keys.offer(&session, &socket, Some(&path), &until)))
        .map_err(|e| Failure::new(FailureKind::Login, format!("no thread to ask the agent: {e}")))?;
    loop {
        match answer.recv_timeout(SLICE) {
            Ok(outcome) => return Ok(outcome),
            Err(mpsc::RecvTimeoutError::Timeout) if !deadline.left().is_zero() => {}
            Err(_) => {
                // It has had its deadline too: if it isn't back in a moment, it hangs in the agent.
                if let Ok(outcome) = answer.recv_timeout(SLICE * 2) {
                    return Ok(outcome);
                }
                link.abandoned = true;
                let message = format!("the agent at {} doesn't answer", agent.display());
                return Err(over(deadline, FailureKind::Login, message).hint(
                    "unset SSH_AUTH_SOCK, or name a key by ansible_ssh_private_key_file and set IdentityAgent none",
                ));
            }
        }
    }
}

fn connect_agent(session: &Session, path: &Path) -> Result<(ssh2::Agent, Vec<ssh2::PublicKey>), ssh2::Error> {
    let mut agent = session.agent()?;
    agent.set_identity_path(path)?;
    agent.connect()?;
    agent.list_identities()?;
    let keys = agent.identities()?;
    Ok((agent, keys))
}

/// Offers one key: whether it was taken. An error is the end of the connection; what else is wrong with the key is
/// added to the last of `tried`.
fn accepted(
    session: &Session,
    socket: &OwnedFd,
    deadline: &Deadline,
    tried: &mut [String],
    call: impl Fn() -> Result<(), ssh2::Error>,
) -> Result<bool, Stop> {
    loop {
        match call() {
            Ok(()) => return Ok(true),
            Err(e) if number(&e) == code::AGAIN => {
                let left = deadline.left();
                if left.is_zero() {
                    return Err(if deadline.cancelled() { Stop::Interrupted } else { Stop::Late });
                }
                let out =
                    matches!(session.block_directions(), ssh2::BlockDirections::Outbound | ssh2::BlockDirections::Both);
                let flags = if out { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                wait(&mut [PollFd::new(socket, flags)], left.min(SLICE));
            }
            Err(e) => {
                let error = number(&e);
                let stop = Stop::Ssh(e);
                if stop.is_loss() {
                    return Err(stop);
                }
                if let (Stop::Ssh(e), Some(last)) = (&stop, tried.last_mut())
                    && !matches!(error, code::AUTHENTICATION_FAILED | code::PUBLICKEY_UNVERIFIED)
                {
                    let why = if error == code::FILE { "libssh2 can't read it" } else { e.message() };
                    last.push_str(&format!(" ({why})"));
                }
                return Ok(false);
            }
        }
    }
}

/// Whether a file is one that is tried without being named.
pub(in super::super) fn is_usual(path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str());
    let folder = path.parent().and_then(Path::file_name);
    name.is_some_and(|n| super::super::USUAL_KEYS.contains(&n)) && folder.is_some_and(|f| f == ".ssh")
}

/// The text of a private key that can be used without a passphrase.
fn read_key(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => "doesn't exist".to_owned(),
        _ => format!("can't be read ({e})"),
    })?;
    let encrypted = match openssh_key(&text) {
        Some(blob) => string(&blob, MAGIC.len()).is_some_and(|(cipher, _)| cipher != b"none"),
        None => text.contains("ENCRYPTED"),
    };
    if encrypted { Err("is encrypted and not in the agent".to_owned()) } else { Ok(text) }
}

const MAGIC: &[u8] = b"openssh-key-v1\0";

/// The bytes of a private key in OpenSSH's format (PROTOCOL.key).
fn openssh_key(text: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once("-----BEGIN OPENSSH PRIVATE KEY-----")?;
    let (body, _) = rest.split_once("-----END")?;
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).ok().filter(|blob| blob.starts_with(MAGIC))
}

/// An SSH string at an offset, and where it ends.
fn string(blob: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let len = u32::from_be_bytes(blob.get(at..at + 4)?.try_into().ok()?) as usize;
    let end = (at + 4).checked_add(len)?;
    Some((blob.get(at + 4..end)?, end))
}

/// The public key of a key file: from the `.pub` beside it, or out of the file itself, which holds it unencrypted.
fn public_blob(path: &Path) -> Option<Vec<u8>> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".pub");
    let of_line = |text: String| STANDARD.decode(text.split_whitespace().nth(1)?).ok();
    if let Some(blob) = std::fs::read_to_string(beside).ok().and_then(of_line) {
        return Some(blob);
    }
    let text = std::fs::read_to_string(path).ok()?;
    let Some(blob) = openssh_key(&text) else { return of_line(text) };
    let (_, at) = string(&blob, MAGIC.len())?;
    let (_, at) = string(&blob, at)?;
    let (_, at) = string(&blob, at)?;
    // The number of keys, always one, stands before the key.
    string(&blob, at + 4).map(|(key, _)| key.to_vec())
}

/// Answers the first hidden question with the password, and no other.
struct Prompter {
    password: String,
    asked: Vec<String>,
}

impl Prompter {
    fn is_change(&self) -> bool {
        let changes = ["new password", "current password", "change your password"];
        self.asked.iter().any(|text| changes.iter().any(|part| text.to_lowercase().contains(part)))
    }
}

impl KeyboardInteractivePrompt for Prompter {
    fn prompt<'a>(&mut self, _: &str, _: &str, prompts: &[Prompt<'a>]) -> Vec<String> {
        let mut answers = Vec::new();
        for prompt in prompts {
            let first = self.asked.is_empty() && !prompt.echo;
            self.asked.push(prompt.text.split_whitespace().collect::<Vec<_>>().join(" "));
            answers.push(if first { self.password.clone() } else { String::new() });
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A private key file in OpenSSH's format, as far as it is looked at.
    fn key_file(cipher: &str, public: &[u8]) -> String {
        let string = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
        let blob = [MAGIC, &string(cipher.as_bytes()), &string(b"none"), &string(b""), &[0, 0, 0, 1], &string(public)]
            .concat();
        let text = STANDARD.encode(blob);
        let (first, second) = text.split_at(40);
        format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{first}\n{second}\n-----END OPENSSH PRIVATE KEY-----\n")
    }

    #[test]
    fn a_private_key_shows_its_public_one_and_whether_it_is_encrypted() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("plain"), key_file("none", b"the public key")).unwrap();
        fs::write(path("locked"), key_file("aes256-ctr", b"another")).unwrap();
        fs::write(path("pem"), "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n").unwrap();
        fs::write(path("pem.pub"), format!("ssh-rsa {} me@here\n", STANDARD.encode(b"rsa"))).unwrap();
        assert!(read_key(&path("plain")).is_ok());
        assert_eq!(read_key(&path("locked")).unwrap_err(), "is encrypted and not in the agent");
        assert_eq!(read_key(&path("pem")).unwrap_err(), "is encrypted and not in the agent");
        assert_eq!(read_key(&path("none")).unwrap_err(), "doesn't exist");
        assert_eq!(public_blob(&path("plain")).unwrap(), b"the public key");
        assert_eq!(public_blob(&path("locked")).unwrap(), b"another");
        assert_eq!(public_blob(&path("pem")).unwrap(), b"rsa");
        assert_eq!(public_blob(&path("none")), None);
        fs::write(path("cut"), "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END").unwrap();
        assert_eq!(public_blob(&path("cut")), None);
    }

    #[test]
    fn only_the_first_hidden_question_gets_the_password() {
        let mut prompter = Prompter { password: "secret".into(), asked: Vec::new() };
        let ask = |text: &'static str, echo| Prompt { text: text.into(), echo };
        assert_eq!(prompter.prompt("", "", &[ask("Password: ", false)]), ["secret"]);
        assert_eq!(prompter.prompt("", "", &[ask("Verification code: ", false)]), [""]);
        assert!(!prompter.is_change());
        assert_eq!(prompter.prompt("", "", &[ask("New password: ", false)]), [""]);
        assert!(prompter.is_change());
    }

    #[test]
    fn keys_of_usual_names_are_those_in_the_ssh_folder() {
        assert!(is_usual(Path::new("/home/x/.ssh/id_rsa")));
        assert!(!is_usual(Path::new("/home/x/.ssh/cluster")));
        assert!(!is_usual(Path::new("/srv/keys/id_rsa")));
    }
}
