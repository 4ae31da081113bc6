//! What C holds: numbers in the shape of pointers, which stand for values that Rust owns.
//!
//! # State
//!
//! A table of all open handles. Numbers are never used again, so that a handle that was closed, or is of
//! another kind, is found.
//!
//! A child that `fork` made has a copy of the table, but not the threads that images need, and its parent goes
//! on writing to the same images. So a child refuses the handles of its parent.
//!
//! # Locking
//!
//! The table is locked for a look-up, not while a call runs: what it uses lives as long as the call, whoever
//! closes the handle meanwhile. A child doesn't lock it for a handle of its parent, in which another thread
//! may have held the lock.
#![allow(unsafe_code, reason = "only the C library tells of forks")]

use crate::failure::Failure;
use drystone::vfs::Errno;
use drystone_sync::atomic::{AtomicUsize, Ordering};
use drystone_sync::{Arc, LazyLock, LockClass, RwLock};
use std::any::Any;
use std::collections::HashMap;

static CLASS: LockClass = LockClass::new("C handles", 1);

type AnyHandle = Arc<dyn Any + Send + Sync>;

static TABLE: LazyLock<RwLock<HashMap<usize, AnyHandle>>> = LazyLock::new(|| {
    // SAFETY: the function only moves a number from one atomic to another.
    unsafe { libc::pthread_atfork(None, None, Some(disown)) };
    RwLock::new(&CLASS, HashMap::new())
});

/// The newest handle.
static LAST: AtomicUsize = AtomicUsize::new(0);
/// The newest handle of the process that this one was forked from; 0 if there is none.
static LAST_OF_PARENT: AtomicUsize = AtomicUsize::new(0);

/// Runs in a child that was just made.
extern "C" fn disown() {
    LAST_OF_PARENT.store(LAST.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// A new handle.
pub(crate) fn insert<H>(value: impl Any + Send + Sync) -> *mut H {
    let mut table = TABLE.write();
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    table.insert(number, Arc::new(value));
    std::ptr::without_provenance_mut(number)
}

/// What a handle stands for.
pub(crate) fn get<T: Any + Send + Sync, H>(handle: *mut H) -> Result<Arc<T>, Failure> {
    expect_own(handle)?;
    let found = TABLE.read().get(&handle.addr()).cloned();
    found.and_then(|found| found.downcast().ok()).ok_or_else(stale)
}

/// Takes a handle away; `take` says what becomes of it, or gives it back with why it must stay.
pub(crate) fn remove<T: Any + Send + Sync, H, R>(
    handle: *mut H,
    take: impl FnOnce(Arc<T>) -> Result<R, (Arc<T>, Failure)>,
) -> Result<R, Failure> {
    expect_own(handle)?;
    let mut table = TABLE.write();
    let found = table.get(&handle.addr()).filter(|found| found.is::<T>());
    let found = found.cloned().and_then(|found| found.downcast().ok()).ok_or_else(stale)?;
    table.remove(&handle.addr());
    take(found).map_err(|(kept, failure)| {
        table.insert(handle.addr(), kept);
        failure
    })
}

/// Closes a handle that nothing depends on.
pub(crate) fn close<T: Any + Send + Sync, H>(handle: *mut H) -> Result<(), Failure> {
    // Dropped when the table isn't locked any more.
    remove::<T, H, _>(handle, Ok).map(drop)
}

fn expect_own<H>(handle: *mut H) -> Result<(), Failure> {
    if (1..=LAST_OF_PARENT.load(Ordering::Relaxed)).contains(&handle.addr()) {
        let message = "the handle belongs to the process that this one was forked from";
        return Err(Failure::new(Errno::EBADF, message));
    }
    Ok(())
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
