//! The owners of clusters.
//!
//! Fixed metadata are a sorted list; everything else sets bits. A cluster that gets a second
//! owner is remembered, and its owners are looked up later, which needs no memory unless it
//! happens.

use crate::block_set::BlockSet;
use crate::issue::FixedPart;
use crate::memory::Memory;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, PhysicalBlock};
use drystone_sync::Arc;
use std::ops::Range;

/// Blocks of fixed metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedRange {
    pub start: u64,
    pub end: u64,
    pub part: FixedPart,
}

/// All clusters in use.
#[derive(Debug)]
pub(crate) struct Claims {
    layout: Layout,
    pub used: BlockSet,
    pub twice: BlockSet,
    /// In the order of their starts.
    pub fixed: Arc<Vec<FixedRange>>,
}

impl Claims {
    pub fn new(layout: &Layout, memory: &Memory) -> Self {
        Self::beside(Arc::default(), layout, memory)
    }

    /// None yet, beside the same fixed metadata.
    pub fn part(&self, memory: &Memory) -> Self {
        Self::beside(Arc::clone(&self.fixed), &self.layout, memory)
    }

    fn beside(fixed: Arc<Vec<FixedRange>>, layout: &Layout, memory: &Memory) -> Self {
        let clusters = u64::from(layout.group_count()) * u64::from(layout.clusters_per_group());
        let set = || BlockSet::within(clusters, memory);
        Self { layout: *layout, used: set(), twice: set(), fixed }
    }

    /// Adds the claims of a part.
    pub fn add_part(&mut self, part: &Self) {
        self.twice.add_all(&self.used.shared_with(&part.used));
        self.twice.add_all(&part.twice);
        self.used.add_all(&part.used);
    }

    /// The number after the last cluster of all groups.
    pub fn bound(&self) -> u64 {
        u64::from(self.layout.group_count()) * u64::from(self.layout.clusters_per_group())
    }

    /// A block's cluster, counted from the first data block. Block 0 in front of that is none.
    pub fn cluster(&self, block: u64) -> u64 {
        block.saturating_sub(u64::from(self.layout.first_data_block()))
            >> self.layout.log_cluster_ratio()
    }

    /// The first block of a cluster.
    pub fn block(&self, cluster: u64) -> PhysicalBlock {
        let offset = cluster << self.layout.log_cluster_ratio();
        PhysicalBlock::new(offset + u64::from(self.layout.first_data_block()))
    }

    pub fn clusters(&self, start: u64, end: u64) -> Range<u64> {
        self.cluster(start)..self.cluster(end.saturating_sub(1)) + 1
    }

    pub fn add_fixed(&mut self, start: PhysicalBlock, count: u64, part: FixedPart) {
        let (start, end) = (start.get(), start.get().saturating_add(count));
        self.used.add_range(self.clusters(start, end));
        Arc::make_mut(&mut self.fixed).push(FixedRange { start, end, part });
    }

    /// Brings the fixed ranges into the order of their starts, once all are added.
    pub fn sort_fixed(&mut self) {
        Arc::make_mut(&mut self.fixed).sort_by_key(|range| (range.start, range.end));
    }

    /// The fixed metadata that a range touches.
    pub fn fixed_at(&self, start: u64, end: u64) -> Option<FixedPart> {
        let behind = self.fixed.partition_point(|range| range.start < end);
        // Ranges may overlap in a damaged image, so that the nearest need not be the one.
        self.fixed[..behind].iter().rev().take(8).find(|range| range.end > start).map(|r| r.part)
    }

    /// Whether blocks lie in one copy of the superblock, or in what follows it of the descriptors.
    pub fn is_in_copy(&self, start: u64, end: u64) -> bool {
        let behind = self.fixed.partition_point(|range| range.start <= start);
        // As above.
        self.fixed[..behind].iter().rev().take(8).any(|range| {
            let is_copy =
                matches!(range.part, FixedPart::Base(group) if group != GroupNumber::FIRST);
            is_copy && end <= range.end
        })
    }

    /// Claims the clusters of one block.
    pub fn claim_block(&mut self, block: PhysicalBlock) {
        let cluster = self.cluster(block.get());
        self.used.insert_range(cluster..cluster + 1, &mut self.twice);
    }
}

/// The clusters that one inode claims.
#[derive(Debug, Default)]
pub(crate) struct InodeClaims {
    /// The last cluster with data, on the device and in the file: the next extent may go on in it.
    last: Option<(u64, u64)>,
    /// Clusters so far.
    pub count: u64,
}

impl InodeClaims {
    /// Whether an extent goes on in a cluster of the file whose blocks so far are in another cluster.
    pub fn is_split(&self, claims: &Claims, extent: &Extent) -> bool {
        let log_ratio = claims.layout.log_cluster_ratio();
        let (cluster, logical) =
            (claims.cluster(extent.physical.get()), extent.logical.as_u64() >> log_ratio);
        log_ratio > 0 && self.last.is_some_and(|last| last.1 == logical && last.0 != cluster)
    }

    /// The clusters of an extent, without the first if it is the same cluster of the file as the last
    /// one of the extent before. A cluster of one block is never shared.
    pub fn next(&mut self, claims: &Claims, extent: &Extent) -> Range<u64> {
        let log_ratio = claims.layout.log_cluster_ratio();
        let mut range = claims.clusters(extent.physical.get(), extent.physical_end().get());
        let first = (range.start, extent.logical.as_u64() >> log_ratio);
        let last = (range.end.max(1) - 1, (extent.logical_end().max(1) - 1) >> log_ratio);
        if log_ratio > 0 && self.last == Some(first) {
            range.start += 1;
        }
        self.last = Some(last);
        self.count += range.end.saturating_sub(range.start);
        range
    }
}
