//! What can't be in an image is refused, with the path.

use crate::build;
use crate::trees::{Pattern, meta, time, whole};
use drystone_blockdev::MemoryDevice;
use drystone_mkfs::Error;
use drystone_mkfs::build::{BuildMonitor, Builder, Ext4BuildOptions};
use drystone_mkfs::tree::{
    ContentSource, FileTree, NodeContent, NodeMetadata, NodeToInsert, SourceError, Xattr,
};

fn problem(tree: &mut FileTree, options: &Ext4BuildOptions) -> String {
    match Builder::new(tree, options) {
        Ok(_) => panic!("it was laid out"),
        Err(error) => error.to_string(),
    }
}

fn file_with(name: &str, value: Vec<u8>) -> FileTree {
    let mut tree = FileTree::new();
    let mut metadata = meta(0o644);
    metadata.xattrs.push(Xattr { name: name.as_bytes().to_vec(), value });
    tree.insert(b"d/file", NodeToInsert::Fifo, &metadata, time()).unwrap();
    tree
}

#[test]
fn attributes_that_do_not_fit() {
    let options = Ext4BuildOptions::default();
    let text = problem(&mut file_with("user.large", vec![1; 5000]), &options);
    assert!(text.contains("/d/file") && text.contains("fit"), "{text}");
    let text = problem(&mut file_with("other.name", vec![1]), &options);
    assert!(text.contains("/d/file") && text.contains("other.name"), "{text}");
    let text = problem(&mut file_with("system.posix_acl_access", vec![1; 7]), &options);
    assert!(text.contains("/d/file") && text.contains("posix_acl_access"), "{text}");
}

#[test]
fn too_many_links() {
    let mut tree = FileTree::new();
    let node = tree.insert(b"first", NodeToInsert::Fifo, &meta(0o644), time()).unwrap();
    let directory = tree.insert(b"d", NodeToInsert::Directory, &meta(0o755), time()).unwrap();
    for number in 1..65_000 {
        tree.link_in(directory, number.to_string().as_bytes(), node).unwrap();
    }
    build(&mut tree, &Ext4BuildOptions::default());
    tree.link_in(directory, b"one more", node).unwrap();
    let text = problem(&mut tree, &Ext4BuildOptions::default());
    assert!(text.contains("/first") && text.contains("65001 hard links"), "{text}");
}

#[test]
fn files_that_are_too_long_and_odd_devices() {
    let mut tree = FileTree::new();
    let source = tree.add_source(Box::new(Pattern)).unwrap();
    tree.insert(b"long", whole(source, 1 << 45, 0), &meta(0o644), time()).unwrap();
    let text = problem(&mut tree, &Ext4BuildOptions::default());
    assert!(text.contains("/long"), "{text}");
    let mut tree = FileTree::new();
    let device = NodeToInsert::BlockDevice { major: 5000, minor: 1 };
    tree.insert(b"device", device, &meta(0o644), time()).unwrap();
    assert!(problem(&mut tree, &Ext4BuildOptions::default()).contains("/device"));
}

#[test]
fn features_without_a_builder() {
    for name in ["^extent", "bigalloc", "quota"] {
        let change = drystone_ext4_format::features::Features::parse(name).unwrap();
        let features = drystone_mkfs::default_features().apply(&change);
        let options = Ext4BuildOptions::default().features(features);
        problem(&mut FileTree::new(), &options);
    }
}

/// Fails in the middle.
#[derive(Debug)]
struct Broken;

impl ContentSource for Broken {
    fn read_at(&self, _: u32, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        if offset >= 3 << 20 {
            return Err(SourceError { path: b"source".to_vec(), problem: "changed".into() });
        }
        buffer.fill(1);
        Ok(())
    }
}

fn broken() -> FileTree {
    let mut tree = FileTree::new();
    let source = tree.add_source(Box::new(Broken)).unwrap();
    let content = NodeContent::Whole { size: 8 << 20, source, object: 0, offset: 0 };
    let new = NodeToInsert::File(content);
    tree.insert(b"file", new, &NodeMetadata::default(), time()).unwrap();
    tree
}

#[test]
fn a_source_that_fails_ends_the_build_and_leaves_no_image() {
    for threads in [1, 3] {
        let mut tree = broken();
        let options = Ext4BuildOptions::default().threads(threads);
        let builder = Builder::new(&mut tree, &options).unwrap();
        let device = MemoryDevice::new(builder.size_bytes());
        let error = builder.write(&device, true, &()).unwrap_err();
        assert!(matches!(error, Error::Source(_)), "{error}");
        assert!(device.to_vec()[1024..2048].iter().all(|&byte| byte == 0));
    }
}

struct Cancelled;

impl BuildMonitor for Cancelled {
    fn is_cancelled(&self) -> bool {
        true
    }
}

#[test]
fn a_build_can_be_given_up() {
    let mut tree = broken();
    let builder = Builder::new(&mut tree, &Ext4BuildOptions::default()).unwrap();
    let device = MemoryDevice::new(builder.size_bytes());
    let error = builder.write(&device, true, &Cancelled).unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
}

/// A source that has a bug.
#[derive(Debug)]
struct Panics;

impl ContentSource for Panics {
    fn read_at(&self, _: u32, _: u64, _: &mut [u8]) -> Result<(), SourceError> {
        panic!("as it should")
    }
}

#[test]
fn nobody_waits_for_a_thread_that_panicked() {
    let mut tree = FileTree::new();
    let source = tree.add_source(Box::new(Panics)).unwrap();
    // More than may wait for the threads.
    tree.insert(b"file", whole(source, 64 << 20, 0), &meta(0o644), time()).unwrap();
    let options = Ext4BuildOptions::default().threads(2);
    let builder = Builder::new(&mut tree, &options).unwrap();
    let device = MemoryDevice::new(builder.size_bytes());
    let write = || builder.write(&device, true, &());
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(write));
    assert!(ended.is_err());
}
