//! Lists a directory from a position.
//!
//! An entry that exists during the whole listing is listed exactly once, even if others are added
//! and removed meanwhile. The meaning of a position depends on whether entries can move:
//!
//! - If a directory can have an index, blocks split and entries move, but their hashes stay. A
//!   position is a hash: the major one without its low bit (31 bits), then the minor one (32).
//!   Directories that may still get an index, those with at most one block, are listed in the same
//!   way. An entry whose position is taken by an earlier one gets the next position; a listing may
//!   be interrupted between any two.
//! - In other directories entries never move: a position is a byte offset.
//!
//! Position 0 is `.`; in hash order 1 is `..`. An entry's cookie is the lowest position behind it.

use super::block::Directory;
use super::htree::HtreePath;
use super::{DirectoryForm, htree, inline};
use crate::content::ContentStore;
use crate::content::minor_for_listing;
use crate::error::Result;
use crate::inode::Inode;
use drystone_cache::BlockBytes;
use drystone_ext4_format::dir::{DirectoryBlock, Entry, EntryType};
use drystone_ext4_format::hash::NameHasher;
use drystone_ext4_format::inline::block_offset;
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

/// Larger minor hashes count as this one. Entries with the same hash take the positions behind it;
/// these must not reach into the next major hash, where a continued listing would not look for
/// them.
const MINOR_MAX: u32 = u32::MAX - (1 << 20);

/// Lists the entries from a cookie on, until the visitor stops it.
pub(crate) fn read(
    fs: &ContentStore,
    directory: &Inode,
    cookie: u64,
    visit: &mut DirectoryVisitor<'_>,
) -> Result<()> {
    let directory = Directory::open(fs, directory)?;
    let by_hash = fs.names.has_indexes()
        && match directory.shape {
            DirectoryForm::Inline | DirectoryForm::Hashed => true,
            DirectoryForm::Linear => directory.blocks == 1,
        };
    match directory.shape {
        DirectoryForm::Inline => read_inline(&directory, by_hash, cookie, visit),
        DirectoryForm::Hashed => read_index(&directory, cookie, visit),
        DirectoryForm::Linear if by_hash => {
            let block = directory.leaf(LogicalBlock::FIRST)?.buffer.snapshot();
            let view = DirectoryBlock::trusted(&block, &directory.layout);
            let Some(parent) = view.parent() else { return Ok(()) };
            if visit_dots(&directory, parent, HASHED_DOTS, cookie, visit) {
                let mut batch = ListedBatch::new(&directory, fs.names.hasher());
                // The block's own `.` and `..` come first; further ones are damage, and are listed.
                batch.add(ANY_HASH, view.entries().skip(2));
                batch.visit(cookie, visit);
            }
            Ok(())
        }
        DirectoryForm::Linear => read_linear(&directory, cookie, visit),
    }
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

fn read_linear(
    directory: &Directory<'_>,
    cookie: u64,
    visit: &mut DirectoryVisitor<'_>,
) -> Result<()> {
    let block_size = directory.fs.volume.block_size() as u64;
    let first = u32::try_from(cookie / block_size).unwrap_or(u32::MAX);
    let mut from = (cookie % block_size) as usize;
    for number in first..directory.blocks {
        let start = u64::from(number) * block_size;
        if let Some(entries) = directory.entries(LogicalBlock::new(number))? {
            // The visitor may look at other blocks, so it runs without a lock.
            let block = entries.buffer.snapshot();
            let view = DirectoryBlock::trusted(&block, &directory.layout);
            for entry in view.entries_from(from) {
                let end = start + (entry.offset + entry.record_length) as u64;
                if !give(directory, None, visit, &entry, end) {
                    return Ok(());
                }
            }
        }
        from = 0;
    }
    Ok(())
}

fn read_inline(
    directory: &Directory<'_>,
    by_hash: bool,
    cookie: u64,
    visit: &mut DirectoryVisitor<'_>,
) -> Result<()> {
    let contents = inline::contents(directory)?;
    contents.look(directory, |view| {
        let parent = view.parent();
        if by_hash {
            if visit_dots(directory, parent, HASHED_DOTS, cookie, visit) {
                let mut batch = ListedBatch::new(directory, directory.fs.names.hasher());
                batch.add(ANY_HASH, view.entries());
                batch.visit(cookie, visit);
            }
        } else if visit_dots(directory, parent, INLINE_DOTS, cookie, visit) {
            // The positions that the entries would have in a block.
            for entry in view.entries() {
                let position = block_offset(entry.offset) as u64;
                let end = position + entry.record_length as u64;
                if position >= cookie && !give(directory, None, visit, &entry, end) {
                    return;
                }
            }
        }
    });
    Ok(())
}

/// Lists an indexed directory leaf by leaf. Leaves that share names of one hash are listed
/// together.
fn read_index(
    directory: &Directory<'_>,
    cookie: u64,
    visit: &mut DirectoryVisitor<'_>,
) -> Result<()> {
    let parent = super::parent(directory.fs, directory.inode)?;
    if !visit_dots(directory, parent, HASHED_DOTS, cookie, visit) {
        return Ok(());
    }
    let hasher = htree::hasher(directory)?;
    let mut path = HtreePath::to(directory, ((cookie >> 32) << 1) as u32)?;
    loop {
        let bound = path.lower_bound();
        let mut leaves: Vec<BlockBytes> = Vec::new();
        let upper = loop {
            leaves.push(directory.leaf(path.leaf(directory)?)?.buffer.snapshot());
            match path.next(directory)? {
                Some(next) if next.continues() => {}
                next => break next,
            }
        };
        let end = upper.map_or(ANY_HASH.end, |entry| entry.hash_value());
        let mut batch = ListedBatch::new(directory, hasher);
        for leaf in &leaves {
            batch.add(bound..end, DirectoryBlock::trusted(leaf, &directory.layout).entries());
        }
        if !batch.visit(cookie, visit) || upper.is_none() {
            return Ok(());
        }
    }
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
