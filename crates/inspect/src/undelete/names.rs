//! Finds the paths that deleted files had.
//!
//! A name is found in a directory, in the slack between its entries, or in a copy of one of its blocks in the log. An
//! entry names an inode number, which several files may have had: the age of a copy in the log says which file it was.

use super::log::JournalLog;
use super::versions::{DeletedInodes, FUTURE, FileKey, PRESENT, is_deleted};
use crate::block_ranges::BlockRanges;
use crate::error::Result;
use crate::image::{InspectedImage, StoredInode};
use crate::map::runs_of;
use crate::names::{entries_of, inline_rest, is_live_directory};
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::dir::{DirectoryBlock, DirectoryLayout, Entry};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inline::{InlineDirectory, PARENT_LENGTH};
use drystone_ext4_format::inode::{Inode, InodeFlags};
use std::collections::{BTreeSet, HashMap};

/// How many names are kept for an inode.
const NAMES_MAX: usize = 64;
/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 4096;
/// The age of a removed entry: it isn't known when it was removed.
const UNKNOWN_AGE: i64 = i64::MIN;

/// A name that was found.
struct SeenName {
    directory: InodeNumber,
    name: Vec<u8>,
    oldest: i64,
    newest: i64,
}

impl SeenName {
    /// The last age before `end` at which it was seen.
    fn age_before(&self, end: i64) -> Option<i64> {
        (self.oldest < end).then(|| self.newest.min(end.saturating_sub(1)))
    }
}

/// Finds the paths of deleted files.
pub(super) struct NameFinder<'a, 'd> {
    image: &'a InspectedImage<'d>,
    /// The names of each deleted inode.
    seen: HashMap<InodeNumber, Vec<SeenName>>,
    /// For each block that the log has copies of: the directory that it belongs to.
    logged: HashMap<u64, InodeNumber>,
    /// The parent of each existing directory, and its name in the parent.
    above: HashMap<InodeNumber, Option<(InodeNumber, Vec<u8>)>>,
    /// The blocks of directories that were read.
    read: BlockRanges,
}

impl<'a, 'd> NameFinder<'a, 'd> {
    pub fn new(image: &'a InspectedImage<'d>, deleted: &DeletedInodes<'_, '_>) -> Self {
        let seen = deleted.files.keys().map(|key| (key.inode, Vec::new())).collect();
        let (logged, above, read) = (HashMap::new(), HashMap::new(), BlockRanges::default());
        Self { image, seen, logged, above, read }
    }

    fn note(&mut self, directory: InodeNumber, entry: &Entry<'_>, age: i64) {
        if entry.is_dot() {
            return;
        }
        let Some(names) = self.seen.get_mut(&entry.inode) else { return };
        let known =
            names.iter_mut().find(|known| known.directory == directory && known.name == entry.name);
        if let Some(known) = known {
            // It isn't known when a removed entry was removed.
            if age != UNKNOWN_AGE {
                let is_first = known.newest == UNKNOWN_AGE;
                known.oldest = if is_first { age } else { known.oldest.min(age) };
                known.newest = known.newest.max(age);
            }
        } else if names.len() < NAMES_MAX {
            let name = entry.name.to_vec();
            names.push(SeenName { directory, name, oldest: age, newest: age });
        }
    }

    fn note_records(
        &mut self,
        directory: InodeNumber,
        records: &[u8],
        layout: &DirectoryLayout,
        age: i64,
    ) {
        let block = DirectoryBlock::trusted(records, layout);
        for entry in block.entries() {
            self.note(directory, &entry, age);
        }
        for entry in block.deleted_entries() {
            self.note(directory, &entry, UNKNOWN_AGE);
        }
    }

    /// Reads an existing directory.
    pub fn directory(&mut self, stored: &StoredInode, log: &JournalLog) -> Result<()> {
        let inode = &stored.inode;
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            self.inline(stored, PRESENT);
            return Ok(());
        }
        let runs = runs_of(self.image, inode)?;
        self.blocks(inode, &runs, PRESENT, log);
        Ok(())
    }

    /// Reads a directory that is stored in its inode.
    pub fn inline(&mut self, stored: &StoredInode, age: i64) {
        let inode = &stored.inode;
        let layout = self.image.directory_layout(inode).without_tail();
        let rest = inline_rest(self.image, stored);
        self.note_records(inode.number, &inode.block_area[PARENT_LENGTH..], &layout, age);
        self.note_records(inode.number, &rest, &layout, age);
    }

    /// Reads blocks of a directory as they are on the device, and notes those that the log has copies of.
    pub fn blocks(&mut self, inode: &Inode, runs: &[Extent], age: i64, log: &JournalLog) {
        let layout = self.image.directory_layout(inode);
        for run in runs {
            for (block, _) in log.blocks_in(run.physical.get()..run.physical_end().get()) {
                self.logged.entry(block.get()).or_insert(inode.number);
            }
        }
        let runs = self.read.insert_runs(runs);
        self.image.each_block(runs, &mut |_, _, bytes| {
            self.note_records(inode.number, bytes, &layout, age);
        });
    }

    /// Reads the copies of directory blocks in the log: those of blocks that were noted, and those that start with the
    /// entries `.` and `..`, which name their directory.
    pub fn log(&mut self, log: &JournalLog) {
        let layout = DirectoryLayout {
            file_type: self.image.layout.features().incompat.contains(Incompat::FILETYPE),
            // The checksum is in an unused record.
            checksum: None,
            encrypted: false,
            casefolded: false,
            inode_last: InodeNumber::new(self.image.layout.inodes_count()),
        };
        for (block, copies) in log.blocks_in(0..u64::MAX) {
            let noted = self.logged.get(&block.get()).copied();
            for copy in copies {
                let Some(bytes) = log.read_copy(self.image, copy) else { continue };
                let mut entries = DirectoryBlock::trusted(&bytes, &layout).entries();
                let first = entries.next().filter(|entry| entry.name == b".");
                let has_parent = entries.next().is_some_and(|entry| entry.name == b"..");
                let own = first.filter(|_| has_parent).map(|entry| entry.inode);
                match own.or(noted) {
                    Some(directory) => self.note_records(directory, &bytes, &layout, copy.age),
                    // Most copies are of other structures.
                    None => break,
                }
            }
        }
    }

    /// Forgets the names that existing files have.
    pub fn forget_present(&mut self, is_living: &dyn Fn(InodeNumber) -> bool) {
        for (&inode, names) in &mut self.seen {
            if names.iter().any(|name| name.newest == PRESENT) && is_living(inode) {
                names.retain(|name| name.newest != PRESENT);
            }
        }
    }

    /// The name of a file that was last found before `end`.
    fn name_before(&self, inode: InodeNumber, end: i64) -> Option<&SeenName> {
        let names = self.seen.get(&inode)?.iter();
        let aged = names.filter_map(|name| Some((name.age_before(end)?, name)));
        aged.max_by_key(|(age, _)| *age).map(|(_, name)| name)
    }

    /// Finds the parents of the existing directories that deleted files were in, up to the root.
    pub fn find_ways_up(&mut self) -> Result<()> {
        let directories = self.seen.values().flatten().map(|name| name.directory);
        let mut waiting: Vec<InodeNumber> = directories.collect();
        let mut parents: BTreeSet<InodeNumber> = BTreeSet::new();
        while let Some(number) = waiting.pop() {
            if number == InodeNumber::ROOT || self.above.contains_key(&number) {
                continue;
            }
            let Ok(stored) = self.image.inode(number) else { continue };
            if !is_live_directory(&stored.inode) || is_deleted(&stored.inode) {
                continue;
            }
            self.above.insert(number, None);
            if let Some(parent) = self.parent_of(&stored)? {
                parents.insert(parent);
                waiting.push(parent);
            }
        }
        let mut read = BlockRanges::default();
        for parent in parents {
            let Ok(stored) = self.image.inode(parent) else { continue };
            if !is_live_directory(&stored.inode) || is_deleted(&stored.inode) {
                continue;
            }
            for entry in entries_of(self.image, &stored, &mut read)? {
                if let Some(above) = self.above.get_mut(&entry.inode) {
                    above.get_or_insert((parent, entry.name));
                }
            }
        }
        Ok(())
    }

    fn parent_of(&self, stored: &StoredInode) -> Result<Option<InodeNumber>> {
        let inode = &stored.inode;
        let layout = self.image.directory_layout(inode);
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            let layout = layout.without_tail();
            return Ok(Some(InlineDirectory::trusted(&inode.block_area, &[], &layout).parent()));
        }
        let runs = runs_of(self.image, inode)?;
        let Some(first) = runs.iter().find(|run| run.logical.get() == 0) else { return Ok(None) };
        let bytes = self.image.read_block(first.physical);
        Ok(bytes.ok().and_then(|bytes| DirectoryBlock::trusted(&bytes, &layout).parent()))
    }

    /// A path to a file that was deleted, before `end`; from `…` if a directory above has no name.
    pub fn path_of(&self, key: &FileKey, end: i64) -> Option<Vec<u8>> {
        let mut name = self.name_before(key.inode, end)?;
        let mut parts: Vec<&[u8]> = vec![&name.name];
        let mut length = name.name.len();
        let mut at = name.directory;
        let mut is_rooted = true;
        while at != InodeNumber::ROOT {
            let (next, part): (InodeNumber, &[u8]) = match self.above.get(&at) {
                Some(Some((next, part))) => (*next, part),
                Some(None) => {
                    is_rooted = false;
                    break;
                }
                None => match self.name_before(at, FUTURE) {
                    Some(above) => {
                        name = above;
                        (name.directory, &name.name)
                    }
                    None => {
                        is_rooted = false;
                        break;
                    }
                },
            };
            length += part.len() + 1;
            // Directories may form a cycle.
            if length > PATH_BYTES_MAX {
                is_rooted = false;
                break;
            }
            parts.push(part);
            at = next;
        }
        let mut path = if is_rooted { Vec::new() } else { "…".as_bytes().to_vec() };
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        Some(path)
    }
}
