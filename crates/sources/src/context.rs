//! The state that all sources of one image share.

use crate::archive::Opener;
#[cfg(feature = "oci")]
use crate::choice::Choice;
use crate::host_files::HostFiles;
use crate::warnings::Warnings;
use drystone_sync::thread;
use drystone_vfs::Exclude;

/// What reading sources needs, and what it collects.
#[derive(Debug)]
#[non_exhaustive]
pub struct SourceContext {
    /// Opens archives.
    pub opener: Opener,
    /// The image of a layout to use.
    #[cfg(feature = "oci")]
    pub choice: Choice,
    /// Entries of directories to skip. Such entries of archives stay until
    /// [`Changes`](crate::Changes) are applied.
    pub exclude: Exclude,
    /// Threads that read directories.
    pub threads: usize,
    /// Whether directories of other file systems are taken as empty.
    pub one_file_system: bool,
    /// What was left out so far.
    pub warnings: Warnings,
    /// Files that go into the tree one by one. A tree has its own.
    pub files: HostFiles,
}

impl SourceContext {
    /// Everything of the sources, read by one thread for each core.
    #[must_use]
    pub fn new(opener: Opener) -> SourceContext {
        SourceContext {
            opener,
            #[cfg(feature = "oci")]
            choice: Choice::default(),
            exclude: Exclude::default(),
            threads: thread::available_parallelism().map_or(1, usize::from),
            one_file_system: false,
            warnings: Warnings::default(),
            files: HostFiles::default(),
        }
    }
}
