//! Logical to physical. (Signatures that `file`, `inode`, `mount` and `dir` call; bodies to come.)
use crate::error::Result;
use crate::file_system::Ext4;
use crate::inode::Inode;
use drystone_cache::Seal;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::inode::Inode as DiskInode;
use drystone_ext4_format::{InodeSeed, LogicalBlock, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Errno, FileType, RequestContext};

/// The end of the longest file, in blocks: passed as the end of a range that has none.
pub(crate) const END: u64 = u32::MAX as u64;

/// What a lookup found.
pub(crate) struct Mapped {
    pub physical: Option<PhysicalBlock>,
    pub unwritten: bool,
    pub length: u32,
}
/// A run that is allocated and not yet mapped.
pub(crate) struct Run {
    pub physical: PhysicalBlock,
    pub length: u32,
}
/// How far a change got within its handle.
pub(crate) enum Progress {
    Done,
    More { next: u64 },
}
pub(crate) fn map(_: &Ext4, _: &Inode, _: LogicalBlock, _: u32) -> Result<Mapped> {
    Err(Errno::ENOSYS.into())
}
/// The next mapped run at or after `from`; the extent that holds `from` is cut to start there.
pub(crate) fn next_extent(_: &Ext4, _: &Inode, _: LogicalBlock) -> Result<Option<Extent>> {
    Err(Errno::ENOSYS.into())
}
/// Allocates up to `length` blocks for the hole at `logical`; the context says whether reserved
/// blocks may be used.
pub(crate) fn allocate(
    _: &Ext4,
    _: &mut Handle<'_>,
    _: &RequestContext,
    _: &Inode,
    _: LogicalBlock,
    _: u32,
) -> Result<Run> {
    Err(Errno::ENOSYS.into())
}
/// Gives back a run that was not inserted.
pub(crate) fn release_unmapped(_: &Ext4, _: &mut Handle<'_>, _: &Inode, _: &Run) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn insert(_: &Ext4, _: &mut Handle<'_>, _: &Inode, _: Extent) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
pub(crate) fn convert(
    _: &Ext4,
    _: &mut Handle<'_>,
    _: &Inode,
    _: LogicalBlock,
    _: u32,
    _to_unwritten: bool,
) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
/// Frees from the end of `[from, end)` backwards.
pub(crate) fn remove(
    _: &Ext4,
    _: &mut Handle<'_>,
    _: &Inode,
    _: LogicalBlock,
    _end: u64,
) -> Result<Progress> {
    Err(Errno::ENOSYS.into())
}
/// Frees all blocks from `from` on, in handles of its own (credits::CUT each); content lock held,
/// inode on the orphan record.
pub(crate) fn remove_all(_: &Ext4, _: &Arc<Inode>, _: LogicalBlock) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
/// Splits the extent that holds `at`, in a handle of its own, so that one starts there.
pub(crate) fn split_at(_: &Ext4, _: &Inode, _: LogicalBlock) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
/// Moves all extents at or after `from` by `delta` blocks, in handles of its own.
pub(crate) fn shift(_: &Ext4, _: &Inode, _: LogicalBlock, _: i64) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
/// The empty map of a new inode, if its type has one (regular, directory; a link gets one when it
/// needs a block).
pub(crate) fn initialise(_: &Ext4, _: &mut DiskInode, _: FileType) {}
/// Gives an inode an empty map: extents where the image has them, else a block map.
pub(crate) fn initialise_root(_: &Ext4, _: &mut DiskInode) {}
/// Whether the map in the inode is empty.
pub(crate) fn is_empty_root(_: &DiskInode) -> bool {
    true
}
pub(crate) fn seal(_: InodeSeed) -> Arc<dyn Seal> {
    struct Nothing;
    impl Seal for Nothing {
        fn seal(&self, _: u64, _: &mut [u8]) {}
    }
    Arc::new(Nothing)
}
