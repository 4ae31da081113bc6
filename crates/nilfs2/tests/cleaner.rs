//! The cleaner: nothing that lives is lost, and space comes back.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_nilfs2::{MountOptions, Nilfs2};
use drystone_testkit::tree::diff;
use drystone_vfs::{Errno, FileSystem, NewNode, RequestContext};
use std::collections::BTreeMap;
use support::{image, judge, mount, tree};

/// Files by name, with what they hold.
type Shadow = BTreeMap<String, Vec<u8>>;

fn write_file(fs: &Nilfs2, name: &str, data: &[u8]) -> Result<(), Errno> {
    let context = RequestContext::superuser();
    let made = match fs.lookup(&context, fs.root(), name.as_bytes()) {
        Ok(found) => Ok(found),
        Err(_) => fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644),
    };
    let entry = made.map_err(|error| error.errno)?;
    let written = fs.write_all(&context, entry.inode, 0, data).map_err(|error| error.errno);
    fs.forget(entry.inode, 1);
    written
}

fn remove_file(fs: &Nilfs2, name: &str) {
    fs.unlink(&RequestContext::superuser(), fs.root(), name.as_bytes()).unwrap();
}

fn check(fs: &Nilfs2, shadow: &Shadow, what: &str) {
    let context = RequestContext::superuser();
    for (name, data) in shadow {
        let entry = fs.lookup(&context, fs.root(), name.as_bytes()).unwrap();
        let mut found = vec![0; data.len()];
        assert_eq!(fs.read(entry.inode, 0, &mut found).unwrap(), data.len(), "{what}: {name}");
        assert!(found == *data, "{what}: {name} differs");
        fs.forget(entry.inode, 1);
    }
}

/// Overwrites, makes and removes files until many times the volume's size has been written.
fn churn(block_bytes: u32, blocks_per_segment: u32, seed: u64, rounds: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let device = image(12, block_bytes, blocks_per_segment);
    let mut fs = mount(&device, &MountOptions::default());
    let mut shadow = Shadow::new();
    let mut written = 0;
    while written < rounds * (12 << 20) {
        let name = format!("file-{}", random.u8(0..12));
        if random.u8(0..8) == 0 && shadow.remove(&name).is_some() {
            remove_file(&fs, &name);
        } else {
            let length = random.usize(0..200_000);
            let fill = random.u8(..);
            let mut data = vec![fill; length];
            random.fill(&mut data[..length.min(500)]);
            write_file(&fs, &name, &data).unwrap();
            written += length as u64;
            let old = shadow.remove(&name).unwrap_or_default();
            if old.len() > length {
                data.extend_from_slice(&old[length..]);
            }
            shadow.insert(name, data);
        }
        match random.u8(0..60) {
            0 => {
                fs.unmount().unwrap();
                judge(&device, &format!("seed {seed}"));
                fs = mount(&device, &MountOptions::default());
                check(&fs, &shadow, &format!("seed {seed}, after a remount"));
            }
            1 => {
                fs.clean(0).unwrap();
                check(&fs, &shadow, &format!("seed {seed}, after cleaning"));
            }
            2..8 => fs.sync().unwrap(),
            _ => {}
        }
    }
    check(&fs, &shadow, &format!("seed {seed}, at the end"));
    fs.unmount().unwrap();
    judge(&device, &format!("seed {seed}, at the end"));
}

#[test]
fn a_churned_volume_loses_nothing() {
    churn(4096, 16, 1, 6);
    churn(1024, 64, 2, 6);
    churn(4096, 64, 3, 6);
}

#[test]
fn a_full_volume_can_be_emptied_again() {
    for (block_bytes, blocks_per_segment) in [(4096, 16), (1024, 32)] {
        let device = image(8, block_bytes, blocks_per_segment);
        let fs = mount(&device, &MountOptions::default());
        let mut sizes = Vec::new();
        for round in 0..4 {
            let mut names = Vec::new();
            let failure = loop {
                let name = format!("{round}-{}", names.len());
                names.push(name.clone());
                if let Err(failure) = write_file(&fs, &name, &[7; 30_000]) {
                    break failure;
                }
            };
            assert_eq!(failure, Errno::ENOSPC, "round {round}: {:?}", fs.sync());
            sizes.push(names.len());
            for name in names {
                // The last may not have been made.
                let _ = fs.unlink(&RequestContext::superuser(), fs.root(), name.as_bytes());
            }
        }
        let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
        assert!(last * 10 >= first * 9, "blocks of {block_bytes}: {sizes:?} files had room");
        fs.unmount().unwrap();
        judge(&device, "an emptied volume");
    }
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let device = image(16, 4096, 16);
    let fs = mount(&device, &MountOptions::default());
    let mut random = fastrand::Rng::with_seed(4);
    let mut kept = Vec::new();
    for round in 0..30_u8 {
        for number in 0..6 {
            let data = vec![random.u8(..); random.usize(0..60_000)];
            write_file(&fs, &format!("file-{number}"), &data).unwrap();
        }
        let number = fs.make_checkpoint().unwrap();
        if round % 8 == 0 {
            fs.set_snapshot(number, true).unwrap();
            kept.push((number, tree(&fs)));
        }
        fs.clean(0).unwrap();
    }
    let listed = fs.checkpoints().unwrap();
    let snapshots: Vec<u64> =
        listed.iter().filter(|found| found.is_snapshot).map(|found| found.number).collect();
    assert_eq!(snapshots, kept.iter().map(|(number, _)| *number).collect::<Vec<_>>());
    let (released, _) = kept.remove(1);
    assert!(fs.delete_checkpoint(released).is_err(), "a snapshot was deleted");
    fs.set_snapshot(released, false).unwrap();
    fs.delete_checkpoint(released).unwrap();
    fs.clean(0).unwrap();
    fs.unmount().unwrap();
    judge(&device, "a volume with snapshots");
    for (number, before) in kept {
        let options = MountOptions { checkpoint: Some(number), ..MountOptions::default() };
        let fs = mount(&device, &options);
        assert_eq!(diff(&before, &tree(&fs)), [""; 0], "snapshot {number}");
        assert_eq!(write_file(&fs, "new", b"x"), Err(Errno::EROFS));
    }
}
