//! All interleavings of threads that load, change, drop and free one value of a shard.
//!
//! Run with `./dev loom`.
#![cfg(loom)]
#![allow(dead_code, clippy::unwrap_used, reason = "a test of two of the engine's modules")]

#[path = "../src/number_map.rs"]
mod number_map;
#[path = "../src/inode/table/residents.rs"]
mod residents;

use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, LockClass, SpinLock, model, thread};
use residents::{Loaded, Residents, load};

static CLASS: LockClass = LockClass::new("a shard", 1);
const NUMBER: u32 = 7;

/// A record in an image, and the shard that may have its value in memory.
struct Image {
    record: AtomicU64,
    shard: SpinLock<Residents<AtomicU64>>,
}

impl Image {
    fn new() -> Image {
        let shard = SpinLock::new(&CLASS, Residents::default());
        Image { record: AtomicU64::new(0), shard }
    }

    fn load(&self) -> Arc<AtomicU64> {
        let decode = || Ok::<_, ()>(AtomicU64::new(self.record.load(Ordering::Acquire)));
        match load(&self.shard, |shard| shard, NUMBER, decode).unwrap() {
            Loaded::Here(value) => value,
            Loaded::Decoded(mut shard, value) => {
                let value = Arc::new(value);
                shard.insert(NUMBER, Arc::clone(&value));
                value
            }
        }
    }

    /// Adds one to the value and to its record, as an update of a field does.
    fn change(&self) {
        let value = self.load();
        let changed = value.fetch_add(1, Ordering::AcqRel) + 1;
        self.record.store(changed, Ordering::Release);
    }

    /// Drops the value if no thread works with it, as a sweep does.
    fn drop_unused(&self) {
        let mut shard = self.shard.lock();
        if shard.get_mut(NUMBER).is_some_and(|value| Arc::get_mut(value).is_some()) {
            shard.take(NUMBER);
        }
    }
}

/// A thread decodes the record while another thread loads the value, changes it, and drops it.
#[test]
fn no_stale_value_comes_into_memory() {
    model(|| {
        let image = Arc::new(Image::new());
        let changer = {
            let image = image.clone();
            thread::spawn("changer", move || {
                image.change();
                image.drop_unused();
            })
        };
        let value = image.load();
        changer.unwrap().join().unwrap();
        // A thread that loads the value gets the newest one.
        assert_eq!(value.load(Ordering::Acquire), 1);
        assert_eq!(image.load().load(Ordering::Acquire), 1);
    });
}

/// A thread that works with the value changes the record so that it can't be decoded, like the record of
/// a file that loses its last name.
#[test]
fn a_value_in_memory_is_found_whatever_its_record_says() {
    const UNREADABLE: u64 = u64::MAX;
    model(|| {
        let image = Arc::new(Image::new());
        let changer = {
            let image = image.clone();
            thread::spawn("changer", move || {
                let value = image.load();
                image.record.store(UNREADABLE, Ordering::Release);
                value
            })
        };
        let decode = || match image.record.load(Ordering::Acquire) {
            UNREADABLE => Err(()),
            value => Ok(AtomicU64::new(value)),
        };
        assert!(load(&image.shard, |shard| shard, NUMBER, decode).is_ok());
        drop(changer.unwrap().join().unwrap());
    });
}

/// What the record of a free number says, and that of the file that gets the number next.
const FREE: u64 = u64::MAX;
const NEXT: u64 = 100;

impl Image {
    /// As [`load`](Image::load), for a record that may be free.
    fn load_in_use(&self) -> Result<Arc<AtomicU64>, ()> {
        let decode = || match self.record.load(Ordering::Acquire) {
            FREE => Err(()),
            value => Ok(AtomicU64::new(value)),
        };
        Ok(match load(&self.shard, |shard| shard, NUMBER, decode)? {
            Loaded::Here(value) => value,
            Loaded::Decoded(mut shard, value) => {
                let value = Arc::new(value);
                shard.insert(NUMBER, Arc::clone(&value));
                value
            }
        })
    }

    /// Frees the number, as a thread does that has claimed the inode: the record first.
    fn free(&self) {
        let value = self.load();
        self.record.store(FREE, Ordering::Release);
        self.shard.lock().take(NUMBER);
        drop(value);
    }

    /// Gives the free number to another file: its value comes into memory before its record is written.
    fn reuse(&self) {
        let value = Arc::new(AtomicU64::new(NEXT));
        let mut shard = self.shard.lock();
        assert!(shard.get(NUMBER).is_none(), "the value of a free number is in memory");
        shard.insert(NUMBER, Arc::clone(&value));
        drop(shard);
        self.record.store(NEXT, Ordering::Release);
    }
}

/// A thread frees the number and uses it again, while another loads whatever the record says, and evicts.
/// The old value never comes back into memory, nor does a stale new one.
#[test]
fn a_freed_number_takes_nothing_from_its_past() {
    model(|| {
        let image = Arc::new(Image::new());
        let owner = {
            let image = image.clone();
            thread::spawn("owner", move || {
                image.free();
                image.reuse();
                image.change();
            })
        };
        for _ in 0..2 {
            if let Ok(value) = image.load_in_use() {
                assert!([0, NEXT, NEXT + 1].contains(&value.load(Ordering::Acquire)));
            }
            image.drop_unused();
        }
        owner.unwrap().join().unwrap();
        assert_eq!(image.load().load(Ordering::Acquire), NEXT + 1);
    });
}
