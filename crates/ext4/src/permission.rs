//! Permission checks: permission bits, access control lists, capabilities, and the rules that hold for
//! all callers.
//!
//! The order of the checks is that of Linux, since it decides which error a caller sees. A context
//! that wants no permission checks still gets the errors of rules: read-only mounts, immutable and
//! append-only inodes.
//!
//! # Reference
//! path_resolution(7), acl(5), inode(7), chown(2), utimensat(2), ioctl_iflags(2).

use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::{Fields, Inode, InodeSummary};
use crate::xattr::acl;
use drystone_ext4_format::inode::InodeFlags;
use drystone_vfs::{
    Access, Capabilities, Errno, FileType, RequestContext, SetAttributes, SetTime, mode,
};

/// Flags that keep an inode from being renamed, linked or removed.
const FIXED: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);
const FIXED_SHOWN: drystone_vfs::FileFlags =
    drystone_vfs::FileFlags::IMMUTABLE.union(drystone_vfs::FileFlags::APPEND);

/// Nanoseconds in a second.
const NANOSECONDS: u32 = 1_000_000_000;

/// May the context use the inode for this?
pub(crate) fn check(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Inode,
    access: Access,
) -> Result<()> {
    if !access.contains(Access::WRITE) && !context.check_permissions {
        return Ok(());
    }
    check_by(fs, context, inode, &inode.summary(), access)
}

/// As [`check`], with the inode's facts from `summary`.
fn check_by(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Inode,
    summary: &InodeSummary,
    access: Access,
) -> Result<()> {
    if access.contains(Access::WRITE) {
        // Writes to devices, pipes and sockets don't change the image.
        if matches!(inode.file_type(), FileType::Regular | FileType::Directory | FileType::Symlink)
        {
            fs.volume.check_writable()?;
        }
        if summary.flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Errno::EPERM.into());
        }
    }
    if !context.check_permissions || is_granted(fs, context, inode, summary, access)? {
        return Ok(());
    }
    let is_directory = inode.is_directory();
    let reads_only =
        if is_directory { !access.contains(Access::WRITE) } else { access == Access::READ };
    if reads_only && context.has(Capabilities::READ_SEARCH) {
        return Ok(());
    }
    let overridable =
        is_directory || !access.contains(Access::EXECUTE) || summary.mode & 0o111 != 0;
    if overridable && context.has(Capabilities::OVERRIDE) {
        return Ok(());
    }
    Err(Errno::EACCES.into())
}

/// True if it is certain, without a wait, that names may be looked up in a directory. If it is false,
/// [`check`] decides.
#[inline]
pub(crate) fn surely_may_search(context: &RequestContext, directory: &Inode) -> bool {
    if context.has(Capabilities::READ_SEARCH) {
        return true;
    }
    let Some(view) = directory.try_view() else { return false };
    let shift = match () {
        () if context.user == view.user() => 6,
        // An access list may say otherwise.
        () if directory.has_xattrs() => return false,
        () if context.in_group(view.group()) => 3,
        () => 0,
    };
    view.mode() >> shift & u16::from(Access::EXECUTE.bits()) != 0
}

/// Whether permission bits and access list allow it.
fn is_granted(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Inode,
    summary: &InodeSummary,
    access: Access,
) -> Result<bool> {
    let InodeSummary { mode: file_mode, user, group, has_attributes, .. } = *summary;
    let grants = |bits: u16| u16::from(access.bits()) & !bits & 7 == 0;
    if context.user == user {
        return Ok(grants(file_mode >> 6));
    }
    // The group's bits are the list's mask. If they are empty, only the mode counts, as for
    // Linux.
    if file_mode & 0o070 != 0
        && has_attributes
        && let Some(acl) = acl::load(fs, inode, acl::AclKind::Access)?
    {
        let groups: Vec<u32> =
            std::iter::once(context.group).chain(context.groups.iter().copied()).collect();
        return Ok(acl.permits(user, group, context.user, &groups, access.bits()));
    }
    Ok(grants(if context.in_group(group) { file_mode >> 3 } else { file_mode }))
}

/// True if the context is the inode's owner, or may act as the owner.
pub(crate) fn acts_as_owner(context: &RequestContext, inode: &Inode) -> bool {
    context.has(Capabilities::OWNER) || context.user == inode.fields().disk.user
}

/// True if the context may set the set-group-id bit of a file of `group`.
pub(crate) fn keeps_group_id(context: &RequestContext, group: u32) -> bool {
    context.has(Capabilities::SET_ID) || context.in_group(group)
}

/// The set-id bits that a file loses when its content or owner changes: a changed program must not run
/// with the rights of a user or group that didn't agree. Without the group's execute bit, set-group-id
/// means mandatory locking, and a member of the group keeps it.
pub(crate) fn set_id_lost(context: &RequestContext, fields: &Fields) -> u16 {
    let file_mode = fields.disk.mode;
    let mut lost = file_mode & mode::SET_USER_ID;
    if file_mode & 0o010 != 0 || !keeps_group_id(context, fields.disk.group) {
        lost |= file_mode & mode::SET_GROUP_ID;
    }
    lost
}

/// May a name be added to this directory?
pub(crate) fn check_add(
    fs: &ContentStore,
    context: &RequestContext,
    directory: &Inode,
    summary: &InodeSummary,
) -> Result<()> {
    check_by(fs, context, directory, summary, Access::WRITE | Access::EXECUTE)
}

/// May the name of `victim` be removed from this directory?
pub(crate) fn check_remove(
    fs: &ContentStore,
    context: &RequestContext,
    directory: &Inode,
    summary: &InodeSummary,
    victim: &Inode,
) -> Result<()> {
    check_by(fs, context, directory, summary, Access::WRITE | Access::EXECUTE)?;
    if summary.flags.contains(InodeFlags::APPEND) {
        return Err(Errno::EPERM.into());
    }
    let (sticky, owner) = (summary.mode & mode::STICKY != 0, summary.user);
    let victim = victim.fields();
    let kept_by_sticky = sticky
        && context.user != victim.disk.user
        && context.user != owner
        && !context.has(Capabilities::OWNER);
    if kept_by_sticky || victim.disk.flags.intersects(FIXED) {
        return Err(Errno::EPERM.into());
    }
    Ok(())
}

/// May these attributes be changed?
pub(crate) fn check_set_attributes(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Inode,
    changes: &SetAttributes,
) -> Result<()> {
    fs.volume.check_writable()?;
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
    let flags = inode.flags();
    if changes.size.is_some() && matches!(inode.file_type(), FileType::Regular) {
        check(fs, context, inode, Access::WRITE)?;
        if flags.contains(InodeFlags::APPEND) {
            return Err(Errno::EPERM.into());
        }
    }
    // A caller that keeps times itself, as the kernel of a mount does, says what time it is.
    let now = changes.changed.map_or(SetTime::Now, SetTime::At);
    let touches = changes.accessed == Some(SetTime::Now) && changes.modified == Some(now);
    let sets_times = !touches && times_given || changes.created.is_some();
    let sets_owner_or_mode =
        changes.permissions.is_some() || changes.user.is_some() || changes.group.is_some();
    if (sets_owner_or_mode || sets_times && !context.is_cache) && flags.intersects(FIXED)
        || touches && flags.contains(InodeFlags::IMMUTABLE)
    {
        return Err(Errno::EPERM.into());
    }
    let is_owner = acts_as_owner(context, inode);
    if touches && !is_owner {
        check(fs, context, inode, Access::WRITE)?;
    }
    if changes.permissions.is_some() && inode.file_type() == FileType::Symlink {
        return Err(Errno::EOPNOTSUPP.into());
    }
    check_owners(context, inode, changes)?;
    if (changes.permissions.is_some() || sets_times) && !is_owner {
        return Err(Errno::EPERM.into());
    }
    if (changes.flags.is_some() || changes.project.is_some()) && !is_owner {
        return Err(Errno::EPERM.into());
    }
    check_flags(context, inode, changes)
}

/// The owner may give the inode to a group that they are in. Other changes need a capability.
fn check_owners(context: &RequestContext, inode: &Inode, changes: &SetAttributes) -> Result<()> {
    let (user, group) = {
        let fields = inode.fields();
        (fields.disk.user, fields.disk.group)
    };
    if context.has(Capabilities::CHOWN) {
        return Ok(());
    }
    let is_owner = context.user == user;
    let user_allowed = changes.user.is_none_or(|new| is_owner && new == user);
    let group_allowed =
        changes.group.is_none_or(|new| is_owner && (new == group || context.in_group(new)));
    if user_allowed && group_allowed { Ok(()) } else { Err(Errno::EPERM.into()) }
}

/// Errors in the order in which Linux finds them.
fn check_flags(context: &RequestContext, inode: &Inode, changes: &SetAttributes) -> Result<()> {
    let old = drystone_vfs::FileFlags::from_bits_truncate(inode.flags().bits());
    let immutable = drystone_vfs::FileFlags::IMMUTABLE;
    let stays_immutable =
        old.contains(immutable) && changes.flags.is_none_or(|new| new.contains(immutable));
    if let Some(new) = changes.flags {
        let changed = new ^ old;
        if changed.intersects(FIXED_SHOWN) && !context.has(Capabilities::IMMUTABLE) {
            return Err(Errno::EPERM.into());
        }
        if !settable_flags(inode.file_type()).contains(new & CHANGEABLE) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if stays_immutable && !(changed & CHANGEABLE).is_empty() {
            return Err(Errno::EPERM.into());
        }
    }
    if changes.project.is_some() && stays_immutable {
        return Err(Errno::EPERM.into());
    }
    Ok(())
}

/// Flags that `chattr` changes; it gives back the others as it got them.
pub(crate) const CHANGEABLE: drystone_vfs::FileFlags = drystone_vfs::FileFlags::all()
    .difference(drystone_vfs::FileFlags::ENCRYPT)
    .difference(drystone_vfs::FileFlags::INDEX)
    .difference(drystone_vfs::FileFlags::EXTENTS)
    .difference(drystone_vfs::FileFlags::VERITY)
    .difference(drystone_vfs::FileFlags::INLINE_DATA)
    .difference(drystone_vfs::FileFlags::JOURNAL_DATA);

/// Which of them an inode of a type can have.
fn settable_flags(file_type: FileType) -> drystone_vfs::FileFlags {
    use drystone_vfs::FileFlags;
    let for_directories = FileFlags::DIRECTORY_SYNC
        | FileFlags::TOP_DIRECTORY
        | FileFlags::PROJECT_INHERIT
        | FileFlags::CASEFOLD;
    match file_type {
        FileType::Directory => CHANGEABLE,
        FileType::Regular => CHANGEABLE - for_directories,
        _ => FileFlags::NO_DUMP | FileFlags::NO_ACCESS_TIME,
    }
}
