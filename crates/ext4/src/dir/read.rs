//! Lists a directory from a position.
//!
//! An entry that exists during the whole listing is listed exactly once, even if others are added
//! and removed meanwhile. Names with the same 63 bits of hash are an exception: a change of one can
//! hide or repeat another, as under Linux. The meaning of a position depends on whether entries can
//! move:
//!
//! - If a directory can have an index, blocks split and entries move, but their hashes stay. A
//!   position is a hash: the major one without its low bit (31 bits), then the minor one (32).
//!   Directories that may still get an index, those with at most one block, are listed in the same
//!   way. An entry whose position is taken by an earlier one gets the next position; a listing may
//!   be interrupted between any two.
//! - In other directories entries never move: a position is a byte offset.
//!
//! Position 0 is `.`; in hash order 1 is `..`. An entry's cookie is the lowest position behind it.
//!
//! # Locking
//!
//! A directory is listed part by part. [`read`] takes a part under the content lock: the bytes of a leaf,
//! with that locked too, or of a block. The visitor gets the entries without a lock, and the next part is sought by its position,
//! since the directory may have changed meanwhile.

use super::block::Directory;
use super::{DirectoryForm, htree, inline};
use crate::content::ContentStore;
use crate::content::minor_for_listing;
use crate::error::{Error, Result};
use crate::inode::Inode;
use drystone_cache::BlockBytes;
use drystone_ext4_format::dir::{DirectoryBlock, Entry, EntryType};
use drystone_ext4_format::hash::NameHasher;
use drystone_ext4_format::htree::IndexEntry;
use drystone_ext4_format::inline::{InlineDirectory, block_offset};
use drystone_ext4_format::{InodeNumber, LogicalBlock, nokey_name};
use drystone_vfs::{DirectoryEntry, DirectoryVisitor, FileType};
use std::ops::Range;

/// The positions of `.`, of `..`, and the first that an entry can have, in hash order.
const HASHED_DOTS: [u64; 3] = [0, 1, 2];

/// The same for an inline directory without hash order: the offsets in the block that it may be
/// converted to.
const INLINE_DOTS: [u64; 3] = [0, 12, 24];

/// Every hash: the largest is below the end, because hashes are even.
const ANY_HASH: Range<u32> = 0..u32::MAX;

/// Entries with the same hash take the positions behind it, at most so many.
const SAME_HASH_MAX: u32 = 1 << 20;

/// Larger minor hashes count as this one: the positions behind it must not reach into the next major
/// hash, where a continued listing would not look for them.
const MINOR_MAX: u32 = u32::MAX - SAME_HASH_MAX;

/// Most bytes of leaves that continue each other. They are listed as one part, which is sorted in
/// memory, and hold at most [`SAME_HASH_MAX`] entries of 12 bytes or more.
const CONTINUED_BYTES_MAX: usize = 12 * SAME_HASH_MAX as usize;

/// A part of a directory: a block as it was at one moment, or leaves that continue each other. It is read under the content lock, and listed without
/// it, so that the visitor may call the file system.
pub(crate) struct ListedPart<'a> {
    directory: Directory<'a>,
    /// Where the part begins.
    cookie: u64,
    entries: PartEntries,
    /// Where the listing goes on after the part; none at its end.
    next: Option<u64>,
}

/// The entries of a part.
enum PartEntries {
    None,
    /// An inline directory, in the order of hashes if there is a hasher.
    Inline(inline::Contents, Option<NameHasher>),
    /// In the order of hashes, after the dots if they are asked for.
    ByHash {
        parent: Option<InodeNumber>,
        blocks: Vec<BlockBytes>,
        /// The first block begins with `.` and `..`.
        has_dots: bool,
        /// The major hashes that the blocks should have.
        range: Range<u32>,
        hasher: NameHasher,
    },
    /// A block that starts at an offset in the directory, from an offset in the block on.
    Linear {
        block: BlockBytes,
        start: u64,
        from: usize,
    },
}

/// Reads the part of a directory that begins at a cookie. The content lock is held.
pub(crate) fn read<'a>(
    fs: &'a ContentStore,
    directory: &'a Inode,
    cookie: u64,
) -> Result<ListedPart<'a>> {
    let directory = Directory::open(fs, directory)?;
    let (entries, next) = match directory.shape {
        DirectoryForm::Inline => {
            let hasher = fs.names.has_indexes().then(|| fs.names.hasher());
            (PartEntries::Inline(inline::contents(&directory)?, hasher), None)
        }
        DirectoryForm::Hashed => read_index(&directory, cookie)?,
        DirectoryForm::Linear if fs.names.has_indexes() && directory.blocks == 1 => {
            (read_single(&directory)?, None)
        }
        DirectoryForm::Linear => read_linear(&directory, cookie)?,
    };
    Ok(ListedPart { directory, cookie, entries, next })
}

/// Reads the only block of a directory that may still get an index.
fn read_single(directory: &Directory<'_>) -> Result<PartEntries> {
    let block = directory.leaf(LogicalBlock::FIRST)?.buffer.snapshot();
    let Some(parent) = DirectoryBlock::trusted(&block, &directory.layout).parent() else {
        return Ok(PartEntries::None);
    };
    Ok(PartEntries::ByHash {
        parent: Some(parent),
        blocks: vec![block],
        has_dots: true,
        range: ANY_HASH,
        hasher: directory.fs.names.hasher(),
    })
}

/// Reads a leaf of an indexed directory, with those that share names of one hash with it.
fn read_index(directory: &Directory<'_>, cookie: u64) -> Result<(PartEntries, Option<u64>)> {
    // No entry has a position behind the largest hash.
    let Ok(hash) = u32::try_from((cookie >> 32) << 1) else {
        return Ok((PartEntries::None, None));
    };
    let [_, _, behind_dots] = HASHED_DOTS;
    let parent = match cookie < behind_dots {
        true => Some(super::parent(directory.fs, directory.inode)?),
        false => None,
    };
    let hasher = htree::hasher(directory)?;
    let mut blocks: Vec<BlockBytes> = Vec::new();
    let limit = CONTINUED_BYTES_MAX / directory.fs.volume.block_size();
    let (mut bound, mut upper) = (None, None);
    htree::visit_leaves(directory, hash, |leaf, lower_bound, next| {
        if blocks.len() == limit {
            // Perhaps one leaf again and again, but names may also have been chosen for their hash.
            return Err(Error::SameHash { directory: directory.inode.number });
        }
        blocks.push(leaf.buffer.snapshot());
        bound.get_or_insert(lower_bound);
        upper = next.map(|next| next.hash_value());
        // In a damaged image hashes may not rise: a listing must not go back.
        let is_behind = |next: IndexEntry| position(next.hash_value(), 0) > cookie;
        Ok(next.is_some_and(|next| next.continues() || !is_behind(next)))
    })?;
    let range = bound.unwrap_or(0)..upper.unwrap_or(ANY_HASH.end);
    let entries = PartEntries::ByHash { parent, blocks, has_dots: false, range, hasher };
    Ok((entries, upper.map(|hash| position(hash, 0))))
}

/// Reads the next block of a directory without hash order.
fn read_linear(directory: &Directory<'_>, cookie: u64) -> Result<(PartEntries, Option<u64>)> {
    let block_size = directory.fs.volume.block_size() as u64;
    let first = u32::try_from(cookie / block_size).unwrap_or(u32::MAX);
    let Some(entries) = directory.next_entries(first)? else {
        return Ok((PartEntries::None, None));
    };
    let number = entries.block.get();
    let from = if number == first { (cookie % block_size) as usize } else { 0 };
    let (block, start) = (entries.buffer.snapshot(), u64::from(number) * block_size);
    let next = (number + 1 < directory.blocks).then(|| start + block_size);
    Ok((PartEntries::Linear { block, start, from }, next))
}

impl ListedPart<'_> {
    /// Gives the entries to the visitor. Returns where the listing goes on; none at its end, and if the
    /// visitor stops it.
    pub fn visit(self, visit: &mut DirectoryVisitor<'_>) -> Option<u64> {
        let ListedPart { directory, cookie, entries, next } = &self;
        let goes_on = match entries {
            PartEntries::None => true,
            PartEntries::Inline(contents, hasher) => contents
                .look(directory, |view| visit_inline(directory, view, *hasher, *cookie, visit)),
            PartEntries::ByHash { parent, blocks, has_dots, range, hasher } => {
                let mut batch = ListedBatch::new(directory, *hasher);
                for (number, block) in blocks.iter().enumerate() {
                    let mut entries = DirectoryBlock::trusted(block, &directory.layout).entries();
                    if *has_dots && number == 0 {
                        // Further ones than the block's own two are damage, and are listed.
                        entries.nth(1);
                    }
                    batch.add(range.clone(), entries);
                }
                parent
                    .is_none_or(|parent| visit_dots(directory, parent, HASHED_DOTS, *cookie, visit))
                    && batch.visit(*cookie, visit)
            }
            PartEntries::Linear { block, start, from } => {
                let view = DirectoryBlock::trusted(block, &directory.layout);
                view.entries_from(*from).all(|entry| {
                    let end = start + (entry.offset + entry.record_length) as u64;
                    give(directory, None, visit, &entry, end)
                })
            }
        };
        next.filter(|_| goes_on)
    }
}

/// Lists an inline directory; false if the visitor stops it.
fn visit_inline(
    directory: &Directory<'_>,
    view: &InlineDirectory<'_>,
    hasher: Option<NameHasher>,
    cookie: u64,
    visit: &mut DirectoryVisitor<'_>,
) -> bool {
    let dots = if hasher.is_some() { HASHED_DOTS } else { INLINE_DOTS };
    if !visit_dots(directory, view.parent(), dots, cookie, visit) {
        return false;
    }
    if let Some(hasher) = hasher {
        let mut batch = ListedBatch::new(directory, hasher);
        batch.add(ANY_HASH, view.entries());
        return batch.visit(cookie, visit);
    }
    // The positions that the entries would have in a block.
    view.entries().all(|entry| {
        let position = block_offset(entry.offset) as u64;
        let end = position + entry.record_length as u64;
        position < cookie || give(directory, None, visit, &entry, end)
    })
}

/// Gives one entry to the visitor; false if the visitor stops the listing. Names of an encrypted
/// directory are given in their no-key form, with their hash if the listing is in hash order.
fn give(
    directory: &Directory<'_>,
    hasher: Option<NameHasher>,
    visit: &mut DirectoryVisitor<'_>,
    entry: &Entry<'_>,
    cookie: u64,
) -> bool {
    let shown;
    let name = if directory.layout.encrypted && !entry.is_dot() {
        let hash_of = |hasher| directory.fs.names.hash_of(&directory.layout, hasher, entry);
        shown = nokey_name::encode(hasher.map(hash_of).unwrap_or_default(), entry.name);
        &shown
    } else {
        entry.name
    };
    visit(&DirectoryEntry {
        inode: drystone_vfs::InodeNumber(u64::from(entry.inode.get())),
        file_type: file_type(entry.entry_type),
        cookie,
        name,
    })
}

fn file_type(entry_type: EntryType) -> Option<FileType> {
    match entry_type {
        EntryType::Unknown => None,
        EntryType::Regular => Some(FileType::Regular),
        EntryType::Directory => Some(FileType::Directory),
        EntryType::CharacterDevice => Some(FileType::CharacterDevice),
        EntryType::BlockDevice => Some(FileType::BlockDevice),
        EntryType::Fifo => Some(FileType::Fifo),
        EntryType::Socket => Some(FileType::Socket),
        EntryType::Symlink => Some(FileType::Symlink),
    }
}

/// Lists `.` and `..` at the given positions; the cookie of each is the next position.
fn visit_dots(
    directory: &Directory<'_>,
    parent: InodeNumber,
    positions: [u64; 3],
    cookie: u64,
    visit: &mut DirectoryVisitor<'_>,
) -> bool {
    let entry_type =
        if directory.layout.file_type { EntryType::Directory } else { EntryType::Unknown };
    let dots = [(&b"."[..], directory.inode.number), (b"..", parent)];
    positions.windows(2).zip(dots).all(|(span, (name, inode))| {
        let entry = Entry { offset: 0, record_length: 0, inode, entry_type, name, hash: None };
        span[0] < cookie || give(directory, None, visit, &entry, span[1])
    })
}

/// Entries to be listed in the order of their hashes.
struct ListedBatch<'a> {
    directory: &'a Directory<'a>,
    hasher: NameHasher,
    /// The wanted position and the entry.
    entries: Vec<(u64, Entry<'a>)>,
}

impl<'a> ListedBatch<'a> {
    fn new(directory: &'a Directory<'a>, hasher: NameHasher) -> ListedBatch<'a> {
        ListedBatch { directory, hasher, entries: Vec::new() }
    }

    /// Adds the entries of a block whose major hashes should be in `range`.
    fn add(&mut self, range: Range<u32>, entries: impl Iterator<Item = Entry<'a>>) {
        let Directory { fs, layout, .. } = self.directory;
        self.entries.extend(entries.map(|entry| {
            let hash = fs.names.hash_of(layout, self.hasher, &entry);
            let minor = minor_for_listing(self.hasher, hash, entry.name);
            // In a damaged image a hash may be outside the leaf's range; without this a listing
            // could go back and never end.
            let inside = range.contains(&hash.major);
            let wanted =
                if inside { position(hash.major, minor) } else { position(range.start, 0) };
            (wanted, entry)
        }));
    }

    /// Gives the entries from `cookie` on to the visitor; false if the visitor stops the listing.
    fn visit(mut self, cookie: u64, visit: &mut DirectoryVisitor<'_>) -> bool {
        self.entries.sort_unstable_by_key(|(wanted, entry)| (*wanted, entry.name));
        let [.., mut free] = HASHED_DOTS;
        self.entries.iter().all(|(wanted, entry)| {
            let position = free.max(*wanted);
            free = position + 1;
            position < cookie || give(self.directory, Some(self.hasher), visit, entry, free)
        })
    }
}

/// The wanted position for a hash.
fn position(major: u32, minor: u32) -> u64 {
    u64::from(major >> 1) << 32 | u64::from(minor.min(MINOR_MAX))
}
