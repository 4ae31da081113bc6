//! The lock of an inode's content: of a directory's names, or of a file's data and mapping.
//!
//! # State
//! A reader-writer lock. A directory that threads of several cores use in turn gets locks for the cores besides: then
//! a reader takes that of its core, and readers write to no common cache line. A writer ends that, until
//! threads of several cores have used the directory often again.
//!
//! # Locking
//! A writer locks `whole` exclusively. If readers use the locks of their cores, the writer says that they don't any
//! more, and takes each of these locks once, to wait for the readers that have one. A reader that gets the lock of
//! its core after that sees what the writer has said, and takes `whole`. Only a thread that has locked `whole` shared
//! lets readers use the locks of their cores again, so no writer has it then.

use crate::lock_classes;
use drystone_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use drystone_sync::{
    OnceLock, PerCore, RwLock, RwLockReadGuard, RwLockWriteGuard, core_slots, current_core,
};

/// The most locks for cores that one directory gets; cores share them on larger machines.
const CORE_LOCKS_MAX: usize = 32;
/// What a use by another core than the last one adds to the score. One by the same core takes 1 from it.
const SCORE_OF_CHANGE: u16 = 4;
/// The score at which readers use the locks of their cores. The writer that ends that takes all of these locks, so it
/// happens once in hundreds of uses at most.
const SCORE_OF_SHARED: u16 = 2048;
/// The core in the word of the last use.
const CORE_SHIFT: u32 = 16;

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct ContentLock<'a> {
    whole: &'a RwLock<()>,
    /// Of a directory.
    readers: Option<&'a CoreReaders>,
}

/// The locks of the cores.
#[derive(Default)]
pub(crate) struct CoreReaders {
    /// Readers use them.
    is_used: AtomicBool,
    /// The core of the last reader that took `whole`, and the score.
    last_use: AtomicU32,
    locks: OnceLock<PerCore<RwLock<()>>>,
}

impl<'a> ContentLock<'a> {
    /// The lock that consists of these parts; only a directory has `readers`.
    #[inline]
    pub fn new(whole: &'a RwLock<()>, readers: Option<&'a CoreReaders>) -> ContentLock<'a> {
        ContentLock { whole, readers }
    }

    /// Locks the content shared.
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub fn read(self) -> RwLockReadGuard<'a, ()> {
        let Some(readers) = self.readers else { return self.whole.read() };
        if readers.is_used.load(Ordering::Relaxed)
            && let Some(locks) = readers.locks.get()
        {
            let guard = locks.current().read();
            // Pairs with the release in `share`: what writers have changed before that is seen.
            if readers.is_used.load(Ordering::Acquire) {
                return guard;
            }
        }
        let guard = self.whole.read();
        // There are fewer cores than that.
        if readers.note_use(current_core() as u16) {
            readers.share(&guard);
        }
        guard
    }

    /// Locks the content exclusively.
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub fn write(self) -> RwLockWriteGuard<'a, ()> {
        let guard = self.whole.write();
        if let Some(readers) = self.readers
            && readers.is_used.load(Ordering::Relaxed)
        {
            readers.end_share(&guard);
        }
        guard
    }
}

impl CoreReaders {
    /// Notes a use by a reader on a core that has locked `whole`. Returns whether threads of several cores have used it often
    /// since they used locks of their own. Notes that get lost only delay that.
    #[inline]
    fn note_use(&self, here: u16) -> bool {
        let before = self.last_use.load(Ordering::Relaxed);
        let (core, score) = ((before >> CORE_SHIFT) as u16, before as u16);
        let score = match core == here {
            true => score.saturating_sub(1),
            false => score.saturating_add(SCORE_OF_CHANGE),
        };
        let now = u32::from(here) << CORE_SHIFT | u32::from(score);
        if now != before {
            self.last_use.store(now, Ordering::Relaxed);
        }
        score >= SCORE_OF_SHARED
    }

    /// Lets readers use the locks of their cores.
    #[cold]
    pub fn share(&self, _whole: &RwLockReadGuard<'_, ()>) {
        self.locks.get_or_init(|| {
            let slots = core_slots().min(CORE_LOCKS_MAX);
            PerCore::with_slots(slots, |_| RwLock::new(&lock_classes::DIRECTORY, ()))
        });
        self.last_use.store(0, Ordering::Relaxed);
        self.is_used.store(true, Ordering::Release);
    }

    /// Makes readers use `whole` again, and waits for those that don't.
    #[cold]
    #[cfg_attr(sim, track_caller)]
    fn end_share(&self, _whole: &RwLockWriteGuard<'_, ()>) {
        self.is_used.store(false, Ordering::Relaxed);
        for lock in self.locks.get().into_iter().flat_map(PerCore::iter) {
            drop(lock.write());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Uses until readers share, each by the core that `core_of` gives.
    fn uses(readers: &CoreReaders, core_of: impl Fn(u16) -> u16) -> Option<usize> {
        (0..10_000).position(|number| readers.note_use(core_of(number)))
    }

    #[test]
    fn only_a_directory_that_cores_use_in_turn_is_shared() {
        let (whole, readers) = (RwLock::new(&lock_classes::DIRECTORY, ()), CoreReaders::default());
        let lock = ContentLock::new(&whole, Some(&readers));
        assert_eq!(uses(&readers, |_| 3), None);
        // A thread that moves to another core now and then.
        assert_eq!(uses(&readers, |number| number / 16), None);
        assert!(readers.locks.get().is_none());
        for _ in 0..2 {
            assert!(uses(&readers, |number| number % 2).is_some_and(|uses| uses > 500));
            readers.share(&whole.read());
            let shared = lock.read();
            assert!(whole.try_write().is_some());
            drop(shared);
            assert!(readers.is_used.load(Ordering::Relaxed));
            drop(lock.write());
            assert!(!readers.is_used.load(Ordering::Relaxed));
        }
    }
}
