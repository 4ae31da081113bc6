//! Appends a hash tree to an image, for device mapper's verity target: every block is checked when it
//! is read, against one trusted root hash.
//!
//! Blocks have 4 KiB and are hashed with SHA-256, the salt before them. The area starts with a block
//! that describes it; then come the levels of the tree, the uppermost first.
//!
//! # Reference
//! "dm-verity" in the kernel's device mapper documentation; the on-disk format in the wiki of
//! cryptsetup.

use crate::build::BuildMonitor;
use crate::error::{Error, Result};
use drystone_blockdev::BlockDevice;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{OnceLock, thread};
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

/// What a thread reads into and writes from.
struct Buffers {
    data: Vec<u8>,
    hashes: Vec<u8>,
}

impl Buffers {
    fn new() -> Buffers {
        let data = vec![0; (PIECE_BLOCKS * BLOCK_BYTES) as usize];
        Buffers { data, hashes: vec![0; BLOCK_BYTES as usize] }
    }
}

/// A level of the tree: where it starts and how many blocks it has, in blocks of the device.
#[derive(Clone, Copy, Debug)]
struct Level {
    start: u64,
    blocks: u64,
}

impl Verity {
    /// The tree for an image of this size; salt and identity are derived from the image's identity.
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

    /// Computes the tree with this many threads and writes it after the image.
    ///
    /// # Errors
    /// The device fails, or is too small; or `monitor` asks for an end.
    pub fn append(
        &self,
        device: &dyn BlockDevice,
        threads: usize,
        monitor: &dyn BuildMonitor,
    ) -> Result<HashTree> {
        let mut below = Level { start: 0, blocks: self.data_blocks };
        for level in self.levels() {
            self.write_level(device, monitor, (below, level), threads)?;
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
        monitor: &dyn BuildMonitor,
        (below, level): (Level, Level),
        threads: usize,
    ) -> Result<()> {
        let next = AtomicU64::new(0);
        let failure = OnceLock::new();
        thread::together("hash", threads, || {
            let mut buffers = Buffers::new();
            while failure.get().is_none() {
                let block = next.fetch_add(1, Ordering::Relaxed);
                if block >= level.blocks {
                    return;
                }
                let written = match monitor.is_cancelled() {
                    true => Err(Error::Cancelled),
                    false => self.write_block(device, (below, level), block, &mut buffers),
                };
                if let Err(error) = written {
                    // The first error is reported.
                    let _ = failure.set(error);
                }
            }
        });
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// Hashes what a block of a level stands for.
    fn write_block(
        &self,
        device: &dyn BlockDevice,
        (below, level): (Level, Level),
        block: u64,
        Buffers { data, hashes }: &mut Buffers,
    ) -> Result<()> {
        let first = block * PER_BLOCK;
        let count = PER_BLOCK.min(below.blocks - first);
        let data = &mut data[..(count * BLOCK_BYTES) as usize];
        device.read_at((below.start + first) * BLOCK_BYTES, data)?;
        hashes.fill(0);
        let pieces = data.chunks(BLOCK_BYTES as usize);
        for (hash, piece) in hashes.chunks_mut(HASH_BYTES).zip(pieces) {
            hash.copy_from_slice(&self.hash(piece));
        }
        device.write_at((level.start + block) * BLOCK_BYTES, hashes)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_blockdev::MemoryDevice;

    struct Stopped;

    impl BuildMonitor for Stopped {
        fn is_cancelled(&self) -> bool {
            true
        }
    }

    #[test]
    fn it_is_the_same_with_any_number_of_threads_and_can_be_stopped() {
        let verity = Verity::new(4 << 20, [7; 16]);
        let device = || MemoryDevice::new(verity.size_bytes());
        let one = verity.append(&device(), 1, &()).expect("it fits");
        assert_eq!(verity.append(&device(), 8, &()).expect("it fits"), one);
        let stopped = verity.append(&device(), 8, &Stopped);
        assert!(matches!(stopped, Err(Error::Cancelled)));
    }
}
