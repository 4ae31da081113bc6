//! The kinds of requests.

use crate::KernelCapabilities;

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $code:literal, fixed $fixed:literal;)*) => {
        /// The kind of a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // The names are those of the system calls behind them.
        pub enum Opcode {
            $($(#[$doc])* $name = $code,)*
        }

        impl Opcode {
            /// The operation of a number in a header, if it is known.
            pub const fn from_code(code: u32) -> Option<Opcode> {
                match code {
                    $($code => Some(Opcode::$name),)*
                    _ => None,
                }
            }

            /// Bytes of the fixed part in the layouts that every kernel knows.
            const fn plain_fixed_length(self) -> usize {
                match self {
                    $(Opcode::$name => $fixed,)*
                }
            }

            /// All of them.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name,)*];
        }
    };
}

operations! {
    Lookup = 1, fixed 0;
    /// Not answered.
    Forget = 2, fixed 8;
    GetAttributes = 3, fixed 16;
    SetAttributes = 4, fixed 88;
    ReadLink = 5, fixed 0;
    Symlink = 6, fixed 0;
    MakeNode = 8, fixed 16;
    MakeDirectory = 9, fixed 8;
    Unlink = 10, fixed 0;
    RemoveDirectory = 11, fixed 0;
    Rename = 12, fixed 8;
    Link = 13, fixed 8;
    Open = 14, fixed 8;
    Read = 15, fixed 40;
    Write = 16, fixed 40;
    Statistics = 17, fixed 0;
    Release = 18, fixed 24;
    Sync = 20, fixed 16;
    /// 16 with [`Layouts::extended_set_xattr`].
    SetXattr = 21, fixed 8;
    GetXattr = 22, fixed 8;
    ListXattrs = 23, fixed 8;
    RemoveXattr = 24, fixed 0;
    Flush = 25, fixed 24;
    Initialize = 26, fixed 16;
    OpenDirectory = 27, fixed 8;
    ReadDirectory = 28, fixed 40;
    ReleaseDirectory = 29, fixed 24;
    SyncDirectory = 30, fixed 16;
    GetLock = 31, fixed 48;
    SetLock = 32, fixed 48;
    SetLockWait = 33, fixed 48;
    Access = 34, fixed 8;
    Create = 35, fixed 16;
    /// Not answered.
    Interrupt = 36, fixed 8;
    BlockMap = 37, fixed 16;
    Destroy = 38, fixed 0;
    IoControl = 39, fixed 32;
    Poll = 40, fixed 24;
    /// Not answered.
    NotifyReply = 41, fixed 40;
    /// Not answered.
    BatchForget = 42, fixed 8;
    Fallocate = 43, fixed 32;
    ReadDirectoryPlus = 44, fixed 40;
    Rename2 = 45, fixed 16;
    Seek = 46, fixed 24;
    CopyFileRange = 47, fixed 56;
    SetUpMapping = 48, fixed 40;
    RemoveMapping = 49, fixed 4;
    SyncFileSystem = 50, fixed 8;
    Temporary = 51, fixed 16;
    Attributes = 52, fixed 24;
}

/// Negotiated options that change layouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layouts {
    /// `SetXattr` has flags of the protocol's own.
    pub extended_set_xattr: bool,
}

impl Layouts {
    /// The layouts that follow from what kernel and server agreed on.
    pub fn of(agreed: KernelCapabilities) -> Layouts {
        Layouts { extended_set_xattr: agreed.contains(KernelCapabilities::SETXATTR_EXT) }
    }

    /// Bytes of the fixed part of an operation, which come before the payload.
    pub const fn fixed_length(self, operation: Opcode) -> usize {
        match operation {
            Opcode::SetXattr if self.extended_set_xattr => 16,
            other => other.plain_fixed_length(),
        }
    }
}

impl Opcode {
    /// True if the kernel doesn't wait for an answer.
    pub const fn is_unanswered(self) -> bool {
        matches!(
            self,
            Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt | Opcode::NotifyReply
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ring::FIXED_AREA_LENGTH;

    #[test]
    fn codes_and_operations_agree() {
        for operation in Opcode::ALL {
            assert_eq!(Opcode::from_code(*operation as u32), Some(*operation));
            assert!(operation.plain_fixed_length() <= FIXED_AREA_LENGTH);
        }
        assert_eq!(Opcode::from_code(0), None);
        assert_eq!(Opcode::from_code(7), None);
        assert_eq!(Opcode::from_code(u32::MAX), None);
    }
}
