//! Where the checker and e2fsck may differ, and why. What the checker misses is among
//! them only where it is not about the image.

use crate::Difference;

/// A difference that is as it should be.
pub struct Accepted {
    pub difference: Difference,
    /// Set, structure and field; `*` stands for any text.
    pub pattern: &'static str,
    pub reason: &'static str,
}

impl Accepted {
    pub fn covers(&self, label: &str, value: &str) -> bool {
        matches(self.pattern, &format!("{label} {value}"))
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

const fn strict(pattern: &'static str, reason: &'static str) -> Accepted {
    Accepted { difference: Difference::Strict, pattern, reason }
}

pub const ACCEPTED: &[Accepted] = &[
    strict(
        "inline inode */size_lo *",
        "e2fsck takes inline files of sizes beyond what their inode holds",
    ),
    strict(
        "* inode */attribute*",
        "of attributes in inodes e2fsck doesn't check the names, nor what lies behind the last one",
    ),
    strict(
        "* superblock/*_quota_inum *",
        "e2fsck takes numbers of quota files without their feature if the inodes are free",
    ),
    strict("inline inode */block[*] *", "e2fsck takes inline links that end before their size"),
    strict(
        "* hidden-inode */*",
        "e2fsck looks at few fields of inodes that no directory names, though they must be as sound",
    ),
    strict(
        "*/extents.depth *",
        "e2fsck takes the depth of a node from the root; Linux refuses a node that says another",
    ),
    strict(
        "* attribute-block/hash *",
        "e2fsck doesn't compute the hash of a block, which nobody relies on; only damage changes it",
    ),
    strict(
        "* attribute-block/attribute[*].value_size *",
        "e2fsck doesn't compute the hashes of entries in blocks",
    ),
    strict(
        "* attribute-block/attribute[*].name_length *",
        "e2fsck takes names with zeros at the end, which no system call can name",
    ),
    strict(
        "* indirect-block/pointer[*] *",
        "of the blocks reserved for growth e2fsck compares those with copies only",
    ),
    strict(
        "* journal/s_first *",
        "e2fsck doesn't use the log of a clean image; Linux refuses the journal",
    ),
    strict(
        "* superblock/feature_ro_compat *",
        "e2fsck takes the quota feature without quota files; Linux refuses to mount for writing",
    ),
    strict("* quota/*", "e2fsck reads the entries alone; Linux refuses the file"),
    strict(
        "* superblock/def_hash_version *",
        "e2fsck takes a function for known that Linux can't compute",
    ),
    strict(
        "* superblock/last_orphan *",
        "e2fsck -n doesn't follow the list of orphans, a mount does",
    ),
    strict(
        "* inode */flags *",
        "e2fsck ignores flags of features that are off; Linux refuses some such inodes",
    ),
    strict(
        "* attribute-block/attributes.end *",
        "e2fsck takes names of zeros, which no system call can name",
    ),
    strict(
        "* inode */extent[*].length *",
        "e2fsck doesn't look whether a link's target is written; unwritten blocks read as zeros",
    ),
    strict(
        "* inode */size_lo *",
        "e2fsck lets one extent begin where the file ends, whose data nobody can read",
    ),
    strict(
        "* journal/s_maxlen *",
        "e2fsck doesn't use the log of a clean image; Linux refuses a journal without a log",
    ),
    strict("inline inode */blocks_* *", "e2fsck doesn't count the blocks of inline links"),
    strict(
        "attribute-inodes inode */size_hi *",
        "with large_dir e2fsck takes directories that are larger than their blocks",
    ),
];
