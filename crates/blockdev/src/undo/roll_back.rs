//! Restores an image from an undo log.
//!
//! # Crash
//!
//! An interrupted rollback is run again: the log is complete until the image is restored. Each sector of the
//! image then is what it was before the change or what the change made it, and anything else is refused.
//!
//! # State
//! What the last batch of a log has, and the last checksums of pieces that several batches have. Where those are too
//! many for memory, the log is read once more for each part of them. Old bytes are never held but for one batch.

use super::log::{Entry, LogReader, LogWriter, PIECE_BYTES, PieceChange, SectorSums};
use crate::{BlockDevice, DeviceError, DeviceResult};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

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
    let is_rolling_back = match trust {
        Trust::Nothing => check(image, &mut log, REWRITTEN_MAX)?,
        Trust::Image => Expected::read(&mut log, 0, REWRITTEN_MAX)?.is_rolling_back,
    };
    let mut log = LogWriter::after(log);
    log.append_rolling_back()?;
    // Opening cannot find less than before.
    let Some(mut log) = LogReader::open(log.into_log())? else { return Err(UndoError::NoLog) };
    let size_bytes = restore(image, &mut log, is_rolling_back)?;
    Ok((size_bytes, LogWriter::after(log)))
}

/// Restores what `image` held as a change of its own, which has an undo log of its own. `log` stays as it is.
pub(super) fn roll_back_as_change(
    image: &(impl BlockDevice + ?Sized),
    log: impl BlockDevice,
) -> Result<u64, UndoError> {
    let mut log = open(image, log)?;
    let is_rolling_back = check(image, &mut log, REWRITTEN_MAX)?;
    restore(image, &mut log, is_rolling_back)
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

/// Compares what an image holds with what the log says; whether a rollback has begun. Leaves the log after the last
/// entry.
fn check<L: BlockDevice>(
    image: &(impl BlockDevice + ?Sized),
    log: &mut LogReader<L>,
    rewritten_max: usize,
) -> Result<bool, UndoError> {
    let mut from = 0;
    loop {
        let expected = Expected::read(log, from, rewritten_max)?;
        expected.check(image, log)?;
        match expected.pieces.end {
            u64::MAX => return Ok(expected.is_rolling_back),
            end => from = end,
        }
    }
}

/// Pieces of several batches whose last checksums are held: some 60 MiB. The log is read again for each so many, which
/// are 4 GiB of an image.
const REWRITTEN_MAX: usize = 1 << 20;

/// What some pieces of an image should hold. What isn't told here is what the only batch of a piece has made it.
struct Expected {
    /// Of which pieces this tells.
    pieces: Range<u64>,
    /// What pieces of several batches hold for sure, unless a rollback has begun.
    rewritten: BTreeMap<u64, SectorSums>,
    /// The last batch, which may have been written in part; none if the change is complete.
    last: HashMap<u64, SectorSums>,
    /// How many batches come before that.
    batches_before: u64,
    is_rolling_back: bool,
}

impl Expected {
    /// Reads what a log says of pieces from `from` on: of all of them, or until so many were rewritten. Leaves the log
    /// after the last entry.
    fn read<L: BlockDevice>(
        log: &mut LogReader<L>,
        from: u64,
        rewritten_max: usize,
    ) -> Result<Self, UndoError> {
        let mut expected = Self {
            pieces: from..u64::MAX,
            rewritten: BTreeMap::new(),
            last: HashMap::new(),
            batches_before: 0,
            is_rolling_back: false,
        };
        // The batch before, and the pieces of it that an earlier one has.
        let mut last: Vec<(u64, SectorSums, bool)> = Vec::new();
        log.rewind();
        while let Some(entry) = log.next()? {
            match entry {
                Entry::Batch(changes) => {
                    expected.batches_before += u64::from(!last.is_empty());
                    expected.settle(&last, rewritten_max);
                    last.clear();
                    last.extend(
                        changes
                            .iter()
                            .map(|change| (change.number, change.new, change.old.is_none())),
                    );
                }
                Entry::Finished(changes) => {
                    expected.batches_before += u64::from(!last.is_empty());
                    expected.settle(&last, rewritten_max);
                    last.clear();
                    let finished: Vec<_> =
                        changes.iter().map(|change| (change.number, change.new, true)).collect();
                    expected.settle(&finished, rewritten_max);
                }
                Entry::RollingBack => expected.is_rolling_back = true,
                Entry::RolledBack => return Err(UndoError::TakenBack),
            }
        }
        expected.last = last.into_iter().map(|(number, sums, _)| (number, sums)).collect();
        Ok(expected)
    }

    /// Notes pieces that are written for sure, of those that an earlier batch has.
    fn settle(&mut self, batch: &[(u64, SectorSums, bool)], rewritten_max: usize) {
        for &(number, sums, is_rewritten) in batch {
            if !is_rewritten || !self.pieces.contains(&number) {
                continue;
            }
            self.rewritten.insert(number, sums);
            if self.rewritten.len() > rewritten_max
                && let Some((number, _)) = self.rewritten.pop_last()
            {
                self.pieces.end = number;
            }
        }
    }

    /// Compares what the image holds with what the log says. Leaves the log after the last entry.
    fn check<L: BlockDevice>(
        &self,
        image: &(impl BlockDevice + ?Sized),
        log: &mut LogReader<L>,
    ) -> Result<(), UndoError> {
        let protected_bytes = log.protected_bytes();
        let mut bytes = [0; PIECE_BYTES];
        let mut compare = |change: &PieceChange, allowed: &[SectorSums]| {
            let (start, length) = protected(change, protected_bytes);
            image.read_at(start, &mut bytes[..length])?;
            match SectorSums::of(&bytes[..length]).is_made_of(allowed) {
                true => Ok(()),
                false => Err(UndoError::OtherImage { offset: start }),
            }
        };
        let mut batch = 0;
        log.rewind();
        while let Some(entry) = log.next()? {
            let changes = match entry {
                Entry::Batch(changes) => changes,
                // Its piece may be in no batch.
                Entry::Finished(changes) if !self.is_rolling_back => {
                    let of_these = |change: &&PieceChange| self.pieces.contains(&change.number);
                    let mut finished = changes.iter().filter(of_these);
                    finished.try_for_each(|change| compare(change, &[change.new]))?;
                    continue;
                }
                _ => continue,
            };
            let is_settled = batch < self.batches_before;
            batch += 1;
            for change in &changes {
                // The first batch of a piece has its old bytes; one look at it is enough.
                let Some(old) = &change.old else { continue };
                if !self.pieces.contains(&change.number) {
                    continue;
                }
                let (_, length) = protected(change, protected_bytes);
                let old = Some(SectorSums::of(&old[..length]));
                let only = is_settled.then_some(change.new);
                let settled = self.rewritten.get(&change.number).copied().or(only);
                let last = self.last.get(&change.number).copied();
                let allowed: Vec<SectorSums> = match (self.is_rolling_back, last) {
                    (true, _) => [old, settled, last].into_iter().flatten().collect(),
                    (false, Some(last)) => settled.or(old).into_iter().chain([last]).collect(),
                    (false, None) => settled.into_iter().collect(),
                };
                compare(change, &allowed)?;
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::UndoDevice;
    use super::*;
    use crate::MemoryDevice;

    /// With room for few pieces that several batches have, the log is read several times, and says the same.
    #[test]
    fn rewritten_pieces_are_compared_in_parts() {
        const PIECES: u64 = 40;
        let image = MemoryDevice::new(PIECES * PIECE_BYTES as u64);
        let log = MemoryDevice::new(4 << 20);
        let device = UndoDevice::begin(&image, &log, image.size_bytes()).unwrap();
        for round in 1..4 {
            for piece in (0..PIECES).filter(|piece| piece % 4 != round) {
                let place = piece * PIECE_BYTES as u64;
                device.write_at(place, &[round as u8; PIECE_BYTES]).unwrap();
            }
            device.flush().unwrap();
        }
        let interrupted = (image.snapshot(), log.snapshot());
        device.finish().unwrap();
        for (image, log) in [(image, log), interrupted] {
            for rewritten_max in [1, 7, 1000] {
                let mut reader = LogReader::open(&log).unwrap().unwrap();
                check(&image, &mut reader, rewritten_max).unwrap();
                for piece in 0..PIECES {
                    let other = image.snapshot();
                    other.write_at(piece * PIECE_BYTES as u64 + 600, &[9]).unwrap();
                    let mut reader = LogReader::open(&log).unwrap().unwrap();
                    let refused = check(&other, &mut reader, rewritten_max);
                    assert!(
                        matches!(refused, Err(UndoError::OtherImage { .. })),
                        "{rewritten_max} {piece}: {refused:?}"
                    );
                }
            }
        }
    }
}
