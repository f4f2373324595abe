//! Waiting for descriptors.

use rustix::event::{PollFd, Timespec, poll};
use std::time::Duration;

/// How long to wait at most before a deadline is looked at again: it may be cancelled meanwhile, which wakes nobody.
pub(super) const SLICE: Duration = Duration::from_millis(200);

/// Waits until a descriptor is ready or this time has passed; a signal may end it earlier. What is ready is told by
/// each descriptor's `revents`.
pub(super) fn wait(fds: &mut [PollFd<'_>], time: Duration) {
    let time =
        Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() };
    if poll(fds, Some(&time)).is_err() {
        // Interrupted, or out of kernel memory: all callers try the descriptors and come back.
        for fd in fds {
            fd.clear_revents();
        }
    }
}
