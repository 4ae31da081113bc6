//! The options of a session, and its errors.

use crate::KernelCapabilities;
use crate::wire::init::{VERSION_MAJOR, VERSION_MINOR_MIN};
use crate::wire::{BUFFER_LENGTH_MIN, Malformed};
use drystone_sync::thread;
use rustix::io::Errno;

/// How requests come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rings {
    /// Through rings where the kernel offers them, from the device otherwise.
    #[default]
    WhereOffered,
    /// From the device.
    Never,
    /// Through rings; a kernel that doesn't offer them is an error.
    Required,
}

/// How a session is run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionOptions {
    /// How requests come.
    pub rings: Rings,
    /// Threads that read from the device when there are no rings.
    pub device_threads: usize,
    /// Threads per core that answer requests from rings, each with a ring of its own: while one
    /// waits for the disk, another goes on.
    pub threads_per_core: usize,
    /// Requests that a ring holds at a time, with those that wait for a sync or a thaw. They take no memory
    /// before they are used, and the kernel uses first what it got back last.
    pub entries_per_ring: usize,
    /// Most bytes of one read or write.
    pub transfer_max: u32,
    /// Requests that may be under way without a program waiting for them.
    pub background_max: u16,
    /// The capabilities to ask for.
    pub capabilities: KernelCapabilities,
    /// Resolution of times in nanoseconds.
    pub time_granularity_ns: u32,
}

drystone_options::setters! {
    SessionOptions {
        rings: Rings,
        device_threads: usize,
        threads_per_core: usize,
        entries_per_ring: usize,
        transfer_max: u32,
        background_max: u16,
        capabilities: KernelCapabilities,
        time_granularity_ns: u32,
    }
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            rings: Rings::default(),
            device_threads: thread::available_parallelism().map_or(2, usize::from).clamp(2, 16),
            threads_per_core: 2,
            entries_per_ring: 31,
            transfer_max: 1 << 20,
            background_max: 64,
            capabilities: KernelCapabilities::ASYNC_READ
                | KernelCapabilities::BIG_WRITES
                | KernelCapabilities::PARALLEL_DIROPS
                | KernelCapabilities::MAX_PAGES,
            time_granularity_ns: 1,
        }
    }
}

impl SessionOptions {
    /// Most pages of one read or write. The kernel counts in pages of the machine, and takes zero for one.
    pub(crate) fn pages_max(&self, page_length: usize) -> u16 {
        let pages = self.transfer_max as usize / page_length;
        u16::try_from(pages).unwrap_or(u16::MAX).max(1)
    }

    /// Bytes of the longest payload that the kernel sends or asks for, and at least what it requires of the
    /// buffers in a ring.
    pub(crate) fn payload_length(&self, page_length: usize) -> usize {
        let pages_length = usize::from(self.pages_max(page_length)) * page_length;
        BUFFER_LENGTH_MIN.max(self.transfer_max as usize).max(pages_length)
    }
}

/// Why a session can't begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The device can't be read from or written to.
    #[error("the FUSE device: {0}")]
    Device(#[source] Errno),
    /// What the kernel sends can't be understood.
    #[error("a message from the kernel: {0}")]
    Malformed(#[from] Malformed),
    /// Something came before the first request.
    #[error("the kernel began with {0} instead of an introduction")]
    NotInitialized(u32),
    /// The kernel is too old.
    #[error(
        "the kernel speaks version {major}.{minor} of the FUSE protocol; \
         {VERSION_MAJOR}.{VERSION_MINOR_MIN} is the oldest that is served"
    )]
    Version {
        /// The kernel's.
        major: u32,
        /// The kernel's.
        minor: u32,
    },
    /// Rings are wanted and there are none.
    #[error(
        "the kernel doesn't offer FUSE over io_uring (/sys/module/fuse/parameters/enable_uring)"
    )]
    NotOffered,
    /// Rings are wanted and can't be made.
    #[error("can't set up io_uring: {0}")]
    Rings(#[source] std::io::Error),
    /// The system has no more threads.
    #[error("can't start the threads that answer requests: {0}")]
    Threads(#[source] std::io::Error),
}
