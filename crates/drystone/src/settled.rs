//! Keeps what an interrupted change has left from being read.

use crate::{Error, VolumeName};
use drystone_volumes::undo_file;

/// Checks that no change of a volume was interrupted.
///
/// # Errors
///
/// [`Error::Interrupted`] if one was: what is there may be half old, half new.
pub(crate) fn check_settled(name: &VolumeName) -> Result<(), Error> {
    if undo_file(name)?.is_incomplete()? { Err(Error::Interrupted) } else { Ok(()) }
}
