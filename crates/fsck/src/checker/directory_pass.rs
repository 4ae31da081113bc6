//! The pass over all directories, as its functions see it.

use super::{Directories, DirectoryLink, DirectoryNotes};
use crate::block_set::BlockSet;
use crate::encryption::EncryptionPolicies;
use crate::image::Image;
use crate::inode_states::InodeStates;
use crate::memory::Memory;
use crate::report::Reporter;
use drystone_ext4_format::InodeNumber;

/// The pass over all directories, or over a part of them: what it reads, and what it fills.
pub(crate) struct DirectoryPass<'p, 'r> {
    pub image: &'p Image<'p>,
    pub states: &'p InodeStates,
    pub policies: &'p EncryptionPolicies,
    pub reporter: &'p mut Reporter<'r>,
    pub memory: &'p Memory,
    /// Blocks that were read.
    pub visited: &'p mut BlockSet,
    pub notes: Notes<'p>,
}

/// Where it is noted what entries name.
pub(crate) enum Notes<'p> {
    /// At once: names are counted, and directories get their places.
    AtOnce(&'p mut Directories),
    /// Later, if the part is taken.
    Later(&'p mut DirectoryNotes),
}

impl DirectoryPass<'_, '_> {
    /// Counts a name of an inode.
    pub fn add_name(&mut self, inode: InodeNumber) {
        match &mut self.notes {
            Notes::AtOnce(_) => self.states.add_name(inode),
            Notes::Later(notes) => notes.add_name(inode),
        }
    }

    /// Counts the name that `..` gives a directory's parent, if it exists.
    pub fn add_parent_name(&mut self, parent: InodeNumber) {
        match self.states.is_used(parent) {
            true => self.add_name(parent),
            false => self.note_uncounted(parent),
        }
    }

    /// Notes that an entry names an inode, but isn't counted.
    pub fn note_uncounted(&mut self, inode: InodeNumber) {
        if let Notes::Later(notes) = &mut self.notes {
            notes.add_uncounted(inode);
        }
    }

    /// Whether the policies of a directory and an inode agree.
    pub fn has_policy(&mut self, directory: InodeNumber, inode: InodeNumber) -> bool {
        if let Notes::Later(notes) = &mut self.notes {
            notes.needs_policies = true;
        }
        self.policies.fits(directory, inode)
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
        match &mut self.notes {
            Notes::AtOnce(directories) => link.place(directories, self.reporter),
            Notes::Later(notes) => notes.add_link(self.reporter.count(), link),
        }
    }
}
