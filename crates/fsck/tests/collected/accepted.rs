//! Where a repair of a collected image may differ from e2fsck's, by the image's name, and why.

const NO_REPLAY: &str = "e2fsck -fn doesn't replay the journal";
const NO_ORPHANS: &str =
    "e2fsck -fn takes orphans for inodes that are lost; the next mount deletes them";
const OTHER_DEVICE: &str = "the journal lies on another device, which isn't there";

/// Images of which `check` and `e2fsck -fn` think differently.
pub const VERDICTS: &[(&str, &str)] = &[
    ("f_jnl_64bit", NO_REPLAY),
    ("f_orphan", NO_ORPHANS),
    ("f_orphan_extents_inode", NO_ORPHANS),
    ("f_orphan_indirect_inode", NO_ORPHANS),
    ("f_zero_inode_size", "e2fsck goes on with a copy of the superblock, and says only that"),
    ("j_corrupt_commit_csum", NO_REPLAY),
    ("j_corrupt_descr_csum", NO_REPLAY),
    ("j_corrupt_journal_block", NO_REPLAY),
    ("j_corrupt_revoke_rcount", NO_REPLAY),
    ("j_recover_fast_commit", NO_REPLAY),
];

/// Images that the repair leaves as they are.
pub const LEFT: &[(&str, &str)] = &[
    ("f_crashdisk", "the superblock is overwritten, and there is no copy; e2fsck gives up as well"),
    ("f_ext_journal", OTHER_DEVICE),
    ("j_ext_dumpe2fs", OTHER_DEVICE),
    (
        "j_recover_fast_commit",
        "only the engine replays fast commits; the command has it do so first",
    ),
];

/// Images that aren't clean for e2fsck after the repair.
pub const NOT_CLEAN: &[(&str, &str)] = &[(
    "f_inlinedata_repair",
    "e2fsck doesn't count the attribute block of a link with inline data; Linux does",
)];

/// Images of which e2fsck keeps bytes that the repair gives up.
pub const KEPT_BY_E2FSCK_ALONE: &[(&str, &str)] = &[
    ("f_cloneblock_alloc_error", "without room for a copy e2fsck deletes one of two files"),
    ("f_dupsuper", "e2fsck gives the file a copy of the superblock, which never was the file's"),
    ("f_extents2", "of two extents that overlap e2fsck gives up the longer one"),
];
