//! Allocates and frees inodes.
//!
//! An inode is searched for and marked under one take of its group's lock. Where the search starts
//! is a hint: one behind the inode allocated last, or the lowest one freed since.
//!
//! # State
//! The inodes at the end of a group's table that were never used are not even initialised on disk
//! when the image was made in haste. They are taken in order, and a table block is zeroed in the
//! transaction that takes the first inode in it.
//!
//! # Locking
//! One group at a time.
//!
//! # Crash
//! Bitmap, descriptor and the zeroed table block are in one transaction. A freed inode may be used
//! again at once: its old and its new life are in the same transaction or in order.

use super::group::{Group, GroupState, LoadedGroup};
use super::spread::{Spread, Totals};
use super::{Allocator, InodeRequest};
use crate::error::{Error, Result};
use drystone_ext4_format::error::InodeProblem;
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::{Corrupt, GroupNumber, InodeNumber, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;
use drystone_sync::atomic::Ordering;

/// How often a search is repeated after it has lost every race.
const ATTEMPTS_MAX: u32 = 16;

impl Allocator {
    /// Allocates an inode and marks it in the transaction. Its place in the inode table holds
    /// whatever was there; if it was never used, zeros.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if no inode is free.
    pub fn allocate_inode(
        &self,
        handle: &mut Handle<'_>,
        request: &InodeRequest,
    ) -> Result<InodeNumber> {
        let count = self.groups.len() as u32;
        for _ in 0..ATTEMPTS_MAX {
            let Some(first) = self.choose_group(request)? else { break };
            for step in 0..count {
                let group = &self.groups[(first.index() + step as usize) % count as usize];
                if group.free_inodes.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                let mut state = group.state.lock();
                if let Some(inode) = self.take_inode(handle, group, &mut state, request)? {
                    return Ok(inode);
                }
            }
            if self.free_inodes.sum() <= 0 {
                break;
            }
        }
        Err(Error::NoSpace)
    }

    fn choose_group(&self, request: &InodeRequest) -> Result<Option<GroupNumber>> {
        let layout = &self.volume.layout;
        if let Some(goal) = request.goal {
            return Ok(Some(layout.group_of_inode(goal)?));
        }
        let parent = layout.group_of_inode(request.parent)?;
        let mut spread = Spread {
            groups: layout.group_count(),
            groups_per_region: layout.groups_per_flex(),
            inodes_per_group: layout.inodes_per_group(),
            clusters_per_group: layout.clusters_per_group(),
            image: Totals::default(),
            counts: |group: GroupNumber| self.groups[group.index()].counts(),
        };
        if !request.directory {
            return Ok(spread.file(parent, request.parent.get()));
        }
        spread.image = Totals {
            free_inodes: self.free_inodes.sum().max(0) as u64,
            free_clusters: self.free_space.sum(),
            directories: self.directories.sum().max(0) as u64,
        };
        Ok(if request.top_level {
            spread.top_directory(self.next_top_directory.fetch_add(1, Ordering::Relaxed))
        } else {
            spread.directory(parent)
        })
    }

    /// Takes a free inode of a group, if there is one.
    fn take_inode(
        &self,
        handle: &mut Handle<'_>,
        group: &Group,
        state: &mut GroupState,
        request: &InodeRequest,
    ) -> Result<Option<InodeNumber>> {
        let Some(loaded) = self.load_or_take_out(group, state, false)? else { return Ok(None) };
        if loaded.descriptor.free_inodes_count == 0 {
            return Ok(None);
        }
        // Its bitmap is checked here, before it is searched.
        let found = match self.find_inode(group, loaded, request.goal) {
            Ok(found) => found,
            Err(Error::Corrupt(corrupt)) => {
                self.take_out(group, state, corrupt);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Some(inode) = found else { return Ok(None) };
        let (_, bit) = self.volume.layout.bit_of_inode(inode)?;
        self.zero_table_block(handle, loaded, bit)?;
        let mut change = self.change(group.number, loaded);
        // Linux never leaves a group with inodes in use but no block bitmap, and e2fsck counts
        // on that.
        change.initialise_block_bitmap(handle)?;
        change.mark_inode(handle, inode, true, request.directory)?;
        loaded.next_inode = bit + 1;
        group.free_inodes.fetch_sub(1, Ordering::Relaxed);
        self.free_inodes.add(-1);
        if request.directory {
            group.directories.fetch_add(1, Ordering::Relaxed);
            self.directories.add(1);
        }
        Ok(Some(inode))
    }

    /// A free inode of a group: the first from the goal or from the hint on, else from the start.
    fn find_inode(
        &self,
        group: &Group,
        loaded: &LoadedGroup,
        goal: Option<InodeNumber>,
    ) -> Result<Option<InodeNumber>> {
        let layout = &self.volume.layout;
        let inodes = layout.inodes_per_group();
        let reserved = layout.first_inode().get() - 1;
        let first = reserved.saturating_sub(group.number.get().saturating_mul(inodes)).min(inodes);
        // Of the inodes that were never used, at most those of one table block.
        let used = loaded.used_inodes(&self.volume);
        let per_block = layout.inodes_per_block();
        let limit = (used + 1).max(first + 1).next_multiple_of(per_block).min(inodes);
        let goal = goal
            .and_then(|goal| layout.bit_of_inode(goal).ok())
            .filter(|&(goal_group, _)| goal_group == group.number)
            .map(|(_, bit)| bit);
        let start = goal.unwrap_or(loaded.next_inode).clamp(first, limit);
        let bit = if loaded.descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            Some(if start < limit { start } else { first }).filter(|&bit| bit < limit)
        } else {
            let buffer = loaded.inode_bitmap(&self.volume, group.number)?;
            let bytes = buffer.read();
            bitmap::find_zero(&bytes, start as usize..limit as usize)
                .or_else(|| bitmap::find_zero(&bytes, first as usize..start as usize))
                .map(|bit| bit as u32)
        };
        Ok(bit.and_then(|bit| layout.inode_of_bit(group.number, bit)))
    }

    /// Zeroes the table block of an inode if no inode in it was ever used.
    fn zero_table_block(
        &self,
        handle: &mut Handle<'_>,
        loaded: &LoadedGroup,
        bit: u32,
    ) -> Result<()> {
        let layout = &self.volume.layout;
        let descriptor = &loaded.descriptor;
        let used = loaded.used_inodes(&self.volume);
        let index = bit / layout.inodes_per_block();
        let is_used = index * layout.inodes_per_block() < used;
        if is_used || descriptor.flags.contains(GroupFlags::INODE_ZEROED) {
            return Ok(());
        }
        let block = descriptor.inode_table.get() + u64::from(index);
        let buffer = self.volume.zeroed(PhysicalBlock::new(block))?;
        drop(handle.create(&buffer, None)?);
        Ok(())
    }

    /// Frees an inode; `directory` says whether it was one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is free already, reserved, or does not exist; nothing has changed
    /// then.
    pub fn free_inode(
        &self,
        handle: &mut Handle<'_>,
        inode: InodeNumber,
        directory: bool,
    ) -> Result<()> {
        let layout = &self.volume.layout;
        let (number, bit) = layout.bit_of_inode(inode)?;
        if inode < layout.first_inode() {
            return Err(not_in_use(inode));
        }
        let group = &self.groups[number.index()];
        let mut state = group.state.lock();
        let loaded = state.load(&self.volume, number)?;
        if loaded.descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            return Err(not_in_use(inode));
        }
        self.change(number, loaded).mark_inode(handle, inode, false, directory)?;
        loaded.next_inode = loaded.next_inode.min(bit);
        group.free_inodes.fetch_add(1, Ordering::Relaxed);
        self.free_inodes.add(1);
        if directory {
            group.directories.fetch_sub(1, Ordering::Relaxed);
            self.directories.add(-1);
        }
        Ok(())
    }

    /// Whether the inode bitmap has an inode as used.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such inode, or its group is damaged.
    pub fn inode_is_allocated(&self, inode: InodeNumber) -> Result<bool> {
        let (number, bit) = self.volume.layout.bit_of_inode(inode)?;
        let mut state = self.groups[number.index()].state.lock();
        let loaded = state.load(&self.volume, number)?;
        if loaded.descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(false);
        }
        let buffer = loaded.inode_bitmap(&self.volume, number)?;
        let bytes = buffer.read();
        Ok(bitmap::test(&bytes, bit as usize))
    }

    /// The block of the inode table that holds an inode, and the inode's offset there in bytes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such inode, or its group's descriptor is damaged.
    pub fn inode_table_block(&self, inode: InodeNumber) -> Result<(PhysicalBlock, usize)> {
        let layout = &self.volume.layout;
        let number = layout.group_of_inode(inode)?;
        let group = &self.groups[number.index()];
        if group.inode_table.get() == 0 {
            return Err(group.state.lock().load(&self.volume, number).err().unwrap_or_else(|| {
                // Only a damaged descriptor leaves no table, and damage is never mended.
                not_in_use(inode)
            }));
        }
        Ok(layout.inode_location(inode, group.inode_table)?)
    }
}

fn not_in_use(inode: InodeNumber) -> Error {
    Corrupt::Inode { inode, problem: InodeProblem::NotInUse }.into()
}
