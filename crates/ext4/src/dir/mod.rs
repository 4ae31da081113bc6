//! Directories: names and the inodes they stand for.
//!
//! # State
//! A directory has one of three shapes, told by the inode's flags: *inline*, a few entries in the
//! inode itself; *linear*, blocks of entries in no order; *hashed*, blocks of entries below an
//! index over the hashes of names. One grows into the next when it is full (inline into linear,
//! linear into hashed where the image has `dir_index`), never back. This module picks the shape;
//! `inline`, `linear` and `htree` know one each, `convert` the steps between them, `read` how to
//! list them all, `content::name_rules` when two names are the same.
//!
//! # Locking
//! The caller holds the directory's content lock: shared to look, exclusive to change. Blocks are
//! locked one at a time, for the time of a look or a change.
//!
//! What a directory in memory is known to hold (`dentry_cache`) is dropped here before a name
//! changes, and learned by who has changed it when all has succeeded.
//!
//! # Crash
//! Everything happens in the caller's handle. A failure (no space, no quota) leaves all names as
//! they were; an index that was split on the way there stays split. A block gets its checksum when
//! a commit freezes it.
//!
//! # Reference
//! Kernel documentation, "ext4 Data Structures and Algorithms", Directory Entries.

mod block;
mod convert;
mod htree;
mod inline;
mod linear;
mod read;

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

/// What a name stands for, and where its entry is.
#[derive(Clone, Debug)]
pub(crate) struct FoundEntry {
    /// The inode.
    pub inode: InodeNumber,
    /// The block of the entry; meaningless in an inline directory.
    block: LogicalBlock,
    /// Its buffer: blocks of a directory stay. Nothing in an inline directory.
    buffer: Option<Arc<Buffer>>,
    /// Where the entry starts in the block, or in the contents of an inline directory.
    offset: usize,
    /// Where the record before it starts, if that is known.
    previous: Option<usize>,
    layout: DirectoryLayout,
}

/// What the search for a name ends with.
#[derive(Clone, Debug)]
pub(crate) enum EntrySearch {
    /// The name is there.
    Found(FoundEntry),
    /// It is not; where it would go, if that is known.
    Absent(Option<Vacancy>),
}

/// Where a name would go. Good as long as the directory does not change.
#[derive(Clone, Debug)]
pub(crate) struct Vacancy {
    buffer: Arc<Buffer>,
    block: LogicalBlock,
    layout: DirectoryLayout,
    /// Offset of a record with room for it, if there is one.
    room: Option<usize>,
}

/// The shape of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectoryForm {
    Inline,
    Linear,
    Hashed,
}

/// Looks a name up; neither `.` nor `..`.
pub(crate) fn find(
    fs: &ContentStore,
    directory: &Inode,
    name: &[u8],
) -> Result<Option<FoundEntry>> {
    find_by(fs, directory, &directory.summary(), name)
}

/// Looks a name up in a directory that stands so.
pub(crate) fn find_by(
    fs: &ContentStore,
    directory: &Inode,
    summary: &InodeSummary,
    name: &[u8],
) -> Result<Option<FoundEntry>> {
    match search_in(&Directory::open_by(fs, directory, summary)?, name, false)? {
        EntrySearch::Found(found) => Ok(Some(found)),
        EntrySearch::Absent(_) => Ok(None),
    }
}

/// What a name stands for; neither `.` nor `..`. Looks into the blocks if that is not known yet.
pub(crate) fn look_up(
    fs: &ContentStore,
    inode: &Inode,
    name: &[u8],
) -> Result<Option<InodeNumber>> {
    let known = inode.dentry_cache().and_then(|names| names.look(name, |meaning| meaning));
    match known {
        Some(DentryTarget::Inode(number)) => return Ok(Some(number)),
        Some(DentryTarget::Nothing) => return Ok(None),
        None => {}
    }
    let directory = Directory::open(fs, inode)?;
    let found = match search_in(&directory, name, false)? {
        EntrySearch::Found(found) => Some(found.inode),
        EntrySearch::Absent(_) => None,
    };
    if let Some(number) = found {
        // Before it is learned: what is known isn't checked again.
        fs.volume.check_nameable(number)?;
    }
    // Of names that are the same without being equal, only one would be dropped with a change.
    if directory.layout.compares_bytes()
        && let Some(names) = inode.dentry_cache()
    {
        names.learn(name, found.map_or(DentryTarget::Nothing, DentryTarget::Inode));
    }
    Ok(found)
}

/// Notes what a name stands for that was added or replaced, once all of the change has succeeded. The
/// content lock is held exclusively.
pub(crate) fn learn(directory: &Inode, name: &[u8], inode: InodeNumber) {
    if let Some(names) = directory.dentry_cache()
        && !directory.flags().intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT)
    {
        names.end_change(name, inode);
    }
}

/// Notes what a name stands for that [`insert_at`] has added to a directory that stands so. Until then it
/// may be taken for absent: who adds it has not come back.
pub(crate) fn learn_new(
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

/// A name could not be added or removed, or all that goes with it: whether it is there is not known.
pub(crate) fn doubt(directory: &Inode, name: &[u8]) {
    begin_change(directory, name);
}

/// Drops what is known of all names: how they are compared is about to change.
pub(crate) fn drop_all_known(directory: &Inode) {
    if let Some(names) = directory.dentry_cache() {
        names.clear();
    }
}

/// Looks a name up, and if it isn't there, where it would go; neither `.` nor `..`.
pub(crate) fn search(fs: &ContentStore, inode: &Inode, name: &[u8]) -> Result<EntrySearch> {
    search_by(fs, inode, &inode.summary(), name)
}

/// Looks a name up in a directory that stands so, and if it isn't there, where it would go.
pub(crate) fn search_by(
    fs: &ContentStore,
    inode: &Inode,
    summary: &InodeSummary,
    name: &[u8],
) -> Result<EntrySearch> {
    let known = inode.dentry_cache().and_then(|names| names.look(name, |meaning| meaning));
    let directory = Directory::open_by(fs, inode, summary)?;
    if known == Some(DentryTarget::Nothing) && directory.layout.compares_bytes() {
        let sought = directory.seek(name, true)?;
        return Ok(EntrySearch::Absent(match directory.shape {
            DirectoryForm::Hashed => htree::vacancy(&directory, &sought, name)?,
            // One block: looking for room later costs the same.
            DirectoryForm::Inline | DirectoryForm::Linear => None,
        }));
    }
    search_in(&directory, name, true)
}

fn search_in(directory: &Directory<'_>, name: &[u8], wants_room: bool) -> Result<EntrySearch> {
    let sought = directory.seek(name, wants_room)?;
    match directory.shape {
        DirectoryForm::Inline => {
            let found = inline::find(directory, &sought)?;
            Ok(found.map_or(EntrySearch::Absent(None), EntrySearch::Found))
        }
        DirectoryForm::Linear => linear::find(directory, &sought),
        DirectoryForm::Hashed => htree::find(directory, &sought),
    }
}

/// Adds a name that the directory does not have.
pub(crate) fn insert(
    fs: &ContentStore,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    directory: &Inode,
    name: &[u8],
    inode: &Inode,
) -> Result<()> {
    begin_change(directory, name);
    insert_at(fs, context, handle, directory, name, inode, None)?;
    Ok(())
}

/// Drops what is known of a name that is about to change.
pub(crate) fn begin_change(directory: &Inode, name: &[u8]) {
    if let Some(names) = directory.dentry_cache() {
        names.begin_change(name);
    }
}

/// Adds a name that the directory does not have where [`search`] found that it would go: the
/// directory has not changed since. Returns whether other entries may lie elsewhere now. The caller
/// sees to what is known of the name.
pub(crate) fn insert_at(
    fs: &ContentStore,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    directory: &Inode,
    name: &[u8],
    inode: &Inode,
    vacancy: Option<Vacancy>,
) -> Result<bool> {
    let (number, entry_type) = (inode.number, entry_type(inode.file_type()));
    let entry = NewEntry { name, inode: number, entry_type, hash: None };
    if let Some(vacancy) = vacancy
        && linear::fill(directory, handle, &vacancy, &entry)?
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

/// Removes a name that was found; no entry has moved since.
pub(crate) fn remove_found(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    directory: &Inode,
    name: &[u8],
    found: &FoundEntry,
) -> Result<()> {
    // Nobody may take a reference by the name any more. That it may be taken for absent before it is
    // does no harm: who removes it has not come back.
    if let Some(names) = directory.dentry_cache() {
        names.forget(name);
    }
    let removed = match &found.buffer {
        Some(buffer) => linear::remove(directory, handle, buffer, found),
        None => Directory::open(fs, directory)
            .and_then(|directory| inline::remove(&directory, handle, found)),
    };
    removed.inspect_err(|_| doubt(directory, name))
}

/// Lets a name that was found stand for another inode; no entry has moved since.
pub(crate) fn replace_found(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    directory: &Inode,
    name: &[u8],
    found: &FoundEntry,
    new: &Inode,
) -> Result<()> {
    begin_change(directory, name);
    let directory = Directory::open(fs, directory)?;
    let (number, entry_type) = (new.number, entry_type(new.file_type()));
    match directory.shape {
        DirectoryForm::Inline => inline::replace(&directory, handle, found, number, entry_type),
        DirectoryForm::Linear | DirectoryForm::Hashed => {
            linear::replace(&directory, handle, found, number, entry_type)
        }
    }
}

/// The directory that `..` names.
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

/// Makes `..` name another directory.
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

/// The error for a block without what it should hold.
fn corrupt(directory: &Directory<'_>, block: LogicalBlock, problem: DirectoryProblem) -> Error {
    let inode = directory.inode.number;
    Error::Corrupt(Corrupt::Directory { inode, block, offset: 0, problem })
}
