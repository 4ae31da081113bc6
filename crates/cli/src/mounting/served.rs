//! The status that a server gives its clients, and the changes that they ask for.
//!
//! # Locking
//! One lock serialises changes. Threads that answer the kernel don't take it, nor do requests for the
//! status, which must not wait for a change that writes much. A second lock protects the options; a
//! change takes it too, for a moment.

use crate::mounting::options::MountOptions;
use crate::mounts::registry::Answers;
use crate::mounts::status::{CommitStatus, ShapeStatus, SpaceStatus, Status};
use anyhow::{Context, anyhow};
use drystone::Image;
use drystone::vfs::{DeviceNumber, FileSystemStatistics};
use drystone_fuse::attach::{self, AttachError};
use drystone_fuse::{CountedOperation, Counters, Mount, Operations, remount};
use drystone_sync::clock::{self, Instant};
use drystone_sync::{Arc, LockClass, Mutex, Weak};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Taken before all locks that a change of the image takes.
static CHANGE: LockClass = LockClass::new("change of a mount", 9);
/// Held for a look.
static OPTIONS: LockClass = LockClass::new("options of a mount", 10);

/// A mount that is served.
pub struct Served {
    image_path: PathBuf,
    directory: PathBuf,
    device: Option<DeviceNumber>,
    transport: &'static str,
    threads: usize,
    began: Instant,
    counters: Arc<Counters>,
    /// The image is closed when nobody else has it.
    image: Weak<Image>,
    /// Held while the mount is changed.
    change: Mutex<()>,
    options: Mutex<MountOptions>,
}

impl Served {
    /// The image at a path, mounted on a directory with options.
    pub fn new(
        (image_path, directory, options): (&Path, &Path, &MountOptions),
        mount: &Mount,
        image: &Arc<Image>,
        operations: &Arc<Operations>,
    ) -> Served {
        Served {
            image_path: image_path.to_path_buf(),
            directory: directory.to_path_buf(),
            device: mount.device_number(),
            transport: mount.transport().name(),
            threads: mount.threads(),
            began: clock::now(),
            counters: Arc::clone(operations.counters()),
            image: Arc::downgrade(image),
            change: Mutex::new(&CHANGE, ()),
            options: Mutex::new(&OPTIONS, options.clone()),
        }
    }

    /// Has the kernel change what it knows of the mount.
    fn tell_kernel(&self, options: &MountOptions) -> anyhow::Result<()> {
        if self.device.is_some() && attach::device_on(&self.directory) != self.device {
            return Err(anyhow!("it isn't seen there any more"));
        }
        remount(&self.directory, &options.fuse).map_err(|error| match error {
            AttachError::Mount { source: Errno::BUSY, .. } => {
                anyhow!("in use: a file is open for writing, or deleted and still open")
            }
            AttachError::Mount { source: Errno::PERM, .. } => {
                anyhow!("only a mount of root can be changed")
            }
            error => error.into(),
        })
    }
}

/// Bytes of memory that this process has.
fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn space_status(found: &FileSystemStatistics) -> SpaceStatus {
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(found.block_size));
    SpaceStatus {
        bytes: bytes(found.blocks),
        free_bytes: bytes(found.blocks_free),
        available_bytes: bytes(found.blocks_available),
    }
}

impl Answers for Served {
    fn status(&self) -> Status {
        let image = self.image.upgrade();
        let memory = image.as_ref().and_then(|image| image.memory_use());
        let space = image.as_ref().and_then(|image| image.file_system().statistics().ok());
        let journal = image.as_ref().and_then(|image| image.journal_statistics());
        let requests =
            CountedOperation::ALL.iter().map(|kind| (kind, self.counters.requests(*kind)));
        let options = self.options.lock().clone();
        let stopped = image.as_ref().and_then(|image| image.stopped_by());
        let takes_changes = !options.fuse.read_only && stopped.is_none();
        Status {
            process: std::process::id(),
            image: self.image_path.clone(),
            directory: self.directory.clone(),
            device: self.device,
            mode: if takes_changes { "rw" } else { "ro" }.to_owned(),
            stopped,
            policy: options.open.policy.to_string(),
            seconds: self.began.elapsed().as_secs(),
            transport: self.transport.to_owned(),
            threads: self.threads,
            buffer_bytes: memory.map_or(0, |memory| memory.buffer_bytes),
            inodes: memory.map_or(0, |memory| memory.inodes),
            dentry_bytes: memory.map_or(0, |memory| memory.dentry_bytes),
            waiting_bytes: memory.map_or(0, |memory| memory.waiting_bytes),
            resident_bytes: resident_bytes(),
            shape: image.as_ref().and_then(|image| image.shape()).map(|shape| ShapeStatus {
                block_size: shape.block_size,
                blocks: shape.blocks,
                groups: shape.groups,
                inodes: shape.inodes,
            }),
            space: space.as_ref().map(space_status),
            commits: journal.map(|journal| CommitStatus {
                count: journal.commits,
                total_us: journal.total_commit_us,
            }),
            bytes_read: self.counters.bytes_read(),
            bytes_written: self.counters.bytes_written(),
            io_errors: self.counters.io_errors(),
            requests: requests
                .filter(|(_, count)| *count > 0)
                .map(|(kind, count)| (kind.name().to_owned(), count))
                .collect(),
        }
    }

    /// The kernel turns read-only before the image does, and writable after it. So it never sends a
    /// change that the image refuses.
    fn change(&self, words: &str) -> anyhow::Result<()> {
        let image = self.image.upgrade().context("the mount has just ended")?;
        let _change = self.change.lock();
        let options = self.options.lock().clone();
        let mut changed = options.clone();
        changed.change(words).map_err(anyhow::Error::msg)?;
        match (options.fuse.read_only, changed.fuse.read_only) {
            (false, true) => {
                self.tell_kernel(&changed)?;
                if let Err(error) = image.make_read_only() {
                    self.tell_kernel(&options)?;
                    return Err(error).context("not everything could be written");
                }
            }
            (true, false) => {
                let was_read_only = options.open.read_only;
                anyhow::ensure!(
                    !was_read_only,
                    "it was mounted with 'ro': unmount it, and mount it without that"
                );
                image.make_writable().context("it stays read-only")?;
                if let Err(error) = self.tell_kernel(&changed) {
                    image.make_read_only()?;
                    return Err(error);
                }
            }
            _ => self.tell_kernel(&changed)?,
        }
        let of_directories = !changed.open.ignore_directory_accesses;
        image.set_access_times(changed.open.access_times, of_directories);
        tracing::info!(directory = %self.directory.display(), words, "changed");
        *self.options.lock() = changed;
        Ok(())
    }
}
