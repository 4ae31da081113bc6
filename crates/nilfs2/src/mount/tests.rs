//! What is taken for a log gets into one, whatever happens meanwhile.

mod damage;
mod failing_reads;
mod salvage;
mod superblocks;
mod unmount;

use super::*;
use crate::checkpoints::Checkpoints;
use crate::cleaner::Cleaner;

use crate::inode::Inode;
use crate::log_writer::LogWriter;
use crate::mkfs::{MakeOptions, make};
use crate::trim::{CONTENT_BYTES_MAX, trim_content};
use drystone_blockdev::{
    BlockDevice, DeviceOperation, DeviceResult, Effect, Fault, Faulty, MemoryDevice, Trigger,
};
use drystone_nilfs2_format::log::{LogHeader, seal};
use drystone_nilfs2_format::sufile::{SegmentUsage, UsageFlags};
use drystone_nilfs2_format::{FileBlock, SegmentNumber, VirtualBlock};
use drystone_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use drystone_vfs::{FileSystem, NewNode, RequestContext, SetAttributes};
use uuid::Uuid;

const BLOCK_BYTES: usize = 1024;

type FaultyMemory = Arc<Faulty<Arc<MemoryDevice>>>;

/// An empty volume.
fn made(device_bytes: u64, blocks_per_segment: u32) -> MemoryDevice {
    let device = MemoryDevice::new(device_bytes);
    let options = MakeOptions {
        block_bytes: BLOCK_BYTES as u32,
        blocks_per_segment,
        ..MakeOptions::new(Uuid::from_u128(1), 7, 1_700_000_000)
    };
    make(&device, &options).unwrap();
    device
}

/// A volume with two files of four blocks, which are in a checkpoint.
fn volume() -> (FaultyMemory, Nilfs2, [Arc<Inode>; 2]) {
    let device = made(4 << 20, 64);
    let device = Arc::new(Faulty::new(Arc::new(device)));
    let fs = mount(&device);
    let context = RequestContext::superuser();
    let inodes = ["a", "b"].map(|name| {
        let made = fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644);
        let number = made.unwrap().inode;
        fs.write_all(&context, number, 0, &[1; 4 * BLOCK_BYTES]).unwrap();
        fs.engine.held(number).unwrap()
    });
    fs.sync().unwrap();
    (device, fs, inodes)
}

fn mount(device: &FaultyMemory) -> Nilfs2 {
    let held: Arc<dyn BlockDevice> = Arc::clone(device) as Arc<dyn BlockDevice>;
    let interval = Some(Duration::from_secs(3600));
    let options = MountOptions { commit_interval: interval, ..MountOptions::default() };
    Nilfs2::mount(held, &options).unwrap()
}

fn overwrite(fs: &Nilfs2, inode: &Inode, block: u64, byte: u8) {
    let number = drystone_vfs::InodeNumber(inode.number.0);
    let offset = block * BLOCK_BYTES as u64;
    fs.write_all(&RequestContext::superuser(), number, offset, &[byte; BLOCK_BYTES]).unwrap();
}

/// What is on the device when the power is cut.
fn crashed(device: &FaultyMemory) -> FaultyMemory {
    Arc::new(Faulty::new(Arc::new(MemoryDevice::from_bytes(&device.inner().to_vec()))))
}

fn first_byte(fs: &Nilfs2, name: &[u8]) -> u8 {
    let found = fs.lookup(&RequestContext::superuser(), fs.root(), name).unwrap();
    let mut byte = [0];
    assert_eq!(fs.read(found.inode, 0, &mut byte).unwrap(), 1);
    byte[0]
}

#[test]
fn data_is_logged_beside_a_file_that_needs_a_checkpoint() {
    let (device, fs, [a, b]) = volume();
    overwrite(&fs, &a, 0, 2);
    overwrite(&fs, &b, 4, 3);
    LogWriter::new(&fs.engine).write_data_log(&[a, b]).unwrap();
    let fs = mount(&crashed(&device));
    for (name, offset, expected) in [("a", 0, 2), ("b", 4 * BLOCK_BYTES as u64, 3)] {
        let context = RequestContext::superuser();
        let found = fs.lookup(&context, fs.root(), name.as_bytes()).unwrap();
        let mut byte = [0];
        assert_eq!(fs.read(found.inode, offset, &mut byte).unwrap(), 1, "{name}");
        assert_eq!(byte, [expected], "{name}");
    }
}

#[test]
fn a_frozen_volume_gets_no_log() {
    let (device, fs, [a, b]) = volume();
    let context = RequestContext::superuser();
    overwrite(&fs, &a, 0, 2);
    fs.unlink(&context, fs.root(), b"b").unwrap();
    fs.freeze().unwrap();
    let written = device.operations(DeviceOperation::Write);
    // What it deletes is dirty in memory until the volume is thawed.
    fs.forget(drystone_vfs::InodeNumber(b.number.0), 1);
    fs.sync().unwrap();
    fs.sync_inode(drystone_vfs::InodeNumber(a.number.0), true).unwrap();
    LogWriter::new(&fs.engine).write_data_log(&[a]).unwrap();
    let cleaner = Cleaner::new(&fs.engine);
    assert_eq!((cleaner.clean_some(0).unwrap(), cleaner.clean_all(0).unwrap()), (0, 0));
    assert_eq!(device.operations(DeviceOperation::Write), written);
    fs.thaw().unwrap();
    fs.sync().unwrap();
    assert!(device.operations(DeviceOperation::Write) > written);
}

/// A server lets other threads stand in for those that wait. A simulation has none.
#[cfg(not(sim))]
#[test]
fn waits_for_a_thaw_are_announced() {
    let (_, fs, [a, _]) = volume();
    let fs = Arc::new(fs);
    let (announced, changed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    fs.freeze().unwrap();
    assert!(fs.is_frozen());
    let change = {
        let (fs, announced, changed) =
            (Arc::clone(&fs), Arc::clone(&announced), Arc::clone(&changed));
        let inode = drystone_vfs::InodeNumber(a.number.0);
        thread::spawn("change", move || {
            drystone_sync::long_wait::call_before(Arc::new(move || {
                announced.fetch_add(1, Ordering::SeqCst);
            }));
            fs.write(&RequestContext::superuser(), inode, 0, b"changed").unwrap();
            changed.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap()
    };
    while announced.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    assert_eq!(changed.load(Ordering::SeqCst), 0);
    fs.thaw().unwrap();
    fs.wait_thawed();
    change.join().unwrap();
    assert!(!fs.is_frozen());
}

#[test]
fn a_frozen_volume_is_unmounted() {
    let (device, fs, [_, b]) = volume();
    fs.unlink(&RequestContext::superuser(), fs.root(), b"b").unwrap();
    fs.freeze().unwrap();
    fs.forget(drystone_vfs::InodeNumber(b.number.0), 1);
    fs.unmount().unwrap();
    let statistics = mount(&device).statistics().unwrap();
    assert_eq!(statistics.inodes - statistics.inodes_free, 2, "b is still there");
}

/// What the first superblock names may be lost in a crash while it is written.
#[test]
fn the_second_superblock_knows_of_a_salvage() {
    let (device, fs, [a, _]) = volume();
    overwrite(&fs, &a, 0, 2);
    LogWriter::new(&fs.engine).write_data_log(&[a]).unwrap();
    let device = crashed(&device);
    let fs = mount(&device);
    let context = RequestContext::superuser();
    let found = fs.lookup(&context, fs.root(), b"a").unwrap();
    fs.write_all(&context, found.inode, 0, &[3; BLOCK_BYTES]).unwrap();
    fs.sync().unwrap();
    let device = crashed(&device);
    device.write_at(SUPERBLOCK_OFFSET_BYTES, &[0; SUPERBLOCK_BYTES]).unwrap();
    assert_eq!(first_byte(&mount(&device), b"a"), 3);
}

/// Of one that took all of the device before.
#[test]
fn a_superblock_of_another_volume_does_not_count() {
    let device = made(8 << 20, 64);
    let end = second_superblock_offset(device.size_bytes());
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(end, &mut bytes).unwrap();
    let mut other = Superblock::check(&bytes, device.size_bytes()).unwrap();
    let checkpoint = CheckpointNumber(1000);
    other.set_cursor(LogCursor { checkpoint, ..other.cursor() });
    device.write_at(end, &other.encode()).unwrap();
    let volume = MemoryDevice::new(4 << 20);
    let options = MakeOptions {
        block_bytes: BLOCK_BYTES as u32,
        blocks_per_segment: 64,
        ..MakeOptions::new(Uuid::from_u128(2), 7, 1_700_000_000)
    };
    make(&volume, &options).unwrap();
    device.write_at(0, &volume.to_vec()).unwrap();
    let found = read_superblocks(&device).unwrap();
    assert_eq!(found.len(), 2);
    for superblock in found {
        assert_eq!(
            (superblock.uuid(), superblock.cursor().checkpoint.0 < 10),
            (options.uuid, true)
        );
    }
}

#[test]
fn nothing_is_logged_after_a_failure() {
    let (device, fs, [a, _]) = volume();
    overwrite(&fs, &a, 0, 2);
    device
        .inject(Fault::of(DeviceOperation::Write, Effect::InputOutputError).when(Trigger::Nth(0)));
    let writer = LogWriter::new(&fs.engine);
    writer.write_checkpoint().unwrap_err();
    let written = device.operations(DeviceOperation::Write);
    assert!(matches!(writer.write_checkpoint(), Err(Error::LogStopped(_))));
    assert!(matches!(writer.write_data_log(&[a]), Err(Error::LogStopped(_))));
    assert_eq!(device.operations(DeviceOperation::Write), written);
}

/// Has clean segments taken until only so many are left, but for those that are to stay clean.
fn take_clean(fs: &Nilfs2, left: u64, stays: impl Fn(u64) -> bool) {
    let (engine, mut log) = (&fs.engine, fs.engine.log.lock());
    let source = engine.source();
    for number in (0..engine.volume.geometry.segments()).rev() {
        let segment = SegmentNumber(number);
        let usage = log.segments.usage(segment, &engine.volume, &source).unwrap();
        if log.segments.header.clean > left && usage.is_clean() && !stays(number) {
            let usage = SegmentUsage { flags: UsageFlags::DIRTY, ..usage };
            log.segments.set_usage(segment, usage, &engine.volume, &source).unwrap();
        }
    }
}

/// Gives all segments back that were taken and have nothing.
fn give_clean(fs: &Nilfs2) {
    let engine = &fs.engine;
    let mut log = engine.log.lock();
    let (source, position) = (engine.source(), log.segments.position);
    for segment in (0..engine.volume.geometry.segments()).map(SegmentNumber) {
        let usage = log.segments.usage(segment, &engine.volume, &source).unwrap();
        if usage.blocks == 0 && segment != position.segment && segment != position.next {
            let usage = SegmentUsage { flags: UsageFlags::empty(), ..usage };
            log.segments.set_usage(segment, usage, &engine.volume, &source).unwrap();
        }
    }
    let dat_blocks = engine.dat.read().file.blocks_mapped();
    let ifile_blocks = engine.ifile.file.read().blocks_mapped();
    engine.space.note_log(&log, dat_blocks, ifile_blocks);
}

/// A volume that crashes after data logs can be mounted for writing, however full it is.
#[test]
fn data_logs_leave_room_for_recovery() {
    for clean in 1..12 {
        let (device, fs, [a, _]) = volume();
        let number = drystone_vfs::InodeNumber(a.number.0);
        let context = RequestContext::superuser();
        fs.write_all(&context, number, 0, &[1; 60 * BLOCK_BYTES]).unwrap();
        fs.sync().unwrap();
        take_clean(&fs, clean, |_| false);
        let writer = LogWriter::new(&fs.engine);
        writer.write_checkpoint().unwrap();
        // As if the change had begun before the volume was full.
        for round in 2..5 {
            for block in 0..60 {
                let bytes = vec![round; BLOCK_BYTES].into();
                fs.engine.replace_block(&a, FileBlock(block), bytes).unwrap();
            }
            if writer.write_data_log(&[Arc::clone(&a)]).is_err() {
                break;
            }
            let fs = mount(&crashed(&device));
            assert_eq!(first_byte(&fs, b"a"), round, "{clean} segments were clean");
        }
    }
}

/// A volume that crashes between the logs of a checkpoint can be mounted for writing, however full it is.
#[test]
fn a_torn_checkpoint_leaves_room_for_recovery() {
    let mut torn = 0;
    for (clean, failing) in (4..12).flat_map(|clean| (1..7).map(move |failing| (clean, failing))) {
        let (device, fs, [a, _]) = volume();
        let number = drystone_vfs::InodeNumber(a.number.0);
        let context = RequestContext::superuser();
        fs.write_all(&context, number, 0, &[1; 200 * BLOCK_BYTES]).unwrap();
        fs.sync().unwrap();
        take_clean(&fs, clean, |_| false);
        let writer = LogWriter::new(&fs.engine);
        writer.write_checkpoint().unwrap();
        // As if the change had begun before the volume was full.
        for block in 0..200 {
            fs.engine.replace_block(&a, FileBlock(block), vec![2; BLOCK_BYTES].into()).unwrap();
        }
        let fault = Fault::of(DeviceOperation::Write, Effect::InputOutputError);
        device.inject(fault.when(Trigger::Nth(failing)));
        if writer.write_checkpoint().is_ok() {
            continue;
        }
        let device = crashed(&device);
        let found = Opened::find(
            Arc::clone(&device) as Arc<dyn BlockDevice>,
            true,
            &MountOptions::default(),
        );
        if found.unwrap().work.state.reached.is_empty() {
            continue;
        }
        torn += 1;
        let fs = mount(&device);
        assert_eq!(first_byte(&fs, b"a"), 1, "{clean} segments were clean");
        fs.unmount().unwrap();
        assert_eq!(first_byte(&mount(&device), b"a"), 1, "{clean} segments were clean");
    }
    assert!(torn > 5, "{torn} checkpoints were torn");
}

/// What data logs have is dirty until the next checkpoint, which logs the nodes above it.
#[test]
fn data_logs_stay_counted() {
    let (_, fs, [a, _]) = volume();
    for block in 0..4 {
        overwrite(&fs, &a, block, 2);
    }
    let dirty = fs.engine.space.dirty_blocks();
    assert!(dirty >= 5, "{dirty} blocks are dirty");
    let writer = LogWriter::new(&fs.engine);
    writer.write_data_log(&[a]).unwrap();
    assert_eq!(fs.engine.space.dirty_blocks(), dirty);
    writer.write_checkpoint().unwrap();
    assert_eq!(fs.engine.space.dirty_blocks(), 0);
}

/// A checkpoint of so many deletions at once would have no room.
#[test]
fn many_files_are_closed_on_an_exhausted_volume() {
    let (device, fs, _) = volume();
    let context = RequestContext::superuser();
    let files: Vec<_> = (0..400)
        .map(|number| {
            let name = format!("file-{number}");
            let made = fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644);
            let file = made.unwrap().inode;
            fs.write_all(&context, file, 0, b"content").unwrap();
            fs.unlink(&context, fs.root(), name.as_bytes()).unwrap();
            file
        })
        .collect();
    fs.sync().unwrap();
    let used = |fs: &Nilfs2| {
        let statistics = fs.statistics().unwrap();
        statistics.inodes - statistics.inodes_free
    };
    take_clean(&fs, 2, |_| false);
    LogWriter::new(&fs.engine).write_checkpoint().unwrap();
    for file in files {
        fs.forget(file, 1);
    }
    assert!(used(&fs) > 300, "{} inodes are in use", used(&fs));
    fs.sync().unwrap();
    // Recovery has no room either, and leaves them for later once more.
    let again = crashed(&device);
    let full = mount(&again);
    assert!(used(&full) > 300);
    full.unmount().unwrap();
    // There is room again.
    for fs in [fs, mount(&again)] {
        give_clean(&fs);
        fs.sync().unwrap();
        fs.unmount().unwrap();
        assert_eq!(used(&fs), 3);
    }
    for device in [device, again] {
        assert_eq!(used(&mount(&device)), 3);
    }
}

#[test]
fn a_full_volume_is_searched_once() {
    let (device, fs, [a, b]) = volume();
    let context = RequestContext::superuser();
    let [a, b] = [a, b].map(|inode| drystone_vfs::InodeNumber(inode.number.0));
    let mut blocks = 0;
    while fs.write_all(&context, a, blocks * BLOCK_BYTES as u64, &[5; BLOCK_BYTES]).is_ok() {
        blocks += 1;
    }
    fs.sync().unwrap();
    let refused = |fs: &Nilfs2| {
        fs.engine.dat.write().file.trim(0);
        let before = device.operations(DeviceOperation::Read);
        let written = fs.write(&context, b, 0, &[6; BLOCK_BYTES]);
        assert_eq!(written.unwrap_err().errno, drystone_vfs::Errno::ENOSPC);
        device.operations(DeviceOperation::Read) - before
    };
    refused(&fs);
    assert_eq!(refused(&fs), 0, "blocks were read in vain");
    let less = SetAttributes { size: Some(0), ..SetAttributes::default() };
    fs.set_attributes(&context, a, &less).unwrap();
    fs.write_all(&context, b, 0, &[6; BLOCK_BYTES]).unwrap();
}

/// Every segment that is taken changes another block of the segment usage file, and each of these ends
/// an entry in another block of the DAT.
#[test]
fn scattered_segments_are_counted() {
    let device = made(256 << 20, 16);
    let fs = mount(&Arc::new(Faulty::new(Arc::new(device))));
    let context = RequestContext::superuser();
    let made = fs.create(&context, fs.root(), b"a", NewNode::Regular, 0o644);
    let a = fs.engine.held(made.unwrap().inode).unwrap();
    let writer = LogWriter::new(&fs.engine);
    let per_block = (BLOCK_BYTES / 16) as u64;
    let mut block = 0;
    let mut write = |count: u64, byte: u8| {
        for block in block..block + count {
            let bytes = vec![byte; BLOCK_BYTES].into();
            fs.engine.replace_block(&a, FileBlock(block), bytes).unwrap();
        }
        block += count;
        writer.write_checkpoint()
    };
    // The log goes through the first part of the volume meanwhile.
    let segments = fs.engine.volume.geometry.segments();
    for first in (0..segments).step_by(per_block as usize) {
        take_clean(&fs, 0, |number| number != first);
        write(40, 1).unwrap();
    }
    take_clean(&fs, 0, |number| number % per_block == 30);
    writer.write_checkpoint().unwrap();
    let clean = fs.engine.space.clean_segments();
    assert!(clean > 200, "{clean} segments are clean");
    write(2150, 2).unwrap();
}

#[test]
fn a_block_is_read_before_one_that_has_no_place_yet() {
    let (_, fs, [a, _]) = volume();
    a.pages.lock().trim();
    overwrite(&fs, &a, 1, 2);
    // As the log writer has it while it builds a log.
    let _frozen = a.pages.lock().freeze();
    let engine = &fs.engine;
    let unplaced = engine.dat.write().allocate(&engine.volume).unwrap();
    a.map.write().set(FileBlock(1), unplaced.0, &engine.source()).unwrap();
    assert_eq!(a.block(FileBlock(0), engine.source()).unwrap().unwrap()[0], 1);
    assert_eq!(a.place_of(FileBlock(1), engine.source()).unwrap(), None);
}

/// The file of inodes is sparse: a volume of any size may have one with a large number.
#[test]
fn groups_of_inodes_take_no_memory_before_they_are_looked_at() {
    let (_, fs, _) = volume();
    for number in [1 << 30, 1 << 50] {
        fs.engine.ifile.warm(InodeNumber(number), fs.engine.source()).unwrap();
    }
}

/// Changes the header of the newest log, and gives it the sums for that.
fn change_newest_log(device: &MemoryDevice, change: impl Fn(&mut LogHeader)) {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes).unwrap();
    let mut superblock = Superblock::check(&bytes, device.size_bytes()).unwrap();
    let (geometry, cursor) = (*superblock.geometry(), superblock.cursor());
    let at = geometry.offset_of(cursor.block);
    let mut summary = vec![0; BLOCK_BYTES];
    device.read_at(at, &mut summary).unwrap();
    let mut header = LogHeader::check(&summary, &geometry, cursor.block).unwrap();
    change(&mut header);
    header.encode_into(&mut summary);
    let mut payload = vec![0; (header.blocks as usize - 1) * BLOCK_BYTES];
    device.read_at(at + BLOCK_BYTES as u64, &mut payload).unwrap();
    seal(superblock.seed(), &mut summary, header.summary_bytes as usize, [&payload[..]]);
    device.write_at(at, &summary).unwrap();
    superblock.set_cursor(LogCursor { sequence: header.sequence, ..cursor });
    device.write_at(SUPERBLOCK_OFFSET_BYTES, &superblock.encode()).unwrap();
}

/// The numbers of later logs would overflow.
#[test]
fn a_log_with_the_last_number_is_only_read() {
    let device = made(4 << 20, 64);
    change_newest_log(&device, |header| header.sequence = u64::MAX);
    let before = device.to_vec();
    let device = Arc::new(device);
    let mount = |read_only| {
        let held = Arc::clone(&device) as Arc<dyn BlockDevice>;
        Nilfs2::mount(held, &MountOptions { read_only, ..MountOptions::default() })
    };
    let failed = mount(false).unwrap_err().to_string();
    assert!(failed.contains("impossible number 18446744073709551615"), "{failed}");
    mount(true).unwrap().unmount().unwrap();
    assert_eq!(device.to_vec(), before);
}

/// A log may claim half of a large segment, and have the sums for it.
#[test]
fn a_log_is_not_held_in_memory() {
    const BLOCKS: u32 = 1 << 16;
    let device = made(20 * u64::from(BLOCKS) * BLOCK_BYTES as u64, BLOCKS);
    change_newest_log(&device, |header| header.blocks = BLOCKS / 2);

    let device = Arc::new(LargestRead { device, bytes: AtomicUsize::new(0) });
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    // Its super root isn't at the new end.
    let failed = Nilfs2::mount(shared, &MountOptions::default()).unwrap_err().to_string();
    assert!(failed.contains("super root"), "{failed}");
    let largest = device.bytes.load(Ordering::Relaxed);
    assert!(largest <= 1 << 20, "{largest} bytes at once");
}

/// Notes the largest read.
#[derive(Debug)]
struct LargestRead {
    device: MemoryDevice,
    bytes: AtomicUsize,
}

impl BlockDevice for LargestRead {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.bytes.fetch_max(buffer.len(), Ordering::Relaxed);
        self.device.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.device.write_at(offset, data)
    }

    fn flush(&self) -> DeviceResult {
        self.device.flush()
    }
}

#[test]
fn a_log_writer_that_panics_fails_what_waits_for_it() {
    let device =
        Arc::new(PanicsAtWrites { device: made(4 << 20, 64), panics: AtomicBool::new(false) });
    let held: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let fs = Nilfs2::mount(held, &MountOptions::default()).unwrap();
    let context = RequestContext::superuser();
    fs.create(&context, fs.root(), b"a", NewNode::Regular, 0o644).unwrap();
    device.panics.store(true, Ordering::Relaxed);
    assert_eq!(fs.sync().unwrap_err().errno, drystone_vfs::Errno::EIO);
    assert!(matches!(fs.unmount(), Err(Error::LogStopped(_))));
}

#[test]
fn a_commit_interval_of_zero_is_refused() {
    let device: Arc<dyn BlockDevice> = Arc::new(made(4 << 20, 64));
    let options = MountOptions::default().commit_interval(Duration::ZERO);
    assert!(matches!(Nilfs2::mount(device, &options), Err(Error::Mount(_))));
}

/// Panics instead of writing.
#[derive(Debug)]
struct PanicsAtWrites {
    device: MemoryDevice,
    panics: AtomicBool,
}

impl BlockDevice for PanicsAtWrites {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.device.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        assert!(!self.panics.load(Ordering::Relaxed), "a test has this write panic");
        self.device.write_at(offset, data)
    }

    fn flush(&self) -> DeviceResult {
        self.device.flush()
    }
}

/// The clock may be set back while a volume is mounted.
#[test]
fn inodes_without_names_are_found_whatever_the_clock_says() {
    let (device, fs, _) = volume();
    fs.unlink(&RequestContext::superuser(), fs.root(), b"b").unwrap();
    fs.sync().unwrap();
    {
        let mut log = fs.engine.log.lock();
        log.superblocks.current.set_mounted_s(fs.engine.volume.wall_s() + 3600);
        log.superblocks.write_both(&fs.engine.volume).unwrap();
    }
    let statistics = mount(&crashed(&device)).statistics().unwrap();
    assert_eq!(statistics.inodes - statistics.inodes_free, 2, "b is still there");
}

/// A crafted map may have the last key.
#[test]
fn the_last_key_of_a_map_ends_a_listing() {
    let (_, fs, _) = volume();
    let engine = &fs.engine;
    let source = engine.source();
    let mut log = engine.log.lock();
    let (last, anything) = (FileBlock(u64::MAX), 5000);
    let block = drystone_nilfs2_format::cpfile::new_block(last, BLOCK_BYTES);
    log.cpfile.edit(last, &source, || block).unwrap();
    log.cpfile.map.set(last, anything, &source).unwrap();
    Checkpoints::new(engine).list_checkpoints(&mut log).unwrap();

    let layout = engine.ifile.layout;
    let bitmap = layout.bitmap(u64::MAX / layout.entries_per_group());
    // After some of these there are no groups.
    let entries = [1 << 40, 1 << 50, 1 << 53].map(|group| FileBlock(layout.bitmap(group).0 + 7));
    for key in [bitmap].into_iter().chain(entries).chain([last]) {
        let mut file = engine.ifile.file.write();
        file.edit_zeroed(key, &source).unwrap();
        file.map.set(key, anything, &source).unwrap();
    }
    let mut from = InodeNumber::FIRST_ORDINARY;
    for _ in 0..10 {
        let Some((_, next)) = engine.ifile.used_from(from, source).unwrap() else { return };
        assert!(next > from);
        from = next;
    }
    panic!("the search goes on at {from}");
}

/// A data log gives blocks to holes.
#[test]
fn a_data_log_counts_the_space_of_its_file() {
    let (_, fs, [a, _]) = volume();
    let number = drystone_vfs::InodeNumber(a.number.0);
    let larger = SetAttributes { size: Some(100 << 10), ..SetAttributes::default() };
    fs.set_attributes(&RequestContext::superuser(), number, &larger).unwrap();
    fs.sync().unwrap();
    overwrite(&fs, &a, 5, 2);
    let sectors = || fs.attributes(number).unwrap().sectors;
    let before = sectors();
    assert_eq!(before, 5 * BLOCK_BYTES as u64 / 512);
    fs.sync_inode(number, true).unwrap();
    assert!(fs.engine.log.lock().has_data_logs);
    assert_eq!(sectors(), before);
    fs.sync().unwrap();
    assert_eq!(sectors(), before);
}

/// Some of the records of its block are valid whatever the block's count says.
#[test]
fn a_checkpoint_is_deleted_alone() {
    let (_, fs, [a, _]) = volume();
    for byte in 2..12 {
        overwrite(&fs, &a, 0, byte);
        fs.sync().unwrap();
    }
    let numbers = || fs.checkpoints().unwrap().iter().map(|found| found.number).collect::<Vec<_>>();
    let before = numbers();
    let per_block = drystone_nilfs2_format::cpfile::entries_per_block(BLOCK_BYTES);
    {
        let mut log = fs.engine.log.lock();
        let block = log.cpfile.edit_zeroed(FileBlock(1), &fs.engine.source()).unwrap();
        drystone_nilfs2_format::cpfile::set_valid_count(block, 1);
    }
    fs.delete_checkpoint(per_block + 1).unwrap();
    let mut expected = before;
    expected.retain(|number| *number != per_block + 1);
    expected.push(expected.last().unwrap() + 1);
    assert_eq!(numbers(), expected);
}

/// Segments that are as good as full can't be cleaned with a gain: they aren't read.
#[test]
fn full_segments_are_not_read_to_make_room() {
    let device = Arc::new(Faulty::new(Arc::new(made(4 << 20, 64))));
    let held: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let options = MountOptions::default().fixed_time_s(1_700_000_000);
    let fs = Nilfs2::mount(held, &options).unwrap();
    let context = RequestContext::superuser();
    let made = fs.create(&context, fs.root(), b"a", NewNode::Regular, 0o644);
    let a = made.unwrap().inode;
    let mut offset = 0;
    while let Ok(written) = fs.write(&context, a, offset, &[5; 200 << 10]) {
        offset += written as u64;
        fs.sync().unwrap();
    }
    let cleaner = Cleaner::new(&fs.engine);
    while cleaner.clean_all(0).unwrap() > 0 {}
    let before = device.operations(DeviceOperation::Read);
    assert_eq!(cleaner.clean_all(0).unwrap(), 0);
    let reads = device.operations(DeviceOperation::Read) - before;
    let segments = fs.engine.volume.geometry.segments();
    assert!(reads < segments, "{reads} reads for {segments} segments");
}

/// No log is written while a volume is only read.
#[test]
fn what_is_read_is_dropped_without_a_log() {
    let (device, fs, [a, _]) = volume();
    let number = drystone_vfs::InodeNumber(a.number.0);
    fs.write_all(&RequestContext::superuser(), number, 0, &[1; 100 * BLOCK_BYTES]).unwrap();
    fs.unmount().unwrap();
    let held: Arc<dyn BlockDevice> = device;
    let fs = Nilfs2::mount(held, &MountOptions::default().read_only(true)).unwrap();
    let engine = &fs.engine;
    assert_eq!(first_byte(&fs, b"a"), 1);
    let mut bytes = vec![0; 100 * BLOCK_BYTES];
    fs.read(number, 0, &mut bytes).unwrap();
    // With a block of the directory.
    let read = &engine.volume.content_added_bytes;
    assert_eq!(read.load(Ordering::Relaxed), bytes.len() + BLOCK_BYTES);
    let inode = engine.held(number).unwrap();
    assert_eq!(inode.pages.lock().blocks.len(), 100);
    trim_content(engine, 99);
    assert_eq!(inode.pages.lock().blocks.len(), 0);
    // As if much had been read by now.
    read.store(CONTENT_BYTES_MAX, Ordering::Relaxed);
    fs.read(number, 0, &mut bytes).unwrap();
    assert_eq!(read.load(Ordering::Relaxed), 0);
    assert!(bytes.iter().all(|byte| *byte == 1));
}

/// Only what writes needs the segment usage file.
#[test]
fn a_volume_is_read_without_its_segment_usage_file() {
    let (device, fs, _) = volume();
    fs.unmount().unwrap();
    let pointer = fs.engine.log.lock().segments.file.map.get(FileBlock(0), &fs.engine.source());
    let place = fs.engine.source().translate(VirtualBlock(pointer.unwrap())).unwrap();
    let offset = fs.engine.volume.geometry.offset_of(place);
    // The segment that was allocated last.
    device.write_at(offset + 16, &[0xFF; 8]).unwrap();
    change_newest_log(device.inner(), |_| ());
    let mount = |read_only| {
        let held = Arc::clone(&device) as Arc<dyn BlockDevice>;
        Nilfs2::mount(held, &MountOptions::default().read_only(read_only))
    };
    assert!(matches!(mount(false), Err(Error::Corrupt(Corrupt::Usage { .. }))));
    assert_eq!(first_byte(&mount(true).unwrap(), b"a"), 1);
}

/// A volume with so many clean segments, where the power failed in a checkpoint of several logs, the first of which
/// is torn.
fn torn_with_clean(clean: u64) -> FaultyMemory {
    let (device, fs, [a, _]) = volume();
    let engine = &fs.engine;
    {
        let mut log = engine.log.lock();
        while log.segments.header.clean > clean {
            log.segments.allocate(&engine.volume, &engine.source()).unwrap();
        }
        engine.note_clean_segments(&log);
    }
    LogWriter::new(engine).write_checkpoint().unwrap();
    engine.log.lock().superblocks.write_both(&engine.volume).unwrap();
    let before = device.inner().to_vec();
    let first = engine.log.lock().segments.position.block.0 as usize;
    {
        let _content = a.content.write();
        for key in 0..100 {
            engine.replace_block(&a, FileBlock(key), vec![2; BLOCK_BYTES].into()).unwrap();
        }
    }
    LogWriter::new(engine).write_checkpoint().unwrap();
    let mut after = device.inner().to_vec();
    let second_superblock = after.len() - 4096;
    for superblock in [1024..2048, second_superblock..after.len()] {
        after[superblock.clone()].copy_from_slice(&before[superblock]);
    }
    after[first * BLOCK_BYTES..][..BLOCK_BYTES].fill(0);
    Arc::new(Faulty::new(Arc::new(MemoryDevice::from_bytes(&after))))
}

/// Each crash would take some, until nothing can be changed or cleaned any more.
#[test]
fn recovery_keeps_no_segments_of_a_torn_checkpoint() {
    for clean in [3, 20] {
        let device = torn_with_clean(clean);
        let fs = mount(&device);
        assert_eq!(first_byte(&fs, b"a"), 1, "{clean} clean segments");
        // The log may have begun a segment.
        let left = fs.engine.space.clean_segments();
        assert!(left + 1 >= clean, "{left} of {clean} clean segments");
        fs.unmount().unwrap();
        assert_eq!(first_byte(&mount(&device), b"b"), 1, "{clean} clean segments");
    }
}
