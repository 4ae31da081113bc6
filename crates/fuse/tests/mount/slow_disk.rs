//! A disk on which syncs hang: programs that don't sync go on.

use crate::support::{make_image, with_rings};
use drystone_blockdev::{BlockDevice, DeviceResult, FileDevice, OpenMode};
use drystone_ext4::{Ext4, MountOptions};
use drystone_fuse::attach::{self, Unmount};
use drystone_fuse::{Mount, MountError, Operations, ServingOptions, Transport};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, thread};
use drystone_testkit::skip::{self, Prerequisite, skip};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Longer than anything without a sync takes, in ticks.
const PATIENCE_TICKS: usize = 20_000;
const TICK: Duration = Duration::from_millis(1);

/// More than there are threads per core.
const SYNCS: usize = 5;

/// A device whose flushes wait while its gate is closed.
#[derive(Debug)]
struct Hanging {
    disk: FileDevice,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    is_closed: AtomicBool,
    somebody_waits: AtomicBool,
    /// The watchdog had to open it.
    was_forced: AtomicBool,
}

impl Gate {
    fn pass(&self) {
        while self.is_closed.load(Ordering::SeqCst) {
            self.somebody_waits.store(true, Ordering::SeqCst);
            thread::sleep(TICK);
        }
    }

    /// Opens the gate if nothing else does in time.
    fn look_after(&self) {
        for _ in 0..PATIENCE_TICKS {
            if !self.is_closed.load(Ordering::SeqCst) {
                return;
            }
            thread::sleep(TICK);
        }
        self.was_forced.store(true, Ordering::SeqCst);
        self.is_closed.store(false, Ordering::SeqCst);
    }
}

impl BlockDevice for Hanging {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.disk.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.disk.write_at(offset, data)
    }

    fn flush(&self) -> DeviceResult {
        self.gate.pass();
        self.disk.flush()
    }
}

fn sync(path: &Path) {
    let mut file = File::create(path).unwrap();
    file.write_all(b"content").unwrap();
    file.sync_all().unwrap();
}

#[test]
fn only_who_syncs_waits_for_a_sync() {
    // Only root may write to the root of the image.
    if !skip::is_root("syncs of a slow disk") {
        return;
    }
    for transport in [Transport::Device, Transport::Rings] {
        let folder = tempfile::tempdir().unwrap();
        let (path, directory) = (folder.path().join("disk.img"), folder.path().join("mnt"));
        fs::create_dir(&directory).unwrap();
        make_image(&path);
        let disk = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
        let gate = Arc::new(Gate::default());
        let device = Arc::new(Hanging { disk, gate: Arc::clone(&gate) });
        let engine = Arc::new(Ext4::open(device, MountOptions::default()).unwrap());
        let operations =
            Arc::new(Operations::new(Arc::clone(&engine) as _, ServingOptions::default()));
        let begin = || Mount::new(operations, &directory, transport);
        let begun = if transport == Transport::Rings { with_rings(begin) } else { begin() };
        let mount = match begun {
            Ok(mount) => mount,
            Err(MountError::Session(error)) if transport == Transport::Rings => {
                skip(Prerequisite::Rings, error);
                continue;
            }
            Err(MountError::Attach(error)) => {
                skip(Prerequisite::Fuse, error);
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        thread::scope(|scope| {
            let server = scope.spawn(|| mount.run().unwrap());
            fs::create_dir(directory.join("many")).unwrap();
            gate.is_closed.store(true, Ordering::SeqCst);
            scope.spawn(|| gate.look_after());
            let syncs: Vec<_> = (0..SYNCS)
                .map(|number| {
                    let path = directory.join(format!("synced {number}"));
                    scope.spawn(move || sync(&path))
                })
                .collect();
            while !gate.somebody_waits.load(Ordering::SeqCst) {
                thread::sleep(TICK);
            }
            // On every core, and with further syncs while others wait.
            for number in 0..200 {
                let path = directory.join(format!("many/{number}"));
                assert!(fs::metadata(&path).is_err());
                fs::write(&path, "x").unwrap();
                thread::sleep(Duration::from_micros(100));
            }
            gate.is_closed.store(false, Ordering::SeqCst);
            syncs.into_iter().for_each(|sync| sync.join().unwrap());
            attach::unmount(&directory, Unmount::Lazily).unwrap();
            server.join().unwrap();
        });
        assert!(!gate.was_forced.load(Ordering::SeqCst), "{transport:?}: everybody waited");
        engine.close().unwrap();
    }
}
