//! Whether the image may be changed now: freezing, thawing, and a mount that is made read-only.
//!
//! # Locking
//! A write in place, or of delayed data, holds the lock of its core, of the class `write in place`, shared; a
//! freeze takes each once to wait for the writes under way. Handles of the journal have no lock here: a freeze sets the state
//! and then commits, which waits for them. An operation of several handles waits between two of them while
//! the image is frozen; one that makes the mount read-only lets it end first. The lock of the class `freeze`
//! is held only to wait for another state or the end of such an operation, or to wake those that do.

use crate::lock_classes;
use crossbeam_utils::CachePadded;
use drystone_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use drystone_sync::{Condvar, Mutex, PerCore, RwLock, RwLockReadGuard, long_wait};

/// Changes are allowed.
const RUNNING: u8 = 0;
/// A thread that wants to begin a change waits. Changes under way go on.
const HELD: u8 = 1;
/// Nothing changes, and threads wait: the thread that froze the image isn't done with it.
const FROZEN: u8 = 2;
/// Nothing changes; changes fail instead of waiting.
const READ_ONLY: u8 = 3;
/// Nothing changes, and threads wait until somebody thaws the image.
const THAWABLE: u8 = 4;

/// Whether a change that begins in this state waits for another one.
fn holds_back(state: u8) -> bool {
    matches!(state, HELD | FROZEN | THAWABLE)
}

/// Lets changes of the image through, or holds them back.
#[derive(Debug)]
pub(crate) struct FreezeGate {
    /// One of the states above.
    state: AtomicU8,
    changed: (Mutex<()>, Condvar),
    in_place: PerCore<RwLock<()>>,
    /// Operations of several handles that are under way. Only those change it, and the state is read by
    /// every handle.
    in_steps: CachePadded<AtomicU64>,
}

impl FreezeGate {
    /// Changes are allowed.
    pub fn new() -> FreezeGate {
        FreezeGate {
            state: AtomicU8::new(RUNNING),
            changed: (Mutex::new(&lock_classes::FREEZE, ()), Condvar::new()),
            in_place: PerCore::new(|_| RwLock::new(&lock_classes::IN_PLACE, ())),
            in_steps: CachePadded::new(AtomicU64::new(0)),
        }
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::SeqCst)
    }

    /// Sets the state, and wakes threads that wait for another one. The lock keeps a thread from missing
    /// it between its look and its wait.
    fn set(&self, state: u8) {
        self.state.store(state, Ordering::SeqCst);
        self.notify();
    }

    fn notify(&self) {
        let _guard = self.changed.0.lock();
        self.changed.1.notify_all();
    }

    fn wait_while(&self, waits: impl Fn(u8) -> bool) {
        if !waits(self.state()) {
            return;
        }
        long_wait::announce();
        let mut guard = self.changed.0.lock();
        while waits(self.state()) {
            self.changed.1.wait(&mut guard);
        }
    }

    /// Whether changes may begin.
    pub fn is_open(&self) -> bool {
        self.state() == RUNNING
    }

    /// Whether changes under way may go on: the image is neither frozen nor made read-only.
    pub fn takes_changes(&self) -> bool {
        matches!(self.state(), RUNNING | HELD)
    }

    /// Whether a change that begins now has to wait.
    pub fn holds_back(&self) -> bool {
        holds_back(self.state())
    }

    /// Waits until the image is neither frozen nor about to be. For threads that begin an operation, and
    /// hold no lock.
    pub fn wait_thawed(&self) {
        self.wait_while(holds_back);
    }

    /// Waits until the image isn't frozen; it may be read-only then.
    pub fn wait_unfrozen(&self) {
        self.wait_while(|state| matches!(state, FROZEN | THAWABLE));
    }

    /// Begins a write in place, which ends when the result is dropped; `None` while nothing may change.
    #[inline]
    pub fn begin_in_place(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let under_way = self.in_place.current().read();
        // Freezing sets the state before it waits for writes that are under way.
        self.takes_changes().then_some(under_way)
    }

    /// Notes an operation of several handles, until the result is dropped: a mount isn't made read-only
    /// between two of them. Called before the first handle, or with it open.
    pub fn begin_steps(&self) -> StepsUnderWay<'_> {
        self.in_steps.fetch_add(1, Ordering::SeqCst);
        StepsUnderWay(self)
    }

    /// Makes threads wait that want to begin a change; changes under way go on. `None` if the image is
    /// held, frozen or made read-only already.
    pub fn hold(&self) -> Option<HeldImage<'_>> {
        let held = self.state.compare_exchange(RUNNING, HELD, Ordering::SeqCst, Ordering::SeqCst);
        held.is_ok().then(|| HeldImage(self))
    }

    /// Allows all changes again. False unless a freeze has ended: one that is under way counts on it that
    /// nothing changes.
    pub fn thaw(&self) -> bool {
        let exchanged =
            self.state.compare_exchange(THAWABLE, RUNNING, Ordering::SeqCst, Ordering::SeqCst);
        self.notify();
        exchanged.is_ok()
    }

    /// Thaws the image, after a freeze that is under way.
    pub fn end_freeze(&self) {
        self.wait_while(|state| matches!(state, HELD | FROZEN));
        self.thaw();
    }

    /// Allows changes again after [`make_read_only`](HeldImage::make_read_only).
    pub fn make_writable(&self) {
        self.state.store(RUNNING, Ordering::SeqCst);
    }

    /// True between [`make_read_only`](HeldImage::make_read_only) and
    /// [`make_writable`](FreezeGate::make_writable).
    pub fn is_made_read_only(&self) -> bool {
        self.state() == READ_ONLY
    }
}

/// An operation of several handles that is under way.
#[must_use]
#[derive(Debug)]
pub(crate) struct StepsUnderWay<'a>(&'a FreezeGate);

impl Drop for StepsUnderWay<'_> {
    fn drop(&mut self) {
        let before = self.0.in_steps.fetch_sub(1, Ordering::SeqCst);
        // A thread that waits for the last one has set another state before.
        if before == 1 && !self.0.is_open() {
            self.0.notify();
        }
    }
}

/// An image that is held or frozen, for the thread that does so. All changes are allowed again when it is
/// dropped, also by an error or a panic: other threads would wait forever.
#[must_use]
pub(crate) struct HeldImage<'a>(&'a FreezeGate);

impl HeldImage<'_> {
    /// Holds back writes in place and new handles as well, and waits for writes under way. The caller
    /// commits next, which waits for handles.
    pub fn freeze(&self) {
        self.0.state.store(FROZEN, Ordering::SeqCst);
        for part in self.0.in_place.iter() {
            drop(part.write());
        }
    }

    /// Lets changes under way go on again.
    pub fn unfreeze(&self) {
        self.0.set(HELD);
    }

    /// Whether an operation of several handles is between two of them. The image is frozen, and the
    /// handles that were open have stopped.
    pub fn is_any_in_steps(&self) -> bool {
        self.0.in_steps.load(Ordering::SeqCst) > 0
    }

    /// Lets operations of several handles end, which are changes under way.
    pub fn let_steps_end(&self) {
        self.unfreeze();
        let mut guard = self.0.changed.0.lock();
        while self.is_any_in_steps() {
            self.0.changed.1.wait(&mut guard);
        }
    }

    /// Leaves the image frozen, and lets anybody thaw it. Wakes a close that waits for this.
    pub fn allow_thaw(self) {
        self.end(THAWABLE);
    }

    /// Refuses changes from now on, also those that wait for the thaw. No operation of several handles
    /// is between two of them.
    pub fn make_read_only(self) {
        self.end(READ_ONLY);
    }

    fn end(self, state: u8) {
        self.0.set(state);
        std::mem::forget(self);
    }
}

impl Drop for HeldImage<'_> {
    fn drop(&mut self) {
        self.0.set(RUNNING);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    /// A simulation has no servers to announce it to.
    #[cfg(not(sim))]
    #[test]
    fn waits_for_a_thaw_are_announced() {
        use drystone_sync::Arc;
        let gate = FreezeGate::new();
        gate.wait_thawed();
        gate.hold().unwrap().allow_thaw();
        assert!(gate.holds_back());
        let waits = AtomicU8::new(0);
        drystone_sync::thread::scope(|scope| {
            let announced = Arc::new(AtomicU8::new(0));
            let (gate, waits) = (&gate, &waits);
            let counted = Arc::clone(&announced);
            scope.spawn(move || {
                long_wait::call_before(Arc::new(move || {
                    counted.fetch_add(1, Ordering::SeqCst);
                }));
                gate.wait_thawed();
                gate.wait_thawed();
                waits.fetch_add(1, Ordering::SeqCst);
            });
            while announced.load(Ordering::SeqCst) == 0 {
                drystone_sync::thread::yield_now();
            }
            assert_eq!(waits.load(Ordering::SeqCst), 0);
            assert!(gate.thaw());
        });
        assert_eq!(waits.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_panic_ends_a_freeze() {
        let gate = FreezeGate::new();
        let held = gate.hold().unwrap();
        held.freeze();
        assert!(gate.hold().is_none() && !gate.takes_changes());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = held;
            resume_unwind(Box::new("while it is frozen"));
        }));
        assert!(panicked.is_err() && gate.is_open());
        gate.hold().unwrap().allow_thaw();
        assert!(!gate.takes_changes() && gate.thaw());
        gate.hold().unwrap().make_read_only();
        assert!(gate.is_made_read_only() && !gate.thaw());
    }
}
