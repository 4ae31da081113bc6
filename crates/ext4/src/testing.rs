//! Images for tests: made by mke2fs, mounted from memory, judged by e2fsck.

use crate::{Ext4, MountOptions};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_sync::Arc;
use drystone_testkit::judges::{FeatureSet, Scratch, e2fsck_check, have, mke2fs, write_image};
use std::path::PathBuf;

/// An image in memory.
pub(crate) struct TestImage {
    device: Arc<dyn BlockDevice>,
    path: PathBuf,
    _scratch: Scratch,
}

impl TestImage {
    /// An image of a kind that the test kit names; `None` where there is no mke2fs.
    pub fn new(kind: &str, size_mib: u64) -> Option<TestImage> {
        if !have("mke2fs") {
            return None;
        }
        let set = FeatureSet::by_name(kind).expect("a kind of image");
        let scratch = Scratch::new("engine").expect("a scratch directory");
        let path = scratch.join("image");
        let size_bytes = size_mib.max(set.size_mib_min) << 20;
        mke2fs(&path, set, size_bytes).expect("mke2fs runs").expect_clean("mke2fs");
        let device = MemoryDevice::from_bytes(&std::fs::read(&path).expect("an image"));
        Some(TestImage { device: Arc::new(device), path, _scratch: scratch })
    }

    /// Mounts the image.
    pub fn open(&self) -> Ext4 {
        self.open_with(MountOptions::default())
    }

    /// Mounts the image so.
    pub fn open_with(&self, options: MountOptions) -> Ext4 {
        let opened = Ext4::open(Arc::clone(&self.device), options);
        opened.expect("an image that can be mounted")
    }

    /// Fails unless e2fsck finds nothing wrong.
    pub fn check(&self, what: &str) {
        write_image(&*self.device, &self.path).expect("a copy of the image");
        e2fsck_check(&self.path).expect("e2fsck runs").expect_clean(what);
    }
}
