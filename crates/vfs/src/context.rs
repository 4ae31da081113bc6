//! Who asks: the identity that permission checks are made for.

bitflags::bitflags! {
    /// The Linux capabilities that a file system asks about.
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
    /// What is to be done to an inode.
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
    /// The user that permissions are checked for and that owns what is made.
    pub user: u32,
    /// The group likewise.
    pub group: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// What the user may do beyond the permissions.
    pub capabilities: Capabilities,
    /// Permission bits that new inodes don't get (unless a default ACL decides).
    pub umask: u16,
    /// False: the caller has checked permissions already, or doesn't want any check. Rules that
    /// are no permissions (immutable inodes, directories that aren't empty) hold all the same.
    pub check_permissions: bool,
    /// The caller is a cache above, which gathered what others wrote and tells by itself when they
    /// did: writing changes no times. Flags that keep an inode as it is came after that.
    pub is_cache: bool,
    /// What is written is meant for the device, not for a cache (`O_DIRECT`).
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
            is_direct: false,
        }
    }

    /// True if the context belongs to `group`.
    pub fn in_group(&self, group: u32) -> bool {
        self.group == group || self.groups.contains(&group)
    }

    /// True if a check for `capability` passes.
    pub fn has(&self, capability: Capabilities) -> bool {
        !self.check_permissions || self.capabilities.contains(capability)
    }
}
