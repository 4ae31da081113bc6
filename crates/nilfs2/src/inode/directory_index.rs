//! The index of the names in one directory. `directory` fills it and keeps it up to date.

use drystone_nilfs2_format::directory::{NAME_BYTES_MAX, needed};
use drystone_nilfs2_format::{FileBlock, InodeNumber};
use std::collections::HashMap;

/// Entries are aligned to this many bytes, and so are their lengths.
const ALIGNMENT: usize = 8;
/// Lengths of entries: one for each multiple of the alignment up to that of the longest name.
const LENGTHS: usize = needed(NAME_BYTES_MAX) / ALIGNMENT + 1;

/// Where a name is, and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownEntry {
    pub(crate) inode: InodeNumber,
    pub(crate) block: FileBlock,
    pub(crate) offset: u32,
}

/// The index of a directory.
#[derive(Debug)]
pub(crate) struct DirectoryIndex {
    pub(crate) names: HashMap<Box<[u8]>, KnownEntry>,
    /// For each length of entry: no block below this one has room for it.
    full_below: [u64; LENGTHS],
    pub(crate) blocks: u64,
}

impl DirectoryIndex {
    /// An index of no names yet, over so many blocks.
    pub(crate) fn new(blocks: u64) -> Self {
        Self { names: HashMap::new(), full_below: [0; LENGTHS], blocks }
    }

    /// The first block that may have room for an entry of `need` bytes.
    pub(crate) fn first_with_room(&self, need: usize) -> u64 {
        self.full_below[need / ALIGNMENT]
    }

    /// No block before this one has room for an entry of `need` bytes.
    pub(crate) fn note_full_below(&mut self, need: usize, block: u64) {
        self.full_below[need / ALIGNMENT] = block;
    }

    /// There may be room for entries of up to `room` bytes in a block again.
    pub(crate) fn note_room(&mut self, block: FileBlock, room: usize) {
        for below in self.full_below.iter_mut().take(room / ALIGNMENT + 1) {
            *below = (*below).min(block.0);
        }
    }
}
