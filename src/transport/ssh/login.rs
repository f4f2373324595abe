//! The login: agent, key files, password.

use super::super::keys::{Keyring, certificates, is_usual, public_blob};
use super::super::refusal::{asks_for_change, expired};
use super::super::wait::{SLICE, wait};
use super::super::{Deadline, Failure, FailureKind, Secret, Target};
use super::link::{Link, Stop, code, number};
use rustix::event::{PollFd, PollFlags};
use ssh2::{KeyboardInteractivePrompt, Prompt, Session};
use std::cell::Cell;
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
    keyring: &Arc<Keyring>,
) -> Result<(), Failure> {
    let user = target.user.as_str();
    let mut tried = Vec::new();
    let lost = |stop: Stop, tried: &[String]| match stop {
        Stop::Interrupted => stop.lost(),
        Stop::Ssh(_) => Failure::too_many_keys(target, tried),
        Stop::Late | Stop::Silent(..) if deadline.cancelled() => Stop::Interrupted.lost(),
        Stop::Late | Stop::Silent(..) => Failure::slow_login(user),
    };
    let list = |link: &mut Link| link.drive(deadline, |s| s.auth_methods(user).map(str::to_owned));
    // Where keys are all there is to offer, the question what the host takes would cost a round trip and change nothing.
    let mut methods = None;
    if target.password.is_some() {
        methods = Some(list(link).map_err(|stop| lost(stop, &tried))?);
        if link.session.authenticated() {
            return Ok(());
        }
    }
    let takes_password = |methods: &str| accepts(methods, "password") || accepts(methods, "keyboard-interactive");
    if methods.as_deref().is_none_or(|methods| accepts(methods, "publickey")) {
        let keys = Keys { ask: methods.is_none(), ..Keys::of(target, keyring.clone()) };
        let outcome = match &target.agent {
            None => keys.offer(&link.session, &link.socket, None, deadline),
            Some(agent) => beside(link, keys, agent.clone(), deadline)?,
        };
        tried.extend(outcome.tried);
        match outcome.result {
            Ok(true) => return Ok(()),
            Ok(false) if link.session.authenticated() => return Ok(()),
            Ok(false) => {}
            Err(stop) => return Err(lost(stop, &tried)),
        }
        if !methods.as_deref().is_some_and(takes_password) {
            // A key that was taken may be the first half only (AuthenticationMethods); what is missing is told now.
            methods = match (list(link), methods) {
                (Ok(_), _) if link.session.authenticated() => return Ok(()),
                (Ok(now), _) | (Err(_), Some(now)) => Some(now),
                (Err(stop), None) => return Err(lost(stop, &tried)),
            };
        }
    }
    let methods = methods.unwrap_or_default();
    let Some(password) = &target.password else {
        let failure = Failure::no_key_taken(target, &methods, &tried);
        return Err(match certificates(target).first() {
            Some(certificate) => Failure { hint: None, ..failure }.hint(format!(
                "{certificate} is a certificate, and the transport ssh2 logs in with bare keys only: set \
                 netplay_transport: openssh"
            )),
            None => failure,
        });
    };
    if !takes_password(&methods) {
        return Err(Failure::not_let_in(target, &format!("the host accepts no password, only {methods}"), &tried));
    }
    let attempt = match password.attempt(patience) {
        Ok(attempt) => attempt,
        Err(_) if deadline.cancelled() => return Err(Stop::Interrupted.lost()),
        Err(why) => return Err(Failure::not_let_in(target, why, &tried)),
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
                Some(second) => {
                    Failure::not_let_in(target, &format!("the host asks for more than a password: {second}"), &tried)
                }
                None => Failure::wrong_password(target, &tried),
            })
        }
        Err(stop) => Err(lost(stop, &tried)),
    }
}

fn accepts(methods: &str, method: &str) -> bool {
    methods.split(',').any(|m| m == method)
}

/// The keys to offer, in parts that come one after the other.
struct Keys {
    user: String,
    /// Key files that were named.
    named: Vec<PathBuf>,
    /// Those that are tried because they have a default name.
    usual: Vec<PathBuf>,
    only_these: bool,
    /// Whether it isn't known yet that the host takes keys.
    ask: bool,
    keyring: Arc<Keyring>,
}

/// What offering keys came to.
struct Outcome {
    result: Result<bool, Stop>,
    tried: Vec<String>,
}

impl Keys {
    fn of(target: &Target, keyring: Arc<Keyring>) -> Keys {
        let (usual, named) = target.identities.iter().cloned().partition(|p| is_usual(p));
        Keys { user: target.user.clone(), named, usual, only_these: target.identities_only, ask: true, keyring }
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
        let (ask, in_vain) = (Cell::new(self.ask), Cell::new(false));
        let offer = |name: String, call: &dyn Fn() -> Result<(), ssh2::Error>, tried: &mut Vec<String>| {
            if in_vain.get() {
                return Ok(false);
            }
            tried.push(name);
            if accepted(session, socket, deadline, tried, call)? {
                return Ok(true);
            }
            // A host that takes no keys counts each all the same, and ends the login at the sixth.
            if ask.replace(false) {
                let list = || session.auth_methods(&self.user).map(str::to_owned);
                let methods = patiently(session, socket, deadline, list)?;
                in_vain.set(session.authenticated() || !accepts(&methods, "publickey"));
            }
            Ok(false)
        };
        let by_agent = |wanted: &dyn Fn(&[u8]) -> bool, tried: &mut Vec<String>| -> Result<bool, Stop> {
            let Some((agent, keys)) = &held else { return Ok(false) };
            for key in keys.iter().filter(|k| wanted(k.blob())) {
                let name = format!("the agent's key {}", key.comment());
                if offer(name, &|| agent.userauth(&self.user, key), tried)? {
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
                match self.keyring.read(path) {
                    Ok((text, passphrase)) => {
                        let passphrase = passphrase.as_ref().map(Secret::reveal);
                        let call = || session.userauth_pubkey_memory(&self.user, None, text.reveal(), passphrase);
                        if offer(shown.to_string(), &call, tried)? {
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
                return Err(deadline.over(FailureKind::Login, message).hint(
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
    match patiently(session, socket, deadline, call) {
        Ok(()) => Ok(true),
        Err(Stop::Ssh(e)) => {
            let error = number(&e);
            // What libssh2 makes of a host that closes the connection in place of an answer.
            let unanswered = e.message() == "Waiting for USERAUTH response";
            let stop = Stop::Ssh(e);
            if stop.is_loss() || unanswered {
                return Err(stop);
            }
            if let (Stop::Ssh(e), Some(last)) = (&stop, tried.last_mut())
                && !matches!(error, code::AUTHENTICATION_FAILED | code::PUBLICKEY_UNVERIFIED)
            {
                let why = if error == code::FILE { "libssh2 can't read it" } else { e.message() };
                last.push_str(&format!(" ({why})"));
            }
            Ok(false)
        }
        Err(stop) => Err(stop),
    }
}

/// Calls libssh2 until it has done it, waiting for the socket in between.
fn patiently<T>(
    session: &Session,
    socket: &OwnedFd,
    deadline: &Deadline,
    call: impl Fn() -> Result<T, ssh2::Error>,
) -> Result<T, Stop> {
    loop {
        match call() {
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
            other => return other.map_err(Stop::Ssh),
        }
    }
}

/// Answers the first hidden question with the password, and no other.
struct Prompter {
    password: String,
    asked: Vec<String>,
}

impl Prompter {
    fn is_change(&self) -> bool {
        self.asked.iter().any(|question| asks_for_change(question))
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
}
