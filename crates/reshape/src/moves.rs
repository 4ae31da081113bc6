//! The moves of blocks: from where to where.

use crate::error::Result;
use crate::image::Image;
use drystone_blockdev::DeviceResult;
use drystone_sync::{in_order, thread};
use std::ops::Range;

/// Bytes that a thread copies at once: they stay in the cache of its core between being read and being written.
const COPY_BYTES: u64 = 256 << 10;

/// Copies that a thread takes up together.
const COPIES_AT_ONCE: usize = 16;

/// A run of blocks that moves as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockMove {
    pub from: u64,
    pub to: u64,
    pub length: u64,
}

impl BlockMove {
    fn end(&self) -> u64 {
        self.from + self.length
    }
}

/// All moves, in the order of where they start. No block is the target of one and the source of another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves(Vec<BlockMove>);

impl Moves {
    /// `moves` must be in order and not overlap.
    pub fn new(moves: Vec<BlockMove>) -> Self {
        debug_assert!(moves.is_sorted_by(|a, b| a.end() <= b.from), "moves are in order");
        Self(moves)
    }

    pub fn blocks(&self) -> u64 {
        self.0.iter().map(|one| one.length).sum()
    }

    /// Where the blocks are that move.
    pub fn sources(&self) -> impl Iterator<Item = Range<u64>> + use<'_> {
        self.0.iter().map(|one| one.from..one.end())
    }

    fn at(&self, block: u64) -> Option<&BlockMove> {
        let index = self.0.partition_point(|one| one.end() <= block);
        self.0.get(index).filter(|one| one.from <= block)
    }

    /// Where a block is afterwards.
    pub fn translate(&self, block: u64) -> u64 {
        self.at(block).map_or(block, |one| one.to + (block - one.from))
    }

    /// Whether any of these blocks moves.
    pub fn touches(&self, blocks: &Range<u64>) -> bool {
        let index = self.0.partition_point(|one| one.end() <= blocks.start);
        self.0.get(index).is_some_and(|one| one.from < blocks.end)
    }

    /// Where a run of blocks is afterwards, in pieces.
    pub fn pieces(&self, blocks: Range<u64>) -> Vec<Range<u64>> {
        let mut pieces = Vec::new();
        let mut start = blocks.start;
        let mut index = self.0.partition_point(|one| one.end() <= start);
        while start < blocks.end {
            let next = self.0.get(index);
            let (end, target) = match next {
                Some(one) if one.from <= start => {
                    index += 1;
                    (one.end().min(blocks.end), one.to + (start - one.from))
                }
                Some(one) => (one.from.min(blocks.end), start),
                None => (blocks.end, start),
            };
            pieces.push(target..target + (end - start));
            start = end;
        }
        pieces
    }

    /// Copies what moves, with several threads. What was in `released` belonged to something before, and is logged.
    pub fn copy(
        &self,
        image: &Image<'_>,
        released: &[Range<u64>],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let (device, shift) = (image.device, image.layout.log_block_size());
        let copies = self.copies((COPY_BYTES >> shift).max(1));
        let parts: Vec<&[BlockMove]> = copies.chunks(COPIES_AT_ONCE).collect();
        let copy = |part: usize| {
            let mut buffer = Vec::new();
            for one in parts[part] {
                buffer.resize((one.length << shift) as usize, 0);
                device.read_at(one.from << shift, &mut buffer)?;
                let target = one.to..one.to + one.length;
                if released.iter().any(|run| run.start < target.end && target.start < run.end) {
                    device.write_at(target.start << shift, &buffer)?;
                } else {
                    device.write_free_at(target.start << shift, &buffer)?;
                }
            }
            Ok(parts[part].iter().map(|one| one.length).sum::<u64>())
        };
        let (mut done, total) = (0, self.blocks());
        let threads = thread::available_parallelism().map_or(1, usize::from);
        in_order("move", parts.len(), threads, copy, |_, copied: DeviceResult<u64>| {
            done += copied?;
            progress(done, total);
            Ok(())
        })
    }

    /// The moves, cut to at most so many blocks each.
    fn copies(&self, blocks: u64) -> Vec<BlockMove> {
        let cut = |one: &BlockMove| {
            let BlockMove { from, to, length } = *one;
            (0..length).step_by(blocks as usize).map(move |at| BlockMove {
                from: from + at,
                to: to + at,
                length: blocks.min(length - at),
            })
        };
        self.0.iter().flat_map(cut).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_where_moves_begin_and_end() {
        let moves = Moves::new(vec![
            BlockMove { from: 100, to: 10, length: 5 },
            BlockMove { from: 105, to: 50, length: 10 },
            BlockMove { from: 200, to: 60, length: 1 },
        ]);
        assert_eq!(moves.pieces(90..120), [90..100, 10..15, 50..60, 115..120]);
        assert_eq!(moves.pieces(102..106), [12..15, 50..51]);
        assert_eq!(moves.pieces(0..10).first(), Some(&(0..10)));
        assert_eq!((moves.translate(114), moves.translate(115)), (59, 115));
        assert!(moves.touches(&(0..101)) && !moves.touches(&(0..100)));
        assert!(!moves.touches(&(115..200)) && moves.touches(&(115..201)));
        assert_eq!(moves.blocks(), 16);
    }
}
