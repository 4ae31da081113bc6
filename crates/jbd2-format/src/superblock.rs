//! The journal superblock: where the log starts, which transaction comes first, what the
//! blocks look like.
//!
//! Version 1 ends before the feature words and so has no features. The log is the blocks
//! `s_first .. s_maxlen`, less the fast commit blocks at the end; a log with `s_start` zero
//! is empty.

use crate::checksum::with_hole;
use crate::{BlockHeader, BlockKind, CompatFeatures, Corrupt, Format, IncompatFeatures, MAGIC};
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the superblock; the rest of its block is unused.
pub const SUPERBLOCK_BYTES: usize = 1024;

/// How many file systems can share an external journal.
pub const USERS_MAX: usize = 48;

/// Number of CRC-32C among checksum types.
const CRC32C_TYPE: u8 = 4;

/// Fast commit blocks when the superblock does not say.
const FAST_COMMIT_BLOCKS_DEFAULT: u32 = 256;

drystone_ondisk::with_fields! {
    /// The layout.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawSuperblock {
        /// The block type says the version.
        pub header: BlockHeader,
        /// Bytes in a block.
        pub s_blocksize: U32,
        /// Blocks in the journal.
        pub s_maxlen: U32,
        /// First block of the log.
        pub s_first: U32,
        /// First transaction expected in the log.
        pub s_sequence: U32,
        /// Where the log starts; zero if it is empty.
        pub s_start: U32,
        /// The error that made the journal stop.
        pub s_errno: U32,
        /// Version 2 from here.
        pub s_feature_compat: U32,
        /// [`IncompatFeatures`].
        pub s_feature_incompat: U32,
        /// None is defined.
        pub s_feature_ro_compat: U32,
        /// Seeds checksums; names an external journal.
        pub s_uuid: [u8; 16],
        /// File systems that use the journal.
        pub s_nr_users: U32,
        /// Unused.
        pub s_dynsuper: U32,
        /// Unused.
        pub s_max_transaction: U32,
        /// Unused.
        pub s_max_trans_data: U32,
        /// 4 is CRC-32C.
        pub s_checksum_type: u8,
        /// Zero.
        pub s_padding2: [u8; 3],
        /// Blocks at the end set aside for fast commits.
        pub s_num_fc_blks: U32,
        /// Where an empty log may go on.
        pub s_head: U32,
        /// Zero.
        pub s_padding: [U32; 40],
        /// Of the 1024 bytes with this field zero.
        pub s_checksum: U32,
        /// UUIDs of the file systems.
        pub s_users: [[u8; 16]; USERS_MAX],
    }
}

const CHECKSUM_OFFSET: usize = offset_of!(RawSuperblock, s_checksum);
const _: () = {
    assert!(size_of::<RawSuperblock>() == SUPERBLOCK_BYTES);
    assert!(offset_of!(RawSuperblock, s_errno) == 0x20);
    assert!(offset_of!(RawSuperblock, s_uuid) == 0x30);
    assert!(offset_of!(RawSuperblock, s_checksum_type) == 0x50);
    assert!(offset_of!(RawSuperblock, s_num_fc_blks) == 0x54);
    assert!(CHECKSUM_OFFSET == 0xfc);
    assert!(offset_of!(RawSuperblock, s_users) == 0x100);
};

/// A checked superblock. Fields that this crate doesn't use are kept as they are.
#[derive(Clone, Debug)]
pub struct Superblock {
    raw: RawSuperblock,
}

impl Superblock {
    /// Checks the superblock at the start of `bytes`.
    ///
    /// # Errors
    /// Anything that makes the journal unusable, by kind.
    pub fn check(bytes: &[u8]) -> Result<Self, Corrupt> {
        let Ok((raw, _)) = RawSuperblock::ref_from_prefix(bytes) else {
            let bytes = bytes.len();
            return Err(Corrupt::TooShort { structure: "journal superblock", block: 0, bytes });
        };
        let superblock = Self { raw: *raw };
        if raw.header.magic.get() != MAGIC {
            return Err(Corrupt::SuperblockMagic { found: raw.header.magic.get() });
        }
        let kind = raw.header.kind.get();
        match BlockKind::from_number(kind) {
            Some(BlockKind::SuperblockV1) => {}
            Some(BlockKind::SuperblockV2) => superblock.check_features()?,
            _ => return Err(Corrupt::SuperblockKind { found: kind }),
        }
        superblock.check_geometry()?;
        Ok(superblock)
    }

    fn check_features(&self) -> Result<(), Corrupt> {
        let known = IncompatFeatures::all().bits();
        let unknown = self.raw.s_feature_incompat.get() & !known;
        if unknown != 0 {
            return Err(Corrupt::UnknownFeatures { set: "incompat", bits: unknown });
        }
        let unknown = self.raw.s_feature_ro_compat.get();
        if unknown != 0 {
            return Err(Corrupt::UnknownFeatures { set: "ro_compat", bits: unknown });
        }
        let is_v1 = self.compat().contains(CompatFeatures::CHECKSUM);
        let is_v2 = self.incompat().contains(IncompatFeatures::CHECKSUM_V2);
        let is_v3 = self.incompat().contains(IncompatFeatures::CHECKSUM_V3);
        if u8::from(is_v1) + u8::from(is_v2) + u8::from(is_v3) > 1 {
            let value = u64::from(self.raw.s_feature_incompat.get());
            return Err(Corrupt::SuperblockField { field: "s_feature_incompat", value });
        }
        if is_v2 || is_v3 {
            if self.raw.s_checksum_type != CRC32C_TYPE {
                let value = u64::from(self.raw.s_checksum_type);
                return Err(Corrupt::SuperblockField { field: "s_checksum_type", value });
            }
            let stored = self.raw.s_checksum.get();
            let computed = checksum(&self.raw);
            if stored != computed {
                return Err(Corrupt::SuperblockChecksum { stored, computed });
            }
        }
        Ok(())
    }

    fn check_geometry(&self) -> Result<(), Corrupt> {
        let field =
            |field, value: u32| Err(Corrupt::SuperblockField { field, value: u64::from(value) });
        let size = self.raw.s_blocksize.get();
        if !size.is_power_of_two() || !(1024..=65536).contains(&size) {
            return field("s_blocksize", size);
        }
        let length = self.raw.s_maxlen.get();
        if self.has_fast_commits() && self.fast_commit_blocks() >= length {
            return field("s_num_fc_blks", self.raw.s_num_fc_blks.get());
        }
        let first = self.raw.s_first.get();
        // The smallest transaction takes a descriptor, a copy and a commit block.
        if first == 0 || first.checked_add(3).is_none_or(|end| end > self.log().end) {
            return field(if first == 0 { "s_first" } else { "s_maxlen" }, length.min(first));
        }
        let start = self.raw.s_start.get();
        if start != 0 && !self.log().contains(&start) {
            return field("s_start", start);
        }
        Ok(())
    }

    /// Whether the journal is too old to have features.
    #[must_use]
    pub fn is_version_1(&self) -> bool {
        BlockKind::from_number(self.raw.header.kind.get()) == Some(BlockKind::SuperblockV1)
    }

    /// Bytes in a block.
    #[must_use]
    pub fn block_size_bytes(&self) -> u32 {
        self.raw.s_blocksize.get()
    }

    /// Blocks in the journal, superblock and fast commit area included.
    #[must_use]
    pub fn length_blocks(&self) -> u32 {
        self.raw.s_maxlen.get()
    }

    /// The journal blocks that the log goes round in.
    #[must_use]
    pub fn log(&self) -> Range<u32> {
        let reserved = if self.has_fast_commits() { self.fast_commit_blocks() } else { 0 };
        self.raw.s_first.get()..self.raw.s_maxlen.get().saturating_sub(reserved)
    }

    /// The journal blocks that hold fast commits. Linux leaves one unused between them and
    /// the log.
    #[must_use]
    pub fn fast_commit_area(&self) -> Range<u32> {
        let end = self.raw.s_maxlen.get();
        self.log().end.saturating_add(1).min(end)..end
    }

    fn has_fast_commits(&self) -> bool {
        self.incompat().contains(IncompatFeatures::FAST_COMMIT)
    }

    fn fast_commit_blocks(&self) -> u32 {
        match self.raw.s_num_fc_blks.get() {
            0 => FAST_COMMIT_BLOCKS_DEFAULT,
            blocks => blocks,
        }
    }

    /// The first transaction expected in the log, or the next one if the log is empty.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.raw.s_sequence.get()
    }

    /// Where the log starts; `None` if it is empty and there is nothing to recover.
    #[must_use]
    pub fn start(&self) -> Option<u32> {
        Some(self.raw.s_start.get()).filter(|&start| start != 0)
    }

    /// The error number that a stopped journal left behind; zero if none.
    #[must_use]
    pub fn error_number(&self) -> i32 {
        self.raw.s_errno.get() as i32
    }

    /// The journal's UUID.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        if self.is_version_1() { [0; 16] } else { self.raw.s_uuid }
    }

    /// UUIDs of the file systems that use an external journal.
    #[must_use]
    pub fn users(&self) -> &[[u8; 16]] {
        let count = if self.is_version_1() { 0 } else { self.raw.s_nr_users.get() as usize };
        &self.raw.s_users[..count.min(USERS_MAX)]
    }

    /// Compatible features. None in version 1.
    #[must_use]
    pub fn compat(&self) -> CompatFeatures {
        let bits = if self.is_version_1() { 0 } else { self.raw.s_feature_compat.get() };
        CompatFeatures::from_bits_retain(bits)
    }

    /// Incompatible features. None in version 1.
    #[must_use]
    pub fn incompat(&self) -> IncompatFeatures {
        let bits = if self.is_version_1() { 0 } else { self.raw.s_feature_incompat.get() };
        IncompatFeatures::from_bits_retain(bits)
    }

    /// The shape of the journal's blocks.
    #[must_use]
    pub fn format(&self) -> Format {
        Format::new(self.block_size_bytes(), self.uuid(), self.compat(), self.incompat())
    }

    /// The layout, for showing every field.
    #[must_use]
    pub fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// Says where the log starts (`None`: empty) and which transaction comes first.
    pub fn set_log(&mut self, start: Option<u32>, sequence: u32) {
        self.raw.s_start = U32::new(start.unwrap_or(0));
        self.raw.s_sequence = U32::new(sequence);
        // The other meaning of an empty log's position is not used.
        self.raw.s_head = U32::ZERO;
    }

    /// Records the error that stopped the journal; zero forgets it.
    pub fn set_error_number(&mut self, number: i32) {
        self.raw.s_errno = U32::new(number as u32);
    }

    /// Changes the features, which only an empty log allows.
    ///
    /// # Panics
    /// If the log is not empty, or the superblock of version 1.
    pub fn set_features(&mut self, compat: CompatFeatures, incompat: IncompatFeatures) {
        assert!(self.start().is_none(), "the features of a log in use are changed");
        assert!(!self.is_version_1(), "a journal of version 1 gets features");
        self.raw.s_feature_compat = U32::new(compat.bits());
        self.raw.s_feature_incompat = U32::new(incompat.bits());
        let checksums = IncompatFeatures::CHECKSUM_V2 | IncompatFeatures::CHECKSUM_V3;
        if incompat.intersects(checksums) {
            self.raw.s_checksum_type = CRC32C_TYPE;
        } else {
            self.raw.s_checksum_type = 0;
            self.raw.s_checksum = U32::ZERO;
        }
    }

    /// The superblock as it is to be written, with its checksum.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut raw = self.raw;
        if self.format().has_block_checksums() {
            raw.s_checksum = U32::new(checksum(&raw));
        }
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }
}

/// Computes and stores the checksum after bytes of a superblock were changed in place, if its features say that it
/// has one. The superblock need not be sound.
pub fn seal_superblock(bytes: &mut [u8]) {
    if let Ok((raw, _)) = RawSuperblock::mut_from_prefix(bytes) {
        let sealed = Superblock { raw: *raw }.to_bytes();
        raw.as_mut_bytes().copy_from_slice(&sealed);
    }
}

fn checksum(raw: &RawSuperblock) -> u32 {
    with_hole(!0, raw.as_bytes(), CHECKSUM_OFFSET)
}

/// The properties of a new journal.
#[derive(Clone, Debug)]
pub struct NewJournal {
    /// Bytes in a block: the file system's.
    pub block_size_bytes: u32,
    /// Blocks in the journal, this superblock included.
    pub length_blocks: u32,
    /// First block of the log: 1 in a file system, after the superblock on a journal device.
    pub first_block: u32,
    /// Seeds checksums.
    pub uuid: [u8; 16],
    /// UUIDs of the file systems that use it. At most [`USERS_MAX`].
    pub users: Vec<[u8; 16]>,
    /// The user count to store, which `mke2fs` sets to 1 for a journal inside a file system.
    pub user_count: u32,
    /// Features. `mke2fs` sets none: a mount turns on those that the file system asks for.
    pub incompat: IncompatFeatures,
    /// Blocks at the end for fast commits, if that feature is on.
    pub fast_commit_blocks: u32,
}

/// The first block of a new, empty journal.
///
/// # Panics
/// If the geometry is not one that [`Superblock::check`] accepts.
#[must_use]
pub fn format_journal_superblock(journal: &NewJournal) -> Box<[u8]> {
    let mut users = [[0; 16]; USERS_MAX];
    users[..journal.users.len()].copy_from_slice(&journal.users);
    let raw = RawSuperblock {
        header: BlockHeader::new(BlockKind::SuperblockV2, 0),
        s_blocksize: U32::new(journal.block_size_bytes),
        s_maxlen: U32::new(journal.length_blocks),
        s_first: U32::new(journal.first_block),
        s_sequence: U32::new(1),
        s_start: U32::ZERO,
        s_errno: U32::ZERO,
        s_feature_compat: U32::ZERO,
        s_feature_incompat: U32::ZERO,
        s_feature_ro_compat: U32::ZERO,
        s_uuid: journal.uuid,
        s_nr_users: U32::new(journal.user_count),
        s_dynsuper: U32::ZERO,
        s_max_transaction: U32::ZERO,
        s_max_trans_data: U32::ZERO,
        s_checksum_type: 0,
        s_padding2: [0; 3],
        s_num_fc_blks: U32::new(journal.fast_commit_blocks),
        s_head: U32::ZERO,
        s_padding: [U32::ZERO; 40],
        s_checksum: U32::ZERO,
        s_users: users,
    };
    let mut superblock = Superblock { raw };
    superblock.set_features(CompatFeatures::empty(), journal.incompat);
    let geometry = superblock.check_geometry();
    assert!(geometry.is_ok(), "a journal is made with an impossible geometry: {geometry:?}");
    let mut bytes = vec![0; journal.block_size_bytes as usize].into_boxed_slice();
    bytes[..SUPERBLOCK_BYTES].copy_from_slice(&superblock.to_bytes());
    bytes
}
