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

#[cfg(not(loom))]
mod claimed;

#[cfg(not(loom))]
pub use claimed::while_claimed;

use crate::error::{Error, Result};
use crate::lock_classes;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::mmp::{
    CHECK_INTERVAL_SECONDS_MAX, CHECK_INTERVAL_SECONDS_MIN, Mmp, MmpState, SEQUENCE_MAX,
};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_ext4_format::{ChecksumSeed, Corrupt, PhysicalBlock};
use drystone_jbd2::Journal;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, Condvar, Mutex, OnceLock, Weak, clock, thread};
use std::time::Duration;

/// Why the journal stops when the image is mounted elsewhere.
const LOST: &str = "another mount has written to the block of multi-mount protection";

/// The block and how to write it.
#[derive(Debug)]
struct MmpBlock<D = Arc<dyn BlockDevice>> {
    device: D,
    block: PhysicalBlock,
    block_size: usize,
    seed: Option<ChecksumSeed>,
}

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

/// The block of an image, and the interval in which it is written. Nothing if the image has no such protection, or
/// its superblock is damaged.
fn find(device: &dyn BlockDevice) -> Result<Option<(MmpBlock<&dyn BlockDevice>, u16)>> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if device.size_bytes() < SUPERBLOCK_OFFSET_BYTES + SUPERBLOCK_BYTES as u64 {
        return Ok(None);
    }
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    let Ok(superblock) = Superblock::check_unsealed(&bytes) else { return Ok(None) };
    let layout = superblock.layout();
    let has_mmp = superblock.features().incompat.contains(Incompat::MMP);
    let block_size = layout.block_size();
    let blocks = device.size_bytes() / block_size as u64;
    let is_on_device = |&block: &PhysicalBlock| block.get() < blocks;
    let block = superblock.mmp_block().filter(|_| has_mmp).filter(is_on_device);
    let seed = layout.checksum_seed();
    let place = block.map(|block| MmpBlock { device, block, block_size, seed });
    Ok(place.map(|place| (place, interval_seconds(&superblock))))
}

/// How to wait for other machines. None can reach a device of this process alone.
fn pause_on(device: &dyn BlockDevice) -> impl FnMut(Duration) + use<> {
    let is_private = device.is_private();
    move |wait| {
        if !is_private {
            thread::sleep(wait);
        }
    }
}

fn interval_seconds(superblock: &Superblock) -> u16 {
    let seconds = superblock.mmp_interval_seconds();
    seconds.clamp(CHECK_INTERVAL_SECONDS_MIN, CHECK_INTERVAL_SECONDS_MAX)
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

impl<D: BlockDevice> MmpBlock<D> {
    /// Claims the block; `pause` waits. Returns the number that was written.
    fn claim(&self, interval_seconds: u16, mut pause: impl FnMut(Duration)) -> Result<u32> {
        let wait = self.wait_for_others(interval_seconds, &mut pause)?;
        let (seconds, nanoseconds) = clock::wall();
        let sequence = (nanoseconds ^ seconds as u32) % SEQUENCE_MAX + 1;
        self.write(MmpState::Mounted(sequence), interval_seconds)?;
        // Two mounts may have found the block unclaimed: the one that wrote last has it.
        pause(wait);
        if self.read()?.state != MmpState::Mounted(sequence) {
            return Err(Error::Mount("the image was mounted elsewhere meanwhile".into()));
        }
        Ok(sequence)
    }

    /// Checks that nothing uses the image; `pause` waits if it was left claimed. Returns for how long another
    /// holder may not show itself.
    fn wait_for_others(
        &self,
        interval_seconds: u16,
        mut pause: impl FnMut(Duration),
    ) -> Result<Duration> {
        let found = self.read()?;
        let interval_max = found.check_interval_seconds.min(CHECK_INTERVAL_SECONDS_MAX);
        let expected_seconds = u64::from(interval_seconds.max(interval_max));
        let wait = Duration::from_secs((2 * expected_seconds + 1).min(expected_seconds + 60));
        match found.state {
            MmpState::Clean => {}
            MmpState::Checking => {
                return Err(Error::Mount(
                    "the image is being checked (multi-mount protection); if no checker runs, \
                     clear this with tune2fs -f -E clear_mmp"
                        .into(),
                ));
            }
            state @ MmpState::Mounted(_) => {
                pause(wait);
                if self.read()?.state != state {
                    return Err(Error::Mount(format!(
                        "the image is in use on {} (multi-mount protection)",
                        String::from_utf8_lossy(&found.node_name)
                    )));
                }
            }
        }
        Ok(wait)
    }

    /// Writes the next number if the block still has the last. False if another mount has written there.
    fn renew(&self, interval_seconds: u16, sequence: &mut u32) -> Result<bool> {
        let next = *sequence % SEQUENCE_MAX + 1;
        let found = self.read()?.state;
        // A write that failed may have got through.
        if ![*sequence, next].map(MmpState::Mounted).contains(&found) {
            return Ok(false);
        }
        self.write(MmpState::Mounted(next), interval_seconds)?;
        *sequence = next;
        Ok(true)
    }

    fn read(&self) -> Result<Mmp> {
        let mut bytes = vec![0; self.block_size];
        // What another machine writes changes no cache of this one.
        self.device.refresh(self.offset(), self.block_size as u64);
        self.device.read_at(self.offset(), &mut bytes)?;
        Ok(Mmp::check(&bytes, self.seed, self.block)?)
    }

    fn write(&self, state: MmpState, interval_seconds: u16) -> Result<()> {
        let mut bytes = vec![0; self.block_size];
        let mmp = Mmp {
            state,
            time_seconds: u64::try_from(clock::wall().0).unwrap_or(0),
            node_name: node_name(),
            device_name: b"drystone".to_vec(),
            check_interval_seconds: interval_seconds.max(CHECK_INTERVAL_SECONDS_MIN),
        };
        mmp.encode(&mut bytes, self.seed);
        self.device.write_durable_at(self.offset(), &bytes)?;
        Ok(())
    }

    fn offset(&self) -> u64 {
        self.block.get() * self.block_size as u64
    }
}

/// The interval to announce if a write of the block takes so long: from one number to the next, the device
/// may take this time twice.
fn seconds_to_announce(write: Duration) -> u16 {
    let seconds = (2 * write).as_secs() + 1;
    u16::try_from(seconds).unwrap_or(u16::MAX).min(CHECK_INTERVAL_SECONDS_MAX)
}

/// This host's name, for the error that another host shows.
fn node_name() -> Vec<u8> {
    std::fs::read("/proc/sys/kernel/hostname")
        .map(|name| name.trim_ascii_end().to_vec())
        .unwrap_or_else(|_| b"localhost".to_vec())
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
