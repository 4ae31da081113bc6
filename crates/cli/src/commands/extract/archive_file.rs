//! A file that is there whole or not at all.

use anyhow::Context;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is written beside its name and gets it at the end. What is no file, as a pipe or a
/// device, is written as it is.
pub struct ArchiveFile {
    file: File,
    to: PathBuf,
    /// Its name until then.
    unfinished: Option<PathBuf>,
}

impl ArchiveFile {
    pub fn new(to: &Path) -> anyhow::Result<ArchiveFile> {
        let place = || to.display().to_string();
        if fs::metadata(to).is_ok_and(|metadata| !metadata.is_file()) {
            let file = OpenOptions::new().write(true).open(to).with_context(place)?;
            return Ok(ArchiveFile { file, to: to.to_path_buf(), unfinished: None });
        }
        let mut name = std::ffi::OsString::from(".");
        name.push(to.file_name().unwrap_or_default());
        name.push(format!(".{}.part", std::process::id()));
        let unfinished = to.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&unfinished)
            .with_context(place)?;
        Ok(ArchiveFile { file, to: to.to_path_buf(), unfinished: Some(unfinished) })
    }

    /// Gives the file its name.
    pub fn keep(self) -> anyhow::Result<()> {
        match &self.unfinished {
            Some(unfinished) => {
                fs::rename(unfinished, &self.to).with_context(|| self.to.display().to_string())
            }
            None => Ok(()),
        }
    }

    /// Takes the file away.
    pub fn discard(self) {
        if let Some(unfinished) = &self.unfinished {
            // What went wrong before is what is told.
            let _ = fs::remove_file(unfinished);
        }
    }
}

impl Write for ArchiveFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.file.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
