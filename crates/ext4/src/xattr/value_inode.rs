//! Inodes that hold the value of an extended attribute (`ea_inode`).
//!
//! Such an inode has no name. Entries of attributes refer to it by number; its fields of times and
//! version hold the count of these entries and the hash of the value.
//!
//! # Locking
//! Its content never changes while an entry refers to it, so it is read without its content lock. The
//! reading thread holds the `xattrs` lock of an inode that has the entry.
//!
//! # Crash
//! The value goes through the journal, in the handle of the entry that refers to it.
//!
//! # Reference
//! "Extended Attributes" in the kernel's ext4 documentation; the format crate's `xattr` module.

use super::garbage::ValueGarbage;
use super::mismatch;
use crate::alloc::InodeRequest;
use crate::content::ContentStore;
use crate::credits;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::mapping;
use drystone_cache::Seal;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::inode::{Inode as DiskInode, InodeFlags, InodeTimestamp};
use drystone_ext4_format::xattr::{InodeValueFields, inode_value_hash};
use drystone_ext4_format::{ChecksumSeed, InodeNumber, LogicalBlock, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{FileType, RequestContext};

/// Permission bits of an inode that no caller opens.
const PERMISSIONS: u16 = 0o600;

fn value_hash(fs: &ContentStore, value: &[u8]) -> u32 {
    let seed = fs.volume.seed.unwrap_or_else(|| {
        fs.volume.with_superblock(|superblock| ChecksumSeed::from_uuid(&superblock.uuid()))
    });
    inode_value_hash(seed, value)
}

/// Makes an inode for a value of an attribute of `owner`, with one reference. Returns it and the hash of
/// the value. If that fails half way, puts the inode into `garbage`.
pub(super) fn make(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    context: &RequestContext,
    owner: &Inode,
    value: &[u8],
    garbage: &mut ValueGarbage,
) -> Result<(Arc<Inode>, u32)> {
    let request = InodeRequest {
        parent: owner.number,
        directory: false,
        top_level: false,
        goal: Some(owner.number),
    };
    let number = fs.allocator.inodes.allocate(handle, &request)?;
    let mode = FileType::Regular.mode_bits() | PERMISSIONS;
    let mut disk = DiskInode::new(number, mode, fs.now(), fs.volume.layout());
    {
        let owner = owner.fields();
        disk.user = owner.disk.user;
        disk.group = owner.disk.group;
    }
    mapping::initialise(fs, &mut disk, FileType::Regular);
    disk.flags |= InodeFlags::EA_INODE;
    disk.generation = fs.volume.new_generation();
    disk.size_bytes = value.len() as u64;
    let hash = value_hash(fs, value);
    set_fields(&mut disk, InodeValueFields { reference_count: 1, hash });
    let inode = fs.write_new(handle, disk)?;
    if let Err(error) = write_value(fs, handle, context, &inode, value) {
        fs.orphans.abandon(fs, handle, &inode)?;
        garbage.add(inode);
        return Err(error);
    }
    Ok((inode, hash))
}

fn write_value(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    context: &RequestContext,
    inode: &Inode,
    value: &[u8],
) -> Result<()> {
    let block_size = fs.volume.block_size();
    let mut chunks = value.chunks(block_size);
    let mut next = LogicalBlock::FIRST;
    while chunks.len() > 0 {
        // At most 64 blocks.
        let left = chunks.len() as u32;
        let needed = credits::MAPPING_INSERT + left + credits::ORPHAN;
        if handle.credits() < needed && !handle.extend(needed) {
            return Err(Error::CommitFirst);
        }
        let run = mapping::allocate(fs, handle, context, inode, next, left)?;
        let (logical, physical, length) = (next, run.physical, run.length);
        let extent = Extent { logical, physical, length, unwritten: false };
        if let Err(error) = mapping::insert(fs, handle, inode, extent) {
            mapping::release_unmapped(fs, handle, inode, &run)?;
            return Err(error);
        }
        for (offset, chunk) in (0..u64::from(length)).zip(&mut chunks) {
            let buffer = fs.volume.zeroed(PhysicalBlock::new(physical.get() + offset))?;
            let mut bytes = handle.create(&buffer, None::<&Arc<dyn Seal>>)?;
            bytes[..chunk.len()].copy_from_slice(chunk);
        }
        next = LogicalBlock::new(logical.get() + length);
    }
    Ok(())
}

/// The inode that an entry of `owner` refers to. Fails unless it holds a value and nothing else, which
/// Linux demands too.
pub(super) fn find(
    fs: &ContentStore,
    owner: &Inode,
    number: InodeNumber,
    length: usize,
) -> Result<Arc<Inode>> {
    fs.volume.check_nameable(number)?;
    let inode = fs.own_inode(number)?;
    let fits = {
        let fields = inode.fields();
        fields.disk.flags.contains(InodeFlags::EA_INODE)
            && inode.file_type() == FileType::Regular
            && fields.disk.has_block_mapping()
            && fields.disk.size_bytes == length as u64
            && !fields.has_xattrs()
    };
    if fits { Ok(inode) } else { Err(mismatch(owner.number, None, number).into()) }
}

/// The value that an entry of `owner` refers to.
pub(super) fn read(
    fs: &ContentStore,
    owner: &Inode,
    number: InodeNumber,
    length: usize,
) -> Result<Vec<u8>> {
    let inode = find(fs, owner, number, length)?;
    let damaged = || Error::Corrupt(mismatch(owner.number, None, number));
    let block_size = fs.volume.block_size();
    let mut value = Vec::with_capacity(length);
    while value.len() < length {
        // At most 64 blocks.
        let logical = LogicalBlock::new((value.len() / block_size) as u32);
        let left = (length - value.len()).div_ceil(block_size) as u32;
        let mapped = mapping::map(fs, &inode, logical, left)?;
        let first = mapped.physical.filter(|_| !mapped.unwritten).ok_or_else(damaged)?;
        for offset in 0..u64::from(mapped.length) {
            let buffer = fs.volume.read(PhysicalBlock::new(first.get() + offset))?;
            let wanted = (length - value.len()).min(block_size);
            value.extend_from_slice(&buffer.read()[..wanted]);
        }
    }
    let stored = fields_of(&inode.fields().disk).hash;
    if stored == value_hash(fs, &value) { Ok(value) } else { Err(damaged()) }
}

/// Counts one more entry that refers to the inode.
pub(super) fn add_reference(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
) -> Result<()> {
    inode.update(fs, handle, |fields| {
        let mut value = fields_of(&fields.disk);
        let raised = value.reference_count.checked_add(1);
        value.reference_count = raised.ok_or(mismatch(inode.number, None, inode.number))?;
        set_fields(&mut fields.disk, value);
        Ok(())
    })
}

/// Counts one entry less that refers to the inode. True if it was the last: the inode is on the orphan
/// record then, and the caller frees it.
pub(super) fn drop_reference(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Arc<Inode>,
) -> Result<bool> {
    let is_last = inode.update(fs, handle, |fields| {
        let mut value = fields_of(&fields.disk);
        value.reference_count = value.reference_count.saturating_sub(1);
        set_fields(&mut fields.disk, value);
        Ok(value.reference_count == 0)
    })?;
    if is_last {
        fs.orphans.abandon(fs, handle, inode)?;
    }
    Ok(is_last)
}

fn fields_of(disk: &DiskInode) -> InodeValueFields {
    // The fields hold 32 bits each, whatever sign and epoch make of them.
    InodeValueFields::from_inode(
        disk.change_time.seconds as u32,
        disk.version as u32,
        disk.access_time.seconds as u32,
    )
}

fn set_fields(disk: &mut DiskInode, value: InodeValueFields) {
    let (change_time, version, access_time) = value.to_inode();
    // As signed seconds, so that every number fits without the extra bits.
    let time = |field: u32| InodeTimestamp::from_seconds(i64::from(field.cast_signed()));
    disk.change_time = time(change_time);
    disk.access_time = time(access_time);
    disk.version = u64::from(version);
}
