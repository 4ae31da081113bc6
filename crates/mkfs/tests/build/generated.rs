//! Random trees.

use crate::trees::{Pattern, time, whole};
use crate::{build, judges};
use drystone_mkfs::build::{Ext4BuildOptions, Size, SpareRoom};
use drystone_mkfs::tree::{FileTree, NodeContent, NodeMetadata, NodeToInsert, Segment, Xattr};
use proptest::prelude::*;

/// What is inserted, and where.
#[derive(Clone, Debug)]
enum Step {
    File(Vec<u8>, u64),
    Sparse(Vec<u8>, Vec<(u64, u64)>),
    Directory(Vec<u8>, u16),
    Symlink(Vec<u8>, Vec<u8>),
    Device(Vec<u8>, u32, u32),
    Link(Vec<u8>, Vec<u8>),
    Xattr(Vec<u8>, usize),
    Remove(Vec<u8>),
}

/// Few names, so that paths collide.
fn path() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        Just(b"a".to_vec()),
        Just(b"b".to_vec()),
        Just(b"\xff\x01".to_vec()),
        Just(vec![b'n'; 255]),
        "[a-z]{1,40}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(name, 1..5).prop_map(|names| names.join(&b'/'))
}

fn step() -> impl Strategy<Value = Step> {
    let gaps = proptest::collection::vec((0..200_000_u64, 1..30_000_u64), 0..20);
    prop_oneof![
        6 => (path(), 0..200_000_u64).prop_map(|(path, size)| Step::File(path, size)),
        2 => (path(), gaps).prop_map(|(path, gaps)| Step::Sparse(path, gaps)),
        2 => (path(), 0..0o10000_u16).prop_map(|(path, mode)| Step::Directory(path, mode)),
        2 => (path(), proptest::collection::vec(1..=255_u8, 1..300))
            .prop_map(|(path, target)| Step::Symlink(path, target)),
        1 => (path(), 0..4096_u32, 0..1_048_576_u32)
            .prop_map(|(path, major, minor)| Step::Device(path, major, minor)),
        2 => (path(), path()).prop_map(|(path, target)| Step::Link(path, target)),
        2 => (path(), 0..3000_usize).prop_map(|(path, size)| Step::Xattr(path, size)),
        1 => path().prop_map(Step::Remove),
    ]
}

/// Builds a tree; impossible steps are left out.
fn tree(steps: &[Step], value_max: usize) -> FileTree {
    let mut tree = FileTree::new();
    let source = tree.add_source(Box::new(Pattern)).unwrap();
    for (number, step) in steps.iter().enumerate() {
        let metadata = NodeMetadata::new(number as u16 & 0o777, number as u32 * 70_000, 3);
        let mut insert = |path: &[u8], new, metadata: &NodeMetadata| {
            let _ = tree.insert(path, new, metadata, time());
        };
        match step {
            Step::File(path, size) => insert(path, whole(source, *size, number as u32), &metadata),
            Step::Sparse(path, gaps) => {
                let mut pieces = Vec::new();
                let mut at = 0;
                for &(gap, length) in gaps {
                    let logical = at + gap;
                    let object = number as u32;
                    pieces.push(Segment { logical, length, source, object, offset: logical });
                    at = logical + length;
                }
                let content = NodeContent::Pieces { size: at + 70_000, pieces };
                insert(path, NodeToInsert::File(content), &metadata);
            }
            Step::Directory(path, mode) => {
                insert(path, NodeToInsert::Directory, &NodeMetadata::new(*mode, 1, 2));
            }
            Step::Symlink(path, target) => {
                insert(path, NodeToInsert::Symlink(target.clone()), &metadata);
            }
            &Step::Device(ref path, major, minor) => {
                insert(path, NodeToInsert::CharacterDevice { major, minor }, &metadata);
            }
            Step::Link(path, target) => {
                let _ = tree.link(path, target);
            }
            Step::Xattr(path, size) => {
                let mut metadata = metadata.clone();
                let value = vec![b'v'; (*size).min(value_max)];
                metadata.xattrs.push(Xattr { name: b"user.x".to_vec(), value });
                metadata.xattrs.push(Xattr { name: b"security.y".to_vec(), value: b"1".to_vec() });
                insert(path, NodeToInsert::File(NodeContent::Bytes(vec![1; *size])), &metadata);
            }
            Step::Remove(path) => {
                let _ = tree.remove(path);
            }
        }
    }
    tree
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn generated_trees_are_right(
        steps in proptest::collection::vec(step(), 0..80),
        block_size in prop_oneof![Just(1024), Just(4096)],
        threads in 1..4_usize,
        percent in 0..60_u32,
    ) {
        // Larger values don't fit a small block.
        let mut tree = tree(&steps, if block_size == 4096 { 3000 } else { 700 });
        let options = Ext4BuildOptions::default().size(Size::Auto(SpareRoom::Percent(percent.into()))).block_size(block_size).threads(threads);
        let device = build(&mut tree, &options);
        judges::judge(&device);
        judges::compare(&tree, &device);
    }
}
