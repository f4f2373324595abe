//! Passwords of logins and of sudo: one that a person typed is tried on one host before all others.

use super::Deadline;
use crate::secret::Secret;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A password and what is known of it. Clones share what is known: 64 hosts × 3 tries of a typing error lock an
/// account, so the first host to use a typed password tries it while the others wait, and if it is refused there, no
/// other host tries it.
#[derive(Clone, Debug)]
pub struct Password {
    secret: Secret,
    typed: Option<Arc<Typed>>,
}

#[derive(Debug, Default)]
struct Typed {
    state: Mutex<State>,
    settled: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum State {
    #[default]
    Untried,
    Trying,
    Good,
    Bad,
}

/// Leave to try a [`Password`]. It must be told how it went; dropped untold (the session broke before), the next one
/// tries.
#[derive(Debug)]
pub struct Attempt<'p> {
    password: &'p Password,
    first: bool,
}

impl Password {
    /// A password from a variable: each host may try it.
    pub fn stored(secret: Secret) -> Password {
        Password { secret, typed: None }
    }

    /// A password from a prompt: tried on one host first.
    pub fn typed(secret: Secret) -> Password {
        Password { secret, typed: Some(Arc::default()) }
    }

    /// Waits for leave to try it.
    ///
    /// # Errors
    /// It was refused on another host, or the deadline passed while another host tried it.
    pub fn attempt(&self, deadline: &Deadline) -> Result<Attempt<'_>, &'static str> {
        let Some(typed) = &self.typed else { return Ok(Attempt { password: self, first: false }) };
        let mut state = typed.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *state {
                State::Good => return Ok(Attempt { password: self, first: false }),
                State::Bad => return Err("the password was refused on another host, so it isn't tried here"),
                State::Untried => {
                    *state = State::Trying;
                    return Ok(Attempt { password: self, first: true });
                }
                State::Trying if deadline.left().is_zero() => return Err("another host is still trying the password"),
                State::Trying => {
                    let wait = deadline.left().min(Duration::from_millis(200));
                    state = typed.settled.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

impl Attempt<'_> {
    /// The password's text.
    pub fn reveal(&self) -> &str {
        self.password.secret.reveal()
    }

    /// Says whether the host took it.
    pub fn settle(mut self, good: bool) {
        self.set(if good { State::Good } else { State::Bad });
        self.first = false;
    }

    fn set(&mut self, to: State) {
        if let (true, Some(typed)) = (self.first, &self.password.typed) {
            *typed.state.lock().unwrap_or_else(PoisonError::into_inner) = to;
            typed.settled.notify_all();
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.set(State::Untried);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_millis(300), &Arc::new(AtomicBool::new(false)))
    }

    #[test]
    fn a_typed_password_is_tried_once() {
        let password = Password::typed(Secret::new("x"));
        let attempt = password.attempt(&soon()).unwrap();
        assert!(password.clone().attempt(&soon()).is_err());
        drop(attempt);
        password.attempt(&soon()).unwrap().settle(false);
        assert!(password.attempt(&soon()).unwrap_err().contains("refused on another host"));
        let stored = Password::stored(Secret::new("x"));
        stored.attempt(&soon()).unwrap().settle(false);
        assert!(stored.attempt(&soon()).is_ok());
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "<secret>");
    }
}
