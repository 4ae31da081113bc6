//! What is in files: data, its place, its length.
//!
//! # State
//! Data goes straight to the device, which for an image in a file is the host's page cache. A new
//! block is written before it is mapped; an old one is overwritten in place.
//!
//! Behind the end of a file, in its last block, may be old bytes: cutting doesn't clear them, for a
//! crash must not leave the old length with cleared bytes. They are cleared when the file grows over
//! them, and some time after the cut is durable ([`tail`]).
//!
//! # Locking
//! The inode's content lock: shared to read, exclusive to change data, mapping or length.
//!
//! # Crash
//! The journal flushes the device before it commits, so a mapping is never durable before its data.
//! A cut is one handle, or a chain of handles on an inode that the orphan record names.

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
use crate::permission;
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inode::InodeFlags;
use drystone_vfs::{Capabilities, Errno, FileType, RequestContext};

/// The block that holds the byte at `offset`. Offsets are below the size limit, which is checked
/// before: so the number fits.
fn block_of(fs: &ContentStore, offset: u64) -> LogicalBlock {
    let number = offset / fs.volume.block_size() as u64;
    debug_assert!(u32::try_from(number).is_ok(), "an offset beyond the size limit");
    LogicalBlock::new(number as u32)
}

/// The offset of a block's first byte.
fn offset_of(fs: &ContentStore, block: LogicalBlock) -> u64 {
    block.as_u64() * fs.volume.block_size() as u64
}

/// Longest size of this inode's content. Content that has outgrown the inode gets extents where the
/// image has them.
fn size_max(fs: &ContentStore, inode: &Inode) -> u64 {
    let flags = inode.flags();
    let will_have_extents = flags.contains(InodeFlags::INLINE_DATA)
        && fs.volume.features.incompat.contains(Incompat::EXTENTS);
    if flags.contains(InodeFlags::EXTENTS) || will_have_extents {
        fs.volume.layout.extent_file_bytes_max()
    } else {
        fs.volume.layout.mapped_file_bytes_max()
    }
}

/// Whether the content is stored in the inode.
fn is_inline(inode: &Inode) -> bool {
    inode.flags().contains(InodeFlags::INLINE_DATA)
}

/// Fails unless `inode` is a regular file whose data can be changed. What a cache hands down was written
/// when that was allowed, so an immutable file is no obstacle to it.
fn check_changeable(fs: &ContentStore, context: &RequestContext, inode: &Inode) -> Result<()> {
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
    let is_fixed = flags.contains(InodeFlags::IMMUTABLE) && !context.is_cache;
    if is_fixed || flags.contains(InodeFlags::VERITY) {
        return Err(Error::Errno(Errno::EPERM));
    }
    Ok(())
}

/// Stamps a change of content; takes away rights that the writer may not leave on the file.
fn touch(fs: &ContentStore, context: &RequestContext, fields: &mut Fields) {
    if !context.is_cache {
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
    permission::set_id_lost(context, fields)
}
