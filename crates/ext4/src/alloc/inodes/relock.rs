//! Claims an inode that was found without the lock, and looks for another with it when that one is
//! gone.
//!
//! # Locking
//! The group's lock is taken once for each inode, and held until the descriptor is written.

use super::Allocator;
use crate::alloc::group::Group;
use crate::alloc::statistics::Count;
use crate::error::Result;
use drystone_ext4_format::InodeNumber;
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;

impl Allocator {
    pub(super) fn claim_relocking(
        &self,
        handle: &mut Handle<'_>,
        group: &Group,
        start: u32,
        directory: bool,
    ) -> Result<Option<InodeNumber>> {
        let Some(buffer) = self.ready_bitmap(handle, group)? else { return Ok(None) };
        let range = self.inode_bits(group);
        let found = Self::free_inode_bit(group, &buffer.read(), &range, start);
        let Some(found) = found else { return Ok(None) };
        handle.access(&buffer, None)?;
        self.counts.note(Count::InodeWriteAccess);
        let mut state = group.state.lock();
        self.counts.note(Count::InodeLockTake);
        let Some(loaded) = self.load_or_take_out(group, &mut state, false)? else {
            return Ok(None);
        };
        let bit = {
            let mut bytes = handle.write(&buffer, None)?;
            let is_lost = group.is_withheld(found) || bitmap::test(&bytes, found as usize);
            let bit = if is_lost {
                self.counts.note(Count::InodeRaceLost);
                let range = self.inode_bits(group);
                Self::free_inode_bit(group, &bytes, &range, found + 1)
            } else {
                Some(found)
            };
            let Some(bit) = bit else { return Ok(None) };
            bitmap::set(&mut bytes, bit as usize);
            bit
        };
        self.record_inode(handle, group, loaded, bit, directory)?;
        Ok(Some(self.inode_at(group, bit)))
    }
}
