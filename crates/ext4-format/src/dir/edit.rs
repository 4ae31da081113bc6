//! Changing a directory block in place.

use super::heads::Head;
use super::record::{self, HEADER_LENGTH, RawRecordHeader, RawStoredHash, record_length};
use super::view::Room;
use super::{DirectoryBlock, DirectoryLayout, DirectoryPlace, EntryType, NAME_LENGTH_MAX};
use crate::error::Corrupt;
use crate::hash::NameHash;
use crate::ids::InodeNumber;
use thiserror::Error;
use zerocopy::{FromBytes, IntoBytes};

/// No record of the block has enough slack for the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no room in the directory block")]
pub struct NoRoom;

/// No live entry starts at the offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no directory entry at the offset")]
pub struct NoEntry;

/// An entry to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// Its name: 1 to 255 bytes.
    pub name: &'a [u8],
    /// What it names.
    pub inode: InodeNumber,
    /// The type of what it names; not stored where the image has no types.
    pub entry_type: EntryType,
    /// The hash to store, only used where the directory is encrypted and casefolded.
    pub hash: Option<NameHash>,
}

impl<'a> From<super::Entry<'a>> for NewEntry<'a> {
    fn from(entry: super::Entry<'a>) -> Self {
        Self {
            name: entry.name,
            inode: entry.inode,
            entry_type: entry.entry_type,
            hash: entry.hash,
        }
    }
}

/// One block of a directory, open for changes. Every change leaves a valid chain of records.
#[derive(Debug)]
pub struct DirectoryBlockMut<'a> {
    bytes: &'a mut [u8],
    layout: DirectoryLayout,
}

impl<'a> DirectoryBlockMut<'a> {
    /// Checks a block as [`DirectoryBlock::check`] does and opens it.
    ///
    /// # Errors
    /// What is wrong with the block.
    pub fn check(
        bytes: &'a mut [u8],
        layout: &DirectoryLayout,
        place: DirectoryPlace,
    ) -> Result<Self, Corrupt> {
        DirectoryBlock::check(bytes, layout, place)?;
        Ok(Self { bytes, layout: *layout })
    }

    /// Opens a block that has been checked since it was read. On other bytes it never panics.
    #[must_use]
    pub fn trusted(bytes: &'a mut [u8], layout: &DirectoryLayout) -> Self {
        Self { bytes, layout: *layout }
    }

    /// The block as it is now.
    #[must_use]
    pub fn view(&self) -> DirectoryBlock<'_> {
        DirectoryBlock::trusted(self.bytes, &self.layout)
    }

    /// Adds an entry into the first record with enough slack and returns its offset. The caller
    /// knows that the name doesn't exist yet.
    ///
    /// # Errors
    /// No record has enough slack; the block is unchanged.
    pub fn insert(&mut self, entry: &NewEntry<'_>) -> Result<usize, NoRoom> {
        let needed = record_length(entry.name, &self.layout);
        let room = self.view().room(needed).ok_or(NoRoom)?;
        Ok(self.fill(&room, entry))
    }

    /// Adds an entry into the record at `offset`, where
    /// [`find_or_room`](super::DirectoryBlock::find_or_room) has seen room for it, and returns its
    /// offset.
    ///
    /// # Errors
    /// The record hasn't enough slack; the block is unchanged.
    pub fn insert_at(&mut self, offset: usize, entry: &NewEntry<'_>) -> Result<usize, NoRoom> {
        let needed = record_length(entry.name, &self.layout);
        let room = self.view().room_at(offset, needed).ok_or(NoRoom)?;
        Ok(self.fill(&room, entry))
    }

    fn fill(&mut self, room: &Room, entry: &NewEntry<'_>) -> usize {
        let Room { offset, used, length } = *room;
        if used != 0 {
            self.set_record_length(offset, used);
        }
        write_entry(self.bytes, offset + used, length - used, entry, &self.layout);
        offset + used
    }

    /// Removes the entry at `offset`: its record becomes slack of the one before, or an unused
    /// record if it is the block's first. The bytes are zeroed.
    ///
    /// # Errors
    /// No live entry starts there.
    pub fn remove(&mut self, offset: usize) -> Result<(), NoEntry> {
        let (before, found) = self.view().record_at(offset).ok_or(NoEntry)?;
        self.remove_found(before, found)
    }

    /// As [`remove`](Self::remove), given where the record before the entry's started when
    /// [`find_with_previous`](super::DirectoryBlock::find_with_previous) found it. Since then entries
    /// may have been added, but none removed or moved.
    ///
    /// # Errors
    /// No live entry starts there.
    pub fn remove_behind(&mut self, previous: usize, offset: usize) -> Result<(), NoEntry> {
        match self.view().record_behind(previous, offset) {
            Some((before, found)) => self.remove_found(Some(before), found),
            None => self.remove(offset),
        }
    }

    fn remove_found(&mut self, before: Option<Head>, found: Head) -> Result<(), NoEntry> {
        let offset = found.offset;
        if found.inode == 0 {
            return Err(NoEntry);
        }
        let length = found.length;
        self.bytes[offset..offset + length].fill(0);
        match before {
            Some(before) => self.set_record_length(before.offset, before.length + length),
            None => self.set_record_length(offset, length),
        }
        Ok(())
    }

    /// Makes the entry at `offset` name another inode.
    ///
    /// # Errors
    /// No live entry starts there.
    pub fn set_target(
        &mut self,
        offset: usize,
        inode: InodeNumber,
        entry_type: EntryType,
    ) -> Result<(), NoEntry> {
        self.view().entry_at(offset).ok_or(NoEntry)?;
        let stores_type = self.layout.file_type;
        let header = self.header_mut(offset).ok_or(NoEntry)?;
        header.inode = inode.get().into();
        if stores_type {
            header.file_type = entry_type.to_raw();
        }
        Ok(())
    }

    /// Makes `..` of a first block name another directory.
    ///
    /// # Errors
    /// The block has no such entry.
    pub fn set_parent(&mut self, parent: InodeNumber) -> Result<(), NoEntry> {
        let entry = self.view().entries().take(2).find(|e| e.name == b"..").ok_or(NoEntry)?;
        let offset = entry.offset;
        self.set_target(offset, parent, EntryType::Directory)
    }

    /// Lets the last record of a chain that ended at `end` reach to the end of the block.
    pub(crate) fn extend_last(&mut self, end: usize) {
        let last = self.view().records().take_while(|record| record.offset < end).last();
        if let Some(offset) = last.map(|record| record.offset) {
            let records_end = self.layout.records_end(self.bytes.len());
            self.set_record_length(offset, records_end - offset);
        }
    }

    /// Ends the record of `..` at `end`, where other records follow.
    pub(crate) fn shorten_dots(&mut self, end: usize) {
        let dots = self.view().entries().nth(1).map(|entry| entry.offset);
        if let Some(offset) = dots.filter(|&offset| offset < end) {
            self.set_record_length(offset, end - offset);
        }
    }

    fn header_mut(&mut self, offset: usize) -> Option<&mut RawRecordHeader> {
        let rest = self.bytes.get_mut(offset..)?;
        RawRecordHeader::mut_from_prefix(rest).ok().map(|(header, _)| header)
    }

    fn set_record_length(&mut self, offset: usize, length: usize) {
        if let Some(header) = self.header_mut(offset) {
            header.record_length = record::encode_length(length).into();
        }
    }
}

/// Writes a live record of `length` bytes, which the caller knows to fit block and entry.
pub(super) fn write_entry(
    bytes: &mut [u8],
    offset: usize,
    length: usize,
    entry: &NewEntry<'_>,
    layout: &DirectoryLayout,
) {
    let name = entry.name;
    assert!((1..=NAME_LENGTH_MAX).contains(&name.len()), "an entry's name has 1 to 255 bytes");
    let used = record_length(name, layout);
    let record = &mut bytes[offset..offset + length];
    let header = RawRecordHeader {
        inode: entry.inode.get().into(),
        record_length: record::encode_length(length).into(),
        name_length: name.len() as u8,
        file_type: if layout.file_type { entry.entry_type.to_raw() } else { 0 },
    };
    record[..used].fill(0);
    record[..HEADER_LENGTH].copy_from_slice(header.as_bytes());
    record[HEADER_LENGTH..HEADER_LENGTH + name.len()].copy_from_slice(name);
    if let Some(hash) = entry.hash
        && layout.stores_hashes()
        && name != b"."
        && name != b".."
    {
        let stored = RawStoredHash { major: hash.major.into(), minor: hash.minor.into() };
        record[used - size_of::<RawStoredHash>()..used].copy_from_slice(stored.as_bytes());
    }
}

/// Writes an unused record.
pub(super) fn write_unused(bytes: &mut [u8], offset: usize, length: usize) {
    let header = RawRecordHeader {
        inode: 0.into(),
        record_length: record::encode_length(length).into(),
        name_length: 0,
        file_type: 0,
    };
    bytes[offset..offset + HEADER_LENGTH].copy_from_slice(header.as_bytes());
}
