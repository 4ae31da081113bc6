//! Block groups.
use crate::error::{Error, Result};
use crate::volume::Volume;
use drystone_ext4_format::superblock::Superblock;
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::Errno;

#[derive(Debug)]
pub(crate) struct Allocator {
    volume: Arc<Volume>,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Data,
    Metadata,
}
pub(crate) struct BlockRequest {
    pub goal: PhysicalBlock,
    pub length: u32,
    pub kind: BlockKind,
    pub below_32_bits: bool,
    pub may_use_reserved: bool,
}
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRun {
    pub start: PhysicalBlock,
    pub length: u32,
}
pub(crate) struct InodeRequest {
    pub parent: InodeNumber,
    pub directory: bool,
    pub top_level: bool,
    pub goal: Option<InodeNumber>,
}
pub(crate) struct FreeCounts {
    pub blocks: u64,
    pub inodes: u64,
}
impl Allocator {
    pub fn open(volume: Arc<Volume>) -> Result<Arc<Allocator>> {
        Ok(Arc::new(Allocator { volume }))
    }
    pub fn allocate_blocks(&self, _: &mut Handle<'_>, _: &BlockRequest) -> Result<BlockRun> {
        Err(Errno::ENOSYS.into())
    }
    pub fn free_blocks(
        &self,
        _: &mut Handle<'_>,
        _: PhysicalBlock,
        _: u64,
        _: BlockKind,
    ) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    pub fn allocate_inode(&self, _: &mut Handle<'_>, _: &InodeRequest) -> Result<InodeNumber> {
        Err(Errno::ENOSYS.into())
    }
    pub fn free_inode(&self, _: &mut Handle<'_>, _: InodeNumber, _: bool) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    pub fn inode_is_allocated(&self, _: InodeNumber) -> Result<bool> {
        Err(Errno::ENOSYS.into())
    }
    pub fn inode_table_block(&self, _: InodeNumber) -> Result<(PhysicalBlock, usize)> {
        let _ = &self.volume;
        Err(Errno::ENOSYS.into())
    }
    pub fn data_goal(&self, _: InodeNumber) -> PhysicalBlock {
        PhysicalBlock::new(0)
    }
    pub fn free_counts(&self) -> FreeCounts {
        FreeCounts { blocks: 0, inodes: 0 }
    }
    pub fn store_counts(&self, _: &mut Superblock) {}
}
pub(crate) fn with_space_retry<T>(_: &Volume, attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut attempt = attempt;
    match attempt() {
        Err(Error::CommitFirst) => Err(Error::NoSpace),
        other => other,
    }
}
