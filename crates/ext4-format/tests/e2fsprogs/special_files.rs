//! Orphan file, multi-mount protection and quota files.

use crate::image::{Image, tools_available};
use drystone_ext4_format::mmp::{Mmp, MmpState};
use drystone_ext4_format::orphan_file::{self, OrphanBlock, OrphanPlace};
use drystone_ext4_format::quota::{
    self, BLOCK_LENGTH, MemoryQuotaBlocks, QuotaEntry, QuotaFile, QuotaKind,
};
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use std::fs;
use std::os::unix::fs::chown;

#[test]
fn orphan_files_are_read_and_rewritten() {
    if !tools_available() {
        return;
    }
    for (checksum, block_size) in [("metadata_csum", "1024"), ("^metadata_csum", "4096")] {
        let features = format!("orphan_file,{checksum}");
        let image = Image::make(&["-b", block_size, "-O", &features], "32M", |_| {});
        let inode = InodeNumber::new(image.dumpe2fs("Orphan file inode:") as u32);
        let path = format!("<{inode}>");
        let seed = image.inode(&path).seed(image.superblock.layout());
        let last = InodeNumber::new(image.superblock.layout().inodes_count());
        let blocks = image.blocks(&path);
        let filesystem_blocks = image.superblock.layout().blocks_count();
        assert_eq!(blocks.len(), orphan_file::default_length(filesystem_blocks) as usize);
        for block in blocks {
            let place = OrphanPlace { inode, block, checksum: seed };
            let bytes = image.block(block);
            OrphanBlock::verify(&bytes, &place).unwrap();
            let view = OrphanBlock::check(&bytes, &place, last).unwrap();
            assert_eq!(view.orphans().count(), 0);
            let mut fresh = vec![0xaa; bytes.len()];
            orphan_file::init(&mut fresh);
            orphan_file::seal(&mut fresh, &place);
            assert_eq!(fresh, bytes);
        }
    }
}

#[test]
fn protection_blocks_are_read_and_rewritten() {
    if !tools_available() {
        return;
    }
    let image = Image::make(&["-O", "mmp,metadata_csum"], "16M", |_| {});
    let block = PhysicalBlock::new(image.dumpe2fs("MMP block number:"));
    let mut mmp = Mmp::check(&image.block(block), image.seed(), block).unwrap();
    assert_eq!(mmp.state, MmpState::Clean);
    mmp.node_name = b"somewhere".to_vec();
    mmp.time_seconds += 1;
    let mut bytes = image.block(block);
    mmp.encode(&mut bytes, image.seed());
    image.write_block(block, &bytes);
    image.judge();
    assert!(image.debugfs("dump_mmp").contains("somewhere"));
}

/// Files of many owners, if the test may give files away.
fn owned_files(tree: &std::path::Path) {
    for number in 0..120_u32 {
        let path = tree.join(format!("file{number}"));
        fs::write(&path, vec![1; 5000]).unwrap();
        let _ = chown(&path, Some(number * 70_001), Some(number % 7));
    }
}

#[test]
fn quota_files_are_read_and_rebuilt() {
    if !tools_available() {
        return;
    }
    let options = ["-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"];
    let image = Image::make(&options, "32M", owned_files);
    // Fresh from mke2fs, the files may be built from a tree that was copied in later.
    let image = image.repair("-fy");
    let project = image.dumpe2fs("Project quota inode:") as u32;
    for (kind, inode) in [
        (QuotaKind::User, InodeNumber::USER_QUOTA.get()),
        (QuotaKind::Group, InodeNumber::GROUP_QUOTA.get()),
        (QuotaKind::Project, project),
    ] {
        let path = format!("<{inode}>");
        let size = image.inode(&path).size_bytes as usize;
        let blocks = image.blocks(&path);
        let mut bytes: Vec<u8> = blocks.iter().flat_map(|&block| image.block(block)).collect();
        let stored = MemoryQuotaBlocks::from_bytes(&bytes[..size]);
        let mut file = QuotaFile::open(kind, stored).unwrap();
        let mut entries = file.entries().unwrap();
        assert!(entries.iter().any(|entry| entry.id == 0 && entry.inodes > 0));
        for entry in &mut entries {
            entry.space_soft_limit = 1 << 30;
            file.set(entry).unwrap();
            assert_eq!(file.get(entry.id).unwrap(), Some(*entry));
        }
        // A rebuilt file of the same entries has the same shape.
        let fresh = quota::build(kind, entries.iter().copied());
        assert_eq!(fresh.len(), size);
        assert_eq!(fresh.len() % BLOCK_LENGTH, 0);
        bytes[..size].copy_from_slice(&fresh);
        for (&block, bytes) in blocks.iter().zip(bytes.chunks(image.block_size())) {
            image.write_block(block, bytes);
        }
    }
    image.judge();
    let listed = image.debugfs("list_quota user");
    assert!(listed.contains("1073741824"), "{listed}");
}

#[test]
fn quota_files_that_lie_are_noticed() {
    if !tools_available() {
        return;
    }
    let image = Image::make(&["-O", "quota"], "16M", |_| {});
    let entry = QuotaEntry { id: 77, space_bytes: 1 << 20, inodes: 5, ..QuotaEntry::default() };
    let mut fresh = quota::build(QuotaKind::User, [entry]);
    let blocks = image.blocks("<3>");
    fresh.resize(blocks.len() * image.block_size(), 0);
    for (&block, bytes) in blocks.iter().zip(fresh.chunks(image.block_size())) {
        image.write_block(block, bytes);
    }
    // The judge must read the file; otherwise the test above would prove nothing.
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| image.judge())).is_err());
}
