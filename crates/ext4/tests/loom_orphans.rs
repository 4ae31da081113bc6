//! All interleavings of threads that take and free slots of a block of the orphan file.
//!
//! Run with `./dev loom`.
#![cfg(loom)]
#![allow(dead_code, clippy::unwrap_used, reason = "a test of two of the engine's modules")]

#[path = "../src/orphan/kept.rs"]
mod kept;
#[path = "../src/orphan/slots.rs"]
mod slots;

use drystone_ext4_format::InodeNumber;
use drystone_sync::{Arc, model, thread};
use slots::OrphanSlots;

fn inode(number: u32) -> InodeNumber {
    InodeNumber::new(number)
}

/// Takes a slot as an orphan does: the counter first.
fn add(slots: &OrphanSlots, number: u32) -> Option<usize> {
    slots.take_free().then(|| slots.claim(inode(number))).flatten()
}

fn numbers(slots: &OrphanSlots) -> Vec<u32> {
    let mut numbers: Vec<u32> =
        slots.contents().flatten().map(drystone_ext4_format::InodeNumber::get).collect();
    numbers.sort_unstable();
    numbers
}

/// Two threads add orphans, and one of them frees a slot before. They share no slot. Neither can be
/// overtaken in more than one sweep, so both find one.
#[test]
fn who_took_the_counter_down_gets_a_slot_of_its_own() {
    model(|| {
        let slots = Arc::new(OrphanSlots::new(3, [(0, inode(7))]));
        let first = {
            let slots = slots.clone();
            thread::spawn("first", move || add(&slots, 11))
        };
        let second = {
            let slots = slots.clone();
            thread::spawn("second", move || {
                slots.release(0, inode(7));
                add(&slots, 12)
            })
        };
        let first = first.unwrap().join().unwrap().unwrap();
        let second = second.unwrap().join().unwrap().unwrap();
        assert_ne!(first, second);
        assert_eq!(numbers(&slots), [11, 12]);
    });
}

/// One slot for two threads: one of them gets it, the other may get it after it is freed, and no count
/// is lost.
#[test]
fn the_last_slot_goes_to_one_and_comes_back() {
    model(|| {
        let slots = Arc::new(OrphanSlots::new(1, []));
        let user = |number: u32| {
            let slots = slots.clone();
            thread::spawn("user", move || {
                let slot = add(&slots, number);
                if let Some(slot) = slot {
                    slots.release(slot, inode(number));
                }
                slot.is_some()
            })
        };
        let users = [user(11), user(12)];
        let got = users.map(|user| user.unwrap().join().unwrap());
        assert!(got.contains(&true));
        assert!(numbers(&slots).is_empty());
        assert_eq!(add(&slots, 13), Some(0));
        assert!(!slots.take_free());
    });
}

/// A commit that reads the slots while threads change them sees in each a value that a thread put there.
#[test]
fn a_commit_sees_whole_slots() {
    model(|| {
        let slots = Arc::new(OrphanSlots::new(2, [(0, inode(7))]));
        let user = {
            let slots = slots.clone();
            thread::spawn("user", move || {
                let slot = add(&slots, 11);
                slots.release(0, inode(7));
                slot
            })
        };
        let seen = numbers(&slots);
        assert!([&[7][..], &[7, 11], &[11], &[]].contains(&&seen[..]), "{seen:?}");
        // Slot 0 was read before the release and slot 1 before the claim.
        assert_eq!(user.unwrap().join().unwrap(), Some(1));
        assert_eq!(numbers(&slots), [11]);
    });
}

/// Until a thread gives a kept slot back, no other thread claims it, and a commit sees its orphan or
/// none. No count is lost.
#[test]
fn a_kept_slot_is_nobody_elses() {
    model(|| {
        let slots = Arc::new(OrphanSlots::new(20, []));
        let keeper = {
            let slots = slots.clone();
            thread::spawn("keeper", move || {
                let slot = slots.set_aside(0).unwrap();
                slots.kept(slot).unwrap().put(inode(12));
                slots.keep(slot, inode(12));
                slots.give_kept(slot);
            })
        };
        let other = {
            let slots = slots.clone();
            thread::spawn("other", move || {
                let slot = add(&slots, 13).unwrap();
                slots.release(slot, inode(13));
            })
        };
        let seen = numbers(&slots);
        assert!(seen.iter().all(|number| [12, 13].contains(number)), "{seen:?}");
        keeper.unwrap().join().unwrap();
        other.unwrap().join().unwrap();
        assert!(numbers(&slots).is_empty());
        assert!((0..20).all(|number| add(&slots, 14 + number).is_some()));
        assert!(!slots.take_free());
    });
}
