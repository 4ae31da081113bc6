//! Where the journal's blocks are.

use crate::{JournalError, JournalResult};
use drystone_blockdev::BlockDevice;
use drystone_sync::Arc;
use std::ops::Range;

/// A run of journal blocks on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalExtent {
    /// First block on the device.
    pub physical_start: u64,
    /// Number of blocks.
    pub length_blocks: u32,
}

/// Maps journal blocks to blocks of a device.
#[derive(Clone, Debug)]
pub struct JournalArea {
    place: AreaPlace,
}

#[derive(Clone, Debug)]
enum AreaPlace {
    /// On the file system's device.
    Internal {
        /// (First journal block, extent), in order, without holes.
        extents: Vec<(u32, JournalExtent)>,
        /// The device blocks of these extents, sorted and without overlap.
        taken: Vec<Range<u64>>,
    },
    /// On a device of its own, where every journal block but the superblock has the device's
    /// number.
    External { device: Arc<dyn BlockDevice>, superblock: u64 },
}

impl JournalArea {
    /// A journal in the file system: its extents in the order of its blocks.
    #[must_use]
    pub fn internal(extents: impl IntoIterator<Item = JournalExtent>) -> Self {
        let mut next = 0_u32;
        let mut placed = Vec::new();
        for extent in extents {
            placed.push((next, extent));
            next = next.saturating_add(extent.length_blocks);
        }
        let taken = merge(&placed);
        Self { place: AreaPlace::Internal { extents: placed, taken } }
    }

    /// A journal on a device of its own, whose superblock is block `superblock` there: 2 with
    /// blocks of 1 KiB, 1 with larger ones.
    #[must_use]
    pub fn external(device: Arc<dyn BlockDevice>, superblock: u64) -> Self {
        Self { place: AreaPlace::External { device, superblock } }
    }

    /// Whether the journal has a device of its own.
    #[must_use]
    pub fn is_external(&self) -> bool {
        matches!(self.place, AreaPlace::External { .. })
    }

    /// The journal's device, given the file system's.
    #[must_use]
    pub fn device<'a>(&'a self, main: &'a Arc<dyn BlockDevice>) -> &'a Arc<dyn BlockDevice> {
        match &self.place {
            AreaPlace::Internal { .. } => main,
            AreaPlace::External { device, .. } => device,
        }
    }

    /// How many journal blocks there is room for.
    #[must_use]
    pub fn length_blocks(&self, block_size_bytes: u32) -> u64 {
        match &self.place {
            AreaPlace::Internal { extents, .. } => extents
                .last()
                .map_or(0, |(start, extent)| u64::from(*start) + u64::from(extent.length_blocks)),
            AreaPlace::External { device, .. } => device.size_bytes() / u64::from(block_size_bytes),
        }
    }

    /// Whether `physical`, a block of the file system's device, is the journal's.
    #[must_use]
    pub fn contains(&self, physical: u64) -> bool {
        match &self.place {
            AreaPlace::Internal { taken, .. } => {
                let behind = taken.partition_point(|run| run.end <= physical);
                taken.get(behind).is_some_and(|run| run.contains(&physical))
            }
            AreaPlace::External { .. } => false,
        }
    }

    /// The journal's blocks on the file system's device, sorted and without overlap.
    #[must_use]
    pub fn taken(&self) -> &[Range<u64>] {
        match &self.place {
            AreaPlace::Internal { taken, .. } => taken,
            AreaPlace::External { .. } => &[],
        }
    }

    /// Where journal block `block` is on the journal's device, and how many blocks from there (1 to
    /// `blocks`) are contiguous.
    ///
    /// # Errors
    /// [`JournalError::Mismatch`] if there is no such block.
    pub(crate) fn run(&self, blocks: Range<u32>) -> JournalResult<(u64, u32)> {
        let count = blocks.end.saturating_sub(blocks.start).max(1);
        match &self.place {
            // Only the superblock is elsewhere.
            AreaPlace::External { superblock, .. } if blocks.start == 0 => Ok((*superblock, 1)),
            AreaPlace::External { .. } => Ok((u64::from(blocks.start), count)),
            AreaPlace::Internal { extents, .. } => {
                let index = extents.partition_point(|(start, _)| *start <= blocks.start);
                let found = index.checked_sub(1).and_then(|index| {
                    let (start, extent) = extents.get(index)?;
                    let offset = blocks.start - start;
                    let left = extent.length_blocks.checked_sub(offset).filter(|&left| left > 0)?;
                    let physical = extent.physical_start.checked_add(u64::from(offset))?;
                    Some((physical, left.min(count)))
                });
                found.ok_or(JournalError::Mismatch {
                    field: "length",
                    stored: u64::from(blocks.start) + 1,
                    expected: self.length_blocks(1),
                })
            }
        }
    }
}

/// The blocks of extents that may overlap, sorted and merged.
fn merge(extents: &[(u32, JournalExtent)]) -> Vec<Range<u64>> {
    let run = |extent: &JournalExtent| {
        let end = extent.physical_start.saturating_add(u64::from(extent.length_blocks));
        extent.physical_start..end
    };
    let mut runs: Vec<Range<u64>> = extents.iter().map(|(_, extent)| run(extent)).collect();
    runs.sort_unstable_by_key(|run| run.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for run in runs {
        match merged.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => merged.push(run),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_blocks_are_found_in_any_order_and_overlap() {
        let extent =
            |physical_start, length_blocks| JournalExtent { physical_start, length_blocks };
        let area =
            JournalArea::internal([extent(50, 10), extent(10, 5), extent(12, 8), extent(20, 1)]);
        let expected = |block: u64| (10..21).contains(&block) || (50..60).contains(&block);
        for block in 0..70 {
            assert_eq!(area.contains(block), expected(block), "block {block}");
        }
        assert!(!JournalArea::internal([]).contains(0));
    }
}
