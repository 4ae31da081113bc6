//! Work that is waiting, shared by the threads of a copy.
//!
//! Last in, first out: a tree is walked depth first, so that what is open at a time grows with its
//! depth and not with its width.

use drystone_sync::{Condvar, LockClass, Mutex, thread};

static QUEUE: LockClass = LockClass::new("transfer queue", 2);

struct QueueState<W> {
    waiting: Vec<W>,
    /// Threads that work and may add more.
    working: usize,
}

/// A stack of work.
pub(super) struct WorkQueue<W> {
    state: Mutex<QueueState<W>>,
    changed: Condvar,
}

impl<W> WorkQueue<W> {
    pub fn new() -> WorkQueue<W> {
        let state = QueueState { waiting: Vec::new(), working: 0 };
        WorkQueue { state: Mutex::new(&QUEUE, state), changed: Condvar::new() }
    }

    /// Adds work; the last is done first.
    pub fn add(&self, work: impl IntoIterator<Item = W>) {
        let mut state = self.state.lock();
        let before = state.waiting.len();
        state.waiting.extend(work);
        match state.waiting.len() - before {
            0 => {}
            1 => self.changed.notify_one(),
            _ => self.changed.notify_all(),
        }
    }

    /// Does work until there is none and no thread can add any.
    pub fn work(&self, mut body: impl FnMut(W)) {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.waiting.pop() {
                state.working += 1;
                drop(state);
                {
                    // By a panic, too: the others must not wait for what it would have added.
                    let _end = thread::at_end(|| self.end_one());
                    body(work);
                }
                state = self.state.lock();
            } else if state.working == 0 {
                self.changed.notify_all();
                return;
            } else {
                self.changed.wait(&mut state);
            }
        }
    }

    /// One of those that worked doesn't any more.
    fn end_one(&self) {
        let mut state = self.state.lock();
        state.working -= 1;
        if state.working == 0 && state.waiting.is_empty() {
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn nobody_waits_for_one_that_panicked() {
        let (queue, done) = (WorkQueue::new(), AtomicU32::new(0));
        queue.add(0..100);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            thread::together("work", 4, || {
                queue.work(|number| {
                    assert_ne!(number, 50, "as it should");
                    done.fetch_add(1, Ordering::Relaxed);
                });
            });
        }));
        ended.unwrap_err();
        assert_eq!(done.into_inner(), 99);
    }
}
