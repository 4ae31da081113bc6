//! Attribute blocks and value inodes, and how often inodes refer to them.

use drystone_ext4_format::InodeNumber;
use std::collections::BTreeMap;

/// An attribute block that was met.
#[derive(Debug)]
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
}

/// An inode that holds a value.
#[derive(Debug)]
pub(crate) struct ValueInode {
    /// Its hash, if it can be used, and its length.
    pub found: Option<(u32, u64)>,
    pub stored_references: u64,
    pub counted: u64,
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
