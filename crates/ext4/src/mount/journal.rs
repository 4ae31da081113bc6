//! Where the journal is, its replay, and its opening.

use super::{assemble, open_orphans, superblock as raw_superblock};
use crate::error::{Error, Result};
use crate::fast_commit;
use crate::mapping;
use crate::mount::MountOptions;
use crate::operations::Engine;
use drystone_blockdev::{BlockDevice, GroupFlush};
use drystone_cache::Cache;
use drystone_ext4_format::features::{Compat, Incompat, ReadOnlyCompat};
use drystone_ext4_format::superblock::{StateFlags, Superblock};
use drystone_ext4_format::{Corrupt, InodeNumber};
use drystone_jbd2::{Journal, JournalArea, JournalExtent, JournalOptions};
use drystone_sync::Arc;
use std::ops::Range;
use uuid::Uuid;

/// Where the journal is; `None` for an image without one, and unless it `is_used` for one whose journal is on a
/// device that wasn't given.
pub(super) fn locate(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    options: &MountOptions,
    is_used: bool,
) -> Result<Option<JournalArea>> {
    if !superblock.features().compat.contains(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    match superblock.journal_inode() {
        Some(number) => locate_inside(device, superblock, options, number).map(Some),
        None if !is_used && options.journal_device.is_none() => Ok(None),
        None => locate_outside(device, superblock, options).map(Some),
    }
}

/// The blocks of the journal's inode, read through a bare mount of the image as it stands.
fn locate_inside(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    options: &MountOptions,
    number: InodeNumber,
) -> Result<JournalArea> {
    let block_size = superblock.layout().block_size();
    let cache = Arc::new(Cache::new(Arc::clone(device), block_size, options.buffer_bytes()));
    let read_only = JournalOptions::default().read_only(true);
    let journal = Journal::unlogged(Arc::clone(&cache), read_only)?;
    let bare = assemble(
        Arc::new(GroupFlush::new(Arc::clone(device))),
        cache,
        journal,
        superblock.clone(),
        Some("the journal is being looked for"),
        &[],
        options,
    )?;
    let inode = bare.own_inode(number)?;
    let hole = |block| Corrupt::JournalHole { inode: number, block };
    let blocks = inode.fields().disk.size_bytes / bare.volume.block_size() as u64;
    let extents = mapping::whole(&bare, &inode, blocks, u64::MAX, hole)?;
    bare.volume.journal.close()?;
    Ok(JournalArea::internal(extents.iter().map(|extent| JournalExtent {
        physical_start: extent.physical.get(),
        length_blocks: extent.length,
    })))
}

/// The journal on a device of its own, which must be this image's and no other's: what it holds is
/// replayed over the image.
fn locate_outside(
    main: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    options: &MountOptions,
) -> Result<JournalArea> {
    let Some(device) = &options.journal_device else {
        let uuid = Uuid::from_bytes(superblock.journal_uuid());
        return Err(Error::Mount(format!(
            "the image keeps its journal, {uuid}, on another device, which was not given; where that \
             device is at hand, 'tune2fs -O ^has_journal' replays and removes the journal, and \
             'tune2fs -j' makes one in the image"
        )));
    };
    // At most 64 KiB.
    let block_size = superblock.layout().block_size() as u32;
    let block = if block_size == 1024 { 2 } else { 1 };
    let area = JournalArea::external(Arc::clone(device), block);
    let journal = drystone_jbd2::read_journal_superblock(main, &area, block_size)?;
    if journal.uuid() != superblock.journal_uuid() {
        return Err(Error::Mount("the device named for the journal holds another journal".into()));
    }
    // As for Linux, which shares no journal either.
    if journal.users() != [superblock.uuid()] {
        return Err(Error::Mount(
            "the journal on the device named for it is not this image's alone".into(),
        ));
    }
    Ok(area)
}

/// Replays what the journal holds.
pub(super) fn recover(
    device: &Arc<dyn BlockDevice>,
    area: Option<&JournalArea>,
    superblock: &Superblock,
    options: &MountOptions,
) -> Result<()> {
    let Some(area) = area else {
        return Err(Corrupt::Missing { feature: "needs_recovery", missing: "journal" }.into());
    };
    // At most 64 KiB.
    let block_size = superblock.layout().block_size() as u32;
    let made_seconds = superblock.creation_time_seconds();
    let recovery = drystone_jbd2::recover(device, area, block_size, made_seconds)?;
    tracing::info!(replayed = ?recovery.report, "replayed the journal");
    if let Some(pending) = recovery.fast_commits {
        // As the last full commit has left it.
        let superblock = raw_superblock::read(&**device)?;
        let open = |device| open_for_replay(device, &superblock, options, area.taken());
        let blocks = fast_commit::replay(device, &superblock, &pending.commits, open)?;
        drystone_jbd2::replace_fast_commits(device, area, block_size, &pending, &blocks)?;
        drystone_jbd2::recover(device, area, block_size, made_seconds)?;
        let (commits, blocks) = (pending.commits.len(), blocks.len());
        tracing::info!(commits, blocks, "replayed fast commits");
    }
    Ok(())
}

/// Prepares the journal of an image that is about to be changed. Returns whether the journal had stopped
/// on an error, and notes that in the superblock. Nothing is written if the journal can't be used.
pub(super) fn prepare(
    device: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    superblock: &mut Superblock,
) -> Result<bool> {
    // At most 64 KiB.
    let block_size = superblock.layout().block_size() as u32;
    let journal = drystone_jbd2::read_journal_superblock(device, area, block_size)?;
    if journal.start().is_some() {
        // The superblock doesn't ask for recovery, so the log is void, as for Linux: whatever cleared
        // that mark may have changed the image since.
        tracing::warn!("the image is marked as complete without its journal: the log is discarded");
        drystone_jbd2::discard(device, area, block_size)?;
    }
    let number = journal.error_number();
    if number == 0 {
        return Ok(false);
    }
    tracing::error!(number, "the journal had stopped on an error: the image needs a check");
    superblock.set_state(superblock.state() | StateFlags::ERRORS);
    raw_superblock::write(&**device, superblock)?;
    drystone_jbd2::forget_error_number(device, area, block_size)?;
    Ok(true)
}

/// An engine without a journal, which writes each change to its place.
fn open_for_replay(
    device: Arc<dyn BlockDevice>,
    superblock: &Superblock,
    options: &MountOptions,
    taken: &[Range<u64>],
) -> Result<Engine> {
    let options = MountOptions { delayed_allocation: false, ..options.clone() };
    let block_size = superblock.layout().block_size();
    let cache = Arc::new(Cache::new(Arc::clone(&device), block_size, options.buffer_bytes()));
    let journal = Journal::unlogged(Arc::clone(&cache), JournalOptions::default())?;
    let device = Arc::new(GroupFlush::new(device));
    let mut fs = assemble(device, cache, journal, superblock.clone(), None, taken, &options)?;
    open_orphans(&mut fs, options.policy)?;
    fs.open_quotas()?;
    Ok(fs)
}

/// Starts the journal, or its stand-in for an image without one.
pub(super) fn open(
    cache: &Arc<Cache>,
    superblock: &Superblock,
    area: Option<JournalArea>,
    read_only: bool,
    options: &MountOptions,
) -> Result<Arc<Journal>> {
    let features = superblock.features();
    let journal_options = JournalOptions::default()
        .commit_interval(options.commit_interval)
        .full_medium_wait(options.full_medium_wait)
        .read_only(read_only)
        .checksums(features.read_only_compat.contains(ReadOnlyCompat::METADATA_CSUM))
        .wide_block_numbers(features.incompat.contains(Incompat::SIXTY_FOUR_BIT));
    Ok(match area {
        Some(area) if !read_only => Journal::open(Arc::clone(cache), area, journal_options)?,
        _ => Journal::unlogged(Arc::clone(cache), journal_options)?,
    })
}
