//! Whatever is wrong, several threads report what one does, in the same order.

use crate::{editor, images};
use drystone_blockdev::{BlockDevice, DeviceError, DeviceResult, MemoryDevice};
use drystone_fsck::{CheckOptions, CheckProgress, Error, Report, check};
use drystone_testkit::judges::{Scratch, debugfs, have, run};
use std::fs;
use std::path::{Path, PathBuf};

/// Files in one directory: more than a part of a pass keeps problems.
const FILES: usize = 5000;
/// Other directories.
const DIRECTORIES: usize = 100;

/// A device with a range that can't be read.
#[derive(Debug)]
struct Failing<'a> {
    below: &'a MemoryDevice,
    at: u64,
}

impl BlockDevice for Failing<'_> {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        if (offset..offset + buffer.len() as u64).contains(&self.at) {
            return Err(DeviceError::ReadOnly);
        }
        self.below.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.below.write_at(offset, data)
    }

    fn flush(&self) -> DeviceResult {
        self.below.flush()
    }
}

/// The report, and what the callback was told.
fn checked(device: &dyn BlockDevice, threads: usize) -> (Result<Report, String>, Vec<String>) {
    let mut told = Vec::new();
    let options = CheckOptions::default().threads(threads);
    let report = check(device, &options, &mut |progress| {
        if let CheckProgress::Problem(problem) = progress {
            told.push(problem.to_string());
        }
    });
    (report.map_err(|error| error.to_string()), told)
}

/// Checks with several numbers of threads; the report and what was told.
fn checked_alike(device: &dyn BlockDevice) -> (Result<Report, String>, Vec<String>) {
    let one = checked(device, 1);
    for threads in [2, 3, 8] {
        assert!(checked(device, threads) == one, "one thread and {threads}");
    }
    one
}

/// With less and less memory the report stays the same, until there is an error.
fn bounded(device: &dyn BlockDevice) {
    let within = |bytes| {
        let options = CheckOptions::default().threads(3).memory_max(bytes);
        check(device, &options, &mut |_| {})
    };
    let unbounded = within(u64::MAX).unwrap();
    let enough = (0..30).find(|power| within(1 << power).is_ok()).unwrap();
    assert!((12..20).contains(&enough), "{enough}");
    for power in enough..40 {
        assert_eq!(within(1 << power).unwrap(), unbounded);
    }
    for step in 0..128 {
        match within((128 + step) << (enough - 8)) {
            Ok(report) => assert_eq!(report, unbounded),
            Err(error) => assert!(matches!(error, Error::Memory { .. }), "{error}"),
        }
    }
}

/// An image with many files and directories, and attributes that files share; it is clean.
fn make(scratch: &Scratch) -> PathBuf {
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir_all(tree.join("many")).unwrap();
    for number in 0..FILES {
        fs::write(tree.join(format!("many/{number:05}")), "").unwrap();
    }
    for number in 0..DIRECTORIES {
        fs::create_dir(tree.join(format!("{number:03}"))).unwrap();
        fs::write(tree.join(format!("{number:03}/file")), [1; 5000]).unwrap();
    }
    fs::File::create(&image).unwrap().set_len(48 << 20).unwrap();
    let made = [
        "-q",
        "-F",
        "-b4096",
        "-I128",
        "-N8192",
        "-Enodiscard",
        "-d",
        tree.to_str().unwrap(),
        image.to_str().unwrap(),
    ];
    run("mke2fs", made).unwrap().expect_clean("mke2fs");
    assert!(images::check_file(&image).is_clean());
    image
}

fn load(image: &Path) -> MemoryDevice {
    MemoryDevice::from_bytes(&fs::read(image).unwrap())
}

/// The place of an inode on the device.
fn place_of(image: &Path, path: &str) -> u64 {
    let told = debugfs(image, &format!("imap {path}")).unwrap().output;
    let behind = |what: &str| {
        let word = told.split(what).nth(1).unwrap().split_whitespace().next().unwrap();
        word.trim_end_matches(',').to_owned()
    };
    let block: u64 = behind("located at block ").parse().unwrap();
    let offset = behind("offset ");
    block * 4096 + u64::from_str_radix(offset.trim_start_matches("0x"), 16).unwrap()
}

/// The first block of a file on the device.
fn block_of(image: &Path, path: &str) -> u64 {
    let told = debugfs(image, &format!("bmap {path} 0")).unwrap().output;
    told.split_whitespace().last().unwrap().parse().unwrap()
}

/// Where on the device an inode says where its first block is.
fn pointer_of(device: &MemoryDevice, inode: u64) -> u64 {
    let mut flags = [0; 4];
    device.read_at(inode + 32, &mut flags).unwrap();
    let has_extents = u32::from_le_bytes(flags) & 0x8_0000 != 0;
    inode + 40 + if has_extents { 20 } else { 0 }
}

#[test]
fn the_report_is_that_of_one_thread() {
    if !have("mke2fs") {
        return;
    }
    let _alone = images::alone();
    let scratch = Scratch::new("fsck-threads").unwrap();
    let image = make(&scratch);
    let (report, _) = checked_alike(&load(&image));
    assert_eq!(report.unwrap().summary.directories, DIRECTORIES as u64 + 3);
    bounded(&load(&image));

    // Names of one directory in many others, and of many in one.
    let links = (0..DIRECTORIES)
        .filter(|number| number % 7 == 3)
        .map(|number| format!("ln /050 /{number:03}/second; ln /{number:03} /many/d{number}; "))
        .collect::<String>();
    let linked = scratch.join("linked");
    fs::copy(&image, &linked).unwrap();
    editor::request(&linked, links.trim_end_matches("; "));
    let (report, told) = checked_alike(&load(&linked));
    let second = told.iter().filter(|problem| problem.contains("has names in directory")).count();
    assert!(second >= 20 && !report.unwrap().is_clean(), "{told:#?}");

    // Inodes are gone, as if they had never been: more problems than a part keeps, in one directory.
    let gone = load(&image);
    let behind = place_of(&image, "/many") / 4096 * 4096 + 4096;
    gone.write_at(behind, &vec![0; (FILES - 64) * 128]).unwrap();
    let (report, told) = checked_alike(&gone);
    assert!(report.unwrap().errors > 4096 && told.len() > 4096, "{}", told.len());

    // One node of a map, and one block of attributes, in inodes of many pieces.
    let shared = load(&image);
    let block = block_of(&image, "/many") as u32;
    for number in (0..FILES).step_by(97) {
        let inode = place_of(&image, &format!("/many/{number:05}"));
        let mut node = vec![0x0a, 0xf3, 1, 0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        node.extend(block.to_le_bytes());
        node.extend([0; 4]);
        shared.write_at(inode + 40, &node).unwrap();
        shared.write_at(inode + 104, &block.to_le_bytes()).unwrap();
    }
    let (report, told) = checked_alike(&shared);
    assert!(!report.unwrap().is_clean());
    assert!(told.iter().any(|problem| problem.contains("node")), "{told:#?}");

    // Directories that have the block of another one too: its names count once.
    let shared = load(&image);
    let block = block_of(&image, "/050") as u32;
    for number in (0..DIRECTORIES).step_by(9) {
        let pointer = pointer_of(&shared, place_of(&image, &format!("/{number:03}")));
        shared.write_at(pointer, &block.to_le_bytes()).unwrap();
    }
    let (report, told) = checked_alike(&shared);
    assert!(!report.unwrap().is_clean());
    assert!(told.iter().any(|problem| problem.contains("claimed by")), "{told:#?}");

    // A device that fails in the middle of the table, and in a directory, with something to tell before that.
    let below = load(&image);
    below.write_at(place_of(&image, "<2>") + 4, &[0xff; 4]).unwrap();
    fails_alike(&below, place_of(&image, "/many") + 3000 * 128);
    let mut directories: Vec<_> = (0..DIRECTORIES).map(|number| format!("/{number:03}")).collect();
    directories.sort_by_key(|path| place_of(&image, path));
    let below = load(&image);
    below.write_at(place_of(&image, &format!("{}/file", directories[0])), &[0; 128]).unwrap();
    fails_alike(&below, block_of(&image, &directories[DIRECTORIES - 1]) * 4096);
}

fn fails_alike(below: &MemoryDevice, at: u64) {
    let (report, told) = checked_alike(&Failing { below, at });
    assert!(report.is_err() && !told.is_empty(), "{told:#?}");
}
