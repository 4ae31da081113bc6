//! Images crafted so that a call would read, keep or change far more than there is on the device.

use crate::image::{Kind, make, options};
use crate::targeted::{KIND, change_inode, mount, number_of};
use crate::watch::Watch;
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::Ext4;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::features::{Compat, Incompat, ReadOnlyCompat};
use drystone_ext4_format::superblock::StateFlags;
use drystone_mkfs::MkfsOptions;
use drystone_sync::Arc;
use drystone_testkit::metadata_map::{BlockContent, MetadataMap as Map};
use drystone_vfs::{Errno, FallocateMode, FileSystem, NewNode, RequestContext};

/// The root of the index of `/many`.
fn index_root(map: &Map) -> u64 {
    let number = number_of(&map.device, b"/many");
    let is_its =
        |content: &BlockContent| matches!(content, BlockContent::Directory(it, _) if *it == number);
    let is_root =
        |bytes: &[u8]| bytes[..4] == number.get().to_le_bytes() && bytes[8..10] == *b".\0";
    let is_wanted =
        |block: u64, content: &BlockContent| is_its(content) && is_root(&map.block(block));
    *map.blocks.iter().find(|(block, content)| is_wanted(**block, content)).unwrap().0
}

/// Fills an index block: each entry has one hash, which continues from the leaf before, and leads to
/// `target`. Limit and count are at `at`, and entries of hash and block follow every 8 bytes.
fn lead_all_to(bytes: &mut [u8], at: usize, target: u8) {
    let limit = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    bytes[at + 2..at + 4].copy_from_slice(&limit.to_le_bytes());
    bytes[at + 4..at + 8].copy_from_slice(&u32::from(target).to_le_bytes());
    for entry in 1..usize::from(limit) {
        let at = at + 8 * entry;
        bytes[at..at + 8].copy_from_slice(&[3, 0, 0, 0, target, 0, 0, 0]);
    }
}

/// If all entries of an index lead to one leaf, a listing ends with an error.
#[test]
fn an_index_that_shares_its_blocks_does_not_list_for_ever() {
    let _watch = Watch::start();
    let arguments = "-t ext4 -b 1024 -N 64 -O ^metadata_csum,^uninit_bg,large_dir";
    let Some(device) = make(&Kind { arguments, ..KIND }) else { return };
    let map = Map::of(device);
    let root = index_root(&map);
    let mut bytes = map.block(root);
    lead_all_to(&mut bytes, 32, 1);
    map.device.write_at(root * map.layout().block_size() as u64, &bytes).unwrap();
    let fs = mount(&map.device);
    let context = RequestContext::superuser();
    let many = fs.lookup(&context, fs.root(), b"many").unwrap().inode;
    let listed = fs.read_directory(&context, many, 0, &mut |_| true);
    let error = listed.unwrap_err();
    assert!(error.detail().unwrap().contains("more leaves"), "{error:?}");
    let _ = fs.close();
}

/// The same in a directory that claims enough blocks for all these leaves, and is a hole after its first
/// blocks. The names must not all be in memory at once. A sound directory may also have too many names of
/// one hash, so this isn't noted as damage.
#[test]
fn names_of_one_hash_take_little_memory() {
    let watch = Watch::start();
    let arguments = "-t ext4 -b 1024 -N 64 -O ^metadata_csum,^uninit_bg,large_dir";
    let Some(device) = make(&Kind { arguments, size_mib: 20, ..KIND }) else { return };
    let map = Map::of(device);
    let block_size = map.layout().block_size();
    let write = |block: u64, bytes: &[u8]| {
        map.device.write_at(block * block_size as u64, bytes).unwrap();
    };
    let root = index_root(&map);
    // The directory's first blocks follow each other on the device.
    let (node, leaf) = (root + 1, root + 2);
    let mut bytes = map.block(root);
    bytes[30] = 1;
    lead_all_to(&mut bytes, 32, 1);
    write(root, &bytes);
    let mut bytes = vec![0; block_size];
    bytes[4..6].copy_from_slice(&(block_size as u16).to_le_bytes());
    bytes[8..10].copy_from_slice(&((block_size - 8) as u16 / 8).to_le_bytes());
    lead_all_to(&mut bytes, 8, 2);
    write(node, &bytes);
    let mut bytes = vec![0; block_size];
    for (name, record) in bytes.chunks_mut(12).enumerate() {
        if record.len() == 12 {
            record[..8].copy_from_slice(&[11, 0, 0, 0, 12, 0, 1, 2]);
            record[8] = b'0' + name as u8;
        }
    }
    // The last record reaches to the end of the block.
    let last = (block_size / 12 - 1) * 12;
    bytes[last + 4] = (block_size - last) as u8;
    write(leaf, &bytes);
    let number = number_of(&map.device, b"/many");
    change_inode(&map, number, |inode| inode.size_bytes = 18_000 << 10);
    let device = Arc::new(map.device.snapshot());
    let fs = Ext4::open(device.clone(), options(false)).unwrap();
    let context = RequestContext::superuser();
    let many = fs.lookup(&context, fs.root(), b"many").unwrap().inode;
    let listed = watch.case("one hash", 0, || fs.read_directory(&context, many, 0, &mut |_| true));
    let error = listed.unwrap_err();
    assert_eq!(error.errno, Errno::ENOMEM);
    assert!(error.detail().unwrap().contains("have one hash"), "{error:?}");
    fs.close().unwrap();
    let state = Map::of(device.snapshot()).superblock.state();
    assert!(!state.contains(StateFlags::ERRORS));
}

/// A directory that claims to be as long as a large device, and is a hole after its first block. A search
/// that looks at each block takes minutes.
#[test]
fn holes_of_directories_are_not_searched() {
    let watch = Watch::start();
    let size_bytes = 64 << 30;
    let mut features = drystone_mkfs::default_features();
    features.compat -= Compat::DIR_INDEX | Compat::RESIZE_INODE;
    features.incompat |= Incompat::LARGE_DIR;
    features.incompat -= Incompat::CSUM_SEED;
    features.read_only_compat -= ReadOnlyCompat::METADATA_CSUM;
    let device = Arc::new(MemoryDevice::new(size_bytes));
    let settings = MkfsOptions::new(size_bytes, [7; 16], [1, 2, 3, 4], 1_700_000_000)
        .block_size(1024)
        .inodes(1 << 16)
        .features(features);
    drystone_mkfs::make(&*device, &settings, true).unwrap();
    let context = RequestContext::superuser();
    let fs = Ext4::open(device.clone(), options(false)).unwrap();
    let create = |fs: &Ext4, parent, name: &[u8], node| {
        fs.create(&context, parent, name, node, 0o700).unwrap().inode
    };
    let directory = create(&fs, fs.root(), b"d", NewNode::Directory);
    create(&fs, directory, b"first", NewNode::Regular);
    fs.close().unwrap();
    drop(fs);
    let map = Map::of(device.snapshot());
    let number = InodeNumber::new(directory.0 as u32);
    change_inode(&map, number, |inode| inode.size_bytes = map.layout().blocks_count() * 1024);
    let fs = mount(&map.device);
    fs.lookup(&context, fs.root(), b"d").unwrap();
    watch.case("hole", 0, || {
        let absent = fs.lookup(&context, directory, b"absent").unwrap_err();
        assert_eq!(absent.errno, Errno::ENOENT, "{absent:?}");
        create(&fs, directory, b"second", NewNode::Regular);
        let mut names = 0;
        let count = &mut |_: &drystone_vfs::DirectoryEntry<'_>| {
            names += 1;
            true
        };
        fs.read_directory(&context, directory, 0, count).unwrap();
        assert_eq!(names, 4);
        for name in [b"first".as_slice(), b"second"] {
            fs.unlink(&context, directory, name).unwrap();
        }
        fs.remove_directory(&context, fs.root(), b"d").unwrap();
    });
    fs.close().unwrap();
}

/// A tree of extents that are all one block long, though each continues the one before. In memory they are
/// one, and yet a change of all of them doesn't fit one transaction.
#[test]
fn extents_that_could_be_one_are_converted_step_by_step() {
    const LEAVES: u32 = 70;
    const PER_LEAF: u32 = 10;
    let watch = Watch::start();
    let arguments = "-t ext4 -b 1024 -N 64 -O ^metadata_csum,^uninit_bg";
    let Some(device) = make(&Kind { arguments, size_mib: 16, ..KIND }) else { return };
    let device = Arc::new(device);
    let (context, block_size) = (RequestContext::superuser(), 1024_u64);
    let blocks = LEAVES * PER_LEAF;
    let fs = Ext4::open(device.clone(), options(false)).unwrap();
    let [long, nodes] = [("long", blocks), ("nodes", LEAVES + 1)].map(|(name, blocks)| {
        let made = fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o600);
        let (inode, data) = (made.unwrap().inode, vec![1; blocks as usize * 1024]);
        fs.write(&context, inode, 0, &data).unwrap();
        fs.sync_inode(inode, false).unwrap();
        let extents = fs.extents(inode, 0, u64::MAX, 10).unwrap();
        assert_eq!(extents.len(), 1, "{name} is in several pieces");
        (extents[0].physical / block_size) as u32
    });
    fs.close().unwrap();
    drop(fs);
    let map = Map::of(device.snapshot());
    let number = number_of(&map.device, b"/long");
    let head = |entries: u32, room: u16, depth: u16| {
        [0xf30a, entries as u16, room, depth, 0, 0].map(u16::to_le_bytes).concat()
    };
    let room = (block_size as u16 - 12) / 12;
    let pointer =
        |logical: u32, block: u32| [logical.to_le_bytes(), block.to_le_bytes(), [0; 4]].concat();
    let write = |block: u32, bytes: &[u8]| {
        map.device.write_at(u64::from(block) * block_size, bytes).unwrap();
    };
    let mut index = head(LEAVES, room, 1);
    for leaf in 0..LEAVES {
        index.extend(pointer(leaf * PER_LEAF, nodes + 1 + leaf));
        let mut bytes = head(PER_LEAF, room, 0);
        for logical in leaf * PER_LEAF..(leaf + 1) * PER_LEAF {
            let length = [1, 0, 0, 0];
            bytes.extend([logical.to_le_bytes(), length, (long + logical).to_le_bytes()].concat());
        }
        write(nodes + 1 + leaf, &bytes);
    }
    write(nodes, &index);
    change_inode(&map, number, |inode| {
        let root = [head(1, 4, 2), pointer(0, nodes)].concat();
        inode.block_area.fill(0);
        inode.block_area[..root.len()].copy_from_slice(&root);
    });
    let fs = mount(&map.device);
    let inode = fs.lookup(&context, fs.root(), b"long").unwrap().inode;
    let bytes = blocks as usize * 1024;
    watch.case("short extents", map.device.size_bytes() as usize, || {
        let mut read = vec![0; bytes];
        assert_eq!(fs.read(inode, 0, &mut read).unwrap(), bytes);
        let mode = FallocateMode::ZeroRange { keep_size: true };
        fs.fallocate(&context, inode, mode, 0, bytes as u64).unwrap();
        fs.read(inode, 0, &mut read).unwrap();
        assert!(read.iter().all(|&byte| byte == 0));
    });
    fs.close().unwrap();
}
