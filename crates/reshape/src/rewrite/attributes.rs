//! Rewrites extended attributes whose block has moved, or whose value inodes got other numbers.

use super::Rewriter;
use crate::error::Result;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::xattr::{MAGIC, RawAttributeBlockHeader, RawAttributeEntry, seal_block};
use std::mem::{offset_of, size_of};

const ENTRY: usize = size_of::<RawAttributeEntry>();
const VALUE_INODE: usize = offset_of!(RawAttributeEntry, value_inode);

impl Rewriter<'_, '_> {
    /// Rewrites the attributes of an inode. Returns whether the inode has changed.
    pub(super) fn attributes(&mut self, inode: &mut Inode, bytes: &mut [u8]) -> Result<bool> {
        let has_values =
            !self.numbers.is_empty() && self.old.features().incompat.contains(Incompat::EA_INODE);
        let mut is_changed = false;
        let area = inode.attribute_area(&self.old);
        if has_values
            && let Some((magic, entries)) = bytes[area].split_first_chunk_mut::<4>()
            && u32::from_le_bytes(*magic) == MAGIC
        {
            is_changed |= self.values(entries);
        }
        if let Some(before) = inode.attribute_block {
            let block = self.translated(before);
            inode.attribute_block = Some(block);
            let has_moved = block != before;
            if has_moved || self.reseals || has_values {
                let mut bytes = self.image.read_block(block)?;
                let is_other = self.values(&mut bytes[size_of::<RawAttributeBlockHeader>()..]);
                if is_other || has_moved || self.reseals {
                    seal_block(&mut bytes, self.image.layout.checksum_seed(), block);
                    self.image.write_block(block, &bytes)?;
                }
            }
            is_changed |= has_moved;
        }
        Ok(is_changed)
    }

    /// Corrects the inodes that values are in. Returns whether there were any.
    fn values(&self, entries: &mut [u8]) -> bool {
        let mut is_changed = false;
        let mut at = 0;
        while let Some(entry) = entries.get_mut(at..at + ENTRY) {
            // The list ends with zeros.
            if entry[..4] == [0; 4] {
                break;
            }
            if let Some(field) = entry[VALUE_INODE..].first_chunk_mut::<4>()
                && let Some(new) = self.numbers.get(InodeNumber::new(u32::from_le_bytes(*field)))
            {
                *field = new.get().to_le_bytes();
                is_changed = true;
            }
            at += (ENTRY + usize::from(entry[0])).next_multiple_of(4);
        }
        is_changed
    }
}
