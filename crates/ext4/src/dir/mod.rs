//! Directories: names and the inodes they refer to.
//!
//! # State
//! A directory has one of three forms, which the inode's flags tell: *inline*, a few entries in the
//! inode itself; *linear*, blocks of entries in no order; *hashed*, blocks of entries below an
//! index over the hashes of names (htree). A full directory is converted to the next form (inline
//! to linear; linear to hashed if the image has `dir_index`), and back only from hashed to linear, when
//! a name is added after the image has lost `dir_index`. This module selects the form; `inline`,
//! `linear` and `htree` implement one each, `convert` the steps between them, `read` lists them
//! all, and `content::name_rules` says when two names are the same.
//!
//! There is a look-up for each purpose: [`inode_named`] returns the inode of a name; [`lock_name`] locks
//! a name and finds its entry for [`remove`]; [`lock_new_name`] finds or makes room for [`add`]; [`entry_named`] and [`entry_or_room`]
//! do so in a directory that is locked already, and find entries for [`replace`]. Before a caller adds a
//! name that the dentry cache may have as absent, it calls [`forget_name`]; when the whole change has
//! succeeded, it calls [`remember`].
//!
//! # Locking
//! The caller holds the directory's content lock: shared to read, exclusive to change, or as
//! [`lock_name`] and [`lock_new_name`] take it. Blocks are locked one at a time, for one read or change.
//!
//! Before a name changes, it is dropped from the dentry cache here. The caller adds it again when
//! the whole change has succeeded.
//!
//! # Crash
//! All changes are made in the caller's handle. A failure (no space, no quota) leaves all names
//! unchanged; an index that was split for the change stays split. A block gets its checksum when a
//! commit freezes it.
//!
//! # Reference
//! Kernel documentation, "ext4 Data Structures and Algorithms", Directory Entries.

mod block;
mod convert;
mod htree;
mod inline;
mod linear;
mod locked_name;
mod read;

pub(crate) use locked_name::{
    LeafLock, lock_leaf_with_room, lock_name, lock_new_name, lock_new_name_alone,
};
pub(crate) use read::read;

use crate::content::{ContentStore, SoughtName};
use crate::dentry_cache::DentryTarget;
use crate::error::{Error, Result};
use crate::inode::{Inode, InodeSummary};
use block::Directory;
use drystone_cache::Buffer;
use drystone_ext4_format::dir::{DirectoryLayout, EntryType, NewEntry};
use drystone_ext4_format::error::DirectoryProblem;
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::{Corrupt, InodeNumber, LogicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Errno, FileType, RequestContext};

/// The entry of a name: its inode and its place.
#[derive(Clone, Debug)]
pub(crate) struct FoundEntry {
    /// The inode.
    pub inode: InodeNumber,
    /// The block of the entry; meaningless in an inline directory.
    block: LogicalBlock,
    /// The buffer of that block, which stays the block's; `None` in an inline directory.
    buffer: Option<Arc<Buffer>>,
    /// Where the entry starts in the block, or in the contents of an inline directory.
    offset: usize,
    /// Where the record before it starts, if known.
    previous: Option<usize>,
    layout: DirectoryLayout,
}

/// The result of a search for a name.
#[derive(Clone, Debug)]
pub(crate) enum EntrySearch {
    /// The name is there.
    Found(FoundEntry),
    /// The name is absent. Where it could be inserted, if known.
    Absent(Option<Vacancy>),
}

impl EntrySearch {
    /// Where the name can be added, if known.
    ///
    /// # Errors
    /// `EEXIST` if it is there.
    fn vacancy(&self) -> Result<Option<&Vacancy>> {
        match self {
            EntrySearch::Found(_) => Err(Errno::EEXIST.into()),
            EntrySearch::Absent(vacancy) => Ok(vacancy.as_ref()),
        }
    }

    /// Whether a search of one leaf found the name or, if it looked for room, room for it.
    fn found_name_or_room(&self) -> bool {
        !matches!(self, EntrySearch::Absent(Some(Vacancy { room: None, .. })))
    }
}

/// Where a name could be inserted. Valid as long as the name is locked, and nothing is added there.
#[derive(Clone, Debug)]
pub(crate) struct Vacancy {
    buffer: Arc<Buffer>,
    block: LogicalBlock,
    layout: DirectoryLayout,
    /// Offset of a record with room for it, if there is one.
    room: Option<usize>,
}

/// The form of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectoryForm {
    Inline,
    Linear,
    Hashed,
}

/// The entry of a name, neither `.` nor `..`, of a directory with this summary. The content lock is held
/// exclusively.
pub(crate) fn entry_named(
    fs: &ContentStore,
    directory: &Inode,
    summary: &InodeSummary,
    name: &[u8],
) -> Result<Option<FoundEntry>> {
    let directory = Directory::open_by(fs, directory, summary)?;
    match search(&directory, &directory.seek(name, false)?)? {
        EntrySearch::Found(found) => Ok(Some(found)),
        EntrySearch::Absent(_) => Ok(None),
    }
}

/// Calls `found` with the inode of a name other than `.` and `..`, while the name can't be removed. Reads the
/// blocks if the dentry cache doesn't have the name. The content lock is held.
pub(crate) fn inode_named<T>(
    fs: &ContentStore,
    inode: &Inode,
    name: &[u8],
    found: impl FnOnce(InodeNumber) -> Result<T>,
) -> Result<Option<T>> {
    let directory = Directory::open(fs, inode)?;
    let sought = directory.seek(name, false)?;
    let locked =
        locked_name::lock_leaf(&directory, &sought, |leaf| fs.leaves.read(inode.number, leaf))?;
    let leaf = locked.as_ref().map(|(leaf, _)| *leaf);
    let number = match inode.dentry_cache().and_then(|names| names.look(name, |target| target)) {
        Some(DentryTarget::Inode(number)) => Some(number),
        Some(DentryTarget::Nothing) => None,
        None => {
            let search = match leaf {
                Some(leaf) => directory.leaf(leaf)?.search(&sought),
                None => search_beside_splits(&directory, &sought)?,
            };
            let number = match search {
                EntrySearch::Found(found) => Some(found.inode),
                EntrySearch::Absent(_) => None,
            };
            if let Some(number) = number {
                // Before it enters the dentry cache, which is not checked again.
                fs.volume.check_nameable(number)?;
            }
            // If different bytes can be the same name, a change would drop only one of these spellings.
            if directory.layout.compares_bytes()
                && let Some(names) = inode.dentry_cache()
            {
                names.learn(name, number.map_or(DentryTarget::Nothing, DentryTarget::Inode));
            }
            number
        }
    };
    number.map(found).transpose()
}

/// Adds a name that was added or replaced to the dentry cache, once the whole change has succeeded.
/// The name is still locked.
pub(crate) fn remember(directory: &Inode, name: &[u8], inode: InodeNumber) {
    if let Some(names) = directory.dentry_cache()
        && !directory.flags().intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT)
    {
        names.end_change(name, inode);
    }
}

/// Adds a name that [`add`] has added, to a directory with this summary, to the dentry cache. Until
/// then other threads may take it for absent, because the change has not returned.
pub(crate) fn remember_added(
    directory: &Inode,
    summary: &InodeSummary,
    name: &[u8],
    inode: InodeNumber,
) {
    if let Some(names) = directory.dentry_cache()
        && !summary.flags.intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT)
    {
        names.learn_added(name, inode);
    }
}

/// Empties the dentry cache of a directory, because the way its names are compared is about to
/// change.
pub(crate) fn forget_all_names(directory: &Inode) {
    if let Some(names) = directory.dentry_cache() {
        names.clear();
    }
}

/// The entry of a name, neither `.` nor `..`, of a directory with this summary, or where the name
/// could be inserted. The content lock is held exclusively, or shared with the leaf of the name locked, which then has
/// the name or room for it.
pub(crate) fn entry_or_room(
    fs: &ContentStore,
    inode: &Inode,
    summary: &InodeSummary,
    name: &[u8],
) -> Result<EntrySearch> {
    search_for_room(&Directory::open_by(fs, inode, summary)?, name)
}

fn search_for_room(directory: &Directory<'_>, name: &[u8]) -> Result<EntrySearch> {
    let sought = directory.seek(name, true)?;
    let search = match is_known_absent(directory, name) {
        true => EntrySearch::Absent(None),
        false => search(directory, &sought)?,
    };
    Ok(match search {
        // Without a vacancy `add` would go down the index, which changes while the content lock is shared.
        EntrySearch::Absent(None)
            if directory.shape == DirectoryForm::Hashed && !directory.layout.encrypted =>
        {
            EntrySearch::Absent(htree::vacancy(directory, &sought, name)?)
        }
        // Few blocks: `add` can search for room at the same cost.
        search => search,
    })
}

/// Whether the dentry cache knows that a directory has no such name.
fn is_known_absent(directory: &Directory<'_>, name: &[u8]) -> bool {
    let known = directory.inode.dentry_cache().and_then(|names| names.look(name, |target| target));
    known == Some(DentryTarget::Nothing) && directory.layout.compares_bytes()
}

/// Searches a directory whose content lock may be shared.
fn search_beside_splits(directory: &Directory<'_>, sought: &SoughtName<'_>) -> Result<EntrySearch> {
    match directory.shape {
        // Names with hashes that can't be computed only change, and their leaves, with the content lock held
        // exclusively.
        DirectoryForm::Hashed if !directory.layout.stores_hashes() => {
            htree::find_beside_splits(directory, sought)
        }
        _ => search(directory, sought),
    }
}

fn search(directory: &Directory<'_>, sought: &SoughtName<'_>) -> Result<EntrySearch> {
    match directory.shape {
        DirectoryForm::Inline => {
            let found = inline::find(directory, sought)?;
            Ok(found.map_or(EntrySearch::Absent(None), EntrySearch::Found))
        }
        DirectoryForm::Linear => linear::find(directory, sought),
        DirectoryForm::Hashed => htree::find(directory, sought),
    }
}

/// Drops a name from the dentry cache, because it is about to change, or because a change has
/// failed and its state is unknown.
pub(crate) fn forget_name(directory: &Inode, name: &[u8]) {
    if let Some(names) = directory.dentry_cache() {
        names.begin_change(name);
    }
}

/// Adds a name that the directory does not have, where a search found room; the room must not have been
/// used since. Without room, the content lock is held exclusively. Returns whether other entries may have
/// moved. The caller updates the dentry cache.
pub(crate) fn add(
    fs: &ContentStore,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    directory: &Inode,
    name: &[u8],
    inode: &Inode,
    vacancy: Option<&Vacancy>,
) -> Result<bool> {
    let (number, entry_type) = (inode.number, entry_type(inode.file_type()));
    let entry = NewEntry { name, inode: number, entry_type, hash: None };
    drop_unused_index(fs, handle, directory)?;
    if let Some(vacancy) = vacancy
        && linear::fill(directory, handle, vacancy, &entry)?
    {
        return Ok(false);
    }
    let mut directory = Directory::open(fs, directory)?;
    directory.grows_for = Some(context);
    if directory.layout.encrypted {
        return Err(Errno::ENOKEY.into());
    }
    let sought = directory.seek(name, true)?;
    match directory.shape {
        DirectoryForm::Inline => {
            if !inline::insert(&directory, handle, &entry)? {
                convert::inline_to_linear(&mut directory, handle)?;
                insert_linear(&mut directory, handle, &sought, &entry)?;
            }
        }
        DirectoryForm::Linear => insert_linear(&mut directory, handle, &sought, &entry)?,
        DirectoryForm::Hashed => htree::insert(&mut directory, handle, &sought, &entry)?,
    }
    Ok(true)
}

/// Makes a directory linear for good if it has an index and the image has no `dir_index` any more. The
/// name that is about to be added may be written over the index, or be missing in it.
fn drop_unused_index(fs: &ContentStore, handle: &mut Handle<'_>, directory: &Inode) -> Result<()> {
    if fs.names.has_indexes() || !directory.flags().contains(InodeFlags::INDEX) {
        return Ok(());
    }
    directory.update(fs, handle, |fields| {
        fields.disk.flags.remove(InodeFlags::INDEX);
        Ok(())
    })
}

fn insert_linear(
    directory: &mut Directory<'_>,
    handle: &mut Handle<'_>,
    sought: &SoughtName<'_>,
    entry: &NewEntry<'_>,
) -> Result<()> {
    if linear::insert(directory, handle, entry)? {
        return Ok(());
    }
    if directory.blocks == 1 && directory.fs.names.has_indexes() {
        convert::linear_to_hashed(directory, handle)?;
        return htree::insert(directory, handle, sought, entry);
    }
    linear::append(directory, handle, entry)
}

/// Removes a name that was found; no entry may have moved since.
pub(crate) fn remove(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    directory: &Inode,
    name: &[u8],
    found: &FoundEntry,
) -> Result<()> {
    // From here on no thread may get a reference through the name. Other threads may take it for
    // absent too early, which is harmless: the removal has not returned, and no listing shows it now.
    if let Some(names) = directory.dentry_cache()
        && !drystone_sync::planted!("stale-dentry")
    {
        names.forget(name);
    }
    let removed = match &found.buffer {
        Some(buffer) => linear::remove(directory, handle, buffer, found),
        None => Directory::open(fs, directory)
            .and_then(|directory| inline::remove(&directory, handle, found)),
    };
    removed.inspect_err(|_| forget_name(directory, name))
}

/// Makes a name that was found refer to another inode; no entry may have moved since.
pub(crate) fn replace(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    directory: &Inode,
    name: &[u8],
    found: &FoundEntry,
    new: &Inode,
) -> Result<()> {
    forget_name(directory, name);
    let directory = Directory::open(fs, directory)?;
    let (number, entry_type) = (new.number, entry_type(new.file_type()));
    match directory.shape {
        DirectoryForm::Inline => inline::replace(&directory, handle, found, number, entry_type),
        DirectoryForm::Linear | DirectoryForm::Hashed => {
            linear::replace(&directory, handle, found, number, entry_type)
        }
    }
}

/// The directory that `..` refers to.
pub(crate) fn parent(fs: &ContentStore, directory: &Inode) -> Result<InodeNumber> {
    let directory = Directory::open(fs, directory)?;
    let parent = match directory.shape {
        DirectoryForm::Inline => Some(inline::parent(&directory)?),
        DirectoryForm::Linear => directory.leaf(LogicalBlock::FIRST)?.look(|view| view.parent()),
        DirectoryForm::Hashed => directory.root()?.look(|view| view.parent()),
    };
    let problem = DirectoryProblem::MissingDot { name: ".." };
    parent.ok_or_else(|| corrupt(&directory, LogicalBlock::FIRST, problem))
}

/// Makes `..` refer to another directory.
pub(crate) fn set_parent(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    directory: &Inode,
    parent: InodeNumber,
) -> Result<()> {
    let directory = Directory::open(fs, directory)?;
    match directory.shape {
        DirectoryForm::Inline => inline::set_parent(&directory, handle, parent),
        DirectoryForm::Linear => linear::set_parent(&directory, handle, parent),
        DirectoryForm::Hashed => htree::set_parent(&directory, handle, parent),
    }
}

/// Whether the directory has no names but `.` and `..`.
pub(crate) fn is_empty(fs: &ContentStore, directory: &Inode) -> Result<bool> {
    let directory = Directory::open(fs, directory)?;
    match directory.shape {
        DirectoryForm::Inline => inline::is_empty(&directory),
        DirectoryForm::Linear => linear::is_empty(&directory),
        DirectoryForm::Hashed => htree::is_empty(&directory),
    }
}

/// Gives a new directory its first contents: `.` and `..`.
pub(crate) fn initialise(
    fs: &ContentStore,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    directory: &Inode,
    parent: InodeNumber,
) -> Result<()> {
    if !inline::initialise(fs, handle, directory, parent)? {
        let mut directory = Directory::open(fs, directory)?;
        directory.grows_for = Some(context);
        linear::initialise(&mut directory, handle, parent)?;
    }
    if let Some(names) = directory.dentry_cache()
        && !directory.flags().intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT)
    {
        names.start_empty();
    }
    Ok(())
}

fn shape(fs: &ContentStore, flags: InodeFlags) -> DirectoryForm {
    if flags.contains(InodeFlags::INLINE_DATA) {
        DirectoryForm::Inline
    } else if flags.contains(InodeFlags::INDEX) && fs.names.has_indexes() {
        DirectoryForm::Hashed
    } else {
        DirectoryForm::Linear
    }
}

fn entry_type(file_type: FileType) -> EntryType {
    EntryType::from_mode(file_type.mode_bits())
}

/// The error for a problem in a block of a directory.
fn corrupt(directory: &Directory<'_>, block: LogicalBlock, problem: DirectoryProblem) -> Error {
    let inode = directory.inode.number;
    Error::Corrupt(Corrupt::Directory { inode, block, offset: 0, problem })
}
