//! Visits on plain threads, and their events in one order on the thread that owns the run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

const WHILE: Duration = Duration::from_millis(200);

/// Does `work` for each item on at most `threads` threads. Whatever it sends reaches `sink` on this thread, in the order
/// of arrival; nothing reaches it after a while in which nothing came. Work that panics is told by its index and the
/// panic's message, and the others go on.
pub(super) fn each<T: Sync, E: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T, &(dyn Fn(E) + Sync)) + Sync,
    panicked: impl Fn(usize, String) -> E + Sync,
    mut sink: impl FnMut(Option<E>),
) {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            let sender = sender.clone();
            let (next, work, panicked) = (&next, &work, &panicked);
            scope.spawn(move || {
                // A receiver that is gone means that the run has ended: nobody is left to be told.
                let send = |event| drop(sender.send(event));
                while let Some((at, item)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    items.get(i).map(|t| (i, t))
                } {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(item, &send))) {
                        let text = panic.downcast_ref::<String>().map(String::as_str);
                        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
                        send(panicked(at, text.to_owned()));
                    }
                }
            });
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(WHILE) {
                Ok(event) => sink(Some(event)),
                Err(RecvTimeoutError::Timeout) => sink(None),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_done_and_a_panic_stays_where_it_is() {
        let items: Vec<usize> = (0..100).collect();
        let mut seen = Vec::new();
        each(
            8,
            &items,
            |i, send| {
                assert!(*i != 7, "seven");
                send(*i);
            },
            |at, text| {
                assert_eq!(text, "seven");
                1000 + at
            },
            |i| seen.extend(i),
        );
        seen.sort_unstable();
        let expected: Vec<usize> = (0..100).filter(|i| *i != 7).chain([1007]).collect();
        assert_eq!(seen, expected);
        each(4, &[] as &[usize], |_, _: &(dyn Fn(()) + Sync)| {}, |_, _| (), |_| panic!("nothing to do"));
    }
}
