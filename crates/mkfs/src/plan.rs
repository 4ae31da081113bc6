//! From options to the geometry of an image: consistent numbers.
//!
//! # Reference
//! `mke2fs(8)` and `mke2fs.conf(5)` for the choices by size.

use crate::error::{Error, Result};
use crate::options::{JournalSize, MkfsOptions};
use drystone_ext4_format::features::{Compat, Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::inode::InodeTimestamp;
use drystone_ext4_format::layout::Geometry;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;

/// Smallest image that can be made.
pub(crate) const SIZE_MIN: u64 = 64 * KIB;
/// The longest label that a superblock holds.
const LABEL_BYTES_MAX: usize = 16;
/// Groups whose bitmaps and inode tables are put together.
const LOG_GROUPS_PER_FLEX: u8 = 4;
/// Blocks that a last group must have beyond its own metadata to be worth having.
const LAST_GROUP_ROOM: u64 = 50;
/// How much an image may grow without a new descriptor table, as `mke2fs` reserves it.
const GROWTH_MAX: u64 = 1024;
/// Least clusters of a group, as the tools have it.
const GROUP_CLUSTERS_MIN: u64 = 256;
/// First inode for files.
const FIRST_INODE: u32 = 11;
/// Bytes of extra fields that Linux uses.
const EXTRA_INODE_SIZE: u16 = 32;
/// Largest journal that can be asked for, in blocks.
pub const JOURNAL_BLOCKS_MAX: u64 = 10_240_000;
/// Smallest journal that Linux accepts, in blocks.
pub const JOURNAL_BLOCKS_MIN: u64 = 1024;

/// A geometry and what follows from it.
#[derive(Clone, Debug)]
pub(crate) struct ImagePlan {
    pub geometry: Geometry,
    /// Blocks of the journal; 0 for none.
    pub journal_blocks: u32,
    pub reserved_blocks: u64,
}

impl ImagePlan {
    /// Decides everything that the options leave open.
    pub fn new(options: &MkfsOptions) -> Result<ImagePlan> {
        if options.size_bytes < SIZE_MIN {
            return Err(option(format!(
                "an image of {} bytes is too small: it takes at least {SIZE_MIN}",
                options.size_bytes
            )));
        }
        if options.label.len() > LABEL_BYTES_MAX {
            return Err(option(format!("a label has at most {LABEL_BYTES_MAX} bytes")));
        }
        let block_size = block_size(options)?;
        let mut features = options.features;
        if features.read_only_compat.contains(ReadOnlyCompat::METADATA_CSUM) {
            // It checks the descriptors as well, in its own way.
            features.read_only_compat -= ReadOnlyCompat::GDT_CSUM;
        }
        let cluster_size = cluster_size(options, block_size, features)?;
        let ratio = u64::from(cluster_size / block_size);
        // Linux can't use a part of a cluster.
        let blocks = options.size_bytes / u64::from(cluster_size) * ratio;
        if blocks > u64::from(u32::MAX) {
            if !features.incompat.contains(Incompat::SIXTY_FOUR_BIT) {
                return Err(option(format!(
                    "{blocks} blocks need the 64bit feature, or larger blocks"
                )));
            }
            // The inode for growth has 32-bit block numbers.
            features.compat -= Compat::RESIZE_INODE;
        }
        let inode_size = inode_size(options, block_size)?;
        check_time(options.time_seconds, inode_size)?;
        // A bitmap is one block; small descriptors count in 16 bits.
        let clusters_per_group = clusters_per_group(options, block_size, ratio)?;
        let blocks_per_group = clusters_per_group * ratio;
        let journal_blocks = journal_blocks(options, &mut features, blocks, block_size)?;
        check_features(features, inode_size)?;

        let inodes_wanted = inodes_wanted(options, blocks, block_size);
        let first_data = u64::from(block_size == 1024 && ratio == 1);
        let mut geometry = Geometry {
            features,
            uuid: options.uuid,
            checksum_seed: drystone_ondisk::crc32c(!0, &options.uuid),
            log_block_size: (block_size / 1024).ilog2(),
            log_cluster_size: (cluster_size / 1024).ilog2(),
            blocks_count: blocks,
            clusters_per_group: clusters_per_group as u32,
            inodes_per_group: 0,
            inode_size,
            first_inode: FIRST_INODE,
            descriptor_size: if features.incompat.contains(Incompat::SIXTY_FOUR_BIT) {
                64
            } else {
                32
            },
            reserved_descriptor_blocks: 0,
            first_meta_group: 0,
            log_groups_per_flex: if features.incompat.contains(Incompat::FLEX_BG) {
                LOG_GROUPS_PER_FLEX
            } else {
                0
            },
            backup_groups: [0; 2],
            extra_inode_size: if inode_size > 128 { EXTRA_INODE_SIZE } else { 0 },
        };
        let blocks = fit_groups(&mut geometry, inodes_wanted, first_data, blocks_per_group);
        let inodes =
            u64::from(geometry.inodes_per_group) * (blocks - first_data).div_ceil(blocks_per_group);
        if options.inodes.is_some_and(|asked| u64::from(asked) > inodes) {
            return Err(option(format!(
                "the groups of this image hold no more than {inodes} inodes"
            )));
        }
        let reserved_blocks = reserved_blocks(options, blocks)?;
        Ok(ImagePlan { geometry, journal_blocks, reserved_blocks })
    }
}

/// Decides what depends on the number of groups. A last group that is too small for its own metadata
/// is left out. Returns the blocks that remain.
fn fit_groups(
    geometry: &mut Geometry,
    inodes_wanted: u64,
    first_data: u64,
    blocks_per_group: u64,
) -> u64 {
    let block_size = 1024_u32 << geometry.log_block_size;
    let inode_size = geometry.inode_size;
    let mut blocks = geometry.blocks_count;
    loop {
        let groups = (blocks - first_data).div_ceil(blocks_per_group).max(1);
        geometry.blocks_count = blocks;
        geometry.inodes_per_group = inodes_per_group(inodes_wanted, groups, block_size, inode_size);
        geometry.reserved_descriptor_blocks =
            reserved_descriptor_blocks(geometry, blocks, groups, blocks_per_group, block_size);
        if geometry.features.compat.contains(Compat::SPARSE_SUPER2) {
            geometry.backup_groups = backup_groups(groups);
        }
        let tables =
            u64::from(geometry.inodes_per_group) * u64::from(inode_size) / u64::from(block_size);
        let needed = own_metadata(geometry, groups, block_size) + tables + LAST_GROUP_ROOM;
        let last = (blocks - first_data) - (groups - 1) * blocks_per_group;
        if groups == 1 || last >= needed {
            return blocks;
        }
        blocks -= last;
    }
}

/// Blocks that only the superuser may use.
fn reserved_blocks(options: &MkfsOptions, blocks: u64) -> Result<u64> {
    let percent = options.reserved_percent;
    if !(0.0..=50.0).contains(&percent) {
        return Err(option(format!("{percent} % can't be reserved: 0 to 50 can")));
    }
    Ok((blocks as f64 * percent / 100.0) as u64)
}

pub(crate) fn option(text: String) -> Error {
    Error::Option(text)
}

fn block_size(options: &MkfsOptions) -> Result<u32> {
    let size =
        options.block_size.unwrap_or(if options.size_bytes < 512 * MIB { 1024 } else { 4096 });
    if !size.is_power_of_two() || !(1024..=65536).contains(&size) {
        return Err(option(format!("a block of {size} bytes: it must be 1024, 2048, … 65536")));
    }
    Ok(size)
}

fn cluster_size(options: &MkfsOptions, block_size: u32, features: Features) -> Result<u32> {
    let bigalloc = features.read_only_compat.contains(ReadOnlyCompat::BIGALLOC);
    match options.cluster_size {
        None if bigalloc => Ok(block_size * 16),
        None => Ok(block_size),
        Some(_) if !bigalloc => Err(option("clusters need the bigalloc feature".into())),
        Some(size)
            if size.is_power_of_two() && size >= block_size && size / block_size <= 32768 =>
        {
            Ok(size)
        }
        Some(size) => Err(option(format!(
            "a cluster of {size} bytes: it must be a power of two times the block's {block_size}"
        ))),
    }
}

fn clusters_per_group(options: &MkfsOptions, block_size: u32, ratio: u64) -> Result<u64> {
    let max = (u64::from(block_size) * 8).min(65_528);
    let Some(blocks) = options.blocks_per_group.map(u64::from) else { return Ok(max) };
    let clusters = blocks / ratio;
    if clusters * ratio != blocks
        || !clusters.is_multiple_of(8)
        || !(GROUP_CLUSTERS_MIN..=max).contains(&clusters)
    {
        return Err(option(format!(
            "a group of {blocks} blocks: it must be a multiple of {} from {} to {}",
            8 * ratio,
            GROUP_CLUSTERS_MIN * ratio,
            max * ratio
        )));
    }
    Ok(clusters)
}

fn inode_size(options: &MkfsOptions, block_size: u32) -> Result<u16> {
    let size = options.inode_size.unwrap_or(256);
    if !size.is_power_of_two() || size < 128 || u32::from(size) > block_size.min(4096) {
        return Err(option(format!(
            "an inode of {size} bytes: it must be a power of two from 128 to the block's {block_size}"
        )));
    }
    Ok(size)
}

/// Inodes hold the time of creation, too.
fn check_time(seconds: u64, inode_size: u16) -> Result<()> {
    let has_extra = inode_size > 128;
    let time = |seconds| InodeTimestamp::from_seconds(seconds).clamp_to_inode(has_extra).seconds;
    match i64::try_from(seconds).is_ok_and(|seconds| time(seconds) == seconds) {
        true => Ok(()),
        false => Err(option(format!(
            "a creation time of {seconds} seconds: inodes of {inode_size} bytes hold at most {}",
            time(i64::MAX)
        ))),
    }
}

/// As `mke2fs.conf` has it for floppy, small, default, big and huge images.
fn inodes_wanted(options: &MkfsOptions, blocks: u64, block_size: u32) -> u64 {
    if let Some(inodes) = options.inodes {
        return u64::from(inodes);
    }
    let usual = match options.size_bytes {
        size if size < 3 * MIB => 8192,
        size if size < 512 * MIB => 4096,
        size if size < 4 * TIB => 16384,
        size if size < 16 * TIB => 32768,
        _ => 65536,
    };
    // Unless asked for, there are no more inodes than blocks.
    let ratio = options.bytes_per_inode.unwrap_or(u64::from(block_size).max(usual)).max(1024);
    (blocks * u64::from(block_size) / ratio).min(u64::from(u32::MAX))
}

fn inodes_per_group(wanted: u64, groups: u64, block_size: u32, inode_size: u16) -> u32 {
    let per_block = u64::from(block_size) / u64::from(inode_size);
    let wanted = wanted.max(u64::from(FIRST_INODE) + 1);
    // Whole blocks of the inode table, whole bytes of the bitmap.
    let unit = per_block.max(8);
    let count = wanted.div_ceil(groups).next_multiple_of(unit);
    let max = (u64::from(block_size) * 8).min(65_528) / unit * unit;
    // Inode numbers have 32 bits.
    let fits = u64::from(u32::MAX) / groups / unit * unit;
    count.min(max).min(fits.max(unit)) as u32
}

/// Blocks after the descriptors that let the table grow with the image.
fn reserved_descriptor_blocks(
    geometry: &Geometry,
    blocks: u64,
    groups: u64,
    blocks_per_group: u64,
    block_size: u32,
) -> u16 {
    if !geometry.features.compat.contains(Compat::RESIZE_INODE) {
        return 0;
    }
    let per_block = u64::from(block_size) / u64::from(geometry.descriptor_size);
    let blocks_max = (blocks * GROWTH_MAX).min(u64::from(u32::MAX));
    let groups_max = blocks_max.div_ceil(blocks_per_group);
    let more = groups_max.div_ceil(per_block).saturating_sub(groups.div_ceil(per_block));
    // One block of pointers lists them.
    more.min(u64::from(block_size) / 4) as u16
}

/// Groups with copies of the superblock: the second and the last.
fn backup_groups(groups: u64) -> [u32; 2] {
    match groups {
        0 | 1 => [0, 0],
        2 => [1, 0],
        _ => [1, (groups - 1) as u32],
    }
}

/// Blocks that a group needs for itself besides the inode table.
fn own_metadata(geometry: &Geometry, groups: u64, block_size: u32) -> u64 {
    let per_block = u64::from(block_size) / u64::from(geometry.descriptor_size);
    let descriptors = if geometry.features.incompat.contains(Incompat::META_BG) {
        1
    } else {
        groups.div_ceil(per_block)
    };
    3 + descriptors + u64::from(geometry.reserved_descriptor_blocks)
}

fn journal_blocks(
    options: &MkfsOptions,
    features: &mut Features,
    blocks: u64,
    block_size: u32,
) -> Result<u32> {
    if !features.compat.contains(Compat::HAS_JOURNAL) {
        features.compat -= Compat::ORPHAN_FILE;
        return Ok(0);
    }
    // Linux refuses a shorter journal, and half of the image is for files.
    let blocks_min = 2 * JOURNAL_BLOCKS_MIN;
    if options.journal_size != JournalSize::Default && blocks < blocks_min {
        return Err(option(format!(
            "a journal needs an image of {blocks_min} blocks, {} bytes",
            blocks_min * u64::from(block_size)
        )));
    }
    let wanted = match options.journal_size {
        JournalSize::Default | JournalSize::Required => default_journal_blocks(blocks),
        JournalSize::Bytes(bytes) => {
            let wanted = bytes / u64::from(block_size);
            if !(JOURNAL_BLOCKS_MIN..=JOURNAL_BLOCKS_MAX).contains(&wanted) || wanted > blocks / 2 {
                return Err(option(format!(
                    "a journal of {wanted} blocks: it takes {JOURNAL_BLOCKS_MIN} to {}",
                    JOURNAL_BLOCKS_MAX.min(blocks / 2)
                )));
            }
            wanted
        }
    };
    if wanted == 0 {
        // `mke2fs` leaves it out of an image that is too small, too.
        features.compat -= Compat::HAS_JOURNAL | Compat::ORPHAN_FILE;
    }
    // Bounded above.
    Ok(with_fast_commits(*features, wanted as u32))
}

/// The length of a journal with a log of so many blocks. As for `mke2fs`, an image with fast commits has one more block
/// for 64 of the log, which keeps its length: Linux refuses a log of fewer than [`JOURNAL_BLOCKS_MIN`] blocks.
#[must_use]
pub fn with_fast_commits(features: Features, log_blocks: u32) -> u32 {
    match features.compat.contains(Compat::FAST_COMMIT) {
        true => log_blocks + log_blocks / 64,
        false => log_blocks,
    }
}

/// How many blocks of a journal of that length are for fast commits.
#[must_use]
pub fn fast_commit_blocks(features: Features, journal_blocks: u32) -> u32 {
    match features.compat.contains(Compat::FAST_COMMIT) {
        true => journal_blocks / 65,
        false => 0,
    }
}

/// Blocks of the journal that an image of so many blocks gets by default; 0 for none.
#[must_use]
pub fn default_journal_blocks(blocks: u64) -> u64 {
    match blocks {
        0..2048 => 0,
        2048..32_768 => 1024,
        32_768..262_144 => 4096,
        262_144..524_288 => 8192,
        524_288..4_194_304 => 16_384,
        4_194_304..8_388_608 => 32_768,
        8_388_608..16_777_216 => 65_536,
        16_777_216..33_554_432 => 131_072,
        _ => 262_144,
    }
}

/// Combinations that make no image.
fn check_features(features: Features, inode_size: u16) -> Result<()> {
    let compat = features.compat;
    let incompat = features.incompat;
    let read_only = features.read_only_compat;
    let fail = |text: &str| Err(option(text.into()));
    if incompat.contains(Incompat::JOURNAL_DEV) {
        return fail("an image can't be a journal device");
    }
    if incompat.contains(Incompat::META_BG) && compat.contains(Compat::RESIZE_INODE) {
        return fail("meta_bg and resize_inode exclude each other: add ^resize_inode");
    }
    if read_only.contains(ReadOnlyCompat::BIGALLOC) && !incompat.contains(Incompat::EXTENTS) {
        return fail("bigalloc needs extents");
    }
    if incompat.contains(Incompat::CSUM_SEED) && !read_only.contains(ReadOnlyCompat::METADATA_CSUM)
    {
        return fail("metadata_csum_seed needs metadata_csum: add ^metadata_csum_seed");
    }
    if incompat.contains(Incompat::CASEFOLD | Incompat::ENCRYPT) {
        return fail("casefold with encrypt needs keys, which only Linux has");
    }
    if read_only.contains(ReadOnlyCompat::PROJECT)
        && (!read_only.contains(ReadOnlyCompat::EXTRA_ISIZE) || inode_size == 128)
    {
        return fail("project needs extra_isize and inodes of 256 bytes");
    }
    if let Err(unsupported) = features.check_readable().and_then(|()| features.check_writable()) {
        return Err(Error::Format(unsupported.into()));
    }
    Ok(())
}
