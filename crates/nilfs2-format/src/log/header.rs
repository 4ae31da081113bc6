//! The header of a log, and its two sums.

use crate::error::{Corrupt, FormatError, LogProblem};
use crate::geometry::Geometry;
use crate::ids::{CheckpointNumber, PhysicalBlock};
use crate::sum::Sum;
use drystone_ondisk::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a header.
pub const HEADER_BYTES: usize = size_of::<RawLogHeader>();
const MAGIC: u32 = 0x1eaf_fa11;
/// Where the bytes that the sum of the summary covers start.
const SUMMARY_SUMMED_FROM: usize = 8;
/// Where the bytes that the sum of the whole log covers start.
const DATA_SUMMED_FROM: usize = 4;
/// More bytes than the item of a block needs in a summary, its share of gaps and finfos counted.
const ITEM_BYTES_MAX: u64 = 64;
/// A log holds its summary and at least one block.
const BLOCKS_MIN: u32 = 2;

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLogHeader {
    datasum: U32,
    sumsum: U32,
    magic: U32,
    bytes: U16,
    flags: U16,
    seq: U64,
    create: U64,
    next: U64,
    nblocks: U32,
    nfinfo: U32,
    sumbytes: U32,
    pad: U32,
    cno: U64,
}

pin_layout!(RawLogHeader, size 64, {
    magic: 8, flags: 14, seq: 16, next: 32, nblocks: 40, sumbytes: 48, cno: 56,
});

bitflags::bitflags! {
    /// What a log is.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LogFlags: u16 {
        /// The first log of a logical segment.
        const BEGIN = 1;
        /// The last log of a logical segment.
        const END = 2;
        /// Its last block is a super root.
        const SUPER_ROOT = 4;
        /// Data of a file that was synced, without a checkpoint.
        const DATA_SYNC = 8;
        /// Blocks that the cleaner has moved.
        const CLEANER = 16;
    }
}

/// A checked header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// What the log is.
    pub flags: LogFlags,
    /// The sequence number of its segment.
    pub sequence: u64,
    /// When it was written, in seconds since 1970.
    pub created_s: u64,
    /// The first block of the segment that follows.
    pub next: PhysicalBlock,
    /// Blocks of the log, with the summary.
    pub blocks: u32,
    /// Sections of files.
    pub sections: u32,
    /// Bytes of the summary, with the header.
    pub summary_bytes: u32,
    /// The checkpoint that is being built.
    pub checkpoint: CheckpointNumber,
    /// The sum of the summary as it is stored.
    pub stored_summary_sum: u32,
    /// The sum of the whole log as it is stored.
    pub stored_data_sum: u32,
}

impl LogHeader {
    /// Checks the header of the log at `block`: all that arithmetic relies on, no sums.
    pub fn check(
        bytes: &[u8],
        geometry: &Geometry,
        block: PhysicalBlock,
    ) -> Result<Self, FormatError> {
        let Ok((raw, _)) = RawLogHeader::read_from_prefix(bytes) else {
            return Err(Corrupt::Truncated {
                structure: "log header",
                needed: HEADER_BYTES,
                found: bytes.len(),
            }
            .into());
        };
        Self::check_raw(&raw, geometry, block)
            .map_err(|problem| Corrupt::Log { block, problem }.into())
    }

    fn check_raw(
        raw: &RawLogHeader,
        geometry: &Geometry,
        block: PhysicalBlock,
    ) -> Result<Self, LogProblem> {
        if raw.magic.get() != MAGIC {
            return Err(LogProblem::Magic { found: raw.magic.get() });
        }
        if usize::from(raw.bytes.get()) != HEADER_BYTES {
            return Err(LogProblem::HeaderBytes { bytes: raw.bytes.get() });
        }
        let segment = geometry.segment_of(block).ok_or(LogProblem::NoSegment)?;
        let room = geometry.segment_end(segment).0 - block.0;
        let (blocks, summary_bytes) = (raw.nblocks.get(), raw.sumbytes.get());
        if blocks < BLOCKS_MIN || u64::from(blocks) > room {
            return Err(LogProblem::Blocks { blocks, room });
        }
        let summary_blocks = u64::from(summary_bytes).div_ceil(geometry.block_bytes() as u64);
        let summary_max = HEADER_BYTES as u64 + u64::from(blocks) * ITEM_BYTES_MAX;
        if (summary_bytes as usize) < HEADER_BYTES
            || summary_blocks > u64::from(blocks)
            || u64::from(summary_bytes) > summary_max
        {
            return Err(LogProblem::SummaryBytes { bytes: summary_bytes, blocks });
        }
        let next = PhysicalBlock(raw.next.get());
        if geometry.segment_starting_at(next).is_none() {
            return Err(LogProblem::Next { next });
        }
        Ok(Self {
            flags: LogFlags::from_bits_retain(raw.flags.get()),
            sequence: raw.seq.get(),
            created_s: raw.create.get(),
            next,
            blocks,
            sections: raw.nfinfo.get(),
            summary_bytes,
            checkpoint: CheckpointNumber(raw.cno.get()),
            stored_summary_sum: raw.sumsum.get(),
            stored_data_sum: raw.datasum.get(),
        })
    }

    /// Blocks of the summary.
    #[must_use]
    pub fn summary_blocks(&self, geometry: &Geometry) -> u32 {
        self.summary_bytes.div_ceil(geometry.block_bytes() as u32)
    }

    /// Checks the sum of the summary, given the blocks of it.
    ///
    /// # Panics
    /// If `summary` is shorter than the header says.
    pub fn check_summary(
        &self,
        seed: u32,
        summary: &[u8],
        block: PhysicalBlock,
    ) -> Result<(), Corrupt> {
        let computed = summary_sum(seed, &summary[..self.summary_bytes as usize]);
        let stored = self.stored_summary_sum;
        match stored == computed {
            true => Ok(()),
            false => {
                let problem = LogProblem::SummarySum { stored, computed };
                Err(Corrupt::Log { block, problem })
            }
        }
    }

    /// Begins the sum of the whole log with the blocks of its summary; all others are to be added.
    ///
    /// # Panics
    /// If `summary` is shorter than a header.
    #[must_use]
    pub fn begin_data_sum(seed: u32, summary: &[u8]) -> Sum {
        let mut sum = Sum::new(seed);
        sum.update(&summary[DATA_SUMMED_FROM..]);
        sum
    }

    /// Checks the sum of the whole log at `block`.
    pub fn check_data(&self, sum: &Sum, block: PhysicalBlock) -> Result<(), Corrupt> {
        let (stored, computed) = (self.stored_data_sum, sum.finish());
        match stored == computed {
            true => Ok(()),
            false => {
                let problem = LogProblem::DataSum { stored, computed };
                Err(Corrupt::Log { block, problem })
            }
        }
    }

    /// Writes the header into the first block of a log, with sums of zero.
    ///
    /// # Panics
    /// If `summary` is shorter than a header.
    pub fn encode_into(&self, summary: &mut [u8]) {
        let raw = RawLogHeader {
            datasum: U32::new(0),
            sumsum: U32::new(0),
            magic: U32::new(MAGIC),
            bytes: U16::new(HEADER_BYTES as u16),
            flags: U16::new(self.flags.bits()),
            seq: U64::new(self.sequence),
            create: U64::new(self.created_s),
            next: U64::new(self.next.0),
            nblocks: U32::new(self.blocks),
            nfinfo: U32::new(self.sections),
            sumbytes: U32::new(self.summary_bytes),
            pad: U32::new(0),
            cno: U64::new(self.checkpoint.0),
        };
        summary[..HEADER_BYTES].copy_from_slice(raw.as_bytes());
    }
}

/// The sum of a summary, given its bytes (as many as the header says, not whole blocks).
///
/// # Panics
/// If there are fewer bytes than a header has.
#[must_use]
pub fn summary_sum(seed: u32, summary: &[u8]) -> u32 {
    Sum::of(seed, &summary[SUMMARY_SUMMED_FROM..])
}

/// The sum of a whole log, given the blocks of its summary and all others.
///
/// # Panics
/// If the summary is shorter than a header.
#[must_use]
pub fn data_sum<'a>(seed: u32, summary: &[u8], payload: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut sum = LogHeader::begin_data_sum(seed, summary);
    for bytes in payload {
        sum.update(bytes);
    }
    sum.finish()
}

/// Fills in both sums of a log: `summary` is the blocks of its summary, `payload` all others.
///
/// # Panics
/// If the summary is shorter than `summary_bytes` or than a header.
pub fn seal<'a>(
    seed: u32,
    summary: &mut [u8],
    summary_bytes: usize,
    payload: impl IntoIterator<Item = &'a [u8]>,
) {
    let sum = summary_sum(seed, &summary[..summary_bytes]);
    summary[4..8].copy_from_slice(&sum.to_le_bytes());
    let sum = data_sum(seed, summary, payload);
    summary[..4].copy_from_slice(&sum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_log_is_read_and_damage_is_found() {
        let geometry = Geometry::new(1024, 256, 100, 5, 64 << 20).unwrap();
        let block = PhysicalBlock(256);
        let header = LogHeader {
            flags: LogFlags::BEGIN | LogFlags::END,
            sequence: 3,
            created_s: 9,
            next: PhysicalBlock(512),
            blocks: 3,
            sections: 0,
            summary_bytes: 100,
            checkpoint: CheckpointNumber(5),
            stored_summary_sum: 0,
            stored_data_sum: 0,
        };
        let mut summary = vec![0; 1024];
        header.encode_into(&mut summary);
        let payload = vec![7; 2048];
        seal(1, &mut summary, 100, payload.chunks(1024));
        let mut log = [summary, payload].concat();
        let read = LogHeader::check(&log, &geometry, block).unwrap();
        assert_eq!((read.next, read.blocks), (PhysicalBlock(512), 3));
        let check = |log: &[u8]| {
            read.check_summary(1, &log[..1024], block)?;
            let mut sum = LogHeader::begin_data_sum(1, &log[..1024]);
            log[1024..].chunks(100).for_each(|piece| sum.update(piece));
            read.check_data(&sum, block)
        };
        check(&log).unwrap();
        for damaged in [2000, 80] {
            log[damaged] ^= 1;
            assert!(check(&log).is_err());
            log[damaged] ^= 1;
        }
        assert!(LogHeader::check(&log, &geometry, PhysicalBlock(510)).is_err());
        assert!(LogHeader::check(&log[..60], &geometry, block).is_err());
        // A summary has no more bytes than its items can take.
        let long = LogHeader { summary_bytes: 1025, ..header };
        long.encode_into(&mut log);
        assert!(LogHeader::check(&log, &geometry, block).is_err());
    }
}
