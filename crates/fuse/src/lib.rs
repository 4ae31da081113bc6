//! Mounts a file system through FUSE.
//!
//! [`Operations`] says what every request of the kernel means for a [`FileSystem`], in plain
//! values: which inode, which name, which bytes. Transports only decode requests and encode
//! replies, so a file system behaves the same over each of them.
//!
//! The feature `fuser` adds a transport through the library of that name, to compare the others with.
//!
//! [`FileSystem`]: drystone_vfs::FileSystem
#![deny(unsafe_code)]

pub mod attach;
mod backlog;
mod busy_polling;
mod capabilities;
mod counters;
mod device;
mod dirty_limit;
#[cfg(feature = "fuser")]
mod fuser_transport;
mod grow;
mod held;
mod leader_followers;
mod long_requests;
mod mount;
mod mount_table;
mod operations;
mod options;
mod service;
mod serving;
pub mod session;
mod session_options;
mod stand_ins;
mod uring;
pub mod wire;
mod wire_transport;
mod write_back;

pub use capabilities::{KernelCapabilities, wanted_capabilities};
pub use counters::{CountedOperation, Counters};
pub use grow::grow;
pub use mount::{Mount, MountError, Transport, UnknownTransport, remount};
pub use operations::{
    BLOCK_BYTES, Created, DIRECTORY_ENTRY_BYTES, DIRECTORY_PLUS_ENTRY_BYTES, EntryReply,
    IoctlReply, Listed, NodeAttributes, NodeId, Operations, Reply, RequestCaller, WriteFlags,
    encode_device,
};
pub use options::ServingOptions;
