//! What all sources of one image share.

use crate::archive::Opener;
use crate::choice::Choice;
use crate::exclude::Exclude;
use crate::host_files::HostFiles;
use crate::warnings::Warnings;

/// What is needed to read sources, and what they leave behind.
#[derive(Debug)]
pub struct SourceContext {
    /// Opens archives.
    pub opener: Opener,
    /// Which image of a layout.
    pub choice: Choice,
    /// What isn't looked at in directories. What archives have of it is there until
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
