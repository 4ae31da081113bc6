//! How much each user, group and project uses, summed up while inodes are checked.

use drystone_ext4_format::features::ReadOnlyCompat;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::layout::Layout;
use std::collections::BTreeMap;

/// Space in bytes and inodes in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuotaUse {
    pub space_bytes: u64,
    pub inodes: u64,
}

/// Usage by owner; empty without quota.
#[derive(Debug, Default)]
pub(crate) struct QuotaUsage {
    pub users: BTreeMap<u32, QuotaUse>,
    pub groups: BTreeMap<u32, QuotaUse>,
    pub projects: BTreeMap<u32, QuotaUse>,
}

impl QuotaUsage {
    /// Adds an inode with so many clusters and with so many values in inodes of their own, which
    /// are charged to each inode that refers to them.
    pub fn add(&mut self, inode: &Inode, clusters: u64, values: u64, layout: &Layout) {
        let features = layout.features();
        if !features.read_only_compat.contains(ReadOnlyCompat::QUOTA)
            || inode.flags.contains(InodeFlags::EA_INODE)
        {
            return;
        }
        let cluster_bytes = u64::from(layout.blocks_per_cluster()) * layout.block_size() as u64;
        let space = clusters.saturating_mul(cluster_bytes);
        let ids = [
            (&mut self.users, inode.user),
            (&mut self.groups, inode.group),
            (&mut self.projects, inode.project.unwrap_or(0)),
        ];
        for (usage, id) in ids {
            let used = usage.entry(id).or_default();
            used.space_bytes = used.space_bytes.saturating_add(space);
            used.inodes += 1 + values;
        }
    }

    /// Bytes that the lists take, about.
    pub fn memory_bytes(&self) -> usize {
        let ids = self.users.len() + self.groups.len() + self.projects.len();
        2 * size_of::<(u32, QuotaUse)>() * ids
    }

    /// Adds what other inodes use.
    pub fn add_part(&mut self, part: &QuotaUsage) {
        let both = [
            (&mut self.users, &part.users),
            (&mut self.groups, &part.groups),
            (&mut self.projects, &part.projects),
        ];
        for (usage, part) in both {
            for (id, more) in part {
                let used = usage.entry(*id).or_default();
                used.space_bytes = used.space_bytes.saturating_add(more.space_bytes);
                used.inodes += more.inodes;
            }
        }
    }
}
