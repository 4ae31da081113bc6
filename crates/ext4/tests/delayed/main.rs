//! Delayed allocation: except in a crash, data that waits for blocks behaves like data that has them,
//! and its claims are kept.
#![allow(clippy::unwrap_used, reason = "a test")]

mod crash;
mod faults;
mod moments;
mod space;
#[path = "../support/mod.rs"]
mod support;

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions};
use drystone_mkfs::MkfsOptions;
use drystone_sync::{Arc, thread};
use drystone_testkit::comparison::{Tolerance, check_seeds};
use drystone_testkit::environment::number;
use drystone_testkit::judges::FeatureSet;
use drystone_testkit::model::MemoryFileSystem;
use drystone_testkit::operations::Profile;
use drystone_vfs::{
    ExtentFlags, FileSystem, InodeNumber, NewNode, RenameFlags, RequestContext, SeekFrom,
    SetAttributes,
};
use std::time::Duration;
use support::judge;

const BLOCK: u64 = 4096;

fn image(mib: u64) -> Arc<MemoryDevice> {
    let change = |options: &mut MkfsOptions| options.block_size = Some(BLOCK as u32);
    Arc::new(support::image_with(mib, change))
}

fn mount(device: &Arc<impl BlockDevice + 'static>, options: MountOptions) -> Ext4 {
    Ext4::open(Arc::clone(device) as Arc<dyn BlockDevice>, options).unwrap()
}

fn open_with(device: &Arc<MemoryDevice>, delayed_allocation: bool) -> Ext4 {
    let options =
        MountOptions::default().delayed_allocation(delayed_allocation).extent_status_bytes(32 * 64);
    mount(device, options)
}

/// Options with which no data is written because time passes.
fn unhurried() -> MountOptions {
    MountOptions::default().commit_interval(Duration::from_secs(3600))
}

fn open(device: &Arc<MemoryDevice>) -> Ext4 {
    open_with(device, true)
}

fn new_file(fs: &Ext4, name: &str) -> InodeNumber {
    let context = RequestContext::superuser();
    fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644).unwrap().inode
}

fn read_all(fs: &Ext4, file: InodeNumber) -> Vec<u8> {
    let mut data = vec![0; fs.attributes(file).unwrap().size as usize];
    let length = fs.read(file, 0, &mut data).unwrap();
    assert_eq!(length, data.len());
    data
}

/// The content of the file `f` in the image on a device.
fn content_of_f(device: &Arc<MemoryDevice>) -> Vec<u8> {
    let fs = open(device);
    let file = fs.lookup(&RequestContext::superuser(), fs.root(), b"f").unwrap().inode;
    let content = read_all(&fs, file);
    fs.close().unwrap();
    content
}

#[test]
fn random_operations_end_as_in_the_model() {
    let set = FeatureSet::by_name("modern-1k").unwrap();
    let device = support::image(64);
    let count = number("DRYSTONE_OPERATIONS").unwrap_or(800) as usize;
    for (seed, profile) in (100..).zip(Profile::ALL) {
        let profile = set.with_fitting_xattrs(profile.clone());
        check_seeds(seed..seed + 2, &profile, count, Tolerance::default(), |run| {
            let device = Arc::new(device.snapshot());
            let fs = open(&device);
            run(&fs, &MemoryFileSystem::new(set.configuration()));
            fs.close().unwrap();
            judge(&device, profile.name);
        });
    }
}

#[test]
fn it_shows_as_data_that_has_no_place_yet() {
    let device = image(64);
    let fs = open(&device);
    let context = RequestContext::superuser();
    let free = fs.statistics().unwrap().blocks_free;
    let file = new_file(&fs, "f");
    fs.write(&context, file, 2 * BLOCK + 100, b"here").unwrap();
    fs.write(&context, file, 3 * BLOCK, &[1; BLOCK as usize]).unwrap();
    let attributes = fs.attributes(file).unwrap();
    assert_eq!((attributes.size, attributes.sectors), (4 * BLOCK, 16));
    assert!(fs.statistics().unwrap().blocks_free < free);
    let extents = fs.extents(file, 0, 100 * BLOCK, 10).unwrap();
    assert_eq!(extents.len(), 1);
    assert_eq!((extents[0].logical, extents[0].length), (2 * BLOCK, 2 * BLOCK));
    assert!(extents[0].flags.contains(ExtentFlags::DELAYED | ExtentFlags::LAST));
    assert_eq!(fs.seek(file, SeekFrom::Data(0)).unwrap(), 2 * BLOCK);
    assert_eq!(fs.seek(file, SeekFrom::Hole(2 * BLOCK)).unwrap(), 4 * BLOCK);
    let before = read_all(&fs, file);
    assert_eq!(&before[2 * BLOCK as usize + 100..][..4], b"here");
    fs.sync_inode(file, true).unwrap();
    let extents = fs.extents(file, 0, 100 * BLOCK, 10).unwrap();
    assert_eq!((extents.len(), extents[0].length), (1, 2 * BLOCK));
    assert!(!extents[0].flags.contains(ExtentFlags::DELAYED));
    assert_eq!(fs.attributes(file).unwrap().sectors, 16);
    assert_eq!(read_all(&fs, file), before);
    fs.close().unwrap();
    judge(&device, "after it got its place");
}

#[test]
fn many_small_appends_end_in_one_extent() {
    let device = image(64);
    let fs = open(&device);
    let context = RequestContext::superuser();
    let files: Vec<_> = (0..8).map(|number| new_file(&fs, &format!("f{number}"))).collect();
    for block in 0..300 {
        for &file in &files {
            fs.write(&context, file, block * BLOCK, &[block as u8; BLOCK as usize]).unwrap();
        }
    }
    fs.sync().unwrap();
    for &file in &files {
        assert_eq!(fs.extents(file, 0, u64::MAX, 10).unwrap().len(), 1);
    }
    fs.close().unwrap();
    judge(&device, "after interleaved appends");
}

#[test]
fn threads_write_and_sync_side_by_side() {
    let device = image(128);
    let fs = open(&device);
    thread::scope(|scope| {
        for worker in 0..4_u64 {
            let fs = &fs;
            scope.spawn(move || {
                let context = RequestContext::superuser();
                let mut random = fastrand::Rng::with_seed(worker);
                let file = new_file(fs, &format!("f{worker}"));
                let mut expected = vec![0_u8; 400_000];
                let mut size = 0;
                for _ in 0..800 {
                    let offset = random.usize(..390_000);
                    let data = vec![random.u8(..); random.usize(1..9000)];
                    match random.u32(..30) {
                        0 => fs.sync_inode(file, random.bool()).unwrap(),
                        1 => fs.sync().unwrap(),
                        _ => {
                            fs.write(&context, file, offset as u64, &data).unwrap();
                            let end = offset + data.len();
                            expected[offset..end].copy_from_slice(&data);
                            size = size.max(end);
                        }
                    }
                    if random.u32(..20) == 0 {
                        assert!(read_all(fs, file) == expected[..size], "worker {worker}");
                    }
                }
                assert!(read_all(fs, file) == expected[..size], "worker {worker}");
            });
        }
    });
    fs.close().unwrap();
    judge(&device, "after threads");
}
