//! When a thread polls for the next request instead of sleeping.
//!
//! Waking a thread that sleeps at the device, on a core that has gone to sleep too, takes far longer
//! than answering a request. So while requests come in quick succession, the thread polls a few
//! times and yields the core in between, often to the program that sends the next request.
//!
//! # State
//!
//! How often polling has succeeded lately. Polling stops as soon as requests come less often. It
//! stops for long when another thread kept the core for long, because that thread would probably do
//! so at each request. After a long request polling isn't worthwhile. How long a read or write takes
//! depends on its length, the disk and the host's cache, so the next ones are expected to take as
//! long as the last ones.

use drystone_sync::{clock, thread};
use std::time::Duration;

/// How long a thread polls for a request.
const POLL_MAX: Duration = Duration::from_micros(30);

/// A gap between requests that makes polling worth a try. It includes the time to wake a sleeping thread.
const SOON: Duration = Duration::from_micros(100);

/// How long another thread may keep the core.
const AWAY_MAX: Duration = Duration::from_micros(200);

/// Requests for which the thread sleeps after another kept the core for longer.
const REST: u32 = 1 << 14;

/// A request that takes longer has waited for a disk or moved much data.
const SHORT: Duration = Duration::from_micros(20);

/// How many reads and writes after a long one are expected to take long too.
const LONG_AGAIN: u32 = 64;

/// How often polling may fail after it has succeeded.
const CREDIT_MAX: u32 = 8;

/// How one thread waits for requests.
#[derive(Debug, Default)]
pub(crate) struct BusyPolling {
    credit: u32,
    rest: u32,
    was_short: bool,
    long_ones: u32,
}

/// How polling ended.
enum Ending {
    Came,
    DidNotCome,
    CoreWasAway,
}

impl BusyPolling {
    /// Returns when there is a request, or when the thread is to sleep until there is one.
    pub fn poll(&mut self, has_come: impl Fn() -> bool) {
        if !self.was_short || self.credit == 0 || self.rest > 0 {
            return;
        }
        let begin = clock::now();
        let mut before = begin;
        let ending = loop {
            if has_come() {
                break Ending::Came;
            }
            thread::yield_now();
            let now = clock::now();
            if now.duration_since(before) > AWAY_MAX {
                break Ending::CoreWasAway;
            }
            if now.duration_since(begin) > POLL_MAX {
                break Ending::DidNotCome;
            }
            before = now;
        };
        self.learn(ending);
    }

    /// A request came `gap` after the answer to the one before.
    pub fn came_after(&mut self, gap: Duration) {
        if self.rest > 0 {
            self.rest -= 1;
        } else if self.credit == 0 && gap <= SOON {
            self.credit = 1;
        }
    }

    /// A request has been answered.
    pub fn served(&mut self, moved_content: bool, took: Duration) {
        self.was_short = took <= SHORT;
        if moved_content {
            self.long_ones =
                if self.was_short { self.long_ones.saturating_sub(1) } else { LONG_AGAIN };
        }
    }

    /// True if the next read or write will probably take long.
    pub fn expects_long(&self) -> bool {
        self.long_ones > 0
    }

    fn learn(&mut self, ending: Ending) {
        match ending {
            Ending::Came => self.credit = (self.credit + 1).min(CREDIT_MAX),
            Ending::DidNotCome => self.credit -= 1,
            Ending::CoreWasAway => (self.credit, self.rest) = (0, REST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn requests_that_come_soon_are_waited_for_until_they_do_not() {
        let mut polling = BusyPolling::default();
        let looks = Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            true
        };
        polling.served(false, SHORT);
        polling.came_after(SOON * 2);
        polling.poll(look);
        assert_eq!(looks.get(), 0);
        polling.came_after(SOON);
        for _ in 0..2 * CREDIT_MAX {
            polling.poll(look);
        }
        assert_eq!((looks.get(), polling.credit), (2 * CREDIT_MAX, CREDIT_MAX));
        for _ in 0..CREDIT_MAX {
            polling.learn(Ending::DidNotCome);
        }
        polling.poll(look);
        assert_eq!(looks.get(), 2 * CREDIT_MAX);
    }

    #[test]
    fn a_core_that_others_want_is_left_to_them() {
        let mut polling = BusyPolling::default();
        polling.served(false, SHORT);
        polling.came_after(SOON);
        polling.learn(Ending::CoreWasAway);
        for _ in 0..REST {
            polling.poll(|| panic!("it looks"));
            polling.came_after(SOON);
        }
        polling.came_after(SOON);
        assert_eq!(polling.credit, 1);
    }

    #[test]
    fn long_reads_and_writes_are_expected_again() {
        let mut polling = BusyPolling::default();
        polling.served(false, SHORT * 2);
        assert!(!polling.expects_long());
        polling.came_after(SOON);
        polling.poll(|| panic!("it looks"));
        polling.served(true, SHORT * 2);
        for _ in 0..LONG_AGAIN {
            assert!(polling.expects_long());
            polling.served(true, SHORT);
        }
        assert!(!polling.expects_long());
    }
}
