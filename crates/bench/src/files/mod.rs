//! The calls that a workload may make, which both kinds of target support.
//!
//! A workload is written once against [`Files`]. Names are relative to an open directory, so that
//! neither side walks a longer path than the other; only [`Files::open`] and [`Files::status`] take
//! paths of several names, for the workloads that are about walking.

mod engine;
mod system;

pub use engine::EngineFiles;
pub use system::SystemFiles;

use anyhow::Result;

/// An open directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenDirectory(u64);

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile(u64);

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// It exists; to read.
    Read,
    /// It exists; to read and write.
    Write,
    /// It doesn't exist: `O_CREAT | O_EXCL`.
    New,
    /// Whether it exists or not, it is empty afterwards: `O_CREAT | O_TRUNC`.
    CreateTruncate,
}

/// The calls. Each worker has its own value.
pub trait Files {
    /// The directory that the workload runs in.
    fn root(&self) -> OpenDirectory;

    /// Makes a directory and opens it.
    fn make_directory(&mut self, parent: OpenDirectory, name: &str) -> Result<OpenDirectory>;

    /// Opens a directory.
    fn open_directory(&mut self, parent: OpenDirectory, name: &str) -> Result<OpenDirectory>;

    /// Closes a directory.
    fn close_directory(&mut self, directory: OpenDirectory) -> Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&mut self, parent: OpenDirectory, name: &str) -> Result<()>;

    /// Opens a file.
    fn open(&mut self, parent: OpenDirectory, path: &str, how: Open) -> Result<OpenFile>;

    /// Closes a file.
    fn close(&mut self, file: OpenFile) -> Result<()>;

    /// Removes the name of a file.
    fn unlink(&mut self, parent: OpenDirectory, name: &str) -> Result<()>;

    /// Moves a name.
    fn rename(
        &mut self,
        parent: OpenDirectory,
        name: &str,
        new_parent: OpenDirectory,
        new_name: &str,
    ) -> Result<()>;

    /// Looks up a path and reads the attributes; returns the size.
    fn status(&mut self, parent: OpenDirectory, path: &str) -> Result<u64>;

    /// Lists a directory but for `.` and `..`; the second argument of the callback says whether
    /// the name is a directory's.
    fn list(&mut self, directory: OpenDirectory, visit: &mut dyn FnMut(&str, bool)) -> Result<()>;

    /// Sets the length of a file.
    fn set_length(&mut self, file: OpenFile, length: u64) -> Result<()>;

    /// Gives a range of a file space and extends its size to the range's end.
    fn allocate(&mut self, file: OpenFile, offset: u64, length: u64) -> Result<()>;

    /// Writes all of `data`.
    fn write(&mut self, file: OpenFile, offset: u64, data: &[u8]) -> Result<()>;

    /// Makes content and attributes of a file durable: fsync.
    fn sync_file(&mut self, file: OpenFile) -> Result<()>;

    /// The number of extents of a file, if the target can tell.
    fn extents(&mut self, file: OpenFile) -> Result<Option<u64>>;
}

/// Removes a directory in the root and everything in it.
pub fn remove_tree(files: &mut dyn Files, name: &str) -> Result<()> {
    let root = files.root();
    remove_below(files, root, name)
}

fn remove_below(files: &mut dyn Files, parent: OpenDirectory, name: &str) -> Result<()> {
    let directory = files.open_directory(parent, name)?;
    loop {
        let mut names = Vec::new();
        files.list(directory, &mut |name, is_directory| {
            names.push((name.to_string(), is_directory));
        })?;
        if names.is_empty() {
            break;
        }
        for (name, is_directory) in names {
            if is_directory {
                remove_below(files, directory, &name)?;
            } else {
                files.unlink(directory, &name)?;
            }
        }
    }
    files.close_directory(directory)?;
    files.remove_directory(parent, name)
}
