//! The checkpoint file: which checkpoints there are, their counts, and the list of snapshots.

use crate::dat::{Dat, References, walk_file};
use crate::image::Image;
use crate::issue::{CheckpointIssue, FileIssue, Nilfs2Issue};
use crate::maps::{FileBlocks, MapContent};
use crate::report::Reporter;
use drystone_blockdev::DeviceError;
use drystone_nilfs2_format::cpfile::{
    Checkpoint, CheckpointFlags, CpfileHeader, ENTRY_BYTES, entries_per_block, valid_count,
};
use drystone_nilfs2_format::inode::Inode;
use drystone_nilfs2_format::{CheckpointNumber, FileBlock, InodeNumber};

/// What the checkpoint file holds of those that are checked.
pub(crate) struct CheckpointFile {
    /// The newest checkpoint and all snapshots, in ascending order.
    pub checked: Vec<Checkpoint>,
    pub content: MapContent,
}

/// Reads and checks the file.
pub(crate) fn load(
    image: &Image<'_>,
    dat: &Dat,
    inode: &Inode,
    newest: CheckpointNumber,
    seen: &mut References,
    reporter: &mut Reporter,
) -> Result<CheckpointFile, DeviceError> {
    let file = (InodeNumber::CPFILE, inode);
    let (blocks, content) = walk_file(image, dat, file, newest, seen, reporter)?;
    let mut checked = Vec::new();
    let mut total = 0;
    for (key, place) in blocks.iter() {
        let bytes = image.read_block(place)?;
        total += check_block(image, key, &bytes, newest, &mut checked, reporter);
    }
    let snapshots: Vec<&Checkpoint> =
        checked.iter().filter(|found| found.flags.contains(CheckpointFlags::SNAPSHOT)).collect();
    check_list(image, &blocks, &snapshots, total, reporter)?;
    let summary = &mut reporter.report.summary;
    summary.checkpoints = total;
    summary.snapshots = snapshots.len() as u64;
    if checked.last().is_none_or(|found| found.number != newest) {
        let issue = CheckpointIssue::NewestMissing;
        reporter.report(Nilfs2Issue::Checkpoint { checkpoint: newest, issue });
    }
    Ok(CheckpointFile { checked, content })
}

/// Checks the records of a block, and how many are said to be valid; gives their number.
fn check_block(
    image: &Image<'_>,
    key: FileBlock,
    bytes: &[u8],
    newest: CheckpointNumber,
    checked: &mut Vec<Checkpoint>,
    reporter: &mut Reporter,
) -> u64 {
    let first = key.0.saturating_mul(entries_per_block(image.block_bytes()));
    let known = CheckpointFlags::SNAPSHOT | CheckpointFlags::INVALID | CheckpointFlags::MINOR;
    let mut valid = 0;
    for (number, slot) in (first..).zip(bytes.chunks_exact(ENTRY_BYTES)) {
        let number = CheckpointNumber(number);
        let wrong = |issue| Nilfs2Issue::Checkpoint { checkpoint: number, issue };
        // The header is in the place of number 0.
        let flags = Checkpoint::read(slot).map_or(CheckpointFlags::INVALID, |read| read.flags);
        if number.0 == 0 || flags.contains(CheckpointFlags::INVALID) {
            continue;
        }
        valid += 1;
        if !known.contains(flags) {
            reporter.report(wrong(CheckpointIssue::UnknownFlags { flags: flags.bits() }));
        }
        if number > newest {
            reporter.report(wrong(CheckpointIssue::Future { newest }));
            continue;
        }
        match Checkpoint::check(slot, number, image.block_bytes()) {
            Ok(found) => {
                let (next, previous) = (found.next_snapshot, found.previous_snapshot);
                for link in [next, previous] {
                    if link.0 != 0 && !flags.contains(CheckpointFlags::SNAPSHOT) {
                        let (which, expected) = ("a snapshot beside it", CheckpointNumber(0));
                        let issue = CheckpointIssue::SnapshotLink { which, found: link, expected };
                        reporter.report(wrong(issue));
                    }
                }
                if number == newest || flags.contains(CheckpointFlags::SNAPSHOT) {
                    checked.push(found);
                }
            }
            Err(corrupt) => reporter.report(corrupt),
        }
    }
    let stored = u64::from(valid_count(bytes));
    if key.0 != 0 && (stored != valid || valid == 0) {
        let issue = CheckpointIssue::Count { what: "records of a block", stored, counted: valid };
        let checkpoint = CheckpointNumber(first);
        reporter.report(Nilfs2Issue::Checkpoint { checkpoint, issue });
    }
    valid
}

/// Checks the header, and the list of snapshots, whose ends it holds.
fn check_list(
    image: &Image<'_>,
    blocks: &FileBlocks,
    snapshots: &[&Checkpoint],
    total: u64,
    reporter: &mut Reporter,
) -> Result<(), DeviceError> {
    let Some(place) = blocks.get(FileBlock(0)) else {
        let issue = FileIssue::Hole { block: FileBlock(0) };
        reporter.report(Nilfs2Issue::File { inode: InodeNumber::CPFILE, issue });
        return Ok(());
    };
    let none = CheckpointNumber(0);
    let mut wrong =
        |checkpoint, issue| reporter.report(Nilfs2Issue::Checkpoint { checkpoint, issue });
    let mut links = Vec::new();
    let header = CpfileHeader::read(&image.read_block(place)?).unwrap_or_default();
    for (what, stored, counted) in [
        ("checkpoints", header.checkpoints, total),
        ("snapshots", header.snapshots, snapshots.len() as u64),
    ] {
        if stored != counted {
            wrong(none, CheckpointIssue::Count { what, stored, counted });
        }
    }
    let number = |found: Option<&&Checkpoint>| found.map_or(none, |found| found.number);
    links.push((none, "the first snapshot", header.first_snapshot, number(snapshots.first())));
    links.push((none, "the last snapshot", header.last_snapshot, number(snapshots.last())));
    for (index, found) in snapshots.iter().enumerate() {
        let previous = index.checked_sub(1).and_then(|index| snapshots.get(index));
        let (next, previous) = (number(snapshots.get(index + 1)), number(previous));
        links.push((found.number, "the next snapshot", found.next_snapshot, next));
        links.push((found.number, "the previous snapshot", found.previous_snapshot, previous));
    }
    for (checkpoint, which, found, expected) in links {
        if found != expected {
            wrong(checkpoint, CheckpointIssue::SnapshotLink { which, found, expected });
        }
    }
    Ok(())
}
