//! The state of an image: whether it is clean, and what to do when an error is found.

use super::Superblock;
use bitflags::bitflags;

bitflags! {
    /// How the image was left.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct StateFlags: u16 {
        /// Unmounted cleanly.
        const CLEAN = 0x1;
        /// Errors were found.
        const ERRORS = 0x2;
        /// Orphans are being recovered.
        const ORPHANS = 0x4;
        /// A fast commit is being replayed.
        const FAST_COMMIT_REPLAY = 0x20;

        const _ = !0;
    }

    /// Properties of the image.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SuperblockFlags: u32 {
        /// Directory hashes treat bytes as signed.
        const SIGNED_HASH = 0x1;
        /// Directory hashes treat bytes as unsigned.
        const UNSIGNED_HASH = 0x2;
        /// Made for tests of development code.
        const TEST_FILESYSTEM = 0x4;

        const _ = !0;
    }
}

/// What to do when an error is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// Go on.
    Continue,
    /// Write no more.
    ReadOnly,
    /// Stop the machine.
    Panic,
}

impl Superblock {
    /// How the image was left.
    #[must_use]
    pub const fn state(&self) -> StateFlags {
        StateFlags::from_bits_retain(self.raw.state.get())
    }

    /// Sets [`state`](Self::state).
    pub fn set_state(&mut self, state: StateFlags) {
        self.raw.state.set(state.bits());
    }

    /// Properties of the image.
    #[must_use]
    pub const fn flags(&self) -> SuperblockFlags {
        SuperblockFlags::from_bits_retain(self.raw.flags.get())
    }

    /// Sets [`flags`](Self::flags).
    pub fn set_flags(&mut self, flags: SuperblockFlags) {
        self.raw.flags.set(flags.bits());
    }

    /// What to do when an error is found; unknown numbers mean to go on, as for Linux.
    #[must_use]
    pub const fn error_policy(&self) -> ErrorPolicy {
        match self.raw.errors.get() {
            2 => ErrorPolicy::ReadOnly,
            3 => ErrorPolicy::Panic,
            _ => ErrorPolicy::Continue,
        }
    }

    /// Sets [`error_policy`](Self::error_policy).
    pub fn set_error_policy(&mut self, policy: ErrorPolicy) {
        self.raw.errors.set(match policy {
            ErrorPolicy::Continue => 1,
            ErrorPolicy::ReadOnly => 2,
            ErrorPolicy::Panic => 3,
        });
    }
}
