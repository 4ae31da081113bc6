//! Locked names: threads change names of one hashed directory at the same time.
//!
//! # Locking
//! A thread that adds or removes one name of a hashed directory, and moves no other name to another leaf, holds
//! the content lock shared and locks the leaf that has the name, or gets it. So the index stays as it is, and
//! changes in other leaves go on. All other changes hold the content lock exclusively: those of directories
//! without an index, splits, names whose hash several leaves may have, new and removed subdirectories, and
//! renames, except that a file's rename only locks the new name in the directory that it moves to.
//!
//! A look-up that the dentry cache can't answer shares both locks until it has a reference to the inode. A
//! listing shares both while it copies a leaf: it never shows a name whose change goes on, which the dentry
//! cache may already, or still, say is absent.

use super::block::Directory;
use super::htree::HtreeLeaf;
use super::{DirectoryForm, EntrySearch, Vacancy, is_known_absent, search, search_for_room};
use crate::content::{ContentStore, SoughtName};
use crate::error::Result;
use crate::inode::{Inode, InodeSummary};
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::inode::InodeFlags;
use drystone_sync::{RwLockReadGuard, RwLockWriteGuard};
use drystone_vfs::Errno;

/// The lock of a leaf whose names a thread may change, until dropped.
pub(crate) struct LeafLock<'a>(#[allow(dead_code)] Option<RwLockWriteGuard<'a, ()>>);

/// A name that is about to change, with its directory locked for that.
pub(crate) struct LockedName<'a> {
    /// The directory's facts.
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

/// Locks a name of a directory that a caller adds, if `wants_room`, or else removes, and searches for it.
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
    let Some(number) = leaf_of(&directory, &sought)? else { return Ok(None) };
    let lock = match drystone_sync::planted!("leaf-without-lock") {
        true => LeafLock(None),
        false => LeafLock(Some(fs.leaves.write(directory.inode.number, number))),
    };
    let leaf = directory.leaf(number)?;
    let search = match wants_room && is_known_absent(&directory, name) {
        true => EntrySearch::Absent(None),
        false => leaf.search(&sought),
    };
    let search = match search {
        EntrySearch::Absent(None) if wants_room => EntrySearch::Absent(Some(leaf.vacancy(name))),
        search => search,
    };
    let must_split =
        matches!(&search, EntrySearch::Absent(Some(vacancy)) if vacancy.room.is_none());
    Ok((!must_split).then_some((search, lock)))
}

/// The leaf that has a name, or would have it, where its lock protects the name. `None` if names of the
/// directory only change with the content lock held exclusively, or if several leaves may have the name.
pub(super) fn leaf_of(
    directory: &Directory<'_>,
    sought: &SoughtName<'_>,
) -> Result<Option<LogicalBlock>> {
    if directory.shape != DirectoryForm::Hashed || directory.layout.encrypted {
        return Ok(None);
    }
    let way = HtreeLeaf::to(directory, sought)?;
    Ok((!way.continues).then_some(way.leaf))
}
