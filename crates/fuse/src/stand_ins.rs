//! Threads that stand in for those that are busy for long.
//!
//! Requests of other files have to go on while some threads wait, for a thaw, a lock or a slow disk. So there is
//! a stand-in for each thread that announces a [long wait](drystone_sync::long_wait), at once. And if all threads
//! are busy and none takes a request for a while, another one is started: they may all wait for a lock of one file.
//! When the others come back there are more threads than needed, and [some end](LeaderFollowers::take).
//!
//! # State
//!
//! How many threads are to be started, and how many were started for each reason and haven't ended. The thread that
//! starts them looks at the others only while all are busy.
//!
//! # Locking
//!
//! One lock, held to ask for a thread, or to look whether one is needed. It ranks last, because a thread may hold
//! any lock when it begins to wait.

use crate::leader_followers::LeaderFollowers;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, Condvar, LockClass, Mutex, MutexGuard, long_wait};
use std::io;
use std::time::Duration;

static STAND_INS: LockClass = LockClass::new("threads that need a stand-in", 970);

/// How long all threads are busy, without a request that is taken, until another one is started.
const BUSY: Duration = Duration::from_millis(20);

/// The most threads beside the others because all were busy: each may need memory for a long payload.
const FOR_BUSY_MAX: usize = 64;

/// Asks for stand-ins, and starts them.
pub(crate) struct StandIns {
    started: Mutex<StartedThreads>,
    changed: Condvar,
    /// The thread that starts others has been told that all are busy, and looks by itself.
    is_watched: AtomicBool,
}

#[derive(Default)]
struct StartedThreads {
    /// Threads that wait and have no stand-in yet.
    asking: usize,
    /// Threads that were started for such.
    for_waits: usize,
    /// Threads that were started because all were busy.
    for_busy: usize,
    is_ended: bool,
}

impl StandIns {
    pub(crate) fn new() -> Arc<StandIns> {
        let started = Mutex::new(&STAND_INS, StartedThreads::default());
        Arc::new(StandIns { started, changed: Condvar::new(), is_watched: AtomicBool::new(false) })
    }

    /// Has the calling thread ask for a stand-in whenever it begins to wait for long.
    pub(crate) fn ask_before_waits(self: &Arc<StandIns>) {
        let stand_ins = Arc::clone(self);
        long_wait::call_before(Arc::new(move || {
            stand_ins.started.lock().asking += 1;
            stand_ins.changed.notify_one();
        }));
    }

    /// All threads are busy: makes sure that this doesn't last.
    pub(crate) fn watch(&self) {
        if !self.is_watched.load(Ordering::SeqCst) {
            // With the lock the other thread doesn't miss it between its look and its wait.
            let _started = self.started.lock();
            self.is_watched.store(true, Ordering::SeqCst);
            self.changed.notify_one();
        }
    }

    /// A thread ends that isn't needed any more.
    pub(crate) fn one_ends(&self) {
        let mut started = self.started.lock();
        let count =
            if started.for_waits > 0 { &mut started.for_waits } else { &mut started.for_busy };
        *count = count.saturating_sub(1);
    }

    /// Starts stand-ins by `start` until [`end`](StandIns::end).
    pub(crate) fn run(&self, others: &LeaderFollowers, start: impl Fn() -> io::Result<()>) {
        let mut has_failed = false;
        let mut started = self.started.lock();
        while !started.is_ended {
            let is_asked = started.asking > 0;
            if !is_asked && !self.lacks_one(others, &mut started) {
                continue;
            }
            started.asking = started.asking.saturating_sub(1);
            drop(started);
            let result = start();
            started = self.started.lock();
            match &result {
                Ok(()) if is_asked => started.for_waits += 1,
                Ok(()) => started.for_busy += 1,
                // It is tried again and again.
                Err(_) if has_failed => {}
                Err(error) => {
                    tracing::warn!("no thread can stand in for those that are busy: {error}");
                }
            }
            has_failed = result.is_err();
        }
    }

    /// Waits for a change. True if all threads have been busy for too long.
    fn lacks_one(
        &self,
        others: &LeaderFollowers,
        started: &mut MutexGuard<'_, StartedThreads>,
    ) -> bool {
        let Some(taken) = others.all_are_busy() else {
            self.is_watched.store(false, Ordering::SeqCst);
            // A thread that has left since has seen that, or is seen now.
            if others.all_are_busy().is_none() {
                self.changed.wait(started);
            }
            return false;
        };
        self.changed.wait_timeout(started, BUSY)
            && others.all_are_busy() == Some(taken)
            && started.for_busy < FOR_BUSY_MAX
    }

    /// The mount is gone.
    pub(crate) fn end(&self) {
        self.started.lock().is_ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_sync::atomic::AtomicU32;
    use drystone_sync::thread;

    /// Runs `body` while stand-ins are started, of which the first attempt fails. Returns how often.
    fn attempts(others: &LeaderFollowers, body: impl FnOnce(&Arc<StandIns>, &AtomicU32)) -> u32 {
        let (stand_ins, attempts) = (StandIns::new(), AtomicU32::new(0));
        thread::scope(|scope| {
            let runs = scope.spawn(|| {
                stand_ins.run(others, || match attempts.fetch_add(1, Ordering::SeqCst) {
                    0 => Err(io::ErrorKind::OutOfMemory.into()),
                    _ => Ok(()),
                });
            });
            body(&stand_ins, &attempts);
            stand_ins.end();
            runs.join().unwrap();
        });
        attempts.into_inner()
    }

    #[test]
    fn each_wait_gets_a_stand_in() {
        let others = LeaderFollowers::among(1);
        assert!(others.take());
        let count = attempts(&others, |stand_ins, attempts| {
            stand_ins.ask_before_waits();
            for count in 1..=3 {
                long_wait::announce();
                while attempts.load(Ordering::SeqCst) < count {
                    thread::yield_now();
                }
            }
            // A thread at the device is enough.
            thread::sleep(3 * BUSY);
        });
        assert_eq!(count, 3);
    }

    #[test]
    fn threads_that_are_all_busy_get_others() {
        let others = LeaderFollowers::among(1);
        assert!(others.take());
        let count = attempts(&others, |stand_ins, attempts| {
            stand_ins.watch();
            thread::sleep(3 * BUSY);
            assert_eq!(attempts.load(Ordering::SeqCst), 0);
            others.leave(false);
            stand_ins.watch();
            while attempts.load(Ordering::SeqCst) < 3 {
                thread::yield_now();
            }
            assert!(others.take());
        });
        assert!(count >= 3);
    }
}
