//! All interleavings of changes that pass the gate, a log writer that closes it, and a freeze.
//!
//! Run with `./dev loom`.
#![cfg(loom)]
#![allow(dead_code, clippy::unwrap_used, reason = "a test of two of the engine's modules")]

#[path = "../src/gate.rs"]
mod gate;
#[path = "../src/lock_classes.rs"]
mod lock_classes;

use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, model, thread};
use gate::Gate;

/// Two numbers that each change raises, one after the other.
#[derive(Default)]
struct Pair {
    first: AtomicU64,
    second: AtomicU64,
}

impl Pair {
    fn raise(&self) {
        self.first.fetch_add(1, Ordering::Relaxed);
        self.second.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> (u64, u64) {
        (self.first.load(Ordering::Relaxed), self.second.load(Ordering::Relaxed))
    }
}

/// Whoever has closed the gate sees each change as a whole or not at all.
#[test]
fn no_change_is_seen_in_part() {
    model(|| {
        let shared = Arc::new((Gate::new(), Pair::default()));
        let changer = {
            let shared = shared.clone();
            thread::spawn("changer", move || {
                let _inside = shared.0.enter();
                shared.1.raise();
            })
        };
        {
            let _closed = shared.0.close();
            let (first, second) = shared.1.read();
            assert_eq!(first, second);
        }
        changer.unwrap().join().unwrap();
        assert_eq!(shared.1.read(), (1, 1));
    });
}

/// While the volume is frozen and the gate was closed once, nothing changes; a thaw lets the change in.
#[test]
fn a_frozen_volume_stays_as_it_is_until_the_thaw() {
    model(|| {
        let shared = Arc::new((Gate::new(), Pair::default()));
        let changer = {
            let shared = shared.clone();
            thread::spawn("changer", move || {
                let _inside = shared.0.enter();
                shared.1.raise();
            })
        };
        assert!(shared.0.freeze());
        // Changes that were under way leave.
        drop(shared.0.close());
        let before = shared.1.read();
        assert_eq!(before.0, before.1);
        assert_eq!(shared.1.read(), before);
        assert!(shared.0.thaw());
        changer.unwrap().join().unwrap();
        assert_eq!(shared.1.read(), (1, 1));
    });
}
