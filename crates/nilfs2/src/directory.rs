//! Directories: an index in memory of the names in a directory, which has none on disk.
//!
//! # State
//! The index of a directory is made from its blocks at the first look, and changed after them, so that a change
//! which fails leaves it as it was.
//!
//! New names go into the first block with room, as on Linux. For each length of entry the index knows a
//! block below which there is no room, so that the search doesn't start at the front each time.
//!
//! # Locking
//! The directory's content lock, and the lock of the index inside it.

use crate::dat::Translated;
use crate::engine::Engine;
use crate::error::Result;
use crate::inode::{DirectoryIndex, Inode, KnownEntry};
use drystone_nilfs2_format::directory::{
    empty_block, entries, file_type_code, needed, set_inode, set_length, write_entry,
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
                index.names.insert(entry.name.into(), known);
            }
        }
    }
    Ok(index)
}

/// The index of a directory, loaded if need be.
fn index_of<'a>(
    directory: &'a Inode,
    source: Translated<'_>,
) -> Result<MutexGuard<'a, Option<DirectoryIndex>>> {
    let mut index = directory.index.lock();
    if index.is_none() {
        *index = Some(load_index(directory, source)?);
    }
    Ok(index)
}

/// Finds a name. The directory's content is locked.
pub(crate) fn find(
    directory: &Inode,
    name: &[u8],
    source: Translated<'_>,
) -> Result<Option<KnownEntry>> {
    let index = index_of(directory, source)?;
    Ok(index.as_ref().and_then(|index| index.names.get(name).copied()))
}

/// Whether there are no names but `.` and `..`. The directory's content is locked.
pub(crate) fn is_empty(directory: &Inode, source: Translated<'_>) -> Result<bool> {
    let index = index_of(directory, source)?;
    let names = index.as_ref().map(|index| index.names.keys());
    Ok(names.is_none_or(|mut names| names.all(|name| matches!(&**name, b"." | b".."))))
}

/// Adds a name that isn't there. The directory's content is locked exclusively.
pub(crate) fn insert(
    engine: &Engine,
    directory: &Arc<Inode>,
    name: &[u8],
    inode: InodeNumber,
    file_type: FileType,
) -> Result<()> {
    let source = engine.source();
    let code = file_type_code(file_type.mode_bits());
    let need = needed(name.len());
    let (mut block, blocks) = {
        let index = index_of(directory, source)?;
        let index = index.as_ref();
        index.map_or((0, 0), |index| (index.first_with_room(need), index.blocks))
    };
    let offset = loop {
        if block >= blocks {
            engine.edit_block(directory, FileBlock(block), |bytes| {
                bytes.copy_from_slice(&empty_block(bytes.len()));
                let length = bytes.len();
                write_entry(bytes, 0, length, inode, code, name);
            })?;
            engine.change(directory, |fields| {
                fields.record.size_bytes = (block + 1) * engine.volume.block_bytes() as u64;
                fields.needs_checkpoint = true;
            });
            break 0;
        }
        let number = FileBlock(block);
        let Some(bytes) = directory.block(number, source)? else {
            return Err(hole(directory, number).into());
        };
        let mut place = None;
        for entry in entries(&bytes, directory.number, number) {
            let entry = entry?;
            if entry.room() >= need {
                let used = entry.length - entry.room();
                place = Some((entry.offset, used, entry.length));
                break;
            }
        }
        // The block is changed below: let go of it, so that it isn't copied.
        drop(bytes);
        if let Some((offset, used, length)) = place {
            engine.edit_block(directory, number, |bytes| {
                if used > 0 {
                    set_length(bytes, offset, used);
                }
                write_entry(bytes, offset + used, length - used, inode, code, name);
            })?;
            break offset + used;
        }
        block += 1;
    };
    let mut index = directory.index.lock();
    if let Some(index) = index.as_mut() {
        index.blocks = index.blocks.max(block + 1);
        index.note_full_below(need, block);
        let known = KnownEntry { inode, block: FileBlock(block), offset: offset as u32 };
        index.names.insert(name.into(), known);
    }
    Ok(())
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
    name: &[u8],
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
    let room = length + previous.map_or(0, |(_, _, room)| room);
    let mut index = directory.index.lock();
    if let Some(index) = index.as_mut() {
        index.names.remove(name);
        index.note_room(block, room);
    }
    Ok(())
}

/// Makes a name that is there stand for another inode. The directory's content is locked exclusively.
pub(crate) fn replace(
    engine: &Engine,
    directory: &Arc<Inode>,
    name: &[u8],
    known: KnownEntry,
    inode: InodeNumber,
    file_type: FileType,
) -> Result<()> {
    let code = file_type_code(file_type.mode_bits());
    engine.edit_block(directory, known.block, |bytes| {
        set_inode(bytes, known.offset as usize, inode, code);
    })?;
    if let Some(index) = directory.index.lock().as_mut() {
        index.names.insert(name.into(), KnownEntry { inode, ..known });
    }
    Ok(())
}
