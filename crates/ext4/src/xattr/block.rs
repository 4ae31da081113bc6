//! One attribute block: reading, sharing, changing, making and releasing it.
//!
//! # Locking
//! See [`XattrBlockIndex`](crate::content::XattrBlockIndex): the number of sharers changes only under
//! the lock of the block's hash, which the block's content determines.

use crate::alloc::{BlockKind, BlockRequest, Reach};
use crate::block_use;
use crate::content::{ContentStore, XattrIndexShard};
use crate::error::{Error, Result};
use crate::inode::Inode;
use drystone_cache::Buffer;
use drystone_ext4_format::PhysicalBlock;
use drystone_ext4_format::xattr::{
    AttributePlace, AttributeSet, AttributesBlock, REFERENCE_COUNT_MAX, set_reference_count,
    verify_block,
};
use drystone_jbd2::Handle;
use drystone_sync::{Arc, MutexGuard};

/// Reads and checks the attribute block of an inode. Later uses check it again: a damaged image may use
/// the block for something else too.
pub(super) fn load(fs: &ContentStore, inode: &Inode, block: PhysicalBlock) -> Result<Arc<Buffer>> {
    fs.allocator.groups.check_mapped(inode.number, block, 1)?;
    let buffer = fs.volume.read(block)?;
    let is_new = !buffer.is_verified();
    check(fs, inode, &buffer, block)?;
    if is_new {
        let hash = hash_of(&buffer, place(inode, block))?;
        fs.xattr_blocks.shard(hash).insert(hash, block);
    }
    Ok(buffer)
}

/// Checks a block before anything depends on it or changes it: a changed block has its checksum only when
/// a commit has frozen it.
fn check(fs: &ContentStore, inode: &Inode, buffer: &Buffer, block: PhysicalBlock) -> Result<()> {
    buffer.check_once(block_use::ATTRIBUTES, |bytes| {
        verify_block(bytes, fs.volume.seed, inode.number, block)?;
        AttributesBlock::check(bytes, place(inode, block))?;
        Ok(())
    })
}

fn place(inode: &Inode, block: PhysicalBlock) -> AttributePlace {
    AttributePlace { inode: inode.number, block: Some(block) }
}

fn hash_of(buffer: &Buffer, place: AttributePlace) -> Result<u32> {
    Ok(AttributesBlock::check(&buffer.read(), place)?.hash())
}

/// Locks the shard of a block's hash. The hash can't change: `inode` shares the block, and a thread
/// rewrites a block only after it found, under this lock, that its inode is the only sharer.
fn lock<'a>(
    fs: &'a ContentStore,
    buffer: &Buffer,
    place: AttributePlace,
) -> Result<(MutexGuard<'a, XattrIndexShard>, u32)> {
    let hash = hash_of(buffer, place)?;
    Ok((fs.xattr_blocks.shard(hash), hash))
}

/// Finds a block that holds exactly this set, and adds a sharer.
pub(super) fn share(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    set: &AttributeSet,
) -> Result<Option<PhysicalBlock>> {
    let mut wanted = vec![0; fs.volume.block_size()];
    set.encode_block(&mut wanted, 1).map_err(|_| Error::NoSpace)?;
    let any = AttributePlace { inode: inode.number, block: None };
    let hash = AttributesBlock::check(&wanted, any)?.hash();
    for block in fs.xattr_blocks.candidates(hash) {
        let buffer = fs.volume.read(block)?;
        let shard = fs.xattr_blocks.shard(hash);
        if !shard.contains(hash, block) || !is_same(&buffer.read(), &wanted) {
            continue;
        }
        // It may have left memory since it was checked. A damaged one is left to the inodes that have it.
        if check(fs, inode, &buffer, block).is_err() {
            continue;
        }
        let count = AttributesBlock::check(&buffer.read(), place(inode, block))?.reference_count();
        if count < REFERENCE_COUNT_MAX {
            let mut bytes = handle.write(&buffer, fs.xattr_blocks.seal())?;
            set_reference_count(&mut bytes, count + 1);
            return Ok(Some(block));
        }
    }
    Ok(None)
}

/// Whether two blocks are equal, apart from the number of sharers and the checksum.
fn is_same(left: &[u8], right: &[u8]) -> bool {
    [0..4, 8..16, 20..left.len()]
        .into_iter()
        .all(|range| left.get(range.clone()) == right.get(range))
}

/// Replaces the content of a block. False, and nothing changed, if the block has other sharers.
pub(super) fn rewrite(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    block: PhysicalBlock,
    set: &AttributeSet,
) -> Result<bool> {
    let buffer = load(fs, inode, block)?;
    let place = place(inode, block);
    let (mut shard, hash) = lock(fs, &buffer, place)?;
    if AttributesBlock::check(&buffer.read(), place)?.reference_count() > 1 {
        return Ok(false);
    }
    shard.remove(hash, block);
    drop(shard);
    set.encode_block(&mut handle.write(&buffer, fs.xattr_blocks.seal())?, 1)
        .map_err(|_| Error::NoSpace)?;
    let hash = hash_of(&buffer, place)?;
    fs.xattr_blocks.shard(hash).insert(hash, block);
    Ok(true)
}

/// Allocates a block for attributes, for [`fill`] to write.
pub(super) fn allocate(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    reach: Reach,
) -> Result<PhysicalBlock> {
    let request = BlockRequest {
        is_promised: false,
        goal: fs.allocator.data_goal(inode.number),
        length: 1,
        kind: BlockKind::Metadata,
        below_32_bits: false,
        reach,
        file: None,
    };
    Ok(fs.allocator.blocks.allocate(handle, &request)?.start)
}

/// Writes a set to a block from [`allocate`].
pub(super) fn fill(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    block: PhysicalBlock,
    set: &AttributeSet,
) -> Result<()> {
    let buffer = fs.volume.zeroed(block)?;
    set.encode_block(&mut handle.create(&buffer, fs.xattr_blocks.seal())?, 1)
        .map_err(|_| Error::NoSpace)?;
    buffer.note_use(block_use::ATTRIBUTES);
    let hash = hash_of(&buffer, place(inode, block))?;
    fs.xattr_blocks.shard(hash).insert(hash, block);
    Ok(())
}

/// Takes a sharer off a block, and frees the block with the last one. True if it is free now.
pub(super) fn release(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    block: PhysicalBlock,
) -> Result<bool> {
    let buffer = load(fs, inode, block)?;
    let place = place(inode, block);
    {
        let (mut shard, hash) = lock(fs, &buffer, place)?;
        let count = AttributesBlock::check(&buffer.read(), place)?.reference_count();
        if count > 1 {
            let mut bytes = handle.write(&buffer, fs.xattr_blocks.seal())?;
            set_reference_count(&mut bytes, count - 1);
            return Ok(false);
        }
        shard.remove(hash, block);
    }
    fs.allocator.blocks.free(handle, block, 1, BlockKind::Metadata)?;
    Ok(true)
}
