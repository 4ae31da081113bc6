//! Listings while names come and go.

use crate::subject::{Image, Subject, seed};
use std::collections::BTreeSet;

/// Lists in small pieces, and changes the directory between them. A name that is there all the time must
/// be listed exactly once.
fn list_while_changing(options: &[&str], hash: Option<&str>) {
    let Some(image) = Image::new(options, "32M") else { return };
    if let Some(hash) = hash {
        image.debugfs(&format!("set_super_value def_hash_version {hash}"));
    }
    let seed = seed();
    eprintln!("DRYSTONE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let fs = image.mount();
    let mut subject = Subject::new(&fs, None);
    let mut fresh = 0_u32;
    // Begins with few names, so that the directory changes its format during the listing.
    for (stable_count, changes) in [(2, 1), (3, 4), (12, 10), (40, 20), (300, 40)] {
        let stable: BTreeSet<Vec<u8>> =
            (0..stable_count).map(|n| format!("stable {n}").into_bytes()).collect();
        let missing: Vec<_> =
            stable.iter().filter(|name| !subject.names.contains_key(*name)).cloned().collect();
        for name in &missing {
            subject.insert(name, subject.files[0]);
        }
        let mut passing: Vec<Vec<u8>> = Vec::new();
        let (mut listed, mut cookie) = (Vec::new(), Some(0));
        while let Some(from) = cookie {
            cookie = subject.list(from, random.usize(1..5), &mut listed);
            for _ in 0..random.u32(..changes) {
                if random.u32(..3) == 0 && !passing.is_empty() {
                    let name = passing.swap_remove(random.usize(..passing.len()));
                    subject.remove(&name);
                } else if passing.len() < 500 {
                    fresh += 1;
                    let name = format!("{fresh:0width$}", width = random.usize(1..200));
                    subject.insert(name.as_bytes(), subject.files[1]);
                    passing.push(name.into_bytes());
                }
            }
        }
        let mut seen: Vec<_> =
            listed.iter().map(|(name, _)| name).filter(|name| stable.contains(*name)).collect();
        seen.sort();
        assert!(seen.iter().copied().eq(stable.iter()), "{stable_count}: {} seen", seen.len());
        for name in &passing {
            subject.remove(name);
        }
    }
    subject.check();
    drop(subject);
    fs.close().unwrap();
    image.check();
}

#[test]
fn by_hash() {
    list_while_changing(&["-t", "ext4", "-O", "^resize_inode", "-b", "1024"], None);
}

#[test]
fn by_legacy_hash() {
    list_while_changing(&["-t", "ext4", "-O", "^resize_inode", "-b", "1024"], Some("legacy"));
}

#[test]
fn by_offset() {
    list_while_changing(&["-t", "ext4", "-O", "^dir_index,^resize_inode", "-b", "1024"], None);
}

#[test]
fn of_an_inline_directory_by_hash() {
    let features = "inline_data,^resize_inode";
    list_while_changing(&["-t", "ext4", "-O", features, "-b", "1024", "-I", "256"], None);
}

#[test]
fn of_an_inline_directory_by_offset() {
    let features = "inline_data,^dir_index,^resize_inode";
    list_while_changing(&["-t", "ext4", "-O", features, "-b", "1024", "-I", "1024"], None);
}
