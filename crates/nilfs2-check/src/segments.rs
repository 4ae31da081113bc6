//! All logs of all segments in use: their sums, how they follow each other, and whether they describe
//! the blocks that are there.

use crate::dat::{Dat, Places};
use crate::image::Image;
use crate::issue::{LogIssue, Nilfs2Issue, PlaceIssue, SegmentIssue};
use crate::logs::{self, CheckedLog};
use crate::report::Reporter;
use crate::superblocks::NewestCheckpoint;
use crate::usages::Usages;
use drystone_blockdev::DeviceError;
use drystone_nilfs2_format::log::{Finfo, Item, LogFlags};
use drystone_nilfs2_format::sufile::UsageFlags;
use drystone_nilfs2_format::{PhysicalBlock, SegmentNumber};

/// Checks all logs; takes the blocks that they describe out of those that are taken.
pub(crate) fn check(
    image: &Image<'_>,
    newest: &NewestCheckpoint,
    dat: &Dat,
    usages: &Usages,
    places: &mut Places,
    reporter: &mut Reporter,
) -> Result<(), DeviceError> {
    let header = &newest.log.header;
    for block in [newest.log.block, header.next] {
        if !usages.is_dirty_at(image, block)
            && let Some(segment) = image.geometry.segment_of(block)
        {
            reporter.report(Nilfs2Issue::Segment { segment, issue: SegmentIssue::CleanLog });
        }
    }
    for (number, usage) in (0..).zip(&usages.segments) {
        if usage.flags.contains(UsageFlags::DIRTY) && usage.blocks > 0 {
            let mut pass = SegmentPass { image, newest, dat, places, reporter };
            pass.check(SegmentNumber(number), usage.blocks)?;
        }
    }
    for block in places.taken.numbers().map(PhysicalBlock) {
        reporter.report(Nilfs2Issue::Block { block, issue: PlaceIssue::NotLogged });
    }
    Ok(())
}

struct SegmentPass<'a> {
    image: &'a Image<'a>,
    newest: &'a NewestCheckpoint,
    dat: &'a Dat,
    places: &'a mut Places,
    reporter: &'a mut Reporter,
}

impl SegmentPass<'_> {
    fn check(&mut self, segment: SegmentNumber, stored: u32) -> Result<(), DeviceError> {
        let start = self.image.geometry.segment_start(segment);
        let end = start.0 + u64::from(stored);
        let mut at = start;
        let mut before: Option<CheckedLog> = None;
        while at.0 < end {
            let sequence = before.as_ref().map(|log| log.header.sequence);
            let log = match logs::read(self.image, at, sequence)? {
                Ok(log) => log,
                Err(corrupt) => {
                    self.reporter.report(corrupt);
                    break;
                }
            };
            self.check_header(&log, before.as_ref());
            self.describe(&log)?;
            at = log.end();
            before = Some(log);
        }
        if at.0 != end {
            let issue = SegmentIssue::Blocks { stored, counted: at.0 - start.0 };
            self.reporter.report(Nilfs2Issue::Segment { segment, issue });
        }
        Ok(())
    }

    fn check_header(&mut self, log: &CheckedLog, before: Option<&CheckedLog>) {
        let block = log.block;
        let mut wrong = |issue| self.reporter.report(Nilfs2Issue::Log { block, issue });
        let (header, newest) = (&log.header, &self.newest.log.header);
        if !LogFlags::all().contains(header.flags) {
            wrong(LogIssue::UnknownFlags { flags: header.flags.bits() });
        }
        if header.sequence > newest.sequence {
            wrong(LogIssue::Sequence { found: header.sequence, newest: newest.sequence });
        }
        if header.checkpoint > newest.checkpoint {
            let (found, newest) = (header.checkpoint, newest.checkpoint);
            wrong(LogIssue::Checkpoint { found, newest });
        }
        let Some(before) = before.map(|log| &log.header) else { return };
        if header.next != before.next {
            wrong(LogIssue::Next { found: header.next, expected: before.next });
        }
        if before.flags.contains(LogFlags::END) != header.flags.contains(LogFlags::BEGIN) {
            wrong(LogIssue::Flags { flags: header.flags.bits() });
        }
    }

    /// Takes the blocks that are where the log says out of those that are taken.
    fn describe(&mut self, log: &CheckedLog) -> Result<(), DeviceError> {
        for section in &log.sections {
            for (place, item) in section.blocks() {
                let is_there = match *item {
                    Item::DatData { key } => self.dat.blocks.get(key) == Some(place),
                    Item::DatNode { key, level } => {
                        self.dat.nodes.get(&place) == Some(&(key, level))
                    }
                    Item::Data { virtual_block, .. } | Item::Node { virtual_block } => {
                        let entry = self.dat.entry(self.image, virtual_block)?;
                        let entry = entry.filter(|entry| entry.block == place);
                        let Finfo { inode, checkpoint: found, .. } = section.finfo;
                        if let Some(expected) = entry.map(|entry| entry.start)
                            && !inode.is_without_history()
                            && found != expected
                        {
                            let issue = LogIssue::Start { block: virtual_block, found, expected };
                            self.reporter.report(Nilfs2Issue::Log { block: log.block, issue });
                        }
                        entry.is_some()
                    }
                };
                if is_there {
                    self.places.taken.remove(place.0);
                }
            }
        }
        Ok(())
    }
}
