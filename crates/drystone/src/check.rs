//! Checks images.

use crate::settled::check_settled;
use crate::{Error, VolumeName};
use drystone_blockdev::OpenMode;
use drystone_fsck::{Issue, JournalIssue, Options, Progress, Report};
use std::path::Path;

/// Looks for errors in the NILFS2 image that `name` stands for, which is not changed.
///
/// # Errors
///
/// [`Error::InUse`] if a process has it open to write; otherwise why it could not be checked at all.
/// What is wrong with the image is in the report.
pub fn check_nilfs2(
    name: &Path,
    options: &drystone_nilfs2_check::CheckOptions,
) -> Result<drystone_nilfs2_check::CheckReport, Error> {
    let device = drystone_volumes::open(&VolumeName::find_whole(name)?, OpenMode::ReadOnly)?;
    Ok(drystone_nilfs2_check::check(&*device, options)?)
}

/// Looks for errors in the ext4 image that `name` stands for, which is not changed. The checker shares the
/// descriptions of the formats with the engine and nothing else. Only fast commits, which Linux
/// may leave, are replayed by the engine (in memory, and if `options` want the journal replayed):
/// what is checked then is what it would mount.
///
/// # Errors
///
/// [`Error::InUse`] if a process has it open to write; otherwise why it could not be checked at all.
/// What is wrong with the image is in the report.
pub fn check_image(
    name: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Report, Error> {
    let name = VolumeName::find_whole(name)?;
    check_settled(&name)?;
    let device = drystone_volumes::open(&name, OpenMode::ReadOnly)?;
    let report = drystone_fsck::check(&*device, options, progress)?;
    let pending = Issue::Journal(JournalIssue::FastCommit);
    if !report.problems.iter().any(|problem| problem.issue == pending) {
        return Ok(report);
    }
    match drystone_ext4::recovered(device) {
        Ok(recovered) => Ok(drystone_fsck::check(&*recovered, options, progress)?),
        // The report says that they are there, and what else is wrong.
        Err(_) => Ok(report),
    }
}
