//! The engine behind an open image, and the references that handles hold to it.

use crate::foreign::{self, ForeignFileSystem};
use crate::{ErrorCause, FileSystemKind};
use drystone_ext4::Ext4;
use drystone_nilfs2::Nilfs2;
use drystone_sync::{Arc, Process, thread};
use drystone_vfs::FileSystem;
use std::path::PathBuf;

/// What serves the files of an image.
#[derive(Clone, Debug)]
pub(crate) enum Engine {
    Ext4(Arc<Ext4>),
    Nilfs2(Arc<Nilfs2>),
}

impl Engine {
    pub fn kind(&self) -> FileSystemKind {
        match self {
            Engine::Ext4(_) => FileSystemKind::Ext4,
            Engine::Nilfs2(_) => FileSystemKind::Nilfs2,
        }
    }

    pub fn file_system(&self) -> &dyn FileSystem {
        match self {
            Engine::Ext4(engine) => &**engine,
            Engine::Nilfs2(engine) => &**engine,
        }
    }

    /// The engine of ext4, for `what` no other engine has.
    pub fn ext4(&self, what: &'static str) -> Result<&Ext4, ErrorCause> {
        match self {
            Engine::Ext4(engine) => Ok(engine),
            Engine::Nilfs2(_) => Err(ErrorCause::Lacks { kind: self.kind(), what }),
        }
    }

    /// The engine of NILFS2, for `what` no other engine has.
    pub fn nilfs2(&self, what: &'static str) -> Result<&Nilfs2, ErrorCause> {
        match self {
            Engine::Nilfs2(engine) => Ok(engine),
            Engine::Ext4(_) => Err(ErrorCause::Lacks { kind: self.kind(), what }),
        }
    }

    /// Makes everything durable and marks the image clean. Closing again does nothing.
    pub fn close(&self) -> Result<(), ErrorCause> {
        match self {
            Engine::Ext4(engine) => Ok(engine.close()?),
            Engine::Nilfs2(engine) => Ok(engine.unmount()?),
        }
    }
}

/// An engine that is closed when the last handle to it is dropped.
///
/// A child that `fork` made has a copy of it, but not the threads that it needs, and its parent goes on writing to
/// the same image. So a child can neither use nor close it: what it drops stays in its memory as it is.
#[derive(Debug)]
pub(crate) struct OpenImage {
    engine: Engine,
    /// The process that has opened it.
    process: Process,
    /// What it was opened as, for errors; none for one on a device of the caller.
    pub name: Option<PathBuf>,
    /// The file of this machine that it is in, as device and inode number.
    pub host_file: Option<(u64, u64)>,
}

impl OpenImage {
    pub fn new(engine: Engine, name: Option<PathBuf>, host_file: Option<(u64, u64)>) -> OpenImage {
        OpenImage { engine, process: Process::current(), name, host_file }
    }

    /// The engine.
    ///
    /// # Errors
    ///
    /// `EBADF` in a forked child.
    pub fn engine(&self) -> Result<&Engine, ErrorCause> {
        match self.process.is_current() {
            true => Ok(&self.engine),
            false => Err(foreign::refusal().into()),
        }
    }

    pub fn kind(&self) -> FileSystemKind {
        self.engine.kind()
    }

    #[inline]
    pub fn file_system(&self) -> &dyn FileSystem {
        match self.process.is_current() {
            true => self.engine.file_system(),
            false => &ForeignFileSystem,
        }
    }
}

impl Drop for OpenImage {
    /// Closes the image. While a panic unwinds, nothing more is written: what is half done stays for
    /// the next opening to recover.
    fn drop(&mut self) {
        if !self.process.is_current() {
            // Never dropped: that would write, and wait for threads that aren't here.
            std::mem::forget(self.engine.clone());
            return;
        }
        if thread::panicking() {
            return;
        }
        if let Err(error) = self.engine.close() {
            tracing::error!(%error, "an image could not be closed");
        }
    }
}

/// What a handle holds of its image.
#[derive(Clone)]
pub(crate) enum ImageReference<'i> {
    /// A file system that outlives the handle.
    Borrowed(&'i dyn FileSystem),
    /// An image that outlives the handle.
    Open(&'i OpenImage),
    /// An image that stays open as long as the handle is there.
    Shared(Arc<OpenImage>),
}

impl ImageReference<'_> {
    pub fn file_system(&self) -> &dyn FileSystem {
        match self {
            ImageReference::Borrowed(file_system) => *file_system,
            ImageReference::Open(image) => image.file_system(),
            ImageReference::Shared(image) => image.file_system(),
        }
    }

    /// The file of this machine that the image is in, if that is known.
    pub fn host_file(&self) -> Option<(u64, u64)> {
        match self {
            ImageReference::Borrowed(_) => None,
            ImageReference::Open(image) => image.host_file,
            ImageReference::Shared(image) => image.host_file,
        }
    }
}
