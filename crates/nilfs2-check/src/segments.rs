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
use drystone_nilfs2_format::log::{Finfo, LogFlags, LogHeader, SummaryItem};
use drystone_nilfs2_format::sufile::UsageFlags;
use drystone_nilfs2_format::{CheckpointNumber, PhysicalBlock, SegmentNumber};

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
    let mut ends = Vec::new();
    for (&segment, usage) in &usages.stored {
        if usage.flags.contains(UsageFlags::DIRTY) && usage.blocks > 0 {
            let mut pass = SegmentPass { image, newest, dat, places, reporter };
            ends.extend(pass.check(segment, usage.blocks)?);
        }
    }
    check_ends(ends, reporter);
    for block in places.taken.numbers().map(PhysicalBlock) {
        reporter.report(Nilfs2Issue::Block { block, issue: PlaceIssue::NotLogged });
    }
    Ok(())
}

/// Why a log can't follow another one.
fn order_issue(before: &LogHeader, header: &LogHeader) -> Option<LogIssue> {
    let is_next = before.flags.contains(LogFlags::END);
    let is_same_kind = (before.flags ^ header.flags).intersection(LogFlags::DATA_SYNC).is_empty();
    let begins = header.flags.contains(LogFlags::BEGIN);
    if is_next != begins || !is_next && !is_same_kind {
        return Some(LogIssue::Flags { flags: header.flags.bits() });
    }
    let is_complete = u64::from(before.flags.contains(LogFlags::SUPER_ROOT));
    let expected = CheckpointNumber(before.checkpoint.0.saturating_add(is_complete));
    let found = header.checkpoint;
    (found != expected).then_some(LogIssue::CheckpointOrder { found, expected })
}

/// The first and the last log of a segment.
struct SegmentEnds {
    block: PhysicalBlock,
    first: LogHeader,
    last: LogHeader,
}

/// Checks that the log goes on from one segment to the next.
fn check_ends(mut ends: Vec<SegmentEnds>, reporter: &mut Reporter) {
    ends.sort_unstable_by_key(|ends| ends.first.sequence);
    for pair in ends.windows(2) {
        let [before, SegmentEnds { block, first, .. }] = pair else { continue };
        let (found, expected) = (*block, before.last.next);
        let issue = match first.sequence - before.last.sequence {
            0 => Some(LogIssue::SequenceTwice { found: first.sequence }),
            1 if found != expected => Some(LogIssue::Next { found, expected }),
            1 => order_issue(&before.last, first),
            // Others have been cleaned between those that don't follow each other.
            _ => None,
        };
        if let Some(issue) = issue {
            reporter.report(Nilfs2Issue::Log { block: *block, issue });
        }
    }
}

struct SegmentPass<'a> {
    image: &'a Image<'a>,
    newest: &'a NewestCheckpoint,
    dat: &'a Dat,
    places: &'a mut Places,
    reporter: &'a mut Reporter,
}

impl SegmentPass<'_> {
    fn check(
        &mut self,
        segment: SegmentNumber,
        stored: u32,
    ) -> Result<Option<SegmentEnds>, DeviceError> {
        let start = self.image.geometry.segment_start(segment);
        let end = start.0 + u64::from(stored);
        let mut at = start;
        let mut before: Option<CheckedLog> = None;
        let mut ends: Option<SegmentEnds> = None;
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
            let first = ends.map_or(log.header, |ends| ends.first);
            ends = Some(SegmentEnds { block: start, first, last: log.header });
            before = Some(log);
        }
        if at.0 != end {
            let issue = SegmentIssue::Blocks { stored, counted: at.0 - start.0 };
            self.reporter.report(Nilfs2Issue::Segment { segment, issue });
        }
        Ok(ends)
    }

    fn check_header(&mut self, log: &CheckedLog, before: Option<&CheckedLog>) {
        let block = log.block;
        let mut wrong = |issue| self.reporter.report(Nilfs2Issue::Log { block, issue });
        let (header, newest) = (&log.header, &self.newest.log.header);
        let flags = header.flags;
        let [end, super_root, data_sync] =
            [LogFlags::END, LogFlags::SUPER_ROOT, LogFlags::DATA_SYNC]
                .map(|flag| flags.contains(flag));
        // What ends is a checkpoint or a synced file.
        if !LogFlags::all().contains(flags)
            || super_root && (data_sync || !end)
            || end && !super_root && !data_sync
        {
            wrong(LogIssue::ImpossibleFlags { flags: flags.bits() });
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
        if let Some(issue) = order_issue(before, header) {
            wrong(issue);
        }
    }

    /// Takes the blocks that are where the log says out of those that are taken.
    fn describe(&mut self, log: &CheckedLog) -> Result<(), DeviceError> {
        let first = CheckpointNumber(1);
        for section in &log.sections {
            let Finfo { inode, checkpoint: found, .. } = section.finfo;
            // mkfs names its checkpoint everywhere.
            let is_first = log.header.checkpoint == first && found == first;
            if inode.is_without_history() && found.0 != 0 && !is_first {
                let issue = LogIssue::History { inode, found };
                self.reporter.report(Nilfs2Issue::Log { block: log.block, issue });
            }
            for (place, item) in section.blocks() {
                let is_there = match *item {
                    SummaryItem::DatData { key } => self.dat.blocks.get(key) == Some(place),
                    SummaryItem::DatNode { key, level } => {
                        self.dat.nodes.get(&place) == Some(&(key, level))
                    }
                    SummaryItem::Data { virtual_block, .. }
                    | SummaryItem::Node { virtual_block } => {
                        let entry = self.dat.entry(self.image, virtual_block)?;
                        let entry = entry.filter(|entry| entry.block == place);
                        if let Some(expected) = entry.map(|entry| entry.start)
                            && !inode.is_without_history()
                            && found != expected
                        {
                            let issue = LogIssue::Start { block: virtual_block, found, expected };
                            self.reporter.report(Nilfs2Issue::Log { block: log.block, issue });
                        }
                        if entry.is_some_and(|entry| entry.is_live()) {
                            let key = match *item {
                                SummaryItem::Data { key, .. } => Some(key),
                                _ => None,
                            };
                            self.places.owners.add(self.image, place, virtual_block, inode, key);
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
