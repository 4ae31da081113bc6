//! Converted images before other judges: the programs of e2fsprogs that convert, and the kernel.

use crate::converting::features;
use crate::support::Sample;
use drystone::reshape::Tuning;
use drystone_testkit::judges::{kernel_mount, run};
use drystone_testkit::tree::{TreeOptions, TreeSnapshot, diff};
use std::ffi::OsStr;

/// The programs that convert images make the same of one.
#[test]
fn features_and_sizes_are_those_of_the_tools() {
    for (name, tool, tuning) in [
        ("default", "tune2fs -O ^metadata_csum", features("^metadata_csum")),
        ("modern", "tune2fs -O ^metadata_csum", features("^metadata_csum")),
        (
            "default-1k",
            "tune2fs -O ^metadata_csum,^uninit_bg",
            features("^metadata_csum,^uninit_bg"),
        ),
        ("group-checksums", "tune2fs -O metadata_csum", features("metadata_csum")),
        ("group-checksums", "tune2fs -O ^uninit_bg", features("^uninit_bg")),
        ("no-checksums", "tune2fs -O metadata_csum", features("metadata_csum")),
        ("no-checksums", "tune2fs -O uninit_bg", features("uninit_bg")),
        ("default", "resize2fs -s", features("^64bit")),
        ("32bit", "resize2fs -b", features("64bit")),
        ("no-flex-bg", "resize2fs -b", features("64bit")),
        ("ext2-1k", "tune2fs -I 256", Tuning::default().inode_size(256)),
        ("no-flex-bg", "tune2fs -I 512", Tuning::default().inode_size(512)),
    ] {
        let Some(sample) = Sample::new(name, 64) else { return };
        let original = std::fs::read(sample.path()).unwrap();
        let (program, arguments) = tool.split_once(' ').unwrap();
        let arguments = arguments.split(' ').map(OsStr::new);
        let path = sample.path();
        let judgement = run(program, arguments.chain([path.as_os_str()])).unwrap();
        judgement.expect_clean(tool);
        let shown = |sample: &Sample| {
            let fields = ["Filesystem features", "Inode size", "Free blocks", "Free inodes"];
            fields.map(|field| sample.field(field))
        };
        let theirs = shown(&sample);
        std::fs::write(sample.path(), original).unwrap();
        sample.convert_and_judge(tool, &tuning);
        assert_eq!(shown(&sample), theirs, "{name}: {tool}");
    }
}

/// Linux needs a log of 1,024 blocks beside those for fast commits.
#[test]
fn a_journal_has_room_for_fast_commits() {
    let Some(sample) = Sample::new("fast-commit", 64) else { return };
    let block_size: u64 = sample.field("Block size").parse().unwrap();
    sample.convert_and_judge("smallest", &Tuning::default().journal_bytes(1024 * block_size));
    let mount = sample.beside("mount");
    let Some(mounted) = kernel_mount(&sample.path(), &mount, "").unwrap() else { return };
    std::fs::write(mounted.path().join("file"), "content").unwrap();
    mounted.unmount().unwrap();
}

/// The kernel sees the same files after each conversion, and writes more.
#[test]
fn the_kernel_reads_and_writes_what_was_converted() {
    for (name, tuning) in [
        ("small-inodes-1k", Tuning::default().inode_size(256)),
        ("default", Tuning::default().inode_size(1024)),
        ("no-resize-inode", features("^64bit")),
        ("no-flex-bg", features("64bit")),
        ("ext3-1k", Tuning::default().convert_maps(true)),
        ("default-1k", features("^metadata_csum")),
        ("ext2-1k", features("metadata_csum")),
        ("group-checksums", features("metadata_csum,metadata_csum_seed")),
        ("no-checksums", features("uninit_bg")),
    ] {
        let Some(sample) = Sample::new(name, 40) else { return };
        sample.fill(1, 60);
        let mount = sample.beside("mount");
        let seen = || {
            let mounted = kernel_mount(&sample.path(), &mount, "noatime,nodiratime").unwrap()?;
            let options = TreeOptions { times: true, ..TreeOptions::default() };
            let tree = TreeSnapshot::from_host(mounted.path(), &options).unwrap();
            mounted.unmount().unwrap();
            Some(tree)
        };
        let Some(before) = seen() else { return };
        sample.convert_and_judge("converted", &tuning);
        let Some(after) = seen() else { return };
        let differences = diff(&before, &after);
        assert!(differences.is_empty(), "{name}: {}", differences.join("\n"));
        let Some(mounted) = kernel_mount(&sample.path(), &mount, "").unwrap() else { return };
        for number in 0..600 {
            let name = mounted.path().join(format!("{number:0200}"));
            std::fs::write(name, vec![number as u8; number * 50]).unwrap();
        }
        mounted.unmount().unwrap();
        let written = sample.tree();
        sample.judge("written by the kernel", &written);
    }
}
