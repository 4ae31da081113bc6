//! Orphans: recording, recovering and freeing them, with every variant and every pair of variants.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions};
use drystone_ext4_format::features::Features;
use drystone_ext4_format::superblock::{
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, StateFlags, Superblock,
};
use drystone_sync::{Arc, thread};
use drystone_vfs::{
    Entry, FileSystem, InodeNumber, NewNode, RequestContext, SetAttributes, SetTime, Timestamp,
};

const SIZE_MIB: u64 = 48;
const FORMS: [&str; 4] =
    ["orphans=list", "orphans=file-locked", "orphans=file", "orphans=per-core"];

fn image(features: &str) -> MemoryDevice {
    let change = Features::parse(features).unwrap();
    support::image_with(SIZE_MIB, |options| options.features = options.features.apply(&change))
}

fn judge(device: &MemoryDevice) {
    support::judge(device, "orphans");
}

fn open(device: &Arc<MemoryDevice>, policy: &str) -> Ext4 {
    let device: Arc<dyn BlockDevice> = Arc::clone(device) as Arc<dyn BlockDevice>;
    let policy = policy.parse().unwrap();
    Ext4::open(device, MountOptions::default().policy(policy)).unwrap()
}

fn new_file(fs: &Ext4, parent: InodeNumber, name: &str, bytes: usize) -> Entry {
    let context = RequestContext::superuser();
    let file = fs.create(&context, parent, name.as_bytes(), NewNode::Regular, 0o644).unwrap();
    assert_eq!(fs.write(&context, file.inode, 0, &vec![b'x'; bytes]).unwrap(), bytes);
    file
}

/// Makes `count` files that are in use and have no names.
fn unlinked_files(fs: &Ext4, count: usize) -> Vec<Entry> {
    let context = RequestContext::superuser();
    let files =
        (0..count).map(|number| new_file(fs, fs.root(), &format!("gone{number}"), 5000)).collect();
    for number in 0..count {
        fs.unlink(&context, fs.root(), format!("gone{number}").as_bytes()).unwrap();
    }
    files
}

#[test]
fn a_crash_gives_everything_back_whatever_form_comes_next() {
    for before in FORMS {
        for after in FORMS {
            let device = Arc::new(image(""));
            let fs = open(&device, before);
            let free = fs.statistics().unwrap();
            unlinked_files(&fs, 20);
            let unnamed =
                fs.create_unnamed(&RequestContext::superuser(), fs.root(), 0o600).unwrap();
            fs.write(&RequestContext::superuser(), unnamed.inode, 0, b"data").unwrap();
            fs.sync().unwrap();
            let crashed = Arc::new(device.snapshot());
            drop(fs);

            let fs = open(&crashed, after);
            assert_eq!(fs.statistics().unwrap(), free, "{before} then {after}");
            fs.close().unwrap();
            judge(&crashed);
        }
    }
}

/// In an image that is marked as damaged.
#[test]
fn orphans_that_are_left_to_a_checker_stay_on_the_record() {
    const GROUP_DESCRIPTOR: u64 = 4096 + 64;
    let superblock = |device: &MemoryDevice| {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes).unwrap();
        Superblock::check(&bytes).unwrap()
    };
    for form in FORMS {
        let device = support::image_with(256, |options| options.block_size = Some(4096));
        // The free blocks of the second group. The first commit marks the image for that.
        device.write_at(GROUP_DESCRIPTOR + 0xc, &[0x11; 2]).unwrap();
        let device = Arc::new(device);
        let fs = open(&device, form);
        let free = fs.statistics().unwrap();
        unlinked_files(&fs, 3);
        fs.sync().unwrap();
        let crashed = Arc::new(device.snapshot());
        drop(fs);
        let fs = open(&crashed, form);
        for file in unlinked_files(&fs, 3) {
            fs.forget(file.inode, 1);
        }
        fs.close().unwrap();
        let mut marked = superblock(&crashed);
        assert!(marked.state().contains(StateFlags::ERRORS));
        marked.set_state(marked.state() - StateFlags::ERRORS);
        crashed.write_at(SUPERBLOCK_OFFSET_BYTES, &marked.encode()).unwrap();
        let fs = open(&crashed, form);
        assert_eq!(fs.statistics().unwrap(), free, "{form}");
        fs.close().unwrap();
    }
}

#[test]
fn closing_frees_what_callers_still_hold() {
    for form in FORMS {
        let device = Arc::new(image(""));
        let fs = open(&device, form);
        unlinked_files(&fs, 10);
        fs.close().unwrap();
        judge(&device);
    }
}

#[test]
fn a_full_file_falls_back_to_the_list() {
    for form in ["orphans=file", "orphans=file-locked", "orphans=per-core"] {
        let device = Arc::new(image(""));
        let fs = open(&device, form);
        // 32 blocks of 254 slots in 1 KiB blocks.
        let free = fs.statistics().unwrap();
        let context = RequestContext::superuser();
        let unnamed: Vec<Entry> =
            (0..8200).map(|_| fs.create_unnamed(&context, fs.root(), 0o600).unwrap()).collect();
        fs.sync().unwrap();
        let crashed = Arc::new(device.snapshot());
        for file in unnamed {
            fs.forget(file.inode, 1);
        }
        fs.sync().unwrap();
        assert_eq!(fs.statistics().unwrap(), free);
        fs.close().unwrap();
        judge(&device);

        let fs = open(&crashed, form);
        assert_eq!(fs.statistics().unwrap(), free, "{form}");
        fs.close().unwrap();
        judge(&crashed);
    }
}

#[test]
fn an_image_without_the_feature_uses_the_list() {
    let device = Arc::new(image("^orphan_file"));
    let fs = open(&device, "scalable");
    unlinked_files(&fs, 5);
    fs.close().unwrap();
    judge(&device);
    for form in ["orphans=file", "orphans=file-locked", "orphans=per-core"] {
        let options = MountOptions::default().policy(form.parse().unwrap());
        let device = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let refused = Ext4::open(device, options).unwrap_err().to_string();
        assert!(refused.contains("orphan_file") && refused.contains(form), "{refused}");
    }
}

#[test]
fn cutting_leaves_no_record() {
    for form in FORMS {
        let device = Arc::new(image(""));
        let fs = Arc::new(open(&device, form));
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let fs = Arc::clone(&fs);
                thread::spawn("cutter", move || {
                    let context = RequestContext::superuser();
                    let file = new_file(&fs, fs.root(), &format!("file{worker}"), 3000);
                    for size in (0..3000).rev().step_by(3) {
                        let cut = SetAttributes { size: Some(size), ..SetAttributes::default() };
                        fs.set_attributes(&context, file.inode, &cut).unwrap();
                    }
                    fs.forget(file.inode, 1);
                })
                .unwrap()
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        fs.close().unwrap();
        judge(&device);
    }
}

/// A truncation that a crash interrupts is finished by the next mount, also if the file has a name.
#[test]
fn a_long_cut_is_finished_after_a_crash() {
    for form in FORMS {
        let device = Arc::new(image("^extent,^64bit"));
        let fs = open(&device, form);
        let context = RequestContext::superuser();
        let file = new_file(&fs, fs.root(), "long", 20 << 20);
        fs.sync().unwrap();
        let cut = SetAttributes { size: Some(100), ..SetAttributes::default() };
        fs.set_attributes(&context, file.inode, &cut).unwrap();
        fs.sync().unwrap();
        let crashed = Arc::new(device.snapshot());
        drop(fs);
        let fs = open(&crashed, form);
        let found = fs.lookup(&context, fs.root(), b"long").unwrap();
        assert_eq!(found.size, 100);
        fs.close().unwrap();
        judge(&crashed);
    }
}

/// A truncation frees space past the end, even if it leaves the size as it is.
#[test]
fn a_cut_to_the_same_size_frees_what_was_allocated_ahead() {
    let device = Arc::new(image(""));
    let fs = open(&device, "scalable");
    let context = RequestContext::superuser();
    let file = new_file(&fs, fs.root(), "ahead", 1000);
    let before = fs.attributes(file.inode).unwrap().sectors;
    let ahead = drystone_vfs::FallocateMode::Allocate { keep_size: true };
    fs.fallocate(&context, file.inode, ahead, 0, 1 << 20).unwrap();
    assert!(fs.attributes(file.inode).unwrap().sectors > before);
    let cut = SetAttributes { size: Some(1000), ..SetAttributes::default() };
    assert_eq!(fs.set_attributes(&context, file.inode, &cut).unwrap().sectors, before);
    fs.close().unwrap();
    judge(&device);
}

/// Times of a file without a name are shown, but change without a handle: nothing will read them later.
#[test]
fn times_of_an_unlinked_file_are_kept_in_memory() {
    let device = Arc::new(image(""));
    let fs = open(&device, "scalable");
    let context = RequestContext::superuser();
    let file = unlinked_files(&fs, 1)[0];
    let at = Timestamp { seconds: 1_600_000_000, nanoseconds: 5 };
    let changes = SetAttributes {
        modified: Some(SetTime::At(at)),
        changed: Some(at),
        ..SetAttributes::default()
    };
    fs.sync().unwrap();
    let handles = || fs.engine_statistics().journal.handles_started;
    let before = handles();
    let shown = fs.set_attributes(&context, file.inode, &changes).unwrap();
    assert_eq!((shown.modified, shown.changed), (at, at));
    assert_eq!(fs.attributes(file.inode).unwrap().modified, at);
    assert_eq!(handles(), before);
    // The next change of the file also writes them to the image.
    assert_eq!(fs.write(&context, file.inode, 0, b"more").unwrap(), 4);
    fs.forget(file.inode, 1);
    fs.close().unwrap();
    judge(&device);
}

/// Threads that cut files of two images in turn keep slots only for a while. A crash finds no orphan in
/// a kept slot without a cut under way, and files that lose their name afterwards are recorded.
#[test]
fn slots_that_threads_keep_are_nobodys_orphans() {
    let devices = [Arc::new(image("")), Arc::new(image(""))];
    let form = "orphans=per-core";
    let mounts = Arc::new([open(&devices[0], form), open(&devices[1], form)]);
    let free = mounts[0].statistics().unwrap();
    for round in 0..3 {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let mounts = Arc::clone(&mounts);
                thread::spawn("cutter", move || {
                    let context = RequestContext::superuser();
                    let name = format!("file{round}-{worker}");
                    let files: Vec<Entry> =
                        mounts.iter().map(|fs| new_file(fs, fs.root(), &name, 3000)).collect();
                    for size in (2900..3000).rev() {
                        for (fs, file) in mounts.iter().zip(&files) {
                            let cut =
                                SetAttributes { size: Some(size), ..SetAttributes::default() };
                            fs.set_attributes(&context, file.inode, &cut).unwrap();
                        }
                    }
                    // In use without a name, cut again, and half of them forgotten.
                    for (fs, file) in mounts.iter().zip(&files) {
                        fs.unlink(&context, fs.root(), name.as_bytes()).unwrap();
                        let cut = SetAttributes { size: Some(10), ..SetAttributes::default() };
                        fs.set_attributes(&context, file.inode, &cut).unwrap();
                        if worker % 2 == 0 {
                            fs.forget(file.inode, 1);
                        }
                    }
                })
                .unwrap()
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
    }
    for (device, fs) in devices.iter().zip(mounts.iter()) {
        fs.sync().unwrap();
        let crashed = Arc::new(device.snapshot());
        let reopened = open(&crashed, form);
        assert_eq!(reopened.statistics().unwrap(), free);
        reopened.close().unwrap();
        judge(&crashed);
    }
}
