//! Directories: names and the inodes they stand for.
//!
//! # State
//! A directory has one of three shapes, told by the inode's flags: *inline*, a few entries in the
//! inode itself; *linear*, blocks of entries in no order; *hashed*, blocks of entries below an
//! index over the hashes of names. One grows into the next when it is full (inline into linear,
//! linear into hashed where the image has `dir_index`), never back. This module picks the shape;
//! `inline`, `linear` and `htree` know one each, `convert` the steps between them, `read` how to
//! list them all, `names` when two names are the same.
//!
//! # Locking
//! The caller holds the directory's content lock: shared to look, exclusive to change. Blocks are
//! locked one at a time, for the time of a look or a change.
//!
//! What a directory in memory is known to hold (`known_names`) is dropped here before a name
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

use crate::content::{ContentStore, Sought};
use crate::error::{Error, Result};
use crate::inode::{Inode, Standing};
use crate::known_names::Meaning;
use block::Directory;
use drystone_cache::Buffer;
use drystone_ext4_format::dir::{DirectoryLayout, DirectoryProblem, EntryType, NewEntry};
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::{Corrupt, InodeNumber, LogicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Errno, FileType, RequestContext};

/// What a name stands for, and where its entry is.
#[derive(Clone, Debug)]
pub(crate) struct Found {
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
pub(crate) enum Search {
    /// The name is there.
    Found(Found),
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
enum Shape {
    Inline,
    Linear,
    Hashed,
}

/// Looks a name up; neither `.` nor `..`.
pub(crate) fn find(fs: &ContentStore, directory: &Inode, name: &[u8]) -> Result<Option<Found>> {
    find_by(fs, directory, &directory.standing(), name)
}

/// Looks a name up in a directory that stands so.
pub(crate) fn find_by(
    fs: &ContentStore,
    directory: &Inode,
    standing: &Standing,
    name: &[u8],
) -> Result<Option<Found>> {
    match search_in(&Directory::open_by(fs, directory, standing)?, name, false)? {
        Search::Found(found) => Ok(Some(found)),
        Search::Absent(_) => Ok(None),
    }
}

/// What a name stands for; neither `.` nor `..`. Looks into the blocks if that is not known yet.
pub(crate) fn look_up(
    fs: &ContentStore,
    inode: &Inode,
    name: &[u8],
) -> Result<Option<InodeNumber>> {
    let known = inode.known_names().and_then(|names| names.look(name, |meaning| meaning));
    match known {
        Some(Meaning::Inode(number)) => return Ok(Some(number)),
        Some(Meaning::Nothing) => return Ok(None),
        None => {}
    }
    let directory = Directory::open(fs, inode)?;
    let found = match search_in(&directory, name, false)? {
        Search::Found(found) => Some(found.inode),
        Search::Absent(_) => None,
    };
    if let Some(number) = found {
        // Before it is learned: what is known isn't checked again.
        fs.volume.check_nameable(number)?;
    }
    // Of names that are the same without being equal, only one would be dropped with a change.
    if directory.layout.compares_bytes()
        && let Some(names) = inode.known_names()
    {
        names.learn(name, found.map_or(Meaning::Nothing, Meaning::Inode));
    }
    Ok(found)
}

/// Notes what a name stands for that was added or replaced, once all of the change has succeeded. The
/// content lock is held exclusively.
pub(crate) fn learn(directory: &Inode, name: &[u8], inode: InodeNumber) {
    if let Some(names) = directory.known_names()
        && !directory.flags().intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT)
    {
        names.end_change(name, inode);
    }
}

/// Notes what a name stands for that [`insert_at`] has added to a directory that stands so. Until then it
/// may be taken for absent: who adds it has not come back.
pub(crate) fn learn_new(directory: &Inode, standing: &Standing, name: &[u8], inode: InodeNumber) {
    if let Some(names) = directory.known_names()
        && !standing.flags.intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT)
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
    if let Some(names) = directory.known_names() {
        names.clear();
    }
}

/// Looks a name up, and if it isn't there, where it would go; neither `.` nor `..`.
pub(crate) fn search(fs: &ContentStore, inode: &Inode, name: &[u8]) -> Result<Search> {
    search_by(fs, inode, &inode.standing(), name)
}

/// Looks a name up in a directory that stands so, and if it isn't there, where it would go.
pub(crate) fn search_by(
    fs: &ContentStore,
    inode: &Inode,
    standing: &Standing,
    name: &[u8],
) -> Result<Search> {
    let known = inode.known_names().and_then(|names| names.look(name, |meaning| meaning));
    let directory = Directory::open_by(fs, inode, standing)?;
    if known == Some(Meaning::Nothing) && directory.layout.compares_bytes() {
        let sought = directory.seek(name, true)?;
        return Ok(Search::Absent(match directory.shape {
            Shape::Hashed => htree::vacancy(&directory, &sought, name)?,
            // One block: looking for room later costs the same.
            Shape::Inline | Shape::Linear => None,
        }));
    }
    search_in(&directory, name, true)
}

fn search_in(directory: &Directory<'_>, name: &[u8], wants_room: bool) -> Result<Search> {
    let sought = directory.seek(name, wants_room)?;
    match directory.shape {
        Shape::Inline => {
            let found = inline::find(directory, &sought)?;
            Ok(found.map_or(Search::Absent(None), Search::Found))
        }
        Shape::Linear => linear::find(directory, &sought),
        Shape::Hashed => htree::find(directory, &sought),
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
    if let Some(names) = directory.known_names() {
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
        Shape::Inline => {
            if !inline::insert(&directory, handle, &entry)? {
                convert::inline_to_linear(&mut directory, handle)?;
                insert_linear(&mut directory, handle, &sought, &entry)?;
            }
        }
        Shape::Linear => insert_linear(&mut directory, handle, &sought, &entry)?,
        Shape::Hashed => htree::insert(&mut directory, handle, &sought, &entry)?,
    }
    Ok(true)
}

fn insert_linear(
    directory: &mut Directory<'_>,
    handle: &mut Handle<'_>,
    sought: &Sought<'_>,
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
    found: &Found,
) -> Result<()> {
    // Nobody may take a reference by the name any more. That it may be taken for absent before it is
    // does no harm: who removes it has not come back.
    if let Some(names) = directory.known_names() {
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
    found: &Found,
    new: &Inode,
) -> Result<()> {
    begin_change(directory, name);
    let directory = Directory::open(fs, directory)?;
    let (number, entry_type) = (new.number, entry_type(new.file_type()));
    match directory.shape {
        Shape::Inline => inline::replace(&directory, handle, found, number, entry_type),
        Shape::Linear | Shape::Hashed => {
            linear::replace(&directory, handle, found, number, entry_type)
        }
    }
}

/// The directory that `..` names.
pub(crate) fn parent(fs: &ContentStore, directory: &Inode) -> Result<InodeNumber> {
    let directory = Directory::open(fs, directory)?;
    let parent = match directory.shape {
        Shape::Inline => Some(inline::parent(&directory)?),
        Shape::Linear => directory.leaf(LogicalBlock::FIRST)?.look(|view| view.parent()),
        Shape::Hashed => directory.root()?.look(|view| view.parent()),
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
        Shape::Inline => inline::set_parent(&directory, handle, parent),
        Shape::Linear => linear::set_parent(&directory, handle, parent),
        Shape::Hashed => htree::set_parent(&directory, handle, parent),
    }
}

/// Whether the directory has no names but `.` and `..`.
pub(crate) fn is_empty(fs: &ContentStore, directory: &Inode) -> Result<bool> {
    let directory = Directory::open(fs, directory)?;
    match directory.shape {
        Shape::Inline => inline::is_empty(&directory),
        Shape::Linear => linear::is_empty(&directory),
        Shape::Hashed => htree::is_empty(&directory),
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
    if let Some(names) = directory.known_names()
        && !directory.flags().intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT)
    {
        names.start_empty();
    }
    Ok(())
}

fn shape(fs: &ContentStore, flags: InodeFlags) -> Shape {
    if flags.contains(InodeFlags::INLINE_DATA) {
        Shape::Inline
    } else if flags.contains(InodeFlags::INDEX) && fs.names.has_indexes() {
        Shape::Hashed
    } else {
        Shape::Linear
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
