//! The index of the names in one directory. `directory` fills it and keeps it up to date.

use drystone_nilfs2_format::directory::{NAME_BYTES_MAX, needed};
use drystone_nilfs2_format::{FileBlock, InodeNumber};
use drystone_ondisk::spread;
use drystone_sync::LazyLock;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::hash::{BuildHasher, RandomState};

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

/// The place of an entry, also of a free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryPlace {
    pub(crate) block: FileBlock,
    pub(crate) offset: u32,
}

impl EntryPlace {
    pub(crate) const FIRST: Self = Self { block: FileBlock(0), offset: 0 };
}

/// A name with its hash, so that it is hashed once for all that an operation does with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashedName<'a> {
    pub(crate) bytes: &'a [u8],
    hash: u32,
}

impl<'a> HashedName<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self { bytes, hash: HASHER.hash_one(bytes) as u32 }
    }

    fn is_in(&self, entry: &IndexedName) -> bool {
        entry.hash == self.hash && *entry.name == *self.bytes
    }
}

/// What the index knows of a name. The hash is kept, so that the table grows without a look at the names.
#[derive(Debug)]
struct IndexedName {
    name: Box<[u8]>,
    inode: InodeNumber,
    block: FileBlock,
    offset: u32,
    hash: u32,
}

/// The table's hash.
fn hash_of(hash: u32) -> u64 {
    spread(u64::from(hash))
}

/// The index of a directory.
#[derive(Debug)]
pub(crate) struct DirectoryIndex {
    names: HashTable<IndexedName>,
    /// For each length of entry: no entry before this one has room for it. There is an entry, or there are no more
    /// blocks.
    full_before: [EntryPlace; LENGTHS],
    pub(crate) blocks: u64,
}

impl DirectoryIndex {
    /// An index of no names yet, over so many blocks.
    pub(crate) fn new(blocks: u64) -> Self {
        Self { names: HashTable::new(), full_before: [EntryPlace::FIRST; LENGTHS], blocks }
    }

    pub(crate) fn get(&self, name: HashedName<'_>) -> Option<KnownEntry> {
        let entry = self.names.find(hash_of(name.hash), |entry| name.is_in(entry))?;
        Some(KnownEntry { inode: entry.inode, block: entry.block, offset: entry.offset })
    }

    /// Adds a name, or changes what it stands for.
    pub(crate) fn set(&mut self, name: HashedName<'_>, known: KnownEntry) {
        let KnownEntry { inode, block, offset } = known;
        let hash = hash_of(name.hash);
        match self.names.entry(hash, |entry| name.is_in(entry), |entry| hash_of(entry.hash)) {
            Entry::Occupied(mut entry) => {
                let entry = entry.get_mut();
                (entry.inode, entry.block, entry.offset) = (inode, block, offset);
            }
            Entry::Vacant(place) => {
                let (name, hash) = (name.bytes.into(), name.hash);
                place.insert(IndexedName { name, inode, block, offset, hash });
            }
        }
    }

    pub(crate) fn remove(&mut self, name: HashedName<'_>) {
        if let Ok(entry) = self.names.find_entry(hash_of(name.hash), |entry| name.is_in(entry)) {
            entry.remove();
        }
    }

    /// All names, in no order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().map(|entry| &*entry.name)
    }

    /// The first entry that may have room for one of `need` bytes.
    pub(crate) fn first_with_room(&self, need: usize) -> EntryPlace {
        self.full_before[need / ALIGNMENT]
    }

    /// No entry before this one has room for one of `need` bytes.
    pub(crate) fn note_full_before(&mut self, need: usize, place: EntryPlace) {
        self.full_before[need / ALIGNMENT] = place;
    }

    /// The entry at `place` has taken over all others before `end`, and has `room` now.
    pub(crate) fn note_room(&mut self, place: EntryPlace, end: u32, room: usize) {
        for (length, before) in self.full_before.iter_mut().enumerate() {
            let has_room = length * ALIGNMENT <= room;
            let is_gone = before.block == place.block && before.offset < end;
            if has_room || is_gone {
                *before = place.min(*before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(block: u64, offset: u32) -> EntryPlace {
        EntryPlace { block: FileBlock(block), offset }
    }

    #[test]
    fn a_search_starts_at_an_entry() {
        let mut index = DirectoryIndex::new(3);
        index.note_full_before(24, place(1, 48));
        index.note_full_before(64, place(1, 48));
        index.note_full_before(80, place(1, 24));
        index.note_full_before(96, place(1, 72));
        // The entry at 48 goes into the one at 24.
        index.note_room(place(1, 24), 72, 32);
        assert_eq!(index.first_with_room(24), place(1, 24));
        assert_eq!(index.first_with_room(64), place(1, 24), "it has no room, but 48 is gone");
        assert_eq!(index.first_with_room(80), place(1, 24));
        assert_eq!(index.first_with_room(96), place(1, 72));
    }
}
