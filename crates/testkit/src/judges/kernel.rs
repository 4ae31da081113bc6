//! The kernel's own ext4 on a loop device, for those who are root.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::tools::run;

/// How often a busy mount is tried again.
const UNMOUNT_ATTEMPTS_MAX: u32 = 50;
const UNMOUNT_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// An image that the kernel has mounted, until dropped or unmounted.
#[derive(Debug)]
pub struct Mounted {
    directory: PathBuf,
    mounted: bool,
}

impl Mounted {
    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Unmounts it: everything is in the image then.
    pub fn unmount(mut self) -> io::Result<()> {
        self.mounted = false;
        let mut judgement = run("umount", [&self.directory])?;
        // A program that another thread starts has this one's files until it runs.
        for _ in 0..UNMOUNT_ATTEMPTS_MAX {
            if judgement.is_clean() {
                return Ok(());
            }
            drystone_sync::thread::sleep(UNMOUNT_PAUSE);
            judgement = run("umount", [&self.directory])?;
        }
        if judgement.is_clean() { Ok(()) } else { Err(io::Error::other(judgement.output)) }
    }
}

impl Drop for Mounted {
    /// A failing test leaves no mount behind.
    fn drop(&mut self) {
        if self.mounted {
            let _ = run("umount", [OsStr::new("-l"), self.directory.as_os_str()]);
        }
    }
}

/// Mounts an image at a directory, which is made if it isn't there, with mount options (such as
/// `ro,noload`; may be empty). `None` where that is impossible, after a line that says so: without
/// root, without loop devices, or with features that this kernel doesn't know.
pub fn kernel_mount(image: &Path, directory: &Path, options: &str) -> io::Result<Option<Mounted>> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: the kernel's mount needs root");
        return Ok(None);
    }
    std::fs::create_dir_all(directory)?;
    let options = if options.is_empty() { "loop".to_owned() } else { format!("loop,{options}") };
    let arguments = [OsStr::new("-t"), OsStr::new("ext4"), OsStr::new("-o"), OsStr::new(&options)];
    let judgement =
        run("mount", arguments.into_iter().chain([image.as_os_str(), directory.as_os_str()]))?;
    if !judgement.is_clean() {
        let reason = judgement.output.lines().next().unwrap_or_default();
        eprintln!("SKIPPED: the kernel doesn't mount {}: {reason}", image.display());
        return Ok(None);
    }
    Ok(Some(Mounted { directory: directory.to_owned(), mounted: true }))
}
