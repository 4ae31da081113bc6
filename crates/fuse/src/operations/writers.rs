//! Files that are open for writing.
//!
//! Writes to such a file may still be in the kernel's page cache, which doesn't send them before it
//! asks for holes. Only for other files is the answer known.
//!
//! # Locking
//!
//! One lock per shard, held for one look-up, and while a file's last writer drops what is known of
//! its writes, so that a new writer comes after that.

use drystone_sync::{LockClass, Mutex};
use drystone_vfs::InodeNumber;
use std::collections::HashMap;

static WRITERS: LockClass = LockClass::new("files open for writing", 5);

/// Enough that threads rarely meet.
const SHARDS: usize = 64;

/// How often each file is open for writing.
pub(super) struct Writers {
    shards: [Mutex<HashMap<InodeNumber, u32>>; SHARDS],
}

impl Writers {
    pub(super) fn new() -> Writers {
        Writers { shards: std::array::from_fn(|_| Mutex::new(&WRITERS, HashMap::new())) }
    }

    fn shard(&self, inode: InodeNumber) -> &Mutex<HashMap<InodeNumber, u32>> {
        &self.shards[inode.0 as usize % SHARDS]
    }

    /// A file was opened for writing.
    pub(super) fn add(&self, inode: InodeNumber) {
        *self.shard(inode).lock().entry(inode).or_insert(0) += 1;
    }

    /// Notes a close. If it was the last opening for writing, calls `forget` before the file can be
    /// opened again.
    pub(super) fn remove(&self, inode: InodeNumber, forget: impl FnOnce()) {
        let mut shard = self.shard(inode).lock();
        if let Some(count) = shard.get_mut(&inode) {
            *count -= 1;
            if *count > 0 {
                return;
            }
            shard.remove(&inode);
        }
        forget();
    }

    /// The files that are open for writing.
    pub(super) fn all(&self) -> Vec<InodeNumber> {
        self.shards
            .iter()
            .flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>())
            .collect()
    }

    /// True if the file is open for writing.
    pub(super) fn has(&self, inode: InodeNumber) -> bool {
        self.shard(inode).lock().contains_key(&inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_sync::atomic::{AtomicBool, Ordering};
    use drystone_sync::thread;
    use std::time::Duration;

    #[test]
    fn files_are_counted() {
        let writers = Writers::new();
        let (a, b) = (InodeNumber(12), InodeNumber(12 + SHARDS as u64));
        writers.add(a);
        writers.add(a);
        writers.add(b);
        let is_last = |file| {
            let mut is_last = false;
            writers.remove(file, || is_last = true);
            is_last
        };
        assert!(!is_last(a));
        assert!(writers.has(a) && writers.has(b));
        assert!(is_last(a));
        assert!(!writers.has(a) && writers.has(b));
        assert_eq!(writers.all(), [b]);
        // A file that was never counted changes nothing.
        assert!(is_last(a));
        assert!(!writers.has(a));
    }

    /// What a new writer does is not forgotten with the last one.
    #[test]
    fn a_new_writer_comes_after_what_is_forgotten() {
        let (writers, file) = (&Writers::new(), InodeNumber(12));
        writers.add(file);
        let is_opened = &AtomicBool::new(false);
        thread::scope(|scope| {
            writers.remove(file, || {
                scope.spawn(|| {
                    writers.add(file);
                    is_opened.store(true, Ordering::SeqCst);
                });
                thread::sleep(Duration::from_millis(20));
                assert!(!is_opened.load(Ordering::SeqCst));
            });
        });
        assert!(writers.has(file));
    }
}
