//! Extent trees and block maps: they stay, but places that no file can have become one that none can have.

use super::Scrambler;
use super::fields::{get, place, set};
use super::records::count_nonzero;
use drystone_ext4_format::PhysicalBlock;
use drystone_ext4_format::extent::{
    EXTENT_FIELDS, Extent, ExtentNode, HEADER_FIELDS, INDEX_FIELDS, NodePlace,
};

/// A pointer of a block map to nowhere, and a part of one in an extent.
const NOWHERE: u32 = u32::MAX;

/// Pointers to nowhere in one block with which nothing in it is trusted. Tools give up on such files, too.
const WRONG_POINTERS_MAX: usize = 11;

impl Scrambler<'_, '_> {
    /// Rewrites a block of pointers, or the pointers of an inode.
    pub(super) fn pointers(&self, bytes: &mut [u8]) {
        let layout = &self.image.layout;
        let first = u64::from(layout.first_data_block());
        let is_wrong = |pointer: u32| {
            let block = PhysicalBlock::new(u64::from(pointer));
            pointer != 0 && (block.get() <= first || !layout.contains_blocks(block, 1))
        };
        let pointers = bytes.as_chunks_mut().0;
        let wrong = pointers.iter().filter(|raw| is_wrong(u32::from_le_bytes(**raw))).count();
        for raw in pointers {
            let pointer = u32::from_le_bytes(*raw);
            if is_wrong(pointer) || pointer != 0 && wrong > WRONG_POINTERS_MAX {
                *raw = NOWHERE.to_le_bytes();
            }
        }
    }

    /// Rewrites a node of an extent tree. Its checksum is still to be sealed. The numbers of a verified one are right, or
    /// the mistake of a program; others may be text.
    pub(super) fn extent_node(&self, bytes: &mut [u8], node: NodePlace, is_verified: bool) {
        let old = bytes.to_vec();
        bytes.fill(0);
        let Ok(header) = ExtentNode::reopen(&old, node) else {
            let unclear = count_nonzero(&old);
            self.add_unclear(unclear);
            if unclear > 0 {
                // It has a wrong header still.
                set(bytes, HEADER_FIELDS, "magic", NOWHERE.into());
            }
            return;
        };
        for name in ["magic", "entries", "max", "depth"] {
            let field = place(HEADER_FIELDS, name);
            bytes[field.clone()].copy_from_slice(&old[field]);
        }
        let mut at = HEADER_FIELDS.iter().map(|field| field.length).sum();
        for entry in header.entry_bytes() {
            let mut entry = *entry;
            let (fields, low, high) = match header.is_leaf() {
                true => (EXTENT_FIELDS, "start_lo", "start_hi"),
                false => (INDEX_FIELDS, "leaf_lo", "leaf_hi"),
            };
            let start = get(&entry, fields, high) << 32 | get(&entry, fields, low);
            let count = if header.is_leaf() { Extent::from_entry(&entry).length } else { 1 };
            if !header.is_leaf() {
                set(&mut entry, fields, "unused", 0);
            }
            let layout = &self.image.layout;
            if !is_verified && !layout.contains_blocks(PhysicalBlock::new(start), count.into()) {
                set(&mut entry, fields, low, NOWHERE.into());
                set(&mut entry, fields, high, NOWHERE.into());
            }
            bytes[at..at + entry.len()].copy_from_slice(&entry);
            at += entry.len();
        }
    }
}
