//! Requests that come through `/dev/fuse`, taken apart and answered by the `fuser` library.
//!
//! Several threads read from the device, each from a descriptor of its own, to avoid contention.
//!
//! # What fuser lacks
//!
//! `O_TMPFILE` (programs get `EOPNOTSUPP`), `SETXATTR_EXT` and
//! `HANDLE_KILLPRIV_V2` (asking for them breaks its parsing): the kernel clears set-id bits itself,
//! which costs it a look at `security.capability` for each write call.

mod answer;
mod convert;
mod server;

use crate::operations::Operations;
use crate::write_back::{Content, WriteBacks};
use crate::{KernelCapabilities, wanted_capabilities};
use drystone_sync::{Arc, thread};
use fuser::{Config, INodeNo, InitFlags, KernelConfig, Notifier, SessionACL};
use server::Server;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A mount that [`Session::run`] serves.
pub(crate) struct FuserSession {
    session: fuser::Session<Server>,
    write_backs: Arc<WriteBacks<'static>>,
}

impl FuserSession {
    /// Agrees with the kernel on how the mount behind `device` works.
    pub(crate) fn begin(operations: Arc<Operations>, device: OwnedFd) -> io::Result<FuserSession> {
        let threads = operations.options().thread_count();
        let mut config = Config::default();
        config.n_threads = Some(threads);
        config.clone_fd = threads > 1;
        // The mount's options decide which users the kernel lets in.
        let background_max = operations.options().background_requests_max;
        let write_backs = Arc::new(WriteBacks::beside(background_max));
        let server = Server::new(operations, Arc::clone(&write_backs));
        let session = fuser::Session::from_fd(server, device, SessionACL::All, config)?;
        Ok(FuserSession { session, write_backs })
    }

    /// Answers requests until the mount is gone and all threads have ended.
    pub(crate) fn run(self) -> io::Result<()> {
        let FuserSession { session, write_backs } = self;
        let notifier = session.notifier();
        let drop_content = |content: &Content| drop_content(&notifier, content);
        thread::scope(|scope| {
            let _ends = write_backs.ends();
            thread::spawn_in(scope, "write-back", || write_backs.run(drop_content))?;
            thread::spawn_in(scope, "held answers", || write_backs.watch())?;
            // A request that a thread had just taken when the mount ended is aborted.
            session.run().or_else(|error| match error.kind() {
                io::ErrorKind::ConnectionAborted => Ok(()),
                _ => Err(error),
            })
        })
    }
}

/// Agrees with the kernel on the capabilities and sizes of the mount.
fn agree(operations: &Operations, config: &mut KernelConfig) {
    let options = operations.options();
    // Without `HANDLE_KILLPRIV_V2` the kernel clears set-id bits when it truncates a file itself, but
    // not when `open` is to truncate it.
    let unknown = KernelCapabilities::HANDLE_KILLPRIV_V2
        | KernelCapabilities::SETXATTR_EXT
        | KernelCapabilities::ATOMIC_O_TRUNC;
    let wanted = wanted_capabilities(options) - unknown - KernelCapabilities::INIT_EXT;
    let offered = config.capabilities();
    let wanted = InitFlags::from_bits_retain(wanted.bits()) & offered;
    // Only offered capabilities are left.
    let _ = config.add_capabilities(wanted);
    // On error these return the nearest possible value.
    if let Err(nearest) = config.set_max_write(options.write_bytes_max) {
        let _ = config.set_max_write(nearest);
    }
    if let Err(nearest) = config.set_max_readahead(options.write_bytes_max) {
        let _ = config.set_max_readahead(nearest);
    }
    let _ = config.set_max_background(options.background_requests_max);
    let granularity_ns = operations.time_granularity_ns();
    let _ = config.set_time_granularity(Duration::from_nanos(granularity_ns.into()));
    tracing::debug!(?wanted, "agreed with the kernel");
}

/// Has the kernel write what it holds of some content.
fn drop_content(notifier: &Notifier, content: &Content) -> Result<(), rustix::io::Errno> {
    let (offset, length) = content.offset_and_length();
    let told = notifier.inval_inode(INodeNo(content.node), offset, length);
    told.map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
}
