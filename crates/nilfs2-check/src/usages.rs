//! The segment usage file: the record of each segment, and what is counted of them.

use crate::dat::{Dat, References, walk_file};
use crate::image::Image;
use crate::issue::{FileIssue, Nilfs2Issue, PlaceIssue, SegmentIssue};
use crate::maps::MapContent;
use crate::report::Reporter;
use drystone_blockdev::DeviceError;
use drystone_nilfs2_format::error::UsageProblem;
use drystone_nilfs2_format::inode::Inode;
use drystone_nilfs2_format::sufile::{
    SegmentUsage, SufileHeader, UsageFlags, place_of, segments_of,
};
use drystone_nilfs2_format::{
    CheckpointNumber, Corrupt, FileBlock, InodeNumber, PhysicalBlock, SegmentNumber,
};
use std::collections::BTreeMap;

/// The records of all segments.
pub(crate) struct Usages {
    /// Those that say anything: a volume claims any number of segments.
    pub stored: BTreeMap<SegmentNumber, SegmentUsage>,
    pub content: MapContent,
    pub clean: u64,
}

impl Usages {
    /// Reads and checks the file.
    pub fn load(
        image: &Image<'_>,
        dat: &Dat,
        inode: &Inode,
        newest: CheckpointNumber,
        seen: &mut References,
        reporter: &mut Reporter,
    ) -> Result<Usages, DeviceError> {
        let file = (InodeNumber::SUFILE, inode);
        let (blocks, content) = walk_file(image, dat, file, newest, seen, reporter)?;
        let segments = image.geometry.segments();
        let mut stored = BTreeMap::new();
        // A hole holds records of clean segments.
        for (key, place) in blocks.iter() {
            let numbers = segments_of(key, image.block_bytes());
            if numbers.start >= segments {
                continue;
            }
            let bytes = image.read_block(place)?;
            for segment in (numbers.start..numbers.end.min(segments)).map(SegmentNumber) {
                let (_, at) = place_of(segment, image.block_bytes());
                let usage = SegmentUsage::read(&bytes[at..]).unwrap_or_default();
                if usage != SegmentUsage::default() {
                    stored.insert(segment, usage);
                }
            }
        }
        let used = stored.values().filter(|usage| !usage.is_clean()).count() as u64;
        let usages = Usages { stored, content, clean: segments - used };
        usages.check_records(image, reporter);
        match blocks.get(FileBlock(0)) {
            Some(place) => match SufileHeader::read(&image.read_block(place)?) {
                Ok(header) => usages.check_header(&header, segments, reporter),
                Err(corrupt) => reporter.report(corrupt),
            },
            None => {
                let issue = FileIssue::Hole { block: FileBlock(0) };
                reporter.report(Nilfs2Issue::File { inode: InodeNumber::SUFILE, issue });
            }
        }
        Ok(usages)
    }

    fn check_records(&self, image: &Image<'_>, reporter: &mut Reporter) {
        let known = UsageFlags::ACTIVE | UsageFlags::DIRTY | UsageFlags::ERROR;
        for (&segment, usage) in &self.stored {
            let mut wrong = |issue| reporter.report(Nilfs2Issue::Segment { segment, issue });
            let (flags, blocks) = (usage.flags, usage.blocks);
            if !known.contains(flags) {
                wrong(SegmentIssue::UnknownFlags { flags: flags.bits() });
            }
            if flags.contains(UsageFlags::ERROR) {
                wrong(SegmentIssue::Bad);
            }
            if usage.is_clean() && blocks != 0 {
                wrong(SegmentIssue::CleanBlocks { blocks });
            }
            if u64::from(blocks) > image.geometry.blocks_per_segment() {
                let problem = UsageProblem::Blocks { blocks };
                reporter.report(Corrupt::Usage { segment, problem });
            }
        }
    }

    fn check_header(&self, header: &SufileHeader, segments: u64, reporter: &mut Reporter) {
        let is_dirty = |usage: &&SegmentUsage| usage.flags.contains(UsageFlags::DIRTY);
        let dirty = self.stored.values().filter(is_dirty).count() as u64;
        for (what, stored, counted) in
            [("clean segments", header.clean, self.clean), ("dirty segments", header.dirty, dirty)]
        {
            if stored != counted {
                reporter.report(Nilfs2Issue::UsageCount { what, stored, counted });
            }
        }
        if header.last_allocated.0 >= segments {
            let problem = UsageProblem::LastAllocated { segments };
            reporter.report(Corrupt::Usage { segment: header.last_allocated, problem });
        }
    }

    /// Whether a log may go on in the segment of a block.
    pub fn is_dirty_at(&self, image: &Image<'_>, block: PhysicalBlock) -> bool {
        let segment = image.geometry.segment_of(block);
        let usage = segment.and_then(|segment| self.stored.get(&segment));
        usage.is_some_and(|usage| usage.flags.contains(UsageFlags::DIRTY))
    }

    /// Why no block can be at a place.
    pub fn place_issue(&self, image: &Image<'_>, place: PhysicalBlock) -> Option<PlaceIssue> {
        let geometry = &image.geometry;
        let Some(segment) = geometry.segment_of(place) else { return Some(PlaceIssue::Outside) };
        let usage = self.stored.get(&segment).copied().unwrap_or_default();
        let written = u64::from(usage.blocks);
        let is_written = !usage.is_clean() && place.0 < geometry.segment_start(segment).0 + written;
        (!is_written).then_some(PlaceIssue::NotWritten)
    }
}
