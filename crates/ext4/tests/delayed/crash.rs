//! Crashes while data waits.

use super::*;
use drystone_vfs::FallocateMode;

/// Synced data is there after a crash. Of the rest at most the end is missing, and there is no garbage
/// in between.
#[test]
fn a_crash_leaves_files_that_end_where_their_data_does() {
    for seed in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed);
        let device = image(64);
        let fs = open(&device);
        let context = RequestContext::superuser();
        let mut files: Vec<(InodeNumber, usize, usize)> =
            (0..6).map(|number| (new_file(&fs, &format!("f{number}")), 0, 0)).collect();
        fs.sync().unwrap();
        for step in 0..300 {
            let place = random.usize(..files.len());
            let (file, length, synced) = &mut files[place];
            match random.u32(..20) {
                0 => {
                    fs.sync_inode(*file, true).unwrap();
                    *synced = *length;
                }
                1 => {
                    let mode = FallocateMode::Allocate { keep_size: true };
                    let from = *length as u64 + random.u64(..4 * BLOCK);
                    fs.fallocate(&context, *file, mode, from, 3 * BLOCK).unwrap();
                }
                2 => {
                    let other = format!("other{step}");
                    new_file(&fs, &other);
                }
                _ => {
                    let data = vec![1 + place as u8; random.usize(1..9000)];
                    fs.write(&context, *file, *length as u64, &data).unwrap();
                    *length += data.len();
                }
            }
        }
        let crashed = Arc::new(device.snapshot());
        let fs = open(&crashed);
        for (place, (_, length, synced)) in files.iter().enumerate() {
            let name = format!("f{place}");
            let file = fs.lookup(&context, fs.root(), name.as_bytes()).unwrap().inode;
            let data = read_all(&fs, file);
            assert!((*synced..=*length).contains(&data.len()), "seed {seed}, {name}");
            assert!(data.iter().all(|byte| *byte == 1 + place as u8), "seed {seed}, {name}");
        }
        fs.close().unwrap();
        judge(&crashed, "after a crash");
    }
}

/// A program that replaces a file expects the old or the new content after a crash.
#[test]
fn a_file_that_replaces_content_is_written_first() {
    let device = image(64);
    let fs = open(&device);
    let context = RequestContext::superuser();
    for name in ["renamed", "emptied", "closed", "swapped", "swapped too"] {
        let file = new_file(&fs, name);
        fs.write(&context, file, 0, b"old").unwrap();
        fs.forget(file, 1);
    }
    fs.sync().unwrap();
    let file = new_file(&fs, "new");
    fs.write(&context, file, 0, b"NEW").unwrap();
    let none = RenameFlags::empty();
    fs.rename(&context, fs.root(), b"new", fs.root(), b"renamed", none).unwrap();
    for name in ["new0", "new1"] {
        let file = new_file(&fs, name);
        fs.write(&context, file, 0, b"NEW").unwrap();
    }
    let exchange = RenameFlags::EXCHANGE;
    fs.rename(&context, fs.root(), b"new0", fs.root(), b"swapped", exchange).unwrap();
    fs.rename(&context, fs.root(), b"swapped too", fs.root(), b"new1", exchange).unwrap();
    let emptied = fs.lookup(&context, fs.root(), b"emptied").unwrap().inode;
    let changes = SetAttributes { size: Some(0), ..SetAttributes::default() };
    fs.set_attributes(&context, emptied, &changes).unwrap();
    fs.write(&context, emptied, 0, b"NEW").unwrap();
    fs.forget(emptied, 1);
    // A caller that keeps its reference reports when the file was closed.
    let closed = fs.lookup(&context, fs.root(), b"closed").unwrap().inode;
    fs.set_attributes(&context, closed, &changes).unwrap();
    fs.write(&context, closed, 0, b"NEW").unwrap();
    fs.closed(closed);
    // Something else makes the journal commit.
    let other = new_file(&fs, "other");
    fs.sync_inode(other, false).unwrap();
    let fs = open(&Arc::new(device.snapshot()));
    for name in ["renamed", "emptied", "closed", "swapped", "swapped too"] {
        let file = fs.lookup(&context, fs.root(), name.as_bytes()).unwrap().inode;
        assert_eq!(read_all(&fs, file), b"NEW", "{name}");
    }
    fs.close().unwrap();
}
