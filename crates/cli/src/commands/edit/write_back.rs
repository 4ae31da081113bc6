//! The new content of an edited file, with all else that the file had.

use super::EditedFile;
use crate::failure::Outcome;
use crate::flags;
use crate::tree::ImageTree;
use drystone::replace;
use drystone::vfs::{
    self, Errno, FallocateMode, InodeAttributes, InodeGuard, InodeNumber, NewNode, SetAttributes,
    XattrMode,
};
use std::os::unix::ffi::OsStrExt;

/// Permissions of a file that wasn't there.
const NEW_PERMISSIONS: u16 = 0o644;

impl EditedFile {
    /// Stores the new content. Fails if the file was changed since it was read.
    pub fn write_back(&self, tree: &ImageTree<'_>, content: &[u8]) -> Outcome {
        let bytes = self.path.as_os_str().as_bytes();
        let problem = |error| tree.error(bytes, &error);
        let (directory, name) = tree.find_parent(&self.path)?;
        let now = tree.child(directory.inode(), name).map_err(problem)?;
        let identity = |found: &InodeAttributes| (found.inode, found.changed, found.size);
        if now.as_ref().map(|now| identity(now.attributes()))
            != self.attributes.as_ref().map(identity)
        {
            return Err(tree.error(bytes, &"was changed by others meanwhile").into());
        }
        match &now {
            None => {
                make(tree, directory.inode(), name, content, None).map_err(problem)?;
            }
            Some(old) if old.attributes().links > 1 => {
                overwrite(tree, old, content).map_err(problem)?;
            }
            Some(old) => {
                replace(tree.file_system, &tree.context, directory.inode(), name, &|other| {
                    make(tree, directory.inode(), other, content, Some(old))
                })
                .map_err(problem)?;
            }
        }
        Ok(())
    }
}

/// Makes a file with this content and all else that `old` has. It is durable then.
fn make<'a>(
    tree: &ImageTree<'a>,
    directory: InodeNumber,
    name: &[u8],
    content: &[u8],
    old: Option<&InodeGuard<'_>>,
) -> vfs::Result<InodeGuard<'a>> {
    let (file_system, context, node) = (tree.file_system, &tree.context, NewNode::Regular);
    // Until it is complete nobody else reads it.
    let permissions = if old.is_some() { 0o600 } else { NEW_PERMISSIONS };
    let made = InodeGuard::create(file_system, context, directory, name, node, permissions)?;
    let filled = file_system
        .write_all(context, made.inode(), 0, content)
        .and_then(|()| old.map_or(Ok(()), |old| copy_metadata(tree, old, made.inode())))
        .and_then(|()| file_system.sync_inode(made.inode(), false));
    if let Err(error) = filled {
        // What went wrong first is what is told.
        let _ = file_system.unlink(context, directory, name);
        return Err(error);
    }
    Ok(made)
}

/// Gives a new file what the old one has but for content and times.
fn copy_metadata(tree: &ImageTree<'_>, old: &InodeGuard<'_>, new: InodeNumber) -> vfs::Result<()> {
    let (file_system, context) = (tree.file_system, &tree.context);
    let attributes = old.attributes();
    let owner = SetAttributes {
        user: Some(attributes.user),
        group: Some(attributes.group),
        ..SetAttributes::default()
    };
    file_system.set_attributes(context, new, &owner)?;
    let names = |inode| match file_system.list_xattrs(context, inode) {
        Err(error) if error.errno == Errno::EOPNOTSUPP => Ok(Vec::new()),
        names => names,
    };
    let old_names = names(old.inode())?;
    // What it has inherited from its directory.
    for name in names(new)?.iter().filter(|name| !old_names.contains(name)) {
        file_system.remove_xattr(context, new, name)?;
    }
    // After the owner: changing that drops a file's capabilities.
    for name in &old_names {
        let value = file_system.xattr(context, old.inode(), name)?;
        file_system.set_xattr(context, new, name, &value, XattrMode::Set)?;
    }
    let fresh = file_system.attributes(new)?;
    let rest = SetAttributes {
        permissions: Some(attributes.permissions),
        flags: changed(flags::copied(attributes.flags, fresh.flags), fresh.flags),
        project: changed(attributes.project, fresh.project),
        created: attributes.created,
        ..SetAttributes::default()
    };
    file_system.set_attributes(context, new, &rest).map(drop)
}

/// What is to be set, if it isn't so already: file systems don't have all.
fn changed<T: PartialEq>(wanted: T, there: T) -> Option<T> {
    if wanted == there { None } else { Some(wanted) }
}

/// Replaces the content in place. The space is reserved first, so that a full image keeps the old one.
fn overwrite(tree: &ImageTree<'_>, old: &InodeGuard<'_>, content: &[u8]) -> vfs::Result<()> {
    let (file_system, context) = (tree.file_system, &tree.context);
    let length = content.len() as u64;
    if length > 0 {
        let mode = FallocateMode::Allocate { keep_size: true };
        match file_system.fallocate(context, old.inode(), mode, 0, length) {
            Err(error) if error.errno != Errno::EOPNOTSUPP => return Err(error),
            _ => {}
        }
    }
    file_system.write_all(context, old.inode(), 0, content)?;
    let changes = SetAttributes { size: Some(length), ..SetAttributes::default() };
    file_system.set_attributes(context, old.inode(), &changes)?;
    file_system.sync_inode(old.inode(), false)
}
