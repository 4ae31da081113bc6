//! FAT32 file systems, judged by fsck.fat(8) and read by mtools(1).
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "build/trees.rs"]
#[allow(dead_code, reason = "for other tests")]
mod trees;

use drystone_blockdev::{BlockDevice, Existing, FileDevice, MemoryDevice};
use drystone_mkfs::Error;
use drystone_mkfs::fat::{FatBuilder, FatOptions};
use drystone_mkfs::tree::{ContentSource, FileTree, NodeContent, NodeToInsert, Segment};
use drystone_testkit::judges::have;
use std::path::Path;
use std::process::Command;
use trees::{Pattern, meta, time, whole};

const MIB: u64 = 1 << 20;

fn options(size_bytes: Option<u64>) -> FatOptions {
    FatOptions::default().size_bytes(size_bytes).label(*b"ESP        ").disk_offset(MIB)
}

fn tree() -> FileTree {
    let mut tree = FileTree::new();
    let source = tree.add_source(Box::new(Pattern)).unwrap();
    let mut add = |path: &str, new: NodeToInsert| {
        tree.insert(path.as_bytes(), new, &meta(0o644), time()).unwrap();
    };
    add("EFI/BOOT/BOOTX64.EFI", whole(source, 2_500_001, 1));
    add("EFI/Linux/a kernel with a long name, ünïcode and 123.efi", whole(source, 100, 2));
    add("loader/loader.conf", NodeToInsert::File(NodeContent::Bytes(b"timeout 3\n".to_vec())));
    add("loader/empty", NodeToInsert::File(NodeContent::Bytes(Vec::new())));
    for number in 0..300 {
        add(&format!("loader/entries/an entry {number}.conf"), whole(source, number, 3));
    }
    let piece = |logical, length| Segment { logical, length, source, object: 4, offset: logical };
    let pieces = vec![piece(512, 700), piece(MIB - 100, 3 * MIB), piece(5 * MIB, 1)];
    add("sparse", NodeToInsert::File(NodeContent::Pieces { size: 6 * MIB, pieces }));
    tree
}

fn write(builder: &FatBuilder<'_>, path: &Path) {
    let device = FileDevice::create(path, builder.size_bytes(), Existing::Overwrite).unwrap();
    builder.write(&device, 0x1234_5678, true, &()).unwrap();
}

/// What a program of mtools prints.
fn mtools(program: &str, image: &Path, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(program);
    command.arg("-i").arg(image).args(arguments).env("TZ", "UTC").env("MTOOLS_SKIP_CHECK", "0");
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{program}: {errors}");
    output.stdout
}

fn judge(path: &Path) {
    let output = Command::new("fsck.fat").arg("-nv").arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn files_are_read_as_they_were_given() {
    if !have("fsck.fat") || !have("mtype") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fat");
    let tree = tree();
    for size in [None, Some(34 * MIB), Some(300 * MIB), Some(9 << 30)] {
        let builder = FatBuilder::new(&tree, options(size)).unwrap();
        assert!(size.is_none_or(|size| size == builder.size_bytes()));
        write(&builder, &path);
        judge(&path);
        let expected = |length: usize, object| {
            let mut bytes = vec![0; length];
            Pattern.read_at(object, 0, &mut bytes).unwrap();
            bytes
        };
        assert!(mtools("mtype", &path, &["::EFI/BOOT/BOOTX64.EFI"]) == expected(2_500_001, 1));
        let long = "::efi/linux/A kernel with a long name, ünïcode and 123.efi";
        assert!(mtools("mtype", &path, &[long]) == expected(100, 2));
        assert_eq!(mtools("mtype", &path, &["::loader/loader.conf"]), b"timeout 3\n");
        assert_eq!(mtools("mtype", &path, &["::loader/empty"]), b"");
        let last = mtools("mtype", &path, &["::loader/entries/an entry 299.conf"]);
        assert!(last == expected(299, 3));
        let mut sparse = vec![0; 6 << 20];
        for range in [512..1212, (1 << 20) - 100..(4 << 20) - 100, 5 << 20..(5 << 20) + 1] {
            Pattern.read_at(4, range.start as u64, &mut sparse[range]).unwrap();
        }
        assert!(mtools("mtype", &path, &["::sparse"]) == sparse);
        let listed = String::from_utf8(mtools("mdir", &path, &["::EFI/BOOT"])).unwrap();
        assert!(listed.contains("2500001 2023-11-14  22:13"), "{listed}");
        assert!(listed.contains("Volume in drive : is ESP"), "{listed}");
        assert!(listed.contains("1234-5678"), "{listed}");
    }
}

/// What was on the device before makes no difference to what is read.
#[test]
fn a_used_device_is_no_hindrance() {
    let tree = tree();
    let builder = FatBuilder::new(&tree, options(None)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fat");
    std::fs::write(&path, vec![0xa5; builder.size_bytes() as usize]).unwrap();
    let device = FileDevice::open(&path, drystone_blockdev::OpenMode::ReadWrite).unwrap();
    builder.write(&device, 1, false, &()).unwrap();
    drop(device);
    if have("fsck.fat") {
        judge(&path);
    }
    // Up to the first free cluster it is the same as on a device of zeros.
    let clean = MemoryDevice::new(builder.size_bytes());
    builder.write(&clean, 1, true, &()).unwrap();
    let mut bytes = vec![0; 8 << 20];
    clean.read_at(0, &mut bytes).unwrap();
    assert!(std::fs::read(&path).unwrap().starts_with(&bytes));
}

#[test]
fn what_fat_can_not_hold_is_refused_by_its_path() {
    let refused = |path: &str, new: NodeToInsert| {
        let mut tree = FileTree::new();
        tree.insert(path.as_bytes(), new, &meta(0o644), time()).unwrap();
        match FatBuilder::new(&tree, options(None)) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{path}"),
        }
    };
    let symlink = refused("a/link", NodeToInsert::Symlink(b"b".to_vec()));
    assert_eq!(symlink, "/a/link: FAT holds only directories and files");
    let file = || NodeToInsert::File(NodeContent::Bytes(Vec::new()));
    assert!(refused("a/b:c", file()).starts_with("/a/b:c: a name in FAT"));
    let size = 1 << 32;
    let large = refused("l", NodeToInsert::File(NodeContent::Pieces { size, pieces: Vec::new() }));
    assert!(large.contains("less than 4 GiB"), "{large}");
    let tree = tree();
    let small = FatBuilder::new(&tree, options(Some(32 * MIB))).err().unwrap();
    assert!(matches!(small, Error::DoesNotFit { .. }), "{small}");
    assert!(FatBuilder::new(&tree, options(Some(64 * MIB + 512))).is_err());
}
