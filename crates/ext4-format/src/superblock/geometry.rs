//! The geometry that a raw superblock says.

use super::raw::RawSuperblock;
use super::{OLD_FIRST_INODE, REVISION_DYNAMIC, features_of, geometry, join};
use crate::error::{FormatError, GeometryProblem};
use crate::features::{Features, Incompat, ReadOnlyCompat};
use crate::inode::KNOWN_EXTRA_BYTES;
use crate::layout::{BASE_INODE_BYTES, Geometry, Layout};

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
/// they fit. Linux does the same, and doesn't refuse an image because it asks for too much.
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
