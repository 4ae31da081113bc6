//! A metadata file: the ifile, the DAT, the checkpoint file or the segment usage file.
//!
//! # State
//! Blocks that were read or changed stay in memory; the dirty ones until they are logged, the others
//! until [`trim`](MetadataFile::trim) drops them.
//!
//! # Locking
//! None of its own: each is behind a lock. Only the log writer changes them.

use crate::block_map::BlockMap;
use crate::error::Result;
use crate::volume::{BlockBytes, BlockSource};
use drystone_nilfs2_format::inode::Inode;
use drystone_nilfs2_format::{FileBlock, InodeNumber};
use drystone_ondisk::NumberHasher;
use drystone_sync::Arc;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;

/// Units of an inode's count of blocks, in bytes.
const SECTOR_BYTES: usize = 512;

/// More blocks than any device has.
const BLOCKS_MAX: u64 = u64::MAX / 1024;

/// A block in memory.
#[derive(Debug)]
struct MetadataBlock {
    bytes: BlockBytes,
    is_dirty: bool,
}

impl MetadataBlock {
    fn clean(bytes: BlockBytes) -> Self {
        Self { bytes, is_dirty: false }
    }
}

/// A metadata file in memory.
#[derive(Debug)]
pub(crate) struct MetadataFile {
    /// The fields of its inode, but for the map and the count of blocks.
    inode: Inode,
    blocks_mapped: u64,
    pub(crate) map: BlockMap,
    blocks: HashMap<FileBlock, MetadataBlock, BuildHasherDefault<NumberHasher>>,
    /// Those that are dirty.
    dirty: BTreeSet<FileBlock>,
    block_bytes: usize,
}

impl MetadataFile {
    pub(crate) fn load(number: InodeNumber, inode: &Inode, block_bytes: usize) -> Result<Self> {
        Ok(Self {
            inode: inode.clone(),
            blocks_mapped: (inode.sectors / (block_bytes / SECTOR_BYTES) as u64).min(BLOCKS_MAX),
            map: BlockMap::load(number, &inode.map, block_bytes)?,
            blocks: HashMap::default(),
            dirty: BTreeSet::new(),
            block_bytes,
        })
    }

    /// Its inode as it would be logged now.
    pub(crate) fn inode(&mut self) -> Inode {
        let change = self.map.take_blocks_change();
        self.blocks_mapped = self.blocks_mapped.saturating_add_signed(change);
        let sectors = self.blocks_mapped.saturating_mul((self.block_bytes / SECTOR_BYTES) as u64);
        Inode { map: self.map.encode_root(), sectors, ..self.inode.clone() }
    }

    /// Blocks that its map has, nodes too, as of the last [`inode`](Self::inode).
    pub(crate) fn blocks_mapped(&self) -> u64 {
        self.blocks_mapped
    }

    /// A block that is in memory.
    pub(crate) fn cached(&self, key: FileBlock) -> Option<&BlockBytes> {
        self.blocks.get(&key).map(|block| &block.bytes)
    }

    /// Keeps a block that was read by a pointer of the map, unless it is in memory by now. Nothing if the map
    /// leads elsewhere: the block was logged again meanwhile, and what was read is out of date.
    pub(crate) fn keep(
        &mut self,
        key: FileBlock,
        pointer: u64,
        bytes: BlockBytes,
        source: &dyn BlockSource,
    ) -> Result<Option<&BlockBytes>> {
        let block = match self.blocks.entry(key) {
            Entry::Occupied(block) => block.into_mut(),
            Entry::Vacant(_) if self.map.get(key, source)? != pointer => return Ok(None),
            Entry::Vacant(place) => place.insert(MetadataBlock::clean(bytes)),
        };
        Ok(Some(&block.bytes))
    }

    /// A block, or nothing for a hole.
    pub(crate) fn load_block(
        &mut self,
        key: FileBlock,
        source: &dyn BlockSource,
    ) -> Result<Option<&BlockBytes>> {
        let block = match self.blocks.entry(key) {
            Entry::Occupied(block) => block.into_mut(),
            Entry::Vacant(place) => match self.map.get(key, source)? {
                0 => return Ok(None),
                pointer => place.insert(MetadataBlock::clean(source.read(pointer)?)),
            },
        };
        Ok(Some(&block.bytes))
    }

    /// The first block from `from` on, on the device or only in memory.
    pub(crate) fn next_key(
        &self,
        from: FileBlock,
        source: &dyn BlockSource,
    ) -> Result<Option<FileBlock>> {
        let mapped = self.map.next(from, source)?.map(|entry| FileBlock(entry.key));
        Ok(mapped.into_iter().chain(self.dirty.range(from..).next().copied()).min())
    }

    /// A block to change, made by `make` if there is a hole. It is dirty from now on.
    pub(crate) fn edit(
        &mut self,
        key: FileBlock,
        source: &dyn BlockSource,
        make: impl FnOnce() -> Vec<u8>,
    ) -> Result<&mut [u8]> {
        let block = match self.blocks.entry(key) {
            Entry::Occupied(block) => block.into_mut(),
            Entry::Vacant(place) => {
                place.insert(MetadataBlock::clean(match self.map.get(key, source)? {
                    0 => make().into(),
                    pointer => source.read(pointer)?,
                }))
            }
        };
        if !std::mem::replace(&mut block.is_dirty, true) {
            self.dirty.insert(key);
        }
        Ok(Arc::make_mut(&mut block.bytes))
    }

    /// The same, of zeros if there is a hole.
    pub(crate) fn edit_zeroed(
        &mut self,
        key: FileBlock,
        source: &dyn BlockSource,
    ) -> Result<&mut [u8]> {
        let block_bytes = self.block_bytes;
        self.edit(key, source, || vec![0; block_bytes])
    }

    /// Has a block logged again, if there is one.
    pub(crate) fn mark_dirty(&mut self, key: FileBlock, source: &dyn BlockSource) -> Result<()> {
        self.load_block(key, source)?;
        if let Some(block) = self.blocks.get_mut(&key)
            && !std::mem::replace(&mut block.is_dirty, true)
        {
            self.dirty.insert(key);
        }
        Ok(())
    }

    /// Makes a hole of a block, and returns what it led to.
    pub(crate) fn remove(&mut self, key: FileBlock, source: &dyn BlockSource) -> Result<u64> {
        self.blocks.remove(&key);
        self.dirty.remove(&key);
        self.map.remove(key, source)
    }

    /// Whether anything is to be logged.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The keys of dirty blocks, in order.
    pub(crate) fn dirty_keys(&self) -> Vec<FileBlock> {
        self.dirty.iter().copied().collect()
    }

    /// How many blocks are dirty.
    pub(crate) fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    /// Forgets which blocks and nodes are dirty: they have been logged.
    pub(crate) fn mark_clean(&mut self) {
        for key in std::mem::take(&mut self.dirty) {
            if let Some(block) = self.blocks.get_mut(&key) {
                block.is_dirty = false;
            }
        }
        self.map.mark_clean();
    }

    /// Drops clean blocks if more than `blocks_max` are in memory.
    pub(crate) fn trim(&mut self, blocks_max: usize) {
        if self.blocks.len() > blocks_max {
            self.blocks.retain(|_, block| block.is_dirty);
        }
    }
}
