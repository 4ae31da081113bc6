//! Images of many shapes, judged by `e2fsck -fn`.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::{BlockDevice, Existing, FileDevice, MemoryDevice};
use drystone_ext4_format::features::Features;
use drystone_mkfs::{JournalSize, MkfsOptions, default_features, make};
use drystone_testkit::judges::{e2fsck_check, have, kernel_mount};
use std::io::Write;
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const UUID: [u8; 16] = *b"\x12\x34\x56\x78\x9a\xbc\x4e\xf0\x81\x23\x45\x67\x89\xab\xcd\xef";

fn options(size: u64, features: &str) -> MkfsOptions {
    let mut options = MkfsOptions::new(size, UUID, [1, 2, 3, 4], 1_700_000_000);
    let change = Features::parse(features).unwrap();
    options.features = default_features().apply(&change);
    options
}

fn make_at(path: &Path, options: &MkfsOptions) {
    let device = FileDevice::create(path, options.size_bytes, Existing::Overwrite).unwrap();
    make(&device, options, true).unwrap_or_else(|error| panic!("{options:?}: {error}"));
}

/// Makes an image and has e2fsck judge it.
fn judge(name: &str, options: &MkfsOptions) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    make_at(&path, options);
    if !have("e2fsck") {
        return;
    }
    let output = Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {options:?}\n{text}\n{errors}");
}

#[test]
fn every_size_is_clean() {
    for size in [MIB, 2 * MIB, 3 * MIB + 1, 7 * MIB, 64 * MIB, 129 * MIB, 600 * MIB, GIB + 4 * MIB]
    {
        judge("size", &options(size, ""));
    }
    judge("size", &options(33 * GIB, ""));
}

#[test]
fn large_images_are_clean() {
    judge("2 TiB", &options(2 << 40, ""));
}

/// The host's file systems may not hold a file of that size; memory does.
#[test]
fn the_largest_image_is_made() {
    let size = 16 << 40;
    let device = drystone_blockdev::MemoryDevice::new(size);
    let summary = make(&device, &options(size, ""), true).unwrap();
    assert_eq!(summary.blocks, 1 << 32);
    assert_eq!(summary.groups, 1 << 17);
}

#[test]
fn every_block_size_is_clean() {
    for block_size in [1024, 2048, 4096, 65536] {
        let mut options = options(200 * MIB, "");
        options.block_size = Some(block_size);
        judge("block size", &options);
    }
}

#[test]
fn every_feature_is_clean() {
    let lists = [
        "^has_journal",
        "^metadata_csum,^metadata_csum_seed",
        "^metadata_csum,^metadata_csum_seed,uninit_bg",
        "^64bit",
        "^flex_bg",
        "^resize_inode,meta_bg",
        "^resize_inode,sparse_super2",
        "^extent,^64bit,^flex_bg",
        "^extent,^64bit,^flex_bg,^has_journal,^metadata_csum,^metadata_csum_seed,^dir_index,^huge_file,^dir_nlink,^extra_isize",
        "bigalloc",
        "inline_data",
        "large_dir",
        "ea_inode",
        "quota",
        "quota,project",
        "casefold",
        "mmp",
        "encrypt",
        "verity",
        "stable_inodes",
        "^orphan_file",
        "^sparse_super",
        "^filetype",
        "^dir_index,^resize_inode",
    ];
    for list in lists {
        judge(list, &options(150 * MIB, list));
        let mut large = options(700 * MIB, list);
        large.block_size = Some(4096);
        judge(list, &large);
    }
}

#[test]
fn inodes_and_journals_are_as_asked() {
    for inode_size in [128, 256, 512, 1024] {
        let mut options = options(100 * MIB, "");
        options.inode_size = Some(inode_size);
        judge("inode size", &options);
    }
    let mut many = options(100 * MIB, "");
    many.bytes_per_inode = Some(1024);
    judge("many inodes", &many);
    let mut few = options(100 * MIB, "");
    few.inodes = Some(16);
    judge("few inodes", &few);
    let mut journal = options(2 * GIB, "");
    journal.journal_size = JournalSize::Bytes(512 * MIB);
    judge("long journal", &journal);
    let mut pointers = options(2 * GIB, "^extent,^64bit,^flex_bg");
    pointers.journal_size = JournalSize::Bytes(256 * MIB);
    judge("long journal without extents", &pointers);
}

#[test]
fn the_same_options_make_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let options = options(20 * MIB, "quota,project");
    make_at(&first, &options);
    make_at(&second, &options);
    assert!(std::fs::read(first).unwrap() == std::fs::read(second).unwrap());
}

/// Recovery tells the blocks of a log by their magic number; an image made with the UUID of the one before
/// it would take old ones for its own.
#[test]
fn nothing_is_left_of_an_old_journal() {
    const BLOCK: usize = 4096;
    const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];
    let mut options = options(64 * MIB, "");
    options.block_size = Some(BLOCK as u32);
    let device = MemoryDevice::new(options.size_bytes);
    let mut old = vec![0x5a; BLOCK];
    old[..4].copy_from_slice(&MAGIC);
    for offset in (0..options.size_bytes).step_by(BLOCK) {
        device.write_at(offset, &old).unwrap();
    }
    make(&device, &options, false).unwrap();
    let mut image = vec![0; options.size_bytes as usize];
    device.read_at(0, &mut image).unwrap();
    let blocks: Vec<&[u8]> = image.chunks_exact(BLOCK).collect();
    let is_new = |block: &&[u8]| block.starts_with(&MAGIC) && block[4] != 0x5a;
    let superblock = blocks.iter().position(is_new).expect("a journal");
    let length = u32::from_be_bytes(blocks[superblock][16..20].try_into().unwrap());
    let log = &blocks[superblock + 1..superblock + length as usize];
    assert!(log.len() >= 1000, "a journal of {length} blocks");
    let left = log.iter().position(|block| block.iter().any(|&byte| byte != 0));
    assert_eq!(left, None, "of {length} blocks");
}

/// Linux refuses a log of fewer than 1,024 blocks, and to use a part of a cluster.
#[test]
fn linux_mounts_and_fills_what_is_made() {
    for (size, block_size, features, cluster_size) in [
        (16 * MIB, 1024, "fast_commit", None),
        (64 * MIB, 4096, "fast_commit", None),
        (300 * MIB, 1024, "fast_commit", None),
        (9001 << 10, 1024, "bigalloc", Some(64 << 10)),
        (20_000 << 10, 4096, "bigalloc", Some(1 << 20)),
    ] {
        let mut options = options(size, features);
        (options.block_size, options.cluster_size) = (Some(block_size), cluster_size);
        let folder = tempfile::tempdir().unwrap();
        let (path, at) = (folder.path().join("image"), folder.path().join("mount"));
        make_at(&path, &options);
        let Some(mounted) = kernel_mount(&path, &at, "").unwrap() else { return };
        // It fills the image.
        let mut file = std::fs::File::create(at.join("file")).unwrap();
        let full = (0..1000).find_map(|_| file.write_all(&[7; 1 << 20]).err()).unwrap();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{features}: {full}");
        drop(file);
        mounted.unmount().unwrap();
        e2fsck_check(&path).unwrap().expect_clean(features);
    }
}

#[test]
fn impossible_options_are_refused() {
    let device = drystone_blockdev::MemoryDevice::new(MIB);
    let mut cases = vec![options(10, ""), options(MIB, "bigalloc,^extent"), options(2 * MIB, "")];
    cases[0].label = b"tiny".to_vec();
    let mut odd = options(MIB, "");
    odd.block_size = Some(3000);
    cases.push(odd);
    // The number of a project lies after the first 128 bytes of an inode.
    let mut short = options(64 * MIB, "project");
    short.inode_size = Some(128);
    cases.push(short);
    for case in cases {
        make(&device, &case, true).unwrap_err();
    }
}
