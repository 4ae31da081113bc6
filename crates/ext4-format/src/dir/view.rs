//! Reading a directory block.

use super::heads::{Head, Heads};
use super::record::{self, DirectoryRecord, Walk};
use super::{DirectoryLayout, DirectoryPlace, EntryType, RawRecordHeader, tail};
use crate::error::{Corrupt, DirectoryProblem};
use crate::hash::NameHash;
use crate::ids::InodeNumber;

/// Records start at multiples of this.
const RECORD_ALIGNMENT: usize = 4;

/// One block of a directory, its records known to be a chain that fills it.
#[derive(Debug, Clone, Copy)]
pub struct DirectoryBlock<'a> {
    bytes: &'a [u8],
    end: usize,
    layout: DirectoryLayout,
}

/// A record with room for an entry.
pub(super) struct Room {
    pub offset: usize,
    /// Bytes that the record's own entry uses.
    pub used: usize,
    /// Length of the record.
    pub length: usize,
}

impl From<Head> for Room {
    fn from(head: Head) -> Self {
        Self { offset: head.offset, used: head.used(), length: head.length }
    }
}

/// A live entry of a directory block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Where its record starts in the block.
    pub offset: usize,
    /// Length of its record, slack included.
    pub record_length: usize,
    /// What it names.
    pub inode: InodeNumber,
    /// The stored type; [`EntryType::Unknown`] where the image stores none.
    pub entry_type: EntryType,
    /// Its name, 1 to 255 bytes.
    pub name: &'a [u8],
    /// The stored hash, only where the directory is encrypted and casefolded.
    pub hash: Option<NameHash>,
}

impl Entry<'_> {
    /// Whether this is `.` or `..`.
    #[must_use]
    pub fn is_dot(&self) -> bool {
        self.name == b"." || self.name == b".."
    }
}

impl<'a> DirectoryBlock<'a> {
    /// Checks the records of a block, and that it has a tail where it must. The checksum is
    /// [`verify`](super::verify)'s task, because it is stale while a transaction holds the block.
    ///
    /// # Errors
    /// The first record that breaks the chain or that no directory could hold.
    pub fn check(
        bytes: &'a [u8],
        layout: &DirectoryLayout,
        place: DirectoryPlace,
    ) -> Result<Self, Corrupt> {
        let block = Self::trusted(bytes, layout);
        let corrupt = |offset, problem| place.corrupt(offset, problem);
        record::check_block_length(bytes.len(), block.end).map_err(|e| corrupt(0, e))?;
        if layout.checksum.is_some() && !tail::is_present(bytes) {
            return Err(corrupt(block.end, DirectoryProblem::MissingTail));
        }
        block.visit_records(place, |record| {
            record::check_entry(record, layout)?;
            let found = record.raw_type;
            let known = EntryType::from_raw(found).map(|_| ());
            known.ok_or(DirectoryProblem::EntryType { found })
        })?;
        Ok(block)
    }

    /// The live entries of a damaged block, and whether each is doubtful. A record whose length can't be has its
    /// name still, and is doubtful. So are those after it, from the next place where two records follow each other.
    pub fn salvage(&self) -> Vec<(Entry<'a>, bool)> {
        let mut records = self.salvage_records();
        records.retain(|(entry, _)| entry.inode.get() != 0);
        records
    }

    /// As [`salvage`](Self::salvage), with the records that name nothing: their inode is 0.
    pub fn salvage_records(&self) -> Vec<(Entry<'a>, bool)> {
        let read = |offset| record::read(self.bytes, offset, self.end, &self.layout).ok();
        let is_entry = |record: &DirectoryRecord<'_>| {
            record.is_live()
                && record::check_entry(record, &self.layout).is_ok()
                && EntryType::from_raw(record.raw_type).is_some()
        };
        let is_start = |offset: &usize| {
            read(*offset).is_some_and(|record| {
                let behind = record.offset + record.length;
                is_entry(&record) && (behind == self.end || read(behind).is_some())
            })
        };
        let (mut records, mut offset, mut is_doubtful) = (Vec::new(), 0, false);
        while offset < self.end {
            let Some(record) = read(offset) else {
                is_doubtful = true;
                let named = record::read_without_length(self.bytes, offset, self.end, &self.layout);
                let mut behind = offset + RECORD_ALIGNMENT;
                // Where a type speaks for it, and no record starts in its name.
                if let Some(record) = named.filter(|record| {
                    let mut within = (behind..offset + record.length).step_by(RECORD_ALIGNMENT);
                    self.layout.file_type && is_entry(record) && !within.any(|at| is_start(&at))
                }) {
                    behind = offset + record.length;
                    records.push((Entry::from(record), is_doubtful));
                }
                let next = (behind..self.end).step_by(RECORD_ALIGNMENT);
                let Some(next) = next.into_iter().find(is_start) else { break };
                offset = next;
                continue;
            };
            // The record of a directory's own dot is its shortest: a longer one hides others.
            let shortest = size_of::<RawRecordHeader>() + RECORD_ALIGNMENT;
            let is_dot = offset == 0 && record.name == b"." && is_start(&shortest);
            offset += if is_dot { shortest } else { record.length };
            records.push((Entry::from(record), is_doubtful));
        }
        records
    }

    /// Visits the records of all entries of a chain that fills the block.
    fn visit_records(
        &self,
        place: DirectoryPlace,
        mut visit: impl FnMut(&DirectoryRecord<'a>) -> Result<(), DirectoryProblem>,
    ) -> Result<(), Corrupt> {
        let mut offset = 0;
        while offset < self.end {
            let read = record::read(self.bytes, offset, self.end, &self.layout);
            let record = read.map_err(|problem| place.corrupt(offset, problem))?;
            if record.is_live() {
                visit(&record).map_err(|problem| place.corrupt(offset, problem))?;
            }
            offset += record.length;
        }
        Ok(())
    }

    /// Visits all entries with the bytes that they use, and checks again that they can be moved: if a
    /// damaged image uses a block twice, it may have been changed as something else.
    pub(crate) fn visit_checked(
        &self,
        place: DirectoryPlace,
        mut visit: impl FnMut(&Entry<'a>, usize),
    ) -> Result<(), Corrupt> {
        self.visit_records(place, |record| {
            if record.name.is_empty() {
                return Err(DirectoryProblem::EmptyName { inode: InodeNumber::new(record.inode) });
            }
            visit(&Entry::from(*record), record.used);
            Ok(())
        })
    }

    /// As many entries as a block can have.
    pub(crate) fn entries_max(&self) -> usize {
        self.end / record::RECORD_LENGTH_MIN
    }

    pub(crate) fn layout(&self) -> DirectoryLayout {
        self.layout
    }

    /// A view of a block that has been checked since it was read, so that each use need not walk
    /// it again. On other bytes it never panics, but sees only the records before the first
    /// impossible one.
    #[must_use]
    pub fn trusted(bytes: &'a [u8], layout: &DirectoryLayout) -> Self {
        Self { bytes, end: layout.records_end(bytes.len()), layout: *layout }
    }

    pub(super) fn records(&self) -> Walk<'a> {
        Walk { bytes: self.bytes, offset: 0, end: self.end, layout: self.layout }
    }

    fn heads(&self) -> Heads<'a> {
        Heads::new(self.bytes, self.end, &self.layout)
    }

    /// The live entries in block order, `.` and `..` included.
    #[must_use]
    pub fn entries(&self) -> Entries<'a> {
        Entries(self.records())
    }

    /// The live entries whose records start at `offset` or after it.
    ///
    /// Any offset will do: a listing resumes without repeats even if the entry at the offset is
    /// gone.
    pub fn entries_from(&self, offset: usize) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        self.entries().skip_while(move |entry| entry.offset < offset)
    }

    /// The entry with exactly this name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<Entry<'a>> {
        self.find_with_previous(name).map(|(entry, _)| entry)
    }

    /// The entry with exactly this name, and the offset of the record before it; its own if it is
    /// the first.
    #[must_use]
    pub fn find_with_previous(&self, name: &[u8]) -> Option<(Entry<'a>, usize)> {
        let (offset, previous) = self.heads().find_name(name)?;
        let record = record::read(self.bytes, offset, self.end, &self.layout).ok()?;
        Some((Entry::from(record), previous))
    }

    /// The entry with exactly this name and the offset of the record before it, as
    /// [`find_with_previous`](Self::find_with_previous), or else the offset of a record with room.
    ///
    /// # Errors
    /// There is no such entry; the record is good for
    /// [`insert_at`](super::DirectoryBlockMut::insert_at) as long as the block does not change.
    pub fn find_or_room(&self, name: &[u8]) -> Result<(Entry<'a>, usize), Option<usize>> {
        if self.layout.stores_hashes() {
            return self.find_with_previous(name).ok_or(None);
        }
        let needed = record::record_length(name, &self.layout);
        let (offset, previous) = self.heads().find_name_or_room(name, needed)?;
        let record = record::read(self.bytes, offset, self.end, &self.layout);
        record.map(|record| (Entry::from(record), previous)).map_err(|_| None)
    }

    /// The offset of a record with room for an entry of this name, as
    /// [`find_or_room`](Self::find_or_room) finds it.
    #[must_use]
    pub fn find_room(&self, name: &[u8]) -> Option<usize> {
        if self.layout.stores_hashes() {
            return None;
        }
        let needed = record::record_length(name, &self.layout);
        self.heads().find_room(needed)
    }

    /// Whether the record that starts at `offset` has room for an entry of this name.
    #[must_use]
    pub fn has_room_at(&self, offset: usize, name: &[u8]) -> bool {
        self.room_at(offset, record::record_length(name, &self.layout)).is_some()
    }

    /// The live entry whose record starts at `offset`.
    #[must_use]
    pub fn entry_at(&self, offset: usize) -> Option<Entry<'a>> {
        let head = self.heads().find(|head| head.offset >= offset)?;
        if head.offset != offset || head.inode == 0 {
            return None;
        }
        record::read(self.bytes, offset, self.end, &self.layout).ok().map(Entry::from)
    }

    /// The record at `offset` and the one before it, which starts at `previous` unless something
    /// was inserted between them.
    pub(super) fn record_behind(&self, previous: usize, offset: usize) -> Option<(Head, Head)> {
        let mut heads = Heads::from(self.bytes, previous, self.end, &self.layout);
        let before = heads.next().filter(|before| before.offset + before.length == offset)?;
        let head = heads.next().filter(|head| head.is_within(self.end))?;
        Some((before, head))
    }

    /// The record at `offset`, live or not, and the one before it.
    pub(super) fn record_at(&self, offset: usize) -> Option<(Option<Head>, Head)> {
        let mut before = None;
        for head in self.heads() {
            if head.offset >= offset {
                let is_found = head.offset == offset && head.is_within(self.end);
                return is_found.then_some((before, head));
            }
            before = Some(head);
        }
        None
    }

    /// The first record with room for an entry after its own.
    pub(super) fn room(&self, needed: usize) -> Option<Room> {
        if self.layout.stores_hashes() {
            let record = self.records().find(|record| record.slack() >= needed)?;
            let DirectoryRecord { offset, used, length, .. } = record;
            return Some(Room { offset, used, length });
        }
        self.heads().find(|head| head.has_room(needed, self.end)).map(Room::from)
    }

    /// The room in the record that starts at `offset`, if it is enough.
    pub(super) fn room_at(&self, offset: usize, needed: usize) -> Option<Room> {
        if self.layout.stores_hashes() {
            return None;
        }
        let head = Heads::from(self.bytes, offset, self.end, &self.layout).next()?;
        head.has_room(needed, self.end).then(|| Room::from(head))
    }

    /// What the entry `..` of a first block names.
    #[must_use]
    pub fn parent(&self) -> Option<InodeNumber> {
        let mut entries = self.entries();
        let starts_with_dot = entries.next().is_some_and(|entry| entry.name == b".");
        entries.next().filter(|entry| starts_with_dot && entry.name == b"..").map(|e| e.inode)
    }

    /// Checks that a first block starts with `.`, naming the directory itself, and `..`.
    ///
    /// # Errors
    /// Which of the two is missing or names the wrong inode.
    pub fn check_dots(&self, place: DirectoryPlace) -> Result<(), Corrupt> {
        let missing = |name| place.corrupt(0, DirectoryProblem::MissingDot { name });
        let mut entries = self.entries();
        let own = entries.next().filter(|entry| entry.name == b"." && entry.inode == place.inode);
        own.ok_or_else(|| missing("."))?;
        entries.next().filter(|entry| entry.name == b"..").ok_or_else(|| missing(".."))?;
        Ok(())
    }

    /// Whether the block has no live entry besides `.` and `..`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries().all(|entry| entry.is_dot())
    }

    /// Bytes that live entries need, without slack.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        self.records().map(|record| record.used).sum()
    }

    /// Whether an entry of this name could be inserted without moving others.
    #[must_use]
    pub fn has_room(&self, name: &[u8]) -> bool {
        let needed = record::record_length(name, &self.layout);
        self.room(needed).is_some()
    }
}

/// Iterator over the live entries of a block.
#[derive(Debug, Clone)]
pub struct Entries<'a>(Walk<'a>);

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        self.0.find(DirectoryRecord::is_live).map(Entry::from)
    }
}

impl<'a> From<DirectoryRecord<'a>> for Entry<'a> {
    fn from(record: DirectoryRecord<'a>) -> Self {
        Self {
            offset: record.offset,
            record_length: record.length,
            inode: InodeNumber::new(record.inode),
            entry_type: EntryType::from_raw(record.raw_type).unwrap_or(EntryType::Unknown),
            name: record.name,
            hash: record.hash,
        }
    }
}
