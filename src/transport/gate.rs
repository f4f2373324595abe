//! A counting semaphore: how many handshakes may be under way at once.

use super::{Deadline, Failure, FailureKind, Target};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How many handshakes one bastion is asked for at once; its sshd drops some at random from 10 on (`MaxStartups`).
const PER_BASTION: usize = 8;
/// How often a connection is made again that the host closed before it named itself, as `MaxStartups` does. Of those
/// that are dropped at random half of the time, one in a hundred thousand is left.
const RETRIES: u32 = 16;

/// Lets a fixed number of holders through at a time.
#[derive(Debug)]
pub struct Gate {
    free: Mutex<usize>,
    freed: Condvar,
}

/// One place in a [`Gate`], given back when dropped.
#[derive(Debug)]
pub struct Permit<'g>(&'g Gate);

impl Gate {
    /// A gate of this many places, at least one.
    pub fn new(places: usize) -> Gate {
        Gate { free: Mutex::new(places.max(1)), freed: Condvar::new() }
    }

    /// Waits for a place; nothing when the deadline passes first.
    pub fn enter(&self, deadline: &Deadline) -> Option<Permit<'_>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            let left = deadline.left();
            if left.is_zero() {
                return None;
            }
            // Short waits, as a cancelled deadline doesn't notify.
            let wait = left.min(Duration::from_millis(200));
            free = self.freed.wait_timeout(free, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        *free -= 1;
        Some(Permit(self))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// The failure of who waits for a place until the deadline.
pub(super) fn queued(deadline: &Deadline) -> Failure {
    deadline.over(FailureKind::Timeout, "the deadline passed while other hosts were logged in to")
}

/// A gate for each bastion: what it counts is connections that aren't logged in yet.
#[derive(Debug, Default)]
pub(super) struct Bastions(Mutex<HashMap<String, Arc<Gate>>>);

impl Bastions {
    /// The gate of a bastion.
    pub(super) fn gate(&self, bastion: &Target) -> Arc<Gate> {
        let key = format!("{}@{}:{}", bastion.user, bastion.address, bastion.port);
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.entry(key).or_insert_with(|| Arc::new(Gate::new(PER_BASTION))).clone()
    }
}

/// Connects again while the other side drops the connection before it has named itself, each time a bit later.
pub(super) fn retried<T>(deadline: &Deadline, mut connect: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let mut tries = 0;
    loop {
        tries += 1;
        match connect() {
            Err(failure) if failure.is_dropped() && tries < RETRIES => {
                // Not all that were dropped at the same time again.
                let jitter = u64::from(getrandom::u32().unwrap_or_default() % 400);
                std::thread::sleep(deadline.left().min(Duration::from_millis(100 + jitter)));
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_dropped_tries_again_and_nobody_else_does() {
        let deadline = Deadline::after(Duration::from_secs(20), &Arc::default());
        let mut tries = 0;
        let result = retried(&deadline, || {
            tries += 1;
            if tries < 3 { Err(Failure::dropped()) } else { Ok(tries) }
        });
        assert_eq!(result, Ok(3));
        let mut tries = 0;
        let refused = Failure::new(FailureKind::Connect, "refused");
        let result: Result<(), Failure> = retried(&deadline, || {
            tries += 1;
            Err(refused.clone())
        });
        assert_eq!((result, tries), (Err(refused), 1));
    }
}
