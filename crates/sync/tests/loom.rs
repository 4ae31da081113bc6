//! The loom back end: the facade's locks under every interleaving.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p drystone-sync --release --test loom`, with a target
//! directory of its own.
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]
#![cfg(loom)]

use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{
    Arc, BatchedCounter, Condvar, LockClass, Mutex, PerCoreCounter, PublishedValue, RwLock,
    SpinLock, model, thread,
};

static OUTER: LockClass = LockClass::new("outer", 1);
static INNER: LockClass = LockClass::new("inner", 2);

#[test]
fn mutexes_exclude() {
    model(|| {
        let counts =
            Arc::new((Mutex::new(&OUTER, 0_u64), SpinLock::new(&INNER, 0_u64), AtomicU64::new(0)));
        let add = |counts: &(Mutex<u64>, SpinLock<u64>, AtomicU64)| {
            *counts.0.lock() += 1;
            *counts.1.lock() += 1;
            counts.2.fetch_add(1, Ordering::Relaxed);
        };
        let other = {
            let counts = Arc::clone(&counts);
            thread::spawn("other", move || add(&counts)).unwrap()
        };
        add(&counts);
        other.join().unwrap();
        assert_eq!((*counts.0.lock(), *counts.1.lock()), (2, 2));
        assert_eq!(counts.2.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn readers_see_whole_writes() {
    model(|| {
        let pair = Arc::new(RwLock::new(&OUTER, (0, 0)));
        let writer = {
            let pair = Arc::clone(&pair);
            thread::spawn("writer", move || *pair.write() = (1, 1)).unwrap()
        };
        let (first, second) = *pair.read();
        assert_eq!(first, second);
        writer.join().unwrap();
        assert_eq!(*pair.read(), (1, 1));
    });
}

#[test]
fn a_notification_is_not_lost() {
    model(|| {
        let state = Arc::new((Mutex::new(&OUTER, false), Condvar::new()));
        let notifier = {
            let state = Arc::clone(&state);
            thread::spawn("notifier", move || {
                *state.0.lock() = true;
                state.1.notify_one();
            })
            .unwrap()
        };
        let mut ready = state.0.lock();
        state.1.wait_while(&mut ready, |ready| !*ready);
        assert!(*ready);
        drop(ready);
        notifier.join().unwrap();
    });
}

/// The amounts fill a batch, so that parts move meanwhile.
#[test]
fn a_batched_counter_counts_what_was_counted_before() {
    model(|| {
        let counter = Arc::new(BatchedCounter::new(&INNER, 2));
        counter.add(1);
        let adder = {
            let counter = Arc::clone(&counter);
            thread::spawn("adder", move || counter.add(2)).unwrap()
        };
        let seen = counter.sum();
        assert!(seen == 1 || seen == 3, "{seen}");
        adder.join().unwrap();
        assert_eq!(counter.sum(), 3);
    });
}

#[test]
fn a_counter_is_exact_when_its_users_are_done() {
    model(|| {
        let counter = Arc::new(PerCoreCounter::new(5));
        let threads = [1, 2].map(|amount| {
            let counter = Arc::clone(&counter);
            thread::spawn("adder", move || counter.add(amount)).unwrap()
        });
        counter.add(-1);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(counter.sum(), 7);
    });
}

#[test]
fn a_published_value_is_whole_and_stays() {
    model(|| {
        let published = Arc::new(PublishedValue::new(&OUTER, Box::new(1_u64)));
        let reader = {
            let published = Arc::clone(&published);
            thread::spawn("reader", move || {
                let first = published.get();
                let second = published.get();
                assert!(**first <= **second);
                **first
            })
            .unwrap()
        };
        let other = {
            let published = Arc::clone(&published);
            thread::spawn("other", move || published.replace(Box::new(2))).unwrap()
        };
        published.replace(Box::new(2));
        assert!([1, 2].contains(&reader.join().unwrap()));
        other.join().unwrap();
        assert_eq!(**published.get(), 2);
    });
}
