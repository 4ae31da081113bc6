//! Images built from trees, judged by e2fsck, the checker, `ext4-view` and the kernel.
#![allow(clippy::unwrap_used, reason = "a test")]

mod generated;
mod judges;
mod kernel;
mod limits;
mod sizes;
mod trees;

use drystone_blockdev::MemoryDevice;
use drystone_mkfs::build::{Builder, Ext4BuildOptions};
use drystone_mkfs::tree::FileTree;
use judges::judge;
use trees::varied;

fn build(tree: &mut FileTree, options: &Ext4BuildOptions) -> MemoryDevice {
    let builder = Builder::new(tree, options).unwrap();
    let device = MemoryDevice::new(builder.size_bytes());
    builder.write(&device, true, &()).unwrap();
    device
}

#[test]
fn a_tree_of_everything_is_right() {
    let mut tree = varied();
    let device = build(&mut tree, &Ext4BuildOptions::default());
    judge(&device);
    judges::compare(&tree, &device);
}

#[test]
fn every_shape_is_clean() {
    let features = |list: &str| {
        let change = drystone_ext4_format::features::Features::parse(list).unwrap();
        drystone_mkfs::default_features().apply(&change)
    };
    let mut shapes = Vec::new();
    for list in [
        "^metadata_csum,^metadata_csum_seed",
        "^64bit",
        "^flex_bg",
        "^dir_index",
        "^resize_inode,meta_bg",
        "^orphan_file",
        "^filetype",
        "^large_file",
        "mmp",
        "project",
        "large_dir",
    ] {
        shapes.push(Ext4BuildOptions::default().features(features(list)));
    }
    for block_size in [1024, 2048, 65_536] {
        // The targets of some symbolic links don't fit the smallest blocks.
        let block_size = Some(block_size);
        shapes.push(Ext4BuildOptions::default().block_size(block_size));
    }
    for inode_size in [128, 1024] {
        shapes.push(Ext4BuildOptions::default().inode_size(inode_size));
    }
    let mut read_only = Ext4BuildOptions::default();
    read_only.set_read_only();
    let mut smallest = Ext4BuildOptions::default();
    smallest.set_smallest();
    shapes.extend([read_only, smallest]);
    for options in shapes {
        let mut tree = varied();
        if options.block_size.is_some_and(|size| size < 4096) {
            tree.remove(b"slower").unwrap();
        }
        judge(&build(&mut tree, &options));
    }
}

#[test]
fn the_same_bytes_with_any_number_of_threads_and_order_of_insertion() {
    let bytes = |tree: &mut FileTree, threads| {
        build(tree, &Ext4BuildOptions::default().threads(threads)).to_vec()
    };
    let mut tree = trees::plain([0, 1, 2, 3, 4, 5, 6, 7]);
    let once = bytes(&mut tree, 1);
    assert!(once == bytes(&mut tree, 8), "eight threads");
    assert!(once == bytes(&mut trees::plain([7, 2, 5, 0, 1, 6, 3, 4]), 2), "another order");
    assert!(once != bytes(&mut trees::plain([7, 2, 5, 0, 1, 6, 3, 3]), 2), "another tree");
}
