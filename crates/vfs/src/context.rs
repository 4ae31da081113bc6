//! The caller's identity, for permission checks.

bitflags::bitflags! {
    /// The Linux capabilities that matter to a file system.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Capabilities: u32 {
        /// Change owners.
        const CHOWN = 1 << 0;
        /// Read, write and search regardless of permissions.
        const OVERRIDE = 1 << 1;
        /// Read and search regardless of permissions.
        const READ_SEARCH = 1 << 2;
        /// Act as the owner of any inode.
        const OWNER = 1 << 3;
        /// Keep set-id bits that a change would clear.
        const SET_ID = 1 << 4;
        /// Set the immutable and append-only flags.
        const IMMUTABLE = 1 << 5;
        /// Make device nodes.
        const MAKE_NODE = 1 << 6;
        /// Administrate: trusted xattrs, reserved blocks, quotas.
        const ADMINISTER = 1 << 7;
    }
}

bitflags::bitflags! {
    /// The kinds of access that a permission check is for.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Execute a file, search a directory.
        const EXECUTE = 1;
        /// Change the content.
        const WRITE = 2;
        /// See the content.
        const READ = 4;
    }
}

/// The identity behind a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestContext {
    /// The user whose permissions are checked and who owns new inodes.
    pub user: u32,
    /// The group likewise.
    pub group: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Capabilities beyond the permissions.
    pub capabilities: Capabilities,
    /// Permission bits that new inodes don't get (unless a default ACL decides).
    pub umask: u16,
    /// False if the caller has already checked permissions or wants no check. Other rules
    /// (immutable inodes, non-empty directories) hold all the same.
    pub check_permissions: bool,
    /// The write is write-back by a cache above, which sets the times of the writes by itself:
    /// writing changes no times. It may overwrite an append-only file: such a cache writes whole pages, and
    /// checks that they change nothing that is stored.
    pub is_cache: bool,
    /// A cache above keeps the times of the file and sends them by itself: a change of content, even past that
    /// cache, changes no times.
    pub keeps_times: bool,
    /// The write should go to the device, not to a cache (`O_DIRECT`).
    pub is_direct: bool,
}

impl RequestContext {
    /// The superuser, without checks and with an empty umask: what tools use.
    pub fn superuser() -> RequestContext {
        RequestContext {
            user: 0,
            group: 0,
            groups: Vec::new(),
            capabilities: Capabilities::all(),
            umask: 0,
            check_permissions: false,
            is_cache: false,
            keeps_times: false,
            is_direct: false,
        }
    }

    /// An ordinary user, with checks.
    pub fn user(user: u32, group: u32, groups: Vec<u32>) -> RequestContext {
        RequestContext {
            user,
            group,
            groups,
            capabilities: Capabilities::empty(),
            umask: 0,
            check_permissions: true,
            is_cache: false,
            keeps_times: false,
            is_direct: false,
        }
    }

    /// True if a change of content changes the file's times.
    pub fn stamps_content(&self) -> bool {
        !self.is_cache && !self.keeps_times
    }

    /// True if the context belongs to `group`.
    pub fn in_group(&self, group: u32) -> bool {
        self.group == group || self.groups.contains(&group)
    }

    /// True if the context may set the set-group-id bit of a file of `group`.
    pub fn may_set_group_id(&self, group: u32) -> bool {
        self.has(Capabilities::SET_ID) || self.in_group(group)
    }

    /// True if a check for `capability` passes.
    pub fn has(&self, capability: Capabilities) -> bool {
        !self.check_permissions || self.capabilities.contains(capability)
    }
}
