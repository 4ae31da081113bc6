//! The cores on which a ring's thread may run.
//!
//! A program that sends a request waits for the answer, so its core is free, while another core would
//! have to be woken. Large writes are different: they come from the page cache, and the kernel's
//! thread goes on to send the next one, so copying them on another core saves time.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// From how many bytes of content another core is worthwhile.
const LARGE: usize = 64 << 10;

/// Smaller requests in a row after which the thread returns to its core.
const SMALL_IN_A_ROW: u32 = 16;

/// Which cores a thread may run on.
pub(super) struct CoreAffinity {
    home: CpuSet,
    anywhere: CpuSet,
    /// Requests for which the thread still may run anywhere.
    away: u32,
}

impl CoreAffinity {
    /// Makes the calling thread run on a core. One that is offline, or that this process may not use,
    /// is served from others.
    pub(super) fn on_core(core: u16) -> CoreAffinity {
        let mut home = CpuSet::new();
        home.set(usize::from(core));
        let anywhere = sched_getaffinity(None).unwrap_or(home);
        // The system would also move the thread to a core that `taskset` keeps it from.
        if !anywhere.is_set(usize::from(core)) {
            home = anywhere;
        }
        let _ = sched_setaffinity(None, &home);
        CoreAffinity { home, anywhere, away: 0 }
    }

    /// The thread has taken a request that brought `bytes` of content.
    pub(super) fn took(&mut self, bytes: usize) {
        if bytes >= LARGE {
            if self.away == 0 {
                let _ = sched_setaffinity(None, &self.anywhere);
            }
            self.away = SMALL_IN_A_ROW;
        } else if self.away > 0 {
            self.away -= 1;
            if self.away == 0 {
                let _ = sched_setaffinity(None, &self.home);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_sync::thread;

    #[test]
    fn a_thread_stays_on_the_cores_that_it_may_use() {
        thread::scope(|scope| {
            scope.spawn(|| {
                let all = sched_getaffinity(None).unwrap();
                let mut cores = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
                let (first, other) = (cores.next().unwrap(), cores.next().unwrap_or(1));
                let mut allowed = CpuSet::new();
                allowed.set(first);
                sched_setaffinity(None, &allowed).unwrap();
                let mut affinity = CoreAffinity::on_core(other as u16);
                assert_eq!(sched_getaffinity(None).unwrap(), allowed);
                affinity.took(LARGE);
                assert_eq!(sched_getaffinity(None).unwrap(), allowed);
            });
        });
    }

    #[test]
    fn much_content_is_taken_on_any_core() {
        thread::scope(|scope| {
            scope.spawn(|| {
                let before = sched_getaffinity(None).unwrap();
                let cores = CpuSet::MAX_CPU;
                let core = (0..cores).find(|core| before.is_set(*core)).unwrap();
                let mut affinity = CoreAffinity::on_core(core as u16);
                let home = sched_getaffinity(None).unwrap();
                assert!(home.is_set(core) && home.count() == 1);
                affinity.took(4096);
                assert_eq!(sched_getaffinity(None).unwrap(), home);
                affinity.took(LARGE);
                for _ in 0..SMALL_IN_A_ROW {
                    assert_eq!(sched_getaffinity(None).unwrap(), before);
                    affinity.took(0);
                }
                assert_eq!(sched_getaffinity(None).unwrap(), home);
            });
        });
    }
}
