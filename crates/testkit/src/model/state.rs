//! All inodes of the model and the steps that operations are made of.

use std::collections::BTreeMap;

use drystone_vfs::{
    Access, DeviceNumber, Entry, Errno, FileFlags, FileType, InodeAttributes, InodeNumber,
    NAME_LENGTH_MAX, RequestContext, Result, Timestamp,
};

use super::Configuration;
use super::node::{Directory, Link, ModelNodeKind, Node};
use super::permission;

/// The root directory's number, as ext4 has it.
pub(super) const ROOT: InodeNumber = InodeNumber(2);
/// Cookies 1 and 2 belong to `.` and `..`.
const COOKIE_FIRST: u64 = 3;
/// The first number that isn't reserved, as ext4 has it.
const INODE_FIRST: u64 = 11;

#[derive(Clone, Debug)]
pub(super) struct ModelState {
    pub configuration: Configuration,
    pub nodes: BTreeMap<InodeNumber, Node>,
    pub now: Timestamp,
    pub frozen: bool,
    /// Blocks that all files have, for the limit on space.
    pub blocks_used: u64,
    inode_next: u64,
    cookie_next: u64,
}

impl ModelState {
    pub(super) fn new(configuration: Configuration) -> ModelState {
        let mut state = ModelState {
            configuration,
            nodes: BTreeMap::new(),
            now: Timestamp { seconds: 1_000_000_000, nanoseconds: 0 },
            frozen: false,
            blocks_used: 0,
            inode_next: INODE_FIRST,
            cookie_next: COOKIE_FIRST,
        };
        let kind = ModelNodeKind::Directory(Directory {
            parent: ROOT,
            entries: BTreeMap::new(),
            removed: false,
        });
        let mut root = state.new_node(FileType::Directory, kind);
        root.attributes.inode = ROOT;
        root.attributes.links = 2;
        root.attributes.permissions = 0o755;
        state.nodes.insert(ROOT, root);
        state
    }

    /// An inode with a new number, owned by the superuser, without permissions.
    pub(super) fn new_node(&mut self, file_type: FileType, kind: ModelNodeKind) -> Node {
        let inode = InodeNumber(self.inode_next);
        self.inode_next += 1;
        let now = self.configuration.clamp_time(self.now);
        Node {
            attributes: InodeAttributes {
                inode,
                generation: 0,
                file_type,
                permissions: 0,
                links: 0,
                user: 0,
                group: 0,
                project: 0,
                size: 0,
                sectors: 0,
                block_size: self.configuration.block_size,
                device: DeviceNumber::default(),
                accessed: now,
                modified: now,
                changed: now,
                created: self.configuration.nanoseconds.then_some(now),
                flags: FileFlags::empty(),
            },
            references: 0,
            nameable: false,
            kind,
            xattrs: BTreeMap::new(),
            access_acl: None,
            default_acl: None,
        }
    }

    pub(super) fn node(&self, inode: InodeNumber) -> Result<&Node> {
        self.nodes.get(&inode).ok_or(Errno::ESTALE.into())
    }

    pub(super) fn node_mut(&mut self, inode: InodeNumber) -> Result<&mut Node> {
        self.nodes.get_mut(&inode).ok_or(Errno::ESTALE.into())
    }

    /// One more reference for a caller.
    pub(super) fn entry(&mut self, inode: InodeNumber) -> Result<Entry> {
        let node = self.node_mut(inode)?;
        node.references += 1;
        Ok(node.shown())
    }

    /// A directory that a name in it is to be looked up in.
    pub(super) fn searched(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
    ) -> Result<&Directory> {
        let node = self.node(parent)?;
        let directory = node.directory()?;
        permission::check(node, context, Access::EXECUTE)?;
        Ok(directory)
    }

    /// Finds a name in a directory that may be searched.
    pub(super) fn find(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<Option<InodeNumber>> {
        let directory = self.searched(context, parent)?;
        if directory.removed || name.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        if name.len() > NAME_LENGTH_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        if name.iter().any(|&byte| byte == b'/' || byte == 0) {
            return Err(Errno::EINVAL.into());
        }
        Ok(directory.entries.get(name).map(|link| link.inode))
    }

    /// Finds a name that has to be there.
    pub(super) fn find_existing(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<InodeNumber> {
        self.find(context, parent, name)?.ok_or(Errno::ENOENT.into())
    }

    /// Sets the times of an inode whose content has changed.
    pub(super) fn touch_content(&mut self, inode: InodeNumber) -> Result<()> {
        let now = self.configuration.clamp_time(self.now);
        let node = self.node_mut(inode)?;
        node.attributes.modified = now;
        node.attributes.changed = now;
        Ok(())
    }

    /// Sets the time of an inode whose attributes have changed.
    pub(super) fn touch_attributes(&mut self, inode: InodeNumber) -> Result<()> {
        let now = self.configuration.clamp_time(self.now);
        self.node_mut(inode)?.attributes.changed = now;
        Ok(())
    }

    /// Makes a name refer to an inode; an existing name keeps its place in listings.
    pub(super) fn set_link(
        &mut self,
        parent: InodeNumber,
        name: &[u8],
        inode: InodeNumber,
    ) -> Result<()> {
        let cookie_new = self.cookie_next;
        self.cookie_next += 1;
        let entries = &mut self.node_mut(parent)?.directory_mut()?.entries;
        let cookie = entries.get(name).map_or(cookie_new, |link| link.cookie);
        entries.insert(name.to_vec(), Link { inode, cookie });
        self.touch_content(parent)
    }

    /// Takes a name out of a directory.
    pub(super) fn remove_link(&mut self, parent: InodeNumber, name: &[u8]) -> Result<()> {
        self.node_mut(parent)?.directory_mut()?.entries.remove(name);
        self.touch_content(parent)
    }

    /// True if a directory can't have one more subdirectory.
    pub(super) fn is_full_of_directories(&self, parent: InodeNumber) -> Result<bool> {
        let links = self.node(parent)?.attributes.links;
        Ok(links >= self.configuration.links_max && !self.configuration.directory_links_unlimited)
    }

    /// A directory gets one more subdirectory.
    pub(super) fn count_subdirectory(&mut self, parent: InodeNumber) -> Result<()> {
        let links_max = self.configuration.links_max;
        let attributes = &mut self.node_mut(parent)?.attributes;
        // 1 means that subdirectories are no longer counted; it stays so.
        if attributes.links != 1 {
            attributes.links += 1;
        }
        if attributes.links > links_max {
            attributes.links = 1;
        }
        Ok(())
    }

    /// A directory has one subdirectory fewer.
    pub(super) fn uncount_subdirectory(&mut self, parent: InodeNumber) -> Result<()> {
        let attributes = &mut self.node_mut(parent)?.attributes;
        if attributes.links > 2 {
            attributes.links -= 1;
        }
        Ok(())
    }

    /// An inode lost a name: a directory its only one, other inodes one of perhaps many.
    pub(super) fn drop_name(&mut self, inode: InodeNumber) -> Result<()> {
        self.touch_attributes(inode)?;
        let node = self.node_mut(inode)?;
        match &mut node.kind {
            ModelNodeKind::Directory(directory) => {
                directory.removed = true;
                node.attributes.links = 0;
            }
            _ => node.attributes.links -= 1,
        }
        self.delete_if_unused(inode);
        Ok(())
    }

    /// Forgets an inode that has neither names nor references.
    pub(super) fn delete_if_unused(&mut self, inode: InodeNumber) {
        let unused = |node: &Node| node.attributes.links == 0 && node.references == 0;
        if self.nodes.get(&inode).is_some_and(unused)
            && let Some(Node { kind: ModelNodeKind::Regular(content), .. }) =
                self.nodes.remove(&inode)
        {
            self.blocks_used -= content.blocks_used();
        }
    }

    /// True if `inner` is `outer` or somewhere below it.
    pub(super) fn is_inside(&self, inner: InodeNumber, outer: InodeNumber) -> Result<bool> {
        let mut here = inner;
        loop {
            if here == outer {
                return Ok(true);
            }
            if here == ROOT {
                return Ok(false);
            }
            here = self.node(here)?.directory()?.parent;
        }
    }

    /// Blocks that may still be given to files.
    pub(super) fn blocks_left(&self) -> u64 {
        let block_size = u64::from(self.configuration.block_size);
        self.configuration
            .space_max
            .map_or(u64::MAX, |space| (space / block_size).saturating_sub(self.blocks_used))
    }
}
