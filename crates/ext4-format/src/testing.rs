//! Layouts for unit tests.

use crate::features::Features;
use crate::layout::{Geometry, Layout};

/// A plausible geometry: 4 KiB blocks, 10 groups, all default features of the tools.
pub(crate) fn geometry() -> Geometry {
    let list = "has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,\
                sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum";
    Geometry {
        features: Features::NONE.apply(&Features::parse(list).unwrap()),
        uuid: [7; 16],
        checksum_seed: 0,
        log_block_size: 2,
        log_cluster_size: 2,
        blocks_count: 300_000,
        clusters_per_group: 32_768,
        inodes_per_group: 8192,
        inode_size: 256,
        first_inode: 11,
        descriptor_size: 64,
        reserved_descriptor_blocks: 100,
        first_meta_group: 0,
        log_groups_per_flex: 4,
        backup_groups: [0; 2],
        extra_inode_size: 32,
    }
}

/// The layout of [`geometry`].
pub(crate) fn layout() -> Layout {
    Layout::new(&geometry()).unwrap()
}
