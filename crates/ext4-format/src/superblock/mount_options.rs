//! Default mount options: bits of the superblock, and their names.
//!
//! # Reference
//! "Super Block" in the kernel's ext4 data structure pages; `tune2fs(8)` for the names.

use super::Superblock;

/// The three journaling modes share two bits.
const JOURNAL_MODE: u32 = 0x60;

/// Each option: its name, its bits, and the bits that it is about.
pub const DEFAULT_MOUNT_OPTIONS: [(&str, u32, u32); 12] = [
    ("debug", 0x1, 0x1),
    ("bsdgroups", 0x2, 0x2),
    ("user_xattr", 0x4, 0x4),
    ("acl", 0x8, 0x8),
    ("uid16", 0x10, 0x10),
    ("journal_data", 0x20, JOURNAL_MODE),
    ("journal_data_ordered", 0x40, JOURNAL_MODE),
    ("journal_data_writeback", 0x60, JOURNAL_MODE),
    ("nobarrier", 0x100, 0x100),
    ("block_validity", 0x200, 0x200),
    ("discard", 0x400, 0x400),
    ("nodelalloc", 0x800, 0x800),
];

impl Superblock {
    /// The names of the [default mount options](Superblock::default_mount_options) that are known.
    pub fn default_mount_option_names(&self) -> impl Iterator<Item = &'static str> {
        let options = self.default_mount_options();
        let is_set = move |&&(_, bits, mask): &&(&str, u32, u32)| options & mask == bits;
        DEFAULT_MOUNT_OPTIONS.iter().filter(is_set).map(|(name, ..)| *name)
    }
}
