//! Which clusters a file owns, if a cluster has more than one block (bigalloc).
//!
//! # Invariants
//! The blocks of a file form logical clusters, as those of the device form physical ones. All
//! mapped blocks of a logical cluster are in one physical cluster, each at the same offset as in
//! the logical one. The file owns the physical cluster while any of these blocks is mapped.
//!
//! # Reference
//! "Bigalloc" in the kernel's documentation of ext4.

use super::store::Nodes;
use super::tree;
use crate::error::Result;
use drystone_ext4_format::PhysicalBlock;
use drystone_ext4_format::extent::Extent;

/// The physical cluster of a logical one, if any of its blocks is mapped.
pub(super) fn owned<N: Nodes>(nodes: &N, cluster: u64) -> Result<Option<PhysicalBlock>> {
    let ratio = u64::from(nodes.layout().blocks_per_cluster());
    let (start, end) = (cluster * ratio, (cluster + 1) * ratio);
    let Ok(first) = u32::try_from(start) else { return Ok(None) };
    let mapped = tree::next(nodes, first)?.and_then(|extent| extent.overlap(start, end));
    Ok(mapped.map(|extent| {
        let inside = extent.logical.as_u64() - start;
        // A damaged image may break the invariant; the allocator checks the resulting block.
        PhysicalBlock::new(extent.physical.get().saturating_sub(inside))
    }))
}

/// How many more blocks the inode owns once `extent` is mapped, which it isn't yet.
pub(super) fn gained<N: Nodes>(nodes: &N, extent: &Extent) -> Result<u64> {
    let ratio = u64::from(nodes.layout().blocks_per_cluster());
    if ratio == 1 {
        return Ok(u64::from(extent.length));
    }
    let runs = unowned(nodes, std::slice::from_ref(extent))?;
    Ok(runs.iter().map(|run| run.clusters * ratio).sum())
}

/// Whether the file still owns a cluster of which it had blocks in some unmapped extents. They are all
/// extents of a range, in falling order.
pub(super) fn is_any_kept<N: Nodes>(nodes: &N, extents: &[Extent]) -> Result<bool> {
    let ratio = u64::from(nodes.layout().blocks_per_cluster());
    let (Some(last), Some(first)) = (extents.first(), extents.last()) else { return Ok(false) };
    let (start, end) = (first.logical.as_u64(), last.logical_end());
    Ok(start % ratio != 0 && owned(nodes, start / ratio)?.is_some()
        || end % ratio != 0 && owned(nodes, end / ratio)?.is_some())
}

/// Consecutive clusters of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClusterRun {
    /// First block.
    pub start: PhysicalBlock,
    /// Number of clusters.
    pub clusters: u64,
}

/// The clusters of some unmapped extents in which the file has no mapped block. The extents are in
/// falling order and may share clusters.
pub(super) fn unowned<N: Nodes>(nodes: &N, extents: &[Extent]) -> Result<Vec<ClusterRun>> {
    let ratio = u64::from(nodes.layout().blocks_per_cluster());
    let mut runs = Vec::with_capacity(extents.len());
    let mut looked_at = u64::MAX;
    for extent in extents {
        let (start, end) = (extent.logical.as_u64(), extent.logical_end());
        let (first, last) = (start / ratio, (end - 1) / ratio);
        let mut low = first;
        let mut high = (last + 1).min(looked_at);
        looked_at = first;
        if high == last + 1 && end % ratio != 0 && owned(nodes, last)?.is_some() {
            high -= 1;
        }
        if low < high && start % ratio != 0 && owned(nodes, first)?.is_some() {
            low += 1;
        }
        if low < high {
            let at_first = extent.physical.get().saturating_sub(start % ratio);
            let start = PhysicalBlock::new(at_first + (low - first) * ratio);
            runs.push(ClusterRun { start, clusters: high - low });
        }
    }
    Ok(runs)
}
