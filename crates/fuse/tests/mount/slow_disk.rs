//! A disk on which syncs or reads hang: programs that need neither go on.

use crate::support::{IMAGE_BYTES, make_image, with_rings};
use drystone::Image;
use drystone_blockdev::{BlockDevice, DeviceResult, FileDevice, OpenMode};
use drystone_fuse::attach::{self, Unmount};
use drystone_fuse::{Mount, MountError, Operations, ServingOptions, Transport};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, thread};
use drystone_testkit::skip::{self, Prerequisite, skip};
use rustix::fs::{Advice, IFlags};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Longer than anything without a sync takes, in ticks.
const PATIENCE_TICKS: usize = 20_000;
const TICK: Duration = Duration::from_millis(1);

/// More than there are threads per core.
const SYNCS: usize = 5;

/// As many requests as a core's rings hold, but for one.
const MANY_SYNCS: usize = 61;

/// Reads that wait at once: more than there are threads without rings.
const READS: u64 = 6;

/// More than either ring of a core has entries.
const LOOKUPS: usize = 40;

/// A device whose flushes or reads wait while its gate is closed for them.
#[derive(Debug)]
struct Hanging {
    disk: FileDevice,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    is_closed: AtomicBool,
    is_closed_for_reads: AtomicBool,
    somebody_waits: AtomicBool,
    /// It was opened again.
    is_done: AtomicBool,
    /// The watchdog had to open it.
    was_forced: AtomicBool,
}

impl Gate {
    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    fn close_for_reads(&self) {
        self.is_closed_for_reads.store(true, Ordering::SeqCst);
    }

    fn let_pass(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
        self.is_closed_for_reads.store(false, Ordering::SeqCst);
    }

    fn open(&self) {
        self.let_pass();
        self.is_done.store(true, Ordering::SeqCst);
    }

    fn pass(&self, is_closed: &AtomicBool) {
        while is_closed.load(Ordering::SeqCst) {
            self.somebody_waits.store(true, Ordering::SeqCst);
            thread::sleep(TICK);
        }
    }

    fn wait_for_somebody(&self) {
        while !self.somebody_waits.load(Ordering::SeqCst) {
            assert!(!self.was_forced.load(Ordering::SeqCst), "nobody uses the disk");
            thread::sleep(TICK);
        }
    }

    /// Opens the gate if nothing else does in time.
    fn look_after(&self) {
        for _ in 0..PATIENCE_TICKS {
            if self.is_done.load(Ordering::SeqCst) {
                return;
            }
            thread::sleep(TICK);
        }
        self.was_forced.store(true, Ordering::SeqCst);
        self.let_pass();
    }
}

impl BlockDevice for Hanging {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.gate.pass(&self.gate.is_closed_for_reads);
        self.disk.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.disk.write_at(offset, data)
    }

    fn set_size(&self, bytes: u64) -> DeviceResult {
        self.disk.set_size(bytes)
    }

    fn flush(&self) -> DeviceResult {
        self.gate.pass(&self.gate.is_closed);
        self.disk.flush()
    }
}

fn sync(path: &Path) {
    let mut file = File::create(path).unwrap();
    file.write_all(b"content").unwrap();
    file.sync_all().unwrap();
}

/// Lets syncs end, and unmounts; also when a test fails, whose threads wait for that.
struct End<'m>(&'m Path, &'m Gate);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.1.open();
        attach::unmount(self.0, Unmount::Lazily).unwrap();
    }
}

/// Serves an image on such a disk while `body` uses it.
fn on_slow_disk(transport: Transport, body: impl FnOnce(&Path, &Gate)) {
    // Only root may write to the root of the image.
    if !skip::is_root("syncs of a slow disk") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, directory) = (folder.path().join("disk.img"), folder.path().join("mnt"));
    fs::create_dir(&directory).unwrap();
    make_image(&path);
    let disk = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
    let gate = Arc::new(Gate::default());
    let device = Arc::new(Hanging { disk, gate: Arc::clone(&gate) });
    let image = Image::open_device(device).unwrap();
    let operations = Operations::new(image.shared_file_system(), ServingOptions::default());
    let operations = Arc::new(operations);
    let begin = || Mount::new(operations, &directory, transport);
    let begun = if transport == Transport::Rings { with_rings(begin) } else { begin() };
    let mount = match begun {
        Ok(mount) => mount,
        Err(MountError::Session(error)) if transport == Transport::Rings => {
            return skip(Prerequisite::Rings, error);
        }
        Err(MountError::Attach(error)) => return skip(Prerequisite::Fuse, error),
        Err(error) => panic!("{error}"),
    };
    thread::scope(|scope| {
        let server = scope.spawn(|| mount.run().unwrap());
        scope.spawn(|| gate.look_after());
        let end = End(&directory, &gate);
        body(&directory, &gate);
        drop(end);
        server.join().unwrap();
    });
    assert!(!gate.was_forced.load(Ordering::SeqCst), "{transport:?}: everybody waited");
    image.close().unwrap();
}

#[test]
fn only_who_syncs_waits_for_a_sync() {
    for transport in [Transport::Device, Transport::Rings] {
        on_slow_disk(transport, |directory, gate| {
            thread::scope(|scope| {
                fs::create_dir(directory.join("many")).unwrap();
                gate.close();
                let syncs: Vec<_> = (0..SYNCS)
                    .map(|number| {
                        let path = directory.join(format!("synced {number}"));
                        scope.spawn(move || sync(&path))
                    })
                    .collect();
                gate.wait_for_somebody();
                // On every core, and with further syncs while others wait.
                for number in 0..200 {
                    let path = directory.join(format!("many/{number}"));
                    assert!(fs::metadata(&path).is_err());
                    fs::write(&path, "x").unwrap();
                    thread::sleep(Duration::from_micros(100));
                }
                gate.open();
                syncs.into_iter().for_each(|sync| sync.join().unwrap());
            });
        });
    }
}

/// Keeps the calling thread, and so its requests, on the first core.
fn stay_on_first_core() {
    let mut first = CpuSet::new();
    first.set(0);
    sched_setaffinity(None, &first).unwrap();
}

/// A file that is made immutable has to be written first. Over rings that takes a free entry, which the
/// request waits for if other requests have them all.
#[test]
fn a_file_becomes_immutable_while_many_syncs_wait() {
    for transport in [Transport::Device, Transport::Rings] {
        on_slow_disk(transport, |directory, gate| {
            let path = directory.join("guarded");
            let guarded = File::create(&path).unwrap();
            let names = || (0..MANY_SYNCS).map(|number| directory.join(number.to_string()));
            let files: Vec<_> = names().map(|path| File::create(path).unwrap()).collect();
            gate.close();
            thread::scope(|scope| {
                for file in &files {
                    scope.spawn(move || {
                        stay_on_first_core();
                        (&*file).write_all(b"content").unwrap();
                        file.sync_all().unwrap();
                    });
                    thread::sleep(10 * TICK);
                }
                let guarding = scope.spawn(|| {
                    stay_on_first_core();
                    (&guarded).write_all(b"content").unwrap();
                    rustix::fs::ioctl_setflags(&guarded, IFlags::IMMUTABLE)
                });
                thread::sleep(100 * TICK);
                gate.open();
                assert_eq!(guarding.join().unwrap(), Ok(()), "{transport:?}");
            });
            rustix::fs::ioctl_setflags(&guarded, IFlags::empty()).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"content");
        });
    }
}

/// Looks for names that don't exist, whose directory is in memory.
fn look_up_absent_names(directory: &Path) {
    for number in 0..LOOKUPS {
        assert!(fs::metadata(directory.join(format!("absent {number}"))).is_err());
    }
}

/// Makes a file with this many bytes, all of them in the image.
fn make_file(path: &Path, length: usize) -> File {
    fs::write(path, vec![1; length]).unwrap();
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    file
}

#[test]
fn names_are_found_while_reads_have_all_threads() {
    on_slow_disk(Transport::Device, |directory, gate| {
        let file = make_file(&directory.join("read"), (READS as usize) << 20);
        assert!(fs::metadata(directory.join("absent")).is_err());
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        gate.close_for_reads();
        thread::scope(|scope| {
            let file = &file;
            let read = |number: u64| move || file.read_exact_at(&mut [0; 1], number << 20).unwrap();
            let reads: Vec<_> = (0..READS).map(|number| scope.spawn(read(number))).collect();
            gate.wait_for_somebody();
            thread::sleep(100 * TICK);
            look_up_absent_names(directory);
            gate.open();
            reads.into_iter().for_each(|read| read.join().unwrap());
        });
    });
}

/// The kernel gives most requests of a core to one of its threads.
#[test]
fn names_are_found_while_something_long_is_done() {
    for transport in [Transport::Device, Transport::Rings] {
        on_slow_disk(transport, |directory, gate| {
            let source = make_file(&directory.join("source"), 4 << 20);
            let target = File::create(directory.join("target")).unwrap();
            assert!(fs::metadata(directory.join("absent")).is_err());
            gate.close_for_reads();
            thread::scope(|scope| {
                let copies = scope.spawn(|| {
                    stay_on_first_core();
                    let copied = rustix::fs::copy_file_range(&source, None, &target, None, 4 << 20);
                    assert_eq!(copied, Ok(4 << 20));
                });
                gate.wait_for_somebody();
                let looks = scope.spawn(|| {
                    stay_on_first_core();
                    look_up_absent_names(directory);
                });
                looks.join().unwrap();
                gate.open();
                copies.join().unwrap();
            });
        });
        on_slow_disk(transport, |directory, gate| {
            assert!(fs::metadata(directory.join("absent")).is_err());
            let root = File::open(directory).unwrap();
            gate.close();
            thread::scope(|scope| {
                let grows = scope.spawn(|| {
                    stay_on_first_core();
                    drystone_fuse::grow(&root, 2 * IMAGE_BYTES / 4096)
                });
                gate.wait_for_somebody();
                let looks = scope.spawn(|| {
                    stay_on_first_core();
                    look_up_absent_names(directory);
                });
                looks.join().unwrap();
                gate.open();
                assert_eq!(grows.join().unwrap(), Ok(()));
            });
        });
    }
}
