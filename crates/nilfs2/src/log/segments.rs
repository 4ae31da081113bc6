//! The segment usage file in memory, and where the log goes.
//!
//! # State
//! The *position* is after the newest log. The segment that follows is reserved when the first log of a
//! segment is built, and named by every log of that segment.

use crate::error::{Error, Result};
use crate::metadata_file::MetadataFile;
use crate::volume::{BlockSource, Volume};
use drystone_nilfs2_format::error::UsageProblem;
use drystone_nilfs2_format::sufile::{
    ENTRY_BYTES, SegmentUsage, SufileHeader, UsageFlags, place_of, segments_of,
};
use drystone_nilfs2_format::{Corrupt, FileBlock, PhysicalBlock, SegmentNumber};
use drystone_vfs::Errno;
use std::ops::Range;

/// Where the next log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    pub(crate) segment: SegmentNumber,
    /// The segment that follows.
    pub(crate) next: SegmentNumber,
    /// The first block after the newest log.
    pub(crate) block: PhysicalBlock,
    /// The sequence number of the segment.
    pub(crate) sequence: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Segments {
    pub(crate) file: MetadataFile,
    pub(crate) position: LogPosition,
    pub(crate) header: SufileHeader,
    /// Segments that the log which is being built cleans: they are still needed until it is durable.
    pub(crate) barred: Vec<SegmentNumber>,
}

impl Segments {
    pub(crate) fn load(
        mut file: MetadataFile,
        position: LogPosition,
        volume: &Volume,
        source: &dyn BlockSource,
    ) -> Result<Self> {
        let mut header = match file.load_block(FileBlock(0), source)? {
            Some(block) => SufileHeader::read(block)?,
            None => SufileHeader::default(),
        };
        let segments = volume.geometry.segments();
        header.clean = header.clean.min(segments);
        if header.last_allocated.0 >= segments {
            let (segment, problem) =
                (header.last_allocated, UsageProblem::LastAllocated { segments });
            return Err(Corrupt::Usage { segment, problem }.into());
        }
        Ok(Self { file, position, header, barred: Vec::new() })
    }

    pub(crate) fn usage(
        &mut self,
        segment: SegmentNumber,
        volume: &Volume,
        source: &dyn BlockSource,
    ) -> Result<SegmentUsage> {
        let (key, offset) = place_of(segment, volume.block_bytes());
        match self.file.load_block(key, source)? {
            Some(block) => Ok(SegmentUsage::read(&block[offset..])?),
            None => Ok(SegmentUsage::default()),
        }
    }

    /// Shows all records that there are. Segments without one are clean: a volume claims any number of them.
    pub(crate) fn for_each_usage(
        &mut self,
        volume: &Volume,
        source: &dyn BlockSource,
        visit: &mut dyn FnMut(SegmentNumber, SegmentUsage),
    ) -> Result<()> {
        let segments = volume.geometry.segments();
        let mut from = Some(FileBlock(0));
        while let Some(key) =
            from.map(|from| self.file.next_key(from, source)).transpose()?.flatten()
        {
            let numbers = segments_of(key, volume.block_bytes());
            if numbers.start >= segments {
                break;
            }
            for segment in (numbers.start..numbers.end.min(segments)).map(SegmentNumber) {
                visit(segment, self.usage(segment, volume, source)?);
            }
            from = key.0.checked_add(1).map(FileBlock);
        }
        Ok(())
    }

    /// Changes the record of a segment, and the counts of clean and dirty ones with it.
    pub(crate) fn set_usage(
        &mut self,
        segment: SegmentNumber,
        usage: SegmentUsage,
        volume: &Volume,
        source: &dyn BlockSource,
    ) -> Result<()> {
        let old = self.usage(segment, volume, source)?;
        let (key, offset) = place_of(segment, volume.block_bytes());
        let block = self.file.edit_zeroed(key, source)?;
        block[offset..offset + ENTRY_BYTES].copy_from_slice(&usage.encode());
        let was_dirty = old.flags.contains(UsageFlags::DIRTY);
        let is_dirty = usage.flags.contains(UsageFlags::DIRTY);
        let counts = (&mut self.header.clean, &mut self.header.dirty);
        *counts.0 =
            counts.0.saturating_add_signed(i64::from(usage.is_clean()) - i64::from(old.is_clean()));
        *counts.1 = counts.1.saturating_add_signed(i64::from(is_dirty) - i64::from(was_dirty));
        self.write_header(source)
    }

    /// Counts clean and dirty segments anew if the counts leave some out, as after a crash while the volume grew.
    pub(crate) fn recount(&mut self, volume: &Volume, source: &dyn BlockSource) -> Result<()> {
        let segments = volume.geometry.segments();
        if self.header.clean.checked_add(self.header.dirty) == Some(segments) {
            return Ok(());
        }
        let (mut used, mut dirty) = (0, 0);
        self.for_each_usage(volume, source, &mut |_, usage| {
            used += u64::from(!usage.is_clean());
            dirty += u64::from(usage.flags.contains(UsageFlags::DIRTY));
        })?;
        let clean = segments - used;
        if (self.header.clean, self.header.dirty) == (clean, dirty) {
            // Segments with errors are neither.
            return Ok(());
        }
        (self.header.clean, self.header.dirty) = (clean, dirty);
        self.write_header(source)
    }

    /// Writes the header into its block, which is dirty from now on.
    pub(crate) fn write_header(&mut self, source: &dyn BlockSource) -> Result<()> {
        let header = self.header;
        header.encode_into(self.file.edit_zeroed(FileBlock(0), source)?);
        Ok(())
    }

    /// Takes the next clean segment after the one that was taken last.
    ///
    /// # Errors
    /// `ENOSPC` if there is none.
    pub(crate) fn allocate(
        &mut self,
        volume: &Volume,
        source: &dyn BlockSource,
    ) -> Result<SegmentNumber> {
        let start = self.header.last_allocated.0 + 1;
        let segments = volume.geometry.segments();
        let mut found = None;
        if self.header.clean > 0 {
            found = self.find_clean(start..segments, volume, source)?;
            if found.is_none() {
                found = self.find_clean(0..start.min(segments), volume, source)?;
            }
        }
        let segment = found.ok_or(Error::Errno(Errno::ENOSPC))?;
        self.header.last_allocated = segment;
        let usage = self.usage(segment, volume, source)?;
        let usage = SegmentUsage { blocks: 0, flags: UsageFlags::DIRTY, ..usage };
        self.set_usage(segment, usage, volume, source)?;
        Ok(segment)
    }

    /// The first segment of a range that may be taken. Each block of records is looked up once.
    fn find_clean(
        &mut self,
        range: Range<u64>,
        volume: &Volume,
        source: &dyn BlockSource,
    ) -> Result<Option<SegmentNumber>> {
        let block_bytes = volume.block_bytes();
        let mut start = range.start;
        while start < range.end {
            let (key, _) = place_of(SegmentNumber(start), block_bytes);
            let end = segments_of(key, block_bytes).end.min(range.end);
            let block = self.file.load_block(key, source)?;
            for segment in (start..end).map(SegmentNumber) {
                let usage = match block {
                    Some(block) => SegmentUsage::read(&block[place_of(segment, block_bytes).1..])?,
                    None => SegmentUsage::default(),
                };
                let is_in_use = segment == self.position.segment
                    || segment == self.position.next
                    || self.barred.contains(&segment);
                if usage.is_clean() && !is_in_use {
                    return Ok(Some(segment));
                }
            }
            start = end;
        }
        Ok(None)
    }

    /// Gives segments back that were taken and not written; the first was taken first.
    pub(crate) fn give_back(
        &mut self,
        taken: &[SegmentNumber],
        last_allocated: SegmentNumber,
        volume: &Volume,
        source: &dyn BlockSource,
    ) -> Result<()> {
        for segment in taken {
            let usage = self.usage(*segment, volume, source)?;
            let usage = SegmentUsage { flags: UsageFlags::empty(), ..usage };
            self.set_usage(*segment, usage, volume, source)?;
        }
        self.header.last_allocated = last_allocated;
        self.write_header(source)
    }

    /// Notes blocks that a log has in a segment.
    pub(crate) fn note_written(
        &mut self,
        segment: SegmentNumber,
        blocks: u32,
        time_s: u64,
        volume: &Volume,
        source: &dyn BlockSource,
    ) -> Result<()> {
        let old = self.usage(segment, volume, source)?;
        let usage = SegmentUsage {
            modified_s: time_s,
            blocks: old.blocks.saturating_add(blocks),
            flags: old.flags | UsageFlags::DIRTY,
        };
        self.set_usage(segment, usage, volume, source)
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::volume::{BlockBytes, VolumeOptions};
    use drystone_blockdev::MemoryDevice;
    use drystone_nilfs2_format::inode::{INODE_BYTES, Inode};
    use drystone_nilfs2_format::{Geometry, InodeNumber};
    use drystone_sync::Arc;
    use drystone_sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    const BLOCK_BYTES: usize = 1024;
    const SEGMENTS: u64 = 10_000;

    /// Records of segments all of which have logs.
    #[derive(Default)]
    struct FullSegments {
        reads: AtomicU64,
    }

    impl BlockSource for FullSegments {
        fn read(&self, _: u64) -> Result<BlockBytes> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let usage = SegmentUsage { modified_s: 1, blocks: 10, flags: UsageFlags::DIRTY };
            Ok(usage.encode().repeat(BLOCK_BYTES / ENTRY_BYTES).into())
        }
    }

    fn full() -> (Volume, FullSegments, Segments) {
        let device_bytes = (SEGMENTS + 1) * 16 * BLOCK_BYTES as u64;
        let geometry = Geometry::new(BLOCK_BYTES as u32, 16, SEGMENTS, 5, device_bytes).unwrap();
        let device = Arc::new(MemoryDevice::new(device_bytes));
        let options = VolumeOptions { fixed_time_s: Some(1), full_medium_wait: Duration::ZERO };
        let volume = Volume::new(device, geometry, 0, options);
        let inode = Inode::read(&[0; INODE_BYTES]).unwrap();
        let mut file = MetadataFile::load(InodeNumber::SUFILE, &inode, BLOCK_BYTES).unwrap();
        let source = FullSegments::default();
        for key in 0..=place_of(SegmentNumber(SEGMENTS - 1), BLOCK_BYTES).0.0 {
            file.map.set(FileBlock(key), 1000 + key, &source).unwrap();
        }
        let position = LogPosition {
            segment: SegmentNumber(3),
            next: SegmentNumber(4),
            block: PhysicalBlock(50),
            sequence: 1,
        };
        let header = SufileHeader { clean: 0, dirty: SEGMENTS, last_allocated: SegmentNumber(4) };
        (volume, source, Segments { file, position, header, barred: Vec::new() })
    }

    /// On a full volume every log asks for segments.
    #[test]
    fn no_record_is_read_if_no_segment_is_clean() {
        let (volume, source, mut segments) = full();
        let taken = segments.allocate(&volume, &source);
        assert!(matches!(taken, Err(Error::Errno(Errno::ENOSPC))));
        assert_eq!(source.reads.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_search_goes_around_the_volume() {
        let (volume, source, mut segments) = full();
        segments.write_header(&source).unwrap();
        let clean = [2, 3, 4, 5, 70, SEGMENTS - 1].map(SegmentNumber);
        for segment in clean {
            segments.set_usage(segment, SegmentUsage::default(), &volume, &source).unwrap();
        }
        segments.barred.push(SegmentNumber(70));
        segments.header.last_allocated = SegmentNumber(5);
        for expected in [SEGMENTS - 1, 2, 5] {
            let taken = segments.allocate(&volume, &source).unwrap();
            assert_eq!(taken, SegmentNumber(expected));
            assert_eq!(segments.usage(taken, &volume, &source).unwrap().flags, UsageFlags::DIRTY);
        }
        // What is left is in use or barred.
        assert_eq!(segments.header.clean, 3);
        let taken = segments.allocate(&volume, &source);
        assert!(matches!(taken, Err(Error::Errno(Errno::ENOSPC))));
    }
}
