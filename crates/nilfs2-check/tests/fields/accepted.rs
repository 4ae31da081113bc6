//! Fields that may hold other values, and why.

/// Fields of which some damage isn't found.
pub struct Accepted {
    /// The label; a star stands for anything.
    pub fields: &'static str,
    /// Why.
    pub reason: &'static str,
}

impl Accepted {
    pub fn covers(&self, label: &str) -> bool {
        match self.fields.split_once('*') {
            Some((start, end)) => label.starts_with(start) && label.ends_with(end),
            None => label == self.fields,
        }
    }
}

const fn any(fields: &'static str, reason: &'static str) -> Accepted {
    Accepted { fields, reason }
}

pub const ACCEPTED: &[Accepted] = &[
    // Superblocks.
    any("*superblock/minor_rev_level", "compatible"),
    any("*superblock/flags", "no meaning"),
    any("*superblock/feature_compat", "others may ignore them"),
    any("*superblock/mtime", "a time"),
    any("*superblock/wtime", "a time"),
    any("*superblock/lastcheck", "a time"),
    any("*superblock/mnt_count", "a setting"),
    any("*superblock/max_mnt_count", "a setting"),
    any("*superblock/checkinterval", "a setting"),
    any("*superblock/errors", "a setting"),
    any("*superblock/creator_os", "no meaning"),
    any("*superblock/def_resuid", "a setting"),
    any("*superblock/def_resgid", "a setting"),
    any("*superblock/volume_name", "a setting, kept in each copy"),
    any("*superblock/c_interval", "a setting"),
    any("*superblock/c_block_max", "a setting"),
    any("*superblock/state", "clean and unclean are both possible"),
    any("first superblock/free_blocks_count", "the copy is older than the other"),
    any("first superblock/last_pseg", "the copy is older than the other"),
    any("first superblock/last_seq", "the copy is older than the other"),
    any("*superblock/feature_compat_ro", "a known feature"),
    // Logs.
    any("*log/create", "a time"),
    any("log/flags", "Linux sets the cleaner's flag in some logs only"),
    any("log/finfo[0].ino", "the blocks don't live"),
    any("log/item[0]", "the block doesn't live"),
    any("log/finfo[0].ndatablk", "the blocks don't live"),
    any("DAT entry/end", "the block is in no checkpoint that is checked"),
    any("newest log/flags", "Linux sets the cleaner's flag in some logs only"),
    any("super root/nongc_ctime", "a time"),
    // Checkpoints and segments.
    any("*checkpoint/create", "a time"),
    any("snapshot/create", "a time"),
    any("*checkpoint/nblk_inc", "statistics"),
    any("snapshot/nblk_inc", "statistics"),
    any("*checkpoint/flags", "whether users see a change"),
    any("snapshot/flags", "whether users see a change"),
    any("plain checkpoint/inodes_count", "the cleaner may have taken what it refers to"),
    any("plain checkpoint/blocks_count", "the cleaner may have taken what it refers to"),
    any("usage/lastmod", "a time"),
    any("usage/flags", "whether it is active isn't kept"),
    any("sufile header/last_alloc", "where a search starts"),
    // Files.
    any("inode of*/links_count", "at least one"),
    any("*/mtime", "a time"),
    any("*/mtime_nsec", "a time"),
    any("*/ctime_nsec", "a time"),
    any("*/uid", "any owner"),
    any("*/gid", "any group"),
    any("*/generation", "any number"),
    any("inode of*/blocks", "mkfs counts blocks as sectors"),
    any("inode 40000/blocks", "mkfs counts blocks as sectors"),
    any("inode*/mode", "any permissions"),
    any("inode*/flags", "any flags"),
    any("inode 100000/size", "the rest is a hole"),
    any("entry/name[0]", "another name"),
    any("entry/name_len", "a part of the name is a name"),
    any("*/ctime", "a time"),
];
