//! Packing entries into a fresh directory block.

use super::edit::{write_entry, write_unused};
use super::record::{self, RawRecordHeader, record_length};
use super::{DirectoryLayout, EntryType, NewEntry, NoRoom, tail};
use crate::ids::InodeNumber;
use zerocopy::FromBytes;

/// Fills a block with entries, without slack between them, in the order given.
#[derive(Debug)]
pub struct DirectoryBlockBuilder<'a> {
    bytes: &'a mut [u8],
    layout: DirectoryLayout,
    end: usize,
    used: usize,
    last: Option<usize>,
}

impl<'a> DirectoryBlockBuilder<'a> {
    /// Starts a block; its bytes are zeroed.
    ///
    /// # Panics
    /// If the slice is too short for a record and the tail.
    #[must_use]
    pub fn new(bytes: &'a mut [u8], layout: &DirectoryLayout) -> Self {
        let end = layout.records_end(bytes.len());
        assert!(record::check_block_length(bytes.len(), end).is_ok(), "no size of a block");
        bytes.fill(0);
        Self { bytes, layout: *layout, end, used: 0, last: None }
    }

    /// Appends an entry and returns its offset.
    ///
    /// # Errors
    /// It does not fit after the entries so far.
    pub fn push(&mut self, entry: &NewEntry<'_>) -> Result<usize, NoRoom> {
        let needed = record_length(entry.name, &self.layout);
        if needed > self.end - self.used {
            return Err(NoRoom);
        }
        let offset = self.used;
        write_entry(self.bytes, offset, needed, entry, &self.layout);
        self.used += needed;
        self.last = Some(offset);
        Ok(offset)
    }

    /// Bytes that no entry uses yet.
    #[must_use]
    pub fn room(&self) -> usize {
        self.end - self.used
    }

    /// Gives the rest of the block to the last entry and adds the tail, its checksum still to be
    /// sealed.
    pub fn finish(self) {
        match self.last {
            None => write_unused(self.bytes, 0, self.end),
            Some(offset) => {
                if let Some(rest) = self.bytes.get_mut(offset..)
                    && let Ok((header, _)) = RawRecordHeader::mut_from_prefix(rest)
                {
                    header.record_length = record::encode_length(self.end - offset).into();
                }
            }
        }
        tail::init(self.bytes, &self.layout);
    }
}

/// Makes a block without entries.
///
/// # Panics
/// If the slice is too short for a record and the tail.
pub fn init_empty(bytes: &mut [u8], layout: &DirectoryLayout) {
    DirectoryBlockBuilder::new(bytes, layout).finish();
}

/// Makes the first block of a new directory: `.` and `..`.
///
/// # Panics
/// If the slice is too short for both and the tail.
pub fn init_with_dots(
    bytes: &mut [u8],
    layout: &DirectoryLayout,
    own: InodeNumber,
    parent: InodeNumber,
) {
    let mut builder = DirectoryBlockBuilder::new(bytes, layout);
    for (name, inode) in [(&b"."[..], own), (b"..", parent)] {
        let entry = NewEntry { name, inode, entry_type: EntryType::Directory, hash: None };
        assert!(builder.push(&entry).is_ok(), "a block has room for `.` and `..`");
    }
    builder.finish();
}
