//! Delayed allocation: small writes to holes wait in memory, and get their blocks in long runs.
//! Also sync.
//!
//! Data that can't be written stays delayed, and each sync tries again; so its result says whether
//! the data is durable now. A failed write of data does not stop the journal, because it leaves no
//! changes.
//!
//! # Crash
//! A run is written before it is mapped, in the handle that also raises the size on disk; so the
//! size on disk never includes delayed data.

use super::record::raise_durable;
use super::{tail, touch};
use crate::alloc::with_space_retry;
use crate::content::ContentStore;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::{credits, mapping};
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::inode::InodeFlags;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{FileType, RequestContext};

/// Writes of at least this length get blocks at once.
const WRITE_BYTES_MAX: usize = 128 << 10;
/// The most blocks that one handle maps.
const RUN_BLOCKS_MAX: u32 = 2048;
/// Blocks claimed for nodes of a mapping: those of a path, and one more for every so many blocks of
/// data.
const NODES_LEAST: u32 = 6;
const BLOCKS_PER_NODE: u32 = 32;

/// Whether a write of `length` bytes to holes of the file may be delayed.
pub(super) fn may_wait(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Inode,
    length: usize,
) -> bool {
    if !fs.delayed_allocation.is_on || length >= WRITE_BYTES_MAX || context.is_direct {
        return false;
    }
    // When little is free, other writes would lack the blocks that are claimed for nodes but not
    // needed.
    if !fs.delayed_allocation.has_room() || fs.allocator.blocks.is_low() {
        return false;
    }
    let flags = inode.flags();
    // Blocks share clusters, and the number of nodes that a block map will need is unknown.
    flags.contains(InodeFlags::EXTENTS)
        && !flags.intersects(InodeFlags::JOURNAL_DATA | InodeFlags::INLINE_DATA)
        && fs.volume.layout().blocks_per_cluster() == 1
}

/// Keeps `piece` in memory as delayed data. Its blocks are a hole, or hold delayed data already if
/// `is_delayed`. False if no more data may be delayed. The content lock is held exclusively.
pub(super) fn delay(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    piece: &[u8],
    is_delayed: bool,
) -> Result<bool> {
    let block_size = fs.volume.block_size();
    let within = (offset % block_size as u64) as usize;
    let first = super::block_of(fs, offset);
    let blocks = (within + piece.len()).div_ceil(block_size) as u32;
    let keep = || {
        if !is_delayed && !claim(fs, context, inode, first, blocks)? {
            return Ok(false);
        }
        inode.note_written();
        let added = inode.delayed.write(first.get(), within, piece, block_size);
        debug_assert_eq!(added, if is_delayed { 0 } else { blocks });
        if added > 0 {
            fs.delayed_allocation.add(inode, added);
        }
        Ok(true)
    };
    if !fs.volume.without_handle(keep)? {
        return Ok(false);
    }
    let end = offset + piece.len() as u64;
    let stamps = inode.grow_in_memory(end, |fields| {
        let now = fs.now();
        let times = [fields.disk.modification_time, fields.disk.change_time];
        context.stamps_content() && times != [now, now] || super::rights_lost(context, fields) != 0
    });
    if stamps {
        let mut handle = fs.volume.start(credits::WRITE_RECORD)?;
        let done = inode.update(fs, &mut handle, |fields| {
            touch(fs, context, fields);
            Ok(())
        });
        fs.settle(handle, done)?;
    }
    Ok(true)
}

/// Claims blocks for data and nodes, and notes the delayed extent. False if there is no space or no
/// memory.
fn claim(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Inode,
    first: LogicalBlock,
    blocks: u32,
) -> Result<bool> {
    let bytes = bytes_of(fs, blocks);
    fs.quotas.claim_space(fs, context, inode, bytes)?;
    let nodes = inode.delayed.nodes_missing(blocks, NODES_LEAST, BLOCKS_PER_NODE);
    if !fs.allocator.blocks.promise(blocks + nodes, mapping::reach(fs, context)) {
        fs.quotas.end_claim(fs, inode, bytes);
        return Ok(false);
    }
    if !fs.extent_status.delay(&inode.extents, first.get(), blocks) {
        fs.allocator.blocks.take_back(blocks + nodes);
        fs.quotas.end_claim(fs, inode, bytes);
        return Ok(false);
    }
    inode.delayed.add_nodes(nodes);
    Ok(true)
}

fn bytes_of(fs: &ContentStore, blocks: u32) -> u64 {
    u64::from(blocks) * fs.volume.block_size() as u64
}

/// Writes all delayed data of the inode. The content lock is held exclusively, and no handle is
/// open.
pub(crate) fn flush(fs: &ContentStore, inode: &Arc<Inode>) -> Result<()> {
    while !flush_run(fs, inode)? {}
    Ok(())
}

/// Writes the first delayed run. Returns whether it was the last one.
fn flush_run(fs: &ContentStore, inode: &Arc<Inode>) -> Result<bool> {
    if !fs.delayed_allocation.is_on {
        return Ok(true);
    }
    if let Some((first, length)) = inode.delayed.run_from(0) {
        let length = length.min(RUN_BLOCKS_MAX);
        let written = with_space_retry(&fs.volume, || {
            let mut handle = fs.volume.start(credits::WRITE)?;
            let first = LogicalBlock::new(first);
            let written =
                inode.delayed.mapping(|| write_run(fs, &mut handle, inode, first, length));
            fs.settle(handle, written)
        })?;
        inode.delayed.remove(first, written);
        fs.delayed_allocation.remove(written);
        fs.quotas.end_claim(fs, inode, bytes_of(fs, written));
        if inode.delayed.is_any() {
            return Ok(false);
        }
    }
    fs.allocator.blocks.take_back(inode.delayed.take_nodes());
    debug_assert!(inode.fields().durable_size.is_none(), "the size waits for no data");
    Ok(true)
}

/// Writes and maps a run, or its beginning. Returns the number of blocks.
fn write_run(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Arc<Inode>,
    first: LogicalBlock,
    length: u32,
) -> Result<u32> {
    let run = mapping::allocate_promised(fs, handle, inode, first, length)?;
    let length = run.length.min(length);
    let place = run.physical.get() * fs.volume.block_size() as u64;
    let written = inode
        .delayed
        .with_run(first.get(), length, |slices| fs.volume.device.write_vectored_at(place, slices));
    if let Err(error) = written {
        mapping::release_promised(fs, handle, &run)?;
        return Err(Error::Unwritten(error));
    }
    let extent = Extent { logical: first, physical: run.physical, length, unwritten: false };
    if let Err(error) = mapping::insert(fs, handle, inode, extent) {
        mapping::release_promised(fs, handle, &run)?;
        return Err(error);
    }
    // The end of the file may be after its last data. Once no data is delayed, a sync only waits
    // for the last transaction, so this one must raise the size to the end.
    let is_last = length == inode.delayed.count();
    let end = (first.as_u64() + u64::from(length)) * fs.volume.block_size() as u64;
    raise_durable(fs, handle, inode, if is_last { u64::MAX } else { end })?;
    Ok(length)
}

/// Writes all delayed data. Called without locks. Returns the first error; data that could not be
/// written stays delayed.
pub(crate) fn flush_all(fs: &ContentStore) -> Result<()> {
    if !fs.delayed_allocation.is_on {
        return Ok(());
    }
    // Another thread may still write inodes that it has taken off the list; wait for it.
    let _flushing = fs.delayed_allocation.flushing.lock();
    let _stop = fs.volume.stop_on_panic();
    let mut result = Ok(());
    for inode in fs.delayed_allocation.take_waiting() {
        // Run by run, so that a reader waits for one run at most.
        let flushed = loop {
            let _content = inode.content().write();
            match flush_run(fs, &inode) {
                Ok(false) => {}
                Ok(true) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = flushed {
            fs.delayed_allocation.add(&inode, 0);
            result = result.and(Err(error));
        }
    }
    result
}

/// Drops data that could not be written, when the mount ends. Called without locks.
pub(crate) fn discard_all(fs: &ContentStore) {
    for inode in fs.delayed_allocation.take_waiting() {
        let _content = inode.content().write();
        discard(fs, &inode);
    }
}

/// Drops the delayed data of an inode that is freed, or truncated to nothing. The content lock is
/// held exclusively.
pub(crate) fn discard(fs: &ContentStore, inode: &Inode) {
    if !fs.delayed_allocation.is_on {
        return;
    }
    let blocks = inode.delayed.clear();
    if blocks == 0 {
        return;
    }
    fs.delayed_allocation.remove(blocks);
    fs.allocator.blocks.take_back(blocks + inode.delayed.take_nodes());
    fs.quotas.end_claim(fs, inode, bytes_of(fs, blocks));
    fs.extent_status.forget_all(&inode.extents);
    inode.forget_growth();
}

/// Makes the content of an inode durable, with the metadata needed to find it; without `data_only`
/// also its times and owners.
pub(crate) fn sync(fs: &ContentStore, inode: &Arc<Inode>, data_only: bool) -> Result<()> {
    if fs.volume.read_only.is_some() {
        return Ok(());
    }
    if inode.delayed.is_any() && !drystone_sync::planted!("sync-without-delayed") {
        let _content = inode.content().write();
        flush(fs, inode)?;
    }
    // A directory's data are its names, and each change of a name stamps the directory.
    let data_only = data_only && inode.file_type() != FileType::Directory;
    let tid = if data_only { inode.last_data_transaction() } else { inode.last_transaction() };
    fs.volume.commit_up_to(tid)?;
    // Usually the commit's flush, or another caller's, has covered the overwrites in place.
    fs.volume.flush_writes(inode.last_overwrite())?;
    if inode.is_tail_pending() && fs.volume.freeze.takes_changes() {
        let _content = inode.content().write();
        tail::clear_durable(fs, inode)?;
    }
    Ok(())
}

/// Makes all changes durable: writes all delayed data and commits. Then zeroes tails.
pub(crate) fn write_back_all(fs: &ContentStore) -> Result<()> {
    // A failed write must not prevent the commit of everything else.
    let written = flush_all(fs);
    fs.volume.journal.commit_and_wait()?;
    tail::clear_all(fs)?;
    written
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::testing::TestImage;
    use drystone_sync::thread;
    use drystone_vfs::{FileSystem, NewNode, RequestContext};
    use std::time::Duration;

    /// A write that began before the freeze.
    #[test]
    fn a_write_under_way_delays_no_data_in_a_frozen_image() {
        let Some(image) = TestImage::new("default", 16) else { return };
        let fs = image.open();
        let me = RequestContext::superuser();
        let file = fs.create(&me, fs.root(), b"f", NewNode::Regular, 0o644).expect("a file").inode;
        let inode = fs.held(file).expect("an inode");
        fs.freeze().expect("a freeze");
        thread::scope(|scope| {
            let writing = scope.spawn(|| crate::file::write(&fs, &me, &inode, 0, b"late"));
            thread::sleep(Duration::from_millis(100));
            assert!(!fs.delayed_allocation.is_any());
            fs.thaw().expect("the end of the freeze");
            assert_eq!(writing.join().expect("no panic").expect("a write"), 4);
        });
        assert!(fs.delayed_allocation.is_any());
        drop(inode);
        fs.close().expect("a clean end");
    }
}
