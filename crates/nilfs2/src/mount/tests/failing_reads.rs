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

/// A reader may be late with a block that the log writer has logged again and dropped since.
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
    let inode = fs.engine.held(number).unwrap();
    assert!(inode.pages.lock().blocks.range(FileBlock(4)..).all(|(_, page)| !page.is_dirty));
    device.repair();
    // Nothing of it keeps the log from going on.
    fs.create(&context, fs.root(), b"c", NewNode::Regular, 0o644).unwrap();
    fs.sync().unwrap();
    fs.append(&context, number, &[2; 190 * BLOCK_BYTES]).unwrap();
    for what in ["in memory", "logged"] {
        let mut bytes = vec![9; 194 * BLOCK_BYTES - 1];
        fs.read(number, 0, &mut bytes).unwrap();
        let (inside, behind) = bytes.split_at(4 * BLOCK_BYTES - 1);
        assert!(inside.iter().all(|byte| *byte == 1), "{what}");
        assert!(behind.iter().all(|byte| *byte == 2), "{what}");
        fs.sync().unwrap();
    }
}

/// Bytes of the block of a virtual block.
fn place_of(fs: &Nilfs2, pointer: u64) -> std::ops::Range<u64> {
    let place = fs.engine.source().translate(VirtualBlock(pointer)).unwrap();
    let offset = fs.engine.volume.geometry.offset_of(place);
    offset..offset + BLOCK_BYTES as u64
}

/// A volume with a large file `a`, and the bytes of one of the nodes of its map.
fn with_node() -> (FaultyMemory, Nilfs2, Number, std::ops::Range<u64>) {
    let (device, fs, [a, _]) = volume();
    let number = Number(a.number.0);
    fs.write_all(&RequestContext::superuser(), number, 0, &[7; 200 * BLOCK_BYTES]).unwrap();
    fs.sync().unwrap();
    let source = fs.engine.source();
    let pointer = |key| a.map.read().node_pointer(1, FileBlock(key), &source).unwrap();
    let node = (1..200).map(pointer).find(|pointer| *pointer != 0).unwrap();
    let bytes = place_of(&fs, node);
    (device, fs, number, bytes)
}

fn fail_reads_of(device: &FaultyMemory, bytes: std::ops::Range<u64>) {
    let fault = Fault::of(DeviceOperation::Read, Effect::InputOutputError);
    device.inject(fault.in_range(bytes));
}

#[test]
fn a_bad_node_fails_only_changes_of_its_file() {
    let context = RequestContext::superuser();
    let (device, _fs, a, node) = with_node();
    let (device, fs) = remounted(&device);
    assert_eq!(find(&fs, fs.root(), b"a"), Some(a));
    fail_reads_of(&device, node);
    let shorter = SetAttributes { size: Some(10 * BLOCK_BYTES as u64), ..SetAttributes::default() };
    assert_eq!(fs.set_attributes(&context, a, &shorter).unwrap_err().errno, Errno::EIO);
    assert_eq!(fs.unlink(&context, fs.root(), b"a").unwrap_err().errno, Errno::EIO);
    assert_eq!(fs.attributes(a).unwrap().size, 200 * BLOCK_BYTES as u64);
    fs.create(&context, fs.root(), b"c", NewNode::Regular, 0o644).unwrap();
    fs.sync().unwrap();
    device.repair();
    fs.set_attributes(&context, a, &shorter).unwrap();
    fs.unlink(&context, fs.root(), b"a").unwrap();
    fs.unmount().unwrap();
    let fs = mount(&device);
    assert!(find(&fs, fs.root(), b"c").is_some());
    assert_eq!(used(&fs), 3);
}

/// It is found again as soon as its map can be read.
#[test]
fn an_inode_without_names_and_with_a_bad_node_stays() {
    let context = RequestContext::superuser();
    let (device, fs, _, node) = with_node();
    fs.unlink(&context, fs.root(), b"a").unwrap();
    fs.sync().unwrap();
    let device = crashed(&device);
    fail_reads_of(&device, node);
    for _ in 0..2 {
        let fs = mount(&device);
        assert_eq!(used(&fs), 3);
        fs.create(&context, fs.root(), b"c", NewNode::Regular, 0o644).unwrap();
        fs.sync().unwrap();
        fs.unlink(&context, fs.root(), b"c").unwrap();
        fs.unmount().unwrap();
    }
    device.repair();
    let fs = mount(&device);
    fs.unmount().unwrap();
    assert_eq!(used(&mount(&device)), 2);
}

/// The log writer notes there that the old block is dead.
#[test]
fn an_overwrite_fails_if_the_entry_of_the_old_block_cannot_be_read() {
    let context = RequestContext::superuser();
    let (device, fs, a, _) = with_node();
    let entry = {
        let engine = &fs.engine;
        let inode = engine.held(a).unwrap();
        let pointer = inode.map.read().get(FileBlock(100), &engine.source()).unwrap();
        let dat = engine.dat.read();
        let [key, ..] = dat.blocks_of(VirtualBlock(pointer));
        let place = dat.file.map.get(key, &engine.volume).unwrap() * BLOCK_BYTES as u64;
        place..place + BLOCK_BYTES as u64
    };
    drop(fs);
    let (device, fs) = remounted(&device);
    assert_eq!(find(&fs, fs.root(), b"a"), Some(a));
    fail_reads_of(&device, entry);
    let write = || fs.write(&context, a, 100 * BLOCK_BYTES as u64, &[8; BLOCK_BYTES]);
    assert_eq!(write().unwrap_err().errno, Errno::EIO);
    fs.sync().unwrap();
    device.repair();
    write().unwrap();
    fs.unmount().unwrap();
}

/// A snapshot is in a list with others, whose records change with it.
#[test]
fn a_snapshot_is_not_made_if_its_neighbour_cannot_be_read() {
    let (device, fs, [a, _]) = volume();
    for byte in 2..14 {
        overwrite(&fs, &a, 0, byte);
        fs.sync().unwrap();
    }
    fs.set_snapshot(1, true).unwrap();
    let numbers: Vec<u64> = fs.checkpoints().unwrap().iter().map(|found| found.number).collect();
    let [first, second] = [numbers[6], numbers[12]];
    fs.set_snapshot(first, true).unwrap();
    let neighbour = {
        let log = fs.engine.log.lock();
        let number = CheckpointNumber(first);
        let (key, _) = drystone_nilfs2_format::cpfile::place_of(number, BLOCK_BYTES);
        log.cpfile.map.get(key, &fs.engine.source()).unwrap()
    };
    let neighbour = place_of(&fs, neighbour);
    let (device, fs) = remounted(&device);
    // Recovery has listed all.
    fs.engine.log.lock().cpfile.trim(0);
    fail_reads_of(&device, neighbour);
    assert_eq!(fs.set_snapshot(second, true).unwrap_err().errno(), Errno::EIO);
    device.repair();
    let snapshots = |fs: &Nilfs2| {
        let mut all = fs.checkpoints().unwrap();
        all.retain(|found| found.is_snapshot);
        all.iter().map(|found| found.number).collect::<Vec<_>>()
    };
    let context = RequestContext::superuser();
    fs.create(&context, fs.root(), b"c", NewNode::Regular, 0o644).unwrap();
    fs.sync().unwrap();
    assert_eq!(snapshots(&fs), [1, first]);
    fs.set_snapshot(second, true).unwrap();
    fs.unmount().unwrap();
    assert_eq!(snapshots(&mount(&device)), [1, first, second]);
}

/// Recovery skips inodes whose records can't be read. The next one looks for them again.
#[test]
fn an_inode_without_names_and_with_a_bad_record_is_found_later() {
    let (device, fs, [a, _]) = volume();
    fs.unlink(&RequestContext::superuser(), fs.root(), b"a").unwrap();
    fs.sync().unwrap();
    let record = record_of(&fs, a.number);
    // The mount reads the newest log as a whole, which must not be that with the record.
    let change = SetAttributes { permissions: Some(0o700), ..SetAttributes::default() };
    fs.set_attributes(&RequestContext::superuser(), fs.root(), &change).unwrap();
    fs.sync().unwrap();
    fs.engine.log.lock().superblocks.write_both(&fs.engine.volume).unwrap();
    let device = crashed(&device);
    fail_reads_of(&device, record);
    let fs = mount(&device);
    assert_eq!(used(&fs), 3);
    fs.unmount().unwrap();
    device.repair();
    mount(&device).unmount().unwrap();
    assert_eq!(used(&mount(&device)), 2);
}

#[test]
fn an_append_does_not_read_the_node_before_the_last() {
    let context = RequestContext::superuser();
    let (device, fs, number, _) = with_node();
    let a = fs.engine.held(number).unwrap();
    let pointer = |key| a.map.read().node_pointer(1, FileBlock(key), &fs.engine.source()).unwrap();
    let nodes: Vec<u64> = (1..200).map(pointer).filter(|pointer| *pointer != 0).collect();
    let node = place_of(&fs, nodes[nodes.len() - 2]);
    let (device, fs) = remounted(&device);
    assert_eq!(find(&fs, fs.root(), b"a"), Some(number));
    fail_reads_of(&device, node);
    fs.append(&context, number, &[8; BLOCK_BYTES]).unwrap();
    fs.sync().unwrap();
}

/// Where the record of an inode is on the device.
fn record_of(fs: &Nilfs2, number: InodeNumber) -> std::ops::Range<u64> {
    let (key, _) = fs.engine.ifile.layout.entry(number.0);
    let pointer = fs.engine.ifile.file.read().map.get(key, &fs.engine.source()).unwrap();
    place_of(fs, pointer)
}

/// A volume that is mounted with a policy, and the place of the record of `a` on its device.
fn searching(search: InodeSearch) -> (FaultyMemory, Nilfs2, std::ops::Range<u64>) {
    let (device, fs, [a, _]) = volume();
    let record = record_of(&fs, a.number);
    fs.unmount().unwrap();
    let held = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let fs = Nilfs2::mount(held, &MountOptions::default().inode_search(search)).unwrap();
    fs.engine.ifile.trim(0);
    (device, fs, record)
}

#[test]
fn a_bad_block_of_inodes_is_read_once() {
    let context = RequestContext::superuser();
    for search in InodeSearch::ALL {
        let (device, fs, record) = searching(search);
        fail_reads_of(&device, record);
        for n in 0..20 {
            let name = format!("new{n}");
            fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644).unwrap();
        }
        assert_eq!(device.failures(), 1, "{search:?}");
    }
}

/// The block may have left memory since it was read for another inode.
#[test]
fn a_bad_block_of_inodes_that_was_read_before_takes_no_inode() {
    let context = RequestContext::superuser();
    for search in InodeSearch::ALL {
        let (device, fs, _) = searching(search);
        let make = |name: &[u8]| fs.create(&context, fs.root(), name, NewNode::Regular, 0o644);
        let made = make(b"c").unwrap().inode;
        fs.sync().unwrap();
        fs.engine.ifile.trim(0);
        fail_reads_of(&device, record_of(&fs, InodeNumber(made.0)));
        make(b"d").unwrap();
        fs.sync().unwrap();
    }
}
