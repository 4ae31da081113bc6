//! The index of the names in one directory. `directory` fills it and keeps it up to date.

use drystone_nilfs2_format::directory::{NAME_BYTES_MAX, needed};
use drystone_nilfs2_format::{FileBlock, InodeNumber};
use drystone_ondisk::NumberHasher;
use drystone_sync::LazyLock;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, BuildHasherDefault, RandomState};

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
    hash: u64,
}

impl<'a> HashedName<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self { bytes, hash: HASHER.hash_one(bytes) }
    }
}

/// A name of the index, and what it stands for.
#[derive(Debug)]
struct IndexedName {
    name: Box<[u8]>,
    known: KnownEntry,
}

/// The index of a directory.
#[derive(Debug)]
pub(crate) struct DirectoryIndex {
    /// Each name at its hash, or at the next number that is free if other names have its hash. So the table grows
    /// without a look at the names.
    names: HashMap<u64, IndexedName, BuildHasherDefault<NumberHasher>>,
    /// For each length of entry: no entry before this one has room for it. There is an entry, or there are no more
    /// blocks.
    full_before: [EntryPlace; LENGTHS],
    pub(crate) blocks: u64,
}

impl DirectoryIndex {
    /// An index of no names yet, over so many blocks.
    pub(crate) fn new(blocks: u64) -> Self {
        Self { names: HashMap::default(), full_before: [EntryPlace::FIRST; LENGTHS], blocks }
    }

    /// The number of a name, or the free one that it would get.
    fn find(&self, name: HashedName<'_>) -> Result<u64, u64> {
        let mut number = name.hash;
        loop {
            match self.names.get(&number) {
                None => return Err(number),
                Some(entry) if *entry.name == *name.bytes => return Ok(number),
                Some(_) => number = number.wrapping_add(1),
            }
        }
    }

    pub(crate) fn get(&self, name: HashedName<'_>) -> Option<KnownEntry> {
        self.find(name).ok().and_then(|number| self.names.get(&number)).map(|entry| entry.known)
    }

    /// Adds a name, or changes what it stands for.
    pub(crate) fn set(&mut self, name: HashedName<'_>, known: KnownEntry) {
        let (Ok(number) | Err(number)) = self.find(name);
        match self.names.entry(number) {
            Entry::Occupied(mut entry) => entry.get_mut().known = known,
            Entry::Vacant(place) => {
                place.insert(IndexedName { name: name.bytes.into(), known });
            }
        }
    }

    pub(crate) fn remove(&mut self, name: HashedName<'_>) {
        let Ok(mut number) = self.find(name) else { return };
        self.names.remove(&number);
        // A name that wasn't at its hash is looked for up to the first free number.
        loop {
            number = number.wrapping_add(1);
            let Some(IndexedName { name, known }) = self.names.remove(&number) else { return };
            self.set(HashedName::new(&name), known);
        }
    }

    /// All names, in no order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.values().map(|entry| &*entry.name)
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
    fn names_with_one_hash_are_told_apart() {
        // Numbers behind a hash, also those of other names.
        let hash = HashedName::new(b"0").hash;
        let names: Vec<[u8; 2]> = (0..50).map(|number| [b'n', number]).collect();
        let mut index = DirectoryIndex::new(1);
        let known = |offset| KnownEntry { inode: InodeNumber(12), block: FileBlock(0), offset };
        let named = |name| HashedName { bytes: name, hash };
        index.set(HashedName::new(b"0"), known(900));
        for (offset, name) in (0..).zip(&names) {
            index.set(named(name), known(offset));
            index.set(named(name), known(offset + 100));
        }
        assert_eq!(index.names().count(), 51);
        for (offset, name) in (100..).zip(&names) {
            assert_eq!(index.get(named(name)), Some(known(offset)));
        }
        assert_eq!(index.get(named(b"none")), None);
        // The others move to where they are looked for: to the hash that they really have.
        index.remove(HashedName::new(b"0"));
        assert_eq!(index.get(HashedName::new(b"0")), None);
        for (offset, name) in (100..).zip(&names) {
            assert_eq!(index.get(HashedName::new(name)), Some(known(offset)));
        }
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
