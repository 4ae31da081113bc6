//! The image as every part of the engine sees it: device, cache, journal, geometry, superblock.
//!
//! # State
//! Features never change while mounted, except feature bits that an operation turns on by itself; those are
//! in the superblock. The layout changes when the image grows, while it is frozen. A thread that got
//! the layout before goes on with the old one: it must ask again once it has a handle.
//!
//! # Locking
//! The superblock in memory has a lock of the class `superblock`, under which only locks of the journal
//! and the buffers are taken. Everything else here is immutable, atomic, or published as a whole.

use crate::error::{Error, Result};
use crate::found_damage::{FoundDamage, turns_read_only};
use crate::freeze_gate::FreezeGate;
use crate::lock_classes;
use crate::number_map::SPREAD;
use drystone_blockdev::{BlockDevice, GroupFlush, WriteMark};
use drystone_cache::{Buffer, Cache, Seal};
use drystone_ext4_format::features::Features;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::superblock::{
    ErrorPolicy, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock,
};
use drystone_ext4_format::{ChecksumSeed, Corrupt, InodeNumber, PhysicalBlock};
use drystone_jbd2::{Handle, Journal};
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, Mutex, PerCore, PublishedValue, thread};

/// Where a core's generations start: elsewhere in each mount.
fn first_generation(slot: usize) -> AtomicU64 {
    let (seconds, nanoseconds) = drystone_sync::clock::wall();
    let now = (seconds as u64).rotate_left(32) ^ u64::from(nanoseconds);
    AtomicU64::new((now ^ slot as u64).wrapping_mul(SPREAD))
}

/// The error of changes after an error has stopped the journal.
const STOPPED: Error = Error::ReadOnly("an error stopped the journal; mount again to recover");

/// See [`Volume::stop_on_panic`].
pub(crate) struct StopOnPanic<'a>(&'a Journal);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.abort("a thread panicked while it wrote what waits");
        }
    }
}

/// The inodes that the superblock names, and no directory may name. The journal is not among them: it
/// has a name if it was made while the image was mounted.
fn own_inodes(superblock: &Superblock) -> [Option<InodeNumber>; 4] {
    [
        superblock.orphan_file_inode(),
        superblock.user_quota_inode(),
        superblock.group_quota_inode(),
        superblock.project_quota_inode(),
    ]
}

/// The state that every part of the engine uses.
#[derive(Debug)]
pub(crate) struct Volume {
    /// The device, or an overlay over it.
    pub device: Arc<GroupFlush<Arc<dyn BlockDevice>>>,
    /// Metadata buffers.
    pub cache: Arc<Cache>,
    /// Transactions, with or without a log.
    pub journal: Arc<Journal>,
    /// Geometry.
    layout: PublishedValue<Layout>,
    block_size: usize,
    /// Features as they were at mount.
    pub features: Features,
    /// Where metadata checksums start; `None` without `metadata_csum`.
    pub seed: Option<ChecksumSeed>,
    /// Why nothing may be changed; `None` if the mount is writable.
    pub read_only: Option<&'static str>,
    /// The inodes that the superblock names.
    own_inodes: [Option<InodeNumber>; 4],
    superblock: Mutex<Superblock>,
    superblock_buffer: Option<Arc<Buffer>>,
    /// Whether changes are allowed now.
    pub freeze: FreezeGate,
    /// Damage that was found since the mount.
    pub damage: FoundDamage,
    /// The generations of new inodes are derived from these.
    generations: PerCore<AtomicU64>,
}

impl Volume {
    /// Puts the parts together.
    pub fn new(
        device: Arc<GroupFlush<Arc<dyn BlockDevice>>>,
        cache: Arc<Cache>,
        journal: Arc<Journal>,
        superblock: Superblock,
        read_only: Option<&'static str>,
        error_policy: Option<ErrorPolicy>,
    ) -> Result<Volume> {
        let layout = *superblock.layout();
        let superblock_block = SUPERBLOCK_OFFSET_BYTES / layout.block_size() as u64;
        Ok(Volume {
            superblock_buffer: match read_only {
                Some(_) => None,
                None => Some(cache.read(superblock_block)?),
            },
            device,
            cache,
            journal,
            features: superblock.features(),
            seed: layout.checksum_seed(),
            block_size: layout.block_size(),
            layout: PublishedValue::new(&lock_classes::PUBLISHED, layout),
            read_only,
            own_inodes: own_inodes(&superblock),
            superblock: Mutex::new(&lock_classes::SUPERBLOCK, superblock),
            freeze: FreezeGate::new(),
            damage: FoundDamage::new(error_policy),
            generations: PerCore::new(first_generation),
        })
    }

    /// Makes data durable that was written in place before a mark. Stops the journal if the device
    /// fails: transactions committed since the last flush may rest on data that is lost.
    pub fn flush_writes(&self, mark: WriteMark) -> Result<()> {
        if self.device.is_durable(mark) || drystone_sync::planted!("sync-without-flush") {
            return Ok(());
        }
        if let Some(error) = self.journal.error() {
            // A flush that succeeds now says nothing about data that an earlier one lost.
            return Err(error.into());
        }
        self.device.flush_writes(mark).map_err(|error| {
            self.journal.abort("a flush of the device failed");
            error.into()
        })
    }

    /// Stops the journal if the thread panics before the result is dropped. For a thread that takes
    /// something off a list, which a panic would lose.
    pub fn stop_on_panic(&self) -> StopOnPanic<'_> {
        StopOnPanic(&self.journal)
    }

    /// Where everything is. It grows with the image.
    #[inline]
    pub fn layout(&self) -> &Layout {
        self.layout.get()
    }

    /// Bytes in a block.
    #[inline]
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Shows the layout of an image that has grown. Whatever it refers to is there by now.
    pub fn publish_layout(&self, layout: Layout) {
        self.layout.replace(layout);
    }

    /// A metadata block, after a check that it is inside the image.
    pub fn read(&self, block: PhysicalBlock) -> Result<Arc<Buffer>> {
        self.check_block(block)?;
        Ok(self.cache.read(block.get())?)
    }

    /// A fresh metadata block, whose old content doesn't matter.
    pub fn zeroed(&self, block: PhysicalBlock) -> Result<Arc<Buffer>> {
        self.check_block(block)?;
        Ok(self.cache.zeroed(block.get()))
    }

    /// Checks a block number from the image.
    pub fn check_block(&self, block: PhysicalBlock) -> Result<()> {
        let blocks = self.layout().blocks_count();
        if block.get() >= blocks {
            return Err(Corrupt::BlockOutOfRange { block, blocks }.into());
        }
        Ok(())
    }

    /// Checks that an inode may have a name: all but those that the file system itself uses.
    pub fn check_nameable(&self, inode: InodeNumber) -> Result<()> {
        let is_reserved = inode < self.layout().first_inode() && inode != InodeNumber::ROOT;
        if is_reserved || self.own_inodes.contains(&Some(inode)) {
            return Err(Corrupt::InodeReserved { inode }.into());
        }
        Ok(())
    }

    /// Checks that recovery may change an inode: it is neither one of the file system's own, nor the
    /// journal, which may have a name.
    pub fn check_recoverable(&self, inode: InodeNumber) -> Result<()> {
        self.check_nameable(inode)?;
        if self.with_superblock(Superblock::journal_inode) == Some(inode) {
            return Err(Corrupt::InodeReserved { inode }.into());
        }
        Ok(())
    }

    /// Starts a handle that may change up to `credits` metadata blocks. Waits while frozen.
    #[inline]
    pub fn start(&self, credits: u32) -> Result<Handle<'_>> {
        loop {
            if let Some(handle) = self.start_once(credits)? {
                return Ok(handle);
            }
            self.wait_unfrozen()?;
        }
    }

    /// The same for a change that may be left out: `None` while the image is frozen, or about to be.
    pub fn start_unless_frozen(&self, credits: u32) -> Result<Option<Handle<'_>>> {
        if self.freeze.is_open() { self.start_once(credits) } else { Ok(None) }
    }

    /// A handle; `None` if the image is frozen.
    fn start_once(&self, credits: u32) -> Result<Option<Handle<'_>>> {
        self.check_writable()?;
        let handle = self
            .journal
            .start(credits)
            .map_err(|error| if self.journal.is_aborted() { STOPPED } else { error.into() })?;
        // Freezing sets the flag before it closes the running transaction, so a handle that
        // sees it clear ends in that transaction, and one that sees it set steps back.
        if self.freeze.takes_changes() {
            return Ok(Some(handle));
        }
        handle.stop()?;
        Ok(None)
    }

    /// Fails if an error has stopped the journal. For operations that would change the image only later.
    pub fn check_running(&self) -> Result<()> {
        if self.journal.is_aborted() { Err(STOPPED) } else { Ok(()) }
    }

    /// Ends the handle of an operation. If the operation changed something and then failed with an error
    /// that may leave a trace, it can't be taken back: the journal stops, so that the half-done
    /// operation is never committed.
    pub fn settle<T>(&self, handle: Handle<'_>, done: Result<T>) -> Result<T> {
        if let Err(error) = &done
            && handle.has_changed()
            && !error.leaves_no_trace()
            && !drystone_sync::planted!("half-an-operation")
        {
            self.stop_half_way(error);
        }
        let stopped = handle.stop();
        let value = done?;
        stopped?;
        Ok(value)
    }

    /// Stops the journal because an operation has failed half way.
    fn stop_half_way(&self, error: &Error) {
        tracing::error!(%error, "an operation failed half way: the journal is stopped");
        self.journal.abort("an operation failed half way");
    }

    /// Ends an operation of several handles that leaves nothing that a caller could use if it fails
    /// between two of them. The journal stops then: some of its handles may be committed already.
    pub fn settle_steps<T>(&self, done: Result<T>) -> Result<T> {
        done.inspect_err(|error| self.stop_half_way(error))
    }

    /// Returns when a transaction, and all before it, are durable.
    pub fn commit_up_to(&self, tid: u64) -> Result<()> {
        if !self.journal.is_committed(tid) {
            self.journal.force_commit(tid);
            self.journal.wait(tid)?;
        }
        Ok(())
    }

    /// Runs `write`, which writes to blocks of files in place, or delays data, without a handle. It waits
    /// while the image is frozen, and fails after an error has stopped the journal: the blocks may belong
    /// to another file then.
    #[inline]
    pub fn without_handle<T>(&self, write: impl FnOnce() -> Result<T>) -> Result<T> {
        loop {
            self.check_running()?;
            if let Some(_under_way) = self.freeze.begin_in_place() {
                return write();
            }
            self.wait_unfrozen()?;
        }
    }

    /// Waits until the image isn't frozen. Fails if it is read-only then.
    fn wait_unfrozen(&self) -> Result<()> {
        self.freeze.wait_unfrozen();
        self.check_writable()
    }

    /// Fails if nothing may be changed.
    pub fn check_writable(&self) -> Result<()> {
        match self.read_only {
            Some(reason) => Err(Error::ReadOnly(reason)),
            None if self.freeze.is_made_read_only() => {
                Err(Error::ReadOnly("made so after it was opened"))
            }
            None => Ok(()),
        }
    }

    /// Looks at the superblock.
    pub fn with_superblock<T>(&self, look: impl FnOnce(&Superblock) -> T) -> T {
        look(&self.superblock.lock())
    }

    /// Changes the superblock as part of a transaction.
    pub fn update_superblock<T>(
        &self,
        handle: &mut Handle<'_>,
        change: impl FnOnce(&mut Superblock) -> T,
    ) -> Result<T> {
        let mut superblock = self.superblock.lock();
        let buffer = self.superblock_buffer.as_ref().ok_or(Error::ReadOnly("superblock"))?;
        let mut bytes = handle.write(buffer, None::<&Arc<dyn Seal>>)?;
        let result = change(&mut superblock);
        let offset = (SUPERBLOCK_OFFSET_BYTES % self.block_size() as u64) as usize;
        bytes[offset..offset + SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode());
        Ok(result)
    }

    /// Notes damage in the superblock, unless that was done. Returns the policy to follow once the note is
    /// durable; `None` if damage was noted before.
    pub fn note_damage(&self, handle: &mut Handle<'_>) -> Result<Option<ErrorPolicy>> {
        if !self.damage.begin_note() {
            return Ok(None);
        }
        self.update_superblock(handle, |superblock| self.damage.note(superblock)).map(Some)
    }

    /// Notes damage that waits for the commit which is about to close its transaction.
    pub fn note_waiting_damage(&self, handle: &mut Handle<'_>) -> Result<()> {
        if self.damage.is_waiting() && self.note_damage(handle)?.is_some_and(turns_read_only) {
            self.damage.stop_later();
        }
        Ok(())
    }

    /// Turns on a feature that an operation needs, if it is not on yet.
    pub fn ensure_feature(
        &self,
        handle: &mut Handle<'_>,
        is_on: impl Fn(&Superblock) -> bool,
        turn_on: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        if self.with_superblock(&is_on) {
            return Ok(());
        }
        self.update_superblock(handle, turn_on)
    }

    /// A generation for a new inode, which tells it from earlier inodes of the same number.
    pub fn new_generation(&self) -> u32 {
        // Any spread will do: the number only has to differ from the inode's last one.
        let count = self.generations.current().fetch_add(SPREAD, Ordering::Relaxed);
        let product = (count ^ count >> 32).wrapping_mul(SPREAD);
        // The upper half.
        (product >> 32) as u32
    }
}
