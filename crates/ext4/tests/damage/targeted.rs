//! Damages that changes of single numbers make rarely or never: several structures agree on something
//! wrong.

use crate::image::{Kind, make, options, read};
use crate::watch::Watch;
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::Ext4;
use drystone_ext4_format::dir::{DirectoryBlockMut, DirectoryLayout};
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::{GroupNumber, InodeNumber};
use drystone_ondisk::bitmap;
use drystone_sync::Arc;
use drystone_testkit::metadata_map::{BlockContent, MetadataMap as Map};
use drystone_vfs::{Errno, FileSystem, NewNode, RenameFlags, RequestContext};

pub const KIND: Kind = Kind {
    name: "targeted",
    arguments: "-t ext4 -b 1024 -N 64 -O ^metadata_csum,^uninit_bg,^dir_index",
    size_mib: 4,
    dirty: false,
};

/// An image without checksums, with the map of its metadata; `None` if there is no `mke2fs`.
pub fn image() -> Option<(Watch, Map)> {
    let watch = Watch::start();
    Some((watch, Map::of(make(&KIND)?)))
}

pub fn mount(device: &MemoryDevice) -> Ext4 {
    Ext4::open(Arc::new(device.snapshot()), options(false)).unwrap()
}

/// The inode that a path leads to.
pub fn number_of(device: &MemoryDevice, path: &[u8]) -> InodeNumber {
    let fs = mount(device);
    let context = RequestContext::superuser();
    let found = drystone_vfs::find_path(&fs, &context, path, false).unwrap().inode();
    fs.close().unwrap();
    InodeNumber::new(found.0 as u32)
}

pub fn change_inode(map: &Map, number: InodeNumber, change: impl FnOnce(&mut Inode)) {
    let layout = map.layout();
    let (group, bit) = layout.bit_of_inode(number).unwrap();
    let size = layout.inode_size();
    let at = map.descriptor(group).inode_table.get() * layout.block_size() as u64
        + u64::from(bit) * size as u64;
    let mut bytes = read(&map.device, at, size);
    let mut inode = Inode::read(&bytes, number, layout).unwrap();
    change(&mut inode);
    inode.encode_into(&mut bytes, layout).unwrap();
    map.device.write_at(at, &bytes).unwrap();
}

#[test]
fn an_inode_in_use_is_not_given_to_a_new_file() {
    let Some((_watch, map)) = image() else { return };
    let layout = *map.layout();
    let group = GroupNumber::FIRST;
    let descriptor = map.descriptor(group);
    let mut bytes = map.block(descriptor.inode_bitmap.get());
    let ordinary = layout.first_inode().get() as usize..layout.inodes_per_group() as usize;
    bitmap::clear_range(&mut bytes, ordinary.clone());
    let at = descriptor.inode_bitmap.get() * layout.block_size() as u64;
    map.device.write_at(at, &bytes).unwrap();
    map.reseal_group(&map.device, group, |descriptor| {
        descriptor.free_inodes_count = ordinary.len() as u32;
    });
    let fs = mount(&map.device);
    let context = RequestContext::superuser();
    // Names that are held keep their inodes in memory.
    let mut loaded = 0;
    for name in ["small", "plain", "pieces", "far", "many", "deep", "fast", "slow", "pipe"] {
        loaded += u32::from(fs.lookup(&context, fs.root(), name.as_bytes()).is_ok());
    }
    let mut refused = 0;
    for number in 0..40 {
        let name = format!("new {number}");
        match fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o600) {
            Ok(_) => {}
            Err(error) if error.errno == Errno::EUCLEAN => {
                assert!(error.detail().unwrap().contains("in use"), "{error:?}");
                refused += 1;
            }
            Err(error) => assert!(
                matches!(error.errno, Errno::ENOSPC | Errno::EIO | Errno::EROFS),
                "{error:?}"
            ),
        }
    }
    assert!(loaded == 0 || refused > 0, "inodes in use were allocated again");
    let _ = fs.close();
}

#[test]
fn a_directory_below_itself_is_told() {
    let Some((_watch, map)) = image() else { return };
    let own = number_of(&map.device, b"/deep/one/two");
    let layout = map.layout();
    let entries = DirectoryLayout {
        file_type: true,
        checksum: None,
        encrypted: false,
        casefolded: false,
        inode_last: InodeNumber::new(layout.inodes_count()),
    };
    let is_its =
        |content: &BlockContent| matches!(content, BlockContent::Directory(it, _) if *it == own);
    let (&block, _) = map.blocks.iter().find(|(_, content)| is_its(content)).unwrap();
    let mut bytes = map.block(block);
    DirectoryBlockMut::trusted(&mut bytes, &entries).set_parent(own).unwrap();
    map.device.write_at(block * layout.block_size() as u64, &bytes).unwrap();
    let fs = mount(&map.device);
    let context = RequestContext::superuser();
    let two = drystone_vfs::find_path(&fs, &context, b"/deep/one/two", false).unwrap();
    let moved = fs.rename(&context, fs.root(), b"many", two.inode(), b"many", RenameFlags::empty());
    drop(two);
    let error = moved.unwrap_err();
    assert_eq!(error.errno, Errno::EUCLEAN);
    assert!(error.detail().unwrap().contains("below itself"), "{error:?}");
    let _ = fs.close();
}

#[test]
fn a_directory_with_blocks_behind_its_end_does_not_grow_into_them() {
    let Some((_watch, map)) = image() else { return };
    let number = number_of(&map.device, b"/many");
    let block_size = map.layout().block_size() as u64;
    change_inode(&map, number, |inode| inode.size_bytes -= block_size);
    let fs = mount(&map.device);
    let context = RequestContext::superuser();
    let many = fs.lookup(&context, fs.root(), b"many").unwrap().inode;
    let mut errors = Vec::new();
    for number in 0..20 {
        let name = format!("{number:0200}");
        let made = fs.create(&context, many, name.as_bytes(), NewNode::Regular, 0o600);
        errors.extend(made.err());
    }
    let told =
        |error: &drystone_vfs::Error| error.detail().is_some_and(|t| t.contains("is mapped"));
    assert!(errors.iter().any(told), "{errors:?}");
    let _ = fs.close();
}

/// Sizes beyond the image are errors: the engine neither walks over so many blocks nor lists them.
#[test]
fn files_that_the_image_has_no_room_for_are_told() {
    let Some((_watch, map)) = image() else { return };
    let blocks = map.layout().blocks_count();
    let block_size = map.layout().block_size() as u64;
    let number = number_of(&map.device, b"/many");
    change_inode(&map, number, |inode| inode.size_bytes = (blocks + 1) * block_size);
    let fs = mount(&map.device);
    let context = RequestContext::superuser();
    let many = fs.lookup(&context, fs.root(), b"many").unwrap().inode;
    let error = fs.lookup(&context, many, b"not there").unwrap_err();
    assert_eq!(error.errno, Errno::EUCLEAN, "{error:?}");
    let _ = fs.close();
    let journal = map.superblock.journal_inode().unwrap();
    change_inode(&map, journal, |inode| inode.size_bytes = (blocks + 1) * block_size);
    let opened = Ext4::open(Arc::new(map.device.snapshot()), options(false));
    assert!(opened.unwrap_err().to_string().contains("size is"));
}

/// What two files claim belongs to the first that reads it. Without checksums nothing else tells them
/// apart, and each would find the node that it has checked changed by the other.
#[test]
fn files_do_not_share_nodes() {
    let Some((_watch, map)) = image() else { return };
    let context = RequestContext::superuser();
    let device = Arc::new(map.device.snapshot());
    let fs = Ext4::open(device.clone(), options(false)).unwrap();
    let names: [&[u8]; 2] = [b"first", b"second"];
    for name in names {
        fs.create(&context, fs.root(), name, NewNode::Regular, 0o600).unwrap();
    }
    let first = fs.lookup(&context, fs.root(), names[0]).unwrap().inode;
    // With holes between its blocks the file has more extents than its inode has room for.
    for block in 0..20 {
        fs.write(&context, first, block * 2048, &[1; 1024]).unwrap();
    }
    fs.close().unwrap();
    let map = Map::of(device.snapshot());
    let [first, second] =
        [b"/first".as_slice(), b"/second"].map(|path| number_of(&map.device, path));
    let mut mapping = Vec::new();
    change_inode(&map, first, |inode| mapping = inode.block_area.to_vec());
    change_inode(&map, second, |inode| {
        inode.block_area.copy_from_slice(&mapping);
        inode.size_bytes = 40 * 1024;
    });
    let fs = mount(&map.device);
    let [first, second] = names.map(|name| fs.lookup(&context, fs.root(), name).unwrap().inode);
    fs.write(&context, first, 1024, &[2; 1024]).unwrap();
    fs.sync_inode(first, false).unwrap();
    let error = fs.read(second, 0, &mut [0; 1024]).unwrap_err();
    assert!(error.detail().is_some_and(|text| text.contains("claimed by two")), "{error:?}");
    let _ = fs.close();
}
