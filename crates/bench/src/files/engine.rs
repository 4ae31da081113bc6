//! The calls on the engine in this process.
//!
//! # State
//! A handle is an inode number and how many references were taken for it, packed: the lowest bit
//! says that there are two, one of the lookup and one of the open.

use super::{Files, Open, OpenDirectory, OpenFile};
use anyhow::{Context, Result, bail};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_vfs::{
    Errno, FallocateMode, FileSystem, FileType, InodeGuard, InodeNumber, NewNode, OpenFlags,
    RenameFlags, RequestContext, SetAttributes,
};

/// Extents that are asked for at once.
const EXTENTS_AT_ONCE: usize = 4096;

/// The engine, as one worker sees it.
pub struct EngineFiles<'f> {
    file_system: &'f dyn FileSystem,
    context: RequestContext,
    root: OpenDirectory,
    stop: &'f AtomicBool,
}

impl<'f> EngineFiles<'f> {
    /// Works in the directory `root`, to which the caller keeps a reference. Every call fails once
    /// `stop` is set.
    pub fn new(
        file_system: &'f dyn FileSystem,
        root: InodeNumber,
        stop: &'f AtomicBool,
    ) -> EngineFiles<'f> {
        let context = RequestContext::superuser();
        EngineFiles { file_system, context, root: OpenDirectory(pack(root, false)), stop }
    }

    /// Fails if the user wants to stop. One relaxed load of a line that no thread writes.
    fn go_on(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Walks a path.
    fn find(&self, parent: OpenDirectory, path: &str) -> drystone_vfs::Result<InodeGuard<'f>> {
        let look_up = |directory, name: &str| {
            InodeGuard::lookup(self.file_system, &self.context, directory, name.as_bytes())
        };
        let mut names = path.split('/');
        // There is always a first part, which may be all.
        let mut here = look_up(inode(parent.0), names.next().unwrap_or_default())?;
        for name in names {
            here = look_up(here.inode(), name)?;
        }
        Ok(here)
    }

    fn open_found(&self, found: InodeGuard<'f>, flags: OpenFlags) -> Result<OpenFile> {
        self.file_system.open(&self.context, found.inode(), flags)?;
        Ok(OpenFile(pack(found.into_entry().inode, true)))
    }

    fn create(&self, parent: OpenDirectory, name: &str) -> drystone_vfs::Result<OpenFile> {
        let parent = inode(parent.0);
        let made = self.file_system.create(
            &self.context,
            parent,
            name.as_bytes(),
            NewNode::Regular,
            0o644,
        )?;
        Ok(OpenFile(pack(made.inode, false)))
    }
}

fn pack(inode: InodeNumber, is_held_twice: bool) -> u64 {
    inode.0 << 1 | u64::from(is_held_twice)
}

fn inode(packed: u64) -> InodeNumber {
    InodeNumber(packed >> 1)
}

impl Files for EngineFiles<'_> {
    fn root(&self) -> OpenDirectory {
        self.root
    }

    fn make_directory(&mut self, parent: OpenDirectory, name: &str) -> Result<OpenDirectory> {
        self.go_on()?;
        let made = self
            .file_system
            .create(&self.context, inode(parent.0), name.as_bytes(), NewNode::Directory, 0o755)
            .with_context(|| format!("can't make the directory {name}"))?;
        Ok(OpenDirectory(pack(made.inode, false)))
    }

    fn open_directory(&mut self, parent: OpenDirectory, name: &str) -> Result<OpenDirectory> {
        let found = self.file_system.lookup(&self.context, inode(parent.0), name.as_bytes());
        let found = found.with_context(|| format!("can't open the directory {name}"))?;
        Ok(OpenDirectory(pack(found.inode, false)))
    }

    fn close_directory(&mut self, directory: OpenDirectory) -> Result<()> {
        self.file_system.forget(inode(directory.0), 1);
        Ok(())
    }

    fn remove_directory(&mut self, parent: OpenDirectory, name: &str) -> Result<()> {
        self.file_system
            .remove_directory(&self.context, inode(parent.0), name.as_bytes())
            .with_context(|| format!("can't remove the directory {name}"))
    }

    fn open(&mut self, parent: OpenDirectory, path: &str, how: Open) -> Result<OpenFile> {
        self.go_on()?;
        let flags = match how {
            Open::New => {
                let made = self.create(parent, path);
                return made.with_context(|| format!("can't create {path}"));
            }
            Open::Read => OpenFlags::READ,
            Open::Write => OpenFlags::READ | OpenFlags::WRITE,
            Open::CreateTruncate => OpenFlags::READ | OpenFlags::WRITE | OpenFlags::TRUNCATE,
        };
        match self.find(parent, path) {
            Ok(found) => self.open_found(found, flags),
            Err(error) if error.errno == Errno::ENOENT && how == Open::CreateTruncate => {
                self.create(parent, path).map_err(anyhow::Error::from)
            }
            Err(error) => Err(error.into()),
        }
        .with_context(|| format!("can't open {path}"))
    }

    fn close(&mut self, file: OpenFile) -> Result<()> {
        self.file_system.forget(inode(file.0), 1 + (file.0 & 1));
        Ok(())
    }

    fn unlink(&mut self, parent: OpenDirectory, name: &str) -> Result<()> {
        self.go_on()?;
        self.file_system
            .unlink(&self.context, inode(parent.0), name.as_bytes())
            .with_context(|| format!("can't remove {name}"))
    }

    fn rename(
        &mut self,
        parent: OpenDirectory,
        name: &str,
        new_parent: OpenDirectory,
        new_name: &str,
    ) -> Result<()> {
        self.go_on()?;
        self.file_system
            .rename(
                &self.context,
                inode(parent.0),
                name.as_bytes(),
                inode(new_parent.0),
                new_name.as_bytes(),
                RenameFlags::empty(),
            )
            .with_context(|| format!("can't move {name} to {new_name}"))
    }

    fn status(&mut self, parent: OpenDirectory, path: &str) -> Result<u64> {
        self.go_on()?;
        let found = self.find(parent, path).with_context(|| format!("can't find {path}"))?;
        Ok(found.attributes().size)
    }

    fn list(&mut self, directory: OpenDirectory, visit: &mut dyn FnMut(&str, bool)) -> Result<()> {
        self.go_on()?;
        let directory = inode(directory.0);
        self.file_system
            .read_directory(&self.context, directory, 0, &mut |entry| {
                // Workloads make no other names than text.
                if let Ok(name) = std::str::from_utf8(entry.name)
                    && !matches!(name, "." | "..")
                {
                    visit(name, entry.file_type == Some(FileType::Directory));
                }
                true
            })
            .context("can't list a directory")
    }

    fn set_length(&mut self, file: OpenFile, length: u64) -> Result<()> {
        self.go_on()?;
        let changes = SetAttributes { size: Some(length), ..SetAttributes::default() };
        self.file_system
            .set_attributes(&self.context, inode(file.0), &changes)
            .with_context(|| format!("can't set a length of {length} bytes"))?;
        Ok(())
    }

    fn allocate(&mut self, file: OpenFile, offset: u64, length: u64) -> Result<()> {
        self.go_on()?;
        let mode = FallocateMode::Allocate { keep_size: false };
        self.file_system
            .fallocate(&self.context, inode(file.0), mode, offset, length)
            .with_context(|| format!("can't allocate {length} bytes at {offset}"))
    }

    fn write(&mut self, file: OpenFile, offset: u64, data: &[u8]) -> Result<()> {
        self.go_on()?;
        let written = self
            .file_system
            .write(&self.context, inode(file.0), offset, data)
            .with_context(|| format!("can't write {} bytes at {offset}", data.len()))?;
        anyhow::ensure!(written == data.len(), "no space for all of a write");
        Ok(())
    }

    fn sync_file(&mut self, file: OpenFile) -> Result<()> {
        self.go_on()?;
        Ok(self.file_system.sync_inode(inode(file.0), false)?)
    }

    fn extents(&mut self, file: OpenFile) -> Result<Option<u64>> {
        // Delayed data has no blocks yet.
        self.file_system.sync_inode(inode(file.0), true)?;
        let mut count = 0;
        let mut offset = 0;
        loop {
            let extents = self.file_system.extents(
                inode(file.0),
                offset,
                u64::MAX - offset,
                EXTENTS_AT_ONCE,
            )?;
            count += extents.len() as u64;
            match extents.last() {
                Some(last) if extents.len() == EXTENTS_AT_ONCE => {
                    offset = last.logical + last.length;
                }
                _ => return Ok(Some(count)),
            }
        }
    }
}
