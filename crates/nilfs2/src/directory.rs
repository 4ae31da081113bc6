//! Directories: an index in memory of the names in a directory, which has none on disk.
//!
//! # State
//! The index of a directory is made from its blocks at the first look, and changed after them, so that a change
//! which fails leaves it as it was.
//!
//! New names go into the first place with room, as on Linux. For each length of entry the index knows an entry
//! before which there is no room, so that the search doesn't start at the front each time.
//!
//! # Locking
//! The directory's content lock, and the lock of the index inside it.

use crate::dat::Translated;
use crate::engine::Engine;
use crate::error::Result;
use crate::inode::{DirectoryIndex, EntryPlace, HashedName, Inode, KnownEntry};
use drystone_nilfs2_format::directory::{
    empty_block, entries, entries_from, file_type_code, needed, set_inode, set_length, write_entry,
};
use drystone_nilfs2_format::error::DirectoryProblem;
use drystone_nilfs2_format::{Corrupt, FileBlock, InodeNumber};
use drystone_sync::{Arc, MutexGuard};
use drystone_vfs::FileType;

fn hole(directory: &Inode, block: FileBlock) -> Corrupt {
    let (inode, problem) = (directory.number, DirectoryProblem::Hole);
    Corrupt::Directory { inode, block, offset: 0, problem }
}

/// Reads the names of a directory.
fn load_index(directory: &Inode, source: Translated<'_>) -> Result<DirectoryIndex> {
    let blocks = source.volume.blocks_for(directory.size());
    let mut index = DirectoryIndex::new(blocks);
    for block in (0..blocks).map(FileBlock) {
        let Some(bytes) = directory.block(block, source)? else {
            return Err(hole(directory, block).into());
        };
        for entry in entries(&bytes, directory.number, block) {
            let entry = entry?;
            if entry.inode.0 != 0 {
                let known = KnownEntry { inode: entry.inode, block, offset: entry.offset as u32 };
                index.set(HashedName::new(entry.name), known);
            }
        }
    }
    Ok(index)
}

/// The index of a directory, loaded if need be.
fn index_of<'a>(
    directory: &'a Inode,
    source: Translated<'_>,
) -> Result<MutexGuard<'a, Option<Box<DirectoryIndex>>>> {
    let mut index = directory.index.lock();
    if index.is_none() {
        *index = Some(Box::new(load_index(directory, source)?));
    }
    Ok(index)
}

/// Finds a name. The directory's content is locked.
pub(crate) fn find(
    directory: &Inode,
    name: HashedName<'_>,
    source: Translated<'_>,
) -> Result<Option<KnownEntry>> {
    let index = index_of(directory, source)?;
    Ok(index.as_ref().and_then(|index| index.get(name)))
}

/// Whether there are no names but `.` and `..`. The directory's content is locked.
pub(crate) fn is_empty(directory: &Inode, source: Translated<'_>) -> Result<bool> {
    let index = index_of(directory, source)?;
    let names = index.as_ref().map(|index| index.names());
    Ok(names.is_none_or(|mut names| names.all(|name| matches!(name, b"." | b".."))))
}

/// Adds a name that isn't there. The directory's content is locked exclusively.
pub(crate) fn insert(
    engine: &Engine,
    directory: &Arc<Inode>,
    name: HashedName<'_>,
    inode: InodeNumber,
    file_type: FileType,
) -> Result<()> {
    let source = engine.source();
    let code = file_type_code(file_type.mode_bits());
    let need = needed(name.bytes.len());
    let (mut from, blocks) = {
        let index = index_of(directory, source)?;
        let index = index.as_ref();
        index.map_or((EntryPlace::FIRST, 0), |index| (index.first_with_room(need), index.blocks))
    };
    let place = loop {
        let block = from.block;
        if block.0 >= blocks {
            engine.edit_block(directory, block, |bytes| {
                bytes.copy_from_slice(&empty_block(bytes.len()));
                let length = bytes.len();
                write_entry(bytes, 0, length, inode, code, name.bytes);
            })?;
            engine.change(directory, |fields| {
                fields.record.size_bytes = (block.0 + 1) * engine.volume.block_bytes() as u64;
                fields.needs_checkpoint = true;
            });
            break EntryPlace { block, offset: 0 };
        }
        let gap = directory
            .look_at(block, source, |bytes| find_gap(bytes, from, need, directory.number))?;
        if let Some(EntryGap { start, used, length }) =
            gap.ok_or_else(|| hole(directory, block))??
        {
            let offset = start + used;
            engine.edit_block(directory, block, |bytes| {
                if used > 0 {
                    set_length(bytes, start, used);
                }
                write_entry(bytes, offset, length - used, inode, code, name.bytes);
            })?;
            break EntryPlace { block, offset: offset as u32 };
        }
        from = EntryPlace { block: FileBlock(block.0 + 1), offset: 0 };
    };
    let mut index = directory.index.lock();
    if let Some(index) = index.as_mut() {
        index.blocks = index.blocks.max(place.block.0 + 1);
        index.note_full_before(need, place);
        let EntryPlace { block, offset } = place;
        index.set(name, KnownEntry { inode, block, offset });
    }
    Ok(())
}

/// An entry with room for another one after what it uses.
#[derive(Clone, Copy, Debug)]
struct EntryGap {
    start: usize,
    used: usize,
    length: usize,
}

/// The first entry of a block from a place on that has room for one of `need` bytes.
fn find_gap(
    bytes: &[u8],
    from: EntryPlace,
    need: usize,
    directory: InodeNumber,
) -> Result<Option<EntryGap>> {
    for entry in entries_from(bytes, from.offset as usize, directory, from.block) {
        let entry = entry?;
        if entry.room() >= need {
            let used = entry.length - entry.room();
            return Ok(Some(EntryGap { start: entry.offset, used, length: entry.length }));
        }
    }
    Ok(None)
}

/// What of a block changes when an entry is removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemovableEntry {
    length: usize,
    /// Offset, length and room of the entry before it.
    previous: Option<(usize, usize, usize)>,
}

/// Has the block of an entry in memory, and finds the entry there. The directory's content is locked.
pub(crate) fn locate(
    directory: &Inode,
    known: KnownEntry,
    source: Translated<'_>,
) -> Result<RemovableEntry> {
    let block = known.block;
    let Some(bytes) = directory.block(block, source)? else {
        return Err(hole(directory, block).into());
    };
    let mut previous = None;
    for entry in entries(&bytes, directory.number, block) {
        let entry = entry?;
        if entry.offset == known.offset as usize {
            return Ok(RemovableEntry { length: entry.length, previous });
        }
        previous = Some((entry.offset, entry.length, entry.room()));
    }
    Err(hole(directory, block).into())
}

/// Removes a name that is there. The directory's content is locked exclusively.
pub(crate) fn remove(
    engine: &Engine,
    directory: &Arc<Inode>,
    name: HashedName<'_>,
    known: KnownEntry,
) -> Result<()> {
    let RemovableEntry { length, previous } = locate(directory, known, engine.source())?;
    let (block, at) = (known.block, known.offset as usize);
    engine.edit_block(directory, block, |bytes| {
        set_inode(bytes, at, InodeNumber(0), 0);
        if let Some((offset, before, _)) = previous {
            set_length(bytes, offset, before + length);
        }
    })?;
    let end = known.offset + length as u32;
    let (offset, room) =
        previous.map_or((known.offset, length), |(offset, _, room)| (offset as u32, length + room));
    let mut index = directory.index.lock();
    if let Some(index) = index.as_mut() {
        index.remove(name);
        index.note_room(EntryPlace { block, offset }, end, room);
    }
    Ok(())
}

/// Makes a name that is there stand for another inode. The directory's content is locked exclusively.
pub(crate) fn replace(
    engine: &Engine,
    directory: &Arc<Inode>,
    name: HashedName<'_>,
    known: KnownEntry,
    inode: InodeNumber,
    file_type: FileType,
) -> Result<()> {
    let code = file_type_code(file_type.mode_bits());
    engine.edit_block(directory, known.block, |bytes| {
        set_inode(bytes, known.offset as usize, inode, code);
    })?;
    if let Some(index) = directory.index.lock().as_mut() {
        index.set(name, KnownEntry { inode, ..known });
    }
    Ok(())
}
