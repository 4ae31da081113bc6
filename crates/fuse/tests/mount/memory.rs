//! Memory stays bounded: inodes that the kernel forgets are dropped.

use crate::support::Mounted;
use drystone::ImageOptions;
use drystone_fuse::Transport;
use drystone_sync::thread;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

pub fn forgotten_inodes_leave(mounted: &Mounted) {
    const FILES: u64 = 3000;
    let directory = mounted.path("many");
    fs::create_dir(&directory).unwrap();
    for number in 0..FILES {
        File::create(directory.join(number.to_string())).unwrap();
    }
    let before = mounted.image().memory_use().unwrap().inodes;
    assert!(before >= FILES);
    fs::remove_dir_all(&directory).unwrap();
    // The kernel sends forgets late.
    let mut left = 0;
    for _ in 0..200 {
        left = mounted.image().memory_use().unwrap().inodes;
        if left < 100 {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{left} inodes stay in memory, of {before}");
}

/// The kernel may know and have open more than the engine has room for.
#[test]
fn inodes_leave_that_the_kernel_knows() {
    const FILES: u64 = 4000;
    let open = ImageOptions::default().memory_bytes(1 << 20);
    let Some(mounted) = Mounted::with(Transport::Device, &open) else { return };
    let name = |number: u64| mounted.path(&format!("d{}/f{number}", number % 7));
    (0..7).for_each(|number| fs::create_dir(mounted.path(&format!("d{number}"))).unwrap());
    for number in 0..FILES {
        fs::write(name(number), number.to_string()).unwrap();
    }
    let files: Vec<File> = (0..500).map(|number| File::open(name(number)).unwrap()).collect();
    let inodes = mounted.image().memory_use().unwrap().inodes;
    assert!(inodes < FILES / 4, "{inodes} inodes are in memory");
    fs::remove_file(name(3)).unwrap();
    for (number, mut file) in files.into_iter().enumerate() {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, number.to_string());
        assert_eq!(file.metadata().unwrap().nlink(), u64::from(number != 3));
    }
    for number in (0..FILES).filter(|number| *number != 3) {
        assert_eq!(fs::read_to_string(name(number)).unwrap(), number.to_string());
        fs::remove_file(name(number)).unwrap();
    }
    mounted.finish();
}
