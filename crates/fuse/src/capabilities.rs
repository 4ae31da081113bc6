//! The capabilities that a mount negotiates with the kernel.
//!
//! # Reference
//! `FUSE_INIT` in the kernel's `include/uapi/linux/fuse.h`; the bits are the protocol's.

use crate::ServingOptions;

bitflags::bitflags! {
    /// What the two sides of a FUSE connection agree on, as `FUSE_INIT` carries it (`flags` in the
    /// low half, `flags2` in the high half).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct KernelCapabilities: u64 {
        /// Several reads of one file at once.
        const ASYNC_READ = 1 << 0;
        /// `open` with `O_TRUNC` is one request.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// `lookup` knows `.` and `..`, for file handles.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes larger than 4 KiB.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask, since a default access list may replace it.
        const DONT_MASK = 1 << 6;
        /// ioctl requests for directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// A listing may carry attributes.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel decides when a listing carries attributes.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Asynchronous direct I/O.
        const ASYNC_DIO = 1 << 15;
        /// The kernel gathers writes.
        const WRITEBACK_CACHE = 1 << 16;
        /// Lookups and listings of one directory at once.
        const PARALLEL_DIROPS = 1 << 18;
        /// Access control lists that the kernel enforces.
        const POSIX_ACL = 1 << 20;
        /// `max_pages` of the reply counts.
        const MAX_PAGES = 1 << 22;
        /// The kernel keeps targets of symbolic links.
        const CACHE_SYMLINKS = 1 << 23;
        /// `opendir` may be left out.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// The server clears set-id bits when it is told that a change must.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// `setxattr` has flags of its own.
        const SETXATTR_EXT = 1 << 29;
        /// `flags2` counts.
        const INIT_EXT = 1 << 30;
        /// Requests may come over io_uring.
        const OVER_IO_URING = 1 << 41;
    }
}

/// What every transport asks for, as far as the kernel has it.
///
/// Not asked for: `POSIX_LOCKS` and `FLOCK_LOCKS`, since this kernel is the only client of the
/// image and keeps locks faster than a server can; `AUTO_INVAL_DATA`, since nothing else changes
/// files; `HANDLE_KILLPRIV` (the first version), with which the server would have to clear set-id bits
/// even where the writer may keep them.
///
/// `HANDLE_KILLPRIV_V2` and `SETXATTR_EXT` are for transports that know their requests; those that
/// don't take them out. `OVER_IO_URING` is for the transport that has rings to ask for.
pub fn wanted_capabilities(options: &ServingOptions) -> KernelCapabilities {
    let mut wanted = KernelCapabilities::all() - KernelCapabilities::OVER_IO_URING;
    // The kernel would take it as a request to check permissions.
    wanted.set(KernelCapabilities::POSIX_ACL, options.kernel_checks_permissions);
    wanted.set(KernelCapabilities::WRITEBACK_CACHE, options.writeback_cache && !options.read_only);
    wanted
}
