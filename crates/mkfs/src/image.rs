//! An image without files: laid out, then written, with the superblock last.
//!
//! # Crash
//! The primary superblock is written and flushed after all else: until then there is no image.

use crate::error::{Error, Result};
use crate::files::SystemFiles;
use crate::groups::{
    UsedInodes, fill_groups, place_groups, write_bitmaps, write_descriptors,
    zero_tables_and_journal,
};
use crate::map::BlocksToWrite;
use crate::options::MkfsOptions;
use crate::plan::ImagePlan;
use crate::space::{BlockRun, Space};
use drystone_blockdev::{BlockDevice, erase_signatures};
use drystone_ext4_format::features::{FILE_BYTES_MAX_WITHOUT_LARGE_FILE, Incompat};
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::mmp::{CHECK_INTERVAL_SECONDS_MIN, Mmp, MmpState};
use drystone_ext4_format::superblock::{
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock, SuperblockFlags,
};
use std::collections::BTreeMap;

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSummary {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Block groups.
    pub groups: u32,
    /// Blocks of the journal; 0 for none.
    pub journal_blocks: u32,
    /// Names of the features that are on.
    pub features: Vec<String>,
}

/// An image without files, laid out: after this only a device can fail.
#[derive(Debug)]
pub struct NewImage {
    superblock: Superblock,
    groups: Vec<GroupDescriptor>,
    blocks: BlocksToWrite,
    journal: Vec<BlockRun>,
    summary: ImageSummary,
}

impl NewImage {
    /// Lays an image out.
    ///
    /// # Errors
    /// Options that make no image, or too little room.
    pub fn new(options: &MkfsOptions) -> Result<NewImage> {
        let plan = ImagePlan::new(options)?;
        let mut superblock = Superblock::create(&plan.geometry)?;
        let layout = *superblock.layout();
        describe(&mut superblock, options, &plan);
        let mut space = Space::new(&layout);
        let mut groups = place_groups(&layout, &mut space)?;
        let mut files = SystemFiles::new(options, &layout, space);
        files.make(&plan, &mut superblock)?;
        if let Some(block) = superblock.mmp_block() {
            files.blocks.insert(block.get(), new_mmp(&layout, options));
        }
        write_inodes(&files.inodes, &layout, &groups, &mut files.blocks)?;
        let used = UsedInodes::new(&layout, &files.inodes, files.next_inode);
        fill_groups(&layout, &mut groups, &files.space, &used);
        write_bitmaps(&layout, &mut groups, &files.space, &used, &mut files.blocks);
        write_descriptors(&layout, &groups, &mut files.blocks);
        if has_large_file(&files.inodes) {
            superblock.set_large_file();
        }
        let summary = ImageSummary {
            block_size: layout.block_size() as u32,
            blocks: layout.blocks_count(),
            inodes: layout.inodes_count(),
            groups: layout.group_count(),
            journal_blocks: plan.journal_blocks,
            features: superblock.features().names(),
        };
        let SystemFiles { blocks, journal, .. } = files;
        Ok(NewImage { superblock, groups, blocks, journal, summary })
    }

    /// Bytes of the image.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.summary.blocks * u64::from(self.summary.block_size)
    }

    /// Writes the image on `device`, whose content must be zeros where `is_zeroed`; else the parts
    /// that have to be zeros are written, and the signatures of other formats are erased.
    ///
    /// # Errors
    /// The device is too small, and unchanged; or it fails, and then doesn't hold an image.
    pub fn write(mut self, device: &dyn BlockDevice, is_zeroed: bool) -> Result<ImageSummary> {
        begin(device, self.size_bytes(), is_zeroed)?;
        let layout = *self.superblock.layout();
        if !is_zeroed {
            zero_tables_and_journal(device, &layout, &self.groups, &self.journal)?;
        }
        write_blocks(device, &self.blocks, layout.block_size())?;
        finish(device, &mut self.superblock, &self.groups, &self.journal)?;
        Ok(self.summary)
    }
}

/// Makes an image on `device`: lays one out and writes it.
///
/// # Errors
/// As for [`NewImage::new`] and [`NewImage::write`].
pub fn make(
    device: &dyn BlockDevice,
    options: &MkfsOptions,
    is_zeroed: bool,
) -> Result<ImageSummary> {
    NewImage::new(options)?.write(device, is_zeroed)
}

/// Checks that an image has room on the device, and erases what was there.
pub(crate) fn begin(device: &dyn BlockDevice, needed: u64, is_zeroed: bool) -> Result<()> {
    if needed > device.size_bytes() {
        return Err(Error::Option(format!(
            "the image takes {needed} bytes, the device has {}",
            device.size_bytes()
        )));
    }
    // An old superblock must not survive, nor describe a half-made image.
    device.write_durable_at(SUPERBLOCK_OFFSET_BYTES, &[0; SUPERBLOCK_BYTES])?;
    if !is_zeroed {
        erase_signatures(device)?;
    }
    Ok(())
}

/// Whether one of the image's own files is large: with blocks of 4 KiB the resize inode is.
pub(crate) fn has_large_file(inodes: &BTreeMap<u32, Inode>) -> bool {
    inodes.values().any(|inode| {
        inode.size_bytes > FILE_BYTES_MAX_WITHOUT_LARGE_FILE
            && !inode.flags.contains(InodeFlags::EXTENTS)
    })
}

/// Fills in what the geometry doesn't say.
pub(crate) fn describe(superblock: &mut Superblock, options: &MkfsOptions, plan: &ImagePlan) {
    superblock.set_volume_name(&options.label);
    superblock.set_hash_seed(options.hash_seed);
    superblock.set_hash_version(options.hash_version);
    // Always the same, whatever signedness characters have on this machine: images must be
    // portable.
    superblock.set_flags(SuperblockFlags::SIGNED_HASH);
    superblock.set_reserved_blocks_count(plan.reserved_blocks);
    superblock.set_max_mount_count(u16::MAX);
    superblock.set_creation_time_seconds(options.time_seconds);
    superblock.set_write_time_seconds(options.time_seconds);
    superblock.set_check_time_seconds(options.time_seconds);
    // User xattrs and ACLs are on by default.
    superblock.set_default_mount_options(0x000c);
    let features = superblock.features();
    if features.incompat.contains(Incompat::CASEFOLD) {
        superblock.set_encoding(1);
    }
    if features.incompat.contains(Incompat::MMP) {
        superblock.set_mmp_interval_seconds(CHECK_INTERVAL_SECONDS_MIN);
    }
}

pub(crate) fn new_mmp(layout: &Layout, options: &MkfsOptions) -> Vec<u8> {
    let mmp = Mmp {
        state: MmpState::Clean,
        time_seconds: options.time_seconds,
        node_name: Vec::new(),
        device_name: Vec::new(),
        check_interval_seconds: CHECK_INTERVAL_SECONDS_MIN,
    };
    let mut bytes = vec![0; layout.block_size()];
    mmp.encode(&mut bytes, layout.checksum_seed());
    bytes
}

/// Puts the inodes into the blocks of the table.
fn write_inodes(
    inodes: &BTreeMap<u32, Inode>,
    layout: &Layout,
    groups: &[GroupDescriptor],
    blocks: &mut BlocksToWrite,
) -> Result<()> {
    for inode in inodes.values() {
        let group =
            layout.group_of_inode(inode.number).map_err(drystone_ext4_format::FormatError::from)?;
        let table = groups[group.index()].inode_table;
        let (block, offset) = layout
            .inode_location(inode.number, table)
            .map_err(drystone_ext4_format::FormatError::from)?;
        let bytes = blocks.entry(block.get()).or_insert_with(|| vec![0; layout.block_size()]);
        inode
            .encode_into(&mut bytes[offset..offset + layout.inode_size()], layout)
            .map_err(drystone_ext4_format::FormatError::from)?;
    }
    Ok(())
}

/// Writes blocks in the order of their numbers, neighbours together.
pub(crate) fn write_blocks(
    device: &dyn BlockDevice,
    blocks: &BlocksToWrite,
    block_size: usize,
) -> Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut start = 0;
    let mut piece: Vec<u8> = Vec::with_capacity(PIECE_BYTES);
    for (&number, bytes) in blocks {
        let follows = start + (piece.len() / block_size) as u64 == number;
        if !piece.is_empty() && (!follows || piece.len() >= PIECE_BYTES) {
            device.write_at(start * block_size as u64, &piece)?;
            piece.clear();
        }
        if piece.is_empty() {
            start = number;
        }
        piece.extend_from_slice(bytes);
    }
    if !piece.is_empty() {
        device.write_at(start * block_size as u64, &piece)?;
    }
    Ok(())
}

/// Writes the superblock's copies, makes all durable, and writes the superblock.
pub(crate) fn finish(
    device: &dyn BlockDevice,
    superblock: &mut Superblock,
    groups: &[GroupDescriptor],
    journal: &[BlockRun],
) -> Result<()> {
    let layout = *superblock.layout();
    let free_clusters: u64 = groups.iter().map(|group| u64::from(group.free_clusters_count)).sum();
    let free_inodes: u32 = groups.iter().map(|group| group.free_inodes_count).sum();
    superblock.set_free_blocks_count(free_clusters * u64::from(layout.blocks_per_cluster()));
    superblock.set_free_inodes_count(free_inodes);
    let fixed: u64 = layout
        .groups()
        .map(|group| u64::from(layout.group_base(group).blocks + 2 + layout.inode_table_blocks()))
        .sum();
    let journal_blocks: u64 = journal.iter().map(|run| u64::from(run.length)).sum();
    let overhead =
        layout.clusters_for(fixed + u64::from(layout.first_data_block()) + journal_blocks);
    superblock.set_overhead_clusters(u32::try_from(overhead).unwrap_or(0));
    let block_size = layout.block_size() as u64;
    for group in layout.superblock_groups().skip(1) {
        if let Some((block, offset)) = layout.superblock_location(group) {
            let place = block.get() * block_size + offset as u64;
            device.write_at(place, &superblock.encode_for_group(group))?;
        }
    }
    device.flush()?;
    device.write_durable_at(SUPERBLOCK_OFFSET_BYTES, &superblock.encode())?;
    Ok(())
}
