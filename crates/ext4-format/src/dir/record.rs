//! The layout of one record, and the walk that checks a chain of them.

use super::{DirectoryLayout, NAME_LENGTH_MAX};
use crate::error::DirectoryProblem;
use crate::hash::NameHash;
use crate::ids::InodeNumber;
use std::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

drystone_ondisk::with_fields! {
    /// The fixed part of a record; the name follows.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawRecordHeader {
        /// What the entry names, or 0 for room.
        pub inode: U32,
        /// Encoded length of the record.
        pub record_length: U16,
        /// Length of the name (its low byte where there is no type).
        pub name_length: u8,
        /// Type of the entry (high byte of the name's length where there is no type).
        pub file_type: u8,
    }
}

const _: () = assert!(size_of::<RawRecordHeader>() == 8);
const _: () = assert!(offset_of!(RawRecordHeader, record_length) == 4);
const _: () = assert!(offset_of!(RawRecordHeader, name_length) == 6);
const _: () = assert!(offset_of!(RawRecordHeader, file_type) == 7);

impl RawRecordHeader {
    fn name_length_and_type(&self, layout: &DirectoryLayout) -> (usize, u8) {
        if layout.file_type {
            (usize::from(self.name_length), self.file_type)
        } else {
            (usize::from(u16::from_le_bytes([self.name_length, self.file_type])), 0)
        }
    }
}

drystone_ondisk::with_fields! {
    /// The checksum at the end of a block, in the shape of an unused record.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawTail {
        /// Zero: unused.
        pub inode: U32,
        /// 12.
        pub record_length: U16,
        /// Zero: no name.
        pub name_length: u8,
        /// [`RawTail::FILE_TYPE`].
        pub file_type: u8,
        /// The checksum of the block before the tail.
        pub checksum: U32,
    }
}

impl RawTail {
    /// The type that tells a tail from an unused record.
    pub const FILE_TYPE: u8 = 0xde;
}

const _: () = assert!(size_of::<RawTail>() == super::TAIL_LENGTH);
const _: () = assert!(offset_of!(RawTail, checksum) == 8);

/// The hash after the name of an encrypted, casefolded entry.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawStoredHash {
    pub major: U32,
    pub minor: U32,
}

const _: () = assert!(size_of::<RawStoredHash>() == 8);

pub(super) const HEADER_LENGTH: usize = size_of::<RawRecordHeader>();

/// Shortest record: a header and one padded byte of a name.
pub(super) const RECORD_LENGTH_MIN: usize = 12;

/// The one block length whose records can be too long for 16 bits.
pub(super) const BLOCK_LENGTH_MAX: usize = 65536;

/// Bytes that an entry needs, given its name; `.` and `..` never store a hash.
#[must_use]
pub fn record_length(name: &[u8], layout: &DirectoryLayout) -> usize {
    let hash = if layout.stores_hashes() && name != b"." && name != b".." {
        size_of::<RawStoredHash>()
    } else {
        0
    };
    hash_offset(name.len()) + hash
}

/// Where a stored hash lies in its record: after the padded name.
pub(super) const fn hash_offset(name_length: usize) -> usize {
    (HEADER_LENGTH + name_length).next_multiple_of(4)
}

/// The length that a stored value means in a block of `block_length` bytes.
pub(super) fn decode_length(raw: u16, block_length: usize) -> usize {
    let length = usize::from(raw);
    if block_length < BLOCK_LENGTH_MAX {
        length
    } else if length == 0 || length == 0xffff {
        block_length
    } else {
        // The two low bits, always zero in a length, hold bits 16 and 17.
        (length & 0xfffc) | ((length & 3) << 16)
    }
}

/// The value to store for a record length.
pub(super) fn encode_length(length: usize) -> u16 {
    // Lengths are bounded by the block; only a whole 64 KiB block does not fit.
    u16::try_from(length).unwrap_or(0xffff)
}

/// Whether a slice can hold records at all.
pub(super) fn check_block_length(length: usize, end: usize) -> Result<(), DirectoryProblem> {
    if end < RECORD_LENGTH_MIN || length > BLOCK_LENGTH_MAX || !length.is_multiple_of(4) {
        return Err(DirectoryProblem::BlockLength { length });
    }
    Ok(())
}

/// A record whose length and name lie within the block.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirectoryRecord<'a> {
    pub offset: usize,
    pub length: usize,
    pub inode: u32,
    pub raw_type: u8,
    pub name: &'a [u8],
    pub hash: Option<NameHash>,
    /// Bytes that the entry uses; 0 for an unused record.
    pub used: usize,
}

impl DirectoryRecord<'_> {
    pub fn is_live(&self) -> bool {
        self.inode != 0
    }

    pub fn slack(&self) -> usize {
        self.length - self.used
    }
}

/// Reads the record at `offset` of a chain that ends at `end`.
pub(super) fn read<'a>(
    bytes: &'a [u8],
    offset: usize,
    end: usize,
    layout: &DirectoryLayout,
) -> Result<DirectoryRecord<'a>, DirectoryProblem> {
    let room = end.saturating_sub(offset);
    let too_long = |length| DirectoryProblem::RecordTooLong { length, room };
    let chain = bytes.get(..end).and_then(|chain| chain.get(offset..));
    let rest = chain.ok_or(too_long(HEADER_LENGTH))?;
    let (header, _) =
        RawRecordHeader::ref_from_prefix(rest).map_err(|_| too_long(HEADER_LENGTH))?;
    let length = decode_length(header.record_length.get(), bytes.len());
    if !length.is_multiple_of(4) {
        return Err(DirectoryProblem::RecordUnaligned { length });
    }
    if length < RECORD_LENGTH_MIN {
        return Err(DirectoryProblem::RecordTooShort { length, needed: RECORD_LENGTH_MIN });
    }
    let record = rest.get(..length).ok_or(too_long(length))?;
    parse(header, record, offset, layout)
}

/// Reads the record at `offset` as if it ended with its name: its length is damaged.
pub(super) fn read_without_length<'a>(
    bytes: &'a [u8],
    offset: usize,
    end: usize,
    layout: &DirectoryLayout,
) -> Option<DirectoryRecord<'a>> {
    let rest = bytes.get(..end)?.get(offset..)?;
    let (header, behind) = RawRecordHeader::ref_from_prefix(rest).ok()?;
    let (name_length, _) = header.name_length_and_type(layout);
    let length = record_length(behind.get(..name_length)?, layout).max(RECORD_LENGTH_MIN);
    parse(header, rest.get(..length)?, offset, layout).ok()
}

#[inline]
fn parse<'a>(
    header: &RawRecordHeader,
    record: &'a [u8],
    offset: usize,
    layout: &DirectoryLayout,
) -> Result<DirectoryRecord<'a>, DirectoryProblem> {
    let length = record.len();
    let (name_length, raw_type) = header.name_length_and_type(layout);
    if name_length > NAME_LENGTH_MAX {
        return Err(DirectoryProblem::NameTooLong { length: name_length });
    }
    let too_short = |needed| DirectoryProblem::RecordTooShort { length, needed };
    let name = record
        .get(HEADER_LENGTH..HEADER_LENGTH + name_length)
        .ok_or(too_short(hash_offset(name_length)))?;
    let inode = header.inode.get();
    if inode == 0 {
        return Ok(DirectoryRecord { offset, length, inode, raw_type, name, hash: None, used: 0 });
    }
    let used = record_length(name, layout);
    if used > length {
        return Err(too_short(used));
    }
    let hash = (used > hash_offset(name_length))
        .then(|| RawStoredHash::ref_from_prefix(record.get(hash_offset(name_length)..)?).ok())
        .flatten()
        .map(|(raw, _)| NameHash { major: raw.major.get(), minor: raw.minor.get() });
    Ok(DirectoryRecord { offset, length, inode, raw_type, name, hash, used })
}

/// What a live record must also satisfy.
pub(super) fn check_entry(
    record: &DirectoryRecord<'_>,
    layout: &DirectoryLayout,
) -> Result<(), DirectoryProblem> {
    let inode = InodeNumber::new(record.inode);
    if inode > layout.inode_last {
        return Err(DirectoryProblem::InodeNumber { inode, last: layout.inode_last });
    }
    if record.name.is_empty() {
        return Err(DirectoryProblem::EmptyName { inode });
    }
    let is_forbidden = |byte: u8| byte == b'/' || byte == 0;
    // All bytes at once first: nearly always there is none to be found.
    if !layout.encrypted
        && record.name.iter().fold(false, |found, &byte| found | is_forbidden(byte))
        && let Some(&byte) = record.name.iter().find(|&&byte| is_forbidden(byte))
    {
        return Err(DirectoryProblem::NameByte { byte });
    }
    Ok(())
}

/// Walks a chain of records and stops at its end or at the first impossible record.
#[derive(Debug, Clone)]
pub(super) struct Walk<'a> {
    pub bytes: &'a [u8],
    pub offset: usize,
    pub end: usize,
    pub layout: DirectoryLayout,
}

impl<'a> Iterator for Walk<'a> {
    type Item = DirectoryRecord<'a>;

    fn next(&mut self) -> Option<DirectoryRecord<'a>> {
        let record = read(self.bytes, self.offset, self.end, &self.layout).ok()?;
        self.offset += record.length;
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_large_blocks() {
        assert_eq!(decode_length(0xffff, 65536), 65536);
        assert_eq!(decode_length(0, 65536), 65536);
        assert_eq!(decode_length(65524, 65536), 65524);
        assert_eq!(decode_length(0, 4096), 0);
        assert_eq!(encode_length(65536), 0xffff);
        assert_eq!(encode_length(65532), 65532);
    }
}
