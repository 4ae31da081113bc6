//! No bytes make a check panic; what passes one can be computed with and written back.

use crate::common::Image;
use drystone_ext4_format::bitmap_checksum::check_block_bitmap;
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, Superblock};
use drystone_ext4_format::{GroupNumber, InodeNumber, LogicalBlock, PhysicalBlock, block_map};
use proptest::prelude::*;
use proptest::sample::Index;

/// Changes of a field: where, how many bytes, and to what.
fn changes() -> impl Strategy<Value = Vec<(Index, usize, u64)>> {
    let value = prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0u64..70_000];
    let width = prop_oneof![Just(1usize), Just(2), Just(4), Just(8)];
    prop::collection::vec((any::<Index>(), width, value), 1..6)
}

fn apply(bytes: &mut [u8], changes: &[(Index, usize, u64)]) {
    for (index, width, value) in changes {
        let start = index.index(bytes.len() / width) * width;
        bytes[start..start + width].copy_from_slice(&value.to_le_bytes()[..*width]);
    }
}

/// Everything that a layout computes, for numbers inside and outside.
fn exercise(superblock: &Superblock, number: u64) {
    let layout = superblock.layout();
    let group = GroupNumber::new(number as u32);
    for group in [GroupNumber::FIRST, layout.last_group(), group] {
        let _ = layout.group_base(group);
        let _ = layout.group_first_block(group);
        let _ = layout.group_cluster_count(group);
        let _ = layout.superblock_location(group);
        let _ = layout.descriptor_location(group);
        let _ = layout.inode_of_bit(group, number as u32);
        let _ = layout.block_of_bit(group, layout.clusters_per_group() - 1);
    }
    let block = PhysicalBlock::new(number);
    let _ = layout.bit_of_block(block);
    let _ = layout.contains_blocks(block, number);
    let _ = layout.inode_location(InodeNumber::new(number as u32), block);
    let _ = layout.extent_file_bytes_max();
    let _ = layout.mapped_file_bytes_max();
    let _ = layout.descriptor_block(number as u32);
    let _ = block_map::MapPath::new(LogicalBlock::new(number as u32), layout);
    let _ = block_map::logical_end(layout);
    let mut descriptor = vec![0; layout.descriptor_size()];
    GroupDescriptor::default().encode_into(&mut descriptor, group, layout);
    assert!(GroupDescriptor::check_checksum(&descriptor, group, layout).is_ok());
}

/// Failures print what reproduces them; there is no file to keep them in.
fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        prop_assert!(Superblock::check(&bytes).is_err());
    }

    #[test]
    fn damaged_superblocks(changes in changes(), number: u64, kind: Index) {
        thread_local! {
            static SEEDS: Vec<Image> = [
                ("-t ext2 -b 1024", "10M"),
                ("-t ext4 -b 1024", "100M"),
                ("-t ext4 -b 1024 -O meta_bg,^resize_inode,bigalloc -C 4096", "100M"),
            ]
            .iter()
            .filter_map(|(arguments, size)| Image::make(arguments, size))
            .collect();
        }
        SEEDS.with(|seeds| {
            if seeds.is_empty() {
                return;
            }
            let mut bytes = kind.get(seeds).superblock.encode();
            apply(&mut bytes, &changes);
            if let Ok(superblock) = Superblock::check_unsealed(&bytes) {
                exercise(&superblock, number);
                let again = superblock.encode();
                assert!(Superblock::check(&again).is_ok());
                assert_eq!(bytes[..SUPERBLOCK_BYTES - 4], again[..SUPERBLOCK_BYTES - 4]);
            }
        });
    }
}

#[test]
fn damaged_inodes_and_descriptors() {
    let Some(image) = Image::make("-t ext4", "20M") else { return };
    let layout = image.layout();
    let good = image.inode_bytes(InodeNumber::ROOT);
    let (block, offset) = layout.descriptor_location(GroupNumber::FIRST).unwrap();
    let descriptor = image.bytes(block, offset, layout.descriptor_size());
    proptest!(config(), |(changes in changes(), cut in 0usize..300)| {
        let mut bytes = good.clone();
        apply(&mut bytes, &changes);
        let is_same = bytes == good;
        prop_assert_eq!(Inode::check(&bytes, InodeNumber::ROOT, layout).is_ok(), is_same);
        if let Ok(inode) = Inode::read(&bytes, InodeNumber::ROOT, layout) {
            let mut again = bytes.clone();
            if inode.encode_into(&mut again, layout).is_ok() {
                // Nanoseconds out of range are the only thing that reading changes.
                let read = Inode::read(&again, InodeNumber::ROOT, layout).unwrap();
                prop_assert_eq!(read, inode);
                prop_assert!(Inode::check_checksum(&again, InodeNumber::ROOT, layout).is_ok());
                let area = Inode::read(&bytes, InodeNumber::ROOT, layout).unwrap();
                let area = area.attribute_area(layout);
                prop_assert_eq!(&again[area.clone()], &bytes[area]);
            }
        }
        let cut = cut.min(bytes.len() - 1);
        prop_assert!(Inode::check(&bytes[..cut], InodeNumber::ROOT, layout).is_err());

        let mut bytes = descriptor.clone();
        apply(&mut bytes, &changes);
        let is_same = bytes == descriptor;
        let verdict = GroupDescriptor::check(&bytes, GroupNumber::FIRST, layout);
        // A checksum of 16 bits can agree by chance.
        prop_assert!(!is_same || verdict.is_ok());
        let read = GroupDescriptor::read(&bytes, layout).unwrap();
        let _ = read.check_locations(GroupNumber::FIRST, layout);
        let _ = read.check_counts(GroupNumber::FIRST, layout);
        prop_assert!(check_block_bitmap(&bytes, GroupNumber::FIRST, &read, layout).is_err());
    });
}
