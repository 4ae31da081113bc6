//! Defragmented images: fewer fragments, the same files, also after a cut at any write.

use crate::support::Sample;
use drystone::inspection::Fragmentation;
use drystone::reshape::defragment;
use drystone::{ChangeOptions, Image, OpenOptions, defragment_image, undo};
use drystone_blockdev::{
    BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice, Trigger, UndoDevice,
    roll_back,
};
use drystone_testkit::environment::number;
use std::io::Write;

/// Kinds of images: extents and block maps, clusters, meta groups, with and without checksums.
const KINDS: [&str; 7] =
    ["default", "default-1k", "ext2-1k", "ext3-1k", "bigalloc-1k", "meta-bg-1k", "group-checksums"];

impl Sample {
    /// Writes files piece by piece, in turns, and deletes one of three: the others and the free space are
    /// fragmented.
    fn scatter(&self) {
        let image = Image::open(self.path()).unwrap();
        let fs = image.fs();
        fs.create_dir("/scattered").unwrap();
        let names: Vec<String> = (0..6).map(|number| format!("/scattered/{number}")).collect();
        for turn in 0..30u8 {
            for name in &names {
                let options = OpenOptions::new().append(true).create(true);
                let mut file = fs.open_with(name, options).unwrap();
                file.write_all(&[turn; 16 << 10]).unwrap();
                fs.sync().unwrap();
            }
            for number in 0..20 {
                fs.write(format!("/scattered/{}-{turn}-{number}", "n".repeat(90)), b"x").unwrap();
            }
        }
        for name in &names[..2] {
            fs.remove_file(name).unwrap();
        }
        image.close().unwrap();
    }

    fn fragmentation(&self) -> Fragmentation {
        drystone::fragmentation(&self.path(), &mut |_, _| {}).unwrap()
    }
}

#[test]
fn files_are_in_fewer_fragments_and_stay_the_same() {
    for name in KINDS {
        let Some(sample) = Sample::new(name, 40) else { return };
        sample.fill(1, 60);
        sample.scatter();
        let (tree, before) = (sample.tree(), sample.fragmentation());
        assert!(before.files.fragmented >= 4, "{name}: {before:?}");
        let log = sample.beside("log");
        let options = ChangeOptions::default().undo(log.clone());
        let done = defragment_image(&sample.path(), &options, &mut |_| {}).unwrap();
        assert!(done.files < done.files_before && done.fragments < done.fragments_before);
        assert!(done.bytes_moved > 0);
        sample.judge("defragmented", &tree);
        // There is room enough for all.
        assert_eq!(done.files, 0, "{name}");
        let after = sample.fragmentation();
        let left = (after.files.fragmented, after.directories.fragmented);
        // A hole within a cluster stays.
        let has_clusters = sample.field("Filesystem features").contains("bigalloc");
        assert!(has_clusters || left == (0, 0), "{name}: {after:?}, before {before:?}");
        // All can be taken back, and done again; then nothing is left to be done.
        assert!(undo(&sample.path(), Some(&log)).unwrap());
        sample.judge("taken back", &tree);
        assert_eq!(sample.fragmentation(), before, "{name}");
        let quick = ChangeOptions::default();
        defragment_image(&sample.path(), &quick, &mut |_| {}).unwrap();
        let again = defragment_image(&sample.path(), &quick, &mut |_| {}).unwrap();
        assert_eq!(again.bytes_moved, 0, "{name}");
    }
}

/// In a nearly full image files move in several rounds, to where others were.
#[test]
fn a_cut_anywhere_goes_back_to_every_file() {
    for name in ["default-1k", "ext2-1k"] {
        let Some(sample) = Sample::new(name, 16) else { return };
        sample.scatter();
        let image = Image::open(sample.path()).unwrap();
        let free = image.fs().statistics().unwrap();
        let room = free.blocks_available * u64::from(free.block_size);
        // What is left holds the largest file hardly.
        image.fs().write("/filling", vec![7; (room - (620 << 10)) as usize]).unwrap();
        image.close().unwrap();
        let before = sample.tree();
        let base = MemoryDevice::from_bytes(&std::fs::read(sample.path()).unwrap());
        let size = base.size_bytes();
        let begin = |image| UndoDevice::begin(image, MemoryDevice::new(256 << 20), size).unwrap();
        let device = begin(Faulty::new(base.snapshot()));
        let done = defragment(&device, 1_700_000_000, &mut |_| {}).unwrap();
        assert!(done.fragments < done.fragments_before, "{name}: {done:?}");
        let (image, _) = device.finish().unwrap();
        let writes = image.operations(DeviceOperation::Write);
        let mut random = fastrand::Rng::with_seed(number("DRYSTONE_SEED").unwrap_or(1));
        for _ in 0..number("DRYSTONE_CHANGES").unwrap_or(0).max(8) {
            let cut = random.u64(..writes);
            let image = Faulty::new(base.snapshot());
            let effect = Effect::Short { bytes: random.u64(..4) * 1024 };
            image.inject(Fault::of(DeviceOperation::Write, effect).when(Trigger::From(cut)));
            let device = begin(image);
            let done = defragment(&device, 1_700_000_000, &mut |_| {});
            let (image, log) = device.into_parts();
            image.repair();
            roll_back(&image, &log).unwrap();
            sample.replace(&image);
            sample.judge(&format!("cut at {cut} of {writes}, {done:?}"), &before);
        }
    }
}

/// What later rounds write over was in use before: files, and nodes of their maps.
#[test]
fn several_rounds_are_taken_back() {
    for seed in 0..number("DRYSTONE_CHANGES").unwrap_or(0).max(10) {
        let Some(sample) = Sample::new("default-1k", 6) else { return };
        let mut random = fastrand::Rng::with_seed(seed);
        let image = Image::open(sample.path()).unwrap();
        let fs = image.fs();
        for turn in 0..160 {
            let name = format!("/{}", random.u32(..14));
            let options = OpenOptions::new().append(true).create(true);
            let mut file = fs.open_with(&name, options).unwrap();
            let length = random.usize(1..8) << 10;
            // In the end it is full.
            if file.write_all(&vec![turn as u8; length]).is_err() {
                break;
            }
            drop(file);
            fs.sync().unwrap();
            if turn % 40 == 39 {
                let _ = fs.remove_file(format!("/{}", random.u32(..14)));
            }
        }
        while fs.write(format!("/{}-f", random.u64(..)), vec![9; 30 << 10]).is_ok() {}
        for number in 0..3 {
            let _ = fs.remove_file(format!("/{number}"));
        }
        image.close().unwrap();
        let before = sample.tree();
        let log = sample.beside("log");
        let options = ChangeOptions::default().undo(log.clone());
        defragment_image(&sample.path(), &options, &mut |_| {}).unwrap();
        sample.judge(&format!("defragmented, seed {seed}"), &before);
        assert!(undo(&sample.path(), Some(&log)).unwrap());
        sample.judge(&format!("taken back, seed {seed}"), &before);
    }
}
