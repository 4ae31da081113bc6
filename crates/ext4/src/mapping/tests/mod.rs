//! Mappings in images that mke2fs makes, judged by e2fsck.

mod damaged;
mod foreign;
mod tester;

use super::*;
use crate::Ext4;
use crate::mount::MountOptions;
use crate::testing::ImageFile;
use drystone_blockdev::{BlockDevice, MemoryDevice, Recording};
use drystone_ext4_format::InodeNumber;
use drystone_sync::Arc;
use drystone_testkit::crash::CrashImages;
use drystone_testkit::judges::{debugfs, have, kernel_mount, run, write_image};
use drystone_vfs::RequestContext;
use tester::Tester;

/// Arguments for mke2fs, and whether files get extent trees.
const SHAPES: &[(&str, bool)] = &[
    ("-t ext4 -b 1024", true),
    ("-t ext4 -b 1024 -O ^has_journal,^metadata_csum,^64bit -g 1024", true),
    ("-t ext4 -b 4096 -O ^has_journal", true),
    ("-t ext4 -b 1024 -O ^has_journal,bigalloc -C 8192", true),
    ("-t ext4 -b 4096 -O bigalloc -C 65536", true),
    ("-t ext2 -b 1024", false),
    ("-t ext3 -b 2048 -g 2048", false),
    ("-t ext4 -b 4096 -O ^extents,^64bit", false),
];

const IMAGE_BYTES: u64 = 48 << 20;
const STEPS: usize = 2500;
/// Random changes stay below this block of the file.
const SPAN: u32 = 3000;

/// An image with an empty file `f`; `None` if a tool is missing.
fn image_with_file(arguments: &str, bytes: u64) -> Option<ImageFile> {
    if !have("debugfs") {
        return None;
    }
    let image = ImageFile::new(arguments, bytes)?;
    let empty = image.scratch.join("empty");
    std::fs::write(&empty, "").expect("a file");
    let request = format!("write {} f", empty.display());
    let written = run("debugfs", ["-w", "-R", &request, &image.path.to_string_lossy()]);
    written.expect("debugfs runs").expect_clean("debugfs");
    Some(image)
}

/// The inode of a file in the root directory.
fn inode_of(image: &ImageFile, fs: &Ext4, name: &str) -> Arc<Inode> {
    let said = debugfs(&image.path, &format!("stat {name}")).expect("debugfs runs").output;
    let number = said.split("Inode: ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let number = number.and_then(|number| number.parse().ok());
    fs.inode(InodeNumber::new(number.expect("an inode number"))).expect("an inode")
}

/// Closes a mount, so that the image is free again.
fn close(fs: Ext4) {
    fs.close().expect("a clean end");
}

fn random_changes(arguments: &str, extents: bool, seed: u64) {
    let Some(image) = image_with_file(arguments, IMAGE_BYTES) else { return };
    let what = format!("mke2fs {arguments}, seed {seed}");
    let mut tester = Tester::new(&image, seed);
    assert_eq!(has_extents(&tester.inode), extents);
    for step in 0..STEPS {
        tester.step();
        if step % 64 == 0 {
            tester.check();
        }
    }
    tester.check();
    close(tester.fs);
    image.check(&what);

    // The image agrees with the model after a new mount, and everything can be removed.
    let model = tester.model;
    let fs = image.open();
    let inode = inode_of(&image, &fs, "f");
    let random = fastrand::Rng::with_seed(seed);
    let context = RequestContext::superuser();
    let mut tester = Tester { fs, inode, model, random, context };
    tester.check();
    let used = tester.inode.fields().disk.sectors;
    assert_eq!(used == 0, tester.model.is_empty());
    {
        let _content = tester.inode.content().write();
        remove_all(&tester.fs, &tester.inode, LogicalBlock::FIRST).expect("a removal");
    }
    assert_eq!(tester.inode.fields().disk.sectors, 0);
    assert!(is_empty_root(&tester.inode.fields().disk));
    close(tester.fs);
    image.check(&what);
}

#[test]
fn random_changes_keep_images_sound() {
    for (seed, (arguments, extents)) in SHAPES.iter().enumerate() {
        random_changes(arguments, *extents, seed as u64);
    }
}

#[test]
fn a_full_image_keeps_what_it_has() {
    for (arguments, _) in [
        ("-t ext4 -b 1024 -O ^has_journal", true),
        ("-t ext4 -b 1024 -O ^has_journal,bigalloc -C 4096", true),
        ("-t ext2 -b 1024", false),
    ] {
        let Some(image) = image_with_file(arguments, 2 << 20) else { return };
        let mut tester = Tester::new(&image, 1);
        // Every other block, so that the mapping itself takes as much space as possible.
        let full = (0..4 * SPAN / 2).find(|block| !tester.insert(2 * block, 1));
        assert!(full.is_some(), "mke2fs {arguments}: the image was never full");
        tester.check();
        // Freed blocks can be used again.
        tester.remove(100, 200);
        assert!(tester.insert(150, 1));
        tester.check();
        close(tester.fs);
        image.check(arguments);
    }
}

/// An image that ends within a cluster, as e2fsck accepts it.
#[test]
fn the_last_cluster_may_be_short() {
    let arguments = "-t ext4 -b 1024 -O ^has_journal,bigalloc -C 16384";
    let Some(image) = image_with_file(arguments, 4 << 20) else { return };
    let request = "ssv blocks_count 4085";
    let set = run("debugfs", ["-w", "-R", request, &image.path.to_string_lossy()]);
    set.expect("debugfs runs").expect_clean("debugfs");
    let mut tester = Tester::new(&image, 1);
    assert!(tester.insert(15, 1));
    // A block at the same distance from the first one on the device as in the file.
    let (first, _) = tester.model[&15];
    let last = 15 + (4080 + 15 - first) as u32;
    assert!(!tester.insert(last, 1), "the last cluster lacks its last block");
    tester.check();
    assert!(tester.insert(last - 15, 1));
    tester.check();
    close(tester.fs);
    image.check(arguments);
}

#[test]
fn a_crash_at_any_time_leaves_a_sound_mapping() {
    for (seed, arguments) in ["-t ext4 -b 1024", "-t ext3 -b 1024"].into_iter().enumerate() {
        let seed = seed as u64;
        let Some(image) = image_with_file(arguments, 16 << 20) else { return };
        let bytes = std::fs::read(&image.path).expect("an image");
        let base = MemoryDevice::from_bytes(&bytes);
        let recording = Arc::new(Recording::new(base.snapshot()));
        let device: Arc<dyn BlockDevice> = Arc::clone(&recording) as _;
        let fs = Ext4::open(device, MountOptions::default()).expect("a mount");
        let mut tester = Tester::on(&image, fs, seed);
        for step in 0..800 {
            tester.step();
            if step % 50 == 0 {
                tester.fs.volume.journal.commit_and_wait().expect("a commit");
            }
        }
        tester.check();
        close(tester.fs);

        let events = recording.take_events();
        let crashes = CrashImages::new(&base, events, seed).expect("a recording");
        for crash in crashes.take(30) {
            let crash = crash.expect("a crash image");
            let what = format!("mke2fs {arguments}: {}", crash.description);
            let device = Arc::new(crash.device);
            let fs = Ext4::open(Arc::clone(&device) as _, MountOptions::default());
            close(fs.unwrap_or_else(|error| panic!("{what}: {error}")));
            write_image(&*device, &image.path).expect("an image");
            image.check(&what);
        }
    }
}

#[test]
fn a_cut_of_many_groups_goes_in_steps() {
    let Some(image) = image_with_file("-t ext4 -b 1024 -O ^has_journal -g 256", IMAGE_BYTES) else {
        return;
    };
    let mut tester = Tester::new(&image, 1);
    for block in 0..40 {
        assert!(tester.insert(block * 200, 200));
    }
    let steps = {
        let Tester { fs, inode, .. } = &tester;
        let _content = inode.content().write();
        let (mut steps, mut end) = (1, END);
        loop {
            let mut handle = fs.volume.start(credits::CUT).expect("a handle");
            let step = remove(fs, &mut handle, inode, LogicalBlock::FIRST, end);
            match fs.settle(handle, step).expect("a removal") {
                StepProgress::Done => break steps,
                StepProgress::More { next } => end = next,
            }
            steps += 1;
        }
    };
    assert!(steps > 2, "all in {steps} steps");
    tester.model.clear();
    tester.check();
    close(tester.fs);
    image.check("cut");
}
