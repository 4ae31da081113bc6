//! The real kernel as the judge of NILFS2 images that were built and grown: it reads, changes and cleans them.
//!
//! Skipped, with a line that says so, where no guest can run.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::reshape::NewSize;
use drystone::{Nilfs2BuildOptions, Nilfs2Builder, grow_nilfs2};
use drystone_blockdev::{BlockDevice, FileDevice, OpenMode};
use drystone_mkfs::tree::{FileTree, InodeTimestamp, NodeContent, NodeMetadata, NodeToInsert};
use drystone_nilfs2::{MountOptions, Nilfs2};
use drystone_nilfs2_check::{Nilfs2CheckOptions, check};
use drystone_sync::Arc;
use drystone_testkit::judges::Scratch;
use drystone_testkit::nilfs2::{Nilfs2Guest, Nilfs2View};
use drystone_testkit::tree::{TreeSnapshot, diff};
use std::path::Path;

/// What the guest prints between two views.
const NEXT: &str = "== changed and cleaned";

fn built_tree() -> FileTree {
    let mut tree = FileTree::new();
    let mut insert = |path: String, permissions: u16, node: NodeToInsert| {
        let metadata = NodeMetadata::new(permissions, 1000, 70_000);
        tree.insert(path.as_bytes(), node, &metadata, InodeTimestamp::from_seconds(7)).unwrap();
    };
    let file = |bytes: Vec<u8>| NodeToInsert::File(NodeContent::Bytes(bytes));
    for number in 0..700 {
        let bytes = vec![number as u8; number * 37 % 9000];
        insert(format!("d{}/e/file-{number}", number % 7), 0o4640, file(bytes));
    }
    insert("large".to_owned(), 0o600, file((0..3_000_000_u32).map(|at| (at / 7) as u8).collect()));
    let pieces = NodeContent::Pieces { size: 5 << 20, pieces: Vec::new() };
    insert("hole".to_owned(), 0o444, NodeToInsert::File(pieces));
    insert("link".to_owned(), 0o777, NodeToInsert::Symlink(b"d0/e".to_vec()));
    let device = NodeToInsert::CharacterDevice { major: 511, minor: 256 };
    insert("device".to_owned(), 0o620, device);
    insert("fifo".to_owned(), 0o600, NodeToInsert::Fifo);
    tree.link(b"d1/same", b"large").unwrap();
    tree
}

fn open(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(image, OpenMode::ReadWrite).unwrap())
}

/// Panics unless the engine sees what the kernel saw, and the checker finds nothing.
fn compare(image: &Path, kernel: &TreeSnapshot, what: &str) {
    let report = check(&open(image), &Nilfs2CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{what}: {:#?}", report.problems);
    let read_only = MountOptions::default().read_only(true);
    let fs = Nilfs2::mount(open(image), &read_only).unwrap();
    let ours = TreeSnapshot::read(&fs, "/", &Nilfs2View::tree_options()).unwrap();
    assert!(ours.entries.len() > 700, "{what}: {} paths", ours.entries.len());
    let mut found = diff(kernel, &ours);
    // The format has no times of access.
    found.retain(|line| !line.contains(": accessed: "));
    assert_eq!(found, [""; 0], "{what}");
}

/// Builds an image, has it grown, and lets the kernel change and clean it.
fn live(block_size: u32, blocks_per_segment: u32) {
    let scratch = Scratch::new("nilfs2-built").unwrap();
    let image = scratch.join("image");
    let tree = built_tree();
    let options =
        Nilfs2BuildOptions::default().block_size(block_size).blocks_per_segment(blocks_per_segment);
    let builder = Nilfs2Builder::new(&tree, &options).unwrap();
    std::fs::File::create(&image).unwrap().set_len(builder.size_bytes()).unwrap();
    builder.write(&open(&image), &()).unwrap();
    // The kernel's changes have room only in the new segments.
    let grown = grow_nilfs2(&image, NewSize::More(48 << 20)).unwrap();
    assert!(grown.segments > grown.segments_before, "{grown:?}");
    let before = scratch.join("before");
    std::fs::copy(&image, &before).unwrap();
    let script = format!(
        "view_current; echo '{NEXT}'; populate 1 large churn=3; rm -r /mnt/d0 /mnt/large
        sync; gc 2; cp -r /mnt/d2 /mnt/copy; sync; view_current"
    );
    let Some(result) = Nilfs2Guest::new(&image).run(&script).unwrap() else { return };
    let output = result.expect_clean("a built and grown image");
    let (built, changed) = output.split_once(NEXT).unwrap();
    let built = Nilfs2View::parse(built).unwrap();
    assert_eq!(built.segments.len() as u64, grown.segments);
    compare(&before, &built.current, "as it was built and grown");
    let changed = Nilfs2View::parse(changed).unwrap();
    compare(&image, &changed.current, "after the kernel's changes");
}

#[test]
fn the_kernel_uses_small_blocks_that_were_built_and_grown() {
    live(1024, 64);
}

#[test]
fn the_kernel_uses_short_segments_that_were_built_and_grown() {
    live(4096, 16);
}
