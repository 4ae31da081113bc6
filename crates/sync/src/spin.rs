//! A lock for sections of a few dozen instructions.
//!
//! A waiter spins, then yields its time slice, and sleeps only after doing both for a while. With
//! more threads than cores the holder may have lost its core, and spinning would keep it from
//! getting the core back.

use crate::{LockClass, Mutex, MutexGuard};

/// Mutual exclusion for very short sections; waiters spin before they sleep.
#[derive(Debug)]
pub struct SpinLock<T> {
    mutex: Mutex<T>,
}

/// Access to what a [`SpinLock`] protects, until dropped.
pub type SpinLockGuard<'a, T> = MutexGuard<'a, T>;

/// Rounds that end in a yield before a waiter sleeps.
#[cfg(not(any(loom, sim)))]
const YIELDS: u32 = 64;

impl<T> SpinLock<T> {
    /// A spin lock of `class` around `value`.
    pub fn new(class: &'static LockClass, value: T) -> Self {
        Self { mutex: Mutex::new(class, value) }
    }

    /// Takes the lock, spinning while another thread holds it.
    ///
    /// # Panics
    ///
    /// In debug builds, if a lock of the same or a higher rank is held (see [`LockClass`]).
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        self.mutex.lock_after(|| self.wait())
    }

    #[cfg(not(any(loom, sim)))]
    fn wait(&self) -> crate::backend::MutexGuard<'_, T> {
        let mutex = self.mutex.backend();
        let backoff = crossbeam_utils::Backoff::new();
        let mut yields = 0;
        while yields < YIELDS {
            yields += u32::from(backoff.is_completed());
            backoff.snooze();
            if let Some(guard) = mutex.try_lock() {
                return guard;
            }
        }
        mutex.lock()
    }

    /// A simulated lock spins by itself: as waiters do on a real one, it only looks, while each try here would
    /// take the line from the holder at once.
    #[cfg(sim)]
    fn wait(&self) -> crate::backend::MutexGuard<'_, T> {
        self.mutex.backend().lock_spinning()
    }

    /// Spinning would only multiply loom's executions.
    #[cfg(loom)]
    fn wait(&self) -> crate::backend::MutexGuard<'_, T> {
        self.mutex.backend().lock()
    }

    /// Takes the lock if no one holds it. Never waits, so it may be out of rank order.
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub fn try_lock(&self) -> Option<SpinLockGuard<'_, T>> {
        self.mutex.try_lock()
    }

    /// The value, without locking: the borrow proves that no one else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.mutex.get_mut()
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.mutex.into_inner()
    }
}
