//! Blocks of the orphan file: which inodes must be cleaned up after a crash.
//!
//! A block is an array of inode numbers, 0 where a slot is free, and a tail with a magic number and
//! a checksum. The checksum covers the block's own number, so that a stale copy from another place
//! is not taken for one. The position of a slot has no meaning.
//!
//! # Reference
//! The patch mails that introduced the `orphan_file` feature; `mke2fs` for the sizes.

use crate::checksum::InodeSeed;
use crate::error::{Corrupt, OrphanFileProblem};
use crate::ids::{InodeNumber, PhysicalBlock};
use drystone_ondisk::crc32c;
use std::mem::{offset_of, size_of};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The magic number in a block's tail.
pub const MAGIC: u32 = 0x0b10_ca04;

drystone_ondisk::with_fields! {
    /// The end of an orphan block.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawOrphanTail {
        /// [`MAGIC`].
        pub magic: U32,
        /// The checksum of the slots.
        pub checksum: U32,
    }
}

const TAIL_LENGTH: usize = size_of::<RawOrphanTail>();
const SLOT_LENGTH: usize = size_of::<u32>();

const _: () = assert!(TAIL_LENGTH == 8);
const _: () = assert!(offset_of!(RawOrphanTail, checksum) == 4);

/// The place of an orphan block, and the seed of its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrphanPlace {
    /// The orphan file.
    pub inode: InodeNumber,
    /// Where the block lies on the device.
    pub block: PhysicalBlock,
    /// The orphan file's seed; `None` where the image has no checksums.
    pub checksum: Option<InodeSeed>,
}

impl OrphanPlace {
    fn corrupt(&self, problem: OrphanFileProblem) -> Corrupt {
        Corrupt::OrphanFile { inode: self.inode, block: self.block, problem }
    }

    fn compute(&self, slots: &[u8]) -> Option<u32> {
        let register = self.checksum?.append(&self.block.get().to_le_bytes());
        Some(crc32c(register, slots))
    }
}

/// Slots of a block.
#[must_use]
pub const fn slots_per_block(block_size: usize) -> usize {
    block_size.saturating_sub(TAIL_LENGTH) / SLOT_LENGTH
}

/// How many blocks `mke2fs` gives the orphan file of a filesystem of so many blocks.
#[must_use]
pub const fn default_length(filesystem_blocks: u64) -> u32 {
    if filesystem_blocks < 128 * 1024 {
        32
    } else if filesystem_blocks < 2 * 1024 * 1024 {
        // Below 512 by the bound above.
        (filesystem_blocks / 4096) as u32
    } else {
        512
    }
}

/// Makes a block with all slots free, its checksum still to be sealed.
///
/// # Panics
/// If the slice is shorter than the tail.
pub fn init(bytes: &mut [u8]) {
    bytes.fill(0);
    let tail = RawOrphanTail { magic: MAGIC.into(), checksum: 0.into() };
    let at = bytes.len() - TAIL_LENGTH;
    bytes[at..].copy_from_slice(tail.as_bytes());
}

/// Stores the checksum of a block. Does nothing where the image has none.
pub fn seal(bytes: &mut [u8], place: &OrphanPlace) {
    let Some((slots, tail)) = bytes.split_last_chunk_mut::<TAIL_LENGTH>() else { return };
    if let Some(checksum) = place.compute(slots) {
        tail[offset_of!(RawOrphanTail, checksum)..].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Stores an inode number in a slot, or 0 to free it, and returns what was there.
///
/// `None` if there is no such slot. The checksum is not touched.
pub fn set_slot(bytes: &mut [u8], slot: usize, inode: Option<InodeNumber>) -> Option<u32> {
    if slot >= slots_per_block(bytes.len()) {
        return None;
    }
    let at = slot * SLOT_LENGTH;
    let place = bytes.get_mut(at..)?.first_chunk_mut::<SLOT_LENGTH>()?;
    let before = u32::from_le_bytes(*place);
    *place = inode.map_or(0, InodeNumber::get).to_le_bytes();
    Some(before)
}

/// One block of the orphan file, its tail and its slots checked.
#[derive(Debug, Clone, Copy)]
pub struct OrphanBlock<'a> {
    slots: &'a [U32],
}

impl<'a> OrphanBlock<'a> {
    /// Checks magic and slots of a block; the checksum is [`verify`](Self::verify)'s task, because
    /// it is stale while a transaction holds the block.
    ///
    /// # Errors
    /// What is wrong with the block.
    pub fn check(
        bytes: &'a [u8],
        place: &OrphanPlace,
        inode_last: InodeNumber,
    ) -> Result<Self, Corrupt> {
        let length = bytes.len();
        let unusable = || place.corrupt(OrphanFileProblem::BlockLength { length });
        let (body, tail) = RawOrphanTail::ref_from_suffix(bytes).map_err(|_| unusable())?;
        if body.is_empty() {
            return Err(unusable());
        }
        let slots = <[U32]>::ref_from_bytes(body).map_err(|_| unusable())?;
        if tail.magic.get() != MAGIC {
            return Err(place.corrupt(OrphanFileProblem::Magic { found: tail.magic.get() }));
        }
        for (slot, inode) in slots.iter().map(|raw| InodeNumber::new(raw.get())).enumerate() {
            if inode > inode_last {
                let problem = OrphanFileProblem::Slot { slot, inode, last: inode_last };
                return Err(place.corrupt(problem));
            }
        }
        Ok(Self { slots })
    }

    /// Compares the checksum of a block. Does nothing where the image has none.
    ///
    /// # Errors
    /// The checksum differs, or the slice is too short for one.
    pub fn verify(bytes: &[u8], place: &OrphanPlace) -> Result<(), Corrupt> {
        let problem = OrphanFileProblem::BlockLength { length: bytes.len() };
        let (slots, tail) =
            RawOrphanTail::ref_from_suffix(bytes).map_err(|_| place.corrupt(problem))?;
        let stored = tail.checksum.get();
        match place.compute(slots) {
            Some(computed) if computed != stored => {
                Err(place.corrupt(OrphanFileProblem::Checksum { stored, computed }))
            }
            _ => Ok(()),
        }
    }

    /// The taken slots and the inodes in them.
    pub fn orphans(&self) -> impl Iterator<Item = (usize, InodeNumber)> + use<'a> {
        let taken = |(slot, raw): (usize, &U32)| Some((slot, InodeNumber::from_field(raw.get())?));
        self.slots.iter().enumerate().filter_map(taken)
    }

    /// How many slots are free.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.slots.iter().filter(|raw| raw.get() == 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::ChecksumSeed;

    const LAST: InodeNumber = InodeNumber::new(1000);

    fn place() -> OrphanPlace {
        let inode = InodeNumber::new(12);
        let checksum = Some(ChecksumSeed::from_uuid(&[7; 16]).inode(inode, 3));
        OrphanPlace { inode, block: PhysicalBlock::new(77), checksum }
    }

    #[test]
    fn slots_survive_and_are_sealed() {
        let mut bytes = vec![0; 4096];
        init(&mut bytes);
        assert_eq!(slots_per_block(4096), 1022);
        assert_eq!(set_slot(&mut bytes, 1021, Some(InodeNumber::new(999))), Some(0));
        assert_eq!(set_slot(&mut bytes, 1022, None), None);
        seal(&mut bytes, &place());
        OrphanBlock::verify(&bytes, &place()).unwrap();
        let block = OrphanBlock::check(&bytes, &place(), LAST).unwrap();
        assert_eq!(block.orphans().collect::<Vec<_>>(), [(1021, InodeNumber::new(999))]);
        assert_eq!(block.free_count(), 1021);
        let elsewhere = OrphanPlace { block: PhysicalBlock::new(78), ..place() };
        assert!(OrphanBlock::verify(&bytes, &elsewhere).is_err());
        assert_eq!(set_slot(&mut bytes, 1021, None), Some(999));
    }

    #[test]
    fn refuses_strange_blocks() {
        let mut bytes = vec![0; 1024];
        assert!(OrphanBlock::check(&bytes, &place(), LAST).is_err());
        init(&mut bytes);
        set_slot(&mut bytes, 0, Some(InodeNumber::new(1001)));
        assert!(OrphanBlock::check(&bytes, &place(), LAST).is_err());
        assert!(OrphanBlock::check(&[], &place(), LAST).is_err());
        assert!(OrphanBlock::verify(&[0; 7], &place()).is_err());
    }

    #[test]
    fn lengths_are_those_of_mke2fs() {
        assert_eq!(default_length(1024), 32);
        assert_eq!(default_length(128 * 1024), 32);
        assert_eq!(default_length(1024 * 1024), 256);
        assert_eq!(default_length(4 * 1024 * 1024), 512);
    }
}
