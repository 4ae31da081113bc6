//! Inserts extents.

use super::edit;
use super::path::ExtentPath;
use crate::error::Result;
use crate::mapping::store::NodesMut;
use drystone_ext4_format::extent::{Extent, ExtentNodeMut, NodePlace};
use drystone_ext4_format::{Corrupt, InodeNumber, LogicalBlock};

/// Inserts an extent where nothing is mapped.
///
/// # Errors
/// `Corrupt` if a block is mapped already; then nothing has changed.
pub(in crate::mapping) fn insert<N: NodesMut>(nodes: &mut N, extent: Extent) -> Result<()> {
    let path = ExtentPath::find(nodes, extent.logical)?;
    let free_from = path.previous.map_or(0, |previous| previous.logical_end());
    // The caller has found a hole with the inode locked; but in a damaged image another inode may
    // use the same leaf.
    if free_from > extent.logical.as_u64() || path.next_start() < extent.logical_end() {
        return Err(Corrupt::BlockMapped { inode: nodes.inode(), block: extent.logical }.into());
    }
    let goal = path.leaf().block().unwrap_or(extent.physical);
    let mut change = LeafChange::new(path.leaf().position, extent);
    change.merge_around(path.previous, path.next);
    edit::replace(nodes, &path, change.position, change.removed, change.with(), goal)
}

/// The fast path of an append: adds an extent after all others of a tree that consists of its
/// root. Returns whether it did.
pub(in crate::mapping) fn append_to_root(
    root: &mut [u8],
    inode: InodeNumber,
    extent: &Extent,
) -> bool {
    // If the root can't be read, the slow path returns the error.
    let Ok(mut root) = ExtentNodeMut::reopen(root, NodePlace::root(inode)) else { return false };
    let node = root.as_node();
    let (count, room) = (node.len(), node.capacity());
    if node.depth() > 0 {
        return false;
    }
    let last = count.checked_sub(1).and_then(|last| node.extent(last));
    match last {
        Some(last) if last.logical_end() > extent.logical.as_u64() => return false,
        Some(last) if let Some(merged) = last.merge(extent) => {
            root.replace_extent(count - 1, &merged);
        }
        _ if count < room => root.insert_extent(count, extent),
        _ => return false,
    }
    true
}

/// The replacement of some extents of a leaf by one, merged with its neighbours where possible.
struct LeafChange {
    position: usize,
    removed: usize,
    extent: Extent,
}

impl LeafChange {
    fn new(position: usize, extent: Extent) -> LeafChange {
        LeafChange { position, removed: 0, extent }
    }

    fn merge_around(&mut self, previous: Option<Extent>, next: Option<Extent>) {
        if let Some(merged) = previous.and_then(|previous| previous.merge(&self.extent)) {
            self.extent = merged;
            self.position -= 1;
            self.removed += 1;
        }
        if let Some(merged) = next.and_then(|next| self.extent.merge(&next)) {
            self.extent = merged;
            self.removed += 1;
        }
    }

    fn with(&self) -> &[Extent] {
        std::slice::from_ref(&self.extent)
    }
}

/// Splits the extent that has blocks on both sides of `at`.
pub(in crate::mapping) fn split_at<N: NodesMut>(nodes: &mut N, at: u32) -> Result<()> {
    let path = ExtentPath::find(nodes, LogicalBlock::new(at))?;
    let Some(extent) = path.previous else { return Ok(()) };
    let middle = u64::from(at);
    let (Some(left), Some(right)) = (extent.overlap(0, middle), extent.overlap(middle, u64::MAX))
    else {
        return Ok(());
    };
    let goal = path.leaf().block().unwrap_or(extent.physical);
    edit::replace(nodes, &path, path.leaf().position - 1, 1, &[left, right], goal)
}
