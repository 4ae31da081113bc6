//! Reading the log forwards, many blocks at a time.

use crate::log::offset;
use crate::{JournalArea, JournalResult};
use drystone_blockdev::BlockDevice;
use std::ops::Range;

/// A window over the log that moves as blocks are asked for.
pub(crate) struct LogReader<'a> {
    device: &'a dyn BlockDevice,
    area: &'a JournalArea,
    range: Range<u32>,
    block_size_bytes: usize,
    /// Blocks read at once.
    window_blocks: u32,
    /// Journal blocks in `window`.
    loaded: Range<u32>,
    window: Vec<u8>,
}

impl<'a> LogReader<'a> {
    pub(crate) fn new(
        device: &'a dyn BlockDevice,
        area: &'a JournalArea,
        range: Range<u32>,
        block_size_bytes: usize,
        window_blocks: u32,
    ) -> Self {
        let (loaded, window) = (0..0, Vec::new());
        Self { device, area, range, block_size_bytes, window_blocks, loaded, window }
    }

    /// Journal block `block`, which is in the range.
    pub(crate) fn read(&mut self, block: u32) -> JournalResult<&[u8]> {
        if !self.loaded.contains(&block) {
            let end = block.saturating_add(self.window_blocks).min(self.range.end);
            // Behind the last commit may be blocks that can't be read, and nobody needs them.
            self.load(block..end).or_else(|_| {
                self.window_blocks = 1;
                self.load(block..block + 1)
            })?;
        }
        let start = (block - self.loaded.start) as usize * self.block_size_bytes;
        Ok(&self.window[start..start + self.block_size_bytes])
    }

    /// Reads the first blocks of a range, as many as lie side by side.
    fn load(&mut self, blocks: Range<u32>) -> JournalResult {
        let first = blocks.start;
        let (physical, count) = self.area.run(blocks)?;
        self.window.resize(count as usize * self.block_size_bytes, 0);
        self.loaded = 0..0;
        self.device.read_at(offset(physical, self.block_size_bytes), &mut self.window)?;
        self.loaded = first..first + count;
        Ok(())
    }

    /// The block that follows `block`, going round.
    pub(crate) fn next(&self, block: u32) -> u32 {
        if block + 1 < self.range.end { block + 1 } else { self.range.start }
    }

    /// How many blocks there are.
    pub(crate) fn capacity_blocks(&self) -> u32 {
        self.range.end - self.range.start
    }
}
