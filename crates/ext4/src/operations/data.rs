//! Opening and forgetting files, and operations on the whole image: sync, statistics, freeze.

use super::Engine;
use crate::error::{Error, Result};
use crate::freeze_gate::HeldImage;
use crate::inode::Inode;
use crate::{file, permission};
use drystone_ext4_format::inode::InodeFlags;
use drystone_sync::{Arc, long_wait, thread};
use drystone_vfs::{
    Access, Errno, FileSystemStatistics, FileType, InodeAttributes, InodeNumber, NAME_LENGTH_MAX,
    OpenFlags, RequestContext, SetAttributes,
};
use std::time::Duration;

/// How long to wait for deletions, each time before another attempt. In all it is little for a program that fills an
/// image while it has a file open that it has deleted.
const DELETION_WAITS: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(4),
    Duration::from_millis(8),
];

impl Engine {
    pub(crate) fn do_open(
        &self,
        context: &RequestContext,
        number: InodeNumber,
        flags: OpenFlags,
    ) -> Result<InodeAttributes> {
        let inode = self.held(number)?;
        let truncates = self.check_open(context, &inode, flags)?;
        // The reference comes first: otherwise the inode might be freed before it is truncated.
        let entry = self.entry(&inode);
        if !truncates {
            return Ok(entry);
        }
        self.empty(context, &inode).inspect_err(|_| self.do_forget(number, 1))
    }

    pub(crate) fn do_open_held(
        &self,
        context: &RequestContext,
        number: InodeNumber,
        flags: OpenFlags,
    ) -> Result<()> {
        let inode = self.held(number)?;
        if self.check_open(context, &inode, flags)? {
            self.empty(context, &inode)?;
        }
        Ok(())
    }

    fn empty(&self, context: &RequestContext, inode: &Arc<Inode>) -> Result<InodeAttributes> {
        let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
        self.do_set_attributes(context, inode, &cut)
    }

    /// Checks that an inode may be opened so. True if it is to be emptied.
    fn check_open(
        &self,
        context: &RequestContext,
        inode: &Arc<Inode>,
        flags: OpenFlags,
    ) -> Result<bool> {
        let writes = flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE);
        let executes = flags.contains(OpenFlags::EXECUTE);
        match inode.file_type() {
            FileType::Symlink => return Err(Errno::ELOOP.into()),
            FileType::Directory if writes => return Err(Errno::EISDIR.into()),
            FileType::Regular => {}
            _ if executes => return Err(Errno::EACCES.into()),
            _ => {}
        }
        let mut access = Access::empty();
        access.set(Access::READ, flags.contains(OpenFlags::READ) && !executes);
        access.set(Access::EXECUTE, executes);
        access.set(Access::WRITE, writes);
        permission::check(self, context, inode, access)?;
        let inode_flags = inode.flags();
        let regular = inode.file_type() == FileType::Regular;
        if regular && inode_flags.contains(InodeFlags::ENCRYPT) {
            return Err(Errno::ENOKEY.into());
        }
        if writes && regular {
            self.volume.check_writable()?;
            if inode_flags.contains(InodeFlags::VERITY) {
                return Err(Errno::EPERM.into());
            }
        }
        if flags.contains(OpenFlags::TRUNCATE) && inode_flags.contains(InodeFlags::APPEND) {
            return Err(Errno::EPERM.into());
        }
        // A socket is connected to, not opened.
        if inode.file_type() == FileType::Socket {
            return Err(Errno::ENXIO.into());
        }
        Ok(flags.contains(OpenFlags::TRUNCATE) && regular)
    }

    pub(crate) fn do_forget(&self, number: InodeNumber, count: u64) {
        let Ok(in_image) = u32::try_from(number.0) else { return };
        let released = self.inodes.release(drystone_ext4_format::InodeNumber::new(in_image), count);
        let Some(inode) = released else { return };
        self.write_replacement(&inode);
        self.allocator.blocks.forget_file(&inode.space);
        self.delete_or_leave(&inode);
        self.inodes.shed(inode);
    }

    /// Runs `operation`. If it found no space, tries again when there may be some. Called without locks.
    #[inline]
    pub(crate) fn with_room<T>(&self, operation: impl Fn() -> Result<T>) -> Result<T> {
        match operation() {
            Err(Error::NoSpace) => self.again_with_room(operation),
            result => result,
        }
    }

    /// Writes data that waits, since its claims may be more than it needs. Then waits a moment for files whose names
    /// are gone: FUSE gives back the last reference to such a file a little after the unlink has returned.
    #[cold]
    fn again_with_room<T>(&self, operation: impl Fn() -> Result<T>) -> Result<T> {
        if self.delayed_allocation.is_any() {
            // Data that can't be written goes on waiting, and a sync reports the error.
            let _ = self.done(file::flush_all(self));
            match operation() {
                Err(Error::NoSpace) => {}
                result => return result,
            }
        }
        for wait in DELETION_WAITS {
            if !self.orphans.is_any() {
                break;
            }
            // The thread may be needed for just the request that gives the file back.
            long_wait::announce();
            thread::sleep(wait);
            match operation() {
                Err(Error::NoSpace) => {}
                result => return result,
            }
        }
        Err(Error::NoSpace)
    }

    pub(crate) fn do_closed(&self, number: InodeNumber) {
        if let Ok(inode) = self.held(number) {
            self.write_replacement(&inode);
            self.allocator.blocks.leave_group(&inode.space);
        }
    }

    /// Writes the waiting data of a file that was emptied: a program that replaces content expects the
    /// old or the new content after a crash, not an empty file.
    fn write_replacement(&self, inode: &Arc<Inode>) {
        // While frozen it goes on waiting, as other data does.
        if !self.volume.freeze.takes_changes()
            || !inode.delayed.take_replacement()
            || !inode.delayed.is_any()
        {
            return;
        }
        let _content = inode.content().write();
        if let Err(error) = file::flush(self, inode) {
            // The data goes on waiting, and a sync reports the error.
            tracing::error!(inode = %inode.number, %error, "data could not be written at a close");
        }
    }

    pub(crate) fn do_sync(&self) -> Result<()> {
        if self.volume.read_only.is_some() {
            return Ok(());
        }
        file::write_back_all(self)?;
        self.volume.journal.commit_and_wait()?;
        Ok(())
    }

    pub(crate) fn do_statistics(&self) -> FileSystemStatistics {
        let free = self.allocator.groups.free_counts();
        let layout = self.volume.layout();
        let (overhead, identifier) = self.volume.with_superblock(|superblock| {
            let uuid = superblock.uuid();
            let (low, high) = uuid.split_at(8);
            let half = |bytes: &[u8]| {
                bytes.iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
            };
            (self.overhead(superblock), half(low) ^ half(high))
        });
        let blocks = layout.blocks_count().saturating_sub(overhead);
        let inodes = u64::from(layout.inodes_count());
        // An image that grows has more free space for a moment than its layout says.
        let blocks_free = free.blocks.min(blocks);
        FileSystemStatistics {
            block_size: layout.block_size() as u32,
            blocks,
            blocks_free,
            blocks_available: blocks_free.saturating_sub(free.reserved_blocks),
            inodes,
            inodes_free: free.inodes.min(inodes),
            name_length_max: NAME_LENGTH_MAX as u32,
            identifier,
        }
    }

    pub(crate) fn do_freeze(&self) -> Result<()> {
        self.hold_still()?.allow_thaw();
        Ok(())
    }

    /// Freezes the image, with everything in its place. Operations of several handles may be between two
    /// of them.
    pub(crate) fn hold_still(&self) -> Result<HeldImage<'_>> {
        let held = self.hold()?;
        self.freeze_held(&held)?;
        Ok(held)
    }

    /// The same with no operation between two handles.
    pub(crate) fn hold_complete(&self) -> Result<HeldImage<'_>> {
        let held = self.hold()?;
        loop {
            self.freeze_held(&held)?;
            if !held.is_any_in_steps() {
                return Ok(held);
            }
            held.let_steps_end();
        }
    }

    fn hold(&self) -> Result<HeldImage<'_>> {
        self.volume.check_writable()?;
        Ok(self.volume.freeze.hold().ok_or(Errno::EBUSY)?)
    }

    fn freeze_held(&self, held: &HeldImage<'_>) -> Result<()> {
        self.note_waiting_damage();
        loop {
            self.do_sync()?;
            held.freeze();
            let delayed = &self.delayed_allocation;
            if !delayed.is_any() && !delayed.is_any_waiting() {
                break;
            }
            // A thread was about to write: its data has to be in the image as well.
            held.unfreeze();
        }
        // Handles that were open end in the transaction that this commits.
        let journal = &self.volume.journal;
        journal.commit_and_wait().and_then(|()| journal.checkpoint_all())?;
        Ok(())
    }

    pub(crate) fn do_thaw(&self) -> Result<()> {
        if self.volume.freeze.thaw() { Ok(()) } else { Err(Errno::EINVAL.into()) }
    }
}
