//! What is asked of the login shell, and the conversation with sudo before the script.
//!
//! Tried with sudo 1.9.13: a wrong password makes it read the next lines of standard input as further tries, and where
//! it asks for none, a password that is sent anyway is run as a command. So the password is written once, after the
//! prompt was seen, and the script only after the shell behind sudo has said that it is ready.

use super::secret::{Attempt, Password};
use super::{Deadline, Dialogue, Exit, Identity, Reply};

/// How much of what sudo says is kept, in bytes.
const KEPT: usize = 4096;

/// The request that starts `/bin/sh` as an identity, reading a script from standard input; the connection is its `$1`.
/// It means the same to sh, bash, csh and fish as login shells. Who is to become whom the login user is already, root
/// too, does without sudo. It is to speak English, as its refusals are told apart by its words; `env` is what all of
/// those shells set a variable by.
pub fn request(identity: &Identity, login: &str, nonce: &str) -> String {
    match identity {
        Identity::Sudo { user, password } if user != login => {
            let user = if user == "root" { String::new() } else { format!("-u {} ", quote(user)) };
            match password {
                None => format!("exec env LC_ALL=C sudo -n {user}/bin/sh -s \"$SSH_CONNECTION\""),
                Some(_) => format!(
                    "exec env LC_ALL=C sudo -S -p {nonce} {user}/bin/sh -c 'echo; echo {nonce} ready; exec /bin/sh -s \"$0\"' \
                     \"$SSH_CONNECTION\""
                ),
            }
        }
        _ => "exec /bin/sh -s \"$SSH_CONNECTION\"".to_owned(),
    }
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Whether a name can be one of a user, for a request that each login shell reads alike.
///
/// # Errors
/// What is wrong with it.
pub fn check_user(name: &str) -> Result<(), String> {
    let strange = |c: char| c.is_control() || c.is_whitespace() || "'\"!:/\\".contains(c);
    if name.is_empty() || name.starts_with('-') || name.contains(strange) {
        return Err(format!("`{name}` can't be the name of a user"));
    }
    Ok(())
}

/// Why sudo didn't let us become whom we want to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The login user may not; with sudo's words.
    NotAllowed(String),
    /// The password is wrong.
    WrongPassword,
    /// It wants a password, and there is none.
    PasswordNeeded,
    /// The password wasn't tried, for this reason.
    NotTried(&'static str),
    /// The host has no sudo.
    NoSudo,
    /// It wants a terminal.
    RequireTty,
    /// Something else; with its words.
    Other(String),
}

impl Refusal {
    /// What happened, in one sentence without a full stop; and what to do about it.
    pub fn told(&self, login: &str, user: &str) -> (String, Option<String>) {
        match self {
            Refusal::NotAllowed(text) => (
                format!("sudo doesn't let {login} become {user}: {text}"),
                Some(format!("allow it in sudoers, for all commands: {login} ALL=({user}) NOPASSWD: ALL")),
            ),
            Refusal::WrongPassword => (
                format!("sudo refused the password of {login}"),
                Some("set ansible_become_password, or type it again with -K".to_owned()),
            ),
            Refusal::PasswordNeeded => (
                format!("sudo wants the password of {login}"),
                Some(format!(
                    "set ansible_become_password, use -K, or allow it without: {login} ALL=({user}) NOPASSWD: ALL"
                )),
            ),
            Refusal::NotTried(why) => (format!("sudo asks for a password: {why}"), None),
            Refusal::NoSudo => (
                "the host has no sudo".to_owned(),
                Some(format!("install it, or log in as {user}: ansible_user: {user}, ansible_become: false")),
            ),
            Refusal::RequireTty => (
                "sudo wants a terminal, and netplay uses none".to_owned(),
                Some(format!("add this line to sudoers: Defaults:{login} !requiretty")),
            ),
            Refusal::Other(text) if text.is_empty() => (
                "sudo neither asked for a password nor ran anything, and gave no reason".to_owned(),
                Some(format!("try it on the host: sudo -u {user} true")),
            ),
            Refusal::Other(text) => (format!("sudo failed: {text}"), None),
        }
    }
}

/// A dialogue behind sudo: the inner one begins when the shell that sudo started is there.
pub struct Elevated<'d> {
    inner: &'d mut dyn Dialogue,
    /// Whether sudo takes part at all.
    sudo: bool,
    password: Option<&'d Password>,
    attempt: Option<Attempt<'d>>,
    nonce: String,
    deadline: Deadline,
    state: State,
    /// What standard output said before the shell was ready.
    out: Vec<u8>,
    /// The first of what standard error said.
    said: Vec<u8>,
}

#[derive(Debug, PartialEq)]
enum State {
    /// There is nothing to wait for.
    Direct,
    /// sudo may ask, or start the shell.
    Asking,
    /// The password was written.
    Answered,
    /// The shell runs.
    Ready,
    /// sudo asked a second time.
    Wrong,
    /// There was no leave to try the password.
    NotTried(&'static str),
}

impl<'d> Elevated<'d> {
    /// The dialogue that goes with [`request`] of the same identity, login user and nonce.
    pub fn new(
        inner: &'d mut dyn Dialogue,
        identity: &'d Identity,
        login: &str,
        nonce: &str,
        deadline: &Deadline,
    ) -> Elevated<'d> {
        let (sudo, password) = match identity {
            Identity::Sudo { user, password } if user != login => (true, password.as_ref()),
            _ => (false, None),
        };
        Elevated {
            inner,
            sudo,
            password,
            attempt: None,
            nonce: nonce.to_owned(),
            deadline: deadline.clone(),
            state: if password.is_some() { State::Asking } else { State::Direct },
            out: Vec::new(),
            said: Vec::new(),
        }
    }

    /// Why the shell never ran; to be asked when the inner dialogue has seen no sign of its script. Nothing if that
    /// wasn't sudo's doing. `exit` is missing where the execution broke off.
    pub fn refusal(&self, exit: Option<&Exit>) -> Option<Refusal> {
        match self.state {
            State::Direct if !self.sudo => return None,
            State::Ready => return None,
            State::Wrong => return Some(Refusal::WrongPassword),
            State::NotTried(why) => return Some(Refusal::NotTried(why)),
            State::Direct | State::Asking | State::Answered => {}
        }
        let text = String::from_utf8_lossy(&self.said).replace(&self.nonce, "");
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let has = |part: &str| lines.iter().any(|line| line.contains(part));
        let last = || lines.iter().rev().find(|l| l.contains("sudo")).or(lines.last()).map_or("", |l| l).to_owned();
        if matches!(exit, Some(Exit::Code(127))) || has("sudo: command not found") || has("sudo: Command not found") {
            return Some(Refusal::NoSudo);
        }
        if has("you must have a tty") {
            return Some(Refusal::RequireTty);
        }
        if has("is not in the sudoers file") || has("is not allowed to ") || has("may not run sudo") {
            return Some(Refusal::NotAllowed(last()));
        }
        if has("incorrect password") || has("Sorry, try again") {
            return Some(Refusal::WrongPassword);
        }
        if has("a password is required") || has("no password was provided") {
            return Some(Refusal::PasswordNeeded);
        }
        // The reason may be the first of several lines: an unknown user also keeps sudo's plugins from starting.
        let sudos: Vec<&str> = lines.iter().copied().filter(|line| line.starts_with("sudo")).collect();
        let text = if sudos.is_empty() { last() } else { sudos.join("; ") };
        (!sudos.is_empty() || self.state != State::Direct).then_some(Refusal::Other(text))
    }

    fn settle(&mut self, good: bool) {
        if let Some(attempt) = self.attempt.take() {
            attempt.settle(good);
        }
    }

    /// Looks for the prompt in what standard error said since the last answer.
    fn prompted(&mut self) -> bool {
        let found = find(&self.said, self.nonce.as_bytes());
        if let Some(at) = found {
            self.said.drain(at..at + self.nonce.len());
        }
        found.is_some()
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

impl Dialogue for Elevated<'_> {
    fn begin(&mut self) -> Reply {
        if self.state == State::Direct { self.inner.begin() } else { Reply::More }
    }

    fn stdout(&mut self, bytes: &[u8]) -> Reply {
        if !matches!(self.state, State::Asking | State::Answered) {
            return self.inner.stdout(bytes);
        }
        // What stands before is a banner; a part of the line may still be to come.
        self.out.extend_from_slice(bytes);
        let ready = format!("\n{} ready\n", self.nonce);
        let Some(at) = find(&self.out, ready.as_bytes()) else {
            let keep = self.out.len().saturating_sub(ready.len());
            self.out.drain(..keep);
            return Reply::More;
        };
        self.settle(true);
        self.state = State::Ready;
        let rest = self.out.split_off(at + ready.len());
        let first = self.inner.begin();
        if rest.is_empty() || first == Reply::Finish {
            return first;
        }
        match (first, self.inner.stdout(&rest)) {
            (Reply::Write { mut bytes, end }, Reply::Write { bytes: more, end: last }) => {
                bytes.extend(more);
                Reply::Write { bytes, end: end || last }
            }
            (first, Reply::More) => first,
            (_, second) => second,
        }
    }

    fn stderr(&mut self, bytes: &[u8]) -> Reply {
        let room = KEPT.saturating_sub(self.said.len());
        match self.state {
            State::Direct | State::Ready => {
                self.said.extend_from_slice(&bytes[..bytes.len().min(room)]);
                self.inner.stderr(bytes)
            }
            State::Asking | State::Answered => {
                // A lecture of any length may stand before the prompt.
                self.said.extend_from_slice(bytes);
                let prompted = self.prompted();
                self.said.drain(..self.said.len().saturating_sub(KEPT));
                if !prompted {
                    return Reply::More;
                }
                if self.state == State::Answered {
                    self.settle(false);
                    self.state = State::Wrong;
                    return Reply::Finish;
                }
                match self.password.map(|p| p.attempt(&self.deadline)) {
                    Some(Ok(attempt)) => {
                        let bytes = format!("{}\n", attempt.reveal()).into_bytes();
                        self.attempt = Some(attempt);
                        self.state = State::Answered;
                        Reply::Write { bytes, end: false }
                    }
                    Some(Err(why)) => {
                        self.state = State::NotTried(why);
                        Reply::Finish
                    }
                    None => Reply::Finish,
                }
            }
            State::Wrong | State::NotTried(_) => Reply::Finish,
        }
    }
}

impl Drop for Elevated<'_> {
    fn drop(&mut self) {
        // sudo may end after one try (passwd_tries=1). What it said of the password must count, or each host would try.
        if self.state == State::Answered {
            match self.refusal(None) {
                Some(Refusal::WrongPassword) => self.settle(false),
                Some(Refusal::NotAllowed(_)) => self.settle(true),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    /// A dialogue that writes a script at once and keeps what it hears.
    #[derive(Default)]
    struct Inner(String);

    impl Dialogue for Inner {
        fn begin(&mut self) -> Reply {
            Reply::Write { bytes: b"script".to_vec(), end: true }
        }
        fn stdout(&mut self, bytes: &[u8]) -> Reply {
            self.0.push_str(&String::from_utf8_lossy(bytes));
            Reply::More
        }
        fn stderr(&mut self, bytes: &[u8]) -> Reply {
            self.0.push_str(&String::from_utf8_lossy(bytes));
            Reply::More
        }
    }

    enum Says {
        Out(&'static str),
        Err(&'static str),
    }
    use Says::{Err as E, Out as O};

    fn sudo(password: Option<Password>) -> Identity {
        Identity::Sudo { user: "root".into(), password }
    }

    /// What is written in answer to each thing said, `.` for nothing and `!` for the end; what the inner dialogue
    /// heard; and what became of sudo.
    fn converse(identity: &Identity, says: &[Says], exit: Exit) -> (String, String, Option<Refusal>) {
        let deadline = Deadline::after(Duration::from_millis(300), &Arc::new(AtomicBool::new(false)));
        let mut inner = Inner::default();
        let mut told = String::new();
        let mut add = |reply| match reply {
            Reply::More => told.push('.'),
            Reply::Finish => told.push('!'),
            Reply::Write { bytes, .. } => told.push_str(&format!("<{}>", String::from_utf8_lossy(&bytes).trim_end())),
        };
        let mut elevated = Elevated::new(&mut inner, identity, "ops", "abc123", &deadline);
        add(elevated.begin());
        for said in says {
            add(match said {
                O(text) => elevated.stdout(text.as_bytes()),
                E(text) => elevated.stderr(text.as_bytes()),
            });
        }
        let refusal = elevated.refusal(Some(&exit));
        drop(elevated);
        (told, inner.0, refusal)
    }

    #[test]
    fn requests_are_alike_in_all_shells() {
        let as_user = |user: &str, password: bool| {
            let password = password.then(|| Password::stored(Secret::new("p")));
            request(&Identity::Sudo { user: user.into(), password }, "ops", "abc")
        };
        let plain = "exec /bin/sh -s \"$SSH_CONNECTION\"";
        assert_eq!(request(&Identity::Login, "ops", "abc"), plain);
        assert_eq!(as_user("ops", true), plain);
        assert_eq!(request(&sudo(None), "root", "abc"), plain);
        assert_eq!(as_user("root", false), "exec env LC_ALL=C sudo -n /bin/sh -s \"$SSH_CONNECTION\"");
        assert_eq!(
            as_user("www-data", false),
            "exec env LC_ALL=C sudo -n -u 'www-data' /bin/sh -s \"$SSH_CONNECTION\""
        );
        assert_eq!(
            as_user("root", true),
            "exec env LC_ALL=C sudo -S -p abc /bin/sh -c 'echo; echo abc ready; exec /bin/sh -s \"$0\"' \"$SSH_CONNECTION\""
        );
        for name in ["", "-u", "a b", "a'b", "a!b", "a\nb", "root:x"] {
            assert!(check_user(name).is_err(), "{name:?}");
        }
        assert_eq!(check_user("svc_deploy.1@example"), Ok(()));
    }

    #[test]
    fn the_password_is_written_once_after_the_prompt_and_the_script_after_ready() {
        let identity = sudo(Some(Password::stored(Secret::new("p4ss"))));
        let (told, heard, refusal) = converse(
            &identity,
            &[
                E("We trust you have received the usual lecture\nabc"),
                O("a banner\n"),
                E("123"),
                O("\nabc123 rea"),
                O("dy\nx"),
            ],
            Exit::Code(0),
        );
        assert_eq!((told.as_str(), heard.as_str(), refusal), ("...<p4ss>.<script>", "x", None));
        // sudo that asks nothing isn't given the password.
        let (told, heard, refusal) = converse(&identity, &[O("\nabc123 ready\n"), E("abc123")], Exit::Code(0));
        assert_eq!((told.as_str(), heard.as_str(), refusal), (".<script>.", "abc123", None));
    }

    #[test]
    fn a_second_prompt_ends_it() {
        let password = Password::typed(Secret::new("wrong"));
        let (told, _, refusal) =
            converse(&sudo(Some(password.clone())), &[E("abc123"), E("Sorry, try again.\nabc123")], Exit::Finished);
        assert_eq!((told.as_str(), refusal), (".<wrong>!", Some(Refusal::WrongPassword)));
        // Typed, it isn't tried on another host.
        let (told, _, refusal) = converse(&sudo(Some(password)), &[E("abc123")], Exit::Finished);
        assert_eq!(told, ".!");
        assert!(matches!(refusal, Some(Refusal::NotTried(why)) if why.contains("another host")));
        // Nor after a sudo that gives up by itself (passwd_tries=1).
        let password = Password::typed(Secret::new("wrong"));
        let said = [E("abc123"), E("sudo: 1 incorrect password attempt\n")];
        assert_eq!(converse(&sudo(Some(password.clone())), &said, Exit::Code(1)).2, Some(Refusal::WrongPassword));
        assert_eq!(converse(&sudo(Some(password)), &[E("abc123")], Exit::Finished).0, ".!");
    }

    #[test]
    fn refusals_are_told_apart() {
        let without = |said: &'static str, code| converse(&sudo(None), &[E(said)], Exit::Code(code)).2;
        assert_eq!(without("sudo: a password is required\n", 1), Some(Refusal::PasswordNeeded));
        assert_eq!(without("sudo: sorry, you must have a tty to run sudo\n", 1), Some(Refusal::RequireTty));
        assert_eq!(without("bash: line 1: exec: sudo: not found\n", 127), Some(Refusal::NoSudo));
        assert_eq!(without("sudo: Command not found.\n", 1), Some(Refusal::NoSudo));
        assert_eq!(without("env: 'sudo': No such file or directory\n", 127), Some(Refusal::NoSudo));
        assert_eq!(without("fish: Unknown command: sudo\n", 127), Some(Refusal::NoSudo));
        assert_eq!(
            without("banner\nops is not in the sudoers file.\n", 1),
            Some(Refusal::NotAllowed("ops is not in the sudoers file.".into()))
        );
        assert_eq!(
            without("sudo: unknown user nobody2\nsudo: error initializing audit plugin sudoers_audit\n", 1),
            Some(Refusal::Other(
                "sudo: unknown user nobody2; sudo: error initializing audit plugin sudoers_audit".into()
            ))
        );
        // What a script itself says and does isn't sudo's refusal.
        assert_eq!(without("something else\n", 1), None);
        assert_eq!(converse(&Identity::Login, &[E("sudo: not found\n")], Exit::Code(127)).2, None);
        let identity = sudo(Some(Password::stored(Secret::new("right"))));
        let said = [E("abc123"), E("Sorry, user ops is not allowed to execute '/bin/sh' as root on a.\n")];
        assert!(matches!(converse(&identity, &said, Exit::Code(1)).2, Some(Refusal::NotAllowed(_))));
        for refusal in [Refusal::NoSudo, Refusal::RequireTty, Refusal::PasswordNeeded, Refusal::WrongPassword] {
            let (message, hint) = refusal.told("ops", "root");
            assert!(!message.ends_with('.') && hint.is_some_and(|h| h.len() > 10), "{message}");
        }
    }
}
