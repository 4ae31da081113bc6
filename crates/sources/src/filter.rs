//! Changes of a whole tree, whatever its sources.

use crate::list::LineError;
use crate::manifest::Manifest;
use drystone_ext4_format::acl::with_other_ids;
use drystone_mkfs::tree::{FileTree, InodeTimestamp, TreeNodeId};
use drystone_vfs::{Exclude, OwnerMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Changes all owners in a tree.
fn change_owners(tree: &mut FileTree, map: &OwnerMap) {
    if map.is_empty() {
        return;
    }
    tree.change_metadata(|metadata| {
        (metadata.user, metadata.group) = map.owners(metadata.user, metadata.group);
        for xattr in &mut metadata.xattrs {
            if let Some(value) =
                with_other_ids(&xattr.name, &xattr.value, |id| map.user(id), |id| map.group(id))
            {
                xattr.value = value;
            }
        }
    });
}

/// The changes of a tree once all sources are in it.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// What is left out.
    pub exclude: Exclude,
    /// Other owners.
    pub owners: OwnerMap,
    /// Manifests to apply, in this order.
    pub manifests: Vec<Manifest>,
    /// The latest time that anything may have.
    pub latest: Option<InodeTimestamp>,
}

impl Changes {
    /// Changes a tree: removes what is excluded, then changes owners, then applies manifests, then
    /// limits times.
    ///
    /// # Errors
    /// A manifest doesn't fit the tree.
    pub fn apply(&self, tree: &mut FileTree) -> Result<(), LineError> {
        remove_excluded(tree, &self.exclude);
        change_owners(tree, &self.owners);
        self.manifests.iter().try_for_each(|manifest| manifest.apply(tree))?;
        if let Some(latest) = self.latest {
            tree.clamp_times(latest);
        }
        Ok(())
    }
}

/// Removes excluded entries from a tree, with everything below them.
fn remove_excluded(tree: &mut FileTree, exclude: &Exclude) {
    if exclude.is_empty() {
        return;
    }
    let mut removed = Vec::new();
    let mut directories = vec![(TreeNodeId::ROOT, Vec::new())];
    while let Some((directory, path)) = directories.pop() {
        for (name, node) in tree.children(directory) {
            let path = || crate::layer::below(&path, name);
            if exclude.covers(name, || PathBuf::from(OsString::from_vec(path()))) {
                removed.push((directory, name.to_vec()));
            } else if tree.parent(node).is_some() {
                directories.push((node, path()));
            }
        }
    }
    for (directory, name) in removed {
        tree.remove_in(directory, &name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_ext4_format::acl::{Acl, AclEntry, AclTag};
    use drystone_mkfs::tree::{NodeContent, NodeMetadata, NodeToInsert, Xattr};
    use drystone_vfs::IdRange;

    #[test]
    fn owners_change_in_lists_too() {
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let list = |named: [AclTag; 2]| {
            let mut entries = vec![entry(AclTag::Owner, 7), entry(AclTag::OwningGroup, 5)];
            entries.extend(named.map(|tag| entry(tag, 4)));
            entries.extend([entry(AclTag::Mask, 7), entry(AclTag::Other, 0)]);
            entries.sort_by_key(|entry| entry.tag);
            Acl::new(entries).expect("valid").to_attribute()
        };
        let named = [AclTag::User(1), AclTag::Group(1)];
        let mut metadata = NodeMetadata::new(0o750, 1, 2);
        let name = b"system.posix_acl_access".to_vec();
        metadata.xattrs.push(Xattr { name, value: list(named) });
        let mut tree = FileTree::new();
        let new = NodeToInsert::File(NodeContent::Bytes(b"x".to_vec()));
        let node = tree.insert(b"a", new, &metadata, InodeTimestamp::default()).expect("valid");
        let ranges = |text| vec![IdRange::parse(text).expect("valid")];
        let (users, groups) = (ranges("1:11"), ranges("1:21:2"));
        change_owners(&mut tree, &OwnerMap { all: None, users, groups });
        let changed = tree.node(node).metadata();
        assert_eq!((changed.user, changed.group), (11, 22));
        assert_eq!(changed.xattrs[0].value, list([AclTag::User(11), AclTag::Group(21)]));
        change_owners(&mut tree, &OwnerMap { all: Some((0, 3)), ..OwnerMap::default() });
        assert_eq!((tree.node(node).metadata().user, tree.node(node).metadata().group), (0, 3));
    }

    #[test]
    fn what_is_excluded_goes_with_all_in_it() {
        let mut tree = FileTree::new();
        for path in ["a/b/c.o", "a/b/c.c", "usr/doc/x/y", "keep/doc/z"] {
            let new = NodeToInsert::File(NodeContent::Bytes(Vec::new()));
            let about = NodeMetadata::default();
            tree.insert(path.as_bytes(), new, &about, InodeTimestamp::default()).expect("valid");
        }
        remove_excluded(&mut tree, &Exclude::new(["*.o", "/usr/doc"].map(OsString::from)));
        let is_there = |path: &str| tree.lookup(path.as_bytes()).is_some();
        assert_eq!(
            ["a/b/c.o", "a/b/c.c", "usr/doc", "usr", "keep/doc/z"].map(is_there),
            [false, true, false, true, true]
        );
    }
}
