//! What the pass over all inodes finds, in all of them or in a part.

use super::{AttributeUse, Directories, QuotaUsage};
use crate::block_set::BlockSet;
use crate::claims::Claims;
use crate::encryption::EncryptionPolicies;
use crate::image::Error;
use crate::memory::{Memory, MemoryShare};
use drystone_ext4_format::layout::Layout;

/// Memory of the sets of a part.
pub(crate) const PART_BYTES: u64 = 32 << 20;
/// Memory of an attribute block that was met, about, with an encryption context.
const ATTRIBUTE_BLOCK_BYTES: usize = 192;
/// Nodes of maps that a part reads.
const PART_NODES: usize = 1 << 14;
/// Inodes with values of attributes that a part reads.
const PART_VALUES: usize = 1 << 13;

/// What the pass over all inodes finds.
#[derive(Debug)]
pub(crate) struct Findings {
    pub claims: Claims,
    /// Nodes of maps and blocks of directories that the current pass has read.
    pub visited: BlockSet,
    pub directories: Directories,
    pub attributes: AttributeUse,
    pub policies: EncryptionPolicies,
    pub usage: QuotaUsage,
    /// Whether a regular file is of 2 GiB or more.
    pub has_large_file: bool,
    /// What the list of directories takes.
    directory_memory: MemoryShare,
}

impl Findings {
    /// Empty findings for all inodes.
    pub fn new(layout: &Layout, memory: &Memory) -> Self {
        let visited = BlockSet::within(layout.blocks_count(), memory);
        Self::empty(Claims::new(layout, memory), visited, memory)
    }

    /// Empty findings for a part of the inodes. They have limits: another part may find the same, so that all parts
    /// of a damaged image together could find more than the image has.
    pub fn part(&self, layout: &Layout) -> Self {
        let memory = Memory::new(PART_BYTES);
        let visited = BlockSet::limited(layout.blocks_count(), &memory, PART_NODES);
        Self::empty(self.claims.part(&memory), visited, &memory)
    }

    fn empty(claims: Claims, visited: BlockSet, memory: &Memory) -> Self {
        Self {
            claims,
            visited,
            directories: Directories::default(),
            attributes: AttributeUse::default(),
            policies: EncryptionPolicies::default(),
            usage: QuotaUsage::default(),
            has_large_file: false,
            directory_memory: memory.share(),
        }
    }

    /// Whether there is more to be found than fits a part.
    pub fn exceed_part(&self) -> bool {
        self.visited.is_exceeded()
            || self.claims.used.is_exceeded()
            || self.claims.twice.is_exceeded()
            || self.attributes.values.len() > PART_VALUES
    }

    /// Fails if these findings don't fit the memory of the check.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`].
    pub fn check_memory(&mut self) -> Result<(), Error> {
        self.claims.used.check_memory()?;
        self.claims.twice.check_memory()?;
        self.visited.check_memory()?;
        self.directory_memory.grow_to(self.directories.memory_bytes())
    }

    /// Whether the part would have other findings, had it been examined after these: a node of a map is read, and
    /// what is wrong with attributes that inodes share is reported, where it is met first.
    pub fn would_change(&self, part: &Findings) -> bool {
        !self.visited.shared_with(&part.visited).is_empty()
            || self.attributes.would_change(&part.attributes)
    }

    /// Adds the findings of a part that comes after them and wouldn't change.
    pub fn add_part(&mut self, part: &Findings) {
        self.claims.add_part(&part.claims);
        self.visited.add_all(&part.visited);
        self.directories.add_part(&part.directories);
        self.attributes.add_part(&part.attributes);
        self.policies.add_part(&part.policies);
        self.usage.add_part(&part.usage);
        self.has_large_file |= part.has_large_file;
    }

    /// Whether an inode claims one of these clusters.
    pub fn claim_any(&self, clusters: &BlockSet) -> bool {
        let mut attributes = self.attributes.blocks.keys().map(|&block| self.claims.cluster(block));
        self.claims.used.meets(clusters)
            || attributes.any(|cluster| clusters.has_any(cluster..cluster + 1))
    }

    /// Bytes that the findings of a part take, about.
    pub fn memory_bytes(&self) -> u64 {
        let sets = [&self.claims.used, &self.claims.twice, &self.visited];
        let sets: u64 = sets.map(BlockSet::memory_bytes).iter().sum();
        let attributes = self.attributes.blocks.len() * ATTRIBUTE_BLOCK_BYTES;
        let few = size_of::<Self>()
            + attributes
            + self.policies.memory_bytes()
            + self.usage.memory_bytes();
        sets + self.directories.memory_bytes() + few as u64
    }
}
