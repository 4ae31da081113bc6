//! The state of a check: what its passes hand on to each other.

mod attribute_use;
mod directory_list;
mod quota_usage;

pub(crate) use attribute_use::{AttributeUse, SharedBlock, ValueInode};
pub(crate) use directory_list::Directories;
pub(crate) use quota_usage::{QuotaUsage, QuotaUse};

use crate::block_set::BlockSet;
use crate::claims::Claims;
use crate::encryption::EncryptionPolicies;
use crate::image::{Error, Image};
use crate::inode_states::InodeStates;
use crate::report::Reporter;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::features::{Compat, ReadOnlyCompat};
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::inode::Inode;
use std::collections::BTreeSet;

/// Inodes that are recorded as orphans.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    pub inodes: BTreeSet<u32>,
}

impl Orphans {
    pub fn contains(&self, inode: InodeNumber) -> bool {
        self.inodes.contains(&inode.get())
    }
}

/// One group: its descriptor, and what of it can be used.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub descriptor: GroupDescriptor,
    /// The flags that mean something in this image.
    pub flags: GroupFlags,
    pub has_block_bitmap: bool,
    pub has_inode_bitmap: bool,
    pub has_inode_table: bool,
    /// Directories found in the group.
    pub directories: u32,
}

/// Everything that passes hand on.
pub(crate) struct Checker<'a> {
    pub image: Image<'a>,
    pub reporter: Reporter<'a>,
    pub groups: Vec<GroupState>,
    pub claims: Claims,
    pub states: InodeStates,
    /// Nodes of maps and blocks of attributes that the current pass has read.
    pub visited: BlockSet,
    pub directories: Directories,
    pub orphans: Orphans,
    pub attributes: AttributeUse,
    pub policies: EncryptionPolicies,
    pub usage: QuotaUsage,
    /// Whether a regular file is of 2 GiB or more.
    pub has_large_file: bool,
    /// Whether the superblock's counters must be right: an image in use has them elsewhere.
    pub counts_settled: bool,
}

impl Checker<'_> {
    /// The bytes of an inode, if its table can be read.
    pub fn inode_bytes(&self, inode: InodeNumber) -> Result<Option<Vec<u8>>, Error> {
        let Ok(group) = self.image.layout.group_of_inode(inode) else { return Ok(None) };
        let state = &self.groups[group.index()];
        if !state.has_inode_table {
            return Ok(None);
        }
        Ok(self.image.read_inode_bytes(inode, state.descriptor.inode_table)?)
    }

    /// Reads an inode, whether it is in use or not.
    pub fn inode(&self, number: InodeNumber) -> Result<Option<(Inode, Vec<u8>)>, Error> {
        let Some(bytes) = self.inode_bytes(number)? else { return Ok(None) };
        let inode = self.image.parse_inode(&bytes, number).ok();
        Ok(inode.map(|inode| (inode, bytes)))
    }

    /// Whether an inode serves the image itself, though it isn't among the reserved ones.
    pub fn serves_image(&self, inode: InodeNumber) -> bool {
        let superblock = &self.image.superblock;
        let features = self.image.layout.features();
        let orphan_file = superblock
            .orphan_file_inode()
            .filter(|_| features.compat.contains(Compat::ORPHAN_FILE));
        let has_quota = features.read_only_compat.contains(ReadOnlyCompat::QUOTA);
        let project_quota = superblock.project_quota_inode().filter(|_| has_quota);
        [orphan_file, project_quota].contains(&Some(inode))
    }

    /// Forgets which blocks were read, for a pass that reads them again.
    pub fn start_visits(&mut self) {
        self.visited = BlockSet::new(self.image.layout.blocks_count());
    }

    pub fn group_count(&self) -> u64 {
        u64::from(self.image.layout.group_count())
    }
}
