//! Files of numbered entries: the ifile (inodes) and the DAT (virtual blocks).
//!
//! Entries are in groups. A descriptor block counts the free entries of many groups; each of these
//! groups follows as a bitmap block and the blocks of its entries. Blocks exist on need: where a
//! descriptor or a bitmap is a hole, everything is free.

use crate::ids::FileBlock;

/// What the free count of a group occupies in a descriptor block, in bytes.
pub const DESCRIPTOR_BYTES: usize = 4;

/// Where a file of numbered entries keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryLayout {
    entries_per_group: u64,
    entries_per_block: u64,
    blocks_per_group: u64,
    groups_per_descriptor_block: u64,
    blocks_per_descriptor_block: u64,
    entry_bytes: usize,
}

/// What a block of such a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryBlock {
    /// Free counts, the first for this group.
    Descriptors {
        /// The group.
        first_group: u64,
    },
    /// The bitmap of a group.
    Bitmap {
        /// The group.
        group: u64,
    },
    /// Entries.
    Entries {
        /// The number of the first.
        first: u64,
    },
}

impl EntryLayout {
    /// The layout for entries of `entry_bytes`, a power of two that isn't larger than a block.
    #[must_use]
    pub const fn new(block_bytes: usize, entry_bytes: usize) -> Self {
        let entries_per_group = block_bytes as u64 * 8;
        let entries_per_block = (block_bytes / entry_bytes) as u64;
        let blocks_per_group = entries_per_group.div_ceil(entries_per_block) + 1;
        let groups_per_descriptor_block = (block_bytes / DESCRIPTOR_BYTES) as u64;
        Self {
            entries_per_group,
            entries_per_block,
            blocks_per_group,
            groups_per_descriptor_block,
            blocks_per_descriptor_block: groups_per_descriptor_block * blocks_per_group + 1,
            entry_bytes,
        }
    }

    /// Entries of a group.
    #[must_use]
    pub const fn entries_per_group(&self) -> u64 {
        self.entries_per_group
    }

    /// Entries of a block.
    #[must_use]
    pub const fn entries_per_block(&self) -> u64 {
        self.entries_per_block
    }

    /// Groups that one descriptor block counts.
    #[must_use]
    pub const fn groups_per_descriptor_block(&self) -> u64 {
        self.groups_per_descriptor_block
    }

    /// The group of an entry.
    #[must_use]
    pub const fn group_of(&self, entry: u64) -> u64 {
        entry / self.entries_per_group
    }

    /// The descriptor block of a group, and where in it the group's free count is.
    #[must_use]
    pub const fn descriptor(&self, group: u64) -> (FileBlock, usize) {
        let index = group / self.groups_per_descriptor_block;
        let position = (group % self.groups_per_descriptor_block) as usize * DESCRIPTOR_BYTES;
        (FileBlock(index.saturating_mul(self.blocks_per_descriptor_block)), position)
    }

    /// The bitmap block of a group.
    #[must_use]
    pub const fn bitmap(&self, group: u64) -> FileBlock {
        let (FileBlock(descriptor), _) = self.descriptor(group);
        let before = group % self.groups_per_descriptor_block * self.blocks_per_group;
        FileBlock(descriptor.saturating_add(1).saturating_add(before))
    }

    /// The block of an entry, and where in it the entry starts.
    #[must_use]
    pub const fn entry(&self, entry: u64) -> (FileBlock, usize) {
        let FileBlock(bitmap) = self.bitmap(self.group_of(entry));
        let inside = entry % self.entries_per_group;
        let block = bitmap.saturating_add(1).saturating_add(inside / self.entries_per_block);
        (FileBlock(block), (inside % self.entries_per_block) as usize * self.entry_bytes)
    }

    /// What a block holds.
    #[must_use]
    pub const fn role_of(&self, block: FileBlock) -> EntryBlock {
        let index = block.0 / self.blocks_per_descriptor_block;
        let first_group = index.saturating_mul(self.groups_per_descriptor_block);
        let Some(inside) = (block.0 % self.blocks_per_descriptor_block).checked_sub(1) else {
            return EntryBlock::Descriptors { first_group };
        };
        let group = first_group.saturating_add(inside / self.blocks_per_group);
        match (inside % self.blocks_per_group).checked_sub(1) {
            None => EntryBlock::Bitmap { group },
            Some(block) => {
                let before = group.saturating_mul(self.entries_per_group);
                EntryBlock::Entries { first: before.saturating_add(block * self.entries_per_block) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_layouts() {
        for (block, entry, epg, epb, bpg, gpd, bpd) in [
            (4096, 128, 32768, 32, 1025, 1024, 1_049_601),
            (4096, 32, 32768, 128, 257, 1024, 263_169),
            (1024, 128, 8192, 8, 1025, 256, 262_401),
            (1024, 32, 8192, 32, 257, 256, 65793),
        ] {
            let expected = EntryLayout {
                entries_per_group: epg,
                entries_per_block: epb,
                blocks_per_group: bpg,
                groups_per_descriptor_block: gpd,
                blocks_per_descriptor_block: bpd,
                entry_bytes: entry,
            };
            assert_eq!(EntryLayout::new(block, entry), expected);
        }
    }

    #[test]
    fn roles_are_the_reverse_of_places() {
        let mut random = fastrand::Rng::with_seed(6);
        for layout in [EntryLayout::new(1024, 32), EntryLayout::new(4096, 128)] {
            for _ in 0..1000 {
                let entry = random.u64(0..1 << 40);
                let group = layout.group_of(entry);
                let (block, position) = layout.entry(entry);
                let first = entry - position as u64 / layout.entry_bytes as u64;
                assert_eq!(layout.role_of(block), EntryBlock::Entries { first });
                assert_eq!(layout.role_of(layout.bitmap(group)), EntryBlock::Bitmap { group });
                let (block, position) = layout.descriptor(group);
                let first_group = group - (position / DESCRIPTOR_BYTES) as u64;
                assert_eq!(layout.role_of(block), EntryBlock::Descriptors { first_group });
            }
            let _ = (layout.entry(u64::MAX), layout.role_of(FileBlock(u64::MAX)));
        }
    }
}
