//! Rewrites inodes and what belongs to them after blocks have moved, inodes got other numbers, or
//! checksums another seed.
//!
//! `map` rewrites what maps a file's blocks, and `to_extents` what kind of map it is; `directory` rewrites the names
//! in a directory, `tails` makes room for its checksums, `attributes` rewrites the extended attributes; `quota`
//! settles what the owners use.
//!
//! # State
//! The image has its new layout already, and blocks have moved: each is read and written where it is now.

mod attributes;
mod directory;
mod extents;
mod map;
mod numbers;
mod quota;
mod tails;
mod to_extents;

pub(crate) use numbers::InodeNumbers;

use crate::error::Result;
use crate::image::Image;
use crate::moves::Moves;
use drystone_ext4_format::features::Compat;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::orphan_file::{self, OrphanPlace};
use drystone_ext4_format::superblock::JournalBackup;
use drystone_ext4_format::{GroupNumber, InodeNumber, InodeSeed};

/// Inodes that are read at a time.
const INODES_AT_ONCE: u32 = 1024;

pub(crate) struct Rewriter<'i, 'd> {
    pub image: &'i mut Image<'d>,
    /// The layout that the inodes were written for.
    old: Layout,
    moves: &'i Moves,
    numbers: &'i InodeNumbers,
    /// All checksums have another seed.
    reseals: bool,
    usage: quota::UsageChange,
}

impl<'i, 'd> Rewriter<'i, 'd> {
    pub fn new(
        image: &'i mut Image<'d>,
        old: Layout,
        moves: &'i Moves,
        numbers: &'i InodeNumbers,
    ) -> Self {
        let reseals = old.checksums() != image.layout.checksums();
        let usage = quota::UsageChange::default();
        Self { image, old, moves, numbers, reseals, usage }
    }

    /// The number that an inode has now.
    fn renumbered(&self, number: InodeNumber) -> InodeNumber {
        self.numbers.get(number).unwrap_or(number)
    }

    /// Rewrites an inode in use, given its bytes and its old number.
    pub fn inode(&mut self, number: InodeNumber, bytes: &mut [u8]) -> Result<()> {
        // Its map is a matter of the layout, and is written as a whole.
        let is_reserve = number == InodeNumber::RESIZE
            && self.old.features().compat.contains(Compat::RESIZE_INODE);
        let mut inode = Inode::read(bytes, number, &self.old)?;
        inode.number = self.renumbered(number);
        let is_renumbered = inode.number != number;
        let must_seal = self.reseals || is_renumbered;
        let seed = inode.seed(&self.image.layout);
        let mut is_changed = must_seal;
        is_changed |= self.attributes(&mut inode, bytes)?;
        if inode.has_block_mapping() && !is_reserve {
            let sectors = inode.sectors;
            let (is_mapped_anew, extents) = self.map(&mut inode, must_seal, seed)?;
            is_changed |= is_mapped_anew;
            let changes_tails = inode.is_directory() && self.changes_tails();
            if changes_tails {
                self.change_tails(&mut inode, &extents, seed)?;
            }
            self.count_usage(number, &inode, sectors);
            if inode.is_directory() && !changes_tails && (must_seal || !self.numbers.is_empty()) {
                self.directory(&inode, &extents, must_seal, seed)?;
            }
            if self.image.superblock.orphan_file_inode() == Some(number)
                && (must_seal || is_mapped_anew)
            {
                self.orphan_file(&inode, &extents, seed)?;
            }
        } else if inode.is_directory() && inode.flags.contains(InodeFlags::INLINE_DATA) {
            is_changed |= self.inline_directory(&mut inode, bytes)?;
        }
        if is_changed {
            self.image.write_inode(&inode, bytes)?;
        }
        Ok(())
    }

    /// Counts for its owners that an inode had another number, and so many sectors, before.
    fn count_usage(&mut self, number: InodeNumber, inode: &Inode, sectors: u64) {
        // It still has the old numbers.
        let superblock = &self.image.superblock;
        let hidden = [superblock.project_quota_inode(), superblock.orphan_file_inode()];
        if !hidden.contains(&Some(number)) {
            self.usage.add(inode, sectors, &self.image.layout);
        }
    }

    /// Rewrites the inodes of a group but those that have come from elsewhere.
    pub fn group(&mut self, group: GroupNumber) -> Result<()> {
        let used = self.image.used_inodes(group)?;
        let layout = self.image.layout;
        let descriptor = &self.image.groups[group.index()];
        let count = match used.last() {
            _ if self.image.is_without_inodes(group) => 0,
            // Deleted inodes have checksums, too.
            _ if self.reseals => layout.inodes_per_group() - descriptor.unused_inodes_count,
            Some(last) => layout.bit_of_inode(*last)?.1 + 1,
            None => 0,
        };
        let size = layout.inode_size();
        let mut used = used.into_iter().peekable();
        for first in (0..count).step_by(INODES_AT_ONCE as usize) {
            let bits = first..count.min(first + INODES_AT_ONCE);
            let mut inodes = self.image.read_inodes(group, bits.clone())?;
            for (bit, bytes) in bits.zip(inodes.chunks_exact_mut(size)) {
                let Some(number) = layout.inode_of_bit(group, bit) else { break };
                if used.next_if_eq(&number).is_some() {
                    if !self.numbers.is_new(number) {
                        self.inode(number, bytes)?;
                    }
                } else if self.reseals && bytes.iter().any(|&byte| byte != 0) {
                    Inode::seal(bytes, number, &layout);
                    self.image.write_inode_bytes(number, bytes)?;
                }
            }
        }
        Ok(())
    }

    fn orphan_file(
        &mut self,
        inode: &Inode,
        extents: &[map::MappedRun],
        seed: Option<InodeSeed>,
    ) -> Result<()> {
        for block in extents.iter().flat_map(map::MappedRun::blocks) {
            let mut bytes = self.image.read_block(block)?;
            let place = OrphanPlace { inode: inode.number, block, checksum: seed };
            // A clean image has no orphans. Without a checksum its field is zero.
            orphan_file::init(&mut bytes);
            orphan_file::seal(&mut bytes, &place);
            self.image.write_block(block, &bytes)?;
        }
        Ok(())
    }

    /// Ends with what the superblock says of inodes and blocks, and with the quota files.
    pub fn finish(mut self) -> Result<()> {
        let superblock = &self.image.superblock;
        let new = |inode: Option<InodeNumber>| inode.map(|inode| self.renumbered(inode));
        let (journal, orphans) = (new(superblock.journal_inode()), superblock.orphan_file_inode());
        let quotas = [
            new(superblock.user_quota_inode()),
            new(superblock.group_quota_inode()),
            new(superblock.project_quota_inode()),
        ];
        let (orphans, lost_found) = (new(orphans), new(superblock.lost_found_inode()));
        let mmp = self.image.mmp_block();
        let mmp_now = mmp.map(|block| self.translated(block));
        let superblock = &mut self.image.superblock;
        superblock.set_journal_inode(journal);
        superblock.set_orphan_file_inode(orphans);
        superblock.set_lost_found_inode(lost_found);
        superblock.set_user_quota_inode(quotas[0]);
        superblock.set_group_quota_inode(quotas[1]);
        superblock.set_project_quota_inode(quotas[2]);
        if mmp.is_some() {
            superblock.set_mmp_block(mmp_now);
        }
        if self.image.superblock.journal_backup().is_some()
            && let Some(journal) = journal
        {
            let (inode, _) = self.image.read_inode(journal)?;
            let backup =
                JournalBackup { block_area: inode.block_area, size_bytes: inode.size_bytes };
            self.image.superblock.set_journal_backup(Some(&backup));
        }
        std::mem::take(&mut self.usage).settle(&mut self)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use drystone_blockdev::MemoryDevice;
    use drystone_testkit::judges::{FeatureSet, Scratch, have, mke2fs};

    /// The space of these belongs to nobody, whatever number they have now.
    #[test]
    fn what_hidden_inodes_use_is_not_counted() {
        if !have("mke2fs") {
            return;
        }
        let scratch = Scratch::new("hidden").unwrap();
        let path = scratch.join("image");
        let arguments = "-t ext4 -O quota,project,orphan_file";
        let set = FeatureSet { arguments, ..*FeatureSet::by_name("default").unwrap() };
        mke2fs(&path, &set, 40 << 20).unwrap().expect_clean("new");
        let device = MemoryDevice::from_bytes(&std::fs::read(&path).unwrap());
        let mut image = Image::open(&device).unwrap();
        let hidden = [image.superblock.project_quota_inode(), image.superblock.orphan_file_inode()];
        let (layout, moves) = (image.layout, Moves::default());
        for number in hidden.map(Option::unwrap) {
            let (mut inode, _) = image.read_inode(number).unwrap();
            inode.number = InodeNumber::new(700);
            let mut numbers = InodeNumbers::default();
            numbers.push(number, InodeNumber::new(700));
            let mut rewriter = Rewriter::new(&mut image, layout, &moves, &numbers);
            rewriter.count_usage(number, &inode, inode.sectors + 8);
            assert_eq!(rewriter.usage, quota::UsageChange::default());
        }
    }
}
