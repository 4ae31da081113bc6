//! Changes of a whole tree, whatever its sources.

use crate::bytes::decimal;
use crate::list::LineError;
use crate::manifest::Manifest;
use drystone_ext4_format::acl::{Acl, AclEntry, AclTag};
use drystone_mkfs::tree::{FileTree, InodeTimestamp, NodeMetadata, TreeNodeId};
use drystone_vfs::Exclude;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A mapping of a range of user or group numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    from: u32,
    to: u32,
    count: u32,
}

impl IdRange {
    /// Reads `FROM:TO` or `FROM:TO:COUNT`.
    #[must_use]
    pub fn parse(text: &str) -> Option<IdRange> {
        let numbers: Vec<u32> = text
            .split(':')
            .map(|number| decimal(number.as_bytes())?.try_into().ok())
            .collect::<Option<_>>()?;
        let (from, to, count) = match numbers[..] {
            [from, to] => (from, to, 1),
            [from, to, count] => (from, to, count),
            _ => return None,
        };
        // The highest number means no id.
        let fits = |first: u32| first.checked_add(count).is_some();
        (count > 0 && fits(from) && fits(to)).then_some(IdRange { from, to, count })
    }

    fn map(ranges: &[IdRange], id: u32) -> u32 {
        let mapped = ranges.iter().find_map(|range| {
            let offset = id.checked_sub(range.from).filter(|&offset| offset < range.count)?;
            Some(range.to + offset)
        });
        mapped.unwrap_or(id)
    }
}

/// Other owners for everything.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// One user and group for all files.
    pub all: Option<(u32, u32)>,
    /// User mappings, also for access control lists; the first matching range counts.
    pub users: Vec<IdRange>,
    /// Other groups, in the same way.
    pub groups: Vec<IdRange>,
}

impl Owners {
    /// Changes all owners in a tree.
    pub fn apply(&self, tree: &mut FileTree) {
        if self.all.is_some() || !self.users.is_empty() || !self.groups.is_empty() {
            tree.change_metadata(|metadata| self.change(metadata));
        }
    }

    fn change(&self, metadata: &mut NodeMetadata) {
        metadata.user = IdRange::map(&self.users, metadata.user);
        metadata.group = IdRange::map(&self.groups, metadata.group);
        if let Some((user, group)) = self.all {
            (metadata.user, metadata.group) = (user, group);
        }
        for xattr in &mut metadata.xattrs {
            if xattr.name.starts_with(b"system.posix_acl_")
                && let Ok(list) = Acl::from_attribute(&xattr.value)
                && let Some(changed) = self.map_list(&list)
            {
                xattr.value = changed.to_attribute();
            }
        }
    }

    /// The list with its users and groups mapped.
    fn map_list(&self, list: &Acl) -> Option<Acl> {
        let map = |entry: &AclEntry| {
            let tag = match entry.tag {
                AclTag::User(id) => AclTag::User(IdRange::map(&self.users, id)),
                AclTag::Group(id) => AclTag::Group(IdRange::map(&self.groups, id)),
                same => same,
            };
            AclEntry { tag, ..*entry }
        };
        let mut entries: Vec<AclEntry> = list.entries().iter().map(map).collect();
        entries.sort_by_key(|entry| entry.tag);
        Acl::new(entries).ok()
    }
}

/// The changes of a tree once all sources are in it.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// What is left out.
    pub exclude: Exclude,
    /// Other owners.
    pub owners: Owners,
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
        self.owners.apply(tree);
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
    use drystone_mkfs::tree::{NodeContent, NodeToInsert, Xattr};

    #[test]
    fn ranges() {
        let ranges =
            ["0:100000:65536", "70000:5", "0:7"].map(|it| IdRange::parse(it).expect("valid"));
        for (id, mapped) in [(0, 100_000), (65_535, 165_535), (65_536, 65_536), (70_000, 5)] {
            assert_eq!(IdRange::map(&ranges, id), mapped);
        }
        for text in ["", "1", "1:2:0", "1:2:3:4", "a:b", "4294967295:0", "0:4294967290:10", "-1:0"]
        {
            assert_eq!(IdRange::parse(text), None, "{text}");
        }
    }

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
        let users = vec![IdRange { from: 1, to: 11, count: 1 }];
        let groups = vec![IdRange { from: 1, to: 21, count: 2 }];
        Owners { all: None, users, groups }.apply(&mut tree);
        let changed = tree.node(node).metadata();
        assert_eq!((changed.user, changed.group), (11, 22));
        assert_eq!(changed.xattrs[0].value, list([AclTag::User(11), AclTag::Group(21)]));
        Owners { all: Some((0, 3)), ..Owners::default() }.apply(&mut tree);
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
