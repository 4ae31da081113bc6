//! The checksum of an inode: of all its bytes, with its own two fields counted as zero, under a seed
//! made of the image, the number and the generation. An inode without room for the upper half
//! stores the lower one.
//!
//! # Reference
//! "Metadata Checksums" in the kernel's ext4 data structure pages.

use super::raw::{RawExtra, RawInode};
use super::{BASE, Inode, read_extra_size, u32_at, whole};
use crate::checksum::{ChecksumSeed, IDENTITY_BYTES, InodeSeed, identity};
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
        let computed = checksum(bytes, seed, number);
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

/// Bytes up to the end of the upper half of the checksum.
const HEAD_BYTES: usize = CHECKSUM_HI + 2;

/// The checksum of one inode's bytes: its own fields count as zero.
fn checksum(bytes: &[u8], seed: ChecksumSeed, number: InodeNumber) -> u32 {
    let is_wide = has_wide_checksum(bytes);
    let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES));
    // In one piece, as the set-up for each of several would take most of the time.
    let mut start = [0; IDENTITY_BYTES + HEAD_BYTES];
    let (start_identity, start_head) = start.split_at_mut(IDENTITY_BYTES);
    let generation = u32_at(bytes, offset_of!(RawInode, generation));
    start_identity.copy_from_slice(&identity(number, generation));
    start_head[..head.len()].copy_from_slice(head);
    start_head[CHECKSUM_LO..CHECKSUM_LO + 2].fill(0);
    if is_wide {
        start_head[CHECKSUM_HI..].fill(0);
    }
    let register = seed.append(&start[..IDENTITY_BYTES + head.len()]);
    let register = crc32c(register, rest);
    if is_wide { register } else { register & 0xffff }
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}
