//! The orphan file, with a slot that each thread keeps for its truncations (`orphans=per-core`).
//!
//! # State
//! A truncation (a cut) records its inode at its beginning and takes it off at its end, in the same
//! thread, and a thread cuts one file at a time. So a thread that cuts keeps a slot for its next cuts.
//! It takes and frees this slot with plain stores to a cache line that only this thread writes, where a
//! claim takes three atomic changes. A kept slot counts as taken, and is zero on disk. All other orphans
//! are recorded as with `orphans=file`.
//!
//! A thread keeps one slot, in the orphan file of the image where it has cut last, and gives it back
//! when the thread ends or cuts in another image. No other thread frees a kept slot: if a record
//! outlives its cut, the thread gives up the slot first.
//!
//! # Locking
//! None: no other thread changes a kept slot.

use super::file::{OrphanFile, PlacedSlots};
use crate::error::Result;
use drystone_ext4_format::InodeNumber;
use drystone_jbd2::Handle;
use drystone_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use drystone_sync::{Arc, LazyLock, Weak};
use std::cell::{Cell, RefCell};

/// The orphan file in which threads keep slots.
#[derive(Debug)]
pub(super) struct PerCoreFile {
    file: OrphanFile,
    /// Tells the file from those of other images.
    number: u64,
    /// How many times a thread has asked for a slot to keep.
    set_aside: AtomicUsize,
}

impl PerCoreFile {
    pub fn new(file: OrphanFile) -> PerCoreFile {
        static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(NO_FILE + 1));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        PerCoreFile { file, number, set_aside: AtomicUsize::new(0) }
    }

    #[inline]
    pub fn file(&self) -> &OrphanFile {
        &self.file
    }

    /// Takes a slot for an `inode` that the calling thread cuts. Returns it, and whether it is the one
    /// that the thread keeps; `None` if the file is full.
    #[inline]
    pub fn add_cut(
        &self,
        handle: &mut Handle<'_>,
        inode: InodeNumber,
    ) -> Result<Option<(u64, bool)>> {
        let kept = slot_of(self.number);
        if let Some(number) = kept {
            let (index, place) = OrphanFile::place(number);
            if let Some(slot) = self.file.slots(index).kept(place) {
                self.file.access(handle, index)?;
                slot.put(inode);
                return Ok(Some((number, true)));
            }
        }
        if kept.is_none() {
            self.set_aside();
        }
        Ok(self.file.add(handle, inode)?.map(|slot| (slot, false)))
    }

    /// Sets a slot aside for the calling thread's next cuts, if enough are free.
    #[cold]
    fn set_aside(&self) {
        let count = self.file.block_count();
        if count == 0 {
            return;
        }
        let number = self.set_aside.fetch_add(1, Ordering::Relaxed);
        let index = number % count;
        let placed = self.file.placed(index);
        if let Some(place) = placed.slots.set_aside(number / count) {
            keep(self.number, OrphanFile::slot_number(index, place), place, placed);
        }
    }

    /// Takes `inode` out of the slot that the thread keeps.
    #[inline]
    pub fn end_cut(&self, handle: &mut Handle<'_>, slot: u64, inode: InodeNumber) -> Result<()> {
        let (index, place) = OrphanFile::place(slot);
        self.file.access(handle, index)?;
        self.file.slots(index).keep(place, inode);
        Ok(())
    }
}

/// A slot that a thread keeps; gives it back when dropped.
struct OwnedSlot {
    place: usize,
    slots: Weak<PlacedSlots>,
}

impl Drop for OwnedSlot {
    fn drop(&mut self) {
        KEPT.with(|kept| kept.set((NO_FILE, 0)));
        if let Some(placed) = self.slots.upgrade() {
            placed.slots.give_kept(self.place);
        }
    }
}

drystone_sync::thread_local! {
    static OWN: RefCell<Option<OwnedSlot>> = RefCell::default();
    /// The number of the orphan file and the slot. Kept apart from `OWN` because a thread-local without
    /// a destructor is cheap to read.
    static KEPT: Cell<(u64, u64)> = Cell::default();
}

/// The default, which is not the number of any file.
const NO_FILE: u64 = 0;

/// The slot of a file that the thread keeps, if it keeps one.
#[inline]
fn slot_of(file: u64) -> Option<u64> {
    KEPT.with(|kept| {
        let (of, slot) = kept.get();
        (of == file).then_some(slot)
    })
}

/// Makes the thread keep a slot that was set aside for it.
fn keep(file: u64, slot: u64, place: usize, slots: &Arc<PlacedSlots>) {
    let own = OwnedSlot { place, slots: Arc::downgrade(slots) };
    // If the thread is ending, this drops the slot, which gives it back.
    if OWN.try_with(|kept| drop(kept.replace(Some(own)))).is_ok() {
        KEPT.with(|kept| kept.set((file, slot)));
    }
}

/// Makes the thread keep no slot. Its slot is left for another thread to free.
pub(super) fn give_up() {
    let given_up = OWN.try_with(|own| own.take()).ok().flatten();
    if let Some(mut own) = given_up {
        own.slots = Weak::new();
    }
}
