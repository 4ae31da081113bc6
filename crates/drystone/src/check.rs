//! Checks images in files and on devices.

use crate::Error;
use drystone_blockdev::{FileDevice, OpenMode};
use drystone_fsck::{Options, Progress, Report};
use std::path::Path;

/// Looks for errors in the image at `path`, which is not changed. The checker shares the
/// descriptions of the formats with the engine and nothing else.
///
/// # Errors
///
/// [`Error::InUse`] if somebody has it open to write; otherwise why it could not be checked at all.
/// What is wrong with the image is in the report.
pub fn check_image(
    path: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Report, Error> {
    let device = FileDevice::open(path, OpenMode::ReadOnly)?;
    Ok(drystone_fsck::check(&device, options, progress)?)
}
