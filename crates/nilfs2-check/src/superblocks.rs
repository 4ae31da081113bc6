//! The superblocks, and the newest log that they lead to.

use crate::image::{CheckError, Image};
use crate::issue::{Nilfs2Issue, SuperblockCopy, SuperblockCopyIssue};
use crate::logs::{self, CheckedLog};
use crate::report::Reporter;
use drystone_blockdev::{BlockDevice, DeviceError};
use drystone_nilfs2_format::geometry::{
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, second_superblock_offset,
};
use drystone_nilfs2_format::log::LogFlags;
use drystone_nilfs2_format::super_root::SuperRoot;
use drystone_nilfs2_format::superblock::{Superblock, VolumeState};
use drystone_nilfs2_format::{CheckpointNumber, Corrupt, FormatError};

/// What everything else is found through.
pub(crate) struct NewestCheckpoint {
    pub log: CheckedLog,
    pub super_root: SuperRoot,
    /// The superblock leads there, and says that nothing has changed since.
    pub is_clean: bool,
}

impl NewestCheckpoint {
    pub fn number(&self) -> CheckpointNumber {
        self.log.header.checkpoint
    }
}

type CopyAndSuperblock = (SuperblockCopy, Superblock);

fn wrong(copy: SuperblockCopy, issue: SuperblockCopyIssue) -> Nilfs2Issue {
    Nilfs2Issue::Superblock { copy, issue }
}

fn read(
    device: &dyn BlockDevice,
    offset: u64,
) -> Result<Result<Superblock, FormatError>, DeviceError> {
    let size = device.size_bytes();
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    if size >= SUPERBLOCK_OFFSET_BYTES + offset.max(SUPERBLOCK_BYTES as u64) {
        device.read_at(offset, &mut bytes)?;
    }
    Ok(Superblock::check(&bytes, size))
}

/// Finds the usable superblocks, the one that counts first.
pub(crate) fn find(
    device: &dyn BlockDevice,
    reporter: &mut Reporter,
) -> Result<Vec<CopyAndSuperblock>, CheckError> {
    let first = read(device, SUPERBLOCK_OFFSET_BYTES)?;
    // That of a volume that is smaller than its device can only be found through the first.
    let volume =
        first.as_ref().map_or(device.size_bytes(), |found| found.geometry().device_bytes());
    let second = read(device, second_superblock_offset(volume))?;
    let mut found = Vec::new();
    let mut errors = Vec::new();
    for (copy, read) in [(SuperblockCopy::First, first), (SuperblockCopy::Second, second)] {
        match read {
            Ok(superblock) => found.push((copy, superblock)),
            Err(FormatError::Unsupported(unsupported)) => return Err(unsupported.into()),
            Err(error) => {
                reporter.report(wrong(copy, SuperblockCopyIssue::Unusable(error.clone())));
                errors.push(error);
            }
        }
    }
    found.retain(|(copy, superblock)| {
        let geometry = superblock.geometry();
        let lies_behind =
            second_superblock_offset(geometry.device_bytes()) >= geometry.offset_of(geometry.end());
        if *copy == SuperblockCopy::Second && !lies_behind {
            reporter.report(wrong(*copy, SuperblockCopyIssue::InSegment));
        }
        *copy == SuperblockCopy::First || lies_behind
    });
    if found.is_empty() {
        return Err(match errors.pop() {
            Some(error) => CheckError::NotNilfs2(error),
            None => CheckError::NotNilfs2(
                Corrupt::Truncated { structure: "superblock", needed: SUPERBLOCK_BYTES, found: 0 }
                    .into(),
            ),
        });
    }
    if let [(_, first), (copy, second)] = &*found {
        let constants = [
            ("the geometry", first.geometry() != second.geometry()),
            ("the seed of sums", first.seed() != second.seed()),
            ("the identity", first.uuid() != second.uuid()),
            ("the time when the volume was made", first.created_s() != second.created_s()),
            ("the first inode number", first.first_inode() != second.first_inode()),
        ];
        for (what, differs) in constants {
            if differs {
                reporter.report(wrong(*copy, SuperblockCopyIssue::Differs { what }));
            }
        }
        if second.cursor().checkpoint > first.cursor().checkpoint {
            found.reverse();
        }
    }
    for (copy, superblock) in &found {
        let state = superblock.state();
        if !VolumeState::all().contains(state) {
            let state = state.bits();
            reporter.report(wrong(*copy, SuperblockCopyIssue::UnknownState { state }));
        }
        if state.contains(VolumeState::ERROR) {
            reporter.report(wrong(*copy, SuperblockCopyIssue::Damaged));
        }
        if let Err(unsupported) = superblock.check_writable() {
            reporter.report(wrong(*copy, SuperblockCopyIssue::Feature(unsupported)));
        }
    }
    Ok(found)
}

/// Finds the newest checkpoint, and counts the logs after it.
pub(crate) fn newest<'a>(
    device: &'a dyn BlockDevice,
    found: Vec<CopyAndSuperblock>,
    reporter: &mut Reporter,
) -> Result<Option<(Image<'a>, NewestCheckpoint)>, CheckError> {
    let mut newest = None;
    for (copy, superblock) in found {
        let counts = newest.is_none();
        let is_clean = superblock.state().contains(VolumeState::CLEAN);
        let image = Image::new(device, superblock);
        let cursor = image.superblock.cursor();
        let read = match logs::read(&image, cursor.block, Some(cursor.sequence))? {
            Ok(log) => logs::super_root(&image, &log)?.map(|super_root| (log, super_root)),
            Err(corrupt) => Err(corrupt),
        };
        match read {
            Ok((log, super_root)) => {
                let (found, expected) = (log.header.checkpoint, cursor.checkpoint);
                if found != expected {
                    let issue = SuperblockCopyIssue::CursorCheckpoint { found, expected };
                    reporter.report(wrong(copy, issue));
                }
                if counts {
                    newest = Some((image, copy, NewestCheckpoint { log, super_root, is_clean }));
                }
            }
            // What an older superblock leads to may have been cleaned.
            Err(corrupt) if counts => {
                reporter.report(wrong(copy, SuperblockCopyIssue::Cursor(corrupt)));
            }
            Err(_) => {}
        }
    }
    let Some((image, copy, mut newest)) = newest else { return Ok(None) };
    if reporter.report.errors > 0 {
        // A mount goes on from here as after a crash.
        newest.is_clean = false;
    }
    walk_on(&image, copy, &mut newest, reporter)?;
    Ok(Some((image, newest)))
}

/// Goes on after the newest log that the superblock knows, as a mount does: a checkpoint counts if all its logs
/// are there, from the first one on, and if it is the next one. Others may be there also in a clean volume: what a
/// recovery has dropped, of a sequence number that it went on with.
fn walk_on(
    image: &Image<'_>,
    copy: SuperblockCopy,
    newest: &mut NewestCheckpoint,
    reporter: &mut Reporter,
) -> Result<(), DeviceError> {
    let mut position = logs::next(image, &newest.log)?;
    let mut behind = 0;
    // What the logs of one logical segment have in common, while all were there.
    let mut run = None;
    // Sequence numbers grow with each segment: no segment comes twice.
    while let Some(log) = position {
        position = logs::next(image, &log)?;
        behind += 1;
        let (flags, checkpoint) = (log.header.flags, log.header.checkpoint);
        let kind = (checkpoint, flags.contains(LogFlags::DATA_SYNC));
        let is_whole = flags.contains(LogFlags::BEGIN) || run == Some(kind);
        let is_end = flags.contains(LogFlags::END);
        run = (is_whole && !is_end).then_some(kind);
        let is_next = newest.number().next() == Some(checkpoint);
        if !(is_whole && is_end && is_next && log.has_super_root()) {
            continue;
        }
        if newest.is_clean {
            reporter.report(wrong(copy, SuperblockCopyIssue::NotClean { block: log.block }));
            break;
        }
        match logs::super_root(image, &log)? {
            Ok(super_root) => {
                *newest = NewestCheckpoint { log, super_root, is_clean: false };
                behind = 0;
            }
            Err(corrupt) => reporter.report(corrupt),
        }
    }
    reporter.report.summary.logs_behind = behind;
    Ok(())
}
