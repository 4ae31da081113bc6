//! Conversions of images: larger inodes, other descriptors, checksums, extents in place of block maps.

use crate::support::Sample;
use drystone::reshape::{Tuned, Tuning};
use drystone::{ChangeOptions, Error, Features, Image, OpenOptions, tune_image};
use drystone_blockdev::{
    BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice, Trigger, UndoDevice,
    roll_back,
};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{debugfs, run};
use std::ffi::OsStr;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// A conversion by the name that a test gives it.
pub fn features(list: &str) -> Tuning {
    Tuning::default().features(Features::parse(list).unwrap())
}

impl Sample {
    pub fn convert(&self, tuning: &Tuning) -> Result<Tuned, Error> {
        tune_image(&self.path(), tuning, &ChangeOptions::default(), &mut |_| {})
    }

    /// Converts an image with files, which stay; its dumpe2fs then agrees.
    #[track_caller]
    pub fn convert_and_judge(&self, what: &str, tuning: &Tuning) -> Tuned {
        let before = self.tree();
        let tuned = self.convert(tuning);
        let tuned = tuned.unwrap_or_else(|error| panic!("{}: {what}: {error}", self.set.name));
        self.judge(what, &before);
        assert_eq!(self.field("Inode size"), tuned.inode_size.to_string());
        let names = self.field("Filesystem features");
        for name in tuned.features.names() {
            assert!(names.split(' ').any(|other| other == name), "{what}: {name} in {names}");
        }
        if tuned.descriptor_size > 32 {
            assert_eq!(self.field("Group descriptor size"), tuned.descriptor_size.to_string());
        }
        tuned
    }
}

/// Sets with another way to place metadata each: a reserve after the descriptors or none, flexible groups, meta
/// groups, clusters, a copy of the descriptors in each group.
const KINDS: [&str; 14] = [
    "default",
    "default-1k",
    "default-2k",
    "no-flex-bg",
    "no-flex-bg-4k",
    "flex-bg-wide",
    "meta-bg-1k",
    "bigalloc-1k",
    "sparse-super2-1k",
    "no-sparse-super",
    "no-resize-inode",
    "ext2-1k",
    "group-checksums-64bit",
    "quota-project",
];

#[test]
fn descriptors_get_64_bits_and_lose_them() {
    let kinds = KINDS.into_iter().chain(["meta-bg", "modern-1k", "inline-data-1k", "no-checksums"]);
    // Without extents there is no 64bit.
    for name in kinds.filter(|name| *name != "ext2-1k") {
        let Some(sample) = Sample::new(name, 64) else { return };
        sample.fill(1, 60);
        for list in ["^64bit", "64bit", "^64bit", "64bit"] {
            let tuned = sample.convert_and_judge(list, &features(list));
            let size = if list == "64bit" { 64 } else { 32 };
            assert_eq!(tuned.descriptor_size, size, "{name} {list}");
        }
        sample.fill(2, 40);
        let after = sample.tree();
        sample.judge("filled", &after);
    }
}

/// What was after the descriptors moves: bitmaps and tables, and files once the first descriptors are that large.
#[test]
fn blocks_behind_the_descriptors_make_room() {
    for name in ["no-sparse-super", "sparse-super2-1k", "no-resize-inode", "meta-bg-1k"] {
        let Some(sample) = Sample::new(name, 300) else { return };
        for seed in 0..3 {
            sample.fill(seed, 60);
        }
        sample.convert_and_judge("^64bit", &features("^64bit"));
        sample.fill_up(0);
        sample.remove_every(50);
        let tuned = sample.convert_and_judge("64bit", &features("64bit"));
        assert!(tuned.blocks_moved > 0, "{name}: {tuned:?}");
    }
}

#[test]
fn inodes_get_larger() {
    for (name, sizes) in [
        ("small-inodes", &[256, 1024][..]),
        ("small-inodes-1k", &[256, 512]),
        ("ext2-1k", &[256, 1024]),
        ("default", &[512]),
        ("default-2k", &[1024]),
        ("no-flex-bg", &[512]),
        ("no-flex-bg-4k", &[512]),
        ("flex-bg-wide", &[512]),
        ("meta-bg-1k", &[512]),
        ("bigalloc-1k", &[512]),
        ("group-checksums", &[512]),
        ("inline-data", &[512]),
        ("inline-data-1k", &[1024]),
        ("ea-inode", &[512]),
        ("quota-project", &[512]),
        ("modern-1k", &[512]),
        ("verity-encrypt", &[512]),
        ("casefold-strict", &[512]),
    ] {
        let Some(sample) = Sample::new(name, 64) else { return };
        sample.fill(1, 60);
        for &size in sizes {
            let tuning = Tuning::default().inode_size(size);
            sample.convert_and_judge(&format!("inodes of {size} bytes"), &tuning);
        }
        sample.fill(2, 40);
        let after = sample.tree();
        sample.judge("filled", &after);
    }
}

/// What ext4 makes of an ext3 image, in one change.
#[test]
fn an_old_image_becomes_a_new_one() {
    let Some(sample) = Sample::new("small-inodes-1k", 40) else { return };
    let error = sample.convert(&features("extra_isize")).unwrap_err().to_string();
    assert!(error.contains("inodes, of 128 bytes, lack the extra fields"), "{error}");
    let Some(sample) = Sample::new("ext2-1k", 40) else { return };
    sample.fill(1, 60);
    let all = "has_journal,64bit,metadata_csum,metadata_csum_seed,extra_isize,huge_file,dir_nlink,quota,project,orphan_file";
    let tuning = features(all).inode_size(256).convert_maps(true).uuid([9; 16]);
    sample.convert_and_judge(all, &tuning);
    sample.fill(2, 40);
    let after = sample.tree();
    sample.judge("filled", &after);
}

/// Systems of before 2017 made inodes that end right before the project's number.
#[test]
fn projects_need_room_in_all_inodes() {
    let Some(sample) = Sample::new("default", 40) else { return };
    let path = sample.path();
    let shorten = ["-w", "-R", "set_inode_field lost+found extra_isize 28"].map(OsStr::new);
    run("debugfs", shorten.into_iter().chain([path.as_os_str()])).unwrap().expect_clean("debugfs");
    let error = sample.convert(&features("quota,project")).unwrap_err().to_string();
    assert!(error.contains("can't get project: 1 of its inodes"), "{error}");
    sample.convert_and_judge("quota", &features("quota"));
}

/// Where no hole is as long as a table, files move.
#[test]
fn files_make_room_for_inode_tables() {
    for name in ["small-inodes-1k", "ext2-1k", "no-flex-bg", "default-1k", "bigalloc-1k"] {
        let Some(sample) = Sample::new(name, 40) else { return };
        sample.fill(1, 60);
        sample.fill_up(0);
        // Holes all over, none of them long.
        sample.remove_every(3);
        let bytes = 2 * sample.field("Inode size").parse::<u16>().unwrap();
        let tuning = Tuning::default().inode_size(bytes);
        let tuned = sample.convert_and_judge("larger inodes", &tuning);
        assert!(tuned.blocks_moved > 0, "{name}: {tuned:?}");
    }
}

#[test]
fn block_maps_become_extents() {
    for name in ["ext2-1k", "ext2", "ext3", "ext3-1k", "block-maps", "no-filetype-ext2", "default"]
    {
        let Some(sample) = Sample::new(name, 64) else { return };
        sample.fill(1, 60);
        // With indirect blocks of each level, and holes.
        let image = Image::open(sample.path()).unwrap();
        let options = OpenOptions::new().write(true).create(true);
        let mut file = image.fs().open_with("/sparse", options).unwrap();
        for at in [0, 5 << 10, 300 << 10, 9 << 20, 1 << 30] {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&[7; 9000]).unwrap();
        }
        drop(file);
        image.close().unwrap();
        let tuned = sample.convert_and_judge("extents", &Tuning::default().convert_maps(true));
        assert_eq!(tuned.maps_converted > 0, !sample.set.extents, "{name}: {tuned:?}");
        let again = sample.convert_and_judge("again", &Tuning::default().convert_maps(true));
        assert_eq!(again.maps_converted, 0, "{name}");
        let error = sample.convert(&features("^extent")).unwrap_err().to_string();
        assert!(error.contains("of its files are mapped by extents"), "{name}: {error}");
        sample.fill(2, 40);
        let after = sample.tree();
        sample.judge("filled", &after);
    }
    // A feature that no file uses yet goes again.
    let Some(sample) = Sample::new("ext2-1k", 16) else { return };
    sample.convert_and_judge("extent", &features("extent"));
    sample.convert_and_judge("^extent", &features("^extent"));
}

#[test]
fn checksums_come_and_go() {
    for (name, lists) in [
        ("default", &["^metadata_csum", "metadata_csum"][..]),
        ("default-1k", &["^metadata_csum,^uninit_bg", "metadata_csum", "^metadata_csum_seed"]),
        ("default-2k", &["^metadata_csum", "^uninit_bg", "metadata_csum,metadata_csum_seed"]),
        ("modern-1k", &["^metadata_csum", "metadata_csum,metadata_csum_seed", "^metadata_csum"]),
        ("group-checksums", &["metadata_csum", "^metadata_csum,^uninit_bg", "uninit_bg"]),
        ("group-checksums-64bit", &["^uninit_bg", "metadata_csum", "^metadata_csum"]),
        ("no-checksums", &["uninit_bg", "^uninit_bg", "metadata_csum"]),
        ("small-inodes-1k", &["^metadata_csum", "metadata_csum"]),
        ("ext2-1k", &["metadata_csum", "^metadata_csum,^uninit_bg", "uninit_bg"]),
        ("ext3", &["metadata_csum", "^metadata_csum"]),
        ("no-filetype-ext2", &["metadata_csum", "^metadata_csum"]),
        ("no-dir-index", &["^metadata_csum", "metadata_csum"]),
        ("bigalloc-1k", &["^metadata_csum", "metadata_csum"]),
        ("meta-bg-1k", &["^metadata_csum,^uninit_bg", "metadata_csum"]),
        ("inline-data-1k", &["^metadata_csum", "metadata_csum"]),
        ("ea-inode", &["^metadata_csum", "metadata_csum"]),
        ("large-dir", &["^metadata_csum", "metadata_csum"]),
        ("quota-project", &["^metadata_csum", "metadata_csum"]),
        ("casefold", &["^metadata_csum", "metadata_csum"]),
        ("casefold-strict", &["^metadata_csum", "metadata_csum"]),
        ("verity-encrypt", &["^metadata_csum", "metadata_csum"]),
        ("hash-tea", &["^metadata_csum", "metadata_csum"]),
        ("hash-legacy", &["^metadata_csum", "metadata_csum"]),
        ("fast-commit", &["^metadata_csum", "metadata_csum"]),
        ("no-flex-bg", &["^metadata_csum", "metadata_csum"]),
        ("sparse-super2-1k", &["^metadata_csum", "metadata_csum"]),
    ] {
        let Some(sample) = Sample::new(name, 64) else { return };
        sample.fill(1, 60);
        for (round, list) in (1..).zip(lists) {
            sample.convert_and_judge(list, &features(list));
            // What is written has the checksums, or none.
            sample.fill(10 + round, 20);
            let after = sample.tree();
            sample.judge(&format!("{list}, filled"), &after);
        }
        let (before, uuid) = (sample.tree(), Tuning::default().uuid([7; 16]));
        if !sample.set.mentions("stable_inodes") && !sample.set.mentions("ea_inode") {
            sample.convert(&uuid).unwrap();
            sample.judge("another UUID", &before);
        }
    }
}

/// Directories without room for checksums are rebuilt: linear and hashed ones, by extents and block maps.
#[test]
fn full_directories_get_room_for_checksums() {
    for name in
        ["no-dir-index", "default-1k", "ext2-1k", "casefold-strict", "bigalloc-1k", "quota-project"]
    {
        let Some(sample) = Sample::new(name, 64) else { return };
        let off = features("^metadata_csum,^uninit_bg");
        if sample.field("Filesystem features").contains("metadata_csum") {
            sample.convert(&off).unwrap();
        }
        let image = Image::open(sample.path()).unwrap();
        let fs = image.fs();
        fs.write("/file", b"").unwrap();
        for (directory, count) in [("a", 30), ("b", 62), ("c", 700), ("d", 9000)] {
            fs.create_dir(format!("/{directory}")).unwrap();
            // The first blocks are full to the last byte.
            for number in 0..count {
                fs.hard_link("/file", format!("/{directory}/{number:08}")).unwrap();
            }
        }
        image.close().unwrap();
        let sizes = |sample: &Sample| {
            let image = Image::options().read_only(true).open(sample.path()).unwrap();
            let size = |name| image.fs().metadata(name).unwrap().len();
            let sizes = ["/a", "/b", "/c", "/d"].map(size);
            image.close().unwrap();
            sizes
        };
        let before = sizes(&sample);
        sample.convert_and_judge("metadata_csum", &features("metadata_csum"));
        assert_ne!(sizes(&sample), before, "{name}: no directory had to grow");
        sample.fill(1, 40);
        sample.convert_and_judge("^metadata_csum", &off);
    }
}

/// What no other program takes, or what would overwrite fields of another system.
#[test]
fn what_others_could_not_use_is_refused() {
    let Some(sample) = Sample::new("ext3-1k", 16) else { return };
    let refused = |tuning: &Tuning, reason: &str| {
        let before = std::fs::read(sample.path()).unwrap();
        let error = sample.convert(tuning).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert!(std::fs::read(sample.path()).unwrap() == before);
    };
    refused(&features("64bit"), "64bit needs extent");
    // The superblock of its journal as old programs wrote it.
    let told = debugfs(&sample.path(), "bmap <8> 0").unwrap().output;
    let block: u64 = told.split_whitespace().last().unwrap().parse().unwrap();
    let image = std::fs::File::options().write(true).open(sample.path()).unwrap();
    image.write_all_at(&3_u32.to_be_bytes(), block * 1024 + 4).unwrap();
    refused(&features("metadata_csum"), "journal is of the first version");
    // The creator, in both copies of the superblock.
    for superblock in [1024, 8193 * 1024] {
        image.write_all_at(&1_u32.to_le_bytes(), superblock + 0x48).unwrap();
    }
    drop(image);
    refused(&features("ea_inode"), "GNU Hurd");
    refused(&Tuning::default().inode_size(512), "GNU Hurd");
}

#[test]
fn what_cannot_be_converted_is_refused() {
    let Some(sample) = Sample::new("default-1k", 16) else { return };
    let before = std::fs::read(sample.path()).unwrap();
    for (tuning, reason) in [
        (Tuning::default().inode_size(128), "256 bytes and can't get fewer"),
        (Tuning::default().inode_size(384), "a power of two from 128 to the block size, 1024"),
        (Tuning::default().inode_size(2048), "a power of two from 128 to the block size, 1024"),
    ] {
        let error = sample.convert(&tuning).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    assert!(std::fs::read(sample.path()).unwrap() == before);
    let contradiction = features("^extent").convert_maps(true);
    let error = sample.convert(&contradiction).unwrap_err().to_string();
    assert!(error.contains("while extent is turned off"), "{error}");
    let both = sample.convert(&features("uninit_bg")).unwrap_err().to_string();
    assert!(both.contains("exclude each other"), "{both}");
    sample.fill_up(0);
    let before = sample.tree();
    let error = sample.convert(&Tuning::default().inode_size(1024)).unwrap_err().to_string();
    assert!(error.contains("too little free space"), "{error}");
    sample.judge("refused", &before);
}

/// A cut at any write goes back to every file.
#[test]
fn an_interrupted_conversion_goes_back() {
    for (name, tuning) in [
        ("small-inodes-1k", Tuning::default().inode_size(256)),
        ("no-sparse-super", features("64bit")),
        ("default-1k", features("^64bit")),
        ("default-1k", features("^metadata_csum,^uninit_bg")),
        ("no-dir-index", features("metadata_csum")),
        ("ext3-1k", Tuning::default().convert_maps(true)),
    ] {
        let Some(sample) = Sample::new(name, 24) else { return };
        if name == "no-sparse-super" {
            sample.convert(&features("^64bit")).unwrap();
        } else if name == "no-dir-index" {
            sample.convert(&features("^metadata_csum")).unwrap();
        }
        sample.fill(1, 50);
        sample.fill_up(3 << 20);
        sample.remove_every(5);
        sample.cut_anywhere(&tuning);
    }
}

impl Sample {
    /// Cuts a change at random writes, rolls it back, and makes it in the end.
    pub fn cut_anywhere(&self, tuning: &Tuning) {
        let before = self.tree();
        let base = MemoryDevice::from_bytes(&std::fs::read(self.path()).unwrap());
        let size = base.size_bytes();
        let begin = |image| UndoDevice::begin(image, MemoryDevice::new(256 << 20), size).unwrap();
        let tune = |device: &_| drystone::reshape::tune(device, tuning, 1_700_000_000, &mut |_| {});
        let device = begin(Faulty::new(base.snapshot()));
        tune(&device).unwrap();
        let (image, _) = device.finish().unwrap();
        let writes = image.operations(DeviceOperation::Write);
        let mut random = fastrand::Rng::with_seed(number("DRYSTONE_SEED").unwrap_or(1));
        for _ in 0..number("DRYSTONE_CHANGES").unwrap_or(0).max(6) {
            let cut = random.u64(..writes);
            let image = Faulty::new(base.snapshot());
            let effect = Effect::Short { bytes: random.u64(..4) * 1024 };
            image.inject(Fault::of(DeviceOperation::Write, effect).when(Trigger::From(cut)));
            let device = begin(image);
            let done = tune(&device);
            let (image, log) = device.into_parts();
            image.repair();
            roll_back(&image, &log).unwrap();
            self.replace(&image);
            self.judge(&format!("cut at {cut} of {writes}, {done:?}"), &before);
        }
        self.replace(&base);
        self.convert_and_judge("not cut", tuning);
    }
}
