//! Every kind of image, by several steps: what the checkers say, and whether it is what an offline resize makes.

use super::{MIB, work};
use crate::support::Sample;
use drystone::reshape::NewSize;
use drystone::{BlockDevice, ChangeOptions, Image, resize_image};
use drystone_blockdev::{FileDevice, OpenMode};
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::layout::Geometry;
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{FEATURE_SETS, run};
use drystone_testkit::tree::{TreeOptions, TreeSnapshot};
use std::path::Path;

/// Kinds that have their metadata at different places.
const KINDS: [&str; 9] = [
    "default",
    "default-1k",
    "meta-bg-1k",
    "no-resize-inode",
    "no-sparse-super",
    "sparse-super2",
    "bigalloc-1k",
    "ext2-1k",
    "flex-bg-wide",
];

/// The numbers of an image, and where its groups have their metadata.
fn shape(path: &Path) -> (Geometry, Vec<String>) {
    let device = FileDevice::open(path, OpenMode::ReadOnly).unwrap();
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes).unwrap();
    let geometry = Superblock::check(&bytes).unwrap().geometry();
    let shown = run("dumpe2fs", [path.to_str().unwrap()]).unwrap().output;
    let places = shown.lines().filter(|line| line.contains(" at "));
    // Checksums of bitmaps depend on what is in use.
    let without_checksum = |line: &str| {
        let words = line.split(',').filter(|part| !part.contains("csum"));
        words.collect::<Vec<_>>().join(",")
    };
    (geometry, places.map(without_checksum).collect())
}

#[test]
fn an_open_image_grows_as_a_closed_one_does() {
    let is_long = number("DRYSTONE_GROWTHS").is_some();
    let sets = FEATURE_SETS.iter().filter(|set| is_long || KINDS.contains(&set.name));
    for set in sets {
        let Some(sample) = Sample::new(set.name, 16) else { return };
        let other = sample.beside("offline.img");
        std::fs::copy(sample.path(), &other).unwrap();
        let image = Image::open(sample.path()).unwrap();
        work(&image, &sample, 1, 60);
        let start = set.size_mib_min.max(16);
        // Within the last group or a few more; many more; beyond what is reserved for small blocks.
        let sizes = [start + 3, start + 30, start * 2 + 150, start * 2 + 420];
        for (seed, size) in (2..).zip(sizes) {
            let size = NewSize::Exactly(size * MIB);
            let grown = image.grow(size).unwrap();
            let offline = resize_image(&other, size, &ChangeOptions::default(), &mut |_| {});
            let offline = offline.unwrap();
            assert_eq!((grown.blocks, grown.inodes), (offline.blocks, offline.inodes));
            work(&image, &sample, seed, 40);
        }
        // What waits for its blocks has claimed some for their mapping, too.
        image.fs().sync().unwrap();
        let statistics = image.fs().statistics().unwrap();
        let options = TreeOptions { times: true, flags: true, ..TreeOptions::default() };
        let tree = TreeSnapshot::read(image.file_system(), "/", &options).unwrap();
        image.close().unwrap();
        sample.judge("grown while open", &tree);
        let length = |path: &Path| path.metadata().unwrap().len();
        assert_eq!(length(&sample.path()), length(&other), "{}", set.name);
        assert_eq!(shape(&sample.path()), shape(&other), "{}", set.name);
        // What is counted while open is what is there.
        let image = Image::options().read_only(true).open(sample.path()).unwrap();
        let again = image.fs().statistics().unwrap();
        assert_eq!(statistics.blocks, again.blocks, "{}", set.name);
        assert_eq!(statistics.blocks_free, again.blocks_free, "{}", set.name);
        assert_eq!(statistics.blocks_available, again.blocks_available, "{}", set.name);
        assert_eq!(statistics.inodes_free, again.inodes_free, "{}", set.name);
    }
}

#[test]
fn a_full_image_takes_writes_and_inodes_again() {
    let Some(sample) = Sample::new("default-1k", 16) else { return };
    let image = Image::open(sample.path()).unwrap();
    let fs = image.fs();
    let fill = |prefix: &str| {
        let mut count = 0;
        while fs.write(format!("/{prefix}{count}"), vec![3; 50_000]).is_ok() {
            count += 1;
        }
        count
    };
    let first = fill("a");
    image.grow(NewSize::More(32 * MIB)).unwrap();
    let second = fill("b");
    assert!(second > first, "{first} {second}");
    let inodes = image.fs().statistics().unwrap().inodes_free;
    image.grow(NewSize::More(16 * MIB)).unwrap();
    fs.create_dir("/many").unwrap();
    for number in 0..inodes + 100 {
        fs.write(format!("/many/{number}"), "").unwrap();
    }
    let tree = TreeSnapshot::read(image.file_system(), "/", &TreeOptions::default()).unwrap();
    image.close().unwrap();
    let image = Image::options().read_only(true).open(sample.path()).unwrap();
    let again = TreeSnapshot::read(image.file_system(), "/", &TreeOptions::default()).unwrap();
    assert!(drystone_testkit::tree::diff(&tree, &again).is_empty());
    image.close().unwrap();
    sample.judge("full twice", &sample.tree());
}

#[test]
fn what_can_not_be_is_refused_and_changes_nothing() {
    let Some(sample) = Sample::new("default", 24) else { return };
    let image = Image::open(sample.path()).unwrap();
    let refused = |size| image.grow(size).unwrap_err().to_string();
    assert!(refused(NewSize::Less(MIB)).contains("unmount"), "{}", refused(NewSize::Less(MIB)));
    assert!(refused(NewSize::Minimum).contains("unmount"));
    // More blocks than there are numbers for.
    refused(NewSize::Exactly(1 << 62));
    assert!(refused(NewSize::Exactly(1 << 50)).contains("more inodes than there are numbers"));
    assert_eq!(sample.path().metadata().unwrap().len(), 24 * MIB);
    image.file_system().freeze().unwrap();
    refused(NewSize::More(MIB));
    image.file_system().thaw().unwrap();
    assert_eq!(sample.path().metadata().unwrap().len(), 24 * MIB);
    image.grow(NewSize::More(MIB)).unwrap();
    assert_eq!(sample.path().metadata().unwrap().len(), 25 * MIB);
    // A last group of so few blocks isn't worth having.
    image.grow(NewSize::Exactly(128 * MIB + 4096 * 5)).unwrap();
    assert_eq!(sample.path().metadata().unwrap().len(), 128 * MIB);
    image.close().unwrap();
    let image = Image::options().read_only(true).open(sample.path()).unwrap();
    assert!(image.grow(NewSize::More(MIB)).is_err());
    drop(image);
    sample.judge("refused", &sample.tree());
}

/// A growth gives the last group's bitmap a new checksum, which would hide what is wrong with it.
#[test]
fn a_damaged_group_does_not_become_sound() {
    let Some(sample) = Sample::new("default", 24) else { return };
    let bitmap = {
        let device = FileDevice::open(sample.path(), OpenMode::ReadWrite).unwrap();
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes).unwrap();
        let layout = *Superblock::check(&bytes).unwrap().layout();
        let mut block = vec![0; layout.block_size()];
        let descriptors = layout.descriptor_block(0).unwrap();
        device.read_at(descriptors.get() << layout.log_block_size(), &mut block).unwrap();
        let descriptor =
            GroupDescriptor::read(&block[..layout.descriptor_size()], &layout).unwrap();
        let place = descriptor.block_bitmap.get() << layout.log_block_size();
        device.write_at(place, &[0; 64]).unwrap();
        place
    };
    let read = || {
        let device = FileDevice::open(sample.path(), OpenMode::ReadOnly).unwrap();
        let mut bytes = vec![0; 4096];
        device.read_at(bitmap, &mut bytes).unwrap();
        bytes
    };
    let damaged = read();
    let image = Image::open(sample.path()).unwrap();
    let refused = image.grow(NewSize::More(8 * MIB)).unwrap_err().to_string();
    assert!(refused.contains("damaged"), "{refused}");
    assert_eq!(sample.path().metadata().unwrap().len(), 24 * MIB);
    image.close().unwrap();
    assert!(read() == damaged);
}
