//! What each request of the kernel means for a file system.
//!
//! One method for each request, with plain values: a transport takes a request apart, calls the
//! method, and puts the reply together. Content goes directly between the transport's buffer and
//! the file system.
//!
//! # State
//!
//! Counters; which files are open for writing (`writers`), which of their gathered writes were refused
//! (`refusals`), and which are written around the page cache (`direct`). An open file has no other state:
//! the kernel holds a reference to the inode (from `lookup` or `create`) as long as a file is open, and a
//! listing continues from its cookie.
//!
//! # Permissions
//!
//! The kernel checks them (the mount has `default_permissions`, and access control lists are
//! negotiated). It knows all groups and capabilities of a caller, which a server would have to look up
//! in `/proc` for each request, and it has the attributes in its cache. The file system checks only what
//! the kernel doesn't: immutable and append-only inodes, reserved space, quotas, and ioctl.
//!
//! A mount for root alone may do without
//! ([`kernel_checks_permissions`](ServingOptions::kernel_checks_permissions)), because the kernel would ask for
//! a directory's attributes again after every change of its names. The kernel then treats access control
//! lists as any other attribute, so it has to be told that setting one changes the mode (`notices`).
//!
//! # References
//!
//! Each [`EntryReply`] gives the kernel one reference; it gives them back with `forget`.

mod append_only;
mod attributes;
mod data;
mod direct;
mod directory;
mod ioctl;
mod names;
mod notices;
mod ranges;
mod refusals;
mod writers;
mod xattrs;

pub use data::WriteFlags;
pub(crate) use data::{COPY_CHUNK_BYTES, LONG_RANGE_BYTES, truncates};
pub use directory::{DIRECTORY_ENTRY_BYTES, DIRECTORY_PLUS_ENTRY_BYTES, Listed};
pub use ioctl::IoctlReply;
pub(crate) use ioctl::{ioctl_grows, ioctl_sets_flags};
pub use names::{Created, encode_device};
pub(crate) use refusals::outdated_by_refusal;

use crate::write_back::{Content, drop_content};
use crate::{CountedOperation, Counters, ServingOptions};
use direct::DirectWrites;
use drystone_sync::Arc;
use drystone_vfs::{
    Capabilities, Errno, Error, FileSystem, InodeAttributes, InodeNumber, RequestContext, Result,
};
use notices::Notices;
use refusals::Refusals;
use std::os::fd::OwnedFd;
use std::time::Duration;
use writers::Writers;

/// The unit of `st_blocks`.
pub const BLOCK_BYTES: u64 = 512;

/// The answer to a request.
pub type Reply<T> = std::result::Result<T, Errno>;

/// An inode as FUSE numbers it: the root is 1, every other has the number of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root directory.
    pub const ROOT: NodeId = NodeId(1);
}

/// The caller, from the header of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCaller {
    /// Identifies the request while it is answered.
    pub unique: u64,
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
    /// The process; 0 for the kernel itself.
    pub process: u32,
}

/// Attributes, and how long they may be kept.
#[derive(Clone, Copy, Debug)]
pub struct NodeAttributes {
    /// The attributes; the inode's number as users see it (`st_ino`).
    pub attributes: InodeAttributes,
    /// How long the kernel may keep them.
    pub timeout: Duration,
}

/// A name, and how long it may be kept. Gives the kernel a reference.
#[derive(Clone, Copy, Debug)]
pub struct EntryReply {
    /// The inode; 0 for a name that doesn't exist (which gives no reference).
    pub node: NodeId,
    /// Distinguishes inodes that have the same number at different times.
    pub generation: u64,
    /// How long the kernel may keep the name.
    pub entry_timeout: Duration,
    /// The attributes; without meaning where `node` is 0.
    pub attributes: Option<NodeAttributes>,
}

/// The requests of a FUSE mount, on a file system.
pub struct Operations {
    file_system: Arc<dyn FileSystem>,
    root: InodeNumber,
    options: ServingOptions,
    counters: Arc<Counters>,
    writers: Writers,
    refusals: Refusals,
    direct_writes: DirectWrites,
    notices: Notices,
}

impl Operations {
    /// Requests on `file_system`.
    pub fn new(file_system: Arc<dyn FileSystem>, mut options: ServingOptions) -> Operations {
        let root = file_system.root();
        if file_system.folds_names() {
            // The kernel compares names by their bytes, so a cached name would be wrong as soon as
            // another spelling is used. This holds for all directories, because a moved name keeps its
            // cache time, and an empty directory may become case-insensitive.
            (options.entry_timeout, options.negative_timeout) = (Duration::ZERO, Duration::ZERO);
        }
        let counters = Arc::new(Counters::new());
        Operations {
            file_system,
            root,
            options,
            counters,
            writers: Writers::new(),
            refusals: Refusals::new(),
            direct_writes: DirectWrites::new(),
            notices: Notices::new(),
        }
    }

    /// How the mount behaves.
    pub fn options(&self) -> &ServingOptions {
        &self.options
    }

    /// What times are multiples of, which the kernel keeps to in times that it sets itself.
    pub fn time_granularity_ns(&self) -> u32 {
        self.file_system.time_granularity_ns()
    }

    /// How many requests there were.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Where to send notifications from now on: to the device of the mount, or nowhere.
    pub(crate) fn tell_through(&self, device: Option<OwnedFd>) {
        self.notices.tell_through(device);
    }

    /// Has the kernel send what it has gathered of writes, and returns when they are answered. Not for a thread
    /// that answers requests. (`syncfs` doesn't wait for the answers.)
    pub fn receive_gathered(&self) {
        let Some(device) = self.notices.device() else { return };
        for inode in self.writers.all() {
            match drop_content(&device, &Content::all(self.node(inode).0)) {
                // The kernel has forgotten the inode, or the mount is gone.
                Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => {}
                Err(error) => {
                    tracing::warn!(
                        inode = inode.0,
                        "the kernel doesn't send what it has gathered: {error}"
                    );
                }
            }
        }
    }

    /// Whether changes that begin now wait because the image is frozen.
    pub(crate) fn is_frozen(&self) -> bool {
        self.file_system.is_frozen()
    }

    /// Returns when changes don't wait any longer.
    pub(crate) fn wait_thawed(&self) {
        self.file_system.wait_thawed();
    }

    fn inode(&self, node: NodeId) -> InodeNumber {
        if node == NodeId::ROOT { self.root } else { InodeNumber(node.0) }
    }

    fn node(&self, inode: InodeNumber) -> NodeId {
        if inode == self.root { NodeId::ROOT } else { NodeId(inode.0) }
    }

    /// For calls whose permissions the kernel has checked. Only root keeps the administrator's
    /// right (reserved blocks, quotas, trusted attributes), because the kernel doesn't tell us who
    /// else has it.
    fn context(&self, request: &RequestCaller, umask: u16) -> RequestContext {
        let mut capabilities = Capabilities::all();
        capabilities.set(Capabilities::ADMINISTER, request.user == 0);
        RequestContext {
            user: request.user,
            group: request.group,
            groups: Vec::new(),
            capabilities,
            umask,
            check_permissions: true,
            is_cache: false,
            keeps_times: false,
            is_direct: false,
        }
    }

    fn entry(&self, attributes: InodeAttributes) -> EntryReply {
        let node = self.node(attributes.inode);
        EntryReply {
            node,
            // The kernel knows the root without a look-up, with this generation.
            generation: if node == NodeId::ROOT { 0 } else { u64::from(attributes.generation) },
            entry_timeout: self.options.entry_timeout,
            attributes: Some(self.timed(attributes)),
        }
    }

    fn no_entry(&self) -> EntryReply {
        EntryReply {
            node: NodeId(0),
            generation: 0,
            entry_timeout: self.options.negative_timeout,
            attributes: None,
        }
    }

    fn timed(&self, attributes: InodeAttributes) -> NodeAttributes {
        NodeAttributes { attributes, timeout: self.options.attribute_timeout }
    }

    /// Turns an error into its number. Errors of the image or the device are logged, because the
    /// caller sees only a number.
    fn done<T>(&self, operation: CountedOperation, result: Result<T>) -> Reply<T> {
        self.counters.count(operation);
        result.map_err(|error| self.failed(operation, &error))
    }

    fn failed(&self, operation: CountedOperation, error: &Error) -> Errno {
        if matches!(error.errno, Errno::EIO | Errno::EUCLEAN) {
            self.counters.count_io_error();
            tracing::error!(operation = operation.name(), %error, "a request failed");
        } else if let Some(detail) = error.detail() {
            tracing::debug!(operation = operation.name(), detail, "a request was refused");
        }
        error.errno
    }
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations").field("options", &self.options).finish_non_exhaustive()
    }
}
