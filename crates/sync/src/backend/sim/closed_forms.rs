//! Cases whose result is known: the simulation is within 2 % of it. `docs/src/design/validation.md` shows them.

use super::atomic::{AtomicU64, Ordering};
use super::{Barrier, MachineModel, SimulationSettings, SpinLocks, Work, run, thread, world};
use crate::{LockClass, Mutex, RwLock, SpinLock, clock};

static CLASS: LockClass = LockClass::new("closed form", 10);

/// Work before each event, and the costs of the machine, in nanoseconds.
const WORK_NS: f64 = 100.0;
const TRANSFER_NS: f64 = 50.0;
const ATOMIC_NS: f64 = 5.0;

/// 64 cores that are all as far from each other.
fn settings(spin_locks: SpinLocks) -> SimulationSettings {
    let machine = MachineModel {
        cores_per_cluster: 64,
        near_ps: 50_000,
        memory_ps: 80_000,
        hit_ps: 1000,
        atomic_ps: 5000,
        spin_ps: 1_000_000_000,
        slice_ps: 10_000_000,
        ..MachineModel::even()
    };
    SimulationSettings {
        spin_locks,
        ..SimulationSettings::new(machine, 64, Work::Constant(100_000))
    }
}

/// Nanoseconds from one operation of any thread to the next, when some threads do as many as they can.
fn interval_ns(spin_locks: SpinLocks, threads: u64, operation: impl Fn() + Sync) -> f64 {
    const DURATION_NS: u64 = 200_000_000;
    const OPERATIONS_MAX: u64 = 100_000;
    let (interval, _) = run(&settings(spin_locks), || {
        let barrier = Barrier::new(threads as usize);
        let all = AtomicU64::new(0);
        let (start, end) = (clock::now_ns(), AtomicU64::new(0));
        thread::scope(|scope| {
            let (barrier, operation, all, end) = (&barrier, &operation, &all, &end);
            for _ in 0..threads {
                scope.spawn(move || {
                    barrier.wait();
                    let mut count = 0;
                    while clock::now_ns() < start + DURATION_NS && count < OPERATIONS_MAX / threads
                    {
                        operation();
                        count += 1;
                    }
                    end.fetch_max(clock::now_ns(), Ordering::Relaxed);
                    all.fetch_add(count, Ordering::Relaxed);
                });
            }
        });
        let elapsed = end.load(Ordering::Relaxed) - start;
        elapsed as f64 / all.load(Ordering::Relaxed) as f64
    });
    interval
}

#[track_caller]
fn assert_near(simulated: f64, expected: f64) {
    let error = simulated / expected - 1.0;
    assert!(error.abs() < 0.02, "{simulated} isn't {expected}: {:.2} % off", 100.0 * error);
}

/// Work without events.
fn work(ns: f64) {
    world::with(|world| world.spend((ns * 1000.0) as u64));
}

#[test]
fn additions_to_one_line_come_one_per_transfer() {
    let line = Box::new(AtomicU64::new(0));
    let add = || {
        line.fetch_add(1, Ordering::Relaxed);
    };
    assert_near(interval_ns(SpinLocks::Sleeping, 1, add), WORK_NS + ATOMIC_NS);
    // Two threads don't fill the line: each adds as soon as it has worked.
    assert_near(interval_ns(SpinLocks::Sleeping, 2, add), (WORK_NS + TRANSFER_NS) / 2.0);
    for threads in [4, 16, 64] {
        assert_near(interval_ns(SpinLocks::Sleeping, threads, add), TRANSFER_NS);
    }
}

#[test]
fn readers_of_one_lock_move_its_line_twice() {
    let lock = RwLock::new(&CLASS, [0_u64; 0]);
    for threads in [16, 64] {
        let read = || drop(lock.read());
        assert_near(interval_ns(SpinLocks::Sleeping, threads, read), 2.0 * TRANSFER_NS);
    }
}

/// With a section of s and work of w outside, n threads do n operations in s + w, until the lock is never free:
/// one in s.
#[test]
fn a_lock_with_a_fixed_section_is_the_limit() {
    const SECTION_NS: f64 = 100_000.0;
    let lock = Mutex::new(&CLASS, ());
    let operate = || {
        let guard = lock.lock();
        work(SECTION_NS);
        drop(guard);
        work(7.0 * SECTION_NS);
    };
    for threads in [1, 2, 4, 6, 12, 32] {
        let expected = (8.0 * SECTION_NS / threads as f64).max(SECTION_NS);
        assert_near(interval_ns(SpinLocks::Sleeping, threads, operate), expected);
    }
}

/// A ticket lock's hand-over takes half a transfer more for each thread that waits behind the next.
#[test]
fn a_ticket_lock_collapses_and_a_queued_one_does_not() {
    let lock = SpinLock::new(&CLASS, ());
    let operate = || {
        let guard = lock.lock();
        work(2000.0);
        drop(guard);
    };
    let queued_at_8 = interval_ns(SpinLocks::Queued, 8, operate);
    for threads in [16, 32, 64] {
        let queued = interval_ns(SpinLocks::Queued, threads, operate);
        assert_near(queued, queued_at_8);
        let ticket = interval_ns(SpinLocks::Ticket, threads, operate);
        let behind = threads as f64 - 2.0;
        assert_near(ticket, queued + TRANSFER_NS * behind / 2.0);
    }
}

/// With four times as many threads as processors each gets a quarter of one.
#[test]
fn more_threads_than_processors_take_turns() {
    let own = crate::PerCore::with_slots(64, |_| AtomicU64::new(0));
    let operate = || {
        work(1000.0);
        own.current().fetch_add(1, Ordering::Relaxed);
    };
    let alone = interval_ns(SpinLocks::Sleeping, 64, operate);
    assert_near(alone, (1000.0 + WORK_NS + ATOMIC_NS) / 64.0);
    assert_near(interval_ns(SpinLocks::Sleeping, 256, operate), alone);
}
