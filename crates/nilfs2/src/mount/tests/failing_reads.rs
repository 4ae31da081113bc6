//! A device that can't read something fails what needs it, and nothing else.

use super::*;
use drystone_vfs::{Errno, InodeNumber as Number, RenameFlags};

/// The same volume with nothing in memory.
fn remounted(device: &FaultyMemory) -> (FaultyMemory, Nilfs2) {
    let device = crashed(device);
    let fs = mount(&device);
    (device, fs)
}

fn fail_reads(device: &FaultyMemory) {
    device.inject(Fault::of(DeviceOperation::Read, Effect::InputOutputError));
}

fn find(fs: &Nilfs2, parent: Number, name: &[u8]) -> Option<Number> {
    let found = fs.lookup(&RequestContext::superuser(), parent, name);
    match found.map_err(|error| error.errno) {
        Ok(found) => Some(found.inode),
        Err(Errno::ENOENT) => None,
        Err(errno) => panic!("{errno:?}"),
    }
}

fn used(fs: &Nilfs2) -> u64 {
    let statistics = fs.statistics().unwrap();
    statistics.inodes - statistics.inodes_free
}

#[test]
fn a_rename_moves_nothing_if_it_cannot_change_the_parent() {
    let context = RequestContext::superuser();
    let (device, fs, _) = volume();
    for name in [b"d", b"e"] {
        fs.create(&context, fs.root(), name, NewNode::Directory, 0o755).unwrap();
    }
    fs.sync().unwrap();
    let (device, fs) = remounted(&device);
    let (d, e) = (find(&fs, fs.root(), b"d").unwrap(), find(&fs, fs.root(), b"e").unwrap());
    assert_eq!(find(&fs, e, b"d"), None);
    fail_reads(&device);
    let moved = fs.rename(&context, fs.root(), b"d", e, b"d", RenameFlags::empty());
    assert_eq!(moved.unwrap_err().errno, Errno::EIO);
    device.repair();
    fs.sync().unwrap();
    assert_eq!((find(&fs, fs.root(), b"d"), find(&fs, e, b"d")), (Some(d), None));
    assert_eq!(fs.attributes(fs.root()).unwrap().links, 4);
    fs.rename(&context, fs.root(), b"d", e, b"d", RenameFlags::empty()).unwrap();
    assert_eq!((find(&fs, fs.root(), b"d"), find(&fs, e, b"d")), (None, Some(d)));
}

#[test]
fn an_unlink_that_fails_leaves_the_name() {
    let context = RequestContext::superuser();
    let (device, fs, _) = volume();
    drop(fs);
    let fs = mount(&device);
    fs.unmount().unwrap();
    let fs = mount(&device);
    let a = find(&fs, fs.root(), b"a").unwrap();
    fs.forget(a, 1);
    fail_reads(&device);
    assert_eq!(fs.unlink(&context, fs.root(), b"a").unwrap_err().errno, Errno::EIO);
    device.repair();
    assert_eq!(find(&fs, fs.root(), b"a"), Some(a));
    fs.forget(a, 1);
    fs.unlink(&context, fs.root(), b"a").unwrap();
    fs.unmount().unwrap();
    assert_eq!(used(&mount(&device)), 2);
}
