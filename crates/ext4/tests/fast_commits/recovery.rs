//! Recoveries, and the comparisons afterwards.

use drystone_blockdev::{BlockDevice, MemoryDevice, Overlay, Recording};
use drystone_ext4::{Ext4, MountOptions, Result};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES};
use drystone_sync::Arc;
use drystone_testkit::crash::CrashImages;
use drystone_testkit::judges::{Scratch, e2fsck_check, have, write_image};
use drystone_testkit::tree::{TreeOptions, TreeSnapshot, diff};

/// Crashes of one recovery.
const CRASHES: usize = 24;

pub fn open(device: &Arc<MemoryDevice>, read_only: bool) -> Result<Ext4> {
    let device = Arc::clone(device) as Arc<dyn BlockDevice>;
    Ext4::open(device, MountOptions::default().read_only(read_only))
}

/// Everything that fast commits keep. They don't keep the times of directories, and reading files
/// changes their times of last access.
pub fn comparable(mut tree: TreeSnapshot) -> TreeSnapshot {
    for facts in tree.entries.values_mut() {
        facts.remove("accessed");
        if facts["type"] == "Directory" {
            facts.remove("modified");
        }
    }
    tree
}

pub fn options() -> TreeOptions {
    TreeOptions { times: true, ..TreeOptions::default() }
}

pub fn tree(fs: &Ext4) -> TreeSnapshot {
    comparable(TreeSnapshot::read(fs, "/", &options()).unwrap())
}

#[track_caller]
pub fn assert_same(found: &TreeSnapshot, expected: &TreeSnapshot, what: &str) {
    let lines = diff(found, expected);
    assert!(lines.is_empty(), "{what} (left is found, right expected):\n  {}", lines.join("\n  "));
}

/// Fails if `e2fsck` or our own checker finds anything wrong.
#[track_caller]
pub fn judge(device: &dyn BlockDevice, what: &str) {
    let report = drystone_fsck::check(device, &drystone_fsck::CheckOptions::default(), &mut |_| {});
    let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(report.is_clean(), "{what}: {:#?}", report.problems);
    if have("e2fsck") {
        let scratch = Scratch::new("fast-commits").unwrap();
        write_image(device, &scratch.join("image")).unwrap();
        e2fsck_check(&scratch.join("image")).unwrap().expect_clean(what);
    }
}

/// Recovers an image by a read-only mount, which must not change it, and by a writable one.
#[track_caller]
pub fn recovers(dirty: &MemoryDevice, expected: &TreeSnapshot, what: &str) -> Arc<MemoryDevice> {
    let device = Arc::new(dirty.snapshot());
    let fs = open(&device, true).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_same(&tree(&fs), expected, &format!("{what}, for reading"));
    fs.close().unwrap();
    drop(fs);
    assert!(device.to_vec() == dirty.to_vec(), "{what}: reading has changed the image");
    let fs = open(&device, false).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_same(&tree(&fs), expected, what);
    fs.close().unwrap();
    drop(fs);
    judge(&*device, what);
    device
}

/// After a crash at any point of the recovery, the next recovery gives the same tree.
#[track_caller]
pub fn recovers_after_crashes(dirty: &MemoryDevice, expected: &TreeSnapshot, what: &str) {
    let base = Arc::new(dirty.snapshot());
    let recording = Arc::new(Recording::new(Overlay::new(Arc::clone(&base))));
    let shared = Arc::clone(&recording) as Arc<dyn BlockDevice>;
    Ext4::open(shared, MountOptions::default()).unwrap().close().unwrap();
    let whole = SUPERBLOCK_OFFSET_BYTES..SUPERBLOCK_OFFSET_BYTES + SUPERBLOCK_BYTES as u64;
    let images = CrashImages::new(&base, recording.take_events(), 7).unwrap();
    for (number, image) in images.keeping_whole(whole).take(CRASHES).enumerate() {
        let image = image.unwrap();
        let what = format!("{what}, after a crash in recovery: {}", image.description);
        let device: Arc<dyn BlockDevice> = Arc::new(image.device);
        let fs = Ext4::open(Arc::clone(&device), MountOptions::default());
        let fs = fs.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_same(&tree(&fs), expected, &what);
        fs.close().unwrap();
        drop(fs);
        if number % 4 == 0 {
            judge(&*device, &what);
        }
    }
}
