//! The options of an image to be built.

use crate::options::{JournalSize, MkfsOptions, default_features};
use drystone_ext4_format::features::{Compat, Features};
use drystone_ext4_format::hash::HashVersion;

/// Bytes of the smallest journal, with blocks of 4 KiB.
const SMALLEST_JOURNAL_BLOCKS: u64 = 1024;
/// Bytes in a block unless asked for: images of all sizes get the same.
const BLOCK_SIZE: u32 = 4096;

/// Room to be left over in an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpareRoom {
    /// So many bytes.
    Bytes(u64),
    /// A percentage of the image, below 100.
    Percent(f64),
}

impl SpareRoom {
    /// Blocks of room in an image with this many blocks.
    #[must_use]
    pub fn blocks(self, blocks: u64, block_size: u64) -> u64 {
        match self {
            SpareRoom::Bytes(bytes) => bytes.div_ceil(block_size),
            SpareRoom::Percent(percent) => (blocks as f64 * percent / 100.0).ceil() as u64,
        }
    }

    /// By how much an image must grow or shrink if it has this many blocks too few or too many:
    /// added blocks need room themselves.
    pub(super) fn scale(self, blocks: u64) -> u64 {
        match self {
            SpareRoom::Bytes(_) => blocks,
            SpareRoom::Percent(percent) => (blocks as f64 / (1.0 - percent / 100.0)) as u64,
        }
    }
}

/// How large an image becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// As small as possible with this room left.
    Auto(SpareRoom),
    /// So many bytes.
    Fixed(u64),
}

/// A user's options for an image to be built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ext4BuildOptions {
    /// How large it becomes.
    pub size: Size,
    /// Bytes in a block; 4096 unless said.
    pub block_size: Option<u32>,
    /// Bytes in an inode; 256 unless said.
    pub inode_size: Option<u16>,
    /// Inodes that it has at least.
    pub inodes_min: u32,
    /// Features.
    pub features: Features,
    /// The label, at most 16 bytes.
    pub label: Vec<u8>,
    /// The identity; derived from the files unless said.
    pub uuid: Option<[u8; 16]>,
    /// Seed of directory hashes; derived from the files unless said.
    pub hash_seed: Option<[u32; 4]>,
    /// Hash of directory indexes.
    pub hash_version: HashVersion,
    /// How long the journal is; only with the feature.
    pub journal_size: JournalSize,
    /// Percentage of blocks that are reserved for the superuser.
    pub reserved_percent: f64,
    /// When the image is made, in seconds since 1970; the latest time of a file unless said.
    pub time_seconds: Option<u64>,
    /// Threads that copy data.
    pub threads: usize,
}

drystone_options::setters! {
    Ext4BuildOptions {
        size: Size,
        block_size: impl Into<Option<u32>>,
        inode_size: impl Into<Option<u16>>,
        inodes_min: u32,
        features: Features,
        label: impl Into<Vec<u8>>,
        uuid: impl Into<Option<[u8; 16]>>,
        hash_seed: impl Into<Option<[u32; 4]>>,
        hash_version: HashVersion,
        journal_size: JournalSize,
        reserved_percent: f64,
        time_seconds: impl Into<Option<u64>>,
        threads: usize,
    }
}

impl Default for Ext4BuildOptions {
    fn default() -> Ext4BuildOptions {
        Ext4BuildOptions {
            size: Size::Auto(SpareRoom::Bytes(0)),
            block_size: None,
            inode_size: None,
            inodes_min: 0,
            features: default_features(),
            label: Vec::new(),
            uuid: None,
            hash_seed: None,
            hash_version: HashVersion::HalfMd4,
            journal_size: JournalSize::Default,
            reserved_percent: 0.0,
            time_seconds: None,
            threads: 1,
        }
    }
}

impl Ext4BuildOptions {
    /// For an image that will only be read: no journal and nothing kept for growth.
    pub fn set_read_only(&mut self) {
        self.features.compat -= Compat::HAS_JOURNAL | Compat::ORPHAN_FILE | Compat::RESIZE_INODE;
    }

    /// For an image as small as can be: the smallest journal, nothing kept for growth.
    pub fn set_smallest(&mut self) {
        self.features.compat -= Compat::RESIZE_INODE;
        let block_size = u64::from(self.block_size.unwrap_or(BLOCK_SIZE));
        self.journal_size = JournalSize::Bytes(SMALLEST_JOURNAL_BLOCKS * block_size);
    }

    /// The options of the image, but for its size.
    pub(super) fn image(
        &self,
        uuid: [u8; 16],
        hash_seed: [u32; 4],
        time_seconds: u64,
    ) -> MkfsOptions {
        let mut options = MkfsOptions::new(0, uuid, hash_seed, time_seconds);
        options.block_size = Some(self.block_size.unwrap_or(BLOCK_SIZE));
        options.inode_size = self.inode_size;
        options.features = self.features;
        options.label = self.label.clone();
        options.hash_version = self.hash_version;
        options.journal_size = self.journal_size;
        options.reserved_percent = self.reserved_percent;
        options
    }
}
