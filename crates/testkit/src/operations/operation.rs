//! The operations on a file system.

use std::fmt;
use std::str::FromStr;

use drystone_vfs::{FallocateMode, OpenFlags, RenameFlags, RequestContext, XattrMode};

use super::text::{Data, Field, OperationTarget, Word, word_enum};

/// The user of an operation: 0 is the superuser without checks, others are ordinary users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actor(pub u8);

impl Actor {
    /// The identity: user and group 1000 + n, a group that all share, and one that every other
    /// user is in.
    pub fn context(self) -> RequestContext {
        match self.0 {
            0 => RequestContext::superuser(),
            n => {
                let id = 1000 + u32::from(n);
                RequestContext::user(id, id, vec![2000, 2001 + id % 2])
            }
        }
    }
}

word_enum! {
    /// The type of an inode made by [`Action::MakeNode`].
    NodeKind {
        /// A character device.
        CharacterDevice = "char",
        /// A block device.
        BlockDevice = "block",
        /// A named pipe.
        Fifo = "fifo",
        /// A socket.
        Socket = "socket",
    }
}

word_enum! {
    /// How to rename.
    RenameKind {
        /// An existing target is replaced.
        Plain = "replace",
        /// An existing target is an error.
        NoReplace = "noreplace",
        /// Source and target are swapped.
        Exchange = "exchange",
        /// A whiteout stays behind.
        Whiteout = "whiteout",
    }
}

impl RenameKind {
    /// The flags of the interface.
    pub fn flags(self) -> RenameFlags {
        match self {
            RenameKind::Plain => RenameFlags::empty(),
            RenameKind::NoReplace => RenameFlags::NO_REPLACE,
            RenameKind::Exchange => RenameFlags::EXCHANGE,
            RenameKind::Whiteout => RenameFlags::WHITEOUT,
        }
    }
}

word_enum! {
    /// How to open.
    OpenKind {
        /// For reading.
        Read = "read",
        /// For writing.
        Write = "write",
        /// For both.
        ReadWrite = "both",
        /// For writing, cut to nothing.
        Truncate = "truncate",
    }
}

impl OpenKind {
    /// The flags of the interface.
    pub fn flags(self) -> OpenFlags {
        match self {
            OpenKind::Read => OpenFlags::READ,
            OpenKind::Write => OpenFlags::WRITE,
            OpenKind::ReadWrite => OpenFlags::READ | OpenFlags::WRITE,
            OpenKind::Truncate => OpenFlags::WRITE | OpenFlags::TRUNCATE,
        }
    }
}

word_enum! {
    /// What to do to a range.
    RangeKind {
        /// Reserve, and extend the size.
        Allocate = "allocate",
        /// Reserve.
        AllocateKeep = "allocate-keep",
        /// Make a hole.
        Punch = "punch",
        /// Make zeros, and extend the size.
        Zero = "zero",
        /// Make zeros.
        ZeroKeep = "zero-keep",
        /// Take out.
        Collapse = "collapse",
        /// Put in.
        Insert = "insert",
    }
}

impl RangeKind {
    /// The mode of the interface.
    pub fn mode(self) -> FallocateMode {
        match self {
            RangeKind::Allocate => FallocateMode::Allocate { keep_size: false },
            RangeKind::AllocateKeep => FallocateMode::Allocate { keep_size: true },
            RangeKind::Punch => FallocateMode::PunchHole,
            RangeKind::Zero => FallocateMode::ZeroRange { keep_size: false },
            RangeKind::ZeroKeep => FallocateMode::ZeroRange { keep_size: true },
            RangeKind::Collapse => FallocateMode::CollapseRange,
            RangeKind::Insert => FallocateMode::InsertRange,
        }
    }
}

word_enum! {
    /// What to look for in a file.
    SeekKind {
        /// Stored bytes.
        Data = "data",
        /// A hole.
        Hole = "hole",
    }
}

word_enum! {
    /// How to set an extended attribute.
    XattrKind {
        /// In any case.
        Set = "set",
        /// Only a new one.
        Create = "create",
        /// Only an existing one.
        Replace = "replace",
    }
}

impl XattrKind {
    /// The mode of the interface.
    pub fn mode(self) -> XattrMode {
        match self {
            XattrKind::Set => XattrMode::Set,
            XattrKind::Create => XattrMode::Create,
            XattrKind::Replace => XattrMode::Replace,
        }
    }
}

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident = $verb:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        /// What is done.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Action {
            $($(#[$doc])* $name { $($(#[$field_doc])* $field: $type,)* },)*
        }

        impl fmt::Display for Action {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Action::$name { $($field),* } => {
                        f.write_str($verb)?;
                        $(write!(f, " {}", $field.print())?;)*
                        Ok(())
                    })*
                }
            }
        }

        impl Action {
            fn parse(words: &mut std::str::SplitWhitespace<'_>) -> Option<Action> {
                Some(match words.next()? {
                    $($verb => Action::$name { $($field: <$type>::parse(words.next()?)?,)* },)*
                    _ => return None,
                })
            }
        }
    };
}

impl Action {
    /// Whether it is about names: making, removing and resolving them.
    pub(crate) fn is_on_names(&self) -> bool {
        matches!(
            self,
            Action::Create { .. }
                | Action::MakeDirectory { .. }
                | Action::Symlink { .. }
                | Action::MakeNode { .. }
                | Action::Temporary { .. }
                | Action::Link { .. }
                | Action::Unlink { .. }
                | Action::RemoveDirectory { .. }
                | Action::Rename { .. }
                | Action::ReadLink { .. }
                | Action::Lookup { .. }
                | Action::List { .. }
        )
    }

    /// Whether it reads, changes or syncs content.
    pub(crate) fn is_on_content(&self) -> bool {
        matches!(
            self,
            Action::Read { .. }
                | Action::Write { .. }
                | Action::Append { .. }
                | Action::Truncate { .. }
                | Action::Range { .. }
                | Action::Seek { .. }
                | Action::SyncFile { .. }
                | Action::SyncData { .. }
        )
    }
}

actions! {
    /// Make a regular file.
    Create = "create" { /** Where. */ path: Word, /** Permissions. */ mode: u16, }
    /// Make a directory.
    MakeDirectory = "mkdir" { /** Where. */ path: Word, /** Permissions. */ mode: u16, }
    /// Make a symbolic link.
    Symlink = "symlink" { /** What it points to. */ target: Word, /** Where. */ path: Word, }
    /// Make a device, pipe or socket.
    MakeNode = "mknod" {
        /** Where. */ path: Word,
        /** What. */ kind: NodeKind,
        /** Device number. */ major: u32,
        /** Device number. */ minor: u32,
        /** Permissions. */ mode: u16,
    }
    /// Make a file without a name and hold it in a slot.
    Temporary = "tmpfile" { /** In which directory. */ path: Word, /** Slot. */ slot: u8, /** Permissions. */ mode: u16, }
    /// Give an inode one more name.
    Link = "link" { /** What. */ target: OperationTarget, /** New name. */ path: Word, }
    /// Remove a name.
    Unlink = "unlink" { /** Which. */ path: Word, }
    /// Remove a directory.
    RemoveDirectory = "rmdir" { /** Which. */ path: Word, }
    /// Move a name.
    Rename = "rename" { /** Which. */ from: Word, /** Where to. */ to: Word, /** How. */ kind: RenameKind, }
    /// Read a symbolic link.
    ReadLink = "readlink" { /** Which. */ path: Word, }
    /// Find an inode and hold it in a slot.
    Lookup = "lookup" { /** Which. */ path: Word, /** Slot. */ slot: u8, }
    /// List a directory.
    List = "list" { /** Which. */ path: Word, }
    /// Show attributes.
    Status = "stat" { /** Of what. */ target: OperationTarget, }
    /// Check permissions.
    Access = "access" { /** Of what. */ target: OperationTarget, /** Read 4, write 2, execute 1. */ bits: u8, }
    /// Open a file and hold it in a slot.
    Open = "open" { /** Which. */ path: Word, /** Slot. */ slot: u8, /** How. */ kind: OpenKind, }
    /// Close the file in a slot.
    Close = "close" { /** Which. */ slot: u8, }
    /// Read from a file.
    Read = "read" { /** Which. */ target: OperationTarget, /** Where. */ offset: u64, /** How much. */ length: u32, }
    /// Write to a file.
    Write = "write" { /** Which. */ target: OperationTarget, /** Where. */ offset: u64, /** What. */ data: Data, }
    /// Write to the end of a file.
    Append = "append" { /** Which. */ target: OperationTarget, /** What. */ data: Data, }
    /// Set the size of a file.
    Truncate = "truncate" { /** Which. */ target: OperationTarget, /** Size. */ size: u64, }
    /// Change the space behind a range.
    Range = "range" { /** Of what. */ target: OperationTarget, /** How. */ kind: RangeKind, /** Start. */ offset: u64, /** Length. */ length: u64, }
    /// Look for data or a hole.
    Seek = "seek" { /** In what. */ target: OperationTarget, /** For what. */ kind: SeekKind, /** From where. */ offset: u64, }
    /// Set an extended attribute.
    SetXattr = "setxattr" { /** Of what. */ target: OperationTarget, /** Name. */ name: Word, /** Value. */ value: Data, /** How. */ kind: XattrKind, }
    /// Read an extended attribute.
    GetXattr = "getxattr" { /** Of what. */ target: OperationTarget, /** Name. */ name: Word, }
    /// Remove an extended attribute.
    RemoveXattr = "removexattr" { /** Of what. */ target: OperationTarget, /** Name. */ name: Word, }
    /// List extended attributes.
    ListXattrs = "listxattr" { /** Of what. */ target: OperationTarget, }
    /// Set permissions.
    ChangeMode = "chmod" { /** Of what. */ target: OperationTarget, /** Permissions. */ mode: u16, }
    /// Set owners.
    ChangeOwner = "chown" { /** Of what. */ target: OperationTarget, /** Owner. */ user: Option<u32>, /** Owning group. */ group: Option<u32>, }
    /// Set the times of last read and change.
    SetTimes = "utimes" { /** Of what. */ target: OperationTarget, /** Seconds. */ seconds: i64, /** Nanoseconds. */ nanoseconds: u32, }
    /// Set flags.
    SetFlags = "chattr" { /** Of what. */ target: OperationTarget, /** Flags. */ flags: u32, }
    /// Make a file durable.
    SyncFile = "fsync" { /** Which. */ target: OperationTarget, }
    /// Make the content of a file durable, or the names in a directory.
    SyncData = "fdatasync" { /** Which. */ target: OperationTarget, }
    /// Make everything durable.
    Sync = "sync" {}
}

/// An operation: a user and an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The user.
    pub actor: Actor,
    /// What.
    pub action: Action,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u{} {}", self.actor.0, self.action)
    }
}

/// A line that isn't an operation.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an operation: '{0}'")]
pub struct ParseOperationError(String);

impl FromStr for Operation {
    type Err = ParseOperationError;

    fn from_str(line: &str) -> Result<Operation, ParseOperationError> {
        let mut words = line.split_whitespace();
        let mut parse = || {
            let actor = Actor(words.next()?.strip_prefix('u')?.parse().ok()?);
            let action = Action::parse(&mut words)?;
            words.next().is_none().then_some(Operation { actor, action })
        };
        parse().ok_or_else(|| ParseOperationError(line.to_owned()))
    }
}

/// Reads a file of operations, one a line; empty lines and those that start with `//` are
/// skipped.
pub fn parse_operations(text: &str) -> Result<Vec<Operation>, ParseOperationError> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).map(str::parse).collect()
}
