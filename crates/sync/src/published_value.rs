//! A value that is read all the time and replaced a few times in a process's life.
//!
//! # State
//!
//! A read costs one load. Values that were replaced are kept until the whole is dropped, so a reference to
//! one stays valid: a thread that still has it goes on with the old value. Memory grows with each
//! replacement.
//!
//! # Locking
//!
//! One lock serialises replacements; nothing is locked inside it.
#![allow(unsafe_code)]

use crate::atomic::{AtomicPtr, Ordering};
use crate::{LockClass, Mutex};
use std::fmt;

/// See the module.
pub struct PublishedValue<T> {
    /// Made by `Box::into_raw`, and freed by the drop alone.
    current: AtomicPtr<T>,
    /// What was current before. As pointers: a `Box` that moves would claim to be the only way to its value.
    replaced: Mutex<Vec<*mut T>>,
}

// SAFETY: it owns its values, gives shared references to them to any thread, and may drop them on another
// thread than the one that made them.
unsafe impl<T: Send + Sync> Send for PublishedValue<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for PublishedValue<T> {}

impl<T> PublishedValue<T> {
    /// Starts with a value; `class` is that of the lock for replacements.
    pub fn new(class: &'static LockClass, value: T) -> Self {
        Self {
            current: AtomicPtr::new(Box::into_raw(Box::new(value))),
            replaced: Mutex::new(class, Vec::new()),
        }
    }

    /// The newest value.
    #[inline]
    pub fn get(&self) -> &T {
        // SAFETY: the pointer is that of a value which lives as long as `self`; the load pairs with the
        // store that published it, and nobody changes a value that was published.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Makes `value` the newest one. References to older ones stay valid.
    pub fn replace(&self, value: T) {
        let mut replaced = self.replaced.lock();
        replaced.push(self.current.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel));
    }
}

impl<T> Drop for PublishedValue<T> {
    fn drop(&mut self) {
        let replaced = std::mem::take(self.replaced.get_mut());
        for pointer in replaced.into_iter().chain([self.current.load(Ordering::Relaxed)]) {
            // SAFETY: each was made by `Box::into_raw` and is freed only here, when no reference to it is left.
            drop(unsafe { Box::from_raw(pointer) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for PublishedValue<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(formatter)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Arc;

    static CLASS: LockClass = LockClass::new("published in a test", 1);

    #[test]
    fn older_values_live_as_long_as_the_whole() {
        let counted = Arc::new(());
        let published = PublishedValue::new(&CLASS, (1, Arc::clone(&counted)));
        let first = published.get();
        published.replace((2, Arc::clone(&counted)));
        let second = published.get();
        published.replace((3, Arc::clone(&counted)));
        assert_eq!((first.0, second.0, published.get().0), (1, 2, 3));
        assert_eq!(Arc::strong_count(&counted), 4);
        drop(published);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
