//! The access control lists of files in an image.

mod change;
mod words;

pub use change::{AclRequest, MaskRule};
pub use words::{AclWord, parse_additions, parse_removals};

use crate::tree::ImageTree;
use drystone::acl::Acl;
use drystone::vfs::{self, Errno, InodeGuard, SetAttributes, XattrMode};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The two lists of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAcls {
    /// What decides on accesses: the stored list, or what the permission bits stand for.
    pub access: Acl,
    /// What new entries of a directory inherit.
    pub default: Option<Acl>,
}

impl FileAcls {
    /// True if permission bits say all.
    pub fn is_plain(&self) -> bool {
        self.access.equivalent_mode().is_some() && self.default.is_none()
    }

    /// Those of a file.
    pub fn load(tree: &ImageTree<'_>, node: &InodeGuard<'_>) -> vfs::Result<FileAcls> {
        let access = stored(tree, node, ACCESS)?;
        let access = access.unwrap_or_else(|| Acl::from_mode(node.attributes().permissions));
        let default = if node.is_directory() { stored(tree, node, DEFAULT)? } else { None };
        Ok(FileAcls { access, default })
    }

    /// Gives the file, which has the lists `before`, these ones.
    pub fn store(
        &self,
        tree: &ImageTree<'_>,
        node: &InodeGuard<'_>,
        before: &FileAcls,
    ) -> vfs::Result<()> {
        let (file_system, context) = (tree.file_system, &tree.context);
        let set = |name, list: &Acl| {
            let value = list.to_attribute();
            file_system.set_xattr(context, node.inode(), name, &value, XattrMode::Set)
        };
        if self.access != before.access {
            match (self.access.equivalent_mode(), before.access.equivalent_mode()) {
                // A file system without lists can do this too.
                (Some(mode), Some(_)) => {
                    let permissions = Some(node.attributes().permissions & !0o777 | mode);
                    let changes = SetAttributes { permissions, ..SetAttributes::default() };
                    file_system.set_attributes(context, node.inode(), &changes)?;
                }
                _ => set(ACCESS, &self.access)?,
            }
        }
        match (&self.default, &before.default) {
            (after, before) if after == before => Ok(()),
            (Some(list), _) => set(DEFAULT, list),
            (None, _) => file_system.remove_xattr(context, node.inode(), DEFAULT),
        }
    }
}

/// A list that is stored; none also where the file system has none.
fn stored(tree: &ImageTree<'_>, node: &InodeGuard<'_>, name: &[u8]) -> vfs::Result<Option<Acl>> {
    match tree.file_system.xattr(&tree.context, node.inode(), name) {
        Ok(value) => Acl::from_attribute(&value)
            .map(Some)
            .map_err(|problem| vfs::Error::with_detail(Errno::EUCLEAN, problem.to_string())),
        Err(error) if matches!(error.errno, Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}
