//! The only way to change a buffer, for journals alone.
//!
//! A journal keeps the promises that these functions rely on: `join` and `write` are called
//! with the tid of the running transaction while a handle on it is open, `freeze` after the
//! last handle on that transaction has stopped, and a transaction is committed before the
//! next one starts to. So a buffer is dirty for one transaction at most, and frozen for one
//! other at most.

use crate::buffer::{BlockBytes, BufferContent};
use crate::{Buffer, BufferWriter, Seal};
use drystone_sync::Arc;
use drystone_sync::atomic::Ordering;

/// What a journal may do to a buffer. For journals only: everyone else changes a block
/// through a journal's handle.
#[derive(Debug)]
pub struct JournalDoor<'a> {
    buffer: &'a Buffer,
}

impl<'a> JournalDoor<'a> {
    /// The journal's door to a buffer.
    #[inline]
    #[must_use]
    pub fn to(buffer: &'a Buffer) -> JournalDoor<'a> {
        JournalDoor { buffer }
    }

    /// Whether the buffer is part of transaction `tid`, the running one.
    #[inline]
    #[must_use]
    pub fn is_joined(&self, tid: u64) -> bool {
        // Acquire pairs with the release in `join`: a thread that skips the join still comes after the
        // freeze that the join did.
        self.buffer.joined.load(Ordering::Acquire) == tid
    }

    /// Makes the buffer part of transaction `tid`. Returns whether it was not yet.
    ///
    /// Freezes the changes of the previous transaction if its commit hasn't done so.
    pub fn join(&self, tid: u64, seal: Option<&Arc<dyn Seal>>) -> bool {
        let mut content = self.buffer.content.write();
        let is_new = self.join_locked(&mut content, tid);
        set_seal(&mut content, seal);
        is_new
    }

    /// As [`join`](Self::join), for a block whose old content doesn't count: zeroes it, replaces
    /// the seal, and also returns the bytes.
    pub fn create(&self, tid: u64, seal: Option<&Arc<dyn Seal>>) -> (bool, BufferWriter<'a>) {
        let mut content = self.buffer.content.write();
        let is_new = self.join_locked(&mut content, tid);
        content.seal = seal.cloned();
        content.unfinished = 0;
        self.buffer.note_made();
        content.unshared().fill(0);
        (is_new, BufferWriter { content })
    }

    /// The bytes of a buffer that is part of the running transaction. `seal` is kept if the buffer
    /// has none.
    #[inline]
    pub fn write(&self, seal: Option<&Arc<dyn Seal>>) -> BufferWriter<'a> {
        let mut content = self.buffer.content.write();
        set_seal(&mut content, seal);
        content.unshare();
        BufferWriter { content }
    }

    /// The bytes that transaction `tid` is to write for this block; `None` if it has left
    /// the transaction, or was frozen for it before.
    #[must_use]
    pub fn freeze(&self, tid: u64) -> Option<BlockBytes> {
        let mut content = self.buffer.content.write();
        if let Some((_, bytes)) = content.frozen.take_if(|(frozen, _)| *frozen == tid) {
            return Some(bytes);
        }
        (content.dirty == tid).then(|| self.freeze_dirty(&mut content))
    }

    /// Takes the buffer out of transaction `tid`, the running one, because its block is freed. What
    /// the previous transaction has to write stays.
    pub fn leave(&self, tid: u64) {
        let mut content = self.buffer.content.write();
        if content.dirty == tid {
            content.dirty = 0;
            content.seal = None;
            content.unfinished = 0;
        }
        self.buffer.joined.store(0, Ordering::Release);
    }

    fn join_locked(&self, content: &mut BufferContent, tid: u64) -> bool {
        if self.buffer.joined.load(Ordering::Relaxed) == tid {
            return false;
        }
        if content.dirty != 0 {
            let earlier = content.dirty;
            let bytes = self.freeze_dirty(content);
            debug_assert!(content.frozen.is_none(), "a buffer is frozen for two transactions");
            content.frozen = Some((earlier, bytes));
        }
        content.dirty = tid;
        self.buffer.joined.store(tid, Ordering::Release);
        true
    }

    fn freeze_dirty(&self, content: &mut BufferContent) -> BlockBytes {
        if let Some(seal) = content.seal.clone() {
            let parts = std::mem::take(&mut content.unfinished);
            seal.seal(self.buffer.number(), content.unshared(), parts);
        }
        content.dirty = 0;
        content.bytes.clone()
    }
}

fn set_seal(content: &mut BufferContent, seal: Option<&Arc<dyn Seal>>) {
    if content.seal.is_none()
        && let Some(seal) = seal
    {
        content.seal = Some(seal.clone());
    }
}
