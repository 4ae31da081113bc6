//! Crashes while an image is made as small as it can be.
//!
//! Every write to the image and to its undo log is recorded, and the record is cut anywhere. The image then
//! goes back by the log, or is whole as it is: both checkers find it clean, with the files that it had.
//!
//! - `DRYSTONE_CRASH_IMAGES=n` makes n images; `./dev crash --images n` sets it.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::fsck::CheckOptions;
use drystone::reshape::{FreeSpaceAction, NewSize, clear_free_space, resize};
use drystone::{Image, check_image};
use drystone_blockdev::{
    BlockDevice, FileDevice, MemoryDevice, OpenMode, Recording, Region, UndoDevice, UndoFile,
};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES};
use drystone_sync::Arc;
use drystone_testkit::crash::CrashImages;
use drystone_testkit::environment::number;
use drystone_testkit::judges::{FeatureSet, Scratch, e2fsck_check, have, mke2fs};
use drystone_testkit::tree::{TreeOptions, TreeSnapshot, diff};
use std::path::Path;

const IMAGE_BYTES: u64 = 24 << 20;
const LOG_BYTES: u64 = 32 << 20;
const IMAGES_DEFAULT: u64 = 16;
const NOW_SECONDS: u64 = 1_700_000_000;
/// Two kinds of images share the number that was asked for.
const KINDS: [&str; 2] = ["default-1k", "flex-bg-wide"];

#[test]
fn a_compacted_image_is_whole_or_goes_back() {
    if !have("mke2fs") {
        return;
    }
    let count = number("DRYSTONE_CRASH_IMAGES").unwrap_or(IMAGES_DEFAULT).div_ceil(2);
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    for name in KINDS {
        let scratch = Scratch::new(&format!("compact-{name}")).unwrap();
        let path = scratch.join("disk.img");
        let set = FeatureSet::by_name(name).unwrap();
        mke2fs(&path, set, IMAGE_BYTES).unwrap().expect_clean(name);
        fill(&path);
        let before = tree(&path);
        let base = MemoryDevice::new(IMAGE_BYTES + LOG_BYTES);
        base.write_at(0, &std::fs::read(&path).unwrap()).unwrap();
        let recording = Arc::new(Recording::new(base.snapshot()));
        compact(&recording);
        let superblock = SUPERBLOCK_OFFSET_BYTES..SUPERBLOCK_OFFSET_BYTES + SUPERBLOCK_BYTES as u64;
        let images = CrashImages::new(&base, recording.events(), seed).unwrap();
        let (mut gone_back, mut whole) = (0, 0);
        for crash in images.keeping_whole(superblock).take(count as usize) {
            let crash = crash.unwrap();
            let what = format!("{name}, DRYSTONE_SEED={seed}: {}", crash.description);
            let mut bytes = vec![0; (IMAGE_BYTES + LOG_BYTES) as usize];
            crash.device.read_at(0, &mut bytes).unwrap();
            let (image, log) = bytes.split_at(IMAGE_BYTES as usize);
            std::fs::write(&path, image).unwrap();
            let undo = UndoFile::beside(&path);
            std::fs::write(undo.path(), log).unwrap();
            let file = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
            match undo.settle(&file).unwrap_or_else(|error| panic!("{what}: {error}")) {
                true => gone_back += 1,
                false => whole += 1,
            }
            drop(file);
            judge(&path, &before, &what);
        }
        assert!(gone_back > 0 && whole > 0, "{name}: {gone_back} and {whole}");
    }
}

/// What `drystone compact` does. The log is where its file would be.
fn compact(recording: &Arc<Recording<MemoryDevice>>) {
    let image = Region::new(Arc::clone(recording), 0, IMAGE_BYTES).unwrap();
    let log = Region::new(Arc::clone(recording), IMAGE_BYTES, LOG_BYTES).unwrap();
    let device = UndoDevice::begin(&image, log, IMAGE_BYTES).unwrap();
    let resized = resize(&device, NewSize::Minimum, NOW_SECONDS, &mut |_| {}).unwrap();
    assert!(resized.blocks_moved > 100, "{resized:?}");
    device.finish().unwrap();
    let image: &dyn BlockDevice = &image;
    clear_free_space(&image, FreeSpaceAction::Discard, NOW_SECONDS, &mut |_, _| {}).unwrap();
}

/// Files all over the image, of which every second one goes.
fn fill(path: &Path) {
    let image = Image::open(path).unwrap();
    let fs = image.fs();
    let mut random = fastrand::Rng::with_seed(7);
    for directory in 0..20 {
        fs.create_dir(format!("/{directory}")).unwrap();
        for file in 0..12 {
            let content = vec![random.u8(1..); random.usize(..90_000)];
            fs.write(format!("/{directory}/{file}"), content).unwrap();
        }
    }
    fs.sync().unwrap();
    for file in (0..20).flat_map(|directory| (0..6).map(move |file| (directory, 2 * file))) {
        fs.remove_file(format!("/{}/{}", file.0, file.1)).unwrap();
    }
    image.close().unwrap();
}

fn tree(path: &Path) -> TreeSnapshot {
    let image = Image::options().read_only(true).open(path).unwrap();
    let options = TreeOptions { times: true, flags: true, ..TreeOptions::default() };
    let tree = TreeSnapshot::read(image.file_system(), "/", &options).unwrap();
    image.close().unwrap();
    tree
}

fn judge(path: &Path, before: &TreeSnapshot, what: &str) {
    e2fsck_check(path).unwrap().expect_clean(what);
    let report = check_image(path, &CheckOptions::default(), &mut |_| {}).unwrap();
    let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    assert!(report.is_clean(), "{what}: {}", problems.join("\n"));
    let differences = diff(before, &tree(path));
    assert!(differences.is_empty(), "{what}: {}", differences.join("\n"));
}
