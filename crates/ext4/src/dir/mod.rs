//! Directories.
use crate::error::Result;
use crate::file_system::Ext4;
use crate::inode::Inode;
use drystone_cache::Seal;
use drystone_ext4_format::{InodeNumber, InodeSeed};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{DirectoryVisitor, Errno, FileType};

pub(crate) struct Found {
    pub inode: InodeNumber,
}
pub(crate) fn find(_: &Ext4, _: &Inode, _: &[u8]) -> Result<Option<Found>> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn insert(
    _: &Ext4,
    _: &mut Handle<'_>,
    _: &Inode,
    _: &[u8],
    _: InodeNumber,
    _: FileType,
) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn remove(_: &Ext4, _: &mut Handle<'_>, _: &Inode, _: &[u8]) -> Result<InodeNumber> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn replace(
    _: &Ext4,
    _: &mut Handle<'_>,
    _: &Inode,
    _: &[u8],
    _: InodeNumber,
    _: FileType,
) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn set_parent(_: &Ext4, _: &mut Handle<'_>, _: &Inode, _: InodeNumber) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn parent(_: &Ext4, _: &Inode) -> Result<InodeNumber> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn is_empty(_: &Ext4, _: &Inode) -> Result<bool> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn initialise(_: &Ext4, _: &mut Handle<'_>, _: &Inode, _: InodeNumber) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn read(_: &Ext4, _: &Inode, _: u64, _: &mut DirectoryVisitor<'_>) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn seal(_: InodeSeed) -> Arc<dyn Seal> {
    struct Nothing;
    impl Seal for Nothing {
        fn seal(&self, _: u64, _: &mut [u8]) {}
    }
    Arc::new(Nothing)
}
