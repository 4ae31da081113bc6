//! An image with secrets wherever an image may have text.

use crate::secrets::Secrets;
use drystone::vfs::{FileFlags, SetAttributes};
use drystone::{Fs, Image};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::checksum::Checksums;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inode::{FIELDS, Inode, InodeFlags};
use drystone_ext4_format::mmp::Mmp;
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_ext4_format::xattr::{
    AttributeName, AttributePlace, AttributeSet, AttributeValue, XattrView,
};
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use drystone_testkit::judges::{FeatureSet, Scratch, mke2fs};
use drystone_testkit::metadata_map::MetadataMap;
use std::fs::read;
use std::path::Path;

/// Names in the largest directory: with blocks of 1 KiB its index has two levels.
const NAMES: usize = 4000;

/// Makes an image of a kind, full of secrets.
pub fn make(scratch: &Scratch, set: &FeatureSet, secrets: &mut Secrets) -> MemoryDevice {
    let path = scratch.join("secret.img");
    mke2fs(&path, set, set.size_mib_min.max(24) << 20).unwrap().expect_clean(set.name);
    let image = Image::open(&path).unwrap();
    let fs = image.fs();
    fill(&fs, set, secrets);
    drop(fs);
    image.close().unwrap();
    let device = MemoryDevice::from_bytes(&read(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    hide(&device, set, secrets);
    device
}

fn fill(fs: &Fs<'_>, set: &FeatureSet, secrets: &mut Secrets) {
    let value_max = if set.block_size == 1024 { 300 } else { 1500 };
    fs.write("/data", "no secret").unwrap();
    let directories = ["many", "few", "short", "folded", "locked"];
    for directory in directories {
        fs.create_dir(format!("/{directory}")).unwrap();
    }
    if set.mentions("casefold") {
        let flags = Some(FileFlags::CASEFOLD);
        fs.set_attributes("/folded", &SetAttributes { flags, ..SetAttributes::default() }, true)
            .unwrap();
    }
    for number in 0..NAMES {
        fs.hard_link("/data", format!("/many/{}", secrets.text(12 + number % 60))).unwrap();
    }
    // Beside `lost+found`, which keeps its name.
    for number in 0..NAMES / 10 {
        fs.hard_link("/data", format!("/{}", secrets.text(20 + number % 60))).unwrap();
    }
    for number in 0..NAMES / 4 {
        let name = format!("{}Ab\u{c4}", secrets.text(10 + number % 30));
        fs.hard_link("/data", format!("/folded/{name}")).unwrap();
    }
    // More than there are letters, and enough others for an index.
    for character in ('!'..='~').filter(|character| !matches!(character, '/' | '.')) {
        fs.hard_link("/data", format!("/short/{character}")).unwrap();
        fs.hard_link("/data", format!("/short/{character}{character}")).unwrap();
        fs.hard_link("/data", format!("/short/{character}={character}")).unwrap();
        fs.hard_link("/data", format!("/short/{}", secrets.text(90))).unwrap();
    }
    for length in [9, 20, 30] {
        fs.write(format!("/few/{}", secrets.text(length)), secrets.text(length * 3)).unwrap();
        fs.create_dir(format!("/few/{}", secrets.text(length))).unwrap();
    }
    // Too many to lie in an inode.
    for number in 0..200 {
        fs.hard_link("/data", format!("/locked/{}", secrets.text(16 + number % 100))).unwrap();
    }
    for length in [15, 59, 60, 130, 300] {
        let target =
            format!("{}/{}", secrets.text(length / 2), secrets.text(length - length / 2 - 1));
        fs.symlink(target, format!("/few/{}", secrets.text(12))).unwrap();
    }
    attributes(fs, value_max, set, secrets);
    // Their names stay in the slack of records and in the log.
    let gone: Vec<String> = (0..40).map(|_| format!("/many/{}", secrets.text(30))).collect();
    for name in &gone {
        fs.write(name, secrets.text(100)).unwrap();
    }
    gone.iter().for_each(|name| fs.remove_file(name).unwrap());
}

fn attributes(fs: &Fs<'_>, value_max: usize, set: &FeatureSet, secrets: &mut Secrets) {
    for length in [10, 200] {
        let file = format!("/few/{}", secrets.text(10));
        fs.write(&file, secrets.text(30)).unwrap();
        for prefix in ["user", "trusted", "security"] {
            let (name, value) = (secrets.text(9), secrets.text(length.min(value_max / 4)));
            fs.set_xattr(&file, format!("{prefix}.{name}"), value).unwrap();
        }
        fs.set_xattr(&file, "user.a", secrets.text(20)).unwrap();
    }
    if set.mentions("ea_inode") {
        let file = format!("/few/{}", secrets.text(10));
        fs.write(&file, "x").unwrap();
        for length in [5000, 9000] {
            let name = format!("user.{}", secrets.text(9));
            fs.set_xattr(&file, name, secrets.text(length)).unwrap();
        }
    }
}

/// Puts secrets where no call puts them.
fn hide(device: &MemoryDevice, set: &FeatureSet, secrets: &mut Secrets) {
    let map = MetadataMap::of(device.snapshot());
    let layout = *map.layout();
    superblocks(device, &map.superblock, secrets);
    if let Some(block) = map.superblock.mmp_block().filter(|_| set.mentions("mmp")) {
        let mut bytes = map.block(block.get());
        let mut mmp = Mmp::check(&bytes, layout.checksum_seed(), block).unwrap();
        mmp.node_name = secrets.text(20).into_bytes();
        mmp.device_name = secrets.text(20).into_bytes();
        mmp.encode(&mut bytes, layout.checksum_seed());
        device.write_at(block.get() * layout.block_size() as u64, &bytes).unwrap();
    }
    if map.superblock.features().incompat.contains(Incompat::ENCRYPT) {
        lock(device, &map, secrets);
    }
    // Slots that were never used.
    if layout.checksums() != Checksums::None {
        let table = map.descriptor(0.into()).inode_table.get() * layout.block_size() as u64;
        let end = u64::from(layout.inode_table_blocks()) * layout.block_size() as u64;
        let text = secrets.text(layout.inode_size());
        device.write_at(table + end - text.len() as u64, text.as_bytes()).unwrap();
    }
}

fn superblocks(device: &MemoryDevice, superblock: &Superblock, secrets: &mut Secrets) {
    let mut superblock = superblock.clone();
    superblock.set_volume_name(secrets.text(16).as_bytes());
    superblock.set_last_mounted(format!("/{}/{}", secrets.text(12), secrets.text(40)).as_bytes());
    superblock.set_mount_options(secrets.text(50).as_bytes());
    let layout = *superblock.layout();
    for group in layout.superblock_groups() {
        let (block, offset) = layout.superblock_location(group).unwrap();
        let at = (block.get() << layout.log_block_size()) + offset as u64;
        device.write_at(at, &superblock.encode_for_group(group)).unwrap();
    }
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes).unwrap();
    assert!(Superblock::check(&bytes).is_ok());
}

/// Encrypts the directory `/locked`, as far as that shows.
fn lock(device: &MemoryDevice, map: &MetadataMap, secrets: &mut Secrets) {
    let number = find(device, "/locked");
    let layout = map.layout();
    let mut bytes = map.inode_bytes(number);
    let inode = Inode::read(&bytes, number, layout).unwrap();
    let area = inode.attribute_area(layout);
    let place = AttributePlace { inode: number, block: None };
    let view = XattrView::check_in_inode(&bytes[area.clone()], place).unwrap();
    let mut attributes = AttributeSet::read(&view);
    let name = AttributeName { index: AttributeName::ENCRYPTION, suffix: b"c".to_vec() };
    let context = [&[1, 1, 4, 0][..], &secrets.bytes(8 + 16)].concat();
    attributes.set(name, AttributeValue::Inline(context));
    attributes.encode_in_inode(&mut bytes[area]).unwrap();
    let flags = FIELDS.iter().find(|field| field.name == "flags").unwrap();
    let encrypted = (inode.flags | InodeFlags::ENCRYPT).bits();
    bytes[flags.offset..][..4].copy_from_slice(&encrypted.to_le_bytes());
    Inode::seal(&mut bytes, number, layout);
    let group = layout.group_of_inode(number).unwrap();
    let table = map.descriptor(group).inode_table;
    let (block, offset) = layout.inode_location(number, table).unwrap();
    write(device, layout.block_size(), block, offset, &bytes);
}

fn write(device: &MemoryDevice, size: usize, block: PhysicalBlock, offset: usize, bytes: &[u8]) {
    device.write_at(block.get() * size as u64 + offset as u64, bytes).unwrap();
}

/// The inode of a path.
pub fn find(device: &MemoryDevice, path: &str) -> InodeNumber {
    let device = drystone_sync::Arc::new(device.snapshot());
    let image = Image::options().read_only(true).open_device(device).unwrap();
    let metadata = image.fs().symlink_metadata(Path::new(path)).unwrap();
    let number = InodeNumber::new(u32::try_from(metadata.ino()).unwrap());
    image.close().unwrap();
    number
}
