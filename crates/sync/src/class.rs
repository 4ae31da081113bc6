//! Lock classes: the name, the place in the lock order and the statistics of many locks.

#[cfg(not(loom))]
use std::sync::atomic::AtomicU32;

/// What all locks of one purpose share. Declared as a `static`.
///
/// Ranks rise in the order in which locks are taken: a thread that holds rank 60 may take
/// rank 70, not rank 50.
#[derive(Debug)]
pub struct LockClass {
    name: &'static str,
    rank: u16,
    nestable: bool,
    /// One above the class's place in the statistics registry; 0 until the first take.
    #[cfg(not(loom))]
    pub(crate) index: AtomicU32,
}

impl LockClass {
    /// A class whose locks are never held two at a time by one thread.
    #[must_use]
    pub const fn new(name: &'static str, rank: u16) -> Self {
        Self {
            name,
            rank,
            nestable: false,
            #[cfg(not(loom))]
            index: AtomicU32::new(0),
        }
    }

    /// Allows a thread to hold several locks of this class.
    ///
    /// Some other rule has to order them then, such as the inode number for two
    /// directories. State it where the class is declared.
    #[must_use]
    pub const fn nestable(mut self) -> Self {
        self.nestable = true;
        self
    }

    /// The name, as panics and statistics show it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The place in the lock order; higher is taken later.
    #[must_use]
    pub const fn rank(&self) -> u16 {
        self.rank
    }

    /// Whether a thread may hold several locks of this class.
    #[must_use]
    pub const fn is_nestable(&self) -> bool {
        self.nestable
    }
}
