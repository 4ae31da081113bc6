//! Restores an image from an undo log.
//!
//! # Crash
//!
//! An interrupted rollback is run again: the log is complete until the image is restored.

use super::log::{Entry, LogReader, LogWriter, PIECE_BYTES};
use crate::{BlockDevice, DeviceError, DeviceResult};
use drystone_ondisk::crc32c;
use std::collections::{HashMap, HashSet};

/// Why an image isn't rolled back.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// The image isn't what the logged change left.
    #[error(
        "the image has changed since at byte {offset}, or is another one: going back would damage it"
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
    let Some(mut log) = LogReader::open(log)? else { return Err(UndoError::NoLog) };
    let protected_bytes = log.protected_bytes();
    if image.size_bytes() < protected_bytes {
        return Err(UndoError::OtherSize { found: image.size_bytes(), expected: protected_bytes });
    }
    check(image, &mut log)?;
    let mut log = LogWriter::after(log);
    log.append_rolling_back()?;
    // Opening cannot find less than before.
    let Some(mut log) = LogReader::open(log.into_log())? else { return Err(UndoError::NoLog) };
    while let Some(entry) = log.next()? {
        let Entry::Batch(changes) = entry else { continue };
        for change in changes {
            let start = change.number.saturating_mul(PIECE_BYTES as u64);
            let length = protected_length(start, protected_bytes);
            if let Some(old) = change.old {
                image.write_at(start, &old[..length])?;
            }
        }
    }
    image.flush()?;
    Ok(protected_bytes)
}

/// Compares what the image holds with what the log says was written. Leaves the log behind the last
/// entry.
fn check<L: BlockDevice>(
    image: &(impl BlockDevice + ?Sized),
    log: &mut LogReader<L>,
) -> Result<(), UndoError> {
    let protected_bytes = log.protected_bytes();
    // The checksum that each piece should have now; the last batch may not have been written.
    let mut expected: HashMap<u64, u32> = HashMap::new();
    let mut last: HashMap<u64, u32> = HashMap::new();
    let mut is_rolling_back = false;
    log.rewind();
    while let Some(entry) = log.next()? {
        expected.extend(last.drain());
        match entry {
            Entry::Batch(changes) => {
                last = changes.iter().map(|change| (change.number, change.new)).collect();
            }
            Entry::Finished => {}
            Entry::RollingBack => is_rolling_back = true,
        }
    }
    if is_rolling_back {
        return Ok(());
    }
    let unsure: HashSet<u64> = last.into_keys().collect();
    let mut pieces: Vec<_> = expected.into_iter().collect();
    pieces.sort_unstable();
    let mut bytes = [0; PIECE_BYTES];
    for (number, checksum) in pieces {
        let start = number.saturating_mul(PIECE_BYTES as u64);
        let length = protected_length(start, protected_bytes);
        image.read_at(start, &mut bytes[..length])?;
        if !unsure.contains(&number) && crc32c(!0, &bytes[..length]) != checksum {
            return Err(UndoError::OtherImage { offset: start });
        }
    }
    Ok(())
}

fn protected_length(start: u64, protected_bytes: u64) -> usize {
    protected_bytes.saturating_sub(start).min(PIECE_BYTES as u64) as usize
}

/// What a log says about its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeState {
    /// Nothing was written to the image.
    NotBegun,
    /// The image was changed in part.
    Incomplete,
    /// The change is complete.
    Finished,
}

/// Reads a log to its end; `None` if it is none.
pub(super) fn change_state(log: impl BlockDevice) -> DeviceResult<Option<ChangeState>> {
    let Some(mut log) = LogReader::open(log)? else { return Ok(None) };
    let mut state = ChangeState::NotBegun;
    while let Some(entry) = log.next()? {
        state = match entry {
            Entry::Batch(_) | Entry::RollingBack => ChangeState::Incomplete,
            Entry::Finished => ChangeState::Finished,
        };
    }
    Ok(Some(state))
}
