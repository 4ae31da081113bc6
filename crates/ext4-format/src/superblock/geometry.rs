//! The numbers that never change: what is needed to make an image, and what a raw superblock says.

use super::raw::RawSuperblock;
use super::{
    GeometryProblem, OLD_FIRST_INODE, REVISION_DYNAMIC, features_of, geometry, has_seal, join,
};
use crate::checksum::{ChecksumSeed, Checksums};
use crate::error::FormatError;
use crate::features::{Features, Incompat, ReadOnlyCompat};
use crate::inode::KNOWN_EXTRA_BYTES;
use crate::layout::{BASE_INODE_BYTES, Layout};

/// What [`Superblock::create`](super::Superblock::create) needs to know: the numbers that never change afterwards.
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
        if has_seal(features) {
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

/// The numbers of geometry as they are stored, with those that follow from others compared.
pub(super) fn geometry_of(raw: &RawSuperblock) -> Result<Geometry, FormatError> {
    let features = features_of(raw);
    let wide = features.incompat.contains(Incompat::SIXTY_FOUR_BIT);
    let dynamic = raw.rev_level.get() >= REVISION_DYNAMIC;
    let result = Geometry {
        features,
        uuid: raw.uuid,
        checksum_seed: raw.checksum_seed.get(),
        log_block_size: raw.log_block_size.get(),
        log_cluster_size: raw.log_cluster_size.get(),
        blocks_count: join(raw.blocks_count_lo.get(), raw.blocks_count_hi.get(), wide),
        clusters_per_group: raw.clusters_per_group.get(),
        inodes_per_group: raw.inodes_per_group.get(),
        inode_size: if dynamic { raw.inode_size.get() } else { BASE_INODE_BYTES },
        first_inode: if dynamic { raw.first_ino.get() } else { OLD_FIRST_INODE },
        descriptor_size: if wide { raw.desc_size.get() } else { 32 },
        reserved_descriptor_blocks: raw.reserved_gdt_blocks.get(),
        first_meta_group: raw.first_meta_bg.get(),
        log_groups_per_flex: raw.log_groups_per_flex,
        backup_groups: raw.backup_bgs.map(|group| group.get()),
        extra_inode_size: extra_inode_size(raw, features),
    };
    let expected = Layout::expected_first_data_block(&result);
    let stored = raw.first_data_block.get();
    if stored != expected {
        return Err(geometry(GeometryProblem::FirstDataBlock { block: stored }));
    }
    let ratio = result.log_cluster_size.checked_sub(result.log_block_size);
    let blocks = ratio
        .and_then(|ratio| 1u32.checked_shl(ratio))
        .and_then(|ratio| result.clusters_per_group.checked_mul(ratio));
    if blocks != Some(raw.blocks_per_group.get()) {
        let blocks = raw.blocks_per_group.get();
        return Err(geometry(GeometryProblem::BlocksPerGroup { blocks }));
    }
    Ok(result)
}

/// Bytes of extra fields that new inodes get: all known ones, more if the image asks for them and
/// they fit. Linux decides the same way, and does not refuse an image for a wrong wish.
fn extra_inode_size(raw: &RawSuperblock, features: Features) -> u16 {
    let dynamic = raw.rev_level.get() >= REVISION_DYNAMIC;
    let room = if dynamic { raw.inode_size.get().saturating_sub(BASE_INODE_BYTES) } else { 0 };
    if room < KNOWN_EXTRA_BYTES {
        return 0;
    }
    if !features.read_only_compat.contains(ReadOnlyCompat::EXTRA_ISIZE) {
        return KNOWN_EXTRA_BYTES;
    }
    let wish = raw.want_extra_isize.get().max(raw.min_extra_isize.get()).max(KNOWN_EXTRA_BYTES);
    if wish <= room && wish.is_multiple_of(4) { wish } else { KNOWN_EXTRA_BYTES }
}
