//! The calls on a directory of the machine, through system calls.
//!
//! # State
//! Handles are places in a table of open descriptors.

use super::{Files, Open, OpenDirectory, OpenFile};
use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RawDir};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;

/// Bytes that one call may list.
const LISTING_BYTES: usize = 32 << 10;

/// A directory, as one worker sees it.
pub struct SystemFiles {
    /// Open descriptors; the first is the root.
    open: Vec<Option<OwnedFd>>,
    /// Empty places.
    idle: Vec<usize>,
    listing: Vec<MaybeUninit<u8>>,
}

impl SystemFiles {
    /// Works in the directory at `path`.
    pub fn new(path: &Path) -> Result<SystemFiles> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .with_context(|| format!("can't open {}", path.display()))?;
        Ok(SystemFiles {
            open: vec![Some(root)],
            idle: Vec::new(),
            listing: vec![MaybeUninit::uninit(); LISTING_BYTES],
        })
    }

    /// Makes everything durable that was done to the file system of the directory.
    pub fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(self.descriptor(0)?)?)
    }

    fn keep(&mut self, descriptor: OwnedFd) -> u64 {
        match self.idle.pop() {
            Some(place) => {
                self.open[place] = Some(descriptor);
                place as u64
            }
            None => {
                self.open.push(Some(descriptor));
                self.open.len() as u64 - 1
            }
        }
    }

    fn descriptor(&self, place: u64) -> Result<&OwnedFd> {
        match self.open.get(place as usize) {
            Some(Some(descriptor)) => Ok(descriptor),
            _ => bail!("a workload used a closed handle"),
        }
    }

    fn drop_place(&mut self, place: u64) {
        self.open[place as usize] = None;
        self.idle.push(place as usize);
    }

    fn open_at(&mut self, parent: OpenDirectory, path: &str, flags: OFlags) -> Result<u64> {
        let parent = self.descriptor(parent.0)?;
        let opened = rustix::fs::openat(parent, path, flags | OFlags::CLOEXEC, mode(0o644))
            .with_context(|| format!("can't open {path}"))?;
        Ok(self.keep(opened))
    }
}

fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

impl Files for SystemFiles {
    fn root(&self) -> OpenDirectory {
        OpenDirectory(0)
    }

    fn make_directory(&mut self, parent: OpenDirectory, name: &str) -> Result<OpenDirectory> {
        rustix::fs::mkdirat(self.descriptor(parent.0)?, name, mode(0o755))
            .with_context(|| format!("can't make the directory {name}"))?;
        self.open_directory(parent, name)
    }

    fn open_directory(&mut self, parent: OpenDirectory, name: &str) -> Result<OpenDirectory> {
        Ok(OpenDirectory(self.open_at(parent, name, OFlags::RDONLY | OFlags::DIRECTORY)?))
    }

    fn close_directory(&mut self, directory: OpenDirectory) -> Result<()> {
        self.drop_place(directory.0);
        Ok(())
    }

    fn remove_directory(&mut self, parent: OpenDirectory, name: &str) -> Result<()> {
        rustix::fs::unlinkat(self.descriptor(parent.0)?, name, AtFlags::REMOVEDIR)
            .with_context(|| format!("can't remove the directory {name}"))
    }

    fn open(&mut self, parent: OpenDirectory, path: &str, how: Open) -> Result<OpenFile> {
        let flags = match how {
            Open::Read => OFlags::RDONLY,
            Open::Write => OFlags::RDWR,
            Open::New => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            Open::CreateTruncate => OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC,
        };
        Ok(OpenFile(self.open_at(parent, path, flags)?))
    }

    fn close(&mut self, file: OpenFile) -> Result<()> {
        self.drop_place(file.0);
        Ok(())
    }

    fn unlink(&mut self, parent: OpenDirectory, name: &str) -> Result<()> {
        rustix::fs::unlinkat(self.descriptor(parent.0)?, name, AtFlags::empty())
            .with_context(|| format!("can't remove {name}"))
    }

    fn rename(
        &mut self,
        parent: OpenDirectory,
        name: &str,
        new_parent: OpenDirectory,
        new_name: &str,
    ) -> Result<()> {
        let new_parent = self.descriptor(new_parent.0)?;
        rustix::fs::renameat(self.descriptor(parent.0)?, name, new_parent, new_name)
            .with_context(|| format!("can't move {name} to {new_name}"))
    }

    fn status(&mut self, parent: OpenDirectory, path: &str) -> Result<u64> {
        let status =
            rustix::fs::statat(self.descriptor(parent.0)?, path, AtFlags::SYMLINK_NOFOLLOW)
                .with_context(|| format!("can't find {path}"))?;
        Ok(u64::try_from(status.st_size).unwrap_or(0))
    }

    fn list(&mut self, directory: OpenDirectory, visit: &mut dyn FnMut(&str, bool)) -> Result<()> {
        let mut listing = std::mem::take(&mut self.listing);
        let descriptor = self.descriptor(directory.0)?;
        rustix::fs::seek(descriptor, rustix::fs::SeekFrom::Start(0))?;
        let mut entries = RawDir::new(descriptor, &mut listing);
        while let Some(entry) = entries.next() {
            let entry = entry.context("can't list a directory")?;
            // Workloads make no other names than text.
            if let Ok(name) = entry.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                visit(name, entry.file_type() == FileType::Directory);
            }
        }
        self.listing = listing;
        Ok(())
    }

    fn set_length(&mut self, file: OpenFile, length: u64) -> Result<()> {
        rustix::fs::ftruncate(self.descriptor(file.0)?, length)
            .with_context(|| format!("can't set a length of {length} bytes"))
    }

    fn allocate(&mut self, file: OpenFile, offset: u64, length: u64) -> Result<()> {
        rustix::fs::fallocate(self.descriptor(file.0)?, FallocateFlags::empty(), offset, length)
            .with_context(|| format!("can't allocate {length} bytes at {offset}"))
    }

    fn write(&mut self, file: OpenFile, offset: u64, data: &[u8]) -> Result<()> {
        let written = rustix::io::pwrite(self.descriptor(file.0)?, data, offset)
            .with_context(|| format!("can't write {} bytes at {offset}", data.len()))?;
        anyhow::ensure!(written == data.len(), "no space for all of a write");
        Ok(())
    }

    fn sync_file(&mut self, file: OpenFile) -> Result<()> {
        Ok(rustix::fs::fsync(self.descriptor(file.0)?)?)
    }

    fn extents(&mut self, file: OpenFile) -> Result<Option<u64>> {
        // FIEMAP is an ioctl without a safe wrapper; e2fsprogs has a program for it.
        let descriptor = self.descriptor(file.0)?;
        rustix::fs::fsync(descriptor)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), descriptor.as_raw_fd());
        let search = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let output = Command::new("filefrag").arg(path).env("PATH", search).output();
        let Ok(output) = output else { return Ok(None) };
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(extents_in(&text))
    }
}

/// The number in `PATH: N extents found`.
fn extents_in(text: &str) -> Option<u64> {
    text.rsplit_once(": ")?.1.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filefrag_is_understood() {
        assert_eq!(extents_in("/proc/1/fd/5: 12 extents found\n"), Some(12));
        assert_eq!(extents_in("/tmp/a: b: 1 extent found"), Some(1));
        assert_eq!(extents_in("FIBMAP/FIEMAP unsupported"), None);
    }
}
