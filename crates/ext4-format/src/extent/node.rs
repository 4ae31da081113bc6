//! Reading extent nodes.

use super::raw::{self, EntryBytes, HEADER_BYTES, RawHeader};
use super::{DEPTH_MAX, Extent, ExtentIndex, NodeExpectation, NodePlace, check_header};
use crate::error::{Corrupt, ExtentEntryProblem, ExtentHeaderProblem};
use crate::ids::{LogicalBlock, PhysicalBlock};
use crate::layout::Layout;

/// A checked node of an extent tree.
#[derive(Clone, Copy, Debug)]
pub struct ExtentNode<'a> {
    header: RawHeader,
    entries: &'a [EntryBytes],
}

impl<'a> ExtentNode<'a> {
    /// Checks a node: its header, and every entry against its neighbours, the parent and the
    /// image. Its checksum is checked by [`check_checksum`](super::check_checksum).
    pub fn check(
        bytes: &'a [u8],
        place: NodePlace,
        expectation: &NodeExpectation,
        layout: &Layout,
    ) -> Result<Self, Corrupt> {
        let node = Self::reopen(bytes, place)?;
        let found = node.depth();
        match expectation.depth {
            Some(expected) if found != expected => {
                return Err(place.header(ExtentHeaderProblem::Depth { found, expected }));
            }
            None if found > DEPTH_MAX => {
                let problem = ExtentHeaderProblem::Depth { found, expected: DEPTH_MAX };
                return Err(place.header(problem));
            }
            _ => {}
        }
        if node.entries.is_empty() && !node.is_leaf() {
            return Err(place.header(ExtentHeaderProblem::Empty));
        }
        node.check_entries(expectation, layout).map_err(|(position, problem)| {
            Corrupt::ExtentEntry {
                inode: place.inode,
                block: place.block,
                // There are at most as many entries as 16 bits count.
                entry: position as u16,
                problem,
            }
        })?;
        Ok(node)
    }

    /// Opens a node that was checked before: looks at the magic number and the counts only.
    pub fn reopen(bytes: &'a [u8], place: NodePlace) -> Result<Self, Corrupt> {
        let header = check_header(bytes, place)?;
        // The header was checked to fit.
        let (entries, _) = bytes[HEADER_BYTES..].as_chunks();
        Ok(Self { header, entries: &entries[..usize::from(header.entries.get())] })
    }

    fn check_entries(
        &self,
        expectation: &NodeExpectation,
        layout: &Layout,
    ) -> Result<(), (usize, ExtentEntryProblem)> {
        let mut previous_end = 0;
        for (position, entry) in self.entries.iter().enumerate() {
            let fail = |problem| Err((position, problem));
            let start = raw::logical_of(entry);
            let (physical, length, end) = if self.is_leaf() {
                let extent = raw::decode_extent(entry);
                (extent.physical, extent.length, extent.logical_end())
            } else {
                (raw::decode_index(entry).child, 1, start.as_u64() + 1)
            };
            if length == 0 {
                return fail(ExtentEntryProblem::Length);
            }
            if start.as_u64() < previous_end {
                return fail(ExtentEntryProblem::Order { start, previous_end });
            }
            let starts_elsewhere = position == 0
                && expectation.logical_start.is_some_and(|expected| expected != start);
            if starts_elsewhere || end > expectation.logical_end {
                return fail(ExtentEntryProblem::OutsideParent { start, end });
            }
            // The number 2^32 - 1 is not a block: sizes in blocks must have 32 bits as well.
            if self.is_leaf() && end > u64::from(u32::MAX) {
                return fail(ExtentEntryProblem::LogicalRange { start, length });
            }
            let is_data = physical.get() > u64::from(layout.first_data_block());
            if !is_data || !layout.contains_blocks(physical, u64::from(length)) {
                return fail(ExtentEntryProblem::PhysicalRange { start: physical, length });
            }
            previous_end = end;
        }
        Ok(())
    }

    /// Levels below this node: 0 for a leaf.
    #[must_use]
    pub const fn depth(&self) -> u16 {
        self.header.depth.get()
    }

    /// Whether the entries are extents.
    #[must_use]
    pub const fn is_leaf(&self) -> bool {
        self.depth() == 0
    }

    /// Number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Room for entries.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.header.max.get() as usize
    }

    /// Whether there is no room for another entry.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len() >= self.capacity()
    }

    /// First block of the file that an entry stands for.
    #[must_use]
    pub fn logical(&self, position: usize) -> Option<LogicalBlock> {
        self.entries.get(position).map(raw::logical_of)
    }

    /// An extent of a leaf; nothing in an index node.
    #[must_use]
    pub fn extent(&self, position: usize) -> Option<Extent> {
        self.extent_entries().get(position).map(raw::decode_extent)
    }

    /// The extents of a leaf in order; none in an index node.
    pub fn extents(&self) -> impl DoubleEndedIterator<Item = Extent> + ExactSizeIterator + 'a {
        self.extent_entries().iter().map(raw::decode_extent)
    }

    /// An entry of an index node; nothing in a leaf.
    #[must_use]
    pub fn index(&self, position: usize) -> Option<ExtentIndex> {
        self.index_entries().get(position).map(raw::decode_index)
    }

    /// The entries of an index node in order; none in a leaf.
    pub fn indexes(&self) -> impl DoubleEndedIterator<Item = ExtentIndex> + ExactSizeIterator + 'a {
        self.index_entries().iter().map(raw::decode_index)
    }

    /// The entries as they are stored.
    #[must_use]
    pub const fn entry_bytes(&self) -> &'a [EntryBytes] {
        self.entries
    }

    const fn extent_entries(&self) -> &'a [EntryBytes] {
        if self.is_leaf() { self.entries } else { &[] }
    }

    const fn index_entries(&self) -> &'a [EntryBytes] {
        if self.is_leaf() { &[] } else { self.entries }
    }

    /// The last entry that starts at or before a block of the file.
    ///
    /// In an index node this is the child to descend to; if there is none, the block lies before
    /// everything that the node maps. In a leaf the extent may end before the block.
    #[must_use]
    pub fn position_of(&self, logical: LogicalBlock) -> Option<usize> {
        self.entries.partition_point(|entry| raw::logical_of(entry) <= logical).checked_sub(1)
    }

    /// The extent of a leaf that holds a block of the file.
    #[must_use]
    pub fn find(&self, logical: LogicalBlock) -> Option<Extent> {
        self.extent(self.position_of(logical)?).filter(|extent| extent.contains(logical))
    }

    /// The child that an entry of an index node points to, and what it must be.
    #[must_use]
    pub fn child(
        &self,
        position: usize,
        expectation: &NodeExpectation,
    ) -> Option<(PhysicalBlock, NodeExpectation)> {
        let index = self.index(position)?;
        let end = self.logical(position + 1).map_or(expectation.logical_end, LogicalBlock::as_u64);
        // An index node's depth is at least 1.
        Some((index.child, NodeExpectation::child(self.depth() - 1, index.logical, end)))
    }
}
