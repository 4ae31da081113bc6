//! The log writer: takes dirty inodes and blocks, allocates blocks for them, and writes them as a log.
//!
//! # Locking
//! The log's state is locked while a log is built and written. Changes are kept out only while `freeze`
//! takes what is dirty. While the volume is frozen, nothing is written: a thread that has locked the state checks
//! that the volume is thawed before it writes.

mod build;
mod freeze;
mod place;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::{FrozenPages, Inode};
use crate::log::{CleanerWork, LogState};
use crate::trim::trim;
use build::Builder;
use drystone_nilfs2_format::cpfile::{Checkpoint, CheckpointFlags};
use drystone_nilfs2_format::log::LogFlags;
use drystone_nilfs2_format::superblock::LogCursor;
use drystone_nilfs2_format::{CheckpointNumber, FileBlock};
use drystone_sync::atomic::Ordering;
use drystone_sync::{Arc, MutexGuard};
use drystone_vfs::Errno;
use std::ops::Deref;

/// What writes the log of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogWriter<'a> {
    engine: &'a Engine,
}

impl<'a> LogWriter<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Self {
        Self { engine }
    }
}

impl Deref for LogWriter<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl LogWriter<'_> {
    /// Logs everything that is dirty as a checkpoint, if anything is.
    pub(crate) fn write_checkpoint(&self) -> Result<()> {
        let mut log = self.log.lock();
        if self.gate.is_frozen() {
            // What callers have changed is in the checkpoint of the freeze.
            return Ok(());
        }
        self.log_checkpoint(&mut log, CleanerWork::default())
    }

    /// Logs everything that is dirty, and what the cleaner moves.
    pub(crate) fn log_checkpoint(
        &self,
        log: &mut MutexGuard<'_, LogState>,
        work: CleanerWork,
    ) -> Result<()> {
        unless_failed(log, |log| self.build_checkpoint(log, work))
    }

    fn build_checkpoint(
        &self,
        log: &mut MutexGuard<'_, LogState>,
        work: CleanerWork,
    ) -> Result<()> {
        let frozen = self.freeze_dirty()?;
        let metadata_dirty = log.cpfile.is_dirty()
            || log.segments.file.is_dirty()
            || self.ifile.file.read().is_dirty()
            || self.dat.read().file.is_dirty();
        if frozen.is_empty() && !metadata_dirty && work.is_empty() {
            trim(self, log);
            return Ok(());
        }
        let is_minor = frozen.is_empty();
        let is_cleaning = !work.is_empty();
        let mut builder = Builder::new(self.engine, log.checkpoint);
        builder.move_blocks(log, work)?;
        for inode in &frozen.inodes {
            let change = builder.add_inode(inode)?;
            log.file_blocks = log.file_blocks.saturating_add_signed(change);
        }
        for group in &frozen.groups {
            builder.add_group(group)?;
        }
        let ifile = builder.add_ifile()?;
        let flags = if is_minor { CheckpointFlags::MINOR } else { CheckpointFlags::empty() };
        let record = Checkpoint {
            flags,
            next_snapshot: CheckpointNumber(0),
            previous_snapshot: CheckpointNumber(0),
            number: log.checkpoint,
            created_s: self.volume.wall_s(),
            blocks_written: 0,
            inodes: frozen.inodes_used,
            blocks: log.file_blocks.saturating_add(self.ifile.file.read().blocks_mapped()),
            ifile,
        };
        builder.add_cpfile(log, &record)?;
        let flags = if is_cleaning { LogFlags::CLEANER } else { LogFlags::empty() };
        let cursor = builder.place(log, flags, Some(record))?;
        frozen.settle(&self.inodes);
        self.note_logged_content(frozen.inodes.iter().map(|inode| &inode.pages));
        let dirty_blocks = frozen.dirty_blocks + std::mem::take(&mut log.data_log_blocks);
        self.note_space(log, dirty_blocks);
        log.cpfile.mark_clean();
        log.segments.file.mark_clean();
        self.ifile.file.write().mark_clean();
        self.dat.write().file.mark_clean();
        self.note_checkpoint(log, &cursor)?;
        log.has_data_logs = false;
        if !log.segments.barred.is_empty() {
            // No thread finds blocks of the cleaned segments any more; those that did have to be done.
            self.volume.wait_for_readers();
            log.segments.barred.clear();
        }
        trim(self, log);
        Ok(())
    }

    /// What was logged stays in memory, and isn't dirty any more.
    fn note_logged_content<'p>(&self, pages: impl Iterator<Item = &'p FrozenPages>) {
        let blocks: usize = pages.map(|pages| pages.blocks.len()).sum();
        let bytes = blocks * self.volume.block_bytes();
        self.volume.content_added_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What was dirty has its place now. Until here it was counted as dirty, so that nobody takes the
    /// segments that it needs.
    fn note_space(&self, log: &LogState, blocks: i64) {
        self.note_clean_segments(log);
        self.space.add_dirty(-blocks);
    }

    fn note_checkpoint(&self, log: &mut LogState, cursor: &LogCursor) -> Result<()> {
        let Some(next) = log.checkpoint.next() else {
            return Err(Error::Errno(Errno::EFBIG));
        };
        log.checkpoint = next;
        let clean = log.segments.header.clean;
        let free_blocks = clean.saturating_mul(self.volume.geometry.blocks_per_segment());
        if log.superblocks.note_log(*cursor, free_blocks, &self.volume)? {
            self.ifile.reset_hint();
        }
        Ok(())
    }

    /// Logs the dirty blocks of some inodes, without a checkpoint.
    pub(crate) fn write_data_log(&self, inodes: &[Arc<Inode>]) -> Result<()> {
        let mut log = self.log.lock();
        if self.gate.is_frozen() {
            return Ok(());
        }
        unless_failed(&mut log, |log| {
            let needs_checkpoint = self.build_data_log(log, inodes)?;
            if needs_checkpoint {
                self.build_checkpoint(log, CleanerWork::default())
            } else {
                Ok(())
            }
        })
    }

    /// Says whether one of the inodes can be logged only by a checkpoint, or all for want of room. What was
    /// taken of others by then is logged.
    fn build_data_log(
        &self,
        log: &mut MutexGuard<'_, LogState>,
        inodes: &[Arc<Inode>],
    ) -> Result<bool> {
        if !self.space.has_room_for_data_log() {
            return Ok(true);
        }
        let mut builder = Builder::new(self.engine, log.checkpoint);
        let mut frozen = Vec::new();
        let mut needs_checkpoint = false;
        for inode in inodes {
            let Some(pages) = self.freeze_data(inode) else {
                needs_checkpoint = true;
                break;
            };
            frozen.push((inode, pages));
        }
        for (inode, pages) in &frozen {
            let change = builder.add_data(inode, pages)?;
            log.file_blocks = log.file_blocks.saturating_add_signed(change);
        }
        if !builder.blocks.is_empty() {
            builder.place(log, LogFlags::DATA_SYNC, None)?;
            log.has_data_logs = true;
        }
        self.note_logged_content(frozen.iter().map(|(_, pages)| pages));
        let blocks = frozen.iter().map(|(_, pages)| pages.counted).sum::<usize>();
        log.data_log_blocks += blocks as i64;
        self.note_space(log, 0);
        for (inode, pages) in &frozen {
            let keys: Vec<FileBlock> = pages.blocks.iter().map(|(key, _)| *key).collect();
            inode.pages.lock().settle(&keys);
            inode.fields.lock().in_flight = false;
        }
        Ok(needs_checkpoint)
    }
}

/// Logs something, unless a log has failed before.
fn unless_failed(
    log: &mut MutexGuard<'_, LogState>,
    write: impl FnOnce(&mut MutexGuard<'_, LogState>) -> Result<()>,
) -> Result<()> {
    if log.has_failed {
        return Err(Error::LogStopped("an earlier log couldn't be written".to_owned()));
    }
    let written = write(log);
    log.has_failed = written.is_err();
    written
}
