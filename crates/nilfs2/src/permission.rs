//! Who may do what: permission bits, capabilities, and the rules that hold for everybody.
//!
//! The order of the checks is that of Linux, since it decides which error a caller sees. A context
//! that wants no permission checks still gets the errors of rules: immutable and append-only inodes.
//!
//! # Reference
//! path_resolution(7), inode(7), chown(2), utimensat(2), ioctl_iflags(2).

use crate::error::Result;
use crate::inode::{Inode, Record};
use drystone_vfs::{
    Access, Capabilities, Errno, FileFlags, FileType, RequestContext, SetAttributes, SetTime, mode,
};

/// Flags that keep an inode from being renamed, linked or removed.
const FIXED: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);
/// Nanoseconds in a second.
const NANOSECONDS: u32 = 1_000_000_000;

/// The flags of a record.
pub(crate) fn flags_of(record: &Record) -> FileFlags {
    FileFlags::from_bits_truncate(record.flags)
}

/// May the inode be used so?
pub(crate) fn check(context: &RequestContext, inode: &Inode, access: Access) -> Result<()> {
    check_record(context, &inode.fields.lock().record, access)
}

/// The same for what is known of an inode.
pub(crate) fn check_record(
    context: &RequestContext,
    record: &Record,
    access: Access,
) -> Result<()> {
    if access.contains(Access::WRITE) && flags_of(record).contains(FileFlags::IMMUTABLE) {
        return Err(Errno::EPERM.into());
    }
    let granted = {
        let shift = match () {
            () if context.user == record.user => 6,
            () if context.in_group(record.group) => 3,
            () => 0,
        };
        u16::from(access.bits()) & !(record.mode >> shift) & 7 == 0
    };
    if !context.check_permissions || granted {
        return Ok(());
    }
    let is_directory = record.mode & Record::TYPE_MASK == Record::DIRECTORY;
    let reads_only =
        if is_directory { !access.contains(Access::WRITE) } else { access == Access::READ };
    if reads_only && context.has(Capabilities::READ_SEARCH) {
        return Ok(());
    }
    let overridable = is_directory || !access.contains(Access::EXECUTE) || record.mode & 0o111 != 0;
    if overridable && context.has(Capabilities::OVERRIDE) {
        return Ok(());
    }
    Err(Errno::EACCES.into())
}

/// May a name be added to this directory?
pub(crate) fn check_add(context: &RequestContext, directory: &Inode) -> Result<()> {
    let fields = directory.fields.lock();
    if fields.record.links_count == 0 {
        return Err(Errno::ENOENT.into());
    }
    check_record(context, &fields.record, Access::WRITE | Access::EXECUTE)
}

/// May the name of `victim` be removed from this directory?
pub(crate) fn check_remove(
    context: &RequestContext,
    directory: &Inode,
    victim: &Inode,
) -> Result<()> {
    let (is_sticky, owner) = {
        let fields = directory.fields.lock();
        check_record(context, &fields.record, Access::WRITE | Access::EXECUTE)?;
        if flags_of(&fields.record).contains(FileFlags::APPEND) {
            return Err(Errno::EPERM.into());
        }
        (fields.record.mode & mode::STICKY != 0, fields.record.user)
    };
    let fields = victim.fields.lock();
    let kept_by_sticky = is_sticky
        && context.user != fields.record.user
        && context.user != owner
        && !context.has(Capabilities::OWNER);
    if kept_by_sticky || flags_of(&fields.record).intersects(FIXED) {
        return Err(Errno::EPERM.into());
    }
    Ok(())
}

/// May the inode get one more name?
pub(crate) fn check_link(record: &Record) -> Result<()> {
    let is_directory = record.mode & Record::TYPE_MASK == Record::DIRECTORY;
    if is_directory || flags_of(record).intersects(FIXED) {
        return Err(Errno::EPERM.into());
    }
    if record.links_count == 0 { Err(Errno::ENOENT.into()) } else { Ok(()) }
}

/// True if a file of `group` may have its set-group-id bit set by the context.
pub(crate) fn keeps_group_id(context: &RequestContext, group: u32) -> bool {
    context.has(Capabilities::SET_ID) || context.in_group(group)
}

/// The set-id bits that are lost when content or owner change: a file may not keep running as
/// somebody who didn't make it so.
pub(crate) fn set_id_lost(context: &RequestContext, record: &Record) -> u16 {
    let mut lost = record.mode & mode::SET_USER_ID;
    if record.mode & 0o010 != 0 || !keeps_group_id(context, record.group) {
        lost |= record.mode & mode::SET_GROUP_ID;
    }
    lost
}

/// May these attributes be changed?
pub(crate) fn check_set_attributes(
    context: &RequestContext,
    inode: &Inode,
    changes: &SetAttributes,
) -> Result<()> {
    let record = inode.fields.lock().record.clone();
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
    let flags = flags_of(&record);
    if changes.size.is_some() && inode.file_type == FileType::Regular {
        check_record(context, &record, Access::WRITE)?;
        if flags.contains(FileFlags::APPEND) {
            return Err(Errno::EPERM.into());
        }
    }
    let now = changes.changed.map_or(SetTime::Now, SetTime::At);
    let touches = changes.accessed == Some(SetTime::Now) && changes.modified == Some(now);
    let sets_times = !touches && times_given || changes.created.is_some();
    let sets_owner_or_mode =
        changes.permissions.is_some() || changes.user.is_some() || changes.group.is_some();
    if (sets_owner_or_mode || sets_times && !context.is_cache) && flags.intersects(FIXED)
        || touches && flags.contains(FileFlags::IMMUTABLE)
    {
        return Err(Errno::EPERM.into());
    }
    let is_owner = context.has(Capabilities::OWNER) || context.user == record.user;
    if touches && !is_owner {
        check_record(context, &record, Access::WRITE)?;
    }
    if changes.permissions.is_some() && inode.file_type == FileType::Symlink {
        return Err(Errno::EOPNOTSUPP.into());
    }
    check_owners(context, &record, changes)?;
    if (changes.permissions.is_some() || sets_times) && !is_owner {
        return Err(Errno::EPERM.into());
    }
    if (changes.flags.is_some() || changes.project.is_some()) && !is_owner {
        return Err(Errno::EPERM.into());
    }
    check_flags(context, inode.file_type, flags, changes)
}

/// The owner may give the inode to a group that they are in; for the rest it takes a capability.
fn check_owners(context: &RequestContext, record: &Record, changes: &SetAttributes) -> Result<()> {
    if context.has(Capabilities::CHOWN) {
        return Ok(());
    }
    let is_owner = context.user == record.user;
    let user_allowed = changes.user.is_none_or(|new| is_owner && new == record.user);
    let group_allowed =
        changes.group.is_none_or(|new| is_owner && (new == record.group || context.in_group(new)));
    if user_allowed && group_allowed { Ok(()) } else { Err(Errno::EPERM.into()) }
}

/// Errors in the order in which Linux finds them.
fn check_flags(
    context: &RequestContext,
    file_type: FileType,
    old: FileFlags,
    changes: &SetAttributes,
) -> Result<()> {
    let Some(new) = changes.flags else { return Ok(()) };
    let changed = new ^ old;
    if changed.intersects(FIXED) && !context.has(Capabilities::IMMUTABLE) {
        return Err(Errno::EPERM.into());
    }
    if !settable_flags(file_type).contains(new & CHANGEABLE) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let stays_immutable = (old & new).contains(FileFlags::IMMUTABLE);
    if stays_immutable && !(changed & CHANGEABLE).is_empty() {
        return Err(Errno::EPERM.into());
    }
    Ok(())
}

/// Flags that `chattr` changes; it gives back the others as it got them.
pub(crate) const CHANGEABLE: FileFlags = FileFlags::SECURE_REMOVE
    .union(FileFlags::UNDELETE)
    .union(FileFlags::COMPRESS)
    .union(FileFlags::SYNC)
    .union(FileFlags::IMMUTABLE)
    .union(FileFlags::APPEND)
    .union(FileFlags::NO_DUMP)
    .union(FileFlags::NO_ACCESS_TIME)
    .union(FileFlags::NO_TAIL)
    .union(FileFlags::DIRECTORY_SYNC)
    .union(FileFlags::TOP_DIRECTORY);

/// Which of them an inode of a type can have.
fn settable_flags(file_type: FileType) -> FileFlags {
    let for_directories = FileFlags::DIRECTORY_SYNC | FileFlags::TOP_DIRECTORY;
    match file_type {
        FileType::Directory => CHANGEABLE,
        FileType::Regular => CHANGEABLE - for_directories,
        _ => FileFlags::NO_DUMP | FileFlags::NO_ACCESS_TIME,
    }
}

/// The flags that a new inode gets from its directory.
pub(crate) fn inherited_flags(directory: FileFlags, file_type: FileType) -> FileFlags {
    let inherited = CHANGEABLE - FIXED - FileFlags::TOP_DIRECTORY;
    directory & inherited & settable_flags(file_type)
}
