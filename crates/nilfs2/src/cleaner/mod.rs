//! The cleaner: moves live blocks out of old segments, so that the segments can be written again.
//!
//! # State
//! A block is live as long as the newest state has it, or a protected checkpoint has it: a snapshot, or any
//! checkpoint from the *first protected* one on. Checkpoints that lose a block are deleted.
//!
//! # Crash
//! Moving blocks, freeing segments and deleting checkpoints is one minor checkpoint. Before it, both superblocks
//! are written so that they lead to the newest log and no recovery reads a segment that is being cleaned. The
//! segments are written again only after the minor checkpoint is durable.
//!
//! # Errors
//! A plan changes nothing. A segment that can't be read is left as it is; another error ends the round, and the log
//! goes on. Only an error of what writes stops the log.
//!
//! # Space
//! Cleaning takes space itself. It is planned in memory and its space is claimed; it is written only if it fits
//! and gains segments. A plan has all blocks in memory that it moves, so it ends at a number of bytes,
//! which is larger as long as it gains no segment.
//!
//! # Locking
//! All of it happens with the log locked, in the log writer's thread or a caller's; files are changed
//! meanwhile.

mod examine;

use crate::checkpoints::Checkpoints;
use crate::dat::DatWalk;
use crate::engine::Engine;
use crate::error::Result;
use crate::log::{CleanerWork, LogState};
use crate::log_writer::LogWriter;
use drystone_nilfs2_format::cpfile::CheckpointFlags;
use drystone_nilfs2_format::sufile::{SegmentUsage, UsageFlags};
use drystone_nilfs2_format::{CheckpointNumber, SegmentNumber};
use drystone_sync::MutexGuard;
use examine::{CleanerBatch, FreedPeriods, KeptCheckpoints};
use std::collections::HashMap;
use std::ops::Deref;

/// Cleaning starts when fewer segments are clean, in percent.
const START_BELOW_PERCENT: u64 = 10;
/// Cleaning goes on until so many are.
const STOP_AT_PERCENT: u64 = 20;
/// Segments that are cleaned at once.
const SEGMENTS_AT_ONCE: usize = 2;
/// Segments that are looked at in vain before a round of the background ends.
const SEGMENTS_LEFT_AT_ONCE: usize = 8;
/// Segments that are gained at once when there is no room for what somebody wants to add.
const SEGMENTS_GAINED: u64 = 4;
/// Moved blocks stay in memory until they are logged: a batch ends after the segment with which it has so much and
/// gains a segment.
const MOVED_BYTES: u64 = 256 << 20;
/// A batch ends after the segment with which it has so much, or two whole segments, even if it gains nothing.
const MOVED_BYTES_MAX: u64 = 2 << 30;
/// A segment from which less can be taken back is left for later.
const GAIN_MIN_PERCENT: u64 = 10;
/// Checkpoints that are younger are kept, unless there is no room.
pub(crate) const PROTECTION_S: u64 = 3600;

/// What cleans for an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cleaner<'a> {
    engine: &'a Engine,
}

impl Deref for Cleaner<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl<'a> Cleaner<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Self {
        Self { engine }
    }

    /// The state of the log; nothing while the volume is frozen.
    ///
    /// # Errors
    /// If nothing can be written any more. An unmount says so before it locks the log and marks the volume clean.
    fn lock_log(&self) -> Result<Option<MutexGuard<'_, LogState>>> {
        let log = self.log.lock();
        self.requests.check_running()?;
        Ok((!self.gate.is_frozen()).then_some(log))
    }

    /// Whether the cleaner has to work in the background.
    pub(crate) fn is_cleaning_due(&self, is_cleaning: bool) -> bool {
        let clean = self.space.clean_segments();
        let percent = if is_cleaning { STOP_AT_PERCENT } else { START_BELOW_PERCENT };
        clean.saturating_mul(100) < self.volume.geometry.segments().saturating_mul(percent)
    }

    /// Cleans some segments, those first that were written longest ago. Says how many.
    pub(crate) fn clean_some(&self, protection_s: u64) -> Result<usize> {
        let Some(mut log) = self.lock_log()? else { return Ok(0) };
        self.log_data(&mut log)?;
        let kept = self.kept_checkpoints(&mut log, protection_s)?;
        let mut candidates = self.candidates(&mut log)?;
        candidates.sort_by_key(|(segment, usage)| {
            let left_s = log.left_for_later.get(segment).copied().unwrap_or(0);
            (usage.modified_s.max(left_s), *segment)
        });
        let room = self.room();
        let mut batch = CleanerBatch::default();
        let mut left = Vec::new();
        for (segment, usage) in candidates {
            if batch.work.cleaned.len() >= SEGMENTS_AT_ONCE || left.len() >= SEGMENTS_LEFT_AT_ONCE {
                break;
            }
            let Some(found) = self.examine(segment, usage, &kept) else {
                left.push(segment);
                continue;
            };
            let dead = u64::from(usage.blocks).saturating_sub(found.live_blocks());
            let gains_little = dead * 100 < u64::from(usage.blocks) * GAIN_MIN_PERCENT;
            let has_room = batch.cost_max() + found.cost_max() <= room;
            if usage.blocks > 0 && gains_little || !has_room {
                left.push(segment);
                continue;
            }
            batch.append(found);
        }
        if self.gain(&batch) <= 0 {
            left.append(&mut batch.work.cleaned);
        }
        log.left_for_later.extend(left.into_iter().map(|segment| (segment, self.volume.wall_s())));
        self.finish_cleaning(&mut log, &kept, batch)
    }

    /// Cleans until there is room for so many blocks more, or nothing more can be taken back. History that
    /// isn't in a snapshot gives way.
    pub(crate) fn clean_for_space(&self, blocks: u64) -> Result<()> {
        while !self.space.has_room(blocks) && !self.is_futile() {
            let before = self.space.clean_segments();
            self.clean_emptiest(0)?;
            if self.space.clean_segments() <= before {
                break;
            }
        }
        Ok(())
    }

    /// Whether cleaning is in vain: the volume is frozen, or the last attempt has failed, and since then no
    /// segment was taken or freed and too few blocks have died.
    fn is_futile(&self) -> bool {
        let log = self.log.lock();
        let is_same = log.segments.header.clean == log.futile_clean;
        self.gate.is_frozen() || is_same && log.dead_blocks < log.futile_until
    }

    /// Cleans as long as that gains segments. Says how many were cleaned.
    pub(crate) fn clean_all(&self, protection_s: u64) -> Result<usize> {
        let mut total = 0;
        loop {
            let before = self.space.clean_segments();
            total += self.clean_emptiest(protection_s)?;
            // The gain was an estimate.
            if self.space.clean_segments() <= before {
                return Ok(total);
            }
        }
    }

    /// Cleans if a checkpoint has taken from the segments that are kept for the log itself, so that what
    /// is removed from a full volume can always be logged.
    pub(crate) fn refill_reserve(&self) -> Result<()> {
        if self.space.clean_segments() < self.space.reserved_segments() && !self.is_futile() {
            self.clean_emptiest(0)?;
        }
        Ok(())
    }

    /// Blocks that may be logged for the cleaner.
    fn room(&self) -> u64 {
        let clean = self.space.clean_segments();
        clean.saturating_sub(self.space.log_segments()) * self.space.segment_payload_min()
    }

    /// Blocks that are probably gained.
    fn gain(&self, batch: &CleanerBatch) -> i64 {
        let per_segment = self.volume.geometry.blocks_per_segment();
        let cost = self.space.small_checkpoint_blocks() + batch.cost();
        let taken = cost * per_segment / self.space.segment_payload_min();
        (batch.work.cleaned.len() as u64 * per_segment).cast_signed() - taken.cast_signed()
    }

    /// Whether a batch that gains and moves so many blocks is written as it is.
    fn is_enough(&self, gain: i64, moved: u64) -> bool {
        let per_segment = self.volume.geometry.blocks_per_segment();
        let block_bytes = self.volume.block_bytes() as u64;
        let moved_max = (MOVED_BYTES_MAX / block_bytes).max(2 * per_segment);
        gain >= (SEGMENTS_GAINED * per_segment).cast_signed()
            || gain >= per_segment.cast_signed() && moved >= MOVED_BYTES / block_bytes
            || moved >= moved_max
    }

    /// Cleans the segments with the fewest live blocks, if that gains at least a segment. Says how many. The
    /// search reads the whole DAT: if it finds nothing, the state notes how many blocks have to die before
    /// the next one can.
    fn clean_emptiest(&self, protection_s: u64) -> Result<usize> {
        let Some(mut log) = self.lock_log()? else { return Ok(0) };
        self.log_data(&mut log)?;
        let kept = self.kept_checkpoints(&mut log, protection_s)?;
        let live_blocks = self.live_blocks(&kept)?;
        let mut candidates: Vec<_> = self
            .candidates(&mut log)?
            .into_iter()
            .map(|(segment, usage)| {
                (live_blocks.get(&segment).copied().unwrap_or(0), segment, usage)
            })
            .collect();
        candidates.sort_by_key(|(live, segment, _)| (*live, *segment));
        let per_segment = self.volume.geometry.blocks_per_segment();
        let room = self.room();
        let mut batch = CleanerBatch::default();
        let mut gain_max = 0;
        for (live, segment, usage) in candidates {
            let is_enough = self.is_enough(self.gain(&batch), batch.live_blocks());
            // With their summaries, so many live blocks fill a segment again, and those after it have more.
            let is_full = live >= self.space.segment_payload_min();
            if is_enough || is_full || batch.cost_max() + live > room {
                break;
            }
            let Some(found) = self.examine(segment, usage, &kept) else { continue };
            if found.live_blocks() < live {
                tracing::warn!(%segment, "the segment is kept as it is: its logs lack live blocks");
                continue;
            }
            if batch.cost_max() + found.cost_max() > room {
                break;
            }
            // Fuller ones follow: they would take back what is gained.
            let pays = found.cost() < self.space.segment_payload_min();
            if !pays && self.gain(&batch) >= per_segment.cast_signed() {
                break;
            }
            batch.append(found);
            gain_max = self.gain(&batch).max(gain_max);
        }
        let missing = per_segment.saturating_sub(gain_max.unsigned_abs());
        if self.gain(&batch) < per_segment.cast_signed() {
            if protection_s == 0 {
                log.note_futile(missing);
            }
            return Ok(0);
        }
        let before = self.space.clean_segments();
        let is_alone = self.space.dirty_blocks() == 0;
        let cleaned = self.finish_cleaning(&mut log, &kept, batch)?;
        let has_gained = self.space.clean_segments() > before;
        if protection_s == 0 && cleaned > 0 && is_alone && !has_gained {
            // The gain was an estimate. Beside changes it says nothing: they may have taken what was gained.
            log.note_futile(per_segment);
        }
        Ok(cleaned)
    }

    /// Blocks that live in each segment, by the DAT, which is read as a whole. That is a hundredth of what
    /// the segments hold. Nodes of the DAT's own map aren't counted.
    fn live_blocks(&self, kept: &KeptCheckpoints) -> Result<HashMap<SegmentNumber, u64>> {
        let geometry = &self.volume.geometry;
        let mut live = HashMap::new();
        let mut count = |block| {
            if let Some(segment) = geometry.segment_of(block) {
                *live.entry(segment).or_default() += 1;
            }
        };
        let mut walk = DatWalk::new();
        loop {
            // Only the log writer changes the DAT; readers get in between two blocks.
            let Some(block) = self.dat.read().next_block(&mut walk, &self.volume)? else { break };
            count(block.place);
            for entry in block.entries {
                if entry.is_live() || kept.has_period_of(&entry) {
                    count(entry.block);
                }
            }
        }
        Ok(live)
    }

    /// Has all logged data in a checkpoint, since recovery reads the segments after the newest one.
    fn log_data(&self, log: &mut MutexGuard<'_, LogState>) -> Result<()> {
        if log.has_data_logs {
            let logged = LogWriter::new(self.engine).log_checkpoint(log, CleanerWork::default());
            logged.inspect_err(|error| self.requests.fail(error.clone()))?;
        }
        Ok(())
    }

    /// Writes what was planned, if there is room for it by now: changes go on meanwhile.
    fn finish_cleaning(
        &self,
        log: &mut MutexGuard<'_, LogState>,
        kept: &KeptCheckpoints,
        batch: CleanerBatch,
    ) -> Result<usize> {
        let cleaned = batch.work.cleaned.len();
        let mut result = Ok(0);
        if cleaned > 0 && self.space.claim_for_cleaner(batch.cost_max()) {
            let written = self.write_batch(log, kept, batch);
            let written = written.inspect_err(|error| self.requests.fail(error.clone()));
            result = written.map(|()| cleaned);
        }
        self.space.claim_for_cleaner(0);
        result
    }

    fn write_batch(
        &self,
        log: &mut MutexGuard<'_, LogState>,
        kept: &KeptCheckpoints,
        batch: CleanerBatch,
    ) -> Result<()> {
        log.superblocks.write_both(&self.volume)?;
        self.delete_broken(log, kept, &batch.periods)?;
        LogWriter::new(self.engine).log_checkpoint(log, batch.work)
    }

    fn kept_checkpoints(&self, log: &mut LogState, protection_s: u64) -> Result<KeptCheckpoints> {
        let newest = CheckpointNumber(log.checkpoint.0 - 1);
        let all = Checkpoints::new(self.engine).list_checkpoints(log)?;
        let oldest_s = self.volume.wall_s().saturating_sub(protection_s);
        let young = all.iter().find(|found| protection_s > 0 && found.created_s >= oldest_s);
        let first_protected = young.map_or(newest, |found| found.number.min(newest));
        let (snapshots, plain): (Vec<_>, Vec<_>) =
            all.iter().partition(|found| found.flags.contains(CheckpointFlags::SNAPSHOT));
        let snapshots = snapshots.iter().map(|found| found.number).collect();
        let plain = plain.iter().map(|found| found.number);
        let plain = plain.filter(|number| *number < first_protected).collect();
        Ok(KeptCheckpoints { first_protected, snapshots, plain })
    }

    /// Deletes plain checkpoints that have lost a block.
    fn delete_broken(
        &self,
        log: &mut LogState,
        kept: &KeptCheckpoints,
        periods: &FreedPeriods,
    ) -> Result<()> {
        for number in kept.broken_by(periods) {
            Checkpoints::new(self.engine).remove_checkpoint(log, number)?;
        }
        Ok(())
    }

    /// Segments that may be cleaned.
    fn candidates(&self, log: &mut LogState) -> Result<Vec<(SegmentNumber, SegmentUsage)>> {
        let geometry = &self.volume.geometry;
        let position = log.segments.position;
        let cursor = geometry.segment_of(log.superblocks.current.cursor().block);
        let mut candidates = Vec::new();
        log.segments.for_each_usage(&self.volume, &self.source(), &mut |segment, usage| {
            let is_in_use =
                segment == position.segment || segment == position.next || Some(segment) == cursor;
            let flags = usage.flags - UsageFlags::ACTIVE;
            if flags == UsageFlags::DIRTY && !is_in_use {
                candidates.push((segment, usage));
            }
        })?;
        Ok(candidates)
    }
}
