//! The super root: the inodes of the three files that everything else is found through.
//!
//! # Reference
//! `struct nilfs_super_root` in `nilfs2_ondisk.h`.

use crate::error::Corrupt;
use crate::ids::{InodeNumber, PhysicalBlock};
use crate::inode::{INODE_BYTES, Inode};
use crate::sum::Sum;
use drystone_ondisk::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a super root; the rest of its block is zero.
pub const SUPER_ROOT_BYTES: usize = size_of::<RawSuperRoot>();
const SUMMED_FROM: usize = 4;

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperRoot {
    sum: U32,
    bytes: U16,
    flags: U16,
    nongc_ctime: U64,
    dat: [u8; INODE_BYTES],
    cpfile: [u8; INODE_BYTES],
    sufile: [u8; INODE_BYTES],
}

pin_layout!(RawSuperRoot, size 400, { bytes: 4, nongc_ctime: 8, dat: 16, cpfile: 144, sufile: 272 });

/// A checked super root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperRoot {
    /// When the newest log was written that isn't the cleaner's, in seconds since 1970.
    pub changed_s: u64,
    /// The DAT.
    pub dat: Inode,
    /// The checkpoint file.
    pub cpfile: Inode,
    /// The segment usage file.
    pub sufile: Inode,
}

impl SuperRoot {
    /// Checks the super root at `block`: its sum and its inodes.
    pub fn check(
        bytes: &[u8],
        seed: u32,
        block: PhysicalBlock,
        block_bytes: usize,
    ) -> Result<Self, Corrupt> {
        let Ok((raw, _)) = RawSuperRoot::read_from_prefix(bytes) else {
            return Err(Corrupt::Truncated {
                structure: "super root",
                needed: SUPER_ROOT_BYTES,
                found: bytes.len(),
            });
        };
        let stored = raw.bytes.get();
        if usize::from(stored) != SUPER_ROOT_BYTES {
            let expected = SUPER_ROOT_BYTES as u16;
            return Err(Corrupt::SuperRootLength { block, stored, expected });
        }
        let (stored, computed) = (raw.sum.get(), Sum::of(seed, &raw.as_bytes()[SUMMED_FROM..]));
        if stored != computed {
            return Err(Corrupt::SuperRootSum { block, stored, computed });
        }
        Ok(Self {
            changed_s: raw.nongc_ctime.get(),
            dat: Inode::check(&raw.dat, InodeNumber::DAT, block_bytes)?,
            cpfile: Inode::check(&raw.cpfile, InodeNumber::CPFILE, block_bytes)?,
            sufile: Inode::check(&raw.sufile, InodeNumber::SUFILE, block_bytes)?,
        })
    }

    /// The bytes to store at the start of a block of zeros, with their sum.
    #[must_use]
    pub fn encode(&self, seed: u32) -> [u8; SUPER_ROOT_BYTES] {
        let mut raw = RawSuperRoot {
            sum: U32::new(0),
            bytes: U16::new(SUPER_ROOT_BYTES as u16),
            flags: U16::new(0),
            nongc_ctime: U64::new(self.changed_s),
            dat: self.dat.encode(),
            cpfile: self.cpfile.encode(),
            sufile: self.sufile.encode(),
        };
        let sum = Sum::of(seed, &raw.as_bytes()[SUMMED_FROM..]);
        raw.sum.set(sum);
        let mut bytes = [0; SUPER_ROOT_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_found() {
        let file = Inode::metadata_file();
        let root =
            SuperRoot { changed_s: 5, dat: file.clone(), cpfile: file.clone(), sufile: file };
        let bytes = root.encode(9);
        let check = |bytes: &[u8]| SuperRoot::check(bytes, 9, PhysicalBlock(7), 4096);
        assert_eq!(check(&bytes), Ok(root));
        for position in 0..SUPER_ROOT_BYTES {
            let mut damaged = bytes;
            damaged[position] ^= 0x10;
            assert!(check(&damaged).is_err(), "byte {position}");
        }
    }
}
