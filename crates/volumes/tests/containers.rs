//! Disk images of virtual machines, judged by qemu-img(1).
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::{BlockDevice, Existing, FileDevice, OpenMode};
use drystone_testkit::judges::{Scratch, run};
use drystone_volumes::{VolumeError, VolumeName, create_qcow2, open_as_named};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DISK_BYTES: u64 = 8 << 20;
const BLOCK: usize = 4096;

fn qemu_img(arguments: &str, paths: &[&Path]) -> i32 {
    let mut words: Vec<&std::ffi::OsStr> =
        arguments.split_whitespace().map(AsRef::as_ref).collect();
    words.extend(paths.iter().map(|path| path.as_os_str()));
    let judged = run("qemu-img", &words).unwrap();
    if judged.code != 0 {
        eprintln!("qemu-img {arguments}: {}", judged.output);
    }
    judged.code
}

fn qemu(arguments: &str, paths: &[&Path]) {
    assert_eq!(qemu_img(arguments, paths), 0, "qemu-img {arguments}");
}

/// No errors, with or without clusters that are counted but not used.
fn expect_no_errors(path: &Path) {
    let code = qemu_img("check -f qcow2", &[path]);
    assert!(code == 0 || code == 3, "qemu-img check: {code}");
}

/// What QEMU reads from an image.
fn as_raw(scratch: &Scratch, path: &Path) -> Vec<u8> {
    let raw = scratch.join("raw");
    qemu("convert -O raw", &[path, &raw]);
    std::fs::read(raw).unwrap()
}

fn open(path: &Path, mode: OpenMode) -> Result<drystone_sync::Arc<dyn BlockDevice>, VolumeError> {
    open_as_named(&VolumeName::find(path).unwrap(), mode)
}

/// Changes a device and what it should hold the same way.
fn change(device: &dyn BlockDevice, model: &mut [u8], random: &mut fastrand::Rng, steps: usize) {
    for _ in 0..steps {
        let offset = random.usize(..model.len() - 1);
        let length = random.usize(1..=(model.len() - offset).min(200_000));
        let range = offset..offset + length;
        match random.u8(..10) {
            0..5 => {
                let byte = random.u8(..);
                model[range.clone()].fill(byte);
                device.write_at(offset as u64, &model[range]).unwrap();
            }
            5..7 => {
                model[range].fill(0);
                device.zero_range(offset as u64, length as u64).unwrap();
            }
            7 => device.flush().unwrap(),
            _ => {
                let mut bytes = vec![0; length];
                device.read_at(offset as u64, &mut bytes).unwrap();
                assert!(bytes == model[range], "{length} bytes at {offset}");
            }
        }
    }
    device.flush().unwrap();
}

fn changed_and_judged(scratch: &Scratch, path: &Path, model: &mut [u8], seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..2 {
        let device = open(path, OpenMode::ReadWrite).unwrap();
        change(&*device, model, &mut random, 40);
        drop(device);
        expect_no_errors(path);
        assert!(as_raw(scratch, path) == model, "seed {seed}");
    }
}

#[test]
fn what_is_made_here_is_sound_for_qemu() {
    let scratch = Scratch::new("qcow2-made").unwrap();
    let path = scratch.join("disk");
    let file = FileDevice::create(&path, 0, Existing::Refuse).unwrap();
    drop(create_qcow2(file, DISK_BYTES).unwrap());
    qemu("check -f qcow2", &[&path]);
    changed_and_judged(&scratch, &path, &mut vec![0; DISK_BYTES as usize], 1);
}

#[test]
fn all_that_qemu_makes_is_written() {
    let scratch = Scratch::new("qcow2-kinds").unwrap();
    let kinds = [
        "compat=0.10",
        "cluster_size=512",
        "cluster_size=2M",
        "refcount_bits=1",
        "refcount_bits=64,lazy_refcounts=on",
        "preallocation=metadata",
    ];
    for (seed, kind) in kinds.iter().enumerate() {
        let path = scratch.join(format!("disk{seed}"));
        qemu(&format!("create -q -f qcow2 -o {kind}"), &[&path, Path::new("8M")]);
        changed_and_judged(&scratch, &path, &mut vec![0; DISK_BYTES as usize], seed as u64);
    }
}

/// Data of a backing file, of compressed clusters, and of a snapshot that must not change.
#[test]
fn what_is_below_an_image_stays() {
    let scratch = Scratch::new("qcow2-below").unwrap();
    let mut model = vec![0; DISK_BYTES as usize];
    fastrand::Rng::with_seed(7).fill(&mut model[1 << 20..3 << 20]);
    let base = scratch.join("base.img");
    std::fs::write(&base, &model).unwrap();
    let compressed = scratch.join("compressed");
    qemu("convert -c -O qcow2", &[&base, &compressed]);
    let compressed_before = std::fs::read(&compressed).unwrap();
    for (name, format) in [("base.img", "raw"), ("compressed", "qcow2")] {
        let path = scratch.join(format!("on-{name}.qcow2"));
        qemu(&format!("create -q -f qcow2 -b {name} -F {format}"), &[&path]);
        changed_and_judged(&scratch, &path, &mut model.clone(), 11);
    }
    assert!(std::fs::read(&base).unwrap() == model);
    assert!(std::fs::read(&compressed).unwrap() == compressed_before);
    qemu("snapshot -c before", &[&compressed]);
    changed_and_judged(&scratch, &compressed, &mut model.clone(), 12);
    qemu("snapshot -a before", &[&compressed]);
    assert!(as_raw(&scratch, &compressed) == model);
    qemu("check -f qcow2", &[&compressed]);
}

#[test]
fn images_and_backing_files_are_locked() {
    let scratch = Scratch::new("qcow2-locks").unwrap();
    let (base, path) = (scratch.join("base.qcow2"), scratch.join("disk.qcow2"));
    qemu("create -q -f qcow2", &[&base, Path::new("8M")]);
    qemu("create -q -f qcow2 -b base.qcow2 -F qcow2", &[&path]);
    let device = open(&path, OpenMode::ReadOnly).unwrap();
    open(&base, OpenMode::ReadOnly).unwrap();
    for path in [&base, &path] {
        let error = open(path, OpenMode::ReadWrite).unwrap_err().to_string();
        assert!(error.contains("in use"), "{error}");
    }
    drop(device);
    open(&base, OpenMode::ReadWrite).unwrap();
}

#[test]
fn a_raw_image_is_raw_whatever_its_name() {
    let scratch = Scratch::new("qcow2-raw").unwrap();
    let path = scratch.join("raw.qcow2");
    std::fs::write(&path, vec![7; 4096]).unwrap();
    assert_eq!(open(&path, OpenMode::ReadWrite).unwrap().size_bytes(), 4096);
}

#[test]
fn other_formats_are_named() {
    let scratch = Scratch::new("qcow2-others").unwrap();
    for (format, options, expected) in [
        ("vmdk", "", "VMDK in one sparse file"),
        ("vhdx", "", "VHDX"),
        ("vdi", "", "VDI"),
        ("qcow", "", "qcow version 1"),
        ("qcow2", "-o extended_l2=on", "subclusters"),
        ("qcow2", "-o data_file=data", "external data file"),
    ] {
        let path = scratch.join("disk");
        let options = options.replace("=data", &format!("={}", scratch.join("data").display()));
        qemu(&format!("create -q -f {format} {options}"), &[&path, Path::new("8M")]);
        for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
            let error = open(&path, mode).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("qemu-img convert"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
    }
    // To make an encrypted one, qemu-img measures the processor, and fails on a busy one.
    let path = scratch.join("disk");
    qemu("create -q -f qcow2", &[&path, Path::new("8M")]);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let luks = 2_u32;
    std::os::unix::fs::FileExt::write_all_at(&file, &luks.to_be_bytes(), 32).unwrap();
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        let error = open(&path, mode).unwrap_err().to_string();
        assert!(error.contains("encryption") && error.contains("qemu-img convert"), "{error}");
    }
}

#[test]
fn flat_vmdk_is_read() {
    let scratch = Scratch::new("qcow2-vmdk").unwrap();
    let (raw, path) = (scratch.join("raw"), scratch.join("disk.vmdk"));
    let mut content = vec![0; DISK_BYTES as usize];
    fastrand::Rng::with_seed(3).fill(&mut content);
    std::fs::write(&raw, &content).unwrap();
    qemu("convert -O vmdk -o subformat=monolithicFlat", &[&raw, &path]);
    let mut bytes = vec![0; DISK_BYTES as usize];
    open(&path, OpenMode::ReadOnly).unwrap().read_at(0, &mut bytes).unwrap();
    assert!(bytes == content);
    let error = open(&path, OpenMode::ReadWrite).unwrap_err().to_string();
    assert!(error.contains("only read"), "{error}");
}

/// Reference counts that a power cut has taken away come back before they are needed.
#[test]
fn counts_are_restored() {
    let scratch = Scratch::new("qcow2-counts").unwrap();
    for (number, kind) in
        ["refcount_bits=16", "refcount_bits=2", "refcount_bits=64"].iter().enumerate()
    {
        let path = scratch.join(format!("disk{number}"));
        qemu(&format!("create -q -f qcow2 -o {kind}"), &[&path, Path::new("8M")]);
        let mut model = vec![0; DISK_BYTES as usize];
        let device = open(&path, OpenMode::ReadWrite).unwrap();
        change(&*device, &mut model, &mut fastrand::Rng::with_seed(5), 30);
        drop(device);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let number = |offset| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, offset).unwrap();
            u64::from_be_bytes(bytes)
        };
        let block = number(number(48));
        file.write_all_at(&vec![0; 65_536], block).unwrap();
        // And the image says that it wasn't closed.
        file.write_all_at(&[1], 79).unwrap();
        drop(open(&path, OpenMode::ReadWrite).unwrap());
        qemu("check -f qcow2", &[&path]);
        changed_and_judged(&scratch, &path, &mut model, 6);
    }
}

/// A damaged file is refused, or gives errors, or wrong bytes; it neither ends the process nor takes all
/// memory or time.
#[test]
fn damaged_files_do_no_harm() {
    let scratch = Scratch::new("qcow2-damaged").unwrap();
    let path = scratch.join("disk");
    qemu("create -q -f qcow2 -o cluster_size=4K", &[&path, Path::new("8M")]);
    let device = open(&path, OpenMode::ReadWrite).unwrap();
    change(&*device, &mut vec![0; DISK_BYTES as usize], &mut fastrand::Rng::with_seed(8), 30);
    drop(device);
    let sound = std::fs::read(&path).unwrap();
    let number = |at: usize| u64::from_be_bytes(sound[at..at + 8].try_into().unwrap()) as usize;
    let (l1, refcounts) = (number(40), number(48));
    let l2 = number(l1) & 0xffff_ffff;
    let block = number(refcounts);
    let mut random = fastrand::Rng::with_seed(9);
    let (mut opened, mut refused) = (0, 0);
    for round in 0..400 {
        let mut bytes = sound.clone();
        let (start, length) = match round % 5 {
            0 | 1 => (0, 120),
            2 => (l1, 32),
            3 => (l2, 512),
            _ => (*random.choice(&[refcounts, block]).unwrap(), 64),
        };
        for _ in 0..random.usize(1..4) {
            let at = start + random.usize(..length);
            bytes[at] =
                if random.bool() { random.u8(..) } else { bytes[at] ^ (1 << random.u8(..8)) };
        }
        if random.u8(..10) == 0 {
            bytes.truncate(random.usize(1024..sound.len()));
        }
        std::fs::write(&path, &bytes).unwrap();
        for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
            let Ok(device) = open(&path, mode) else {
                refused += 1;
                continue;
            };
            opened += 1;
            let mut buffer = vec![0; 65_536];
            for _ in 0..8 {
                let room = device.size_bytes().saturating_sub(65_536);
                let offset = random.u64(..=room.min(DISK_BYTES));
                let length = buffer.len().min(device.size_bytes() as usize);
                let _ = device.read_at(offset, &mut buffer[..length]);
                if mode == OpenMode::ReadWrite {
                    let _ = device.write_at(offset, &buffer[..length]);
                    let _ = device.zero_range(offset, length as u64);
                }
            }
            let _ = device.flush();
        }
    }
    assert!(opened > 100 && refused > 100, "{opened} opened, {refused} refused");
}

/// A small file could otherwise have as many entries to look at as it likes.
#[test]
fn a_table_that_is_used_twice_is_refused() {
    let scratch = Scratch::new("qcow2-twice").unwrap();
    let path = scratch.join("disk");
    qemu("create -q -f qcow2 -o cluster_size=4K", &[&path, Path::new("8M")]);
    let device = open(&path, OpenMode::ReadWrite).unwrap();
    device.write_at(0, &[1; 4096]).unwrap();
    device.write_at(4 << 20, &[1; 4096]).unwrap();
    drop(device);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 40).unwrap();
    let first_level = u64::from_be_bytes(bytes);
    file.read_exact_at(&mut bytes, first_level).unwrap();
    file.write_all_at(&bytes, first_level + 16).unwrap();
    let error = open(&path, OpenMode::ReadWrite).unwrap_err().to_string();
    assert!(error.contains("is used twice"), "{error}");
}

/// An image that is its own backing file isn't opened, and takes no stack.
#[test]
fn backing_files_have_an_end() {
    let scratch = Scratch::new("qcow2-endless").unwrap();
    let path = scratch.join("disk");
    qemu("create -q -f qcow2 -u -b disk -F qcow2", &[&path, Path::new("8M")]);
    let error = open(&path, OpenMode::ReadOnly).unwrap_err().to_string();
    assert!(error.contains("the chain of backing files is too long"), "{error}");
}

/// The name of the image that the writer below has to write.
const WRITTEN: &str = "DRYSTONE_TEST_WRITTEN";

/// Whether the image says that its counts may be wrong.
fn says_not_closed(path: &Path) -> bool {
    std::fs::read(path).unwrap()[79] & 1 != 0
}

/// So that whoever opens it after a power cut corrects its counts.
#[test]
fn an_image_that_is_written_says_that_it_is_not_closed() {
    let scratch = Scratch::new("qcow2-mark").unwrap();
    for (version, can_say) in [("0.10", false), ("1.1", true)] {
        let path = scratch.join(version);
        qemu(&format!("create -q -f qcow2 -o compat={version}"), &[&path, Path::new("8M")]);
        drop(open(&path, OpenMode::ReadOnly).unwrap());
        assert!(!says_not_closed(&path));
        let device = open(&path, OpenMode::ReadWrite).unwrap();
        assert_eq!(says_not_closed(&path), can_say);
        device.write_at(0, &[1; BLOCK]).unwrap();
        device.flush().unwrap();
        assert_eq!(says_not_closed(&path), can_say);
        drop(device);
        assert!(!says_not_closed(&path));
        qemu("check -f qcow2", &[&path]);
    }
}

/// Not a test by itself: the process that the next one kills.
#[test]
fn writer_to_be_killed() {
    let Some(path) = std::env::var_os(WRITTEN) else { return };
    let device = open(Path::new(&path), OpenMode::ReadWrite).unwrap();
    let blocks = DISK_BYTES / BLOCK as u64;
    for number in 1_u64.. {
        let at = number * 37 % blocks;
        device.write_at(at * BLOCK as u64, &number.to_le_bytes().repeat(BLOCK / 8)).unwrap();
        if number % 5 == 0 {
            device.flush().unwrap();
            println!("synced {number}");
        }
    }
}

/// A killed process leaves a sound image that has all that was synced.
#[test]
fn what_is_synced_survives_a_kill() {
    let scratch = Scratch::new("qcow2-killed").unwrap();
    let base = scratch.join("base");
    std::fs::write(&base, vec![0xee; DISK_BYTES as usize]).unwrap();
    let mut random = fastrand::Rng::with_seed(10);
    for round in 0..8 {
        let path: PathBuf = scratch.join(format!("disk{round}.qcow2"));
        qemu("create -q -f qcow2 -o cluster_size=16K -b base -F raw", &[&path]);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer_to_be_killed", "--nocapture"])
            .env(WRITTEN, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let stop_after = random.u64(5..400);
        let mut synced = 0;
        let read = |line: &str| line.strip_prefix("synced ").and_then(|text| text.parse().ok());
        while synced < stop_after {
            synced = read(&lines.next().unwrap().unwrap()).unwrap_or(synced);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines {
            synced = line.ok().and_then(|line| read(&line)).unwrap_or(synced);
        }
        expect_no_errors(&path);
        let content = as_raw(&scratch, &path);
        assert!(says_not_closed(&path));
        if round % 2 == 0 {
            // QEMU corrects the counts by itself, and frees what leaked.
            run("qemu-io", ["-f", "qcow2", "-c", "read 0 512", path.to_str().unwrap()])
                .unwrap()
                .expect_clean("opening to write");
            qemu("check -f qcow2", &[&path]);
            assert!(as_raw(&scratch, &path) == content);
        }
        let device = open(&path, OpenMode::ReadWrite).unwrap();
        let blocks = DISK_BYTES / BLOCK as u64;
        for number in synced.saturating_sub(blocks - 1).max(1)..=synced {
            let at = (number * 37 % blocks) as usize * BLOCK;
            let mut block = vec![0; BLOCK];
            device.read_at(at as u64, &mut block).unwrap();
            assert!(block == content[at..at + BLOCK]);
            // It may have been written once more since.
            let found = u64::from_le_bytes(block[..8].try_into().unwrap());
            assert!(found >= number && found % blocks == number % blocks, "{found} for {number}");
        }
    }
}
