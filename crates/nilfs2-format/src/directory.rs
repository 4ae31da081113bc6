//! Directory blocks: names and the inodes that they stand for.
//!
//! Each block is full of entries, one after the other; an entry with inode 0 is free, and the last
//! one reaches to the end of the block. [`entries`] is the door: what it returns lies in the block.
//!
//! # Reference
//! `struct nilfs_dir_entry` in `nilfs2_ondisk.h`.

use crate::error::{Corrupt, DirectoryProblem};
use crate::ids::{FileBlock, InodeNumber};
use drystone_ondisk::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;
const HEADER_BYTES: usize = size_of::<RawEntryHeader>();
const ALIGNMENT: usize = 8;
/// Stands for 65536, which 16 bits can't hold.
const LENGTH_64_KIB: u16 = 0xffff;

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntryHeader {
    inode: U64,
    rec_len: U16,
    name_len: u8,
    file_type: u8,
}

pin_layout!(RawEntryHeader, size 12, { rec_len: 8, name_len: 10, file_type: 11 });

/// An entry of a directory block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredEntry<'a> {
    /// Where it starts in the block.
    pub offset: usize,
    /// Bytes that it occupies.
    pub length: usize,
    /// The inode; 0 if the entry is free.
    pub inode: InodeNumber,
    /// Type of the inode, as [`file_type_code`] gives it.
    pub file_type: u8,
    /// The name, meaningless if the entry is free.
    pub name: &'a [u8],
}

impl StoredEntry<'_> {
    /// Bytes that could be taken from the entry for another one.
    #[must_use]
    pub const fn room(&self) -> usize {
        if self.inode.0 == 0 { self.length } else { self.length - needed(self.name.len()) }
    }
}

/// Bytes that an entry with a name of this length needs.
#[must_use]
pub const fn needed(name_bytes: usize) -> usize {
    (HEADER_BYTES + name_bytes).next_multiple_of(ALIGNMENT)
}

/// The code of a file type, from the type bits of a mode.
#[must_use]
pub const fn file_type_code(mode: u16) -> u8 {
    match mode & 0o170_000 {
        0o100_000 => 1,
        0o040_000 => 2,
        0o020_000 => 3,
        0o060_000 => 4,
        0o010_000 => 5,
        0o140_000 => 6,
        0o120_000 => 7,
        _ => 0,
    }
}

/// The type bits of a mode, from the code in an entry.
#[must_use]
pub const fn mode_of_code(code: u8) -> Option<u16> {
    Some(match code {
        1 => 0o100_000,
        2 => 0o040_000,
        3 => 0o020_000,
        4 => 0o060_000,
        5 => 0o010_000,
        6 => 0o140_000,
        7 => 0o120_000,
        _ => return None,
    })
}

/// All entries of a block, free ones too, until one is wrong.
pub fn entries(
    block: &[u8],
    inode: InodeNumber,
    number: FileBlock,
) -> impl Iterator<Item = Result<StoredEntry<'_>, Corrupt>> {
    entries_from(block, 0, inode, number)
}

/// The same from the entry at `offset` on.
pub fn entries_from(
    block: &[u8],
    offset: usize,
    inode: InodeNumber,
    number: FileBlock,
) -> impl Iterator<Item = Result<StoredEntry<'_>, Corrupt>> {
    let mut offset = offset;
    std::iter::from_fn(move || {
        if offset >= block.len() {
            return None;
        }
        let at = offset;
        let entry = entry_at(block, at).map_err(|problem| Corrupt::Directory {
            inode,
            block: number,
            offset: at,
            problem,
        });
        offset = entry.as_ref().map_or(block.len(), |entry| at + entry.length);
        Some(entry)
    })
}

fn entry_at(block: &[u8], offset: usize) -> Result<StoredEntry<'_>, DirectoryProblem> {
    let bytes = &block[offset..];
    let Ok((header, rest)) = RawEntryHeader::read_from_prefix(bytes) else {
        return Err(DirectoryProblem::Length { length: bytes.len() });
    };
    let length = match header.rec_len.get() {
        LENGTH_64_KIB => 65536,
        length => usize::from(length),
    };
    if length < needed(1) || !length.is_multiple_of(ALIGNMENT) || length > bytes.len() {
        return Err(DirectoryProblem::Length { length });
    }
    let inode = InodeNumber(header.inode.get());
    let name_bytes = usize::from(header.name_len);
    if inode.0 == 0 {
        return Ok(StoredEntry { offset, length, inode, file_type: 0, name: &[] });
    }
    if needed(name_bytes) > length {
        return Err(DirectoryProblem::NameLength { name: name_bytes, length });
    }
    let name = &rest[..name_bytes];
    if name.is_empty() || name.iter().any(|&byte| byte == 0 || byte == b'/') {
        return Err(DirectoryProblem::Name);
    }
    Ok(StoredEntry { offset, length, inode, file_type: header.file_type, name })
}

/// Writes an entry.
///
/// # Panics
/// If it doesn't fit into the block, or the name into the entry.
pub fn write_entry(
    block: &mut [u8],
    offset: usize,
    length: usize,
    inode: InodeNumber,
    file_type: u8,
    name: &[u8],
) {
    assert!(needed(name.len()) <= length, "a name of {} bytes in {length}", name.len());
    let header = RawEntryHeader {
        inode: U64::new(inode.0),
        rec_len: U16::new(stored_length(length)),
        // Checked: at most 255, or it wouldn't fit any entry that names are made for.
        name_len: name.len() as u8,
        file_type,
    };
    let entry = &mut block[offset..offset + length];
    entry[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    entry[HEADER_BYTES..HEADER_BYTES + name.len()].copy_from_slice(name);
    // Only the padding: after it may be what other entries once were.
    entry[HEADER_BYTES + name.len()..needed(name.len())].fill(0);
}

/// Changes what an entry occupies.
///
/// # Panics
/// If there is no entry in the block at `offset`.
pub fn set_length(block: &mut [u8], offset: usize, length: usize) {
    block[offset + 8..offset + 10].copy_from_slice(&stored_length(length).to_le_bytes());
}

/// Changes the inode of an entry, and its type.
///
/// # Panics
/// If there is no entry in the block at `offset`.
pub fn set_inode(block: &mut [u8], offset: usize, inode: InodeNumber, file_type: u8) {
    block[offset..offset + 8].copy_from_slice(&inode.0.to_le_bytes());
    block[offset + 11] = file_type;
}

const fn stored_length(length: usize) -> u16 {
    // Blocks have at most 64 KiB, entries a multiple of 8.
    if length == 65536 { LENGTH_64_KIB } else { length as u16 }
}

/// The first block of a new directory: `.` and `..`.
#[must_use]
pub fn first_block(block_bytes: usize, inode: InodeNumber, parent: InodeNumber) -> Vec<u8> {
    let mut block = vec![0; block_bytes];
    let directory = file_type_code(0o040_000);
    let first = needed(1);
    write_entry(&mut block, 0, first, inode, directory, b".");
    write_entry(&mut block, first, block_bytes - first, parent, directory, b"..");
    block
}

/// A block with one free entry.
#[must_use]
pub fn empty_block(block_bytes: usize) -> Vec<u8> {
    let mut block = vec![0; block_bytes];
    set_length(&mut block, 0, block_bytes);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_directory_has_its_dots() {
        for block_bytes in [1024, 4096, 65536] {
            let block = first_block(block_bytes, InodeNumber(20), InodeNumber(2));
            let all: Vec<_> =
                entries(&block, InodeNumber(20), FileBlock(0)).map(Result::unwrap).collect();
            assert_eq!(all.len(), 2);
            assert_eq!((all[0].name, all[0].inode), (&b"."[..], InodeNumber(20)));
            assert_eq!((all[1].name, all[1].inode), (&b".."[..], InodeNumber(2)));
            let rest = entries_from(&block, all[1].offset, InodeNumber(20), FileBlock(0));
            assert_eq!(rest.map(Result::unwrap).collect::<Vec<_>>(), all[1..]);
            let empty = empty_block(block_bytes);
            let all: Vec<_> = entries(&empty, InodeNumber(20), FileBlock(0)).collect();
            assert_eq!(all.len(), 1);
            assert_eq!(all[0].as_ref().unwrap().room(), block_bytes);
        }
    }

    #[test]
    fn random_blocks_are_no_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut block = first_block(1024, InodeNumber(20), InodeNumber(2));
        for _ in 0..20_000 {
            let position = random.usize(0..64);
            let old = std::mem::replace(&mut block[position], random.u8(..));
            for entry in entries(&block, InodeNumber(20), FileBlock(0)).flatten() {
                let _ = entry.room();
            }
            block[position] = old;
        }
    }
}
