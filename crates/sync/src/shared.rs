//! A reader-writer lock whose guards own it.
//!
//! A guard of [`RwLock`](crate::RwLock) borrows the lock. Where guards are returned, or
//! kept in a list beside the objects they lock, that borrow is in the way: a
//! [`SharedRwLock`] lives in its own allocation and its guards keep it alive.

use crate::held::Held;
use crate::{Arc, LockClass, statistics};
use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, RawRwLock};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Many readers or one writer; clones are handles to the same lock.
pub struct SharedRwLock<T> {
    class: &'static LockClass,
    inner: Arc<parking_lot::RwLock<T>>,
}

/// Shared access to what a [`SharedRwLock`] protects, until dropped.
#[must_use = "dropping the guard unlocks"]
pub struct OwnedReadGuard<T> {
    inner: ArcRwLockReadGuard<RawRwLock, T>,
    _held: Held,
}

/// Exclusive access to what a [`SharedRwLock`] protects, until dropped.
#[must_use = "dropping the guard unlocks"]
pub struct OwnedWriteGuard<T> {
    inner: ArcRwLockWriteGuard<RawRwLock, T>,
    _held: Held,
}

impl<T> SharedRwLock<T> {
    /// A lock of `class` around `value`.
    pub fn new(class: &'static LockClass, value: T) -> Self {
        Self { class, inner: Arc::new(parking_lot::RwLock::new(value)) }
    }

    /// Takes the lock shared, waiting while another thread has it exclusively.
    ///
    /// # Panics
    ///
    /// In debug builds, if a lock of the same or a higher rank is held (see [`LockClass`]).
    #[inline]
    pub fn read(&self) -> OwnedReadGuard<T> {
        let held = Held::ordered(self.class, self.address());
        let inner = statistics::take(
            self.class,
            || self.inner.try_read_arc(),
            || wait(|| self.inner.try_read_arc(), || self.inner.read_arc()),
        );
        OwnedReadGuard { inner, _held: held }
    }

    /// Takes the lock exclusively, waiting while another thread has it.
    ///
    /// # Panics
    ///
    /// In debug builds, if a lock of the same or a higher rank is held (see [`LockClass`]).
    #[inline]
    pub fn write(&self) -> OwnedWriteGuard<T> {
        let held = Held::ordered(self.class, self.address());
        let inner = statistics::take(
            self.class,
            || self.inner.try_write_arc(),
            || wait(|| self.inner.try_write_arc(), || self.inner.write_arc()),
        );
        OwnedWriteGuard { inner, _held: held }
    }

    /// Takes the lock shared if that needs no wait. May be out of rank order.
    #[inline]
    pub fn try_read(&self) -> Option<OwnedReadGuard<T>> {
        let inner = self.inner.try_read_arc()?;
        statistics::taken(self.class);
        Some(OwnedReadGuard { inner, _held: Held::unordered(self.class, self.address()) })
    }

    /// Takes the lock exclusively if that needs no wait. May be out of rank order.
    #[inline]
    pub fn try_write(&self) -> Option<OwnedWriteGuard<T>> {
        let inner = self.inner.try_write_arc()?;
        statistics::taken(self.class);
        Some(OwnedWriteGuard { inner, _held: Held::unordered(self.class, self.address()) })
    }

    /// Whether both are handles to one lock, which must not be taken twice.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    #[inline(always)]
    fn address(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }
}

#[cfg(not(loom))]
fn wait<G>(_: impl Fn() -> Option<G>, block: impl FnOnce() -> G) -> G {
    block()
}

/// Blocking would stop the system thread that all of loom's threads share.
#[cfg(loom)]
fn wait<G>(attempt: impl Fn() -> Option<G>, _: impl FnOnce() -> G) -> G {
    loop {
        if let Some(guard) = attempt() {
            return guard;
        }
        crate::thread::yield_now();
    }
}

impl<T> Clone for SharedRwLock<T> {
    fn clone(&self) -> Self {
        Self { class: self.class, inner: Arc::clone(&self.inner) }
    }
}

impl<T> fmt::Debug for SharedRwLock<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SharedRwLock")
            .field("class", &self.class.name())
            .finish_non_exhaustive()
    }
}

impl<T> Deref for OwnedReadGuard<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for OwnedWriteGuard<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for OwnedWriteGuard<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for OwnedReadGuard<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, formatter)
    }
}

impl<T: fmt::Debug> fmt::Debug for OwnedWriteGuard<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, formatter)
    }
}
