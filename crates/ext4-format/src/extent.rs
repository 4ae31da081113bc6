//! Extent trees: which blocks of the device hold which blocks of a file.
//!
//! A node is the 60-byte area of an inode (the root) or a block. [`ExtentNode::check`] is the door
//! for reading and [`ExtentNodeMut::check`] for changing one in place; both look at every entry. A
//! node that was checked when it was read, and that only this module has changed since, is opened
//! again with `reopen`, which looks only at the header.
//!
//! # Invariants
//! Entries are in order and don't overlap; those of a node below the root start exactly where the
//! parent's entry says and end before the parent's next entry; an index node has entries; the
//! depth falls by one from parent to child.
//!
//! # Reference
//! "Extent Tree" in the kernel's ext4 data structure pages.

mod change;
mod node;
mod raw;

pub use change::ExtentNodeMut;
pub use node::ExtentNode;
pub use raw::EntryBytes;
pub use raw::{EXTENT_FIELDS, HEADER_FIELDS, INDEX_FIELDS};

use crate::checksum::InodeSeed;
use crate::error::{Corrupt, ExtentHeaderProblem};
use crate::ids::{InodeNumber, LogicalBlock, PhysicalBlock};
use drystone_ondisk::crc32c;
use raw::{ENTRY_BYTES, HEADER_BYTES, RawHeader, TAIL_BYTES};
use zerocopy::FromBytes;

/// Most levels below the root that a tree may have.
pub const DEPTH_MAX: u16 = 5;
/// Most blocks of a written extent.
pub const WRITTEN_BLOCKS_MAX: u32 = 32_768;
/// Most blocks of an unwritten extent.
pub const UNWRITTEN_BLOCKS_MAX: u32 = 32_767;
/// Entries of the root in an inode.
pub const ROOT_ENTRIES: u16 = 4;
/// By how many entries the stored room of a node may fall short of its real room; e2fsck accepts as
/// many. It is small enough that a full node can always be split.
const SPARE_ENTRIES: usize = 2;

/// Entries of a node in a block.
#[must_use]
pub const fn entries_per_block(block_size: usize) -> u16 {
    // At most 5460.
    ((block_size - HEADER_BYTES) / ENTRY_BYTES) as u16
}

/// Blocks of a file that lie together on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First block of the file.
    pub logical: LogicalBlock,
    /// Number of blocks: 1 to [`WRITTEN_BLOCKS_MAX`] or [`UNWRITTEN_BLOCKS_MAX`].
    pub length: u32,
    /// First block of the device.
    pub physical: PhysicalBlock,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// The number after the last block of the file; may be 2^32.
    #[must_use]
    pub const fn logical_end(&self) -> u64 {
        self.logical.as_u64() + self.length as u64
    }

    /// The number after the last block of the device.
    #[must_use]
    pub const fn physical_end(&self) -> PhysicalBlock {
        // The start has 48 bits.
        PhysicalBlock::new(self.physical.get() + self.length as u64)
    }

    /// One block of a file, written.
    #[must_use]
    pub const fn of_block(logical: LogicalBlock, physical: PhysicalBlock) -> Self {
        Self { logical, length: 1, physical, unwritten: false }
    }

    /// Adds this extent to a list: as a part of the last one if they [`merge`](Self::merge).
    pub fn append_to(self, list: &mut Vec<Self>) {
        match list.last_mut().and_then(|last| Some((last.merge(&self)?, last))) {
            Some((merged, last)) => *last = merged,
            None => list.push(self),
        }
    }

    /// Whether a block of the file lies in this extent.
    #[must_use]
    pub const fn contains(&self, logical: LogicalBlock) -> bool {
        logical.get() >= self.logical.get() && logical.as_u64() < self.logical_end()
    }

    /// Where a block of the file lies on the device.
    #[must_use]
    pub const fn physical_of(&self, logical: LogicalBlock) -> Option<PhysicalBlock> {
        if !self.contains(logical) {
            return None;
        }
        let offset = logical.as_u64() - self.logical.as_u64();
        Some(PhysicalBlock::new(self.physical.get() + offset))
    }

    /// Most blocks of an extent of this kind.
    #[must_use]
    pub const fn length_max(&self) -> u32 {
        if self.unwritten { UNWRITTEN_BLOCKS_MAX } else { WRITTEN_BLOCKS_MAX }
    }

    /// This extent and the next as one, if they are of one kind, adjoin in the file and on the
    /// device, and are not too long together.
    #[must_use]
    pub fn merge(&self, next: &Self) -> Option<Self> {
        let length = self.length.checked_add(next.length)?;
        let fits = self.unwritten == next.unwritten
            && self.logical_end() == next.logical.as_u64()
            && self.physical_end() == next.physical
            && length <= self.length_max();
        fits.then_some(Self { length, ..*self })
    }

    /// The part that lies in a range of the file, if any.
    #[must_use]
    pub fn overlap(&self, from: u64, to: u64) -> Option<Self> {
        let start = self.logical.as_u64().max(from);
        let end = self.logical_end().min(to);
        if start >= end {
            return None;
        }
        let skipped = start - self.logical.as_u64();
        Some(Self {
            // Both lie inside this extent, so they fit.
            logical: LogicalBlock::new(start as u32),
            length: (end - start) as u32,
            physical: PhysicalBlock::new(self.physical.get() + skipped),
            ..*self
        })
    }

    /// What a leaf's entry says, unchecked.
    #[must_use]
    pub fn from_entry(entry: &EntryBytes) -> Self {
        raw::decode_extent(entry)
    }

    /// The bytes of a leaf's entry.
    ///
    /// # Panics
    /// If the length or the block can't be stored.
    #[must_use]
    pub fn entry(&self) -> EntryBytes {
        assert!(
            (1..=self.length_max()).contains(&self.length) && self.physical.get() >> 48 == 0,
            "{self:?} can't be stored"
        );
        raw::encode_extent(self)
    }

    /// The parts before and from a block of the file that lies inside, but is not the first.
    #[must_use]
    pub fn split(&self, at: LogicalBlock) -> Option<(Self, Self)> {
        let head = at.distance_from(self.logical)?;
        if head == 0 || head >= self.length {
            return None;
        }
        let physical = self.physical.checked_add(u64::from(head))?;
        let tail = Self { logical: at, length: self.length - head, physical, ..*self };
        Some((Self { length: head, ..*self }, tail))
    }
}

/// An entry of an index node: the child that maps the blocks from here to the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtentIndex {
    /// First block of the file that the child maps.
    pub logical: LogicalBlock,
    /// Block of the child.
    pub child: PhysicalBlock,
}

impl ExtentIndex {
    /// The bytes of an index node's entry.
    ///
    /// # Panics
    /// If the block can't be stored.
    #[must_use]
    pub fn entry(&self) -> EntryBytes {
        assert!(self.child.get() >> 48 == 0, "{self:?} can't be stored");
        raw::encode_index(self)
    }
}

/// First block of the file that an entry of either kind stands for.
#[must_use]
pub fn entry_logical(entry: &EntryBytes) -> LogicalBlock {
    raw::logical_of(entry)
}

/// Which node of whose tree: the place that errors name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// Whose tree.
    pub inode: InodeNumber,
    /// The node's block, or none for the root in the inode.
    pub block: Option<PhysicalBlock>,
}

impl NodePlace {
    /// The root in an inode.
    #[must_use]
    pub const fn root(inode: InodeNumber) -> Self {
        Self { inode, block: None }
    }

    /// A node in a block.
    #[must_use]
    pub const fn block(inode: InodeNumber, block: PhysicalBlock) -> Self {
        Self { inode, block: Some(block) }
    }

    const fn header(self, problem: ExtentHeaderProblem) -> Corrupt {
        Corrupt::ExtentHeader { inode: self.inode, block: self.block, problem }
    }
}

/// What a node must satisfy to fit under its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeExpectation {
    depth: Option<u16>,
    logical_start: Option<LogicalBlock>,
    logical_end: u64,
}

impl NodeExpectation {
    /// A root: any depth up to the limit, any block.
    pub const ROOT: Self = Self { depth: None, logical_start: None, logical_end: 1 << 32 };

    /// A node below the root: of this depth, from exactly `start` to before `end`.
    #[must_use]
    pub const fn child(depth: u16, start: LogicalBlock, end: u64) -> Self {
        Self { depth: Some(depth), logical_start: Some(start), logical_end: end }
    }

    /// The number after the last block of the file that the node may map.
    #[must_use]
    pub const fn logical_end(&self) -> u64 {
        self.logical_end
    }
}

/// Checks the checksum of a node in a block; the root is covered by its inode's.
///
/// Where the checksum lies depends on the header, which is therefore checked first.
pub fn check_checksum(
    bytes: &[u8],
    inode: InodeNumber,
    block: PhysicalBlock,
    seed: Option<InodeSeed>,
) -> Result<(), Corrupt> {
    let header = check_header(bytes, NodePlace::block(inode, block))?;
    let Some(seed) = seed else { return Ok(()) };
    let (body, tail) = bytes.split_at(tail_offset(&header));
    let stored = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
    let computed = crc32c(seed.get(), body);
    if stored == computed {
        Ok(())
    } else {
        Err(Corrupt::ExtentChecksum { inode, block, stored, computed })
    }
}

/// Computes and stores the checksum of a node in a block. The node need not be sound: nothing happens if its room for
/// entries leaves no place for the checksum, or if the image has none.
pub fn seal_block(bytes: &mut [u8], seed: Option<InodeSeed>) {
    let Ok((header, _)) = RawHeader::read_from_prefix(bytes) else { return };
    let Some((body, tail)) = bytes.split_at_mut_checked(tail_offset(&header)) else { return };
    if let (Some(seed), Some(checksum)) = (seed, tail.first_chunk_mut()) {
        *checksum = crc32c(seed.get(), body).to_le_bytes();
    }
}

/// The checksum of a node in a block follows the room for entries.
fn tail_offset(header: &RawHeader) -> usize {
    HEADER_BYTES + ENTRY_BYTES * usize::from(header.max.get())
}

/// Checks what can be checked without the parent: the magic number, that there is as much room as
/// the bytes have, and that entries fit.
fn check_header(bytes: &[u8], place: NodePlace) -> Result<RawHeader, Corrupt> {
    let Ok((header, rest)) = RawHeader::read_from_prefix(bytes) else {
        return Err(Corrupt::Truncated {
            structure: "extent node",
            needed: HEADER_BYTES,
            found: bytes.len(),
        });
    };
    if header.magic.get() != raw::MAGIC {
        return Err(place.header(ExtentHeaderProblem::Magic { found: header.magic.get() }));
    }
    let tail = if place.block.is_some() { TAIL_BYTES } else { 0 };
    let fits = rest.len().saturating_sub(tail) / ENTRY_BYTES;
    let (max, entries) = (header.max.get(), header.entries.get());
    let room = usize::from(max);
    if max == 0 || room > fits || room + SPARE_ENTRIES < fits {
        let fits = u16::try_from(fits).unwrap_or(u16::MAX);
        return Err(place.header(ExtentHeaderProblem::Max { max, fits }));
    }
    if entries > max {
        return Err(place.header(ExtentHeaderProblem::Entries { entries, max }));
    }
    Ok(header)
}

#[cfg(test)]
mod tests;
