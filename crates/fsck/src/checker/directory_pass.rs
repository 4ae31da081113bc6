//! The pass over all directories, as its functions see it, and the links that place directories in the tree.

use super::Directories;
use crate::block_set::BlockSet;
use crate::encryption::EncryptionPolicies;
use crate::image::Image;
use crate::inode_states::InodeStates;
use crate::issue::{InodeIssue, Issue};
use crate::memory::Memory;
use crate::report::Reporter;
use drystone_ext4_format::InodeNumber;

/// Links of directories that a part keeps. A sound image has two for each directory.
pub(crate) const PART_LINKS_MAX: usize = 1 << 14;

/// The pass over all directories, or over a part of them: what it reads, and what it fills.
pub(crate) struct DirectoryPass<'p, 'r> {
    pub image: &'p Image<'p>,
    pub states: &'p InodeStates,
    pub policies: &'p EncryptionPolicies,
    pub reporter: &'p mut Reporter<'r>,
    pub memory: &'p Memory,
    /// Blocks that were read.
    pub visited: &'p mut BlockSet,
    pub places: Places<'p>,
    /// Whether names were counted before, and all that is left to do is to report and to place.
    pub is_counted: bool,
}

/// Where it is noted how directories are linked.
pub(crate) enum Places<'p> {
    Known(&'p mut Directories),
    /// In a part: each link with the number of problems that were reported before it.
    Kept(&'p mut Vec<(usize, DirectoryLink)>),
}

/// An entry that places a directory in the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DirectoryLink {
    /// The `..` of a directory.
    Up { directory: InodeNumber, parent: InodeNumber },
    /// A name of a directory.
    Down { parent: InodeNumber, directory: InodeNumber },
}

impl DirectoryLink {
    /// Places the directory; a second name is reported.
    pub fn place(self, directories: &mut Directories, reporter: &mut Reporter<'_>) {
        match self {
            DirectoryLink::Up { directory, parent } => {
                if let Some(found) = directories.get_mut(directory) {
                    found.dotdot = parent.get();
                }
            }
            DirectoryLink::Down { parent, directory } => {
                let Some(found) = directories.get_mut(directory) else { return };
                if found.parent == 0 {
                    found.parent = parent.get();
                    return;
                }
                let (first, second) = (InodeNumber::new(found.parent), parent);
                let issue = InodeIssue::SecondParent { first, second };
                reporter.report(Issue::Inode { inode: directory, issue });
            }
        }
    }
}

impl DirectoryPass<'_, '_> {
    /// Counts a name of an inode.
    pub fn add_name(&self, inode: InodeNumber) {
        if !self.is_counted {
            self.states.add_name(inode);
        }
    }

    /// Notes the `..` of a directory.
    pub fn set_dotdot(&mut self, directory: InodeNumber, parent: InodeNumber) {
        self.link(DirectoryLink::Up { directory, parent });
    }

    /// Notes a name of a directory, which may have only one.
    pub fn add_child(&mut self, parent: InodeNumber, directory: InodeNumber) {
        self.link(DirectoryLink::Down { parent, directory });
    }

    fn link(&mut self, link: DirectoryLink) {
        match &mut self.places {
            Places::Known(directories) => link.place(directories, self.reporter),
            Places::Kept(links) if links.len() < PART_LINKS_MAX => {
                links.push((self.reporter.report.problems.len(), link));
            }
            // The part is examined once more.
            Places::Kept(_) => {}
        }
    }
}
