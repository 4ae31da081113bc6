//! The directory that a thread has looked names up in last.
//!
//! # State
//! A thread that looks up many names in one directory keeps a handle of that one, which saves it the
//! way through the table of inodes, and the slots of its dentries, which it then reads without a
//! lock: one directory for each thread, from the second look-up in a row on, until it looks into
//! another one twice. So it stays in memory that long, though nobody else uses it, and so do the
//! places of its names if it has got others since. When the directory is removed or the image
//! closed, the handle is no longer used.
//!
//! # Locking
//! None: nobody else sees a thread's own.

use super::Inode;
use crate::dentry_cache::DentryReader;
use drystone_ext4_format::InodeNumber;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, LazyLock};
use std::cell::RefCell;

/// What a thread remembers.
#[derive(Default)]
struct RecentDirectory {
    /// The table that the numbers are of, and the directory that was asked for last.
    asked: Option<(u64, InodeNumber)>,
    /// The directory that was asked for twice in a row.
    kept: Option<KeptDirectory>,
}

/// A directory that a thread keeps.
struct KeptDirectory {
    table: u64,
    directory: Arc<Inode>,
    names: DentryReader,
}

drystone_sync::thread_local! {
    static RECENT: RefCell<RecentDirectory> = RefCell::default();
}

/// A number that no other table has had.
pub(super) fn new_table() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(0));
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Passes on the directory of a number: that which the thread keeps, if that is it, else what `get` gives,
/// which the thread keeps from now on if it was asked for that twice in a row.
#[inline]
pub(super) fn with<T>(
    table: u64,
    number: InodeNumber,
    get: impl FnOnce() -> Option<Arc<Inode>>,
    found: impl FnOnce(&Inode, &mut DentryReader) -> Option<T>,
) -> Option<T> {
    let with = |recent: &RefCell<RecentDirectory>| {
        let mut recent = recent.try_borrow_mut().ok()?;
        let is_it = |kept: &&mut KeptDirectory| {
            kept.table == table && kept.directory.number == number && !kept.directory.is_dropped()
        };
        if let Some(kept) = recent.kept.as_mut().filter(is_it) {
            return found(&kept.directory, &mut kept.names);
        }
        let mut kept = KeptDirectory { table, directory: get()?, names: DentryReader::default() };
        let result = found(&kept.directory, &mut kept.names);
        let before = match recent.asked.replace((table, number)) == Some((table, number)) {
            true => recent.kept.replace(kept),
            false => Some(kept),
        };
        // It may be the last handle, and goes when nothing is borrowed.
        drop(recent);
        drop(before);
        result
    };
    // There is none any more while the thread ends.
    RECENT.try_with(with).ok().flatten()
}
