//! Churn: a volume that is written many times over, with the cleaner.

use super::{image, judge, mount};
use drystone_nilfs2::{MountOptions, Nilfs2};
use drystone_vfs::{Errno, FileSystem, NewNode, RequestContext};
use std::collections::BTreeMap;

/// Files by name, with what they hold.
type Shadow = BTreeMap<String, Vec<u8>>;

/// Writes a file from its start on; what lies after stays.
pub fn write_file(fs: &Nilfs2, name: &str, data: &[u8]) -> Result<(), Errno> {
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

/// Overwrites, makes and removes up to so many files until `rounds` times the volume's size has been written.
/// Files that find no room are removed.
pub fn churn(block_bytes: u32, blocks_per_segment: u32, seed: u64, files: u8, rounds: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let device = image(12, block_bytes, blocks_per_segment);
    let mut fs = mount(&device, &MountOptions::default());
    let mut shadow = Shadow::new();
    let mut written = 0;
    while written < rounds * (12 << 20) {
        let name = format!("file-{}", random.u8(0..files));
        if random.u8(0..8) == 0 && shadow.remove(&name).is_some() {
            remove_file(&fs, &name);
        } else {
            let length = random.usize(0..200_000);
            let fill = random.u8(..);
            let mut data = vec![fill; length];
            random.fill(&mut data[..length.min(500)]);
            written += length as u64;
            let old = shadow.remove(&name).unwrap_or_default();
            match write_file(&fs, &name, &data) {
                Ok(()) => {
                    if old.len() > length {
                        data.extend_from_slice(&old[length..]);
                    }
                    shadow.insert(name, data);
                }
                // The file may not even have been made.
                Err(Errno::ENOSPC) => {
                    let context = RequestContext::superuser();
                    match fs.unlink(&context, fs.root(), name.as_bytes()) {
                        Ok(()) => {}
                        Err(error) => assert_eq!(error.errno, Errno::ENOENT, "seed {seed}: {name}"),
                    }
                }
                Err(errno) => panic!("seed {seed}: {name}: {errno:?}"),
            }
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
