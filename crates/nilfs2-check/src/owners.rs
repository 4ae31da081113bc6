//! Whether the logs and the maps agree on what blocks belong to, without keeping it for each block: a sum
//! for each segment, to which each side adds what it says of each block.

use crate::image::Image;
use drystone_nilfs2_format::{FileBlock, InodeNumber, PhysicalBlock, SegmentNumber, VirtualBlock};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What one side says of all blocks that live, summed up by segment.
#[derive(Debug, Default)]
pub(crate) struct OwnerSums(BTreeMap<u64, u64>);

impl OwnerSums {
    /// Adds a block: of a file's data if it has a key there, or else of its map.
    pub fn add(
        &mut self,
        image: &Image<'_>,
        place: PhysicalBlock,
        block: VirtualBlock,
        inode: InodeNumber,
        key: Option<FileBlock>,
    ) {
        let Some(segment) = image.geometry.segment_of(place) else { return };
        let mut hasher = DefaultHasher::new();
        (block, inode, key).hash(&mut hasher);
        let sum = self.0.entry(segment.0).or_default();
        *sum = sum.wrapping_add(hasher.finish());
    }

    /// Segments of which the sides say different things.
    pub fn differences<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = SegmentNumber> + 'a {
        let ours = self.0.iter().filter(|(segment, sum)| other.0.get(segment) != Some(sum));
        let others = other.0.keys().filter(|segment| !self.0.contains_key(segment));
        ours.map(|(segment, _)| segment).chain(others).copied().map(SegmentNumber)
    }
}
