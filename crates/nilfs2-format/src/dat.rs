//! The DAT (disk address translation): where a virtual block is, and in which checkpoints.
//!
//! # Reference
//! `struct nilfs_dat_entry` in `nilfs2_ondisk.h`.

use crate::error::{Corrupt, DatProblem};
use crate::geometry::Geometry;
use crate::ids::{CheckpointNumber, PhysicalBlock, VirtualBlock};
use drystone_ondisk::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = size_of::<RawDatEntry>();

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDatEntry {
    blocknr: U64,
    start: U64,
    end: U64,
    rsv: U64,
}

pin_layout!(RawDatEntry, size 32, { start: 8, end: 16, rsv: 24 });

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DatEntry {
    /// Where the block is; 0 as long as it hasn't been written.
    pub block: PhysicalBlock,
    /// The first checkpoint that has it.
    pub start: CheckpointNumber,
    /// The first checkpoint that hasn't; [`CheckpointNumber::MAX`] as long as the block lives.
    pub end: CheckpointNumber,
}

impl DatEntry {
    /// Reads an entry without checking it.
    pub fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        let Ok((raw, _)) = RawDatEntry::read_from_prefix(bytes) else {
            return Err(Corrupt::Truncated {
                structure: "DAT entry",
                needed: ENTRY_BYTES,
                found: bytes.len(),
            });
        };
        Ok(Self {
            block: PhysicalBlock(raw.blocknr.get()),
            start: CheckpointNumber(raw.start.get()),
            end: CheckpointNumber(raw.end.get()),
        })
    }

    /// Checks the entry of a virtual block that is in use: its block is in a segment, or it has none.
    pub fn check(bytes: &[u8], number: VirtualBlock, geometry: &Geometry) -> Result<Self, Corrupt> {
        let entry = Self::read(bytes)?;
        let Self { block, start, end } = entry;
        let wrong = |problem| Err(Corrupt::Dat { block: number, problem });
        if block.0 != 0 && geometry.segment_of(block).is_none() {
            return wrong(DatProblem::Block { block });
        }
        if start > end {
            return wrong(DatProblem::Period { start, end });
        }
        Ok(entry)
    }

    /// The bytes to store.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let raw = RawDatEntry {
            blocknr: U64::new(self.block.0),
            start: U64::new(self.start.0),
            end: U64::new(self.end.0),
            rsv: U64::new(0),
        };
        zerocopy::transmute!(raw)
    }

    /// Whether a checkpoint has the block.
    #[must_use]
    pub fn is_visible_in(&self, checkpoint: CheckpointNumber) -> bool {
        self.start <= checkpoint && checkpoint < self.end
    }

    /// Whether the newest state has the block.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.end == CheckpointNumber::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_and_are_checked() {
        let geometry = Geometry::new(4096, 2048, 15, 5, 128 << 20).unwrap();
        let entry = DatEntry {
            block: PhysicalBlock(77),
            start: CheckpointNumber(3),
            end: CheckpointNumber(5),
        };
        let check = |bytes: &[u8]| DatEntry::check(bytes, VirtualBlock(1), &geometry);
        assert_eq!(check(&entry.encode()), Ok(entry));
        assert!(!entry.is_visible_in(CheckpointNumber(5)) && !entry.is_live());
        assert!(check(&DatEntry { block: geometry.end(), ..entry }.encode()).is_err());
        assert!(check(&DatEntry { end: CheckpointNumber(2), ..entry }.encode()).is_err());
        assert!(check(&entry.encode()[..31]).is_err());
    }
}
