//! A mutex with a class.

use crate::held::{Held, address};
use crate::{LockClass, backend, statistics};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Mutual exclusion; waiters sleep. A panic while it is held does not poison it.
pub struct Mutex<T> {
    class: &'static LockClass,
    inner: backend::Mutex<T>,
}

/// Access to what a [`Mutex`] protects, until dropped.
#[must_use = "dropping the guard unlocks"]
pub struct MutexGuard<'a, T> {
    pub(crate) inner: backend::MutexGuard<'a, T>,
    pub(crate) held: Held,
    pub(crate) class: &'static LockClass,
}

impl<T> Mutex<T> {
    /// A mutex of `class` around `value`.
    pub fn new(class: &'static LockClass, value: T) -> Self {
        Self { class, inner: backend::Mutex::new(value) }
    }

    /// Takes the lock, waiting while another thread holds it.
    ///
    /// # Panics
    ///
    /// In debug builds, if a lock of the same or a higher rank is held (see [`LockClass`]).
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_after(|| self.inner.lock())
    }

    /// Takes the lock if it is free; `wait` gets it otherwise.
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub(crate) fn lock_after<'a>(
        &'a self,
        wait: impl FnOnce() -> backend::MutexGuard<'a, T>,
    ) -> MutexGuard<'a, T> {
        note_place!(self.class);
        let held = Held::ordered(self.class, address(self));
        let inner = statistics::take(self.class, || self.inner.try_lock(), wait);
        MutexGuard { inner, held, class: self.class }
    }

    /// Takes the lock if no one holds it. Never waits, so it may be out of rank order.
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        note_place!(self.class);
        let inner = self.inner.try_lock()?;
        statistics::taken(self.class);
        Some(MutexGuard {
            inner,
            held: Held::unordered(self.class, address(self)),
            class: self.class,
        })
    }

    /// The value, without locking: the borrow proves that no one else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }

    pub(crate) fn backend(&self) -> &backend::Mutex<T> {
        &self.inner
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mutex").field("class", &self.class.name()).finish_non_exhaustive()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, formatter)
    }
}
