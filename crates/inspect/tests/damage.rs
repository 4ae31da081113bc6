//! Nothing that an image holds makes the inspection panic or hang.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::InodeNumber;
use drystone_inspect::{
    ImagePart, InspectedImage, ScrambleKey, copy_metadata, copy_scrambled, fragmentation_of,
    inspect, names_of, owners_of,
};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{FEATURE_SETS, Scratch, have, mke2fs, run};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};

/// Damages of each image, unless `DRYSTONE_CHANGES` says how many.
const DAMAGES: u64 = 12;

#[test]
fn any_damage_is_looked_at() {
    if !have("mke2fs") {
        return;
    }
    let mut random = fastrand::Rng::with_seed(number("DRYSTONE_SEED").unwrap_or(1));
    for set in FEATURE_SETS.iter().step_by(4) {
        let scratch = Scratch::new("inspect").unwrap();
        let path = scratch.join("disk.img");
        mke2fs(&path, set, set.size_mib_min.max(8) << 20).unwrap().expect_clean(set.name);
        let base = MemoryDevice::from_bytes(&std::fs::read(&path).unwrap());
        look(&base, set.name, true);
        let map = MetadataMap::of(base.snapshot());
        let blocks: Vec<(u64, BlockContent)> = map.blocks.iter().map(|(b, c)| (*b, *c)).collect();
        for _ in 0..number("DRYSTONE_CHANGES").unwrap_or(0).max(DAMAGES) {
            let device = base.snapshot();
            for _ in 0..random.u8(1..6) {
                let (block, content) = blocks[random.usize(..blocks.len())];
                let mut bytes = map.block(block);
                // Most of a table is empty: its front is hit more often.
                let end = if random.bool() { bytes.len() } else { 256 };
                bytes[random.usize(..end)] = random.u8(..);
                // Half of them get through the checksum.
                if random.bool() {
                    map.seal(&device, block, content, &mut bytes);
                }
                device.write_at(block * bytes.len() as u64, &bytes).unwrap();
            }
            look(&device, set.name, false);
        }
    }
}

/// Looks at everything. A sound image has no problem.
fn look(device: &MemoryDevice, name: &str, is_sound: bool) {
    let mut subjects = vec![ImagePart::Superblock, ImagePart::Journal];
    subjects.extend((0..3).map(|group| ImagePart::Group(group.into())));
    subjects.extend((1..20).map(|inode| ImagePart::Inode(inode.into())));
    subjects.extend((0..90).map(|block| ImagePart::Block(block.into())));
    for inode in [2, 7, 8, 11, 12] {
        subjects.push(ImagePart::Htree(format!("<{inode}>").into_bytes()));
        subjects.push(ImagePart::Extents(format!("<{inode}>").into_bytes()));
    }
    for subject in &subjects {
        let shown = inspect(device, subject);
        if is_sound && let Ok(shown) = shown {
            assert!(shown.is_sound(), "{name} {subject:?}: {shown:#?}");
        }
    }
    if let Ok(image) = InspectedImage::open(device) {
        let blocks: Vec<u64> = (0..200).collect();
        let owners = owners_of(&image, &blocks);
        if is_sound {
            let owners = owners.unwrap();
            assert_eq!(owners.len(), blocks.len(), "{name}: {owners:?}");
        }
        let inodes = [InodeNumber::ROOT, 11.into()];
        let names = names_of(&image, &inodes);
        assert!(!is_sound || names.is_ok_and(|names| names.len() == 2), "{name}");
        let found = fragmentation_of(&image, &mut |_, _| {});
        if is_sound {
            let free = image.superblock().free_blocks_count() << image.layout().log_block_size();
            assert_eq!(found.unwrap().free.bytes, free, "{name}");
        }
        let copy = MemoryDevice::new(device.size_bytes());
        copy_metadata(&image, &copy, &mut |_, _| {}).unwrap();
        let scrambled = MemoryDevice::new(device.size_bytes());
        let key = ScrambleKey::from_seed(1);
        let summary = copy_scrambled(&image, &scrambled, key, &mut |_, _| {}).unwrap();
        assert!(!is_sound || summary.scrambled.unwrap().unclear_bytes == 0, "{name}");
        if is_sound {
            let (map, copied) = (MetadataMap::of(device.snapshot()), MetadataMap::of(copy));
            for (block, kind) in &map.blocks {
                assert!(map.block(*block) == copied.block(*block), "{name} {block}: {kind:?}");
            }
        }
    }
}

/// A new image; none where `mke2fs` isn't there.
fn new_image() -> Option<MemoryDevice> {
    if !have("mke2fs") {
        return None;
    }
    let set = FEATURE_SETS.iter().find(|set| set.name == "default").unwrap();
    let scratch = Scratch::new("inspect").unwrap();
    let path = scratch.join("disk.img");
    mke2fs(&path, set, 16 << 20).unwrap().expect_clean(set.name);
    Some(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()))
}

/// Where a damaged descriptor says that a table is, no bytes are shown for those of its inodes.
#[test]
fn an_inode_table_far_beyond_the_end_is_missing() {
    let Some(device) = new_image() else { return };
    let root = || InspectedImage::open(&device).unwrap().inode(InodeNumber::ROOT).map(drop);
    root().unwrap();
    // In bytes, the high half of the table's block no longer fits.
    let image = InspectedImage::open(&device).unwrap();
    let descriptor = image.descriptor_offset(0.into()).unwrap();
    assert_eq!(image.layout().descriptor_size(), 64);
    device.write_at(descriptor + 0x28, &0x40_0000_u32.to_le_bytes()).unwrap();
    let missing = root().unwrap_err().to_string();
    assert!(missing.contains("beyond the end"), "{missing}");
}

/// The number of the last block that there can be isn't a place of a table.
#[test]
fn an_inode_table_at_the_end_of_numbers_is_passed_over() {
    let Some(device) = new_image() else { return };
    let image = InspectedImage::open(&device).unwrap();
    let descriptor = image.descriptor_offset(0.into()).unwrap();
    for half in [0x8, 0x28] {
        device.write_at(descriptor + half, &u32::MAX.to_le_bytes()).unwrap();
    }
    image.each_inode(&mut |_| panic!("there is no inode")).unwrap();
    let copy = MemoryDevice::new(device.size_bytes());
    copy_metadata(&image, &copy, &mut |_, _| {}).unwrap();
}

/// Descriptors that share an inode table would show each of its inodes as often as they like.
#[test]
fn a_shared_inode_table_is_read_once() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("inspect").unwrap();
    let path = scratch.join("disk.img");
    let arguments = ["-q", "-F", "-t", "ext2", "-b", "1024", path.to_str().unwrap(), "32M"];
    run("mke2fs", arguments).unwrap().expect_clean("mke2fs");
    let device = MemoryDevice::from_bytes(&std::fs::read(&path).unwrap());
    let inodes = || {
        let image = InspectedImage::open(&device).unwrap();
        let mut count = 0;
        let counted = image.each_inode(&mut |_| {
            count += 1;
            Ok(true)
        });
        counted.unwrap();
        count
    };
    let before = inodes();
    let image = InspectedImage::open(&device).unwrap();
    let offset = |group: u32| image.descriptor_offset(group.into()).unwrap();
    let mut table = [0; 4];
    device.read_at(offset(0) + 8, &mut table).unwrap();
    let groups = image.layout().group_count();
    assert!(groups > 2);
    for group in 1..groups {
        device.write_at(offset(group) + 8, &table).unwrap();
    }
    assert_eq!(inodes(), before);
}
