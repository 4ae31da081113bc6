//! Reading an index block.

use super::raw::{
    BLOCK_MASK, RawCountLimit, RawIndexEntry, RawIndexNode, RawIndexRoot, RawIndexTail,
};
use super::{CONTINUATION, IndexLimits};
use crate::dir::{DirectoryLayout, DirectoryPlace};
use crate::error::{Corrupt, IndexProblem};
use crate::hash::HashVersion;
use crate::ids::{InodeNumber, LogicalBlock};
use drystone_ondisk::crc32c;
use std::mem::size_of;
use zerocopy::FromBytes;

pub(super) const ENTRY_LENGTH: usize = size_of::<RawIndexEntry>();

/// The two shapes of an index block: how it looks like a directory block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// Block 0, which also holds `.` and `..`.
    Root,
    /// Any other.
    Node,
}

impl IndexKind {
    /// The shape of an index block in an image with checksums; `None` for a block of entries, in
    /// which the tail keeps every record from reaching the end of the block.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (root, _) = RawIndexRoot::ref_from_prefix(bytes).ok()?;
        let whole = u16::try_from(bytes.len()).unwrap_or(0xffff);
        if root.dot.inode.get() == 0 {
            let length = root.dot.record_length.get();
            let is_node = length == whole || (whole == 0xffff && length == 0);
            return is_node.then_some(Self::Node);
        }
        let rest = bytes.len() - 12;
        let is_root = root.dot.record_length.get() == 12
            && usize::from(root.dotdot.record_length.get()) == rest;
        is_root.then_some(Self::Root)
    }

    /// Where the entries start.
    pub(super) const fn entries_offset(self) -> usize {
        match self {
            Self::Root => size_of::<RawIndexRoot>(),
            Self::Node => size_of::<RawIndexNode>(),
        }
    }

    /// Entries that fit a block, the first included.
    #[must_use]
    pub const fn limit(self, block_length: usize, with_checksum: bool) -> usize {
        let tail = if with_checksum { size_of::<RawIndexTail>() } else { 0 };
        block_length.saturating_sub(self.entries_offset() + tail) / ENTRY_LENGTH
    }
}

/// One entry of an index block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// Least hash of the names below, with the continuation bit; 0 for the first entry.
    pub hash: u32,
    /// The node or leaf.
    pub block: LogicalBlock,
}

impl IndexEntry {
    /// Whether names of this hash (without the bit) started in the entry before.
    #[must_use]
    pub const fn continues(&self) -> bool {
        self.hash & CONTINUATION != 0
    }

    /// The hash without the continuation bit.
    #[must_use]
    pub const fn hash_value(&self) -> u32 {
        self.hash & !CONTINUATION
    }
}

/// One index block, its entries known to be within bounds and ordered.
#[derive(Debug, Clone, Copy)]
pub struct IndexBlock<'a> {
    bytes: &'a [u8],
    kind: IndexKind,
}

impl<'a> IndexBlock<'a> {
    /// Checks block 0 of a hashed directory.
    ///
    /// # Errors
    /// What is wrong with the root.
    pub fn check_root(
        bytes: &'a [u8],
        layout: &DirectoryLayout,
        place: DirectoryPlace,
        limits: &IndexLimits,
    ) -> Result<Self, Corrupt> {
        let corrupt = |problem| index_error(place, problem);
        let short = IndexProblem::BlockLength { length: bytes.len() };
        let (root, _) = RawIndexRoot::ref_from_prefix(bytes).map_err(|_| corrupt(short))?;
        // The record of `..` claims everything after the record of `.`.
        let rest = bytes.len() - 12;
        let disguised = root.dot.inode.get() == place.inode.get()
            && root.dot.record_length.get() == 12
            && root.dot.name_length == 1
            && root.dot_name[0] == b'.'
            && usize::from(root.dotdot.record_length.get()) == rest
            && root.dotdot.name_length == 2
            && root.dotdot_name[..2] == *b"..";
        if !disguised {
            return Err(corrupt(IndexProblem::Disguise));
        }
        if root.reserved.get() != 0 || root.info_length != 8 || root.unused_flags & 1 != 0 {
            return Err(corrupt(IndexProblem::RootInfo));
        }
        // Roots store the signed functions; the superblock says whether characters are unsigned.
        if !matches!(root.hash_version, 0..=2 | 6) {
            return Err(corrupt(IndexProblem::HashVersion { found: root.hash_version }));
        }
        let limit = limits.levels_max();
        if root.levels > limit {
            return Err(corrupt(IndexProblem::Levels { found: root.levels, limit }));
        }
        let block = Self { bytes, kind: IndexKind::Root };
        block.check_entries(layout, limits).map_err(corrupt)?;
        Ok(block)
    }

    /// Checks a node below the root.
    ///
    /// # Errors
    /// What is wrong with the node.
    pub fn check_node(
        bytes: &'a [u8],
        layout: &DirectoryLayout,
        place: DirectoryPlace,
        limits: &IndexLimits,
    ) -> Result<Self, Corrupt> {
        let corrupt = |problem| index_error(place, problem);
        let short = IndexProblem::BlockLength { length: bytes.len() };
        let (node, _) = RawIndexNode::ref_from_prefix(bytes).map_err(|_| corrupt(short))?;
        let length = node.record.record_length.get();
        let whole = if bytes.len() == 65536 {
            matches!(length, 0 | 0xffff)
        } else {
            usize::from(length) == bytes.len()
        };
        if node.record.inode.get() != 0 || node.record.name_length != 0 || !whole {
            return Err(corrupt(IndexProblem::Disguise));
        }
        let block = Self { bytes, kind: IndexKind::Node };
        block.check_entries(layout, limits).map_err(corrupt)?;
        Ok(block)
    }

    fn check_entries(
        &self,
        layout: &DirectoryLayout,
        limits: &IndexLimits,
    ) -> Result<(), IndexProblem> {
        let fits = self.kind.limit(self.bytes.len(), layout.checksum.is_some());
        let expected = u16::try_from(fits).unwrap_or(u16::MAX);
        if expected < 2 {
            return Err(IndexProblem::BlockLength { length: self.bytes.len() });
        }
        let (limit, count) = (self.limit(), self.count());
        if limit != expected {
            return Err(IndexProblem::Limit { found: limit, expected });
        }
        if count == 0 || count > limit {
            return Err(IndexProblem::Count { count, limit });
        }
        let mut previous = 0;
        for (position, entry) in (0..count).zip(self.entries()) {
            if entry.hash < previous {
                return Err(IndexProblem::HashOrder { position, hash: entry.hash, previous });
            }
            previous = entry.hash;
            if entry.block.get() == 0 || entry.block.get() >= limits.directory_blocks {
                let (block, blocks) = (entry.block, limits.directory_blocks);
                return Err(IndexProblem::Target { position, block, blocks });
            }
        }
        Ok(())
    }

    /// A view of a block that has been checked since it was read. On other bytes it never panics.
    #[must_use]
    pub fn trusted(bytes: &'a [u8], kind: IndexKind) -> Self {
        Self { bytes, kind }
    }

    /// Root or node.
    #[must_use]
    pub const fn kind(&self) -> IndexKind {
        self.kind
    }

    /// The hash function that the root names: the signed one of a pair, whichever is in use.
    ///
    /// `None` in a node, or where the number is not defined.
    #[must_use]
    pub fn hash_version(&self) -> Option<HashVersion> {
        HashVersion::from_raw(self.root()?.hash_version)
    }

    /// Levels of index nodes below the root; `None` in a node.
    #[must_use]
    pub fn levels(&self) -> Option<u8> {
        self.root().map(|root| root.levels)
    }

    /// What `..` names; `None` in a node.
    #[must_use]
    pub fn parent(&self) -> Option<InodeNumber> {
        self.root().map(|root| InodeNumber::new(root.dotdot.inode.get()))
    }

    fn root(&self) -> Option<&'a RawIndexRoot> {
        if self.kind == IndexKind::Node {
            return None;
        }
        RawIndexRoot::ref_from_prefix(self.bytes).ok().map(|(root, _)| root)
    }

    fn count_limit(&self) -> Option<&'a RawCountLimit> {
        let bytes = self.bytes.get(self.kind.entries_offset()..)?;
        RawCountLimit::ref_from_prefix(bytes).ok().map(|(raw, _)| raw)
    }

    /// Entries in use, the first included.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count_limit().map_or(0, |raw| raw.count.get())
    }

    /// Entries that fit, the first included.
    #[must_use]
    pub fn limit(&self) -> u16 {
        self.count_limit().map_or(0, |raw| raw.limit.get())
    }

    /// Whether no entry fits any more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count() >= self.limit()
    }

    /// The entry at a position, below [`count`](Self::count).
    #[must_use]
    pub fn get(&self, position: u16) -> Option<IndexEntry> {
        if position >= self.count() {
            return None;
        }
        let offset = self.kind.entries_offset() + usize::from(position) * ENTRY_LENGTH;
        let (raw, _) = RawIndexEntry::ref_from_prefix(self.bytes.get(offset..)?).ok()?;
        let hash = if position == 0 { 0 } else { raw.hash.get() };
        Some(IndexEntry { hash, block: LogicalBlock::new(raw.block.get() & BLOCK_MASK) })
    }

    /// The entries as they are stored; none if the count can't be right.
    fn raw_entries(&self) -> &'a [RawIndexEntry] {
        let bytes = self.bytes.get(self.kind.entries_offset()..).unwrap_or_default();
        let count = usize::from(self.count());
        let entries = <[RawIndexEntry]>::ref_from_prefix_with_elems(bytes, count);
        entries.map_or(&[], |(entries, _)| entries)
    }

    /// All entries in hash order.
    pub fn entries(&self) -> impl Iterator<Item = IndexEntry> + use<'a> {
        let block = *self;
        (0..self.count()).map_while(move |position| block.get(position))
    }

    /// The position of the entry under which a hash belongs: the last whose hash is not above it.
    ///
    /// Names of the hash may go on under the entries after it, as long as those
    /// [continue](IndexEntry::continues) it.
    #[must_use]
    pub fn search(&self, hash: u32) -> u16 {
        // The first entry has no hash and takes everything below the second.
        let behind = self.raw_entries().get(1..).unwrap_or_default();
        // There are no more entries than the count, of 16 bits, says.
        behind.partition_point(|entry| entry.hash.get() <= hash) as u16
    }

    /// Whether names of `hash` may go on under the entry after `position`.
    #[must_use]
    pub fn continues_after(&self, position: u16, hash: u32) -> bool {
        position
            .checked_add(1)
            .and_then(|next| self.get(next))
            .is_some_and(|entry| entry.continues() && entry.hash_value() == hash & !CONTINUATION)
    }
}

pub(super) fn index_error(place: DirectoryPlace, problem: IndexProblem) -> Corrupt {
    Corrupt::DirectoryIndex { inode: place.inode, block: place.block, problem }
}

/// The checksum over the entries in use and the tail's leftover word, and where it is stored.
fn checksum(bytes: &[u8], kind: IndexKind, layout: &DirectoryLayout) -> Option<(u32, usize)> {
    let seed = layout.checksum?;
    let block = IndexBlock::trusted(bytes, kind);
    let offset = kind.entries_offset();
    let used = bytes.get(..offset + usize::from(block.count()) * ENTRY_LENGTH)?;
    let tail_at = offset + usize::from(block.limit()) * ENTRY_LENGTH;
    let tail = bytes.get(tail_at..tail_at + size_of::<RawIndexTail>())?;
    let (reserved, _) = tail.split_first_chunk::<4>()?;
    let register = crc32c(crc32c(seed.append(used), reserved), &[0; 4]);
    Some((register, tail_at + reserved.len()))
}

/// Compares the checksum of an index block. Does nothing where the image has none.
///
/// # Errors
/// The checksum differs, or count and limit leave no place for one.
pub fn verify(
    bytes: &[u8],
    kind: IndexKind,
    layout: &DirectoryLayout,
    place: DirectoryPlace,
) -> Result<(), Corrupt> {
    if layout.checksum.is_none() {
        return Ok(());
    }
    let limit = IndexBlock::trusted(bytes, kind).limit();
    let stored =
        |at: usize| bytes.get(at..)?.first_chunk::<4>().map(|raw| u32::from_le_bytes(*raw));
    let expected = u16::try_from(kind.limit(bytes.len(), true)).unwrap_or(u16::MAX);
    let (computed, stored) = checksum(bytes, kind, layout)
        .and_then(|(computed, at)| Some((computed, stored(at)?)))
        .ok_or_else(|| index_error(place, IndexProblem::Limit { found: limit, expected }))?;
    if stored == computed {
        return Ok(());
    }
    Err(Corrupt::DirectoryChecksum { inode: place.inode, block: place.block, stored, computed })
}

/// Stores the checksum of an index block. Does nothing where the image has none.
pub fn seal(bytes: &mut [u8], kind: IndexKind, layout: &DirectoryLayout) {
    if let Some((checksum, at)) = checksum(bytes, kind, layout)
        && let Some(place) = bytes.get_mut(at..at + 4)
    {
        place.copy_from_slice(&checksum.to_le_bytes());
    }
}
