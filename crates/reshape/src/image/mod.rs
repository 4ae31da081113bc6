//! The image that is changed: its superblock, its layout and its group descriptors.
//!
//! # State
//! Superblock and descriptors are in memory and are written at the end of a change, with all copies.

mod space;

pub(crate) use space::{base_bitmap, used_runs};

use crate::error::{Refusal, Result};
use crate::progress::ReshapeProgress;
use drystone_blockdev::{BlockDevice, Cancellable, DeviceResult, MemoryDevice, UndoDevice};
use drystone_ext4_format::features::{Incompat, ReadOnlyCompat};
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::mmp::{Mmp, MmpState};
use drystone_ext4_format::superblock::{
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, StateFlags, Superblock,
};
use drystone_ext4_format::{FormatError, GroupNumber, InodeNumber, PhysicalBlock};
use std::collections::BTreeMap;
use std::ops::Range;

/// What an image is changed on.
pub trait ReshapeDevice: BlockDevice {
    /// Writes where nothing is that a rollback would need.
    ///
    /// # Errors
    /// As for [`write_at`](BlockDevice::write_at).
    fn write_free_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.write_at(offset, data)
    }
}

impl ReshapeDevice for MemoryDevice {}

/// A device without an undo log: for what only touches free space.
impl ReshapeDevice for &dyn BlockDevice {}

impl<D: BlockDevice, L: BlockDevice> ReshapeDevice for UndoDevice<D, L> {
    fn write_free_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.write_unlogged_at(offset, data)
    }
}

impl<D: BlockDevice, L: BlockDevice> ReshapeDevice for Cancellable<&UndoDevice<D, L>> {
    fn write_free_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.get()?.write_unlogged_at(offset, data)
    }
}

pub(crate) struct Image<'d> {
    pub device: &'d dyn ReshapeDevice,
    pub superblock: Superblock,
    pub layout: Layout,
    pub groups: Vec<GroupDescriptor>,
    /// Where bitmaps and inode tables are, in order, as long as nothing has changed.
    stored_metadata: Vec<Range<u64>>,
    /// Bitmaps that were loaded to be changed, by group.
    pub(crate) block_bitmaps: BTreeMap<u32, Vec<u8>>,
    pub(crate) inode_bitmaps: BTreeMap<u32, Vec<u8>>,
}

impl<'d> Image<'d> {
    /// Reads an image and checks that it can be changed.
    pub fn open(device: &'d dyn ReshapeDevice) -> Result<Self> {
        let image = Self::open_claimed(device)?;
        image.check_multi_mount()?;
        Ok(image)
    }

    /// The same for an image that the caller has claimed, if it has multi-mount protection.
    pub fn open_claimed(device: &'d dyn ReshapeDevice) -> Result<Self> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
        let superblock = Superblock::check(&bytes)?;
        check_state(&superblock)?;
        Self::of(device, superblock)
    }

    /// Reads the image that has this superblock. The caller has made sure that nobody else uses it.
    pub fn of(device: &'d dyn ReshapeDevice, superblock: Superblock) -> Result<Self> {
        let layout = *superblock.layout();
        superblock.features().check_writable().map_err(FormatError::from)?;
        let blocks = layout.blocks_count();
        if blocks > device.size_bytes() >> layout.log_block_size() {
            return Err(Refusal::Truncated { blocks }.into());
        }
        let mut image = Self {
            device,
            superblock,
            layout,
            groups: Vec::new(),
            stored_metadata: Vec::new(),
            block_bitmaps: BTreeMap::new(),
            inode_bitmaps: BTreeMap::new(),
        };
        image.read_groups()?;
        let groups = layout.groups();
        image.stored_metadata = groups.flat_map(|group| image.group_metadata(group)).collect();
        image.stored_metadata.sort_unstable_by_key(|run| run.start);
        Ok(image)
    }

    fn read_groups(&mut self) -> Result<()> {
        let per_block = self.layout.descriptors_per_block();
        let size = self.layout.descriptor_size();
        for index in 0..self.layout.descriptor_blocks() {
            // All are in the image: the layout has checked where they lie.
            let Some(block) = self.layout.descriptor_block(index) else { break };
            let bytes = self.read_block(block)?;
            let first = index * per_block;
            let last = (first + per_block).min(self.layout.group_count());
            for (group, bytes) in (first..last).zip(bytes.chunks_exact(size)) {
                let group = GroupNumber::new(group);
                self.groups.push(GroupDescriptor::check(bytes, group, &self.layout)?);
            }
        }
        Ok(())
    }

    fn check_multi_mount(&self) -> Result<()> {
        if let Some(block) = self.mmp_block() {
            // What another machine writes changes no cache of this one.
            self.device.refresh(self.offset_of(block), self.layout.block_size() as u64);
            let bytes = self.read_block(block)?;
            let mmp = Mmp::check(&bytes, self.layout.checksum_seed(), block)?;
            if mmp.state != MmpState::Clean {
                return Err(Refusal::MultiMount.into());
            }
        }
        Ok(())
    }

    /// The multi-mount block, if that protection is on.
    pub fn mmp_block(&self) -> Option<PhysicalBlock> {
        let has_mmp = self.superblock.features().incompat.contains(Incompat::MMP);
        self.superblock.mmp_block().filter(|_| has_mmp)
    }

    /// Takes a superblock with another geometry.
    pub fn set_superblock(&mut self, superblock: Superblock) {
        self.layout = *superblock.layout();
        self.superblock = superblock;
    }

    pub fn offset_of(&self, block: PhysicalBlock) -> u64 {
        block.get() << self.layout.log_block_size()
    }

    pub fn read_block(&self, block: PhysicalBlock) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.layout.block_size()];
        self.device.read_at(self.offset_of(block), &mut bytes)?;
        Ok(bytes)
    }

    pub fn write_block(&self, block: PhysicalBlock, bytes: &[u8]) -> Result<()> {
        Ok(self.device.write_at(self.offset_of(block), bytes)?)
    }

    /// Reads an inode with all its bytes. `number` is in the image.
    pub fn read_inode(&self, number: InodeNumber) -> Result<(Inode, Vec<u8>)> {
        let mut bytes = vec![0; self.layout.inode_size()];
        self.device.read_at(self.inode_offset(number)?, &mut bytes)?;
        Ok((Inode::read(&bytes, number, &self.layout)?, bytes))
    }

    /// Inodes of a group's table, as bytes.
    pub fn read_inodes(&self, group: GroupNumber, bits: Range<u32>) -> Result<Vec<u8>> {
        let size = self.layout.inode_size();
        let mut inodes = vec![0; bits.len() * size];
        let table = self.offset_of(self.groups[group.index()].inode_table);
        self.device.read_at(table + u64::from(bits.start) * size as u64, &mut inodes)?;
        Ok(inodes)
    }

    /// Writes an inode over its bytes.
    pub fn write_inode(&self, inode: &Inode, bytes: &mut [u8]) -> Result<()> {
        inode.encode_into(bytes, &self.layout)?;
        Ok(self.device.write_at(self.inode_offset(inode.number)?, bytes)?)
    }

    /// Writes the bytes of an inode as they are.
    pub fn write_inode_bytes(&self, number: InodeNumber, bytes: &[u8]) -> Result<()> {
        Ok(self.device.write_at(self.inode_offset(number)?, bytes)?)
    }

    fn inode_offset(&self, number: InodeNumber) -> Result<u64> {
        let group = self.layout.group_of_inode(number)?;
        let table = self.groups[group.index()].inode_table;
        let (block, offset) = self.layout.inode_location(number, table)?;
        Ok(self.offset_of(block) + offset as u64)
    }

    /// Writes everything that a change of the layout touches: bitmaps, descriptors, the blocks reserved for
    /// growth, the superblock with what is free.
    pub fn store(&mut self, progress: &mut dyn FnMut(ReshapeProgress)) -> Result<()> {
        self.store_bitmaps()?;
        let clusters: u64 =
            self.groups.iter().map(|group| u64::from(group.free_clusters_count)).sum();
        let inodes: u64 = self.groups.iter().map(|group| u64::from(group.free_inodes_count)).sum();
        let free = clusters << self.layout.log_cluster_ratio();
        self.superblock.set_free_blocks_count(free);
        // Bounded by the inodes of the image, whose number fits.
        self.superblock.set_free_inodes_count(inodes as u32);
        // Linux computes it.
        self.superblock.set_overhead_clusters(0);
        self.store_groups(progress)?;
        self.store_superblock()?;
        Ok(self.device.flush()?)
    }

    /// Writes all descriptors and their copies.
    pub fn store_groups(&self, progress: &mut dyn FnMut(ReshapeProgress)) -> Result<()> {
        let total = u64::from(self.layout.descriptor_blocks());
        let per_block = self.layout.descriptors_per_block() as usize;
        let size = self.layout.descriptor_size();
        for (index, groups) in self.groups.chunks(per_block).enumerate() {
            // As many blocks as the layout counts, which fit.
            let index = index as u32;
            let Some(block) = self.layout.descriptor_block(index) else { break };
            let mut bytes = vec![0; self.layout.block_size()];
            for (position, group) in groups.iter().enumerate() {
                let number = GroupNumber::new(index * per_block as u32 + position as u32);
                group.encode_into(&mut bytes[position * size..][..size], number, &self.layout);
            }
            self.write_block(block, &bytes)?;
            for copy in self.layout.descriptor_backups(index) {
                self.write_block(copy, &bytes)?;
            }
            let done = u64::from(index) + 1;
            progress(ReshapeProgress { step: "writing group descriptors", done, total });
        }
        Ok(())
    }

    /// Notes in the superblock that something is about to be written where nothing is now. The undo log of an
    /// earlier change, which may need what was there, then no longer fits the image, even if this change is
    /// undone.
    ///
    /// So no undo log has it: like a mount, it relies on the disk to write a superblock as a whole.
    pub fn note_write(&mut self, now: u64) -> Result<()> {
        let kibibytes = self.superblock.kibibytes_written();
        self.superblock.set_kibibytes_written(kibibytes.wrapping_add(1));
        self.superblock.set_write_time_seconds(now);
        self.device.write_free_at(SUPERBLOCK_OFFSET_BYTES, &self.superblock.encode())?;
        Ok(self.device.flush()?)
    }

    /// Writes the superblock and its copies.
    pub fn store_superblock(&self) -> Result<()> {
        for group in self.layout.superblock_groups().skip(1) {
            if let Some((block, offset)) = self.layout.superblock_location(group) {
                let place = self.offset_of(block) + offset as u64;
                self.device.write_at(place, &self.superblock.encode_for_group(group))?;
            }
        }
        Ok(self.device.write_at(SUPERBLOCK_OFFSET_BYTES, &self.superblock.encode())?)
    }
}

/// Whether a journal has to be replayed or deleted files have to be removed before the image can be
/// changed as a whole.
#[must_use]
pub fn needs_recovery(superblock: &Superblock) -> bool {
    let features = superblock.features();
    features.incompat.contains(Incompat::RECOVER)
        || features.read_only_compat.contains(ReadOnlyCompat::ORPHAN_PRESENT)
        || superblock.last_orphan().is_some()
}

fn check_state(superblock: &Superblock) -> Result<(), Refusal> {
    let state = superblock.state();
    if needs_recovery(superblock) {
        Err(Refusal::NeedsRecovery)
    } else if state.contains(StateFlags::ERRORS) {
        Err(Refusal::HasErrors)
    } else if !state.contains(StateFlags::CLEAN) {
        Err(Refusal::NotClean)
    } else {
        Ok(())
    }
}
