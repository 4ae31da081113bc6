//! A volume is marked clean only if everything is in its newest log.

use super::*;
#[cfg(not(sim))]
use drystone_nilfs2_format::log::LogFlags;
use drystone_vfs::InodeNumber as Number;

/// A clean volume isn't searched for such inodes.
#[test]
fn a_deletion_counts_when_a_log_has_it() {
    let (_, fs, [a, _]) = volume();
    fs.unlink(&RequestContext::superuser(), fs.root(), b"a").unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.engine.nameless_left(), 1);
    fs.forget(Number(a.number.0), 1);
    assert!(a.fields.lock().is_deleted);
    assert_eq!(fs.engine.nameless_left(), 1);
    fs.sync().unwrap();
    assert_eq!(fs.engine.nameless_left(), 0);
}

/// A caller may still have a handle to the volume.
#[cfg(not(sim))]
#[test]
fn nothing_is_written_after_an_unmount() {
    let (device, fs, [a, _]) = volume();
    let number = Number(a.number.0);
    overwrite(&fs, &a, 0, 2);
    fs.unmount().unwrap();
    fs.unmount().unwrap();
    let unmounted = device.inner().to_vec();
    let fs = Arc::new(fs);
    let (calling, is_done) = (Arc::clone(&fs), Arc::new(AtomicBool::new(false)));
    let done = Arc::clone(&is_done);
    let calls = thread::spawn("calls", move || {
        let (fs, context) = (calling, RequestContext::superuser());
        let errors: [drystone_vfs::Error; 8] = [
            fs.sync().unwrap_err(),
            fs.create(&context, fs.root(), b"c", NewNode::Regular, 0o644).unwrap_err(),
            fs.write(&context, number, 0, b"c").unwrap_err(),
            fs.freeze().unwrap_err(),
            fs.clean(0).unwrap_err().into(),
            fs.make_checkpoint().unwrap_err().into(),
            fs.set_snapshot(1, true).unwrap_err().into(),
            Cleaner::new(&fs.engine).clean_some(0).unwrap_err().into(),
        ];
        done.store(true, Ordering::SeqCst);
        errors
    });
    let begun = drystone_sync::clock::now();
    while !is_done.load(Ordering::SeqCst) {
        assert!(begun.elapsed() < Duration::from_secs(60), "a call hangs");
        thread::sleep(Duration::from_millis(1));
    }
    for error in calls.unwrap().join().unwrap() {
        assert_eq!(error.errno, drystone_vfs::Errno::EIO, "{error}");
        assert!(error.to_string().contains("the log has stopped: the volume was unmounted"));
    }
    assert!(device.inner().to_vec() == unmounted, "something was written");
    assert_eq!(first_byte(&fs, b"a"), 2);
}

/// A data log takes longer than the commit interval. After it one checkpoint can be written.
#[cfg(not(sim))]
#[derive(Debug)]
struct OneMoreCheckpoint {
    device: MemoryDevice,
    commit_interval: Duration,
    is_armed: AtomicBool,
    has_data_log: AtomicBool,
    has_checkpoint: AtomicBool,
}

#[cfg(not(sim))]
impl BlockDevice for OneMoreCheckpoint {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.device.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        const MAGIC: u32 = 0x1eaf_fa11;
        if self.is_armed.load(Ordering::SeqCst) && data.get(8..12) == Some(&MAGIC.to_le_bytes()) {
            let flags = LogFlags::from_bits_retain(u16::from_le_bytes([data[14], data[15]]));
            if self.has_checkpoint.load(Ordering::SeqCst) {
                return Err(drystone_blockdev::DeviceError::ReadOnly);
            }
            if flags.contains(LogFlags::DATA_SYNC) {
                self.has_data_log.store(true, Ordering::SeqCst);
                thread::sleep(self.commit_interval + Duration::from_millis(500));
            } else if flags.contains(LogFlags::SUPER_ROOT) {
                let has_data_log = self.has_data_log.load(Ordering::SeqCst);
                self.has_checkpoint.store(has_data_log, Ordering::SeqCst);
            }
        }
        self.device.write_at(offset, data)
    }

    fn flush(&self) -> DeviceResult {
        self.device.flush()
    }
}

/// The cleaner works after a checkpoint that is due, when those that waited for it go on.
#[cfg(not(sim))]
#[test]
fn a_volume_whose_cleaner_failed_last_stays_unclean() {
    // On a slow machine, the checkpoint may be due before the data is synced.
    let has_run = [1, 10, 60].into_iter().any(|seconds| {
        let (device, unmounted) = unmount_while_cleaning_fails(Duration::from_secs(seconds));
        if !device.has_data_log.load(Ordering::SeqCst) {
            return false;
        }
        assert!(matches!(unmounted, Err(Error::LogStopped(_))));
        let superblocks = read_superblocks(&*device).unwrap();
        assert!(superblocks.iter().all(|found| !found.state().contains(VolumeState::CLEAN)));
        true
    });
    assert!(has_run, "the checkpoint that was due always came before the data log");
}

#[cfg(not(sim))]
fn unmount_while_cleaning_fails(commit_interval: Duration) -> (Arc<OneMoreCheckpoint>, Result<()>) {
    let device = Arc::new(OneMoreCheckpoint {
        device: made(16 << 20, 16),
        commit_interval,
        is_armed: AtomicBool::new(false),
        has_data_log: AtomicBool::new(false),
        has_checkpoint: AtomicBool::new(false),
    });
    let held: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let options = MountOptions::default().commit_interval(commit_interval);
    let fs = Arc::new(Nilfs2::mount(held, &options).unwrap());
    let context = RequestContext::superuser();
    let a = fs.create(&context, fs.root(), b"a", NewNode::Regular, 0o644).unwrap().inode;
    fs.write_all(&context, a, 0, &[1; BLOCK_BYTES]).unwrap();
    fs.sync().unwrap();
    device.is_armed.store(true, Ordering::SeqCst);
    // Few enough for cleaning in the background, too many to refill the reserve before the checkpoint is done.
    let clean = fs.engine.space.reserved_segments() + 6;
    assert!(clean < fs.engine.volume.geometry.segments() / 10, "{clean} segments");
    take_clean(&fs, clean, |_| false);
    LogWriter::new(&fs.engine).write_checkpoint().unwrap();
    fs.write_all(&context, a, 0, &[2; BLOCK_BYTES]).unwrap();
    let is_synced = Arc::new(AtomicBool::new(false));
    let (syncing, synced) = (Arc::clone(&fs), Arc::clone(&is_synced));
    let sync = thread::spawn("sync", move || {
        let result = syncing.sync_inode(a, true);
        synced.store(true, Ordering::SeqCst);
        result
    });
    while !device.has_data_log.load(Ordering::SeqCst) && !is_synced.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    let unmounted = fs.unmount();
    sync.unwrap().join().unwrap().unwrap();
    (device, unmounted)
}
