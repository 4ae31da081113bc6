//! Operations on a mounted volume that the `FileSystem` trait doesn't have: checkpoints, and cleaning.

use super::Nilfs2;
use crate::checkpoints::{CheckpointSummary, Checkpoints};
use crate::cleaner::Cleaner;
use crate::error::{Error, Result};
use drystone_nilfs2_format::CheckpointNumber;

impl Nilfs2 {
    /// The error that has stopped the log, and with it all changes.
    #[must_use]
    pub fn stopped_by(&self) -> Option<Error> {
        self.engine.requests.check_running().err()
    }

    /// All checkpoints, the oldest first.
    pub fn checkpoints(&self) -> Result<Vec<CheckpointSummary>> {
        let engine = &self.engine;
        let mut log = engine.log.lock();
        let all = Checkpoints::new(engine).list_checkpoints(&mut log)?;
        Ok(all.iter().map(CheckpointSummary::of).collect())
    }

    /// Makes everything durable and returns the number of the newest checkpoint.
    pub fn make_checkpoint(&self) -> Result<u64> {
        let engine = &self.engine;
        engine.check_writable()?;
        engine.requests.checkpoint()?;
        Ok(engine.log.lock().checkpoint.0 - 1)
    }

    /// Makes a checkpoint a snapshot, which is kept, or a plain one again.
    ///
    /// # Errors
    /// `ENOENT` if there is no such checkpoint.
    pub fn set_snapshot(&self, number: u64, is_snapshot: bool) -> Result<()> {
        let engine = &self.engine;
        engine.check_writable()?;
        engine.requests.check_running()?;
        let number = CheckpointNumber(number);
        let mut log = engine.lock_thawed_log();
        Checkpoints::new(engine).change_snapshot(&mut log, number, is_snapshot)?;
        if !is_snapshot {
            // What only it had is dead.
            log.futile_until = 0;
        }
        drop(log);
        engine.requests.checkpoint()
    }

    /// Deletes a checkpoint; the cleaner takes back what only it had.
    ///
    /// # Errors
    /// `ENOENT` if there is no such checkpoint, `EBUSY` if it is a snapshot or the newest one.
    pub fn delete_checkpoint(&self, number: u64) -> Result<()> {
        let engine = &self.engine;
        engine.check_writable()?;
        engine.requests.check_running()?;
        let number = CheckpointNumber(number);
        let mut log = engine.lock_thawed_log();
        Checkpoints::new(engine).remove_checkpoint(&mut log, number)?;
        // Cleaning changes fewer records now, and blocks of the checkpoint file may have died.
        log.futile_until = 0;
        drop(log);
        engine.requests.checkpoint()
    }

    /// Cleans as long as that gains segments. Checkpoints younger than `protection_s` are kept. Says how
    /// many segments were cleaned.
    ///
    /// # Errors
    /// If the mount is read-only, or the device fails.
    pub fn clean(&self, protection_s: u64) -> Result<usize> {
        self.engine.check_writable()?;
        self.engine.requests.check_running()?;
        self.engine.gate.wait_until_thawed();
        Cleaner::new(&self.engine).clean_all(protection_s)
    }
}
