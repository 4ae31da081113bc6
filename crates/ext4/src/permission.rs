//! Permission checks of ext4's inodes: read-only mounts, access control lists, and what
//! [`drystone_vfs::permission`] says of everything else.
//!
//! # Reference
//! acl(5).

use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::{Inode, InodeSummary};
use crate::xattr::acl;
use drystone_ext4_format::inode::InodeFlags;
use drystone_vfs::permission::Protection;
use drystone_vfs::{
    Access, Capabilities, Errno, FileFlags, FileType, RequestContext, SetAttributes,
};

/// Flags that `chattr` changes; it gives back the others as it got them.
pub(crate) const CHANGEABLE: FileFlags = FileFlags::all()
    .difference(FileFlags::ENCRYPT)
    .difference(FileFlags::INDEX)
    .difference(FileFlags::EXTENTS)
    .difference(FileFlags::VERITY)
    .difference(FileFlags::INLINE_DATA)
    .difference(FileFlags::JOURNAL_DATA);

/// What the checks of all file systems look at.
#[inline]
fn protection(inode: &Inode, summary: &InodeSummary) -> Protection {
    let InodeSummary { mode, user, group, flags, .. } = *summary;
    let flags = FileFlags::from_bits_truncate(flags.bits());
    Protection { file_type: inode.file_type(), mode, user, group, flags }
}

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
    if !context.check_permissions
        || is_granted(fs, context, inode, summary, access)?
        || protection(inode, summary).capabilities_grant(context, access)
    {
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
    let InodeSummary { mode, user, group, has_attributes, .. } = *summary;
    // The group's bits are the list's mask. If they are empty, only the mode counts, as for
    // Linux.
    if context.user != user
        && mode & 0o070 != 0
        && has_attributes
        && let Some(acl) = acl::load(fs, inode, acl::AclKind::Access)?
    {
        let groups: Vec<u32> =
            std::iter::once(context.group).chain(context.groups.iter().copied()).collect();
        return Ok(acl.permits(user, group, context.user, &groups, access.bits()));
    }
    Ok(protection(inode, summary).bits_grant(context, access))
}

/// True if the context is the inode's owner, or may act as the owner.
pub(crate) fn acts_as_owner(context: &RequestContext, inode: &Inode) -> bool {
    context.has(Capabilities::OWNER) || context.user == inode.fields().disk.user
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
    let directory = protection(directory, summary);
    Ok(protection(victim, &victim.summary()).check_remove(context, &directory)?)
}

/// May these attributes be changed?
pub(crate) fn check_set_attributes(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Inode,
    changes: &SetAttributes,
) -> Result<()> {
    fs.volume.check_writable()?;
    let summary = inode.summary();
    let may_write = || check_by(fs, context, inode, &summary, Access::WRITE);
    protection(inode, &summary).check_set_attributes(context, changes, CHANGEABLE, may_write)
}
