//! A device that can't read something fails what needs it, and nothing else.

use super::*;
use drystone_vfs::{Errno, InodeNumber as Number, RenameFlags};

/// The same volume with nothing in memory.
fn remounted(device: &FaultyMemory) -> (FaultyMemory, Nilfs2) {
    let device = crashed(device);
    let fs = mount(&device);
    (device, fs)
}

fn fail_reads(device: &FaultyMemory) {
    device.inject(Fault::of(DeviceOperation::Read, Effect::InputOutputError));
}

fn find(fs: &Nilfs2, parent: Number, name: &[u8]) -> Option<Number> {
    let found = fs.lookup(&RequestContext::superuser(), parent, name);
    match found.map_err(|error| error.errno) {
        Ok(found) => Some(found.inode),
        Err(Errno::ENOENT) => None,
        Err(errno) => panic!("{errno:?}"),
    }
}

fn used(fs: &Nilfs2) -> u64 {
    let statistics = fs.statistics().unwrap();
    statistics.inodes - statistics.inodes_free
}

#[test]
fn a_rename_moves_nothing_if_it_cannot_change_the_parent() {
    let context = RequestContext::superuser();
    let (device, fs, _) = volume();
    for name in [b"d", b"e"] {
        fs.create(&context, fs.root(), name, NewNode::Directory, 0o755).unwrap();
    }
    fs.sync().unwrap();
    let (device, fs) = remounted(&device);
    let (d, e) = (find(&fs, fs.root(), b"d").unwrap(), find(&fs, fs.root(), b"e").unwrap());
    assert_eq!(find(&fs, e, b"d"), None);
    fail_reads(&device);
    let moved = fs.rename(&context, fs.root(), b"d", e, b"d", RenameFlags::empty());
    assert_eq!(moved.unwrap_err().errno, Errno::EIO);
    device.repair();
    fs.sync().unwrap();
    assert_eq!((find(&fs, fs.root(), b"d"), find(&fs, e, b"d")), (Some(d), None));
    assert_eq!(fs.attributes(fs.root()).unwrap().links, 4);
    fs.rename(&context, fs.root(), b"d", e, b"d", RenameFlags::empty()).unwrap();
    assert_eq!((find(&fs, fs.root(), b"d"), find(&fs, e, b"d")), (None, Some(d)));
}

#[test]
fn an_unlink_that_fails_leaves_the_name() {
    let context = RequestContext::superuser();
    let (device, fs, _) = volume();
    drop(fs);
    let fs = mount(&device);
    fs.unmount().unwrap();
    let fs = mount(&device);
    let a = find(&fs, fs.root(), b"a").unwrap();
    fs.forget(a, 1);
    fail_reads(&device);
    assert_eq!(fs.unlink(&context, fs.root(), b"a").unwrap_err().errno, Errno::EIO);
    device.repair();
    assert_eq!(find(&fs, fs.root(), b"a"), Some(a));
    fs.forget(a, 1);
    fs.unlink(&context, fs.root(), b"a").unwrap();
    fs.unmount().unwrap();
    assert_eq!(used(&mount(&device)), 2);
}

/// A file of 20 blocks, the last of which can't be read.
#[test]
fn a_bad_block_fails_only_its_own_reads() {
    let context = RequestContext::superuser();
    let (device, fs, [a, _]) = volume();
    fs.write_all(&context, Number(a.number.0), 0, &[7; 20 * BLOCK_BYTES]).unwrap();
    fs.sync().unwrap();
    let last = a.place_of(FileBlock(19), fs.engine.source()).unwrap().unwrap();
    let offset = fs.engine.volume.geometry.offset_of(last);
    let (device, fs) = remounted(&device);
    let a = find(&fs, fs.root(), b"a").unwrap();
    let bad = offset..offset + BLOCK_BYTES as u64;
    device.inject(Fault::of(DeviceOperation::Read, Effect::InputOutputError).in_range(bad));
    let mut bytes = vec![0; 19 * BLOCK_BYTES];
    assert_eq!(fs.read(a, 0, &mut bytes).unwrap(), bytes.len());
    assert!(bytes.iter().all(|byte| *byte == 7));
    let failed = fs.read(a, bytes.len() as u64, &mut [0; 1]);
    assert_eq!(failed.unwrap_err().errno, Errno::EIO);
}

/// Nothing has been changed when a plan of the cleaner fails.
#[test]
fn the_log_goes_on_when_the_cleaner_cannot_read() {
    let context = RequestContext::superuser();
    let (device, fs, [a, b]) = volume();
    let [a, b] = [a, b].map(|inode| Number(inode.number.0));
    for round in 2..30 {
        fs.write_all(&context, a, 0, &[round; 20 * BLOCK_BYTES]).unwrap();
        fs.sync().unwrap();
    }
    fs.engine.dat.write().file.trim(0);
    fail_reads(&device);
    assert_eq!(fs.clean(0).unwrap_err().errno(), Errno::EIO);
    device.repair();
    fs.write_all(&context, b, 0, &[2; BLOCK_BYTES]).unwrap();
    fs.sync().unwrap();
    // A segment whose first log can't be read is left.
    let geometry = &fs.engine.volume.geometry;
    let start = geometry.offset_of(geometry.segment_start(SegmentNumber(1)));
    let bad = start..start + BLOCK_BYTES as u64;
    device.inject(Fault::of(DeviceOperation::Read, Effect::InputOutputError).in_range(bad));
    let failures = device.failures();
    assert!(fs.clean(0).unwrap() > 0);
    assert!(device.failures() > failures, "the segment wasn't looked at");
    device.repair();
    fs.write_all(&context, b, 0, &[3; BLOCK_BYTES]).unwrap();
    fs.unmount().unwrap();
    assert_eq!(first_byte(&mount(&device), b"b"), 3);
}

/// A reader may be late with a block that the log writer has logged anew and dropped since.
#[test]
fn a_block_that_was_logged_anew_is_not_kept_as_it_was() {
    let context = RequestContext::superuser();
    let (_, fs, [a, _]) = volume();
    let engine = &fs.engine;
    let source = engine.source();
    let (key, _) = engine.ifile.layout.entry(a.number.0);
    let old = {
        let file = engine.ifile.file.read();
        let pointer = file.map.get(key, &source).unwrap();
        (pointer, Arc::clone(file.cached(key).unwrap()))
    };
    let change = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    fs.set_attributes(&context, Number(a.number.0), &change).unwrap();
    fs.sync().unwrap();
    let mut file = engine.ifile.file.write();
    file.trim(0);
    assert!(file.keep(key, old.0, old.1, &source).unwrap().is_none());
    assert!(file.cached(key).is_none());
}

/// The log writer applies a cut while a block before it is read.
#[test]
fn nothing_behind_a_cut_is_read_ahead() {
    let context = RequestContext::superuser();
    let (_, fs, [a, _]) = volume();
    a.pages.lock().trim();
    let shorter = SetAttributes { size: Some(BLOCK_BYTES as u64), ..SetAttributes::default() };
    fs.set_attributes(&context, Number(a.number.0), &shorter).unwrap();
    let _content = a.content.read();
    let pointers = a.pointers(FileBlock(0), fs.engine.source()).unwrap();
    assert_eq!(pointers.len(), 1);
}

/// The map of a damaged volume may have more blocks than the file, in nodes that can't be read.
#[test]
fn a_write_that_fails_leaves_nothing_behind_the_end() {
    let context = RequestContext::superuser();
    let (device, fs, [a, _]) = volume();
    let number = Number(a.number.0);
    fs.write_all(&context, number, 0, &[1; 200 * BLOCK_BYTES]).unwrap();
    fs.engine.change(&a, |fields| {
        fields.record.size_bytes = 4 * BLOCK_BYTES as u64 - 1;
        fields.needs_checkpoint = true;
    });
    fs.sync().unwrap();
    let (device, fs) = remounted(&device);
    assert_eq!(find(&fs, fs.root(), b"a"), Some(number));
    fs.read(number, 3 * BLOCK_BYTES as u64, &mut [0; 1]).unwrap();
    fail_reads(&device);
    let failed = fs.append(&context, number, &[2; 190 * BLOCK_BYTES]);
    assert_eq!(failed.unwrap_err().errno, Errno::EIO);
    device.repair();
    let larger = SetAttributes { size: Some(20 * BLOCK_BYTES as u64), ..SetAttributes::default() };
    fs.set_attributes(&context, number, &larger).unwrap();
    for what in ["in memory", "logged"] {
        let mut bytes = vec![9; 20 * BLOCK_BYTES];
        fs.read(number, 0, &mut bytes).unwrap();
        let (inside, behind) = bytes.split_at(4 * BLOCK_BYTES - 1);
        assert!(inside.iter().all(|byte| *byte == 1), "{what}");
        assert!(behind.iter().all(|byte| *byte == 0), "{what}");
        fs.sync().unwrap();
    }
}
