//! The cache in a mount agrees with the image.

use crate::extent_status::ExtentState;
use crate::inode::Inode;
use crate::mapping;
use crate::policy::{ExtentReclaim, Policy};
use crate::{Ext4, MountOptions};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::LogicalBlock;
use drystone_mkfs::{MkfsOptions, make};
use drystone_sync::Arc;
use drystone_vfs::{
    FallocateMode, FileSystem, InodeNumber, NewNode, RequestContext, SetAttributes,
};
use std::collections::BTreeMap;

const BLOCK: u64 = 4096;
const SPAN: u64 = 300;

fn open(policy: ExtentReclaim, extents: usize) -> Ext4 {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    make(&*device, &MkfsOptions::new(64 << 20, [7; 16], [1, 2, 3, 4], 1_700_000_000), true)
        .unwrap();
    let options = MountOptions {
        policy: Policy { extent_reclaim: policy, ..Policy::SCALABLE },
        extent_status_bytes: Some(32 * extents),
        // Delayed data is not in the image, with which this test compares.
        delayed_allocation: false,
        ..MountOptions::default()
    };
    Ext4::open(device as Arc<dyn BlockDevice>, options).unwrap()
}

/// Compares the cached extents, and the answers of `map`, with the mapping in the image.
fn compare(fs: &Ext4, inode: &Inode) {
    let _content = inode.content().read();
    let mut image = BTreeMap::new();
    let mut next = LogicalBlock::FIRST;
    while let Some(extent) = mapping::next_extent(fs, inode, next).unwrap() {
        for offset in 0..extent.length {
            let physical = extent.physical.get() + u64::from(offset);
            image.insert(extent.logical.get() + offset, (physical, extent.unwritten));
        }
        next = LogicalBlock::new(extent.logical.get() + extent.length);
    }
    let facts = inode.extents.any().map(|cached| cached.tree.read().facts()).unwrap_or_default();
    for fact in facts {
        for block in fact.logical..fact.end().min(2 * SPAN) as u32 {
            let unwritten = fact.status == ExtentState::Unwritten;
            let physical = fact.physical + u64::from(block - fact.logical);
            let said = fact.status.is_mapped().then_some((physical, unwritten));
            assert_eq!(said, image.get(&block).copied(), "block {block} of {fact:?}");
        }
    }
    for block in 0..SPAN as u32 {
        let mapped = mapping::map(fs, inode, LogicalBlock::new(block), 1).unwrap();
        let said = mapped.physical.map(|physical| (physical.get(), mapped.unwritten));
        assert_eq!(said, image.get(&block).copied(), "block {block}");
    }
}

fn change(fs: &Ext4, file: InodeNumber, random: &mut fastrand::Rng) {
    let context = RequestContext::superuser();
    let (offset, length) = (random.u64(..SPAN), random.u64(1..4));
    let fallocate = |mode, offset: u64, length: u64| {
        // Errors are expected: a range beyond the end, no space.
        let _ = fs.fallocate(&context, file, mode, offset * BLOCK, length * BLOCK);
    };
    match random.u32(..16) {
        0 => fallocate(FallocateMode::PunchHole, offset, 5 * length),
        1 => fallocate(FallocateMode::ZeroRange { keep_size: true }, offset, length),
        2 => fallocate(FallocateMode::CollapseRange, offset, length),
        3 => fallocate(FallocateMode::InsertRange, offset, length),
        4 => {
            let size = Some(random.u64(..SPAN * BLOCK));
            let changes = SetAttributes { size, ..SetAttributes::default() };
            fs.set_attributes(&context, file, &changes).unwrap();
        }
        5..9 => fallocate(FallocateMode::Allocate { keep_size: false }, offset, length),
        _ => {
            let data = vec![7; (length * BLOCK) as usize];
            fs.write(&context, file, offset * BLOCK, &data).unwrap();
        }
    }
}

#[test]
fn it_says_what_the_image_says() {
    for &policy in ExtentReclaim::VALUES {
        for (seed, extents) in [(1, 40), (2, 400), (3, 100_000)] {
            let mut random = fastrand::Rng::with_seed(seed);
            let fs = open(policy, extents);
            let context = RequestContext::superuser();
            let files: Vec<_> = (0..4)
                .map(|number| {
                    let name = format!("f{number}");
                    let root = fs.root();
                    let made = fs.create(&context, root, name.as_bytes(), NewNode::Regular, 0o644);
                    made.unwrap().inode
                })
                .collect();
            for step in 0..400 {
                let file = files[random.usize(..files.len())];
                change(&fs, file, &mut random);
                if step % 20 == 0 {
                    compare(&fs, &fs.held(file).unwrap());
                }
            }
            let statistics = fs.engine_statistics().extent_status;
            assert!(statistics.hits > 0 && statistics.misses > 0, "{statistics:?}");
            assert_eq!(statistics.passes > 0, extents < 100, "{statistics:?}");
            files.iter().for_each(|file| compare(&fs, &fs.held(*file).unwrap()));
            fs.close().unwrap();
        }
    }
}

#[test]
fn small_files_are_not_cached() {
    let fs = open(ExtentReclaim::RoundRobin, 1000);
    let context = RequestContext::superuser();
    let file = fs.create(&context, fs.root(), b"f", NewNode::Regular, 0o644).unwrap().inode;
    for block in 0..10 {
        fs.write(&context, file, block * BLOCK, &[1; BLOCK as usize]).unwrap();
    }
    let mut buffer = [0; BLOCK as usize];
    fs.read(file, 0, &mut buffer).unwrap();
    let statistics = fs.engine_statistics().extent_status;
    assert_eq!((statistics.cached, statistics.misses), (0, 0));
    fs.close().unwrap();
}
