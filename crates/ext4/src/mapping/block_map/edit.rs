//! Changes block maps.

use super::super::StepProgress;
use super::super::store::NodesMut;
use super::super::tree::RemovedExtents;
use super::{END, PointerPath};
use crate::error::{Error, Result};
use drystone_ext4_format::block_map::{LEVELS_MAX, MapPath, logical_end, pointer, set_pointer};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::{Corrupt, LogicalBlock, PhysicalBlock};
use drystone_vfs::Errno;

/// Maps a run whose pointers are in one block, as [`run_length_max`](super::run_length_max) says.
///
/// # Errors
/// `NoSpace` or `CommitFirst` if there is no block for pointers, `Corrupt` if a block of the run is
/// mapped already; then the map is unchanged.
pub(in super::super) fn insert<S: NodesMut>(nodes: &mut S, extent: Extent) -> Result<()> {
    let path = MapPath::new(extent.logical, nodes.layout()).ok_or(Error::Errno(Errno::EFBIG))?;
    let way = PointerPath::find(nodes, path)?;
    let levels = path.levels();
    let first = way.index(levels);
    let end = way.pointers_end(nodes, levels);
    assert!(
        u64::from(first) + u64::from(extent.length) <= u64::from(end),
        "{extent:?} is too long"
    );
    let set_run = |bytes: &mut [u8]| {
        for skip in 0..extent.length {
            let block = PhysicalBlock::new(extent.physical.get() + u64::from(skip));
            set_pointer(bytes, first + skip, Some(block));
        }
    };
    let missing = levels - way.present;
    let mut blocks = [extent.physical; LEVELS_MAX];
    for taken in 0..missing {
        match nodes.allocate(extent.physical) {
            Ok(block) => blocks[taken] = block,
            Err(error) => {
                for block in &blocks[..taken] {
                    nodes.release(*block)?;
                }
                return Err(error);
            }
        }
    }
    if missing == 0 {
        // The caller has found a hole with the inode locked; but in a damaged image another inode
        // may use the same block of pointers.
        let run = first..first + extent.length;
        let holes = way.count(nodes, levels, run, |block| block.is_none())?;
        if holes < u64::from(extent.length) {
            return Err(Corrupt::BlockMapped { inode: nodes.inode(), block: extent.logical }.into());
        }
        return way.change(nodes, levels, set_run);
    }
    // From the last level up, so that no pointer leads to a block without content.
    nodes.create(blocks[0], set_run)?;
    for step in 1..missing {
        let index = way.index(levels - step);
        nodes.create(blocks[step], |bytes| set_pointer(bytes, index, Some(blocks[step - 1])))?;
    }
    let index = way.index(way.present);
    way.change(nodes, way.present, |bytes| set_pointer(bytes, index, Some(blocks[missing - 1])))
}

/// Unmaps the last blocks of the range whose pointers are in one block, as far as `budget` allows;
/// see [`tree::remove`](super::super::tree::remove).
pub(in super::super) fn remove<S: NodesMut>(
    nodes: &mut S,
    from: u32,
    to: u64,
    mut budget: impl FnMut(&Extent) -> Option<LogicalBlock>,
) -> Result<RemovedExtents> {
    let from = u64::from(from);
    let (last, way) = match last_used(nodes, from, to)? {
        RangeEnd::Mapped { logical, way } => (logical, way),
        RangeEnd::Empty { start, way } => {
            way.release_empty(nodes)?;
            let progress =
                if start > from { StepProgress::More { next: start } } else { StepProgress::Done };
            return Ok(RemovedExtents { pieces: Vec::new(), progress });
        }
        RangeEnd::Nothing => {
            return Ok(RemovedExtents { pieces: Vec::new(), progress: StepProgress::Done });
        }
    };
    let levels = way.path.levels();
    let last_index = way.index(levels);
    let block_start = last.as_u64() - u64::from(last_index);
    // Fits: at most the last index, because the last mapped block is not before `from`.
    let low_index = from.saturating_sub(block_start) as u32;

    let mut pieces = Vec::new();
    let mut stopped = false;
    for run in way.runs(nodes, low_index, last)? {
        let Some(piece) = budget(&run).and_then(|low| run.overlap(low.as_u64(), to)) else {
            stopped = true;
            break;
        };
        stopped = piece.logical > run.logical;
        pieces.push(piece);
        if stopped {
            break;
        }
    }
    let Some(lowest) = pieces.last().map(|piece| piece.logical.as_u64()) else {
        // The last block is mapped, and pointers are checked to be inside the image.
        unreachable!("a step of a removal may remove nothing");
    };
    let empty = way.change(nodes, levels, |bytes| {
        for piece in &pieces {
            for logical in piece.logical.as_u64()..piece.logical_end() {
                set_pointer(bytes, (logical - block_start) as u32, None);
            }
        }
        is_empty(bytes)
    })?;
    if empty {
        way.release_empty(nodes)?;
    }
    let next = if stopped { lowest } else { block_start };
    let progress = if next > from { StepProgress::More { next } } else { StepProgress::Done };
    Ok(RemovedExtents { pieces, progress })
}

fn is_empty(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// What is mapped at the end of a range.
enum RangeEnd<N> {
    Nothing,
    Mapped {
        logical: LogicalBlock,
        way: PointerPath<N>,
    },
    /// An indirect block without pointers, as other systems leave them; it covers the blocks of the
    /// file from `start` on.
    Empty {
        start: u64,
        way: PointerPath<N>,
    },
}

/// The last mapped block of a range, or an empty indirect block after that. Skips missing subtrees
/// as a whole.
fn last_used<S: NodesMut>(nodes: &S, from: u64, to: u64) -> Result<RangeEnd<S::Node>> {
    let mut end = to.min(logical_end(nodes.layout())).min(END);
    while end > from {
        // Fits: below 2^32.
        let logical = LogicalBlock::new((end - 1) as u32);
        let Some(path) = MapPath::new(logical, nodes.layout()) else { break };
        let way = PointerPath::find(nodes, path)?;
        let level = way.present;
        let start = logical.as_u64() - way.blocks_before(nodes, level);
        if level > 0 && way.look(nodes, level, is_empty) {
            let start = start - u64::from(way.index(level)) * way.blocks_below(nodes, level);
            return Ok(RangeEnd::Empty { start, way });
        }
        let index = way.index(level);
        // The pointers that cover the blocks right before ours.
        let low = if level == 0 && path.levels() > 0 { index } else { 0 };
        let missing = way.count(nodes, level, (low..=index).rev(), |block| block.is_none())?;
        let Some(further) = missing.checked_sub(1) else {
            return Ok(RangeEnd::Mapped { logical, way });
        };
        end = start - further * way.blocks_below(nodes, level);
    }
    Ok(RangeEnd::Nothing)
}

impl<N: Clone> PointerPath<N> {
    /// Changes the bytes that hold the pointers of a level; level 0 is the inode.
    fn change<S: NodesMut<Node = N>, R>(
        &self,
        nodes: &mut S,
        level: usize,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        match self.holder(level) {
            Some((node, _)) => nodes.change(node, change),
            None => nodes.change_root(change),
        }
    }

    /// The runs that the pointers of the last level map, from index `low` up to the pointer of
    /// block `logical`; last one first.
    fn runs<S: NodesMut<Node = N>>(
        &self,
        nodes: &S,
        low: u32,
        logical: LogicalBlock,
    ) -> Result<Vec<Extent>> {
        let level = self.path.levels();
        let holder = self.holder(level).map(|(_, block)| *block);
        let (inode, layout) = (nodes.inode(), nodes.layout());
        let high = self.index(level);
        let mut runs: Vec<Extent> = Vec::new();
        self.look(nodes, level, |bytes| {
            for index in (low..=high).rev() {
                let found = pointer(bytes, index, inode, holder, layout)?;
                let logical = logical.checked_sub(high - index);
                let (Some(physical), Some(logical)) = (found, logical) else { continue };
                let block = Extent::of_block(logical, physical);
                match runs.last_mut() {
                    Some(run) if block.merge(run).is_some() => {
                        *run = Extent { length: run.length + 1, ..block };
                    }
                    _ => runs.push(block),
                }
            }
            Ok::<_, Corrupt>(())
        })?;
        Ok(runs)
    }

    /// Frees the lowest indirect block of the path, which is empty, and those above it that become
    /// empty.
    fn release_empty<S: NodesMut<Node = N>>(&self, nodes: &mut S) -> Result<()> {
        for level in (0..self.present).rev() {
            let Some((_, block)) = &self.nodes[level] else { break };
            let index = self.index(level);
            let empty = self.change(nodes, level, |bytes| {
                set_pointer(bytes, index, None);
                is_empty(bytes)
            })?;
            nodes.release(*block)?;
            if !empty {
                break;
            }
        }
        Ok(())
    }
}
