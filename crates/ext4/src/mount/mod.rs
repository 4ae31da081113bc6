//! Opening an image and closing it.
//!
//! # Crash
//! An image that is refused because of its journal is not changed. Opening marks the superblock (needs
//! recovery, orphans may be present) before the first transaction can be written. Closing clears the
//! marks after the last one is checkpointed. A crash in between leaves a superblock that asks for
//! recovery.
//!
//! # Reference
//! "The Super Block" and "Journal (jbd2)" in the kernel's ext4 documentation.

mod file_system;
mod growth;
mod journal;
mod mounted;
mod options;
mod remount;
mod superblock;

pub use mounted::Ext4;
pub use options::{GrowthPlanner, MountOptions, PlannedGrowth};

use crate::alloc::Allocator;
use crate::content::{
    ContentStore, DelayedAllocation, LeafLocks, NameRules, UnclearedTails, XattrBlockIndex,
};
use crate::dentry_cache::DentryBudget;
use crate::error::{Error, Result};
use crate::extent_status::ExtentStatus;
use crate::found_damage::turns_read_only;
use crate::inode::{InodeStore, InodeTable};
use crate::lock_classes;
use crate::mapping;
use crate::mmp::MultiMountProtection;
use crate::operations::Engine;
use crate::orphan::{OrphanFile, Orphans};
use crate::policy::Policy;
use crate::quota::Quotas;
use crate::volume::Volume;
use drystone_blockdev::{BlockDevice, GroupFlush, Overlay};
use drystone_cache::Cache;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::{Compat, Incompat, ReadOnlyCompat};
use drystone_ext4_format::superblock::{
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, StateFlags, Superblock,
};
use drystone_ext4_format::{Corrupt, PhysicalBlock};
use drystone_jbd2::Journal;
use drystone_sync::{Arc, Mutex};
use std::ops::Range;

/// The image on `device` with its journal replayed in memory, fast commits included. Orphans are left.
/// Nothing is written.
///
/// # Errors
/// What is wrong with the superblock, the journal, or what it has to be replayed onto.
pub fn recovered(device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
    let options = MountOptions::default();
    let superblock = superblock::read(&*device)?;
    let device: Arc<dyn BlockDevice> = Arc::new(Overlay::new(device));
    if superblock.features().incompat.contains(Incompat::RECOVER) {
        let area = journal::locate(&device, &superblock, &options, true)?;
        journal::recover(&device, area.as_ref(), &superblock, &options)?;
    }
    Ok(device)
}

/// Opens an image. The caller starts the thread that writes data.
fn open(device: Arc<dyn BlockDevice>, options: MountOptions) -> Result<Engine> {
    if options.ignore_journal && !options.read_only {
        return Err(Error::Mount(
            "a dirty journal can only be ignored by a read-only mount".into(),
        ));
    }
    let superblock = superblock::read(&*device)?;
    let read_only = read_only_reason(&superblock, &*device, &options);
    // From here on nothing passes a failed flush.
    let flushing = Arc::new(GroupFlush::new(device));
    let mmp = match read_only {
        None => {
            MultiMountProtection::start(&(Arc::clone(&flushing) as _), &superblock)?.map(Arc::new)
        }
        Some(_) => None,
    };
    let opened = open_claimed(flushing, superblock, read_only, mmp.clone(), options);
    if opened.is_err()
        && let Some(mmp) = mmp
        && let Err(error) = mmp.stop(true)
    {
        tracing::error!(%error, "the image stays claimed (multi-mount protection)");
    }
    opened
}

/// Opens an image that is claimed if it has multi-mount protection.
fn open_claimed(
    mut flushing: Arc<GroupFlush<Arc<dyn BlockDevice>>>,
    mut superblock: Superblock,
    mut read_only: Option<&'static str>,
    mmp: Option<Arc<MultiMountProtection>>,
    mut options: MountOptions,
) -> Result<Engine> {
    let mut device: Arc<dyn BlockDevice> = Arc::clone(&flushing) as _;
    if mmp.is_some() {
        // Another machine may have written to the image until it was claimed.
        device.refresh(SUPERBLOCK_OFFSET_BYTES, SUPERBLOCK_BYTES as u64);
        superblock = superblock::read(&*device)?;
    }
    let needs_recovery =
        superblock.features().incompat.contains(Incompat::RECOVER) && !options.ignore_journal;
    // A replay into memory leaves the image as it is.
    let journal_device = options.journal_device.take();
    if read_only.is_some() && needs_recovery {
        options.journal_device = journal_device.map(|journal| Arc::new(Overlay::new(journal)) as _);
        flushing = Arc::new(GroupFlush::new(Arc::new(Overlay::new(device))));
        device = Arc::clone(&flushing) as _;
    } else {
        options.journal_device =
            journal_device.map(|journal| Arc::new(GroupFlush::new(journal)) as _);
    }
    let uses_journal = read_only.is_none() || needs_recovery;
    let area = journal::locate(&device, &superblock, &options, uses_journal)?;
    let check_held = || mmp.as_ref().map_or(Ok(()), |mmp| mmp.check_held());
    if needs_recovery {
        check_held()?;
        journal::recover(&device, area.as_ref(), &superblock, &options)?;
        superblock = superblock::read(&*device)?;
    }
    check_held()?;
    if read_only.is_none() && superblock.features().check_writable().is_err() {
        read_only = Some("the image has features that are only known for reading");
    }
    if read_only.is_none()
        && let Some(area) = &area
        && journal::prepare(&device, area, &mut superblock)?
        && turns_read_only(options.error_policy.unwrap_or_else(|| superblock.error_policy()))
    {
        read_only = Some("an error had stopped the journal");
    }
    let cache = Arc::new(Cache::new(
        Arc::clone(&device),
        superblock.layout().block_size(),
        options.buffer_bytes(),
    ));
    let taken = area.as_ref().map_or_else(Vec::new, |area| area.taken().to_vec());
    let has_journal = area.is_some();
    let journal = journal::open(&cache, &superblock, area, read_only.is_some(), &options)?;
    if read_only.is_none() {
        check_held()?;
        superblock::begin(&*device, &mut superblock, &options, has_journal)?;
    }
    if let Some(mmp) = &mmp {
        mmp.guard(&journal);
    }
    let mut fs = assemble(flushing, cache, journal, superblock, read_only, &taken, &options)?;
    fs.mmp = mmp;
    open_orphans(&mut fs, options.policy)?;
    fs.open_quotas()?;
    if fs.volume.read_only.is_none() {
        recover_orphans(&fs)?;
    }
    Ok(fs)
}

/// Finds the orphan file, and chooses where orphans are recorded.
fn open_orphans(fs: &mut Engine, policy: Policy) -> Result<()> {
    if fs.volume.read_only.is_some() {
        return Ok(());
    }
    let has_file = fs.volume.features.compat.contains(Compat::ORPHAN_FILE);
    let file = if has_file { Some(open_orphan_file(fs)?) } else { None };
    fs.content.orphans = Orphans::open(file, policy.orphans)?;
    Ok(())
}

fn open_orphan_file(fs: &Engine) -> Result<OrphanFile> {
    let number = fs.volume.with_superblock(|superblock| superblock.orphan_file_inode());
    let number =
        number.ok_or(Corrupt::Missing { feature: "orphan_file", missing: "orphan file" })?;
    let inode = fs.own_inode(number)?;
    let hole = |_| Corrupt::Missing { feature: "orphan_file", missing: "block of the orphan file" };
    let blocks = inode.fields().disk.size_bytes / fs.volume.block_size() as u64;
    let extents = mapping::whole(fs, &inode, blocks, OrphanFile::BLOCKS_MAX, hole)?;
    // What is mapped past the file's size isn't the file's content.
    let blocks_of = |extent: &Extent| {
        let first = extent.physical.get();
        (first..first + u64::from(extent.length)).map(PhysicalBlock::new)
    };
    let length = inode.fields().disk.size_bytes / fs.volume.block_size() as u64;
    let blocks: Vec<_> = extents.iter().flat_map(blocks_of).take(length as usize).collect();
    OrphanFile::open(&fs.volume, number, inode.seed(), &blocks)
}

fn recover_orphans(fs: &Engine) -> Result<()> {
    let marked =
        fs.volume.with_superblock(|superblock| superblock.state().contains(StateFlags::ERRORS));
    if marked {
        tracing::warn!("the image is marked as damaged: orphans are left for a checker");
        fs.leave_orphans();
        return Ok(());
    }
    let orphans = fs.clean_orphans()?;
    if orphans > 0 {
        tracing::info!(orphans, "cleaned up what a crash had left");
    }
    Ok(())
}

/// Puts an engine together; also a bare one, which finds the journal's blocks before the journal is
/// open. `taken` are the blocks of the journal, as far as they are known.
fn assemble(
    device: Arc<GroupFlush<Arc<dyn BlockDevice>>>,
    cache: Arc<Cache>,
    journal: Arc<Journal>,
    superblock: Superblock,
    read_only: Option<&'static str>,
    taken: &[Range<u64>],
    options: &MountOptions,
) -> Result<Engine> {
    let dentry_budget = DentryBudget::new(options.dentry_bytes());
    let volume =
        Arc::new(Volume::new(device, cache, journal, superblock, read_only, options.error_policy)?);
    let allocator = Allocator::open(Arc::clone(&volume), options.policy, taken)?;
    let content = ContentStore {
        extent_status: Arc::new(ExtentStatus::new(
            options.policy.extent_reclaim,
            options.extent_status_share(),
        )),
        delayed_allocation: DelayedAllocation::new(
            options.delayed_allocation,
            options.delayed_data_bytes() / volume.block_size(),
        ),
        orphans: Orphans::new(),
        quotas: Quotas::new(),
        xattr_blocks: XattrBlockIndex::new(volume.seed),
        tails: UnclearedTails::new(),
        names: volume.with_superblock(NameRules::new),
        leaves: LeafLocks::new(),
        inode_store: InodeStore {
            inodes: InodeTable::new(options.inodes_cached_max()),
            volume,
            allocator,
            dentry_budget,
        },
    };
    Ok(Engine {
        access_times: options.access_time_rules(content.volume.read_only.is_some()),
        rename: Mutex::new(&lock_classes::RENAME, ()),
        content,
        mmp: None,
    })
}

fn read_only_reason(
    superblock: &Superblock,
    device: &dyn BlockDevice,
    options: &MountOptions,
) -> Option<&'static str> {
    if options.read_only {
        Some("as requested")
    } else if device.is_read_only() {
        Some("the device is read-only")
    } else if superblock.features().check_writable().is_err() {
        Some("the image has features that are only known for reading")
    } else if superblock.features().read_only_compat.contains(ReadOnlyCompat::READONLY) {
        Some("the image is marked read-only")
    } else {
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::ImageFile;
    use drystone_blockdev::MemoryDevice;
    use drystone_vfs::{FileSystem, NewNode, RequestContext};

    /// Another mount may change the image by then.
    #[test]
    fn an_image_lost_to_another_mount_is_not_recovered() {
        let Some(file) = ImageFile::new("-t ext4 -O mmp,^orphan_file", 16 << 20) else { return };
        let bytes = std::fs::read(&file.path).expect("an image");
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&bytes));
        let fs = Ext4::open(Arc::clone(&device), MountOptions::default()).expect("a mount");
        let me = RequestContext::superuser();
        fs.create(&me, fs.root(), b"f", NewNode::Regular, 0o644).expect("a file");
        fs.sync().expect("a log to recover");
        drop(fs);
        let superblock = superblock::read(&*device).expect("a superblock");
        let mmp_block = superblock.mmp_block().expect("a block for it").get() as usize;
        let block_size = superblock.layout().block_size();
        let content = || {
            let mut bytes = vec![0; device.size_bytes() as usize];
            device.read_at(0, &mut bytes).expect("a copy");
            bytes[mmp_block * block_size..][..block_size].fill(0);
            bytes
        };
        let before = content();
        let mmp = MultiMountProtection::start(&device, &superblock).expect("a claim");
        let mmp = mmp.map(Arc::new).expect("the feature");
        mmp.lose();
        let flushing = Arc::new(GroupFlush::new(Arc::clone(&device)));
        let opened = open_claimed(flushing, superblock, None, Some(mmp), MountOptions::default());
        assert!(matches!(opened, Err(Error::Mount(_))), "{opened:?}");
        assert!(content() == before, "the image was changed");
    }
}
