//! The order in which threads go on: by their clocks, as on a machine, or chosen by a seed, to meet
//! interleavings that machines seldom show.
//!
//! # State
//! For each thread that can go on, or will when some time has passed, that time. A chosen order has one
//! clock for all threads: it goes on with each event, and jumps where all threads wait for time to pass.

use super::ThreadId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How the thread that goes on is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// The one with the smallest clock, as on the machine.
    SmallestClock,
    /// Any that can: at one event in so many another may go on.
    Random {
        /// At least 1.
        one_in: u64,
    },
    /// The one with the highest priority. Each thread gets one at random, which falls below all others at
    /// some events, chosen at random among the first ones (S. Burckhardt and others, "A randomized scheduler
    /// with probabilistic guarantees of finding bugs", ASPLOS 2010).
    Priorities {
        /// How often a priority falls.
        changes: u32,
        /// Among how many events.
        events: u64,
    },
}

/// The threads that go on by themselves.
pub(super) enum Order {
    ByClock(ByClock),
    Chosen(Chosen),
}

impl Order {
    pub fn new(schedule: Schedule, seed: u64) -> Order {
        match schedule {
            Schedule::SmallestClock => Order::ByClock(ByClock::default()),
            _ => Order::Chosen(Chosen::new(schedule, seed)),
        }
    }

    /// A thread goes on at `at_ps`, unless it is put again before.
    pub fn put(&mut self, thread: ThreadId, at_ps: u64) {
        match self {
            Order::ByClock(order) => order.put(thread, at_ps),
            Order::Chosen(order) => order.put(thread, at_ps),
        }
    }

    /// Takes out the thread that goes on when the current one stops at `now_ps`, and the time then.
    pub fn next(&mut self, now_ps: u64) -> Option<(ThreadId, u64)> {
        match self {
            Order::ByClock(order) => order.next(),
            Order::Chosen(order) => order.next(now_ps),
        }
    }

    /// Whether the current thread stays the current one at its event at `now_ps`.
    pub fn stays(&mut self, current: ThreadId, now_ps: u64) -> bool {
        match self {
            Order::ByClock(order) => order.first().is_none_or(|at| at >= now_ps),
            Order::Chosen(order) => order.stays(current, now_ps),
        }
    }

    /// The current thread can't go on before others have.
    pub fn yields(&mut self, current: ThreadId) {
        if let Order::Chosen(order) = self {
            order.fall(current);
        }
    }
}

/// (clock, number of the entry, thread, its turn).
type Entry = Reverse<(u64, u64, ThreadId, u64)>;

#[derive(Default)]
pub(super) struct ByClock {
    ready: BinaryHeap<Entry>,
    entries: u64,
    /// By thread, how often it was put or went on, so that an outdated entry is recognised.
    turns: Vec<u64>,
}

impl ByClock {
    fn put(&mut self, thread: ThreadId, at_ps: u64) {
        if self.turns.len() <= thread {
            self.turns.resize(thread + 1, 0);
        }
        self.entries += 1;
        self.turns[thread] += 1;
        self.ready.push(Reverse((at_ps, self.entries, thread, self.turns[thread])));
    }

    fn first(&mut self) -> Option<u64> {
        while let Some(&Reverse((at, _, thread, turn))) = self.ready.peek() {
            if self.turns[thread] == turn {
                return Some(at);
            }
            self.ready.pop();
        }
        None
    }

    fn next(&mut self) -> Option<(ThreadId, u64)> {
        let at = self.first()?;
        let Reverse((_, _, thread, _)) = self.ready.pop()?;
        self.turns[thread] += 1;
        Some((thread, at))
    }
}

/// The time of a thread that runs, has ended, or waits for another thread.
const NEVER_PS: u64 = u64::MAX;
/// Priorities that have fallen are below this.
const PRIORITY_FIRST: u64 = 1 << 32;
/// Events after which a thread with the highest priority lets another go on: it may wait for that one in a
/// loop.
const EVENTS_ALONE_MAX: u64 = 20_000;
/// Among so many choices, one lets time pass although some thread can go on.
const TIME_PASSES_ONE_IN: u64 = 64;

pub(super) struct Chosen {
    schedule: Schedule,
    random: u64,
    /// By thread.
    from_ps: Vec<u64>,
    /// By thread; the highest goes first.
    priorities: Vec<u64>,
    /// The next priority that has fallen.
    lowest: u64,
    /// The events at which a priority falls, the next one last.
    falls: Vec<u64>,
    events: u64,
    /// Events since the current thread went on.
    events_alone: u64,
}

impl Chosen {
    fn new(schedule: Schedule, seed: u64) -> Chosen {
        let mut chosen = Chosen {
            schedule,
            random: seed,
            from_ps: Vec::new(),
            priorities: Vec::new(),
            lowest: PRIORITY_FIRST - 1,
            falls: Vec::new(),
            events: 0,
            events_alone: 0,
        };
        if let Schedule::Priorities { changes, events } = schedule {
            chosen.falls = (0..changes).map(|_| chosen.below(events)).collect();
            chosen.falls.sort_unstable_by_key(|&event| Reverse(event));
        }
        chosen
    }

    fn below(&mut self, bound: u64) -> u64 {
        super::random(&mut self.random) % bound.max(1)
    }

    fn put(&mut self, thread: ThreadId, at_ps: u64) {
        while self.from_ps.len() <= thread {
            self.from_ps.push(NEVER_PS);
            let priority = PRIORITY_FIRST + self.below(PRIORITY_FIRST);
            self.priorities.push(priority);
        }
        self.from_ps[thread] = at_ps;
    }

    fn fall(&mut self, thread: ThreadId) {
        self.priorities[thread] = self.lowest;
        self.lowest -= 1;
    }

    fn stays(&mut self, current: ThreadId, now_ps: u64) -> bool {
        self.events += 1;
        self.events_alone += 1;
        let Schedule::Random { one_in } = self.schedule else {
            while self.falls.pop_if(|event| *event <= self.events).is_some() {
                self.fall(current);
            }
            if self.events_alone > EVENTS_ALONE_MAX {
                self.events_alone = 0;
                self.fall(current);
            }
            let mine = self.priorities[current];
            let mut others = self.from_ps.iter().zip(&self.priorities);
            return !others.any(|(&from, &priority)| from <= now_ps && priority > mine);
        };
        self.below(one_in) != 0
    }

    fn next(&mut self, now_ps: u64) -> Option<(ThreadId, u64)> {
        self.events_alone = 0;
        let first = *self.from_ps.iter().min()?;
        if first == NEVER_PS {
            return None;
        }
        let now_ps = now_ps.max(first);
        let lets_time_pass = self.below(TIME_PASSES_ONE_IN) == 0;
        let threads = 0..self.from_ps.len();
        let able: Vec<ThreadId> = threads
            .filter(|&thread| {
                let from = self.from_ps[thread];
                from <= now_ps || lets_time_pass && from != NEVER_PS
            })
            .collect();
        let thread = match self.schedule {
            Schedule::Priorities { .. } => {
                able.into_iter().max_by_key(|&thread| self.priorities[thread])?
            }
            _ => able[self.below(able.len() as u64) as usize],
        };
        let at = now_ps.max(self.from_ps[thread]);
        self.from_ps[thread] = NEVER_PS;
        Some((thread, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads 0 to 2 can go on, 3 a second later; each choice is noted, and put back at once.
    fn choices(schedule: Schedule, seed: u64, count: usize) -> Vec<(ThreadId, u64)> {
        let mut order = Order::new(schedule, seed);
        (0..3).for_each(|thread| order.put(thread, 0));
        order.put(3, 1_000_000_000_000);
        let mut now = 0;
        let mut all = Vec::new();
        for _ in 0..count {
            let (thread, at) = order.next(now).unwrap();
            while order.stays(thread, now) && all.len() < count {
                now += 1;
                all.push((thread, at));
            }
            now = now.max(at);
            order.put(thread, now);
        }
        all
    }

    #[test]
    fn the_smallest_clock_goes_first() {
        let mut order = Order::new(Schedule::SmallestClock, 1);
        order.put(0, 30);
        order.put(1, 20);
        order.put(0, 10);
        assert!(order.stays(2, 10) && !order.stays(2, 11));
        assert_eq!(order.next(0), Some((0, 10)));
        assert_eq!(order.next(0), Some((1, 20)));
        assert_eq!(order.next(0), None);
    }

    #[test]
    fn a_seed_gives_one_order() {
        for schedule in
            [Schedule::Random { one_in: 4 }, Schedule::Priorities { changes: 5, events: 100 }]
        {
            assert_eq!(choices(schedule, 1, 200), choices(schedule, 1, 200));
            assert_ne!(choices(schedule, 1, 200), choices(schedule, 2, 200));
        }
    }

    #[test]
    fn a_random_order_meets_all_threads() {
        let all = choices(Schedule::Random { one_in: 2 }, 5, 2000);
        for thread in 0..4 {
            assert!(all.iter().any(|&(chosen, _)| chosen == thread), "thread {thread}");
        }
    }

    #[test]
    fn priorities_change_as_often_as_they_fall() {
        let all = choices(Schedule::Priorities { changes: 3, events: 1000 }, 7, 5000);
        let changes = all.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
        assert!((1..=6).contains(&changes), "{changes}");
    }

    #[test]
    fn a_thread_that_yields_comes_last() {
        let mut order = Order::new(Schedule::Priorities { changes: 0, events: 1 }, 3);
        (0..2).for_each(|thread| order.put(thread, 0));
        let (first, _) = order.next(0).unwrap();
        assert!(order.stays(first, 0));
        order.yields(first);
        assert!(!order.stays(first, 0));
        order.put(first, 0);
        assert_ne!(order.next(0).unwrap().0, first);
    }

    #[test]
    fn waiting_for_time_ends_when_nothing_else_can_go_on() {
        let mut order = Order::new(Schedule::Random { one_in: 1 }, 3);
        order.put(0, 500);
        assert_eq!(order.next(3), Some((0, 500)));
        assert_eq!(order.next(500), None);
    }
}
