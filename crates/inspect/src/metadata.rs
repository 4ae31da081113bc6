//! Copies an image without the data of its files, for a bug report.
//!
//! The copy has the superblock and the descriptors with their copies, bitmaps, inode tables, extent trees and block
//! maps, directories, targets of symbolic links, extended attributes with their values, and the file system's own files:
//! the journal, the quota files, the orphan file and the resize inode. Everything else is zeros.

use crate::block_ranges::BlockRanges;
use crate::error::Result;
use crate::image::{InspectedImage, StoredInode};
use crate::map::{MapPart, walk_map};
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};

/// Bytes that are read and written at once.
const PIECE_BYTES: usize = 1 << 20;

/// What a copy of the metadata holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetadataSummary {
    /// Bytes of the blocks that were copied, including blocks of zeros.
    pub bytes: u64,
    /// Bytes of the blocks among them that can't be read, which are zeros in the copy.
    pub unreadable_bytes: u64,
    /// Places in maps of blocks that can't be followed.
    pub problems: u64,
}

/// Copies the metadata of an image to the same offsets in `copy`, which must hold zeros. `progress` is called with the
/// number of inodes that were read, and the number of inodes.
///
/// # Errors
/// `copy` can't be written. Blocks of the image that can't be read are counted.
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
    /// Copies metadata with fixed places, or places that a descriptor names.
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

    /// Copies superblocks and descriptors, and their copies in all groups that were written to.
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
        // Blocks of a deleted file may hold data of another one by now.
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

    /// Copies the blocks of a run that were not copied before.
    fn run(&mut self, start: u64, length: u64) -> Result<()> {
        let end = start.saturating_add(length).min(self.blocks);
        let piece = (PIECE_BYTES >> self.image.layout.log_block_size()) as u64;
        for new in self.copied.insert(start..end) {
            let mut at = new.start;
            while at < new.end {
                let next = self.data_from(at).min(new.end);
                // The copy has zeros there already.
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
