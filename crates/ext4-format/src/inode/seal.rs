//! The checksum of an inode: of all its bytes, with its own two fields counted as zero, under a seed
//! made of the image, the number and the generation. An inode without room for the upper half
//! stores the lower one.
//!
//! # Reference
//! "Metadata Checksums" in the kernel's ext4 data structure pages.

use super::raw::{RawExtra, RawInode};
use super::{BASE, Inode, read_extra_size, u32_at, whole};
use crate::checksum::InodeSeed;
use crate::error::Corrupt;
use crate::ids::InodeNumber;
use crate::layout::Layout;
use core::mem::offset_of;
use drystone_ondisk::crc32c;

const CHECKSUM_LO: usize = offset_of!(RawInode, checksum_lo);
const CHECKSUM_HI: usize = BASE + offset_of!(RawExtra, checksum_hi);

impl Inode {
    /// Checks the checksum of an inode's bytes.
    ///
    /// An inode of nothing but zeros was never in use and has none.
    pub fn check_checksum(
        bytes: &[u8],
        number: InodeNumber,
        layout: &Layout,
    ) -> Result<(), Corrupt> {
        let bytes = whole(bytes, layout)?;
        let Some(seed) = layout.checksum_seed() else { return Ok(()) };
        let generation = offset_of!(RawInode, generation);
        let seed = seed.inode(number, u32_at(bytes, generation));
        let computed = checksum(bytes, seed);
        let mut stored = u32::from(u16_at(bytes, CHECKSUM_LO));
        if has_wide_checksum(bytes) {
            stored |= u32::from(u16_at(bytes, CHECKSUM_HI)) << 16;
        }
        if stored == computed || bytes.iter().all(|&byte| byte == 0) {
            Ok(())
        } else {
            Err(Corrupt::InodeChecksum { inode: number, stored, computed })
        }
    }

    /// Computes and stores the checksum after bytes of an inode were changed in place.
    ///
    /// # Panics
    /// If `bytes` is shorter than an inode of the layout.
    pub fn seal(bytes: &mut [u8], number: InodeNumber, layout: &Layout) {
        let bytes = &mut bytes[..layout.inode_size()];
        let Some(seed) = layout.checksum_seed() else { return };
        let seed = seed.inode(number, u32_at(bytes, offset_of!(RawInode, generation)));
        // The checksum's own fields count as zero.
        let is_wide = has_wide_checksum(bytes);
        bytes[CHECKSUM_LO..CHECKSUM_LO + 2].fill(0);
        if is_wide {
            bytes[CHECKSUM_HI..CHECKSUM_HI + 2].fill(0);
        }
        let checksum = seed.append(bytes);
        bytes[CHECKSUM_LO..CHECKSUM_LO + 2].copy_from_slice(&(checksum as u16).to_le_bytes());
        if is_wide {
            let high = (checksum >> 16) as u16;
            bytes[CHECKSUM_HI..CHECKSUM_HI + 2].copy_from_slice(&high.to_le_bytes());
        }
    }

    /// The seed of the checksums of what belongs to this inode, if there are checksums.
    #[must_use]
    pub fn seed(&self, layout: &Layout) -> Option<InodeSeed> {
        layout.checksum_seed().map(|seed| seed.inode(self.number, self.generation))
    }
}

/// Whether the inode stores the upper half of its checksum.
fn has_wide_checksum(bytes: &[u8]) -> bool {
    usize::from(read_extra_size(bytes)) + BASE >= CHECKSUM_HI + 2
}

/// The checksum of one inode's bytes: its own fields count as zero.
fn checksum(bytes: &[u8], seed: InodeSeed) -> u32 {
    let mut register = seed.append(&bytes[..CHECKSUM_LO]);
    register = crc32c(register, &[0; 2]);
    if has_wide_checksum(bytes) {
        register = crc32c(register, &bytes[CHECKSUM_LO + 2..CHECKSUM_HI]);
        register = crc32c(register, &[0; 2]);
        crc32c(register, &bytes[CHECKSUM_HI + 2..])
    } else {
        crc32c(register, &bytes[CHECKSUM_LO + 2..]) & 0xffff
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}
