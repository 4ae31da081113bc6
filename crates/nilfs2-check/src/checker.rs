//! The order of the passes.

use crate::checkpoints;
use crate::dat::{Dat, Places, References};
use crate::dat_entries;
use crate::files;
use crate::image::{CheckError, Image};
use crate::issue::{
    LogIssue, Nilfs2Issue, SegmentIssue, SuperblockCopy, SuperblockCopyIssue, VirtualBlockIssue,
};
use crate::logs;
use crate::report::{Nilfs2CheckOptions, Nilfs2CheckReport, Reporter};
use crate::segments;
use crate::superblocks::{self, NewestCheckpoint};
use crate::usages::Usages;
use drystone_blockdev::BlockDevice;
use drystone_nilfs2_format::{CheckpointNumber, InodeNumber, VirtualBlock};

/// Checks the image on a device. Nothing is written.
///
/// # Errors
/// The device fails, or it holds nothing that could be checked. Whatever is wrong with the image is in
/// the report.
pub fn check(
    device: &dyn BlockDevice,
    options: &Nilfs2CheckOptions,
) -> Result<Nilfs2CheckReport, CheckError> {
    let mut reporter = Reporter::new(options);
    let found = superblocks::find(device, &mut reporter)?;
    if let Some((image, newest)) = superblocks::newest(device, found, &mut reporter)? {
        check_volume(&image, &newest, &mut reporter)?;
    }
    Ok(reporter.report)
}

fn check_volume(
    image: &Image<'_>,
    newest: &NewestCheckpoint,
    reporter: &mut Reporter,
) -> Result<(), CheckError> {
    let number = newest.number();
    let root = &newest.super_root;
    let mut places = Places::default();
    // What the newest checkpoint refers to.
    let mut mapped = References::default();
    let flags = logs::super_root_flags(image, &newest.log)?;
    if flags != 0 {
        let issue = LogIssue::SuperRootFlags { flags };
        reporter.report(Nilfs2Issue::Log { block: newest.log.block, issue });
    }
    let dat = Dat::load(image, &root.dat, &mut places, reporter)?;
    let usages = Usages::load(image, &dat, &root.sufile, number, &mut mapped, reporter)?;
    dat_entries::check(image, &dat, number, &usages, &mut places, reporter)?;
    segments::check(image, newest, &dat, &usages, &mut places, reporter)?;
    let cpfile = checkpoints::load(image, &dat, &root.cpfile, number, &mut mapped, reporter)?;
    for (file, inode, content) in [
        (InodeNumber::DAT, &root.dat, dat.content),
        (InodeNumber::CPFILE, &root.cpfile, cpfile.content),
        (InodeNumber::SUFILE, &root.sufile, usages.content),
    ] {
        files::check_metadata_file(image, (file, inode), content, reporter);
    }
    for checkpoint in &cpfile.checked {
        reporter.checkpoint = Some(checkpoint.number);
        let is_newest = checkpoint.number == number;
        let mut seen = References::default();
        let seen = if is_newest { &mut mapped } else { &mut seen };
        files::check(image, &dat, checkpoint, seen, reporter)?;
    }
    reporter.checkpoint = None;
    for live in places.live.numbers().filter(|live| !mapped.blocks.contains(*live)) {
        let (block, issue) = (VirtualBlock(live), VirtualBlockIssue::Leaked);
        reporter.report(Nilfs2Issue::VirtualBlock { block, issue });
    }
    // With other problems, blocks may be missing on one side.
    if reporter.report.errors == 0 {
        for segment in places.owners.differences(&mapped.owners) {
            let issue = SegmentIssue::Owners;
            reporter.report(Nilfs2Issue::Segment { segment, issue });
        }
    }
    check_free_blocks(image, newest, &usages, reporter);
    let summary = &mut reporter.report.summary;
    summary.newest_checkpoint = number.0;
    summary.segments_clean = usages.clean;
    summary.segments_total = image.geometry.segments();
    summary.blocks_used = places.count;
    Ok(())
}

/// Checks what the superblock of a clean volume says of free blocks.
fn check_free_blocks(
    image: &Image<'_>,
    newest: &NewestCheckpoint,
    usages: &Usages,
    reporter: &mut Reporter,
) {
    let per_segment = image.geometry.blocks_per_segment();
    let (stored, counted) = (image.superblock.free_blocks(), usages.clean * per_segment);
    // mkfs takes the segment that it reserves for a clean one.
    let by_mkfs = newest.number() == CheckpointNumber(1) && stored == counted + per_segment;
    if newest.is_clean && stored != counted && !by_mkfs {
        let issue = SuperblockCopyIssue::FreeBlocks { stored, counted };
        reporter.report(Nilfs2Issue::Superblock { copy: SuperblockCopy::First, issue });
    }
}
