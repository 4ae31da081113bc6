//! Images of many feature sets, made by `mke2fs`, read and written again.

// Clippy recognises only functions with `#[test]` as tests.
#![allow(clippy::unwrap_used)]

mod any_bytes;
mod common;

use common::Image;
use drystone_ext4_format::bitmap_checksum::{check_block_bitmap, check_inode_bitmap};
use drystone_ext4_format::block_map::{self, MapPath};
use drystone_ext4_format::extent::{self, ExtentNode, NodeExpectation, NodePlace};
use drystone_ext4_format::features::Features;
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::inode::{Inode, InodeDevice, InodeFlags, InodeTimestamp};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, StateFlags, Superblock};
use drystone_ext4_format::{GroupNumber, InodeNumber, LogicalBlock, PhysicalBlock};
use drystone_ondisk::bitmap;

/// Arguments of `mke2fs` and the image's size.
const IMAGES: &[(&str, &str)] = &[
    ("-t ext2 -b 1024 -r 0", "20M"),
    ("-t ext2 -b 1024", "40M"),
    ("-t ext3 -b 2048 -I 128", "40M"),
    ("-t ext4 -b 1024", "300M"),
    ("-t ext4 -b 4096", "600M"),
    ("-t ext4 -b 4096 -O orphan_file,quota,project,metadata_csum_seed,inline_data", "200M"),
    ("-t ext4 -b 4096 -O ^metadata_csum,uninit_bg", "600M"),
    ("-t ext4 -b 4096 -O ^metadata_csum,^uninit_bg,^64bit,^flex_bg", "300M"),
    ("-t ext4 -b 1024 -O ^64bit", "100M"),
    ("-t ext4 -b 1024 -O uninit_bg,^metadata_csum,^64bit", "100M"),
    ("-t ext4 -b 1024 -O meta_bg,^resize_inode", "400M"),
    ("-t ext4 -b 1024 -O meta_bg,^resize_inode,^sparse_super,^flex_bg -g 1024", "40M"),
    ("-t ext4 -b 4096 -O sparse_super2,^resize_inode", "600M"),
    ("-t ext4 -b 4096 -O sparse_super2 -E num_backup_sb=1", "600M"),
    ("-t ext4 -b 1024 -O bigalloc -C 4096", "300M"),
    ("-t ext4 -b 4096 -O bigalloc -C 65536", "500M"),
    ("-t ext4 -b 4096 -I 1024 -O mmp,large_dir,casefold,encrypt,verity,stable_inodes", "100M"),
    ("-t ext4 -b 65536", "500M"),
    ("-t ext4 -b 4096 -G 1 -O ea_inode", "300M"),
];

#[test]
fn superblocks_descriptors_and_bitmaps_are_read_and_written_alike() {
    for (arguments, size) in IMAGES {
        eprintln!("mke2fs {arguments}");
        let Some(image) = Image::make(arguments, size) else { return };
        check_copies(&image);
        check_groups(&image);
        check_inodes(&image);
    }
}

/// Every copy of the superblock and of the descriptors, where the layout says it is.
fn check_copies(image: &Image) {
    let layout = image.layout();
    assert!(image.superblock.state().contains(StateFlags::CLEAN));
    let mut copies = 0;
    for group in layout.superblock_groups() {
        let (block, offset) = layout.superblock_location(group).unwrap();
        let bytes = image.bytes(block, offset, SUPERBLOCK_BYTES);
        let copy = Superblock::check(&bytes).unwrap();
        assert_eq!(u32::from(copy.copy_group()), group.get());
        assert_eq!(copy.layout(), layout);
        copies += 1;
    }
    let report = image.tool("dumpe2fs", &[]);
    assert_eq!(report.matches("superblock at").count(), copies);
    let names = image.superblock.features().names();
    let printed = report.lines().find_map(|line| line.strip_prefix("Filesystem features:"));
    let printed: Vec<&str> = printed.unwrap().split_whitespace().collect();
    assert!(names == printed || names.is_empty() && printed == ["(none)"], "{names:?} {printed:?}");
    let change = Features::parse(&names.join(",")).unwrap();
    assert_eq!(Features::NONE.apply(&change), image.superblock.features());
    for index in 0..layout.descriptor_blocks() {
        let primary = image.block(layout.descriptor_block(index).unwrap());
        let per_block = layout.descriptors_per_block();
        for block in layout.descriptor_backups(index) {
            let copy = image.block(block);
            let pairs = primary.chunks(layout.descriptor_size());
            for (place, (left, right)) in
                pairs.zip(copy.chunks(layout.descriptor_size())).enumerate()
            {
                let group = GroupNumber::new(index * per_block + place as u32);
                if group > layout.last_group() {
                    break;
                }
                let left = GroupDescriptor::check(left, group, layout).unwrap();
                let right = GroupDescriptor::check(right, group, layout).unwrap();
                assert_eq!(left.inode_table, right.inode_table, "copy at block {block}");
            }
        }
    }
}

/// Each group's place and counts as `dumpe2fs` prints them, and its bitmaps.
fn check_groups(image: &Image) {
    let layout = image.layout();
    let report = image.tool("dumpe2fs", &[]);
    let mut sections = report
        .split("\nGroup ")
        .filter(|text| text.starts_with(|first: char| first.is_ascii_digit()));
    let (mut free_clusters, mut free_inodes) = (0, 0);
    for group in layout.groups() {
        let descriptor = image.descriptor(group);
        let section = sections.next().unwrap();
        let first = layout.group_first_block(group);
        let last = first.get() + u64::from(layout.group_block_count(group)) - 1;
        let mut expected = vec![
            format!("{group}: (Blocks {first}-{last})"),
            format!("Block bitmap at {} ", descriptor.block_bitmap),
            format!("Inode bitmap at {} ", descriptor.inode_bitmap),
            format!(
                "Inode table at {}-{} ",
                descriptor.inode_table,
                descriptor.inode_table.get() + u64::from(layout.inode_table_blocks()) - 1
            ),
            format!("{} free inodes", descriptor.free_inodes_count),
            format!("{} directories", descriptor.used_directories_count),
        ];
        let base = layout.group_base(group);
        if let Some(block) = base.superblock {
            expected.push(format!("superblock at {block}"));
        }
        if let Some(start) = base.descriptors {
            let end = start.get() + u64::from(base.descriptor_blocks) - 1;
            // The tool says "descriptor at" where meta_bg spreads them.
            let range = format!("Group descriptors at {start}-{end}");
            let single = format!("Group descriptor at {start}");
            assert!(section.contains(&range) || section.contains(&single), "{section}\n{range}");
            if base.reserved_blocks > 0 {
                let last = end + u64::from(base.reserved_blocks);
                expected.push(format!("Reserved GDT blocks at {}-{last}", end + 1));
            }
        } else {
            assert!(!section.contains("descriptor"), "{section}");
        }
        for text in expected {
            assert!(section.contains(&text), "{section}\nexpected: {text}");
        }
        free_clusters += u64::from(descriptor.free_clusters_count);
        free_inodes += descriptor.free_inodes_count;
        check_bitmaps(image, group, &descriptor);
    }
    assert_eq!(
        image.superblock.free_blocks_count(),
        free_clusters * u64::from(layout.blocks_per_cluster())
    );
    assert_eq!(image.superblock.free_inodes_count(), free_inodes);
}

fn check_bitmaps(image: &Image, group: GroupNumber, descriptor: &GroupDescriptor) {
    let layout = image.layout();
    let clusters = layout.group_cluster_count(group) as usize;
    if !descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
        let bits = image.block(descriptor.block_bitmap);
        check_block_bitmap(&bits, group, descriptor, layout).unwrap();
        let free = bitmap::count_zeros(&bits, 0..clusters);
        assert_eq!(free as u32, descriptor.free_clusters_count);
        let base = layout.clusters_for(u64::from(layout.group_base(group).blocks)) as usize;
        assert_eq!(bitmap::count_zeros(&bits, 0..base), 0);
        let mut damaged = bits;
        damaged[0] ^= 0x10;
        let verdict = check_block_bitmap(&damaged, group, descriptor, layout);
        assert_eq!(verdict.is_err(), layout.checksum_seed().is_some());
    } else {
        // What the descriptor counts as used is what the layout says is fixed.
        let mut used = vec![0; layout.block_size()];
        let base = layout.clusters_for(u64::from(layout.group_base(group).blocks)) as usize;
        bitmap::set_range(&mut used, 0..base);
        for other in layout.groups() {
            let other = image.descriptor(other);
            let table = (0..u64::from(layout.inode_table_blocks()))
                .map(|offset| PhysicalBlock::new(other.inode_table.get() + offset));
            for block in table.chain([other.block_bitmap, other.inode_bitmap]) {
                if let Some((owner, bit)) = layout.bit_of_block(block)
                    && owner == group
                {
                    bitmap::set(&mut used, bit as usize);
                }
            }
        }
        let free = bitmap::count_zeros(&used, 0..clusters);
        assert_eq!(free as u32, descriptor.free_clusters_count, "group {group}");
    }
    if !descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
        let bits = image.block(descriptor.inode_bitmap);
        check_inode_bitmap(&bits, group, descriptor, layout).unwrap();
        let free = bitmap::count_zeros(&bits, 0..layout.inodes_per_group() as usize);
        assert_eq!(free as u32, descriptor.free_inodes_count);
    }
}

/// Every inode of the first group, in use or not; the root; the journal's map.
fn check_inodes(image: &Image) {
    let layout = image.layout();
    for number in 1..=layout.first_inode().get() {
        let number = InodeNumber::new(number);
        let bytes = image.inode_bytes(number);
        let inode = Inode::check(&bytes, number, layout).unwrap();
        let mut again = bytes.clone();
        inode.encode_into(&mut again, layout).unwrap();
        if bytes.iter().any(|&byte| byte != 0) {
            assert_eq!(again, bytes, "inode {number}");
        }
    }
    let root = image.inode(InodeNumber::ROOT);
    assert!(root.is_directory());
    assert_eq!((root.links_count, root.mode & 0o7777), (3, 0o755));
    let mapped = read_mapped(image, &root, LogicalBlock::FIRST).unwrap();
    // The entry "." of the root.
    assert_eq!(image.block(mapped)[..4], 2u32.to_le_bytes());
    if let Some(number) = image.superblock.journal_inode() {
        let journal = image.inode(number);
        let backup = image.superblock.journal_backup().unwrap();
        assert_eq!(backup.block_area, journal.block_area);
        assert_eq!(backup.size_bytes, journal.size_bytes);
        let last = journal.size_bytes / layout.block_size() as u64 - 1;
        for logical in [0, last] {
            let block = read_mapped(image, &journal, LogicalBlock::new(logical as u32)).unwrap();
            let command = format!("bmap <8> {logical}");
            assert_eq!(image.tool("debugfs", &["-R", &command]).trim(), block.to_string());
        }
    }
}

/// Where a block of a file lies, by whatever map the inode has.
fn read_mapped(image: &Image, inode: &Inode, logical: LogicalBlock) -> Option<PhysicalBlock> {
    let layout = image.layout();
    if inode.flags.contains(InodeFlags::EXTENTS) {
        let mut place = NodePlace::root(inode.number);
        let mut expectation = NodeExpectation::ROOT;
        let mut bytes = inode.block_area.to_vec();
        loop {
            let node = ExtentNode::check(&bytes, place, &expectation, layout).unwrap();
            if node.is_leaf() {
                return node.find(logical)?.physical_of(logical);
            }
            let position = node.position_of(logical)?;
            let (child, expected) = node.child(position, &expectation)?;
            bytes = image.block(child);
            extent::check_checksum(&bytes, inode.number, child, inode.seed(layout)).unwrap();
            place = NodePlace::block(inode.number, child);
            expectation = expected;
        }
    }
    let path = MapPath::new(logical, layout)?;
    let mut bytes = inode.block_area.to_vec();
    let mut holder = None;
    for &index in path.indexes() {
        let next = block_map::pointer(&bytes, index, inode.number, holder, layout).unwrap()?;
        bytes = image.block(next);
        holder = Some(next);
    }
    holder
}

#[test]
fn devices_links_times_and_deep_maps() {
    for kind in ["ext3 -b 1024", "ext4 -b 1024", "ext4 -b 1024 -O ^metadata_csum"] {
        let Some(image) = Image::make(&format!("-t {kind} -I 256"), "64M") else { return };
        let target = "x".repeat(59);
        let link = format!("symlink fast {target}");
        let mut commands = vec![
            "mknod small c 4 64".to_owned(),
            "mknod large b 300 60000".to_owned(),
            link,
            "write /dev/null holes".to_owned(),
            "sif small atime 20500101000000".to_owned(),
            "sif small crtime @-347155200".to_owned(),
            "sif small projid 77".to_owned(),
            "sif small uid 70000".to_owned(),
            "sif small gid 80000".to_owned(),
        ];
        // Blocks far apart make each an extent of its own, or use each level of a block map.
        commands.extend((0..400).map(|n| format!("fallocate holes {} {}", n * 400, n * 400)));
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let image = image.change(&commands);
        let number = |name: &str| {
            let report = image.tool("debugfs", &["-R", &format!("stat {name}")]);
            let number = report.split_whitespace().nth(1).and_then(|word| word.parse().ok());
            image.inode(InodeNumber::new(number.unwrap_or_else(|| panic!("{kind}: {report}"))))
        };
        let small = number("small");
        assert_eq!(small.device(), Some(InodeDevice { major: 4, minor: 64 }));
        assert_eq!(small.access_time, InodeTimestamp::from_seconds(2_524_608_000));
        assert_eq!(small.creation_time, Some(InodeTimestamp::from_seconds(-347_155_200)));
        assert_eq!((small.project, small.user, small.group), (Some(77), 70_000, 80_000));
        assert_eq!(number("large").device(), Some(InodeDevice { major: 300, minor: 60_000 }));
        assert_eq!(number("fast").fast_symlink_target(), Some(target.as_bytes()));
        let holes = number("holes");
        for n in (0..400).step_by(57) {
            let block = read_mapped(&image, &holes, LogicalBlock::new(n * 400)).unwrap();
            let command = format!("bmap holes {}", n * 400);
            let report = image.tool("debugfs", &["-R", &command]);
            // After the number it says "(uninit)" of an unwritten extent.
            assert_eq!(report.split_whitespace().next(), Some(&*block.to_string()), "{kind}");
        }
        assert_eq!(read_mapped(&image, &holes, LogicalBlock::new(399)), None);
    }
}
