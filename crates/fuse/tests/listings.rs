//! Listings of directories that are damaged, or change meanwhile.
#![allow(clippy::unwrap_used, reason = "a test may fail so")]

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions};
use drystone_fuse::{
    DIRECTORY_PLUS_ENTRY_BYTES, EntryReply, Listed, NodeId, Operations, Reply, RequestCaller,
    ServingOptions,
};
use drystone_sync::Arc;
use drystone_testkit::failing::FailingFileSystem;
use drystone_testkit::judges::{FeatureSet, Scratch, mke2fs};
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use drystone_vfs::{Errno, FileSystem, NewNode, RequestContext};
use std::collections::HashMap;

const FILES: u32 = 200;

/// A file system whose root has its last names in a block that is damaged.
fn damaged() -> Arc<Ext4> {
    let scratch = Scratch::new("listings").unwrap();
    let image = scratch.join("disk.img");
    mke2fs(&image, FeatureSet::by_name("modern").unwrap(), 32 << 20)
        .unwrap()
        .expect_clean("mke2fs");
    let device = MemoryDevice::from_bytes(&std::fs::read(&image).unwrap());
    let device = Arc::new(device) as Arc<dyn BlockDevice>;
    let open = || Arc::new(Ext4::open(Arc::clone(&device), MountOptions::default()).unwrap());
    let fs = open();
    let context = RequestContext::superuser();
    let name = |number: u32| format!("file with a long name {number:05}");
    for number in 0..FILES {
        let name = name(number);
        let made = fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644);
        fs.forget(made.unwrap().inode, 1);
    }
    let mut last = Vec::new();
    fs.read_directory(&context, fs.root(), 0, &mut |entry| {
        last = entry.name.to_vec();
        true
    })
    .unwrap();
    fs.close().unwrap();
    let mut bytes = vec![0; 32 << 20];
    device.read_at(0, &mut bytes).unwrap();
    // The journal has copies, which aren't read.
    for at in 0..bytes.len() - last.len() {
        if bytes[at..].starts_with(&last) {
            device.write_at(at as u64, b"F").unwrap();
        }
    }
    open()
}

/// Entries before the damage are returned, with their references; the next request gets the error.
#[test]
fn what_was_found_before_damage_is_shown() {
    let fs = damaged();
    let operations = Operations::new(Arc::clone(&fs) as _, ServingOptions::default());
    let request = RequestCaller::default();
    let mut references = HashMap::new();
    let plain = list(|cookie, seen| {
        operations.read_directory(&request, NodeId::ROOT, cookie, 0, &mut |entry| {
            *seen = (seen.0 + 1, entry.cookie);
            true
        })
    });
    let with_attributes = list(|cookie, seen| {
        let max = 1 << 20;
        operations.read_directory_plus(
            &request,
            NodeId::ROOT,
            cookie,
            0,
            max,
            &mut |entry, found| {
                *seen = (seen.0 + 1, entry.cookie);
                if found.attributes.is_some() {
                    *references.entry(found.node.0).or_insert(0) += 1;
                }
                true
            },
        )
    });
    assert_eq!(plain, with_attributes);
    assert!((50..FILES).contains(&plain), "{plain} names");
    for (node, count) in references {
        operations.attributes(NodeId(node)).unwrap();
        operations.forget(NodeId(node), count);
    }
}

/// Lists until the error; counts the names.
fn list(mut request: impl FnMut(u64, &mut (u32, u64)) -> Reply<()>) -> u32 {
    let mut seen = (0, 0);
    loop {
        let before = seen;
        let listed = request(before.1, &mut seen);
        match listed {
            Err(_) => {
                assert_eq!(before, seen, "names were shown, and an error told");
                return seen.0;
            }
            Ok(()) => assert!(seen.0 > before.0, "the end comes before the error"),
        }
    }
}

/// A reply without entries means the end, so entries that are gone must not fill one.
#[test]
fn removed_names_do_not_end_a_listing() {
    let inner: &MemoryFileSystem =
        Box::leak(Box::new(MemoryFileSystem::new(Configuration::default())));
    let context = RequestContext::superuser();
    for number in 0..FILES {
        let name = format!("{number:05}");
        let made = inner.create(&context, inner.root(), name.as_bytes(), NewNode::Regular, 0o644);
        inner.forget(made.unwrap().inode, 1);
    }
    let mut start = 0;
    let mut listed = 0;
    inner
        .read_directory(&context, inner.root(), 0, &mut |entry| {
            if [&b"."[..], b".."].contains(&entry.name) {
                start = entry.cookie;
            } else {
                listed += 1;
            }
            true
        })
        .unwrap();
    assert_eq!(listed, FILES);
    // Call 0 lists, and those after it look up the names that the reply has room for.
    let room = 4096 / (DIRECTORY_PLUS_ENTRY_BYTES + 5).next_multiple_of(8) as u64;
    let failing = FailingFileSystem::at(inner, 1..1 + room, Errno::ENOENT);
    let operations = Operations::new(Arc::new(failing) as _, ServingOptions::default());
    let mut names = 0;
    let mut add = |_: &Listed<'_>, found: &EntryReply| {
        names += 1;
        operations.forget(found.node, 1);
        true
    };
    let caller = RequestCaller::default();
    operations.read_directory_plus(&caller, NodeId::ROOT, start, 0, 4096, &mut add).unwrap();
    assert!(names > 0, "the listing seems to be at its end");
}
