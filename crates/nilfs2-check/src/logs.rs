//! Reading logs: their headers, sums, sections and super roots.

use crate::image::Image;
use drystone_blockdev::DeviceError;
use drystone_nilfs2_format::error::LogProblem;
use drystone_nilfs2_format::log::{
    HEADER_BYTES, LogFlags, LogHeader, Section, read_sections, summary_sum,
};
use drystone_nilfs2_format::super_root::SuperRoot;
use drystone_nilfs2_format::{Corrupt, FormatError, PhysicalBlock, Sum};

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// A log whose sums are right.
pub(crate) struct CheckedLog {
    pub block: PhysicalBlock,
    pub header: LogHeader,
    pub sections: Vec<Section>,
}

impl CheckedLog {
    /// The block after it.
    pub fn end(&self) -> PhysicalBlock {
        PhysicalBlock(self.block.0 + u64::from(self.header.blocks))
    }

    pub fn has_super_root(&self) -> bool {
        self.header.flags.contains(LogFlags::SUPER_ROOT)
    }
}

/// Reads the log at a block, of a sequence number if one is given.
pub(crate) fn read(
    image: &Image<'_>,
    block: PhysicalBlock,
    sequence: Option<u64>,
) -> Result<Result<CheckedLog, Corrupt>, DeviceError> {
    let geometry = &image.geometry;
    let wrong = |problem| Corrupt::Log { block, problem };
    if geometry.segment_of(block).is_none() {
        return Ok(Err(wrong(LogProblem::NoSegment)));
    }
    let first = image.read(block, HEADER_BYTES)?;
    let header = match LogHeader::check(&first, geometry, block) {
        Ok(header) => header,
        Err(FormatError::Corrupt(corrupt)) => return Ok(Err(corrupt)),
        // Nothing in a header is optional.
        Err(FormatError::Unsupported(_)) => return Ok(Err(wrong(LogProblem::NoSegment))),
    };
    if let Some(expected) = sequence.filter(|expected| *expected != header.sequence) {
        let found = header.sequence;
        return Ok(Err(wrong(LogProblem::Sequence { found, expected })));
    }
    let (bytes, blocks) = (header.summary_bytes, header.blocks);
    let summary = image.read(block, bytes as usize)?;
    let (stored, computed) =
        (header.stored_summary_sum, summary_sum(image.superblock.seed(), &summary));
    if stored != computed {
        return Ok(Err(wrong(LogProblem::SummarySum { stored, computed })));
    }
    let (stored, computed) = (header.stored_data_sum, data_sum(image, block, blocks)?);
    if stored != computed {
        return Ok(Err(wrong(LogProblem::DataSum { stored, computed })));
    }
    let sections = read_sections(&summary, &header, geometry, block);
    Ok(sections.map(|sections| CheckedLog { block, header, sections }))
}

/// The sum of all that is in a log after the sum itself.
fn data_sum(image: &Image<'_>, block: PhysicalBlock, blocks: u32) -> Result<u32, DeviceError> {
    let mut sum = Sum::new(image.superblock.seed());
    let start = image.geometry.offset_of(block);
    let end = start + u64::from(blocks) * image.block_bytes() as u64;
    let mut at = start + size_of::<u32>() as u64;
    let mut buffer = vec![0; PIECE_BYTES.min(end - at) as usize];
    while at < end {
        let piece = &mut buffer[..PIECE_BYTES.min(end - at) as usize];
        image.device.read_at(at, piece)?;
        sum.update(piece);
        at += piece.len() as u64;
    }
    Ok(sum.finish())
}

/// Reads the super root of a log.
pub(crate) fn super_root(
    image: &Image<'_>,
    log: &CheckedLog,
) -> Result<Result<SuperRoot, Corrupt>, DeviceError> {
    if !log.has_super_root() {
        return Ok(Err(Corrupt::Log { block: log.block, problem: LogProblem::NoSuperRoot }));
    }
    // A log has at least two blocks.
    let block = PhysicalBlock(log.end().0 - 1);
    let bytes = image.read_block(block)?;
    Ok(SuperRoot::check(&bytes, image.superblock.seed(), block, image.block_bytes()))
}

/// The flags of the super root of a log, which have no meaning.
pub(crate) fn super_root_flags(image: &Image<'_>, log: &CheckedLog) -> Result<u16, DeviceError> {
    const FLAGS_AT: usize = 6;
    // A log has at least two blocks.
    let bytes = image.read_block(PhysicalBlock(log.end().0 - 1))?;
    Ok(u16::from_le_bytes([bytes[FLAGS_AT], bytes[FLAGS_AT + 1]]))
}

/// The log that follows another one, if there is one.
pub(crate) fn next(image: &Image<'_>, log: &CheckedLog) -> Result<Option<CheckedLog>, DeviceError> {
    let geometry = &image.geometry;
    let LogHeader { sequence, next, .. } = log.header;
    // The header was checked: the log is in one segment.
    let Some(segment) = geometry.segment_of(log.block) else { return Ok(None) };
    let end = log.end();
    if end.0 + 2 <= geometry.segment_end(segment).0
        && let Ok(found) = read(image, end, Some(sequence))?
    {
        return Ok(Some(found));
    }
    let Some(sequence) = sequence.checked_add(1) else { return Ok(None) };
    Ok(read(image, next, Some(sequence))?.ok())
}
