//! Files as block devices.

use super::tools::run;
use crate::skip::{Prerequisite, is_root, skip};
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// An attached loop device, until dropped.
pub struct LoopDevice(pub PathBuf);

impl LoopDevice {
    /// Attaches a file. Nothing where that is impossible, after a note that `what` is skipped.
    ///
    /// # Errors
    ///
    /// `losetup` can't be run, or fails.
    pub fn attach(file: &Path, what: impl Display) -> io::Result<Option<LoopDevice>> {
        if !is_root(&what) {
            return Ok(None);
        }
        if !Path::new("/dev/loop-control").exists() {
            skip(Prerequisite::LoopMounts, what);
            return Ok(None);
        }
        let attached = run("losetup", ["--find".as_ref(), "--show".as_ref(), file.as_os_str()])?;
        if !attached.is_clean() {
            return Err(io::Error::other(attached.output));
        }
        Ok(Some(LoopDevice(attached.output.trim().into())))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = run("losetup", [Path::new("-d"), &self.0]);
    }
}
