//! Multi-mount protection (MMP): a block that names the host that has the image open, and is rewritten
//! every few seconds.
//!
//! A mount claims the block, waits for as long as another mount may take to write to it, and checks that
//! its claim still stands. Each later write checks that too. If something else wrote to the block, the
//! image is mounted elsewhere, and the journal stops before more is damaged.
//!
//! # Locking
//! The writer is a thread of its own. It shares with the mount the flag that stops it, and the journal
//! that it stops.
//!
//! # Reference
//! "Multiple Mount Protection" in the kernel's ext4 documentation.

mod block;
#[cfg(not(loom))]
mod claimed;

#[cfg(not(loom))]
pub use claimed::while_claimed;

use self::block::{MmpBlock, find, interval_seconds, pause_on};
use crate::error::{Error, Result};
use crate::lock_classes;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::Corrupt;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::mmp::{CHECK_INTERVAL_SECONDS_MAX, MmpState};
use drystone_ext4_format::superblock::Superblock;
use drystone_jbd2::Journal;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, Condvar, Mutex, OnceLock, Weak, clock, thread};
use std::time::Duration;

/// Why the journal stops when the image is mounted elsewhere.
const LOST: &str = "another mount has written to the block of multi-mount protection";

/// Refuses an image that another machine has mounted or checks, as its multi-mount protection says. If a mount
/// didn't end, waits for as long as a live one may take to show itself. An image whose superblock or whose
/// block is damaged says nothing of that.
///
/// # Errors
/// [`Error::Mount`] if it is in use; otherwise the device failed.
pub fn check_multi_mount(device: &dyn BlockDevice) -> Result<()> {
    let Some((place, interval_seconds)) = find(device)? else { return Ok(()) };
    match place.wait_for_others(interval_seconds, pause_on(device)) {
        Ok(_) | Err(Error::Corrupt(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// What the thread shares with the mount.
#[derive(Debug)]
struct MmpShared<D = Arc<dyn BlockDevice>> {
    place: MmpBlock<D>,
    is_stopped: Mutex<bool>,
    stop: Condvar,
    /// Another mount has written to the block.
    is_lost: AtomicBool,
    /// The journal that stops then.
    journal: OnceLock<Weak<Journal>>,
}

/// The running writer of the block. It ends with [`stop`](MultiMountProtection::stop). If it is dropped
/// instead, the claim stays, and the next mount has to wait before it claims the image.
#[derive(Debug)]
pub(crate) struct MultiMountProtection {
    shared: Arc<MmpShared>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl MultiMountProtection {
    /// Claims the image, if it has multi-mount protection. Waits as long as another holder would
    /// need to show itself.
    pub fn start(device: &Arc<dyn BlockDevice>, superblock: &Superblock) -> Result<Option<Self>> {
        if !superblock.features().incompat.contains(Incompat::MMP) {
            return Ok(None);
        }
        let layout = superblock.layout();
        let block = superblock
            .mmp_block()
            .filter(|&block| layout.contains_blocks(block, 1))
            .ok_or(Corrupt::Missing { feature: "MMP", missing: "block for it" })?;
        let place = MmpBlock {
            device: Arc::clone(device),
            block,
            block_size: layout.block_size(),
            seed: layout.checksum_seed(),
        };
        let interval_seconds = interval_seconds(superblock);
        let sequence = place.claim(interval_seconds, pause_on(device))?;
        let shared = Arc::new(MmpShared::new(place));
        let beat = {
            let shared = Arc::clone(&shared);
            move || shared.beat(interval_seconds, sequence)
        };
        let thread = thread::spawn("drystone-mmp", beat).map_err(|error| {
            // Or the next mount would wait for this one. The error to tell is that of the thread.
            let _ = shared.place.write(MmpState::Clean, interval_seconds);
            Error::Mount(format!("no thread for multi-mount protection: {error}"))
        })?;
        let thread = Mutex::new(&lock_classes::MMP_THREAD, Some(thread));
        Ok(Some(MultiMountProtection { shared, thread }))
    }

    /// Fails if another mount has written to the block. For what changes the image before its journal is open.
    pub fn check_held(&self) -> Result<()> {
        self.shared.check_held()
    }

    /// As if another mount had written to the block.
    #[cfg(test)]
    pub fn lose(&self) {
        self.shared.lose();
    }

    /// Makes the journal stop when another mount writes to the block.
    pub fn guard(&self, journal: &Arc<Journal>) {
        let _ = self.shared.journal.set(Arc::downgrade(journal));
        if self.shared.is_lost.load(Ordering::Acquire) {
            journal.abort(LOST);
        }
    }

    /// Ends the writer; `clean` frees the image for others at once.
    pub fn stop(&self, clean: bool) -> Result<()> {
        self.end();
        if clean { self.shared.give_back() } else { Ok(()) }
    }

    /// Ends the thread.
    fn end(&self) {
        self.shared.end_beat();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of multi-mount protection panicked");
        }
    }
}

impl Drop for MultiMountProtection {
    fn drop(&mut self) {
        // No I/O here beyond what the thread has begun.
        self.end();
    }
}

impl<D: BlockDevice> MmpShared<D> {
    fn new(place: MmpBlock<D>) -> Self {
        Self {
            place,
            is_stopped: Mutex::new(&lock_classes::MMP, false),
            stop: Condvar::new(),
            is_lost: AtomicBool::new(false),
            journal: OnceLock::new(),
        }
    }

    /// Ends [`beat`](Self::beat).
    fn end_beat(&self) {
        *self.is_stopped.lock() = true;
        self.stop.notify_all();
    }

    /// Fails if another mount has written to the block.
    fn check_held(&self) -> Result<()> {
        match self.is_lost.load(Ordering::Acquire) {
            true => Err(Error::Mount(LOST.into())),
            false => Ok(()),
        }
    }

    /// Frees the image for others at once, unless it is lost.
    fn give_back(&self) -> Result<()> {
        match self.check_held() {
            Ok(()) => self.place.write(MmpState::Clean, 0),
            Err(_) => Ok(()),
        }
    }

    fn beat(&self, interval_seconds: u16, mut sequence: u32) {
        let interval = Duration::from_secs(u64::from(interval_seconds));
        let mut announced_seconds = interval_seconds;
        let mut is_stopped = self.is_stopped.lock();
        // The first number follows at once: who looks now and again after its wait must not find the claim's.
        while !*is_stopped {
            let start = clock::now();
            match self.place.renew(announced_seconds, &mut sequence) {
                Ok(true) => {}
                Ok(false) => return self.lose(),
                Err(error) => tracing::error!(%error, "multi-mount protection can't be written"),
            }
            // A slow device delays the next number, and others have to wait for that one.
            let taken = start.elapsed();
            announced_seconds = interval_seconds.max(seconds_to_announce(taken));
            self.stop.wait_timeout(&mut is_stopped, interval.saturating_sub(taken));
        }
    }

    /// The image is mounted elsewhere: nothing may be written any more.
    fn lose(&self) {
        tracing::error!("{LOST}");
        self.is_lost.store(true, Ordering::Release);
        if let Some(journal) = self.journal.get().and_then(Weak::upgrade) {
            journal.abort(LOST);
        }
    }
}

/// The interval to announce if a write of the block takes so long: from one number to the next, the device
/// may take this time twice.
fn seconds_to_announce(write: Duration) -> u16 {
    let seconds = (2 * write).as_secs() + 1;
    u16::try_from(seconds).unwrap_or(u16::MAX).min(CHECK_INTERVAL_SECONDS_MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::ImageFile;
    use crate::{Ext4, MountOptions};
    use drystone_blockdev::{DeviceOperation, MemoryDevice, Stepped};
    use drystone_vfs::{FileSystem, NewNode, RequestContext};

    /// An image with the protection, in memory, and its block.
    pub(super) fn image() -> Option<(Arc<MemoryDevice>, MmpBlock)> {
        let file = ImageFile::new("-t ext4 -O mmp,^orphan_file", 16 << 20)?;
        let bytes = std::fs::read(&file.path).expect("an image");
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        let mut bytes = [0; 1024];
        device.read_at(1024, &mut bytes).expect("a superblock");
        let superblock = Superblock::check(&bytes).expect("a sound superblock");
        let layout = superblock.layout();
        let place = MmpBlock {
            device: device.clone() as Arc<dyn BlockDevice>,
            block: superblock.mmp_block().expect("a block for it"),
            block_size: layout.block_size(),
            seed: layout.checksum_seed(),
        };
        Some((device, place))
    }

    fn open(device: &Arc<MemoryDevice>) -> Result<Ext4> {
        Ext4::open(device.clone() as Arc<dyn BlockDevice>, MountOptions::default())
    }

    #[test]
    fn of_two_that_find_the_image_unclaimed_one_gets_it() {
        let Some((_, place)) = image() else { return };
        let mut waits = Vec::new();
        let second = place.claim(5, |wait| {
            waits.push(wait);
            place.write(MmpState::Mounted(7), 5).unwrap();
        });
        assert!(matches!(second, Err(Error::Mount(_))));
        assert_eq!(waits, [Duration::from_secs(11)]);
        place.write(MmpState::Clean, 0).unwrap();
        place.claim(5, |_| ()).unwrap();
    }

    /// What repairs an image without a mount asks this first.
    #[test]
    fn an_image_that_is_in_use_is_refused() {
        let Some((device, place)) = image() else { return };
        check_multi_mount(&*device).unwrap();
        place.write(MmpState::Checking, 5).unwrap();
        assert!(matches!(check_multi_mount(&*device), Err(Error::Mount(_))));
        // A mount that lives, and one that doesn't.
        place.write(MmpState::Mounted(7), 5).unwrap();
        let alive = place.wait_for_others(5, |wait| {
            assert_eq!(wait, Duration::from_secs(11));
            place.write(MmpState::Mounted(8), 5).unwrap();
        });
        assert!(matches!(alive, Err(Error::Mount(_))));
        check_multi_mount(&*device).unwrap();
        device.write_at(place.offset(), &[0; 1024]).unwrap();
        check_multi_mount(&*device).unwrap();
    }

    /// Who has read the number of the claim waits for less than that and an interval.
    #[test]
    fn a_mount_shows_itself_at_once() {
        let Some((_, place)) = image() else { return };
        let sequence = place.claim(60, |_| ()).unwrap();
        let shared = Arc::new(MmpShared::new(place));
        let beat = Arc::clone(&shared);
        let beat = thread::spawn("test", move || beat.beat(60, sequence)).unwrap();
        let start = clock::now();
        while shared.place.read().unwrap().state == MmpState::Mounted(sequence) {
            assert!(start.elapsed() < Duration::from_secs(30), "the number stays");
            thread::sleep(Duration::from_millis(1));
        }
        shared.end_beat();
        beat.join().unwrap();
    }

    /// Others must not take the mount for a dead one.
    #[test]
    fn a_slow_device_announces_a_longer_interval() {
        let Some((device, mut place)) = image() else { return };
        let slow = Arc::new(Stepped::new(device));
        place.device = Arc::clone(&slow) as Arc<dyn BlockDevice>;
        let sequence = place.claim(5, |_| ()).unwrap();
        slow.hold(|operation, _, _| {
            if operation == DeviceOperation::Write {
                thread::sleep(Duration::from_millis(2600));
            }
            None
        });
        let shared = Arc::new(MmpShared::new(place));
        let beat = Arc::clone(&shared);
        let beat = thread::spawn("test", move || beat.beat(1, sequence)).unwrap();
        let start = clock::now();
        while shared.place.read().unwrap().check_interval_seconds < 6 {
            assert!(start.elapsed() < Duration::from_secs(60), "the interval stays");
            thread::sleep(Duration::from_millis(10));
        }
        slow.release_all();
        shared.end_beat();
        beat.join().unwrap();
        assert_eq!(seconds_to_announce(Duration::from_secs(1000)), CHECK_INTERVAL_SECONDS_MAX);
    }

    #[test]
    fn a_beat_notices_another_master() {
        let Some((_, place)) = image() else { return };
        let mut sequence = place.claim(5, |_| ()).unwrap();
        let claimed = sequence;
        assert!(place.renew(5, &mut sequence).unwrap() && sequence != claimed);
        // A write that failed, but reached the device.
        let mut behind = claimed;
        assert!(place.renew(5, &mut behind).unwrap());
        place.write(MmpState::Mounted(sequence % 1000 + 2000), 5).unwrap();
        assert!(!place.renew(5, &mut sequence).unwrap());
    }

    #[test]
    fn the_journal_stops_for_another_master() {
        let Some((device, _)) = image() else { return };
        let fs = open(&device).unwrap();
        fs.mmp.as_ref().unwrap().shared.lose();
        let me = RequestContext::superuser();
        assert!(fs.create(&me, fs.root(), b"late", NewNode::Regular, 0o644).is_err());
        assert!(fs.close().is_err());
    }

    #[test]
    fn a_mount_that_fails_or_is_dropped_ends_its_thread() {
        let Some((device, place)) = image() else { return };
        let fs = open(&device).unwrap();
        let shared = Arc::downgrade(&fs.mmp.as_ref().unwrap().shared);
        drop(fs);
        assert!(shared.upgrade().is_none());
        assert!(matches!(place.read().unwrap().state, MmpState::Mounted(_)));
        open(&device).unwrap().close().unwrap();
        assert_eq!(place.read().unwrap().state, MmpState::Clean);
        // The open refuses a policy that the image can't follow only after it claimed the block.
        let device = device.clone() as Arc<dyn BlockDevice>;
        let policy = crate::Policy {
            orphans: Some(crate::policy::OrphanPolicy::FileLocked),
            ..crate::Policy::default()
        };
        let refused = Ext4::open(device, MountOptions { policy, ..MountOptions::default() });
        assert!(matches!(refused, Err(Error::Mount(_))));
        assert_eq!(place.read().unwrap().state, MmpState::Clean);
    }
}
