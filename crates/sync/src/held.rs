//! The lock order check of debug builds: which locks does this thread hold?
//!
//! # State
//!
//! A thread-local stack of (class, address of the lock). Guards may be dropped in any
//! order, so leaving removes the youngest entry of that lock, wherever it is.
//!
//! Release builds and the back ends whose threads share one system thread (loom, sim) keep no
//! stack; a [`Held`] is then empty and costs nothing.

use crate::LockClass;

#[cfg(all(debug_assertions, not(any(loom, sim))))]
mod stack {
    use super::LockClass;
    use std::cell::RefCell;

    std::thread_local! {
        static HELD: RefCell<Vec<(&'static LockClass, usize)>> = const { RefCell::new(Vec::new()) };
    }

    /// Proof that a lock is on the thread's stack; dropping it takes the lock off.
    pub(crate) struct Held {
        lock: usize,
        /// The stack is this thread's: the proof must not move to another. Not `Send`, but
        /// `Sync`, as the guards of release builds are.
        _not_send: std::marker::PhantomData<parking_lot::MutexGuard<'static, ()>>,
    }

    impl Held {
        /// Checks the order, then pushes. Called before the lock is waited for, so that a
        /// wrong order is reported even where it happens not to deadlock, and where it does.
        pub(crate) fn ordered(class: &'static LockClass, lock: usize) -> Self {
            check(class, lock, None);
            Self::unordered(class, lock)
        }

        /// Pushes a lock that was taken without waiting, in whatever order.
        pub(crate) fn unordered(class: &'static LockClass, lock: usize) -> Self {
            // A lock taken while the thread's locals are being destroyed goes unchecked.
            let _ = HELD.try_with(|held| held.borrow_mut().push((class, lock)));
            Self { lock, _not_send: std::marker::PhantomData }
        }

        /// Checks that this lock could be taken again with all others still held, which is
        /// what a wait on a condition variable ends with.
        pub(crate) fn check_wait(&self, class: &'static LockClass) {
            check(class, self.lock, Some(self.lock));
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(place) = held.iter().rposition(|&(_, lock)| lock == self.lock) {
                    held.remove(place);
                }
            });
        }
    }

    fn check(class: &'static LockClass, lock: usize, except: Option<usize>) {
        let _ = HELD.try_with(|held| {
            let held = held.borrow();
            let others = held.iter().filter(|&&(_, other)| Some(other) != except);
            for &(other, address) in others {
                // A second read lock counts too: it deadlocks once a writer waits between.
                assert!(
                    address != lock,
                    "lock order: a lock of class `{}` (rank {}) is taken again by its holder",
                    class.name(),
                    class.rank(),
                );
                let same_nestable = std::ptr::eq(other, class) && class.is_nestable();
                assert!(
                    other.rank() < class.rank() || same_nestable,
                    "lock order: taking `{}` (rank {}) while holding `{}` (rank {}); held: {}",
                    class.name(),
                    class.rank(),
                    other.name(),
                    other.rank(),
                    names(&held),
                );
            }
        });
    }

    fn names(held: &[(&'static LockClass, usize)]) -> String {
        held.iter().map(|(class, _)| class.name()).collect::<Vec<_>>().join(", ")
    }

    /// Panics if the calling thread holds a lock. To be called before foreign code is, which may
    /// take any lock. Only debug builds check.
    ///
    /// # Panics
    ///
    /// Names the classes held.
    pub fn assert_none_held() {
        HELD.with(|held| {
            let held = held.borrow();
            assert!(held.is_empty(), "locks are still held: {}", names(&held));
        });
    }

    /// The locks that the calling thread holds when an operation begins. They are its caller's, who
    /// may hold them while the operation calls foreign code.
    pub struct CallersLocks(usize);

    impl CallersLocks {
        /// Only debug builds count.
        pub fn now() -> Self {
            Self(HELD.with(|held| held.borrow().len()))
        }

        /// Panics if the thread has taken a lock since. To be called before foreign code is.
        ///
        /// # Panics
        ///
        /// Names the classes held.
        pub fn assert_no_more(&self) {
            HELD.with(|held| {
                let held = held.borrow();
                assert!(held.len() <= self.0, "locks are still held: {}", names(&held[self.0..]));
            });
        }
    }
}

#[cfg(not(all(debug_assertions, not(any(loom, sim)))))]
mod stack {
    use super::LockClass;

    pub(crate) struct Held;

    impl Held {
        #[inline(always)]
        pub(crate) fn ordered(_: &'static LockClass, _: usize) -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn unordered(_: &'static LockClass, _: usize) -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn check_wait(&self, _: &'static LockClass) {}
    }

    /// Panics if the calling thread holds a lock. To be called before foreign code is, which may
    /// take any lock. Only debug builds check.
    #[inline(always)]
    pub fn assert_none_held() {}

    /// The locks that the calling thread holds when an operation begins. They are its caller's, who
    /// may hold them while the operation calls foreign code.
    pub struct CallersLocks;

    impl CallersLocks {
        /// Only debug builds count.
        #[inline(always)]
        pub fn now() -> Self {
            Self
        }

        /// Panics if the thread has taken a lock since. To be called before foreign code is.
        #[inline(always)]
        pub fn assert_no_more(&self) {}
    }
}

pub(crate) use stack::Held;
pub use stack::{CallersLocks, assert_none_held};

/// The identity of a lock.
#[inline(always)]
pub(crate) fn address<T>(lock: &T) -> usize {
    std::ptr::from_ref(lock).addr()
}
