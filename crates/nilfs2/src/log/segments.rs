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
        let segments = volume.geometry.segments();
        let last = self.header.last_allocated.0;
        for distance in 1..=segments {
            let segment = SegmentNumber((last + distance) % segments);
            let usage = self.usage(segment, volume, source)?;
            let is_in_use = segment == self.position.segment
                || segment == self.position.next
                || self.barred.contains(&segment);
            if usage.is_clean() && !is_in_use {
                self.header.last_allocated = segment;
                let usage = SegmentUsage { blocks: 0, flags: UsageFlags::DIRTY, ..usage };
                self.set_usage(segment, usage, volume, source)?;
                return Ok(segment);
            }
        }
        Err(Error::Errno(Errno::ENOSPC))
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
