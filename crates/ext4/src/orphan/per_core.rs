//! The slot that a thread keeps for its cuts.
//!
//! # State
//! A cut records its inode at its beginning and takes it off at its end, in the same thread, and threads
//! cut one file at a time. So a thread that cuts keeps a slot for its next cuts, which it takes and
//! frees with plain stores, in a line of memory that only this thread writes; claims take three
//! atomic changes. A slot that is kept counts as taken, and is zero on disk.
//!
//! A thread keeps one slot, of the file where it has cut last; it gives it back when it ends, or cuts in
//! another image. Nobody else frees a slot while it is kept: where a record outlives its cut, the
//! thread gives the slot up first.
//!
//! # Locking
//! None: nobody else sees a thread's own.

use super::file::PlacedSlots;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, LazyLock, Weak};
use std::cell::{Cell, RefCell};

/// Who keeps a slot, and gives it back.
struct Own {
    place: usize,
    slots: Weak<PlacedSlots>,
}

impl Drop for Own {
    fn drop(&mut self) {
        KEPT.with(|kept| kept.set((NO_FILE, 0)));
        if let Some(placed) = self.slots.upgrade() {
            placed.slots.give_kept(self.place);
        }
    }
}

drystone_sync::thread_local! {
    static OWN: RefCell<Option<Own>> = RefCell::default();
    /// The number of the orphan file and the slot. Apart because a local without a destructor is cheap
    /// to read.
    static KEPT: Cell<(u64, u64)> = Cell::default();
}

/// The number of no file: the default.
const NO_FILE: u64 = 0;

/// A number that no other file has had.
pub(super) fn new_file() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(NO_FILE + 1));
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The slot of a file that the thread keeps, if it keeps one.
#[inline]
pub(super) fn slot_of(file: u64) -> Option<u64> {
    KEPT.with(|kept| {
        let (of, slot) = kept.get();
        (of == file).then_some(slot)
    })
}

/// Has the thread keep a slot, which was set aside for it.
pub(super) fn keep(file: u64, slot: u64, place: usize, slots: &Arc<PlacedSlots>) {
    let own = Own { place, slots: Arc::downgrade(slots) };
    // While the thread ends, it goes right back.
    if OWN.try_with(|kept| drop(kept.replace(Some(own)))).is_ok() {
        KEPT.with(|kept| kept.set((file, slot)));
    }
}

/// Has the thread keep none: its slot is another's to free.
pub(super) fn give_up() {
    let given_up = OWN.try_with(|own| own.take()).ok().flatten();
    if let Some(mut own) = given_up {
        own.slots = Weak::new();
    }
}
