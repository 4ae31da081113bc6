//! Makes the images, mounts them, and takes the mounts down.

use super::{Options, Programs};
use crate::ending::{AtEnd, at_end};
use crate::{process, rings};
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Bytes of each image: sparse, so that only what is written takes memory.
const IMAGE_LENGTH: &str = "3G";

/// How an image is made: with the orphan file, which mke2fs makes by default where a distribution hasn't
/// turned it off. Tables are zeroed at once: the kernel would do it while it is measured.
const MAKE_OPTIONS: [&str; 7] = [
    "-q",
    "-text4",
    "-Oorphan_file",
    "-N500000",
    "-m0",
    "-Elazy_itable_init=0,lazy_journal_init=0",
    "-F",
];

/// How often unmounting is tried again while something still uses a mount.
const ATTEMPTS_MAX: u32 = 100;

/// How long is waited in between.
const PAUSE: Duration = Duration::from_millis(50);

/// One mounted file system.
pub struct Mount {
    /// Its column in the table.
    pub name: &'static str,
    /// Where it is.
    pub directory: PathBuf,
    /// The process that serves it, where it has to be ended by us.
    server: Option<Child>,
    is_mounted: bool,
}

/// All of them, in the order of the table. Unmounted when dropped.
pub struct Mounts {
    mounts: Vec<Mount>,
    scratch: PathBuf,
    /// Takes down the rest, and all of it if a signal comes.
    _end: AtEnd,
}

/// The columns.
pub const OURS: &str = "drystone";
/// See [`OURS`].
pub const FUSE2FS: &str = "fuse2fs";
/// See [`OURS`].
pub const KERNEL: &str = "kernel ext4";
/// See [`OURS`].
pub const EMPTY: &str = "empty server";
/// The columns in their order.
pub const NAMES: [&str; 4] = [OURS, EMPTY, FUSE2FS, KERNEL];

impl Mounts {
    /// Makes images in a folder and mounts them.
    pub fn set_up(folder: &Path, options: &Options, programs: &Programs) -> anyhow::Result<Mounts> {
        let scratch = folder.join(format!("drystone-bench-mount-{}", std::process::id()));
        std::fs::create_dir(&scratch).with_context(|| scratch.display().to_string())?;
        let end = at_end({
            let scratch = scratch.clone();
            move || remove(&scratch)
        })?;
        let mut mounts = Mounts { mounts: Vec::new(), scratch, _end: end };
        let offer = rings::offer(&options.transport)?;
        // All servers run in the foreground, in the session of the clients: schedulers share the time
        // of a core among sessions first.
        mounts.add(OURS, |image, directory| {
            let transport = format!("transport={}", options.transport);
            let mut command = Command::new(&programs.drystone);
            command.arg("mount").args([image, directory]).args(["-o", &transport, "--foreground"]);
            serve(&mut command, directory).map(Some)
        })?;
        mounts.add(EMPTY, |_, directory| {
            let transport = if options.transport == "rings" { "uring" } else { "device" };
            let mut command = Command::new(&programs.empty);
            command.arg(directory).args(["--transport", transport]);
            serve(&mut command, directory).map(Some)
        })?;
        drop(offer);
        mounts.add(FUSE2FS, |image, directory| {
            serve(Command::new("fuse2fs").arg("-f").args([image, directory]), directory).map(Some)
        })?;
        mounts.add(KERNEL, |image, directory| {
            process::run(Command::new("mount").args(["-o", "loop"]).args([image, directory]))?;
            Ok(None)
        })?;
        Ok(mounts)
    }

    fn add(
        &mut self,
        name: &'static str,
        mount: impl FnOnce(&Path, &Path) -> anyhow::Result<Option<Child>>,
    ) -> anyhow::Result<()> {
        let path = self.scratch.join(directory_name(name));
        let image = path.with_extension("img");
        std::fs::create_dir(&path)?;
        if name != EMPTY {
            let mut make = Command::new("mke2fs");
            process::output(make.args(MAKE_OPTIONS).arg(&image).arg(IMAGE_LENGTH))?;
        }
        let server = mount(&image, &path).with_context(|| format!("mounting {name}"))?;
        self.mounts.push(Mount { name, directory: path, server, is_mounted: true });
        Ok(())
    }

    /// The mounts.
    pub fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter()
    }

    /// The column of a directory.
    pub fn name_of(&self, directory: &str) -> Option<&'static str> {
        let found = self.mounts.iter().find(|mount| mount.directory == Path::new(directory));
        found.map(|mount| mount.name)
    }

    /// Unmounts all, and has the images judged.
    pub fn take_down(mut self) -> anyhow::Result<()> {
        for mount in &mut self.mounts {
            mount.end()?;
        }
        for mount in &self.mounts {
            let image = mount.directory.with_extension("img");
            if mount.name == OURS {
                process::output(Command::new("e2fsck").arg("-fn").arg(&image))?;
            }
        }
        Ok(())
    }
}

impl Mount {
    fn end(&mut self) -> anyhow::Result<()> {
        if !std::mem::take(&mut self.is_mounted) {
            return Ok(());
        }
        retry(|| process::output(Command::new("umount").arg(&self.directory)))?;
        if let Some(server) = &mut self.server {
            server.wait()?;
        }
        Ok(())
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for mount in &mut self.mounts {
            if let Err(error) = mount.end() {
                eprintln!("xtask: {error:#}");
            }
        }
    }
}

/// Removes the images and what is still mounted beside them; that ends when the last who uses it has
/// noticed.
fn remove(scratch: &Path) {
    for name in NAMES {
        let mut unmount = Command::new("umount");
        unmount.arg("-ql").arg(scratch.join(directory_name(name)));
        let _ = process::output(&mut unmount);
    }
    if let Err(error) = std::fs::remove_dir_all(scratch) {
        eprintln!("xtask: {}: {error}", scratch.display());
    }
}

fn directory_name(name: &str) -> String {
    name.replace(' ', "-")
}

/// Starts a server and waits until it has mounted.
fn serve(command: &mut Command, directory: &Path) -> anyhow::Result<Child> {
    eprintln!("$ {}", process::describe(command));
    let mut server = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| process::describe(command))?;
    let is_mounted =
        || process::output(Command::new("mountpoint").arg("-q").arg(directory)).map(drop);
    if let Err(error) = retry(is_mounted) {
        let _ = server.kill();
        let _ = server.wait();
        return Err(error);
    }
    Ok(server)
}

/// Tries something again for some seconds while it fails.
pub fn retry<T>(work: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    for _ in 1..ATTEMPTS_MAX {
        if let Ok(done) = work() {
            return Ok(done);
        }
        // Woken early, it tries again a little sooner.
        process::nap(PAUSE);
    }
    work()
}
