//! Inodes: what a file is, apart from its name and its data.
//!
//! # Reference
//! `struct nilfs_inode` in `nilfs2_ondisk.h`.

use crate::error::{Corrupt, InodeProblem};
use crate::ids::InodeNumber;
use drystone_ondisk::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an inode.
pub const INODE_BYTES: usize = size_of::<RawInode>();
/// Bytes of the root of its map.
pub const MAP_BYTES: usize = 56;

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawInode {
    blocks: U64,
    size: U64,
    ctime: U64,
    mtime: U64,
    ctime_nsec: U32,
    mtime_nsec: U32,
    uid: U32,
    gid: U32,
    mode: U16,
    links_count: U16,
    flags: U32,
    bmap: [u8; MAP_BYTES],
    xattr: U64,
    generation: U32,
    pad: U32,
}

pin_layout!(RawInode, size 128, {
    size: 8, ctime: 16, ctime_nsec: 32, uid: 40, mode: 48, flags: 52, bmap: 56, xattr: 112,
    generation: 120,
});

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Space in use, in units of 512 bytes: data and nodes of the map.
    pub sectors: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Last change of the inode, in seconds since 1970.
    pub change_time_s: u64,
    /// Nanoseconds of it.
    pub change_time_ns: u32,
    /// Last change of the data, in seconds since 1970.
    pub modification_time_s: u64,
    /// Nanoseconds of it.
    pub modification_time_ns: u32,
    /// Owner.
    pub user: u32,
    /// Owning group.
    pub group: u32,
    /// File type and permissions.
    pub mode: u16,
    /// Number of names.
    pub links_count: u16,
    /// Flags as `lsattr` shows them.
    pub flags: u32,
    /// The root of the map, or the number of a device.
    pub map: [u8; MAP_BYTES],
    /// A block of extended attributes; nothing uses it.
    pub xattr: u64,
    /// Changes whenever the number is used for another file.
    pub generation: u32,
}

impl Inode {
    /// Type bits of a mode.
    pub const TYPE_MASK: u16 = 0o170_000;
    /// The type of a directory.
    pub const DIRECTORY: u16 = 0o040_000;
    /// The type of a regular file, and of metadata files.
    pub const REGULAR: u16 = 0o100_000;
    /// The type of a symbolic link.
    pub const SYMLINK: u16 = 0o120_000;

    /// Reads the fields of an inode without checking them, for a checker that goes on whatever they
    /// say.
    pub fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        let Ok((raw, _)) = RawInode::read_from_prefix(bytes) else {
            return Err(Corrupt::Truncated {
                structure: "inode",
                needed: INODE_BYTES,
                found: bytes.len(),
            });
        };
        Ok(Self {
            sectors: raw.blocks.get(),
            size_bytes: raw.size.get(),
            change_time_s: raw.ctime.get(),
            change_time_ns: raw.ctime_nsec.get(),
            modification_time_s: raw.mtime.get(),
            modification_time_ns: raw.mtime_nsec.get(),
            user: raw.uid.get(),
            group: raw.gid.get(),
            mode: raw.mode.get(),
            links_count: raw.links_count.get(),
            flags: raw.flags.get(),
            map: raw.bmap,
            xattr: raw.xattr.get(),
            generation: raw.generation.get(),
        })
    }

    /// Checks inode `number`, which is in use.
    pub fn check(bytes: &[u8], number: InodeNumber, block_bytes: usize) -> Result<Self, Corrupt> {
        let inode = Self::read(bytes)?;
        match inode.problem(block_bytes) {
            None => Ok(inode),
            Some(problem) => Err(Corrupt::Inode { inode: number, problem }),
        }
    }

    fn problem(&self, block_bytes: usize) -> Option<InodeProblem> {
        let kind = self.mode & Self::TYPE_MASK;
        let known = [0o010_000, 0o020_000, 0o040_000, 0o060_000, 0o100_000, 0o120_000, 0o140_000];
        if !known.contains(&kind) {
            return Some(InodeProblem::Mode { mode: self.mode });
        }
        if self.size_bytes > i64::MAX as u64 {
            return Some(InodeProblem::Size { size: self.size_bytes });
        }
        if kind == Self::DIRECTORY && !self.size_bytes.is_multiple_of(block_bytes as u64) {
            return Some(InodeProblem::DirectorySize { size: self.size_bytes });
        }
        let fraction = self.change_time_ns.max(self.modification_time_ns);
        (fraction >= 1_000_000_000).then_some(InodeProblem::Nanoseconds { nanoseconds: fraction })
    }

    /// The bytes to store.
    #[must_use]
    pub fn encode(&self) -> [u8; INODE_BYTES] {
        let raw = RawInode {
            blocks: U64::new(self.sectors),
            size: U64::new(self.size_bytes),
            ctime: U64::new(self.change_time_s),
            mtime: U64::new(self.modification_time_s),
            ctime_nsec: U32::new(self.change_time_ns),
            mtime_nsec: U32::new(self.modification_time_ns),
            uid: U32::new(self.user),
            gid: U32::new(self.group),
            mode: U16::new(self.mode),
            links_count: U16::new(self.links_count),
            flags: U32::new(self.flags),
            bmap: self.map,
            xattr: U64::new(self.xattr),
            generation: U32::new(self.generation),
            pad: U32::new(0),
        };
        let mut bytes = [0; INODE_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// An empty metadata file.
    #[must_use]
    pub const fn metadata_file() -> Self {
        Self {
            sectors: 0,
            size_bytes: 0,
            change_time_s: 0,
            change_time_ns: 0,
            modification_time_s: 0,
            modification_time_ns: 0,
            user: 0,
            group: 0,
            mode: Self::REGULAR,
            links_count: 1,
            flags: 0,
            map: [0; MAP_BYTES],
            xattr: 0,
            generation: 0,
        }
    }

    /// The device that a device node stands for: major and minor.
    #[must_use]
    pub fn device(&self) -> (u32, u32) {
        let (number, _) = self.map.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let number = u64::from_le_bytes(*number);
        // The masks leave 12 and 20 bits.
        let major = (number >> 8 & 0xfff) as u32;
        let minor = (number & 0xff | number >> 12 & 0xf_ff00) as u32;
        (major, minor)
    }

    /// The map of a device node.
    #[must_use]
    pub fn device_map(major: u32, minor: u32) -> [u8; MAP_BYTES] {
        let (major, minor) = (u64::from(major), u64::from(minor));
        let number = minor & 0xff | major << 8 | (minor & !0xff) << 12;
        let mut map = [0; MAP_BYTES];
        map[..8].copy_from_slice(&number.to_le_bytes());
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut bytes: Vec<u8> = (0..INODE_BYTES).map(|_| random.u8(..)).collect();
        bytes[124..].fill(0);
        assert_eq!(Inode::read(&bytes).unwrap().encode()[..], bytes);
        assert!(Inode::read(&bytes[1..]).is_err());
    }

    #[test]
    fn devices() {
        for device in [(5, 300), (0, 0), (4095, 0xf_ffff), (8, 255), (1, 256)] {
            let mut inode = Inode::metadata_file();
            inode.map = Inode::device_map(device.0, device.1);
            assert_eq!(inode.device(), device);
        }
    }
}
