//! An inode of the model.

use std::collections::BTreeMap;

use drystone_vfs::{Errno, FileType, InodeAttributes, InodeNumber, Result};

use super::acl::ModelAcl;
use super::content::SparseContent;

/// Everything about one inode.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// `size` and `sectors` are filled in from the content when asked for.
    pub attributes: InodeAttributes,
    /// How many references callers hold.
    pub references: u64,
    /// Made without a name, which `link` may still give it.
    pub nameable: bool,
    pub kind: ModelNodeKind,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub access_acl: Option<ModelAcl>,
    pub default_acl: Option<ModelAcl>,
}

#[derive(Clone, Debug)]
pub(super) enum ModelNodeKind {
    Regular(SparseContent),
    Directory(Directory),
    Symlink(Vec<u8>),
    Special,
}

#[derive(Clone, Debug)]
pub(super) struct Directory {
    pub parent: InodeNumber,
    pub entries: BTreeMap<Vec<u8>, Link>,
    /// A directory that was removed while referenced: nothing can be made in it.
    pub removed: bool,
}

/// A directory entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub inode: InodeNumber,
    /// Rises with every new name, so that a listing can resume after it.
    pub cookie: u64,
}

impl Node {
    pub(super) fn file_type(&self) -> FileType {
        self.attributes.file_type
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self.kind, ModelNodeKind::Directory(_))
    }

    pub(super) fn directory(&self) -> Result<&Directory> {
        match &self.kind {
            ModelNodeKind::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.kind {
            ModelNodeKind::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    /// The content of a regular file; `EISDIR` or `EINVAL` for other types.
    pub(super) fn content(&self) -> Result<&SparseContent> {
        match &self.kind {
            ModelNodeKind::Regular(content) => Ok(content),
            ModelNodeKind::Directory(_) => Err(Errno::EISDIR.into()),
            ModelNodeKind::Symlink(_) | ModelNodeKind::Special => Err(Errno::EINVAL.into()),
        }
    }

    pub(super) fn content_mut(&mut self) -> Result<&mut SparseContent> {
        match &mut self.kind {
            ModelNodeKind::Regular(content) => Ok(content),
            ModelNodeKind::Directory(_) => Err(Errno::EISDIR.into()),
            ModelNodeKind::Symlink(_) | ModelNodeKind::Special => Err(Errno::EINVAL.into()),
        }
    }

    /// The attributes as callers see them.
    pub(super) fn shown(&self) -> InodeAttributes {
        let mut shown = self.attributes;
        match &self.kind {
            ModelNodeKind::Regular(content) => {
                shown.size = content.size();
                shown.sectors = content.blocks_used() * u64::from(shown.block_size) / 512;
            }
            ModelNodeKind::Directory(_) => shown.size = u64::from(shown.block_size),
            ModelNodeKind::Symlink(target) => shown.size = target.len() as u64,
            ModelNodeKind::Special => {}
        }
        shown
    }
}
