//! Multi-mount protection: a block that says who has the image open, written every few seconds.
//!
//! # Locking
//! One thread of its own; it shares only the flag that stops it.
//!
//! # Reference
//! "Multiple Mount Protection" in the kernel's ext4 documentation.

use crate::error::{Error, Result};
use crate::lock_classes;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::mmp::{
    CHECK_INTERVAL_SECONDS_MAX, CHECK_INTERVAL_SECONDS_MIN, Mmp, MmpState, SEQUENCE_MAX,
};
use drystone_ext4_format::superblock::Superblock;
use drystone_ext4_format::{ChecksumSeed, Corrupt, PhysicalBlock};
use drystone_sync::{Arc, Condvar, Mutex, clock, thread};
use std::time::Duration;

/// The block and how to write it.
#[derive(Debug)]
struct Place {
    device: Arc<dyn BlockDevice>,
    block: PhysicalBlock,
    block_size: usize,
    seed: Option<ChecksumSeed>,
}

/// The running writer of the block.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    place: Arc<Place>,
    signal: Arc<(Mutex<bool>, Condvar)>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Heartbeat {
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
            .ok_or(Corrupt::Missing { feature: "mmp", missing: "block for it" })?;
        let place = Place {
            device: Arc::clone(device),
            block,
            block_size: layout.block_size(),
            seed: layout.checksum_seed(),
        };
        let interval_seconds = superblock
            .mmp_interval_seconds()
            .clamp(CHECK_INTERVAL_SECONDS_MIN, CHECK_INTERVAL_SECONDS_MAX);
        let sequence = place.claim(interval_seconds)?;
        let place = Arc::new(place);
        let signal = Arc::new((Mutex::new(&lock_classes::HEARTBEAT, false), Condvar::new()));
        let beat = {
            let (place, signal) = (Arc::clone(&place), Arc::clone(&signal));
            move || place.beat(&signal, interval_seconds, sequence)
        };
        let thread = thread::spawn("drystone-mmp", beat).map_err(|error| {
            Error::Mount(format!("no thread for multi-mount protection: {error}"))
        })?;
        let thread = Mutex::new(&lock_classes::HEARTBEAT_THREAD, Some(thread));
        Ok(Some(Heartbeat { place, signal, thread }))
    }

    /// Ends the writer; `clean` frees the image for others at once.
    pub fn stop(&self, clean: bool) -> Result<()> {
        *self.signal.0.lock() = true;
        self.signal.1.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of multi-mount protection panicked");
        }
        if clean {
            self.place.write(MmpState::Clean, 0)?;
        }
        Ok(())
    }
}

impl Place {
    fn claim(&self, interval_seconds: u16) -> Result<u32> {
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
                thread::sleep(wait);
                if self.read()?.state != state {
                    return Err(Error::Mount(format!(
                        "the image is in use on {} (multi-mount protection)",
                        String::from_utf8_lossy(&found.node_name)
                    )));
                }
            }
        }
        let (seconds, nanoseconds) = clock::wall();
        let sequence = (nanoseconds ^ seconds as u32) % SEQUENCE_MAX + 1;
        self.write(MmpState::Mounted(sequence), interval_seconds)?;
        if !matches!(found.state, MmpState::Clean) {
            thread::sleep(wait);
            if self.read()?.state != MmpState::Mounted(sequence) {
                return Err(Error::Mount("the image was mounted elsewhere meanwhile".into()));
            }
        }
        Ok(sequence)
    }

    fn beat(&self, signal: &(Mutex<bool>, Condvar), interval_seconds: u16, mut sequence: u32) {
        let interval = Duration::from_secs(u64::from(interval_seconds));
        let mut stopped = signal.0.lock();
        while !*stopped {
            signal.1.wait_timeout(&mut stopped, interval);
            if *stopped {
                return;
            }
            sequence = sequence % SEQUENCE_MAX + 1;
            if let Err(error) = self.write(MmpState::Mounted(sequence), interval_seconds) {
                tracing::error!(%error, "multi-mount protection can't be written");
            }
        }
    }

    fn read(&self) -> Result<Mmp> {
        let mut bytes = vec![0; self.block_size];
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

/// This machine's name, for the message that another one shows.
fn node_name() -> Vec<u8> {
    std::fs::read("/proc/sys/kernel/hostname")
        .map(|name| name.trim_ascii_end().to_vec())
        .unwrap_or_else(|_| b"localhost".to_vec())
}
