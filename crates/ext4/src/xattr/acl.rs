//! Access control lists.
use crate::error::Result;
use crate::file_system::Ext4;
use crate::inode::Inode;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{FileType, RequestContext};

/// What a new inode gets from its directory's default list, or from the umask.
pub(crate) struct Inherited {
    pub permissions: u16,
}
pub(crate) fn inherited(
    _: &Ext4,
    context: &RequestContext,
    _: &Inode,
    _: FileType,
    permissions: u16,
) -> Result<Inherited> {
    Ok(Inherited { permissions: permissions & 0o7777 & !context.umask })
}
pub(crate) fn apply(_: &Ext4, _: &mut Handle<'_>, _: &Arc<Inode>, _: &Inherited) -> Result<()> {
    Ok(())
}
/// Brings the access list in line with new permission bits.
pub(crate) fn change_mode(_: &Ext4, _: &mut Handle<'_>, _: &Arc<Inode>, _: u16) -> Result<()> {
    Ok(())
}
