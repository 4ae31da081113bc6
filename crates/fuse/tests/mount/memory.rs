//! Memory stays bounded: what the kernel forgets leaves.

use crate::support::Mounted;
use drystone_sync::thread;
use std::fs::{self, File};
use std::time::Duration;

pub fn forgotten_inodes_leave(mounted: &Mounted) {
    const FILES: u64 = 3000;
    let directory = mounted.path("many");
    fs::create_dir(&directory).unwrap();
    for number in 0..FILES {
        File::create(directory.join(number.to_string())).unwrap();
    }
    let before = mounted.image().memory_use().inodes;
    assert!(before >= FILES);
    fs::remove_dir_all(&directory).unwrap();
    // The kernel sends what it forgets when it finds the time.
    let mut left = 0;
    for _ in 0..200 {
        left = mounted.image().memory_use().inodes;
        if left < 100 {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{left} inodes stay in memory, of {before}");
}
