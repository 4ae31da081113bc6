//! What C holds: numbers in the shape of pointers, which stand for values that Rust owns.
//!
//! # State
//!
//! A table of all open handles. Numbers are never used again, so that a handle that was closed, or is of
//! another kind, is found.
//!
//! # Locking
//!
//! The table is locked for a look-up, not while a call runs: what it uses lives as long as the call, whoever
//! closes the handle meanwhile.

use crate::failure::Failure;
use drystone::vfs::Errno;
use drystone_sync::{Arc, LazyLock, LockClass, RwLock};
use std::any::Any;
use std::collections::HashMap;

static CLASS: LockClass = LockClass::new("C handles", 1);

type AnyHandle = Arc<dyn Any + Send + Sync>;

#[derive(Default)]
struct HandleTable {
    open: HashMap<usize, AnyHandle>,
    last: usize,
}

static TABLE: LazyLock<RwLock<HandleTable>> =
    LazyLock::new(|| RwLock::new(&CLASS, HandleTable::default()));

/// A new handle.
pub(crate) fn insert<H>(value: impl Any + Send + Sync) -> *mut H {
    let mut table = TABLE.write();
    table.last += 1;
    let number = table.last;
    table.open.insert(number, Arc::new(value));
    std::ptr::without_provenance_mut(number)
}

/// What a handle stands for.
pub(crate) fn get<T: Any + Send + Sync, H>(handle: *mut H) -> Result<Arc<T>, Failure> {
    let found = TABLE.read().open.get(&handle.addr()).cloned();
    found.and_then(|found| found.downcast().ok()).ok_or_else(stale)
}

/// Takes a handle away; `take` says what becomes of it, or gives it back with why it must stay.
pub(crate) fn remove<T: Any + Send + Sync, H, R>(
    handle: *mut H,
    take: impl FnOnce(Arc<T>) -> Result<R, (Arc<T>, Failure)>,
) -> Result<R, Failure> {
    let mut table = TABLE.write();
    let found = table.open.get(&handle.addr()).filter(|found| found.is::<T>());
    let found = found.cloned().and_then(|found| found.downcast().ok()).ok_or_else(stale)?;
    table.open.remove(&handle.addr());
    take(found).map_err(|(kept, failure)| {
        table.open.insert(handle.addr(), kept);
        failure
    })
}

/// Closes a handle that nothing depends on.
pub(crate) fn close<T: Any + Send + Sync, H>(handle: *mut H) -> Result<(), Failure> {
    // Dropped when the table isn't locked any more.
    remove::<T, H, _>(handle, Ok).map(drop)
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
