//! The state of a check: what its passes hand on to each other.

mod attribute_use;
mod directory_list;
mod directory_part;
mod directory_pass;
mod findings;
mod inode_pass;
mod kept;
mod quota_usage;

pub(crate) use attribute_use::{AttributeUse, SharedBlock, ValueInode};
pub(crate) use directory_list::{Directories, Directory, DirectoryLink};
pub(crate) use directory_part::{DirectoryNotes, DirectoryPart};
pub(crate) use directory_pass::{DirectoryPass, Notes};
pub(crate) use findings::{Findings, PART_BYTES};
pub(crate) use inode_pass::InodePass;
pub(crate) use kept::{Kept, KeptInodes};
pub(crate) use quota_usage::{QuotaUsage, QuotaUse};

use crate::block_set::BlockSet;
use crate::image::Image;
use crate::inode_states::InodeStates;
use crate::memory::Memory;
use crate::report::Reporter;
use drystone_ext4_format::InodeNumber;
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

/// Everything that passes hand on.
pub(crate) struct Checker<'a> {
    pub image: Image<'a>,
    pub reporter: Reporter<'a>,
    pub states: InodeStates,
    pub orphans: Orphans,
    pub found: Findings,
    /// Whether the superblock's counters must be right: an image in use has them elsewhere.
    pub counts_settled: bool,
    /// Threads that passes may use.
    pub threads: usize,
    /// What all tables may take.
    pub memory: Memory,
    /// What is kept for another examination; nothing if there will be none.
    pub kept: Option<Kept>,
}

impl Checker<'_> {
    /// Forgets which blocks were read, for a pass that reads them again.
    pub fn start_visits(&mut self) {
        self.found.visited = BlockSet::within(self.image.layout.blocks_count(), &self.memory);
    }

    /// What another examination begins with.
    pub fn into_kept(self) -> Kept {
        let mut kept = self.kept.unwrap_or_default();
        kept.set_states(self.states);
        kept
    }

    pub fn group_count(&self) -> u64 {
        u64::from(self.image.layout.group_count())
    }
}
