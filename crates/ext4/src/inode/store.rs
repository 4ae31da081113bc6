//! Inodes by number, from memory or from the image: the context of everything that works on inodes.
//!
//! # Locking
//! No lock is held while the image is read. Of two threads that read one inode at the same time, the
//! second finds the first one's in the table, or decodes the record again if that has left by then.

use super::recent::UsedDirectory;
use super::table::HeldInode;
use super::{Fields, Inode, InodeTable, RecordLocation, XattrArea};
use crate::alloc::Allocator;
use crate::dentry_cache::DentryBudget;
use crate::error::{Error, Result};
use crate::volume::Volume;
use drystone_cache::Buffer;
use drystone_ext4_format::inode::{Inode as DiskInode, InodeTimestamp};
use drystone_ext4_format::{Corrupt, InodeNumber};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_sync::atomic::Ordering;
use drystone_vfs::Errno;

/// Inodes, and what they are stored in.
#[derive(Debug)]
pub struct InodeStore {
    /// Device, cache, journal and superblock.
    pub(crate) volume: Arc<Volume>,
    /// Allocates blocks and inodes.
    pub(crate) allocator: Arc<Allocator>,
    /// Inodes in memory.
    pub(crate) inodes: InodeTable,
    /// Memory for the dentry caches.
    pub(crate) dentry_budget: Arc<DentryBudget>,
}

impl InodeStore {
    /// The time to stamp changes with.
    pub(crate) fn now(&self) -> InodeTimestamp {
        let (seconds, nanoseconds) = drystone_sync::clock::wall_coarse();
        InodeTimestamp { seconds, nanoseconds }
    }

    /// Ends the handle of an operation: see [`Volume::settle`].
    #[inline]
    pub(crate) fn settle<T>(&self, handle: Handle<'_>, done: Result<T>) -> Result<T> {
        self.volume.settle(handle, done)
    }

    /// Frees an inode with `free` if it has neither names nor references. Does nothing if another thread
    /// does that. After a failure it can be tried again, as the end of a mount does, unless it is damaged.
    pub(crate) fn free_unused(
        &self,
        inode: &Inode,
        free: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !self.claim_unused(inode) {
            return Ok(());
        }
        free().inspect_err(|error| {
            if !matches!(error, Error::Corrupt(_)) {
                self.inodes.end_claim(inode);
            }
        })
    }

    fn claim_unused(&self, inode: &Inode) -> bool {
        // A thread that takes the last name counts it down before it looks for references, and one that
        // gives back the last reference counts that down before it looks for names. So one of the two
        // sees both gone. The claim lets only one go on.
        let is_claimed = inode.is_claimed.load(Ordering::Relaxed);
        !is_claimed && inode.is_nameless() && self.inodes.claim(inode)
    }

    /// Puts an inode whose number was just allocated into memory and into the inode table.
    pub(crate) fn write_new(&self, handle: &mut Handle<'_>, disk: DiskInode) -> Result<Arc<Inode>> {
        let number = disk.number;
        let place = RecordLocation::new(&self.volume, self.allocator.inodes.table_block(number)?);
        let table = self.volume.read(place.block)?;
        let xattr_area = XattrArea::new(disk.attribute_area(self.volume.layout()).len());
        let fields = Fields::new(disk, xattr_area, &table);
        let inode = Arc::new(Inode::new(self, number, place, fields)?);
        self.inodes.insert_new(Arc::clone(&inode))?;
        inode.update(self, handle, |_| Ok(()))?;
        // Data can't be found without its inode: as on Linux, the first sync of any kind makes the inode
        // durable.
        inode.note_data_change(handle);
        Ok(inode)
    }

    /// The inode that a name stands for.
    pub(crate) fn inode(&self, number: InodeNumber) -> Result<Arc<Inode>> {
        self.volume.check_nameable(number)?;
        let inode = self.own_inode(number)?;
        if inode.links_count() == 0 {
            return Err(Corrupt::InodeFree { inode: number }.into());
        }
        if inode.holds_value() {
            return Err(Corrupt::InodeReserved { inode: number }.into());
        }
        Ok(inode)
    }

    /// An inode that the file system itself uses: the journal, a quota file, the value of an attribute.
    pub(crate) fn own_inode(&self, number: InodeNumber) -> Result<Arc<Inode>> {
        if let Some(inode) = self.inodes.get(number) {
            return Ok(inode);
        }
        self.load_inode(number, |fields| {
            // A deleted inode doesn't enter the table, where it would keep its number from new files.
            if fields.disk.links_count == 0 {
                return Err(Corrupt::InodeFree { inode: number }.into());
            }
            Ok(())
        })
    }

    /// An inode from the orphan record; it may have no names.
    pub(crate) fn orphan_inode(&self, number: InodeNumber) -> Result<Arc<Inode>> {
        self.load_inode(number, |_| Ok(()))
    }

    fn load_inode(
        &self,
        number: InodeNumber,
        check: impl Fn(&Fields) -> Result<()>,
    ) -> Result<Arc<Inode>> {
        let place = RecordLocation::new(&self.volume, self.allocator.inodes.table_block(number)?);
        // Read first: a record that has to be decoded again is in memory then.
        let buffer = self.volume.read(place.block)?;
        self.inodes.get_or_add(number, || {
            let inode = self.decode_inode(number, place, &buffer)?;
            check(&inode.fields())?;
            Ok(inode)
        })
    }

    /// An inode decoded from its record as it is now, even if the inode is in memory.
    #[cfg(test)]
    pub(crate) fn inode_now(&self, number: InodeNumber) -> Result<Inode> {
        let place = RecordLocation::new(&self.volume, self.allocator.inodes.table_block(number)?);
        self.decode_inode(number, place, &self.volume.read(place.block)?)
    }

    fn decode_inode(
        &self,
        number: InodeNumber,
        place: RecordLocation,
        buffer: &Arc<Buffer>,
    ) -> Result<Inode> {
        let layout = self.volume.layout();
        let bytes = buffer.read();
        let record = &bytes[place.record(layout)];
        let disk = match place.part() {
            // It was changed, and its checksum waits for a commit.
            Some(part) if bytes.is_unfinished(part) => {
                DiskInode::check_unsealed(record, number, layout)?
            }
            _ => DiskInode::check(record, number, layout)?,
        };
        let xattr_area = XattrArea::load(&record[disk.attribute_area(layout)]);
        let fields = Fields::new(disk, xattr_area, buffer);
        let inode = Inode::new(self, number, place, fields)?;
        // The record may not be durable yet: a changed inode may leave memory before its commit.
        inode.note_loaded(self.volume.journal.running_tid(), self.volume.device.mark());
        Ok(inode)
    }

    /// A directory that a caller holds a reference to, for one operation; `ESTALE` for any other number, and perhaps
    /// another inode than a directory.
    pub(crate) fn held_directory(
        &self,
        number: drystone_vfs::InodeNumber,
    ) -> Result<UsedDirectory> {
        let directory = u32::try_from(number.0).map_err(|_| Error::Errno(Errno::ESTALE))?;
        self.inodes.used_directory(InodeNumber::new(directory), || self.held(number))
    }

    /// An inode that a caller holds a reference to; `ESTALE` for any other.
    pub(crate) fn held(&self, number: drystone_vfs::InodeNumber) -> Result<Arc<Inode>> {
        let number = u32::try_from(number.0).map_err(|_| Error::Errno(Errno::ESTALE))?;
        let number = InodeNumber::new(number);
        match self.inodes.held(number) {
            Some(HeldInode::Here(inode)) => Ok(inode),
            // A thread that removes its last name meanwhile loads it, and the reference keeps it then.
            Some(HeldInode::Parked) => self.own_inode(number),
            // The root is held by the mount, and loaded when it is first asked for.
            None if number == InodeNumber::ROOT => self.inode(number),
            None => Err(Error::Errno(Errno::ESTALE)),
        }
    }
}
