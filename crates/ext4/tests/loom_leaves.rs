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

/// A directory whose first leaf has names from 0 to 3, as bits. Names from 2 on are in the second leaf once there is
/// one.
struct Hashed {
    lock: DirectoryIndexLock,
    leaf_locks: [RwLock<()>; 2],
    leaves: [AtomicU64; 2],
    /// How many leaves the index has.
    index: AtomicU64,
    /// Names that fit a leaf.
    room: u32,
}

impl Hashed {
    fn new(names: u64, room: u32) -> Arc<Hashed> {
        Arc::new(Hashed {
            lock: DirectoryIndexLock::new(),
            leaf_locks: [(); 2].map(|()| RwLock::new(&lock_classes::LEAF, ())),
            leaves: [names, 0].map(AtomicU64::new),
            index: AtomicU64::new(1),
            room,
        })
    }

    fn leaf_of(&self, name: u32) -> Result<Option<usize>, ()> {
        Ok(Some(usize::from(name >= 2 && self.index.load(Relaxed) == 2)))
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
            let (leaf, lock) = locked.unwrap();
            let names = self.leaves[leaf].load(Relaxed);
            if names.count_ones() < self.room {
                self.leaves[leaf].store(names | 1 << name, Relaxed);
                return;
            }
            drop(lock);
            self.split(name);
        }
    }

    /// Splits the leaf for a name, if it is still full.
    fn split(&self, name: u32) {
        let index = self.lock.write();
        let leaf = self.leaf_of(name).unwrap().unwrap();
        let _leaf = self.leaf_locks[leaf].write();
        let names = self.leaves[leaf].load(Relaxed);
        if names.count_ones() < self.room {
            return;
        }
        assert_eq!(self.index.load(Relaxed), 1);
        self.leaves[1].store(names & !0b11, Relaxed);
        self.leaves[0].store(names & 0b11, Relaxed);
        self.index.store(2, Relaxed);
        index.note_split();
    }

    /// All names, each as often as it was seen.
    fn list(&self) -> Vec<u32> {
        let _index = self.lock.read();
        let leaves = self.index.load(Relaxed) as usize;
        let names = |leaf: usize| {
            let _leaf = self.leaf_locks[leaf].read();
            let names = self.leaves[leaf].load(Relaxed);
            (0..4).filter(move |name| names >> name & 1 == 1)
        };
        (0..leaves).flat_map(names).collect()
    }
}

#[test]
fn a_name_that_moves_is_found() {
    model(|| {
        let hashed = Hashed::new(0b1111, 4);
        let splitter = {
            let hashed = Arc::clone(&hashed);
            thread::spawn("splitter", move || hashed.split(3)).unwrap()
        };
        assert!(hashed.has(3) && hashed.has(0));
        splitter.join().unwrap();
        assert!(hashed.has(3) && hashed.has(0));
    });
}

#[test]
fn a_listing_has_each_name_once() {
    model(|| {
        let hashed = Hashed::new(0b1011, 3);
        let adder = {
            let hashed = Arc::clone(&hashed);
            thread::spawn("adder", move || hashed.add(2)).unwrap()
        };
        let seen = hashed.list();
        assert!(seen == [0, 1, 3] || seen == [0, 1, 2, 3], "{seen:?}");
        adder.join().unwrap();
        assert_eq!(hashed.list(), [0, 1, 2, 3]);
    });
}

#[test]
fn threads_that_find_a_leaf_full_split_it_once() {
    model(|| {
        let hashed = Hashed::new(0b101, 2);
        let adder = {
            let hashed = Arc::clone(&hashed);
            thread::spawn("adder", move || hashed.add(1)).unwrap()
        };
        hashed.add(3);
        adder.join().unwrap();
        assert_eq!(hashed.list(), [0, 1, 2, 3]);
    });
}
