//! Fast commits that Linux wrote. Skipped, with a note, without root or loop devices.

use crate::area;
use crate::recovery::{
    assert_same, comparable, open, options, recovers, recovers_after_crashes, tree,
};
use drystone_blockdev::MemoryDevice;
use drystone_sync::Arc;
use drystone_testkit::judges::{Scratch, crashed_image, have, kernel_mount, run, write_image};
use drystone_testkit::tree::{TreeSnapshot, diff};
use drystone_vfs::{FileSystem, NewNode, RequestContext};
use rustix::fs::FallocateFlags;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// What a test does with a mount.
struct Case {
    name: &'static str,
    /// Options of mke2fs.
    image: &'static str,
    features: &'static str,
    /// Makes the state at the last full commit.
    before: fn(&Path),
    /// The changes after that, which are synced.
    work: fn(&Path),
}

/// An image as a crash would leave it, and its tree. `None` if it can't be made.
fn crashed(case: &Case, scratch: &Scratch) -> Option<(MemoryDevice, TreeSnapshot)> {
    if !have("mke2fs") {
        return None;
    }
    let image = scratch.join("image");
    File::create(&image).unwrap().set_len(48 << 20).unwrap();
    // Room for all fast commits: if it runs out, Linux makes a full commit.
    let fixed = ["-q", "-F", "-t", "ext4", "-J", "size=12,fast_commit_size=1024"];
    let features = format!("fast_commit,{}", case.features);
    let arguments = case.image.split_whitespace().chain(fixed);
    let arguments = arguments.chain(["-O", &features, image.to_str().unwrap()]);
    run("mke2fs", arguments).unwrap().expect_clean("mke2fs");
    let mounted = kernel_mount(&image, &scratch.join("mount"), "commit=1000").unwrap()?;
    let root = mounted.path();
    (case.before)(root);
    rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
    (case.work)(root);
    let expected = comparable(TreeSnapshot::from_host(root, &options()).unwrap());
    let device = MemoryDevice::from_bytes(&crashed_image(&image).unwrap());
    mounted.unmount().unwrap();
    Some((device, expected))
}

fn check(case: &Case) {
    let scratch = Scratch::new(case.name).unwrap();
    let Some((dirty, expected)) = crashed(case, &scratch) else { return };
    let without = Arc::new(dirty.snapshot());
    area::empty(&without);
    let fs = open(&without, false).unwrap();
    let lines = diff(&tree(&fs), &expected);
    assert!(!lines.is_empty(), "{}: Linux has made no fast commit", case.name);
    drop(fs);
    let recovered = recovers(&dirty, &expected, case.name);
    recovers_after_crashes(&dirty, &expected, case.name);
    // The kernel uses the image after us, and finds no fast commit to replay again.
    let context = RequestContext::superuser();
    let fs = open(&recovered, false).unwrap();
    fs.create(&context, fs.root(), b"by us", NewNode::Regular, 0o644).unwrap();
    let ours = tree(&fs);
    fs.sync().unwrap();
    drop(fs);
    write_image(&*recovered, &scratch.join("ours")).unwrap();
    let theirs = kernel_mount(&scratch.join("ours"), &scratch.join("mount"), "").unwrap().unwrap();
    let found = comparable(TreeSnapshot::from_host(theirs.path(), &options()).unwrap());
    theirs.unmount().unwrap();
    assert_same(&found, &ours, &format!("{}, by the kernel after us", case.name));
}

fn sync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

fn write(path: &Path, length: usize) {
    let content: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
    fs::write(path, content).unwrap();
}

fn append(path: &Path, length: usize) {
    use std::io::Write;
    let mut file = File::options().append(true).open(path).unwrap();
    file.write_all(&vec![b'a'; length]).unwrap();
    file.sync_all().unwrap();
}

fn files(root: &Path) {
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        write(&root.join(name), 100_000);
    }
    fs::create_dir_all(root.join("directory/below")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
}

fn content(root: &Path) {
    let at = |name: &str| root.join(name);
    write(&at("new"), 5000);
    sync(&at("new"));
    append(&at("a"), 30_000);
    append(&at("a"), 1);
    let file = File::options().write(true).open(at("b")).unwrap();
    file.set_len(5000).unwrap();
    file.sync_all().unwrap();
    let file = File::options().write(true).open(at("c")).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 8192, 16_384).unwrap();
    file.sync_all().unwrap();
    let file = File::options().write(true).open(at("d")).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 400_000).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&[7; 9000], 200_000).unwrap();
    file.sync_all().unwrap();
    let file = File::options().write(true).truncate(true).open(at("e")).unwrap();
    file.write_all_at(b"sparse", 10_000_000).unwrap();
    file.sync_all().unwrap();
    let file = File::options().write(true).open(at("f")).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 4096, 20_000).unwrap();
    file.sync_all().unwrap();
    fs::set_permissions(at("g"), fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(at("g"), Some(5), Some(6)).unwrap();
    File::open(at("g")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    sync(&at("g"));
}

fn names(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::rename(at("a"), at("directory/moved")).unwrap();
    fs::rename(at("b"), at("c")).unwrap();
    fs::hard_link(at("d"), at("directory/link")).unwrap();
    fs::hard_link(at("d"), at("link")).unwrap();
    fs::remove_file(at("d")).unwrap();
    fs::remove_file(at("e")).unwrap();
    sync(&at("c"));
    // A new file uses the inode number of a removed one.
    write(&at("again"), 20_000);
    sync(&at("again"));
    fs::create_dir_all(at("new/deep/deeper")).unwrap();
    write(&at("new/deep/deeper/file"), 3000);
    fs::remove_dir(at("empty")).unwrap();
    sync(&at("new/deep/deeper/file"));
    fs::remove_file(at("new/deep/deeper/file")).unwrap();
    fs::remove_dir_all(at("new/deep")).unwrap();
    fs::remove_file(at("link")).unwrap();
    append(&at("f"), 100);
}

#[test]
fn content_of_files() {
    check(&Case { name: "content", image: "-b 4096", features: "", before: files, work: content });
    check(&Case {
        name: "content-1k",
        image: "-b 1024",
        features: "",
        before: files,
        work: content,
    });
}

#[test]
fn names_come_and_go() {
    check(&Case { name: "names", image: "-b 4096", features: "", before: files, work: names });
    check(&Case {
        name: "names-1k",
        image: "-b 1024",
        features: "^dir_index",
        before: files,
        work: names,
    });
}

#[test]
fn content_in_inodes() {
    let small = |root: &Path| {
        for (name, length) in [("a", 10), ("b", 50), ("c", 100)] {
            write(&root.join(name), length);
        }
        fs::create_dir(root.join("directory")).unwrap();
        fs::write(root.join("directory/before"), "x").unwrap();
    };
    let work = |root: &Path| {
        write(&root.join("new"), 7);
        sync(&root.join("new"));
        append(&root.join("a"), 20);
        append(&root.join("b"), 1000);
        append(&root.join("c"), 20_000);
        fs::create_dir(root.join("other")).unwrap();
        write(&root.join("directory/in"), 3);
        write(&root.join("other/in"), 90);
        sync(&root.join("other/in"));
        fs::remove_file(root.join("directory/before")).unwrap();
        append(&root.join("new"), 60);
    };
    check(&Case { name: "inline", image: "-I 256", features: "inline_data", before: small, work });
}

#[test]
fn many_extents_and_many_names() {
    let before = |root: &Path| {
        let file = File::create(root.join("pieces")).unwrap();
        (0..20).for_each(|piece| file.write_all_at(&[1; 4096], piece * 8192).unwrap());
        fs::create_dir(root.join("directory")).unwrap();
    };
    let work = |root: &Path| {
        let file = File::options().write(true).open(root.join("pieces")).unwrap();
        (20..70).for_each(|piece| file.write_all_at(&[2; 4096], piece * 8192).unwrap());
        file.sync_all().unwrap();
        file.write_all_at(&[3; 4096], 4096).unwrap();
        file.set_len(500_000).unwrap();
        file.sync_all().unwrap();
        for number in 0..70 {
            let name = format!("{number}-{}", "x".repeat(200));
            fs::write(root.join("directory").join(name), []).unwrap();
        }
        sync(&root.join("pieces"));
    };
    check(&Case { name: "many", image: "-b 4096", features: "", before, work });
}

#[test]
fn clusters() {
    let (image, features) = ("-b 1024 -C 16384", "bigalloc");
    check(&Case { name: "clusters", image, features, before: files, work: content });
}

#[test]
fn quota() {
    let (image, features) = ("-b 4096 -E quotatype=usrquota:grpquota:prjquota", "quota,project");
    let before = |root: &Path| files(root);
    let work = |root: &Path| {
        content(root);
        fs::remove_file(root.join("h")).unwrap();
        append(&root.join("a"), 5);
    };
    check(&Case { name: "quota", image, features, before, work });
}

/// Open files without a name are gone after a crash.
#[test]
fn open_files_without_names() {
    let scratch = Scratch::new("nameless").unwrap();
    let work = |root: &Path| {
        let file = File::options().write(true).open(root.join("a")).unwrap();
        fs::remove_file(root.join("a")).unwrap();
        let new = File::create(root.join("new")).unwrap();
        fs::remove_file(root.join("new")).unwrap();
        new.write_all_at(&[1; 9000], 0).unwrap();
        new.sync_all().unwrap();
        file.write_all_at(&[2; 9000], 200_000).unwrap();
        file.sync_all().unwrap();
        append(&root.join("b"), 10);
        // Before the image is copied, only these files are closed.
    };
    let case = Case { name: "nameless", image: "-b 4096", features: "", before: files, work };
    let Some((dirty, expected)) = crashed(&case, &scratch) else { return };
    recovers(&dirty, &expected, "nameless");
}

/// Random small changes, with syncs now and then.
#[test]
fn anything() {
    const SEEDS: u64 = 6;
    const FEATURES: [&str; 6] =
        ["", "orphan_file", "bigalloc", "^extent,^64bit", "inline_data", "^metadata_csum"];
    for seed in 0..SEEDS {
        let scratch = Scratch::new("anything").unwrap();
        // A function pointer can't capture the seed.
        std::fs::write(scratch.join("seed"), seed.to_string()).unwrap();
        let work = |root: &Path| {
            let seed = fs::read_to_string(root.parent().unwrap().join("seed")).unwrap();
            let mut random = fastrand::Rng::with_seed(seed.parse().unwrap());
            (0..60).for_each(|_| change_anything(root, &mut random));
            append(&root.join("h"), 1);
            // Files that are not synced may be as before. A sync of a directory is a full commit.
            for (name, facts) in TreeSnapshot::from_host(root, &options()).unwrap().entries {
                if facts["type"] == "Regular" {
                    sync(&root.join(name.to_string().trim_start_matches('/')));
                }
            }
        };
        let image = ["-b 1024", "-b 4096"][seed as usize % 2];
        let features = FEATURES[seed as usize % FEATURES.len()];
        let case = Case { name: "anything", image, features, before: files, work };
        let Some((dirty, expected)) = crashed(&case, &scratch) else { return };
        recovers(&dirty, &expected, &format!("anything, seed {seed}"));
    }
}

/// One change, which may fail. The file `h` stays.
fn change_anything(root: &Path, random: &mut fastrand::Rng) {
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "directory/x", "directory/y", "empty/z"];
    let pick = |random: &mut fastrand::Rng| root.join(NAMES[random.usize(0..NAMES.len())]);
    let path = pick(random);
    let file = || File::options().write(true).open(&path);
    let (offset, length) = (random.u64(0..150_000), random.u64(1..40_000));
    let _ = match random.u8(0..10) {
        0 => fs::write(&path, vec![random.u8(..); length as usize]),
        1 => file().and_then(|file| file.write_all_at(&vec![5; length as usize], offset)),
        2 => file().and_then(|file| file.set_len(offset)),
        3 => fs::remove_file(&path),
        4 => fs::rename(&path, pick(random)),
        5 => fs::hard_link(&path, pick(random)),
        6 => file().and_then(|file| {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(rustix::fs::fallocate(file, punch, offset, length)?)
        }),
        7 => fs::create_dir(root.join("empty/made")),
        8 => fs::remove_dir(root.join("empty/made")),
        _ => File::open(&path).and_then(|file| file.sync_all()),
    };
}
