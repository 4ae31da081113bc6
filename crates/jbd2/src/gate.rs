//! Counts open handles without a shared write, and closes so that a transaction can end.
//!
//! # State
//!
//! Each core has a word: open handles in its lower half, handles ever started in its upper half (a
//! statistic that comes for free). A handle leaves through the word by which it entered. One more
//! word, `watched`, says whether the gate is closed and how many threads wait for handles to leave.
//!
//! # Locking
//!
//! Entering counts first and then looks at the flag. Closing raises the flag first and then looks
//! at the counts. All four accesses are sequentially consistent, so the side that comes second sees
//! the other: either the closer sees the count and waits, or the entering thread sees the flag,
//! takes its count back and waits. Leaving is the mirror image: if the closer has missed that a
//! handle left, that handle's thread sees the flag and wakes the closer. The mutex is for sleeping
//! alone: with the gate open and no one waiting, no one takes it.
//!
//! A thread that waits for room is counted first and then looks for room. A handle gives back its
//! room before it leaves. So either the waiting thread finds the room, or the leaving thread sees
//! the count and wakes one waiter. The woken thread later leaves too, or asks for a commit, which
//! closes the gate and wakes all.
//!
//! A word that was zero once after the flag was raised has no open handle until the gate opens, so
//! the closer may look at one word after the other.

use crate::lock_classes::GATE;
use crossbeam_utils::CachePadded;
use drystone_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use drystone_sync::{Condvar, Mutex, PerCore};

const IN_FLIGHT_MASK: u64 = 0xffff_ffff;
const STARTED_ONE: u64 = 1 << 32;

/// Bits of `watched`: the gate is closed; the number of threads that wait for room.
const CLOSED: u32 = 1;
const ROOM_WAITER: u32 = 2;

#[derive(Debug)]
pub(crate) struct Gate {
    words: PerCore<AtomicU64>,
    /// Read by every handle, so alone on its cache lines.
    watched: CachePadded<AtomicU32>,
    sleepers: Mutex<()>,
    opened: Condvar,
    left: Condvar,
    room: Condvar,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self::over(PerCore::new(|_| AtomicU64::new(0)))
    }

    fn over(words: PerCore<AtomicU64>) -> Self {
        Self {
            words,
            watched: CachePadded::new(AtomicU32::new(0)),
            sleepers: Mutex::new(&GATE, ()),
            opened: Condvar::new(),
            left: Condvar::new(),
            room: Condvar::new(),
        }
    }

    /// Enters by the word of `core`, waiting while the gate is closed. What was done while it
    /// was closed is visible after.
    #[inline]
    pub(crate) fn enter(&self, core: usize) {
        while !self.try_enter(core) {
            let mut sleepers = self.sleepers.lock();
            while self.watched.load(Ordering::Relaxed) & CLOSED != 0 {
                self.opened.wait(&mut sleepers);
            }
        }
    }

    #[inline]
    fn try_enter(&self, core: usize) -> bool {
        let word = self.words.slot(core);
        word.fetch_add(STARTED_ONE + 1, Ordering::SeqCst);
        loom_fence();
        // As an acquire it pairs with the release in `ClosedGate::drop`.
        if self.watched.load(Ordering::SeqCst) & CLOSED == 0 {
            return true;
        }
        word.fetch_sub(STARTED_ONE, Ordering::Relaxed);
        self.leave(core);
        false
    }

    /// Leaves by the word of `core`. What was done inside is visible to the closer and to threads
    /// that wait for room.
    #[inline]
    pub(crate) fn leave(&self, core: usize) {
        self.words.slot(core).fetch_sub(1, Ordering::SeqCst);
        loom_fence();
        if self.watched.load(Ordering::SeqCst) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let _sleepers = self.sleepers.lock();
        self.left.notify_all();
        self.room.notify_one();
    }

    /// Waits until `is_over`, which is asked again when a handle has left or the gate has been
    /// closed and opened. To be called from outside.
    pub(crate) fn wait_for_room(&self, mut is_over: impl FnMut() -> bool) {
        let mut sleepers = self.sleepers.lock();
        self.watched.fetch_add(ROOM_WAITER, Ordering::SeqCst);
        loom_fence();
        // If a leaving thread hasn't seen the count, this sees the room that it gave back.
        for word in self.words.iter() {
            word.load(Ordering::SeqCst);
        }
        while !is_over() {
            self.room.wait(&mut sleepers);
        }
        self.watched.fetch_sub(ROOM_WAITER, Ordering::Relaxed);
    }

    /// Lets every thread that waits for room check again.
    pub(crate) fn wake_all(&self) {
        let _sleepers = self.sleepers.lock();
        self.room.notify_all();
    }

    /// Closes the gate and waits until no handle is inside. Dropping the result opens it. For one
    /// thread at a time.
    pub(crate) fn close(&self) -> ClosedGate<'_> {
        let mut sleepers = self.sleepers.lock();
        self.watched.fetch_or(CLOSED, Ordering::SeqCst);
        loom_fence();
        for word in self.words.iter() {
            // As an acquire it pairs with the release in `leave`.
            while word.load(Ordering::SeqCst) & IN_FLIGHT_MASK != 0 {
                self.left.wait(&mut sleepers);
            }
        }
        ClosedGate { gate: self }
    }

    /// How often each word was entered, modulo 2^32.
    pub(crate) fn started(&self) -> impl Iterator<Item = u32> {
        self.words.iter().map(|word| (word.load(Ordering::Relaxed) >> 32) as u32)
    }
}

/// Loom treats sequentially consistent accesses as acquire and release, and models only fences as
/// sequentially consistent. On a processor the fence would cost extra.
#[inline(always)]
fn loom_fence() {
    #[cfg(loom)]
    drystone_sync::atomic::fence(Ordering::SeqCst);
}

/// No handle is inside, and none gets in until this is dropped.
pub(crate) struct ClosedGate<'a> {
    gate: &'a Gate,
}

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        let _sleepers = self.gate.sleepers.lock();
        self.gate.watched.fetch_and(!CLOSED, Ordering::Release);
        self.gate.opened.notify_all();
        self.gate.room.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use drystone_sync::thread;

    #[test]
    fn no_one_is_inside_while_closed() {
        let gate = Gate::new();
        let inside = AtomicU64::new(0);
        let rounds = 200;
        thread::scope(|scope| {
            for core in 0..4 {
                let (gate, inside) = (&gate, &inside);
                scope.spawn(move || {
                    for _ in 0..rounds * 20 {
                        gate.enter(core);
                        inside.fetch_add(1, Ordering::Relaxed);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        gate.leave(core);
                    }
                });
            }
            for _ in 0..rounds {
                let _closed = gate.close();
                assert_eq!(inside.load(Ordering::Relaxed), 0);
            }
        });
        assert_eq!(gate.started().map(u64::from).sum::<u64>(), rounds * 20 * 4);
    }
}

/// Run with `RUSTFLAGS="--cfg loom"`, a target directory of its own, and
/// `LOOM_MAX_PREEMPTIONS=3` (12 seconds; without a bound it does not end).
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use drystone_sync::{Arc, model, thread};

    fn gate(words: usize) -> Arc<Gate> {
        Arc::new(Gate::over(PerCore::with_slots(words, |_| AtomicU64::new(0))))
    }

    /// The closer sees all that threads inside did; a thread that enters later sees what was done
    /// while the gate was closed.
    #[test]
    fn closing_excludes_handles() {
        model(|| {
            let gate = gate(2);
            let value = Arc::new(AtomicU64::new(0));
            let workers: Vec<_> = (0..2)
                .map(|core| {
                    let (gate, value) = (gate.clone(), value.clone());
                    thread::spawn("worker", move || {
                        gate.enter(core);
                        // Two steps, so that a closer that ran in between would see an odd number.
                        value.fetch_add(1, Ordering::Relaxed);
                        value.fetch_add(1, Ordering::Relaxed);
                        gate.leave(core);
                    })
                })
                .collect();
            {
                let _closed = gate.close();
                let seen = value.load(Ordering::Relaxed);
                assert_eq!(seen % 2, 0, "a handle is open while the gate is closed");
                assert_eq!(value.load(Ordering::Relaxed), seen);
            }
            for worker in workers {
                worker.unwrap().join().unwrap();
            }
            assert_eq!(value.load(Ordering::Relaxed), 4);
            assert_eq!(gate.started().sum::<u32>(), 2);
        });
    }

    /// A thread that finds too little room is told of what a handle gives back.
    #[test]
    fn room_given_back_is_noticed() {
        model(|| {
            let gate = gate(2);
            let room = Arc::new(AtomicU64::new(0));
            let worker = {
                let (gate, room) = (gate.clone(), room.clone());
                gate.enter(0);
                thread::spawn("worker", move || {
                    room.fetch_add(1, Ordering::Relaxed);
                    gate.leave(0);
                })
            };
            gate.enter(1);
            gate.leave(1);
            gate.wait_for_room(|| room.load(Ordering::Relaxed) == 1);
            worker.unwrap().join().unwrap();
        });
    }

    /// Two handles on one core's word.
    #[test]
    fn shared_word() {
        model(|| {
            let gate = gate(1);
            let inside = Arc::new(AtomicU64::new(0));
            let worker = {
                let (gate, inside) = (gate.clone(), inside.clone());
                thread::spawn("worker", move || {
                    gate.enter(0);
                    inside.fetch_add(1, Ordering::Relaxed);
                    inside.fetch_sub(1, Ordering::Relaxed);
                    gate.leave(0);
                })
            };
            gate.enter(0);
            gate.leave(0);
            drop(gate.close());
            let closed = gate.close();
            assert_eq!(inside.load(Ordering::Relaxed), 0);
            drop(closed);
            worker.unwrap().join().unwrap();
        });
    }
}
