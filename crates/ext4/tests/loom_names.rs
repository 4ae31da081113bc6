//! All interleavings of a thread that changes dentries and one that reads them without a lock.
//!
//! Run with `./dev loom`.
#![cfg(loom)]
#![allow(dead_code, clippy::unwrap_used, reason = "a test of one of the engine's modules")]

#[path = "../src/number_map.rs"]
mod number_map;
#[path = "../src/sequence_count.rs"]
mod sequence_count;
#[path = "../src/dentry_cache/slots.rs"]
mod slots;

use drystone_sync::{Arc, LockClass, Mutex, model, thread};
use slots::{DentryKey, DentrySlots};

const WORDS: usize = 2;
static SHARD: LockClass = LockClass::new("shard", 1);

fn key(name: &str) -> DentryKey<WORDS> {
    DentryKey::of(name.as_bytes()).unwrap()
}

fn slots_with(name: &str, number: u32) -> Arc<DentrySlots<WORDS>> {
    let slots = DentrySlots::new(2);
    slots.change().put(slots.home_of(&key(name)), &key(name), number);
    Arc::new(slots)
}

/// A number is read only together with its name, although another name takes the slot.
#[test]
fn what_is_read_was_there_at_once() {
    model(|| {
        let slots = slots_with("a", 1);
        let writer = {
            let slots = slots.clone();
            thread::spawn("writer", move || {
                let place = slots.find(&key("a")).unwrap();
                slots.change().put(place, &key("b"), 2);
                slots.change().put(place, &key("a"), 3);
            })
        };
        if let Some((found, read)) = slots.read(&key("a"))
            && read.holds()
        {
            assert!(matches!(found, None | Some(1 | 3)), "{found:?}");
        }
        writer.unwrap().join().unwrap();
        assert_eq!(slots.get(&key("a")), Some(3));
    });
}

/// A thread that frees an inode first drops its name and then locks the shard. So a thread that finds
/// the name unchanged with the shard locked has come first.
#[test]
fn what_still_holds_under_the_lock_is_not_freed() {
    for is_retired in [false, true] {
        model(move || {
            let slots = slots_with("a", 1);
            // Whether the inode is referenced, and freed.
            let shard = Arc::new(Mutex::new(&SHARD, (false, false)));
            let freer = {
                let (slots, shard) = (slots.clone(), shard.clone());
                thread::spawn("freer", move || {
                    if is_retired {
                        slots.retire();
                    } else {
                        slots.change().remove(slots.find(&key("a")).unwrap());
                    }
                    let mut shard = shard.lock();
                    shard.1 = !shard.0;
                })
            };
            if let Some((Some(1), read)) = slots.read(&key("a")) {
                let mut shard = shard.lock();
                if read.holds() {
                    assert!(!shard.1, "the inode is freed");
                    shard.0 = true;
                }
            }
            freer.unwrap().join().unwrap();
            let (is_referenced, is_freed) = *shard.lock();
            assert_ne!(is_referenced, is_freed);
        });
    }
}
