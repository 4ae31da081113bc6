//! Quota files as a whole: opening them at mount, growing them before they need room, administration.
//!
//! # Crash
//! The record of an owner is made in a handle before that of the limits or the usage that need it. A
//! change of limits is one handle.

use super::Engine;
use crate::alloc::with_space_retry;
use crate::credits;
use crate::error::{Error, Result};
use crate::mapping;
use crate::quota::{self, Owners, QuotaLimits, UsageContent, UsageFile};
use drystone_cache::Seal;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::quota::{QuotaEntry, QuotaInfo, QuotaKind};
use drystone_ext4_format::{Corrupt, InodeNumber, LogicalBlock, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Errno, RequestContext};

/// The longest quota file, as for e2fsck. The numbers of all its blocks are kept in memory.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// What the owners of one kind use, and may use.
#[derive(Clone, Debug)]
pub struct QuotaReport {
    /// Users, groups or projects.
    pub kind: QuotaKind,
    /// Grace periods and flags, which hold for all of them.
    pub info: QuotaInfo,
    /// The owners that have or had anything, by number.
    pub entries: Vec<QuotaEntry>,
}

impl Engine {
    /// Usage and limits of all owners, by kind. Empty if the image counts none.
    ///
    /// # Errors
    /// A usage file can't be read, or is damaged.
    pub fn quota_reports(&self) -> Result<Vec<QuotaReport>> {
        let mut reports = Vec::new();
        for (kind, number) in quota::file_numbers(self) {
            // Opened here, since a read-only mount keeps none open.
            let (info, entries) = self.open_usage_file(kind, number)?.report(self)?;
            reports.push(QuotaReport { kind, info, entries });
        }
        Ok(reports)
    }

    /// Sets the limits of a user, group or project. If one is exceeded, its grace period begins.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the image doesn't count usage of this kind.
    pub fn set_quota_limits(&self, kind: QuotaKind, id: u32, limits: &QuotaLimits) -> Result<()> {
        let file = self.usage_file(kind)?;
        self.ensure_record(file, id)?;
        self.in_handle(|handle| file.set_limits(self, handle, id, limits))
    }

    /// Sets the grace periods of a kind, in seconds. A grace period that has begun keeps its end.
    ///
    /// # Errors
    /// As [`set_quota_limits`](Engine::set_quota_limits).
    pub fn set_quota_grace(
        &self,
        kind: QuotaKind,
        space_seconds: u32,
        inode_seconds: u32,
    ) -> Result<()> {
        let file = self.usage_file(kind)?;
        self.in_handle(|handle| file.set_grace(self, handle, space_seconds, inode_seconds))
    }

    fn usage_file(&self, kind: QuotaKind) -> Result<&UsageFile> {
        self.volume.check_writable()?;
        let file = self.quotas.files().iter().find(|file| file.kind() == kind);
        file.ok_or(Error::Errno(Errno::EOPNOTSUPP))
    }

    fn in_handle(&self, work: impl FnOnce(&mut Handle<'_>) -> Result<()>) -> Result<()> {
        let mut handle = self.volume.start(credits::QUOTA_RECORD)?;
        let done = work(&mut handle);
        self.settle(handle, done)
    }

    /// Opens the files of the image, if it has any. They are read as a whole, so that damage is
    /// found before anything depends on them.
    pub(crate) fn open_quotas(&self) -> Result<()> {
        if self.volume.read_only.is_some() {
            return Ok(());
        }
        let numbers = quota::file_numbers(self).into_iter();
        let files: Result<_> =
            numbers.map(|(kind, number)| self.open_usage_file(kind, number)).collect();
        self.quotas.set_files(files?);
        Ok(())
    }

    fn open_usage_file(&self, kind: QuotaKind, number: InodeNumber) -> Result<UsageFile> {
        let inode = self.own_inode(number)?;
        let block_size = self.volume.block_size() as u64;
        let hole = |_| Corrupt::Missing { feature: "quota", missing: "block of a quota file" };
        let size_bytes = inode.fields().disk.size_bytes;
        // A new file has six blocks of the quota format, which may end within a block.
        let blocks = size_bytes.div_ceil(block_size);
        let extents = mapping::whole(self, &inode, blocks, FILE_BYTES_MAX / block_size, hole)?;
        let blocks_of = |extent: &Extent| {
            let first = extent.physical.get();
            (first..first + u64::from(extent.length)).map(PhysicalBlock::new)
        };
        let blocks = extents.iter().flat_map(blocks_of).collect();
        UsageFile::new(self, kind, inode, UsageContent { blocks, size_bytes })
    }

    /// Makes sure that the owners have records. Called without a handle, before one is started
    /// that gives the owners an inode.
    pub(crate) fn prepare_quota(&self, owners: Owners) -> Result<()> {
        for file in self.quotas.files() {
            self.ensure_record(file, file.owner(owners))?;
        }
        Ok(())
    }

    /// Makes sure that an id has a record.
    fn ensure_record(&self, file: &UsageFile, id: u32) -> Result<()> {
        if file.get(self, id)?.is_some() {
            return Ok(());
        }
        let _content = file.inode().content().write();
        while !file.has_room(self)? {
            with_space_retry(&self.volume, || {
                let mut handle = self.volume.start(credits::QUOTA_GROWTH)?;
                let grown = self.grow_usage_file(&mut handle, file);
                self.settle(handle, grown)
            })?;
        }
        let mut handle = self.volume.start(credits::QUOTA_RECORD)?;
        let added = file.add(self, &mut handle, id);
        self.settle(handle, added)
    }

    /// Makes a file longer, whose content lock is held: to the end of its last block, or by a block.
    fn grow_usage_file(&self, handle: &mut Handle<'_>, file: &UsageFile) -> Result<()> {
        let (inode, length) = (file.inode(), file.length());
        let block_size = self.volume.block_size() as u64;
        let set_size = |handle: &mut Handle<'_>, size_bytes| {
            inode.update(self, handle, |fields| {
                fields.disk.size_bytes = size_bytes;
                Ok(())
            })
        };
        let mapped_bytes = length as u64 * block_size;
        if inode.fields().disk.size_bytes < mapped_bytes {
            set_size(handle, mapped_bytes)?;
            file.extend(None, mapped_bytes);
            return Ok(());
        }
        // Block numbers in the tree are 32 bits wide.
        let logical = LogicalBlock::new(length as u32);
        let context = RequestContext::superuser();
        let run = mapping::allocate(self, handle, &context, inode, logical, 1)?;
        let extent = Extent::of_block(logical, run.physical);
        if let Err(error) = mapping::insert(self, handle, inode, extent) {
            mapping::release_unmapped(self, handle, inode, &run)?;
            return Err(error);
        }
        let buffer = self.volume.zeroed(run.physical)?;
        drop(handle.create(&buffer, None::<&Arc<dyn Seal>>)?);
        set_size(handle, mapped_bytes + block_size)?;
        file.extend(Some(run.physical), mapped_bytes + block_size);
        Ok(())
    }
}
