//! Work for separate threads, so that the threads that take requests can go on.
//!
//! # State
//!
//! The work that waits for a thread, and whether more may come.
//!
//! # Locking
//!
//! One lock, held to add or take a piece of work, with nothing taken under it.

use drystone_sync::{Condvar, LockClass, Mutex};
use std::collections::VecDeque;

static BACKLOG: LockClass = LockClass::new("requests that are put aside", 5);

/// Pieces of work in the order in which they came.
pub(crate) struct Backlog<T> {
    waiting: Mutex<WaitingRequest<T>>,
    changed: Condvar,
}

struct WaitingRequest<T> {
    work: VecDeque<T>,
    is_ended: bool,
}

impl<T> Backlog<T> {
    pub fn new() -> Backlog<T> {
        let waiting = WaitingRequest { work: VecDeque::new(), is_ended: false };
        Backlog { waiting: Mutex::new(&BACKLOG, waiting), changed: Condvar::new() }
    }

    /// Adds a piece of work.
    pub fn put(&self, work: T) {
        self.waiting.lock().work.push_back(work);
        self.changed.notify_one();
    }

    /// Waits for the next piece of work; `None` once all is done and no more can come.
    pub fn next(&self) -> Option<T> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(next) = waiting.work.pop_front() {
                return Some(next);
            }
            if waiting.is_ended {
                return None;
            }
            self.changed.wait(&mut waiting);
        }
    }

    /// No more work comes once the returned value is dropped.
    pub fn ends(&self) -> Ends<'_, T> {
        Ends(self)
    }
}

/// Work may come until this is dropped.
pub(crate) struct Ends<'b, T>(&'b Backlog<T>);

impl<T> Drop for Ends<'_, T> {
    fn drop(&mut self) {
        self.0.waiting.lock().is_ended = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_sync::atomic::{AtomicU64, Ordering};
    use drystone_sync::thread;

    #[test]
    fn all_is_done_before_the_end() {
        let done = AtomicU64::new(0);
        let backlog = Backlog::new();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(number) = backlog.next() {
                        done.fetch_add(number, Ordering::Relaxed);
                    }
                });
            }
            let _ends = backlog.ends();
            (1..=100).for_each(|number| backlog.put(number));
        });
        assert_eq!(done.load(Ordering::Relaxed), 5050);
    }
}
