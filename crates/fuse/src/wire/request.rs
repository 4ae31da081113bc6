//! The header of a request and the fixed parts.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident: $length:literal {
        $($(#[$field_doc:meta])* $field:ident: $kind:ty,)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $kind,)*
            }

            const _: () = assert!(size_of::<$name>() == $length);
        )*
    };
}
pub(super) use layouts;

layouts! {
    /// In front of every request.
    RequestHeader: 40 {
        /// Bytes of the request, this header included.
        length: u32,
        /// The operation.
        operation: u32,
        /// Names the request in its answer.
        unique: u64,
        /// The node that it is about.
        node: u64,
        /// The calling user.
        user: u32,
        /// The calling group.
        group: u32,
        /// The calling process; zero for the kernel itself.
        process: u32,
        /// Length of the extensions at the end, in units of eight bytes.
        extensions: u16,
        /// Zero.
        padding: u16,
    }

    /// Of `Forget`.
    ForgetIn: 8 {
        /// References given back.
        count: u64,
    }

    /// One node of a `BatchForget`.
    ForgetOne: 16 {
        /// The node.
        node: u64,
        /// References given back.
        count: u64,
    }

    /// Of `BatchForget`; the payload is that many [`ForgetOne`].
    BatchForgetIn: 8 {
        /// Nodes that follow.
        count: u32,
        /// Zero.
        padding: u32,
    }

    /// Of `GetAttributes`.
    GetAttributesIn: 16 {
        /// Bit 0: the handle counts.
        flags: u32,
        /// Zero.
        padding: u32,
        /// An open file.
        handle: u64,
    }

    /// Of `SetAttributes`.
    SetAttributesIn: 88 {
        /// Which fields count.
        valid: u32,
        /// Zero.
        padding: u32,
        /// An open file.
        handle: u64,
        /// The new length.
        size: u64,
        /// The owner of locks.
        lock_owner: u64,
        /// Seconds.
        accessed: i64,
        /// Seconds.
        modified: i64,
        /// Seconds.
        changed: i64,
        /// The rest of the time above.
        accessed_nanoseconds: u32,
        /// The rest of the time above.
        modified_nanoseconds: u32,
        /// The rest of the time above.
        changed_nanoseconds: u32,
        /// Type and permissions.
        mode: u32,
        /// Zero.
        padding_2: u32,
        /// The new owner.
        user: u32,
        /// The new owning group.
        group: u32,
        /// Zero.
        padding_3: u32,
    }

    /// Of `MakeNode`; a name follows.
    MakeNodeIn: 16 {
        /// Type and permissions.
        mode: u32,
        /// The device that a device node stands for.
        device: u32,
        /// The umask of the caller.
        umask: u32,
        /// Zero.
        padding: u32,
    }

    /// Of `MakeDirectory`; a name follows.
    MakeDirectoryIn: 8 {
        /// Permissions.
        mode: u32,
        /// The umask of the caller.
        umask: u32,
    }

    /// Of `Rename`; two names follow.
    RenameIn: 8 {
        /// The node of the directory that the second name is in.
        new_parent: u64,
    }

    /// Of `Rename2`; two names follow.
    Rename2In: 16 {
        /// The node of the directory that the second name is in.
        new_parent: u64,
        /// As those of renameat2(2).
        flags: u32,
        /// Zero.
        padding: u32,
    }

    /// Of `Link`; a name follows.
    LinkIn: 8 {
        /// The node that gets the name.
        node: u64,
    }

    /// Of `Open` and `OpenDirectory`.
    OpenIn: 8 {
        /// As those of open(2).
        flags: u32,
        /// Bit 0: set-id bits are to be cleared if the file is cut.
        open_flags: u32,
    }

    /// Of `Create` and `Temporary`; a name follows.
    CreateIn: 16 {
        /// As those of open(2).
        flags: u32,
        /// Type and permissions.
        mode: u32,
        /// The umask of the caller.
        umask: u32,
        /// The protocol's own.
        open_flags: u32,
    }

    /// Of `Read`, `ReadDirectory` and `ReadDirectoryPlus`.
    ReadIn: 40 {
        /// The open file.
        handle: u64,
        /// Where to begin; in a directory: the cookie of the entry before.
        offset: u64,
        /// Bytes that may be answered.
        size: u32,
        /// The protocol's own.
        read_flags: u32,
        /// The owner of locks.
        lock_owner: u64,
        /// As those of open(2).
        flags: u32,
        /// Zero.
        padding: u32,
    }

    /// Of `Write`; the data follows.
    WriteIn: 40 {
        /// The open file.
        handle: u64,
        /// Where to write.
        offset: u64,
        /// Bytes that follow.
        size: u32,
        /// [`write_flags`].
        write_flags: u32,
        /// The owner of locks.
        lock_owner: u64,
        /// As those of open(2).
        flags: u32,
        /// Zero.
        padding: u32,
    }

    /// Of `Release` and `ReleaseDirectory`.
    ReleaseIn: 24 {
        /// The open file, no longer used.
        handle: u64,
        /// As those of open(2).
        flags: u32,
        /// The protocol's own.
        release_flags: u32,
        /// The owner of locks.
        lock_owner: u64,
    }

    /// Of `Flush`.
    FlushIn: 24 {
        /// The open file.
        handle: u64,
        /// Zero.
        padding: u32,
        /// Zero.
        padding_2: u32,
        /// The owner of locks.
        lock_owner: u64,
    }

    /// Of `Sync` and `SyncDirectory`.
    SyncIn: 16 {
        /// The open file.
        handle: u64,
        /// Bit 0: only what is needed to read the content.
        flags: u32,
        /// Zero.
        padding: u32,
    }

    /// Of `SetXattr`; the name and the value follow.
    SetXattrIn: 8 {
        /// Bytes of the value.
        size: u32,
        /// As those of setxattr(2).
        flags: u32,
    }

    /// The same with [`Layouts::extended_set_xattr`](super::Layouts::extended_set_xattr).
    SetXattrExtendedIn: 16 {
        /// The part that is always there.
        plain: SetXattrIn,
        /// Bit 0: set-group-id is to be cleared with the access list that is set.
        own_flags: u32,
        /// Zero.
        padding: u32,
    }

    /// Of `GetXattr` (the name follows) and `ListXattrs`.
    GetXattrIn: 8 {
        /// Bytes that may be answered; zero asks how many there are.
        size: u32,
        /// Zero.
        padding: u32,
    }

    /// Of `Access`.
    AccessIn: 8 {
        /// As that of access(2).
        mask: u32,
        /// Zero.
        padding: u32,
    }

    /// Of `Interrupt`.
    InterruptIn: 8 {
        /// The request whose caller doesn't want to wait any longer.
        unique: u64,
    }

    /// Of `IoControl`; data follows.
    IoControlIn: 32 {
        /// The open file.
        handle: u64,
        /// The protocol's own.
        flags: u32,
        /// The number of the command.
        command: u32,
        /// The argument of the caller.
        argument: u64,
        /// Bytes that follow.
        in_size: u32,
        /// Bytes that may be answered.
        out_size: u32,
    }

    /// Of `Fallocate`.
    FallocateIn: 32 {
        /// The open file.
        handle: u64,
        /// Where the range begins.
        offset: u64,
        /// Its length.
        length: u64,
        /// As that of fallocate(2).
        mode: u32,
        /// Zero.
        padding: u32,
    }

    /// Of `Seek`.
    SeekIn: 24 {
        /// The open file.
        handle: u64,
        /// Where to begin.
        offset: u64,
        /// As that of lseek(2).
        whence: u32,
        /// Zero.
        padding: u32,
    }

    /// Of `CopyFileRange`.
    CopyFileRangeIn: 56 {
        /// The open file to copy from.
        handle: u64,
        /// Where to begin in it.
        offset: u64,
        /// The node to copy to.
        target_node: u64,
        /// The open file to copy to.
        target_handle: u64,
        /// Where to begin in it.
        target_offset: u64,
        /// Bytes to copy.
        length: u64,
        /// As those of copy_file_range(2).
        flags: u64,
    }

    /// Of `Attributes` (statx).
    StatxIn: 24 {
        /// Bit 0: the handle counts.
        flags: u32,
        /// Zero.
        padding: u32,
        /// An open file.
        handle: u64,
        /// How much the caller insists on.
        sync_flags: u32,
        /// Which fields the caller wants, as those of statx(2).
        mask: u32,
    }
}

/// Which fields of a [`SetAttributesIn`] count.
pub mod set_valid {
    /// Permissions.
    pub const MODE: u32 = 1 << 0;
    /// Owner.
    pub const USER: u32 = 1 << 1;
    /// Owning group.
    pub const GROUP: u32 = 1 << 2;
    /// Length.
    pub const SIZE: u32 = 1 << 3;
    /// Last read, as given.
    pub const ACCESSED: u32 = 1 << 4;
    /// Last change of content, as given.
    pub const MODIFIED: u32 = 1 << 5;
    /// The handle of an open file.
    pub const HANDLE: u32 = 1 << 6;
    /// Last read is now.
    pub const ACCESSED_NOW: u32 = 1 << 7;
    /// Last change of content is now.
    pub const MODIFIED_NOW: u32 = 1 << 8;
    /// Last change of anything, as given: with a cache in the kernel only.
    pub const CHANGED: u32 = 1 << 10;
    /// Set-id bits are to be cleared.
    pub const CLEAR_SET_ID: u32 = 1 << 11;
}

/// The protocol's own flags of a write.
pub mod write_flags {
    /// From the kernel's cache, long after the caller wrote.
    pub const FROM_CACHE: u32 = 1 << 0;
    /// Set-id bits are to be cleared.
    pub const CLEAR_SET_ID: u32 = 1 << 2;
}
