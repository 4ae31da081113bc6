//! Directories made by other programs: the kernel's, casefolded and encrypted ones.

use crate::subject::{Image, Names, Subject, seed};
use drystone_blockdev::MemoryDevice;
use drystone_ext4::{Ext4, MountOptions};
use drystone_ext4_format::nokey_name::NokeyName;
use drystone_sync::Arc;
use drystone_testkit::judges::{kernel_mount, run};
use drystone_vfs::{Errno, FileSystem, NewNode, RequestContext};

fn subject<'a>(fs: &'a Ext4, name: &[u8]) -> Subject<'a> {
    Subject::new(fs, Some(name))
}

fn casefolded(features: &str, encoding: &str) -> Option<Image> {
    let extended = format!("encoding={encoding}");
    let features = format!("casefold,^resize_inode{features}");
    let image = Image::new(&["-t", "ext4", "-O", &features, "-E", &extended, "-b", "1024"], "32M")?;
    image.debugfs("mkdir /d");
    let text = image.debugfs("set_inode_field /d flags 0x40080000");
    assert!(!text.contains("invalid"), "{text}");
    Some(image)
}

#[test]
fn case_is_folded() {
    let Some(image) = casefolded("", "utf8") else { return };
    let fs = image.mount();
    let mut subject = subject(&fs, b"d");
    for number in 0..3000 {
        subject.insert(format!("Name {number} Größe").as_bytes(), subject.files[number % 3]);
    }
    for number in 0..3000 {
        let name = format!("nAME {number} GRÖSSE");
        assert_eq!(subject.find(name.as_bytes()), Some(subject.files[number % 3]), "{name}");
    }
    let (context, directory) = (&subject.context, subject.directory);
    let taken = fs.link(context, subject.files[0], directory, "NAME 7 grösse".as_bytes());
    assert_eq!(taken.unwrap_err().errno, Errno::EEXIST);
    // Not strict: names that are not UTF-8 are compared byte by byte.
    subject.insert(b"\xff\xfeA", subject.files[0]);
    assert_eq!(subject.find(b"\xff\xfea"), None);
    assert_eq!(subject.find(b"\xff\xfeA"), Some(subject.files[0]));
    subject.check();
    fs.unlink(&subject.context, subject.directory, "NAME 7 GRÖSSE".as_bytes()).unwrap();
    subject.names.remove("Name 7 Größe".as_bytes());
    subject.check();
    let made = fs.create(&subject.context, subject.directory, b"Sub", NewNode::Directory, 0o700);
    let made = made.unwrap().inode;
    fs.forget(made, 1);
    assert_eq!(subject.find(b"sUB"), Some(made));
    drop(subject);
    fs.close().unwrap();
    image.check();
}

#[test]
fn strict_encodings_refuse_what_is_no_text() {
    let Some(image) = Image::new(
        &[
            "-t",
            "ext4",
            "-O",
            "casefold,^resize_inode",
            "-b",
            "1024",
            "-E",
            "encoding=utf8,encoding_flags=strict",
        ],
        "16M",
    ) else {
        return;
    };
    image.debugfs("mkdir /d");
    image.debugfs("set_inode_field /d flags 0x40080000");
    let fs = image.mount();
    let subject = subject(&fs, b"d");
    let made = fs.create(&subject.context, subject.directory, b"\xff\xfe", NewNode::Regular, 0o600);
    assert_eq!(made.unwrap_err().errno, Errno::EINVAL);
    drop(subject);
    fs.close().unwrap();
    image.check();
}

#[test]
fn encrypted_names_are_shown_encoded_and_take_no_company() {
    let Some(image) =
        Image::new(&["-t", "ext4", "-O", "encrypt,^resize_inode", "-b", "1024"], "16M")
    else {
        return;
    };
    let names: Names = {
        let fs = image.mount();
        let mut subject = Subject::new(&fs, None);
        for number in 0..200 {
            subject.insert(format!("\u{1}\u{ff}{number:020}").as_bytes(), subject.files[0]);
        }
        let names = std::mem::take(&mut subject.names);
        drop(subject);
        fs.close().unwrap();
        names
    };
    image.debugfs("set_inode_field /d flags 0x81800");
    let fs = image.mount();
    let context = RequestContext::superuser();
    let directory = fs.lookup(&context, fs.root(), b"d").unwrap().inode;
    let mut subject = Subject { fs: &fs, context, directory, files: vec![], names: Names::new() };
    for (shown, inode) in subject.list_all(usize::MAX).into_iter().skip(2) {
        let name = NokeyName::decode(&shown).unwrap();
        assert_eq!(names.get(name.ciphertext().unwrap()), Some(&inode));
        subject.names.insert(shown, inode);
    }
    assert_eq!(subject.names.len(), names.len());
    subject.check();
    for name in names.keys() {
        assert_eq!(subject.find(name), None);
    }
    let first = subject.names.keys().next().cloned().unwrap();
    assert!(subject.find(&first).is_some());
    let made = fs.create(&subject.context, directory, b"new", NewNode::Regular, 0o600);
    assert_eq!(made.unwrap_err().errno, Errno::ENOKEY);
    subject.remove(&first);
    subject.check();
    drop(subject);
    fs.close().unwrap();
}

/// Names that the kernel wrote are found and listed here, and the other way round.
fn shared_with_the_kernel(features: &str, block_size: &str) {
    let features = format!("^resize_inode{features}");
    let Some(image) =
        Image::new(&["-t", "ext4", "-O", &features, "-b", block_size, "-I", "256"], "64M")
    else {
        return;
    };
    let mount_point = image.path.with_file_name("mounted");
    let Some(mounted) = kernel_mount(&image.path, &mount_point, "").unwrap() else { return };
    for (name, count) in [("few", 2), ("some", 30), ("many", 3000)] {
        let directory = mounted.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        for number in 0..count {
            std::fs::write(directory.join(format!("{name} {number}")), b"").unwrap();
        }
    }
    mounted.unmount().unwrap();

    let fs = image.mount();
    let context = RequestContext::superuser();
    let mut expected: Vec<(&str, Vec<Vec<u8>>)> = Vec::new();
    for (name, count) in [("few", 2), ("some", 30), ("many", 3000)] {
        let directory = fs.lookup(&context, fs.root(), name.as_bytes()).unwrap().inode;
        let mut names = Names::new();
        for number in 0..count {
            let entry = format!("{name} {number}").into_bytes();
            let found = fs.lookup(&context, directory, &entry).unwrap().inode;
            fs.forget(found, 1);
            names.insert(entry, found);
        }
        let files = names.values().copied().take(3).collect();
        let context = context.clone();
        let mut subject = Subject { fs: &fs, context, directory, files, names };
        subject.check();
        for number in 0..count * 2 {
            subject.insert(format!("ours {number}").as_bytes(), subject.files[0]);
        }
        for number in (0..count).step_by(2).skip(1) {
            subject.remove(format!("{name} {number}").as_bytes());
        }
        subject.check();
        expected.push((name, subject.names.keys().cloned().collect()));
    }
    fs.close().unwrap();
    drop(fs);
    image.check();

    let Some(mounted) = kernel_mount(&image.path, &mount_point, "").unwrap() else { return };
    for (name, names) in expected {
        let directory = mounted.path().join(name);
        let mut listed: Vec<Vec<u8>> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_encoded_bytes())
            .collect();
        listed.sort();
        assert_eq!(listed, names);
        for entry in &listed {
            let path = directory.join(std::str::from_utf8(entry).unwrap());
            assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
        }
        std::fs::write(directory.join("once more"), b"").unwrap();
    }
    mounted.unmount().unwrap();
    image.check();
}

#[test]
fn the_kernel_and_we_agree_on_names() {
    shared_with_the_kernel("", "1024");
    shared_with_the_kernel("", "4096");
    shared_with_the_kernel(",inline_data", "1024");
    shared_with_the_kernel(",^dir_index", "1024");
}

/// Changes random bytes of a directory's blocks: at worst, operations fail.
fn damaged(features: &str, rounds: u64) {
    let features = format!("^metadata_csum,^resize_inode{features}");
    let Some(image) = Image::new(&["-t", "ext4", "-O", &features, "-b", "1024"], "16M") else {
        return;
    };
    let names = {
        let fs = image.mount();
        let mut subject = Subject::new(&fs, None);
        for number in 0..700 {
            subject.insert(format!("{number:0200}").as_bytes(), subject.files[0]);
        }
        let names = std::mem::take(&mut subject.names);
        drop(subject);
        fs.close().unwrap();
        names
    };
    let blocks: Vec<u64> = image
        .debugfs("blocks /d")
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let sound = std::fs::read(&image.path).unwrap();
    for round in 0..rounds {
        let seed = seed() + round;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = sound.clone();
        for _ in 0..random.usize(1..40) {
            // The index and the heads of blocks are where damage shows.
            let block = blocks[random.usize(..blocks.len()) * random.usize(..2)] as usize;
            let at = block * 1024 + random.usize(..1024) / [1, 1, 16][random.usize(..3)];
            bytes[at] = [random.u8(..), 0, 0xff, random.u8(..4)][random.usize(..4)];
        }
        let device = MemoryDevice::from_bytes(&bytes);
        let fs = Ext4::open(Arc::new(device), MountOptions::default()).unwrap();
        let context = RequestContext::superuser();
        let Ok(entry) = fs.lookup(&context, fs.root(), b"d") else { continue };
        let directory = entry.inode;
        let file = fs.lookup(&context, fs.root(), b"file 0").unwrap().inode;
        let mut visited = 0_u32;
        let mut from = Some(0);
        while let Some(cookie) = from {
            let mut next = None;
            let listed = fs.read_directory(&context, directory, cookie, &mut |entry| {
                visited += 1;
                let goes_on = next.is_none();
                next = Some(entry.cookie).filter(|_| goes_on).or(next);
                goes_on
            });
            assert!(visited < 100_000, "DRYSTONE_SEED={seed}: the listing does not end");
            from = next.filter(|_| listed.is_ok());
        }
        for name in names.keys().step_by(11) {
            let _ = fs.lookup(&context, directory, name);
            let _ = fs.unlink(&context, directory, name);
        }
        for number in 0..150 {
            let name = format!("new {number:0150}");
            let _ = fs.link(&context, file, directory, name.as_bytes());
        }
        let _ = fs.close();
    }
}

#[test]
fn damage_is_an_error() {
    damaged("", 60);
    damaged(",^dir_index", 30);
}

/// Without the feature, names are added where the index may be.
#[test]
fn an_index_is_not_used_after_names_were_added_without_it() {
    let features = "^metadata_csum,^resize_inode";
    let Some(image) = Image::new(&["-t", "ext4", "-O", features, "-b", "1024"], "16M") else {
        return;
    };
    let tune = |features: &str| {
        let path = image.path.to_str().unwrap();
        run("tune2fs", ["-O", features, path]).unwrap().expect_clean("tune2fs");
    };
    let mut number = 0;
    for (features, count) in [("dir_index", 300), ("^dir_index", 1), ("dir_index", 300)] {
        tune(features);
        let fs = image.mount();
        let mut subject = match number {
            0 => Subject::new(&fs, None),
            _ => existing(&fs, number),
        };
        subject.check();
        for _ in 0..count {
            subject.insert(name_of(number).as_bytes(), subject.files[0]);
            number += 1;
        }
        subject.check();
        drop(subject);
        fs.close().unwrap();
    }
    image.check();
}

fn name_of(number: u32) -> String {
    format!("{number:0100}")
}

/// The directory with the names of the first numbers, as an earlier mount left it.
fn existing(fs: &Ext4, count: u32) -> Subject<'_> {
    let context = RequestContext::superuser();
    let [directory, file] =
        [&b"d"[..], b"file 0"].map(|name| fs.lookup(&context, fs.root(), name).unwrap().inode);
    let names = (0..count).map(|number| (name_of(number).into_bytes(), file)).collect();
    Subject { fs, context, directory, files: vec![file], names }
}
