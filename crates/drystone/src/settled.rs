//! Opens images, but none that an interrupted change has left half changed.

use crate::{ErrorCause, Result, VolumeName};
use drystone_blockdev::{BlockDevice, OpenMode};
use drystone_sync::Arc;
use drystone_volumes::undo_file;

/// Opens a volume of which no change was interrupted.
///
/// # Errors
///
/// [`ErrorCause::Interrupted`] if one was: what is there may be half old, half new.
pub(crate) fn open_settled(name: &VolumeName, mode: OpenMode) -> Result<Arc<dyn BlockDevice>> {
    // Looking for the volume takes a lock that its opening would keep out.
    let undo = undo_file(name)?;
    let device = drystone_volumes::open(name, mode)?;
    // While it is open, no other process begins a change of it.
    if undo.is_incomplete()? { Err(ErrorCause::Interrupted.into()) } else { Ok(device) }
}
