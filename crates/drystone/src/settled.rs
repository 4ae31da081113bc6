//! Refuses to open an image that an interrupted change has left half changed.

use crate::{ErrorCause, Result, VolumeName};
use drystone_volumes::undo_file;

/// Checks that no change of a volume was interrupted.
///
/// # Errors
///
/// [`ErrorCause::Interrupted`] if one was: what is there may be half old, half new.
pub(crate) fn check_settled(name: &VolumeName) -> Result<()> {
    if undo_file(name)?.is_incomplete()? { Err(ErrorCause::Interrupted.into()) } else { Ok(()) }
}
