//! Brings changes of bitmaps and descriptors into a transaction.
//!
//! # State
//! Bitmap buffers change at once. The descriptor changes in memory; it is encoded, with its own
//! checksum and those of the bitmaps, once per transaction, when that closes
//! ([`LoadedGroup::record_changes`]).
//!
//! # Locking
//! Called under the group's lock. Buffers are locked inside it, to copy a few bytes. The list of
//! changed groups has a lock of its own, taken once per group and transaction.
//!
//! # Crash
//! A bitmap and its descriptor join the transaction of the handle that changes the group, so that a
//! crash leaves both changes or neither. Every step that can fail comes before the bits change.

use super::group::LoadedGroup;
use super::group_metadata::{descriptor_location, initial_block_bitmap};
use super::system_zones::SystemZones;
use crate::error::Result;
use crate::lock_classes;
use crate::volume::Volume;
use drystone_ext4_format::bitmap_checksum::{block_bitmap_checksum, inode_bitmap_checksum};
use drystone_ext4_format::error::{BlockProblem, InodeProblem};
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::{Corrupt, GroupNumber, InodeNumber};
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;
use drystone_sync::Mutex;
use std::ops::Range;

/// The groups that the running transaction has changed.
#[derive(Debug)]
pub(super) struct ChangedGroups(Mutex<Vec<GroupNumber>>);

impl ChangedGroups {
    pub fn new() -> ChangedGroups {
        ChangedGroups(Mutex::new(&lock_classes::CHANGED_GROUPS, Vec::new()))
    }

    /// Takes the list.
    pub fn take(&self) -> Vec<GroupNumber> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// A group that changes; the caller holds its lock.
pub(super) struct GroupChange<'a> {
    pub volume: &'a Volume,
    pub metadata: &'a SystemZones,
    pub changed: &'a ChangedGroups,
    pub group: GroupNumber,
    pub loaded: &'a mut LoadedGroup,
}

impl GroupChange<'_> {
    /// Marks a run of clusters as used or as free, in the block bitmap and in the descriptor. The
    /// whole run must be in the opposite state before; nothing changes on an error.
    pub fn mark_clusters(
        &mut self,
        handle: &mut Handle<'_>,
        run: Range<u32>,
        used: bool,
    ) -> Result<()> {
        self.initialise_block_bitmap(handle)?;
        self.join(handle)?;
        if self.loaded.changes.block_bitmap.is_none() {
            let buffer = self.loaded.block_bitmap(self.volume, self.group)?;
            self.loaded.changes.block_bitmap = Some(buffer);
        }
        let LoadedGroup { descriptor, changes, .. } = &mut *self.loaded;
        let Some(buffer) = &changes.block_bitmap else { unreachable!("it was put there") };
        let bits = run.start as usize..run.end as usize;
        let mut bytes = handle.write(buffer, None)?;
        let find_wrong = if used { bitmap::find_one } else { bitmap::find_zero };
        if let Some(bit) = find_wrong(&bytes, bits.clone()) {
            let block = self.volume.layout().block_of_bit(self.group, bit as u32);
            let problem = if used { BlockProblem::Used } else { BlockProblem::Free };
            return Err(Corrupt::Block { block, problem }.into());
        }
        if used {
            bitmap::set_range(&mut bytes, bits);
            descriptor.free_clusters_count -= run.len() as u32;
        } else {
            bitmap::clear_range(&mut bytes, bits);
            descriptor.free_clusters_count += run.len() as u32;
        }
        Ok(())
    }

    /// Counts inodes in the descriptor whose bits the caller has set in the inode bitmap.
    pub fn record_used_inodes(
        &mut self,
        handle: &mut Handle<'_>,
        bits: &[u32],
        directories: bool,
    ) -> Result<()> {
        self.join(handle)?;
        let buffer = self.loaded.inode_bitmap(self.volume, self.group)?;
        let count = bits.len() as u32;
        let used_end = bits.iter().map(|bit| bit + 1).max().unwrap_or(0);
        let used_before = self.loaded.used_inodes(self.volume);
        let inodes = self.volume.layout().inodes_per_group();
        let LoadedGroup { descriptor, changes, .. } = &mut *self.loaded;
        descriptor.unused_inodes_count = inodes - used_before.max(used_end);
        descriptor.free_inodes_count -= count;
        if directories {
            descriptor.used_directories_count += count;
        }
        changes.inode_bitmap = Some(buffer);
        Ok(())
    }

    /// Marks an inode as free, in the inode bitmap and in the descriptor. It must be in use before;
    /// nothing changes on an error.
    pub fn record_free_inode(
        &mut self,
        handle: &mut Handle<'_>,
        inode: InodeNumber,
        directory: bool,
    ) -> Result<()> {
        let (_, bit) = self.volume.layout().bit_of_inode(inode)?;
        self.join(handle)?;
        if self.loaded.changes.inode_bitmap.is_none() {
            let buffer = self.loaded.inode_bitmap(self.volume, self.group)?;
            self.loaded.changes.inode_bitmap = Some(buffer);
        }
        let LoadedGroup { descriptor, changes, .. } = &mut *self.loaded;
        let Some(buffer) = &changes.inode_bitmap else { unreachable!("it was put there") };
        let mut bytes = handle.write(buffer, None)?;
        let directories = u32::from(directory);
        if !bitmap::test(&bytes, bit as usize) || descriptor.used_directories_count < directories {
            return Err(Corrupt::Inode { inode, problem: InodeProblem::NotInUse }.into());
        }
        bitmap::clear(&mut bytes, bit as usize);
        descriptor.free_inodes_count += 1;
        descriptor.used_directories_count -= directories;
        Ok(())
    }

    /// Initialises the inode bitmap of a group that is flagged as having none.
    pub fn initialise_inode_bitmap(&mut self, handle: &mut Handle<'_>) -> Result<()> {
        if !self.loaded.descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(());
        }
        let inodes = self.volume.layout().inodes_per_group();
        self.join(handle)?;
        let LoadedGroup { descriptor, changes, .. } = &mut *self.loaded;
        let buffer = self.volume.zeroed(descriptor.inode_bitmap)?;
        let mut bytes = handle.create(&buffer, None)?;
        let behind = bytes.len() * 8;
        bitmap::set_range(&mut bytes, inodes as usize..behind);
        drop(bytes);
        descriptor.flags -= GroupFlags::INODE_UNINIT;
        descriptor.unused_inodes_count = inodes;
        changes.inode_bitmap = Some(buffer);
        Ok(())
    }

    /// Initialises the block bitmap of a group that is flagged as having none.
    pub fn initialise_block_bitmap(&mut self, handle: &mut Handle<'_>) -> Result<()> {
        if !self.loaded.descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return Ok(());
        }
        self.join(handle)?;
        let initial = initial_block_bitmap(self.volume, self.group, self.metadata);
        let LoadedGroup { descriptor, changes, .. } = &mut *self.loaded;
        let buffer = self.volume.zeroed(descriptor.block_bitmap)?;
        handle.create(&buffer, None)?.copy_from_slice(&initial);
        descriptor.flags -= GroupFlags::BLOCK_UNINIT;
        changes.block_bitmap = Some(buffer);
        Ok(())
    }

    /// Adds the descriptor's block to the transaction, and the group to those whose descriptor is
    /// written when it closes. Does so once per transaction.
    fn join(&mut self, handle: &mut Handle<'_>) -> Result<()> {
        if self.loaded.changes.descriptor.is_some() {
            return Ok(());
        }
        let (block, _) = descriptor_location(self.volume.layout(), self.group);
        let buffer = self.volume.read(block)?;
        handle.access(&buffer, None)?;
        self.loaded.changes.descriptor = Some(buffer);
        self.changed.0.lock().push(self.group);
        Ok(())
    }
}

impl LoadedGroup {
    /// Writes the descriptor, with the checksums of the bitmaps that changed.
    pub(super) fn record_changes(
        &mut self,
        handle: &mut Handle<'_>,
        volume: &Volume,
        group: GroupNumber,
    ) -> Result<()> {
        let layout = volume.layout();
        let changes = std::mem::take(&mut self.changes);
        let Some(block) = changes.descriptor else { return Ok(()) };
        if let Some(buffer) = changes.block_bitmap {
            self.descriptor.block_bitmap_checksum = block_bitmap_checksum(&buffer.read(), layout);
        }
        if let Some(buffer) = changes.inode_bitmap {
            self.descriptor.inode_bitmap_checksum = inode_bitmap_checksum(&buffer.read(), layout);
        }
        let (_, offset) = descriptor_location(layout, group);
        let mut bytes = handle.write(&block, None)?;
        let place = &mut bytes[offset..offset + layout.descriptor_size()];
        self.descriptor.encode_into(place, group, layout);
        Ok(())
    }
}
