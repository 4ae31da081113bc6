//! Updates the quota usage of owners whose files got more or fewer nodes or pointer blocks.

use super::Rewriter;
use super::map::MappedRun;
use crate::error::{Refusal, Result};
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::features::ReadOnlyCompat;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::quota::{MemoryQuotaBlocks, QuotaFile, QuotaKind};
use std::collections::BTreeMap;

/// By how many bytes the usage of each owner has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UsageChange {
    users: BTreeMap<u32, i64>,
    groups: BTreeMap<u32, i64>,
    projects: BTreeMap<u32, i64>,
}

impl UsageChange {
    /// Counts an inode that had so many sectors before.
    pub fn add(&mut self, inode: &Inode, sectors: u64, layout: &Layout) {
        // Inodes of the file system itself belong to nobody.
        let is_own = inode.number < layout.first_inode() && inode.number != InodeNumber::ROOT;
        if inode.sectors == sectors || is_own || inode.flags.contains(InodeFlags::EA_INODE) {
            return;
        }
        let change = (inode.sectors as i64 - sectors as i64) * 512;
        *self.users.entry(inode.user).or_default() += change;
        *self.groups.entry(inode.group).or_default() += change;
        *self.projects.entry(inode.project.unwrap_or(0)).or_default() += change;
    }

    /// Writes the changes to the quota files.
    pub fn settle(self, rewriter: &mut Rewriter<'_, '_>) -> Result<()> {
        let superblock = &rewriter.image.superblock;
        if !superblock.features().read_only_compat.contains(ReadOnlyCompat::QUOTA) {
            return Ok(());
        }
        for (kind, number, changes) in [
            (QuotaKind::User, superblock.user_quota_inode(), self.users),
            (QuotaKind::Group, superblock.group_quota_inode(), self.groups),
            (QuotaKind::Project, superblock.project_quota_inode(), self.projects),
        ] {
            if let Some(number) = number
                && !changes.is_empty()
            {
                settle_file(rewriter, kind, number, &changes)?;
            }
        }
        Ok(())
    }
}

fn settle_file(
    rewriter: &mut Rewriter<'_, '_>,
    kind: QuotaKind,
    number: InodeNumber,
    changes: &BTreeMap<u32, i64>,
) -> Result<()> {
    let (inode, _) = rewriter.image.read_inode(number)?;
    let runs = rewriter.data_runs(&inode)?;
    let blocks: Vec<_> = runs.iter().flat_map(MappedRun::blocks).collect();
    let mut bytes = Vec::new();
    for &block in &blocks {
        bytes.extend(rewriter.image.read_block(block)?);
    }
    let mut file = QuotaFile::open(kind, MemoryQuotaBlocks::from_bytes(&bytes))?;
    for (&id, change) in changes {
        // Every owner of a file has an entry.
        let mut entry = file.get(id)?.ok_or(Refusal::HasErrors)?;
        entry.space_bytes = entry.space_bytes.saturating_add_signed(*change);
        file.set(&entry)?;
    }
    let bytes = file.into_blocks().to_bytes();
    let size = rewriter.image.layout.block_size();
    for (block, bytes) in blocks.iter().zip(bytes.chunks(size)) {
        rewriter.image.write_block(*block, bytes)?;
    }
    Ok(())
}
