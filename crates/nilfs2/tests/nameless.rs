//! Inodes that have lost their names while they were in use are freed: by the unmount, or by the mount
//! after a crash. No deleted inode comes back.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_nilfs2::{InodeSearch, MountOptions, Nilfs2};
use drystone_sync::Arc;
use drystone_vfs::{Entry, Errno, FileSystem, NewNode, RequestContext};
use std::time::Duration;
use support::{image, judge, mount};

fn make(fs: &Nilfs2, name: &str) -> Entry {
    let context = RequestContext::superuser();
    fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644).unwrap()
}

/// A mount with many files, and one more that is open, has content, and lost its name.
fn with_nameless(device: &Arc<MemoryDevice>) -> Nilfs2 {
    let context = RequestContext::superuser();
    let fs = mount(device, &MountOptions::default());
    for number in 0..100 {
        fs.forget(make(&fs, &format!("file-{number}")).inode, 1);
    }
    let open = make(&fs, "open");
    fs.write_all(&context, open.inode, 0, &[7; 50_000]).unwrap();
    fs.sync().unwrap();
    fs.unlink(&context, fs.root(), b"open").unwrap();
    fs.sync().unwrap();
    fs
}

fn inodes_used(fs: &Nilfs2) -> u64 {
    let statistics = fs.statistics().unwrap();
    statistics.inodes - statistics.inodes_free
}

#[test]
fn an_unmount_frees_what_nobody_gave_back() {
    let device = image(8, 4096, 16);
    with_nameless(&device).unmount().unwrap();
    judge(&*device, "after the unmount");
    assert_eq!(inodes_used(&mount(&device, &MountOptions::default())), 101);
}

#[test]
fn a_mount_after_a_crash_frees_them() {
    let device = image(8, 4096, 16);
    let fs = with_nameless(&device);
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    drop(fs);
    let crashed = MemoryDevice::new(bytes.len() as u64);
    crashed.write_at(0, &bytes).unwrap();
    let crashed = Arc::new(crashed);
    let fs = mount(&crashed, &MountOptions::default());
    assert_eq!(inodes_used(&fs), 101);
    fs.unmount().unwrap();
    judge(&*crashed, "after the crash");
}

/// Until the next log, the record of a deleted inode is as it was.
#[test]
fn a_deleted_inode_is_not_found_by_its_number() {
    for logs_unlink in [false, true] {
        let device = image(8, 4096, 16);
        let fs =
            mount(&device, &MountOptions::default().commit_interval(Duration::from_secs(3600)));
        let context = RequestContext::superuser();
        let file = make(&fs, "file").inode;
        fs.write_all(&context, file, 0, &[7; 50_000]).unwrap();
        fs.sync().unwrap();
        fs.unlink(&context, fs.root(), b"file").unwrap();
        if logs_unlink {
            fs.sync().unwrap();
        }
        fs.forget(file, 1);
        for what in ["before the log", "after it"] {
            let found = fs.find_inode(file).map_err(|error| error.errno);
            assert_eq!(found, Err(Errno::ESTALE), "{what}, the unlink was logged: {logs_unlink}");
            let written = fs.write(&context, file, 0, b"zombie").map_err(|error| error.errno);
            assert_eq!(written, Err(Errno::ESTALE), "{what}");
            fs.sync().unwrap();
        }
        assert_eq!(inodes_used(&fs), 1);
        fs.unmount().unwrap();
        judge(&*device, "after the unmount");
    }
}

/// No number stands for two inodes in one log.
#[test]
fn a_number_is_free_again_after_the_next_log() {
    let device = image(8, 4096, 16);
    let options = MountOptions::default()
        .commit_interval(Duration::from_secs(3600))
        .inode_search(InodeSearch::First);
    let fs = mount(&device, &options);
    let remade = |fs: &Nilfs2| {
        let made = make(fs, "file").inode;
        fs.unlink(&RequestContext::superuser(), fs.root(), b"file").unwrap();
        fs.forget(made, 1);
        made
    };
    let first = remade(&fs);
    assert_ne!(remade(&fs), first);
    fs.sync().unwrap();
    assert_eq!(remade(&fs), first);
    fs.unmount().unwrap();
    judge(&*device, "after the unmount");
}
