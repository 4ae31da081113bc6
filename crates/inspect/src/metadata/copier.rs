//! Copies blocks of an image to the same places of another file, each once.

use crate::block_ranges::BlockRanges;
use crate::error::Result;
use crate::image::InspectedImage;
use crate::metadata::MetadataSummary;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::{GroupNumber, PhysicalBlock};
use std::ops::Range;

/// Bytes that are read and written at once.
const PIECE_BYTES: usize = 1 << 20;

/// Called with a block and its bytes, which it may change before they are written.
pub(super) type Rewrite<'a> = dyn FnMut(PhysicalBlock, &mut [u8]) -> Result<()> + 'a;

/// A copy in the making. It must hold zeros where nothing was copied to.
pub(super) struct BlockCopier<'a, 'd> {
    pub image: &'a InspectedImage<'d>,
    pub copy: &'a dyn BlockDevice,
    /// Blocks that the device has, whatever the superblock says.
    pub blocks: u64,
    pub copied: BlockRanges,
    buffer: Vec<u8>,
    pub summary: MetadataSummary,
}

impl<'a, 'd> BlockCopier<'a, 'd> {
    pub fn new(image: &'a InspectedImage<'d>, copy: &'a dyn BlockDevice) -> Self {
        Self {
            image,
            copy,
            blocks: image.device.size_bytes() >> image.layout.log_block_size(),
            copied: BlockRanges::default(),
            buffer: Vec::new(),
            summary: MetadataSummary::default(),
        }
    }

    /// Copies the blocks of a run that were not copied before.
    pub fn run(&mut self, start: u64, length: u64, rewrite: &mut Rewrite<'_>) -> Result<()> {
        for new in self.claim(start, length) {
            self.copy_range(new, rewrite)?;
        }
        Ok(())
    }

    /// Notes blocks of a run as copied, and returns those that weren't before.
    pub fn claim(&mut self, start: u64, length: u64) -> Vec<Range<u64>> {
        let end = start.saturating_add(length).min(self.blocks);
        self.copied.insert(start..end)
    }

    /// Copies blocks, whether or not they were copied before.
    pub fn copy_range(&mut self, range: Range<u64>, rewrite: &mut Rewrite<'_>) -> Result<()> {
        let log_block_size = self.image.layout.log_block_size();
        let piece = (PIECE_BYTES >> log_block_size) as u64;
        let mut at = range.start;
        while at < range.end {
            let next = self.data_from(at).min(range.end);
            // The copy has zeros there already.
            self.summary.bytes += (next - at) << log_block_size;
            let count = piece.min(range.end - next);
            self.copy_blocks(next, count, rewrite)?;
            at = next + count;
        }
        Ok(())
    }

    /// The first block from `block` on that may hold something else than zeros.
    pub fn data_from(&self, block: u64) -> u64 {
        let next = self.image.next_data(self.image.offset_of(PhysicalBlock::new(block)));
        next.map_or(u64::MAX, |next| next >> self.image.layout.log_block_size())
    }

    /// The first group from a number on whose start may hold something else than zeros.
    pub fn written_group_from(&self, number: u32) -> Option<GroupNumber> {
        let layout = &self.image.layout;
        if number >= layout.group_count() {
            return None;
        }
        let group = GroupNumber::new(number);
        let start = layout.group_first_block(group).get();
        if start >= self.blocks {
            return None;
        }
        let data = layout.group_of_block(PhysicalBlock::new(self.data_from(start)));
        data.filter(|data| *data >= group)
    }

    fn copy_blocks(&mut self, start: u64, count: u64, rewrite: &mut Rewrite<'_>) -> Result<()> {
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
        for (index, block) in (0..).zip(buffer.chunks_exact_mut(size)) {
            rewrite(PhysicalBlock::new(start + index), block)?;
            self.write(offset + index * size as u64, block)?;
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Writes bytes, unless they are zeros: holes stay holes.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.iter().any(|&byte| byte != 0) {
            self.copy.write_at(offset, bytes)?;
        }
        Ok(())
    }
}
