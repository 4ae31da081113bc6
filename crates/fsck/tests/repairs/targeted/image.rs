//! Damage to what the whole image rests on: the superblock, descriptors, inode tables, the journal.

use super::{all_is_saved, blocks_of, inode_of, inodes_of, place_of, treat, treat_with};
use crate::patient::{Patient, Verdict};
use crate::repairing::{content, repair_all};
use crate::sets;
use drystone_blockdev::{BlockDevice, FileDevice, MemoryDevice, OpenMode};
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::superblock::{CREATOR_HURD, Superblock, mark_half_changed};
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};
use drystone_fsck::{CheckOptions, Issue, SuperblockIssue};
use drystone_testkit::judges::{SMALL_IMAGES, Scratch, SmallImage, have, run};
use drystone_testkit::metadata_map::BlockContent;
use std::fs::{self, File};

/// The undo log of an interrupted change was lost: what the change has left is repaired.
#[test]
fn the_mark_of_an_interrupted_change_goes() {
    let Some(treated) = treat("ext2", |_, device| {
        let mut first = [0; 4096];
        device.read_at(0, &mut first).unwrap();
        mark_half_changed(&mut first);
        device.write_at(0, &first).unwrap();
        let report = drystone_fsck::check(device, &CheckOptions::default(), &mut |_| {}).unwrap();
        let found = Issue::Superblock(SuperblockIssue::HalfChanged);
        assert!(report.problems.len() == 1 && report.problems[0].issue == found);
    }) else {
        return;
    };
    assert!(treated.theirs.is_none() && all_is_saved(&treated), "{:?}", treated.ours);
}

/// Its inodes have other fields: what looks wrong in them isn't.
#[test]
fn an_image_of_hurd_is_neither_checked_nor_repaired() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-hurd").unwrap();
    let path = scratch.join("image");
    File::create(&path).unwrap().set_len(16 << 20).unwrap();
    // With copies of the superblock, and without.
    for size in ["16M", "4M"] {
        let arguments = ["-q", "-F", "-o", "hurd", "-b", "1024", path.to_str().unwrap(), size];
        run("mke2fs", arguments).unwrap().expect_clean("mke2fs");
        let before = fs::read(&path).unwrap();
        let device = MemoryDevice::from_bytes(&before);
        let checked = drystone_fsck::check(&device, &CheckOptions::default(), &mut |_| {});
        assert!(matches!(checked, Err(drystone_fsck::Error::Hurd)));
        assert!(matches!(repair_all(&device), Err(drystone_fsck::Error::Hurd)));
        assert!(content(&device) == before);
    }
}

/// One bit of the primary superblock alone says that an image is one of Hurd.
#[test]
fn damage_makes_no_image_one_of_hurd() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-no-hurd").unwrap();
    for name in ["ext2", "ext3", "modern"] {
        let set = SMALL_IMAGES.iter().find(|set| set.name == name).unwrap();
        let arguments = format!("{} -g 1024", set.arguments).leak();
        let set = SmallImage { arguments, size_mib: set.size_mib, name, names: set.names };
        let patient = Patient::new(&scratch, &set, 1);
        let mut damaged = patient.bytes.clone();
        damaged[1024 + 0x48] ^= 1;
        let device = MemoryDevice::from_bytes(&damaged);
        let report = repair_all(&device).unwrap();
        let field = SuperblockIssue::Field { field: "s_creator_os", value: CREATOR_HURD.into() };
        let is_told = |told: &Issue| *told == Issue::Superblock(field.clone());
        assert!(report.problems.iter().any(|told| is_told(&told.problem.issue)), "{name}");
        assert!(report.is_clean() && content(&device)[1024 + 0x48] == 0, "{name}");
    }
}

/// A large image in a sparse file, with its root lost, alone or with all of its table. With holes that are read it
/// doesn't end in an hour.
#[test]
fn a_search_for_a_table_skips_holes() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-sparse").unwrap();
    for lost in [1..2, 0..16] {
        let path = scratch.join("image");
        File::create(&path).unwrap().set_len(64 << 30).unwrap();
        let arguments = "-q -F -t ext4 -N 16384 -E lazy_itable_init=1,lazy_journal_init=1";
        let arguments = arguments.split(' ').chain([path.to_str().unwrap()]);
        run("mke2fs", arguments).unwrap().expect_clean("mke2fs");
        let device = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
        let mut bytes = [0; 1024];
        device.read_at(1024, &mut bytes).unwrap();
        let superblock = Superblock::check(&bytes).unwrap();
        let layout = *superblock.layout();
        let (block, offset) = layout.descriptor_location(GroupNumber::FIRST).unwrap();
        let mut descriptors = vec![0; layout.block_size()];
        device.read_at(block.get() * layout.block_size() as u64, &mut descriptors).unwrap();
        let descriptor = GroupDescriptor::read(&descriptors[offset..], &layout).unwrap();
        let inode_size = layout.inode_size() as u64;
        let table = descriptor.inode_table.get() * layout.block_size() as u64;
        let zeros = vec![0; ((lost.end - lost.start) * inode_size) as usize];
        device.write_at(table + lost.start * inode_size, &zeros).unwrap();
        let report = repair_all(&device).unwrap();
        assert!(report.is_clean(), "{lost:?}");
    }
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
        // What the first indirect block leads to lies after it.
        let area = inode_of(map, InodeNumber::JOURNAL).block_area;
        let indirect = u32::from_le_bytes(*area[48..].first_chunk().unwrap());
        let run = u32::from_le_bytes(*map.block(indirect.into()).first_chunk().unwrap());
        device.write_at(u64::from(run + 8) * size, &bytes).unwrap();
    }) else {
        return;
    };
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
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

/// A damaged descriptor names the place one block after the table, where most inodes look sound still.
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

/// A descriptor says that only the first inodes of its group were ever used: names of the others don't go.
#[test]
fn inodes_that_their_group_hides_keep_their_names() {
    for name in ["modern", "bigalloc-quota", "group-checksums"] {
        let Some(treated) = treat(name, |map, device| {
            let group = map.layout().groups().next().unwrap();
            let inodes = map.layout().inodes_per_group();
            map.reseal_group(device, group, |group| group.unused_inodes_count = inodes - 14);
        }) else {
            return;
        };
        assert!(all_is_saved(&treated), "{name}: {:?} {:?}", treated.ours, treated.sound);
    }
}

/// A descriptor without a checksum names free blocks as its inode table; the copies know better. The inodes
/// there aren't directories.
#[test]
fn a_table_that_lies_elsewhere_is_found_by_the_copies() {
    let Some(treated) = treat_with(120, "ext2", |map, device| {
        let layout = map.layout();
        let size = layout.block_size() as u64;
        let first = layout.inodes_per_group() + 1;
        let used = inodes_of(map, |inode| !inode.is_directory());
        assert!(used.iter().any(|number| number.get() >= first), "{used:?}");
        let block = blocks_of(map, |kind| matches!(kind, BlockContent::Descriptors))[0];
        let place = block * size + layout.descriptor_size() as u64 + 8;
        let table = map.descriptor(layout.groups().nth(1).unwrap()).inode_table.get() as u32;
        device.write_at(place, &(table + 1024).to_le_bytes()).unwrap();
    }) else {
        return;
    };
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// The same in a meta block group, whose descriptors have copies in two of its groups.
#[test]
fn a_table_of_a_meta_group_is_found_by_the_copies() {
    let Some(treated) = treat_with(150, "group-checksums", |map, device| {
        let group = map.layout().groups().nth(1).unwrap();
        let first = map.layout().inodes_per_group() + 1;
        assert!(inodes_of(map, |_| true).iter().any(|number| number.get() >= first));
        map.reseal_group(device, group, |group| {
            group.inode_table = PhysicalBlock::new(group.inode_table.get() + 1024);
        });
    }) else {
        return;
    };
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// Random bytes in place of the root, which happen to have the type of a directory: nothing of them stays.
#[test]
fn a_root_of_garbage_is_made_anew() {
    for name in ["modern", "inline", "bigalloc-quota"] {
        for flags in [0x1234_5678_u32, 0x1234_5678 | 0x1008_0000] {
            let Some(treated) = treat(name, |map, device| {
                let mut garbage: Vec<u8> = (0..map.layout().inode_size())
                    .map(|at| (at * 151 % 251) as u8 | 0x83)
                    .collect();
                garbage[..2].copy_from_slice(&0x41ff_u16.to_le_bytes());
                garbage[32..36].copy_from_slice(&flags.to_le_bytes());
                device.write_at(place_of(map, InodeNumber::ROOT), &garbage).unwrap();
            }) else {
                return;
            };
            let ours = treated.ours.unwrap();
            assert_eq!(ours.bytes, treated.sound.bytes, "{name} {flags:#x}");
        }
    }
}

/// All descriptors are lost, and the first blocks of the inode table with them: the inodes after them are found.
#[test]
fn a_table_without_its_first_blocks_is_found() {
    let Some(treated) = treat_with(150, "modern", |map, device| {
        let size = map.layout().block_size() as u64;
        let table = map.descriptor(GroupNumber::FIRST).inode_table.get();
        device.write_at(table * size, &vec![0; 9 * size as usize]).unwrap();
        let is_descriptor = |kind: &BlockContent| {
            matches!(kind, BlockContent::Descriptors | BlockContent::DescriptorsBackup)
        };
        for block in blocks_of(map, is_descriptor) {
            device.write_at(block * size, &vec![0; size as usize]).unwrap();
        }
    }) else {
        return;
    };
    assert!(treated.ours.unwrap().files > 100);
}

/// All copies of a descriptor without a checksum are damaged, and one names blocks that could be a table.
#[test]
fn the_usual_place_of_a_table_counts_more_than_a_damaged_copy() {
    let Some(treated) = treat_with(120, "ext2", |map, device| {
        let layout = map.layout();
        let size = layout.block_size() as u64;
        let within = layout.descriptor_size() as u64 + 8;
        let table = map.descriptor(layout.groups().nth(1).unwrap()).inode_table.get() as u32;
        let primary = blocks_of(map, |kind| matches!(kind, BlockContent::Descriptors))[0];
        let copies = blocks_of(map, |kind| matches!(kind, BlockContent::DescriptorsBackup));
        for block in [&[primary][..], &copies].concat() {
            device.write_at(block * size + within, &[0; 4]).unwrap();
        }
        device.write_at(copies[0] * size + within, &(table + 1024).to_le_bytes()).unwrap();
    }) else {
        return;
    };
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// A descriptor without a checksum is damaged, and so is the first of its copies: the table is where most inodes are.
#[test]
fn the_better_copy_of_a_descriptor_counts() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-descriptor-copies").unwrap();
    let arguments = "-t ext4 -b 1024 -N 512 -g 2048 -O ^metadata_csum,^uninit_bg";
    let set = SmallImage { name: "no-checksums", arguments, size_mib: 8, names: 40 };
    let patient = Patient::new(&scratch, &set, 300);
    let map = &patient.map;
    let device = MemoryDevice::from_bytes(&patient.bytes);
    let layout = map.layout();
    let size = layout.block_size() as u64;
    let group = layout.groups().nth(1).unwrap();
    let within = layout.descriptor_size() as u64 + 8;
    let table = map.descriptor(group).inode_table.get() as u32;
    let primary = blocks_of(map, |kind| matches!(kind, BlockContent::Descriptors))[0];
    let copies = blocks_of(map, |kind| matches!(kind, BlockContent::DescriptorsBackup));
    assert!(copies.len() > 1, "{copies:?}");
    device.write_at(primary * size + within, &[0; 4]).unwrap();
    device.write_at(copies[0] * size + within, &(table + 1024).to_le_bytes()).unwrap();
    let treated = patient.judge(&content(&device), vec!["copies".to_owned()], true);
    if let Verdict::Failed(why) = &treated.verdict {
        panic!("{why}");
    }
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// The descriptors of two groups name overlapping blocks, one of which belongs to the other's table.
#[test]
fn a_table_is_found_where_a_misplaced_one_reaches() {
    let Some((_scratch, patient)) = with_copies("default") else { return };
    let map = &patient.map;
    let device = MemoryDevice::from_bytes(&patient.bytes);
    let layout = map.layout();
    let (size, count) = (layout.block_size() as u64, u64::from(layout.inode_table_blocks()));
    let table = map.descriptor(GroupNumber::FIRST).inode_table.get();
    // The second group has no inodes in use, by which its table could be known.
    let places = [table + count + 2, table + count - 1];
    for (group, place) in layout.groups().zip(places) {
        map.reseal_group(&device, group, |group| group.inode_table = PhysicalBlock::new(place));
    }
    for block in blocks_of(map, |kind| matches!(kind, BlockContent::DescriptorsBackup)) {
        device.write_at(block * size, &vec![0; size as usize]).unwrap();
    }
    let treated = patient.judge(&content(&device), vec!["overlap".to_owned()], true);
    if let Verdict::Failed(why) = &treated.verdict {
        panic!("{why}");
    }
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// The descriptor of an unused group names blocks that are reserved for more descriptors.
#[test]
fn a_table_among_reserved_blocks_gives_way() {
    let Some((_scratch, patient)) = with_copies("bigalloc-quota") else { return };
    let map = &patient.map;
    let device = MemoryDevice::from_bytes(&patient.bytes);
    let size = map.layout().block_size() as u64;
    map.reseal_group(&device, map.layout().groups().nth(1).unwrap(), |group| {
        group.inode_table = PhysicalBlock::new(11);
    });
    for block in blocks_of(map, |kind| matches!(kind, BlockContent::DescriptorsBackup)) {
        device.write_at(block * size, &vec![0; size as usize]).unwrap();
    }
    let treated = patient.judge(&content(&device), vec!["reserved".to_owned()], true);
    if let Verdict::Failed(why) = &treated.verdict {
        panic!("{why}");
    }
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// A superblock without a checksum has lost where its copies are, and a descriptor is damaged.
#[test]
fn a_superblock_that_names_no_copy_comes_from_it() {
    let Some(treated) = treat_with(120, "ext2", |map, device| {
        let layout = map.layout();
        let size = layout.block_size() as u64;
        let primary = blocks_of(map, |kind| matches!(kind, BlockContent::Descriptors))[0];
        let place = primary * size + layout.descriptor_size() as u64 + 8;
        device.write_at(place, &[0; 4]).unwrap();
        device.write_at(1024 + 512, &[0; 512]).unwrap();
    }) else {
        return;
    };
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// The identity changed, from which all checksums start, and the descriptor that leads to the root is damaged.
#[test]
fn a_superblock_by_which_no_checksum_holds_comes_from_its_copy() {
    let Some((_scratch, patient)) = with_copies("default") else { return };
    let map = &patient.map;
    let device = MemoryDevice::from_bytes(&patient.bytes);
    map.reseal_group(&device, GroupNumber::FIRST, |group| {
        group.inode_table = PhysicalBlock::new(1 << 40);
    });
    let mut superblock = vec![0; map.layout().block_size()];
    device.read_at(0, &mut superblock).unwrap();
    superblock[1024 + 0x68] ^= 0x55;
    map.seal(&device, 0, map.blocks[&0], &mut superblock);
    device.write_at(0, &superblock).unwrap();
    let treated = patient.judge(&content(&device), vec!["identity".to_owned()], true);
    if let Verdict::Failed(why) = &treated.verdict {
        panic!("{why}");
    }
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// The same where the descriptors are lost, too, and the copy of the superblock is damaged elsewhere: their own copy fits.
#[test]
fn what_checksums_start_from_comes_from_a_damaged_copy() {
    for (name, seed) in [("default", 0x68), ("modern", 0x270)] {
        let Some((_scratch, patient)) = with_copies(name) else { return };
        let map = &patient.map;
        let size = map.layout().block_size() as u64;
        let device = MemoryDevice::from_bytes(&patient.bytes);
        let descriptors = blocks_of(map, |kind| matches!(kind, BlockContent::Descriptors))[0];
        device.write_at(descriptors * size, &vec![0; size as usize]).unwrap();
        let copy = blocks_of(map, |kind| matches!(kind, BlockContent::SuperblockBackup))[0];
        device.write_at(copy * size + 0x78, b"another label").unwrap();
        let block = 1024 / size;
        let mut superblock = vec![0; size as usize];
        device.read_at(block * size, &mut superblock).unwrap();
        superblock[(1024 % size) as usize + seed] ^= 0x55;
        map.seal(&device, block, map.blocks[&block], &mut superblock);
        device.write_at(block * size, &superblock).unwrap();
        let treated = patient.judge(&content(&device), vec![name.to_owned()], true);
        if let Verdict::Failed(why) = &treated.verdict {
            panic!("{name}: {why}");
        }
        assert!(all_is_saved(&treated), "{name}: {:?} {:?}", treated.ours, treated.sound);
    }
}

/// Descriptors that are lost fit no superblock, and least of all a torn copy, by which nothing has checksums to fit.
#[test]
fn a_torn_copy_takes_no_superblock_s_place() {
    let Some((_scratch, patient)) = with_copies("modern") else { return };
    let map = &patient.map;
    let device = MemoryDevice::from_bytes(&patient.bytes);
    let size = map.layout().block_size() as u64;
    let block = blocks_of(map, |kind| matches!(kind, BlockContent::Descriptors))[0];
    device.write_at(block * size, &vec![0; size as usize]).unwrap();
    let copy = blocks_of(map, |kind| matches!(kind, BlockContent::SuperblockBackup))[0];
    device.write_at(copy * size + 512, &[0; 512]).unwrap();
    let treated = patient.judge(&content(&device), vec!["torn copy".to_owned()], true);
    if let Verdict::Failed(why) = &treated.verdict {
        panic!("{why}");
    }
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// The superblock reserves so many blocks for descriptors that the bitmaps and tables after them lie there.
#[test]
fn no_more_blocks_are_reserved_than_the_copies_say() {
    let Some(treated) = treat("ext2", |map, device| {
        let block = blocks_of(map, |kind| matches!(kind, BlockContent::Superblock))[0];
        let size = map.layout().block_size() as u64;
        let count = map.layout().reserved_descriptor_blocks() as u16 + 20;
        device.write_at(block * size + 0xce, &count.to_le_bytes()).unwrap();
    }) else {
        return;
    };
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// An image of a set with a copy of its superblock.
fn with_copies(name: &str) -> Option<(Scratch, Patient)> {
    if !have("mke2fs") {
        return None;
    }
    let scratch = Scratch::new("fsck-copies").unwrap();
    let set = sets::all().into_iter().find(|set| set.name == name).unwrap();
    let patient = Patient::new(&scratch, &set, 20);
    Some((scratch, patient))
}

/// All descriptors of an unused group name a part of another group's inode table.
#[test]
fn an_empty_table_gives_way() {
    let Some((_scratch, patient)) = with_copies("default") else { return };
    let map = &patient.map;
    let device = MemoryDevice::from_bytes(&patient.bytes);
    let (size, table) =
        (map.layout().block_size() as u64, map.descriptor(GroupNumber::FIRST).inode_table);
    map.reseal_group(&device, map.layout().groups().nth(1).unwrap(), |group| {
        group.inode_table = PhysicalBlock::new(table.get() + 1);
    });
    let mut descriptors = vec![0; size as usize];
    let block = blocks_of(map, |kind| matches!(kind, BlockContent::Descriptors))[0];
    device.read_at(block * size, &mut descriptors).unwrap();
    for block in blocks_of(map, |kind| matches!(kind, BlockContent::DescriptorsBackup)) {
        device.write_at(block * size, &descriptors).unwrap();
    }
    let treated = patient.judge(&content(&device), vec!["overlap".to_owned()], true);
    if let Verdict::Failed(why) = &treated.verdict {
        panic!("{why}");
    }
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
}

/// Another size of inodes, and no features, with a valid checksum: the root is where the copy says.
#[test]
fn a_superblock_that_leads_nowhere_comes_from_its_copy() {
    for (name, offset, value) in
        [("modern", 0x58, &512_u16.to_le_bytes()[..]), ("bigalloc-quota", 0x60, &[0; 4])]
    {
        let Some((_scratch, patient)) = with_copies(name) else { return };
        let mut bytes = patient.bytes.clone();
        bytes[1024 + offset..1024 + offset + value.len()].copy_from_slice(value);
        let block = 1024 / patient.map.layout().block_size() as u64;
        let device = MemoryDevice::from_bytes(&bytes);
        let mut superblock = vec![0; patient.map.layout().block_size()];
        device.read_at(block * superblock.len() as u64, &mut superblock).unwrap();
        patient.map.seal(&device, block, patient.map.blocks[&block], &mut superblock);
        device.write_at(block * superblock.len() as u64, &superblock).unwrap();
        let treated = patient.judge(&content(&device), vec![name.to_owned()], true);
        if let Verdict::Failed(why) = &treated.verdict {
            panic!("{name}: {why}");
        }
        assert!(all_is_saved(&treated), "{name}: {:?} {:?}", treated.ours, treated.sound);
    }
}

/// Half of the superblock was written, without what checksums start from: the copy has it.
#[test]
fn a_torn_superblock_comes_from_its_copy() {
    let Some((_scratch, patient)) = with_copies("modern") else { return };
    let mut bytes = patient.bytes.clone();
    bytes[1024 + 512..2048].fill(0);
    let treated = patient.judge(&bytes, vec!["torn".to_owned()], true);
    if let Verdict::Failed(why) = &treated.verdict {
        panic!("{why}");
    }
    assert!(all_is_saved(&treated), "{:?} {:?}", treated.ours, treated.sound);
    // Nothing else seems to be damaged.
    let options = CheckOptions::default();
    let report = drystone_fsck::check(&MemoryDevice::from_bytes(&bytes), &options, &mut |_| {});
    let report = report.unwrap();
    assert_eq!(report.errors, 1, "{:?}", report.problems);
}
