//! A mount by the command.

use drystone_testkit::rings;
use drystone_testkit::skip::{Prerequisite, skip};
use std::path::Path;
use std::process::{Command, Stdio};

/// A mount by the command, which also ends when a test fails.
pub struct Mounted<'a> {
    directory: &'a Path,
}

impl Mounted<'_> {
    /// Nothing where the kernel has no rings, after a note of the skip.
    pub fn new<'a>(image: &Path, directory: &'a Path, options: &str) -> Option<Mounted<'a>> {
        std::fs::create_dir_all(directory).unwrap();
        let _offer = options.contains("rings").then(|| rings::offer().ok());
        let output = Command::new(env!("CARGO_BIN_EXE_drystone"))
            .arg("mount")
            .args([image, directory])
            .args(["-o", options])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            // The caller has asked for root and for FUSE.
            assert!(options.contains("rings"), "{options}: {message}");
            skip(Prerequisite::Rings, message);
            return None;
        }
        Some(Mounted { directory })
    }

    pub fn unmount(&self) -> bool {
        let program = env!("CARGO_BIN_EXE_drystone");
        let ended = Command::new(program).arg("umount").arg(self.directory).output();
        ended.is_ok_and(|output| output.status.success())
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        self.unmount();
    }
}
