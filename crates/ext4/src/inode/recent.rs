//! The directories that a thread has used last.
//!
//! # State
//! A thread that looks up or changes many names in one directory, or moves files between two, keeps handles of these.
//! They save it the way through the table of inodes, and have the slots of the directory's dentries, which it then
//! reads without a lock. A thread keeps [`KEPT`] directories, each from the second use on with no more than one other
//! between them, until it keeps others in their place. An operation takes the handle, and puts it back at its end.
//!
//! So a directory stays in memory that long, with what is cached of it, though no other thread uses it, and so do
//! the places of its names if it has got others since. When it is removed or the image closed, the handle is no longer
//! used; it stays until the thread keeps another directory or ends.
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

/// Directories that a thread keeps: as many as a rename uses.
const KEPT: usize = 2;

/// What a thread remembers.
#[derive(Default)]
struct RecentDirectories {
    /// The table that the numbers are of, and the directories that were asked for last and not kept then; the last
    /// one first.
    asked: [Option<(u64, InodeNumber)>; KEPT],
    /// Directories that were asked for again.
    kept: [Option<KeptDirectory>; KEPT],
    /// The kept one that was used last.
    last: usize,
}

impl RecentDirectories {
    /// The kept directory of a number. It counts as used.
    #[inline]
    fn find(&mut self, table: u64, number: InodeNumber) -> Option<&mut KeptDirectory> {
        self.last = self.place_of(table, number)?;
        self.kept[self.last].as_mut()
    }

    #[inline]
    fn place_of(&self, table: u64, number: InodeNumber) -> Option<usize> {
        let is_kept = |kept: &Option<KeptDirectory>| {
            kept.as_ref().is_some_and(|kept| kept.is_of(table, number))
        };
        self.kept.iter().position(is_kept)
    }

    /// Keeps a directory if it was asked for lately. Returns what is to be dropped.
    fn keep_if_asked_again(&mut self, directory: KeptDirectory) -> Option<KeptDirectory> {
        let (table, number) = (directory.table, directory.number);
        let asked = Some((table, number));
        let before = self.asked.iter().position(|before| *before == asked);
        self.asked[..=before.unwrap_or(KEPT - 1)].rotate_right(1);
        self.asked[0] = asked;
        if before.is_none() {
            return Some(directory);
        }
        // One that was removed may have the same number.
        self.last = self.place_of(table, number).unwrap_or((self.last + 1) % KEPT);
        self.kept[self.last].replace(directory)
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

/// A directory that an operation uses. If it's one that the thread keeps, its count of references, which all
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
        let keep = |recent: &RefCell<RecentDirectories>| {
            let mut recent = recent.try_borrow_mut().ok()?;
            let kept = recent.find(table, directory.number)?;
            // Another operation may have put it there meanwhile.
            kept.directory.replace(directory)
        };
        // What was there is dropped when nothing is borrowed. There is none any more while the thread ends.
        drop(RECENT.try_with(keep).ok().flatten());
    }
}

drystone_sync::thread_local! {
    static RECENT: RefCell<RecentDirectories> = RefCell::default();
}

/// A number that no other table has had.
pub(super) fn new_table() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(0));
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Passes on the directory of a number: that which the thread keeps, else what `get` gives, which the thread keeps
/// from now on if it was asked for that lately. This counts as a use only if `found` returns something: otherwise
/// the caller asks for the directory by [`used`].
#[inline]
pub(super) fn with<T>(
    table: u64,
    number: InodeNumber,
    get: impl FnOnce() -> Option<Arc<Inode>>,
    found: impl FnOnce(&Inode, &mut DentryReader) -> Option<T>,
) -> Option<T> {
    let with = |recent: &RefCell<RecentDirectories>| {
        let mut recent = recent.try_borrow_mut().ok()?;
        if let Some(kept) = recent.find(table, number)
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

/// The directory of a number for one operation: that which the thread keeps, else what `get` gives, which the thread
/// keeps from now on if it was asked for that lately.
#[inline]
pub(super) fn used(
    table: u64,
    number: InodeNumber,
    get: impl FnOnce() -> Result<Arc<Inode>>,
) -> Result<UsedDirectory> {
    let take = |recent: &RefCell<RecentDirectories>| {
        let mut recent = recent.try_borrow_mut().ok()?;
        let kept = recent.find(table, number)?;
        kept.directory.take_if(|kept| !kept.is_dropped())
    };
    if let Some(directory) = RECENT.try_with(take).ok().flatten() {
        return Ok(UsedDirectory { directory: Some(directory), kept_for: Some(table) });
    }
    let directory = get()?;
    if directory.is_directory() {
        let kept = KeptDirectory::new(table, Arc::clone(&directory));
        let keep = |recent: &RefCell<RecentDirectories>| {
            Some(recent.try_borrow_mut().ok()?.keep_if_asked_again(kept))
        };
        drop(RECENT.try_with(keep));
    }
    Ok(UsedDirectory { directory: Some(directory), kept_for: None })
}
