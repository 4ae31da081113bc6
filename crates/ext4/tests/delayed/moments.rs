//! When waiting data is written: after a time, when there is much, and before a freeze.

use super::*;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::clock;

/// A test fails after this time; what it waits for happens much sooner.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition holds.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = clock::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn is_waiting(fs: &Ext4, file: InodeNumber) -> bool {
    let extents = fs.extents(file, 0, u64::MAX, 1000).unwrap();
    extents.iter().any(|extent| extent.flags.contains(ExtentFlags::DELAYED))
}

/// The data gets to the device without any further call.
#[test]
fn an_idle_mount_writes_what_waits() {
    let device = image(64);
    let options = MountOptions::default().commit_interval(Duration::from_millis(30));
    let fs = mount(&device, options);
    let context = RequestContext::superuser();
    let file = new_file(&fs, "f");
    fs.write(&context, file, 0, b"some data").unwrap();
    let is_there = || {
        let Ok(fs) = Ext4::open(Arc::new(device.snapshot()), MountOptions::default()) else {
            return false;
        };
        let found = fs.lookup(&context, fs.root(), b"f");
        found.is_ok_and(|file| read_all(&fs, file.inode) == b"some data")
    };
    wait_for("the data is on the device", is_there);
    assert!(!is_waiting(&fs, file));
    fs.close().unwrap();
}

/// Much data doesn't wait for the interval, and never takes more memory than it may.
#[test]
fn what_waits_is_bounded() {
    let device = image(128);
    let fs = mount(&device, unhurried().memory_budget_bytes(8 << 20));
    let context = RequestContext::superuser();
    let file = new_file(&fs, "f");
    for block in 0..2000 {
        fs.write(&context, file, block * BLOCK, &[block as u8; BLOCK as usize]).unwrap();
        let waiting = fs.memory_use().waiting_bytes;
        assert!(waiting <= 1 << 20, "{waiting} bytes wait");
    }
    wait_for("half of it is written", || fs.memory_use().waiting_bytes <= 1 << 19);
    let data = read_all(&fs, file);
    assert!(data.chunks(BLOCK as usize).zip(0..).all(|(piece, block)| piece[0] == block as u8));
    fs.close().unwrap();
    judge(&device, "after much data");
}

/// What was written before a freeze is in the frozen image.
#[test]
fn nothing_waits_in_a_frozen_image() {
    let device = image(64);
    let fs = open(&device);
    let context = RequestContext::superuser();
    let file = new_file(&fs, "f");
    fs.write(&context, file, 0, b"frozen").unwrap();
    fs.freeze().unwrap();
    let frozen = Arc::new(device.snapshot());
    fs.thaw().unwrap();
    assert_eq!(content_of_f(&frozen), b"frozen");
    judge(&frozen, "frozen");
    fs.close().unwrap();
}

/// A freeze ends, however much is written meanwhile.
#[test]
fn a_busy_mount_can_be_frozen() {
    let device = image(128);
    let fs = open(&device);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..3_u64 {
            let (fs, is_over) = (&fs, &is_over);
            scope.spawn(move || {
                let context = RequestContext::superuser();
                let file = new_file(fs, &format!("f{worker}"));
                for step in (0..4000).cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    fs.write(&context, file, step * 1000, &[1; 1000]).unwrap();
                }
            });
        }
        for _ in 0..5 {
            fs.freeze().unwrap();
            fs.thaw().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    fs.close().unwrap();
    judge(&device, "after freezes");
}
