//! What an object of Python holds until it is closed.
//!
//! A child that `fork` made has a copy of it, but not the threads that an image needs, and its parent goes on
//! writing to the same image. So a child can neither use nor drop what its parent has opened.
//!
//! # Locking
//!
//! The lock is held for a look: a call goes on with the value though another thread closes it.

use crate::failure::closed;
use drystone_sync::{Arc, LockClass, Process, RwLock};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

pub struct Slot<T> {
    value: RwLock<Option<Arc<T>>>,
    what: &'static str,
    process: Process,
}

impl<T> Slot<T> {
    /// `what`: for messages.
    pub fn new(class: &'static LockClass, what: &'static str, value: T) -> Slot<T> {
        let value = RwLock::new(class, Some(Arc::new(value)));
        Slot { value, what, process: Process::current() }
    }

    pub fn get(&self) -> PyResult<Arc<T>> {
        self.expect_own()?;
        self.value.read().clone().ok_or_else(|| closed(self.what))
    }

    /// Whether this process has it open.
    pub fn is_closed(&self) -> bool {
        !self.process.is_current() || self.value.read().is_none()
    }

    /// The value; nothing if it was taken before, or belongs to the parent.
    pub fn take(&self) -> Option<Arc<T>> {
        if self.process.is_current() { self.value.write().take() } else { None }
    }

    /// The value if nobody else uses it; nothing if it was taken before.
    pub fn take_unused(&self) -> PyResult<Option<T>> {
        self.expect_own()?;
        // Another thread doesn't see it taken if it can't be.
        let mut slot = self.value.write();
        let Some(value) = slot.take() else { return Ok(None) };
        Arc::try_unwrap(value).map(Some).map_err(|value| {
            *slot = Some(value);
            const EBUSY: i32 = 16;
            PyOSError::new_err((
                EBUSY,
                format!("{} is in use: files are open, or calls run", self.what),
            ))
        })
    }

    fn expect_own(&self) -> PyResult<()> {
        const EBADF: i32 = 9;
        match self.process.is_current() {
            true => Ok(()),
            false => Err(PyOSError::new_err((
                EBADF,
                format!("{} was opened by the process that this one was forked from", self.what),
            ))),
        }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        if !self.process.is_current() {
            std::mem::forget(self.value.get_mut().take());
        }
    }
}
