//! Extended attributes.
pub(crate) mod acl;
use crate::error::Result;
use crate::file_system::Ext4;
use crate::inode::Inode;
use drystone_sync::Arc;
use drystone_vfs::{Errno, RequestContext, XattrMode};

#[derive(Debug)]
pub(crate) struct BlockIndex;
impl BlockIndex {
    pub fn new() -> BlockIndex {
        BlockIndex
    }
}
pub(crate) fn get_checked(_: &Ext4, _: &RequestContext, _: &Inode, _: &[u8]) -> Result<Vec<u8>> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn set_checked(
    _: &Ext4,
    _: &RequestContext,
    _: &Arc<Inode>,
    _: &[u8],
    _: &[u8],
    _: XattrMode,
) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn remove_checked(_: &Ext4, _: &RequestContext, _: &Arc<Inode>, _: &[u8]) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn list_checked(_: &Ext4, _: &RequestContext, _: &Inode) -> Result<Vec<Vec<u8>>> {
    Err(Errno::ENOSYS.into())
}
/// Releases the attribute block and attribute inodes, in handles of its own.
pub(crate) fn release_all(_: &Ext4, _: &Arc<Inode>) -> Result<()> {
    Ok(())
}
