//! Locked names: threads change names of one hashed directory at the same time.
//!
//! # Locking
//! A thread that adds or removes one name of a hashed directory holds the content lock shared and locks the leaf
//! that has the name, or gets it. So changes in other leaves go on. If the leaf has no room, the thread
//! splits it, in a handle of its own, and begins anew ([`lock_new_name`]). Other leaves
//! change, and are split, meanwhile; why that is safe is argued in [`directory_index_lock`](crate::directory_index_lock).
//!
//! All other changes hold the content lock exclusively: those of directories without an index, splits of
//! index blocks, names whose hash several leaves may have, new and removed subdirectories, and renames, except that
//! a file's rename only locks the new name in the directory that it moves to.
//!
//! A look-up that the dentry cache can't answer shares the locks of content and leaf until it has a reference to the
//! inode. A listing shares both while it copies a leaf: it never shows a name whose change goes
//! on, which the dentry cache may already, or still, say is absent.

use super::block::Directory;
use super::htree::{self, HtreeLeaf};
use super::{DirectoryForm, EntrySearch, Vacancy, is_known_absent, search, search_for_room};
use crate::alloc::with_space_retry;
use crate::content::{ContentStore, SoughtName};
use crate::credits;
use crate::error::Result;
use crate::inode::{Inode, InodeSummary};
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::inode::InodeFlags;
use drystone_sync::{RwLockReadGuard, RwLockWriteGuard};
use drystone_vfs::RequestContext;

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
        self.search.vacancy()
    }
}

/// The fields are dropped in their order.
enum NameLocks<'a> {
    Leaf { _leaf: LeafLock<'a>, _content: RwLockReadGuard<'a, ()> },
    Directory { _content: RwLockWriteGuard<'a, ()> },
}

/// Locks a name of a directory that a caller removes, and searches for it.
///
/// # Errors
/// `ENOENT` if the directory itself is removed; otherwise its blocks can't be read or are damaged.
pub(crate) fn lock_name<'a>(
    fs: &'a ContentStore,
    directory: &'a Inode,
    name: &[u8],
) -> Result<LockedName<'a>> {
    if directory.flags().contains(InodeFlags::INDEX) {
        let content = directory.content().read();
        directory.check_linked()?;
        let summary = directory.summary();
        if let Some((search, leaf)) = search_leaf(fs, directory, &summary, name, false)? {
            let locks = NameLocks::Leaf { _leaf: leaf, _content: content };
            return Ok(LockedName { summary, search, _locks: locks });
        }
    }
    lock_name_alone(fs, directory, name, false)
}

/// Locks a name of a directory that a caller adds, and finds room for it, after `may_add` has agreed.
///
/// # Errors
/// As [`lock_name`]; `EEXIST` if the name is there; those of `may_add`; there is no space for another leaf.
pub(crate) fn lock_new_name<'a>(
    fs: &'a ContentStore,
    context: &RequestContext,
    directory: &'a Inode,
    name: &[u8],
    may_add: impl Fn(&InodeSummary) -> Result<()>,
) -> Result<LockedName<'a>> {
    if directory.flags().contains(InodeFlags::INDEX) {
        let content = directory.content().read();
        directory.check_linked()?;
        if let Some((summary, search, leaf)) =
            lock_leaf_with_room(fs, context, directory, name, &may_add)?
        {
            search.vacancy()?;
            may_add(&summary)?;
            let locks = NameLocks::Leaf { _leaf: leaf, _content: content };
            return Ok(LockedName { summary, search, _locks: locks });
        }
    }
    lock_new_name_alone(fs, directory, name, may_add)
}

/// Locks the leaf of a name that a caller adds or replaces, in a directory whose content lock is held shared. If the
/// leaf has neither the name nor room for it, it is split, after `may_split` has agreed. `None` if more of the directory
/// has to be locked.
///
/// # Errors
/// Those of `may_split`; there is no space for another leaf; or blocks can't be read or are damaged.
pub(crate) fn lock_leaf_with_room<'a>(
    fs: &'a ContentStore,
    context: &RequestContext,
    directory: &Inode,
    name: &[u8],
    may_split: impl Fn(&InodeSummary) -> Result<()>,
) -> Result<Option<(InodeSummary, EntrySearch, LeafLock<'a>)>> {
    loop {
        let summary = directory.summary();
        let Some((search, leaf)) = search_leaf(fs, directory, &summary, name, true)? else {
            return Ok(None);
        };
        if search.found_name_or_room() {
            return Ok(Some((summary, search, leaf)));
        }
        may_split(&summary)?;
        if !split_leaf(fs, context, directory, &summary, name)? {
            return Ok(None);
        }
        // The name may belong to the new leaf now.
        drop(leaf);
    }
}

/// As [`lock_new_name`], but locks the whole directory with the name.
pub(crate) fn lock_new_name_alone<'a>(
    fs: &'a ContentStore,
    directory: &'a Inode,
    name: &[u8],
    may_add: impl FnOnce(&InodeSummary) -> Result<()>,
) -> Result<LockedName<'a>> {
    let locked = lock_name_alone(fs, directory, name, true)?;
    locked.vacancy()?;
    may_add(&locked.summary)?;
    Ok(locked)
}

/// Splits the leaf for a name, which is locked, in a handle of its own. False if the index block above it has no room:
/// then more of the directory has to be locked.
fn split_leaf(
    fs: &ContentStore,
    context: &RequestContext,
    directory: &Inode,
    summary: &InodeSummary,
    name: &[u8],
) -> Result<bool> {
    let mut directory = Directory::open_by(fs, directory, summary)?;
    directory.grows_for = Some(context);
    let sought = directory.seek(name, true)?;
    with_space_retry(&fs.volume, || {
        let mut handle = fs.volume.start(credits::DIRECTORY_SPLIT)?;
        let split = htree::split_leaf(&mut directory, &mut handle, &sought);
        fs.settle(handle, split)
    })
}

/// Locks a name, and the whole directory with it.
fn lock_name_alone<'a>(
    fs: &'a ContentStore,
    directory: &'a Inode,
    name: &[u8],
    wants_room: bool,
) -> Result<LockedName<'a>> {
    let content = directory.content().write();
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

/// Locks the leaf of a name and searches it. `None` if the lock of a leaf isn't enough.
fn search_leaf<'a>(
    fs: &'a ContentStore,
    directory: &Inode,
    summary: &InodeSummary,
    name: &[u8],
    wants_room: bool,
) -> Result<Option<(EntrySearch, LeafLock<'a>)>> {
    let directory = Directory::open_by(fs, directory, summary)?;
    let sought = directory.seek(name, wants_room)?;
    let locked = lock_leaf(&directory, &sought, |leaf| {
        match drystone_sync::planted!("leaf-without-lock") {
            true => LeafLock(None),
            false => LeafLock(Some(fs.leaves.write(directory.inode.number, leaf))),
        }
    })?;
    let Some((number, lock)) = locked else { return Ok(None) };
    Ok(Some((search_in(&directory, number, &sought, name)?, lock)))
}

/// Searches a locked leaf for a name, and for room for it if that is sought.
fn search_in(
    directory: &Directory<'_>,
    number: LogicalBlock,
    sought: &SoughtName<'_>,
    name: &[u8],
) -> Result<EntrySearch> {
    let leaf = directory.leaf(number)?;
    let search = match sought.wants_room && is_known_absent(directory, name) {
        true => EntrySearch::Absent(None),
        false => leaf.search(sought),
    };
    Ok(match search {
        EntrySearch::Absent(None) if sought.wants_room => {
            EntrySearch::Absent(Some(leaf.vacancy(name)))
        }
        search => search,
    })
}

/// Locks the leaf that has a name, or would have it, with `lock`; see [`leaf_of`].
pub(super) fn lock_leaf<G>(
    directory: &Directory<'_>,
    sought: &SoughtName<'_>,
    lock: impl Fn(LogicalBlock) -> G,
) -> Result<Option<(LogicalBlock, G)>> {
    let Some(index) = directory.inode.index_lock() else { return Ok(None) };
    index.lock_leaf(|| leaf_of(directory, sought), lock)
}

/// The leaf that has a name, or would have it, where its lock protects the name. `None` if names of the
/// directory only change with the content lock held exclusively, or if several leaves may have the name.
fn leaf_of(directory: &Directory<'_>, sought: &SoughtName<'_>) -> Result<Option<LogicalBlock>> {
    if directory.shape != DirectoryForm::Hashed || directory.layout.encrypted {
        return Ok(None);
    }
    let way = HtreeLeaf::to(directory, sought)?;
    Ok((!way.continues).then_some(way.leaf))
}
