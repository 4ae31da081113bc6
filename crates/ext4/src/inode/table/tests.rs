//! A full table drops inodes, and loses none.

use super::*;
use crate::MountOptions;
use crate::testing::TestImage;
use drystone_vfs::{FileSystem, NewNode, RequestContext};

#[test]
fn what_is_given_back_leaves_a_full_table() {
    let Some(image) = TestImage::new("default", 32) else { return };
    let options = MountOptions { memory_budget_bytes: 1 << 20, ..MountOptions::default() };
    let bound = options.inodes_cached_max().max(SHARDS_MAX);
    let fs = image.open_with(options);
    let context = RequestContext::superuser();
    let create = |number: usize| {
        let name = number.to_string();
        let made = fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644);
        made.unwrap().inode
    };
    let made: Vec<_> = (0..bound * 4).map(create).collect();
    for inode in &made {
        fs.forget(*inode, 1);
    }
    // Each shard may keep its share, rounded up.
    assert!(fs.inodes.len() <= bound + SHARDS_MAX, "{} of {bound}", fs.inodes.len());
    // They can be found again.
    let again = fs.lookup(&context, fs.root(), b"0").unwrap();
    assert_eq!(again.inode, made[0]);
    fs.forget(again.inode, 1);
    fs.close().unwrap();
    image.check("after shedding inodes");
}

/// A caller holds references to more files than there is room for.
#[test]
fn held_inodes_leave_a_full_table_and_come_back() {
    let Some(image) = TestImage::new("default", 32) else { return };
    let options = MountOptions { memory_budget_bytes: 1 << 20, ..MountOptions::default() };
    let bound = options.inodes_cached_max().max(SHARDS_MAX);
    let fs = image.open_with(options);
    let context = RequestContext::superuser();
    let made: Vec<_> = (0..bound * 4)
        .map(|number| {
            let name = number.to_string();
            let made = fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644);
            let inode = made.unwrap().inode;
            fs.write(&context, inode, 0, name.as_bytes()).unwrap();
            inode
        })
        .collect();
    assert!(fs.inodes.len() <= bound + SHARDS_MAX * 2, "{} of {bound}", fs.inodes.len());
    for (number, inode) in made.iter().enumerate() {
        let name = number.to_string();
        // They work as if they had never left; one without a name lives as long as it is held.
        if number % 3 == 0 {
            fs.unlink(&context, fs.root(), name.as_bytes()).unwrap();
        }
        let mut content = [0; 8];
        let length = fs.read(*inode, 0, &mut content).unwrap();
        assert_eq!(&content[..length], name.as_bytes());
        if number % 5 == 0 {
            assert_eq!(fs.lookup(&context, fs.root(), b"1").unwrap().inode, made[1]);
        }
    }
    for inode in &made {
        fs.forget(*inode, 1);
    }
    fs.forget(made[1], made.len().div_ceil(5) as u64);
    assert!(fs.attributes(made[0]).is_err() && fs.inodes.len() <= bound + SHARDS_MAX);
    assert!(fs.inodes.shards.iter().all(|shard| shard.lock().parked.is_empty()));
    fs.close().unwrap();
    image.check("after held inodes had left");
}

/// One thread decodes a record. Before it adds the inode, another thread loads the inode and changes it,
/// and it leaves memory.
#[test]
fn what_changed_while_it_was_decoded_is_decoded_again() {
    let Some(image) = TestImage::new("default", 32) else { return };
    // Room for a single inode.
    let options = MountOptions { memory_budget_bytes: 8 << 10, ..MountOptions::default() };
    let fs = image.open_with(options);
    let context = RequestContext::superuser();
    let mut made = Vec::new();
    for number in 0..20 {
        let name = number.to_string();
        let entry = fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644);
        let inode = entry.unwrap().inode;
        fs.forget(inode, 1);
        made.push(InodeNumber::new(inode.0 as u32));
    }
    let number = made[0];
    let leave = || {
        for other in &made[1..] {
            fs.inode(*other).unwrap();
        }
        assert!(fs.inodes.get(number).is_none());
    };
    leave();
    let mut decoded = 0;
    let inode = fs.inodes.get_or_add(number, || {
        let inode = fs.inode_now(number)?;
        decoded += 1;
        if decoded == 1 {
            let mut handle = fs.volume.start(4)?;
            fs.inode(number)?.update(&fs, &mut handle, |fields| {
                fields.disk.user = 77;
                Ok(())
            })?;
            handle.stop()?;
            leave();
        }
        Ok(inode)
    });
    assert_eq!((decoded, inode.unwrap().fields().disk.user), (2, 77));
    fs.close().unwrap();
    image.check("after an inode had come and gone");
}

/// A look-up that has to read the directory asks for it twice, and is one use all the same.
#[test]
fn a_slow_look_up_is_one_use_of_its_directory() {
    let Some(image) = TestImage::new("default", 32) else { return };
    let context = RequestContext::superuser();
    let fs = image.open();
    let made = fs.create(&context, fs.root(), b"directory", NewNode::Directory, 0o755).unwrap();
    fs.create(&context, made.inode, b"file", NewNode::Regular, 0o644).unwrap();
    fs.close().unwrap();
    let fs = image.open();
    let directory = fs.lookup(&context, fs.root(), b"directory").unwrap().inode;
    let handles = || {
        let inode = fs.inodes.get(InodeNumber::new(directory.0 as u32)).unwrap();
        // Without that of the table, and this one.
        Arc::strong_count(&inode) - 2
    };
    for kept in [0, 1] {
        let file = fs.lookup(&context, directory, b"file").unwrap();
        assert_eq!(handles(), kept);
        fs.forget(file.inode, 1);
    }
    fs.forget(directory, 1);
    fs.close().unwrap();
}

/// A thread that moves files from one directory to another keeps both, until it uses two others.
#[test]
fn the_directories_of_renames_are_kept() {
    let Some(image) = TestImage::new("default", 32) else { return };
    let context = RequestContext::superuser();
    let fs = image.open();
    let make = |parent, name: &[u8], node| {
        let made = fs.create(&context, parent, name, node, 0o755).unwrap().inode;
        fs.forget(made, 1);
        made
    };
    let [first, second, third, fourth] =
        [b"1", b"2", b"3", b"4"].map(|name| make(fs.root(), name.as_slice(), NewNode::Directory));
    let is_kept = |directory: drystone_vfs::InodeNumber| {
        let inode = fs.inodes.get(InodeNumber::new(directory.0 as u32)).unwrap();
        Arc::strong_count(&inode) > 2
    };
    make(first, b"file", NewNode::Regular);
    let flags = drystone_vfs::RenameFlags::empty();
    for (from, to) in [(first, second), (second, first), (first, second)] {
        fs.rename(&context, from, b"file", to, b"file", flags).unwrap();
    }
    assert!(is_kept(first) && is_kept(second));
    // A single use of others changes nothing.
    make(third, b"file", NewNode::Regular);
    make(second, b"other", NewNode::Regular);
    assert!(is_kept(first) && is_kept(second) && !is_kept(third));
    for directory in [third, fourth] {
        for name in [b"a", b"b"] {
            make(directory, name, NewNode::Regular);
        }
    }
    assert!(!is_kept(first) && !is_kept(second) && is_kept(third) && is_kept(fourth));
    fs.close().unwrap();
    image.check("after renames");
}
