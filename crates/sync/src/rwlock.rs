//! A reader-writer lock with a class.

use crate::held::{Held, address};
use crate::{LockClass, backend, statistics};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Many readers or one writer; waiters sleep. A panic while it is held does not poison it.
pub struct RwLock<T> {
    class: &'static LockClass,
    inner: backend::RwLock<T>,
}

/// Shared access to what a [`RwLock`] protects, until dropped.
#[must_use = "dropping the guard unlocks"]
pub struct RwLockReadGuard<'a, T> {
    inner: backend::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// Exclusive access to what a [`RwLock`] protects, until dropped.
#[must_use = "dropping the guard unlocks"]
pub struct RwLockWriteGuard<'a, T> {
    inner: backend::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    /// A lock of `class` around `value`.
    pub fn new(class: &'static LockClass, value: T) -> Self {
        Self { class, inner: backend::RwLock::new(value) }
    }

    /// Takes the lock shared, waiting while another thread has it exclusively.
    ///
    /// # Panics
    ///
    /// In debug builds, if a lock of the same or a higher rank is held (see [`LockClass`]).
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        note_place!(self.class);
        let held = Held::ordered(self.class, address(self));
        let inner = statistics::take(self.class, || self.inner.try_read(), || self.inner.read());
        RwLockReadGuard { inner, _held: held }
    }

    /// Takes the lock exclusively, waiting while another thread has it.
    ///
    /// # Panics
    ///
    /// In debug builds, if a lock of the same or a higher rank is held (see [`LockClass`]).
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        note_place!(self.class);
        let held = Held::ordered(self.class, address(self));
        let inner = statistics::take(self.class, || self.inner.try_write(), || self.inner.write());
        RwLockWriteGuard { inner, _held: held }
    }

    /// Takes the lock shared if that needs no wait. May be out of rank order.
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        note_place!(self.class);
        let inner = self.inner.try_read()?;
        statistics::taken(self.class);
        Some(RwLockReadGuard { inner, _held: Held::unordered(self.class, address(self)) })
    }

    /// Takes the lock exclusively if that needs no wait. May be out of rank order.
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        note_place!(self.class);
        let inner = self.inner.try_write()?;
        statistics::taken(self.class);
        Some(RwLockWriteGuard { inner, _held: Held::unordered(self.class, address(self)) })
    }

    /// The value, without locking: the borrow proves that no one else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RwLock").field("class", &self.class.name()).finish_non_exhaustive()
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, formatter)
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, formatter)
    }
}
