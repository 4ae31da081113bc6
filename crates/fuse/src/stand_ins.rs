//! Threads that stand in for those that wait for long.
//!
//! While an image is frozen, each change waits in the thread that took its request, perhaps until somebody
//! thaws the image. Reads have to go on, however many changes wait. So a thread that announces a
//! [long wait](drystone_sync::long_wait) is replaced: another one takes requests from then on, and the
//! first ends when it has given its answer. So there are as many threads as before in the end.
//!
//! # State
//!
//! The threads that have asked for a stand-in, and whether the mount is gone.
//!
//! # Locking
//!
//! One lock, held to add or take such threads. It ranks last, because a thread may hold any lock when it begins
//! to wait.

use drystone_sync::atomic::{AtomicU8, Ordering};
use drystone_sync::{Arc, Condvar, LockClass, Mutex, long_wait};
use std::io;

static STAND_INS: LockClass = LockClass::new("threads that need a stand-in", 970);

/// The thread hasn't asked.
const NOT_ASKED: u8 = 0;
const ASKED: u8 = 1;
/// Another thread has started.
const REPLACED: u8 = 2;

/// Asks for stand-ins, and starts them.
pub(crate) struct StandIns {
    asking: Mutex<Asking>,
    changed: Condvar,
}

#[derive(Default)]
struct Asking {
    /// The states of the threads that ask.
    threads: Vec<Arc<AtomicU8>>,
    is_ended: bool,
}

/// A thread that may be replaced.
pub(crate) struct Replaceable(Arc<AtomicU8>);

impl Replaceable {
    /// Whether another thread has taken the place of the calling one.
    pub(crate) fn is_replaced(&self) -> bool {
        self.0.load(Ordering::Acquire) == REPLACED
    }
}

impl StandIns {
    pub(crate) fn new() -> Arc<StandIns> {
        let asking = Mutex::new(&STAND_INS, Asking::default());
        Arc::new(StandIns { asking, changed: Condvar::new() })
    }

    /// Has the calling thread replaced when it begins to wait for long.
    pub(crate) fn replace_if_waiting(self: &Arc<StandIns>) -> Replaceable {
        let state = Arc::new(AtomicU8::new(NOT_ASKED));
        let (stand_ins, of_thread) = (Arc::clone(self), Arc::clone(&state));
        long_wait::call_before(Arc::new(move || {
            // A request may wait several times.
            let asked =
                of_thread.compare_exchange(NOT_ASKED, ASKED, Ordering::AcqRel, Ordering::Relaxed);
            if asked.is_ok() {
                stand_ins.asking.lock().threads.push(Arc::clone(&of_thread));
                stand_ins.changed.notify_one();
            }
        }));
        Replaceable(state)
    }

    /// Starts stand-ins by `start` until [`end`](StandIns::end).
    pub(crate) fn run(&self, start: impl Fn() -> io::Result<()>) {
        let mut asking = self.asking.lock();
        while !asking.is_ended {
            let threads = std::mem::take(&mut asking.threads);
            if threads.is_empty() {
                self.changed.wait(&mut asking);
                continue;
            }
            drop(asking);
            for thread in threads {
                let state = match start() {
                    Ok(()) => REPLACED,
                    Err(error) => {
                        tracing::warn!("no thread can stand in for one that waits: {error}");
                        NOT_ASKED
                    }
                };
                thread.store(state, Ordering::Release);
            }
            asking = self.asking.lock();
        }
    }

    /// The mount is gone.
    pub(crate) fn end(&self) {
        self.asking.lock().is_ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_sync::atomic::AtomicU32;
    use drystone_sync::thread;

    #[test]
    fn a_thread_that_waits_is_replaced_once() {
        let (stand_ins, started) = (StandIns::new(), AtomicU32::new(0));
        thread::scope(|scope| {
            let runs = scope.spawn(|| {
                stand_ins.run(|| match started.fetch_add(1, Ordering::Relaxed) {
                    0 => Err(io::ErrorKind::OutOfMemory.into()),
                    _ => Ok(()),
                });
            });
            let thread = stand_ins.replace_if_waiting();
            assert!(!thread.is_replaced());
            // The first attempt to start a thread fails.
            while !thread.is_replaced() {
                long_wait::announce();
                thread::yield_now();
            }
            long_wait::announce();
            stand_ins.end();
            runs.join().unwrap();
            assert!(thread.is_replaced());
        });
        assert_eq!(started.load(Ordering::Relaxed), 2);
    }
}
