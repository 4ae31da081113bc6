//! Damaged directories, and names that lead to the wrong place.

use super::{all_is_saved, blocks_of, first_block, inode_of, inodes_of, place_of, treat};
use crate::patient::{Patient, Verdict};
use crate::repairing::{NOW_SECONDS, content, repair_all};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_fsck::{CheckOptions, Decision, Issue, Problem, repair};
use drystone_testkit::judges::{SMALL_IMAGES, Scratch, have};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};

/// The root of the index and a leaf: names of the leaf get others in `lost+found`, or count less.
#[test]
fn a_directory_gets_its_index_again() {
    let scratch = Scratch::new("fsck-index").unwrap();
    if !have("mke2fs") {
        return;
    }
    for set in SMALL_IMAGES.iter().filter(|set| !set.arguments.contains("^dir_index")) {
        let patient = Patient::new(&scratch, set, 0);
        let (map, size) = (&patient.map, patient.map.layout().block_size() as u64);
        let inode = |map: &MetadataMap, number| {
            Inode::read(&map.inode_bytes(number), number, map.layout()).unwrap()
        };
        let indexed = (1..=map.layout().inodes_count()).map(InodeNumber::new).find(|number| {
            let bytes = map.inode_bytes(*number);
            Inode::read(&bytes, *number, map.layout())
                .is_ok_and(|inode| inode.is_directory() && inode.flags.contains(InodeFlags::INDEX))
        });
        let Some(number) = indexed else { continue };
        let blocks =
            blocks_of(map, |kind| matches!(kind, BlockContent::Directory(of, _) if *of == number));
        let device = MemoryDevice::from_bytes(&patient.bytes);
        // After both dots, so that the directory keeps its parent.
        device.write_at(blocks[0] * size + 24, &[0xff; 64]).unwrap();
        let treated = patient.judge(&content(&device), vec![set.name.to_owned()], false);
        if let Verdict::Failed(why) = &treated.verdict {
            panic!("{}: {why}", set.name);
        }
        assert!(all_is_saved(&treated), "{}: {:?} {:?}", set.name, treated.ours, treated.sound);
        repair_all(&device).unwrap();
        let repaired = MetadataMap::of(device);
        let flags = inode(&repaired, number).flags;
        assert!(flags.contains(InodeFlags::INDEX), "{}: {flags:?}", set.name);
    }
}

/// A leaf that counts no entries, and an entry that counts too many blocks.
#[test]
fn damaged_leaves_keep_their_entries() {
    let damages: [(u64, &[u8]); 2] = [(2, &[0, 0]), (12 + 20 * 12 + 4, &[129, 0])];
    for (offset, bytes) in damages {
        let Some(treated) = treat("group-checksums", |map, device| {
            let leaf = |block: &u64| map.block(*block)[6..8] == [0, 0];
            let nodes = blocks_of(map, |kind| matches!(kind, BlockContent::ExtentNode(..)));
            let block = nodes.into_iter().find(leaf).unwrap();
            device.write_at(block * map.layout().block_size() as u64 + offset, bytes).unwrap();
        }) else {
            return;
        };
        assert!(all_is_saved(&treated), "{offset}: {:?} {:?}", treated.ours, treated.sound);
    }
}

/// The first record after the dots: too long, not aligned, too short, and over others.
#[test]
fn an_entry_whose_record_has_no_length_keeps_its_name() {
    for length in [8192_u16, 0xffff, 3, 0, 8] {
        let Some(treated) = treat("ext2", |map, device| {
            let size = map.layout().block_size() as u64;
            let is_plain =
                |inode: &Inode| inode.is_directory() && !inode.flags.contains(InodeFlags::INDEX);
            let blocks =
                inodes_of(map, is_plain).into_iter().map(|number| first_block(map, number));
            let with_entries: Vec<u64> =
                blocks.filter(|block| map.block(*block)[16..18] == [12, 0]).collect();
            assert!(with_entries.len() > 3);
            for block in with_entries {
                device.write_at(block * size + 24 + 4, &length.to_le_bytes()).unwrap();
            }
        }) else {
            return;
        };
        assert!(all_is_saved(&treated), "{length}: {:?} {:?}", treated.ours, treated.sound);
    }
}

/// The time of the last write is in the future, and stays so: what is found of the directories isn't repaired before
/// the owners of their blocks are.
#[test]
fn a_shared_directory_is_separated_first() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-separated").unwrap();
    let set = SMALL_IMAGES.iter().find(|set| set.name == "ext2").unwrap();
    let Patient { map, bytes, .. } = &Patient::new(&scratch, set, 20);
    let is_plain = |inode: &Inode| inode.is_directory() && !inode.flags.contains(InodeFlags::INDEX);
    let blocks = inodes_of(map, is_plain).into_iter().map(|number| first_block(map, number));
    let mut blocks = blocks.filter(|block| map.block(*block)[16..18] == [12, 0]);
    let (shared, size) = (blocks.next_back().unwrap(), map.layout().block_size() as u64);
    let file = *inodes_of(map, |inode| inode.is_regular() && inode.size_bytes > 0).last().unwrap();
    let device = MemoryDevice::from_bytes(bytes);
    device.write_at(place_of(map, file) + 40, &(shared as u32).to_le_bytes()).unwrap();
    device.write_at(shared * size + 24 + 4, &[3, 0]).unwrap();
    device.write_at(1024 + 0x30, &(NOW_SECONDS as u32 + 1_000_000).to_le_bytes()).unwrap();
    let is_time = |issue: &Issue| issue.code() == "superblock_future";
    let mut choose = |problem: &Problem, _: bool| match is_time(&problem.issue) {
        true => Decision::Leave,
        false => Decision::Repair,
    };
    let report =
        repair(&device, &CheckOptions::default(), NOW_SECONDS, &mut choose, &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    let first = |is_wanted: fn(&Issue) -> bool| {
        report.problems.iter().position(|problem| is_wanted(&problem.problem.issue))
    };
    assert!(report.problems.iter().any(|problem| is_time(&problem.problem.issue)));
    let separated = first(|issue| matches!(issue, Issue::Blocks { .. }));
    let rebuilt = first(|issue| issue.code() == "corrupt_directory");
    assert!(separated.is_some() && separated < rebuilt, "{:?}", report.problems);
}

#[test]
fn lost_and_found_comes_back() {
    let Some(treated) = treat("modern", |map, device| {
        let number = map.layout().first_inode();
        device.write_at(place_of(map, number), &vec![0; map.layout().inode_size()]).unwrap();
    }) else {
        return;
    };
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// A damaged superblock names an orphan file, though it has none.
#[test]
fn a_directory_is_no_orphan_file() {
    let Some(treated) = treat("group-checksums", |map, device| {
        let directory = *inodes_of(map, Inode::is_directory).last().unwrap();
        let mut superblock = map.superblock.clone();
        superblock.set_orphan_file_inode(Some(directory));
        device.write_at(1024, &superblock.encode()).unwrap();
    }) else {
        return;
    };
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// A damaged entry in a directory that is read first names a directory that another one holds.
#[test]
fn a_directory_stays_where_its_dots_lead() {
    let Some(treated) = treat("ext2", |map, device| {
        let size = map.layout().block_size() as u64;
        let first = |number| first_block(map, number);
        let parent = |number: &InodeNumber| {
            u32::from_le_bytes(*map.block(first(*number))[12..].first_chunk().unwrap())
        };
        let directories = inodes_of(map, Inode::is_directory);
        let deepest = directories.iter().rev().find(|number| parent(number) > 2).unwrap();
        // The third entry of the root, after both dots.
        let place = first(InodeNumber::ROOT) * size + 24;
        device.write_at(place, &deepest.get().to_le_bytes()).unwrap();
    }) else {
        return;
    };
    let ours = treated.ours.unwrap();
    assert!(ours.names + 1 >= treated.sound.names, "{ours:?} {:?}", treated.sound);
}

/// The same, and the directory that holds the right name is rebuilt before, for a directory that it names
/// wrongly.
#[test]
fn a_directory_keeps_one_of_its_two_names() {
    let treated = treat("ext2", |map, device| {
        let size = map.layout().block_size() as u64;
        let first = |number| first_block(map, number);
        // Entries after both dots: where they start, and their inodes.
        let entries = |number: InodeNumber| {
            let bytes = map.block(first(number));
            let (mut at, mut found) = (12, Vec::new());
            while at < bytes.len() {
                let inode = u32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
                found.push((at as u64, InodeNumber::new(inode)));
                at += usize::from(u16::from_le_bytes(*bytes[at + 4..].first_chunk().unwrap()));
            }
            found.remove(0);
            found.retain(|(_, inode)| inode.get() != 0);
            found
        };
        let directories = inodes_of(map, Inode::is_directory);
        let of_root = entries(InodeNumber::ROOT);
        // `/deep/one` holds a directory and, after it, a file.
        let (deep, parent, child) = of_root
            .iter()
            .flat_map(|(_, deep)| directories.contains(deep).then_some(*deep))
            .find_map(|deep| {
                let inner =
                    |of| entries(of).into_iter().find(|(_, inode)| directories.contains(inode));
                let parent = inner(deep)?.1;
                Some((deep, parent, inner(parent)?))
            })
            .unwrap();
        let file = entries(parent).into_iter().find(|(at, _)| *at > child.0).unwrap().0;
        let (_, wrong) = *of_root
            .iter()
            .rfind(|(_, inode)| directories.contains(inode) && *inode != deep)
            .unwrap();
        let name = |directory: InodeNumber, at: u64, inode: InodeNumber| {
            let place = first(directory) * size + at;
            device.write_at(place, &inode.get().to_le_bytes()).unwrap();
            device.write_at(place + 7, &[2]).unwrap();
        };
        name(InodeNumber::ROOT, of_root[0].0, child.1);
        name(parent, child.0, wrong);
        name(parent, file, child.1);
        let copy = device.snapshot();
        repair_all(&copy).unwrap();
        let repaired = MetadataMap::of(copy);
        let names_it = |directory: InodeNumber| {
            let names = repaired.block(first(directory));
            names[24..].windows(4).any(|bytes| bytes == child.1.get().to_le_bytes())
        };
        assert!(names_it(InodeNumber::ROOT) || names_it(parent));
    });
    assert!(treated.is_none_or(|treated| treated.ours.is_some()));
}

/// The root's map is an inner node without entries: the names that it held get others in `lost+found`.
#[test]
fn a_root_without_a_map_is_made_anew() {
    let Some(treated) = treat("group-checksums", |map, device| {
        let place = place_of(map, InodeNumber::ROOT) + 40;
        let mut area = [0; 60];
        area[..8].copy_from_slice(&[0x0a, 0xf3, 0, 0, 4, 0, 1, 0]);
        device.write_at(place, &area).unwrap();
    }) else {
        return;
    };
    let ours = treated.ours.as_ref().unwrap();
    assert_eq!(ours.bytes, treated.sound.bytes);
}

/// `lost+found` has got the block of another directory: its `..` isn't a name of the directory above, which keeps
/// its own, though what holds that is rebuilt.
#[test]
fn a_stray_block_takes_no_directory_away() {
    let Some(treated) = treat("ext2", |map, device| {
        let size = map.layout().block_size() as u64;
        let first = |number| first_block(map, number);
        let word =
            |block: &[u8], at: usize| u32::from_le_bytes(*block[at..].first_chunk().unwrap());
        let parent = |number| InodeNumber::new(word(&map.block(first(number)), 12));
        let directories = inodes_of(map, Inode::is_directory);
        let stray = *directories
            .iter()
            .rev()
            .find(|number| {
                parent(parent(**number)) != InodeNumber::ROOT && parent(**number).get() > 2
            })
            .unwrap();
        let second = word(&inode_of(map, map.layout().first_inode()).block_area, 4);
        device.write_at(u64::from(second) * size, &map.block(first(stray))).unwrap();
        // One name in the directory above the one above leads nowhere.
        let above = first(parent(parent(stray)));
        let bytes = map.block(above);
        let mut at = 24;
        while directories.iter().any(|number| number.get() == word(&bytes, at)) {
            at += usize::from(u16::from_le_bytes(*bytes[at + 4..].first_chunk().unwrap()));
        }
        let unused = map.layout().inodes_count();
        device.write_at(above * size + at as u64, &unused.to_le_bytes()).unwrap();
    }) else {
        return;
    };
    let ours = treated.ours.unwrap();
    assert!(ours.names + 1 >= treated.sound.names, "{ours:?} {:?}", treated.sound);
}

/// The record of `.` is so long that it hides names, and `..`.
#[test]
fn what_a_dot_hides_comes_back() {
    for name in ["modern", "ext2"] {
        let Some(treated) = treat(name, |map, device| {
            let size = map.layout().block_size() as u64;
            let is_linear =
                |number: &InodeNumber| !inode_of(map, *number).flags.contains(InodeFlags::INDEX);
            let number = inodes_of(map, Inode::is_directory).into_iter().rfind(is_linear).unwrap();
            let first = |kind: &BlockContent| matches!(kind, BlockContent::Directory(of, _) if *of == number);
            let block = blocks_of(map, first)[0];
            let mut bytes = map.block(block);
            let third = u16::from_le_bytes([bytes[28], bytes[29]]);
            bytes[4..6].copy_from_slice(&(24 + third).to_le_bytes());
            map.seal(device, block, map.blocks[&block], &mut bytes);
            device.write_at(block * size, &bytes).unwrap();
        }) else {
            return;
        };
        assert!(all_is_saved(&treated), "{name}: {:?} {:?}", treated.ours, treated.sound);
    }
}
