//! Attribute blocks and value inodes, and how often inodes refer to them.

use drystone_ext4_format::InodeNumber;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// An attribute block that was met.
#[derive(Clone, Debug)]
pub(crate) struct SharedBlock {
    /// The first inode that refers to it.
    pub inode: InodeNumber,
    /// What its header says; nothing if it can't be used.
    pub stored: Option<u32>,
    pub counted: u32,
    /// The inodes that hold its values.
    pub values: Vec<(InodeNumber, u64)>,
    /// The encryption context in it.
    pub encryption: Option<Vec<u8>>,
    /// Whether nothing wrong was reported of it, or of the values.
    pub is_sound: bool,
}

/// An inode that holds a value.
#[derive(Clone, Debug)]
pub(crate) struct ValueInode {
    /// Its hash, if it can be used, and its length.
    pub found: Option<(u32, u64)>,
    pub stored_references: u64,
    pub counted: u64,
    /// Whether nothing wrong was reported of it.
    pub is_sound: bool,
}

/// The attribute blocks and value inodes that were met, and what refers to them.
#[derive(Debug, Default)]
pub(crate) struct AttributeUse {
    pub blocks: BTreeMap<u64, SharedBlock>,
    pub values: BTreeMap<u32, ValueInode>,
    /// Space and inodes of the values of the inode that is being checked: quota charges them to
    /// each that refers to them.
    pub charged: Vec<u64>,
    /// The encryption context of the inode that is being checked.
    pub encryption: Option<Vec<u8>>,
}

impl AttributeUse {
    /// Whether a problem of the part concerns a block or value that is met here as well.
    pub fn would_change(&self, part: &AttributeUse) -> bool {
        let mut unsound_blocks = part.blocks.iter().filter(|(_, shared)| !shared.is_sound);
        let mut unsound_values = part.values.iter().filter(|(_, value)| !value.is_sound);
        unsound_blocks.any(|(block, _)| self.blocks.contains_key(block))
            || unsound_values.any(|(inode, _)| self.values.contains_key(inode))
    }

    /// Adds what other inodes refer to.
    pub fn add_part(&mut self, part: &AttributeUse) {
        for (&block, shared) in &part.blocks {
            match self.blocks.entry(block) {
                Entry::Vacant(place) => drop(place.insert(shared.clone())),
                Entry::Occupied(mut own) => {
                    let counted = &mut own.get_mut().counted;
                    *counted = counted.saturating_add(shared.counted);
                }
            }
        }
        for (&inode, value) in &part.values {
            match self.values.entry(inode) {
                Entry::Vacant(place) => drop(place.insert(value.clone())),
                Entry::Occupied(mut own) => own.get_mut().counted += value.counted,
            }
        }
    }
}
