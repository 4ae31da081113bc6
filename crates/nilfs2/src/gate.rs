//! The gate that every change passes, so that the log writer can freeze what is dirty.
//!
//! # Locking
//! A change holds its core's part of the gate shared, so that changes share no lock. The log writer takes
//! all parts while it takes the dirty inodes off their lists, and releases them before it builds the log.

use crate::lock_classes::{FREEZE, GATE};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{
    Condvar, Mutex, PerCore, RwLock, RwLockReadGuard, RwLockWriteGuard, long_wait,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate {
    parts: PerCore<RwLock<()>>,
    /// Changes wait until the volume is thawed. Written with `freezer` locked.
    is_frozen: AtomicBool,
    freezer: Mutex<()>,
    thawed: Condvar,
}

/// A change is under way while a thread holds this.
pub(crate) type GatePass<'a> = RwLockReadGuard<'a, ()>;

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            parts: PerCore::new(|_| RwLock::new(&GATE, ())),
            is_frozen: AtomicBool::new(false),
            freezer: Mutex::new(&FREEZE, ()),
            thawed: Condvar::new(),
        }
    }

    /// Begins a change; waits while the volume is frozen.
    pub(crate) fn enter(&self) -> GatePass<'_> {
        loop {
            let inside = self.parts.current().read();
            if !self.is_frozen.load(Ordering::Acquire) {
                return inside;
            }
            drop(inside);
            self.wait_until_thawed();
        }
    }

    /// Returns when the volume isn't frozen.
    pub(crate) fn wait_until_thawed(&self) {
        if !self.is_frozen() {
            return;
        }
        long_wait::announce();
        let mut freezer = self.freezer.lock();
        while self.is_frozen.load(Ordering::Acquire) {
            self.thawed.wait(&mut freezer);
        }
    }

    /// Begins a change even if the volume is frozen: one that is in memory only until it is thawed.
    pub(crate) fn pass(&self) -> GatePass<'_> {
        self.parts.current().read()
    }

    /// Whether changes wait.
    pub(crate) fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Acquire)
    }

    /// Waits until no change is under way, and keeps others out while the result lives.
    pub(crate) fn close(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        self.parts.iter().map(RwLock::write).collect()
    }

    /// Keeps changes out until [`thaw`](Self::thaw); false if they were kept out already.
    pub(crate) fn freeze(&self) -> bool {
        let _freezer = self.freezer.lock();
        !self.is_frozen.swap(true, Ordering::AcqRel)
    }

    /// Lets changes in again; false if they weren't kept out.
    pub(crate) fn thaw(&self) -> bool {
        let _freezer = self.freezer.lock();
        let was_frozen = self.is_frozen.swap(false, Ordering::AcqRel);
        self.thawed.notify_all();
        was_frozen
    }
}
