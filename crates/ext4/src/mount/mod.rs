//! Opening an image and closing it.
//!
//! # Crash
//! Opening writes the superblock (needs recovery, orphans may be present) before the first
//! transaction can; closing clears it after the last one is home. A crash anywhere in between
//! leaves a superblock that asks for recovery.
//!
//! # Reference
//! "The Super Block" and "Journal (jbd2)" in the kernel's ext4 documentation.

mod fast_commit;
mod heartbeat;
mod journal;
mod mounted;
mod options;
mod remount;
mod session;

pub(crate) use heartbeat::Heartbeat;
pub use mounted::Ext4;
pub use options::MountOptions;

use crate::alloc::Allocator;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::known_names::NameBudget;
use crate::mapping;
use crate::orphan::{OrphanFile, Orphans};
use crate::policy::Policy;
use crate::volume::Volume;
use drystone_blockdev::{BlockDevice, GroupFlush, Overlay};
use drystone_cache::Cache;
use drystone_ext4_format::error::InodeProblem;
use drystone_ext4_format::features::{Compat, Incompat, ReadOnlyCompat};
use drystone_ext4_format::superblock::{
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, StateFlags, Superblock,
};
use drystone_ext4_format::{Corrupt, LogicalBlock, PhysicalBlock};
use drystone_jbd2::Journal;
use drystone_sync::Arc;
use std::ops::Range;

/// The image on `device` as its journal has it, in memory: all that was committed, fast commits too.
/// Orphans are left. Nothing is written.
///
/// # Errors
/// What is wrong with the superblock, the journal, or what it has to be replayed onto.
pub fn recovered(device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
    let options = MountOptions::default();
    let superblock = read_superblock(&*device)?;
    check_kind(&superblock)?;
    let device: Arc<dyn BlockDevice> = Arc::new(Overlay::new(device));
    if superblock.features().incompat.contains(Incompat::RECOVER) {
        let area = journal::locate(&device, &superblock, &options)?;
        let block_size = superblock.layout().block_size();
        journal::recover(&device, area.as_ref(), block_size, &options)?;
    }
    Ok(device)
}

impl Engine {
    /// Opens an image, but for what its thread will do.
    fn open(device: Arc<dyn BlockDevice>, options: MountOptions) -> Result<Engine> {
        if options.ignore_journal && !options.read_only {
            return Err(Error::Mount(
                "a dirty journal can only be ignored by a read-only mount".into(),
            ));
        }
        let superblock = read_superblock(&*device)?;
        check_kind(&superblock)?;
        let read_only = read_only_reason(&superblock, &*device, &options);
        // From here on nothing passes a failed flush.
        let flushing = Arc::new(GroupFlush::new(device));
        let heartbeat = match read_only {
            None => Heartbeat::start(&(Arc::clone(&flushing) as _), &superblock)?.map(Arc::new),
            Some(_) => None,
        };
        let opened =
            Engine::open_claimed(flushing, superblock, read_only, heartbeat.clone(), options);
        if opened.is_err()
            && let Some(heartbeat) = heartbeat
            && let Err(error) = heartbeat.stop(true)
        {
            tracing::error!(%error, "the image stays claimed (multi-mount protection)");
        }
        opened
    }

    /// Opens an image that others keep away from.
    fn open_claimed(
        mut flushing: Arc<GroupFlush<Arc<dyn BlockDevice>>>,
        mut superblock: Superblock,
        mut read_only: Option<&'static str>,
        heartbeat: Option<Arc<Heartbeat>>,
        mut options: MountOptions,
    ) -> Result<Engine> {
        let mut device: Arc<dyn BlockDevice> = Arc::clone(&flushing) as _;
        let needs_recovery =
            superblock.features().incompat.contains(Incompat::RECOVER) && !options.ignore_journal;
        // A replay into memory leaves the image as it is.
        let journal_device = options.journal_device.take();
        if read_only.is_some() && needs_recovery {
            options.journal_device =
                journal_device.map(|journal| Arc::new(Overlay::new(journal)) as _);
            flushing = Arc::new(GroupFlush::new(Arc::new(Overlay::new(device))));
            device = Arc::clone(&flushing) as _;
        } else {
            options.journal_device =
                journal_device.map(|journal| Arc::new(GroupFlush::new(journal)) as _);
        }
        let area = journal::locate(&device, &superblock, &options)?;
        if needs_recovery {
            let block_size = superblock.layout().block_size();
            journal::recover(&device, area.as_ref(), block_size, &options)?;
            superblock = read_superblock(&*device)?;
        }
        if read_only.is_none() && superblock.features().check_writable().is_err() {
            read_only = Some("the image has features that are only known for reading");
        }
        if read_only.is_none() {
            session::begin(&*device, &mut superblock, &options, area.is_some())?;
        }
        let cache = Arc::new(Cache::new(
            Arc::clone(&device),
            superblock.layout().block_size(),
            options.buffer_bytes(),
        ));
        let taken = area.as_ref().map_or_else(Vec::new, |area| area.taken().to_vec());
        let journal = journal::open(&cache, &superblock, area, read_only.is_some(), &options)?;
        if let Some(heartbeat) = &heartbeat {
            heartbeat.guard(&journal);
        }
        let mut fs = assemble(flushing, cache, journal, superblock, read_only, &taken, &options)?;
        fs.heartbeat = heartbeat;
        fs.open_orphans(options.policy)?;
        fs.quotas.open(&fs)?;
        if fs.volume.read_only.is_none() {
            fs.recover_orphans()?;
        }
        Ok(fs)
    }

    /// Finds the orphan file, and chooses where orphans are recorded.
    fn open_orphans(&mut self, policy: Policy) -> Result<()> {
        if self.volume.read_only.is_some() {
            return Ok(());
        }
        let has_file = self.volume.features.compat.contains(Compat::ORPHAN_FILE);
        let file = if has_file { Some(self.open_orphan_file()?) } else { None };
        self.orphans = Orphans::open(file, policy.orphans)?;
        Ok(())
    }

    fn open_orphan_file(&self) -> Result<OrphanFile> {
        let number = self.volume.with_superblock(|superblock| superblock.orphan_file_inode());
        let number =
            number.ok_or(Corrupt::Missing { feature: "orphan_file", missing: "orphan file" })?;
        let inode = self.own_inode(number)?;
        let mut blocks = Vec::new();
        let mut next = LogicalBlock::FIRST;
        while let Some(extent) = mapping::next_extent(self, &inode, next)? {
            // A damaged tree may map the same blocks again and again.
            let room = self.volume.layout.blocks_count() - blocks.len() as u64;
            if u64::from(extent.length) > room {
                let problem = InodeProblem::Size { bytes: inode.fields().disk.size_bytes };
                return Err(Corrupt::Inode { inode: number, problem }.into());
            }
            for offset in 0..u64::from(extent.length) {
                blocks.push(PhysicalBlock::new(extent.physical.get() + offset));
            }
            match extent.logical.checked_add(extent.length) {
                Some(end) => next = end,
                None => break,
            }
        }
        OrphanFile::open(&self.volume, number, inode.seed(), &blocks)
    }

    fn recover_orphans(&self) -> Result<()> {
        let marked = self
            .volume
            .with_superblock(|superblock| superblock.state().contains(StateFlags::ERRORS));
        if marked {
            tracing::warn!("the image is marked as damaged: orphans are left for a checker");
            return Ok(());
        }
        let orphans = self.clean_orphans()?;
        if orphans > 0 {
            tracing::info!(orphans, "cleaned up what a crash had left");
        }
        Ok(())
    }
}

/// Puts a mount together; also a bare one, which reads the journal's place before there is a
/// journal. `taken` are the blocks of the journal, as far as they are known.
fn assemble(
    device: Arc<GroupFlush<Arc<dyn BlockDevice>>>,
    cache: Arc<Cache>,
    journal: Arc<Journal>,
    superblock: Superblock,
    read_only: Option<&'static str>,
    taken: &[Range<u64>],
    options: &MountOptions,
) -> Result<Engine> {
    let name_budget = NameBudget::new(options.name_bytes());
    let volume = Volume::new(device, cache, journal, superblock, read_only, name_budget)?;
    let volume = Arc::new(volume);
    let allocator = Allocator::open(Arc::clone(&volume), options.policy, taken)?;
    Ok(Engine::assemble(volume, allocator, Orphans::new(), None, options))
}

/// Reads and checks the superblock.
fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if device.size_bytes() < SUPERBLOCK_OFFSET_BYTES + SUPERBLOCK_BYTES as u64 {
        return Err(Error::Mount(format!(
            "not an ext2, ext3 or ext4 image: {} bytes are too few for a superblock",
            device.size_bytes()
        )));
    }
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    let superblock = Superblock::check(&bytes)?;
    let layout = superblock.layout();
    let size = layout.blocks_count() * layout.block_size() as u64;
    if size > device.size_bytes() {
        return Err(Error::Mount(format!(
            "the image is cut off: the file system has {size} bytes, the device {}",
            device.size_bytes()
        )));
    }
    Ok(superblock)
}

fn check_kind(superblock: &Superblock) -> Result<()> {
    if superblock.features().incompat.contains(Incompat::JOURNAL_DEV) {
        return Err(Error::Mount("this is the journal of another image, not an image".into()));
    }
    Ok(())
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
