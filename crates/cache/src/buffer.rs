//! One metadata block in memory.
//!
//! # State
//!
//! The bytes are behind an `Arc`. A commit that freezes the buffer keeps a clone, and the next
//! writer copies the bytes if such a clone is still alive: frequent small changes cost nothing
//! extra between commits.
//!
//! A buffer is *joined* to the last transaction that asked for write access, and *dirty* from
//! then until that transaction's freeze. Freezing computes the checksum (the buffer's
//! [`Seal`]) and hands the bytes to the commit. It happens once for each transaction: in the
//! commit, or earlier when a handle of the next transaction asks for write access, whichever
//! comes first.
//!
//! # Locking
//!
//! `content` is under the buffer lock. `joined` changes under it too and is read without it:
//! only a handle of the running transaction asks, and a buffer joined to that transaction
//! stays so until the handle has stopped or forgotten the block itself.

use crate::lock_classes::BUFFER;
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Finishes a block's bytes when a commit freezes them: computes the checksum, and may copy
/// in content that is kept elsewhere until then (in atomics, say).
///
/// Called with the buffer locked, once for each transaction that changed it, after the last
/// handle of that transaction has stopped and before any handle of the next one gets write
/// access. A block keeps its seal until it is freed or created again.
pub trait Seal: Send + Sync {
    /// Finishes `bytes`, the content of block number `block`. `parts` has a bit for each part of the
    /// block that was [noted](BufferWriter::note_unfinished) since the last time.
    fn seal(&self, block: u64, bytes: &mut [u8], parts: u64);
}

/// The most parts that a block has for its [`Seal`].
pub const PARTS: u32 = u64::BITS;

/// The bytes of a block, shared. They are allocated apart from the reference count, so that the allocation
/// has exactly a block's size, for which most allocators have a size class.
pub type BlockBytes = Arc<Box<[u8]>>;

pub(crate) struct BufferContent {
    pub(crate) bytes: BlockBytes,
    pub(crate) seal: Option<Arc<dyn Seal>>,
    /// Parts of `bytes` that the seal has yet to finish, as bits.
    pub(crate) unfinished: u64,
    /// The transaction whose changes are in `bytes` and not frozen; 0 if there are none.
    pub(crate) dirty: u64,
    /// What the committing transaction is to write, frozen early because the running one wanted the
    /// buffer.
    pub(crate) frozen: Option<(u64, BlockBytes)>,
}

impl BufferContent {
    /// The bytes, copied first if someone still has a clone of them.
    pub(crate) fn unshared(&mut self) -> &mut [u8] {
        self.unshare();
        self.exclusive()
    }

    /// Copies the bytes if someone still has a clone of them.
    #[inline]
    pub(crate) fn unshare(&mut self) {
        // No more clones can be made, and a thread that takes the bytes waits until the last one is gone.
        if Arc::strong_count(&self.bytes) > 1 {
            self.bytes = Arc::new(Box::clone(&self.bytes));
        }
    }

    /// The bytes, which are known to be unshared.
    fn exclusive(&mut self) -> &mut [u8] {
        let Some(bytes) = Arc::get_mut(&mut self.bytes) else {
            // Clones are made under the buffer lock, which the caller holds exclusively.
            unreachable!("the bytes of a locked buffer are shared");
        };
        bytes
    }
}

/// What a block is used as, and for whom: a number that the cache's user chooses. A block has one use
/// from the time it is loaded or made until it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockUse(u64);

impl BlockUse {
    /// Not checked since the block was loaded.
    const UNCHECKED: u64 = 0;
    /// Made in memory, so its bytes are right; its use isn't known yet.
    const MADE: u64 = u64::MAX;

    /// The use with this number.
    ///
    /// # Panics
    /// If `number` is 0 or the largest there is.
    #[inline]
    #[must_use]
    pub const fn new(number: u64) -> Self {
        assert!(number != Self::UNCHECKED && number != Self::MADE, "the number is taken");
        Self(number)
    }
}

/// A block that was checked for one use is claimed for another: one of the two is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInOtherUse {
    /// The block.
    pub block: u64,
}

/// A metadata block: its number and its bytes.
pub struct Buffer {
    number: u64,
    pub(crate) content: RwLock<BufferContent>,
    /// The last transaction that the buffer was joined to; 0 for none.
    pub(crate) joined: AtomicU64,
    /// The [`BlockUse`] that the bytes were checked for.
    checked_for: AtomicU64,
    /// Touched since the clock hand last passed.
    pub(crate) referenced: AtomicBool,
}

impl Buffer {
    pub(crate) fn new(number: u64, bytes: BlockBytes, is_made_here: bool) -> Self {
        let content = BufferContent { bytes, seal: None, unfinished: 0, dirty: 0, frozen: None };
        let checked_for = if is_made_here { BlockUse::MADE } else { BlockUse::UNCHECKED };
        Self {
            number,
            content: RwLock::new(&BUFFER, content),
            joined: AtomicU64::new(0),
            checked_for: AtomicU64::new(checked_for),
            referenced: AtomicBool::new(false),
        }
    }

    /// The block's number on the device.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Notes a use that the cache doesn't see, through a reference that was kept.
    #[inline]
    pub fn touch(&self) {
        // Usually it is set already; not writing it again keeps the cache line shared.
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// The bytes, shared with other readers.
    #[inline]
    pub fn read(&self) -> BufferReader<'_> {
        BufferReader { content: self.content.read() }
    }

    /// The bytes as they are now, for use without the lock. A writer copies while the
    /// snapshot lives, so keep it short.
    #[must_use]
    pub fn snapshot(&self) -> BlockBytes {
        self.content.read().bytes.clone()
    }

    /// Runs `check` on the bytes unless it has succeeded before on this load of the block, or the
    /// block was made here. Several threads may run it at once. It sees no change of the bytes, if none
    /// is made before the block is checked.
    ///
    /// # Errors
    /// [`BlockInOtherUse`] if it was checked or made for another use; or the error of `check`, which
    /// runs again next time.
    #[inline]
    pub fn check_once<E: From<BlockInOtherUse>>(
        &self,
        usage: BlockUse,
        check: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        // Acquire pairs with the release below: a thread that sees the use sees the checked bytes.
        let checked_for = self.checked_for.load(Ordering::Acquire);
        if checked_for == usage.0 {
            return Ok(());
        }
        match checked_for {
            BlockUse::UNCHECKED => {
                let bytes = self.read();
                // Another thread may have checked them meanwhile, and changed them since.
                if self.checked_for.load(Ordering::Acquire) == BlockUse::UNCHECKED {
                    check(&bytes)?;
                }
            }
            BlockUse::MADE => {}
            _ => return Err(BlockInOtherUse { block: self.number }.into()),
        }
        let (relaxed, release) = (Ordering::Relaxed, Ordering::Release);
        match self.checked_for.compare_exchange(checked_for, usage.0, release, relaxed) {
            Err(other) if other != usage.0 => Err(BlockInOtherUse { block: self.number }.into()),
            _ => Ok(()),
        }
    }

    /// Notes what a block that was just made is used for.
    pub fn note_use(&self, usage: BlockUse) {
        self.checked_for.store(usage.0, Ordering::Release);
    }

    /// Notes that the bytes are made in memory; the use is noted later.
    pub(crate) fn note_made(&self) {
        self.checked_for.store(BlockUse::MADE, Ordering::Release);
    }

    /// Whether [`check_once`](Self::check_once) has succeeded, or the block was made here.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.checked_for.load(Ordering::Acquire) != BlockUse::UNCHECKED
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Buffer").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Shared access to a buffer's bytes, until dropped.
#[must_use = "dropping the reader unlocks the buffer"]
pub struct BufferReader<'a> {
    content: RwLockReadGuard<'a, BufferContent>,
}

impl BufferReader<'_> {
    /// Whether a part of the block waits for its [`Seal`].
    ///
    /// # Panics
    /// If `part` is not below [`PARTS`].
    #[inline]
    #[must_use]
    pub fn is_unfinished(&self, part: u32) -> bool {
        assert!(part < PARTS, "a block has no part {part}");
        self.content.unfinished >> part & 1 != 0
    }
}

impl Deref for BufferReader<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.content.bytes
    }
}

impl fmt::Debug for BufferReader<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BufferReader").finish_non_exhaustive()
    }
}

/// Exclusive access to a buffer's bytes, until dropped. Given out by a journal's handle.
#[must_use = "dropping the writer unlocks the buffer"]
pub struct BufferWriter<'a> {
    pub(crate) content: RwLockWriteGuard<'a, BufferContent>,
}

impl BufferWriter<'_> {
    /// Notes that a part of the block has to be finished. What a part is, the block's [`Seal`]
    /// defines.
    ///
    /// # Panics
    /// If `part` is not below [`PARTS`].
    #[inline]
    pub fn note_unfinished(&mut self, part: u32) {
        assert!(part < PARTS, "a block has no part {part}");
        self.content.unfinished |= 1 << part;
    }
}

impl Deref for BufferWriter<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.content.bytes
    }
}

impl DerefMut for BufferWriter<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // Made unshared when this writer was; no thread can clone them while it holds the lock.
        self.content.exclusive()
    }
}

impl fmt::Debug for BufferWriter<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BufferWriter").finish_non_exhaustive()
    }
}
