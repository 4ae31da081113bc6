//! Reference counts of a qcow2 after a power cut, and files that are cut off, judged by qemu-img(1).
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::{BlockDevice, OpenMode};
use drystone_testkit::judges::{Scratch, run};
use drystone_volumes::{VolumeError, VolumeName, open_as_named};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const DISK_BYTES: usize = 8 << 20;
const CLUSTER: usize = 65_536;
/// Where the header says that the image wasn't closed.
const DIRTY_AT: u64 = 79;

fn qemu(arguments: &str, paths: &[&Path]) {
    let mut words: Vec<&std::ffi::OsStr> =
        arguments.split_whitespace().map(AsRef::as_ref).collect();
    words.extend(paths.iter().map(|path| path.as_os_str()));
    run("qemu-img", &words).unwrap().expect_clean(arguments);
}

fn as_raw(scratch: &Scratch, path: &Path) -> Vec<u8> {
    let raw = scratch.join("raw");
    qemu("convert -O raw", &[path, &raw]);
    std::fs::read(raw).unwrap()
}

fn open(path: &Path, mode: OpenMode) -> Result<drystone_sync::Arc<dyn BlockDevice>, VolumeError> {
    open_as_named(&VolumeName::find(path).unwrap(), mode)
}

fn read_write(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn number(file: &File, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, offset).unwrap();
    u64::from_be_bytes(bytes)
}

/// Leaves an image as a power cut may, that kept lower counts and lost the tables for which they are right.
fn lower_counts_to_one(path: &Path) -> u16 {
    let file = read_write(path);
    let block = number(&file, number(&file, 48));
    let mut bytes = vec![0; CLUSTER];
    file.read_exact_at(&mut bytes, block).unwrap();
    let mut largest = 0;
    for count in bytes.chunks_exact_mut(2) {
        let old = u16::from_be_bytes([count[0], count[1]]);
        largest = largest.max(old);
        count.copy_from_slice(&old.min(1).to_be_bytes());
    }
    file.write_all_at(&bytes, block).unwrap();
    if number(&file, 0) as u32 == 3 {
        file.write_all_at(&[1], DIRTY_AT).unwrap();
    }
    largest
}

/// Bytes that a compressor makes a little smaller.
fn compressible() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(4);
    (0..DISK_BYTES).map(|at| if at % 8 == 0 { random.u8(..) } else { (at / 4096) as u8 }).collect()
}

fn raw_image(scratch: &Scratch, content: &[u8]) -> PathBuf {
    let path = scratch.join("source");
    std::fs::write(&path, content).unwrap();
    path
}

/// Each later overwrite takes one user away. If counts were too low, the cluster would be used again while it still
/// holds other data.
#[test]
fn clusters_that_hold_compressed_data_are_counted_as_often_as_they_are_used() {
    let scratch = Scratch::new("counts-compressed").unwrap();
    let mut content = compressible();
    let raw = raw_image(&scratch, &content);
    for version in ["0.10", "1.1"] {
        let path = scratch.join(version);
        qemu(&format!("convert -c -O qcow2 -o compat={version}"), &[&raw, &path]);
        assert!(lower_counts_to_one(&path) > 2);
        drop(open(&path, OpenMode::ReadWrite).unwrap());
        qemu("check -f qcow2", &[&path]);
        let device = open(&path, OpenMode::ReadWrite).unwrap();
        for cluster in (0..DISK_BYTES / CLUSTER).step_by(2) {
            let range = cluster * CLUSTER..(cluster + 1) * CLUSTER;
            content[range.clone()].fill(cluster as u8);
            device.write_at(range.start as u64, &content[range]).unwrap();
            device.flush().unwrap();
        }
        drop(device);
        qemu("check -f qcow2", &[&path]);
        assert!(as_raw(&scratch, &path) == content);
        content = compressible();
    }
}

#[test]
fn clusters_of_snapshots_are_counted_as_often_as_they_are_used() {
    let scratch = Scratch::new("counts-snapshots").unwrap();
    let content = compressible();
    let raw = raw_image(&scratch, &content);
    let path = scratch.join("disk");
    qemu("convert -O qcow2", &[&raw, &path]);
    for name in ["first", "second", "a third one with a long name"] {
        run("qemu-img", ["snapshot", "-c", name, path.to_str().unwrap()])
            .unwrap()
            .expect_clean(name);
        let device = open(&path, OpenMode::ReadWrite).unwrap();
        device.write_at(0, name.as_bytes()).unwrap();
    }
    assert!(lower_counts_to_one(&path) > 3);
    let device = open(&path, OpenMode::ReadWrite).unwrap();
    device.write_at(1 << 20, &vec![9; 3 << 20]).unwrap();
    device.flush().unwrap();
    device.write_at(5 << 20, &vec![10; 1 << 20]).unwrap();
    drop(device);
    qemu("check -f qcow2", &[&path]);
    qemu("snapshot -a first", &[&path]);
    assert!(as_raw(&scratch, &path) == content);
    qemu("check -f qcow2", &[&path]);
}

/// The next write would go to it in place. Only QEMU's own repair takes such a mark away.
#[test]
fn a_cluster_with_a_user_that_knows_of_no_other_is_refused() {
    let scratch = Scratch::new("counts-owned").unwrap();
    let path = scratch.join("disk");
    qemu("convert -O qcow2", &[&raw_image(&scratch, &compressible()), &path]);
    let file = read_write(&path);
    let table = number(&file, number(&file, 40)) & !(1 << 63);
    let entry = number(&file, table);
    file.write_all_at(&entry.to_be_bytes(), table + 8).unwrap();
    file.write_all_at(&[1], DIRTY_AT).unwrap();
    let error = open(&path, OpenMode::ReadWrite).unwrap_err().to_string();
    assert!(error.contains("several times") && error.contains("check -r all"), "{error}");
    assert!(std::fs::read(&path).unwrap()[DIRTY_AT as usize] == 1);
    run("qemu-img", ["check", "-r", "all", path.to_str().unwrap()]).unwrap();
    open(&path, OpenMode::ReadWrite).unwrap();
}

/// Zeros would be taken for what was in it, and the next write would make the file long enough again.
#[test]
fn a_file_that_is_cut_off_is_not_read_as_zeros() {
    let scratch = Scratch::new("counts-cut").unwrap();
    let content = compressible();
    let raw = raw_image(&scratch, &content);
    let (path, compressed) = (scratch.join("disk"), scratch.join("compressed"));
    qemu("convert -O qcow2", &[&raw, &path]);
    qemu("convert -c -O qcow2", &[&raw, &compressed]);
    let above = scratch.join("above");
    qemu("create -q -f qcow2 -b disk -F qcow2", &[&above]);
    for (path, names) in [(&path, vec![&path, &above]), (&compressed, vec![&compressed])] {
        let whole = std::fs::metadata(path).unwrap().len();
        for part in [9, 6, 4] {
            read_write(path).set_len(whole * part / 10).unwrap();
            for name in &names {
                let device = open(name, OpenMode::ReadOnly).unwrap();
                let mut bytes = vec![0; DISK_BYTES];
                let error = device.read_at(0, &mut bytes).unwrap_err();
                let error = format!("{error} {:?}", std::error::Error::source(&error));
                // Compressed data may be cut off inside a cluster.
                let is_told = error.contains("cut off") || error.contains("decompress");
                assert!(is_told, "{error}");
                let there = &mut bytes[..4 * CLUSTER];
                device.read_at(0, there).unwrap();
                assert!(*there == content[..4 * CLUSTER]);
            }
            let error = open(path, OpenMode::ReadWrite).unwrap_err().to_string();
            assert!(error.contains("cut off"), "{error}");
        }
    }
    let vmdk = scratch.join("disk.vmdk");
    qemu("convert -O vmdk -o subformat=monolithicFlat", &[&raw, &vmdk]);
    read_write(&scratch.join("disk-flat.vmdk")).set_len(DISK_BYTES as u64 / 2 + 512).unwrap();
    let device = open(&vmdk, OpenMode::ReadOnly).unwrap();
    let mut bytes = vec![0; DISK_BYTES / 2 + 512];
    device.read_at(0, &mut bytes).unwrap();
    assert!(bytes == content[..bytes.len()]);
    device.read_at(512, &mut bytes).unwrap_err();
}

/// QEMU may leave the last cluster shorter than the others.
#[test]
fn the_last_cluster_may_be_there_in_part() {
    let scratch = Scratch::new("counts-last").unwrap();
    let content = compressible();
    let path = scratch.join("disk");
    qemu("convert -O qcow2", &[&raw_image(&scratch, &content), &path]);
    let file = read_write(&path);
    let length = file.metadata().unwrap().len();
    file.set_len(length - 4096).unwrap();
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        let mut bytes = vec![0; DISK_BYTES];
        open(&path, mode).unwrap().read_at(0, &mut bytes).unwrap();
        assert!(bytes[..DISK_BYTES - 4096] == content[..DISK_BYTES - 4096]);
    }
}
