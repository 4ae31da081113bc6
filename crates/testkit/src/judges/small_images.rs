//! Seven small images with something in every structure, made by debugfs: the same on every machine,
//! without a mount.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::{Scratch, e2fsck_check, e2fsck_repair, run};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// One image.
#[derive(Debug)]
pub struct SmallImage {
    /// Its name.
    pub name: &'static str,
    /// Arguments of mke2fs.
    pub arguments: &'static str,
    /// Its size.
    pub size_mib: u64,
    /// Names in the directory `many`; with enough of them its index has two levels.
    pub names: usize,
}

/// Together they have every feature that the checker knows.
pub const SMALL_IMAGES: [SmallImage; 7] = [
    SmallImage {
        name: "modern",
        arguments: "-t ext4 -b 1024 -N 64 -O orphan_file,metadata_csum_seed",
        size_mib: 4,
        names: 400,
    },
    SmallImage {
        name: "attribute-inodes",
        arguments: "-t ext4 -b 4096 -N 64 -O ea_inode,large_dir,mmp,verity",
        size_mib: 8,
        names: 80,
    },
    SmallImage {
        name: "bigalloc-quota",
        arguments: "-t ext4 -b 1024 -N 64 -O bigalloc,quota,project -C 16384 \
                    -E quotatype=usrquota:grpquota:prjquota",
        size_mib: 8,
        names: 40,
    },
    SmallImage {
        name: "inline",
        arguments: "-t ext4 -b 1024 -N 64 -I 256 -O inline_data,encrypt,orphan_file",
        size_mib: 4,
        names: 40,
    },
    SmallImage { name: "ext3", arguments: "-t ext3 -b 1024 -N 64", size_mib: 8, names: 40 },
    SmallImage {
        name: "group-checksums",
        arguments: "-t ext4 -b 1024 -N 256 -g 2048 \
                    -O ^metadata_csum,uninit_bg,64bit,^flex_bg,meta_bg,^resize_inode",
        size_mib: 8,
        names: 40,
    },
    SmallImage {
        name: "ext2",
        arguments: "-t ext2 -b 1024 -I 128 -N 128 -g 2048 -O sparse_super2",
        size_mib: 8,
        names: 40,
    },
];

/// A piece every 8 KiB: more than the root of a map holds.
const PIECES: u64 = 120;
/// Where the last piece of a file lies that needs every level of a block map.
const FAR_BYTES: u64 = 70_000 << 10;

/// Makes the image of a set, filled, indexed and clean. It has so many files more than each has, with
/// different content.
///
/// # Panics
/// If a program fails.
#[must_use]
pub fn make_small_image(scratch: &Scratch, set: &SmallImage, more_files: usize) -> PathBuf {
    let image = scratch.join(set.name);
    File::create(&image).unwrap().set_len(set.size_mib << 20).unwrap();
    // The identity decides checksums, and the hash seed where an index has a name: a run with the same
    // seed damages the same fields.
    let mut fixed = "-q -F -U 6f0f2ef4-6b3c-4b02-9a53-111111111111".to_owned();
    if more_files > 0 {
        fixed += " -N 512";
    }
    let seed = "-E hash_seed=6f0f2ef4-6b3c-4b02-9a53-222222222222";
    let chosen = match set.arguments.contains("-E ") {
        true => set.arguments.replace("-E ", &format!("{seed},")),
        false => format!("{} {seed}", set.arguments),
    };
    let arguments = chosen.split_whitespace().chain(fixed.split_whitespace());
    run("mke2fs", arguments.map(OsStr::new).chain([image.as_os_str()]))
        .unwrap()
        .expect_clean(set.name);
    let script = scratch.join("script");
    fs::write(&script, contents(scratch, set) + &more(scratch, more_files)).unwrap();
    let arguments = [OsStr::new("-w"), OsStr::new("-f"), script.as_os_str(), image.as_os_str()];
    run("debugfs", arguments).unwrap();
    // Indexes directories and counts names and quota.
    run("e2fsck", [OsStr::new("-fyD"), image.as_os_str()]).unwrap();
    e2fsck_repair(&image).unwrap();
    e2fsck_check(&image).unwrap().expect_clean(set.name);
    image
}

/// What debugfs does to fill an image.
fn contents(scratch: &Scratch, set: &SmallImage) -> String {
    let host = |name: &str, content: &[(u64, &[u8])]| {
        let path = scratch.join(name);
        let file = File::create(&path).unwrap();
        for (offset, bytes) in content {
            file.write_all_at(bytes, *offset).unwrap();
        }
        path.display().to_string()
    };
    let pieces: Vec<(u64, &[u8])> = (0..PIECES).map(|piece| (piece * 8192, &[7; 16][..])).collect();
    let small = host("small", &[(0, b"a few bytes")]);
    let plain = host("plain", &[(0, &[7; 3000])]);
    let pieces = host("pieces", &pieces);
    let far = host("far", &[(0, b"begin"), (300 << 10, b"between"), (FAR_BYTES, b"far away")]);
    let medium = host("medium", &[(0, &[b'v'; 300])]);
    let large = host("large", &[(0, &[b'v'; 700])]);
    let huge = host("huge", &[(0, &[b'v'; 5000])]);
    let mut script = format!(
        "write {small} small\nwrite {plain} plain\nwrite {pieces} pieces\nwrite {far} far\n\
         mkdir many\nmkdir deep\nmkdir deep/one\nmkdir deep/one/two\nwrite {small} deep/one/leaf\n\
         symlink fast deep/one/leaf\nsymlink slow {}\nmknod pipe p\nmknod null c 1 3\n\
         ea_set small user.first short\nea_set small user.second other\n\
         ea_set plain -f {large} user.large\nea_set plain user.second value\n\
         ea_set deep -f {medium} user.large\nea_set far -f {huge} user.huge\n\
         ea_set pieces -f {medium} trusted.medium\n",
        "x/".repeat(50)
    );
    for _ in 0..set.names * 260 / 1024 + 30 {
        script += "expand_dir many\n";
    }
    for number in 0..set.names {
        writeln!(script, "ln small many/{number:0>240}").unwrap();
    }
    script
}

/// What debugfs does to add files of many sizes, in directories that lie in each other.
fn more(scratch: &Scratch, files: usize) -> String {
    const DIRECTORIES: usize = 8;
    let mut script = String::new();
    let mut directories = vec![String::from("more")];
    for number in 0..DIRECTORIES {
        directories.push(format!("{}/d{number}", directories[number / 2]));
    }
    for directory in directories.iter().take(files) {
        writeln!(script, "mkdir {directory}").unwrap();
    }
    for number in 0..files {
        let host = scratch.join(format!("more-{number}"));
        let text = format!("file {number}\n").repeat(number * number % 1900);
        fs::write(&host, text).unwrap();
        let directory = &directories[number % directories.len()];
        writeln!(script, "write {} {directory}/file-{number}", host.display()).unwrap();
    }
    script
}
