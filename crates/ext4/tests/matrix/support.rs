//! Images of a feature set, and what the engine and the model make of them.

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::Arc;
use drystone_testkit::judges::{
    FEATURE_SETS, FeatureSet, Scratch, e2fsck_check, have, mke2fs, write_image,
};
use drystone_testkit::model::Configuration;
use drystone_testkit::tree::{Tree, TreeOptions, diff};
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

/// A number from the environment.
pub fn number_from_environment(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// True if the set's arguments turn a feature on or off by this very word.
pub fn mentions(set: &FeatureSet, feature: &str) -> bool {
    set.arguments
        .split_whitespace()
        .flat_map(|argument| argument.split(','))
        .any(|word| word == feature)
}

/// What the model has to be like to equal the engine on a set.
pub fn configuration(set: &FeatureSet) -> Configuration {
    let base = Configuration::with_block_size(set.block_size);
    let configuration = Configuration {
        cluster_size: set.cluster_size,
        extents: set.extents,
        directory_links_unlimited: !is_old(set) && !mentions(set, "^dir_nlink"),
        projects: mentions(set, "project"),
        file_size_max: file_size_max(set),
        xattr_value_max: match mentions(set, "ea_inode") {
            true => 65_536,
            false => base.xattr_value_max.min(set.block_size as usize),
        },
        ..base
    };
    if set.inode_size == 128 { configuration.with_small_inodes() } else { configuration }
}

/// The largest size of a file, as the kernel has been seen to allow it; where the count of sectors
/// sets no limit it follows from the form of the map.
fn file_size_max(set: &FeatureSet) -> u64 {
    let huge = !is_old(set) && !mentions(set, "^huge_file");
    let block_size = u64::from(set.block_size);
    match (set.extents, huge, block_size) {
        (false, false, 4096) => 2_196_873_666_560,
        (true, false, 4096) => 2_199_023_251_456,
        (true, false, 1024) => 2_199_023_254_528,
        (false, ..) => {
            let pointers = block_size / 4;
            (12 + pointers + pointers.pow(2) + pointers.pow(3)) * block_size
        }
        (true, ..) => Configuration::with_block_size(set.block_size).file_size_max,
    }
}

/// True for ext2 and ext3.
fn is_old(set: &FeatureSet) -> bool {
    mentions(set, "ext2") || mentions(set, "ext3")
}

/// A new image file of a set.
pub struct Image {
    pub scratch: Scratch,
    pub path: PathBuf,
}

impl Image {
    /// `None`, after a line that says so, where there is no `mke2fs`.
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

/// What an image file holds.
pub fn load(image: &Path) -> MemoryDevice {
    let bytes = std::fs::read(image).unwrap();
    MemoryDevice::from_bytes(&bytes)
}

pub fn open(device: &Arc<MemoryDevice>) -> Ext4 {
    open_with(device, MountOptions::default())
}

pub fn open_read_only(device: &Arc<MemoryDevice>) -> Ext4 {
    open_with(device, MountOptions { read_only: true, ..MountOptions::default() })
}

fn open_with(device: &Arc<MemoryDevice>, options: MountOptions) -> Ext4 {
    let device: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(device);
    Ext4::open(device, options).unwrap_or_else(|error| panic!("the image can't be opened: {error}"))
}

/// All that can be seen, times included.
pub fn tree_options() -> TreeOptions {
    TreeOptions { times: true, ..TreeOptions::default() }
}

pub fn tree(file_system: &dyn FileSystem) -> Tree {
    Tree::read(file_system, "/", &tree_options())
        .unwrap_or_else(|error| panic!("the tree can't be read: {error}"))
}

#[track_caller]
pub fn assert_same(left: &Tree, right: &Tree, what: &str) {
    let lines = diff(left, right);
    assert!(lines.is_empty(), "{what}:\n  {}", lines.join("\n  "));
}

/// Writes the device to a file. Neither `e2fsck` nor our own checker finds anything wrong.
#[track_caller]
pub fn checked_image(scratch: &Scratch, device: &MemoryDevice, name: &str) -> PathBuf {
    let image = scratch.join(name);
    write_image(device, &image).unwrap();
    e2fsck_check(&image).unwrap().expect_clean(name);
    let report = drystone_fsck::check(device, &drystone_fsck::Options::default(), &mut |_| {});
    let report = report.unwrap_or_else(|error| panic!("{name} can't be checked: {error}"));
    assert!(report.is_clean(), "{name}: {:#?}", report.problems);
    image
}
