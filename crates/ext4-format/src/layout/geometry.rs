//! The numbers from which a layout is computed, as they are stored.

use crate::checksum::{ChecksumSeed, Checksums};
use crate::features::{Features, Incompat, ReadOnlyCompat};

/// The numbers that never change after [`Superblock::create`](crate::superblock::Superblock::create).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Features of the image.
    pub features: Features,
    /// Identity of the image; most checksums depend on it.
    pub uuid: [u8; 16],
    /// Seed of checksums where the features store one; otherwise not used.
    pub checksum_seed: u32,
    /// Block size as an exponent: 1 KiB << n.
    pub log_block_size: u32,
    /// Cluster size as an exponent: 1 KiB << n; equal to that of blocks without bigalloc.
    pub log_cluster_size: u32,
    /// Blocks of the image.
    pub blocks_count: u64,
    /// Clusters of a group; blocks without bigalloc.
    pub clusters_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// First inode for files.
    pub first_inode: u32,
    /// Bytes of a group descriptor; 32 without the 64bit feature.
    pub descriptor_size: u16,
    /// Descriptor blocks reserved for growth.
    pub reserved_descriptor_blocks: u16,
    /// First meta block group.
    pub first_meta_group: u32,
    /// Groups of a flexible group as an exponent.
    pub log_groups_per_flex: u8,
    /// Groups of the two backups with sparse_super2; 0 for none.
    pub backup_groups: [u32; 2],
    /// Bytes of extra fields that every inode has, and that new inodes get.
    pub extra_inode_size: u16,
}

impl Geometry {
    /// The checksums that metadata get.
    #[must_use]
    pub fn checksums(&self) -> Checksums {
        let features = self.features;
        if features.has_metadata_checksums() {
            if features.incompat.contains(Incompat::CSUM_SEED) {
                Checksums::All(ChecksumSeed::from_stored(self.checksum_seed))
            } else {
                Checksums::All(ChecksumSeed::from_uuid(&self.uuid))
            }
        } else if features.read_only_compat.contains(ReadOnlyCompat::GDT_CSUM) {
            Checksums::Descriptors { uuid: self.uuid }
        } else {
            Checksums::None
        }
    }
}
