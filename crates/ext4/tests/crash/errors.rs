//! Single errors, and what still works after them: an error of the device or damage to the image
//! concerns the operations that meet it, not the mount.

use crate::images::{AT_ONCE, LARGE_BLOCKS, LIST, OWN, Shape};
use crate::judge::{check, e2fsck};
use crate::record::options;
use drystone_blockdev::{
    BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice, Trigger,
};
use drystone_ext4::Ext4;
use drystone_sync::Arc;
use drystone_testkit::judges::{Scratch, have};
use drystone_vfs::{
    Errno, FileFlags, FileSystem, InodeNumber, NewNode, RenameFlags, RequestContext, SetAttributes,
};

struct Mount {
    device: Arc<Faulty<MemoryDevice>>,
    fs: Ext4,
    context: RequestContext,
}

impl Mount {
    fn of(image: MemoryDevice) -> Mount {
        let device = Arc::new(Faulty::new(image));
        let options = options(3_600_000).delayed_allocation(false);
        let fs = Ext4::open(device.clone() as Arc<dyn BlockDevice>, options).unwrap();
        Mount { device, fs, context: RequestContext::superuser() }
    }

    fn new(shape: &Shape) -> Option<Mount> {
        shape.make().map(Mount::of)
    }

    fn create(&self, name: &str) -> InodeNumber {
        let root = self.fs.root();
        let made = self.fs.create(&self.context, root, name.as_bytes(), NewNode::Regular, 0o644);
        made.unwrap().inode
    }

    fn fail(&self, operation: DeviceOperation, effect: Effect) {
        self.device.inject(Fault::of(operation, effect));
    }

    fn blocks_free(&self) -> u64 {
        self.fs.sync().unwrap();
        self.fs.statistics().unwrap().blocks_free
    }

    /// Closes the mount, and judges the image.
    fn close(self) {
        self.fs.close().unwrap();
        drop(self.fs);
        let image = self.device.inner();
        check(image).unwrap();
        if have("e2fsck") {
            e2fsck(image, &Scratch::new("errors").unwrap()).unwrap();
        }
    }
}

/// Data that gets its blocks at once, on a device that fails or is full.
#[test]
fn refused_data_does_not_stop_the_mount() {
    for (effect, errno) in
        [(Effect::InputOutputError, Errno::EIO), (Effect::NoSpace, Errno::ENOSPC)]
    {
        for kind in ["hole", "unwritten", "link"] {
            let Some(mount) = Mount::new(&AT_ONCE) else { return };
            let file = mount.create("file");
            let length = 100_000;
            if kind == "unwritten" {
                let mode = drystone_vfs::FallocateMode::Allocate { keep_size: false };
                mount.fs.fallocate(&mount.context, file, mode, 0, length).unwrap();
            }
            let free = mount.blocks_free();
            mount.fail(DeviceOperation::Write, effect);
            let refused = match kind {
                "link" => {
                    let target = NewNode::Symlink(&[b'x'; 500]);
                    let root = mount.fs.root();
                    mount.fs.create(&mount.context, root, b"link", target, 0o777).map(drop)
                }
                _ => mount.fs.write(&mount.context, file, 0, &[7; 100_000]).map(drop),
            };
            assert_eq!(refused.unwrap_err().errno, errno, "{kind}");
            mount.device.repair();
            mount.create("other");
            assert_eq!(mount.blocks_free(), free, "{kind}");
            mount.close();
        }
    }
}

/// A device that fails at any step of a freeze: either the mount is frozen or it isn't.
#[test]
fn a_failed_freeze_leaves_nothing_frozen() {
    let mut failures = 0;
    for operation in [DeviceOperation::Write, DeviceOperation::Flush] {
        for moment in 0.. {
            let Some(mount) = Mount::new(&LIST) else { return };
            mount.create("file");
            mount
                .device
                .inject(Fault::of(operation, Effect::InputOutputError).when(Trigger::From(moment)));
            let frozen = mount.fs.freeze();
            let thawed = mount.fs.thaw();
            assert_eq!(frozen.is_ok(), thawed.is_ok(), "{operation:?} {moment}");
            if frozen.is_ok() {
                break;
            }
            failures += 1;
            // The stopped journal refuses changes; they don't wait for a thaw.
            let changes = SetAttributes { permissions: Some(0o700), ..SetAttributes::default() };
            let root = mount.fs.root();
            let changed = mount.fs.set_attributes(&mount.context, root, &changes);
            assert_eq!(changed.unwrap_err().errno, Errno::EROFS);
        }
    }
    assert!(failures > 3, "{failures}");
}

/// The only group's block bitmap is damaged: files have no space, but names go on.
#[test]
fn a_damaged_block_bitmap_does_not_stop_the_mount() {
    let Some(image) = LARGE_BLOCKS.make() else { return };
    {
        // Blocks that will be freed.
        let mount = Mount::of(image.snapshot());
        let file = mount.create("old");
        mount.fs.write(&mount.context, file, 0, &[7; 50_000]).unwrap();
        mount.fs.close().unwrap();
        let mut bitmap = [0; 4];
        // The first descriptor begins with its number, in the block after the superblock's.
        mount.device.read_at(4096, &mut bitmap).unwrap();
        let bitmap = u64::from(u32::from_le_bytes(bitmap));
        mount.device.write_at(bitmap * 4096 + 1200, &[0x5a; 16]).unwrap();
        image.write_at(0, &whole(mount.device.inner())).unwrap();
    }
    let mount = Mount::of(image);
    let (root, context) = (mount.fs.root(), &mount.context);
    let file = mount.create("file");
    let refused = mount.fs.write(context, file, 0, &[7; 50_000]).unwrap_err();
    assert_eq!(refused.errno, Errno::ENOSPC);
    mount.fs.sync().unwrap();
    // The first's number was allocated in this transaction; the others' are in the bitmap.
    mount.create("more");
    for (name, references) in [(b"more".as_slice(), 2), (b"file", 2), (b"old", 1)] {
        let entry = mount.fs.lookup(context, root, name).unwrap();
        mount.fs.unlink(context, root, name).unwrap();
        mount.fs.forget(entry.inode, references);
    }
    mount.fs.sync().unwrap();
    mount.fs.close().unwrap();
}

fn whole(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// A whiteout that finds no room for the new name leaves nothing behind.
#[test]
fn a_whiteout_that_is_not_needed_is_freed() {
    let Some(mount) = Mount::new(&LIST) else { return };
    let (root, context) = (mount.fs.root(), &mount.context);
    let directory = mount.fs.create(context, root, b"to", NewNode::Directory, 0o755).unwrap();
    let name = |number: u32| format!("{number:0>200}").into_bytes();
    // Until the directory's one block is full.
    let mut count = 0;
    while mount.fs.attributes(directory.inode).unwrap().size == 1024 {
        let made = mount.fs.create(context, directory.inode, &name(count), NewNode::Regular, 0o644);
        mount.fs.forget(made.unwrap().inode, 1);
        count += 1;
    }
    mount.create("from");
    let filler = mount.create("filler");
    let mut offset = 0;
    while let Ok(written) = mount.fs.write(context, filler, offset, &[1; 1024]) {
        offset += written as u64;
    }
    let inodes_free = || mount.fs.statistics().unwrap().inodes_free;
    let mut before = inodes_free();
    loop {
        let to = name(count);
        let flags = RenameFlags::WHITEOUT;
        let renamed = mount.fs.rename(context, root, b"from", directory.inode, &to, flags);
        if let Err(error) = renamed {
            assert_eq!(error.errno, Errno::ENOSPC);
            break;
        }
        // The whiteout.
        before -= 1;
        mount.fs.unlink(context, root, b"from").unwrap();
        mount.create("from");
        count += 1;
    }
    assert_eq!(inodes_free(), before);
    mount.close();
}

/// Inode tables that the groups mark as zeroed hold garbage where there was never an inode.
#[test]
fn garbage_in_a_table_is_no_inode() {
    let Some(image) = OWN.make() else { return };
    let number = |offset: u64, length: usize| {
        let mut bytes = [0; 4];
        image.read_at(offset, &mut bytes[..length]).unwrap();
        u64::from(u32::from_le_bytes(bytes))
    };
    let (per_group, size) = (number(1024 + 40, 4), number(1024 + 88, 2));
    // The first descriptor is in the third block. At offset 8 it has the block of the table, at offset
    // 28 the number of inodes that were never used.
    let table = number(2048 + 8, 4) * 1024;
    let used = per_group - number(2048 + 28, 2);
    let garbage = vec![0xa5; ((per_group - used) * size) as usize];
    image.write_at(table + used * size, &garbage).unwrap();
    let mount = Mount::of(image);
    // A file's inode comes from a run that its core sets aside. A directory's lies after this run, so
    // it takes the whole run into use.
    mount.create("file");
    let (root, context) = (mount.fs.root(), &mount.context);
    mount.fs.create(context, root, b"directory", NewNode::Directory, 0o755).unwrap();
    mount.close();
}

/// A flag that isn't supported is refused; a flag that directories pass on is passed on.
#[test]
fn flags_are_refused_or_passed_on() {
    let Some(mount) = Mount::new(&LIST) else { return };
    let (root, context) = (mount.fs.root(), &mount.context);
    let set = |inode, flags| {
        let old = mount.fs.attributes(inode).unwrap().flags;
        let changes = SetAttributes { flags: Some(old | flags), ..SetAttributes::default() };
        mount.fs.set_attributes(context, inode, &changes)
    };
    let file = mount.create("file");
    let refused = set(file, FileFlags::JOURNAL_DATA).unwrap_err();
    assert_eq!(refused.errno, Errno::EOPNOTSUPP);
    let directory = mount.fs.create(context, root, b"d", NewNode::Directory, 0o755).unwrap().inode;
    set(directory, FileFlags::DIRECT_ACCESS).unwrap();
    for node in [NewNode::Directory, NewNode::Regular] {
        let name = format!("{:?}", node.file_type());
        let made = mount.fs.create(context, directory, name.as_bytes(), node, 0o755).unwrap();
        assert!(made.flags.contains(FileFlags::DIRECT_ACCESS), "{name}");
    }
    mount.close();
}

/// The end of the mount tries again.
#[test]
fn an_inode_that_could_not_be_freed_is_freed_at_the_end() {
    let Some(mount) = Mount::new(&LIST) else { return };
    let file = mount.create("file");
    // Extents that need a block of their own.
    for block in 0..100 {
        mount.fs.write(&mount.context, file, block * 2048, b"x").unwrap();
    }
    mount.fs.close().unwrap();
    let mount = Mount::of(mount.device.inner().snapshot());
    let root = mount.fs.root();
    let file = mount.fs.lookup(&mount.context, root, b"file").unwrap().inode;
    let free = mount.blocks_free();
    mount.fs.unlink(&mount.context, root, b"file").unwrap();
    mount.fail(DeviceOperation::Read, Effect::InputOutputError);
    mount.fs.forget(file, 1);
    assert!(mount.device.failures() > 0);
    mount.device.repair();
    assert_eq!(mount.blocks_free(), free);
    mount.close();
}
