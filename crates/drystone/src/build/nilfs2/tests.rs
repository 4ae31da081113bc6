//! Images of trees of many shapes, as small as the builder makes them.
#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use drystone_blockdev::MemoryDevice;
use drystone_ext4_format::acl::{Acl, AclEntry, AclTag};
use drystone_mkfs::tree::{InodeTimestamp, NodeContent, NodeMetadata, NodeToInsert, Xattr};
use drystone_nilfs2::{MountOptions, Nilfs2};
use drystone_nilfs2_check::{Nilfs2CheckOptions, check};
use drystone_vfs::{FileSystem, RequestContext};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A tree whose first file is `/f0`.
fn tree(shape: &str) -> FileTree {
    let mut tree = FileTree::new();
    let mut insert = |path: String, node: NodeToInsert| {
        let metadata = NodeMetadata::new(0o755, 1, 2);
        tree.insert(path.as_bytes(), node, &metadata, InodeTimestamp::from_seconds(7)).unwrap();
    };
    let file = |bytes: usize| NodeToInsert::File(NodeContent::Bytes(vec![7; bytes]));
    insert("f0".to_owned(), file(1));
    match shape {
        "one file" => {}
        "small files" => (1..1500).for_each(|number| {
            insert(format!("d{}/f{number}", number / 100), file(number * 37 % 8192));
        }),
        "a file of 6 MiB" => insert("large".to_owned(), file(6 << 20)),
        "empty files with long names" => (1..2000).for_each(|number| {
            insert(format!("{number:0200}"), file(0));
        }),
        "directories" => (1..1500).for_each(|number| {
            insert(format!("{}/d{number}", number % 40), NodeToInsert::Directory);
        }),
        "links" => (1..1500).for_each(|number| {
            insert(format!("l{number}"), NodeToInsert::Symlink(b"f0".to_vec()));
        }),
        _ => unreachable!("{shape} is no shape"),
    }
    tree
}

const SHAPES: [&str; 6] = [
    "one file",
    "small files",
    "a file of 6 MiB",
    "empty files with long names",
    "directories",
    "links",
];

/// Builds an image, and says how many checkpoints it has.
fn build(tree: &FileTree, options: &Nilfs2BuildOptions) -> (Arc<dyn BlockDevice>, u64) {
    let builder = Nilfs2Builder::new(tree, options).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(builder.size_bytes()));
    builder.write(&device, &()).unwrap();
    let report = check(&device, &Nilfs2CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    (device, report.summary.newest_checkpoint)
}

/// An ACL can't be stored. Without it, the group has what its own entry allows.
#[test]
fn a_file_that_loses_its_acl_is_not_opened_to_its_group() {
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let acl = Acl::new(vec![
        entry(AclTag::Owner, 6),
        entry(AclTag::User(1234), 6),
        entry(AclTag::OwningGroup, 0),
        entry(AclTag::Mask, 6),
        entry(AclTag::Other, 0),
    ]);
    let mut metadata = NodeMetadata::new(0o660, 1, 2);
    let value = acl.unwrap().to_attribute();
    metadata.xattrs.push(Xattr { name: b"system.posix_acl_access".to_vec(), value });
    let mut tree = FileTree::new();
    let file = NodeToInsert::File(NodeContent::Bytes(vec![7]));
    tree.insert(b"f", file, &metadata, InodeTimestamp::from_seconds(7)).unwrap();
    let (device, _) = build(&tree, &Nilfs2BuildOptions::default());
    let fs = Nilfs2::mount(device, &MountOptions::default()).unwrap();
    let found = fs.lookup(&RequestContext::superuser(), fs.root(), b"f").unwrap();
    assert_eq!(found.permissions, 0o600);
}

/// The bytes don't depend on the cores that make them.
#[test]
fn an_image_is_the_same_on_any_core() {
    let tree = tree("small files");
    let allowed = sched_getaffinity(None).unwrap();
    let cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let build_on = |core: usize| {
        let mut only = CpuSet::new();
        only.set(core);
        sched_setaffinity(None, &only).unwrap();
        let (device, _) = build(&tree, &Nilfs2BuildOptions::default());
        sched_setaffinity(None, &allowed).unwrap();
        let mut bytes = vec![0; device.size_bytes() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    let images: Vec<Vec<u8>> = cores.take(2).map(build_on).collect();
    assert!(images.windows(2).all(|images| images[0] == images[1]));
}

/// No log is written but at the ends of batches, since the bytes would depend on when it is.
#[test]
fn no_image_is_too_small_to_be_built_and_changed() {
    for shape in SHAPES {
        let tree = tree(shape);
        for (block_size, blocks_per_segment) in [(1024, 16), (1024, 64), (4096, 16), (4096, 64)] {
            let what = format!("{shape}, blocks of {block_size}, {blocks_per_segment} a segment");
            let options = Nilfs2BuildOptions::default()
                .block_size(block_size)
                .blocks_per_segment(blocks_per_segment)
                .threads(7);
            let (device, checkpoints) = build(&tree, &options);
            let roomy = options.size(Size::Fixed(4 * device.size_bytes()));
            assert_eq!(checkpoints, build(&tree, &roomy).1, "{what}");
            let fs = Nilfs2::mount(Arc::clone(&device), &MountOptions::default()).unwrap();
            let context = RequestContext::superuser();
            fs.unlink(&context, fs.root(), b"f0").unwrap();
            fs.unmount().unwrap();
            let report = check(&device, &Nilfs2CheckOptions::default()).unwrap();
            assert!(report.is_clean(), "{what}: {:?}", report.problems);
        }
    }
}
