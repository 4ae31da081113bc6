//! Handles: the right to change buffers as part of the running transaction.
//!
//! What one handle changes is durable all at once or not at all. A handle that is dropped instead
//! of stopped, by a panic or otherwise, may have made half of a change, so the journal is aborted.
//!
//! # State
//!
//! A handle remembers the core it started on, and returns its count and its unused credits to
//! that core's words wherever it stops.
//!
//! # Locking
//!
//! An open handle keeps its transaction from closing, so a thread that holds one must not wait for a
//! thread that waits to start one. Debug builds treat an open handle as a lock of rank 200.

use super::JournalCore;
use crate::{JournalError, JournalResult};
use drystone_cache::{Buffer, BufferWriter, JournalDoor, Seal};
use drystone_sync::{Arc, current_core, thread};
use std::marker::PhantomData;

/// Where a test may have planted a panic.
macro_rules! planted_panic {
    () => {
        #[cfg(all(feature = "planted-panics", debug_assertions, not(loom)))]
        crate::planted::call();
    };
}

/// The right to change buffers as part of the running transaction. Ends with [`stop`](Self::stop).
#[must_use = "a handle has to be stopped"]
pub struct Handle<'journal> {
    core: &'journal JournalCore,
    slot: usize,
    tid: u64,
    /// Credits left.
    credits: u32,
    accesses: u32,
    /// A change was noted with [`note_change`](Self::note_change).
    has_noted: bool,
    state: HandleState,
    #[cfg(debug_assertions)]
    _order: drystone_sync::RwLockReadGuard<'journal, ()>,
    /// Not `Send`: the thread that took the core's counts gives them back.
    _not_send: PhantomData<*const ()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandleState {
    /// Inside the gate.
    Open,
    /// The commit's own, while the gate is closed.
    InCommit,
    /// The handle has ended; there is nothing to give back.
    Outside,
}

impl<'journal> Handle<'journal> {
    pub(crate) fn start(core: &'journal JournalCore, credits: u32) -> JournalResult<Self> {
        planted_panic!();
        let slot = current_core();
        #[cfg(debug_assertions)]
        let order = core.handle_order.read();
        let tid = core.enter(slot, credits)?;
        Ok(Self {
            core,
            slot,
            tid,
            credits,
            accesses: 0,
            has_noted: false,
            state: HandleState::Open,
            #[cfg(debug_assertions)]
            _order: order,
            _not_send: PhantomData,
        })
    }

    /// A handle that has its credits beside those of the transaction.
    pub(crate) fn start_alone(core: &'journal JournalCore, credits: u32) -> JournalResult<Self> {
        let mut handle = Self::start(core, 0)?;
        handle.credits = credits;
        Ok(handle)
    }

    /// The commit's handle for `before_commit`.
    pub(crate) fn in_commit(core: &'journal JournalCore, credits: u32) -> Self {
        Self {
            core,
            slot: current_core(),
            tid: core.running.tid(),
            credits,
            accesses: 0,
            has_noted: false,
            state: HandleState::InCommit,
            #[cfg(debug_assertions)]
            _order: core.handle_order.read(),
            _not_send: PhantomData,
        }
    }

    /// The transaction that the changes are part of.
    #[must_use]
    pub fn tid(&self) -> u64 {
        self.tid
    }

    /// Whether the handle has asked for write access to anything, or was told of a change.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.accesses > 0 || self.has_noted
    }

    /// Notes a change that takes no write access, because a listener puts it into a buffer that is
    /// already part of the transaction when the transaction closes.
    pub fn note_change(&mut self) {
        self.has_noted = true;
    }

    /// How many more buffers the handle may change.
    #[must_use]
    pub fn credits(&self) -> u32 {
        self.credits
    }

    /// Write access to `buffer`, whose old content counts.
    ///
    /// `seal` finishes the block when the transaction commits. It is taken the first time and
    /// kept until the block is freed.
    ///
    /// # Errors
    /// The journal was aborted.
    #[inline]
    pub fn write<'buffer>(
        &mut self,
        buffer: &'buffer Arc<Buffer>,
        seal: Option<&Arc<dyn Seal>>,
    ) -> JournalResult<BufferWriter<'buffer>> {
        self.access(buffer, seal)?;
        Ok(JournalDoor::to(buffer).write(seal))
    }

    /// Makes `buffer` part of the transaction without taking its bytes: the change is made
    /// where `seal` will find it.
    ///
    /// # Errors
    /// The journal was aborted.
    #[inline]
    pub fn access(&mut self, buffer: &Arc<Buffer>, seal: Option<&Arc<dyn Seal>>) -> JournalResult {
        planted_panic!();
        self.accesses += 1;
        if JournalDoor::to(buffer).is_joined(self.tid) {
            return Ok(());
        }
        self.join(buffer, seal)
    }

    #[cold]
    fn join(&mut self, buffer: &Arc<Buffer>, seal: Option<&Arc<dyn Seal>>) -> JournalResult {
        self.core.check()?;
        self.core.running.cancel_revoke(buffer.number());
        let is_new = JournalDoor::to(buffer).join(self.tid, seal);
        self.joined(buffer, is_new);
        Ok(())
    }

    /// Write access to a block that is being put to a new use: its bytes are zeroed, its seal
    /// replaced. The buffer comes from [`Cache::zeroed`](drystone_cache::Cache::zeroed).
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn create<'buffer>(
        &mut self,
        buffer: &'buffer Arc<Buffer>,
        seal: Option<&Arc<dyn Seal>>,
    ) -> JournalResult<BufferWriter<'buffer>> {
        planted_panic!();
        self.accesses += 1;
        self.core.check()?;
        self.core.running.cancel_revoke(buffer.number());
        let (is_new, writer) = JournalDoor::to(buffer).create(self.tid, seal);
        self.joined(buffer, is_new);
        Ok(writer)
    }

    fn joined(&mut self, buffer: &Arc<Buffer>, is_new: bool) {
        if is_new {
            self.core.running.add_buffer(self.slot, buffer);
            match self.credits.checked_sub(1) {
                Some(left) => self.credits = left,
                None => self.overrun(),
            }
        }
    }

    #[cold]
    fn overrun(&self) {
        self.core.count_overrun();
        debug_assert!(
            thread::panicking(),
            "a journal handle changes more blocks than it has credits for"
        );
    }

    /// Frees block number `block`, which was metadata: its content is dropped from the transaction
    /// and from the cache, and older copies in the log won't be replayed over the block's next
    /// content.
    ///
    /// The block must not be used again before this transaction is durable.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn forget(&mut self, block: u64) -> JournalResult {
        planted_panic!();
        self.core.check()?;
        self.core.forget(self.tid, block);
        Ok(())
    }

    /// Asks for `credits` more. `false` if the transaction has no room for them.
    pub fn extend(&mut self, credits: u32) -> bool {
        planted_panic!();
        let is_granted = match self.state {
            HandleState::Open => self.core.running.credits.take(self.slot, credits),
            HandleState::InCommit | HandleState::Outside => false,
        };
        if is_granted {
            self.credits += credits;
        }
        is_granted
    }

    /// Ends the handle. The changes are in the running transaction, not yet durable.
    ///
    /// # Errors
    /// The journal was aborted: the changes will be lost.
    #[inline]
    pub fn stop(mut self) -> JournalResult {
        planted_panic!();
        self.finish();
        self.core.check()
    }

    #[inline]
    fn finish(&mut self) {
        self.core.count_accesses(self.slot, std::mem::take(&mut self.accesses));
        self.has_noted = false;
        if self.state == HandleState::Open {
            self.core.running.credits.give(self.slot, std::mem::take(&mut self.credits));
            self.core.gate.leave(self.slot);
        }
        self.state = HandleState::Outside;
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        match self.state {
            HandleState::Outside => {}
            HandleState::InCommit => self.finish(),
            HandleState::Open => {
                // The handle may have made half of a change, which must never be committed. The
                // journal stops before the commit that waits for this handle goes on.
                self.core.abort(JournalError::Stopped("a handle ended without a stop"));
                self.finish();
                tracing::error!(tid = self.tid, "a journal handle was dropped without a stop");
                debug_assert!(thread::panicking(), "a journal handle was dropped without a stop");
            }
        }
    }
}

impl std::fmt::Debug for Handle<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Handle")
            .field("tid", &self.tid)
            .field("credits", &self.credits)
            .finish_non_exhaustive()
    }
}
