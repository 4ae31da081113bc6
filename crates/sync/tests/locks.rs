//! Lock order, statistics, condition variables and per-core slots on real threads.
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]
#![cfg(not(loom))]

use drystone_sync::{
    Arc, Barrier, BatchedCounter, CallersLocks, ClassStatistics, Condvar, LockClass, Mutex,
    PerCore, PerCoreCounter, RwLock, SpinLock, assert_none_held, clock, core_slots, current_core,
    lock_statistics, statistics_between, thread,
};
use std::time::Duration;

/// What was counted since `earlier` for one class.
fn counted(name: &str, earlier: &[ClassStatistics]) -> ClassStatistics {
    statistics_between(earlier, &lock_statistics())
        .into_iter()
        .find(|class| class.name == name)
        .unwrap_or_else(|| panic!("nothing was counted for {name}"))
}

#[cfg(debug_assertions)]
mod order {
    use super::*;

    static LOW: LockClass = LockClass::new("low", 10);
    static HIGH: LockClass = LockClass::new("high", 20);
    static PEER: LockClass = LockClass::new("peer", 20);
    static NESTED: LockClass = LockClass::new("nested", 20).nestable();

    /// The message of the panic that ends `body`.
    fn panic_of(body: impl FnOnce() + Send + 'static) -> String {
        let error = thread::spawn("panics", body).unwrap().join().unwrap_err();
        error.downcast_ref::<String>().unwrap().clone()
    }

    #[test]
    fn a_lower_rank_panics_and_names_both() {
        let message = panic_of(|| {
            let (low, high) = (Mutex::new(&LOW, ()), RwLock::new(&HIGH, ()));
            let _high = high.read();
            let _low = low.lock();
        });
        assert!(message.contains("taking `low` (rank 10)"), "{message}");
        assert!(message.contains("holding `high` (rank 20)"), "{message}");
    }

    #[test]
    fn rising_ranks_pass_in_any_order_of_release() {
        let (low, high) = (SpinLock::new(&LOW, ()), RwLock::new(&HIGH, ()));
        for _ in 0..2 {
            let low = low.lock();
            let high = high.write();
            drop(low);
            drop(high);
            assert_none_held();
        }
    }

    #[test]
    fn an_equal_rank_needs_a_nestable_class() {
        let (first, second) = (Mutex::new(&NESTED, ()), Mutex::new(&NESTED, ()));
        let guards = (first.lock(), second.lock());
        drop(guards);
        let message = panic_of(|| {
            let (first, second) = (Mutex::new(&HIGH, ()), Mutex::new(&HIGH, ()));
            let _guards = (first.lock(), second.lock());
        });
        assert!(message.contains("taking `high`"), "{message}");
        let message = panic_of(|| {
            let (first, second) = (Mutex::new(&PEER, ()), Mutex::new(&NESTED, ()));
            let _guards = (first.lock(), second.lock());
        });
        assert!(message.contains("taking `nested`"), "{message}");
    }

    #[test]
    fn the_same_lock_twice_panics_instead_of_hanging() {
        let message = panic_of(|| {
            let lock = RwLock::new(&NESTED, ());
            let _guards = (lock.read(), lock.read());
        });
        assert!(message.contains("taken again by its holder"), "{message}");
    }

    #[test]
    fn a_try_may_be_out_of_order_but_counts_as_held() {
        let (low, high) = (Mutex::new(&LOW, ()), Mutex::new(&HIGH, ()));
        let guard = high.lock();
        assert!(low.try_lock().is_some());
        drop(guard);
        let message = panic_of(|| {
            let (low, high) = (Mutex::new(&LOW, ()), RwLock::new(&HIGH, ()));
            let _high = high.try_write();
            let _low = low.lock();
        });
        assert!(message.contains("holding `high`"), "{message}");
    }

    #[test]
    fn a_wait_under_a_higher_lock_panics() {
        let message = panic_of(|| {
            let (low, high) = (Mutex::new(&LOW, ()), Mutex::new(&HIGH, ()));
            let mut low = low.lock();
            let _high = high.lock();
            Condvar::new().wait_timeout(&mut low, Duration::from_millis(1));
        });
        assert!(message.contains("taking `low`"), "{message}");
    }

    #[test]
    fn a_panic_under_a_lock_leaves_nothing_held() {
        static CAUGHT: LockClass = LockClass::new("caught", 1);
        let lock = Mutex::new(&CAUGHT, 1);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            panic!("under the lock");
        }));
        assert!(caught.is_err());
        assert_none_held();
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    #[should_panic(expected = "locks are still held: low")]
    fn a_forgotten_guard_is_found() {
        let lock = Mutex::new(&LOW, ());
        let _guard = lock.lock();
        assert_none_held();
    }

    #[test]
    fn a_caller_may_hold_locks_of_its_own() {
        let message = panic_of(|| {
            let (low, high) = (Mutex::new(&LOW, ()), Mutex::new(&HIGH, ()));
            let _callers = low.lock();
            let callers_locks = CallersLocks::now();
            drop(high.lock());
            callers_locks.assert_no_more();
            let _own = high.lock();
            callers_locks.assert_no_more();
        });
        assert_eq!(message, "locks are still held: high");
    }
}

#[test]
fn takes_are_counted_exactly_across_ended_threads() {
    static COUNTED: LockClass = LockClass::new("counted", 7);
    const THREADS: u64 = 4;
    const TAKES: u64 = 10_000;
    let earlier = lock_statistics();
    let lock = RwLock::new(&COUNTED, 0_u64);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for take in 0..TAKES {
                    if take % 2 == 0 {
                        *lock.write() += 1;
                    } else {
                        let _ = *lock.read();
                    }
                }
            });
        }
    });
    let counted = counted("counted", &earlier);
    assert_eq!(counted.rank, 7);
    assert_eq!(counted.takes, THREADS * TAKES);
    assert!(counted.contended <= counted.takes);
    assert_eq!(lock.into_inner(), THREADS * TAKES / 2);
}

#[test]
fn a_contended_take_is_timed() {
    static CONTENDED: LockClass = LockClass::new("contended", 7);
    const HOLD: Duration = Duration::from_millis(20);
    let earlier = lock_statistics();
    let (lock, start) = (SpinLock::new(&CONTENDED, ()), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = lock.lock();
            start.wait();
            thread::sleep(HOLD);
        });
        start.wait();
        assert!(lock.try_lock().is_none());
        drop(lock.lock());
    });
    let counted = counted("contended", &earlier);
    assert_eq!((counted.takes, counted.contended), (2, 1));
    assert!(counted.wait_ns > HOLD.as_nanos() as u64 / 4, "{counted:?}");
}

#[test]
fn unused_classes_are_left_out_of_a_difference() {
    static IDLE: LockClass = LockClass::new("idle", 7);
    drop(Mutex::new(&IDLE, ()).lock());
    let earlier = lock_statistics();
    assert!(earlier.iter().any(|class| class.name == "idle"));
    let difference = statistics_between(&earlier, &lock_statistics());
    assert!(difference.iter().all(|class| class.name != "idle"));
}

#[test]
fn a_condition_wakes_its_waiters() {
    static QUEUE: LockClass = LockClass::new("queue", 7);
    let (queue, changed) = (Mutex::new(&QUEUE, Vec::new()), Condvar::new());
    thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let mut queue = queue.lock();
            changed.wait_while(&mut queue, |queue| queue.len() < 2);
            queue.clone()
        });
        for number in [1, 2] {
            queue.lock().push(number);
            changed.notify_all();
        }
        assert_eq!(taker.join().unwrap(), [1, 2]);
    });
    let short = Duration::from_millis(2);
    let mut queue = queue.lock();
    assert!(changed.wait_timeout(&mut queue, short));
    assert!(changed.wait_while_timeout(&mut queue, short, |queue| queue.len() < 3));
    assert!(!changed.wait_while_timeout(&mut queue, short, |queue| queue.len() < 2));
}

#[test]
fn slots_are_one_per_core() {
    let slots = PerCore::new(|slot| slot);
    assert_eq!(slots.slot_count(), core_slots());
    assert!(core_slots().is_power_of_two());
    assert!(core_slots() >= thread::available_parallelism().unwrap().get().min(256));
    assert!(current_core() < core_slots());
    assert!(slots.iter().copied().eq(0..core_slots()));
    let more = PerCore::with_slots(5, |slot| slot);
    assert_eq!((more.slot_count(), *more.slot(7), *more.slot(9)), (8, 7, 1));
    assert_eq!(PerCore::with_slots(0, |_| ()).slot_count(), 1);
}

#[test]
fn a_counter_sums_all_threads() {
    let counter = Arc::new(PerCoreCounter::new(10));
    let threads = (0..4).map(|number| {
        let counter = Arc::clone(&counter);
        thread::spawn(format!("adder {number}"), move || {
            (0..1000).for_each(|_| counter.add(3));
            (0..1000).for_each(|_| counter.add(-2));
        })
        .unwrap()
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(counter.sum(), 10 + 4 * 1000);
}

#[test]
fn a_batched_counter_is_exact_in_sum_and_near_it_otherwise() {
    static BATCHES: LockClass = LockClass::new("batches", 7);
    const BATCH: i64 = 8;
    let counter = Arc::new(BatchedCounter::new(&BATCHES, BATCH));
    let threads = (0..4).map(|number| {
        let counter = Arc::clone(&counter);
        thread::spawn(format!("adder {number}"), move || {
            (0..1000).for_each(|_| counter.add(3));
            (0..1000).for_each(|_| counter.add(-2));
        })
        .unwrap()
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(counter.sum(), 4 * 1000);
    assert!((counter.roughly() - counter.sum()).abs() < BATCH * core_slots() as i64);
}

#[test]
fn clocks_agree() {
    let start = clock::now();
    let coarse = clock::coarse_ns();
    thread::sleep(Duration::from_millis(2));
    assert!(start.elapsed() >= Duration::from_millis(2));
    assert!(clock::now() > start && clock::now() < start + Duration::from_secs(3600));
    // The coarse clock moves on with the next tick.
    while clock::coarse_ns() == coarse {
        thread::yield_now();
    }
    assert!(clock::coarse_ns() > coarse && start.elapsed() < Duration::from_secs(3600));
    let (seconds, nanoseconds) = clock::wall();
    let (coarse_seconds, coarse_nanoseconds) = clock::wall_coarse();
    assert!(seconds > 1_600_000_000 && (seconds - coarse_seconds).abs() <= 1);
    assert!(nanoseconds < 1_000_000_000 && coarse_nanoseconds < 1_000_000_000);
}
