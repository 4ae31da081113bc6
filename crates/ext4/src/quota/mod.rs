//! Quota: what users, groups and projects use, in hidden files of the image.
//!
//! Usage is exact at every commit: a change of space or inodes and the change of its owners'
//! records are in one transaction. Limits that can't be exceeded are kept, for contexts that may
//! not administrate; limits that can be exceeded for a time are stored and have no effect, nor have
//! their times of grace.
//!
//! # State
//! Where the blocks of the files are. The records are in the files' buffers and nowhere else. Data that
//! waits for its blocks is not in them; how much it will add is kept beside, and counts for limits.
//!
//! # Locking
//! A file's lock (class quota) is held for one look or change of its tree. A file grows under the
//! content lock of its inode, in handles of its own and before the operation that needs a new record
//! starts its handle; so nothing that changes usage can run out of space.
//!
//! # Crash
//! A crash after a file has grown, or has got a record, leaves room or a record without usage.
//!
//! # Reference
//! quota(8); the format crate's `quota` module.

mod file;
#[cfg(test)]
mod tests;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::lock_classes;
use crate::xattr;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::features::ReadOnlyCompat;
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::quota::{QuotaEntry, QuotaKind, SPACE_LIMIT_UNIT};
use drystone_jbd2::Handle;
use drystone_sync::{Mutex, OnceLock};
use drystone_vfs::{Capabilities, Errno, RequestContext};
use file::UsageFile;
use std::collections::HashMap;

const SECTOR_BYTES: i64 = 512;

/// User, group, project.
pub(crate) type Owners = [u32; 3];

/// The owners of an inode.
pub(crate) fn owners(inode: &Inode) -> Owners {
    let fields = inode.fields();
    [fields.disk.user, fields.disk.group, fields.disk.project.unwrap_or(0)]
}

/// A change of what an id uses.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    bytes: i64,
    inodes: i64,
}

impl Usage {
    fn add_to(self, entry: &mut QuotaEntry) {
        // A wrong record must not keep anything from being freed.
        entry.space_bytes = entry.space_bytes.saturating_add_signed(self.bytes);
        entry.inodes = entry.inodes.saturating_add_signed(self.inodes);
    }
}

/// The usage files of a mounted image; none without the quota feature, or on a read-only mount.
#[derive(Debug)]
pub(crate) struct Quotas {
    files: OnceLock<Vec<UsageFile>>,
    claims: Mutex<Claims>,
}

/// Bytes that data will use which waits for its blocks, by the number of the usage file and the owner.
type Claims = HashMap<(usize, u32), u64>;

impl Quotas {
    /// Nothing is counted yet.
    pub fn new() -> Quotas {
        let claims = Mutex::new(&lock_classes::QUOTA_CLAIMS, Claims::new());
        Quotas { files: OnceLock::new(), claims }
    }

    /// Opens the files of the image, if it has any. They are read as a whole, so that damage is
    /// found before anything depends on them.
    pub fn open(&self, fs: &Engine) -> Result<()> {
        let is_on = fs.volume.features.read_only_compat.contains(ReadOnlyCompat::QUOTA);
        if !is_on || fs.volume.read_only.is_some() {
            return Ok(());
        }
        let numbers = fs.volume.with_superblock(|superblock| {
            [
                (QuotaKind::User, superblock.user_quota_inode()),
                (QuotaKind::Group, superblock.group_quota_inode()),
                (QuotaKind::Project, superblock.project_quota_inode()),
            ]
        });
        let mut files = Vec::new();
        for (kind, number) in numbers {
            if let Some(number) = number {
                files.push(UsageFile::open(fs, kind, number)?);
            }
        }
        // Opened once, when the image is.
        let _ = self.files.set(files);
        Ok(())
    }

    fn files(&self) -> &[UsageFile] {
        self.files.get().map_or(&[], Vec::as_slice)
    }

    /// Whether usage of this inode is counted, and anybody's.
    fn counts(&self, fs: &Engine, inode: &Inode) -> bool {
        let ordinary =
            inode.number == InodeNumber::ROOT || inode.number >= fs.volume.layout.first_inode();
        !self.files().is_empty()
            && ordinary
            && !inode.flags().contains(InodeFlags::EA_INODE)
            && !self.files().iter().any(|file| file.inode().number == inode.number)
    }

    /// Fails with `EDQUOT` if the owners may not have another inode.
    pub fn check_inode(&self, fs: &Engine, context: &RequestContext, owners: Owners) -> Result<()> {
        self.check(fs, context, owners, &Claims::new(), |entry, _| {
            entry.inode_hard_limit != 0 && entry.inodes >= entry.inode_hard_limit
        })
    }

    /// Fails with `EDQUOT` if the inode's owners may not use so many more bytes.
    pub fn check_space(
        &self,
        fs: &Engine,
        context: &RequestContext,
        inode: &Inode,
        bytes: u64,
    ) -> Result<()> {
        if self.files().is_empty() {
            return Ok(());
        }
        self.check_bytes(fs, context, owners(inode), &self.claims.lock(), bytes)
    }

    /// Claims space for data that will wait: whoever looks at limits sees it used.
    ///
    /// # Errors
    /// As [`check_space`](Quotas::check_space); nothing is claimed then.
    pub fn claim_space(
        &self,
        fs: &Engine,
        context: &RequestContext,
        inode: &Inode,
        bytes: u64,
    ) -> Result<()> {
        if !self.counts(fs, inode) {
            return Ok(());
        }
        let owners = owners(inode);
        let mut claims = self.claims.lock();
        self.check_bytes(fs, context, owners, &claims, bytes)?;
        for (number, file) in self.files().iter().enumerate() {
            *claims.entry((number, file.owner(owners))).or_default() += bytes;
        }
        Ok(())
    }

    /// Ends a claim: the space is used, or will not be. The owners are those that claimed it.
    pub fn end_claim(&self, fs: &Engine, inode: &Inode, bytes: u64) {
        if !self.counts(fs, inode) {
            return;
        }
        let owners = owners(inode);
        let mut claims = self.claims.lock();
        for (number, file) in self.files().iter().enumerate() {
            let key = (number, file.owner(owners));
            let left = claims.get(&key).map_or(0, |claimed| claimed.saturating_sub(bytes));
            if left == 0 {
                claims.remove(&key);
            } else {
                claims.insert(key, left);
            }
        }
    }

    /// Whether usage is counted.
    pub fn is_any(&self) -> bool {
        !self.files().is_empty()
    }

    fn check_bytes(
        &self,
        fs: &Engine,
        context: &RequestContext,
        owners: Owners,
        claims: &Claims,
        bytes: u64,
    ) -> Result<()> {
        self.check(fs, context, owners, claims, |entry, claimed| {
            let limit = entry.space_hard_limit.saturating_mul(SPACE_LIMIT_UNIT);
            limit != 0 && entry.space_bytes.saturating_add(claimed).saturating_add(bytes) > limit
        })
    }

    fn check(
        &self,
        fs: &Engine,
        context: &RequestContext,
        owners: Owners,
        claims: &Claims,
        exceeds: impl Fn(&QuotaEntry, u64) -> bool,
    ) -> Result<()> {
        if self.files().is_empty() || context.has(Capabilities::ADMINISTER) {
            return Ok(());
        }
        for (number, file) in self.files().iter().enumerate() {
            let owner = file.owner(owners);
            let claimed = claims.get(&(number, owner)).copied().unwrap_or(0);
            if file.get(fs, owner)?.is_some_and(|entry| exceeds(&entry, claimed)) {
                return Err(Error::Errno(Errno::EDQUOT));
            }
        }
        Ok(())
    }

    /// Makes sure that the owners have records. Called without a handle, before one is started
    /// that gives the owners an inode.
    pub fn prepare(&self, fs: &Engine, owners: Owners) -> Result<()> {
        for file in self.files() {
            file.ensure(fs, file.owner(owners))?;
        }
        Ok(())
    }

    /// An inode came to be.
    pub fn inode_allocated(
        &self,
        fs: &Engine,
        handle: &mut Handle<'_>,
        inode: &Inode,
    ) -> Result<()> {
        self.add(fs, handle, inode, Usage { bytes: 0, inodes: 1 })
    }

    /// An inode is freed; its space was before.
    pub fn inode_freed(&self, fs: &Engine, handle: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        self.add(fs, handle, inode, Usage { bytes: 0, inodes: -1 })
    }

    /// Space of an inode changes by so many 512-byte sectors.
    pub fn space_changed(
        &self,
        fs: &Engine,
        handle: &mut Handle<'_>,
        inode: &Inode,
        sectors: i64,
    ) -> Result<()> {
        self.add(fs, handle, inode, Usage { bytes: sectors * SECTOR_BYTES, inodes: 0 })
    }

    /// Inodes that hold values of attributes of this one count as its owner's.
    pub fn value_inodes_changed(
        &self,
        fs: &Engine,
        handle: &mut Handle<'_>,
        inode: &Inode,
        inodes: i64,
    ) -> Result<()> {
        if inodes == 0 {
            return Ok(());
        }
        self.add(fs, handle, inode, Usage { bytes: 0, inodes })
    }

    fn add(
        &self,
        fs: &Engine,
        handle: &mut Handle<'_>,
        inode: &Inode,
        change: Usage,
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

    /// The inode's usage moves to other owners, who have records. Called before the inode changes,
    /// with its content and attributes locked so that its usage doesn't.
    pub fn owners_changed(
        &self,
        fs: &Engine,
        handle: &mut Handle<'_>,
        inode: &Inode,
        new: Owners,
    ) -> Result<()> {
        if !self.counts(fs, inode) {
            return Ok(());
        }
        let old = owners(inode);
        if old == new {
            return Ok(());
        }
        let bytes = inode.fields().disk.sectors as i64 * SECTOR_BYTES;
        let inodes = 1 + xattr::value_inodes(fs, inode)? as i64;
        for file in self.files() {
            let (from, to) = (file.owner(old), file.owner(new));
            if from != to {
                file.change(fs, handle, from, Usage { bytes: -bytes, inodes: -inodes })?;
                file.change(fs, handle, to, Usage { bytes, inodes })?;
            }
        }
        Ok(())
    }
}
