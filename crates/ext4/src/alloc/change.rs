//! Changes of bitmaps and descriptors on their way into a transaction.
//!
//! # Locking
//! Called under the group's lock. Buffers are locked inside: a bitmap until its descriptor is
//! written, a descriptor block, which many groups share, only while bytes are copied.
//!
//! # Crash
//! A bitmap and its descriptor change in one handle, so that one transaction has both. All that
//! can fail is done first: write access to the descriptor, then to the bitmap. From then on the
//! journal accepts what is written.

use super::group::{LoadedGroup, descriptor_location, initial_block_bitmap};
use super::metadata_map::MetadataMap;
use crate::error::Result;
use crate::volume::Volume;
use drystone_cache::Buffer;
use drystone_ext4_format::bitmap_checksum::{block_bitmap_checksum, inode_bitmap_checksum};
use drystone_ext4_format::error::InodeProblem;
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::{Corrupt, GroupNumber, InodeNumber};
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;
use drystone_sync::Arc;
use std::ops::Range;

/// Bytes of the largest descriptor that a layout may have.
const DESCRIPTOR_BYTES_MAX: usize = 1024;

/// Where a change goes: a group, locked by the caller.
pub(super) struct Change<'a> {
    pub volume: &'a Volume,
    pub metadata: &'a MetadataMap,
    pub group: GroupNumber,
    pub loaded: &'a mut LoadedGroup,
}

impl Change<'_> {
    /// Marks a run of clusters as used or as free, in the block bitmap and in the descriptor. The
    /// whole run must be the other way before; nothing changes on an error.
    pub fn mark_clusters(
        &mut self,
        handle: &mut Handle<'_>,
        run: Range<u32>,
        used: bool,
    ) -> Result<()> {
        self.initialise_block_bitmap(handle)?;
        let descriptor_block = self.access_descriptor(handle)?;
        let bits = run.start as usize..run.end as usize;
        let buffer = self.loaded.block_bitmap(self.volume, self.group)?;
        let mut bytes = handle.write(&buffer, None)?;
        let find_wrong = if used { bitmap::find_one } else { bitmap::find_zero };
        if let Some(bit) = find_wrong(&bytes, bits.clone()) {
            let block = self.volume.layout.block_of_bit(self.group, bit as u32);
            return Err(Corrupt::BlockFree { block }.into());
        }
        let mut descriptor = self.loaded.descriptor.clone();
        if used {
            bitmap::set_range(&mut bytes, bits);
            descriptor.free_clusters_count -= run.len() as u32;
        } else {
            bitmap::clear_range(&mut bytes, bits);
            descriptor.free_clusters_count += run.len() as u32;
        }
        descriptor.block_bitmap_checksum = block_bitmap_checksum(&bytes, &self.volume.layout);
        self.write_descriptor(handle, &descriptor_block, descriptor)
    }

    /// Records in the descriptor inodes whose bits the caller has set in the inode bitmap.
    pub fn record_used_inodes(
        &mut self,
        handle: &mut Handle<'_>,
        bits: &[u32],
        directories: bool,
    ) -> Result<()> {
        let layout = &self.volume.layout;
        let descriptor_block = self.access_descriptor(handle)?;
        let buffer = self.loaded.inode_bitmap(self.volume, self.group)?;
        let mut descriptor = self.loaded.descriptor.clone();
        let count = bits.len() as u32;
        let used_end = bits.iter().map(|bit| bit + 1).max().unwrap_or(0);
        let used_before = self.loaded.used_inodes(self.volume);
        descriptor.unused_inodes_count = layout.inodes_per_group() - used_before.max(used_end);
        descriptor.free_inodes_count -= count;
        if directories {
            descriptor.used_directories_count += count;
        }
        let bytes = buffer.read();
        descriptor.inode_bitmap_checksum = inode_bitmap_checksum(&bytes, layout);
        drop(bytes);
        self.write_descriptor(handle, &descriptor_block, descriptor)
    }

    /// Marks an inode as free, in the inode bitmap and in the descriptor. It must be in use before;
    /// nothing changes on an error.
    pub fn record_free_inode(
        &mut self,
        handle: &mut Handle<'_>,
        inode: InodeNumber,
        directory: bool,
    ) -> Result<()> {
        let layout = &self.volume.layout;
        let (_, bit) = layout.bit_of_inode(inode)?;
        let descriptor_block = self.access_descriptor(handle)?;
        let mut descriptor = self.loaded.descriptor.clone();
        let buffer = self.loaded.inode_bitmap(self.volume, self.group)?;
        let mut bytes = handle.write(&buffer, None)?;
        let directories = u32::from(directory);
        if !bitmap::test(&bytes, bit as usize) || descriptor.used_directories_count < directories {
            return Err(Corrupt::Inode { inode, problem: InodeProblem::NotInUse }.into());
        }
        bitmap::clear(&mut bytes, bit as usize);
        descriptor.free_inodes_count += 1;
        descriptor.used_directories_count -= directories;
        descriptor.inode_bitmap_checksum = inode_bitmap_checksum(&bytes, layout);
        self.write_descriptor(handle, &descriptor_block, descriptor)
    }

    /// Writes out the inode bitmap of a group that had none yet.
    pub fn initialise_inode_bitmap(&mut self, handle: &mut Handle<'_>) -> Result<()> {
        if !self.loaded.descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(());
        }
        let layout = &self.volume.layout;
        let descriptor_block = self.access_descriptor(handle)?;
        let mut descriptor = self.loaded.descriptor.clone();
        let buffer = self.volume.zeroed(descriptor.inode_bitmap)?;
        let mut bytes = handle.create(&buffer, None)?;
        let behind = bytes.len() * 8;
        bitmap::set_range(&mut bytes, layout.inodes_per_group() as usize..behind);
        descriptor.flags -= GroupFlags::INODE_UNINIT;
        descriptor.unused_inodes_count = layout.inodes_per_group();
        descriptor.inode_bitmap_checksum = inode_bitmap_checksum(&bytes, layout);
        self.write_descriptor(handle, &descriptor_block, descriptor)
    }

    /// Writes out the block bitmap of a group that had none yet.
    pub fn initialise_block_bitmap(&mut self, handle: &mut Handle<'_>) -> Result<()> {
        if !self.loaded.descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return Ok(());
        }
        let descriptor_block = self.access_descriptor(handle)?;
        let mut descriptor = self.loaded.descriptor.clone();
        let initial = initial_block_bitmap(self.volume, self.group, self.metadata);
        let buffer = self.volume.zeroed(descriptor.block_bitmap)?;
        let mut bytes = handle.create(&buffer, None)?;
        bytes.copy_from_slice(&initial);
        descriptor.flags -= GroupFlags::BLOCK_UNINIT;
        descriptor.block_bitmap_checksum = block_bitmap_checksum(&bytes, &self.volume.layout);
        self.write_descriptor(handle, &descriptor_block, descriptor)
    }

    /// Makes the descriptor's block part of the transaction.
    fn access_descriptor(&self, handle: &mut Handle<'_>) -> Result<Arc<Buffer>> {
        let (block, _) = descriptor_location(self.volume, self.group);
        let buffer = self.volume.read(block)?;
        handle.access(&buffer, None)?;
        Ok(buffer)
    }

    /// Changes the descriptor, in its block and in the group in memory.
    fn write_descriptor(
        &mut self,
        handle: &mut Handle<'_>,
        block: &Arc<Buffer>,
        descriptor: GroupDescriptor,
    ) -> Result<()> {
        let layout = &self.volume.layout;
        let (_, offset) = descriptor_location(self.volume, self.group);
        let place = offset..offset + layout.descriptor_size();
        // Only the holder of the group's lock changes these bytes, so they can be prepared
        // without the buffer's lock.
        let mut scratch = [0; DESCRIPTOR_BYTES_MAX];
        let encoded = &mut scratch[..layout.descriptor_size()];
        encoded.copy_from_slice(&block.read()[place.clone()]);
        descriptor.encode_into(encoded, self.group, layout);
        handle.write(block, None)?[place].copy_from_slice(encoded);
        self.loaded.descriptor = descriptor;
        Ok(())
    }
}
