//! Images for tests: made by mke2fs, mounted from memory or from a file, judged by e2fsck.

use crate::{Ext4, MountOptions};
use drystone_blockdev::{BlockDevice, DeviceError, FileDevice, MemoryDevice, OpenMode};
use drystone_sync::{Arc, thread};
use drystone_testkit::judges::{FeatureSet, Scratch, e2fsck_check, have, mke2fs, run, write_image};
use drystone_vfs::{Errno, FallocateMode, FileSystem, NewNode, RequestContext};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// More garbage than this finds no more errors, and takes time to write.
const GARBAGE_MIB_MAX: u64 = 64;

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

    /// The file that mke2fs made, and that each check overwrites with a copy of the image.
    pub fn path(&self) -> &Path {
        &self.path
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

/// An image in a file of its own, where other programs can change it.
pub(crate) struct ImageFile {
    pub path: PathBuf,
    /// For other files of the test.
    pub scratch: Scratch,
}

impl ImageFile {
    /// An image that mke2fs makes with these arguments; `None` where there is no mke2fs.
    pub fn new(arguments: &str, size_bytes: u64) -> Option<ImageFile> {
        ImageFile::on(&[], arguments, size_bytes)
    }

    /// The same over garbage, so that a read of uninitialised blocks shows.
    pub fn over_garbage(arguments: &str, size_bytes: u64) -> Option<ImageFile> {
        let garbage = vec![0xa5; size_bytes.min(GARBAGE_MIB_MAX << 20) as usize];
        let arguments = format!("-E lazy_itable_init=1,nodiscard {arguments}");
        ImageFile::on(&garbage, &arguments, size_bytes)
    }

    fn on(content: &[u8], arguments: &str, size_bytes: u64) -> Option<ImageFile> {
        if !have("mke2fs") {
            return None;
        }
        let scratch = Scratch::new("engine").expect("a scratch directory");
        let path = scratch.join("image");
        let mut file = File::create(&path).expect("a file");
        file.write_all(content).expect("room for garbage");
        file.set_len(size_bytes).expect("a sparse file");
        let arguments = format!("-q -F {arguments} {}", path.display());
        run("mke2fs", arguments.split_whitespace()).expect("mke2fs runs").expect_clean(&arguments);
        Some(ImageFile { path, scratch })
    }

    /// The image as a device. A device that was just closed may seem in use for a moment: a process that
    /// another test is starting has a copy of the descriptor until it runs its program.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        for _ in 0..500 {
            match FileDevice::open(&self.path, OpenMode::ReadWrite) {
                Err(DeviceError::InUse { .. }) => thread::sleep(Duration::from_millis(10)),
                opened => return Arc::new(opened.expect("an image")),
            }
        }
        panic!("{} stays in use", self.path.display());
    }

    /// Mounts the image.
    pub fn open(&self) -> Ext4 {
        self.open_with(MountOptions::default())
    }

    /// Mounts the image so.
    pub fn open_with(&self, options: MountOptions) -> Ext4 {
        Ext4::open(self.device(), options).expect("an image that can be mounted")
    }

    /// Fails unless e2fsck finds nothing wrong.
    pub fn check(&self, what: &str) {
        e2fsck_check(&self.path).expect("e2fsck runs").expect_clean(what);
    }
}

/// Fills the image: gives a file all blocks that it may get.
pub(crate) fn fill(fs: &Ext4) {
    let context = RequestContext::superuser();
    let filler = fs.create(&context, fs.root(), b"filler", NewNode::Regular, 0o600);
    let filler = filler.expect("a file").inode;
    let mode = FallocateMode::Allocate { keep_size: false };
    let (mut offset, mut length) = (0, 1 << 30);
    while length >= fs.volume.block_size() as u64 {
        match fs.fallocate(&context, filler, mode, offset, length) {
            Ok(()) => offset += length,
            Err(error) => {
                assert_eq!(error.errno, Errno::ENOSPC, "{error}");
                length /= 2;
            }
        }
    }
}
