//! The shape of a journal's blocks, which follows from its features.

use crate::checksum::with_hole;
use crate::{BlockHeader, BlockKind, CompatFeatures, Corrupt, IncompatFeatures, kind_at};
use drystone_ondisk::crc32c;
use zerocopy::IntoBytes;

/// Bytes of the checksum at the end of a descriptor or revoke block.
pub(crate) const TAIL_BYTES: usize = 4;
/// Where the records of a revoke block start: after the header and the byte count.
pub(crate) const REVOKE_RECORDS_OFFSET: usize = size_of::<BlockHeader>() + 4;

/// Which checksums a journal has. The versions exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumKind {
    /// None.
    None,
    /// One for a transaction, in its commit block.
    V1,
    /// One for each block; a copy's is cut to 16 bits.
    V2,
    /// One for each block.
    V3,
}

/// The shape of a journal's blocks: everything that writing and reading them depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    block_size_bytes: usize,
    uuid: [u8; 16],
    compat: CompatFeatures,
    incompat: IncompatFeatures,
    seed: u32,
}

impl Format {
    /// The shape that these superblock fields ask for.
    #[must_use]
    pub fn new(
        block_size_bytes: u32,
        uuid: [u8; 16],
        compat: CompatFeatures,
        incompat: IncompatFeatures,
    ) -> Self {
        Self {
            block_size_bytes: block_size_bytes as usize,
            uuid,
            compat,
            incompat,
            seed: crc32c(!0, &uuid),
        }
    }

    /// Bytes in a block.
    #[must_use]
    pub fn block_size_bytes(&self) -> usize {
        self.block_size_bytes
    }

    /// The journal's UUID.
    #[must_use]
    pub fn uuid(&self) -> &[u8; 16] {
        &self.uuid
    }

    /// Which checksums the blocks carry.
    #[must_use]
    pub fn checksums(&self) -> ChecksumKind {
        if self.incompat.contains(IncompatFeatures::CHECKSUM_V3) {
            ChecksumKind::V3
        } else if self.incompat.contains(IncompatFeatures::CHECKSUM_V2) {
            ChecksumKind::V2
        } else if self.compat.contains(CompatFeatures::CHECKSUM) {
            ChecksumKind::V1
        } else {
            ChecksumKind::None
        }
    }

    /// Whether block numbers have 64 bits.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.incompat.contains(IncompatFeatures::WIDE)
    }

    /// Whether a commit block may be on the disk without the blocks that it commits.
    #[must_use]
    pub fn is_async_commit(&self) -> bool {
        self.incompat.contains(IncompatFeatures::ASYNC_COMMIT)
    }

    /// Bytes of one tag, without the UUID that may follow it.
    #[must_use]
    pub fn tag_bytes(&self) -> usize {
        // Version 2 grew every tag by two bytes that nothing uses: a slip that became format.
        match (self.checksums(), self.is_wide()) {
            (ChecksumKind::V3, _) => 16,
            (ChecksumKind::V2, true) => 14,
            (ChecksumKind::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// Bytes of one revoke record.
    #[must_use]
    pub fn revoke_bytes(&self) -> usize {
        if self.is_wide() { 8 } else { 4 }
    }

    /// Bytes of a descriptor or revoke block that come before its tail.
    pub(crate) fn body_bytes(&self) -> usize {
        self.block_size_bytes - if self.has_block_checksums() { TAIL_BYTES } else { 0 }
    }

    /// Whether blocks of the journal's own have checksums of their own.
    #[must_use]
    pub fn has_block_checksums(&self) -> bool {
        matches!(self.checksums(), ChecksumKind::V2 | ChecksumKind::V3)
    }

    pub(crate) fn seed(&self) -> u32 {
        self.seed
    }

    /// How many copies one descriptor block can name.
    #[must_use]
    pub fn tags_per_descriptor(&self) -> usize {
        (self.body_bytes() - size_of::<BlockHeader>() - self.uuid.len()) / self.tag_bytes()
    }

    /// How many records one revoke block can hold.
    #[must_use]
    pub fn revokes_per_block(&self) -> usize {
        (self.body_bytes() - REVOKE_RECORDS_OFFSET) / self.revoke_bytes()
    }

    /// The checksum that a tag of transaction `sequence` stores for `copy`, as it stands in
    /// the log (escaped). Zero if tags have none.
    #[must_use]
    pub fn copy_checksum(&self, sequence: u32, copy: &[u8]) -> u32 {
        let full = || crc32c(crc32c(self.seed, &sequence.to_be_bytes()), copy);
        match self.checksums() {
            ChecksumKind::V3 => full(),
            ChecksumKind::V2 => full() & 0xffff,
            ChecksumKind::V1 | ChecksumKind::None => 0,
        }
    }

    /// A zeroed block with a header.
    pub(crate) fn new_block(&self, kind: BlockKind, sequence: u32) -> Box<[u8]> {
        let mut bytes = vec![0; self.block_size_bytes].into_boxed_slice();
        let header = BlockHeader::new(kind, sequence);
        bytes[..size_of::<BlockHeader>()].copy_from_slice(header.as_bytes());
        bytes
    }

    /// Writes the tail of a descriptor or revoke block, where there is one.
    pub(crate) fn seal_tail(&self, bytes: &mut [u8]) {
        if self.has_block_checksums() {
            let tail = self.body_bytes();
            let checksum = with_hole(self.seed, bytes, tail);
            bytes[tail..].copy_from_slice(&checksum.to_be_bytes());
        }
    }

    /// Checks size, header and tail of a descriptor or revoke block.
    pub(crate) fn check_block(
        &self,
        bytes: &[u8],
        kind: BlockKind,
        structure: &'static str,
        sequence: u32,
        block: u32,
    ) -> Result<(), Corrupt> {
        if bytes.len() != self.block_size_bytes {
            return Err(Corrupt::TooShort { structure, block, bytes: bytes.len() });
        }
        if kind_at(bytes, sequence) != Some(kind) {
            return Err(Corrupt::Header { block, expected: structure, sequence });
        }
        if self.has_block_checksums() {
            let tail = self.body_bytes();
            let computed = with_hole(self.seed, bytes, tail);
            let stored = be32(bytes, tail);
            if stored != computed {
                return Err(Corrupt::BlockChecksum { structure, block, stored, computed });
            }
        }
        Ok(())
    }
}

/// The big-endian number at `offset`, which the caller knows to be inside.
pub(crate) fn be32(bytes: &[u8], offset: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_be_bytes(number)
}
