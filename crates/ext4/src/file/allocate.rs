//! `fallocate`: what it checks, and which mode does what.

use super::space::give_space;
use super::{block_of, check_changeable, flush, inline, is_inline, range, size_max};
use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::Inode;
use crate::xattr;
use drystone_ext4_format::inode::InodeFlags;
use drystone_sync::Arc;
use drystone_vfs::{Errno, FallocateMode, RequestContext};

/// Changes the space behind a range of a file.
pub(crate) fn fallocate(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    mode: FallocateMode,
    offset: u64,
    length: u64,
) -> Result<()> {
    check_changeable(fs, context, inode)?;
    if length == 0 {
        return Err(Errno::EINVAL.into());
    }
    let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
    xattr::drop_capability(fs, inode)?;
    let _content = inode.content.write();
    let flags = inode.flags();
    if flags.contains(InodeFlags::APPEND) && !matches!(mode, FallocateMode::Allocate { .. }) {
        return Err(Errno::EPERM.into());
    }
    if end > size_max(fs, inode) {
        return Err(Errno::EFBIG.into());
    }
    if !flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
        && mode != FallocateMode::PunchHole
    {
        // Block maps can't say that a block is unwritten.
        return Err(Errno::EOPNOTSUPP.into());
    }
    if is_inline(inode) {
        inline::move_out(fs, inode)?;
    }
    // What waits keeps waiting only where nothing is done to it.
    let is_beside = matches!(mode, FallocateMode::Allocate { .. })
        && !inode
            .delayed
            .is_any_in(block_of(fs, offset).get(), end.div_ceil(fs.volume.block_size() as u64));
    if !is_beside {
        flush(fs, inode)?;
    }
    match mode {
        FallocateMode::Allocate { keep_size } => {
            give_space(fs, context, inode, offset, end, keep_size)
        }
        FallocateMode::PunchHole => range::punch(fs, context, inode, offset, end),
        FallocateMode::ZeroRange { keep_size } => {
            range::zero(fs, context, inode, offset, end, keep_size)
        }
        FallocateMode::CollapseRange => range::collapse(fs, context, inode, offset, length),
        FallocateMode::InsertRange => range::insert(fs, context, inode, offset, length),
    }
}
