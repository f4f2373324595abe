//! A counting semaphore: how many handshakes may be under way at once.

use super::Deadline;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

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
