//! Moving names.

use drystone_vfs::{
    Access, DeviceNumber, Errno, InodeNumber, NewNode, RenameFlags, RequestContext, Result,
};

use super::node::ModelNodeKind;
use super::permission;
use super::state::ModelState;

/// One end of a rename.
#[derive(Clone, Copy)]
pub(super) struct RenameSide<'a> {
    pub parent: InodeNumber,
    pub name: &'a [u8],
}

impl ModelState {
    pub(super) fn rename(
        &mut self,
        context: &RequestContext,
        from: RenameSide<'_>,
        to: RenameSide<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if exchange && flags.intersects(RenameFlags::NO_REPLACE | RenameFlags::WHITEOUT) {
            return Err(Errno::EINVAL.into());
        }
        self.searched(context, from.parent)?;
        self.searched(context, to.parent)?;
        if matches!(from.name, b"." | b"..") {
            return Err(Errno::EBUSY.into());
        }
        if matches!(to.name, b"." | b"..") {
            let keeps = flags.contains(RenameFlags::NO_REPLACE);
            return Err(if keeps { Errno::EEXIST } else { Errno::EBUSY }.into());
        }
        let source = self.find_existing(context, from.parent, from.name)?;
        let target = self.find(context, to.parent, to.name)?;
        if flags.contains(RenameFlags::NO_REPLACE) && target.is_some() {
            return Err(Errno::EEXIST.into());
        }
        if exchange && target.is_none() {
            return Err(Errno::ENOENT.into());
        }
        if self.is_ancestor(source, to.parent)? {
            return Err(Errno::EINVAL.into());
        }
        if let Some(target) = target
            && self.is_ancestor(target, from.parent)?
        {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY }.into());
        }
        if target == Some(source) {
            return Ok(());
        }
        self.check_may_rename(context, from, to, source, target, exchange)?;
        match target {
            Some(target) if exchange => self.exchange(from, to, source, target),
            _ => self.replace(context, from, to, source, target, flags),
        }
    }

    /// True if `directory` is `outer` or below it; false if `outer` isn't a directory.
    fn is_ancestor(&self, outer: InodeNumber, directory: InodeNumber) -> Result<bool> {
        Ok(self.node(outer)?.is_directory() && self.is_inside(directory, outer)?)
    }

    fn check_may_rename(
        &self,
        context: &RequestContext,
        from: RenameSide<'_>,
        to: RenameSide<'_>,
        source: InodeNumber,
        target: Option<InodeNumber>,
        exchange: bool,
    ) -> Result<()> {
        let (old_parent, new_parent) = (self.node(from.parent)?, self.node(to.parent)?);
        let source_node = self.node(source)?;
        let is_directory = source_node.is_directory();
        permission::check_may_delete(old_parent, source_node, context, is_directory)?;
        match target {
            None => permission::check_may_create(new_parent, context)?,
            Some(target) => {
                let target = self.node(target)?;
                let as_directory = if exchange { target.is_directory() } else { is_directory };
                permission::check_may_delete(new_parent, target, context, as_directory)?;
            }
        }
        if from.parent != to.parent {
            // Their `..` changes.
            if is_directory {
                permission::check(source_node, context, Access::WRITE)?;
            }
            if let Some(target) = target
                && exchange
                && self.node(target)?.is_directory()
            {
                permission::check(self.node(target)?, context, Access::WRITE)?;
            }
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        from: RenameSide<'_>,
        to: RenameSide<'_>,
        source: InodeNumber,
        target: InodeNumber,
    ) -> Result<()> {
        self.check_project(to.parent, source)?;
        self.check_project(from.parent, target)?;
        self.set_link(to.parent, to.name, source)?;
        self.set_link(from.parent, from.name, target)?;
        for (inode, old, new) in
            [(source, from.parent, to.parent), (target, to.parent, from.parent)]
        {
            self.touch_attributes(inode)?;
            self.change_parent(inode, old, new)?;
        }
        Ok(())
    }

    /// Updates a moved directory's `..` and its parents' link counts.
    fn change_parent(
        &mut self,
        inode: InodeNumber,
        old: InodeNumber,
        new: InodeNumber,
    ) -> Result<()> {
        if old != new
            && let ModelNodeKind::Directory(directory) = &mut self.node_mut(inode)?.kind
        {
            directory.parent = new;
            self.uncount_subdirectory(old)?;
            self.count_subdirectory(new)?;
        }
        Ok(())
    }

    fn replace(
        &mut self,
        context: &RequestContext,
        from: RenameSide<'_>,
        to: RenameSide<'_>,
        source: InodeNumber,
        target: Option<InodeNumber>,
        flags: RenameFlags,
    ) -> Result<()> {
        self.check_project(to.parent, source)?;
        let is_directory = self.node(source)?.is_directory();
        if is_directory {
            match target {
                Some(target) if !self.node(target)?.directory()?.entries.is_empty() => {
                    return Err(Errno::ENOTEMPTY.into());
                }
                None if from.parent != to.parent && self.is_full_of_directories(to.parent)? => {
                    return Err(Errno::EMLINK.into());
                }
                _ => {}
            }
        }
        self.set_link(to.parent, to.name, source)?;
        if flags.contains(RenameFlags::WHITEOUT) {
            let whiteout = self.new_whiteout(context, from.parent)?;
            self.set_link(from.parent, from.name, whiteout)?;
        } else {
            self.remove_link(from.parent, from.name)?;
        }
        self.touch_attributes(source)?;
        if let Some(target) = target {
            if is_directory {
                self.uncount_subdirectory(to.parent)?;
            }
            self.drop_name(target)?;
        }
        self.change_parent(source, from.parent, to.parent)
    }

    fn new_whiteout(
        &mut self,
        context: &RequestContext,
        parent: InodeNumber,
    ) -> Result<InodeNumber> {
        let node = NewNode::CharacterDevice(DeviceNumber::default());
        let mut whiteout = self.inherit(context, parent, node, 0)?;
        whiteout.attributes.links = 1;
        let inode = whiteout.attributes.inode;
        self.nodes.insert(inode, whiteout);
        Ok(inode)
    }
}
