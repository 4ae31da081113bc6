//! An image in a temporary folder, mounted.

use drystone::{Image, ImageOptions};
use drystone_fuse::attach::{self, AttachError, Unmount};
use drystone_fuse::{Counters, Mount, MountError, Operations, ServingOptions, Transport};
use drystone_sync::{Arc, thread};
use drystone_testkit::judges::e2fsck_check;
pub use drystone_testkit::judges::have;
use drystone_testkit::rings;
use drystone_testkit::skip::{self, Prerequisite, skip};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Bytes of the image.
pub const IMAGE_BYTES: u64 = 64 << 20;

/// A mounted image; unmounted when it is dropped, also by a test that fails.
pub struct Mounted {
    folder: TempDir,
    server: Option<thread::JoinHandle<()>>,
    image: Arc<Image>,
    pub counters: Arc<Counters>,
    pub transport: Transport,
}

/// Mounts while the kernel offers rings, if it has them and the caller may turn them on.
pub fn with_rings<T>(mount: impl FnOnce() -> T) -> T {
    let _offer = rings::offer().ok();
    mount()
}

impl Mounted {
    /// Mounts a new image. `None`, after a note of the skip, where that isn't possible.
    pub fn new(transport: Transport) -> Option<Mounted> {
        Mounted::with(transport, &ImageOptions::default())
    }

    pub fn with(transport: Transport, open: &ImageOptions) -> Option<Mounted> {
        let folder = tempfile::tempdir().unwrap();
        make_image(&folder.path().join("disk.img"));
        Mounted::again(transport, open, folder)
    }

    /// Mounts a new image that mke2fs makes with these arguments.
    pub fn made_with(transport: Transport, arguments: &[&str]) -> Option<Mounted> {
        let folder = tempfile::tempdir().unwrap();
        make_image_with(&folder.path().join("disk.img"), arguments);
        Mounted::again(transport, &ImageOptions::default(), folder)
    }

    /// Mounts a new image for root alone, without permission checks.
    pub fn for_root(transport: Transport) -> Option<Mounted> {
        if !skip::is_root("a mount for root alone") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        make_image(&folder.path().join("disk.img"));
        let options = ServingOptions::default().kernel_checks_permissions(false);
        Mounted::in_folder(transport, &ImageOptions::default(), options, folder)
    }

    /// Mounts the image in a folder.
    pub fn again(transport: Transport, open: &ImageOptions, folder: TempDir) -> Option<Mounted> {
        let options = ServingOptions::default()
            .read_only(open.read_only)
            .allow_other(is_root())
            .allow_set_user_id(is_root())
            .allow_devices(is_root());
        Mounted::in_folder(transport, open, options, folder)
    }

    fn in_folder(
        transport: Transport,
        open: &ImageOptions,
        options: ServingOptions,
        folder: TempDir,
    ) -> Option<Mounted> {
        // Only root may write to the root of the image.
        if !skip::is_root("a mount") || !skip::can_mount("a mount") {
            return None;
        }
        let directory = folder.path().join("mnt");
        std::fs::create_dir_all(&directory).unwrap();
        let image = Arc::new(open.open(folder.path().join("disk.img")).unwrap());
        let operations = Arc::new(Operations::new(image.shared_file_system(), options));
        let counters = Arc::clone(operations.counters());
        let begin = || Mount::new(operations, &directory, transport);
        let begun = if transport == Transport::Rings { with_rings(begin) } else { begin() };
        let mount = match begun {
            Ok(mount) => mount,
            Err(MountError::Session(error)) if transport == Transport::Rings => {
                skip(Prerequisite::Rings, error);
                return None;
            }
            Err(MountError::Attach(
                error @ (AttachError::Device(_) | AttachError::Helper { .. }),
            )) => {
                skip(Prerequisite::Fuse, error);
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(mount.transport(), transport);
        let server = thread::spawn("server", move || mount.run().unwrap()).unwrap();
        Some(Mounted { folder, server: Some(server), image, counters, transport })
    }

    /// The root of the mount.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    /// A path in the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Unmounts, closes the image, and has it checked. Gives the folder back.
    pub fn finish(mut self) -> TempDir {
        self.unmount();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        let image = Arc::clone(&self.image);
        drop(self);
        Arc::into_inner(image).unwrap().close().unwrap();
        e2fsck_check(&folder.path().join("disk.img")).unwrap().expect_clean("after unmounting");
        folder
    }

    fn unmount(&mut self) {
        let Some(server) = self.server.take() else { return };
        // The kernel may still be sending what a program has just closed.
        for _ in 0..100 {
            match attach::unmount(&self.root(), Unmount::WhenIdle) {
                Ok(()) => {
                    server.join().unwrap();
                    return;
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
        let _ = attach::unmount(&self.root(), Unmount::Lazily);
        assert!(thread::panicking(), "the mount stays in use");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Makes an image with the defaults and the features that tests ask for.
pub fn make_image(path: &Path) {
    make_image_with(path, &["-O", "quota,project,orphan_file"]);
}

fn make_image_with(path: &Path, arguments: &[&str]) {
    let status = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096"])
        .args(arguments)
        .arg(path)
        .arg(format!("{}K", IMAGE_BYTES >> 10))
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a program that must succeed; returns its output.
#[track_caller]
pub fn run(program: &str, arguments: &[&str], directory: &Path) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(directory).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The errno of a failure.
#[track_caller]
pub fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> rustix::io::Errno {
    let error = result.expect_err("it should have failed");
    rustix::io::Errno::from_io_error(&error).expect("an errno")
}
