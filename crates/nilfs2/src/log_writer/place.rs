//! Places the blocks of a log, and writes it.
//!
//! After the steps of `build`: (4) place all blocks; (5) set what depends on the places: DAT entries, the
//! DAT's map, counts; (6) write the super root.

use super::build::Builder;
use crate::error::{Error, Result};
use crate::log::{
    BlockContent, LogPlan, LogState, LoggedBlock, LogicalSegment, places, plan, write,
};
use crate::volume::BlockBytes;
use drystone_nilfs2_format::cpfile::{self, Checkpoint, CheckpointFlags};
use drystone_nilfs2_format::log::{LogFlags, SummaryItem};
use drystone_nilfs2_format::super_root::SuperRoot;
use drystone_nilfs2_format::superblock::LogCursor;
use drystone_nilfs2_format::{InodeNumber, PhysicalBlock, SegmentNumber};
use drystone_sync::Arc;
use drystone_vfs::Errno;
use std::collections::{HashMap, VecDeque};

/// Entries of the DAT that change with a logged block: the one that it takes, and the one that it ends.
const DAT_ENTRIES: u64 = 2;
/// Blocks of one log beyond those that are counted before it is placed: nodes and the super root.
const SLACK_BLOCKS: u64 = 64;

impl Builder<'_> {
    /// How many segments beside the current and the next the log may need at most, as far as is known
    /// before the segment usage file is complete: each segment that is taken may change a block of that.
    fn spare_segments(&self, log: &LogState) -> u64 {
        // With a node each, of both files.
        let sufile = 2 * log.segments.file.dirty_count() as u64;
        let dat = self.engine.dat.read().file.dirty_count() as u64 + DAT_ENTRIES * sufile;
        let blocks = self.blocks.len() as u64 + sufile + 2 * dat + SLACK_BLOCKS;
        blocks.div_ceil(self.engine.space.segment_payload_min()) + 1
    }

    /// Takes the segments that the log may need beside the current and the next, as far as there are any.
    fn take_spare(&self, log: &mut LogState) -> Result<Vec<SegmentNumber>> {
        let mut spare = Vec::new();
        while (spare.len() as u64) < self.spare_segments(log) {
            match log.segments.allocate(&self.engine.volume, &self.source) {
                Ok(segment) => spare.push(segment),
                Err(Error::Errno(Errno::ENOSPC)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(spare)
    }

    /// Places what was added and writes it. With a record of a checkpoint, metadata and super root follow.
    pub(super) fn place(
        mut self,
        log: &mut LogState,
        flags: LogFlags,
        record: Option<Checkpoint>,
    ) -> Result<LogCursor> {
        let volume = &self.engine.volume;
        let last_allocated = log.segments.header.last_allocated;
        let spare = self.take_spare(log)?;
        if record.is_some() {
            self.add_sufile(log, &spare)?;
            self.add_dat()?;
        }
        let start = log.segments.position;
        let plan = plan(volume, start, &self.blocks, record.is_some(), &spare)?;
        volume.set_moving(self.moving(&plan));
        self.apply_places(&plan)?;
        self.note_segments(log, &plan, &spare, last_allocated)?;
        let super_root = match record {
            Some(record) => Some(self.finish_checkpoint(log, record, &plan)?),
            None => None,
        };
        let cursor = self.cursor(&plan);
        let segment = LogicalSegment {
            checkpoint: self.checkpoint,
            flags,
            super_root: super_root.as_deref(),
        };
        let end = plan.end;
        let nodes = self.encode_dat_nodes();
        write(volume, plan, &self.blocks, &segment, |inode, content| {
            self.bytes_of(log, &nodes, inode, content)
        })?;
        volume.set_moving(HashMap::new());
        log.segments.position = end;
        log.dead_blocks += self.dead_blocks;
        Ok(cursor)
    }

    /// What the cleaner moves, by the new places.
    fn moving(&self, plan: &LogPlan) -> HashMap<PhysicalBlock, BlockBytes> {
        plan.logs
            .iter()
            .flat_map(places)
            .filter_map(|(index, place)| match &self.blocks[index] {
                LoggedBlock { is_moved: true, content: BlockContent::Ready(bytes), .. } => {
                    Some((place, Arc::clone(bytes)))
                }
                _ => None,
            })
            .collect()
    }

    fn cursor(&self, plan: &LogPlan) -> LogCursor {
        let position = plan.logs.last().map_or(plan.end, |log| log.position);
        LogCursor {
            checkpoint: self.checkpoint,
            block: position.block,
            sequence: position.sequence,
        }
    }

    /// Notes in the DAT where all blocks are.
    fn apply_places(&self, plan: &LogPlan) -> Result<()> {
        let volume = &self.engine.volume;
        let mut dat = self.engine.dat.write();
        let mut nodes: VecDeque<PhysicalBlock> = VecDeque::new();
        for (index, place) in plan.logs.iter().flat_map(places) {
            let block = &self.blocks[index];
            match block.item {
                SummaryItem::Data { virtual_block, .. } | SummaryItem::Node { virtual_block } => {
                    if block.is_moved {
                        dat.relocate(virtual_block, place, volume)?;
                    } else {
                        dat.begin(virtual_block, place, self.checkpoint, volume)?;
                    }
                }
                SummaryItem::DatData { key } => {
                    dat.file.map.set(key, place.0, volume)?;
                }
                SummaryItem::DatNode { .. } => nodes.push_back(place),
            }
        }
        if nodes.is_empty() {
            return Ok(());
        }
        dat.file.map.renew_nodes(&mut |_| match nodes.pop_front() {
            Some(place) => Ok(place.0),
            None => unreachable!("every dirty node was placed"),
        })
    }

    fn note_segments(
        &self,
        log: &mut LogState,
        plan: &LogPlan,
        spare: &[SegmentNumber],
        last_allocated: SegmentNumber,
    ) -> Result<()> {
        let (volume, now) = (&self.engine.volume, self.engine.volume.wall_s());
        let (used, unused) = spare.split_at(plan.segments_used);
        let last = used.last().copied().unwrap_or(last_allocated);
        log.segments.give_back(unused, last, volume, &self.source)?;
        for planned in &plan.logs {
            let blocks = planned.length() as u32;
            let segment = planned.position.segment;
            log.segments.note_written(segment, blocks, now, volume, &self.source)?;
        }
        Ok(())
    }

    /// Fills in what depends on places, and returns the block of the super root.
    fn finish_checkpoint(
        &self,
        log: &mut LogState,
        record: Checkpoint,
        plan: &LogPlan,
    ) -> Result<Vec<u8>> {
        let block_bytes = self.engine.volume.block_bytes();
        let blocks_written = plan.logs.iter().map(|planned| planned.length()).sum();
        let (key, offset) = cpfile::place_of(record.number, block_bytes);
        if !record.flags.contains(CheckpointFlags::MINOR) {
            log.changed_s = record.created_s;
        }
        let block = log.cpfile.edit_zeroed(key, &self.source)?;
        Checkpoint { blocks_written, ..record }.encode_into(&mut block[offset..]);
        let super_root = SuperRoot {
            changed_s: log.changed_s,
            dat: self.engine.dat.write().file.inode(),
            cpfile: log.cpfile.inode(),
            sufile: log.segments.file.inode(),
        };
        let mut block = vec![0; block_bytes];
        let bytes = super_root.encode(self.engine.volume.seed);
        block[..bytes.len()].copy_from_slice(&bytes);
        Ok(block)
    }

    fn encode_dat_nodes(&self) -> Vec<BlockBytes> {
        let dat = self.engine.dat.read();
        let nodes = dat.file.map.dirty_nodes();
        nodes
            .into_iter()
            .map(|dirty| {
                let mut bytes = vec![0; self.engine.volume.block_bytes()];
                dirty.node.encode_into(&mut bytes);
                bytes.into()
            })
            .collect()
    }

    /// What a block holds, now that everything is known.
    fn bytes_of(
        &self,
        log: &LogState,
        nodes: &[BlockBytes],
        inode: InodeNumber,
        content: &BlockContent,
    ) -> Result<BlockBytes> {
        let key = match content {
            BlockContent::Ready(bytes) => return Ok(Arc::clone(bytes)),
            BlockContent::DatNode(index) => return Ok(Arc::clone(&nodes[*index])),
            BlockContent::Metadata(key) => *key,
        };
        let bytes = match inode {
            InodeNumber::CPFILE => log.cpfile.cached(key).map(Arc::clone),
            InodeNumber::SUFILE => log.segments.file.cached(key).map(Arc::clone),
            _ => self.engine.dat.read().file.cached(key).map(Arc::clone),
        };
        let Some(bytes) = bytes else { unreachable!("dirty blocks stay in memory") };
        Ok(bytes)
    }
}
