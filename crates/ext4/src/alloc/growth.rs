//! Takes over what an image has grown by: new groups, and more blocks in the last one.
//!
//! # State
//! The device contains the grown image. Everything that the mount keeps by group or by block is brought up to date
//! while it is still mounted: records of the new groups are added, groups whose descriptor has changed
//! are read again.
//!
//! # Locking
//! The image is frozen and no preallocation window exists, so no thread allocates or frees. Threads that only
//! read go on: they see the new groups before the layout says that there are any.

use super::Allocator;
use super::free_space::SpaceLimits;
use super::group::{BlockGroup, BlockGroupState};
use super::group_index::GroupIndex;
use super::group_metadata::{descriptor_in, descriptor_location};
use super::groups::BlockGroups;
use super::load::load_groups;
use crate::error::Result;
use drystone_ext4_format::GroupNumber;
use drystone_ext4_format::layout::Layout;
use drystone_sync::atomic::Ordering;

impl Allocator {
    /// Takes over what the image has grown by. `changed` are the groups that it had before and
    /// whose descriptors have changed. The superblock in memory is the new one, the published layout
    /// still the old one.
    ///
    /// # Errors
    /// Those of the device; the new groups are damaged. The mount must not go on then.
    pub fn grow(&self, layout: &Layout, changed: &[GroupNumber]) -> Result<()> {
        self.groups.grow(layout, changed)?;
        self.tables.grow(*layout, self.groups.tables());
        Ok(())
    }

    /// Whether these groups are sound. A growth gives what it changes of them new checksums, so that damage could not
    /// be seen any more.
    ///
    /// # Errors
    /// Those of the device.
    pub fn are_sound(&self, groups: &[GroupNumber]) -> Result<bool> {
        for &number in groups {
            let group = self.groups.at(number);
            if self.groups.load_or_take_out(group, &mut group.state.lock(), true)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl BlockGroups {
    fn grow(&self, layout: &Layout, changed: &[GroupNumber]) -> Result<()> {
        let loaded = load_groups(&self.volume, layout, &self.journal, self.count())?;
        let mut more = loaded.free_clusters as i64;
        for &number in changed {
            more += self.reload(self.at(number), layout)?;
        }
        self.groups.add(loaded.groups);
        if let Some(index) = &self.index {
            if index.get().has_room(layout.group_count()) {
                let old = self.count() as usize;
                self.groups.iter().skip(old).for_each(|group| index.get().settle(group));
            } else {
                index.replace(GroupIndex::rebuilt(self.groups.iter(), layout.group_count()));
            }
        }
        self.metadata.replace(loaded.metadata);
        self.free_space.grow(more, SpaceLimits::of(&self.volume, layout));
        self.free_inodes.add(loaded.free_inodes as i64);
        Ok(())
    }

    /// Reads a group again. Returns by how many free clusters it has grown.
    fn reload(&self, group: &BlockGroup, layout: &Layout) -> Result<i64> {
        let mut state = group.state.lock();
        let (block, offset) = descriptor_location(layout, group.number);
        let buffer = self.volume.read(block)?;
        let descriptor = descriptor_in(&buffer.read()[offset..], group.number, layout)?;
        let free = descriptor.free_clusters_count;
        let before = match &mut *state {
            BlockGroupState::Loaded(loaded) => {
                let before = loaded.descriptor.free_clusters_count;
                loaded.descriptor = descriptor;
                loaded.map = None;
                before
            }
            BlockGroupState::Unloaded => group.available.load(Ordering::Relaxed),
            BlockGroupState::Damaged(corrupt, _) => return Err((**corrupt).clone().into()),
        };
        group.note_unmapped(free);
        if let Some(index) = &self.index {
            index.get().settle(group);
        }
        Ok(i64::from(free) - i64::from(before))
    }
}
