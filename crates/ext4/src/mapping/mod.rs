//! The mapping from a file's blocks to the device's: extent trees and block maps behind one
//! interface.
//!
//! # State
//! The root is in the inode's fields, the other nodes are metadata buffers. [`map`] looks blocks up
//! in the [extent status](crate::extent_status) first, and every change made here is noted there.
//!
//! # Locking
//! Callers hold the inode's content lock: shared to look up, exclusively to change.
//!
//! # Crash
//! Unless its comment says otherwise, a function is at most one step of one transaction, and leaves
//! a valid mapping with the right number of sectors in the inode. Longer work returns
//! [`StepProgress`]: a crash between steps leaves it partly done.
//!
//! # Invariants
//! - A change counts as one of the inode's data, so `fdatasync` waits for it.
//! - A change that fails with `NoSpace`, `CommitFirst` or an errno has changed nothing.
//! - A cluster belongs to the inode while one of its blocks is mapped.
//!
//! # Reference
//! "The Contents of inode.i_block" and "Bigalloc" in the kernel's documentation of ext4.

mod allocate;
mod block_map;
mod buffers;
mod charge;
mod clusters;
#[cfg(test)]
mod memory;
mod remove;
mod steps;
mod store;
mod tree;
mod whole;

pub(crate) use allocate::{
    Hole, WantedBlocks, allocate, allocate_in, allocate_promised, reach, release_promised,
    release_unmapped,
};
pub(crate) use charge::charge_blocks;
pub(crate) use remove::{remove, remove_all};
pub(crate) use steps::{StepHandles, StepProgress};
pub(crate) use whole::whole;

use crate::alloc::with_space_retry;
use crate::content::ContentStore;
use crate::credits;
use crate::error::{Error, Result};
use crate::extent_status::{CachedExtent, ExtentState, ExtentStatus, MappedRun};
use crate::inode::Inode;
use buffers::{NodeBuffers, NodeChanges};
use drystone_ext4_format::block_map::DIRECT_POINTERS;
use drystone_ext4_format::extent::{Extent, ExtentNode, ExtentNodeMut, NodePlace};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inode::{Inode as DiskInode, InodeFlags};
use drystone_ext4_format::{LogicalBlock, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_vfs::{Errno, FileType};

/// One more than the highest block number of any file: the end of an unlimited range.
pub(crate) const END: u64 = u32::MAX as u64;

/// Prepares a new inode for its mapping, if its type has one. A symbolic link gets one when it
/// needs a block.
pub(crate) fn initialise(fs: &ContentStore, disk: &mut DiskInode, file_type: FileType) {
    if matches!(file_type, FileType::Regular | FileType::Directory) {
        initialise_root(fs, disk);
    }
}

/// Gives an inode an empty mapping: an extent tree if the image has the feature, else a block map.
pub(crate) fn initialise_root(fs: &ContentStore, disk: &mut DiskInode) {
    disk.block_area.fill(0);
    if fs.volume.features.incompat.contains(Incompat::EXTENTS) {
        disk.flags.insert(InodeFlags::EXTENTS);
        ExtentNodeMut::init(&mut disk.block_area, NodePlace::root(disk.number), 0);
    } else {
        disk.flags.remove(InodeFlags::EXTENTS);
    }
}

/// Whether an inode's root has no entries.
pub(crate) fn is_empty_root(disk: &DiskInode) -> bool {
    if disk.flags.contains(InodeFlags::EXTENTS) {
        let place = NodePlace::root(disk.number);
        ExtentNode::reopen(&disk.block_area, place).is_ok_and(|root| root.is_empty())
    } else {
        disk.block_area.iter().all(|byte| *byte == 0)
    }
}

/// The longest extent that may be inserted at a block; `None` if no mapping can hold the block.
pub(crate) fn insert_length_max(
    fs: &ContentStore,
    inode: &Inode,
    logical: LogicalBlock,
) -> Option<u32> {
    let nodes = NodeBuffers::new(fs, inode);
    if nodes.is_tree() { Some(u32::MAX) } else { block_map::run_length_max(&nodes, logical) }
}

/// The first block of the physical cluster for a block of a file, if the file owns it. Only for
/// images with clusters.
pub(crate) fn owned_cluster(
    fs: &ContentStore,
    inode: &Inode,
    logical: LogicalBlock,
) -> Result<Option<PhysicalBlock>> {
    let cluster = logical.get() / fs.volume.layout().blocks_per_cluster();
    clusters::owned(&NodeBuffers::new(fs, inode), u64::from(cluster))
}

/// Whether the inode has an extent tree rather than a block map.
fn has_extents(inode: &Inode) -> bool {
    inode.flags().contains(InodeFlags::EXTENTS)
}

fn check_extents(inode: &Inode) -> Result<()> {
    if has_extents(inode) { Ok(()) } else { Err(Error::Errno(Errno::EOPNOTSUPP)) }
}

/// The mapping of `logical` and the blocks after it, for at most `length_max` blocks.
pub(crate) fn map(
    fs: &ContentStore,
    inode: &Inode,
    logical: LogicalBlock,
    length_max: u32,
) -> Result<MappedRun> {
    map_for_allocation(fs, inode, logical, length_max).map(|(mapped, _)| mapped)
}

/// Like [`map`]. If the look-up searched an extent tree and found a hole, also returns the hole for
/// [`allocate_in`].
pub(crate) fn map_for_allocation(
    fs: &ContentStore,
    inode: &Inode,
    logical: LogicalBlock,
    length_max: u32,
) -> Result<(MappedRun, Option<Hole>)> {
    if let Some(known) = fs.extent_status.lookup(&inode.extents, logical.get(), length_max) {
        return Ok((known, None));
    }
    let nodes = NodeBuffers::new(fs, inode);
    if nodes.is_tree() {
        let mut found = tree::look_up(&nodes, logical.get(), length_max)?;
        if inode.delayed.is_any() {
            found.fact = fs.extent_status.beside_delayed(&inode.extents, found.fact, logical.get());
        }
        if !found.is_small {
            fs.extent_status.found(&inode.extents, found.fact);
        }
        let mapped = found.fact.mapped(logical.get(), length_max);
        let hole = (found.fact.status == ExtentState::Hole)
            .then_some(Hole { length: mapped.length, previous: found.previous });
        return Ok((mapped, hole));
    }
    let mapped = block_map::map(&nodes, logical.get(), length_max)?;
    if logical.get() >= DIRECT_POINTERS {
        fs.extent_status.found(&inode.extents, CachedExtent::of_map(logical, &mapped));
    }
    Ok((mapped, None))
}

/// The next mapped run at or after `from`. It begins at `from` even if more before it is mapped.
pub(crate) fn next_extent(
    fs: &ContentStore,
    inode: &Inode,
    from: LogicalBlock,
) -> Result<Option<Extent>> {
    let nodes = NodeBuffers::new(fs, inode);
    if nodes.is_tree() {
        let found = tree::next(&nodes, from.get())?;
        Ok(found.and_then(|extent| extent.overlap(from.as_u64(), u64::MAX)))
    } else {
        block_map::next(&nodes, from.get())
    }
}

/// Maps a run from [`allocate()`] and charges it to the inode.
///
/// # Errors
/// `NoSpace` and `CommitFirst`: there is no block for a node of the mapping.
pub(crate) fn insert(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    extent: Extent,
) -> Result<()> {
    if inode.delayed.is_any() && !fs.extent_status.prepare(&inode.extents, extent.logical.get()) {
        return Err(Errno::ENOMEM.into());
    }
    let inserted = if append(fs, handle, inode, &extent)? {
        let sectors = u64::from(extent.length) * fs.volume.layout().sectors_per_block();
        fs.quotas.space_changed(fs, handle, inode, sectors as i64)
    } else {
        let mut nodes = NodeChanges::new(fs, handle, inode);
        insert_node(&mut nodes, extent).and_then(|blocks| nodes.charge(blocks as i64))
    };
    inode.note_data_change(handle);
    noting(fs, inode, extent.logical.as_u64(), extent.logical_end(), inserted, |cache| {
        cache.set(&inode.extents, CachedExtent::from(extent));
    })
}

/// The fast path of an insertion: appends an extent to a tree that consists of its root, and counts
/// its blocks, in one change of the inode's fields within a batch. Returns whether it did.
fn append(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    extent: &Extent,
) -> Result<bool> {
    let may_append = has_extents(inode)
        && inode.is_mapping_checked()
        && inode.is_batched()
        && fs.volume.layout().blocks_per_cluster() == 1;
    if !may_append {
        return Ok(false);
    }
    let sectors = u64::from(extent.length) * fs.volume.layout().sectors_per_block();
    inode.update(fs, handle, |fields| {
        let disk = &mut fields.disk;
        let is_appended = tree::append_to_root(&mut disk.block_area, inode.number, extent);
        if is_appended {
            disk.sectors = disk.sectors.saturating_add(sectors);
        }
        Ok(is_appended)
    })
}

/// Inserts an extent into the mapping. Returns by how many blocks the inode's own blocks grew.
fn insert_node(nodes: &mut NodeChanges<'_, '_>, extent: Extent) -> Result<u64> {
    if nodes.is_tree() {
        let blocks = clusters::gained(nodes, &extent)?;
        tree::insert(nodes, extent)?;
        return Ok(blocks);
    }
    if extent.unwritten {
        return Err(Errno::EOPNOTSUPP.into());
    }
    block_map::insert(nodes, extent)?;
    Ok(u64::from(extent.length))
}

/// Notes a change of `[from, to)` in the extent status. After a failed change the range is
/// forgotten.
fn noting<T>(
    fs: &ContentStore,
    inode: &Inode,
    from: u64,
    to: u64,
    changed: Result<T>,
    note: impl FnOnce(&ExtentStatus),
) -> Result<T> {
    match &changed {
        Ok(_) => note(&fs.extent_status),
        Err(_) => fs.extent_status.forget(&inode.extents, from, to),
    }
    changed
}

/// Marks the beginning of a run that [`map`] has returned as written or unwritten: as much of it as one
/// step can. Returns the number of blocks. The run may consist of very many extents, because those that
/// continue each other are one in the extent status.
///
/// # Errors
/// `EOPNOTSUPP` for a block map, which has no unwritten blocks. `NoSpace` and `CommitFirst`: there
/// is no block for a node of the mapping.
pub(crate) fn convert(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    logical: LogicalBlock,
    length: u32,
    to_unwritten: bool,
) -> Result<u32> {
    check_extents(inode)?;
    let (from, to) = (logical.as_u64(), logical.as_u64() + u64::from(length));
    let mut nodes = NodeChanges::new(fs, handle, inode);
    let step = tree::convert(&mut nodes, logical.get(), to, to_unwritten);
    let converted = step.and_then(|progress| {
        nodes.charge(0)?;
        Ok(match progress {
            StepProgress::Done => to,
            StepProgress::More { next } => next,
        })
    });
    inode.note_data_change(handle);
    let end = *converted.as_ref().unwrap_or(&to);
    noting(fs, inode, from, to, converted, |cache| {
        let status = if to_unwritten { ExtentState::Unwritten } else { ExtentState::Written };
        cache.convert(&inode.extents, from, end, status);
    })?;
    // Fits: at most `length`.
    Ok((end - from) as u32)
}

/// Splits the extent that holds `at`, in a handle of its own, so that one starts there.
///
/// # Errors
/// `EOPNOTSUPP` for a block map.
pub(crate) fn split_at(fs: &ContentStore, inode: &Inode, at: LogicalBlock) -> Result<()> {
    check_extents(inode)?;
    with_space_retry(&fs.volume, || {
        let mut handle = fs.volume.start(credits::MAPPING_SHIFT_STEP)?;
        let mut nodes = NodeChanges::new(fs, &mut handle, inode);
        let done = tree::split_at(&mut nodes, at.get()).and_then(|()| nodes.charge(0));
        fs.settle(handle, done)
    })
}

/// Splits an extent that reaches over both ends of `[first, last)`, so that removing these blocks finds room in
/// any case.
///
/// # Errors
/// `EOPNOTSUPP` for a block map.
pub(crate) fn split_around(
    fs: &ContentStore,
    inode: &Inode,
    first: LogicalBlock,
    last: LogicalBlock,
) -> Result<()> {
    check_extents(inode)?;
    let found = tree::next(&NodeBuffers::new(fs, inode), first.get())?;
    let reaches_over = |extent: &Extent| {
        extent.logical.get() < first.get() && extent.logical_end() > last.as_u64()
    };
    if found.as_ref().is_some_and(reaches_over) { split_at(fs, inode, last) } else { Ok(()) }
}

/// The end of the last block if all that is after `from` moves up by `delta` blocks of the file; `None` if
/// nothing is there.
///
/// # Errors
/// `EOPNOTSUPP` for a block map.
pub(crate) fn shifted_end(
    fs: &ContentStore,
    inode: &Inode,
    from: LogicalBlock,
    delta: u32,
) -> Result<Option<u64>> {
    check_extents(inode)?;
    tree::shifted_end(&NodeBuffers::new(fs, inode), from.get(), delta)
}

/// Reads and checks the nodes of the mapping from `from` on, so that a change in steps finds a bad one
/// before its first step.
///
/// # Errors
/// `EOPNOTSUPP` for a block map.
pub(crate) fn read_nodes(fs: &ContentStore, inode: &Inode, from: LogicalBlock) -> Result<()> {
    check_extents(inode)?;
    tree::read_nodes(&NodeBuffers::new(fs, inode), from.get())
}

/// Moves all extents that start at or after `from` by `delta` blocks of the file, in handles of
/// its own. They may only move over a hole, and no extent may reach over `from` ([`split_at`]).
///
/// # Errors
/// `EOPNOTSUPP` for a block map; `EINVAL` if `delta` isn't whole clusters; `EFBIG` if an extent
/// would move out of the file.
pub(crate) fn shift(
    fs: &ContentStore,
    inode: &Inode,
    from: LogicalBlock,
    delta: i64,
) -> Result<()> {
    check_extents(inode)?;
    if delta % i64::from(fs.volume.layout().blocks_per_cluster()) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let moved_from = from.as_u64().saturating_add_signed(delta.min(0));
    let (mut from, mut to) = (from.get(), END);
    // Forgetting once is enough: no thread can look up blocks between the steps, because the
    // content lock is held.
    fs.extent_status.forget(&inode.extents, moved_from, u64::MAX);
    loop {
        // Extents are changed in place, so no step allocates blocks.
        let mut handle = fs.volume.start(credits::MAPPING_SHIFT_STEP)?;
        let mut nodes = NodeChanges::new(fs, &mut handle, inode);
        let step = tree::shift(&mut nodes, from, to, delta)
            .and_then(|progress| nodes.charge(0).map(|()| progress));
        inode.note_data_change(&handle);
        match fs.settle(handle, step)? {
            StepProgress::Done => return Ok(()),
            // Fits: an extent is there.
            StepProgress::More { next } if delta < 0 => from = next as u32,
            StepProgress::More { next } => to = next,
        }
    }
}

#[cfg(test)]
mod tests;
