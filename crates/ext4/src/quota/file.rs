//! One usage file: a tree of records in the blocks of a hidden inode.

use super::{Owners, Usage};
use crate::alloc::with_space_retry;
use crate::credits;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::lock_classes;
use crate::mapping;
use drystone_cache::Seal;
use drystone_ext4_format::error::InodeProblem;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::quota::{
    BLOCK_LENGTH, QuotaBlock, QuotaBlocks, QuotaEntry, QuotaFile, QuotaKind,
};
use drystone_ext4_format::{Corrupt, InodeNumber, LogicalBlock, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::{Arc, Mutex};
use drystone_vfs::RequestContext;

/// Blocks of the quota format that a new record takes at most: three levels of the tree below its
/// root, and the record's own.
const RECORD_BLOCKS_MAX: u32 = 4;

/// The usage file of one kind of owner.
#[derive(Debug)]
pub(super) struct UsageFile {
    kind: QuotaKind,
    inode: Arc<Inode>,
    /// The file's blocks in order.
    blocks: Mutex<Vec<PhysicalBlock>>,
}

impl UsageFile {
    /// Opens the file and checks all of it.
    pub fn open(fs: &Engine, kind: QuotaKind, number: InodeNumber) -> Result<UsageFile> {
        let inode = fs.inode(number)?;
        let size = inode.fields().disk.size_bytes;
        let length = size / fs.volume.block_size() as u64;
        if length > fs.volume.layout.blocks_count() {
            let problem = InodeProblem::Size { bytes: size };
            return Err(Corrupt::Inode { inode: number, problem }.into());
        }
        let mut blocks = Vec::new();
        while (blocks.len() as u64) < length {
            let hole = Corrupt::Missing { feature: "quota", missing: "block of a quota file" };
            // Below the size in blocks, which was compared with the image.
            let next = LogicalBlock::new(blocks.len() as u32);
            match mapping::next_extent(fs, &inode, next)? {
                Some(extent) if extent.logical == next && !extent.unwritten => {
                    let first = extent.physical.get();
                    blocks
                        .extend((first..first + u64::from(extent.length)).map(PhysicalBlock::new));
                }
                _ => return Err(hole.into()),
            }
        }
        let file = UsageFile { kind, inode, blocks: Mutex::new(&lock_classes::QUOTA, blocks) };
        file.with_tree(fs, None, |tree| tree.entries())?;
        Ok(file)
    }

    /// The hidden inode.
    pub fn inode(&self) -> &Inode {
        &self.inode
    }

    /// Which of the owners this file is about.
    pub fn owner(&self, owners: Owners) -> u32 {
        match self.kind {
            QuotaKind::User => owners[0],
            QuotaKind::Group => owners[1],
            QuotaKind::Project => owners[2],
        }
    }

    fn with_tree<'a, 'handle, T>(
        &'a self,
        fs: &'a Engine,
        handle: Option<&'a mut Handle<'handle>>,
        work: impl FnOnce(&mut QuotaFile<Blocks<'_, '_, 'handle>>) -> Result<T>,
    ) -> Result<T> {
        let blocks = self.blocks.lock();
        let storage = Blocks { fs, blocks: &blocks, handle };
        work(&mut QuotaFile::open(self.kind, storage)?)
    }

    /// The record of an id.
    pub fn get(&self, fs: &Engine, id: u32) -> Result<Option<QuotaEntry>> {
        self.with_tree(fs, None, |tree| tree.get(id))
    }

    /// Changes the usage of an id. Its record exists, unless the image's usage is wrong anyway.
    pub fn change(
        &self,
        fs: &Engine,
        handle: &mut Handle<'_>,
        id: u32,
        change: Usage,
    ) -> Result<()> {
        self.with_tree(fs, Some(handle), |tree| match tree.get(id)? {
            Some(mut entry) => {
                change.add_to(&mut entry);
                tree.set(&entry)
            }
            None => {
                tracing::warn!(kind = %self.kind, id, "an owner has no usage record");
                Ok(())
            }
        })
    }

    /// Limits the space of an id that has a record.
    #[cfg(test)]
    pub fn limit(&self, fs: &Engine, handle: &mut Handle<'_>, id: u32, units: u64) -> Result<()> {
        self.with_tree(fs, Some(handle), |tree| {
            let mut entry = tree.get(id)?.unwrap_or_default();
            entry.space_hard_limit = units;
            tree.set(&entry)
        })
    }

    /// Makes sure that an id has a record.
    pub fn ensure(&self, fs: &Engine, id: u32) -> Result<()> {
        if self.get(fs, id)?.is_some() {
            return Ok(());
        }
        let _content = self.inode.content.write();
        while self.free_blocks(fs)? < RECORD_BLOCKS_MAX {
            with_space_retry(&fs.volume, || {
                let mut handle = fs.volume.start(credits::QUOTA_GROWTH)?;
                let grown = self.grow(fs, &mut handle);
                fs.settle(handle, grown)
            })?;
        }
        let mut handle = fs.volume.start(credits::QUOTA_RECORD)?;
        let added = self.with_tree(fs, Some(&mut handle), |tree| match tree.get(id)? {
            Some(_) => Ok(()),
            None => tree.set(&QuotaEntry { id, ..QuotaEntry::default() }),
        });
        fs.settle(handle, added)
    }

    /// Blocks of the quota format behind the used part of the file.
    fn free_blocks(&self, fs: &Engine) -> Result<u32> {
        let used = self.with_tree(fs, None, |tree| Ok(tree.info().blocks))?;
        let room = self.blocks.lock().len() * (fs.volume.block_size() / BLOCK_LENGTH);
        Ok(u32::try_from(room).unwrap_or(u32::MAX).saturating_sub(used))
    }

    /// Adds a block to the file, whose content lock is held.
    fn grow(&self, fs: &Engine, handle: &mut Handle<'_>) -> Result<()> {
        let length = self.blocks.lock().len();
        // Ids and the records' blocks are both numbers of 32 bits.
        let logical = LogicalBlock::new(length as u32);
        let context = RequestContext::superuser();
        let run = mapping::allocate(fs, handle, &context, &self.inode, logical, 1)?;
        let extent = Extent { logical, physical: run.physical, length: 1, unwritten: false };
        if let Err(error) = mapping::insert(fs, handle, &self.inode, extent) {
            mapping::release_unmapped(fs, handle, &self.inode, &run)?;
            return Err(error);
        }
        let buffer = fs.volume.zeroed(run.physical)?;
        drop(handle.create(&buffer, None::<&Arc<dyn Seal>>)?);
        self.inode.update(fs, handle, |fields| {
            fields.disk.size_bytes = (length as u64 + 1) * fs.volume.block_size() as u64;
            Ok(())
        })?;
        self.blocks.lock().push(run.physical);
        Ok(())
    }
}

/// The file's content as blocks of the quota format, in journaled buffers.
struct Blocks<'a, 'b, 'handle> {
    fs: &'a Engine,
    blocks: &'b [PhysicalBlock],
    handle: Option<&'a mut Handle<'handle>>,
}

impl Blocks<'_, '_, '_> {
    /// The block that holds a block of the quota format, and where in it.
    fn place(&self, block: u32) -> Result<(PhysicalBlock, usize)> {
        let per_block = self.fs.volume.block_size() / BLOCK_LENGTH;
        let index = block as usize / per_block;
        let missing = Corrupt::Missing { feature: "quota", missing: "block of a quota file" };
        let physical = *self.blocks.get(index).ok_or(missing)?;
        Ok((physical, block as usize % per_block * BLOCK_LENGTH))
    }
}

impl QuotaBlocks for Blocks<'_, '_, '_> {
    type Error = Error;

    fn length(&self) -> u32 {
        let per_block = self.fs.volume.block_size() / BLOCK_LENGTH;
        u32::try_from(self.blocks.len() * per_block).unwrap_or(u32::MAX)
    }

    fn read(&mut self, block: u32) -> Result<QuotaBlock> {
        let (physical, offset) = self.place(block)?;
        let buffer = self.fs.volume.read(physical)?;
        let mut content = [0; BLOCK_LENGTH];
        content.copy_from_slice(&buffer.read()[offset..offset + BLOCK_LENGTH]);
        Ok(content)
    }

    fn write(&mut self, block: u32, content: &QuotaBlock) -> Result<()> {
        let (physical, offset) = self.place(block)?;
        let buffer = self.fs.volume.read(physical)?;
        let handle = self.handle.as_mut().ok_or(Error::ReadOnly("no handle"))?;
        let mut bytes = handle.write(&buffer, None::<&Arc<dyn Seal>>)?;
        bytes[offset..offset + BLOCK_LENGTH].copy_from_slice(content);
        Ok(())
    }
}
