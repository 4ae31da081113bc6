//! The content of files: data, its blocks, its size.
//!
//! # State
//! Data goes straight to the device, which for an image in a file means to the host's page cache. A
//! new block is written before it is mapped; an old one is overwritten in place.
//!
//! The last block of a file may hold old data past the end of the file. A truncation doesn't zero
//! it, because a crash could then leave the old size with zeroed bytes. It is zeroed when the file
//! grows over it, or some time after the truncation is durable ([`tail`]).
//!
//! # Locking
//! The inode's content lock: shared to read, exclusive to change data, mapping or size.
//!
//! # Crash
//! The journal flushes the device before it commits, so a mapping is never durable before its data.
//! A truncation is one handle, or a chain of handles while the inode is recorded as an orphan.

mod blocks;
mod extents;
mod fallocate;
mod inline;
mod link;
mod read;
mod record;
mod size;
mod tail;
mod write;
mod write_back;

pub(crate) use extents::{extents, seek};
pub(crate) use fallocate::fallocate;
pub(crate) use link::{length_max as link_length_max, link_length, read_link, write_link};
pub(crate) use read::read;
pub(crate) use record::ensure_large;
pub(crate) use size::{finish_cut, set_size};
pub(crate) use tail::{clear_all as clear_tails, drop_pending};
pub(crate) use write::{append, write};
pub(crate) use write_back::{discard, discard_all, flush, flush_all, sync, write_back_all};

use crate::content::ContentStore;
use crate::error::{Error, Result};
use crate::inode::{Fields, Inode};
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inode::InodeFlags;
use drystone_vfs::permission::set_id_lost;
use drystone_vfs::{Capabilities, Errno, FileType, RequestContext};

/// The block that holds the byte at `offset`. The number fits, because offsets were checked against
/// the size limit.
fn block_of(fs: &ContentStore, offset: u64) -> LogicalBlock {
    let number = offset / fs.volume.block_size() as u64;
    debug_assert!(u32::try_from(number).is_ok(), "an offset beyond the size limit");
    LogicalBlock::new(number as u32)
}

/// The offset of a block's first byte.
fn offset_of(fs: &ContentStore, block: LogicalBlock) -> u64 {
    block.as_u64() * fs.volume.block_size() as u64
}

/// The largest size of this inode's content. Inline data that is moved out gets extents if the
/// image has them.
fn size_max(fs: &ContentStore, inode: &Inode) -> u64 {
    let flags = inode.flags();
    let will_have_extents = flags.contains(InodeFlags::INLINE_DATA)
        && fs.volume.features.incompat.contains(Incompat::EXTENTS);
    if flags.contains(InodeFlags::EXTENTS) || will_have_extents {
        fs.volume.layout().extent_file_bytes_max()
    } else {
        fs.volume.layout().mapped_file_bytes_max()
    }
}

/// Whether the content is stored in the inode.
fn is_inline(inode: &Inode) -> bool {
    inode.flags().contains(InodeFlags::INLINE_DATA)
}

/// Fails unless `inode` is a regular file whose data can be changed.
fn check_changeable(fs: &ContentStore, inode: &Inode) -> Result<()> {
    fs.volume.check_writable()?;
    match inode.file_type() {
        FileType::Regular => {}
        FileType::Directory => return Err(Errno::EISDIR.into()),
        _ => return Err(Errno::EINVAL.into()),
    }
    let flags = inode.flags();
    if flags.contains(InodeFlags::ENCRYPT) {
        return Err(Error::Errno(Errno::ENOKEY));
    }
    if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::VERITY) {
        return Err(Error::Errno(Errno::EPERM));
    }
    Ok(())
}

/// Stamps a change of content, and clears the set-id bits that the writer may not leave set.
fn touch(fs: &ContentStore, context: &RequestContext, fields: &mut Fields) {
    if context.stamps_content() {
        let now = fs.now();
        fields.disk.modification_time = now;
        fields.disk.change_time = now;
    }
    fields.disk.mode &= !rights_lost(context, fields);
}

/// The set-id bits that a change of content by `context` clears.
fn rights_lost(context: &RequestContext, fields: &Fields) -> u16 {
    if context.has(Capabilities::SET_ID) {
        return 0;
    }
    set_id_lost(context, fields.disk.mode, fields.disk.group)
}
