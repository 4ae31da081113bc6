//! Damaged maps, links and values of files.

use super::{blocks_of, inodes_of, place_of, treat};
use crate::patient::{Patient, mend};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::inode::InodeFlags;
use drystone_testkit::judges::{SMALL_IMAGES, Scratch, have};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};

/// The block of such a link looks free, and its pointer like a target.
#[test]
fn a_long_link_with_a_short_size_keeps_its_target() {
    const SIZE: usize = 4;
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-links").unwrap();
    let mut is_tried = false;
    for set in &SMALL_IMAGES {
        let patient = Patient::new(&scratch, set, 0);
        let map = &patient.map;
        let block_size = map.layout().block_size() as u64;
        let links = inodes_of(map, |inode| inode.is_symlink() && inode.has_block_mapping());
        is_tried |= !links.is_empty();
        for link in links {
            let device = MemoryDevice::from_bytes(&patient.bytes);
            let place = place_of(map, link);
            let block = place / block_size;
            let mut bytes = map.block(block);
            bytes[(place % block_size) as usize + SIZE] = 2;
            map.seal(&device, block, map.blocks[&block], &mut bytes);
            device.write_at(block * block_size, &bytes).unwrap();
            let report = mend(&device).unwrap();
            assert!(report.is_clean(), "{}: {:?}", set.name, report.problems);
            let mended = MetadataMap::of(device).inode_bytes(link);
            assert_eq!(mended, map.inode_bytes(link), "{}: {:?}", set.name, report.problems);
        }
    }
    assert!(is_tried);
}

#[test]
fn a_node_of_an_extent_tree_loses_what_it_held() {
    let mut held = 0;
    let Some(treated) = treat("modern", |map, device| {
        let nodes = blocks_of(map, |kind| matches!(kind, BlockContent::ExtentNode(..)));
        let block = *nodes.last().unwrap();
        let size = map.layout().block_size() as u64;
        // Each entry leads to one block.
        held = u64::from(u16::from_le_bytes([map.block(block)[2], map.block(block)[3]])) * size;
        device.write_at(block * size, &vec![0; size as usize]).unwrap();
    }) else {
        return;
    };
    let ours = treated.ours.unwrap();
    assert_eq!(ours.names, treated.sound.names);
    assert!(held > 0 && ours.bytes + held >= treated.sound.bytes, "{ours:?} {:?}", treated.sound);
}

/// The only attribute of a file goes with its value.
#[test]
fn a_lost_value_takes_its_attribute() {
    let Some(treated) = treat("attribute-inodes", |map, device| {
        let values = inodes_of(map, |inode| inode.flags.contains(InodeFlags::EA_INODE));
        assert!(!values.is_empty());
        for value in values {
            device.write_at(place_of(map, value), &vec![0; map.layout().inode_size()]).unwrap();
        }
    }) else {
        return;
    };
    let ours = treated.ours.unwrap();
    assert_eq!(ours.bytes, treated.theirs.unwrap().bytes);
}

/// Two extents of one file that don't start at clusters are dropped at once.
#[test]
fn extents_between_clusters_are_dropped() {
    let mut nodes_met = 0;
    let Some(treated) = treat("bigalloc-quota", |map, device| {
        let size = map.layout().block_size();
        let seeds = map.blocks.iter().filter_map(|(block, kind)| match kind {
            BlockContent::ExtentNode(inode, seed) => Some((*block, *inode, *seed)),
            _ => None,
        });
        for (block, inode, seed) in seeds.collect::<Vec<_>>() {
            let mut bytes = map.block(block);
            if bytes[6..8] != [0, 0] {
                continue;
            }
            nodes_met += 1;
            for entry in [2, 3, 4, 5] {
                // The low byte of the device block.
                bytes[12 + entry * 12 + 8] ^= 4;
            }
            map.seal(device, block, BlockContent::ExtentNode(inode, seed), &mut bytes);
            device.write_at(block * size as u64, &bytes).unwrap();
        }
    }) else {
        return;
    };
    assert!(nodes_met > 0 && treated.ours.is_some());
}
