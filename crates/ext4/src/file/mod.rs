//! File data.
use crate::error::Result;
use crate::file_system::Ext4;
use crate::inode::Inode;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Errno, Extent, FallocateMode, RequestContext, SeekFrom};

pub(crate) fn read(_: &Ext4, _: &Inode, _: u64, _: &mut [u8]) -> Result<usize> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn write(
    _: &Ext4,
    _: &RequestContext,
    _: &Arc<Inode>,
    _: u64,
    _: &[u8],
) -> Result<usize> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn append(
    _: &Ext4,
    _: &RequestContext,
    _: &Arc<Inode>,
    _: &[u8],
) -> Result<(u64, usize)> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn fallocate(
    _: &Ext4,
    _: &RequestContext,
    _: &Arc<Inode>,
    _: FallocateMode,
    _: u64,
    _: u64,
) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
/// Content lock held.
pub(crate) fn set_size(_: &Ext4, _: &RequestContext, _: &Arc<Inode>, _: u64) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
/// Finishes a cut that a crash interrupted: frees what is behind the size, takes it off the record.
pub(crate) fn finish_cut(_: &Ext4, _: &Arc<Inode>) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn seek(_: &Ext4, _: &Inode, _: SeekFrom) -> Result<u64> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn extents(_: &Ext4, _: &Inode, _: u64, _: u64, _: usize) -> Result<Vec<Extent>> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn read_link(_: &Ext4, _: &Inode) -> Result<Vec<u8>> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn write_link(_: &Ext4, _: &mut Handle<'_>, _: &Arc<Inode>, _: &[u8]) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn sync(_: &Ext4, _: &Inode, _: bool) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn write_back_all(_: &Ext4) -> Result<()> {
    Ok(())
}
/// The inode is deleted: forget what waits to be done to its data.
pub(crate) fn drop_pending(_: &Ext4, _: &Inode) {}
