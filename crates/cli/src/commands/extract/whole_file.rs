//! Writes a file that gets its name only when it is complete.

use anyhow::Context;
use drystone::build::{FilePlace, Unfinished};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is written beside its name and gets it at the end. What isn't a file, as a pipe or a
/// device, is written as it is.
pub struct WholeFile {
    file: File,
    to: PathBuf,
    unfinished: Option<Unfinished>,
}

impl WholeFile {
    pub fn new(to: &Path) -> anyhow::Result<WholeFile> {
        let opened = FilePlace::find(to).and_then(|place| {
            if place.existing().is_none_or(|existing| existing.is_file()) {
                Unfinished::create(place).map(|(unfinished, file)| (Some(unfinished), file))
            } else {
                OpenOptions::new().write(true).open(to).map(|file| (None, file))
            }
        });
        let (unfinished, file) = opened.with_context(|| to.display().to_string())?;
        Ok(WholeFile { file, to: to.to_path_buf(), unfinished })
    }

    /// Makes the file durable and gives it its name.
    pub fn keep(self) -> anyhow::Result<()> {
        let Some(unfinished) = self.unfinished else { return Ok(()) };
        let kept = self.file.sync_all().and_then(|()| unfinished.finish());
        kept.with_context(|| self.to.display().to_string())
    }

    /// Takes the file away.
    pub fn discard(self) {
        if let Some(unfinished) = self.unfinished {
            unfinished.abandon();
        }
    }
}

impl Write for WholeFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.file.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
