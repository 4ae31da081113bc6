//! Direct writes (`O_DIRECT`) beside the page cache.
//!
//! The kernel drops what it has cached of a range before it sends a direct write of it, and again after
//! one whose caller waits. After an asynchronous one it doesn't, and old content that a program read
//! through the cache in the meantime would stay there. So the server makes the kernel drop the range
//! before it answers. That costs a message per write, and is skipped while no program reads the file
//! through the cache.
//!
//! # State
//!
//! The files that are open for direct writes, and whether each has been read through the cache since
//! it was opened for that. A read is noted before the content is read; a write checks for reads after
//! it has changed the content. So whichever comes second sees the other.
//!
//! # Locking
//!
//! One lock, taken only while some file is open for direct writes. It ranks after that of a file's
//! writers, and nothing is taken under it.

use super::{NodeId, Operations, WriteFlags};
use drystone_sync::atomic::{AtomicUsize, Ordering};
use drystone_sync::{LockClass, Mutex};
use drystone_vfs::InodeNumber;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::ops::Range;

static DIRECT: LockClass = LockClass::new("files written directly", 6);

/// The files that are written directly.
pub(super) struct DirectWrites {
    /// Whether each of them was read through the cache.
    files: Mutex<HashMap<InodeNumber, bool>>,
    /// How many there are. Usually none, and then no request takes the lock.
    count: AtomicUsize,
}

impl DirectWrites {
    pub(super) fn new() -> DirectWrites {
        DirectWrites { files: Mutex::new(&DIRECT, HashMap::new()), count: AtomicUsize::new(0) }
    }

    fn is_any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// A file was opened for writing with `flags`.
    pub(super) fn opened(&self, inode: InodeNumber, flags: OFlags) {
        if flags.contains(OFlags::DIRECT) {
            let mut files = self.files.lock();
            files.entry(inode).or_insert(false);
            self.count.store(files.len(), Ordering::SeqCst);
        }
    }

    /// Forgets a file that is no longer open for writing.
    pub(super) fn closed(&self, inode: InodeNumber) {
        if self.is_any() {
            let mut files = self.files.lock();
            files.remove(&inode);
            self.count.store(files.len(), Ordering::SeqCst);
        }
    }

    /// A file that was opened with `flags` is about to be read.
    pub(super) fn reads(&self, inode: InodeNumber, flags: OFlags) {
        if self.is_any()
            && !flags.contains(OFlags::DIRECT)
            && let Some(is_read) = self.files.lock().get_mut(&inode)
        {
            *is_read = true;
        }
    }

    /// Bytes of a file have been written directly. Returns the range that may be stale in the
    /// kernel's cache.
    fn written(&self, inode: InodeNumber, bytes: Range<u64>) -> Option<Range<u64>> {
        let mut files = self.files.lock();
        if let Some(&is_read) = files.get(&inode) {
            return is_read.then_some(bytes);
        }
        // The file was opened without `O_DIRECT`, so earlier reads weren't noted.
        files.insert(inode, false);
        self.count.store(files.len(), Ordering::SeqCst);
        Some(0..u64::MAX)
    }
}

impl Operations {
    /// What the kernel has to drop of a node before it gets the answer to a write to a file that was
    /// opened with `open_flags`.
    pub fn outdated_by_write(
        &self,
        node: NodeId,
        bytes: Range<u64>,
        flags: WriteFlags,
        open_flags: u32,
    ) -> Option<Range<u64>> {
        let is_direct = OFlags::from_bits_retain(open_flags).contains(OFlags::DIRECT);
        if flags.cached || !is_direct {
            return None;
        }
        self.direct_writes.written(self.inode(node), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_be_cached_is_dropped() {
        let (file, other) = (InodeNumber(12), InodeNumber(13));
        let writes = DirectWrites::new();
        // What was read before doesn't count: the kernel drops it before it sends a direct write.
        writes.reads(file, OFlags::RDONLY);
        writes.opened(file, OFlags::RDWR | OFlags::DIRECT);
        writes.opened(other, OFlags::RDWR);
        writes.reads(file, OFlags::RDWR | OFlags::DIRECT);
        writes.reads(other, OFlags::RDONLY);
        assert_eq!(writes.written(file, 5..10), None);
        writes.reads(file, OFlags::RDONLY);
        writes.opened(file, OFlags::WRONLY | OFlags::DIRECT);
        assert_eq!(writes.written(file, 5..10), Some(5..10));
        assert_eq!(writes.written(other, 5..10), Some(0..u64::MAX));
        assert_eq!(writes.written(other, 5..10), None);
        writes.closed(file);
        writes.closed(other);
        assert!(!writes.is_any());
    }
}
