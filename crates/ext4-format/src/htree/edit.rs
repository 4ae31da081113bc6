//! Changing index blocks.

use super::raw::{RawCountLimit, RawIndexEntry, RawIndexNode, RawIndexRoot};
use super::view::{ENTRY_LENGTH, IndexBlock, IndexEntry, IndexKind};
use crate::dir::{DirectoryLayout, EntryType, NoRoom, RawRecordHeader};
use crate::hash::HashVersion;
use crate::ids::{InodeNumber, LogicalBlock};
use zerocopy::{FromBytes, IntoBytes};

/// An index block, open for changes.
///
/// Positions come from [`IndexBlock::search`] on the same bytes. A position that the block doesn't
/// have is a bug of the caller and changes nothing.
#[derive(Debug)]
pub struct IndexBlockMut<'a> {
    bytes: &'a mut [u8],
    kind: IndexKind,
}

impl<'a> IndexBlockMut<'a> {
    /// Opens a block that has been checked since it was read. On other bytes it never panics.
    #[must_use]
    pub fn trusted(bytes: &'a mut [u8], kind: IndexKind) -> Self {
        Self { bytes, kind }
    }

    /// The block as it is now.
    #[must_use]
    pub fn view(&self) -> IndexBlock<'_> {
        IndexBlock::trusted(self.bytes, self.kind)
    }

    /// Adds an entry after the one at `position`: that one's block was split and the names from
    /// `entry.hash` on moved to `entry.block`.
    ///
    /// # Errors
    /// The block is full.
    pub fn insert_after(&mut self, position: u16, entry: IndexEntry) -> Result<(), NoRoom> {
        let count = self.view().count();
        if self.view().is_full() || position >= count {
            return Err(NoRoom);
        }
        let from = self.offset(position + 1);
        let to = self.offset(count);
        if to + ENTRY_LENGTH > self.bytes.len() {
            return Err(NoRoom);
        }
        self.bytes.copy_within(from..to, from + ENTRY_LENGTH);
        self.set_count(count + 1);
        self.write(position + 1, entry);
        Ok(())
    }

    /// Makes the entry at `position` point at another block.
    pub fn set_block(&mut self, position: u16, block: LogicalBlock) {
        if let Some(entry) = self.view().get(position) {
            self.write(position, IndexEntry { block, ..entry });
        }
    }

    /// Makes room for a checksum, which is still to be sealed, or uses that room for entries.
    ///
    /// # Errors
    /// The entries leave too little room; the block is unchanged.
    pub fn set_checksummed(&mut self, has_checksum: bool) -> Result<(), NoRoom> {
        let limit = self.kind.limit(self.bytes.len(), has_checksum);
        // At most 64 KiB of entries of 8 bytes.
        let limit = limit as u16;
        if self.view().count() > limit {
            return Err(NoRoom);
        }
        let unused = self.offset(self.view().count());
        if let Some(rest) = self.bytes.get_mut(unused..) {
            rest.fill(0);
        }
        let offset = self.offset(0);
        if let Ok((raw, _)) = RawCountLimit::mut_from_prefix(&mut self.bytes[offset..]) {
            raw.limit = limit.into();
        }
        Ok(())
    }

    /// Makes `..` name another directory; only a root has it.
    pub fn set_parent(&mut self, parent: InodeNumber) {
        if let Some(root) = self.root_mut() {
            root.dotdot.inode = parent.get().into();
        }
    }

    /// Moves the upper half of the entries to a fresh node and returns the hash at which it starts.
    /// The caller inserts the entry for the new node into the parent.
    ///
    /// # Errors
    /// The block has fewer than two entries.
    pub fn split_into(
        &mut self,
        upper: &mut [u8],
        layout: &DirectoryLayout,
    ) -> Result<u32, NoRoom> {
        let entries: Vec<IndexEntry> = self.view().entries().collect();
        let keep = entries.len() / 2;
        let Some(first) = entries.get(keep).filter(|_| keep > 0).copied() else {
            return Err(NoRoom);
        };
        init_node(upper, layout, first.block);
        let mut node = IndexBlockMut::trusted(upper, IndexKind::Node);
        for (position, &entry) in (0..).zip(&entries[keep + 1..]) {
            node.insert_after(position, entry)?;
        }
        self.truncate(keep as u16);
        Ok(first.hash)
    }

    /// Moves all entries of a root to a fresh node, which becomes the root's only entry: the tree
    /// is one level higher. The caller knows that this is allowed.
    ///
    /// # Errors
    /// This is not a root.
    pub fn raise_into(
        &mut self,
        node: &mut [u8],
        layout: &DirectoryLayout,
        node_block: LogicalBlock,
    ) -> Result<(), NoRoom> {
        let entries: Vec<IndexEntry> = self.view().entries().collect();
        let (Some(first), Some(levels)) = (entries.first(), self.view().levels()) else {
            return Err(NoRoom);
        };
        init_node(node, layout, first.block);
        let mut lower = IndexBlockMut::trusted(node, IndexKind::Node);
        for (position, &entry) in (0..).zip(&entries[1..]) {
            lower.insert_after(position, entry)?;
        }
        self.truncate(1);
        self.write(0, IndexEntry { hash: 0, block: node_block });
        self.set_levels(levels.saturating_add(1));
        Ok(())
    }

    /// Stores how many levels of nodes are below; only a root has that.
    pub(super) fn set_levels(&mut self, levels: u8) {
        if let Some(root) = self.root_mut() {
            root.levels = levels;
        }
    }

    fn offset(&self, position: u16) -> usize {
        self.kind.entries_offset() + usize::from(position) * ENTRY_LENGTH
    }

    fn root_mut(&mut self) -> Option<&mut RawIndexRoot> {
        if self.kind == IndexKind::Node {
            return None;
        }
        RawIndexRoot::mut_from_prefix(self.bytes).ok().map(|(root, _)| root)
    }

    fn set_count(&mut self, count: u16) {
        let offset = self.offset(0);
        if let Some(bytes) = self.bytes.get_mut(offset..)
            && let Ok((raw, _)) = RawCountLimit::mut_from_prefix(bytes)
        {
            raw.count = count.into();
        }
    }

    /// Keeps the first `count` entries and clears what the others held.
    fn truncate(&mut self, count: u16) {
        let range = self.offset(count)..self.offset(self.view().count());
        if let Some(rest) = self.bytes.get_mut(range) {
            rest.fill(0);
        }
        self.set_count(count);
    }

    fn write(&mut self, position: u16, entry: IndexEntry) {
        let offset = self.offset(position);
        if let Some(bytes) = self.bytes.get_mut(offset..)
            && let Ok((raw, _)) = RawIndexEntry::mut_from_prefix(bytes)
        {
            raw.block = entry.block.get().into();
            if position != 0 {
                raw.hash = entry.hash.into();
            }
        }
    }
}

/// Writes count and limit for one entry, and that entry.
fn init_entries(bytes: &mut [u8], kind: IndexKind, layout: &DirectoryLayout, first: LogicalBlock) {
    let limit = kind.limit(bytes.len(), layout.checksum.is_some());
    assert!(limit >= 2, "an index block has room for entries");
    let counts = RawCountLimit { limit: (limit as u16).into(), count: 1.into() };
    let at = kind.entries_offset();
    bytes[at..at + size_of::<RawCountLimit>()].copy_from_slice(counts.as_bytes());
    IndexBlockMut::trusted(bytes, kind).write(0, IndexEntry { hash: 0, block: first });
}

/// Makes a node with one entry, which takes all hashes that lead here.
///
/// # Panics
/// If the slice isn't as long as a block can be.
pub fn init_node(bytes: &mut [u8], layout: &DirectoryLayout, first: LogicalBlock) {
    bytes.fill(0);
    let record_length = u16::try_from(bytes.len()).unwrap_or(0xffff);
    let record = RawRecordHeader {
        inode: 0.into(),
        record_length: record_length.into(),
        name_length: 0,
        file_type: 0,
    };
    let node = RawIndexNode { record };
    bytes[..size_of::<RawIndexNode>()].copy_from_slice(node.as_bytes());
    init_entries(bytes, IndexKind::Node, layout, first);
}

/// Makes the root of a hashed directory with one leaf.
///
/// # Panics
/// If the slice isn't as long as a block can be.
pub fn init_root(
    bytes: &mut [u8],
    layout: &DirectoryLayout,
    own: InodeNumber,
    parent: InodeNumber,
    hash_version: HashVersion,
    first: LogicalBlock,
) {
    bytes.fill(0);
    let entry_type = if layout.file_type { EntryType::Directory.to_raw() } else { 0 };
    let record = |inode: InodeNumber, record_length: usize, name_length| RawRecordHeader {
        inode: inode.get().into(),
        // The longest is 64 KiB less 12.
        record_length: (record_length as u16).into(),
        name_length,
        file_type: entry_type,
    };
    let root = RawIndexRoot {
        dot: record(own, 12, 1),
        dot_name: *b".\0\0\0",
        dotdot: record(parent, bytes.len() - 12, 2),
        dotdot_name: *b"..\0\0",
        reserved: 0.into(),
        hash_version: hash_version.stored_in_root().to_raw(),
        info_length: 8,
        levels: 0,
        unused_flags: 0,
    };
    bytes[..size_of::<RawIndexRoot>()].copy_from_slice(root.as_bytes());
    init_entries(bytes, IndexKind::Root, layout, first);
}
