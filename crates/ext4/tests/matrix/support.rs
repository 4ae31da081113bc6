//! Images of a feature set, and the trees in them.

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::Arc;
use drystone_testkit::judges::{
    FEATURE_SETS, FeatureSet, Scratch, e2fsck_check, have, mke2fs, write_image,
};
use drystone_testkit::tree::{TreeOptions, TreeSnapshot, diff};
use drystone_vfs::FileSystem;
use std::path::{Path, PathBuf};

/// Room for what the profiles write.
const IMAGE_MIB_MIN: u64 = 64;

/// The set whose name a test's identifier stands for.
pub fn set_by_identifier(identifier: &str) -> &'static FeatureSet {
    let name = identifier.trim_start_matches('_').replace('_', "-");
    FeatureSet::by_name(&name).unwrap_or_else(|| panic!("no feature set {name}"))
}

/// The sets that no identifier stands for.
pub fn sets_without_test(identifiers: &[&str]) -> Vec<&'static str> {
    let tested: Vec<_> = identifiers.iter().map(|name| set_by_identifier(name).name).collect();
    FEATURE_SETS.iter().map(|set| set.name).filter(|name| !tested.contains(name)).collect()
}

/// A new image file of a set.
pub struct Image {
    pub scratch: Scratch,
    pub path: PathBuf,
}

impl Image {
    /// `None`, with a note, if there is no `mke2fs`.
    pub fn new(set: &'static FeatureSet) -> Option<Image> {
        Image::with_size(set, IMAGE_MIB_MIN)
    }

    /// As [`new`](Image::new), with at least so many MiB.
    pub fn with_size(set: &'static FeatureSet, size_mib_min: u64) -> Option<Image> {
        if !have("mke2fs") {
            return None;
        }
        let scratch = Scratch::new(set.name).unwrap();
        let path = scratch.join("image");
        let size = set.size_mib_min.max(size_mib_min) << 20;
        mke2fs(&path, set, size).unwrap().expect_clean("mke2fs");
        Some(Image { scratch, path })
    }
}

/// The content of an image file.
pub fn load(image: &Path) -> MemoryDevice {
    let bytes = std::fs::read(image).unwrap();
    MemoryDevice::from_bytes(&bytes)
}

pub fn open(device: &Arc<MemoryDevice>) -> Ext4 {
    open_with(device, MountOptions::default())
}

pub fn open_read_only(device: &Arc<MemoryDevice>) -> Ext4 {
    open_with(device, MountOptions::default().read_only(true))
}

fn open_with(device: &Arc<MemoryDevice>, options: MountOptions) -> Ext4 {
    let device: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(device);
    Ext4::open(device, options).unwrap_or_else(|error| panic!("the image can't be opened: {error}"))
}

/// Everything that is visible, times included.
pub fn tree_options() -> TreeOptions {
    TreeOptions { times: true, ..TreeOptions::default() }
}

pub fn tree(file_system: &dyn FileSystem) -> TreeSnapshot {
    TreeSnapshot::read(file_system, "/", &tree_options())
        .unwrap_or_else(|error| panic!("the tree can't be read: {error}"))
}

#[track_caller]
pub fn assert_same(left: &TreeSnapshot, right: &TreeSnapshot, what: &str) {
    let lines = diff(left, right);
    assert!(lines.is_empty(), "{what}:\n  {}", lines.join("\n  "));
}

/// Writes the device to a file. Fails if `e2fsck` or our own checker finds anything wrong.
#[track_caller]
pub fn checked_image(scratch: &Scratch, device: &MemoryDevice, name: &str) -> PathBuf {
    let image = scratch.join(name);
    write_image(device, &image).unwrap();
    e2fsck_check(&image).unwrap().expect_clean(name);
    let report = drystone_fsck::check(device, &drystone_fsck::CheckOptions::default(), &mut |_| {});
    let report = report.unwrap_or_else(|error| panic!("{name} can't be checked: {error}"));
    assert!(report.is_clean(), "{name}: {:#?}", report.problems);
    image
}
