//! Writing an inode: the fields that it has, and nothing else of its bytes.

use super::raw::{RawExtra, RawInode};
use super::{BASE, Inode, InodeFlags, InodeTimestamp, truncated};
use crate::error::{Corrupt, InodeProblem};
use crate::features::ReadOnlyCompat;
use crate::ids::PhysicalBlock;
use crate::layout::Layout;
use core::mem::offset_of;
use drystone_ondisk::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

impl Inode {
    /// Writes the fields into an inode's bytes and computes their checksum.
    ///
    /// Bytes without a field keep their value: a new inode's bytes are to be zeroed before. Times
    /// are clamped to what the inode can hold. A creation time or a project that the inode has no
    /// room for is left out.
    ///
    /// # Errors
    /// If the blocks in use, the size or the extra fields can't be stored in this image.
    ///
    /// # Panics
    /// If `bytes` is shorter than an inode of the layout.
    pub fn encode_into(&self, bytes: &mut [u8], layout: &Layout) -> Result<(), Corrupt> {
        self.encode_unsealed(bytes, layout)?;
        Self::seal(bytes, self.number, layout);
        Ok(())
    }

    /// As [`encode_into`](Self::encode_into), but leaves the checksum as it is, for
    /// [`seal`](Self::seal) to compute later.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn encode_unsealed(&self, bytes: &mut [u8], layout: &Layout) -> Result<(), Corrupt> {
        let bytes = &mut bytes[..layout.inode_size()];
        let fail = |problem| Corrupt::Inode { inode: self.number, problem };
        let room = usize::from(self.extra_size);
        if !room.is_multiple_of(4) || BASE + room > bytes.len() {
            return Err(fail(InodeProblem::ExtraSize { bytes: self.extra_size }));
        }
        let (blocks, is_huge) = self
            .encode_sectors(layout)
            .ok_or_else(|| fail(InodeProblem::Sectors { sectors: self.sectors }))?;
        let mut flags = self.flags;
        flags.set(InodeFlags::HUGE_FILE, is_huge);

        // The lengths were compared above.
        let (base, rest) = bytes.split_at_mut(BASE);
        let raw =
            RawInode::mut_from_bytes(base).map_err(|_| truncated(layout.inode_size(), layout))?;
        let present = room.min(size_of::<RawExtra>());
        let mut extra = RawExtra::new_zeroed();
        extra.as_mut_bytes()[..present].copy_from_slice(&rest[..present]);
        let has = |offset: usize| present >= offset + 4;
        let put_time = |time: InodeTimestamp, field: &mut U32, more: &mut U32, offset: usize| {
            let (seconds, epoch) = time.encode(has(offset));
            field.set(seconds);
            more.set(epoch);
        };

        raw.mode.set(self.mode);
        raw.uid_lo.set(self.user as u16);
        raw.uid_hi.set((self.user >> 16) as u16);
        raw.gid_lo.set(self.group as u16);
        raw.gid_hi.set((self.group >> 16) as u16);
        raw.size_lo.set(self.size_bytes as u32);
        raw.size_hi.set((self.size_bytes >> 32) as u32);
        raw.dtime.set(self.deletion_time);
        raw.links_count.set(self.links_count);
        raw.blocks_lo.set(blocks as u32);
        raw.blocks_hi.set((blocks >> 32) as u16);
        raw.flags.set(flags.bits());
        raw.version_lo.set(self.version as u32);
        raw.block = self.block_area;
        raw.generation.set(self.generation);
        let attributes = self.attribute_block.map_or(0, PhysicalBlock::get);
        raw.file_acl_lo.set(attributes as u32);
        raw.file_acl_hi.set((attributes >> 32) as u16);
        put_time(
            self.access_time,
            &mut raw.atime,
            &mut extra.atime_extra,
            offset_of!(RawExtra, atime_extra),
        );
        put_time(
            self.change_time,
            &mut raw.ctime,
            &mut extra.ctime_extra,
            offset_of!(RawExtra, ctime_extra),
        );
        put_time(
            self.modification_time,
            &mut raw.mtime,
            &mut extra.mtime_extra,
            offset_of!(RawExtra, mtime_extra),
        );
        if let Some(time) = self.creation_time {
            put_time(
                time,
                &mut extra.crtime,
                &mut extra.crtime_extra,
                offset_of!(RawExtra, crtime_extra),
            );
        }
        extra.version_hi.set((self.version >> 32) as u32);
        if let Some(project) = self.project {
            extra.projid.set(project);
        }
        extra.extra_isize.set(self.extra_size);
        // Only the fields that the inode has are written; attributes follow them.
        rest[..present].copy_from_slice(&extra.as_bytes()[..present]);
        if room == 0
            && let Some(size) = rest.get_mut(..2)
        {
            size.fill(0);
        }
        Ok(())
    }

    /// The stored count of blocks, and whether it counts blocks of the file system.
    fn encode_sectors(&self, layout: &Layout) -> Option<(u64, bool)> {
        if u32::try_from(self.sectors).is_ok() {
            return Some((self.sectors, false));
        }
        if !layout.features().read_only_compat.contains(ReadOnlyCompat::HUGE_FILE) {
            return None;
        }
        if self.sectors >> 48 == 0 {
            return Some((self.sectors, false));
        }
        let blocks = self.sectors / layout.sectors_per_block();
        (blocks >> 48 == 0).then_some((blocks, true))
    }
}
