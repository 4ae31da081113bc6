//! Whose turn it is to wait for requests at the device.
//!
//! A request wakes the thread that has waited longest. Several that wait take turns then, on cores
//! of their own, and for short requests waking them costs more than answering. So one thread waits,
//! answers and waits again, while the others stand by. One of them steps in if the first is about to
//! do something that takes long (it says so), or turns out to: one of those who stand by looks every
//! now and then whether the same request keeps everybody from the device. And if requests pile up,
//! all may wait at the device for a while: a single one would keep all who ask waiting whenever
//! something else uses its core.
//!
//! # State
//!
//! How many threads are at the device, and who stands by. While there are long requests all threads
//! may wait at the device, until there have been short ones only for a while.
//!
//! # Locking
//!
//! One lock around who stands by, which a short request doesn't take.

use drystone_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use drystone_sync::{Condvar, LockClass, Mutex};
use std::time::Duration;

static STANDBY: LockClass = LockClass::new("threads that stand by", 5);

/// How long a request may keep everybody from the device.
const TICK: Duration = Duration::from_millis(1);

/// Ticks without a request after which nobody looks any more, until the next request.
const QUIET_TICKS: u32 = 50;

/// Requests after a long one during which all threads may wait at the device.
const WELCOME: usize = 64;

/// Who waits at the device, and who doesn't.
pub(crate) struct Turns {
    /// Threads that there are.
    threads: usize,
    at_device: AtomicUsize,
    /// Requests so far.
    taken: AtomicU64,
    /// Requests for which all threads are still welcome at the device.
    welcome: AtomicUsize,
    /// The one who looks has stopped looking.
    is_quiet: AtomicBool,
    standby: Mutex<Standby>,
    /// Waited for by all who stand by but the one who looks.
    called: Condvar,
    /// Waited for by the one who looks.
    looked: Condvar,
}

#[derive(Default)]
struct Standby {
    threads: usize,
    /// How many are to go to the device.
    calls: usize,
    somebody_looks: bool,
    has_ended: bool,
}

impl Turns {
    /// For so many threads.
    pub(crate) fn among(threads: usize) -> Turns {
        Turns {
            threads,
            at_device: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            welcome: AtomicUsize::new(0),
            is_quiet: AtomicBool::new(false),
            standby: Mutex::new(&STANDBY, Standby::default()),
            called: Condvar::new(),
            looked: Condvar::new(),
        }
    }

    /// Returns when the caller is to wait at the device; false if the mount is gone.
    pub(crate) fn take(&self) -> bool {
        let is_free = |count: usize| (count == 0).then_some(1);
        let less = |count: usize| count.checked_sub(1);
        if self.at_device.fetch_update(Ordering::AcqRel, Ordering::Relaxed, is_free).is_ok() {
            return true;
        }
        let is_welcome = self.welcome.load(Ordering::Relaxed) > 0
            && self.welcome.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        if !is_welcome && !self.stand_by() {
            return false;
        }
        self.at_device.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// The caller has a request. `takes_long`: it may wait while it answers.
    pub(crate) fn leave(&self, takes_long: bool) {
        let left = self.at_device.fetch_sub(1, Ordering::AcqRel) - 1;
        self.taken.fetch_add(1, Ordering::SeqCst);
        if takes_long {
            self.welcome.store(WELCOME, Ordering::Relaxed);
            if left == 0 {
                self.call_one();
            }
        }
        if self.is_quiet.load(Ordering::SeqCst) {
            let _standby = self.standby.lock();
            self.is_quiet.store(false, Ordering::SeqCst);
            self.looked.notify_one();
        }
    }

    /// True if nobody else waits at the device.
    pub(crate) fn is_alone(&self) -> bool {
        self.at_device.load(Ordering::Relaxed) <= 1
    }

    /// True if it matters whether requests pile up.
    pub(crate) fn can_help(&self) -> bool {
        self.threads > 1
    }

    /// Requests pile up.
    pub(crate) fn help(&self) {
        self.call_one();
        self.welcome.store(WELCOME, Ordering::Relaxed);
    }

    /// The mount is gone: nobody stands by any more.
    pub(crate) fn end(&self) {
        self.standby.lock().has_ended = true;
        self.called.notify_all();
        self.looked.notify_all();
    }

    /// Sends one of those who stand by to the device, if there is one who wasn't sent.
    fn call_one(&self) {
        let mut standby = self.standby.lock();
        if standby.calls < standby.threads {
            standby.calls += 1;
            if standby.somebody_looks { self.looked.notify_one() } else { self.called.notify_one() }
        }
    }

    /// Returns when the caller is to go to the device; false if the mount is gone.
    fn stand_by(&self) -> bool {
        let mut standby = self.standby.lock();
        standby.threads += 1;
        let mut quiet_ticks = 0;
        let goes = loop {
            if standby.has_ended {
                break false;
            }
            if standby.calls > 0 {
                standby.calls -= 1;
                break true;
            }
            if standby.somebody_looks {
                self.called.wait(&mut standby);
                continue;
            }
            standby.somebody_looks = true;
            let before = self.taken.load(Ordering::SeqCst);
            if quiet_ticks < QUIET_TICKS {
                self.looked.wait_timeout(&mut standby, TICK);
            } else {
                self.is_quiet.store(true, Ordering::SeqCst);
                // A request that came before that was stored hasn't seen it.
                if self.taken.load(Ordering::SeqCst) == before {
                    self.looked.wait(&mut standby);
                }
                self.is_quiet.store(false, Ordering::SeqCst);
            }
            standby.somebody_looks = false;
            let is_unchanged = self.taken.load(Ordering::SeqCst) == before;
            if is_unchanged && self.at_device.load(Ordering::Acquire) == 0 {
                break true;
            }
            quiet_ticks = if is_unchanged { quiet_ticks + 1 } else { 0 };
        };
        standby.threads -= 1;
        // Somebody else looks from now on.
        self.called.notify_one();
        goes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_sync::{Arc, thread};

    /// A thread that waits for its turn, and tells whether it came.
    fn standing_by(turns: &Arc<Turns>) -> thread::JoinHandle<bool> {
        let before = turns.standby.lock().threads;
        let other = {
            let turns = Arc::clone(turns);
            thread::spawn("other", move || turns.take()).unwrap()
        };
        while turns.standby.lock().threads == before {
            thread::yield_now();
        }
        other
    }

    #[test]
    fn one_waits_until_another_is_called() {
        let turns = Arc::new(Turns::among(2));
        assert!(turns.take());
        let other = standing_by(&turns);
        turns.leave(true);
        assert!(other.join().unwrap());
        // For a while both may wait at the device.
        assert!(turns.take());
    }

    #[test]
    fn others_help() {
        let turns = Arc::new(Turns::among(4));
        assert!(turns.can_help() && turns.take());
        let others = [standing_by(&turns), standing_by(&turns), standing_by(&turns)];
        turns.help();
        turns.help();
        while turns.at_device.load(Ordering::Relaxed) < 3 {
            thread::yield_now();
        }
        turns.end();
        let called = others.into_iter().filter_map(|other| other.join().ok().filter(|went| *went));
        assert_eq!(called.count(), 2);
    }

    #[test]
    fn whoever_stands_by_steps_in_when_nobody_comes_back() {
        let turns = Arc::new(Turns::among(2));
        assert!(turns.take());
        let other = standing_by(&turns);
        turns.leave(false);
        assert!(other.join().unwrap());
    }

    #[test]
    fn the_end_is_told_to_all() {
        let turns = Arc::new(Turns::among(8));
        assert!(turns.take());
        let others = [standing_by(&turns), standing_by(&turns), standing_by(&turns)];
        turns.end();
        for other in others {
            assert!(!other.join().unwrap());
        }
    }
}
