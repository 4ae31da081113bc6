//! All interleavings of threads that split, change and visit leaves of a hashed directory.
//!
//! Run with `./dev loom`.
#![cfg(loom)]
#![allow(dead_code, clippy::unwrap_used, reason = "a test of one of the engine's modules")]

#[path = "../src/directory_index_lock.rs"]
mod directory_index_lock;
#[path = "../src/lock_classes.rs"]
mod lock_classes;

use directory_index_lock::DirectoryIndexLock;
use drystone_sync::atomic::{AtomicU64, Ordering::Relaxed};
use drystone_sync::{Arc, RwLock, model, thread};

const LEAVES: usize = 3;

/// A directory of names from 0 to 5. A leaf has names from twice its number on, up to the next leaf that is there.
struct Hashed {
    lock: DirectoryIndexLock,
    leaf_locks: [RwLock<()>; LEAVES],
    /// The names of each leaf, as bits.
    leaves: [AtomicU64; LEAVES],
    /// The leaves that are there, as bits.
    index: AtomicU64,
    /// Names that fit a leaf.
    room: u32,
}

impl Hashed {
    fn new(leaves: [u64; LEAVES], room: u32) -> Arc<Hashed> {
        let present = (0..LEAVES).filter(|leaf| leaves[*leaf] != 0).map(|leaf| 1 << leaf).sum();
        Arc::new(Hashed {
            lock: DirectoryIndexLock::new(),
            leaf_locks: [(); LEAVES].map(|()| RwLock::new(&lock_classes::LEAF, ())),
            leaves: leaves.map(AtomicU64::new),
            index: AtomicU64::new(present),
            room,
        })
    }

    fn leaf_of(&self, name: u32) -> Result<Option<usize>, ()> {
        let present = self.index.load(Relaxed);
        Ok((0..=name as usize / 2).rev().find(|leaf| present >> leaf & 1 == 1))
    }

    fn has(&self, name: u32) -> bool {
        let lock = |leaf: usize| self.leaf_locks[leaf].read();
        let (leaf, _lock) = self.lock.lock_leaf(|| self.leaf_of(name), lock).unwrap().unwrap();
        self.leaves[leaf].load(Relaxed) >> name & 1 == 1
    }

    fn add(&self, name: u32) {
        loop {
            let lock = |leaf: usize| self.leaf_locks[leaf].write();
            let locked = self.lock.lock_leaf(|| self.leaf_of(name), lock).unwrap();
            let (leaf, _lock) = locked.unwrap();
            let names = self.leaves[leaf].load(Relaxed);
            if names.count_ones() < self.room {
                self.leaves[leaf].store(names | 1 << name, Relaxed);
                return;
            }
            self.split_locked(leaf);
        }
    }

    /// Splits the first leaf.
    fn split(&self) {
        let _lock = self.leaf_locks[0].write();
        self.split_locked(0);
    }

    fn split_locked(&self, leaf: usize) {
        self.lock.write().reserve();
        let names = self.leaves[leaf].load(Relaxed);
        let lower = (1 << (2 * leaf + 2)) - 1;
        self.leaves[leaf + 1].store(names & !lower, Relaxed);
        self.leaves[leaf].store(names & lower, Relaxed);
        let mut index = self.lock.write();
        index.end_reservation();
        let present = self.index.load(Relaxed);
        assert_eq!(present >> (leaf + 1) & 1, 0);
        self.index.store(present | 1 << (leaf + 1), Relaxed);
        index.note_split();
    }

    /// All names, as often as they were seen.
    fn list(&self) -> Vec<u32> {
        let mut seen = Vec::new();
        let mut next = Some(0);
        while let Some(leaf) = next {
            let _names = self.leaf_locks[leaf].read();
            next = {
                let _index = self.lock.read();
                let present = self.index.load(Relaxed);
                (leaf + 1..LEAVES).find(|leaf| present >> leaf & 1 == 1)
            };
            let names = self.leaves[leaf].load(Relaxed);
            seen.extend((0..6).filter(|name| names >> name & 1 == 1));
        }
        seen
    }
}

#[test]
fn a_name_that_moves_is_found() {
    model(|| {
        let hashed = Hashed::new([0b1111, 0, 0], 4);
        let splitter = {
            let hashed = Arc::clone(&hashed);
            thread::spawn("splitter", move || hashed.split()).unwrap()
        };
        assert!(hashed.has(3) && hashed.has(0));
        splitter.join().unwrap();
        assert!(hashed.has(3) && hashed.has(0));
    });
}

#[test]
fn a_listing_has_each_name_once() {
    model(|| {
        let hashed = Hashed::new([0b1011, 0, 0b11_0000], 3);
        let adder = {
            let hashed = Arc::clone(&hashed);
            thread::spawn("adder", move || hashed.add(2)).unwrap()
        };
        let seen = hashed.list();
        assert!(seen == [0, 1, 3, 4, 5] || seen == [0, 1, 2, 3, 4, 5], "{seen:?}");
        adder.join().unwrap();
        assert_eq!(hashed.list(), [0, 1, 2, 3, 4, 5]);
    });
}

#[test]
fn threads_that_find_a_leaf_full_split_it_once() {
    model(|| {
        let hashed = Hashed::new([0b101, 0, 0b1_0000], 2);
        let adder = {
            let hashed = Arc::clone(&hashed);
            thread::spawn("adder", move || hashed.add(1)).unwrap()
        };
        hashed.add(3);
        adder.join().unwrap();
        assert_eq!(hashed.list(), [0, 1, 2, 3, 4]);
        assert_eq!(hashed.lock.write().reserved(), 0);
    });
}
