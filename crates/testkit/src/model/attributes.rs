//! Changing attributes: mode, owner, size, times, flags, project.

use drystone_vfs::{
    Access, Capabilities, Errno, FileFlags, FileType, InodeAttributes, InodeNumber, RequestContext,
    Result, SetAttributes, SetTime, Timestamp, mode,
};

use super::node::Node;
use super::permission;
use super::state::ModelState;

/// Flags that `chattr` can change.
const CHANGEABLE: FileFlags = FileFlags::SECURE_REMOVE
    .union(FileFlags::UNDELETE)
    .union(FileFlags::COMPRESS)
    .union(FileFlags::SYNC)
    .union(FileFlags::IMMUTABLE)
    .union(FileFlags::APPEND)
    .union(FileFlags::NO_DUMP)
    .union(FileFlags::NO_ACCESS_TIME)
    .union(FileFlags::JOURNAL_DATA)
    .union(FileFlags::NO_TAIL)
    .union(FileFlags::DIRECTORY_SYNC)
    .union(FileFlags::TOP_DIRECTORY)
    .union(FileFlags::PROJECT_INHERIT);
/// Flags that only directories can have.
const FOR_DIRECTORIES: FileFlags =
    FileFlags::DIRECTORY_SYNC.union(FileFlags::TOP_DIRECTORY).union(FileFlags::PROJECT_INHERIT);
/// Flags that inodes other than files and directories can have.
const FOR_OTHERS: FileFlags = FileFlags::NO_DUMP.union(FileFlags::NO_ACCESS_TIME);
/// Flags that need a capability to change.
const GUARDED: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);

impl ModelState {
    pub(super) fn set_attributes(
        &mut self,
        context: &RequestContext,
        inode: InodeNumber,
        changes: &SetAttributes,
    ) -> Result<InodeAttributes> {
        let flags_kept = self.configuration.flags;
        let changes =
            &SetAttributes { flags: changes.flags.map(|new| new & flags_kept), ..*changes };
        self.check_changes(context, inode, changes)?;
        if *changes != SetAttributes::default() {
            self.touch_attributes(inode)?;
        }
        if changes.user.is_some() || changes.group.is_some() {
            self.change_owner(context, inode, changes)?;
        }
        if let Some(permissions) = changes.permissions {
            self.change_permissions(context, inode, permissions)?;
        }
        if let Some(size) = changes.size {
            self.resize(context, inode, size)?;
        }
        self.change_times(inode, changes)?;
        let node = self.node_mut(inode)?;
        if let Some(flags) = changes.flags {
            let mask = changeable_flags(node);
            node.attributes.flags = (node.attributes.flags - mask) | (flags & mask);
        }
        if let Some(project) = changes.project {
            node.attributes.project = project;
        }
        Ok(node.shown())
    }

    fn check_changes(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        changes: &SetAttributes,
    ) -> Result<()> {
        let node = self.node(inode)?;
        let flags = node.attributes.flags;
        if times_given(changes).any(|time| time.nanoseconds >= 1_000_000_000) {
            return Err(Errno::EINVAL.into());
        }
        if changes.size.is_some() {
            node.content()?;
            permission::check(node, context, Access::WRITE)?;
            if flags.contains(FileFlags::APPEND) {
                return Err(Errno::EPERM.into());
            }
        }
        // A caller that keeps a file's times itself, as a mount's kernel does, gives the time.
        let now = changes.changed.map_or(SetTime::Now, SetTime::At);
        let touches = changes.accessed == Some(SetTime::Now) && changes.modified == Some(now);
        let sets_times = !touches
            && (changes.accessed.is_some()
                || changes.modified.is_some()
                || changes.changed.is_some())
            || changes.created.is_some();
        let sets_owner_or_mode =
            changes.permissions.is_some() || changes.user.is_some() || changes.group.is_some();
        if (sets_owner_or_mode || sets_times) && flags.intersects(GUARDED)
            || touches && flags.contains(FileFlags::IMMUTABLE)
        {
            return Err(Errno::EPERM.into());
        }
        let owner = permission::acts_as_owner(node, context);
        if touches && !owner {
            permission::check(node, context, Access::WRITE)?;
        }
        if changes.permissions.is_some() && node.file_type() == FileType::Symlink {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if changes.size.is_some_and(|size| size > self.configuration.file_size_max) {
            return Err(Errno::EFBIG.into());
        }
        check_owner_change(node, context, changes)?;
        if (changes.permissions.is_some() || sets_times) && !owner {
            return Err(Errno::EPERM.into());
        }
        self.check_flags_and_project(node, context, changes)
    }

    fn check_flags_and_project(
        &self,
        node: &Node,
        context: &RequestContext,
        changes: &SetAttributes,
    ) -> Result<()> {
        if changes.flags.is_none() && changes.project.is_none() {
            return Ok(());
        }
        if !permission::acts_as_owner(node, context) {
            return Err(Errno::EPERM.into());
        }
        let old = node.attributes.flags;
        let stays_immutable = old.contains(FileFlags::IMMUTABLE)
            && changes.flags.is_none_or(|new| new.contains(FileFlags::IMMUTABLE));
        if let Some(new) = changes.flags {
            if (new ^ old).intersects(GUARDED) && !context.has(Capabilities::IMMUTABLE) {
                return Err(Errno::EPERM.into());
            }
            let mask = changeable_flags(node);
            let impossible = new & (CHANGEABLE - mask);
            if (new ^ old).contains(FileFlags::CASEFOLD) || !impossible.is_empty() {
                return Err(Errno::EOPNOTSUPP.into());
            }
            let changed = (new & mask) ^ (old & mask);
            let journal =
                changed.contains(FileFlags::JOURNAL_DATA) && !context.has(Capabilities::ADMINISTER);
            if journal || stays_immutable && !changed.is_empty() {
                return Err(Errno::EPERM.into());
            }
        }
        match changes.project {
            Some(project) if !self.configuration.projects && project != 0 => {
                Err(Errno::EOPNOTSUPP.into())
            }
            Some(project) if stays_immutable && project != node.attributes.project => {
                Err(Errno::EPERM.into())
            }
            _ => Ok(()),
        }
    }

    fn change_owner(
        &mut self,
        context: &RequestContext,
        inode: InodeNumber,
        changes: &SetAttributes,
    ) -> Result<()> {
        let node = self.node_mut(inode)?;
        if !node.is_directory() {
            node.attributes.permissions &= !permission::set_id_bits_to_drop(node, context);
            node.xattrs.remove(b"security.capability".as_slice());
        }
        node.attributes.user = changes.user.unwrap_or(node.attributes.user);
        node.attributes.group = changes.group.unwrap_or(node.attributes.group);
        Ok(())
    }

    fn change_permissions(
        &mut self,
        context: &RequestContext,
        inode: InodeNumber,
        permissions: u16,
    ) -> Result<()> {
        let node = self.node_mut(inode)?;
        let mut bits = permissions & mode::PERMISSIONS;
        if !permission::keeps_group_id(context, node.attributes.group) {
            bits &= !mode::SET_GROUP_ID;
        }
        node.attributes.permissions = bits;
        if let Some(acl) = &mut node.access_acl {
            acl.change_mode(bits);
        }
        Ok(())
    }

    /// Sets the size of a regular file.
    pub(super) fn resize(
        &mut self,
        context: &RequestContext,
        inode: InodeNumber,
        size: u64,
    ) -> Result<()> {
        self.change_content(inode, |content| content.resize(size))?;
        permission::drop_privileges(self.node_mut(inode)?, context);
        self.touch_content(inode)
    }

    fn change_times(&mut self, inode: InodeNumber, changes: &SetAttributes) -> Result<()> {
        let now = self.now;
        let configuration = self.configuration.clone();
        let recorded = |time| {
            configuration.clamp_time(match time {
                SetTime::Now => now,
                SetTime::At(time) => time,
            })
        };
        let attributes = &mut self.node_mut(inode)?.attributes;
        attributes.accessed = changes.accessed.map_or(attributes.accessed, recorded);
        attributes.modified = changes.modified.map_or(attributes.modified, recorded);
        attributes.changed =
            changes.changed.map_or(attributes.changed, |time| recorded(SetTime::At(time)));
        if let (Some(time), true) = (changes.created, configuration.nanoseconds) {
            attributes.created = Some(recorded(SetTime::At(time)));
        }
        Ok(())
    }
}

fn changeable_flags(node: &Node) -> FileFlags {
    match node.file_type() {
        FileType::Directory => CHANGEABLE,
        FileType::Regular => CHANGEABLE - FOR_DIRECTORIES,
        _ => FOR_OTHERS,
    }
}

fn check_owner_change(
    node: &Node,
    context: &RequestContext,
    changes: &SetAttributes,
) -> Result<()> {
    if context.has(Capabilities::CHOWN) {
        return Ok(());
    }
    let attributes = &node.attributes;
    let owner = context.user == attributes.user;
    let user_kept = changes.user.is_none_or(|user| owner && user == attributes.user);
    let group_allowed = changes
        .group
        .is_none_or(|group| owner && (group == attributes.group || context.in_group(group)));
    if user_kept && group_allowed { Ok(()) } else { Err(Errno::EPERM.into()) }
}

/// The times that are given explicitly.
fn times_given(changes: &SetAttributes) -> impl Iterator<Item = Timestamp> {
    let explicit = |time| match time {
        Some(SetTime::At(time)) => Some(time),
        _ => None,
    };
    [explicit(changes.accessed), explicit(changes.modified), changes.changed, changes.created]
        .into_iter()
        .flatten()
}
