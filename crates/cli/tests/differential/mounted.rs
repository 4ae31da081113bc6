//! A mount by the command.

use std::path::Path;
use std::process::{Command, Stdio};

/// A mount by the command, which is ended when a test fails too.
pub struct Mounted<'a> {
    directory: &'a Path,
}

impl Mounted<'_> {
    /// Nothing where that is impossible, after a line that says so.
    pub fn new<'a>(image: &Path, directory: &'a Path, options: &str) -> Option<Mounted<'a>> {
        std::fs::create_dir_all(directory).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_drystone"))
            .arg("mount")
            .args([image, directory])
            .args(["-o", options])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            eprintln!("SKIPPED: no mount with {options}: {message}");
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
