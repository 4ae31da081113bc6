//! Resolves the paths of entries below the directory that the archive is unpacked into, and makes entries under names
//! that may be taken.

use crate::replace::{beside, private_permissions};
use crate::transfer::folded_names::FoldedNames;
use drystone_vfs::{
    Errno, FileSystem, FileType, FollowedLinks, InodeGuard, InodeNumber, NewNode, OpenFlags,
    RenameFlags, RequestContext, Result,
};
use std::collections::VecDeque;

/// Longest path of an entry, as of a system call. Each directory of it is held open on the way.
const PATH_BYTES_MAX: usize = 4096;
/// Permissions of directories that an archive has entries in, but doesn't have itself.
const PARENT_PERMISSIONS: u16 = 0o755;

/// What becomes of missing directories of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    AreMade,
    AreErrors,
}

/// The directory that an archive is unpacked into, and who does it.
pub(super) struct Places<'f> {
    pub file_system: &'f dyn FileSystem,
    pub context: &'f RequestContext,
    /// What archives take for the root.
    pub top: InodeGuard<'f>,
    /// The names that the archive has in directories that compare names without case.
    pub folded: FoldedNames,
}

impl<'f> Places<'f> {
    /// The directory at a path of the archive.
    pub fn directory_at(&mut self, path: &[u8], missing: Missing) -> Result<InodeGuard<'f>> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let file_system = self.file_system;
        // The directories that were entered, below the top.
        let mut entered: Vec<InodeGuard<'f>> = Vec::new();
        let parts = |path: &[u8]| path.split(|&byte| byte == b'/').map(<[u8]>::to_vec).collect();
        let mut rest: VecDeque<Vec<u8>> = parts(path);
        let mut links = FollowedLinks::default();
        // How many names at the front come from a symbolic link, which may spell them as it likes.
        let mut of_links = 0_usize;
        while let Some(name) = rest.pop_front() {
            let is_of_link = of_links > 0;
            of_links = of_links.saturating_sub(1);
            match &name[..] {
                b"" | b"." => continue,
                b".." => {
                    entered.pop();
                    continue;
                }
                _ => {}
            }
            let directory = entered.last().unwrap_or(&self.top).inode();
            if !is_of_link {
                self.note_name(directory, &name)?;
            }
            let found = match self.look_up(directory, &name)? {
                Some(found) => found,
                None if missing == Missing::AreErrors => return Err(Errno::ENOENT.into()),
                None => {
                    let (context, node) = (self.context, NewNode::Directory);
                    let made =
                        file_system.create(context, directory, &name, node, PARENT_PERMISSIONS)?;
                    InodeGuard::new(file_system, made)
                }
            };
            match found.attributes().file_type {
                FileType::Directory => entered.push(found),
                FileType::Symlink => {
                    let target = links.target(file_system, &found)?;
                    if target.first() == Some(&b'/') {
                        entered.clear();
                    }
                    let mut target: VecDeque<Vec<u8>> = parts(&target);
                    of_links += target.len();
                    target.append(&mut rest);
                    rest = target;
                }
                _ => return Err(Errno::ENOTDIR.into()),
            }
        }
        match entered.pop() {
            Some(directory) => Ok(directory),
            None => {
                let (superuser, top) = (RequestContext::superuser(), self.top.inode());
                let again = file_system.open(&superuser, top, OpenFlags::empty())?;
                Ok(InodeGuard::new(file_system, again))
            }
        }
    }

    /// Notes a name that the archive has in a directory. Fails if it has another spelling of it there, which
    /// the directory takes for the same.
    pub fn note_name(&mut self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        match self.file_system.folded_name(directory, name)? {
            Some(folded) => self.folded.note(directory, folded, name),
            None => Ok(()),
        }
    }

    /// The entry of a name, if there is one.
    pub fn look_up(&self, directory: InodeNumber, name: &[u8]) -> Result<Option<InodeGuard<'f>>> {
        let file_system = self.file_system;
        match file_system.lookup(self.context, directory, name) {
            Ok(found) => Ok(Some(InodeGuard::new(file_system, found))),
            Err(error) if error.errno == Errno::ENOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes an entry that only its owner may use until it is complete.
    pub fn make(
        &self,
        directory: InodeNumber,
        name: &[u8],
        node: NewNode<'_>,
    ) -> Result<InodeGuard<'f>> {
        let (file_system, permissions) = (self.file_system, private_permissions(node));
        let made = file_system.create(self.context, directory, name, node, permissions)?;
        Ok(InodeGuard::new(file_system, made))
    }

    /// Makes a directory, in place of anything else.
    pub fn new_directory(&self, parent: InodeNumber, name: &[u8]) -> Result<()> {
        let (file_system, context) = (self.file_system, self.context);
        let (made_as, _) = beside(name, |name| self.make(parent, name, NewNode::Directory))?;
        if made_as == name {
            return Ok(());
        }
        // A directory is renamed over nothing but directories: the two exchange their names, and the old entry goes.
        let rename = |flags| file_system.rename(context, parent, &made_as, parent, name, flags);
        let settled = match rename(RenameFlags::EXCHANGE) {
            Ok(()) => return file_system.unlink(context, parent, &made_as),
            // This file system exchanges no names.
            Err(error) if error.errno == Errno::EINVAL => file_system
                .unlink(context, parent, name)
                .and_then(|()| rename(RenameFlags::empty())),
            Err(error) => Err(error),
        };
        if settled.is_err() {
            // What went wrong before is what is told.
            let _ = file_system.remove_directory(context, parent, &made_as);
        }
        settled
    }
}

/// The directory and the name of a path of the archive.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}
