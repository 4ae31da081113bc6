//! Images crafted to lead the engine where no file may be: names of inodes that the file system itself
//! uses, mappings that lead to its metadata, groups that share a bitmap, a journal over an inode table.

use crate::check;
use crate::image::{Kind, make, options, read};
use crate::targeted::{KIND, change_inode, image, mount, number_of};
use crate::watch::Watch;
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::Ext4;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};
use drystone_sync::Arc;
use drystone_testkit::metadata_map::{BlockContent, MetadataMap as Map};
use drystone_vfs::{Errno, Error, FileSystem, NewNode, RenameFlags, RequestContext};

/// Makes a name in the root stand for another inode. Returns the inode for which it stood.
fn point_name(map: &Map, name: &[u8], number: InodeNumber) -> InodeNumber {
    let is_root =
        |content: &BlockContent| matches!(content, BlockContent::Directory(InodeNumber::ROOT, _));
    for (&block, _) in map.blocks.iter().filter(|(_, content)| is_root(content)) {
        let mut bytes = map.block(block);
        let head = [name.len() as u8];
        let Some(at) = (8..bytes.len() - name.len())
            .find(|&at| bytes[at..].starts_with(name) && bytes[at - 2..at - 1] == head)
        else {
            continue;
        };
        let before = u32::from_le_bytes(*bytes[at - 8..].first_chunk().unwrap());
        bytes[at - 8..at - 4].copy_from_slice(&number.get().to_le_bytes());
        map.device.write_at(block * map.layout().block_size() as u64, &bytes).unwrap();
        return InodeNumber::new(before);
    }
    panic!("no such name in the root");
}

fn expect_damage<T: std::fmt::Debug>(result: Result<T, Error>, what: &str) {
    let error = result.expect_err(what);
    assert_eq!(error.errno, Errno::EUCLEAN, "{what}: {error:?}");
}

#[test]
fn reserved_inodes_are_not_reached_by_name() {
    let _watch = Watch::start();
    let arguments = "-t ext4 -b 1024 -N 64 -O ^metadata_csum,^uninit_bg,^dir_index,orphan_file,\
                     quota,project -E quotatype=usrquota:grpquota:prjquota";
    let Some(device) = make(&Kind { arguments, ..KIND }) else { return };
    let map = Map::of(device);
    let special = [map.superblock.orphan_file_inode(), map.superblock.project_quota_inode()];
    let numbers = (0..=10).filter(|number| *number != 2).map(InodeNumber::new);
    for number in numbers.filter(|number| number.get() > 0).chain(special.into_iter().flatten()) {
        point_name(&map, b"small", number);
        expect_unreachable(&mount(&map.device), number);
    }
}

/// The name `small` leads to an inode that must have no names: operations on it fail.
fn expect_unreachable(fs: &Ext4, number: InodeNumber) {
    let (context, root) = (RequestContext::superuser(), fs.root());
    let what = format!("inode {number}");
    expect_damage(fs.lookup(&context, root, b"small"), &what);
    // The first look-up must not leave an answer in the dentry cache.
    expect_damage(fs.lookup(&context, root, b"small"), &what);
    expect_damage(fs.unlink(&context, root, b"small"), &what);
    expect_damage(fs.remove_directory(&context, root, b"small"), &what);
    let none = RenameFlags::empty();
    expect_damage(fs.rename(&context, root, b"small", root, b"new", none), &what);
    expect_damage(fs.rename(&context, root, b"plain", root, b"small", none), &what);
    fs.close().unwrap();
}

#[test]
fn values_of_attributes_are_not_reached_by_name() {
    let _watch = Watch::start();
    let arguments = "-t ext4 -b 1024 -N 64 -O ^metadata_csum,^uninit_bg,^dir_index,ea_inode";
    let Some(device) = make(&Kind { arguments, ..KIND }) else { return };
    let map = Map::of(device);
    let is_value = |number: &InodeNumber| {
        let inode = Inode::read(&map.inode_bytes(*number), *number, map.layout());
        inode.is_ok_and(|inode| inode.flags.contains(InodeFlags::EA_INODE))
    };
    let mut numbers = (11..=map.layout().inodes_count()).map(InodeNumber::new);
    let number = numbers.find(is_value).expect("no value has an inode of its own");
    point_name(&map, b"small", number);
    expect_unreachable(&mount(&map.device), number);
    // Nor while it is in memory because of the file whose attribute it holds.
    let fs = mount(&map.device);
    let context = RequestContext::superuser();
    let far = fs.lookup(&context, fs.root(), b"far").unwrap().inode;
    assert_eq!(fs.xattr(&context, far, b"user.huge").unwrap(), [b'h'; 5000]);
    fs.forget(far, 1);
    expect_unreachable(&fs, number);
}

#[test]
fn lost_and_found_and_the_first_ordinary_inode_have_names() {
    let Some((_watch, map)) = image() else { return };
    let fs = mount(&map.device);
    let found = fs.lookup(&RequestContext::superuser(), fs.root(), b"lost+found").unwrap();
    assert_eq!(found.inode.0, 11);
    fs.close().unwrap();
}

#[test]
fn a_name_of_a_deleted_inode_does_not_bar_its_number() {
    let Some((_watch, map)) = image() else { return };
    let device = Arc::new(map.device.snapshot());
    let fs = Ext4::open(device.clone(), options(false)).unwrap();
    let (context, root) = (RequestContext::superuser(), fs.root());
    let gone = fs.create(&context, root, b"gone", NewNode::Regular, 0o600).unwrap().inode;
    fs.forget(gone, 1);
    fs.unlink(&context, root, b"gone").unwrap();
    fs.close().unwrap();
    let map = Map::of(device.snapshot());
    point_name(&map, b"small", InodeNumber::new(gone.0 as u32));
    let fs = mount(&map.device);
    expect_damage(fs.lookup(&context, root, b"small"), "a name of a deleted inode");
    let mut made = Vec::new();
    for number in 0..8 {
        let name = format!("new {number}");
        made.push(
            fs.create(&context, root, name.as_bytes(), NewNode::Regular, 0o600).unwrap().inode,
        );
    }
    assert!(made.contains(&gone), "the number was not allocated: {made:?}");
    fs.close().unwrap();
}

/// The first block of each kind that no mapping may lead to.
fn forbidden(map: &Map) -> Vec<(String, u64)> {
    let layout = map.layout();
    let mut found: Vec<(String, u64)> = Vec::new();
    for (&block, content) in &map.blocks {
        let is_fixed = matches!(
            content,
            BlockContent::Superblock
                | BlockContent::SuperblockBackup
                | BlockContent::Descriptors
                | BlockContent::BlockBitmap(_)
                | BlockContent::InodeBitmap(_)
                | BlockContent::InodeTable(_)
                | BlockContent::JournalSuperblock
                | BlockContent::Log
        );
        // Block 0 in a mapping is a hole.
        if is_fixed && block > 0 && !found.iter().any(|(name, _)| *name == content.name()) {
            found.push((content.name(), block));
        }
    }
    let base = layout.group_base(GroupNumber::FIRST);
    if base.reserved_blocks > 0 {
        let start = base.descriptors.unwrap().get() + u64::from(base.descriptor_blocks);
        found.push(("reserved".to_owned(), start));
    }
    found
}

/// Opens an image whose `name` leads where it must not, and reads and writes it.
fn expect_refused(device: &MemoryDevice, name: &[u8], what: &str) {
    let fs = mount(device);
    let (context, root) = (RequestContext::superuser(), fs.root());
    let inode = fs.lookup(&context, root, name).unwrap().inode;
    let mut bytes = [0; 1024];
    expect_damage(fs.read(inode, 0, &mut bytes), what);
    expect_damage(fs.write(&context, inode, 0, &[0x55; 1024]), what);
    expect_damage(fs.extents(inode, 0, u64::MAX, 10), what);
    let _ = fs.unlink(&context, root, name);
    fs.forget(inode, 1);
    let _ = fs.close();
}

#[test]
fn extents_do_not_reach_metadata() {
    let Some((_watch, map)) = image() else { return };
    let base = map.device.snapshot();
    let block_size = map.layout().block_size() as u64;
    let (plain, pieces) = (number_of(&map.device, b"/plain"), number_of(&map.device, b"/pieces"));
    let is_its = |content: &BlockContent| matches!(content, BlockContent::ExtentNode(it, _) if *it == pieces);
    let (&node, _) = map.blocks.iter().find(|(_, content)| is_its(content)).unwrap();
    let targets = forbidden(&map);
    assert!(targets.len() >= 8, "{targets:?}");
    for (name, block) in targets {
        // The first extent of a root. Its length is 1, so that it reaches only the forbidden block.
        change_inode(&map, plain, |inode| {
            inode.block_area[16..18].copy_from_slice(&1_u16.to_le_bytes());
            inode.block_area[20..24].copy_from_slice(&(block as u32).to_le_bytes());
        });
        expect_refused(&map.device, b"plain", &format!("an extent leads to {name}"));
        restore(&map.device, &base);

        let mut bytes = map.block(node);
        bytes[20..24].copy_from_slice(&(block as u32).to_le_bytes());
        map.device.write_at(node * block_size, &bytes).unwrap();
        expect_refused(&map.device, b"pieces", &format!("an extent of a leaf leads to {name}"));
        restore(&map.device, &base);

        // The node itself moves there, with its content.
        let bytes = map.block(node);
        change_inode(&map, pieces, |inode| {
            inode.block_area[16..20].copy_from_slice(&(block as u32).to_le_bytes());
        });
        map.device.write_at(block * block_size, &bytes).unwrap();
        if let Ok(fs) = Ext4::open(Arc::new(map.device.snapshot()), options(true))
            && let Ok(entry) = fs.lookup(&RequestContext::superuser(), fs.root(), b"pieces")
        {
            let what = format!("a node lies in {name}");
            expect_damage(fs.read(entry.inode, 0, &mut [0; 10]), &what);
        }
        restore(&map.device, &base);
    }
}

#[test]
fn block_maps_do_not_reach_metadata() {
    let _watch = Watch::start();
    let arguments = "-t ext3 -b 1024 -N 64 -I 128";
    let Some(device) = make(&Kind { arguments, ..KIND }) else { return };
    let map = Map::of(device);
    let base = map.device.snapshot();
    let plain = number_of(&map.device, b"/plain");
    for (name, block) in forbidden(&map) {
        change_inode(&map, plain, |inode| {
            inode.block_area[..4].copy_from_slice(&(block as u32).to_le_bytes());
        });
        expect_refused(&map.device, b"plain", &format!("a pointer leads to {name}"));
        restore(&map.device, &base);
        // The block of pointers to the blocks after the first twelve.
        change_inode(&map, plain, |inode| {
            inode.block_area[48..52].copy_from_slice(&(block as u32).to_le_bytes());
            inode.size_bytes = 40 << 10;
        });
        let fs = mount(&map.device);
        let (context, root) = (RequestContext::superuser(), fs.root());
        let inode = fs.lookup(&context, root, b"plain").unwrap().inode;
        let what = format!("pointers lie in {name}");
        expect_damage(fs.read(inode, 20 << 10, &mut [0; 10]), &what);
        expect_damage(fs.write(&context, inode, 20 << 10, &[1; 10]), &what);
        drop(fs);
        restore(&map.device, &base);
    }
}

#[test]
fn attributes_and_directories_do_not_lie_in_metadata() {
    let Some((_watch, map)) = image() else { return };
    let base = map.device.snapshot();
    let (slow, many) = (number_of(&map.device, b"/plain"), number_of(&map.device, b"/many"));
    let block_size = map.layout().block_size() as u64;
    let attributes = map.blocks.iter().find(|(_, content)| **content == BlockContent::Attributes);
    let attributes = map.block(*attributes.unwrap().0);
    for (name, block) in forbidden(&map) {
        // A valid block is written only where nothing else reads it.
        if name == "Log" || name == "reserved" {
            map.device.write_at(block * block_size, &attributes).unwrap();
        }
        change_inode(&map, slow, |inode| inode.attribute_block = Some(PhysicalBlock::new(block)));
        change_inode(&map, many, |inode| {
            inode.block_area[16..18].copy_from_slice(&1_u16.to_le_bytes());
            inode.block_area[20..24].copy_from_slice(&(block as u32).to_le_bytes());
        });
        let fs = mount(&map.device);
        let (context, root) = (RequestContext::superuser(), fs.root());
        let inode = fs.lookup(&context, root, b"plain").unwrap().inode;
        let error = fs.list_xattrs(&context, inode).unwrap_err();
        assert!(error.detail().unwrap().contains("holds metadata"), "{name}: {error:?}");
        let inode = fs.lookup(&context, root, b"many").unwrap().inode;
        expect_damage(fs.lookup(&context, inode, b"first"), &name);
        drop(fs);
        restore(&map.device, &base);
    }
}

#[test]
fn mappings_do_not_reach_beyond_the_end() {
    let Some((_watch, map)) = image() else { return };
    let plain = number_of(&map.device, b"/plain");
    let blocks = map.layout().blocks_count() as u32;
    for (start, length) in [(blocks - 1, 2_u16), (blocks, 1), (u32::MAX, 1)] {
        change_inode(&map, plain, |inode| {
            inode.block_area[16..18].copy_from_slice(&length.to_le_bytes());
            inode.block_area[20..24].copy_from_slice(&start.to_le_bytes());
        });
        expect_refused(&map.device, b"plain", &format!("{length} blocks at {start}"));
    }
}

#[test]
fn a_journal_does_not_lie_over_metadata_nor_over_itself() {
    let Some((_watch, map)) = image() else { return };
    let base = map.device.snapshot();
    let number = map.superblock.journal_inode().unwrap();
    let table = map.descriptor(GroupNumber::FIRST).inode_table.get() as u32;
    let opened = || Ext4::open(Arc::new(map.device.snapshot()), options(false));
    change_inode(&map, number, |inode| {
        inode.block_area[20..24].copy_from_slice(&table.to_le_bytes());
    });
    let error = opened().unwrap_err().to_string();
    assert!(error.contains("holds metadata"), "{error}");
    restore(&map.device, &base);
    // Its second piece lies where its first does.
    change_inode(&map, number, |inode| {
        let area = &mut inode.block_area;
        assert!(area[2] >= 2 && area[6] == 0, "the journal is in one piece");
        area.copy_within(16..24, 28);
        inode.size_bytes = u64::from(area[16]) * 2 * 1024;
    });
    let error = opened().unwrap_err().to_string();
    assert!(error.contains("mapped twice"), "{error}");
}

/// Groups that share metadata: nothing may be allocated in the damaged one.
#[test]
fn groups_that_share_metadata_are_out_of_use() {
    let _watch = Watch::start();
    let arguments = "-t ext4 -b 1024 -N 256 -O ^metadata_csum,^uninit_bg,flex_bg -G 4 -g 1024";
    let Some(device) = make(&Kind { arguments, ..KIND }) else { return };
    let map = Map::of(device);
    let base = map.device.snapshot();
    let (one, two) = (GroupNumber::new(1), GroupNumber::new(2));
    let first = map.descriptor(one);
    type Change = fn(
        &mut drystone_ext4_format::group::GroupDescriptor,
        &drystone_ext4_format::group::GroupDescriptor,
    );
    let changes: [(&str, Change); 4] = [
        ("inode bitmap", |two, one| two.inode_bitmap = one.inode_bitmap),
        ("block bitmap", |two, one| two.block_bitmap = one.block_bitmap),
        ("inode table", |two, one| {
            two.inode_table = PhysicalBlock::new(one.inode_table.get() + 1);
        }),
        ("bitmap for another bitmap", |two, _| two.inode_bitmap = two.block_bitmap),
    ];
    for (what, change) in changes {
        map.reseal_group(&map.device, two, |two| change(two, &first));
        let fs = mount(&map.device);
        let (context, root) = (RequestContext::superuser(), fs.root());
        for number in 0..300 {
            let name = format!("new {number}");
            match fs.create(&context, root, name.as_bytes(), NewNode::Regular, 0o600) {
                Ok(entry) => {
                    let group = map.layout().group_of_inode(InodeNumber::new(entry.inode.0 as u32));
                    assert_ne!(group.unwrap(), two, "{what}: an inode of a damaged group");
                    fs.forget(entry.inode, 1);
                }
                Err(error) => assert_eq!(error.errno, Errno::ENOSPC, "{what}: {error:?}"),
            }
            if number % 50 == 0 {
                fs.sync().unwrap();
            }
        }
        fs.close().unwrap();
        restore(&map.device, &base);
    }
}

/// A superblock that claims a million groups, on a device that is otherwise empty.
#[test]
fn claimed_groups_take_no_memory() {
    let Some((watch, map)) = image() else { return };
    let groups = 1_u32 << 20;
    for (has_meta_groups, wanted) in [(false, "don't fit"), (true, "descriptors are damaged")] {
        let device = MemoryDevice::new((u64::from(groups) * 256) << 10);
        let mut bytes = read(&map.device, 1024, 1024);
        let mut put = |at: usize, number: u32| {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        };
        put(0, groups * 8);
        put(4, groups * 256);
        put(0x20, 256);
        put(0x24, 256);
        put(0x28, 8);
        let incompatible = map.superblock.features().incompat.bits();
        put(0x60, if has_meta_groups { incompatible | 0x10 } else { incompatible });
        device.write_at(1024, &bytes).unwrap();
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        watch.case(wanted, 0, || {
            for read_only in [true, false] {
                let opened = Ext4::open(Arc::clone(&device), options(read_only));
                let error = opened.unwrap_err().to_string();
                assert!(error.contains(wanted), "{error}");
            }
        });
        watch.case("checked", 0, || check(&*device));
    }
}

fn restore(device: &MemoryDevice, base: &MemoryDevice) {
    let mut bytes = vec![0; base.size_bytes() as usize];
    base.read_at(0, &mut bytes).unwrap();
    device.write_at(0, &bytes).unwrap();
}
