//! Files that are open for writing.
//!
//! What programs wrote to such a file may still be in the kernel's page cache, which doesn't send it
//! before it asks where holes are: only of other files is the answer known.
//!
//! # Locking
//!
//! One lock for each shard, held for one look-up, with nothing taken under it.

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

    /// It was closed. Returns whether nobody has it open for writing any more.
    pub(super) fn remove(&self, inode: InodeNumber) -> bool {
        let mut shard = self.shard(inode).lock();
        let Some(count) = shard.get_mut(&inode) else { return true };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            shard.remove(&inode);
        }
        is_last
    }

    /// True if the file is open for writing.
    pub(super) fn has(&self, inode: InodeNumber) -> bool {
        self.shard(inode).lock().contains_key(&inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted() {
        let writers = Writers::new();
        let (a, b) = (InodeNumber(12), InodeNumber(12 + SHARDS as u64));
        writers.add(a);
        writers.add(a);
        writers.add(b);
        assert!(!writers.remove(a));
        assert!(writers.has(a) && writers.has(b));
        assert!(writers.remove(a));
        assert!(!writers.has(a) && writers.has(b));
        // One that was never counted changes nothing.
        assert!(writers.remove(a));
        assert!(!writers.has(a));
    }
}
