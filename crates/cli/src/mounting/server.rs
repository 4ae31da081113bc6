//! The server of a mount: opens the image, mounts it, serves it, closes it.

use crate::failure::Outcome;
use crate::image::AtImage;
use crate::interrupt::signals_to_end;
use crate::mounting::background;
use crate::mounting::options::MountOptions;
use crate::mounting::served::Served;
use crate::mounting::utab;
use crate::mounts::registry::MountEntry;
use anyhow::Context;
use drystone::vfs::DeviceNumber;
use drystone::{ErrorCause, Image, SnapshotWatch, freeze_for_snapshots};
use drystone_fuse::attach::{self, AttachError, Unmount};
use drystone_fuse::{Mount, Operations};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, Weak, clock, thread};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// How often, and how long each time, the server waits for an image that is in use: two seconds in
/// all.
const MOMENTS_FOR_OTHERS: u32 = 40;
const MOMENT: Duration = Duration::from_millis(50);
/// How often it waits so for what the kernel has gathered: ten seconds in all.
const GATHERED_MOMENTS: u32 = 200;
/// How long to wait for threads that still have the image before trying again to close it.
const WAIT_FOR_OTHERS: Duration = Duration::from_millis(2);

/// What is served.
pub struct MountServer {
    /// The image, by its full path.
    pub image: PathBuf,
    /// Where it is mounted, by its full path.
    pub directory: PathBuf,
    /// How.
    pub options: MountOptions,
}

impl MountServer {
    /// Mounts and serves the image until it is unmounted; tells a waiting parent when the mount can
    /// be used.
    pub fn run(self) -> Outcome {
        // Dirty pages of the mount go away only as fast as this process writes to the image: the kernel
        // must not throttle it for having too many of them. Only root may ask for that; other users'
        // mounts may have few dirty pages.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        let image = self.open().at_image(&self.image)?;
        let image = Arc::new(image);
        let operations = Operations::new(image.shared_file_system(), self.options.fuse.clone());
        let operations = Arc::new(operations);
        let snapshots = self.watch_snapshots(&image);
        let served = self.serve(&image, &operations);
        drop(snapshots);
        // The mount's threads have ended; a signal or a client may still be at work.
        drop(operations);
        let closed = when_alone(image).close().context("the image was not closed cleanly");
        let (entry, in_table) = match served {
            Ok(known) => known,
            Err(error) => {
                if let Err(error) = &closed {
                    tracing::error!(image = %self.image.display(), "{error:#}");
                }
                return Err(error.context(self.image.display().to_string()).into());
            }
        };
        match &closed {
            Ok(()) => tracing::info!(image = %self.image.display(), "unmounted"),
            Err(error) => tracing::error!(image = %self.image.display(), "{error:#}"),
        }
        if let Some(in_table) = in_table {
            in_table.remove();
        }
        if let Some(entry) = entry {
            entry.end(closed.as_ref().copied().map_err(|error| format!("{error:#}")));
        }
        closed?;
        Ok(())
    }

    /// Opens the image. A server that was killed, or whose mount has just ended, closes the image a
    /// moment after its mount has disappeared.
    fn open(&self) -> Result<Image, drystone::Error> {
        let start = clock::now();
        loop {
            match self.options.open.open(&self.image) {
                // Opening may have waited long for the other one by itself.
                Err(error)
                    if matches!(error.cause(), ErrorCause::InUse | ErrorCause::InUseBy(_))
                        && start.elapsed() < MOMENT * MOMENTS_FOR_OTHERS =>
                {
                    thread::sleep(MOMENT);
                }
                opened => return opened,
            }
        }
    }

    /// Has the image frozen for snapshots that its storage makes. A mount works without that.
    fn watch_snapshots(&self, image: &Image) -> Option<SnapshotWatch> {
        if self.options.fuse.read_only {
            return None;
        }
        freeze_for_snapshots(image, &self.image).unwrap_or_else(|error| {
            tracing::warn!("snapshots of the image are as after a crash: {error}");
            None
        })
    }

    fn serve(
        &self,
        image: &Arc<Image>,
        operations: &Arc<Operations>,
    ) -> anyhow::Result<(Option<MountEntry>, Option<utab::UtabEntry>)> {
        let mount = Mount::new(Arc::clone(operations), &self.directory, self.options.transport)?;
        let has_ended = self.handle_signals(&mount, image, operations)?;
        // A mount works even if it can't be listed.
        let entry = match MountEntry::new(Served::new(
            (&self.image, &self.directory, &self.options),
            &mount,
            image,
            operations,
        )) {
            Ok(entry) => Some(entry),
            Err(error) => {
                tracing::warn!("'drystone mounts' will not know of this mount: {error:#}");
                None
            }
        };
        tracing::info!(
            image = %self.image.display(),
            directory = %self.directory.display(),
            "mounted"
        );
        let in_table = utab::UtabEntry::new(&self.image, &self.directory);
        let told = if background::is_waited_for() { background::ready() } else { Ok(()) };
        let served = told.and_then(|()| Ok(mount.run()?));
        has_ended.store(true, Ordering::SeqCst);
        match served {
            Ok(()) => Ok((entry, in_table)),
            Err(error) => {
                if let Some(entry) = in_table {
                    entry.remove();
                }
                Err(error)
            }
        }
    }

    /// A signal that asks for the end unmounts. If files are open, the first signal detaches the mount,
    /// which then ends when the last file is closed; the second one aborts the connection, and open
    /// files fail. So does the first one if the mount has been detached already. A mount that another one hides
    /// can't be unmounted: the first signal only syncs it.
    fn handle_signals(
        &self,
        mount: &Mount,
        image: &Arc<Image>,
        operations: &Arc<Operations>,
    ) -> anyhow::Result<Arc<AtomicBool>> {
        let mut signals = Signals::new(signals_to_end()).context("can't handle signals")?;
        let has_ended = Arc::new(AtomicBool::new(false));
        let mut served = MountEnding {
            directory: self.directory.clone(),
            device: mount.device_number(),
            image: Arc::downgrade(image),
            operations: Arc::downgrade(operations),
            has_ended: Arc::clone(&has_ended),
            was_hidden: false,
        };
        thread::spawn("signals", move || {
            for _ in &mut signals {
                served.end();
            }
        })?;
        Ok(has_ended)
    }
}

/// What a signal ends.
struct MountEnding {
    directory: PathBuf,
    device: Option<DeviceNumber>,
    image: Weak<Image>,
    operations: Weak<Operations>,
    /// The mount is gone; its directory and number may belong to another.
    has_ended: Arc<AtomicBool>,
    /// A signal has found it below another mount.
    was_hidden: bool,
}

impl MountEnding {
    fn end(&mut self) {
        if self.has_ended.load(Ordering::SeqCst) {
            return;
        }
        let is_seen = self.device.is_none() || attach::device_on(&self.directory) == self.device;
        let is_there = || self.device.is_some_and(|device| attach::is_on(&self.directory, device));
        if is_seen {
            self.unmount();
        } else if !self.was_hidden && is_there() {
            self.was_hidden = true;
            self.sync();
            tracing::warn!(
                directory = %self.directory.display(),
                "another mount hides it: unmount that first; a second signal ends this one at once"
            );
        } else {
            self.sync();
            self.abort();
        }
    }

    /// Unmounts; a mount that is in use is detached.
    fn unmount(&self) {
        let directory = &self.directory;
        match attach::unmount(directory, Unmount::WhenIdle) {
            Ok(()) => return,
            Err(error) if !is_busy(&error) => {
                tracing::error!("{error}");
                return;
            }
            Err(_) => {}
        }
        tracing::warn!(
            directory = %directory.display(),
            "in use: it disappears now and ends when the last user is gone; a second signal ends it at once"
        );
        self.sync();
        if let Err(error) = attach::unmount(directory, Unmount::Lazily) {
            tracing::error!("{error}");
        }
    }

    /// Makes durable what was written, also what the kernel has gathered: the end of the connection, or of this
    /// process, would lose it.
    fn sync(&self) {
        if let Some(operations) = self.operations.upgrade() {
            // The kernel waits for the answers to its writes: for the end of a freeze, or a slow device. The next
            // signal must be heeded meanwhile.
            let receiving = thread::spawn("gathered", move || operations.receive_gathered());
            for _ in 0..GATHERED_MOMENTS {
                if !receiving.as_ref().is_ok_and(|thread| !thread.is_finished()) {
                    break;
                }
                thread::sleep(MOMENT);
            }
        }
        if let Some(image) = self.image.upgrade()
            && let Err(error) = image.file_system().sync()
        {
            tracing::error!(%error, "what was written can't be made durable");
        }
    }

    /// Ends the connection with the kernel, which has the number of the mount's device: every request
    /// fails from now on, and the server ends.
    fn abort(&self) {
        let aborted = self.device.map(|DeviceNumber { minor, .. }| {
            let path = format!("/sys/fs/fuse/connections/{minor}/abort");
            File::options().write(true).open(path).and_then(|mut file| file.write_all(b"1"))
        });
        if matches!(aborted, Some(Ok(()))) {
            return;
        }
        // It may just have ended by itself.
        for _ in 0..MOMENTS_FOR_OTHERS {
            if self.has_ended.load(Ordering::SeqCst) {
                return;
            }
            thread::sleep(MOMENT);
        }
        tracing::error!("the mount can't be taken away from its users; ending as after a crash");
        std::process::exit(1);
    }
}

/// Waits until no other thread has a reference to a value, and takes it. Other threads keep one only
/// for a single operation.
fn when_alone<T>(mut shared: Arc<T>) -> T {
    loop {
        match Arc::try_unwrap(shared) {
            Ok(value) => return value,
            Err(still_shared) => shared = still_shared,
        }
        thread::sleep(WAIT_FOR_OTHERS);
    }
}

/// True if somebody uses the mount.
pub fn is_busy(error: &AttachError) -> bool {
    match error {
        AttachError::Unmount { source, .. } => *source == rustix::io::Errno::BUSY,
        AttachError::Helper { reason, .. } => reason.contains("busy"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_image_for_a_moment_is_waited_for() {
        let image = Arc::new(AtomicBool::new(false));
        let weak = Arc::downgrade(&image);
        let other = Arc::clone(&image);
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(MOMENT);
                other.store(true, Ordering::SeqCst);
            });
            assert!(when_alone(image).into_inner(), "the other was not done");
        });
        assert!(weak.upgrade().is_none());
    }
}
