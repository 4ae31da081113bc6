//! What C holds: numbers in the shape of pointers, which stand for values that Rust owns.
//!
//! # State
//!
//! A table of all open handles. Numbers are never used again, so that a handle that was closed, or is of
//! another kind, is found.
//!
//! A child that `fork` made has a copy of the table, but not the threads that images need, and its parent goes
//! on writing to the same images. So a child refuses the handles of its parent, and begins a table of its own:
//! a thread that the child doesn't have may have held the lock of the other. What that table owns is never freed.
//!
//! # Locking
//!
//! The table is locked for a look-up, not while a call runs: what it uses lives as long as the call, whoever
//! closes the handle meanwhile.
#![allow(unsafe_code, reason = "a table is shared without a lock")]

use crate::failure::Failure;
use drystone::vfs::Errno;
use drystone_sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use drystone_sync::{Arc, LockClass, Process, RwLock};
use std::any::Any;
use std::collections::HashMap;

static CLASS: LockClass = LockClass::new("C handles", 1);

type AnyHandle = Arc<dyn Any + Send + Sync>;

struct Table {
    /// The process that has made these handles.
    process: Process,
    /// The newest handle of the process that this one was forked from; 0 if there is none.
    last_of_parent: usize,
    handles: RwLock<HashMap<usize, AnyHandle>>,
}

/// The newest table: that of this process, or of one that it was forked from; null until there is one.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());
/// The newest handle.
static LAST: AtomicUsize = AtomicUsize::new(0);

fn table() -> &'static Table {
    loop {
        let newest = TABLE.load(Ordering::Acquire);
        // SAFETY: a table is made from a box that is never freed once it is in `TABLE`.
        if let Some(table) = unsafe { newest.as_ref() }
            && table.process.is_current()
        {
            return table;
        }
        let own = Box::into_raw(Box::new(Table {
            process: Process::current(),
            // No thread of this process has made one before the table is in its place.
            last_of_parent: LAST.load(Ordering::Relaxed),
            handles: RwLock::new(&CLASS, HashMap::new()),
        }));
        let placed = TABLE.compare_exchange(newest, own, Ordering::AcqRel, Ordering::Relaxed);
        if placed.is_err() {
            // SAFETY: it was made above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(own) });
        }
    }
}

/// A new handle.
pub(crate) fn insert<H>(value: impl Any + Send + Sync) -> *mut H {
    let mut handles = table().handles.write();
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    handles.insert(number, Arc::new(value));
    std::ptr::without_provenance_mut(number)
}

/// What a handle stands for.
pub(crate) fn get<T: Any + Send + Sync, H>(handle: *mut H) -> Result<Arc<T>, Failure> {
    let found = table_of(handle)?.handles.read().get(&handle.addr()).cloned();
    found.and_then(|found| found.downcast().ok()).ok_or_else(stale)
}

/// Takes a handle away; `take` says what becomes of it, or gives it back with why it must stay.
pub(crate) fn remove<T: Any + Send + Sync, H, R>(
    handle: *mut H,
    take: impl FnOnce(Arc<T>) -> Result<R, (Arc<T>, Failure)>,
) -> Result<R, Failure> {
    let mut handles = table_of(handle)?.handles.write();
    let found = handles.get(&handle.addr()).filter(|found| found.is::<T>());
    let found = found.cloned().and_then(|found| found.downcast().ok()).ok_or_else(stale)?;
    handles.remove(&handle.addr());
    take(found).map_err(|(kept, failure)| {
        handles.insert(handle.addr(), kept);
        failure
    })
}

/// Closes a handle that nothing depends on.
pub(crate) fn close<T: Any + Send + Sync, H>(handle: *mut H) -> Result<(), Failure> {
    // Dropped when the table isn't locked any more.
    remove::<T, H, _>(handle, Ok).map(drop)
}

/// The table of this process, where a handle may be.
fn table_of<H>(handle: *mut H) -> Result<&'static Table, Failure> {
    let table = table();
    if (1..=table.last_of_parent).contains(&handle.addr()) {
        let message = "the handle belongs to the process that this one was forked from";
        return Err(Failure::new(Errno::EBADF, message));
    }
    Ok(table)
}

fn stale() -> Failure {
    Failure::new(Errno::EBADF, "the handle is NULL, was closed, or is of another kind")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_handles_and_those_of_another_kind_are_found() {
        let number: *mut u8 = insert(7_u32);
        let text: *mut u16 = insert("seven".to_owned());
        assert_eq!(get::<u32, _>(number).ok().as_deref(), Some(&7));
        assert!(get::<String, _>(number).is_err());
        assert!(close::<String, _>(number).is_err());
        assert!(remove::<u32, _, ()>(number, |kept| Err((kept, stale()))).is_err());
        assert!(close::<u32, _>(number).is_ok());
        assert!(close::<u32, _>(number).is_err());
        assert!(get::<u32, _>(number).is_err());
        assert!(get::<u32, u8>(std::ptr::null_mut()).is_err());
        assert!(close::<String, _>(text).is_ok());
    }
}
