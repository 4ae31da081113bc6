//! A copy of an image without the data of its files: what a report of a bug needs.
//!
//! Copied are the superblock and the descriptors with their copies, bitmaps, inode tables, what maps blocks,
//! directories, targets of symbolic links, extended attributes with their values, and the image's own files:
//! the journal, quota, orphans, room for growth. All else is zeros.

use crate::block_ranges::BlockRanges;
use crate::error::Result;
use crate::image::{InspectedImage, StoredInode};
use crate::map::{MapPart, walk_map};
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};

/// Bytes that are read and written at once.
const PIECE_BYTES: usize = 1 << 20;

/// What a copy of metadata holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetadataSummary {
    /// Bytes of blocks that were copied, those with nothing but zeros too.
    pub bytes: u64,
    /// Bytes of the blocks among them that can't be read, which are zeros in the copy.
    pub unreadable_bytes: u64,
    /// Places in maps of blocks that can't be followed.
    pub problems: u64,
}

/// Copies the metadata of an image to the same places of `copy`, which holds zeros. `progress` is told the
/// inodes that were looked at, and how many there are.
///
/// # Errors
/// `copy` can't be written. What can't be read of the image is counted.
pub fn copy_metadata(
    image: &InspectedImage<'_>,
    copy: &dyn BlockDevice,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<MetadataSummary> {
    let blocks = image.device.size_bytes() >> image.layout.log_block_size();
    let mut copying = Copying {
        image,
        copy,
        blocks,
        copied: BlockRanges::default(),
        buffer: Vec::new(),
        summary: MetadataSummary::default(),
    };
    copying.fixed()?;
    let total = u64::from(image.layout.inodes_count());
    image.each_inode(&mut |stored| {
        progress(u64::from(stored.inode.number.get()), total);
        copying.inode(&stored)?;
        Ok(true)
    })?;
    copy.flush()?;
    Ok(copying.summary)
}

struct Copying<'a, 'd> {
    image: &'a InspectedImage<'d>,
    copy: &'a dyn BlockDevice,
    /// Blocks that the device has, whatever the superblock says.
    blocks: u64,
    copied: BlockRanges,
    buffer: Vec<u8>,
    summary: MetadataSummary,
}

impl Copying<'_, '_> {
    /// What has its place, or one that a descriptor names.
    fn fixed(&mut self) -> Result<()> {
        let image = self.image;
        // The superblock, wherever blocks start.
        self.run(0, u64::from(image.layout.first_data_block()) + 1)?;
        if let Some(block) = image.superblock.mmp_block() {
            self.run(block.get(), 1)?;
        }
        self.bases()?;
        image.each_descriptor(&mut |group, descriptor, bytes| {
            self.run(descriptor.block_bitmap.get(), 1)?;
            self.run(descriptor.inode_bitmap.get(), 1)?;
            let inodes = image.used_table_length(group, descriptor, bytes);
            let table = inodes.div_ceil(image.layout.inodes_per_block());
            self.run(descriptor.inode_table.get(), u64::from(table))?;
            Ok(true)
        })
    }

    /// Superblocks and descriptors, with their copies, in the groups in which anything is.
    fn bases(&mut self) -> Result<()> {
        let layout = &self.image.layout;
        let mut number = 0;
        while number < layout.group_count() {
            let group = GroupNumber::new(number);
            let start = layout.group_first_block(group).get();
            if start >= self.blocks {
                break;
            }
            let data = layout.group_of_block(PhysicalBlock::new(self.data_from(start)));
            let Some(group) = data.filter(|data| *data >= group) else { break };
            let start = layout.group_first_block(group).get();
            self.run(start, u64::from(layout.group_base(group).blocks))?;
            number = group.get() + 1;
        }
        Ok(())
    }

    fn inode(&mut self, stored: &StoredInode) -> Result<()> {
        let inode = &stored.inode;
        // Bad blocks aren't read.
        let is_own =
            self.image.serves_image(inode.number) && inode.number != InodeNumber::BAD_BLOCKS;
        // What a deleted file had may belong to another one.
        if inode.links_count == 0 && !is_own {
            return Ok(());
        }
        if let Some(block) = inode.attribute_block {
            self.run(block.get(), 1)?;
        }
        let has_metadata = is_own
            || inode.is_directory()
            || inode.is_symlink()
            || inode.flags.contains(InodeFlags::EA_INODE);
        walk_map(self.image, inode, &mut |part| match part {
            MapPart::Node { block, .. } => self.run(block.get(), 1),
            MapPart::Run(run) if has_metadata => {
                self.run(run.physical.get(), u64::from(run.length))
            }
            MapPart::Run(_) => Ok(()),
            MapPart::Problem(_) => {
                self.summary.problems += 1;
                Ok(())
            }
        })
    }

    /// Copies what of a run of blocks wasn't copied before.
    fn run(&mut self, start: u64, length: u64) -> Result<()> {
        let end = start.saturating_add(length).min(self.blocks);
        let piece = (PIECE_BYTES >> self.image.layout.log_block_size()) as u64;
        for new in self.copied.insert(start..end) {
            let mut at = new.start;
            while at < new.end {
                let next = self.data_from(at).min(new.end);
                // Zeros are in the copy already.
                self.summary.bytes += (next - at) << self.image.layout.log_block_size();
                let count = piece.min(new.end - next);
                self.blocks(next, count)?;
                at = next + count;
            }
        }
        Ok(())
    }

    /// The first block from `block` on that may hold something else than zeros.
    fn data_from(&self, block: u64) -> u64 {
        let next = self.image.next_data(self.image.offset_of(PhysicalBlock::new(block)));
        next.map_or(u64::MAX, |next| next >> self.image.layout.log_block_size())
    }

    fn blocks(&mut self, start: u64, count: u64) -> Result<()> {
        let size = self.image.layout.block_size();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(count as usize * size, 0);
        let offset = self.image.offset_of(PhysicalBlock::new(start));
        if self.image.device.read_at(offset, &mut buffer).is_err() {
            for (index, block) in (0..).zip(buffer.chunks_exact_mut(size)) {
                if self.image.device.read_at(offset + index * size as u64, block).is_err() {
                    block.fill(0);
                    self.summary.unreadable_bytes += size as u64;
                }
            }
        }
        self.summary.bytes += buffer.len() as u64;
        for (index, block) in (0..).zip(buffer.chunks_exact(size)) {
            // Holes stay holes.
            if block.iter().any(|&byte| byte != 0) {
                self.copy.write_at(offset + index * size as u64, block)?;
            }
        }
        self.buffer = buffer;
        Ok(())
    }
}
