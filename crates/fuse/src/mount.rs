//! A mount over any transport.

use crate::attach::{self, AttachError, MountOptions};
#[cfg(feature = "fuser")]
use crate::fuser_transport;
use crate::service::Service;
use crate::session::Session;
use crate::session_options::{Rings, SessionError, SessionOptions};
use crate::{Operations, ServingOptions, uring, wanted_capabilities};
use drystone_sync::Arc;
use drystone_vfs::DeviceNumber;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// How requests are carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Rings where the kernel offers them, `/dev/fuse` otherwise.
    #[default]
    Best,
    /// Rings, or the mount fails.
    Rings,
    /// `/dev/fuse`.
    Device,
    /// `/dev/fuse`, through the `fuser` library, which knows fewer requests.
    #[cfg(feature = "fuser")]
    Fuser,
}

impl Transport {
    /// All of them.
    pub const ALL: &[Transport] = &[
        Transport::Best,
        Transport::Rings,
        Transport::Device,
        #[cfg(feature = "fuser")]
        Transport::Fuser,
    ];

    /// Its name as an option.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Best => "best",
            Transport::Rings => "rings",
            Transport::Device => "device",
            #[cfg(feature = "fuser")]
            Transport::Fuser => "fuser",
        }
    }

    /// True if programs' `access` calls come as requests. Otherwise the kernel must check permissions.
    pub fn answers_access(self) -> bool {
        match self {
            Transport::Best | Transport::Rings | Transport::Device => true,
            #[cfg(feature = "fuser")]
            Transport::Fuser => false,
        }
    }
}

impl std::str::FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<Transport, UnknownTransport> {
        let found = Transport::ALL.iter().copied().find(|transport| transport.name() == text);
        found.ok_or_else(|| UnknownTransport(text.to_owned()))
    }
}

/// An unknown transport name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown transport '{0}': best, rings or device")]
pub struct UnknownTransport(String);

/// Why a mount failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The system doesn't mount it.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The device can't be used.
    #[error("can't begin to serve the mount: {0}")]
    Begin(#[source] io::Error),
    /// The session can't begin.
    #[error("can't begin to serve the mount: {0}")]
    Session(#[from] SessionError),
    /// Serving ended without an unmount.
    #[error("serving the mount failed: {0}")]
    Serve(#[source] io::Error),
}

/// A file system that is mounted, and served once [`run`](Mount::run) is called.
pub struct Mount {
    operations: Arc<Operations>,
    session: MountSession,
    /// A second descriptor of the device, for notifications to the kernel.
    notices: OwnedFd,
    mount_point: MountPoint,
}

/// Where the file system is mounted. Unmounts it when dropped.
struct MountPoint {
    /// As the mount table names it, and from any working directory.
    directory: PathBuf,
    device_number: Option<DeviceNumber>,
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        // Nothing serves it any more, so at most its mount point is left. Another mount may be there
        // now.
        if self.device_number.is_some() && attach::device_on(&self.directory) == self.device_number
        {
            let _ = attach::unmount(&self.directory, attach::Unmount::Lazily);
        }
    }
}

enum MountSession {
    Own(Session),
    #[cfg(feature = "fuser")]
    Fuser(fuser_transport::FuserSession),
}

impl Mount {
    /// Mounts on `directory`. Programs that use the mount wait until [`run`](Mount::run) is called; if it
    /// is dropped instead, the mount ends.
    ///
    /// # Errors
    ///
    /// The directory doesn't exist, the caller may not mount, or the system lacks a resource to serve
    /// the mount.
    pub fn new(
        operations: Arc<Operations>,
        directory: &Path,
        transport: Transport,
    ) -> Result<Mount, MountError> {
        let directory = attach::mount_point(directory)?;
        let device = attach::mount(&directory, &mount_options(operations.options()))?;
        let device_number = attach::device_on(&directory);
        let mount_point = MountPoint { directory, device_number };
        let notices = device.try_clone().map_err(MountError::Begin)?;
        let session = begin(&operations, device, transport)?;
        Ok(Mount { session, operations, notices, mount_point })
    }

    /// The device number of the mount, which no other mount has at the same time.
    pub fn device_number(&self) -> Option<DeviceNumber> {
        self.mount_point.device_number
    }

    /// The transport in use; never [`Transport::Best`].
    pub fn transport(&self) -> Transport {
        match &self.session {
            MountSession::Own(session) if session.uses_rings() => Transport::Rings,
            MountSession::Own(_) => Transport::Device,
            #[cfg(feature = "fuser")]
            MountSession::Fuser(_) => Transport::Fuser,
        }
    }

    /// How many threads take requests.
    pub fn threads(&self) -> usize {
        match &self.session {
            MountSession::Own(session) => session.threads(),
            #[cfg(feature = "fuser")]
            MountSession::Fuser(_) => self.operations.options().thread_count(),
        }
    }

    /// Serves the mount until it is unmounted and every thread has ended: nothing uses the
    /// operations any more.
    ///
    /// # Errors
    ///
    /// Serving ended without an unmount.
    pub fn run(self) -> Result<(), MountError> {
        let Mount { operations, session, notices, mount_point } = self;
        operations.tell_through(Some(notices));
        let served = match session {
            MountSession::Own(session) => {
                session.run();
                Ok(())
            }
            #[cfg(feature = "fuser")]
            MountSession::Fuser(session) => session.run().map_err(MountError::Serve),
        };
        // When nothing serves a mount any more, it ends with its last descriptor.
        operations.tell_through(None);
        drop(mount_point);
        served
    }
}

/// Has the kernel change the flags of a mount to those of `options`: whether it is read-only, what its
/// programs and devices may do, and what the mount table says about access times.
///
/// # Errors
///
/// As [`attach::remount`].
pub fn remount(directory: &Path, options: &ServingOptions) -> Result<(), AttachError> {
    attach::remount(directory, &mount_options(options))
}

fn begin(
    operations: &Arc<Operations>,
    device: OwnedFd,
    transport: Transport,
) -> Result<MountSession, MountError> {
    let rings = match transport {
        Transport::Best => Rings::WhereOffered,
        Transport::Rings => Rings::Required,
        Transport::Device => Rings::Never,
        #[cfg(feature = "fuser")]
        Transport::Fuser => {
            let session = fuser_transport::FuserSession::begin(Arc::clone(operations), device);
            return Ok(MountSession::Fuser(session.map_err(MountError::Begin)?));
        }
    };
    let options = operations.options();
    let defaults = SessionOptions::default();
    let cores = uring::core_count().map_or(1, usize::from);
    let session = SessionOptions {
        rings,
        threads_per_core: options
            .threads
            .map_or(defaults.threads_per_core, |threads| threads.div_ceil(cores)),
        device_threads: options.thread_count(),
        transfer_max: options.write_bytes_max,
        background_max: options.background_requests_max,
        capabilities: wanted_capabilities(options),
        time_granularity_ns: operations.time_granularity_ns(),
        ..defaults
    };
    let service = Arc::clone(operations) as Arc<dyn Service>;
    Ok(MountSession::Own(Session::begin(device, session, service)?))
}

fn mount_options(options: &ServingOptions) -> MountOptions {
    MountOptions {
        source: options.source.clone(),
        subtype: "drystone".to_owned(),
        read_only: options.read_only,
        allow_other: options.allow_other,
        default_permissions: options.kernel_checks_permissions,
        set_user_id: options.allow_set_user_id,
        devices: options.allow_devices,
        no_execution: !options.allow_execution,
        access_times: options.access_times,
        // Buffers have room for this much. The kernel reads at least a page.
        read_max: options.write_bytes_max.max(rustix::param::page_size() as u32),
    }
}
