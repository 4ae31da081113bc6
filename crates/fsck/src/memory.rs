//! The memory that the tables of a check take together, and the bound that callers may set.
//!
//! Tables grow with the image: a byte for each inode of a group that may have inodes in use, two bits for each
//! block that is in use, some bytes for each directory and each group, and the names of the directory that is
//! examined. Each holds a share of the bound, and so does what a repair keeps between its rounds: of what the largest
//! tables leave, and not at all once another table needs it. What doesn't grow with the image isn't counted: buffers,
//! and what threads have found that isn't added yet.

use crate::image::Error;
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicU64, Ordering};

/// What all tables of a check may take together, and what they take.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes_max: u64,
    taken: AtomicU64,
}

impl Memory {
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Shared { bytes_max, taken: AtomicU64::new(0) }))
    }

    /// The share of a table that is empty yet.
    pub fn share(&self) -> MemoryShare {
        MemoryShare { memory: self.clone(), bytes: 0, is_exceeded: false }
    }

    /// What isn't taken.
    #[cfg(test)]
    pub fn left(&self) -> u64 {
        self.0.bytes_max.saturating_sub(self.0.taken.load(Ordering::Relaxed))
    }

    fn exceeded(&self) -> Error {
        Error::Memory { bytes_max: self.0.bytes_max }
    }
}

/// What one table takes; given back at its end.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    memory: Memory,
    bytes: u64,
    is_exceeded: bool,
}

impl MemoryShare {
    /// Takes more; whether there was as much.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let Shared { bytes_max, taken } = &*self.memory.0;
        let sum = |before: u64| before.checked_add(bytes).filter(|sum| sum <= bytes_max);
        let is_there = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok();
        if is_there {
            self.bytes += bytes;
        }
        self.is_exceeded |= !is_there;
        is_there
    }

    /// Takes as much as a table of so many bytes needs.
    ///
    /// # Errors
    ///
    /// There isn't as much.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), Error> {
        self.grow(bytes.saturating_sub(self.bytes));
        self.check()
    }

    /// Gives a part back.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.memory.0.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How much it takes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there wasn't enough once.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Fails if there wasn't enough once.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`].
    pub fn check(&self) -> Result<(), Error> {
        if self.is_exceeded { Err(self.memory.exceeded()) } else { Ok(()) }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_take_no_more_than_there_is() {
        let memory = Memory::new(100);
        let (mut first, mut second) = (memory.share(), memory.share());
        assert!(first.grow(60) && second.grow(40) && memory.left() == 0);
        assert!(!second.grow(1) && second.is_exceeded() && !first.is_exceeded());
        first.shrink(20);
        drop(second);
        assert_eq!(memory.left(), 60);
        assert!(first.grow_to(100).is_ok() && first.grow_to(50).is_ok());
        assert!(matches!(first.grow_to(101), Err(Error::Memory { bytes_max: 100 })));
        drop(first);
        assert_eq!(memory.left(), 100);
    }
}
