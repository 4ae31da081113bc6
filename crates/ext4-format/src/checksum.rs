//! Seeds from which metadata checksums start.
//!
//! Checksums exist only with the `metadata_csum` feature, so functions that verify or compute
//! one take an `Option` of a seed: `None` means that the image has no checksums.
//!
//! # Reference
//! "Checksums" in the kernel's ext4 data structure pages.

use crate::ids::InodeNumber;
use drystone_ondisk::crc32c;

/// The register after the file system's identity: the start of every metadata checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumSeed(u32);

/// The register after an inode's number and generation: the start of the checksums of what
/// belongs to that inode (the inode itself, directory blocks, extent blocks).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeSeed(u32);

impl ChecksumSeed {
    /// The seed of an image that does not store one: its UUID.
    #[must_use]
    pub fn from_uuid(uuid: &[u8; 16]) -> Self {
        Self(crc32c(!0, uuid))
    }

    /// The seed that the superblock stores (`metadata_csum_seed`).
    #[must_use]
    pub const fn from_stored(seed: u32) -> Self {
        Self(seed)
    }

    /// The raw register.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The register after `bytes`.
    #[must_use]
    pub fn append(self, bytes: &[u8]) -> u32 {
        crc32c(self.0, bytes)
    }

    /// The seed of an inode.
    #[must_use]
    pub fn inode(self, inode: InodeNumber, generation: u32) -> InodeSeed {
        InodeSeed(crc32c(self.0, &identity(inode, generation)))
    }
}

/// Bytes of an inode's identity.
pub(crate) const IDENTITY_BYTES: usize = 8;

/// What distinguishes an inode, and comes before its bytes in its checksum.
pub(crate) fn identity(inode: InodeNumber, generation: u32) -> [u8; IDENTITY_BYTES] {
    let mut identity = [0; IDENTITY_BYTES];
    identity[..4].copy_from_slice(&inode.get().to_le_bytes());
    identity[4..].copy_from_slice(&generation.to_le_bytes());
    identity
}

impl InodeSeed {
    /// The raw register.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The register after `bytes`.
    #[must_use]
    pub fn append(self, bytes: &[u8]) -> u32 {
        crc32c(self.0, bytes)
    }
}

/// Which checksums an image's metadata have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// None.
    None,
    /// Group descriptors have a CRC-16 that starts from the UUID (`uninit_bg`).
    Descriptors {
        /// The UUID of the file system.
        uuid: [u8; 16],
    },
    /// All metadata have a CRC-32C (`metadata_csum`).
    All(ChecksumSeed),
}

impl Checksums {
    /// The seed, if all metadata have checksums.
    #[must_use]
    pub const fn seed(self) -> Option<ChecksumSeed> {
        match self {
            Self::All(seed) => Some(seed),
            Self::None | Self::Descriptors { .. } => None,
        }
    }
}
