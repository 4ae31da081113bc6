//! Permission checks.
use crate::error::Result;
use crate::file_system::Ext4;
use crate::inode::Inode;
use drystone_vfs::{Access, RequestContext, SetAttributes};

pub(crate) fn check(_: &Ext4, _: &RequestContext, _: &Inode, _: Access) -> Result<()> {
    Ok(())
}
/// May a name be added to this directory?
pub(crate) fn check_add(_: &Ext4, _: &RequestContext, _: &Inode) -> Result<()> {
    Ok(())
}
/// May the name of `victim` be removed from this directory?
pub(crate) fn check_remove(_: &Ext4, _: &RequestContext, _: &Inode, _: &Inode) -> Result<()> {
    Ok(())
}
pub(crate) fn check_set_attributes(
    _: &Ext4,
    _: &RequestContext,
    _: &Inode,
    _: &SetAttributes,
) -> Result<()> {
    Ok(())
}
