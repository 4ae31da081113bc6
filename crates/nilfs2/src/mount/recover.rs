//! Recovers a volume after a crash, once the newest state is found.
//!
//! # Crash
//! If any valid log lies after the newest checkpoint, the log goes on in a new segment, and the logs that were found
//! stay as they are until both superblocks name the first log there. Before that, a second crash finds
//! what the first one left. Then the segments of the logs that were found are clean again. If there is no room for
//! that and nothing was salvaged, the logs that were found are erased instead.

use crate::checkpoints::Checkpoints;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::log::LogPosition;
use crate::log_writer::LogWriter;
use crate::recovery::{NewestState, SalvagedBlock};
use drystone_nilfs2_format::sufile::{SegmentUsage, UsageFlags};
use drystone_nilfs2_format::{
    CheckpointNumber, FileBlock, InodeNumber, SegmentNumber, VirtualBlock,
};
use drystone_sync::atomic::Ordering;

/// What recovery has to do for the engine.
#[derive(Debug)]
pub(super) struct RecoveryWork {
    pub(super) state: NewestState,
    pub(super) was_unclean: bool,
    /// The segment of the super root that the superblock named.
    pub(super) old_segment: Option<SegmentNumber>,
}

impl RecoveryWork {
    /// Writes salvaged data again, in memory.
    ///
    /// # Errors
    /// If damage keeps some of it from its file, and the mount is for writing: it would give up the only copy.
    pub(super) fn replay(&self, engine: &Engine) -> Result<()> {
        let mut warned = None;
        for salvaged in &self.state.salvaged {
            let inode = salvaged.inode;
            let problem = match replay_block(engine, salvaged) {
                Ok(None) => continue,
                Ok(Some(problem)) => problem.to_owned(),
                Err(error @ (Error::Corrupt(_) | Error::Device(_))) if engine.is_read_only => {
                    error.to_string()
                }
                Err(Error::Corrupt(corrupt)) => {
                    return Err(Error::Mount(format!(
                        "data of inode {inode} that was synced before a crash can't be recovered: {corrupt}; \
                         mount the volume read-only to save the rest"
                    )));
                }
                Err(error) => return Err(error),
            };
            if warned.replace(inode) != Some(inode) {
                tracing::warn!(%inode, problem, "data that was synced before a crash isn't recovered");
            }
        }
        Ok(())
    }

    /// Frees inodes without names, and makes a checkpoint of what was recovered.
    pub(super) fn finish(&self, engine: &Engine) -> Result<()> {
        let mut left = None;
        if !self.state.reached.is_empty() {
            if self.state.salvaged.is_empty() && !self.has_room_to_leave(engine)? {
                self.erase_found_logs(engine)?;
            } else {
                left = Some(self.leave_found_logs(engine)?);
            }
        }
        // Deletions are admitted by the segments that are clean now.
        free_nameless(engine)?;
        LogWriter::new(engine).write_checkpoint()?;
        let Some(left) = left else { return Ok(()) };
        // Nothing leads from the logs before the crash to those after it: from now on neither superblock may
        // name an older log.
        engine.log.lock().superblocks.write_both(&engine.volume)?;
        if let Some(first) = self.state.first_salvaged
            && engine.volume.geometry.segment_of(first) == self.old_segment
        {
            engine.volume.zero_block(first)?;
            engine.volume.device.flush()?;
        }
        let mut log = engine.log.lock();
        for segment in left {
            let usage = SegmentUsage::default();
            log.segments.set_usage(segment, usage, &engine.volume, &engine.source())?;
        }
        drop(log);
        LogWriter::new(engine).write_checkpoint()
    }

    /// Whether there is room for a checkpoint in a new segment, and for the next one, beside the segments that were
    /// reached. The cleaner may have been about to fill all others.
    fn has_room_to_leave(&self, engine: &Engine) -> Result<bool> {
        let mut log = engine.log.lock();
        let mut taken = 2 + engine.space.log_segments();
        for segment in &self.state.reached {
            let usage = log.segments.usage(*segment, &engine.volume, &engine.source())?;
            taken += u64::from(usage.is_clean());
        }
        Ok(log.segments.header.clean >= taken)
    }

    /// Makes the logs of a torn checkpoint invalid. They are in segments that the newest checkpoint doesn't use, or
    /// behind it.
    fn erase_found_logs(&self, engine: &Engine) -> Result<()> {
        for block in &self.state.found {
            engine.volume.zero_block(*block)?;
        }
        engine.volume.device.flush()?;
        Ok(())
    }

    /// Has the log go on in a new segment, away from everything that was found after the newest checkpoint: what
    /// was salvaged is needed until it is written again, and the logs of a torn checkpoint must not complete the
    /// next one, which has the same number. Returns the segments in which the newest checkpoint has nothing.
    fn leave_found_logs(&self, engine: &Engine) -> Result<Vec<SegmentNumber>> {
        let mut log = engine.log.lock();
        let source = engine.source();
        let mut left = Vec::new();
        for segment in &self.state.reached {
            if *segment == log.segments.position.segment {
                continue;
            }
            let old = log.segments.usage(*segment, &engine.volume, &source)?;
            let is_used = !old.is_clean() && old.blocks > 0;
            let kept = if is_used { old } else { SegmentUsage::default() };
            if !is_used {
                left.push(*segment);
            }
            // A damaged log may name a segment that the newest checkpoint uses: the cleaner goes by its count.
            let usage = SegmentUsage { flags: UsageFlags::DIRTY, ..kept };
            log.segments.set_usage(*segment, usage, &engine.volume, &source)?;
        }
        let next = log.segments.allocate(&engine.volume, &source)?;
        let position = log.segments.position;
        log.segments.position = LogPosition {
            next,
            block: engine.volume.geometry.segment_end(position.segment),
            sequence: self.state.last_sequence + 1,
            ..position
        };
        engine.note_clean_segments(&log);
        Ok(left)
    }
}

/// Writes a salvaged block into its file again, in memory, or says why it has no place in one.
fn replay_block(engine: &Engine, salvaged: &SalvagedBlock) -> Result<Option<&'static str>> {
    // The record of a free inode may be zeros, as a damaged one may.
    if !engine.ifile.is_used(salvaged.inode, engine.source())? {
        return Ok(Some("the inode isn't in use"));
    }
    let inode = engine.inode(salvaged.inode, 0)?;
    if inode.file_type != drystone_vfs::FileType::Regular {
        return Ok(Some("the inode isn't a regular file"));
    }
    if salvaged.key.0 >= engine.volume.blocks_for(inode.size()) {
        return Ok(Some("it is behind the end of the file"));
    }
    let bytes = engine.volume.read_block(salvaged.block)?;
    let _content = inode.content.write();
    engine.replace_salvaged(&inode, salvaged.key, bytes)?;
    Ok(None)
}

/// Frees inodes that lost their names while they were in use before a crash. That was after the last mount
/// for writing, so that only records are read whose block was written since.
fn free_nameless(engine: &Engine) -> Result<()> {
    let last_before = last_checkpoint_before_mount(engine)?;
    let mut from = InodeNumber::FIRST_ORDINARY;
    let mut looked_at = None;
    while let Some((used, next)) = engine.ifile.used_from(from, engine.source())? {
        for number in used {
            let (key, _) = engine.ifile.layout.entry(number.0);
            let is_recent = match looked_at {
                Some((known, is_recent)) if known == key => is_recent,
                _ => match written_in(engine, key) {
                    Ok(found) => found.is_some_and(|found| found > last_before),
                    // Its records can't be read either.
                    Err(error @ (Error::Corrupt(_) | Error::Device(_))) => {
                        note_unread(engine, &error);
                        false
                    }
                    Err(error) => return Err(error),
                },
            };
            looked_at = Some((key, is_recent));
            if !is_recent {
                continue;
            }
            let is_nameless = match engine.ifile.record(number, engine.source()) {
                Ok(record) => record.links_count == 0,
                Err(error) => {
                    note_unread(engine, &error);
                    false
                }
            };
            if is_nameless
                && let Err(error) =
                    engine.inode(number, 0).and_then(|inode| engine.delete_nameless(&inode))
            {
                // It stays, and so does the mark of a volume that wasn't unmounted.
                note_unread(engine, &error);
                tracing::warn!(%number, %error, "an inode without names can't be deleted");
            }
        }
        from = next;
    }
    Ok(())
}

/// Notes that inodes without names may have been missed, unless the next recovery would miss them too: a device that
/// can't read something now may do so later.
fn note_unread(engine: &Engine, error: &Error) {
    if matches!(error, Error::Device(_)) {
        engine.has_unread_inodes.store(true, Ordering::Relaxed);
    }
}

/// The newest checkpoint before the first that may be of the last mount for writing; 0 if there is none.
fn last_checkpoint_before_mount(engine: &Engine) -> Result<CheckpointNumber> {
    let mut log = engine.log.lock();
    let mounted_s = log.superblocks.current.mounted_s();
    let all = Checkpoints::new(engine).list_checkpoints(&mut log)?;
    let times: Vec<u64> = all.iter().map(|found| found.created_s).collect();
    let before = count_before(&times, mounted_s);
    Ok(before.checked_sub(1).map_or(CheckpointNumber(0), |last| all[last].number))
}

/// How many of the oldest checkpoints were surely made before the last mount for writing. If the clock was set back,
/// that may have been during the mount. If all checkpoints are older, it was, or the mount made none: any may be
/// of it.
fn count_before(times: &[u64], mounted_s: u64) -> usize {
    let is_later = |time: u64| time >= mounted_s;
    let is_set_back = |index: usize| index > 0 && times[index] < times[index - 1];
    let first = (0..times.len()).find(|index| is_later(times[*index]) || is_set_back(*index));
    first.unwrap_or(0)
}

/// The checkpoint that a block of the ifile was written for.
fn written_in(engine: &Engine, key: FileBlock) -> Result<Option<CheckpointNumber>> {
    let pointer = engine.ifile.file.read().map.get(key, &engine.source())?;
    if pointer == 0 {
        return Ok(None);
    }
    let entry = engine.dat.write().entry(VirtualBlock(pointer), &engine.volume)?;
    Ok(Some(entry.start))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_makes_checkpoints_count_as_young() {
        assert_eq!(count_before(&[10, 20, 30, 40], 30), 2);
        assert_eq!(count_before(&[10, 20], 30), 0);
        // Set back and forward again during the mount.
        assert_eq!(count_before(&[10, 20, 30, 5, 6, 40], 30), 2);
        assert_eq!(count_before(&[10, 20, 5, 6, 40, 41], 30), 2);
        assert_eq!(count_before(&[], 30), 0);
    }
}
