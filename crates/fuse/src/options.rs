//! How a mount behaves.

use crate::attach::AccessTimeFlags;
use std::time::Duration;

/// How long the kernel may cache what it was told. Nothing else changes the image while it is mounted,
/// and the kernel knows of its own changes, so there is no limit.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// How a mount behaves, over any transport.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServingOptions {
    /// The file system is mounted read-only.
    pub read_only: bool,
    /// Users other than the mounting one may use the mount.
    pub allow_other: bool,
    /// The kernel checks permissions before it asks. If only root may use the mount there is little to
    /// check, and checking makes the kernel ask for a directory's attributes again after every change of
    /// its names. A transport that doesn't [answer `ACCESS`](crate::Transport::answers_access) needs it.
    pub kernel_checks_permissions: bool,
    /// Set-user-id bits count when programs are run from the mount. Takes root.
    pub allow_set_user_id: bool,
    /// Device nodes lead to devices. Takes root.
    pub allow_devices: bool,
    /// Programs may be run from the mount.
    pub allow_execution: bool,
    /// What the mount table says about access times. The file system keeps them as it was opened to.
    pub access_times: AccessTimeFlags,
    /// The kernel gathers small writes in its page cache. Without it every write is a request.
    pub writeback_cache: bool,
    /// What the mount table shows as the source.
    pub source: String,
    /// Threads that take requests; `None` for one per core, 2 at least. Over rings each core has its
    /// share of them, or 2.
    pub threads: Option<usize>,
    /// How long the kernel may keep a name that exists. Not at all where directories may compare names
    /// without case.
    pub entry_timeout: Duration,
    /// How long the kernel may keep that a name does not exist; the same holds.
    pub negative_timeout: Duration,
    /// How long the kernel may keep attributes.
    pub attribute_timeout: Duration,
    /// Most bytes of one read or write.
    pub write_bytes_max: u32,
    /// Most requests that the kernel sends without a program waiting for them.
    pub background_requests_max: u16,
}

drystone_options::setters! {
    ServingOptions {
        read_only: bool,
        allow_other: bool,
        kernel_checks_permissions: bool,
        allow_set_user_id: bool,
        allow_devices: bool,
        allow_execution: bool,
        access_times: AccessTimeFlags,
        writeback_cache: bool,
        source: impl Into<String>,
        threads: impl Into<Option<usize>>,
        entry_timeout: Duration,
        negative_timeout: Duration,
        attribute_timeout: Duration,
        write_bytes_max: u32,
        background_requests_max: u16,
    }
}

impl Default for ServingOptions {
    fn default() -> ServingOptions {
        ServingOptions {
            read_only: false,
            allow_other: false,
            kernel_checks_permissions: true,
            allow_set_user_id: false,
            allow_devices: false,
            allow_execution: true,
            access_times: AccessTimeFlags::default(),
            writeback_cache: true,
            source: "drystone".to_owned(),
            threads: None,
            entry_timeout: FOREVER,
            negative_timeout: FOREVER,
            attribute_timeout: FOREVER,
            write_bytes_max: 1 << 20,
            background_requests_max: 64,
        }
    }
}

impl ServingOptions {
    /// How many threads take requests from the device if there are no rings.
    pub fn thread_count(&self) -> usize {
        let cores = || drystone_sync::thread::available_parallelism().map_or(2, usize::from);
        self.threads.unwrap_or_else(|| cores().max(2)).max(1)
    }
}
