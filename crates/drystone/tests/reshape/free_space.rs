//! Free space that is discarded or zeroed.

use crate::support::Sample;
use drystone::reshape::{FreeSpaceAction, clear_free_space};
use drystone::{BlockDevice, Image};
use drystone_blockdev::{DeviceOperation, Effect, Fault, Faulty, FileDevice, OpenMode, Trigger};
use std::os::unix::fs::MetadataExt;

/// What stands in a deleted file.
const SECRET: &[u8] = b"nobody should read this again...";

impl Sample {
    fn holds(&self, what: &[u8]) -> bool {
        let bytes = std::fs::read(self.path()).unwrap();
        bytes.windows(what.len()).any(|window| window == what)
    }
}

#[test]
fn free_space_is_given_back_or_zeroed_and_files_stay() {
    for name in ["default", "default-1k", "ext2-1k", "bigalloc-1k", "meta-bg-1k", "group-checksums"]
    {
        for action in [FreeSpaceAction::Discard, FreeSpaceAction::Zero] {
            let Some(sample) = Sample::new(name, 40) else { return };
            sample.fill(1, 60);
            let image = Image::open(sample.path()).unwrap();
            image.fs().write("/secret", SECRET.repeat(60_000)).unwrap();
            image.fs().sync().unwrap();
            image.fs().remove_file("/secret").unwrap();
            image.close().unwrap();
            assert!(sample.holds(SECRET), "{name}");
            let before = sample.tree();
            let taken = sample.path().metadata().unwrap().blocks();
            let freed = drystone::clear_free_space(&sample.path(), action, &mut |_| {}).unwrap();
            let free: u64 = sample.field("Free blocks").parse().unwrap();
            let size: u64 = sample.field("Block size").parse().unwrap();
            assert_eq!(freed.bytes, free * size, "{name}");
            assert!(!sample.holds(SECRET), "{name}");
            assert!(sample.path().metadata().unwrap().blocks() + 3000 < taken, "{name}");
            sample.judge(&format!("{action:?}"), &before);
        }
    }
}

#[test]
fn an_interruption_anywhere_loses_nothing() {
    let Some(sample) = Sample::new("default-1k", 24) else { return };
    sample.fill(2, 60);
    let before = sample.tree();
    for (operation, action) in [
        (DeviceOperation::Zero, FreeSpaceAction::Zero),
        (DeviceOperation::Discard, FreeSpaceAction::Discard),
    ] {
        for cut in 0..6 {
            let file = FileDevice::open(sample.path(), OpenMode::ReadWrite).unwrap();
            let image = Faulty::new(file);
            let fault =
                Fault::of(operation, Effect::Short { bytes: 4096 }).when(Trigger::From(cut));
            image.inject(fault);
            let device: &dyn BlockDevice = &image;
            let done = clear_free_space(&device, action, 1_700_000_000, &mut |_, _| {});
            drop(image);
            sample.judge(&format!("{action:?} cut at {cut}: {done:?}"), &before);
        }
    }
}
