//! A tree of hashes behind an image, for device mapper's verity target: every block is checked when it
//! is read, against one hash that is known from elsewhere.
//!
//! Blocks have 4 KiB and are hashed with SHA-256, the salt before them. The area starts with a block
//! that describes it; then come the levels of the tree, the uppermost first.
//!
//! # Reference
//! "dm-verity" in the kernel's device mapper documentation; the on-disk format in the wiki of
//! cryptsetup.

use crate::error::Result;
use drystone_blockdev::BlockDevice;
use drystone_sync::thread;
use sha2::{Digest, Sha256};

/// Bytes of a block, of data and of hashes alike.
const BLOCK_BYTES: u64 = 4096;
const HASH_BYTES: usize = 32;
/// Hashes of a block.
const PER_BLOCK: u64 = BLOCK_BYTES / HASH_BYTES as u64;
/// Blocks that are read at once.
const PIECE_BLOCKS: u64 = PER_BLOCK;

/// A tree of hashes to be appended to an image.
#[derive(Clone, Debug)]
pub struct Verity {
    data_blocks: u64,
    uuid: [u8; 16],
    salt: [u8; HASH_BYTES],
}

/// A tree of hashes that was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashTree {
    /// The hash that vouches for everything.
    pub root_hash: [u8; 32],
    /// What is hashed before each block.
    pub salt: [u8; 32],
    /// Where the area starts, in bytes.
    pub offset: u64,
}

/// A level of the tree: where it starts and how many blocks it has, in blocks of the device.
#[derive(Clone, Copy, Debug)]
struct Level {
    start: u64,
    blocks: u64,
}

impl Verity {
    /// For an image of so many bytes; salt and identity are derived from the image's identity.
    #[must_use]
    pub fn new(image_bytes: u64, image_uuid: [u8; 16]) -> Verity {
        let derived = |purpose: &[u8]| -> [u8; HASH_BYTES] {
            Sha256::new().chain_update(image_uuid).chain_update(purpose).finalize().into()
        };
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&derived(b"verity uuid")[..16]);
        let uuid = uuid::Builder::from_custom_bytes(uuid).into_uuid().into_bytes();
        let data_blocks = image_bytes.div_ceil(BLOCK_BYTES);
        Verity { data_blocks, uuid, salt: derived(b"verity salt") }
    }

    /// Bytes that image and tree take together.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let levels: u64 = self.levels().iter().map(|level| level.blocks).sum();
        (self.data_blocks + 1 + levels) * BLOCK_BYTES
    }

    /// The levels from the lowest up; the last has one block.
    fn levels(&self) -> Vec<Level> {
        let mut counts = vec![self.data_blocks.div_ceil(PER_BLOCK).max(1)];
        while let Some(&below) = counts.last().filter(|&&below| below > 1) {
            counts.push(below.div_ceil(PER_BLOCK));
        }
        let mut start = self.data_blocks + 1;
        let mut levels = Vec::new();
        for &blocks in counts.iter().rev() {
            levels.push(Level { start, blocks });
            start += blocks;
        }
        levels.reverse();
        levels
    }

    /// Computes the tree with so many threads and writes it behind the image.
    ///
    /// # Errors
    /// The device fails, or is too small.
    pub fn append(&self, device: &dyn BlockDevice, threads: usize) -> Result<HashTree> {
        let mut below = Level { start: 0, blocks: self.data_blocks };
        for level in self.levels() {
            self.write_level(device, below, level, threads.max(1) as u64)?;
            below = level;
        }
        let mut top = vec![0; BLOCK_BYTES as usize];
        device.read_at(below.start * BLOCK_BYTES, &mut top)?;
        let offset = self.data_blocks * BLOCK_BYTES;
        device.write_at(offset, &self.header())?;
        device.flush()?;
        Ok(HashTree { root_hash: self.hash(&top), salt: self.salt, offset })
    }

    fn write_level(
        &self,
        device: &dyn BlockDevice,
        below: Level,
        level: Level,
        threads: u64,
    ) -> Result<()> {
        let share = level.blocks.div_ceil(threads).max(1);
        thread::scope(|scope| {
            let parts: Vec<_> = (0..level.blocks)
                .step_by(share as usize)
                .map(|first| {
                    let last = (first + share).min(level.blocks);
                    scope.spawn(move || self.write_part(device, below, level, first..last))
                })
                .collect();
            let results = parts.into_iter().map(|part| match part.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            results.collect()
        })
    }

    /// Hashes what some blocks of a level stand for.
    fn write_part(
        &self,
        device: &dyn BlockDevice,
        below: Level,
        level: Level,
        blocks: std::ops::Range<u64>,
    ) -> Result<()> {
        let mut data = vec![0; (PIECE_BLOCKS * BLOCK_BYTES) as usize];
        let mut hashes = vec![0; BLOCK_BYTES as usize];
        for block in blocks {
            let first = block * PER_BLOCK;
            let count = PER_BLOCK.min(below.blocks - first);
            let data = &mut data[..(count * BLOCK_BYTES) as usize];
            device.read_at((below.start + first) * BLOCK_BYTES, data)?;
            hashes.fill(0);
            let pieces = data.chunks(BLOCK_BYTES as usize);
            for (hash, piece) in hashes.chunks_mut(HASH_BYTES).zip(pieces) {
                hash.copy_from_slice(&self.hash(piece));
            }
            device.write_at((level.start + block) * BLOCK_BYTES, &hashes)?;
        }
        Ok(())
    }

    fn hash(&self, block: &[u8]) -> [u8; HASH_BYTES] {
        Sha256::new().chain_update(self.salt).chain_update(block).finalize().into()
    }

    /// The block that describes the area.
    fn header(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(BLOCK_BYTES as usize);
        header.extend_from_slice(b"verity\0\0");
        // Version of the header, and of the way of hashing.
        header.extend_from_slice(&1_u32.to_le_bytes());
        header.extend_from_slice(&1_u32.to_le_bytes());
        header.extend_from_slice(&self.uuid);
        let mut algorithm = [0; 32];
        algorithm[..6].copy_from_slice(b"sha256");
        header.extend_from_slice(&algorithm);
        header.extend_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
        header.extend_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
        header.extend_from_slice(&self.data_blocks.to_le_bytes());
        header.extend_from_slice(&(HASH_BYTES as u16).to_le_bytes());
        header.extend_from_slice(&[0; 6]);
        header.extend_from_slice(&self.salt);
        header.resize(BLOCK_BYTES as usize, 0);
        header
    }
}
