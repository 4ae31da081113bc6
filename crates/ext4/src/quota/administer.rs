//! What administrators ask and set: usage, limits, times of grace.
//!
//! # Crash
//! A record that is made for limits is there before them, as for usage. A change is one handle.

use super::file::UsageFile;
use super::limits::{Account, QuotaLimits};
use super::{Quotas, owners};
use crate::credits;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::Inode;
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::quota::{QuotaEntry, QuotaInfo, QuotaKind};
use drystone_jbd2::Handle;
use drystone_vfs::{Errno, FileSystemStatistics};

/// What the owners of one kind use, and may use.
#[derive(Clone, Debug)]
pub struct QuotaReport {
    /// Users, groups or projects.
    pub kind: QuotaKind,
    /// What holds for all of them.
    pub info: QuotaInfo,
    /// Who has anything or had, by number.
    pub entries: Vec<QuotaEntry>,
}

impl Quotas {
    /// Shows a directory whose content belongs to a project with limits as being as large as they are.
    pub fn limit_statistics(
        &self,
        fs: &Engine,
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
        let space = Account::space(&entry);
        if let Some(limit) = space.limit().map(|bytes| bytes / block_size)
            && limit != 0
            && limit < statistics.blocks
        {
            let left = limit.saturating_sub(space.used / block_size);
            statistics.blocks = limit;
            statistics.blocks_free = statistics.blocks_free.min(left);
            statistics.blocks_available = statistics.blocks_available.min(left);
        }
        let inodes = Account::inodes(&entry);
        if let Some(limit) = inodes.limit()
            && limit < statistics.inodes
        {
            statistics.inodes = limit;
            statistics.inodes_free = statistics.inodes_free.min(limit.saturating_sub(inodes.used));
        }
        Ok(())
    }
}

impl Engine {
    /// Usage and limits of all owners, by kind. Empty if the image counts none.
    ///
    /// # Errors
    /// A usage file can't be read, or is damaged.
    pub fn quota_reports(&self) -> Result<Vec<QuotaReport>> {
        let mut reports = Vec::new();
        for (kind, number) in super::file_numbers(self) {
            // A mount that changes nothing keeps none open.
            let (info, entries) = UsageFile::open(self, kind, number)?.report(self)?;
            reports.push(QuotaReport { kind, info, entries });
        }
        Ok(reports)
    }

    /// Sets the limits of a user, group or project. If one is exceeded, its time of grace begins.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the image doesn't count usage of this kind.
    pub fn set_quota_limits(&self, kind: QuotaKind, id: u32, limits: &QuotaLimits) -> Result<()> {
        let file = self.usage_file(kind)?;
        file.ensure(self, id)?;
        self.in_handle(|handle| file.set_limits(self, handle, id, limits))
    }

    /// Sets for how many seconds the soft limits of a kind may be exceeded. Grace that runs ends when
    /// it would have.
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
}
