//! Inodes: what a file is, apart from its name and its data.
//!
//! [`Inode::check`] is the door. A checker that must go on despite a wrong checksum reads the
//! fields with [`Inode::read`]. Writing goes through [`Inode::encode_into`], which changes only
//! the fields, so that the attributes after them and bytes of unknown meaning stay.
//!
//! # Reference
//! "Index Nodes" in the kernel's ext4 data structure pages.

mod encode;
mod kind;
mod mode;
mod raw;
mod seal;
mod time;

pub use mode::{InodeDevice, InodeFlags, ModeFileType};
pub use time::InodeTimestamp;

use crate::error::{Corrupt, InodeProblem};
use crate::features::{Incompat, ReadOnlyCompat};
use crate::ids::{InodeNumber, PhysicalBlock};
use crate::layout::{BASE_INODE_BYTES, Layout};
use core::mem::offset_of;
use drystone_ondisk::Field;
use drystone_ondisk::little_endian::{U16, U32};
use raw::{RawExtra, RawInode};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const BASE: usize = BASE_INODE_BYTES as usize;
/// Bytes of the area that maps blocks, or holds a short symlink or a device number.
pub const BLOCK_AREA_BYTES: usize = 60;
/// Where the area starts in an inode's record, in bytes.
pub const BLOCK_AREA_OFFSET: usize = offset_of!(RawInode, block);
/// Bytes of extra fields that are known: an inode with at least as many has all of them.
pub const KNOWN_EXTRA_BYTES: u16 = size_of::<RawExtra>() as u16;

/// The fields that every inode has.
pub const FIELDS: &[Field] = RawInode::FIELDS;
/// The fields after them, counted from the first of these.
pub const EXTRA_FIELDS: &[Field] = RawExtra::FIELDS;

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub number: InodeNumber,
    /// File type and permissions.
    pub mode: u16,
    /// Owner.
    pub user: u32,
    /// Owning group.
    pub group: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Space in use in units of 512 bytes, with the blocks that map it and hold attributes.
    pub sectors: u64,
    /// Number of names; 1 for a directory with too many subdirectories to count.
    pub links_count: u16,
    /// Flags, without [`InodeFlags::HUGE_FILE`], which tells only how `sectors` is stored.
    pub flags: InodeFlags,
    /// Changes whenever the number is used for another file.
    pub generation: u32,
    /// The block of extended attributes, if there is one.
    pub attribute_block: Option<PhysicalBlock>,
    /// Last access.
    pub access_time: InodeTimestamp,
    /// Last change of the inode.
    pub change_time: InodeTimestamp,
    /// Last change of the data.
    pub modification_time: InodeTimestamp,
    /// When the file was made; absent where the inode has no room for it.
    pub creation_time: Option<InodeTimestamp>,
    /// When the file was deleted in seconds since 1970, or the next inode of the orphan list.
    pub deletion_time: u32,
    /// Counts changes; 32 bits where the inode has no room for more.
    pub version: u64,
    /// Project; absent where the inode has no room for it.
    pub project: Option<u32>,
    /// The map of its blocks, or what lies there instead.
    pub block_area: [u8; BLOCK_AREA_BYTES],
    /// Bytes of extra fields after the first 128.
    pub extra_size: u16,
}

impl Inode {
    /// Checks an inode: its checksum, and the fields that arithmetic relies on.
    pub fn check(bytes: &[u8], number: InodeNumber, layout: &Layout) -> Result<Self, Corrupt> {
        Self::check_checksum(bytes, number, layout)?;
        Self::check_unsealed(bytes, number, layout)
    }

    /// As [`check`](Self::check), for bytes whose checksum isn't computed yet.
    pub fn check_unsealed(
        bytes: &[u8],
        number: InodeNumber,
        layout: &Layout,
    ) -> Result<Self, Corrupt> {
        let inode = Self::read(bytes, number, layout)?;
        if let Some(block) = inode.attribute_block
            && !layout.contains_blocks(block, 1)
        {
            let problem = InodeProblem::AttributeBlock { block };
            return Err(Corrupt::Inode { inode: number, problem });
        }
        // Sizes are signed everywhere else, and blocks of files have numbers of 32 bits.
        let size_max = match inode.has_block_mapping() {
            true if inode.flags.contains(InodeFlags::EXTENTS) => layout.extent_file_bytes_max(),
            true => layout.mapped_file_bytes_max(),
            false => i64::MAX as u64,
        };
        if inode.size_bytes > size_max {
            let problem = InodeProblem::Size { bytes: inode.size_bytes };
            return Err(Corrupt::Inode { inode: number, problem });
        }
        Ok(inode)
    }

    /// Reads the fields; checks only that the inode exists and that its extra fields fit.
    pub fn read(bytes: &[u8], number: InodeNumber, layout: &Layout) -> Result<Self, Corrupt> {
        if !layout.contains_inode(number) {
            return Err(Corrupt::Inode { inode: number, problem: InodeProblem::Number });
        }
        let bytes = whole(bytes, layout)?;
        let extra_size = read_extra_size(bytes);
        if !extra_size.is_multiple_of(4) || BASE + usize::from(extra_size) > bytes.len() {
            let problem = InodeProblem::ExtraSize { bytes: extra_size };
            return Err(Corrupt::Inode { inode: number, problem });
        }
        let (raw, rest) =
            RawInode::read_from_prefix(bytes).map_err(|_| truncated(bytes.len(), layout))?;
        // Fields that the inode doesn't have read as absent, whatever bytes lie there.
        let mut extra = RawExtra::new_zeroed();
        let present = rest.len().min(usize::from(extra_size)).min(size_of::<RawExtra>());
        extra.as_mut_bytes()[..present].copy_from_slice(&rest[..present]);
        let has = |end: usize| present >= end;
        let time = |base: U32, extra: U32, offset: usize| {
            InodeTimestamp::decode(base.get(), has(offset + 4).then_some(extra.get()))
        };

        let features = layout.features();
        let flags = InodeFlags::from_bits_retain(raw.flags.get());
        let mode = raw.mode.get();
        let is_long = ModeFileType::from_mode(mode) != Some(ModeFileType::Directory)
            || features.incompat.contains(Incompat::LARGE_DIR);
        let size_hi = if is_long { raw.size_hi.get() } else { 0 };
        let wide = features.incompat.contains(Incompat::SIXTY_FOUR_BIT);
        let acl_hi = if wide { raw.file_acl_hi.get() } else { 0 };
        let attribute_block = u64::from(acl_hi) << 32 | u64::from(raw.file_acl_lo.get());
        let has_version = has(offset_of!(RawExtra, version_hi) + 4);
        let version_hi = if has_version { extra.version_hi.get() } else { 0 };
        let has_creation = has(offset_of!(RawExtra, crtime) + 4);
        let has_project = has(offset_of!(RawExtra, projid) + 4);
        Ok(Self {
            number,
            mode,
            user: u32::from(raw.uid_hi.get()) << 16 | u32::from(raw.uid_lo.get()),
            group: u32::from(raw.gid_hi.get()) << 16 | u32::from(raw.gid_lo.get()),
            size_bytes: u64::from(size_hi) << 32 | u64::from(raw.size_lo.get()),
            sectors: decode_sectors(&raw, flags, layout),
            links_count: raw.links_count.get(),
            flags: flags.difference(InodeFlags::HUGE_FILE),
            generation: raw.generation.get(),
            attribute_block: (attribute_block != 0).then_some(PhysicalBlock::new(attribute_block)),
            access_time: time(raw.atime, extra.atime_extra, offset_of!(RawExtra, atime_extra)),
            change_time: time(raw.ctime, extra.ctime_extra, offset_of!(RawExtra, ctime_extra)),
            modification_time: time(
                raw.mtime,
                extra.mtime_extra,
                offset_of!(RawExtra, mtime_extra),
            ),
            creation_time: has_creation.then(|| {
                time(extra.crtime, extra.crtime_extra, offset_of!(RawExtra, crtime_extra))
            }),
            deletion_time: raw.dtime.get(),
            version: u64::from(version_hi) << 32 | u64::from(raw.version_lo.get()),
            project: has_project.then_some(extra.projid.get()),
            block_area: raw.block,
            extra_size,
        })
    }

    /// A new inode with nothing but its identity, its type and its times; one link, no blocks.
    #[must_use]
    pub fn new(number: InodeNumber, mode: u16, now: InodeTimestamp, layout: &Layout) -> Self {
        let extra_size = layout.extra_inode_size();
        let room = usize::from(extra_size);
        Self {
            number,
            mode,
            user: 0,
            group: 0,
            size_bytes: 0,
            sectors: 0,
            links_count: 1,
            flags: InodeFlags::empty(),
            generation: 0,
            attribute_block: None,
            access_time: now,
            change_time: now,
            modification_time: now,
            creation_time: (room >= offset_of!(RawExtra, crtime) + 4).then_some(now),
            deletion_time: 0,
            version: 0,
            project: (room >= offset_of!(RawExtra, projid) + 4).then_some(0),
            block_area: [0; BLOCK_AREA_BYTES],
            extra_size,
        }
    }

    /// Clamps the times to what the inode can hold, so that memory and disk agree.
    pub fn clamp_times(&mut self) {
        let present = usize::from(self.extra_size);
        let times = [
            (&mut self.access_time, offset_of!(RawExtra, atime_extra)),
            (&mut self.change_time, offset_of!(RawExtra, ctime_extra)),
            (&mut self.modification_time, offset_of!(RawExtra, mtime_extra)),
        ];
        for (time, offset) in times {
            *time = time.clamp_to_inode(present >= offset + 4);
        }
        if let Some(time) = &mut self.creation_time {
            let has_extra = present >= offset_of!(RawExtra, crtime_extra) + 4;
            *time = time.clamp_to_inode(has_extra);
        }
    }

    /// Whether times of changes have nanoseconds, and seconds of more than 32 bits.
    #[must_use]
    pub fn has_fine_times(&self) -> bool {
        usize::from(self.extra_size) >= offset_of!(RawExtra, ctime_extra) + 4
    }

    /// The range of an inode's bytes after its fields, which extended attributes use.
    #[must_use]
    pub fn attribute_area(&self, layout: &Layout) -> core::ops::Range<usize> {
        let end = layout.inode_size();
        (BASE + usize::from(self.extra_size)).min(end)..end
    }
}

fn decode_sectors(raw: &RawInode, flags: InodeFlags, layout: &Layout) -> u64 {
    let low = u64::from(raw.blocks_lo.get());
    if !layout.features().read_only_compat.contains(ReadOnlyCompat::HUGE_FILE) {
        return low;
    }
    let count = u64::from(raw.blocks_hi.get()) << 32 | low;
    if flags.contains(InodeFlags::HUGE_FILE) {
        // 48 bits times at most 2^7 fit.
        count * layout.sectors_per_block()
    } else {
        count
    }
}

fn truncated(found: usize, layout: &Layout) -> Corrupt {
    Corrupt::Truncated { structure: "inode", needed: layout.inode_size(), found }
}

/// Exactly the bytes of one inode.
fn whole<'a>(bytes: &'a [u8], layout: &Layout) -> Result<&'a [u8], Corrupt> {
    bytes.get(..layout.inode_size()).ok_or_else(|| truncated(bytes.len(), layout))
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    U32::from_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]]).get()
}

/// Bytes of extra fields; 0 in small inodes.
fn read_extra_size(bytes: &[u8]) -> u16 {
    bytes
        .get(BASE..)
        .and_then(|rest| U16::ref_from_prefix(rest).ok())
        .map_or(0, |(size, _)| size.get())
}

#[cfg(test)]
mod tests;
