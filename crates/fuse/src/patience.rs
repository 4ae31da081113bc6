//! Whether to wait for the next request awake.
//!
//! Who waits at the device asleep has to be woken for each request, on a core that has gone to sleep
//! too, which takes far longer than answering. While requests come one after the other it is better
//! to look a few times for the next, and to let whoever else wants the core have it in between: that
//! is often the one who asks.
//!
//! # State
//!
//! How much waiting awake has paid lately. It ends as soon as requests come less often, and for long
//! when the core was somebody else's for long: that one would have it for each request then. After a
//! request that took long it isn't worth it. Whether reads and writes take long depends on their
//! length, on the disk and on what memory has of it: it is expected of them as it was of the last ones.

use drystone_sync::{clock, thread};
use std::time::Duration;

/// How long a thread stays awake for a request.
const AWAKE_MAX: Duration = Duration::from_micros(30);

/// Requests that come within this time, or sooner, make it worth trying: a sleeper's waking included.
const SOON: Duration = Duration::from_micros(100);

/// How long the core may be away.
const AWAY_MAX: Duration = Duration::from_micros(200);

/// Requests after that for which the thread sleeps.
const REST: u32 = 1 << 14;

/// Who takes longer for a request has waited for a disk, or moved much.
const SHORT: Duration = Duration::from_micros(20);

/// Reads and writes after a long one that are expected to take long, too.
const LONG_AGAIN: u32 = 64;

/// How often waiting awake may fail after it has been of use.
const CREDIT_MAX: u32 = 8;

/// How one thread waits.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    credit: u32,
    rest: u32,
    was_short: bool,
    long_ones: u32,
}

/// How waiting awake ended.
enum Ending {
    Came,
    DidNotCome,
    CoreWasAway,
}

impl Patience {
    /// Returns when there is a request, or when it is time to sleep until there is one.
    pub fn stay_awake(&mut self, is_there: impl Fn() -> bool) {
        if !self.was_short || self.credit == 0 || self.rest > 0 {
            return;
        }
        let begin = clock::now();
        let mut before = begin;
        let ending = loop {
            if is_there() {
                break Ending::Came;
            }
            thread::yield_now();
            let now = clock::now();
            if now.duration_since(before) > AWAY_MAX {
                break Ending::CoreWasAway;
            }
            if now.duration_since(begin) > AWAKE_MAX {
                break Ending::DidNotCome;
            }
            before = now;
        };
        self.learn(ending);
    }

    /// A request came so long after the one before was answered.
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
        let mut patience = Patience::default();
        let looks = Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            true
        };
        patience.served(false, SHORT);
        patience.came_after(SOON * 2);
        patience.stay_awake(look);
        assert_eq!(looks.get(), 0);
        patience.came_after(SOON);
        for _ in 0..2 * CREDIT_MAX {
            patience.stay_awake(look);
        }
        assert_eq!((looks.get(), patience.credit), (2 * CREDIT_MAX, CREDIT_MAX));
        for _ in 0..CREDIT_MAX {
            patience.learn(Ending::DidNotCome);
        }
        patience.stay_awake(look);
        assert_eq!(looks.get(), 2 * CREDIT_MAX);
    }

    #[test]
    fn a_core_that_others_want_is_left_to_them() {
        let mut patience = Patience::default();
        patience.served(false, SHORT);
        patience.came_after(SOON);
        patience.learn(Ending::CoreWasAway);
        for _ in 0..REST {
            patience.stay_awake(|| panic!("it looks"));
            patience.came_after(SOON);
        }
        patience.came_after(SOON);
        assert_eq!(patience.credit, 1);
    }

    #[test]
    fn long_reads_and_writes_are_expected_again() {
        let mut patience = Patience::default();
        patience.served(false, SHORT * 2);
        assert!(!patience.expects_long());
        patience.came_after(SOON);
        patience.stay_awake(|| panic!("it looks"));
        patience.served(true, SHORT * 2);
        for _ in 0..LONG_AGAIN {
            assert!(patience.expects_long());
            patience.served(true, SHORT);
        }
        assert!(!patience.expects_long());
    }
}
