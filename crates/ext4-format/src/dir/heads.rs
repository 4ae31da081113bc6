//! The walk over a chain of checked records, which every lookup does.

use super::DirectoryLayout;
use super::record::{
    BLOCK_LENGTH_MAX, HEADER_LENGTH, RECORD_LENGTH_MIN, decode_length, hash_offset,
};

/// The fixed part of a record of a chain that has been checked before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub offset: usize,
    pub length: usize,
    pub inode: u32,
    pub name_length: usize,
}

impl Head {
    /// Bytes that the entry uses, in a directory that stores no hashes; 0 for an unused record.
    pub fn used(&self) -> usize {
        if self.inode == 0 { 0 } else { hash_offset(self.name_length) }
    }

    /// Whether this record of a chain that ends at `end` has room for an entry after its own.
    pub fn has_room(&self, needed: usize, end: usize) -> bool {
        self.length.saturating_sub(self.used()) >= needed && self.is_within(end)
    }

    /// Whether the record lies within a chain that ends at `end`.
    pub fn is_within(&self, end: usize) -> bool {
        self.length.is_multiple_of(4) && self.offset + self.length <= end
    }
}

/// Walks a chain that has been checked before and reads only what it needs to advance. On other
/// bytes it ends at the first impossible record, and its result must be checked before use.
#[derive(Debug, Clone)]
pub(super) struct Heads<'a> {
    chain: &'a [u8],
    block_length: usize,
    offset: usize,
    name_length_mask: u64,
}

impl<'a> Heads<'a> {
    pub fn new(bytes: &'a [u8], end: usize, layout: &DirectoryLayout) -> Self {
        Self::from(bytes, 0, end, layout)
    }

    /// Starts at `offset`, where a record must start.
    pub fn from(bytes: &'a [u8], offset: usize, end: usize, layout: &DirectoryLayout) -> Self {
        Self {
            chain: bytes.get(..end).unwrap_or_default(),
            block_length: bytes.len(),
            offset,
            name_length_mask: if layout.file_type { 0xff } else { 0xffff },
        }
    }

    /// Offsets of the live record of exactly this name and of the record before it, or twice the same.
    pub fn find_name(self, name: &[u8]) -> Option<(usize, usize)> {
        self.search(name).ok()
    }

    /// As [`find_name`](Self::find_name), or else the offset of a record with room for `needed`
    /// bytes after its own entry: the last record, which has all the room of a block from which
    /// nothing was removed, or else the first that fits.
    pub fn find_name_or_room(
        self,
        name: &[u8],
        needed: usize,
    ) -> Result<(usize, usize), Option<usize>> {
        self.clone().search(name).map_err(|last| self.room_at_last(last, needed))
    }

    /// Offset of a record with room, as [`find_name_or_room`](Self::find_name_or_room) finds it.
    pub fn find_room(self, needed: usize) -> Option<usize> {
        let last = self.last_offset();
        self.room_at_last(last, needed)
    }

    fn room_at_last(self, last: usize, needed: usize) -> Option<usize> {
        let end = self.chain.len();
        let has_room = |head: &Head| head.has_room(needed, end);
        let last = Self { offset: last, ..self.clone() }.next();
        let found = last.filter(has_room).or_else(|| self.clone().find(has_room));
        found.map(|head| head.offset)
    }

    /// The offset of the last record.
    fn last_offset(&self) -> usize {
        let block_length = self.block_length;
        if block_length >= BLOCK_LENGTH_MAX {
            return self.last_by(|raw| decode_length(raw, block_length));
        }
        self.last_by(usize::from)
    }

    #[inline(always)]
    fn last_by(&self, decode: impl Fn(u16) -> usize) -> usize {
        let mut rest = self.chain.get(self.offset..).unwrap_or_default();
        let mut last = rest.len();
        while let Some(&first) = rest.first_chunk() {
            let length = decode((u64::from_le_bytes(first) >> 32) as u16);
            last = rest.len();
            match rest.get(length..) {
                Some(next) if length >= RECORD_LENGTH_MIN => rest = next,
                _ => break,
            }
        }
        self.chain.len() - last
    }

    /// The loop of every lookup, specialised by what it may skip. An error is the offset of the
    /// last record.
    fn search(self, name: &[u8]) -> Result<(usize, usize), usize> {
        let is_large = self.block_length >= BLOCK_LENGTH_MAX;
        match name.last_chunk::<8>() {
            // Names in one directory tend to begin alike and end differently.
            Some(last) if !is_large => {
                let end = name.len() + HEADER_LENGTH;
                let start = end - last.len();
                self.search_by(name, |rest| rest.get(start..end) == Some(last), usize::from)
            }
            _ => {
                let block_length = self.block_length;
                self.search_by(name, |_| true, |raw| decode_length(raw, block_length))
            }
        }
    }

    #[inline(always)]
    fn search_by(
        self,
        name: &[u8],
        may_be: impl Fn(&[u8]) -> bool,
        decode: impl Fn(u16) -> usize,
    ) -> Result<(usize, usize), usize> {
        let Self { chain, name_length_mask, offset, .. } = self;
        let wanted = name.len() as u64;
        let mut rest = chain.get(offset..).unwrap_or_default();
        let mut last = rest.len();
        while let Some(&first) = rest.first_chunk() {
            let word = u64::from_le_bytes(first);
            let is_live = word as u32 != 0;
            if word >> 48 & name_length_mask == wanted
                && may_be(rest)
                && is_live
                && rest.get(HEADER_LENGTH..HEADER_LENGTH + name.len()) == Some(name)
            {
                return Ok((chain.len() - rest.len(), chain.len() - last));
            }
            let length = decode((word >> 32) as u16);
            last = rest.len();
            match rest.get(length..) {
                Some(next) if length >= RECORD_LENGTH_MIN => rest = next,
                _ => break,
            }
        }
        Err(chain.len() - last)
    }
}

impl Iterator for Heads<'_> {
    type Item = Head;

    #[inline(always)]
    fn next(&mut self) -> Option<Head> {
        let word = u64::from_le_bytes(*self.chain.get(self.offset..)?.first_chunk()?);
        let length = decode_length((word >> 32) as u16, self.block_length);
        if length < RECORD_LENGTH_MIN {
            return None;
        }
        let offset = self.offset;
        self.offset += length;
        let name_length = (word >> 48 & self.name_length_mask) as usize;
        Some(Head { offset, length, inode: word as u32, name_length })
    }
}
