//! Templates that have no end. The engine counts its instructions and what they make, but one of them can compare lists
//! whose parts are the same few over and over, which is more than any lifetime, and nothing can stop it but the end of
//! the process.

use crate::error::{Error, Kind};
use crate::source::Span;
use std::cell::LazyCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// How many ticks a template may take. What it may compute is done in two seconds on an old machine.
const LIMIT: u64 = 10;

/// How often [`endless`] was called. Time in which the process is stopped doesn't count.
static TICKS: AtomicU64 = AtomicU64::new(0);

/// What each thread evaluates.
static THREADS: Mutex<Vec<Weak<Under>>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: LazyCell<Arc<Under>> = LazyCell::new(|| {
        let own = Arc::new(Under::default());
        let mut threads = THREADS.lock().unwrap_or_else(|e| e.into_inner());
        threads.retain(|thread| thread.strong_count() > 0);
        threads.push(Arc::downgrade(&own));
        own
    });
}

/// The evaluations under way on a thread, outermost first.
type Under = Mutex<Vec<Begun>>;

struct Begun {
    tick: u64,
    place: Span,
    /// Whether it is a part of a run, so that hosts may have been changed.
    running: bool,
}

/// Notes that an evaluation begins.
pub(super) fn begin(place: &Span, running: bool) {
    let begun = Begun { tick: TICKS.load(Ordering::Relaxed), place: place.clone(), running };
    OWN.with(|own| own.lock().unwrap_or_else(|e| e.into_inner()).push(begun));
}

/// Notes that all evaluations are over but for so many.
pub(super) fn end(left: usize) {
    OWN.with(|own| own.lock().unwrap_or_else(|e| e.into_inner()).truncate(left));
}

/// Counts a tick, and tells a template that has been evaluated for too many, and whether hosts may have been changed.
pub fn endless() -> Option<(Error, bool)> {
    let now = TICKS.fetch_add(1, Ordering::Relaxed) + 1;
    let threads: Vec<Arc<Under>> =
        THREADS.lock().unwrap_or_else(|e| e.into_inner()).iter().filter_map(Weak::upgrade).collect();
    threads.iter().find_map(|thread| {
        let under = thread.lock().unwrap_or_else(|e| e.into_inner());
        let begun = under.iter().rev().find(|begun| now - begun.tick > LIMIT)?;
        let error = Error::new(Kind::Playbook, format!("this template isn't done after {LIMIT} seconds"))
            .at(&begun.place)
            .hint("does it compare or join lists or mappings that hold themselves many times over, or need very many variables?");
        let stopped = "the run was ended at once, as by a second Ctrl-C: hosts may have been changed";
        Some((if begun.running { error.hint(stopped) } else { error }, begun.running))
    })
}
