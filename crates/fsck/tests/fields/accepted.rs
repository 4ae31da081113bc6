//! Where the checker and e2fsck may differ, and why. What the checker misses is among
//! them only where it is not about the image.
//!
//! Each field has an example, which every run tries: an entry whose verdicts have come to agree fails
//! the test, whatever else the run happens to damage.

use crate::{Difference, Found, kind_of};

/// A set, a field, and what it is damaged to.
type Example = (&'static str, &'static str, u64);

/// Differences that are as they should be, for one reason.
pub struct Accepted {
    pub difference: Difference,
    /// Whether they are accepted in the sets of the examples only.
    is_bound_to_sets: bool,
    pub reason: &'static str,
    /// Part of what the checker says of them.
    told: &'static str,
    /// An example stands for the same field of every inode, block and entry.
    pub fields: &'static [Example],
}

impl Accepted {
    pub fn covers(&self, found: &Found, set: &str, label: &str) -> bool {
        let kind = kind_of(label);
        self.difference == found.difference
            && found.ours.contains(self.told)
            && self.fields.iter().any(|(of, field, _)| {
                (*of == set || !self.is_bound_to_sets) && kind_of(field) == kind
            })
    }

    /// The same, but not in sets without an example.
    const fn in_sets(self) -> Self {
        Self { is_bound_to_sets: true, ..self }
    }
}

const fn accept(
    difference: Difference,
    reason: &'static str,
    told: &'static str,
    fields: &'static [Example],
) -> Accepted {
    Accepted { difference, is_bound_to_sets: false, reason, told, fields }
}

const fn strict(reason: &'static str, told: &'static str, fields: &'static [Example]) -> Accepted {
    accept(Difference::Strict, reason, told, fields)
}

pub const ACCEPTED: &[Accepted] = &[
    strict(
        "of attributes in inodes e2fsck doesn't check the names, nor what lies after the last one",
        "attributes",
        &[
            ("bigalloc-quota", "inode 13/attribute[0].name", 0),
            ("bigalloc-quota", "inode 13/attribute[0].name_index", 0),
            ("bigalloc-quota", "inode 13/attribute[0].name_length", 7),
            ("bigalloc-quota", "inode 13/attributes.end", 1),
        ],
    ),
    strict(
        "e2fsck takes names with zeros, which no system call can name",
        "illegal name",
        &[
            ("ext3", "attribute-block/attribute[0].name_length", 0x25),
            ("ext3", "attribute-block/attributes.end", 0x101),
        ],
    ),
    strict(
        "e2fsck doesn't compute the hash of a block, which nobody relies on; only damage changes it",
        "hash is",
        &[("ext3", "attribute-block/hash", 1)],
    ),
    strict(
        "e2fsck takes the depth of a node from the root; Linux refuses a node that says another",
        "depth is",
        &[("inline", "extent-node 15/extents.depth", 1)],
    ),
    strict(
        "e2fsck looks at few fields of inodes that no directory names, though they must be as sound",
        "",
        &[
            ("bigalloc-quota", "hidden-inode 1/blocks_hi", 1),
            ("bigalloc-quota", "hidden-inode 1/blocks_lo", 1),
            ("bigalloc-quota", "hidden-inode 1/dtime", 0x40),
            ("bigalloc-quota", "hidden-inode 1/extra_isize", 1),
            ("bigalloc-quota", "hidden-inode 1/file_acl_hi", 1),
            ("bigalloc-quota", "hidden-inode 1/flags", 0x800),
            ("bigalloc-quota", "hidden-inode 1/gid_hi", 1),
            ("bigalloc-quota", "hidden-inode 1/obsolete_fragment", 1),
            ("bigalloc-quota", "hidden-inode 1/size_hi", 8),
            ("bigalloc-quota", "hidden-inode 1/uid_hi", 1),
            ("bigalloc-quota", "hidden-inode 3/links_count", 0),
            ("bigalloc-quota", "hidden-inode 5/block[0]", 1),
            ("bigalloc-quota", "hidden-inode 3/file_acl_lo", 0xffff_ffff),
            ("bigalloc-quota", "hidden-inode 5/mode", 0x40),
            ("bigalloc-quota", "hidden-inode 8/size_lo", 0x8010_0000),
            ("attribute-inodes", "hidden-inode 8/extent[2].block", 0x19),
        ],
    ),
    accept(
        Difference::Missed,
        "e2fsck takes the hash of a value, which lies in the field of a time, for a time",
        "",
        &[("attribute-inodes", "hidden-inode 25/atime_extra", 3)],
    )
    .in_sets(),
    strict(
        "e2fsck ignores these flags of features that are off, and of directories",
        "flag ",
        &[("bigalloc-quota", "inode 2/flags", 0x18_0000)],
    ),
    strict(
        "e2fsck ignores the offset of a value that has an inode of its own; Linux writes 0",
        "is malformed",
        &[("attribute-inodes", "inode 15/attribute[0].value_offset", 0x400)],
    )
    .in_sets(),
    strict(
        "e2fsck doesn't compare the size of an inode's value with it; Linux refuses the attribute",
        "doesn't hold a value of",
        &[("attribute-inodes", "inode 15/attribute[0].value_size", 0xfff)],
    )
    .in_sets(),
    strict(
        "e2fsck takes files whose flags say that they are values; Linux refuses them",
        "which is reserved",
        &[("attribute-inodes", "inode 12/flags", 0x28_0000)],
    )
    .in_sets(),
    strict(
        "e2fsck takes values in inodes without their feature; Linux refuses the attributes",
        "flag ea_inode on without its feature",
        &[("attribute-inodes", "superblock/feature_incompat", 0x43c2)],
    ),
    strict(
        "e2fsck takes inline files of sizes beyond what their inode holds",
        "inline data: size is",
        &[("inline", "inode 13/size_lo", 0x41), ("inline", "inode 21/size_hi", 4)],
    ),
    strict(
        "e2fsck takes inline links that end before their size",
        "symbolic link",
        &[
            ("inline", "inode 23/attribute[0].value", 0),
            ("inline", "inode 23/attribute[0].value_offset", 0x33),
            ("inline", "inode 23/block[8]", 0x41),
        ],
    )
    .in_sets(),
    strict(
        "e2fsck doesn't count the blocks of inline links",
        "sectors in use",
        &[("inline", "inode 23/blocks_hi", 1), ("inline", "inode 23/blocks_lo", 1)],
    )
    .in_sets(),
    strict(
        "e2fsck doesn't look whether a link's target is written; unwritten blocks read as zeros",
        "symbolic link",
        &[("bigalloc-quota", "inode 23/extent[0].length", 0x8001)],
    ),
    strict(
        "e2fsck takes a cluster for used once if two places of a file have it, one after the other",
        "claimed by inode",
        &[("bigalloc-quota", "inode 16/extent[0].length", 0x11)],
    )
    .in_sets(),
    strict(
        "e2fsck lets one extent begin where the file ends, whose data nobody can read",
        "its blocks ask for",
        &[("bigalloc-quota", "inode 16/size_lo", 0x0445_c000)],
    ),
    strict(
        "e2fsck takes the pointers of a link with blocks for its target, if its size is so small",
        "sectors in use",
        &[("ext3", "inode 22/size_lo", 2)],
    ),
    strict(
        "e2fsck doesn't take the last inode's number for that of the next orphan, which was in its place",
        "but deleted at",
        &[("ext3", "inode 63/dtime", 0x40)],
    ),
    strict(
        "e2fsck takes one link for too many to count even without dir_nlink",
        ": 1 links, counted",
        &[("ext2", "inode 16/links_count", 1), ("ext3", "inode 16/links_count", 1)],
    )
    .in_sets(),
    strict(
        "with large_dir e2fsck takes directories that are larger than their blocks",
        "its blocks ask for",
        &[("attribute-inodes", "inode 2/size_hi", 0x1000)],
    )
    .in_sets(),
    strict(
        "e2fsck doesn't use the log of a clean image; Linux refuses the journal",
        "journal superblock",
        &[("ext3", "journal/s_first", 0), ("ext3", "journal/s_maxlen", 0)],
    ),
    strict(
        "e2fsck reads the entries alone; Linux refuses the file",
        "quota file: block 0",
        &[
            ("bigalloc-quota", "quota/free_block", 1),
            ("bigalloc-quota", "quota/free_entry_block", 1),
            ("bigalloc-quota", "quota/magic", 0xc),
        ],
    ),
    strict(
        "e2fsck takes the quota feature without quota files; Linux refuses to mount for writing",
        "quota needs a quota file",
        &[("ext3", "superblock/feature_ro_compat", 0x103)],
    ),
    accept(
        Difference::GivenUp,
        "e2fsck refuses unknown features as well, but uses a copy where they hide the descriptors",
        "features that the checker doesn't know",
        &[("group-checksums", "superblock/feature_ro_compat", 0x7c)],
    )
    .in_sets(),
    strict(
        "e2fsck takes numbers of quota files without their feature if the inodes are free",
        "without the feature quota",
        &[
            ("ext3", "superblock/grp_quota_inum", 4),
            ("ext3", "superblock/prj_quota_inum", 4),
            ("ext3", "superblock/usr_quota_inum", 4),
        ],
    ),
    strict(
        "e2fsck takes the journal or a quota file for the orphan file of an image without its feature",
        "s_orphan_file_inum",
        &[("ext3", "superblock/orphan_file_inum", 8)],
    ),
    strict(
        "e2fsck takes a function for known that Linux can't compute",
        "needs a known hash function",
        &[("ext3", "superblock/def_hash_version", 9)],
    ),
    strict(
        "e2fsck -n doesn't follow the list of orphans, a mount does",
        "orphans: ",
        &[("ext3", "superblock/last_orphan", 1)],
    ),
    strict(
        "e2fsck doesn't look for reserved blocks after as many as the superblock says",
        "reserved for growth",
        &[("bigalloc-quota", "superblock/reserved_gdt_blocks", 1)],
    ),
];
