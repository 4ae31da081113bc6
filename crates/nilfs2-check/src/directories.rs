//! The directories of a checkpoint: their entries, from the root down, and how often each inode is
//! named.

use crate::image::Image;
use crate::issue::{CheckpointIssue, EntryIssue, FileIssue, Nilfs2Issue};
use crate::maps::FileBlocks;
use crate::report::Reporter;
use drystone_blockdev::DeviceError;
use drystone_nilfs2_format::directory::{StoredEntry, entries, file_type_code};
use drystone_nilfs2_format::inode::Inode;
use drystone_nilfs2_format::{CheckpointNumber, FileBlock, InodeNumber};
use std::collections::{BTreeMap, HashSet};

/// The largest number of names.
const LINKS_MAX: u64 = 32_000;

/// What is kept of an inode until its names are counted.
pub(crate) struct FileRecord {
    pub mode: u16,
    pub links: u16,
    /// Entries that name it, but for `.` and `..`.
    pub names: u64,
    /// Directories in it.
    pub subdirectories: u64,
    /// Where its blocks are, if it is a directory.
    pub blocks: Option<FileBlocks>,
    pub size_bytes: u64,
}

impl FileRecord {
    pub fn is_directory(&self) -> bool {
        self.mode & Inode::TYPE_MASK == Inode::DIRECTORY
    }
}

/// All inodes in use of a checkpoint.
pub(crate) type FileRecords = BTreeMap<InodeNumber, FileRecord>;

/// Goes through all directories that the root leads to, and compares link counts with names.
pub(crate) fn check(
    image: &Image<'_>,
    checkpoint: CheckpointNumber,
    records: &mut FileRecords,
    reporter: &mut Reporter,
) -> Result<(), DeviceError> {
    let root = InodeNumber::ROOT;
    match records.get_mut(&root) {
        Some(record) if record.is_directory() => record.names = 1,
        _ => {
            let issue = CheckpointIssue::NoRoot;
            reporter.report(Nilfs2Issue::Checkpoint { checkpoint, issue });
            return Ok(());
        }
    }
    let mut pending = vec![(root, root)];
    while let Some((inode, parent)) = pending.pop() {
        let mut pass = DirectoryPass {
            image,
            inode,
            parent,
            records: &mut *records,
            reporter: &mut *reporter,
            pending: &mut pending,
            names: HashSet::new(),
        };
        pass.check()?;
    }
    for (&inode, record) in &*records {
        // A directory is named once, by its own `.`, and by each directory in it.
        let counted = match (record.is_directory(), record.names) {
            (true, 1..) => 2 + record.subdirectories,
            (_, names) => names,
        };
        let issue = match (record.names, record.links) {
            (0, 0) => FileIssue::Unlinked,
            (0, _) => FileIssue::Unattached,
            // There is no larger count; nor may there be more names.
            (_, stored) if u64::from(stored) != counted || counted > LINKS_MAX => {
                FileIssue::Links { stored, counted }
            }
            _ => continue,
        };
        reporter.report(Nilfs2Issue::File { inode, issue });
    }
    Ok(())
}

struct DirectoryPass<'a> {
    image: &'a Image<'a>,
    inode: InodeNumber,
    parent: InodeNumber,
    records: &'a mut FileRecords,
    reporter: &'a mut Reporter,
    /// Directories to be looked into, with their parents.
    pending: &'a mut Vec<(InodeNumber, InodeNumber)>,
    names: HashSet<Vec<u8>>,
}

impl DirectoryPass<'_> {
    fn check(&mut self) -> Result<(), DeviceError> {
        let inode = self.inode;
        let Some(record) = self.records.get_mut(&inode) else { return Ok(()) };
        let blocks = record.blocks.take().unwrap_or_default();
        let count = record.size_bytes / self.image.block_bytes() as u64;
        if count == 0 {
            let issue = FileIssue::Unexpected { what: "the size", found: record.size_bytes };
            self.reporter.report(Nilfs2Issue::File { inode, issue });
        }
        let mut expected = 0;
        for (key, place) in blocks.iter() {
            if key.0 != expected {
                self.hole(FileBlock(expected));
            }
            // Blocks are in order, and a map holds no larger key.
            expected = key.0.saturating_add(1);
            let bytes = self.image.read_block(place)?;
            self.block(key, &bytes);
        }
        if expected < count {
            self.hole(FileBlock(expected));
        }
        Ok(())
    }

    /// One problem for all blocks that are missing in one place.
    fn hole(&mut self, block: FileBlock) {
        let issue = FileIssue::Hole { block };
        self.reporter.report(Nilfs2Issue::File { inode: self.inode, issue });
    }

    fn block(&mut self, key: FileBlock, bytes: &[u8]) {
        for (index, entry) in entries(bytes, self.inode, key).enumerate() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(corrupt) => return self.reporter.report(corrupt),
            };
            let dots = [(&b"."[..], self.inode), (&b".."[..], self.parent)];
            let dot = dots.get(index).filter(|_| key.0 == 0);
            let issue = match dot {
                Some((name, _)) if entry.name != *name || entry.inode.0 == 0 => {
                    Some(EntryIssue::DotsPlace)
                }
                Some((_, expected)) => {
                    let (found, expected) = (entry.inode, *expected);
                    let is_right = found == expected;
                    let issue = EntryIssue::DotsInode { found, expected };
                    (!is_right).then_some(issue).or_else(|| self.type_issue(&entry))
                }
                None if entry.inode.0 == 0 => None,
                None if entry.name == b"." || entry.name == b".." => Some(EntryIssue::DotsPlace),
                None if !self.names.insert(entry.name.to_vec()) => Some(EntryIssue::Duplicate),
                None => self.child(&entry),
            };
            if let Some(issue) = issue {
                let (inode, block, offset) = (self.inode, key, entry.offset);
                self.reporter.report(Nilfs2Issue::Entry { inode, block, offset, issue });
            }
        }
    }

    fn type_issue(&self, entry: &StoredEntry<'_>) -> Option<EntryIssue> {
        let expected = file_type_code(self.records.get(&entry.inode)?.mode);
        let (inode, found) = (entry.inode, entry.file_type);
        (found != expected).then_some(EntryIssue::FileType { inode, found, expected })
    }

    /// Counts a name.
    fn child(&mut self, entry: &StoredEntry<'_>) -> Option<EntryIssue> {
        let inode = entry.inode;
        let first = self.image.superblock.first_inode();
        if inode < first {
            return Some(EntryIssue::Reserved { inode });
        }
        let Some(record) = self.records.get_mut(&inode) else {
            return Some(EntryIssue::Free { inode });
        };
        record.names += 1;
        if record.is_directory() {
            if record.names > 1 {
                return Some(EntryIssue::SecondParent { inode });
            }
            self.pending.push((inode, self.inode));
            if let Some(parent) = self.records.get_mut(&self.inode) {
                parent.subdirectories += 1;
            }
        }
        self.type_issue(entry)
    }
}
