//! Damages that a repair has to find a way around: a copy, another place, what is left of a tree.

use crate::patient::{Patient, Treated, Verdict, content, mend};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::superblock::mark_half_changed;
use drystone_testkit::judges::{SMALL_IMAGES, Scratch, have};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};

/// Damages the image of a set, and repairs it.
fn treat(name: &str, damage: impl FnOnce(&MetadataMap, &MemoryDevice)) -> Option<Treated> {
    if !have("mke2fs") {
        return None;
    }
    let scratch = Scratch::new("fsck-targeted").unwrap();
    let set = SMALL_IMAGES.iter().find(|set| set.name == name).unwrap();
    let patient = Patient::new(&scratch, set, 20);
    let device = MemoryDevice::from_bytes(&patient.bytes);
    damage(&patient.map, &device);
    let treated = patient.judge(&content(&device), vec![name.to_owned()], true);
    if let Verdict::Failed(why) = &treated.verdict {
        panic!("{name}: {why}");
    }
    Some(treated)
}

fn all_is_saved(treated: &Treated) -> bool {
    let ours = treated.ours.as_ref().unwrap();
    (ours.names, ours.bytes) == (treated.sound.names, treated.sound.bytes)
}

/// The undo log of an interrupted change was lost: what the change has left is repaired.
#[test]
fn the_mark_of_an_interrupted_change_goes() {
    let Some(treated) = treat("ext2", |_, device| {
        let mut first = [0; 4096];
        device.read_at(0, &mut first).unwrap();
        mark_half_changed(&mut first);
        device.write_at(0, &first).unwrap();
    }) else {
        return;
    };
    assert!(treated.theirs.is_none() && all_is_saved(&treated), "{:?}", treated.ours);
}

/// A boot loader that was written over the start takes the superblock and the descriptors with it.
#[test]
fn the_first_blocks_come_back_from_their_copies() {
    let Some(treated) = treat("ext2", |map, device| {
        // What follows the descriptors in the first group is reserved, and then bitmaps.
        let end = map.descriptor(map.layout().groups().next().unwrap()).block_bitmap.get();
        let length = (end * map.layout().block_size() as u64).min(12 << 10) as usize;
        let garbage: Vec<u8> = (0..length).map(|at| (at * 7 % 251) as u8).collect();
        device.write_at(0, &garbage).unwrap();
    }) else {
        return;
    };
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

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

fn blocks_of(map: &MetadataMap, is_wanted: impl Fn(&BlockContent) -> bool) -> Vec<u64> {
    map.blocks.iter().filter(|(_, kind)| is_wanted(kind)).map(|(block, _)| *block).collect()
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

#[test]
fn a_journal_whose_inode_is_lost_is_made_anew() {
    let Some(treated) = treat("modern", |map, device| {
        let layout = map.layout();
        let table = map.descriptor(layout.groups().next().unwrap()).inode_table;
        let (block, offset) = layout.inode_location(InodeNumber::JOURNAL, table).unwrap();
        let place = block.get() * layout.block_size() as u64 + offset as u64;
        device.write_at(place, &vec![0; layout.inode_size()]).unwrap();
        // The superblock's copy of the inode goes as well.
        let mut superblock = map.superblock.clone();
        superblock.set_journal_backup(None);
        device.write_at(1024, &superblock.encode()).unwrap();
    }) else {
        return;
    };
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

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
        // Behind both dots, so that the directory keeps its parent.
        device.write_at(blocks[0] * size + 24, &[0xff; 64]).unwrap();
        let treated = patient.judge(&content(&device), vec![set.name.to_owned()], false);
        if let Verdict::Failed(why) = &treated.verdict {
            panic!("{}: {why}", set.name);
        }
        assert!(all_is_saved(&treated), "{}: {:?} {:?}", set.name, treated.ours, treated.sound);
        crate::patient::mend(&device).unwrap();
        let repaired = MetadataMap::of(device);
        let flags = inode(&repaired, number).flags;
        assert!(flags.contains(InodeFlags::INDEX), "{}: {flags:?}", set.name);
    }
}

fn inode_of(map: &MetadataMap, number: InodeNumber) -> Inode {
    Inode::read(&map.inode_bytes(number), number, map.layout()).unwrap()
}

/// The first block of a file whose blocks pointers map.
fn first_block(map: &MetadataMap, number: InodeNumber) -> u64 {
    let area = inode_of(map, number).block_area;
    u64::from(u32::from_le_bytes(*area.first_chunk().unwrap()))
}

/// The byte of the device where an inode starts.
fn place_of(map: &MetadataMap, number: InodeNumber) -> u64 {
    let layout = map.layout();
    let table = map.descriptor(layout.group_of_inode(number).unwrap()).inode_table;
    let (block, offset) = layout.inode_location(number, table).unwrap();
    block.get() * layout.block_size() as u64 + offset as u64
}

/// The inodes of a kind that have links.
fn inodes_of(map: &MetadataMap, is_wanted: impl Fn(&Inode) -> bool) -> Vec<InodeNumber> {
    let numbers = (1..=map.layout().inodes_count()).map(InodeNumber::new);
    let inodes = numbers.map(|number| (number, map.inode_bytes(number)));
    inodes
        .filter(|(number, bytes)| {
            Inode::read(bytes, *number, map.layout())
                .is_ok_and(|inode| inode.links_count > 0 && is_wanted(&inode))
        })
        .map(|(number, _)| number)
        .collect()
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

/// Blocks of pointers of a journal, wiped with zeros and with ones: the copy of the inode leads to them too.
#[test]
fn a_journal_whose_map_is_lost_is_made_anew() {
    for (pointer, garbage) in [(48, 0), (48, 0xff), (52, 0), (52, 0xff)] {
        let Some(treated) = treat("ext3", |map, device| {
            let area = inode_of(map, InodeNumber::JOURNAL).block_area;
            let block = u32::from_le_bytes(*area[pointer..].first_chunk().unwrap());
            assert!(matches!(map.blocks[&u64::from(block)], BlockContent::IndirectBlock));
            let size = map.layout().block_size();
            device.write_at(u64::from(block) * size as u64, &vec![garbage; size]).unwrap();
        }) else {
            return;
        };
        assert!(all_is_saved(&treated), "{pointer}: {:?} {:?}", treated.ours, treated.sound);
    }
}

/// Groups without flexible places and without checksums: their tables are where mke2fs puts them.
#[test]
fn descriptors_without_a_copy_are_guessed() {
    let Some(treated) = treat("group-checksums", |map, device| {
        let size = map.layout().block_size();
        let is_descriptor = |kind: &BlockContent| {
            matches!(kind, BlockContent::Descriptors | BlockContent::DescriptorsBackup)
        };
        for block in blocks_of(map, is_descriptor) {
            device.write_at(block * size as u64, &vec![0; size]).unwrap();
        }
    }) else {
        return;
    };
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// The table of a group goes with all copies of the descriptor: the group gets an empty one.
#[test]
fn a_group_without_its_table_gets_an_empty_one() {
    let Some(treated) = treat("bigalloc-quota", |map, device| {
        let size = map.layout().block_size();
        let is_lost = |kind: &BlockContent| {
            matches!(kind, BlockContent::Descriptors | BlockContent::InodeTable(_))
        };
        for block in blocks_of(map, is_lost) {
            device.write_at(block * size as u64, &vec![0; size]).unwrap();
        }
    }) else {
        return;
    };
    assert!(treated.ours.is_some());
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
        // The third entry of the root, behind both dots.
        let place = first(InodeNumber::ROOT) * size + 24;
        device.write_at(place, &deepest.get().to_le_bytes()).unwrap();
    }) else {
        return;
    };
    let ours = treated.ours.unwrap();
    assert!(ours.names + 1 >= treated.sound.names, "{ours:?} {:?}", treated.sound);
}

/// The same, and the directory that holds the right name is made anew before, for a directory that it names
/// wrongly.
#[test]
fn a_directory_keeps_one_of_its_two_names() {
    let treated = treat("ext2", |map, device| {
        let size = map.layout().block_size() as u64;
        let first = |number| first_block(map, number);
        // Entries behind both dots: where they start, and their inodes.
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
        // `/deep/one` holds a directory and, behind it, a file.
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
        crate::patient::mend(&copy).unwrap();
        let repaired = MetadataMap::of(copy);
        let names_it = |directory: InodeNumber| {
            let names = repaired.block(first(directory));
            names[24..].windows(4).any(|bytes| bytes == child.1.get().to_le_bytes())
        };
        assert!(names_it(InodeNumber::ROOT) || names_it(parent));
    });
    assert!(treated.is_none_or(|treated| treated.ours.is_some()));
}

/// The journal, which is read first, holds an old copy of the inode table.
#[test]
fn a_table_is_not_taken_from_the_journal() {
    let Some(treated) = treat("ext3", |map, device| {
        let layout = map.layout();
        let (size, inode_size) = (layout.block_size() as u64, layout.inode_size());
        let descriptor = map.descriptor(layout.groups().next().unwrap());
        let table = descriptor.inode_table.get();
        let mut bytes = Vec::new();
        for block in table..table + u64::from(layout.inode_table_blocks()) {
            bytes.extend(map.block(block));
        }
        let elsewhere = (layout.blocks_count() - 8) * size - bytes.len() as u64;
        let place = |number: InodeNumber| place_of(map, number) - table * size;
        let mut files = inodes_of(map, |inode| inode.is_regular() && inode.size_bytes > 0);
        files.retain(|number| *number > layout.first_inode());
        device.write_at(table * size, &vec![0; bytes.len()]).unwrap();
        device.write_at(elsewhere, &bytes).unwrap();
        let [one, other] = [0, 1].map(|index| place(files[index]) as usize);
        for at in 0..inode_size {
            bytes.swap(one + at, other + at);
        }
        // What the first indirect block leads to lies behind it.
        let area = inode_of(map, InodeNumber::JOURNAL).block_area;
        let indirect = u32::from_le_bytes(*area[48..].first_chunk().unwrap());
        let run = u32::from_le_bytes(*map.block(indirect.into()).first_chunk().unwrap());
        device.write_at(u64::from(run + 8) * size, &bytes).unwrap();
    }) else {
        return;
    };
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
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

/// The first block of the inode table and another block change places: the table stays where it is, and only
/// the root's names are lost.
#[test]
fn a_table_stays_where_most_of_its_inodes_are() {
    for (name, others) in [("ext3", [34, 190]), ("ext2", [76, 130]), ("bigalloc-quota", [2, 5])] {
        for other in others {
            let Some(treated) = treat(name, |map, device| {
                let size = map.layout().block_size() as u64;
                let first = map.descriptor(map.layout().groups().next().unwrap()).inode_table.get();
                device.write_at(first * size, &map.block(other)).unwrap();
                device.write_at(other * size, &map.block(first)).unwrap();
            }) else {
                return;
            };
            let ours = treated.ours.unwrap();
            assert_eq!(ours.bytes, treated.sound.bytes, "{name} {other}");
        }
    }
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

/// A damaged descriptor names the place one block behind the table, where most inodes look sound still.
#[test]
fn a_table_is_found_beside_the_place_that_is_named() {
    for name in ["ext2", "ext3"] {
        let Some(treated) = treat(name, |map, device| {
            let layout = map.layout();
            let table = map.descriptor(layout.groups().next().unwrap()).inode_table.get() as u32;
            let block = blocks_of(map, |kind| matches!(kind, BlockContent::Descriptors))[0];
            let place = block * layout.block_size() as u64 + 8;
            device.write_at(place, &(table + 1).to_le_bytes()).unwrap();
        }) else {
            return;
        };
        assert!(all_is_saved(&treated), "{name}: {:?} {:?}", treated.ours, treated.sound);
    }
}
