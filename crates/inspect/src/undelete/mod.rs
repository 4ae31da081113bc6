//! Finds deleted files: what is still known of them, and how much of their data is left.
//!
//! The inode of a deleted file stays in its table until its number is used again. debugfs leaves the extents in
//! it; Linux and this engine clear them. Then only an older copy of the inode in the journal's log has them. The search
//! sees the image as a mount would: the caller first replays the log ([`JournalLog::replay`]).
//!
//! `versions` finds the inodes, `content` their blocks and `names` their paths; `found` works out which blocks are
//! left, and `log` reads the copies in the journal. A deleted file still owns a block if the bitmap calls it free, no
//! existing file claims it, and no file that was deleted later had it.
//!
//! # Reference
//! "Index Nodes", "Directory Entries" and "Journal (jbd2)" in the kernel's ext4 data structure pages.

mod content;
mod found;
mod log;
mod names;
mod versions;

pub use log::JournalLog;

use crate::block_ranges::BlockRanges;
use crate::error::Result;
use crate::image::{InspectedImage, StoredInode};
use crate::map::{MapPart, walk_map_once};
use content::MapReader;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::inode::{Inode, InodeFlags, InodeTimestamp};
use found::{DeletedContent, FoundFile, physical};
use names::NameFinder;
use std::cmp::Reverse;
use std::collections::HashSet;
use versions::{DeletedInodes, FUTURE, FileVersions, is_deleted};

/// Called with the offset of a piece of a file, and its bytes.
pub type ContentVisitor<'v, E> = dyn FnMut(u64, &[u8]) -> std::result::Result<(), E> + 'v;

/// Bytes of a file that are read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Where a deleted file was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnowledgeSource {
    /// Its inode in the table.
    InodeTable,
    /// A copy of its inode in the journal.
    Journal {
        /// The transaction.
        transaction: u32,
        /// When it was committed, in seconds since 1970, if its commit block is still there.
        committed: Option<u64>,
    },
}

/// How much of a deleted file can be brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recoverable {
    /// All of it.
    Whole,
    /// Some of its blocks.
    Part,
    /// Nothing: it had content, and none of it is left or can be found.
    Nothing,
}

/// A deleted file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeletedFile {
    /// Its inode.
    pub inode: InodeNumber,
    /// Its number among the files that had this inode, from 1 for the oldest; none if only one is known.
    pub version: Option<u32>,
    /// Type and permissions.
    pub mode: u16,
    /// Bytes; 0 if nothing is known about its content.
    pub size_bytes: u64,
    /// How many blocks of data it had.
    pub blocks: u64,
    /// How many of them it still owns.
    pub free_blocks: u64,
    /// When it was deleted, in seconds since 1970.
    pub deleted: Option<u32>,
    /// The time of the last access, when the content was as it is brought back.
    pub accessed: InodeTimestamp,
    /// The modification time, likewise.
    pub modified: InodeTimestamp,
    /// Its path; from `…` if a directory above has no name.
    pub path: Option<Vec<u8>>,
    /// Where it was found.
    pub source: KnowledgeSource,
    /// Whether its data is encrypted.
    pub is_encrypted: bool,
    content: DeletedContent,
}

impl DeletedFile {
    /// How much of it can be brought back.
    #[must_use]
    pub fn recoverable(&self) -> Recoverable {
        match self.content {
            DeletedContent::Unknown => Recoverable::Nothing,
            _ if self.free_blocks == self.blocks => Recoverable::Whole,
            _ if self.free_blocks > 0 => Recoverable::Part,
            _ => Recoverable::Nothing,
        }
    }
}

/// Finds the deleted files, in the order of their inodes. `image` must be as a replay of `log` leaves it. `progress` is
/// called with the current step, the number of inodes that were read, and the number of inodes.
///
/// # Errors
/// The device fails.
pub fn find_deleted(
    image: &InspectedImage<'_>,
    log: &JournalLog,
    progress: &mut dyn FnMut(&'static str, u64, u64),
) -> Result<Vec<DeletedFile>> {
    let total = u64::from(image.layout.inodes_count());
    let mut inodes =
        DeletedInodes::find(image, log, &mut |done| progress("looking for inodes", done, total))?;
    let mut reader = MapReader::new(image, log);
    let mut found: Vec<FoundFile> = Vec::new();
    let (mut wanted, mut free) = (BlockRanges::default(), BlockRanges::default());
    for (key, versions) in &mut inodes.files {
        let file = FoundFile::new(*key, versions, &mut reader);
        for run in &file.runs {
            wanted.insert(physical(run));
        }
        found.push(file);
    }
    for range in wanted.iter() {
        for range in reader.bitmaps.free_within(range) {
            free.insert(range);
        }
    }
    for file in found.iter().filter(|file| file.is_orphan) {
        for run in &file.runs {
            free.insert(physical(run));
        }
    }
    let mut visited = HashSet::new();
    let mut names = NameFinder::new(image, &inodes);
    image.each_inode(&mut |stored| {
        progress("looking for what is in use", u64::from(stored.inode.number.get()), total);
        if !is_deleted(&stored.inode) {
            take_blocks(image, &stored.inode, &wanted, &mut free, &mut visited)?;
            if stored.inode.is_directory() {
                names.directory(&stored, log)?;
            }
        }
        Ok(true)
    })?;
    // Of several files that had a block, the one that was changed last had it last.
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_key(|&index| Reverse(found[index].last_change()));
    for index in order {
        found[index].keep_blocks(&mut free);
    }
    for file in &found {
        let Some(version) = &file.version else { continue };
        let inode = &version.inode;
        match &version.bytes {
            _ if !inode.is_directory() => {}
            Some(bytes) => {
                let (inode, bytes) = (inode.clone(), bytes.clone());
                names.inline(&StoredInode { inode, bytes, offset: 0 }, version.age);
            }
            None => names.blocks(inode, &file.kept, version.age, log),
        }
    }
    names.log(log);
    let is_living = |number| image.inode(number).is_ok_and(|stored| !is_deleted(&stored.inode));
    names.forget_present(&is_living);
    names.find_ways_up()?;
    Ok(finish(image, log, &inodes, &names, found))
}

/// Visits the content of a deleted file: the offset of each piece, and its bytes. What isn't visited is zeros or lost.
///
/// # Errors
/// The device or `visit` fails.
pub fn visit_content<E: From<crate::InspectError>>(
    image: &InspectedImage<'_>,
    file: &DeletedFile,
    visit: &mut ContentVisitor<'_, E>,
) -> std::result::Result<(), E> {
    let log_size = image.layout.log_block_size();
    match &file.content {
        DeletedContent::Unknown | DeletedContent::Empty => Ok(()),
        DeletedContent::Bytes(bytes) => visit(0, bytes),
        DeletedContent::Blocks(runs) => {
            let piece = u32::try_from(PIECE_BYTES >> log_size).unwrap_or(1);
            let mut buffer = Vec::new();
            for run in runs {
                let mut by = 0;
                while by < run.length {
                    let count = piece.min(run.length - by);
                    buffer.resize((count as usize) << log_size, 0);
                    let place = (run.physical.get() + u64::from(by)) << log_size;
                    image.read_lenient(place, &mut buffer).map_err(crate::InspectError::from)?;
                    let offset = (run.logical.as_u64() + u64::from(by)) << log_size;
                    let left = file.size_bytes.saturating_sub(offset).min(buffer.len() as u64);
                    visit(offset, &buffer[..left as usize])?;
                    by += count;
                }
            }
            Ok(())
        }
    }
}

/// Removes the blocks of an existing file from the free ones.
fn take_blocks(
    image: &InspectedImage<'_>,
    inode: &Inode,
    wanted: &BlockRanges,
    free: &mut BlockRanges,
    visited: &mut HashSet<u64>,
) -> Result<()> {
    let mut take = |range| wanted.within(range).into_iter().for_each(|part| free.remove(part));
    if let Some(block) = inode.attribute_block {
        take(block.get()..block.get() + 1);
    }
    walk_map_once(image, inode, visited, &mut |part| {
        match part {
            MapPart::Node { block, .. } => take(block.get()..block.get() + 1),
            MapPart::Run(run) => take(physical(&run)),
            MapPart::Problem(_) => {}
        }
        Ok(())
    })
}

/// Finds the paths of the files, and numbers those that had the same inode.
fn finish(
    image: &InspectedImage<'_>,
    log: &JournalLog,
    inodes: &DeletedInodes<'_, '_>,
    names: &NameFinder<'_, '_>,
    found: Vec<FoundFile>,
) -> Vec<DeletedFile> {
    let mut files: Vec<DeletedFile> = Vec::new();
    let mut of_inode: Vec<FoundFile> = Vec::new();
    let mut found = found.into_iter().peekable();
    while let Some(file) = found.next() {
        let is_last = found.peek().is_none_or(|next| next.key.inode != file.key.inode);
        of_inode.push(file);
        if !is_last {
            continue;
        }
        of_inode.sort_by_key(|file| inodes.files[&file.key].newest_age);
        let count = of_inode.len();
        for index in 0..count {
            let file = &of_inode[index];
            // Later entries with this number name the next file that had it.
            let end = match of_inode.get(index + 1) {
                Some(next) => inodes.files[&next.key].oldest_age,
                None => inodes.living_since.get(&file.key.inode).copied().unwrap_or(FUTURE),
            };
            // There are at most 2^31 different transactions.
            let version = (count > 1).then_some(index as u32 + 1);
            let path = names.path_of(&file.key, end);
            files.push(deleted_file(image, log, &inodes.files[&file.key], file, version, path));
        }
        of_inode.clear();
    }
    files
}

fn deleted_file(
    image: &InspectedImage<'_>,
    log: &JournalLog,
    versions: &FileVersions,
    file: &FoundFile,
    version: Option<u32>,
    path: Option<Vec<u8>>,
) -> DeletedFile {
    let blocks = |runs: &[Extent]| runs.iter().map(|run| u64::from(run.length)).sum::<u64>();
    let inode = file.version.as_ref().map(|version| &version.inode);
    let sequence = match &file.version {
        Some(version) => version.sequence,
        None => versions.newest_sequence,
    };
    let source = sequence.map_or(KnowledgeSource::InodeTable, |transaction| {
        KnowledgeSource::Journal { transaction, committed: log.committed(transaction) }
    });
    DeletedFile {
        inode: file.key.inode,
        version,
        mode: inode.map_or(versions.mode, |inode| inode.mode),
        size_bytes: inode.map_or(0, |inode| inode.size_bytes),
        blocks: blocks(&file.runs).saturating_add(file.lost),
        free_blocks: blocks(&file.kept),
        deleted: file.deleted,
        accessed: inode.map_or_else(InodeTimestamp::default, |inode| inode.access_time),
        modified: inode.map_or_else(InodeTimestamp::default, |inode| inode.modification_time),
        path,
        source,
        is_encrypted: inode.is_some_and(|inode| inode.flags.contains(InodeFlags::ENCRYPT)),
        content: file.content(image),
    }
}
