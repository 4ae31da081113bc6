//! Damaged maps, links and values of files.

use super::{all_is_saved, blocks_of, inode_of, inodes_of, place_of, treat};
use crate::patient::Patient;
use crate::repairing::{content, repair_all};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_fsck::{CheckOptions, check};
use drystone_testkit::contents::ImageContents;
use drystone_testkit::judges::{SMALL_IMAGES, Scratch, e2fsck_check, have, make_small_image, run};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;

const SIZE: usize = 4;
const SIZE_HIGH: usize = 108;
const SECTORS: usize = 28;
const FLAGS: usize = 32;
const BLOCK_AREA: usize = 40;

/// Changes the record of an inode; its checksum holds.
fn edit(map: &MetadataMap, device: &MemoryDevice, inode: InodeNumber, edit: impl Fn(&mut [u8])) {
    let block_size = map.layout().block_size() as u64;
    let place = place_of(map, inode);
    let block = place / block_size;
    let mut bytes = map.block(block);
    edit(&mut bytes[(place % block_size) as usize..]);
    map.seal(device, block, map.blocks[&block], &mut bytes);
    device.write_at(block * block_size, &bytes).unwrap();
}

fn is_long_link(inode: &Inode) -> bool {
    inode.is_symlink() && inode.has_block_mapping()
}

/// With a small size the block of such a link looks free, and its pointer like a target.
#[test]
fn a_long_link_with_another_size_keeps_its_target() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-links").unwrap();
    let mut is_tried = false;
    for set in &SMALL_IMAGES {
        let patient = Patient::new(&scratch, set, 0);
        let map = &patient.map;
        for link in inodes_of(map, is_long_link) {
            is_tried = true;
            for size in [1_u64, 2, 59, 101, 1024, 4096, 5000, (1 << 32) + 100] {
                let device = MemoryDevice::from_bytes(&patient.bytes);
                edit(map, &device, link, |inode| {
                    inode[SIZE..SIZE + 4].copy_from_slice(&size.to_le_bytes()[..4]);
                    inode[SIZE_HIGH..SIZE_HIGH + 4].copy_from_slice(&size.to_le_bytes()[4..]);
                });
                let report = repair_all(&device).unwrap();
                let told = format!("{}, {size}: {:?}", set.name, report.problems);
                assert!(report.is_clean(), "{told}");
                let repaired = MetadataMap::of(device).inode_bytes(link);
                assert_eq!(repaired, map.inode_bytes(link), "{told}");
            }
        }
    }
    assert!(is_tried);
}

/// Without the flag the root of an extent tree would be taken for pointers.
#[test]
fn what_lost_its_flag_of_extents_keeps_its_blocks() {
    for name in ["modern", "group-checksums"] {
        let Some(treated) = treat(name, |map, device| {
            let has_tree = |inode: &Inode| inode.flags.contains(InodeFlags::EXTENTS);
            let first = map.layout().first_inode();
            let mut numbers = inodes_of(map, has_tree);
            numbers.retain(|number| *number >= first && inode_of(map, *number).size_bytes > 0);
            assert!(numbers.len() > 10, "{name}: {numbers:?}");
            for number in numbers {
                let flags = inode_of(map, number).flags.difference(InodeFlags::EXTENTS).bits();
                edit(map, device, number, |inode| {
                    inode[FLAGS..FLAGS + 4].copy_from_slice(&flags.to_le_bytes());
                });
            }
        }) else {
            return;
        };
        assert!(all_is_saved(&treated), "{name}: {:?} {:?}", treated.ours, treated.sound);
    }
}

/// The target of a short link may look like a pointer to what somebody has deleted.
#[test]
fn a_short_link_that_counts_a_block_keeps_its_target() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-short-links").unwrap();
    for name in ["ext2", "ext3"] {
        let set = SMALL_IMAGES.iter().find(|set| set.name == name).unwrap();
        let patient = Patient::new(&scratch, set, 0);
        let map = &patient.map;
        let layout = map.layout();
        let link = inodes_of(map, Inode::is_fast_symlink)[0];
        let group = layout.groups().last().unwrap();
        let used = map.block(map.descriptor(group).block_bitmap.get());
        // A target without zeros.
        let bits = (0..layout.group_cluster_count(group)).rev();
        let free = bits.filter(|bit| used[*bit as usize / 8] >> (bit % 8) & 1 == 0);
        let mut blocks = free.map(|bit| layout.block_of_bit(group, bit).get());
        let block = blocks.find(|block| block & 0xff != 0 && block >> 8 & 0xff != 0).unwrap();
        let device = MemoryDevice::from_bytes(&patient.bytes);
        device.write_at(block * layout.block_size() as u64, &[b'T'; 100]).unwrap();
        let length = block.to_le_bytes().iter().position(|&byte| byte == 0).unwrap();
        edit(map, &device, link, |inode| {
            inode[SIZE] = length as u8;
            inode[SECTORS] = layout.sectors_per_block() as u8;
            inode[BLOCK_AREA..BLOCK_AREA + 60].fill(0);
            inode[BLOCK_AREA..BLOCK_AREA + 8].copy_from_slice(&block.to_le_bytes());
        });
        let report = repair_all(&device).unwrap();
        assert!(report.is_clean(), "{name}: {:?}", report.problems);
        let repaired = inode_of(&MetadataMap::of(device), link);
        let target = &block.to_le_bytes()[..length];
        assert_eq!(repaired.fast_symlink_target(), Some(target), "{name}: {:?}", report.problems);
    }
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

/// An extent that became longer claims the blocks of many files, and there is no room for copies.
#[test]
fn a_file_that_claims_more_than_there_is_room_for_gives_way() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-full").unwrap();
    let set = SMALL_IMAGES.iter().find(|set| set.name == "modern").unwrap();
    let path = make_small_image(&scratch, set, 200);
    let summary = |device: &MemoryDevice| {
        check(device, &CheckOptions::default(), &mut |_| {}).unwrap().summary
    };
    let read = || MemoryDevice::from_bytes(&fs::read(&path).unwrap());
    // A file takes all but some blocks.
    let before = summary(&read());
    let filler = scratch.join("filler");
    let free = before.blocks_total - before.blocks_used - 16;
    fs::write(&filler, vec![1; (free << 10) as usize]).unwrap();
    let mut script = format!("write {} filler\n", filler.display());
    // The damaged one claims what they leave, too, so that it is left with many pieces.
    let contents = ImageContents::of(read()).unwrap();
    let small = contents.names.iter().filter(|(_, inode)| contents.files[inode].mode >> 12 == 8);
    for (path, _) in small.filter(|(path, _)| path.starts_with(b"/more/")).step_by(3) {
        writeln!(script, "rm {}", str::from_utf8(path).unwrap()).unwrap();
    }
    let file = scratch.join("script");
    fs::write(&file, script).unwrap();
    let arguments = [OsStr::new("-w"), OsStr::new("-f"), file.as_os_str(), path.as_os_str()];
    run("debugfs", arguments).unwrap().expect_clean("filled");
    let map = MetadataMap::of(read());
    let is_mapped = |inode: &Inode| {
        inode.is_regular() && inode.flags.contains(InodeFlags::EXTENTS) && inode.size_bytes == 7
    };
    let damaged = inodes_of(&map, is_mapped)[0];
    let device = read();
    let area = inode_of(&map, damaged).block_area;
    let start = u32::from_le_bytes(*area[20..].first_chunk().unwrap());
    let length = (map.layout().blocks_count() - u64::from(start)).min(1500) as u16;
    edit(&map, &device, damaged, |inode| {
        inode[BLOCK_AREA + 16..][..2].copy_from_slice(&length.to_le_bytes());
    });
    let before = check(&device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(before.errors > 10, "{:?}", before.problems);
    let report = repair_all(&device).unwrap();
    assert!(report.is_clean() && report.repaired < 2 * before.errors, "{:?}", report.problems);
    fs::write(&path, content(&device)).unwrap();
    e2fsck_check(&path).unwrap().expect_clean("repaired");
    // It keeps all pieces that it has alone: the blocks of copies that it couldn't map are free for its map.
    let depth = inode_of(&MetadataMap::of(device.snapshot()), damaged).block_area[6];
    assert_eq!(depth, 1);
    let sound = ImageContents::of(map.device.clone()).unwrap();
    let repaired = ImageContents::of(device).unwrap();
    assert_eq!(sound.names, repaired.names);
    let others = sound.files.iter().filter(|(inode, _)| **inode != damaged.get());
    assert!(others.into_iter().all(|(inode, content)| repaired.files.get(inode) == Some(content)));
}
