//! Lists checkpoints, makes them snapshots and plain again, and deletes them.
//!
//! # Locking
//! All of it happens with the log locked, so that no log is built meanwhile. What has changed is in the
//! next checkpoint.
//!
//! # Errors
//! A change reads the records that it changes before its first step. An error after that stops the log, so that
//! no half of the change is logged.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::log::LogState;
use crate::metadata_file::MetadataFile;
use crate::volume::BlockSource;
use drystone_nilfs2_format::cpfile::{
    Checkpoint, CheckpointFlags, CpfileHeader, ENTRY_BYTES, count_valid, entries_per_block,
    place_of, set_valid_count,
};
use drystone_nilfs2_format::error::CheckpointProblem;
use drystone_nilfs2_format::{CheckpointNumber, Corrupt, FileBlock, InodeNumber, VirtualBlock};
use drystone_vfs::Errno;
use std::ops::Deref;

/// What is known of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Its number.
    pub number: u64,
    /// When it was made, in seconds since 1970.
    pub created_s: u64,
    /// It is kept until it is released.
    pub is_snapshot: bool,
    /// Nothing that users see has changed since the one before.
    pub is_minor: bool,
    /// Blocks written for it.
    pub blocks_written: u64,
    /// Inodes in it.
    pub inodes: u64,
    /// Blocks in it.
    pub blocks: u64,
}

impl CheckpointSummary {
    pub(crate) fn of(checkpoint: &Checkpoint) -> Self {
        Self {
            number: checkpoint.number.0,
            created_s: checkpoint.created_s,
            is_snapshot: checkpoint.flags.contains(CheckpointFlags::SNAPSHOT),
            is_minor: checkpoint.flags.contains(CheckpointFlags::MINOR),
            blocks_written: checkpoint.blocks_written,
            inodes: checkpoint.inodes,
            blocks: checkpoint.blocks,
        }
    }
}

/// The checkpoint file of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checkpoints<'a> {
    engine: &'a Engine,
}

impl Deref for Checkpoints<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl<'a> Checkpoints<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Self {
        Self { engine }
    }

    /// All checkpoints, the oldest first.
    pub(crate) fn list_checkpoints(&self, log: &mut LogState) -> Result<Vec<Checkpoint>> {
        let block_bytes = self.volume.block_bytes();
        let per_block = entries_per_block(block_bytes);
        let source = self.source();
        let mut all = Vec::new();
        let mut from = Some(FileBlock(0));
        while let Some(entry) =
            from.map(|from| log.cpfile.map.next(from, &source)).transpose()?.flatten()
        {
            let key = FileBlock(entry.key);
            from = key.0.checked_add(1).map(FileBlock);
            let Some(block) = log.cpfile.load_block(key, &source)? else { continue };
            let slots = block.chunks_exact(ENTRY_BYTES).take(per_block as usize);
            for (slot, bytes) in (0..).zip(slots).skip(usize::from(key.0 == 0)) {
                let number = CheckpointNumber(key.0.saturating_mul(per_block).saturating_add(slot));
                if !Checkpoint::read(bytes)?.flags.contains(CheckpointFlags::INVALID) {
                    all.push(Checkpoint::check(bytes, number, block_bytes)?);
                }
            }
        }
        Ok(all)
    }

    /// The record of a checkpoint that a caller names.
    fn named(&self, log: &mut LogState, number: CheckpointNumber) -> Result<Checkpoint> {
        let block_bytes = self.volume.block_bytes();
        if number.0 == 0 || number >= log.checkpoint {
            return Err(Errno::ENOENT.into());
        }
        match read_checkpoint(&mut log.cpfile, number, block_bytes, &self.source()) {
            Err(Error::Corrupt(Corrupt::Checkpoint {
                problem: CheckpointProblem::Missing,
                ..
            })) => Err(Errno::ENOENT.into()),
            other => other,
        }
    }

    fn store(&self, log: &mut LogState, record: &Checkpoint) -> Result<()> {
        let (key, offset) = place_of(record.number, self.volume.block_bytes());
        record.encode_into(&mut log.cpfile.edit_zeroed(key, &self.source())?[offset..]);
        Ok(())
    }

    fn header(&self, log: &mut LogState) -> Result<CpfileHeader> {
        match log.cpfile.load_block(FileBlock(0), &self.source())? {
            Some(block) => Ok(CpfileHeader::read(block)?),
            None => Ok(CpfileHeader::default()),
        }
    }

    fn edit_header(&self, log: &mut LogState, edit: impl FnOnce(&mut CpfileHeader)) -> Result<()> {
        let block = log.cpfile.edit_zeroed(FileBlock(0), &self.source())?;
        let mut header = CpfileHeader::read(block)?;
        edit(&mut header);
        header.encode_into(block);
        Ok(())
    }

    /// The record of a snapshot that the list leads to; nothing for 0, which stands for the list's ends.
    fn listed(&self, log: &mut LogState, number: CheckpointNumber) -> Result<Option<Checkpoint>> {
        let wrong = |problem| Corrupt::Checkpoint { checkpoint: number, problem }.into();
        if number.0 == 0 {
            return Ok(None);
        }
        if number >= log.checkpoint {
            return Err(wrong(CheckpointProblem::Missing));
        }
        let block_bytes = self.volume.block_bytes();
        let record = read_checkpoint(&mut log.cpfile, number, block_bytes, &self.source())?;
        if !record.flags.contains(CheckpointFlags::SNAPSHOT) {
            return Err(wrong(CheckpointProblem::NotSnapshot));
        }
        Ok(Some(record))
    }

    /// The snapshots between which a checkpoint belongs in the list, which is in the order of numbers.
    fn place_in_list(
        &self,
        log: &mut LogState,
        number: CheckpointNumber,
    ) -> Result<(CheckpointNumber, CheckpointNumber)> {
        let mut previous = self.header(log)?.last_snapshot;
        let mut next = CheckpointNumber(0);
        while previous > number
            && let Some(record) = self.listed(log, previous)?
        {
            let before = record.previous_snapshot;
            if before >= previous {
                return Err(disordered(previous, before, previous));
            }
            (previous, next) = (before, previous);
        }
        Ok((previous, next))
    }

    /// Sets what follows a snapshot in the list, or the list's beginning.
    fn set_next(
        &self,
        log: &mut LogState,
        snapshot: Option<Checkpoint>,
        next: CheckpointNumber,
    ) -> Result<()> {
        match snapshot {
            Some(record) => self.store(log, &Checkpoint { next_snapshot: next, ..record }),
            None => self.edit_header(log, |header| header.first_snapshot = next),
        }
    }

    /// Sets what comes before a snapshot in the list, or the list's end.
    fn set_previous(
        &self,
        log: &mut LogState,
        snapshot: Option<Checkpoint>,
        previous: CheckpointNumber,
    ) -> Result<()> {
        match snapshot {
            Some(record) => self.store(log, &Checkpoint { previous_snapshot: previous, ..record }),
            None => self.edit_header(log, |header| header.last_snapshot = previous),
        }
    }

    /// Makes a checkpoint a snapshot or a plain one again.
    pub(crate) fn change_snapshot(
        &self,
        log: &mut LogState,
        number: CheckpointNumber,
        is_snapshot: bool,
    ) -> Result<()> {
        let mut record = self.named(log, number)?;
        if record.flags.contains(CheckpointFlags::SNAPSHOT) == is_snapshot {
            return Ok(());
        }
        let (previous, next) = match is_snapshot {
            true => self.place_in_list(log, number)?,
            false => (record.previous_snapshot, record.next_snapshot),
        };
        let none = CheckpointNumber(0);
        if previous >= number {
            return Err(disordered(number, previous, number));
        }
        if next != none && next <= number {
            return Err(disordered(next, number, next));
        }
        self.header(log)?;
        let before = self.listed(log, previous)?;
        let after = self.listed(log, next)?;
        record.flags.set(CheckpointFlags::SNAPSHOT, is_snapshot);
        let own = |neighbour| if is_snapshot { neighbour } else { none };
        record.previous_snapshot = own(previous);
        record.next_snapshot = own(next);
        let change = if is_snapshot { 1 } else { -1 };
        let changed = self
            .store(log, &record)
            .and_then(|()| self.set_next(log, before, if is_snapshot { number } else { next }))
            .and_then(|()| {
                self.set_previous(log, after, if is_snapshot { number } else { previous })
            })
            .and_then(|()| {
                self.edit_header(log, |header| {
                    header.snapshots = header.snapshots.saturating_add_signed(change);
                })
            });
        changed.inspect_err(|error| self.requests.fail(error.clone()))
    }

    /// Deletes a plain checkpoint that isn't the newest.
    pub(crate) fn remove_checkpoint(
        &self,
        log: &mut LogState,
        number: CheckpointNumber,
    ) -> Result<()> {
        let record = self.named(log, number)?;
        let is_newest = number.0 + 1 == log.checkpoint.0;
        if record.flags.contains(CheckpointFlags::SNAPSHOT) || is_newest {
            return Err(Errno::EBUSY.into());
        }
        self.header(log)?;
        let (key, _) = place_of(number, self.volume.block_bytes());
        let removed = self.remove_record(log, &record, key);
        removed.inspect_err(|error| self.requests.fail(error.clone()))
    }

    fn remove_record(&self, log: &mut LogState, record: &Checkpoint, key: FileBlock) -> Result<()> {
        self.edit_header(log, |header| header.checkpoints = header.checkpoints.saturating_sub(1))?;
        self.store(log, &Checkpoint { flags: CheckpointFlags::INVALID, ..record.clone() })?;
        if key.0 == 0 {
            return Ok(());
        }
        let source = self.source();
        let block = log.cpfile.edit_zeroed(key, &source)?;
        // The stored count may be wrong, and the others may be snapshots.
        let left = count_valid(block);
        set_valid_count(block, left);
        if left == 0 {
            let pointer = log.cpfile.remove(key, &source)?;
            let has_history = !InodeNumber::CPFILE.is_without_history();
            let mut dat = self.dat.write();
            dat.end(VirtualBlock(pointer), log.checkpoint, has_history, &self.volume)?;
        }
        Ok(())
    }
}

/// A snapshot's place in the list contradicts its number.
fn disordered(
    checkpoint: CheckpointNumber,
    found: CheckpointNumber,
    expected: CheckpointNumber,
) -> Error {
    let problem = CheckpointProblem::SnapshotList { found, expected };
    Corrupt::Checkpoint { checkpoint, problem }.into()
}

/// The record of a checkpoint that exists.
pub(crate) fn read_checkpoint(
    cpfile: &mut MetadataFile,
    number: CheckpointNumber,
    block_bytes: usize,
    source: &dyn BlockSource,
) -> Result<Checkpoint> {
    let missing = Corrupt::Checkpoint { checkpoint: number, problem: CheckpointProblem::Missing };
    let (key, offset) = place_of(number, block_bytes);
    match cpfile.load_block(key, source)? {
        Some(block) if number.0 > 0 => {
            Ok(Checkpoint::check(&block[offset..], number, block_bytes)?)
        }
        _ => Err(missing.into()),
    }
}
