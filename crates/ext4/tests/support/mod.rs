//! Images that several tests begin with, and their judge.
#![allow(dead_code, reason = "each test takes what it needs")]

use drystone_blockdev::MemoryDevice;
use drystone_mkfs::{MkfsOptions, make};
use drystone_testkit::judges::{Scratch, e2fsck_check, have, write_image};

/// A new image in memory.
pub fn image(mib: u64) -> MemoryDevice {
    image_with(mib, |_| {})
}

/// A new image in memory, with changed options.
pub fn image_with(mib: u64, change: impl FnOnce(&mut MkfsOptions)) -> MemoryDevice {
    let device = MemoryDevice::new(mib << 20);
    let mut options = MkfsOptions::new(mib << 20, [7; 16], [1, 2, 3, 4], 1_700_000_000);
    change(&mut options);
    make(&device, &options, true).unwrap();
    device
}

/// Fails unless e2fsck finds nothing wrong.
#[track_caller]
pub fn judge(device: &MemoryDevice, what: &str) {
    if have("e2fsck") {
        let scratch = Scratch::new("judged").unwrap();
        let path = scratch.join("image");
        write_image(device, &path).unwrap();
        e2fsck_check(&path).unwrap().expect_clean(what);
    }
}
