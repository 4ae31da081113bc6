//! Directories with many names: levels of the index, a full index, names with one hash.

use crate::subject::{Image, Subject};
use drystone_vfs::{Errno, FileSystem};

const MANY: u32 = 100_000;

fn image(features: &str, block_size: &str, size: &str) -> Option<Image> {
    let features = format!("{features}^resize_inode");
    Image::new(&["-t", "ext4", "-O", &features, "-b", block_size, "-N", "100"], size)
}

#[test]
fn a_hundred_thousand_names() {
    let Some(image) = image("", "4096", "64M") else { return };
    let fs = image.mount();
    let mut subject = Subject::new(&fs, None);
    for number in 0..MANY {
        subject.insert(format!("{number:07}").as_bytes(), subject.files[number as usize % 3]);
    }
    for number in (0..MANY).step_by(97) {
        let name = format!("{number:07}");
        assert_eq!(subject.find(name.as_bytes()), Some(subject.files[number as usize % 3]));
        assert_eq!(subject.find(format!("{number:08}").as_bytes()), None);
    }
    subject.check();
    drop(subject);
    fs.close().unwrap();
    image.check();
}

/// Adds long names until there is no space. Returns how many were added.
fn fill(subject: &mut Subject<'_>, count_max: u32) -> u32 {
    for number in 0..count_max {
        let name = format!("{number:0250}");
        let inode = subject.files[number as usize % 3];
        match subject.fs.link(&subject.context, inode, subject.directory, name.as_bytes()) {
            Ok(_) => {
                subject.fs.forget(inode, 1);
                subject.names.insert(name.into_bytes(), inode);
            }
            Err(error) => {
                assert_eq!(error.errno, Errno::ENOSPC);
                return number;
            }
        }
    }
    count_max
}

#[test]
fn a_full_index_is_no_space() {
    let Some(image) = image("^large_dir,", "1024", "64M") else { return };
    let fs = image.mount();
    let mut subject = Subject::new(&fs, None);
    let filled = fill(&mut subject, MANY);
    // 123 nodes of 126 leaves of 3 names, more than half full.
    assert!((18_000..46_494).contains(&filled), "{filled}");
    subject.check();
    // A name that there is room for can still be removed and added.
    let name = format!("{:0250}", filled / 2).into_bytes();
    let inode = subject.names[&name];
    subject.remove(&name);
    subject.insert(&name, inode);
    subject.check();
    drop(subject);
    fs.close().unwrap();
    image.check();
}

#[test]
fn a_third_level() {
    let Some(image) = image("large_dir,", "1024", "64M") else { return };
    let fs = image.mount();
    let mut subject = Subject::new(&fs, None);
    assert_eq!(fill(&mut subject, 45_000), 45_000);
    for number in (0..45_000).step_by(31) {
        let name = format!("{number:0250}").into_bytes();
        assert_eq!(subject.find(&name), subject.names.get(&name).copied());
    }
    subject.check();
    drop(subject);
    fs.close().unwrap();
    image.check();
    let dump = image.debugfs("htree_dump /d");
    assert!(dump.contains("Indirect levels: 2"), "{}", &dump[..300]);
}

#[test]
fn a_full_image_loses_no_name() {
    let Some(image) = image("", "1024", "8M") else { return };
    let fs = image.mount();
    let mut subject = Subject::new(&fs, None);
    let filled = fill(&mut subject, MANY);
    assert!(filled > 1000, "{filled}");
    subject.check();
    drop(subject);
    fs.close().unwrap();
    image.check();
}

/// Ends of names, which with 245 times `x` before them have the same legacy hash.
const COLLIDING: [&[u8]; 9] =
    [b"f7o2w", b"ll0a6", b"ugwKA", b"zHie,", b"H_n7x", b"Q.35T", b"R=QF=", b"WGFmk", b"7e+zY"];

#[test]
fn names_of_one_hash_go_on_in_the_next_leaf() {
    let Some(image) = image("", "1024", "16M") else { return };
    image.debugfs("set_super_value def_hash_version legacy");
    let fs = image.mount();
    let mut subject = Subject::new(&fs, None);
    let colliding: Vec<_> = COLLIDING.iter().map(|end| [&[b'x'; 245][..], end].concat()).collect();
    for round in 0..4_u32 {
        for number in 0..60 {
            let name = format!("{round} {number:050}");
            subject.insert(name.as_bytes(), subject.files[0]);
        }
        for name in &colliding {
            subject.insert(name, subject.files[round as usize % 3]);
            subject.check();
        }
        for name in &colliding {
            assert_eq!(subject.find(name), Some(subject.files[round as usize % 3]));
        }
        subject.check();
        if round < 3 {
            for name in colliding.iter().skip(round as usize).step_by(round as usize + 1) {
                subject.remove(name);
                assert_eq!(subject.find(name), None);
            }
            for name in &colliding {
                if subject.names.contains_key(name) {
                    subject.remove(name);
                }
            }
        }
    }
    drop(subject);
    fs.close().unwrap();
    image.check();
    let dump = image.debugfs("htree_dump /d");
    // Continuation marks are odd hashes of index entries.
    assert!(dump.contains("Hash 0x3cafd08b"), "{dump}");
}
