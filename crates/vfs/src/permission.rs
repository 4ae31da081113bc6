//! Permission checks that file systems share: permission bits, capabilities, and the rules that hold for
//! all callers. Read-only mounts and access control lists are the file system's own.
//!
//! The order of the checks is that of Linux, since it decides which error a caller sees. A context
//! that wants no permission checks still gets the errors of rules: immutable and append-only inodes.
//!
//! # Reference
//! path_resolution(7), inode(7), chown(2), utimensat(2), ioctl_iflags(2).

use crate::{
    Access, Capabilities, Errno, FileFlags, FileType, RequestContext, SetAttributes, SetTime, mode,
};

/// Flags that keep an inode from being renamed, linked or removed.
pub const FIXED: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);
/// Flags that only directories can have.
const DIRECTORY_FLAGS: FileFlags = FileFlags::DIRECTORY_SYNC
    .union(FileFlags::TOP_DIRECTORY)
    .union(FileFlags::PROJECT_INHERIT)
    .union(FileFlags::CASEFOLD);
/// Nanoseconds in a second.
const NANOSECONDS: u32 = 1_000_000_000;

/// What permission checks look at of an inode.
#[derive(Clone, Copy, Debug)]
pub struct Protection {
    /// Its type.
    pub file_type: FileType,
    /// Its mode; the type in it doesn't matter.
    pub mode: u16,
    /// Its owner.
    pub user: u32,
    /// Its group.
    pub group: u32,
    /// Its flags.
    pub flags: FileFlags,
}

impl Protection {
    /// Whether the permission bits allow `access`.
    #[inline]
    pub fn bits_grant(&self, context: &RequestContext, access: Access) -> bool {
        let shift = match () {
            () if context.user == self.user => 6,
            () if context.in_group(self.group) => 3,
            () => 0,
        };
        u16::from(access.bits()) & !(self.mode >> shift) & 7 == 0
    }

    /// Whether a capability allows `access` that permission bits and lists don't.
    #[inline]
    pub fn capabilities_grant(&self, context: &RequestContext, access: Access) -> bool {
        let is_directory = self.file_type.is_dir();
        let reads_only =
            if is_directory { !access.contains(Access::WRITE) } else { access == Access::READ };
        let overridable =
            is_directory || !access.contains(Access::EXECUTE) || self.mode & 0o111 != 0;
        reads_only && context.has(Capabilities::READ_SEARCH)
            || overridable && context.has(Capabilities::OVERRIDE)
    }

    /// True if the context is the owner, or may act as the owner.
    #[inline]
    pub fn is_owned_by(&self, context: &RequestContext) -> bool {
        context.has(Capabilities::OWNER) || context.user == self.user
    }

    /// May a name of this inode be removed from `directory`, in which the context may write?
    #[inline]
    pub fn check_remove(
        &self,
        context: &RequestContext,
        directory: &Protection,
    ) -> Result<(), Errno> {
        let kept_by_sticky = directory.mode & mode::STICKY != 0
            && context.user != self.user
            && !directory.is_owned_by(context);
        if directory.flags.contains(FileFlags::APPEND)
            || kept_by_sticky
            || self.flags.intersects(FIXED)
        {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// May the inode get one more name?
    #[inline]
    pub fn check_link(&self) -> Result<(), Errno> {
        if self.file_type.is_dir() || self.flags.intersects(FIXED) {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// May these attributes be changed? `changeable` are the flags that the file system lets callers
    /// change, and `may_write` says whether the context may write to the inode.
    pub fn check_set_attributes<E: From<Errno>>(
        &self,
        context: &RequestContext,
        changes: &SetAttributes,
        changeable: FileFlags,
        may_write: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let given = |time: Option<SetTime>| match time {
            Some(SetTime::At(time)) => Some(time),
            _ => None,
        };
        let times =
            [given(changes.accessed), given(changes.modified), changes.changed, changes.created];
        if times.into_iter().flatten().any(|time| time.nanoseconds >= NANOSECONDS) {
            return Err(Errno::EINVAL.into());
        }
        let times_given =
            changes.accessed.is_some() || changes.modified.is_some() || changes.changed.is_some();
        if changes.size.is_some() && self.file_type == FileType::Regular {
            may_write()?;
            if self.flags.contains(FileFlags::APPEND) {
                return Err(Errno::EPERM.into());
            }
        }
        // A caller that keeps times itself, as the kernel of a mount does, says what time it is.
        let now = changes.changed.map_or(SetTime::Now, SetTime::At);
        let touches = changes.accessed == Some(SetTime::Now) && changes.modified == Some(now);
        let sets_times = !touches && times_given || changes.created.is_some();
        let sets_owner_or_mode =
            changes.permissions.is_some() || changes.user.is_some() || changes.group.is_some();
        let changes_fixed = sets_owner_or_mode || sets_times && !context.is_cache;
        if changes_fixed && self.flags.intersects(FIXED)
            || touches && self.flags.contains(FileFlags::IMMUTABLE)
        {
            return Err(Errno::EPERM.into());
        }
        let is_owner = self.is_owned_by(context);
        if touches && !is_owner {
            may_write()?;
        }
        if changes.permissions.is_some() && self.file_type == FileType::Symlink {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.check_owners(context, changes)?;
        let needs_owner = changes.permissions.is_some()
            || sets_times
            || changes.flags.is_some()
            || changes.project.is_some();
        if needs_owner && !is_owner {
            return Err(Errno::EPERM.into());
        }
        Ok(self.check_flags(context, changes, changeable)?)
    }

    /// The owner may give the inode to a group that they are in. Other changes need a capability.
    fn check_owners(&self, context: &RequestContext, changes: &SetAttributes) -> Result<(), Errno> {
        let is_owner = context.user == self.user;
        let may_have = |new: u32| is_owner && (new == self.group || context.in_group(new));
        let is_allowed = context.has(Capabilities::CHOWN)
            || changes.user.is_none_or(|new| is_owner && new == self.user)
                && changes.group.is_none_or(may_have);
        if is_allowed { Ok(()) } else { Err(Errno::EPERM) }
    }

    fn check_flags(
        &self,
        context: &RequestContext,
        changes: &SetAttributes,
        changeable: FileFlags,
    ) -> Result<(), Errno> {
        let stays_immutable = self.flags.contains(FileFlags::IMMUTABLE)
            && changes.flags.is_none_or(|new| new.contains(FileFlags::IMMUTABLE));
        if let Some(new) = changes.flags {
            let changed = new ^ self.flags;
            if changed.intersects(FIXED) && !context.has(Capabilities::IMMUTABLE) {
                return Err(Errno::EPERM);
            }
            if !settable_flags(changeable, self.file_type).contains(new & changeable) {
                return Err(Errno::EOPNOTSUPP);
            }
            if stays_immutable && !(changed & changeable).is_empty() {
                return Err(Errno::EPERM);
            }
        }
        if changes.project.is_some() && stays_immutable { Err(Errno::EPERM) } else { Ok(()) }
    }
}

/// The set-id bits of `file_mode` that a file of `group` loses when its content or owner changes: a
/// changed program must not run with the rights of a user or group that didn't agree. Without the
/// group's execute bit, set-group-id means mandatory locking, and a member of the group keeps it.
#[inline]
pub fn set_id_lost(context: &RequestContext, file_mode: u16, group: u32) -> u16 {
    let mut lost = file_mode & mode::SET_USER_ID;
    if file_mode & 0o010 != 0 || !context.may_set_group_id(group) {
        lost |= file_mode & mode::SET_GROUP_ID;
    }
    lost
}

/// Which of the `changeable` flags an inode of a type can have.
pub fn settable_flags(changeable: FileFlags, file_type: FileType) -> FileFlags {
    match file_type {
        FileType::Directory => changeable,
        FileType::Regular => changeable - DIRECTORY_FLAGS,
        _ => FileFlags::NO_DUMP | FileFlags::NO_ACCESS_TIME,
    }
}
