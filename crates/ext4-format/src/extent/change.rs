//! Changing extent nodes in place.

use super::raw::{self, EntryBytes, HEADER_BYTES, MAGIC, RawHeader};
use super::{
    DEPTH_MAX, Extent, ExtentIndex, ExtentNode, NodeExpectation, NodePlace, ROOT_ENTRIES,
    check_header, entries_per_block, seal_block,
};
use crate::checksum::InodeSeed;
use crate::error::Corrupt;
use crate::ids::{LogicalBlock, PhysicalBlock};
use crate::layout::Layout;
use core::ops::Range;
use drystone_ondisk::little_endian::{U16, U32};
use zerocopy::IntoBytes;

/// A checked node of an extent tree that can be changed.
///
/// Entries stay in order. Inserting or replacing one out of order is a bug of the caller and
/// panics, as does a position beyond the entries or an entry of the other kind.
#[derive(Debug)]
pub struct ExtentNodeMut<'a> {
    bytes: &'a mut [u8],
    header: RawHeader,
    place: NodePlace,
}

impl<'a> ExtentNodeMut<'a> {
    /// Checks a node as [`ExtentNode::check`] does.
    pub fn check(
        bytes: &'a mut [u8],
        place: NodePlace,
        expectation: &NodeExpectation,
        layout: &Layout,
    ) -> Result<Self, Corrupt> {
        ExtentNode::check(bytes, place, expectation, layout)?;
        Self::reopen(bytes, place)
    }

    /// Opens a node that was checked before: looks at the magic number and the counts only.
    pub fn reopen(bytes: &'a mut [u8], place: NodePlace) -> Result<Self, Corrupt> {
        let header = check_header(bytes, place)?;
        Ok(Self { bytes, header, place })
    }

    /// Makes an empty node of zeroed bytes: an inode's block area or a whole block.
    ///
    /// # Panics
    /// If `depth` is above the limit or `bytes` too short.
    pub fn init(bytes: &'a mut [u8], place: NodePlace, depth: u16) -> Self {
        assert!(depth <= DEPTH_MAX, "extent tree of depth {depth}");
        bytes.fill(0);
        let max = if place.block.is_some() { entries_per_block(bytes.len()) } else { ROOT_ENTRIES };
        let header = RawHeader {
            magic: U16::new(MAGIC),
            entries: U16::ZERO,
            max: U16::new(max),
            depth: U16::new(depth),
            generation: U32::ZERO,
        };
        let mut node = Self { bytes, header, place };
        node.store_header();
        node
    }

    /// The node for reading.
    #[must_use]
    pub fn as_node(&self) -> ExtentNode<'_> {
        // Its header was checked when the node was opened, and every change keeps it right.
        ExtentNode::reopen(self.bytes, self.place).expect("an open node has a valid header")
    }

    /// Levels below this node: 0 for a leaf.
    #[must_use]
    pub const fn depth(&self) -> u16 {
        self.header.depth.get()
    }

    /// Number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.header.entries.get() as usize
    }

    /// Whether there are no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is no room for another entry.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.header.entries.get() >= self.header.max.get()
    }

    fn store_header(&mut self) {
        self.bytes[..HEADER_BYTES].copy_from_slice(self.header.as_bytes());
    }

    /// All room for entries, in use or not.
    fn slots(&mut self) -> &mut [EntryBytes] {
        let capacity = usize::from(self.header.max.get());
        &mut self.bytes[HEADER_BYTES..].as_chunks_mut().0[..capacity]
    }

    fn set_len(&mut self, len: usize) {
        assert!(len <= usize::from(self.header.max.get()), "{len} entries in an extent node");
        // Bounded by the capacity, which has 16 bits.
        self.header.entries.set(len as u16);
        self.store_header();
    }

    /// Whether an entry from `start` to before `end` may lie between two positions.
    fn assert_between(&self, before: Option<usize>, after: usize, start: LogicalBlock, end: u64) {
        let node = self.as_node();
        let previous_end = before.map_or(0, |position| match node.extent(position) {
            Some(extent) => extent.logical_end(),
            None => node.logical(position).map_or(0, |logical| logical.as_u64() + 1),
        });
        let next = node.logical(after).map_or(1 << 32, LogicalBlock::as_u64);
        assert!(
            previous_end <= start.as_u64() && end <= next,
            "extent entry {start}..{end} does not fit between {previous_end} and {next}"
        );
    }

    fn insert(&mut self, position: usize, entry: EntryBytes) {
        let len = self.len();
        assert!(position <= len, "insertion at {position} of {len} extent entries");
        self.set_len(len + 1);
        let slots = self.slots();
        slots.copy_within(position..len, position + 1);
        slots[position] = entry;
    }

    fn assert_extent(&self, extent: &Extent) {
        assert_eq!(self.depth(), 0, "an extent in an index node");
        assert!(
            (1..=extent.length_max()).contains(&extent.length) && extent.physical.get() >> 48 == 0,
            "{extent:?} can't be stored"
        );
    }

    fn assert_index(&self, index: &ExtentIndex) {
        assert_ne!(self.depth(), 0, "an index entry in a leaf");
        assert!(index.child.get() >> 48 == 0, "{index:?} can't be stored");
    }

    /// Inserts an extent into a leaf that has room, before the one at `position`.
    pub fn insert_extent(&mut self, position: usize, extent: &Extent) {
        self.assert_extent(extent);
        self.assert_between(
            position.checked_sub(1),
            position,
            extent.logical,
            extent.logical_end(),
        );
        self.insert(position, raw::encode_extent(extent));
    }

    /// Replaces an extent of a leaf.
    pub fn replace_extent(&mut self, position: usize, extent: &Extent) {
        self.assert_extent(extent);
        assert!(position < self.len(), "no extent at {position}");
        self.assert_between(
            position.checked_sub(1),
            position + 1,
            extent.logical,
            extent.logical_end(),
        );
        self.slots()[position] = raw::encode_extent(extent);
    }

    /// Inserts an entry into an index node that has room, before the one at `position`.
    pub fn insert_index(&mut self, position: usize, index: &ExtentIndex) {
        self.assert_index(index);
        let end = index.logical.as_u64() + 1;
        self.assert_between(position.checked_sub(1), position, index.logical, end);
        self.insert(position, raw::encode_index(index));
    }

    /// Replaces an entry of an index node.
    pub fn replace_index(&mut self, position: usize, index: &ExtentIndex) {
        self.assert_index(index);
        assert!(position < self.len(), "no index entry at {position}");
        let end = index.logical.as_u64() + 1;
        self.assert_between(position.checked_sub(1), position + 1, index.logical, end);
        self.slots()[position] = raw::encode_index(index);
    }

    /// Removes entries. An index node without entries must not be left in the tree.
    pub fn remove(&mut self, positions: Range<usize>) {
        let len = self.len();
        assert!(
            positions.start <= positions.end && positions.end <= len,
            "removal of {positions:?} of {len} extent entries"
        );
        let left = len - positions.len();
        let slots = self.slots();
        slots.copy_within(positions.end..len, positions.start);
        // Removed entries are zeroed, so that deleted maps don't confuse a recovery tool.
        slots[left..len].fill([0; size_of::<EntryBytes>()]);
        self.set_len(left);
    }

    /// Replaces entries by others of the node's kind. There must be room.
    ///
    /// An index node without entries must not be left in the tree.
    pub fn splice(&mut self, positions: Range<usize>, with: &[EntryBytes]) {
        let len = self.len();
        assert!(
            positions.start <= positions.end && positions.end <= len,
            "replacement of {positions:?} of {len} extent entries"
        );
        let left = len - positions.len() + with.len();
        let behind = positions.start + with.len();
        if left > len {
            self.set_len(left);
        }
        let slots = self.slots();
        slots.copy_within(positions.end..len, behind);
        slots[positions.start..behind].copy_from_slice(with);
        if left < len {
            slots[left..len].fill([0; size_of::<EntryBytes>()]);
            self.set_len(left);
        }
    }

    /// Moves the entries from `position` on to the end of a node of the same depth, usually an
    /// empty one to the right.
    pub fn move_tail(&mut self, position: usize, right: &mut ExtentNodeMut<'_>) {
        assert_eq!(self.depth(), right.depth(), "extent nodes of different depth");
        let len = self.len();
        assert!(position <= len, "split at {position} of {len} extent entries");
        let start = right.len();
        let count = len - position;
        right.set_len(start + count);
        right.slots()[start..start + count].copy_from_slice(&self.slots()[position..len]);
        self.remove(position..len);
    }

    /// Makes the tree deeper: moves all entries of this root to `block`, a new node of the same
    /// depth, and leaves one entry that points to it.
    ///
    /// The root must have entries and be above no more than the allowed levels.
    pub fn deepen<'b>(&mut self, child: &'b mut [u8], block: PhysicalBlock) -> ExtentNodeMut<'b> {
        assert!(self.place.block.is_none(), "only a root can be deepened");
        assert!(self.depth() < DEPTH_MAX, "extent tree of depth {}", self.depth());
        let first = self.as_node().logical(0).expect("only a root with entries can be deepened");
        let place = NodePlace::block(self.place.inode, block);
        let mut below = ExtentNodeMut::init(child, place, self.depth());
        self.move_tail(0, &mut below);
        self.header.depth.set(self.depth() + 1);
        self.store_header();
        self.insert_index(0, &ExtentIndex { logical: first, child: block });
        below
    }

    /// Makes the tree shallower: replaces this root's only entry by the entries of the child it
    /// points to, if they fit. Returns whether they did; the child is then no longer in use.
    pub fn flatten(&mut self, child: &ExtentNode<'_>) -> bool {
        assert!(self.place.block.is_none(), "only a root can be flattened");
        assert_eq!(self.depth(), child.depth() + 1, "not a child of this root");
        if self.len() != 1 || child.len() > usize::from(self.header.max.get()) {
            return false;
        }
        self.remove(0..1);
        self.header.depth.set(child.depth());
        self.set_len(child.len());
        self.slots()[..child.len()].copy_from_slice(child.entry_bytes());
        true
    }

    /// Makes this root an empty leaf.
    pub fn clear_root(&mut self) {
        assert!(self.place.block.is_none(), "only a root may become an empty leaf");
        self.remove(0..self.len());
        self.header.depth.set(0);
        self.store_header();
    }

    /// Computes and stores the checksum of a node in a block; the root is covered by its inode's.
    pub fn seal(&mut self, seed: Option<InodeSeed>) {
        if self.place.block.is_some() {
            seal_block(self.bytes, seed);
        }
    }
}
