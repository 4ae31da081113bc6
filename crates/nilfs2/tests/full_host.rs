//! A host without room for the log: it waits for some, and nothing is lost.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice};
use drystone_nilfs2::{MountOptions, Nilfs2};
use drystone_sync::{Arc, thread};
use drystone_vfs::{Errno, FileSystem, NewNode, RequestContext};
use std::time::Duration;
use support::{image, judge, mount};

type Host = Arc<Faulty<Arc<MemoryDevice>>>;

/// A mount with a file that no log has, on a host that is full now.
fn mount_full(full_medium_wait: Duration) -> (Arc<MemoryDevice>, Host, Nilfs2) {
    let device = image(8, 4096, 16);
    let host = Arc::new(Faulty::new(Arc::clone(&device)));
    let options = MountOptions::default().full_medium_wait(full_medium_wait);
    let shared: Arc<dyn BlockDevice> = Arc::clone(&host) as Arc<dyn BlockDevice>;
    let fs = Nilfs2::mount(shared, &options).unwrap();
    let context = RequestContext::superuser();
    let entry = fs.create(&context, fs.root(), b"file", NewNode::Regular, 0o644).unwrap();
    fs.write_all(&context, entry.inode, 0, &[7; 10_000]).unwrap();
    fs.forget(entry.inode, 1);
    host.inject(Fault::of(DeviceOperation::Write, Effect::NoSpace));
    (device, host, fs)
}

/// Frees room on a host that has refused some writes.
fn free_room(host: &Host) -> thread::JoinHandle<()> {
    let host = Arc::clone(host);
    thread::spawn("frees room", move || {
        while host.failures() < 3 {
            thread::yield_now();
        }
        host.repair();
    })
    .unwrap()
}

#[test]
fn the_log_waits_for_room() {
    let (device, host, fs) = mount_full(Duration::from_secs(60));
    let freed = free_room(&host);
    fs.sync().unwrap();
    freed.join().unwrap();
    fs.unmount().unwrap();
    judge(&*device, "after the host had room again");
    let fs = mount(&device, &MountOptions::default());
    let entry = fs.lookup(&RequestContext::superuser(), fs.root(), b"file").unwrap();
    assert_eq!(entry.size, 10_000);
}

/// Superblocks are written beside the log.
#[test]
fn a_superblock_waits_for_room() {
    let (device, host, fs) = mount_full(Duration::from_secs(60));
    host.repair();
    fs.sync().unwrap();
    let superblocks = [1024..2048, device.size_bytes() - 4096..device.size_bytes()];
    for superblock in superblocks {
        let fault = Fault::of(DeviceOperation::Write, Effect::NoSpace);
        host.inject(fault.in_range(superblock));
    }
    let freed = free_room(&host);
    fs.unmount().unwrap();
    freed.join().unwrap();
    judge(&*device, "after the host had room again");
}

#[test]
fn a_log_that_may_not_wait_stops() {
    let (device, host, fs) = mount_full(Duration::ZERO);
    assert_eq!(fs.sync().unwrap_err().errno, Errno::EIO);
    host.repair();
    let made = fs.create(&RequestContext::superuser(), fs.root(), b"b", NewNode::Regular, 0o644);
    assert_eq!(made.unwrap_err().errno, Errno::EIO);
    drop(fs);
    judge(&*device, "what the last checkpoint has");
}
