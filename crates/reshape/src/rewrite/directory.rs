//! Rewrites the entries of directories after inodes got other numbers.

use super::Rewriter;
use super::map::MappedRun;
use crate::error::Result;
use drystone_ext4_format::dir::{self, DirectoryBlock, DirectoryBlockMut, DirectoryLayout};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::htree::{self, IndexKind};
use drystone_ext4_format::inline::{HEAD_LENGTH, InlineDirectoryMut};
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::xattr::{AttributePlace, Value, XattrView};
use drystone_ext4_format::{InodeNumber, InodeSeed};

/// `system.data`, which holds the rest of an inline directory: the number of its prefix.
const SYSTEM: u8 = 7;

impl Rewriter<'_, '_> {
    pub(super) fn directory_layout(
        &self,
        inode: &Inode,
        seed: Option<InodeSeed>,
    ) -> DirectoryLayout {
        DirectoryLayout {
            file_type: self.old.features().incompat.contains(Incompat::FILETYPE),
            checksum: seed,
            encrypted: inode.flags.contains(InodeFlags::ENCRYPT),
            casefolded: inode.flags.contains(InodeFlags::CASEFOLD),
            inode_last: InodeNumber::new(self.old.inodes_count()),
        }
    }

    /// Rewrites the blocks of a directory.
    pub(super) fn directory(
        &mut self,
        inode: &Inode,
        runs: &[MappedRun],
        must_seal: bool,
        seed: Option<InodeSeed>,
    ) -> Result<()> {
        let layout = self.directory_layout(inode, seed);
        for block in runs.iter().flat_map(MappedRun::blocks) {
            let mut bytes = self.image.read_block(block)?;
            let is_indexed = inode.flags.contains(InodeFlags::INDEX);
            let kind = IndexKind::of(&bytes).filter(|_| is_indexed);
            // The last record of an index block hides the index and all after it.
            let records = if kind.is_some() { layout.without_tail() } else { layout };
            let renamed: Vec<_> = DirectoryBlock::trusted(&bytes, &records)
                .entries()
                .map(|entry| (entry.offset, entry.inode, entry.entry_type))
                .filter(|(_, target, _)| self.numbers.get(*target).is_some())
                .collect();
            if renamed.is_empty() && !must_seal {
                continue;
            }
            for (offset, target, entry_type) in renamed {
                let target = self.renumbered(target);
                // The entry was just found there.
                let mut block = DirectoryBlockMut::trusted(&mut bytes, &records);
                let _ = block.set_target(offset, target, entry_type);
            }
            match kind {
                Some(kind) => htree::seal(&mut bytes, kind, &layout),
                None => dir::seal(&mut bytes, &layout),
            }
            self.image.write_block(block, &bytes)?;
        }
        Ok(())
    }

    /// Rewrites a directory in its inode. Returns whether it has changed.
    pub(super) fn inline_directory(&mut self, inode: &mut Inode, bytes: &mut [u8]) -> Result<bool> {
        if self.numbers.is_empty() {
            return Ok(false);
        }
        let layout = self.directory_layout(inode, None);
        let area = inode.attribute_area(&self.old);
        let place = AttributePlace { inode: inode.number, block: None };
        let attributes = XattrView::check_in_inode(&bytes[area.clone()], place)?;
        // The value is a part of the inode.
        let value = match attributes.find(SYSTEM, b"data").map(|entry| entry.value) {
            Some(Value::Inline(value)) if !value.is_empty() => {
                let start = value.as_ptr() as usize - bytes.as_ptr() as usize;
                start..start + value.len()
            }
            _ => area.end..area.end,
        };
        let mut head: [u8; HEAD_LENGTH] = inode.block_area;
        let mut directory = InlineDirectoryMut::trusted(&mut head, &mut bytes[value], &layout);
        let renamed: Vec<_> = directory
            .view()
            .entries()
            .map(|entry| (entry.offset, entry.inode, entry.entry_type))
            .filter(|(_, target, _)| self.numbers.get(*target).is_some())
            .collect();
        let parent = directory.view().parent();
        let new_parent = self.renumbered(parent);
        let is_changed = !renamed.is_empty() || parent != new_parent;
        for (offset, target, entry_type) in renamed {
            // The entry was just found there.
            let _ = directory.set_target(offset, self.renumbered(target), entry_type);
        }
        directory.set_parent(new_parent);
        inode.block_area = head;
        Ok(is_changed)
    }
}
