//! Which threads wait for requests at the device: one leader, and followers that step in.
//!
//! A request wakes the thread that has waited longest. So several threads at the device would take turns, on
//! different cores, and for short requests waking them costs more than answering. Therefore one thread, the
//! leader, waits, answers and waits again, while the others stand by as followers. A follower steps in when
//! the leader says that its request will take long. One follower also checks from time to time whether a
//! request keeps the leader busy, and then steps in. If requests pile up, all threads may wait at the device
//! for a while, because a single leader would delay every request whenever something else uses its core.
//!
//! Threads may be [added](crate::stand_ins) while others are busy. A thread that comes back and finds as many idle
//! ones as there should be isn't needed any more.
//!
//! # State
//!
//! How many threads are at the device, and how many follow; the others are busy. From a long request on all
//! threads may wait at the device, until there have been only short ones for a while.
//!
//! # Locking
//!
//! One lock around the followers, which a short request doesn't take.
//!
//! # Reference
//! "Leader/Followers", a pattern by Schmidt and others.

use drystone_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use drystone_sync::{Condvar, LockClass, Mutex};
use std::time::Duration;

static FOLLOWERS: LockClass = LockClass::new("followers of the device", 5);

/// How long a request may leave the device without a thread.
const TICK: Duration = Duration::from_millis(1);

/// Ticks without a request after which no follower checks any more, until the next request.
const QUIET_TICKS: u32 = 50;

/// Requests after a long one during which all threads may wait at the device.
const WELCOME: usize = 64;

/// Which threads wait at the device.
pub(crate) struct LeaderFollowers {
    /// How many threads there should be.
    threads: AtomicUsize,
    at_device: AtomicUsize,
    /// Changes with the lock of the followers held.
    following: AtomicUsize,
    /// Requests so far.
    taken: AtomicU64,
    /// For how many more requests all threads may wait at the device.
    welcome: AtomicUsize,
    /// No follower checks at present.
    is_quiet: AtomicBool,
    followers: Mutex<Followers>,
    /// Wakes followers other than the checking one.
    called: Condvar,
    /// Wakes the checking follower.
    looked: Condvar,
}

#[derive(Default)]
struct Followers {
    /// How many followers are to go to the device.
    calls: usize,
    one_looks: bool,
    has_ended: bool,
}

impl LeaderFollowers {
    /// For `threads` threads.
    pub(crate) fn among(threads: usize) -> LeaderFollowers {
        LeaderFollowers {
            threads: AtomicUsize::new(threads),
            at_device: AtomicUsize::new(0),
            following: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            welcome: AtomicUsize::new(0),
            is_quiet: AtomicBool::new(false),
            followers: Mutex::new(&FOLLOWERS, Followers::default()),
            called: Condvar::new(),
            looked: Condvar::new(),
        }
    }

    /// One more thread comes for good.
    pub(crate) fn add(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when the caller is to wait at the device; false if it isn't needed: enough other threads are
    /// idle, or the mount is gone.
    pub(crate) fn take(&self) -> bool {
        let is_free = |count: usize| (count == 0).then_some(1);
        let less = |count: usize| count.checked_sub(1);
        if self.at_device.fetch_update(Ordering::AcqRel, Ordering::Relaxed, is_free).is_ok() {
            return true;
        }
        if self.idle() >= self.threads.load(Ordering::Relaxed) {
            return false;
        }
        let is_welcome = self.welcome.load(Ordering::Relaxed) > 0
            && self.welcome.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        if !is_welcome && !self.follow() {
            return false;
        }
        self.at_device.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// The caller has taken a request; `takes_long` if it may wait before it answers.
    pub(crate) fn leave(&self, takes_long: bool) {
        let left = self.at_device.fetch_sub(1, Ordering::SeqCst) - 1;
        self.taken.fetch_add(1, Ordering::SeqCst);
        if takes_long {
            self.welcome.store(WELCOME, Ordering::Relaxed);
            if left == 0 {
                self.call_one();
            }
        }
        if self.is_quiet.load(Ordering::SeqCst) {
            let _followers = self.followers.lock();
            self.is_quiet.store(false, Ordering::SeqCst);
            self.looked.notify_one();
        }
    }

    /// True if no other thread waits at the device.
    pub(crate) fn is_alone(&self) -> bool {
        self.at_device.load(Ordering::Relaxed) <= 1
    }

    /// How many threads wait for requests, at the device or as followers.
    fn idle(&self) -> usize {
        self.at_device.load(Ordering::SeqCst) + self.following.load(Ordering::SeqCst)
    }

    /// If all threads are busy, the number of requests that they have taken so far. As long as it stays the
    /// same, no thread is at the device.
    pub(crate) fn all_are_busy(&self) -> Option<u64> {
        (self.idle() == 0).then(|| self.taken.load(Ordering::SeqCst))
    }

    /// True if it matters whether requests pile up.
    pub(crate) fn can_help(&self) -> bool {
        self.threads.load(Ordering::Relaxed) > 1
    }

    /// Lets a follower step in, and others after it, because requests pile up.
    pub(crate) fn help(&self) {
        self.call_one();
        self.welcome.store(WELCOME, Ordering::Relaxed);
    }

    /// Ends all waiting: the mount is gone.
    pub(crate) fn end(&self) {
        self.followers.lock().has_ended = true;
        self.called.notify_all();
        self.looked.notify_all();
    }

    /// Sends a follower to the device, if one is left.
    fn call_one(&self) {
        let mut followers = self.followers.lock();
        if followers.calls < self.following.load(Ordering::Relaxed) {
            followers.calls += 1;
            if followers.one_looks { self.looked.notify_one() } else { self.called.notify_one() }
        }
    }

    /// Returns when the caller is to go to the device; false if the mount is gone.
    fn follow(&self) -> bool {
        let mut followers = self.followers.lock();
        self.following.fetch_add(1, Ordering::SeqCst);
        let mut quiet_ticks = 0;
        let goes = loop {
            if followers.has_ended {
                break false;
            }
            if followers.calls > 0 {
                followers.calls -= 1;
                break true;
            }
            if followers.one_looks {
                self.called.wait(&mut followers);
                continue;
            }
            followers.one_looks = true;
            let before = self.taken.load(Ordering::SeqCst);
            if quiet_ticks < QUIET_TICKS {
                self.looked.wait_timeout(&mut followers, TICK);
            } else {
                self.is_quiet.store(true, Ordering::SeqCst);
                // A request that came before this store hasn't seen it.
                if self.taken.load(Ordering::SeqCst) == before {
                    self.looked.wait(&mut followers);
                }
                self.is_quiet.store(false, Ordering::SeqCst);
            }
            followers.one_looks = false;
            let is_unchanged = self.taken.load(Ordering::SeqCst) == before;
            if is_unchanged && self.at_device.load(Ordering::Acquire) == 0 {
                break true;
            }
            quiet_ticks = if is_unchanged { quiet_ticks + 1 } else { 0 };
        };
        self.following.fetch_sub(1, Ordering::SeqCst);
        // Another follower checks from now on.
        self.called.notify_one();
        goes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_sync::{Arc, thread};

    /// A thread that waits to become the leader; the result is whether it did.
    fn following(leader_followers: &Arc<LeaderFollowers>) -> thread::JoinHandle<bool> {
        let before = leader_followers.following.load(Ordering::Relaxed);
        let other = {
            let leader_followers = Arc::clone(leader_followers);
            thread::spawn("other", move || leader_followers.take()).unwrap()
        };
        while leader_followers.following.load(Ordering::Relaxed) == before {
            thread::yield_now();
        }
        other
    }

    #[test]
    fn one_waits_until_another_is_called() {
        let leader_followers = Arc::new(LeaderFollowers::among(2));
        assert!(leader_followers.take());
        let other = following(&leader_followers);
        leader_followers.leave(true);
        assert!(other.join().unwrap());
        // For a while both may wait at the device.
        assert!(leader_followers.take());
    }

    #[test]
    fn others_help() {
        let leader_followers = Arc::new(LeaderFollowers::among(4));
        assert!(leader_followers.can_help() && leader_followers.take());
        let others = [
            following(&leader_followers),
            following(&leader_followers),
            following(&leader_followers),
        ];
        leader_followers.help();
        leader_followers.help();
        while leader_followers.at_device.load(Ordering::Relaxed) < 3 {
            thread::yield_now();
        }
        leader_followers.end();
        let called = others.into_iter().filter_map(|other| other.join().ok().filter(|went| *went));
        assert_eq!(called.count(), 2);
    }

    #[test]
    fn a_follower_steps_in_when_the_leader_stays_away() {
        let leader_followers = Arc::new(LeaderFollowers::among(2));
        assert!(leader_followers.take());
        let other = following(&leader_followers);
        leader_followers.leave(false);
        assert!(other.join().unwrap());
    }

    #[test]
    fn a_thread_that_comes_back_to_enough_others_ends() {
        let leader_followers = Arc::new(LeaderFollowers::among(2));
        assert!(leader_followers.take());
        leader_followers.leave(false);
        let taken = leader_followers.all_are_busy();
        assert!(taken.is_some());
        // Two more come meanwhile.
        assert!(leader_followers.take());
        assert_eq!(leader_followers.all_are_busy(), None);
        let other = following(&leader_followers);
        assert!(!leader_followers.take());
        leader_followers.add();
        let back = following(&leader_followers);
        leader_followers.end();
        assert!(!other.join().unwrap() && !back.join().unwrap());
    }

    #[test]
    fn the_end_is_told_to_all() {
        let leader_followers = Arc::new(LeaderFollowers::among(8));
        assert!(leader_followers.take());
        let others = [
            following(&leader_followers),
            following(&leader_followers),
            following(&leader_followers),
        ];
        leader_followers.end();
        for other in others {
            assert!(!other.join().unwrap());
        }
    }
}
