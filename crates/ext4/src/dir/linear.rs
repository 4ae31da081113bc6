//! Directories without an index, and operations on blocks of entries that leaves of an index share.

use super::block::{Directory, EntryBlock};
use super::{EntrySearch, FoundEntry, Vacancy, corrupt};
use crate::content::SoughtName;
use crate::error::Result;
use crate::inode::Inode;
use drystone_cache::Buffer;
use drystone_ext4_format::dir::{self, DirectoryBlockMut, EntryType, NewEntry, NoEntry};
use drystone_ext4_format::error::DirectoryProblem;
use drystone_ext4_format::{Corrupt, InodeNumber, LogicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::Arc;

/// The blocks of a linear directory in order.
fn blocks(directory: &Directory<'_>) -> impl Iterator<Item = Result<EntryBlock>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let entries = directory.next_entries(next).transpose()?;
        if let Ok(entries) = &entries {
            next = entries.block.get() + 1;
        }
        Some(entries)
    })
}

pub(super) fn find(directory: &Directory<'_>, sought: &SoughtName<'_>) -> Result<EntrySearch> {
    let mut vacancy = None;
    for entries in blocks(directory) {
        match entries?.search(sought) {
            EntrySearch::Found(found) => return Ok(EntrySearch::Found(found)),
            EntrySearch::Absent(Some(here)) if here.room.is_some() => {
                vacancy = vacancy.or(Some(here));
            }
            EntrySearch::Absent(_) => {}
        }
    }
    Ok(EntrySearch::Absent(vacancy))
}

pub(super) fn is_empty(directory: &Directory<'_>) -> Result<bool> {
    for entries in blocks(directory) {
        if !entries?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Adds an entry to a linear block or leaf in which a search has found room; false if it found
/// none.
pub(super) fn fill(
    directory: &Inode,
    handle: &mut Handle<'_>,
    vacancy: &Vacancy,
    entry: &NewEntry<'_>,
) -> Result<bool> {
    let Vacancy { buffer, block, layout, room } = vacancy;
    let Some(offset) = room.filter(|_| !layout.encrypted) else { return Ok(false) };
    let added = {
        let mut bytes = handle.write(buffer, directory.directory_seal())?;
        DirectoryBlockMut::trusted(&mut bytes, layout).insert_at(offset, entry)
    };
    // Nothing was added there since the search, so the block is damaged.
    let added = added.map_err(|_| {
        let (inode, problem) = (directory.number, DirectoryProblem::Shared);
        Corrupt::Directory { inode, block: *block, offset, problem }
    })?;
    if let Some(blocks) = directory.directory_block_cache() {
        // The rest of the room is behind the new entry.
        blocks.set_room(*block, Some(added));
    }
    Ok(true)
}

/// Adds an entry where there is room; false if there is none.
pub(super) fn insert(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    entry: &NewEntry<'_>,
) -> Result<bool> {
    for entries in blocks(directory) {
        let entries = entries?;
        if entries.look(|view| view.has_room(entry.name)) {
            let mut bytes = directory.write(handle, &entries.buffer)?;
            let mut view = DirectoryBlockMut::trusted(&mut bytes, &directory.layout);
            return Ok(view.insert(entry).is_ok());
        }
    }
    Ok(false)
}

/// Adds an entry in a block of its own.
pub(super) fn append(
    directory: &mut Directory<'_>,
    handle: &mut Handle<'_>,
    entry: &NewEntry<'_>,
) -> Result<()> {
    let [new] = directory.append(handle)?;
    let layout = directory.layout;
    directory.fill(handle, new, |bytes| {
        dir::init_empty(bytes, &layout);
        let inserted = DirectoryBlockMut::trusted(bytes, &layout).insert(entry);
        assert!(inserted.is_ok(), "an empty block has room for any name");
    })
}

/// Adds the first block of a new directory.
pub(super) fn initialise(
    directory: &mut Directory<'_>,
    handle: &mut Handle<'_>,
    parent: InodeNumber,
) -> Result<()> {
    let [new] = directory.append(handle)?;
    let (layout, own) = (directory.layout, directory.inode.number);
    directory.fill(handle, new, |bytes| dir::init_with_dots(bytes, &layout, own, parent))
}

/// Removes an entry from its linear block or leaf. The block stays, even if it is empty then.
pub(super) fn remove(
    directory: &Inode,
    handle: &mut Handle<'_>,
    buffer: &Arc<Buffer>,
    found: &FoundEntry,
) -> Result<()> {
    let FoundEntry { block, offset, previous, layout, .. } = *found;
    if let Some(blocks) = directory.directory_block_cache() {
        blocks.drop_room_at(block, offset);
    }
    let mut bytes = handle.write(buffer, directory.directory_seal())?;
    let mut view = DirectoryBlockMut::trusted(&mut bytes, &layout);
    let removed = match previous {
        Some(previous) => view.remove_behind(previous, offset),
        None => view.remove(offset),
    };
    removed.map_err(|NoEntry| {
        let (inode, problem) = (directory.number, DirectoryProblem::Shared);
        Corrupt::Directory { inode, block, offset: 0, problem }.into()
    })
}

/// Makes an entry of a linear block or leaf refer to another inode.
pub(super) fn replace(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    found: &FoundEntry,
    inode: InodeNumber,
    entry_type: EntryType,
) -> Result<()> {
    let replaced = change_at(directory, handle, found, |view| {
        view.set_target(found.offset, inode, entry_type)
    })?;
    replaced.map_err(|NoEntry| corrupt(directory, found.block, DirectoryProblem::Shared))
}

pub(super) fn set_parent(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    parent: InodeNumber,
) -> Result<()> {
    let block = LogicalBlock::FIRST;
    change(directory, handle, block, |view| view.set_parent(parent))?
        .map_err(|NoEntry| corrupt(directory, block, DirectoryProblem::MissingDot { name: ".." }))
}

fn change_at<T>(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    found: &FoundEntry,
    change_view: impl FnOnce(&mut DirectoryBlockMut<'_>) -> T,
) -> Result<T> {
    let Some(buffer) = &found.buffer else {
        return change(directory, handle, found.block, change_view);
    };
    let mut bytes = directory.write(handle, buffer)?;
    Ok(change_view(&mut DirectoryBlockMut::trusted(&mut bytes, &directory.layout)))
}

fn change<T>(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    block: LogicalBlock,
    change: impl FnOnce(&mut DirectoryBlockMut<'_>) -> T,
) -> Result<T> {
    let entries = directory.leaf(block)?;
    let mut bytes = directory.write(handle, &entries.buffer)?;
    Ok(change(&mut DirectoryBlockMut::trusted(&mut bytes, &directory.layout)))
}
