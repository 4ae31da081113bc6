//! Mounts of images whose journal is dirty, stopped, damaged or another image's.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use drystone_blockdev::{BlockDevice, DeviceOperation, MemoryDevice, Stepped};
use drystone_ext4::{Ext4, MountOptions};
use drystone_ext4_format::superblock::{
    ErrorPolicy, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, StateFlags, Superblock,
};
use drystone_mkfs::{MkfsOptions, make};
use drystone_ondisk::crc32c;
use drystone_sync::{Arc, thread};
use drystone_vfs::{Errno, FileSystem, NewNode, RequestContext};
use std::time::Duration;

const SIZE: u64 = 16 << 20;
const BLOCK: u64 = 4096;
const UUID: [u8; 16] = [7; 16];
const JOURNAL_UUID: [u8; 16] = [8; 16];

/// The start of a journal: its magic number, and the type of a superblock of version 2.
const JOURNAL_START: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
/// Offsets of fields in this superblock, which is big-endian.
const BLOCK_SIZE: usize = 0xc;
const LENGTH: usize = 0x10;
const FIRST: usize = 0x14;
const SEQUENCE: usize = 0x18;
const START: usize = 0x1c;
const ERROR_NUMBER: usize = 0x20;
const JOURNAL_UUID_AT: usize = 0x30;
const USER_COUNT: usize = 0x40;
const CHECKSUM: usize = 0xfc;
const USERS: usize = 0x100;
const JOURNAL_BYTES: usize = 1024;

fn image() -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(SIZE);
    let mut options = MkfsOptions::new(SIZE, UUID, [1, 2, 3, 4], 1_700_000_000);
    options.block_size = Some(BLOCK as u32);
    make(&device, &options, true).unwrap();
    Arc::new(device)
}

fn superblock(device: &dyn BlockDevice) -> Superblock {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes).unwrap();
    Superblock::check(&bytes).unwrap()
}

fn change_superblock(device: &dyn BlockDevice, change: impl FnOnce(&mut Superblock)) {
    let mut changed = superblock(device);
    change(&mut changed);
    device.write_at(SUPERBLOCK_OFFSET_BYTES, &changed.encode()).unwrap();
}

/// The offset of the journal's superblock, and its bytes.
fn journal(device: &dyn BlockDevice) -> (u64, [u8; JOURNAL_BYTES]) {
    let mut bytes = [0; JOURNAL_BYTES];
    for place in (0..device.size_bytes()).step_by(BLOCK as usize) {
        device.read_at(place, &mut bytes).unwrap();
        if bytes.starts_with(&JOURNAL_START) {
            return (place, bytes);
        }
    }
    panic!("the image has no journal")
}

/// A field of the journal's superblock.
fn field(device: &dyn BlockDevice, at: usize) -> u32 {
    let (_, bytes) = journal(device);
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
}

fn open(device: &Arc<MemoryDevice>, options: MountOptions) -> drystone_ext4::Result<Ext4> {
    Ext4::open(Arc::clone(device) as Arc<dyn BlockDevice>, options)
}

fn create(fs: &Ext4, name: &[u8]) -> drystone_vfs::Result<()> {
    let context = RequestContext::superuser();
    fs.create(&context, fs.root(), name, NewNode::Regular, 0o644).map(drop)
}

fn has(fs: &Ext4, name: &[u8]) -> bool {
    fs.lookup(&RequestContext::superuser(), fs.root(), name).is_ok()
}

fn expect_sound(device: &MemoryDevice) {
    let options = drystone_fsck::CheckOptions::default();
    let report = drystone_fsck::check(device, &options, &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
}

/// An image that was not closed: a file of it is only in the log.
fn dirty() -> Arc<MemoryDevice> {
    let device = image();
    let fs = open(&device, MountOptions::default()).unwrap();
    create(&fs, b"file").unwrap();
    fs.sync().unwrap();
    drop(fs);
    assert_ne!(field(&*device, START), 0);
    device
}

/// Whatever cleared the mark may have changed the image since.
#[test]
fn the_log_of_an_image_that_is_complete_without_is_discarded() {
    let device = dirty();
    change_superblock(&*device, |superblock| superblock.set_needs_recovery(false));
    let before = field(&*device, SEQUENCE);
    let fs = open(&device, MountOptions::default()).unwrap();
    assert!(!has(&fs, b"file"));
    create(&fs, b"new").unwrap();
    fs.sync().unwrap();
    drop(fs);
    // A new log must not be continued by transactions of the old one.
    assert!(field(&*device, SEQUENCE) > before + 2);
    let fs = open(&device, MountOptions::default()).unwrap();
    assert!(has(&fs, b"new") && !has(&fs, b"file"));
    fs.close().unwrap();
    expect_sound(&device);
}

#[test]
fn an_image_whose_journal_is_refused_is_not_changed() {
    let device = image();
    let (place, _) = journal(&*device);
    // No version of a journal's superblock has this type.
    device.write_at(place + 4, &[9]).unwrap();
    let before = device.to_vec();
    for _ in 0..2 {
        assert!(open(&device, MountOptions::default()).is_err());
        assert!(device.to_vec() == before);
    }
}

/// Linux notes in the journal that it has stopped, if the superblock could not be written any more.
#[test]
fn an_error_that_has_stopped_the_journal_is_noted() {
    for policy in [ErrorPolicy::Continue, ErrorPolicy::ReadOnly] {
        let device = dirty();
        let (place, mut stopped) = journal(&*device);
        // -5, with the checksum that the journal has from its first mount on.
        put(&mut stopped, ERROR_NUMBER, 0_u32.wrapping_sub(5));
        put(&mut stopped, CHECKSUM, 0);
        let checksum = crc32c(!0, &stopped);
        put(&mut stopped, CHECKSUM, checksum);
        device.write_at(place, &stopped).unwrap();
        let options = MountOptions::default().error_policy(policy);
        let fs = open(&device, options).unwrap();
        assert!(has(&fs, b"file"));
        let created = create(&fs, b"new").map_err(|error| error.errno);
        let expected = if policy == ErrorPolicy::Continue { Ok(()) } else { Err(Errno::EROFS) };
        assert_eq!(created, expected, "{policy:?}");
        fs.close().unwrap();
        assert!(superblock(&*device).state().contains(StateFlags::ERRORS), "{policy:?}");
        assert_eq!(field(&*device, ERROR_NUMBER), 0, "{policy:?}");
        // The next mount is writable again.
        let fs = open(&device, MountOptions::default()).unwrap();
        create(&fs, b"next").unwrap();
        fs.close().unwrap();
    }
}

/// A journal on a device of its own.
fn external(uuid: [u8; 16], users: &[[u8; 16]]) -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(1024 * BLOCK);
    let mut journal = [0; JOURNAL_BYTES];
    journal[..8].copy_from_slice(&JOURNAL_START);
    let fields = [
        (BLOCK_SIZE, BLOCK as u32),
        (LENGTH, 1024),
        (FIRST, 2),
        (SEQUENCE, 1),
        (USER_COUNT, users.len() as u32),
    ];
    for (at, number) in fields {
        put(&mut journal, at, number);
    }
    journal[JOURNAL_UUID_AT..][..16].copy_from_slice(&uuid);
    journal[USERS..][..users.len() * 16].copy_from_slice(users.as_flattened());
    device.write_at(BLOCK, &journal).unwrap();
    Arc::new(device)
}

fn with_journal(device: &Arc<MemoryDevice>) -> MountOptions {
    let journal_device = Some(Arc::clone(device) as Arc<dyn BlockDevice>);
    MountOptions::default().journal_device(journal_device)
}

/// What a reader needs of it is nothing, unless it has to be replayed.
#[test]
fn an_image_without_its_external_journal_is_only_read() {
    let image = image();
    let fs = open(&image, MountOptions::default()).unwrap();
    create(&fs, b"file").unwrap();
    fs.close().unwrap();
    change_superblock(&*image, |superblock| {
        superblock.set_journal_inode(None);
        superblock.set_journal_uuid(JOURNAL_UUID);
    });
    let bytes = || {
        let mut bytes = vec![0; SIZE as usize];
        image.read_at(0, &mut bytes).unwrap();
        bytes
    };
    let before = bytes();
    let refused = |options: MountOptions| {
        let text = open(&image, options).err().unwrap().to_string();
        assert!(text.contains(&uuid::Uuid::from_bytes(JOURNAL_UUID).to_string()), "{text}");
    };
    let read_only = || MountOptions::default().read_only(true);
    let is_read = |options: MountOptions| {
        let fs = open(&image, options).unwrap();
        assert!(has(&fs, b"file") && create(&fs, b"new").is_err());
        fs.close().unwrap();
    };
    refused(MountOptions::default());
    is_read(read_only());
    change_superblock(&*image, |superblock| superblock.set_needs_recovery(true));
    refused(MountOptions::default());
    refused(read_only());
    is_read(read_only().ignore_journal(true));
    change_superblock(&*image, |superblock| superblock.set_needs_recovery(false));
    assert!(bytes() == before, "the image was changed");
}

/// Its log would be replayed over an image that it doesn't belong to.
#[test]
fn the_external_journal_of_another_image_is_refused() {
    let image = image();
    change_superblock(&*image, |superblock| {
        superblock.set_journal_inode(None);
        superblock.set_journal_uuid(JOURNAL_UUID);
    });
    let own = external(JOURNAL_UUID, &[UUID]);
    let fs = open(&image, with_journal(&own)).unwrap();
    create(&fs, b"file").unwrap();
    fs.sync().unwrap();
    drop(fs);
    let others = [
        external([9; 16], &[UUID]),
        external(JOURNAL_UUID, &[[9; 16]]),
        external(JOURNAL_UUID, &[]),
        external(JOURNAL_UUID, &[UUID, [9; 16]]),
    ];
    for other in others {
        assert!(open(&image, with_journal(&other)).is_err());
    }
    let fs = open(&image, with_journal(&own)).unwrap();
    assert!(has(&fs, b"file"));
    fs.close().unwrap();
}

/// The second close must not succeed before the first has written everything.
#[test]
fn two_closes_at_once_have_one_outcome() {
    let device = Arc::new(Stepped::new(image().snapshot()));
    let fs = Ext4::open(Arc::clone(&device) as Arc<dyn BlockDevice>, MountOptions::default());
    let fs = fs.unwrap();
    create(&fs, b"file").unwrap();
    device.hold(|operation, _, _| (operation == DeviceOperation::Write).then_some(0));
    thread::scope(|scope| {
        let first = scope.spawn(|| fs.close());
        let held = device.wait();
        let second = scope.spawn(|| fs.close());
        // Time to return too early.
        thread::sleep(Duration::from_millis(50));
        device.hold(|_, _, _| None);
        device.fail(held.number);
        assert!(first.join().unwrap().is_err() && second.join().unwrap().is_err());
    });
}
