//! Writes planned logs.

use super::layout::{BlockContent, LogPlan, LoggedBlock, PlannedLog};
use crate::error::Result;
use crate::volume::{BlockBytes, Volume};
use drystone_nilfs2_format::log::{LogFlags, LogHeader, seal};
use drystone_nilfs2_format::{CheckpointNumber, InodeNumber, PhysicalBlock};
use std::io::IoSlice;

/// What all logs of one logical segment have in common.
#[derive(Debug)]
pub(crate) struct LogicalSegment<'a> {
    pub(crate) checkpoint: CheckpointNumber,
    /// Flags beside those for the first and the last log.
    pub(crate) flags: LogFlags,
    pub(crate) super_root: Option<&'a [u8]>,
}

/// Writes the logs and makes them durable. `bytes` gives what a block holds that wasn't known before.
pub(crate) fn write(
    volume: &Volume,
    plan: LogPlan,
    blocks: &[LoggedBlock],
    segment: &LogicalSegment<'_>,
    mut bytes: impl FnMut(InodeNumber, &BlockContent) -> Result<BlockBytes>,
) -> Result<()> {
    let count = plan.logs.len();
    for (index, log) in plan.logs.into_iter().enumerate() {
        let is_last = index + 1 == count;
        let mut flags = LogFlags::empty();
        flags.set(LogFlags::BEGIN, index == 0);
        flags.set(LogFlags::END, is_last);
        flags.set(LogFlags::SUPER_ROOT, log.has_super_root);
        // As Linux does: the first log of the cleaner doesn't say that it is one.
        let common = if index == 0 { segment.flags - LogFlags::CLEANER } else { segment.flags };
        if is_last && index > 0 {
            // The last log makes the others count, so they must be durable before.
            volume.device.flush()?;
        }
        let payload = blocks[log.blocks.clone()]
            .iter()
            .map(|block| bytes(block.inode, &block.content))
            .collect::<Result<Vec<_>>>()?;
        write_log(volume, log, flags | common, &payload, segment)?;
    }
    volume.device.flush()?;
    Ok(())
}

fn write_log(
    volume: &Volume,
    log: PlannedLog,
    flags: LogFlags,
    payload: &[BlockBytes],
    segment: &LogicalSegment<'_>,
) -> Result<()> {
    let geometry = &volume.geometry;
    let start = log.position.block;
    let summary_bytes = log.summary.bytes();
    let header = LogHeader {
        flags,
        sequence: log.position.sequence,
        created_s: volume.wall_s(),
        next: geometry.segment_start(log.position.next),
        // A segment has at most 2^20 blocks.
        blocks: log.length() as u32,
        sections: log.summary.sections(),
        summary_bytes: summary_bytes as u32,
        checkpoint: segment.checkpoint,
        stored_summary_sum: 0,
        stored_data_sum: 0,
    };
    let super_root = segment.super_root.filter(|_| log.has_super_root);
    let mut summary = log.summary.finish();
    header.encode_into(&mut summary);
    let blocks = || payload.iter().map(|block| &**block).chain(super_root);
    seal(volume.seed, &mut summary, summary_bytes, blocks());
    let slices: Vec<IoSlice<'_>> =
        std::iter::once(&*summary).chain(blocks()).map(IoSlice::new).collect();
    volume.write_blocks(start, &slices)
}

/// The block after a log's summary, and those after it.
pub(crate) fn places(log: &PlannedLog) -> impl Iterator<Item = (usize, PhysicalBlock)> + use<> {
    log.blocks.clone().zip((log.payload.0..).map(PhysicalBlock))
}
