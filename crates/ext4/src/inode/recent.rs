//! The directory that a thread has looked names up in last.
//!
//! # State
//! A thread that looks up many names in one directory keeps a handle of that one, which saves it the
//! way through the table of inodes: one directory for each thread, from the second look-up in a row
//! on, until it looks into another one twice. So it stays in memory that long, though nobody else
//! uses it. When the directory is removed or the image closed, the handle is no longer used.
//!
//! # Locking
//! None: nobody else sees a thread's own.

use super::Inode;
use drystone_ext4_format::InodeNumber;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, LazyLock};
use std::cell::RefCell;

/// What a thread remembers.
#[derive(Default)]
struct Recent {
    /// The table that the numbers are of, and the directory that was asked for last.
    asked: Option<(u64, InodeNumber)>,
    /// The directory that was asked for twice in a row.
    kept: Option<(u64, Arc<Inode>)>,
}

drystone_sync::thread_local! {
    static RECENT: RefCell<Recent> = RefCell::default();
}

/// A number that no other table has had.
pub(super) fn new_table() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(0));
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Passes on the directory that the thread keeps, if that is it, else nothing.
#[inline]
pub(super) fn with<T>(
    table: u64,
    number: InodeNumber,
    found: impl FnOnce(Option<&Inode>) -> Option<T>,
) -> Option<T> {
    let with = |recent: &RefCell<Recent>| {
        let recent = recent.try_borrow().ok()?;
        let is_it = |kept: &&(u64, Arc<Inode>)| {
            kept.0 == table && kept.1.number == number && !kept.1.is_dropped()
        };
        found(recent.kept.as_ref().filter(is_it).map(|(_, inode)| &**inode))
    };
    // There is none any more while the thread ends.
    RECENT.try_with(with).ok().flatten()
}

/// Notes that the thread has asked for a directory that it doesn't keep. If that was the second time
/// in a row, it keeps what `get` gives.
pub(super) fn note(table: u64, number: InodeNumber, get: impl FnOnce() -> Option<Arc<Inode>>) {
    let note = |recent: &RefCell<Recent>| {
        let mut recent = recent.try_borrow_mut().ok()?;
        if recent.asked.replace((table, number)) != Some((table, number)) {
            return None;
        }
        recent.kept.replace((table, get()?))
    };
    // What it kept before may be the last handle, and goes when nothing is borrowed.
    drop(RECENT.try_with(note));
}
