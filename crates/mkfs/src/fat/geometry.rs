//! The layout of a FAT32 file system: sizes and offsets of its parts.
//!
//! # Reference
//! Microsoft FAT Specification, "Boot Sector and BPB" and "FAT Volume Initialization".

use crate::error::{Error, Result};

pub(super) const SECTOR_BYTES: u64 = 512;
/// With fewer clusters, some implementations would read a FAT16. They disagree on the limit, so this is a little above.
const CLUSTERS_MIN: u64 = 65_525 + 16;
/// The sectors of a cluster for file systems up to so many bytes, as in the specification. The first one is for
/// clusters of one sector.
const CLUSTER_SECTORS: [(u64, u64); 5] =
    [(260 << 20, 1), (8 << 30, 8), (16 << 30, 16), (32 << 30, 32), (u64::MAX, 64)];
/// The size of a file system is a multiple of this.
const SIZE_UNIT: u64 = 1 << 20;
const SIZE_MAX: u64 = u32::MAX as u64 * SECTOR_BYTES / SIZE_UNIT * SIZE_UNIT;
const RESERVED_SECTORS: u64 = 32;
pub(super) const TABLES: u64 = 2;
/// The number of the first cluster; lower numbers have other meanings.
pub(super) const FIRST_CLUSTER: u32 = 2;
/// Data begins at a multiple of so many sectors.
const DATA_ALIGNMENT: u64 = 8;

/// Sizes of the parts, in sectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub sectors: u64,
    pub cluster_sectors: u64,
    pub reserved: u64,
    pub table: u64,
    pub clusters: u64,
}

impl Geometry {
    /// The geometry for directories and files of these sizes: of the given size, or as small as possible.
    pub fn for_content<S: Iterator<Item = u64>>(
        sizes: impl Fn() -> S,
        size_bytes: Option<u64>,
    ) -> Result<Geometry> {
        let needed = needed(sizes)?;
        let Some(size_bytes) = size_bytes else { return Ok(needed) };
        if !size_bytes.is_multiple_of(SIZE_UNIT) || size_bytes > SIZE_MAX {
            let problem = "the size of a FAT32 is a multiple of 1 MiB, below 2 TiB";
            return Err(Error::Option(problem.to_owned()));
        }
        if size_bytes < needed.size_bytes() {
            let needed_bytes = needed.size_bytes();
            let missing_bytes = needed_bytes - size_bytes;
            return Err(Error::DoesNotFit { missing_bytes, needed_bytes });
        }
        Ok(Geometry::new(size_bytes, cluster_sectors(size_bytes)))
    }

    fn new(size_bytes: u64, cluster_sectors: u64) -> Geometry {
        let sectors = size_bytes / SECTOR_BYTES;
        let bound = sectors / cluster_sectors + u64::from(FIRST_CLUSTER);
        let table = (bound * size_of::<u32>() as u64).div_ceil(SECTOR_BYTES);
        let before_data = (RESERVED_SECTORS + TABLES * table).next_multiple_of(DATA_ALIGNMENT);
        let clusters = sectors.saturating_sub(before_data) / cluster_sectors;
        let reserved = before_data - TABLES * table;
        Geometry { sectors, cluster_sectors, reserved, table, clusters }
    }

    pub fn size_bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES
    }

    pub fn cluster_bytes(&self) -> u64 {
        self.cluster_sectors * SECTOR_BYTES
    }

    /// Where a cluster begins, in bytes.
    pub fn offset(&self, cluster: u32) -> u64 {
        let data = (self.reserved + TABLES * self.table) * SECTOR_BYTES;
        data + u64::from(cluster - FIRST_CLUSTER) * self.cluster_bytes()
    }
}

fn cluster_sectors(size_bytes: u64) -> u64 {
    let found = CLUSTER_SECTORS.iter().find(|(bytes_max, _)| size_bytes <= *bytes_max);
    found.map_or(1, |(_, sectors)| *sectors)
}

/// The smallest geometry that holds directories and files of these sizes.
fn needed<S: Iterator<Item = u64>>(sizes: impl Fn() -> S) -> Result<Geometry> {
    for (bytes_max, sectors) in CLUSTER_SECTORS {
        let cluster_bytes = sectors * SECTOR_BYTES;
        let used: u64 = sizes().map(|bytes| bytes.div_ceil(cluster_bytes)).sum();
        let clusters = used.max(CLUSTERS_MIN);
        let mut size_bytes = (clusters * cluster_bytes).next_multiple_of(SIZE_UNIT);
        while Geometry::new(size_bytes, sectors).clusters < clusters {
            size_bytes += SIZE_UNIT;
        }
        if size_bytes <= bytes_max.min(SIZE_MAX) {
            return Ok(Geometry::new(size_bytes, sectors));
        }
    }
    Err(Error::Option("the files are too large for a FAT32".to_owned()))
}
