//! Restores an image from an undo log.
//!
//! # Crash
//!
//! An interrupted rollback is run again: the log is complete until the image is restored. Each sector of the
//! image then is what it was before the change or what the change made it, and anything else is refused.

use super::log::{Entry, LogReader, LogWriter, PIECE_BYTES, PieceChange, SectorSums};
use crate::{BlockDevice, DeviceError, DeviceResult};
use std::collections::HashMap;

/// Why an image isn't rolled back.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// The image isn't what the logged change left.
    #[error(
        "the image has changed since at byte {offset}, or is another one: going back would damage it \
         (an undo log that can't be used any more may be removed)"
    )]
    OtherImage {
        /// First byte of the piece that differs.
        offset: u64,
    },
    /// The image is shorter than it was before the change.
    #[error("the image has {found} bytes; it had {expected} before the change")]
    OtherSize {
        /// Its size.
        found: u64,
        /// Its size before the change.
        expected: u64,
    },
    /// There is no log in the file.
    #[error("there is no undo log in this file")]
    NoLog,
    /// The log doesn't reach to the end of its change.
    #[error("the undo log isn't complete: it was cut short, or used already")]
    NotComplete,
    /// The log was used already.
    #[error("the change in this undo log was taken back already")]
    TakenBack,
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Restores what `image` held before the change that `log` belongs to. Returns the size that it had;
/// the caller cuts the file to it.
///
/// # Errors
///
/// [`UndoError::OtherImage`] if something else has changed the image, which then stays as it is.
pub fn roll_back(
    image: &(impl BlockDevice + ?Sized),
    log: impl BlockDevice,
) -> Result<u64, UndoError> {
    let (size_bytes, mut log) = begin_roll_back(image, log, Trust::Nothing)?;
    log.append_rolled_back()?;
    Ok(size_bytes)
}

/// Whether an image may be another than the log's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// It is compared with the log.
    Nothing,
    /// It has been open since the change began.
    Image,
}

/// As [`roll_back`], before the note in the log that it is complete.
pub(super) fn begin_roll_back<L: BlockDevice>(
    image: &(impl BlockDevice + ?Sized),
    log: L,
    trust: Trust,
) -> Result<(u64, LogWriter<L>), UndoError> {
    let mut log = open(image, log)?;
    let expected = Expected::read(&mut log)?;
    if trust == Trust::Nothing {
        expected.check(image, &mut log)?;
    }
    let mut log = LogWriter::after(log);
    log.append_rolling_back()?;
    // Opening cannot find less than before.
    let Some(mut log) = LogReader::open(log.into_log())? else { return Err(UndoError::NoLog) };
    let size_bytes = restore(image, &mut log, expected.is_rolling_back)?;
    Ok((size_bytes, LogWriter::after(log)))
}

/// Restores what `image` held as a change of its own, which has an undo log of its own. `log` stays as it is.
pub(super) fn roll_back_as_change(
    image: &(impl BlockDevice + ?Sized),
    log: impl BlockDevice,
) -> Result<u64, UndoError> {
    let mut log = open(image, log)?;
    let expected = Expected::read(&mut log)?;
    expected.check(image, &mut log)?;
    restore(image, &mut log, expected.is_rolling_back)
}

fn open<L: BlockDevice>(
    image: &(impl BlockDevice + ?Sized),
    log: L,
) -> Result<LogReader<L>, UndoError> {
    let Some(log) = LogReader::open(log)? else { return Err(UndoError::NoLog) };
    let (found, expected) = (image.size_bytes(), log.protected_bytes());
    if found < expected { Err(UndoError::OtherSize { found, expected }) } else { Ok(log) }
}

/// Writes the old bytes, and reads the log to its end.
fn restore<L: BlockDevice>(
    image: &(impl BlockDevice + ?Sized),
    log: &mut LogReader<L>,
    is_again: bool,
) -> Result<u64, UndoError> {
    let protected_bytes = log.protected_bytes();
    let mut found = [0; PIECE_BYTES];
    let mut put = |start, old: &[u8]| {
        let found = &mut found[..old.len()];
        // What the change didn't reach is left alone: a full host may have no room for it. What an
        // earlier rollback wrote may be lost although it can be read.
        if !is_again && image.read_at(start, found).is_ok() && found == old {
            return Ok(());
        }
        if old.iter().all(|&byte| byte == 0) {
            image.zero_range(start, old.len() as u64)
        } else {
            image.write_at(start, old)
        }
    };
    let mut first = None;
    log.rewind();
    while let Some(entry) = log.next()? {
        let Entry::Batch(changes) = entry else { continue };
        for change in changes {
            let (start, length) = protected(&change, protected_bytes);
            match change.old {
                // It may have the mark that keeps others from the image.
                Some(old) if change.number == 0 => first = Some((old, length)),
                Some(old) => put(start, &old[..length])?,
                None => {}
            }
        }
    }
    image.flush()?;
    if let Some((old, length)) = first {
        put(0, &old[..length])?;
        image.flush()?;
    }
    Ok(protected_bytes)
}

/// What an image should hold.
struct Expected {
    /// What the pieces hold for sure, unless a rollback has begun.
    settled: HashMap<u64, SectorSums>,
    /// The last batch, which may have been written in part.
    last: HashMap<u64, SectorSums>,
    is_rolling_back: bool,
}

impl Expected {
    /// Leaves the log behind the last entry.
    fn read<L: BlockDevice>(log: &mut LogReader<L>) -> Result<Self, UndoError> {
        let sums = |changes: Vec<PieceChange>| {
            changes.into_iter().map(|change| (change.number, change.new))
        };
        let (mut settled, mut last) = (HashMap::new(), HashMap::new());
        let mut is_rolling_back = false;
        log.rewind();
        while let Some(entry) = log.next()? {
            match entry {
                Entry::Batch(changes) => {
                    settled.extend(last.drain());
                    last.extend(sums(changes));
                }
                Entry::Finished(changes) => {
                    settled.extend(last.drain());
                    settled.extend(sums(changes));
                }
                Entry::RollingBack => is_rolling_back = true,
                Entry::RolledBack => return Err(UndoError::TakenBack),
            }
        }
        Ok(Self { settled, last, is_rolling_back })
    }

    /// Compares what the image holds with what the log says. Leaves the log behind the last entry.
    fn check<L: BlockDevice>(
        &self,
        image: &(impl BlockDevice + ?Sized),
        log: &mut LogReader<L>,
    ) -> Result<(), UndoError> {
        let protected_bytes = log.protected_bytes();
        let mut bytes = [0; PIECE_BYTES];
        log.rewind();
        while let Some(entry) = log.next()? {
            let (Entry::Batch(changes) | Entry::Finished(changes)) = entry else { continue };
            for change in changes {
                let (start, length) = protected(&change, protected_bytes);
                let old = change.old.map(|old| SectorSums::of(&old[..length]));
                let settled = self.settled.get(&change.number).copied();
                let last = self.last.get(&change.number).copied();
                let allowed: Vec<SectorSums> = match (self.is_rolling_back, last) {
                    (true, _) => [old, settled, last].into_iter().flatten().collect(),
                    (false, Some(last)) => settled.or(old).into_iter().chain([last]).collect(),
                    (false, None) => settled.into_iter().collect(),
                };
                // The first batch of a piece has its old bytes; one look at it is enough. The end of a
                // change has none for its piece, which may be in no batch.
                if old.is_none() && (self.is_rolling_back || last.is_some()) {
                    continue;
                }
                image.read_at(start, &mut bytes[..length])?;
                if !SectorSums::of(&bytes[..length]).is_made_of(&allowed) {
                    return Err(UndoError::OtherImage { offset: start });
                }
            }
        }
        Ok(())
    }
}

/// Where a piece starts, and how much of it can be restored.
fn protected(change: &PieceChange, protected_bytes: u64) -> (u64, usize) {
    let start = change.number.saturating_mul(PIECE_BYTES as u64);
    (start, protected_bytes.saturating_sub(start).min(PIECE_BYTES as u64) as usize)
}

/// What a log says about its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeState {
    /// The image is as it was before: nothing was written to it, or it was restored.
    NotBegun,
    /// The image was changed in part.
    Incomplete,
    /// The change is complete.
    Finished {
        /// The log is to be kept all the same.
        is_kept: bool,
    },
}

/// Reads a log to its end; `None` if it is none.
pub(super) fn change_state(log: impl BlockDevice) -> DeviceResult<Option<ChangeState>> {
    let Some(mut log) = LogReader::open(log)? else { return Ok(None) };
    let mut state = ChangeState::NotBegun;
    while let Some(entry) = log.next()? {
        state = match entry {
            Entry::Batch(_) | Entry::RollingBack => ChangeState::Incomplete,
            Entry::Finished(_) => ChangeState::Finished { is_kept: log.is_kept() },
            Entry::RolledBack => ChangeState::NotBegun,
        };
    }
    Ok(Some(state))
}
