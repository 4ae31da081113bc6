//! Quota: what users, groups and projects use, in hidden files of the image.
//!
//! Usage is exact at every commit: a change of space or inodes and the change of its owners'
//! records are in one transaction, and so are the grace periods that begin or end with it. Limits
//! are kept as Linux keeps them (`limits`), for contexts that may not administrate. They hold
//! on every mount, as with ext4's options `usrquota`, `grpquota` and `prjquota`.
//!
//! # State
//! Where the blocks of the files are. The records are only in the files' buffers. Data that waits for
//! blocks is not in them. The space that it will use is kept beside as claims, which count for limits
//! and may begin a grace period; a record gets that when used space alone exceeds the limit.
//!
//! # Locking
//! A file's lock (class quota) is held while its tree and its claims are read or changed once. A file
//! grows (`operations`) under the content lock of its inode, in handles of its own, before the operation
//! that needs a new record starts its handle. So no change of usage can run out of space. Limits of
//! inodes, and of space that is allocated at once, are checked before the usage is counted: threads that
//! check at the same time may together exceed a limit by what they ask for.
//!
//! # Crash
//! A crash after a file has grown, or has got a record, leaves room or a record without usage.
//!
//! # Reference
//! quota(8), quotactl(2); the format crate's `quota` module.

mod file;
mod limits;
#[cfg(test)]
mod tests;

pub(crate) use file::{UsageContent, UsageFile};
pub use limits::QuotaLimits;

use crate::error::Result;
use crate::inode::{Inode, InodeStore};
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::features::ReadOnlyCompat;
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::quota::{QuotaEntry, QuotaKind};
use drystone_jbd2::Handle;
use drystone_sync::OnceLock;
use drystone_vfs::{Capabilities, FileSystemStatistics, RequestContext};
use limits::QuotaAccount;
use std::ops::Neg;

const SECTOR_BYTES: i64 = 512;

/// User, group, project.
pub(crate) type Owners = [u32; 3];

/// The owners of an inode.
pub(crate) fn owners(inode: &Inode) -> Owners {
    let fields = inode.fields();
    [fields.disk.user, fields.disk.group, fields.disk.project.unwrap_or(0)]
}

/// Whether limits don't hold for the caller, as on Linux for one with `CAP_SYS_RESOURCE`.
fn is_exempt(context: &RequestContext) -> bool {
    context.has(Capabilities::ADMINISTER)
}

/// A change of what an id uses.
#[derive(Clone, Copy, Debug, Default)]
struct UsageChange {
    bytes: i64,
    inodes: i64,
}

impl UsageChange {
    fn add_to(self, entry: &mut QuotaEntry) {
        // Space can be freed although the record is wrong.
        entry.space_bytes = entry.space_bytes.saturating_add_signed(self.bytes);
        entry.inodes = entry.inodes.saturating_add_signed(self.inodes);
    }
}

/// How much an id asks for of each resource; `None`: it doesn't ask. A demand of zero is refused too if
/// the limit is exceeded.
#[derive(Clone, Copy, Debug, Default)]
struct QuotaDemand {
    bytes: Option<u64>,
    inodes: Option<u64>,
}

impl Neg for UsageChange {
    type Output = UsageChange;

    fn neg(self) -> UsageChange {
        UsageChange { bytes: -self.bytes, inodes: -self.inodes }
    }
}

/// The inodes of the image's usage files.
pub(crate) fn file_numbers(fs: &InodeStore) -> Vec<(QuotaKind, InodeNumber)> {
    if !fs.volume.features.read_only_compat.contains(ReadOnlyCompat::QUOTA) {
        return Vec::new();
    }
    let numbers = fs.volume.with_superblock(|superblock| {
        [
            (QuotaKind::User, superblock.user_quota_inode()),
            (QuotaKind::Group, superblock.group_quota_inode()),
            (QuotaKind::Project, superblock.project_quota_inode()),
        ]
    });
    numbers.into_iter().filter_map(|(kind, number)| Some((kind, number?))).collect()
}

/// The usage files of a mounted image; none without the quota feature, or on a read-only mount.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    files: OnceLock<Vec<UsageFile>>,
}

impl Quotas {
    /// Nothing is counted yet.
    pub fn new() -> Quotas {
        Quotas { files: OnceLock::new() }
    }

    /// Sets the files of the image, which are open.
    pub fn set_files(&self, files: Vec<UsageFile>) {
        // They are opened once, with the image.
        let _ = self.files.set(files);
    }

    /// The files, one for each kind of owner.
    pub fn files(&self) -> &[UsageFile] {
        self.files.get().map_or(&[], Vec::as_slice)
    }

    /// Whether usage of this inode is counted: not without quota files, nor for hidden inodes and those
    /// that hold values of attributes.
    fn counts(&self, fs: &InodeStore, inode: &Inode) -> bool {
        let ordinary =
            inode.number == InodeNumber::ROOT || inode.number >= fs.volume.layout().first_inode();
        !self.files().is_empty()
            && ordinary
            && !inode.flags().contains(InodeFlags::EA_INODE)
            && !self.files().iter().any(|file| file.inode().number == inode.number)
    }

    /// Fails with `EDQUOT` if the owners may not have another inode.
    pub fn check_inode(
        &self,
        fs: &InodeStore,
        context: &RequestContext,
        owners: Owners,
    ) -> Result<()> {
        self.check(fs, context, owners, QuotaDemand { bytes: None, inodes: Some(1) })
    }

    /// Fails with `EDQUOT` if the inode's owners may not use so many more bytes.
    pub fn check_space(
        &self,
        fs: &InodeStore,
        context: &RequestContext,
        inode: &Inode,
        bytes: u64,
    ) -> Result<()> {
        self.check(fs, context, owners(inode), QuotaDemand { bytes: Some(bytes), inodes: None })
    }

    /// Fails with `EDQUOT` if the inode's owners may not have so many more 512-byte sectors and inodes
    /// for its attributes.
    pub fn check_attributes(
        &self,
        fs: &InodeStore,
        context: &RequestContext,
        inode: &Inode,
        sectors: i64,
        inodes: i64,
    ) -> Result<()> {
        let more = |count: i64| u64::try_from(count).ok().filter(|&count| count > 0);
        let demand = QuotaDemand { bytes: more(sectors * SECTOR_BYTES), inodes: more(inodes) };
        self.check(fs, context, owners(inode), demand)
    }

    fn check(
        &self,
        fs: &InodeStore,
        context: &RequestContext,
        owners: Owners,
        demand: QuotaDemand,
    ) -> Result<()> {
        for file in self.files() {
            file.check(fs, file.owner(owners), demand, is_exempt(context))?;
        }
        Ok(())
    }

    /// Claims space for data that will wait. Limits count it as used.
    ///
    /// # Errors
    /// As [`check_space`](Quotas::check_space); nothing is claimed then.
    pub fn claim_space(
        &self,
        fs: &InodeStore,
        context: &RequestContext,
        inode: &Inode,
        bytes: u64,
    ) -> Result<()> {
        if !self.counts(fs, inode) {
            return Ok(());
        }
        let owners = owners(inode);
        for (number, file) in self.files().iter().enumerate() {
            if let Err(error) = file.claim(fs, file.owner(owners), bytes, is_exempt(context)) {
                for claimed in &self.files()[..number] {
                    claimed.end_claim(claimed.owner(owners), bytes);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends a claim: the space is used, or will not be. The inode's owners are still those that claimed
    /// it.
    pub fn end_claim(&self, fs: &InodeStore, inode: &Inode, bytes: u64) {
        if !self.counts(fs, inode) {
            return;
        }
        let owners = owners(inode);
        for file in self.files() {
            file.end_claim(file.owner(owners), bytes);
        }
    }

    /// Whether usage is counted.
    pub fn is_any(&self) -> bool {
        !self.files().is_empty()
    }

    /// Counts a new inode.
    pub fn inode_allocated(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        inode: &Inode,
    ) -> Result<()> {
        self.add(fs, handle, inode, UsageChange { bytes: 0, inodes: 1 })
    }

    /// Counts off an inode that is freed. Its space was freed before.
    pub fn inode_freed(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        inode: &Inode,
    ) -> Result<()> {
        self.add(fs, handle, inode, UsageChange { bytes: 0, inodes: -1 })
    }

    /// Counts a change of an inode's space by so many 512-byte sectors.
    pub fn space_changed(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        inode: &Inode,
        sectors: i64,
    ) -> Result<()> {
        self.add(fs, handle, inode, UsageChange { bytes: sectors * SECTOR_BYTES, inodes: 0 })
    }

    /// Counts inodes that hold values of this one's attributes for its owners.
    pub fn value_inodes_changed(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        inode: &Inode,
        inodes: i64,
    ) -> Result<()> {
        if inodes == 0 {
            return Ok(());
        }
        self.add(fs, handle, inode, UsageChange { bytes: 0, inodes })
    }

    fn add(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        inode: &Inode,
        change: UsageChange,
    ) -> Result<()> {
        if !self.counts(fs, inode) {
            return Ok(());
        }
        let owners = owners(inode);
        for file in self.files() {
            file.change(fs, handle, file.owner(owners), change)?;
        }
        Ok(())
    }

    /// Fails with `EDQUOT` if the inode may not be given to these owners. Its content and attributes
    /// are locked, so that its usage doesn't change.
    pub fn check_owners(
        &self,
        fs: &InodeStore,
        context: &RequestContext,
        inode: &Inode,
        new: Owners,
        value_inodes: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        let old = owners(inode);
        if old == new || !self.counts(fs, inode) {
            return Ok(());
        }
        let UsageChange { bytes, inodes } = usage_of(inode, value_inodes()?);
        let demand =
            QuotaDemand { bytes: Some(bytes.unsigned_abs()), inodes: Some(inodes.unsigned_abs()) };
        for file in self.files().iter().filter(|file| file.owner(old) != file.owner(new)) {
            // The check begins a grace period for an exempt caller as well.
            file.check(fs, file.owner(new), demand, is_exempt(context))?;
        }
        Ok(())
    }

    /// Moves the inode's usage to other owners, which have records. Called before the inode changes,
    /// with the same locks.
    pub fn owners_changed(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        inode: &Inode,
        new: Owners,
        value_inodes: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        let old = owners(inode);
        if old == new || !self.counts(fs, inode) {
            return Ok(());
        }
        let usage = usage_of(inode, value_inodes()?);
        for file in self.files().iter().filter(|file| file.owner(old) != file.owner(new)) {
            file.change(fs, handle, file.owner(old), -usage)?;
            file.change(fs, handle, file.owner(new), usage)?;
        }
        Ok(())
    }

    /// For a directory whose content belongs to a project with limits, shows these as the size of the
    /// file system.
    pub fn limit_statistics(
        &self,
        fs: &InodeStore,
        inode: &Inode,
        statistics: &mut FileSystemStatistics,
    ) -> Result<()> {
        let file = self.files().iter().find(|file| file.kind() == QuotaKind::Project);
        let Some(file) = file.filter(|_| inode.flags().contains(InodeFlags::PROJECT_INHERIT))
        else {
            return Ok(());
        };
        let Some(entry) = file.get_with_claim(fs, file.owner(owners(inode)))? else {
            return Ok(());
        };
        let block_size = u64::from(statistics.block_size);
        let space = QuotaAccount::space(&entry);
        if let Some(limit) = space.limit().map(|bytes| bytes / block_size)
            && limit != 0
            && limit < statistics.blocks
        {
            let left = limit.saturating_sub(space.used / block_size);
            statistics.blocks = limit;
            statistics.blocks_free = statistics.blocks_free.min(left);
            statistics.blocks_available = statistics.blocks_available.min(left);
        }
        let inodes = QuotaAccount::inodes(&entry);
        if let Some(limit) = inodes.limit()
            && limit < statistics.inodes
        {
            statistics.inodes = limit;
            statistics.inodes_free = statistics.inodes_free.min(limit.saturating_sub(inodes.used));
        }
        Ok(())
    }
}

/// What an inode adds to its owners' usage, with the inodes that hold values of its attributes.
fn usage_of(inode: &Inode, value_inodes: u64) -> UsageChange {
    let sectors = inode.fields().disk.sectors as i64;
    UsageChange { bytes: sectors * SECTOR_BYTES, inodes: 1 + value_inodes as i64 }
}
