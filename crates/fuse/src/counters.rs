//! Counts of requests by kind.

use drystone_sync::PerCore;
use drystone_sync::atomic::{AtomicU64, Ordering};

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A kind of request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum CountedOperation {
            $(#[doc = $text] $name,)*
        }

        impl CountedOperation {
            /// All kinds.
            pub const ALL: &[CountedOperation] = &[$(CountedOperation::$name,)*];

            /// The name that lists and messages show.
            pub const fn name(self) -> &'static str {
                match self { $(CountedOperation::$name => $text,)* }
            }
        }
    };
}

operations! {
    Lookup = "lookup";
    Forget = "forget";
    Attributes = "getattr";
    Access = "access";
    SetAttributes = "setattr";
    ReadLink = "readlink";
    Create = "create";
    CreateUnnamed = "tmpfile";
    MakeNode = "mknod";
    MakeDirectory = "mkdir";
    Symlink = "symlink";
    Link = "link";
    Unlink = "unlink";
    RemoveDirectory = "rmdir";
    Rename = "rename";
    Open = "open";
    Release = "release";
    Read = "read";
    Write = "write";
    Fsync = "fsync";
    ReadDirectory = "readdir";
    ReadDirectoryPlus = "readdirplus";
    FsyncDirectory = "fsyncdir";
    SyncFileSystem = "syncfs";
    Statistics = "statfs";
    Xattr = "getxattr";
    SetXattr = "setxattr";
    ListXattrs = "listxattr";
    RemoveXattr = "removexattr";
    Ioctl = "ioctl";
    Fallocate = "fallocate";
    Seek = "lseek";
    CopyRange = "copy_file_range";
}

/// How many requests of each kind there were, and how many failed for a reason that isn't the
/// caller's.
#[derive(Debug)]
pub struct Counters {
    requests: PerCore<[AtomicU64; CountedOperation::ALL.len()]>,
    io_errors: AtomicU64,
    bytes_read: PerCore<AtomicU64>,
    bytes_written: PerCore<AtomicU64>,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters {
            requests: PerCore::new(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            io_errors: AtomicU64::new(0),
            bytes_read: PerCore::new(|_| AtomicU64::new(0)),
            bytes_written: PerCore::new(|_| AtomicU64::new(0)),
        }
    }

    pub(crate) fn count(&self, operation: CountedOperation) {
        self.requests.current()[operation as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_io_error(&self) {
        self.io_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_read(&self, bytes: usize) {
        self.bytes_read.current().fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_written(&self, bytes: usize) {
        self.bytes_written.current().fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// How many requests of a kind there were.
    pub fn requests(&self, operation: CountedOperation) -> u64 {
        self.requests.iter().map(|slot| slot[operation as usize].load(Ordering::Relaxed)).sum()
    }

    /// How many requests failed because the device or the image is bad.
    pub fn io_errors(&self) -> u64 {
        self.io_errors.load(Ordering::Relaxed)
    }

    /// Bytes that read requests returned.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.iter().map(|slot| slot.load(Ordering::Relaxed)).sum()
    }

    /// Bytes that write requests stored.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.iter().map(|slot| slot.load(Ordering::Relaxed)).sum()
    }
}
