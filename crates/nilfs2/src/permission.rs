//! Permission checks of NILFS2's inodes: [`drystone_vfs::permission`] on their records.

use crate::error::Result;
use crate::inode::{Inode, Record};
use drystone_vfs::permission::{FIXED, Protection, settable_flags};
use drystone_vfs::{Access, Errno, FileFlags, FileType, RequestContext, SetAttributes};

/// The flags of a record.
pub(crate) fn flags_of(record: &Record) -> FileFlags {
    FileFlags::from_bits_truncate(record.flags)
}

/// What the checks look at. The record is the inode's.
pub(crate) fn protection(inode: &Inode, record: &Record) -> Protection {
    let Record { mode, user, group, .. } = *record;
    Protection { file_type: inode.file_type, mode, user, group, flags: flags_of(record) }
}

/// May the context use the inode for this?
pub(crate) fn check(context: &RequestContext, inode: &Inode, access: Access) -> Result<()> {
    check_record(context, inode, &inode.fields.lock().record, access)
}

/// The same with the record of the inode.
pub(crate) fn check_record(
    context: &RequestContext,
    inode: &Inode,
    record: &Record,
    access: Access,
) -> Result<()> {
    check_access(context, &protection(inode, record), access)
}

fn check_access(context: &RequestContext, protection: &Protection, access: Access) -> Result<()> {
    if access.contains(Access::WRITE) && protection.flags.contains(FileFlags::IMMUTABLE) {
        return Err(Errno::EPERM.into());
    }
    if !context.check_permissions
        || protection.bits_grant(context, access)
        || protection.capabilities_grant(context, access)
    {
        return Ok(());
    }
    Err(Errno::EACCES.into())
}

/// May a name be added to this directory, whose record this is?
pub(crate) fn check_add(
    context: &RequestContext,
    directory: &Inode,
    record: &Record,
) -> Result<()> {
    if record.links_count == 0 {
        return Err(Errno::ENOENT.into());
    }
    check_record(context, directory, record, Access::WRITE | Access::EXECUTE)
}

/// May the name of `victim` be removed from this directory?
pub(crate) fn check_remove(
    context: &RequestContext,
    directory: &Inode,
    victim: &Inode,
) -> Result<()> {
    let directory = protection(directory, &directory.fields.lock().record);
    check_access(context, &directory, Access::WRITE | Access::EXECUTE)?;
    let victim = protection(victim, &victim.fields.lock().record);
    Ok(victim.check_remove(context, &directory)?)
}

/// May the inode get one more name?
pub(crate) fn check_link(inode: &Inode, record: &Record) -> Result<()> {
    protection(inode, record).check_link()?;
    if record.links_count == 0 { Err(Errno::ENOENT.into()) } else { Ok(()) }
}

/// May these attributes be changed?
pub(crate) fn check_set_attributes(
    context: &RequestContext,
    inode: &Inode,
    changes: &SetAttributes,
) -> Result<()> {
    let protection = protection(inode, &inode.fields.lock().record);
    let may_write = || check_access(context, &protection, Access::WRITE);
    protection.check_set_attributes(context, changes, CHANGEABLE, may_write)
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

/// The flags that a new inode gets from its directory.
pub(crate) fn inherited_flags(directory: FileFlags, file_type: FileType) -> FileFlags {
    let inherited = CHANGEABLE - FIXED - FileFlags::TOP_DIRECTORY;
    directory & inherited & settable_flags(CHANGEABLE, file_type)
}
