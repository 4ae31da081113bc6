//! The options of an image to be made.

use drystone_ext4_format::features::{Compat, Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::hash::HashVersion;

/// How long the journal is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalSize {
    /// What `mke2fs` chooses for the size of the image.
    #[default]
    Default,
    /// The same, but an image that is too small for a journal isn't made without one.
    Required,
    /// So many bytes.
    Bytes(u64),
}

/// The options of an image to be made; `None` leaves the choice to the size of the image.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MkfsOptions {
    /// Size of the image in bytes; a part of a block at the end is not used.
    pub size_bytes: u64,
    /// Bytes in a block: 1024 to 65536.
    pub block_size: Option<u32>,
    /// Bytes in a cluster; for images with `bigalloc`.
    pub cluster_size: Option<u32>,
    /// Blocks in a group, a multiple of 8; by default as many as a bitmap can show.
    pub blocks_per_group: Option<u32>,
    /// Bytes in an inode: a power of two from 128 to the block size.
    pub inode_size: Option<u16>,
    /// Bytes of the image for each inode.
    pub bytes_per_inode: Option<u64>,
    /// Number of inodes, instead of the ratio.
    pub inodes: Option<u32>,
    /// Features.
    pub features: Features,
    /// The label, at most 16 bytes.
    pub label: Vec<u8>,
    /// The identity.
    pub uuid: [u8; 16],
    /// Seed of directory hashes.
    pub hash_seed: [u32; 4],
    /// Hash of new directory indexes.
    pub hash_version: HashVersion,
    /// How long the journal is; only with the feature.
    pub journal_size: JournalSize,
    /// Percentage of blocks that are reserved for the superuser.
    pub reserved_percent: f64,
    /// When the image is made, in seconds since 1970.
    pub time_seconds: u64,
    /// Owner of the root directory.
    pub root_owner: (u32, u32),
}

drystone_options::setters! {
    MkfsOptions {
        size_bytes: u64,
        block_size: impl Into<Option<u32>>,
        cluster_size: impl Into<Option<u32>>,
        blocks_per_group: impl Into<Option<u32>>,
        inode_size: impl Into<Option<u16>>,
        bytes_per_inode: impl Into<Option<u64>>,
        inodes: impl Into<Option<u32>>,
        features: Features,
        label: impl Into<Vec<u8>>,
        uuid: [u8; 16],
        hash_seed: [u32; 4],
        hash_version: HashVersion,
        journal_size: JournalSize,
        reserved_percent: f64,
        time_seconds: u64,
        root_owner: (u32, u32),
    }
}

impl MkfsOptions {
    /// The defaults for an image of `size_bytes`; the caller chooses the identity and the seed,
    /// because only the caller knows whether the image has to be reproducible.
    #[must_use]
    pub fn new(
        size_bytes: u64,
        uuid: [u8; 16],
        hash_seed: [u32; 4],
        time_seconds: u64,
    ) -> MkfsOptions {
        MkfsOptions {
            size_bytes,
            block_size: None,
            cluster_size: None,
            blocks_per_group: None,
            inode_size: None,
            bytes_per_inode: None,
            inodes: None,
            features: default_features(),
            label: Vec::new(),
            uuid,
            hash_seed,
            hash_version: HashVersion::HalfMd4,
            journal_size: JournalSize::Default,
            reserved_percent: 5.0,
            time_seconds,
            root_owner: (0, 0),
        }
    }
}

/// What `mke2fs` 1.47 turns on, with the orphan file and the stored checksum seed.
#[must_use]
pub fn default_features() -> Features {
    Features {
        compat: Compat::HAS_JOURNAL
            | Compat::EXT_ATTR
            | Compat::RESIZE_INODE
            | Compat::DIR_INDEX
            | Compat::ORPHAN_FILE,
        incompat: Incompat::FILETYPE
            | Incompat::EXTENTS
            | Incompat::SIXTY_FOUR_BIT
            | Incompat::FLEX_BG
            | Incompat::CSUM_SEED,
        read_only_compat: ReadOnlyCompat::SPARSE_SUPER
            | ReadOnlyCompat::LARGE_FILE
            | ReadOnlyCompat::HUGE_FILE
            | ReadOnlyCompat::DIR_NLINK
            | ReadOnlyCompat::EXTRA_ISIZE
            | ReadOnlyCompat::METADATA_CSUM,
    }
}
