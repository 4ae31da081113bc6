//! The superblock: identity, geometry, and where the newest log with a super root is.
//!
//! [`Superblock::check`] is the door. A device has two superblocks; which one counts is for the
//! caller to decide.
//!
//! # Reference
//! `struct nilfs_super_block` in `nilfs2_ondisk.h`.

mod raw;

use crate::error::{Corrupt, FormatError, SuperblockProblem, Unsupported};
use crate::geometry::{Geometry, SUPERBLOCK_BYTES};
use crate::ids::{CheckpointNumber, InodeNumber, PhysicalBlock};
use crate::inode::INODE_BYTES;
use crate::{cpfile, dat, sufile};
use raw::RawSuperblock;
use std::fmt;
use uuid::Uuid;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Magic number of the superblock.
pub const MAGIC: u16 = 0x3434;
/// Bytes of a volume's label.
pub const LABEL_BYTES: usize = 80;
const REVISION: u32 = 2;
const SUMMED_BYTES: usize = 280;
const MOUNTS_MAX: u16 = 50;
const CHECK_INTERVAL_S: u32 = 180 * 24 * 3600;
const ERRORS_CONTINUE: u16 = 1;
/// `compat_ro`: checkpoints count their blocks.
const BLOCK_COUNT: u64 = 1;

bitflags::bitflags! {
    /// State of a volume.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct VolumeState: u16 {
        /// Unmounted cleanly.
        const CLEAN = 1;
        /// Errors were found.
        const ERROR = 2;
        /// Is being resized.
        const RESIZE = 4;
    }
}

/// Which log is the newest with a super root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCursor {
    /// The checkpoint in it.
    pub checkpoint: CheckpointNumber,
    /// Where the log starts.
    pub block: PhysicalBlock,
    /// The sequence number of its segment.
    pub sequence: u64,
}

/// What a new volume's superblock says.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Its geometry.
    pub geometry: Geometry,
    /// Start value of all sums.
    pub seed: u32,
    /// Its identity.
    pub uuid: Uuid,
    /// Its label: what fits, the rest zero.
    pub label: [u8; LABEL_BYTES],
    /// When it is made, in seconds since 1970.
    pub created_s: u64,
}

/// Whether bytes claim to be a superblock, by their magic number and the length that they say, sound or not.
#[must_use]
pub fn is_claimed(bytes: &[u8]) -> bool {
    RawSuperblock::read_from_prefix(bytes).is_ok_and(|(raw, _)| {
        let is_length = (1..=SUPERBLOCK_BYTES).contains(&usize::from(raw.bytes.get()));
        raw.magic.get() == MAGIC && is_length
    })
}

/// Makes the sum of a superblock right for the length that superblocks have, whatever else is wrong with it: one that
/// claims another length stays wrong. Bytes that are too few stay as they are.
pub fn seal(bytes: &mut [u8]) {
    if let Ok((mut raw, _)) = RawSuperblock::read_from_prefix(bytes) {
        raw.sum.set(raw.computed_sum(SUMMED_BYTES));
        bytes[..SUPERBLOCK_BYTES].copy_from_slice(raw.as_bytes());
    }
}

/// A checked superblock.
#[derive(Clone)]
pub struct Superblock {
    raw: RawSuperblock,
    geometry: Geometry,
}

impl Superblock {
    /// Checks a superblock of a device of `device_bytes`: magic, sum, features, and every number
    /// that arithmetic relies on.
    ///
    /// Features that forbid writing are not an error; see [`check_writable`](Self::check_writable).
    pub fn check(bytes: &[u8], device_bytes: u64) -> Result<Self, FormatError> {
        let Ok((raw, _)) = RawSuperblock::read_from_prefix(bytes) else {
            return Err(Corrupt::Truncated {
                structure: "superblock",
                needed: SUPERBLOCK_BYTES,
                found: bytes.len(),
            }
            .into());
        };
        if raw.magic.get() != MAGIC {
            return Err(wrong(SuperblockProblem::Magic { found: raw.magic.get() }));
        }
        let summed = usize::from(raw.bytes.get());
        if !(SUMMED_BYTES..=SUPERBLOCK_BYTES).contains(&summed) {
            return Err(wrong(SuperblockProblem::Length { bytes: raw.bytes.get() }));
        }
        let (stored, computed) = (raw.sum.get(), raw.computed_sum(summed));
        if stored != computed {
            return Err(wrong(SuperblockProblem::Sum { stored, computed }));
        }
        if raw.rev_level.get() != REVISION {
            return Err(Unsupported::Revision { revision: raw.rev_level.get() }.into());
        }
        check_record_sizes(&raw)?;
        if raw.feature_incompat.get() != 0 {
            return Err(Unsupported::IncompatFeatures { bits: raw.feature_incompat.get() }.into());
        }
        let geometry = geometry_of(&raw).map_err(wrong)?;
        let superblock = Self { raw, geometry };
        superblock.check_numbers(device_bytes).map_err(wrong)?;
        Ok(superblock)
    }

    fn check_numbers(&self, device_bytes: u64) -> Result<(), SuperblockProblem> {
        let volume = self.geometry.device_bytes();
        if volume > device_bytes {
            return Err(SuperblockProblem::DeviceSize { volume, device: device_bytes });
        }
        let LogCursor { block, checkpoint, .. } = self.cursor();
        if self.geometry.segment_of(block).is_none() {
            return Err(SuperblockProblem::Cursor { block });
        }
        if checkpoint.0 == 0 || checkpoint.0 > u64::MAX / 2 {
            return Err(SuperblockProblem::CursorCheckpoint { checkpoint });
        }
        if u64::from(self.raw.first_ino.get()) < InodeNumber::FIRST_ORDINARY.0 {
            return Err(SuperblockProblem::FirstInode { inode: self.raw.first_ino.get() });
        }
        Ok(())
    }

    /// The superblock of a new volume: clean, checked now, with nothing in its log yet.
    #[must_use]
    pub fn create(volume: &NewVolume) -> Self {
        let geometry = volume.geometry;
        let mut raw = RawSuperblock::new_zeroed();
        raw.rev_level.set(REVISION);
        raw.magic.set(MAGIC);
        raw.bytes.set(SUMMED_BYTES as u16);
        raw.crc_seed.set(volume.seed);
        raw.log_block_size.set(geometry.block_bytes().trailing_zeros() - 10);
        raw.nsegments.set(geometry.segments());
        raw.dev_size.set(geometry.device_bytes());
        raw.first_data_block.set(geometry.first_data_block().0);
        // The geometry holds it as 32 bits.
        raw.blocks_per_segment.set(geometry.blocks_per_segment() as u32);
        raw.r_segments_percentage.set(geometry.reserved_percent());
        for field in [&mut raw.ctime, &mut raw.wtime, &mut raw.lastcheck] {
            field.set(volume.created_s);
        }
        raw.max_mnt_count.set(MOUNTS_MAX);
        raw.state.set(VolumeState::CLEAN.bits());
        raw.errors.set(ERRORS_CONTINUE);
        raw.checkinterval.set(CHECK_INTERVAL_S);
        // The constant fits.
        raw.first_ino.set(InodeNumber::FIRST_ORDINARY.0 as u32);
        raw.inode_size.set(INODE_BYTES as u16);
        raw.dat_entry_size.set(dat::ENTRY_BYTES as u16);
        raw.checkpoint_size.set(cpfile::ENTRY_BYTES as u16);
        raw.segment_usage_size.set(sufile::ENTRY_BYTES as u16);
        raw.uuid = volume.uuid.into_bytes();
        raw.volume_name = volume.label;
        Self { raw, geometry }
    }

    /// The bytes to store, with their sum.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut raw = self.raw.clone();
        // The length was checked, or set by `create`.
        let sum = raw.computed_sum(usize::from(raw.bytes.get()));
        raw.sum.set(sum);
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Whether this code may change the image.
    pub fn check_writable(&self) -> Result<(), Unsupported> {
        match self.raw.feature_compat_ro.get() & !BLOCK_COUNT {
            0 => Ok(()),
            bits => Err(Unsupported::ReadOnlyCompatFeatures { bits }),
        }
    }

    /// Sizes and places.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Start value of all sums.
    #[must_use]
    pub const fn seed(&self) -> u32 {
        self.raw.crc_seed.get()
    }

    /// The newest log with a super root, as far as this superblock knows.
    #[must_use]
    pub const fn cursor(&self) -> LogCursor {
        LogCursor {
            checkpoint: CheckpointNumber(self.raw.last_cno.get()),
            block: PhysicalBlock(self.raw.last_pseg.get()),
            sequence: self.raw.last_seq.get(),
        }
    }

    /// Sets the newest log.
    pub fn set_cursor(&mut self, cursor: LogCursor) {
        self.raw.last_cno.set(cursor.checkpoint.0);
        self.raw.last_pseg.set(cursor.block.0);
        self.raw.last_seq.set(cursor.sequence);
    }

    /// Blocks in clean segments.
    #[must_use]
    pub const fn free_blocks(&self) -> u64 {
        self.raw.free_blocks_count.get()
    }

    /// Sets the blocks in clean segments.
    pub fn set_free_blocks(&mut self, blocks: u64) {
        self.raw.free_blocks_count.set(blocks);
    }

    /// State of the volume.
    #[must_use]
    pub fn state(&self) -> VolumeState {
        VolumeState::from_bits_retain(self.raw.state.get())
    }

    /// Sets the state of the volume.
    pub fn set_state(&mut self, state: VolumeState) {
        self.raw.state.set(state.bits());
    }

    /// When the volume was made, in seconds since 1970.
    #[must_use]
    pub const fn created_s(&self) -> u64 {
        self.raw.ctime.get()
    }

    /// When it was last mounted for writing.
    #[must_use]
    pub const fn mounted_s(&self) -> u64 {
        self.raw.mtime.get()
    }

    /// When the superblock was last written.
    #[must_use]
    pub const fn written_s(&self) -> u64 {
        self.raw.wtime.get()
    }

    /// Notes when the superblock is written.
    pub fn set_written_s(&mut self, time_s: u64) {
        self.raw.wtime.set(time_s);
    }

    /// Fits the volume to a device of another size.
    ///
    /// # Errors
    /// If it has no room for a segment. Nothing is changed then.
    pub fn set_device_bytes(&mut self, device_bytes: u64) -> Result<(), SuperblockProblem> {
        let old = self.geometry;
        // A block has at most 64 KiB, a segment at most 2^20 blocks.
        let (block_bytes, per_segment) =
            (old.block_bytes() as u32, old.blocks_per_segment() as u32);
        let segments = Geometry::segments_for(device_bytes, block_bytes, per_segment);
        let percent = old.reserved_percent();
        self.geometry = Geometry::new(block_bytes, per_segment, segments, percent, device_bytes)?;
        self.raw.nsegments.set(segments);
        self.raw.dev_size.set(device_bytes);
        Ok(())
    }

    /// Sets when the volume was last mounted for writing.
    pub fn set_mounted_s(&mut self, time_s: u64) {
        self.raw.mtime.set(time_s);
    }

    /// Notes a mount for writing.
    pub fn note_mount(&mut self, time_s: u64) {
        self.raw.mtime.set(time_s);
        self.raw.mnt_count.set(self.raw.mnt_count.get().saturating_add(1));
    }

    /// Mounts for writing so far.
    #[must_use]
    pub const fn mounts(&self) -> u16 {
        self.raw.mnt_count.get()
    }

    /// The volume's identity.
    #[must_use]
    pub const fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.raw.uuid)
    }

    /// The volume's label, up to the first zero.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        let name = &self.raw.volume_name;
        &name[..name.iter().position(|&byte| byte == 0).unwrap_or(LABEL_BYTES)]
    }

    /// The first inode number for files.
    #[must_use]
    pub fn first_inode(&self) -> InodeNumber {
        InodeNumber(u64::from(self.raw.first_ino.get()))
    }

    /// How long changes may wait for a log, in seconds; 0 for the default.
    #[must_use]
    pub const fn commit_interval_s(&self) -> u32 {
        self.raw.c_interval.get()
    }

    /// Whether checkpoints are known to count their blocks.
    #[must_use]
    pub const fn counts_blocks(&self) -> bool {
        self.raw.feature_compat_ro.get() & BLOCK_COUNT != 0
    }
}

impl fmt::Debug for Superblock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Superblock")
            .field("geometry", &self.geometry)
            .field("cursor", &self.cursor())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

fn wrong(problem: SuperblockProblem) -> FormatError {
    Corrupt::Superblock { problem }.into()
}

fn geometry_of(raw: &RawSuperblock) -> Result<Geometry, SuperblockProblem> {
    let log = raw.log_block_size.get();
    let block_bytes = 1024_u32
        .checked_shl(log)
        .filter(|_| log <= 6)
        .ok_or(SuperblockProblem::BlockSize { bytes: u64::from(log) })?;
    let geometry = Geometry::new(
        block_bytes,
        raw.blocks_per_segment.get(),
        raw.nsegments.get(),
        raw.r_segments_percentage.get(),
        raw.dev_size.get(),
    )?;
    let (found, expected) = (raw.first_data_block.get(), geometry.first_data_block().0);
    if found == expected {
        Ok(geometry)
    } else {
        Err(SuperblockProblem::FirstDataBlock { found, expected })
    }
}

fn check_record_sizes(raw: &RawSuperblock) -> Result<(), Unsupported> {
    let sizes = [
        ("an inode", raw.inode_size.get(), INODE_BYTES),
        ("a DAT entry", raw.dat_entry_size.get(), dat::ENTRY_BYTES),
        ("a checkpoint", raw.checkpoint_size.get(), cpfile::ENTRY_BYTES),
        ("a segment usage", raw.segment_usage_size.get(), sufile::ENTRY_BYTES),
    ];
    for (record, found, supported) in sizes {
        if usize::from(found) != supported {
            return Err(Unsupported::RecordSize { record, found, supported: supported as u16 });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
