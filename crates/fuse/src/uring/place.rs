//! The core that the thread of a ring runs on.
//!
//! Whoever asks for something waits for the answer: the core that the request came from is free, and
//! another would have to be woken. Much content that is written is another matter: it comes from the
//! page cache, with more behind it that the kernel's thread goes on to send, so that taking it on
//! another core saves time.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Bytes of content from which on another core is worth it.
const MUCH: usize = 64 << 10;

/// Requests with less, one after the other, after which the thread goes back.
const CALM: u32 = 16;

/// Where a thread may run.
pub(super) struct Place {
    home: CpuSet,
    anywhere: CpuSet,
    /// Requests for which the thread still may run anywhere.
    away: u32,
}

impl Place {
    /// Makes the calling thread run on a core. One that is offline, or that this process may not use,
    /// is served from others.
    pub(super) fn on_core(core: u16) -> Place {
        let mut home = CpuSet::new();
        home.set(usize::from(core));
        let anywhere = sched_getaffinity(None).unwrap_or(home);
        let _ = sched_setaffinity(None, &home);
        Place { home, anywhere, away: 0 }
    }

    /// The thread has taken a request that brought so many bytes.
    pub(super) fn took(&mut self, bytes: usize) {
        if bytes >= MUCH {
            if self.away == 0 {
                let _ = sched_setaffinity(None, &self.anywhere);
            }
            self.away = CALM;
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
    fn much_content_is_taken_on_any_core() {
        thread::scope(|scope| {
            scope.spawn(|| {
                let before = sched_getaffinity(None).unwrap();
                let cores = CpuSet::MAX_CPU;
                let core = (0..cores).find(|core| before.is_set(*core)).unwrap();
                let mut place = Place::on_core(core as u16);
                let home = sched_getaffinity(None).unwrap();
                assert!(home.is_set(core) && home.count() == 1);
                place.took(4096);
                assert_eq!(sched_getaffinity(None).unwrap(), home);
                place.took(MUCH);
                for _ in 0..CALM {
                    assert_eq!(sched_getaffinity(None).unwrap(), before);
                    place.took(0);
                }
                assert_eq!(sched_getaffinity(None).unwrap(), home);
            });
        });
    }
}
