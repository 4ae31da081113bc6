//! Waiting for a condition on what a mutex protects.

use crate::{MutexGuard, backend, clock};
use std::time::Duration;

/// A queue of threads that wait for a change under one [`Mutex`](crate::Mutex).
///
/// A wait may end without a notification: check the condition in a loop, or use
/// [`wait_while`](Self::wait_while). All waiters of one `Condvar` must use the same mutex.
/// The time spent here is not counted as contention.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: backend::Condvar,
}

impl Condvar {
    /// A queue with no one in it.
    #[must_use]
    pub fn new() -> Self {
        Self { inner: backend::Condvar::new() }
    }

    /// Unlocks, sleeps until notified, and locks again.
    ///
    /// # Panics
    ///
    /// In debug builds, if a lock is held that ranks above the mutex: the second locking
    /// would be out of order.
    #[cfg_attr(sim, track_caller)]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        note_place!(guard.class);
        guard.held.check_wait(guard.class);
        self.inner.wait(&mut guard.inner);
    }

    /// As [`wait`](Self::wait), until `timeout` has passed. Returns whether it has.
    #[cfg_attr(sim, track_caller)]
    pub fn wait_timeout<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        note_place!(guard.class);
        guard.held.check_wait(guard.class);
        self.inner.wait_for(&mut guard.inner, timeout).timed_out()
    }

    /// Waits as long as `condition` holds.
    #[cfg_attr(sim, track_caller)]
    pub fn wait_while<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Waits as long as `condition` holds, until `timeout` has passed. Returns whether the
    /// condition still held then.
    #[cfg_attr(sim, track_caller)]
    pub fn wait_while_timeout<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> bool {
        let start = clock::now();
        while condition(guard) {
            let Some(left) = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero())
            else {
                return true;
            };
            self.wait_timeout(guard, left);
        }
        false
    }

    /// Wakes one waiter, if there is one.
    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        self.inner.notify_all();
    }
}
