//! Power cuts and failing devices while an open image grows.
//!
//! `DRYSTONE_CRASH_IMAGES=n` makes n images of each kind; `./dev crash --images n` sets it.

use super::MIB;
use drystone::reshape::NewSize;
use drystone::{BlockDevice, Image, MemoryDevice, check_image};
use drystone_blockdev::{DeviceOperation, Effect, Fault, Faulty, Recording, Trigger};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_sync::Arc;
use drystone_testkit::crash::CrashImages;
use drystone_testkit::environment::number;
use drystone_testkit::judges::{FeatureSet, Scratch, e2fsck_check, have, mke2fs, write_image};
use std::path::PathBuf;

/// Kinds whose growth changes different blocks, and the sizes that they grow to.
const KINDS: [(&str, [u64; 3]); 5] = [
    ("default-1k", [19, 50, 120]),
    ("meta-bg-1k", [17, 24, 60]),
    ("small-journal", [18, 40, 70]),
    ("sparse-super2-1k", [19, 30, 60]),
    ("bigalloc-1k", [70, 150, 300]),
];

/// An image on a device that has room for it to grow.
struct Subject {
    name: &'static str,
    sizes: [u64; 3],
    base: MemoryDevice,
    scratch: Scratch,
}

impl Subject {
    fn new((name, sizes): (&'static str, [u64; 3])) -> Option<Subject> {
        if !have("mke2fs") {
            return None;
        }
        let scratch = Scratch::new(&format!("growing-{name}")).unwrap();
        let set = FeatureSet::by_name(name).unwrap();
        let path = scratch.join("made.img");
        mke2fs(&path, set, set.size_mib_min.max(16) << 20).unwrap().expect_clean(name);
        let base = MemoryDevice::new(sizes[2] * MIB);
        base.write_at(0, &std::fs::read(path).unwrap()).unwrap();
        Some(Subject { name, sizes, base, scratch })
    }

    fn path(&self) -> PathBuf {
        self.scratch.join("disk.img")
    }

    /// The image is clean once it was opened, and holds so many files.
    fn judge(&self, device: Arc<dyn BlockDevice>, files: u64, what: &str) {
        let image =
            Image::open_device(Arc::clone(&device)).unwrap_or_else(|e| panic!("{what}: {e}"));
        for file in 0..files {
            let content = image.fs().read(format!("/{file}"));
            assert!(content.is_ok_and(|found| found == content_of(file)), "{what}: file {file}");
        }
        image.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        write_image(&*device, &self.path()).unwrap();
        e2fsck_check(&self.path()).unwrap().expect_clean(what);
        let report = check_image(&self.path(), &Default::default(), &mut |_| {}).unwrap();
        let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
        assert!(report.is_clean(), "{what}: {}", problems.join("\n"));
    }
}

fn content_of(file: u64) -> Vec<u8> {
    vec![file as u8 + 1; 3000 + 7000 * (file as usize % 5)]
}

fn blocks_of(device: &dyn BlockDevice) -> u64 {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes).unwrap();
    Superblock::check(&bytes).unwrap().layout().blocks_count()
}

/// Grows an image, with files that are synced before, and some that aren't. `mark` is told how many files are
/// durable. Ends at the first error.
fn load(image: &Image, sizes: [u64; 3], mut mark: impl FnMut(u64)) -> drystone::Result<u64> {
    let (fs, mut files) = (image.fs(), 0);
    for size in sizes {
        for _ in 0..4 {
            fs.write(format!("/{files}"), content_of(files))?;
            files += 1;
        }
        fs.sync()?;
        mark(files);
        fs.write(format!("/unsynced-{size}"), vec![9; 40_000])?;
        image.grow(NewSize::Exactly(size * MIB))?;
        fs.remove_file(format!("/unsynced-{size}"))?;
    }
    Ok(files)
}

#[test]
fn a_crash_leaves_one_size_or_another() {
    let count = number("DRYSTONE_CRASH_IMAGES").unwrap_or(12) as usize;
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    for kind in KINDS {
        let Some(subject) = Subject::new(kind) else { return };
        let recording = Arc::new(Recording::new(subject.base.snapshot()));
        let image = Image::open_device(Arc::clone(&recording) as Arc<dyn BlockDevice>).unwrap();
        let mark = |files| {
            recording.mark(files);
        };
        load(&image, subject.sizes, mark).unwrap();
        image.close().unwrap();
        let superblock = SUPERBLOCK_OFFSET_BYTES..SUPERBLOCK_OFFSET_BYTES + SUPERBLOCK_BYTES as u64;
        let images = CrashImages::new(&subject.base, recording.events(), seed).unwrap();
        let mut sizes = std::collections::BTreeSet::new();
        for crash in images.keeping_whole(superblock).take(count) {
            let crash = crash.unwrap();
            let what = format!("{}, DRYSTONE_SEED={seed}: {}", subject.name, crash.description);
            let device: Arc<dyn BlockDevice> = Arc::new(crash.device);
            subject.judge(Arc::clone(&device), crash.last_mark.unwrap_or(0), &what);
            sizes.insert(blocks_of(&*device));
        }
        assert!(sizes.len() > 1, "{}: {sizes:?}", subject.name);
    }
}

#[test]
fn an_image_survives_an_error_at_any_write_of_its_growth() {
    let most = number("DRYSTONE_CRASH_IMAGES").unwrap_or(10);
    for kind in KINDS {
        let Some(subject) = Subject::new(kind) else { return };
        for operation in [DeviceOperation::Write, DeviceOperation::Flush, DeviceOperation::Zero] {
            // How many there are, from the opening on.
            let run = |fault: Option<Fault>| {
                let device = Arc::new(Faulty::new(subject.base.snapshot()));
                let image =
                    Image::open_device(Arc::clone(&device) as Arc<dyn BlockDevice>).unwrap();
                let before = device.operations(operation);
                let is_sound = fault.is_none();
                if let Some(fault) = fault {
                    device.inject(fault);
                }
                let mut durable = 0;
                let done = load(&image, subject.sizes, |files| durable = files);
                let count = device.operations(operation) - before;
                device.repair();
                // Where the journal has stopped, this is a crash.
                let closed = image.close();
                assert!(closed.is_ok() || !is_sound, "{closed:?}");
                (device, durable, count, done)
            };
            let (_, _, count, done) = run(None);
            done.unwrap();
            let step = (count / most).max(1);
            for place in (0..count).step_by(step as usize) {
                let fault =
                    Fault::of(operation, Effect::InputOutputError).when(Trigger::Nth(place));
                let (device, durable, _, done) = run(Some(fault));
                let what = format!("{}: {operation} {place} of {count}, {done:?}", subject.name);
                subject.judge(Arc::new(device.inner().snapshot()), durable, &what);
            }
        }
    }
}
