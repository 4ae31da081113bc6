//! Random changes against the map, on many kinds of images.

use crate::subject::{Image, Subject, seed};
use drystone_vfs::{FileSystem, RequestContext};

fn name(random: &mut fastrand::Rng, numbers: u32, length_max: usize) -> Vec<u8> {
    let number = random.u32(..numbers);
    let mut name = format!("{number}-").into_bytes();
    // The length is a function of the number, so that names recur.
    let length = number.wrapping_mul(2_654_435_761) as usize % length_max;
    name.resize(name.len().max(length).min(255), b'x');
    name
}

fn model(options: &[&str], subject: Option<&[u8]>, prepare: impl FnOnce(&Image)) {
    let Some(image) = Image::new(options, "64M") else { return };
    prepare(&image);
    let seed = seed();
    eprintln!("DRYSTONE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let fs = image.mount();
    let mut subject = Subject::new(&fs, subject);
    for (numbers, length_max, steps) in
        [(4, 8, 30), (40, 20, 300), (600, 256, 3000), (600, 256, 1500), (6000, 60, 6000)]
    {
        for _ in 0..steps {
            let name = name(&mut random, numbers, length_max);
            let inode = subject.files[random.usize(..3)];
            match random.u32(..10) {
                0..=5 => subject.insert(&name, inode),
                6..=7 => subject.remove(&name),
                8 => subject.replace(&name, inode),
                _ => assert_eq!(subject.find(&name), subject.names.get(&name).copied()),
            }
        }
        subject.check();
    }
    for name in subject.names.keys() {
        assert_eq!(subject.find(name), subject.names.get(name).copied());
    }
    let directory = subject.directory;
    let names = std::mem::take(&mut subject.names);
    let files = subject.files.clone();
    drop(subject);
    fs.close().unwrap();
    drop(fs);
    image.check();
    let is_indexed = !options.iter().any(|option| option.contains("^dir_index"));
    let dump = image.debugfs("htree_dump /d");
    assert_eq!(dump.contains("Root node dump"), is_indexed, "{dump}");
    // Another mount finds the same names; then all are removed.
    let fs = image.mount();
    let context = RequestContext::superuser();
    let directory_again = fs.lookup(&context, fs.root(), b"d").unwrap().inode;
    assert_eq!(directory_again, directory);
    let mut subject = Subject { fs: &fs, context, directory, files, names };
    subject.check();
    let all: Vec<_> = subject.names.keys().cloned().collect();
    for name in &all {
        subject.remove(name);
    }
    subject.check();
    fs.remove_directory(&subject.context, fs.root(), b"d").unwrap();
    fs.forget(directory, 1);
    fs.close().unwrap();
    image.check();
}

const BASE: &str = "-O^resize_inode";

fn plain(options: &[&str]) {
    model(options, None, |_| ());
}

#[test]
fn half_md4_with_small_blocks() {
    plain(&["-t", "ext4", BASE, "-b", "1024"]);
}

#[test]
fn large_blocks() {
    plain(&["-t", "ext4", BASE, "-b", "4096"]);
}

#[test]
fn three_levels() {
    plain(&["-t", "ext4", "-O", "large_dir,^resize_inode", "-b", "1024"]);
}

#[test]
fn no_index() {
    plain(&["-t", "ext4", "-O", "^dir_index,^resize_inode", "-b", "1024"]);
}

#[test]
fn no_checksums() {
    plain(&["-t", "ext4", "-O", "^metadata_csum,^resize_inode", "-b", "1024"]);
}

#[test]
fn no_types() {
    plain(&["-t", "ext4", "-O", "^filetype,^resize_inode", "-b", "1024"]);
}

#[test]
fn block_maps() {
    plain(&["-t", "ext3", "-O", "dir_index,^resize_inode", "-b", "1024"]);
}

#[test]
fn inline() {
    plain(&["-t", "ext4", "-O", "inline_data,^resize_inode", "-b", "1024", "-I", "256"]);
    plain(&["-t", "ext4", "-O", "inline_data,^resize_inode", "-b", "4096", "-I", "1024"]);
    plain(&["-t", "ext4", "-O", "inline_data,^dir_index,^resize_inode", "-b", "1024", "-I", "512"]);
}

#[test]
fn bigalloc() {
    plain(&["-t", "ext4", "-O", "bigalloc,^resize_inode", "-b", "1024", "-C", "16384"]);
}

fn with_hash(hash: &str) {
    model(&["-t", "ext4", BASE, "-b", "1024"], None, |image| {
        let text = image.debugfs(&format!("set_super_value def_hash_version {hash}"));
        assert!(!text.contains("invalid"), "{text}");
    });
}

#[test]
fn tea() {
    with_hash("tea");
}

#[test]
fn legacy() {
    with_hash("legacy");
}
