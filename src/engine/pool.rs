//! Jobs on plain threads, and what they tell in one order on the thread that owns the run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long the owner hears nothing before it is called all the same.
pub(super) const WHILE: Duration = Duration::from_millis(200);

/// Where the owner hands out jobs and hears of them.
pub(super) struct Desk<J, E> {
    jobs: Sender<(usize, J)>,
    told: Receiver<Heard<E>>,
}

/// What the owner hears.
#[derive(Debug)]
pub(super) enum Heard<E> {
    /// A job tells something.
    Event(E),
    /// The job of this number is over, with the message of its panic if it panicked.
    Over(usize, Option<String>),
}

impl<J, E> Desk<J, E> {
    /// Has a job done by the next thread that is free.
    pub(super) fn give(&self, number: usize, job: J) {
        // The threads stay as long as this desk does.
        let _ = self.jobs.send((number, job));
    }

    /// The next that is told, in the order of arrival; nothing if that takes longer.
    pub(super) fn hear(&self, at_most: Duration) -> Option<Heard<E>> {
        match self.told.recv_timeout(at_most) {
            Ok(heard) => Some(heard),
            Err(RecvTimeoutError::Timeout) => None,
            // No thread is left to tell anything.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(at_most);
                None
            }
        }
    }
}

/// Has `owner` run with so many threads that do jobs as `work` does them. Those that nobody has begun when it returns are
/// dropped.
pub(super) fn crew<J: Send, E: Send, R>(
    threads: usize,
    work: impl Fn(usize, J, &(dyn Fn(E) + Sync)) + Sync,
    owner: impl FnOnce(&Desk<J, E>) -> R,
) -> R {
    let (jobs, waiting) = mpsc::channel::<(usize, J)>();
    let waiting = Mutex::new(waiting);
    let (sender, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let sender = sender.clone();
            let (waiting, work) = (&waiting, &work);
            scope.spawn(move || {
                // A receiver that is gone means that the run has ended: nobody is left to be told.
                let send = |event| drop(sender.send(Heard::Event(event)));
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((number, job)) = next else { break };
                    let panic = catch_unwind(AssertUnwindSafe(|| work(number, job, &send))).err().map(|panic| {
                        let text = panic.downcast_ref::<String>().map(String::as_str);
                        text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
                    });
                    let _ = sender.send(Heard::Over(number, panic));
                }
            });
        }
        drop(sender);
        let desk = Desk { jobs, told };
        owner(&desk)
    })
}

/// Does `work` for each item on at most `threads` threads. Whatever it sends reaches `sink` on this thread, in the order
/// of arrival; nothing reaches it after a while in which nothing came. Work that panics is told by its index and the
/// panic's message, and the others go on.
pub(super) fn each<T: Sync, E: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T, &(dyn Fn(E) + Sync)) + Sync,
    panicked: impl Fn(usize, String) -> E,
    mut sink: impl FnMut(Option<E>),
) {
    crew(
        threads.min(items.len()),
        |_, item, send| work(item, send),
        |desk| {
            items.iter().enumerate().for_each(|(at, item)| desk.give(at, item));
            let mut open = items.len();
            while open > 0 {
                match desk.hear(WHILE) {
                    Some(Heard::Event(event)) => sink(Some(event)),
                    Some(Heard::Over(at, panic)) => {
                        open -= 1;
                        if let Some(message) = panic {
                            sink(Some(panicked(at, message)));
                        }
                    }
                    None => sink(None),
                }
            }
        },
    );
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
