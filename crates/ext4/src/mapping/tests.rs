//! Mappings in images that mke2fs makes, judged by e2fsck.

use super::*;
use crate::Ext4;
use crate::mount::MountOptions;
use drystone_blockdev::{BlockDevice, DeviceError, FileDevice, MemoryDevice, OpenMode, Recording};
use drystone_sync::{Arc, thread};
use drystone_testkit::crash::CrashImages;
use drystone_testkit::judges::{
    Scratch, debugfs, e2fsck_check, have, kernel_mount, run, write_image,
};
use drystone_vfs::RequestContext;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

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
/// Blocks of the file that random changes stay within.
const SPAN: u32 = 3000;

struct Image {
    path: PathBuf,
    scratch: Scratch,
}

impl Image {
    /// An image with an empty file `f`; `None` where there are no tools.
    fn new(arguments: &str, bytes: u64) -> Option<Image> {
        if !have("mke2fs") || !have("debugfs") {
            return None;
        }
        let scratch = Scratch::new("mapping").expect("a scratch directory");
        let path = scratch.join("image");
        let file = std::fs::File::create(&path).expect("a file");
        file.set_len(bytes).expect("a sparse file");
        let arguments = format!("-q -F {arguments} {}", path.display());
        run("mke2fs", arguments.split_whitespace()).expect("mke2fs runs").expect_clean("mke2fs");
        let empty = scratch.join("empty");
        std::fs::write(&empty, "").expect("a file");
        let request = format!("write {} f", empty.display());
        let written = run("debugfs", ["-w", "-R", &request, &path.to_string_lossy()]);
        written.expect("debugfs runs").expect_clean("debugfs");
        Some(Image { path, scratch })
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        // Programs that other tests start have all open files for an instant, with their locks.
        for _ in 0..200 {
            match FileDevice::open(&self.path, OpenMode::ReadWrite) {
                Err(DeviceError::InUse { .. }) => thread::sleep(Duration::from_millis(10)),
                opened => return Arc::new(opened.expect("an image")),
            }
        }
        panic!("{} stays in use", self.path.display());
    }

    fn open(&self) -> Ext4 {
        let opened = Ext4::open(self.device(), MountOptions::default());
        opened.expect("an image that can be mounted")
    }

    /// The inode of a file in the root directory.
    fn inode_of(&self, fs: &Ext4, name: &str) -> Arc<Inode> {
        let said = debugfs(&self.path, &format!("stat {name}")).expect("debugfs runs").output;
        let number = said.split("Inode: ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let number = number.and_then(|number| number.parse().ok());
        fs.inode(InodeNumber::new(number.expect("an inode number"))).expect("an inode")
    }

    fn check(&self, what: &str) {
        e2fsck_check(&self.path).expect("e2fsck runs").expect_clean(what);
    }
}

/// Ends a mount, and the claim on its image.
fn close(fs: Ext4) {
    fs.close().expect("a clean end");
}

/// What each block of the file is mapped to, and whether that is unwritten.
type Model = BTreeMap<u32, (u64, bool)>;

struct Tester {
    fs: Ext4,
    inode: Arc<Inode>,
    model: Model,
    random: fastrand::Rng,
    context: RequestContext,
}

impl Tester {
    fn new(image: &Image, seed: u64) -> Tester {
        Tester::on(image, image.open(), seed)
    }

    /// On a mount of the image, or of a copy of it.
    fn on(image: &Image, fs: Ext4, seed: u64) -> Tester {
        let inode = image.inode_of(&fs, "f");
        let mut handle = fs.volume.start(credits::WRITE_RECORD).expect("a handle");
        // A file as long as that may have blocks anywhere.
        let size_bytes = u64::from(4 * SPAN) * fs.volume.block_size() as u64;
        let resized = inode.update(&fs, &mut handle, |fields| {
            fields.disk.size_bytes = size_bytes;
            Ok(())
        });
        fs.settle(handle, resized).expect("a change of an inode");
        Tester {
            fs,
            inode,
            model: Model::new(),
            random: fastrand::Rng::with_seed(seed),
            context: RequestContext::superuser(),
        }
    }

    fn ratio(&self) -> u32 {
        self.fs.volume.layout.blocks_per_cluster()
    }

    /// Maps up to `length` blocks; false if there is no space.
    fn insert(&mut self, logical: u32, length: u32) -> bool {
        if self.model.contains_key(&logical) {
            return true;
        }
        let Tester { fs, inode, context, .. } = self;
        let unwritten = has_extents(inode) && self.random.bool();
        let first = LogicalBlock::new(logical);
        let mapped = with_space_retry(&fs.volume, || {
            let _content = inode.content.write();
            let mut handle = fs.volume.start(credits::WRITE)?;
            let done = allocate(fs, &mut handle, context, inode, first, length).and_then(|run| {
                let (physical, length) = (run.physical, run.length);
                let extent = Extent { logical: first, physical, length, unwritten };
                match insert(fs, &mut handle, inode, extent) {
                    Ok(()) => Ok(run),
                    Err(error) => {
                        release_unmapped(fs, &mut handle, inode, &run)?;
                        Err(error)
                    }
                }
            });
            fs.settle(handle, done)
        });
        let run = match mapped {
            Ok(run) => run,
            Err(Error::NoSpace) => return false,
            Err(error) => panic!("{error}"),
        };
        assert!((1..=length).contains(&run.length));
        for skip in 0..run.length {
            let value = (run.physical.get() + u64::from(skip), unwritten);
            assert_eq!(self.model.insert(logical + skip, value), None);
        }
        true
    }

    fn remove(&mut self, from: u32, to: u64) {
        let Tester { fs, inode, .. } = self;
        let _content = inode.content.write();
        let mut end = to;
        loop {
            let step = with_space_retry(&fs.volume, || {
                let mut handle = fs.volume.start(credits::CUT)?;
                let step = remove(fs, &mut handle, inode, LogicalBlock::new(from), end);
                fs.settle(handle, step)
            });
            match step.expect("a removal") {
                Progress::Done => break,
                Progress::More { next } => end = next,
            }
        }
        self.model.retain(|block, _| *block < from || u64::from(*block) >= to);
    }

    fn convert(&mut self, logical: u32, length: u32, to_unwritten: bool) {
        let Tester { fs, inode, .. } = self;
        let _content = inode.content.write();
        let first = LogicalBlock::new(logical);
        let mapped = map(fs, inode, first, length).expect("a sound mapping");
        if mapped.physical.is_none() {
            return;
        }
        let done = with_space_retry(&fs.volume, || {
            let mut handle = fs.volume.start(credits::WRITE)?;
            let done = convert(fs, &mut handle, inode, first, mapped.length, to_unwritten);
            fs.settle(handle, done)
        });
        done.expect("a conversion");
        for (_, (_, unwritten)) in self.model.range_mut(logical..logical + mapped.length) {
            *unwritten = to_unwritten;
        }
    }

    fn shift(&mut self, from: u32, length: u32, up: bool) {
        let (ratio, length) = (self.ratio(), length.next_multiple_of(self.ratio()));
        let from = from / ratio * ratio + length;
        if self.model.last_key_value().is_some_and(|(last, _)| last + length >= 4 * SPAN) {
            return;
        }
        let delta = if up { i64::from(length) } else { -i64::from(length) };
        if !up {
            self.remove(from - length, u64::from(from));
        }
        let Tester { fs, inode, .. } = self;
        let _content = inode.content.write();
        let first = LogicalBlock::new(from);
        if up {
            split_at(fs, inode, first).expect("a cut");
        }
        shift(fs, inode, first, delta).expect("a move");
        let moved = self.model.split_off(&from);
        self.model.extend(
            moved.into_iter().map(|(block, value)| ((i64::from(block) + delta) as u32, value)),
        );
    }

    fn step(&mut self) {
        let from = self.random.u32(..SPAN);
        let length = self.random.u32(1..30);
        match self.random.u32(..100) {
            0..60 => assert!(self.insert(from, length / 4 + 1)),
            60..85 => self.remove(from, u64::from(from + length)),
            85..95 if has_extents(&self.inode) => {
                self.convert(from, length, from.is_multiple_of(2))
            }
            95..98 if has_extents(&self.inode) => self.shift(from, length, from.is_multiple_of(2)),
            98 => self.remove(from.max(SPAN / 2), END),
            _ => {}
        }
    }

    /// Compares the mapping with the model.
    fn check(&mut self) {
        let Tester { fs, inode, .. } = self;
        let mut found = Model::new();
        let mut blocks = BTreeSet::new();
        let mut next = LogicalBlock::FIRST;
        while let Some(extent) = next_extent(fs, inode, next).expect("a sound mapping") {
            for skip in 0..extent.length {
                let physical = extent.physical.get() + u64::from(skip);
                assert!(blocks.insert(physical), "block {physical} is mapped twice");
                found.insert(extent.logical.get() + skip, (physical, extent.unwritten));
            }
            next = LogicalBlock::new(extent.logical_end() as u32);
        }
        assert_eq!(found, self.model);
    }
}

fn random_changes(arguments: &str, extents: bool, seed: u64) {
    let Some(image) = Image::new(arguments, IMAGE_BYTES) else { return };
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

    // What is on the device is what was in memory; and all of it can go.
    let model = tester.model;
    let fs = image.open();
    let inode = image.inode_of(&fs, "f");
    let random = fastrand::Rng::with_seed(seed);
    let context = RequestContext::superuser();
    let mut tester = Tester { fs, inode, model, random, context };
    tester.check();
    let used = tester.inode.fields().disk.sectors;
    assert_eq!(used == 0, tester.model.is_empty());
    {
        let _content = tester.inode.content.write();
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
        let Some(image) = Image::new(arguments, 2 << 20) else { return };
        let mut tester = Tester::new(&image, 1);
        // Every other block, so that the mapping itself takes as much space as it can.
        let full = (0..4 * SPAN / 2).find(|block| !tester.insert(2 * block, 1));
        assert!(full.is_some(), "mke2fs {arguments}: the image was never full");
        tester.check();
        // What is free again can be used again.
        tester.remove(100, 200);
        assert!(tester.insert(150, 1));
        tester.check();
        close(tester.fs);
        image.check(arguments);
    }
}

#[test]
fn a_crash_at_any_time_leaves_a_sound_mapping() {
    for (seed, arguments) in ["-t ext4 -b 1024", "-t ext3 -b 1024"].into_iter().enumerate() {
        let seed = seed as u64;
        let Some(image) = Image::new(arguments, 16 << 20) else { return };
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
    let Some(image) = Image::new("-t ext4 -b 1024 -O ^has_journal -g 256", IMAGE_BYTES) else {
        return;
    };
    let mut tester = Tester::new(&image, 1);
    for block in 0..40 {
        assert!(tester.insert(block * 200, 200));
    }
    let steps = {
        let Tester { fs, inode, .. } = &tester;
        let _content = inode.content.write();
        let (mut steps, mut end) = (1, END);
        loop {
            let mut handle = fs.volume.start(credits::CUT).expect("a handle");
            let step = remove(fs, &mut handle, inode, LogicalBlock::FIRST, end);
            match fs.settle(handle, step).expect("a removal") {
                Progress::Done => break steps,
                Progress::More { next } => end = next,
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

#[test]
fn files_of_the_kernel_are_read() {
    for arguments in ["-t ext4 -b 1024", "-t ext4 -b 4096 -O bigalloc -C 16384", "-t ext3 -b 1024"]
    {
        let Some(image) = Image::new(arguments, IMAGE_BYTES) else { return };
        let directory = image.scratch.join("mount");
        let Some(mounted) = kernel_mount(&image.path, &directory, "").expect("mount runs") else {
            return;
        };
        let mut random = fastrand::Rng::with_seed(1);
        let mut content = vec![0; 8 << 20];
        for _ in 0..300 {
            let start = random.usize(..content.len() - 9000);
            random.fill(&mut content[start..start + random.clone().usize(1..9000)]);
        }
        let source = image.scratch.join("source");
        std::fs::write(&source, &content).expect("a file");
        // Another process writes: one that a test starts meanwhile would have a copy of our open
        // file for an instant, and keep the mount busy.
        let (source, target) = (source.as_path(), mounted.path().join("g"));
        let copied = run("cp", ["--sparse=always".as_ref(), source, &target]);
        copied.expect("cp runs").expect_clean("cp");
        mounted.unmount().expect("an unmount");

        let fs = image.open();
        let inode = image.inode_of(&fs, "g");
        let block_size = fs.volume.block_size();
        let mut read = vec![0; content.len()];
        let mut next = LogicalBlock::FIRST;
        while let Some(extent) = next_extent(&fs, &inode, next).expect("a sound mapping") {
            let start = extent.logical.get() as usize * block_size;
            let end = read.len().min(extent.logical_end() as usize * block_size);
            if !extent.unwritten && start < end {
                let offset = extent.physical.get() * block_size as u64;
                fs.volume.device.read_at(offset, &mut read[start..end]).expect("a read");
            }
            next = LogicalBlock::new(extent.logical_end() as u32);
        }
        let size = inode.fields().disk.size_bytes as usize;
        assert!(read[..size] == content[..size], "mke2fs {arguments}: other content");
        {
            let _content = inode.content.write();
            remove_all(&fs, &inode, LogicalBlock::FIRST).expect("a removal");
        }
        close(fs);
        image.check(arguments);
    }
}

#[test]
fn damaged_mappings_give_errors() {
    for (arguments, _) in
        [("-t ext4 -b 1024 -O ^has_journal,^metadata_csum", true), ("-t ext2 -b 1024", false)]
    {
        let Some(image) = Image::new(arguments, 8 << 20) else { return };
        let mut tester = Tester::new(&image, 1);
        for block in 0..600 {
            assert!(tester.insert(block * 5, 2));
        }
        let device = Arc::clone(&tester.fs.volume.device);
        let block_size = tester.fs.volume.block_size() as u64;
        let mut nodes = vec![];
        for block in 0..device.size_bytes() / block_size {
            let mut bytes = vec![0; block_size as usize];
            device.read_at(block * block_size, &mut bytes).expect("a read");
            let data = tester.model.values().any(|(physical, _)| *physical == block);
            nodes.extend((!data && bytes.iter().any(|byte| *byte != 0)).then_some(block));
        }
        drop(device);
        close(tester.fs);
        let sound = std::fs::read(&image.path).expect("an image");
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut bytes = sound.clone();
            for _ in 0..random.usize(1..20) {
                // Anything but the superblock and the descriptors.
                let block = nodes[random.usize(nodes.len() / 8..nodes.len())];
                bytes[(block * block_size) as usize + random.usize(..block_size as usize)] =
                    random.u8(..);
            }
            std::fs::write(&image.path, &bytes).expect("an image");
            use_damaged(&image, &mut random);
        }
    }
}

/// Looks and changes until something is found to be wrong.
fn use_damaged(image: &Image, random: &mut fastrand::Rng) {
    let Ok(fs) = Ext4::open(image.device(), MountOptions::default()) else { return };
    let Ok(inode) = fs.inode(InodeNumber::new(12)) else { return };
    if !crate::inode::has_mapping(&inode) {
        return;
    }
    let mut next = Some(LogicalBlock::FIRST);
    while let Some(from) = next {
        let Ok(Some(extent)) = next_extent(&fs, &inode, from) else { break };
        assert!(extent.logical >= from && extent.length > 0);
        next = extent.logical.checked_add(extent.length);
    }
    let _content = inode.content.write();
    let context = RequestContext::superuser();
    for _ in 0..40 {
        let first = LogicalBlock::new(random.u32(..SPAN));
        let Ok(mapped) = map(&fs, &inode, first, random.u32(1..10)) else { return };
        let Ok(mut handle) = fs.volume.start(credits::CUT + credits::WRITE) else { return };
        let done = match mapped.physical {
            Some(_) if has_extents(&inode) && random.bool() => {
                convert(&fs, &mut handle, &inode, first, mapped.length, random.bool())
            }
            Some(_) => {
                let end = first.as_u64() + u64::from(random.u32(1..200));
                remove(&fs, &mut handle, &inode, first, end).map(|_| ())
            }
            None => {
                allocate(&fs, &mut handle, &context, &inode, first, mapped.length).and_then(|run| {
                    let (physical, length) = (run.physical, run.length);
                    let extent = Extent { logical: first, physical, length, unwritten: false };
                    insert(&fs, &mut handle, &inode, extent)
                })
            }
        };
        if fs.settle(handle, done).is_err() {
            return;
        }
    }
}
