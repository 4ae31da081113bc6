//! Crashes of one and of several threads, crashes during recovery, and recovery by e2fsck and the
//! kernel.

use crate::images::{self, Shape};
use crate::judge::{crash_images, e2fsck, recover};
use crate::record::{Part, Possible, Recorded, base, record};
use crate::watch::watch;
use crate::workloads::{self, Make};
use crate::{images as image_count, is_long, seed};
use drystone_blockdev::{BlockDevice, EventKind, MemoryDevice, Overlay, Recording};
use drystone_ext4::{Ext4, Policy};
use drystone_sync::Arc;
use drystone_testkit::crash::CrashImage;
use drystone_testkit::judges::{Scratch, e2fsck_repair, have, kernel_mount, write_image};
use drystone_testkit::tree::{TreeOptions, TreeSnapshot, diff};

/// Operations of a workload.
const OPERATIONS: usize = 600;
/// Every so many images are also given to e2fsck to repair.
const REPAIR_EVERY: usize = 12;
/// Every so many images are also mounted by the kernel.
const KERNEL_EVERY: usize = 40;
/// Every so many images crash again, while they are recovered.
const AGAIN_EVERY: usize = 25;
/// Crashes of one recovery.
const AGAIN_COUNT: usize = 4;
/// Every so many recovered images are checked by e2fsck.
const CHECK_EVERY: usize = 2;

/// The number of tests below; each makes as many images.
const TESTS: usize = 27;

fn fail(recorded: &Recorded, image: &CrashImage, problem: &str) -> ! {
    panic!("{}: {}\n{problem}", recorded.name, image.description)
}

/// Makes crash images of a run and judges each.
fn judge_all(recorded: &Recorded, count: usize) {
    let scratch = Scratch::new("crash").unwrap();
    let has_e2fsck = have("e2fsck");
    let events = recorded.events.clone();
    let images = crash_images(&recorded.base, events);
    for (number, image) in images.take(count).enumerate() {
        let image = image.unwrap();
        let returned = recorded.returned(image.events_before);
        let possible: Vec<_> =
            recorded.tracks.iter().zip(&returned).map(|(t, &r)| t.possible(r)).collect();
        let before = Arc::new(copy(&image.device));
        let what = &image.description;
        if has_e2fsck && number % REPAIR_EVERY == 3 {
            repair(recorded, &possible, &before, &scratch)
                .unwrap_or_else(|problem| fail(recorded, &image, &problem));
        }
        let device: Arc<dyn BlockDevice> = Arc::new(Overlay::new(Arc::clone(&before)));
        let judged = recover(&device, &recorded.tracks, &possible, what).and_then(|()| {
            let is_checked = is_long() || number % CHECK_EVERY == 0;
            if has_e2fsck && is_checked { e2fsck(&*device, &scratch) } else { Ok(()) }
        });
        if let Err(problem) = judged {
            keep(&before);
            fail(recorded, &image, &problem);
        }
        if number % KERNEL_EVERY == 7 {
            kernel(&before, &device, &scratch)
                .unwrap_or_else(|problem| fail(recorded, &image, &problem));
        }
        if number % AGAIN_EVERY == 11 {
            again(recorded, &possible, &before, &scratch)
                .unwrap_or_else(|problem| fail(recorded, &image, &problem));
        }
    }
}

fn copy(device: &dyn BlockDevice) -> MemoryDevice {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    MemoryDevice::from_bytes(&bytes)
}

/// Keeps an image, so that the cause can be looked for.
fn keep(device: &MemoryDevice) {
    if let Some(directory) = std::env::var_os("DRYSTONE_CRASH_KEEP") {
        write_image(device, &std::path::Path::new(&directory).join("crash.img")).unwrap();
    }
}

/// e2fsck recovers the image, which then has to be clean and in a possible state.
fn repair(
    recorded: &Recorded,
    possible: &[Possible],
    crashed: &MemoryDevice,
    scratch: &Scratch,
) -> Result<(), String> {
    let path = scratch.join("repaired");
    write_image(crashed, &path).unwrap();
    let repaired = e2fsck_repair(&path).unwrap();
    if repaired.code > 1 {
        return Err(format!("e2fsck -fy: {}: {}", repaired.code, repaired.output));
    }
    let device = MemoryDevice::from_bytes(&std::fs::read(&path).unwrap());
    e2fsck(&device, scratch).map_err(|problem| format!("after repair: {problem}"))?;
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    recover(&device, &recorded.tracks, possible, "after repair")
        .map_err(|problem| format!("after e2fsck -fy: {problem}\ne2fsck: {}", repaired.output))
}

/// The kernel recovers the image, to the same tree as we.
fn kernel(
    crashed: &MemoryDevice,
    recovered: &Arc<dyn BlockDevice>,
    scratch: &Scratch,
) -> Result<(), String> {
    let path = scratch.join("kernel");
    write_image(crashed, &path).unwrap();
    let Some(mounted) = kernel_mount(&path, &scratch.join("mounted"), "").unwrap() else {
        return Ok(());
    };
    let options = TreeOptions::default();
    let theirs = TreeSnapshot::from_host(mounted.path(), &options).unwrap();
    mounted.unmount().unwrap();
    let fs = Ext4::open(Arc::clone(recovered), crate::record::options(5000)).unwrap();
    let ours = TreeSnapshot::read(&fs, "/", &options).unwrap();
    fs.close().unwrap();
    let differences = diff(&ours, &theirs);
    if differences.is_empty() {
        return Ok(());
    }
    Err(format!("the kernel (right) recovers otherwise:\n{}", differences.join("\n")))
}

/// Crashes during recovery: the next recovery has to succeed.
fn again(
    recorded: &Recorded,
    possible: &[Possible],
    crashed: &Arc<MemoryDevice>,
    scratch: &Scratch,
) -> Result<(), String> {
    let device = Arc::new(Recording::new(Overlay::new(Arc::clone(crashed))));
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    recover(&shared, &recorded.tracks, possible, "recorded recovery")?;
    let images = crash_images(crashed, device.take_events());
    for image in images.take(AGAIN_COUNT) {
        let image = image.unwrap();
        let what = format!("crash in recovery: {}", image.description);
        let device: Arc<dyn BlockDevice> = Arc::new(image.device);
        recover(&device, &recorded.tracks, possible, &what)
            .and_then(|()| e2fsck(&*device, scratch))
            .map_err(|problem| format!("{what}\n{problem}"))?;
    }
    Ok(())
}

/// Prints how much a recording covers.
fn report(recorded: &Recorded) {
    let flushes = recorded.events.iter().filter(|event| event.kind == EventKind::Flush).count();
    let done: Vec<_> = recorded.tracks.iter().map(|track| track.operations.len()).collect();
    let last = recorded.tracks.iter().map(|track| track.states.last().map(|s| s.entries.len()));
    eprintln!(
        "{}: {done:?} operations, {} refused, {} events, {flushes} flushes, {:?} paths at the end",
        recorded.name,
        recorded.refused(),
        recorded.events.len(),
        last.collect::<Vec<_>>(),
    );
}

/// Crashes of one thread's workload, in rounds of new recordings.
fn crashes(
    name: &str,
    shape: &Shape,
    setup: fn(u64, &str) -> Vec<drystone_testkit::operations::Operation>,
    make: Make,
) {
    threads(name, shape, setup, &[make]);
}

/// The same with several threads, each in a directory of its own.
fn threads(
    name: &str,
    shape: &Shape,
    setup: fn(u64, &str) -> Vec<drystone_testkit::operations::Operation>,
    makes: &[Make],
) {
    threads_with_images(name, shape, setup, makes, image_count().div_ceil(TESTS));
}

/// Returns how many operations were refused for lack of space; `None` if there is no image.
fn threads_with_images(
    name: &str,
    shape: &Shape,
    setup: fn(u64, &str) -> Vec<drystone_testkit::operations::Operation>,
    makes: &[Make],
    count: usize,
) -> Option<usize> {
    const IMAGES_OF_RECORDING: usize = 80;
    let mut refused = 0;
    for round in 0..count.div_ceil(IMAGES_OF_RECORDING) as u64 {
        let seed = seed() + round;
        let parts: Vec<Part> = makes
            .iter()
            .enumerate()
            .map(|(number, make)| Part {
                setup: setup(seed, &base(number)),
                operations: make(seed + number as u64, &base(number), OPERATIONS / makes.len()),
            })
            .collect();
        let watch = watch(120, format!("{name}: recording of seed {seed}"));
        // Some journals commit often by themselves, some mostly when asked.
        let commit_ms = if round.is_multiple_of(2) { 1 } else { 5000 };
        let recorded = record(name, shape, &parts, commit_ms, seed.is_multiple_of(2));
        drop(watch);
        let recorded = recorded?;
        report(&recorded);
        refused += recorded.refused();
        let images = IMAGES_OF_RECORDING.min(count - round as usize * IMAGES_OF_RECORDING);
        judge_all(&recorded, images);
    }
    Some(refused)
}

fn nothing(_: u64, _: &str) -> Vec<drystone_testkit::operations::Operation> {
    Vec::new()
}

macro_rules! crash_tests {
    ($($test:ident: $shape:ident, $setup:expr, $make:ident;)*) => {$(
        #[test]
        fn $test() {
            crashes(stringify!($test), &images::$shape, $setup, workloads::$make);
        }
    )*};
}

crash_tests! {
    names_with_orphan_list: LIST, nothing, storm;
    names_with_orphan_file: FILE, nothing, storm;
    names_in_own_image: OWN, nothing, storm;
    names_without_checksums: UNCHECKED, nothing, storm;
    names_with_quota: QUOTA, nothing, storm;
    attributes_with_quota: QUOTA, nothing, attributes;
    splitting_directories: LIST, nothing, splits;
    moving_directories: LARGE_BLOCKS, nothing, moves;
    content: FILE, nothing, ranges;
    content_at_once: AT_ONCE, nothing, ranges;
    reused_blocks: CROWDED, nothing, turnover;
    inline_content: INLINE, nothing, ranges;
    attributes: EXTERNAL_VALUES, nothing, xattrs;
    orphans_in_list: LIST, nothing, orphans;
    orphans_in_file: FILE, nothing, orphans;
    synced_appends: LIST, nothing, appends;
    synced_appends_at_once: AT_ONCE, nothing, appends;
    synced_appends_without_checksums: UNCHECKED, nothing, appends;
    synced_appends_in_clusters: BIGALLOC, nothing, appends;
    cuts_of_long_files: LIST, workloads::fragments, cuts;
    cuts_of_block_maps: EXT3, workloads::fragments, cuts;
}

/// An image that is full most of the time.
fn full(name: &str, shape: &Shape) {
    let count = image_count().div_ceil(TESTS);
    if let Some(refused) = threads_with_images(name, shape, nothing, &[workloads::fill], count) {
        assert!(refused > count / 4, "{name}: only {refused} operations found no space");
    }
}

#[test]
fn full_images() {
    full("full image", &images::FULL);
}

#[test]
fn full_images_at_once() {
    full("full image", &images::FULL_AT_ONCE);
}

#[test]
fn full_images_with_block_maps() {
    full("full image", &images::FULL_BLOCK_MAPS);
}

#[test]
fn full_images_with_clusters() {
    full("full image", &images::FULL_CLUSTERS);
}

#[test]
fn several_threads() {
    let makes: [Make; 4] =
        [workloads::storm, workloads::ranges, workloads::orphans, workloads::splits];
    threads("several threads", &images::FILE, nothing, &makes);
}

/// Both presets and every single flip, with the workloads that are hardest for the mechanisms: orphans,
/// reused blocks and inodes, and ranges that change side by side.
#[test]
fn every_policy() {
    let makes: [Make; 3] = [workloads::orphans, workloads::turnover, workloads::ranges];
    let policies = Policy::presets_and_flips();
    let count = image_count().div_ceil(TESTS).div_ceil(policies.len());
    for policy in policies {
        let shape = Shape { policy, ..images::FILE };
        threads_with_images(&policy.to_string(), &shape, nothing, &makes, count);
    }
}
