//! Checks images.

use crate::change::{change, expect_ext4, now, open_rolled_back};
use crate::error::on_image;
use crate::settled::open_settled;
use crate::{ChangeOptions, Error, ErrorCause, Image, VolumeName};
use drystone_blockdev::{BlockDevice, OpenMode, Overlay, UndoTarget};
use drystone_ext4_format::features::{Compat, Incompat};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_fsck::{
    CheckOptions, CheckProgress, Choose, Issue, JournalIssue, RepairReport, Report,
};
use std::path::Path;

/// Looks for errors in the NILFS2 image that `name` stands for, which is not changed.
///
/// # Errors
///
/// [`ErrorCause::InUse`] if a process has it open to write; otherwise why it could not be checked at all.
/// What is wrong with the image is in the report.
pub fn check_nilfs2(
    name: &Path,
    options: &drystone_nilfs2_check::Nilfs2CheckOptions,
) -> Result<drystone_nilfs2_check::Nilfs2CheckReport, Error> {
    on_image("check", name, || {
        let device = drystone_volumes::open(&VolumeName::find_whole(name)?, OpenMode::ReadOnly)?;
        Ok(drystone_nilfs2_check::check(&*device, options)?)
    })
}

/// Looks for errors in the ext4 image that `name` stands for, which is not changed. The checker shares the
/// descriptions of the formats with the engine and nothing else. Only fast commits, which Linux
/// may leave, are replayed by the engine (in memory, and if `options` want the journal replayed):
/// what is checked then is what it would mount. Times are compared with the clock if `options` don't say
/// what time it is.
///
/// # Errors
///
/// [`ErrorCause::InUse`] if a process has it open to write; otherwise why it could not be checked at all.
/// What is wrong with the image is in the report.
pub fn check_image(
    name: &Path,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress<'_>),
) -> Result<Report, Error> {
    on_image("check", name, || {
        let name = VolumeName::find_whole(name)?;
        let options = &(*options).now_seconds(options.now_seconds.or(Some(now())));
        let device = open_settled(&name, OpenMode::ReadOnly)?;
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
    })
}

/// Mends the ext4 image that `name` stands for; `choose` decides about each problem. Everything is
/// written with an undo log. Before, the journal is replayed. Of the `options` of checks, those about threads
/// and memory count.
///
/// # Errors
///
/// [`ErrorCause::InUse`] if a process has it open; [`ErrorCause::Engine`] if another machine does, as its multi-mount
/// protection says; [`ErrorCause::Cancelled`] if `choose` or [`ChangeOptions::cancelled`] has ended the repair;
/// otherwise why it could not be mended at all. The image is as it was, or will be when it is changed
/// the next time.
pub fn repair_image(
    name: &Path,
    change_options: &ChangeOptions,
    options: &CheckOptions,
    choose: &mut Choose<'_>,
    progress: &mut dyn FnMut(CheckProgress<'_>),
) -> Result<RepairReport, Error> {
    on_image("repair", name, || {
        let volume_name = VolumeName::find_whole(name)?;
        let mut image = open_rolled_back(&volume_name)?;
        if may_hold_fast_commits(image.volume.device())? {
            drop(image.volume);
            // Where the engine can't replay them, the report says that they are there.
            if let Ok(opened) = Image::open(name) {
                opened.close()?;
            }
            image = open_rolled_back(&volume_name)?;
        }
        // The locks of this machine don't keep others out.
        drystone_ext4::check_multi_mount(image.volume.device())?;
        change(&image, change_options, None, |device| {
            let report = drystone_fsck::repair(device, options, now(), choose, progress)?;
            if report.is_cancelled {
                return Err(ErrorCause::Cancelled.into());
            }
            note_repair(device, &report)?;
            Ok(report)
        })
    })
}

/// Notes in the superblock that the image was changed, so that the undo log of an earlier change no longer fits, and
/// that it is sound now. One that was sound before is only written if a check was due.
fn note_repair(device: &dyn BlockDevice, report: &RepairReport) -> Result<(), Error> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    // One that is still damaged was to be left.
    let Ok(mut superblock) = Superblock::check(&bytes) else { return Ok(()) };
    let is_sound = report.errors == 0;
    let is_due = is_sound && is_check_due(&superblock, now());
    if !report.is_changed && !is_due {
        return Ok(());
    }
    if is_sound {
        superblock.set_mount_count(0);
        superblock.set_check_time_seconds(now());
    }
    superblock.set_kibibytes_written(superblock.kibibytes_written().wrapping_add(1));
    superblock.set_write_time_seconds(now());
    Ok(device.write_at(SUPERBLOCK_OFFSET_BYTES, &superblock.encode())?)
}

/// Whether a mount would ask for a check: after so many mounts, or so much time.
fn is_check_due(superblock: &Superblock, now_seconds: u64) -> bool {
    let mounts_max = superblock.max_mount_count();
    let interval = u64::from(superblock.check_interval_seconds());
    // More than 32,767 stand for -1 and the like: never.
    let is_worn = (1..=0x7fff).contains(&mounts_max) && superblock.mount_count() >= mounts_max;
    is_worn || interval > 0 && now_seconds >= superblock.check_time_seconds() + interval
}

/// Says what [`repair_image`] would do if `choose` decides so. The image is not changed.
///
/// # Errors
///
/// As for [`check_image`].
pub fn plan_repair(
    name: &Path,
    options: &CheckOptions,
    choose: &mut Choose<'_>,
    progress: &mut dyn FnMut(CheckProgress<'_>),
) -> Result<RepairReport, Error> {
    on_image("plan the repair of", name, || {
        let name = VolumeName::find_whole(name)?;
        let mut device = open_settled(&name, OpenMode::ReadOnly)?;
        expect_ext4(&*device)?;
        if may_hold_fast_commits(&*device)?
            && let Ok(recovered) = drystone_ext4::recovered(device.clone())
        {
            device = recovered;
        }
        let overlay = Overlay::new(&*device);
        Ok(drystone_fsck::repair(&overlay, options, now(), choose, progress)?.into_plan())
    })
}

/// Whether the journal has to be replayed and may hold fast commits, which only the engine replays.
fn may_hold_fast_commits(device: &dyn BlockDevice) -> Result<bool, Error> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if device.size_bytes() < SUPERBLOCK_OFFSET_BYTES + SUPERBLOCK_BYTES as u64 {
        return Ok(false);
    }
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    let Ok(superblock) = Superblock::check(&bytes) else { return Ok(false) };
    let features = superblock.features();
    Ok(features.incompat.contains(Incompat::RECOVER)
        && features.compat.contains(Compat::FAST_COMMIT))
}
