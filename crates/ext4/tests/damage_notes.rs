//! Damage is noted where the next mount and a checker see it, whenever it was found.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions};
use drystone_ext4_format::features::{Incompat, ReadOnlyCompat};
use drystone_ext4_format::superblock::ErrorPolicy;
use drystone_sync::Arc;
use drystone_vfs::{Errno, FileSystem, InodeNumber, NewNode, RequestContext};
use std::time::Duration;
use support::image_with;

const BLOCK: usize = 4096;

fn open(device: &Arc<MemoryDevice>, policy: ErrorPolicy) -> Ext4 {
    let options = MountOptions::default().commit_interval(Duration::from_secs(3600));
    let device = Arc::clone(device) as Arc<dyn BlockDevice>;
    Ext4::open(device, options.error_policy(policy)).unwrap()
}

/// An image of two groups with a file of one block. Returns the block's offset, too.
fn image(has_checksums: bool) -> (Arc<MemoryDevice>, u64) {
    let device = Arc::new(image_with(256, |options| {
        options.block_size = Some(BLOCK as u32);
        if !has_checksums {
            options.features.read_only_compat -= ReadOnlyCompat::METADATA_CSUM;
            options.features.incompat -= Incompat::CSUM_SEED;
        }
    }));
    let fs = open(&device, ErrorPolicy::Continue);
    let file = create(&fs, "file").unwrap();
    fs.write(&RequestContext::superuser(), file, 0, &[7; BLOCK]).unwrap();
    fs.sync().unwrap();
    let place = fs.extents(file, 0, u64::MAX, 1).unwrap()[0].physical;
    fs.close().unwrap();
    (device, place)
}

fn create(fs: &Ext4, name: &str) -> Result<InodeNumber, Errno> {
    let me = RequestContext::superuser();
    let made = fs.create(&me, fs.root(), name.as_bytes(), NewNode::Regular, 0o644);
    made.map(|made| made.inode).map_err(|error| error.errno)
}

fn unlink(fs: &Ext4) -> Result<(), Errno> {
    let removed = fs.unlink(&RequestContext::superuser(), fs.root(), b"file");
    removed.map_err(|error| error.errno)
}

fn has_errors(device: &MemoryDevice) -> bool {
    let mut state = [0; 2];
    // `s_state`, in the superblock at byte 1024.
    device.read_at(1024 + 0x3a, &mut state).unwrap();
    u16::from_le_bytes(state) & 2 != 0
}

/// Damages the block bitmap of the group that has the byte at `place`. Where it is is in the group's
/// descriptor.
fn damage_block_bitmap(device: &MemoryDevice, place: u64) {
    let group = place / (128 << 20);
    let mut field = [0; 4];
    device.read_at(BLOCK as u64 + 64 * group, &mut field).unwrap();
    let place = u64::from(u32::from_le_bytes(field)) * BLOCK as u64;
    device.write_at(place + 2000, &[0x55; 8]).unwrap();
}

/// Lets the file's extent lead to a block that is free.
fn damage_extent(device: &MemoryDevice, place: u64) {
    let old = (place / BLOCK as u64) as u32;
    let mut extent = [0; 12];
    // The first block of the file, the length, and the upper and lower bits of the block.
    extent[4] = 1;
    extent[8..].copy_from_slice(&old.to_le_bytes());
    let mut block = [0; BLOCK];
    for start in (0..device.size_bytes()).step_by(BLOCK) {
        device.read_at(start, &mut block).unwrap();
        let found = (0..BLOCK - 12).step_by(4).filter(|at| block[*at..*at + 12] == extent);
        for at in found.collect::<Vec<_>>() {
            device.write_at(start + at as u64 + 8, &(old + 2000).to_le_bytes()).unwrap();
        }
    }
}

#[test]
fn damage_that_stops_the_journal_is_told_to_the_next_mount() {
    for policy in [ErrorPolicy::Continue, ErrorPolicy::ReadOnly] {
        let (device, place) = image(false);
        damage_extent(&device, place);
        let fs = open(&device, policy);
        let file = fs.lookup(&RequestContext::superuser(), fs.root(), b"file").unwrap().inode;
        unlink(&fs).unwrap();
        fs.forget(file, 1);
        assert_eq!(create(&fs, "other"), Err(Errno::EROFS), "the journal runs on");
        assert!(fs.close().is_err());
        let fs = open(&device, policy);
        assert!(has_errors(&device), "{policy:?}");
        let created = create(&fs, "other").map(|_| ());
        let expected = if policy == ErrorPolicy::Continue { Ok(()) } else { Err(Errno::EROFS) };
        assert_eq!(created, expected, "{policy:?}");
        fs.close().unwrap();
    }
}

/// The blocks of the deleted file are lost until a checker looks, so it has to know of them.
#[test]
fn the_transaction_that_does_without_a_group_notes_that() {
    let (device, place) = image(true);
    damage_block_bitmap(&device, place);
    let fs = open(&device, ErrorPolicy::Continue);
    unlink(&fs).unwrap();
    create(&fs, "other").unwrap();
    fs.sync().unwrap();
    let crashed = Arc::new(device.snapshot());
    fs.close().unwrap();
    assert!(has_errors(&device), "after a close");
    open(&crashed, ErrorPolicy::Continue).close().unwrap();
    assert!(has_errors(&crashed), "after a crash");
}

#[test]
fn a_mount_turns_read_only_once_it_lacks_a_group() {
    let (device, place) = image(true);
    damage_block_bitmap(&device, place);
    let fs = open(&device, ErrorPolicy::ReadOnly);
    unlink(&fs).unwrap();
    let _ = fs.sync();
    assert_eq!(create(&fs, "other"), Err(Errno::EROFS));
    drop(fs);
    open(&device, ErrorPolicy::Continue).close().unwrap();
    assert!(has_errors(&device));
}

#[test]
fn a_bad_group_descriptor_is_noted_although_nothing_changes() {
    let (device, _) = image(true);
    // `bg_free_blocks_count_lo` of the second group, against the descriptor's checksum.
    device.write_at(BLOCK as u64 + 64 + 0xc, &[0x11; 2]).unwrap();
    open(&device, ErrorPolicy::Continue).close().unwrap();
    assert!(has_errors(&device));
}
