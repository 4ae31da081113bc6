//! The checkpoint file: one record for each checkpoint, with the ifile as it was then.
//!
//! Slot 0 of the first block is the header. The record of checkpoint *n* is in slot *n*, counted over
//! all blocks. Snapshots are checkpoints in a list that is linked both ways; the header is its end.
//!
//! # Reference
//! `struct nilfs_checkpoint` and `struct nilfs_cpfile_header` in `nilfs2_ondisk.h`.

use crate::error::{CheckpointProblem, Corrupt};
use crate::ids::{CheckpointNumber, FileBlock, InodeNumber};
use crate::inode::{INODE_BYTES, Inode};
use drystone_ondisk::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a record.
pub const ENTRY_BYTES: usize = size_of::<RawCheckpoint>();
/// Where the number of valid records of a block is, in its first record.
const VALID_COUNT_OFFSET: usize = core::mem::offset_of!(RawCheckpoint, checkpoints_count);

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCheckpoint {
    flags: U32,
    checkpoints_count: U32,
    snapshot_next: U64,
    snapshot_prev: U64,
    cno: U64,
    create: U64,
    nblk_inc: U64,
    inodes_count: U64,
    blocks_count: U64,
    ifile: [u8; INODE_BYTES],
}

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCpfileHeader {
    ncheckpoints: U64,
    nsnapshots: U64,
    snapshot_next: U64,
    snapshot_prev: U64,
}

pin_layout!(RawCheckpoint, size 192, {
    checkpoints_count: 4, snapshot_next: 8, cno: 24, create: 32, nblk_inc: 40, inodes_count: 48,
    ifile: 64,
});
pin_layout!(RawCpfileHeader, size 32, { nsnapshots: 8, snapshot_next: 16, snapshot_prev: 24 });

bitflags::bitflags! {
    /// What a checkpoint is.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CheckpointFlags: u32 {
        /// Kept until it is made a plain checkpoint again.
        const SNAPSHOT = 1;
        /// There is no checkpoint in this slot.
        const INVALID = 2;
        /// Nothing that users see has changed.
        const MINOR = 8;
    }
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CpfileHeader {
    /// Checkpoints, snapshots among them.
    pub checkpoints: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// The smallest snapshot; 0 for none.
    pub first_snapshot: CheckpointNumber,
    /// The largest snapshot; 0 for none.
    pub last_snapshot: CheckpointNumber,
}

impl CpfileHeader {
    /// Reads the header at the start of the first block.
    pub fn read(block: &[u8]) -> Result<Self, Corrupt> {
        let Ok((raw, _)) = RawCpfileHeader::read_from_prefix(block) else {
            return Err(truncated("header of the checkpoint file", ENTRY_BYTES, block));
        };
        Ok(Self {
            checkpoints: raw.ncheckpoints.get(),
            snapshots: raw.nsnapshots.get(),
            first_snapshot: CheckpointNumber(raw.snapshot_next.get()),
            last_snapshot: CheckpointNumber(raw.snapshot_prev.get()),
        })
    }

    /// Writes the header into the first block.
    ///
    /// # Panics
    /// If the block is shorter than a record.
    pub fn encode_into(&self, block: &mut [u8]) {
        let raw = RawCpfileHeader {
            ncheckpoints: U64::new(self.checkpoints),
            nsnapshots: U64::new(self.snapshots),
            snapshot_next: U64::new(self.first_snapshot.0),
            snapshot_prev: U64::new(self.last_snapshot.0),
        };
        block[..size_of::<RawCpfileHeader>()].copy_from_slice(raw.as_bytes());
    }
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// What it is.
    pub flags: CheckpointFlags,
    /// The next larger snapshot; 0 for none.
    pub next_snapshot: CheckpointNumber,
    /// The next smaller snapshot; 0 for none.
    pub previous_snapshot: CheckpointNumber,
    /// Its number.
    pub number: CheckpointNumber,
    /// When it was made, in seconds since 1970.
    pub created_s: u64,
    /// Blocks written for it.
    pub blocks_written: u64,
    /// Inodes: the root and all that aren't reserved.
    pub inodes: u64,
    /// Blocks of these inodes and of the ifile, with the nodes of their maps.
    pub blocks: u64,
    /// The ifile.
    pub ifile: Inode,
}

impl Checkpoint {
    /// Reads a record without checking it.
    pub fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        let Ok((raw, _)) = RawCheckpoint::read_from_prefix(bytes) else {
            return Err(truncated("checkpoint", ENTRY_BYTES, bytes));
        };
        Ok(Self {
            flags: CheckpointFlags::from_bits_retain(raw.flags.get()),
            next_snapshot: CheckpointNumber(raw.snapshot_next.get()),
            previous_snapshot: CheckpointNumber(raw.snapshot_prev.get()),
            number: CheckpointNumber(raw.cno.get()),
            created_s: raw.create.get(),
            blocks_written: raw.nblk_inc.get(),
            inodes: raw.inodes_count.get(),
            blocks: raw.blocks_count.get(),
            ifile: Inode::read(&raw.ifile)?,
        })
    }

    /// Checks the record of a checkpoint that exists.
    pub fn check(
        bytes: &[u8],
        number: CheckpointNumber,
        block_bytes: usize,
    ) -> Result<Self, Corrupt> {
        let checkpoint = Self::read(bytes)?;
        let wrong = |problem| Err(Corrupt::Checkpoint { checkpoint: number, problem });
        if checkpoint.flags.contains(CheckpointFlags::INVALID) {
            return wrong(CheckpointProblem::Missing);
        }
        if checkpoint.number != number {
            return wrong(CheckpointProblem::Number { found: checkpoint.number });
        }
        Inode::check(&checkpoint.ifile.encode(), InodeNumber::IFILE, block_bytes)?;
        Ok(checkpoint)
    }

    /// Writes the record, but for the number of valid ones, which the first slot of a block has.
    ///
    /// # Panics
    /// If there is less room than a record has.
    pub fn encode_into(&self, slot: &mut [u8]) {
        let count = valid_count(slot);
        let raw = RawCheckpoint {
            flags: U32::new(self.flags.bits()),
            checkpoints_count: U32::new(count),
            snapshot_next: U64::new(self.next_snapshot.0),
            snapshot_prev: U64::new(self.previous_snapshot.0),
            cno: U64::new(self.number.0),
            create: U64::new(self.created_s),
            nblk_inc: U64::new(self.blocks_written),
            inodes_count: U64::new(self.inodes),
            blocks_count: U64::new(self.blocks),
            ifile: self.ifile.encode(),
        };
        slot[..ENTRY_BYTES].copy_from_slice(raw.as_bytes());
    }
}

/// Records of a block.
#[must_use]
pub const fn entries_per_block(block_bytes: usize) -> u64 {
    (block_bytes / ENTRY_BYTES) as u64
}

/// The block of a checkpoint, and where in it the record starts.
#[must_use]
pub const fn place_of(checkpoint: CheckpointNumber, block_bytes: usize) -> (FileBlock, usize) {
    let per_block = entries_per_block(block_bytes);
    let slot = (checkpoint.0 % per_block) as usize;
    (FileBlock(checkpoint.0 / per_block), slot * ENTRY_BYTES)
}

/// How many records of a block are valid, as its first slot says. The first block doesn't say.
///
/// # Panics
/// If the block is shorter than a record.
#[must_use]
pub fn valid_count(block: &[u8]) -> u32 {
    let field = &block[VALID_COUNT_OFFSET..VALID_COUNT_OFFSET + 4];
    u32::from_le_bytes([field[0], field[1], field[2], field[3]])
}

/// Counts the valid records of a block that isn't the first.
#[must_use]
pub fn count_valid(block: &[u8]) -> u32 {
    let slots = block.chunks_exact(ENTRY_BYTES);
    let is_valid = |slot: &&[u8]| {
        let flags = u32::from_le_bytes([slot[0], slot[1], slot[2], slot[3]]);
        !CheckpointFlags::from_bits_retain(flags).contains(CheckpointFlags::INVALID)
    };
    // A block has at most 341 records.
    slots.filter(is_valid).count() as u32
}

/// Sets how many records of a block are valid.
///
/// # Panics
/// If the block is shorter than a record.
pub fn set_valid_count(block: &mut [u8], count: u32) {
    block[VALID_COUNT_OFFSET..VALID_COUNT_OFFSET + 4].copy_from_slice(&count.to_le_bytes());
}

/// A new block: every slot is invalid, but for the header of the first block.
#[must_use]
pub fn new_block(block: FileBlock, block_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; block_bytes];
    let invalid = CheckpointFlags::INVALID.bits().to_le_bytes();
    for slot in bytes.chunks_exact_mut(ENTRY_BYTES).skip(usize::from(block.0 == 0)) {
        slot[..4].copy_from_slice(&invalid);
    }
    bytes
}

fn truncated(structure: &'static str, needed: usize, bytes: &[u8]) -> Corrupt {
    Corrupt::Truncated { structure, needed, found: bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_survive_in_their_slots() {
        assert_eq!(place_of(CheckpointNumber(21), 4096), (FileBlock(1), 0));
        let mut block = new_block(FileBlock(1), 4096);
        set_valid_count(&mut block, 5);
        let checkpoint = Checkpoint {
            flags: CheckpointFlags::MINOR,
            next_snapshot: CheckpointNumber(30),
            previous_snapshot: CheckpointNumber(2),
            number: CheckpointNumber(21),
            created_s: 4,
            blocks_written: 5,
            inodes: 6,
            blocks: 7,
            ifile: Inode::metadata_file(),
        };
        checkpoint.encode_into(&mut block);
        assert_eq!(Checkpoint::check(&block, CheckpointNumber(21), 4096), Ok(checkpoint));
        assert_eq!(valid_count(&block), 5);
        assert!(Checkpoint::check(&block[192..], CheckpointNumber(22), 4096).is_err());
        assert!(Checkpoint::check(&block, CheckpointNumber(22), 4096).is_err());
        assert!(Checkpoint::read(&block[..191]).is_err());
    }
}
