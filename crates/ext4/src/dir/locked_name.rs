//! Locked names: threads change names of one hashed directory at the same time.
//!
//! # Locking
//! A thread that changes one name of a hashed directory, and moves no other name to another leaf, holds the
//! content lock shared and the lock of the leaf that has the name, or would have it. So the index stays as it
//! is, and changes in other leaves go on. What else changes a directory holds the content lock exclusively:
//! changes without an index, splits, names whose hash several leaves may have, new and removed
//! subdirectories, renames. But a rename to another directory shares that one.
//!
//! A look-up that the dentry cache can't answer holds the same two locks until it has a reference to the
//! inode. A listing holds the content lock shared and no leaf's lock: it reads a leaf at one moment.
//!
//! A directory has a fixed number of locks, which its leaves share by their numbers. A thread holds one of
//! them at a time.

use super::block::{Directory, EntryBlock};
use super::htree::HtreeLeaf;
use super::{DirectoryForm, EntrySearch, Vacancy, is_known_absent, search, search_for_room};
use crate::content::{ContentStore, SoughtName};
use crate::error::Result;
use crate::inode::{Inode, InodeSummary};
use crate::lock_classes;
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::inode::InodeFlags;
use drystone_sync::{Mutex, MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use drystone_vfs::Errno;

/// The locks of a directory's leaves: so many that 32 threads seldom meet at one by chance.
const LEAF_LOCKS: usize = 256;

/// The lock of a leaf, until dropped.
pub(crate) struct LeafLock<'a>(#[allow(dead_code)] Option<MutexGuard<'a, ()>>);

/// The locks of one directory's leaves.
#[derive(Debug)]
pub(crate) struct LeafLocks(Box<[Mutex<()>]>);

impl LeafLocks {
    /// None is held.
    pub fn new() -> LeafLocks {
        LeafLocks((0..LEAF_LOCKS).map(|_| Mutex::new(&lock_classes::LEAF, ())).collect())
    }

    fn lock(&self, leaf: LogicalBlock) -> MutexGuard<'_, ()> {
        self.0[leaf.get() as usize % LEAF_LOCKS].lock()
    }
}

/// A name that is about to change, with its directory locked for that.
pub(crate) struct LockedName<'a> {
    /// The directory's facts, which stay so.
    pub summary: InodeSummary,
    /// What a search for the name has found.
    pub search: EntrySearch,
    _locks: NameLocks<'a>,
}

impl LockedName<'_> {
    /// Where the name can be added, if known.
    ///
    /// # Errors
    /// `EEXIST` if it is there.
    pub fn vacancy(&self) -> Result<Option<&Vacancy>> {
        match &self.search {
            EntrySearch::Found(_) => Err(Errno::EEXIST.into()),
            EntrySearch::Absent(vacancy) => Ok(vacancy.as_ref()),
        }
    }
}

/// The fields are dropped in their order.
enum NameLocks<'a> {
    Leaf { _leaf: LeafLock<'a>, _content: RwLockReadGuard<'a, ()> },
    Directory { _content: RwLockWriteGuard<'a, ()> },
}

/// Locks a name of a directory to add it, or to remove it. To add it alone needs no other lock.
///
/// # Errors
/// `ENOENT` if the directory itself is removed; otherwise its blocks can't be read or are damaged.
pub(crate) fn lock_name<'a>(
    fs: &'a ContentStore,
    directory: &'a Inode,
    name: &[u8],
    wants_room: bool,
) -> Result<LockedName<'a>> {
    if directory.flags().contains(InodeFlags::INDEX)
        && let Some(locked) = lock_name_in_leaf(fs, directory, name, wants_room)?
    {
        return Ok(locked);
    }
    lock_name_alone(fs, directory, name, wants_room)
}

/// Locks a name, and the whole directory with it.
pub(crate) fn lock_name_alone<'a>(
    fs: &'a ContentStore,
    directory: &'a Inode,
    name: &[u8],
    wants_room: bool,
) -> Result<LockedName<'a>> {
    let content = directory.content.write();
    // One that was removed has no blocks to search.
    directory.check_linked()?;
    let summary = directory.summary();
    let opened = Directory::open_by(fs, directory, &summary)?;
    let search = match wants_room {
        true => search_for_room(&opened, name)?,
        false => search(&opened, &opened.seek(name, false)?)?,
    };
    Ok(LockedName { summary, search, _locks: NameLocks::Directory { _content: content } })
}

/// `None` if the lock of the leaf isn't enough.
fn lock_name_in_leaf<'a>(
    fs: &'a ContentStore,
    directory: &'a Inode,
    name: &[u8],
    wants_room: bool,
) -> Result<Option<LockedName<'a>>> {
    let content = directory.content.read();
    directory.check_linked()?;
    let summary = directory.summary();
    let locked = search_locked_leaf(fs, directory, &summary, name, wants_room)?;
    Ok(locked.map(|(search, leaf)| {
        let locks = NameLocks::Leaf { _leaf: leaf, _content: content };
        LockedName { summary, search, _locks: locks }
    }))
}

/// Locks a name of a directory with this summary, whose content lock is held shared, and searches for it.
/// `None` if to add it, or to remove it, more of the directory has to be locked.
pub(crate) fn search_locked_leaf<'a>(
    fs: &'a ContentStore,
    directory: &'a Inode,
    summary: &InodeSummary,
    name: &[u8],
    wants_room: bool,
) -> Result<Option<(EntrySearch, LeafLock<'a>)>> {
    let directory = Directory::open_by(fs, directory, summary)?;
    let sought = directory.seek(name, wants_room)?;
    let Some((leaf, lock)) = lock_leaf(&directory, &sought)? else { return Ok(None) };
    let search = match wants_room && is_known_absent(&directory, name) {
        true => EntrySearch::Absent(Some(leaf.vacancy(name))),
        false => leaf.search(&sought),
    };
    let must_split = match &search {
        EntrySearch::Absent(Some(vacancy)) => vacancy.room.is_none(),
        EntrySearch::Absent(None) => wants_room,
        EntrySearch::Found(_) => false,
    };
    Ok((!must_split).then_some((search, lock)))
}

/// Locks the leaf that has a name, or would have it; the content lock is held, most often shared. `None` if
/// names of a leaf only change with the content lock held exclusively, or other leaves may have the name.
pub(super) fn lock_leaf<'a>(
    directory: &Directory<'a>,
    sought: &SoughtName<'_>,
) -> Result<Option<(EntryBlock, LeafLock<'a>)>> {
    if directory.shape != DirectoryForm::Hashed || directory.layout.encrypted {
        return Ok(None);
    }
    let Some(locks) = directory.inode.leaf_locks() else { return Ok(None) };
    let way = HtreeLeaf::to(directory, sought)?;
    if way.continues {
        return Ok(None);
    }
    let lock = match drystone_sync::planted!("leaf-without-lock") {
        true => LeafLock(None),
        false => LeafLock(Some(locks.lock(way.leaf))),
    };
    Ok(Some((directory.leaf(way.leaf)?, lock)))
}
