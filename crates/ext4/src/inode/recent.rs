//! The directory that a thread has used last.
//!
//! # State
//! A thread that looks up or changes many names in one directory keeps a handle of that one, which saves it the
//! way through the table of inodes, and the slots of its dentries, which it then reads without a
//! lock: one directory for each thread, from the second use in a row on, until it uses
//! another one twice. An operation takes the handle, and puts it back at its end. So it stays in memory that long, though nobody else uses it, and so do the
//! places of its names if it has got others since. When the directory is removed or the image
//! closed, the handle is no longer used.
//!
//! # Locking
//! None: nobody else sees a thread's own.

use super::Inode;
use crate::dentry_cache::DentryReader;
use crate::error::Result;
use drystone_ext4_format::InodeNumber;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, LazyLock};
use std::cell::RefCell;
use std::ops::Deref;

/// What a thread remembers.
#[derive(Default)]
struct RecentDirectory {
    /// The table that the numbers are of, and the directory that was asked for last.
    asked: Option<(u64, InodeNumber)>,
    /// The directory that was asked for twice in a row.
    kept: Option<KeptDirectory>,
}

impl RecentDirectory {
    /// Keeps a directory if it was asked for last time too. Returns what is to be dropped.
    fn keep_if_asked_again(&mut self, directory: KeptDirectory) -> Option<KeptDirectory> {
        let asked = Some((directory.table, directory.number));
        match std::mem::replace(&mut self.asked, asked) == asked {
            true => self.kept.replace(directory),
            false => Some(directory),
        }
    }
}

/// A directory that a thread keeps.
struct KeptDirectory {
    table: u64,
    number: InodeNumber,
    /// `None` while an operation uses it.
    directory: Option<Arc<Inode>>,
    names: DentryReader,
}

impl KeptDirectory {
    fn new(table: u64, directory: Arc<Inode>) -> KeptDirectory {
        let number = directory.number;
        KeptDirectory { table, number, directory: Some(directory), names: DentryReader::default() }
    }

    fn is_of(&self, table: u64, number: InodeNumber) -> bool {
        self.table == table && self.number == number
    }
}

/// A directory that an operation uses. If it's the one that the thread keeps, its count of references, which all
/// threads share, doesn't change.
pub(crate) struct UsedDirectory {
    /// `None` only within the drop.
    directory: Option<Arc<Inode>>,
    /// The table, if the thread keeps the directory.
    kept_for: Option<u64>,
}

impl Deref for UsedDirectory {
    type Target = Arc<Inode>;

    fn deref(&self) -> &Arc<Inode> {
        match &self.directory {
            Some(directory) => directory,
            None => unreachable!("only the drop takes the directory"),
        }
    }
}

impl Drop for UsedDirectory {
    fn drop(&mut self) {
        let (Some(table), Some(directory)) = (self.kept_for, self.directory.take()) else { return };
        let keep = |recent: &RefCell<RecentDirectory>| {
            let mut recent = recent.try_borrow_mut().ok()?;
            let kept = recent.kept.as_mut().filter(|kept| kept.is_of(table, directory.number))?;
            // Another operation may have put it there meanwhile.
            kept.directory.replace(directory)
        };
        // What was there is dropped when nothing is borrowed. There is none any more while the thread ends.
        drop(RECENT.try_with(keep).ok().flatten());
    }
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
/// which the thread keeps from now on if it was asked for that twice in a row. Only if `found` returns something, it
/// counts as a use: otherwise the caller asks for the directory by [`used`].
#[inline]
pub(super) fn with<T>(
    table: u64,
    number: InodeNumber,
    get: impl FnOnce() -> Option<Arc<Inode>>,
    found: impl FnOnce(&Inode, &mut DentryReader) -> Option<T>,
) -> Option<T> {
    let with = |recent: &RefCell<RecentDirectory>| {
        let mut recent = recent.try_borrow_mut().ok()?;
        if let Some(kept) = recent.kept.as_mut().filter(|kept| kept.is_of(table, number))
            && let Some(directory) = kept.directory.as_ref().filter(|kept| !kept.is_dropped())
        {
            return found(directory, &mut kept.names);
        }
        let directory = get()?;
        let mut kept = KeptDirectory::new(table, Arc::clone(&directory));
        let result = found(&directory, &mut kept.names);
        // If it hasn't succeeded, an operation that waits follows, and asks for the directory.
        let before = match result {
            Some(_) => recent.keep_if_asked_again(kept),
            None => Some(kept),
        };
        // It may be the last handle, and goes when nothing is borrowed.
        drop(recent);
        drop((directory, before));
        result
    };
    // There is none any more while the thread ends.
    RECENT.try_with(with).ok().flatten()
}

/// The directory of a number for one operation: that which the thread keeps, if that is it, else what `get` gives,
/// which the thread keeps from now on if it was asked for that twice in a row.
#[inline]
pub(super) fn used(
    table: u64,
    number: InodeNumber,
    get: impl FnOnce() -> Result<Arc<Inode>>,
) -> Result<UsedDirectory> {
    let take = |recent: &RefCell<RecentDirectory>| {
        let mut recent = recent.try_borrow_mut().ok()?;
        let kept = recent.kept.as_mut().filter(|kept| kept.is_of(table, number))?;
        kept.directory.take_if(|kept| !kept.is_dropped())
    };
    if let Some(directory) = RECENT.try_with(take).ok().flatten() {
        return Ok(UsedDirectory { directory: Some(directory), kept_for: Some(table) });
    }
    let directory = get()?;
    if directory.is_directory() {
        let kept = KeptDirectory::new(table, Arc::clone(&directory));
        let keep = |recent: &RefCell<RecentDirectory>| {
            Some(recent.try_borrow_mut().ok()?.keep_if_asked_again(kept))
        };
        drop(RECENT.try_with(keep));
    }
    Ok(UsedDirectory { directory: Some(directory), kept_for: None })
}
