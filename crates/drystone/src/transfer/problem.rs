//! What can go wrong with an entry.

use crate::EntryPath;
use drystone_sync::Arc;
use drystone_vfs::{DeviceNumber, Errno, FileType, Timestamp};
use std::path::{Path, PathBuf};

/// Errors of a target that every further file would meet too.
pub(crate) const FINAL: [Errno; 3] = [Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS];

/// Which end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Target,
}

/// Why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The host's system call failed.
    Host(rustix::io::Errno),
    /// The image's file system refused.
    Image(drystone_vfs::Error),
}

impl Cause {
    /// The number that the system call gave or would give.
    pub fn code(&self) -> i32 {
        match self {
            Cause::Host(errno) => errno.raw_os_error(),
            Cause::Image(error) => error.errno.code(),
        }
    }

    /// What a call of the standard library says.
    pub(crate) fn of_host(error: &std::io::Error) -> Cause {
        let errno = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
        Cause::Host(errno.unwrap_or(rustix::io::Errno::IO))
    }

    pub(crate) fn is(&self, errno: Errno) -> bool {
        self.code() == errno.code()
    }

    /// True if an attribute was refused that is too large, or for which there is no room. File
    /// systems say the same of both, so the next entry has to be tried.
    pub(super) fn is_too_large(&self) -> bool {
        let sizes = [Errno::ENOSPC, Errno::EDQUOT, Errno::E2BIG, Errno::ERANGE];
        sizes.iter().any(|errno| self.is(*errno))
    }

    /// True if an attribute is of a kind that the target doesn't hold, or the caller may not set.
    pub(super) fn is_unsupported(&self) -> bool {
        [Errno::EPERM, Errno::EOPNOTSUPP].iter().any(|errno| self.is(*errno))
    }
}

impl From<rustix::io::Errno> for Cause {
    fn from(errno: rustix::io::Errno) -> Cause {
        Cause::Host(errno)
    }
}

impl From<drystone_vfs::Error> for Cause {
    fn from(error: drystone_vfs::Error) -> Cause {
        Cause::Image(error)
    }
}

impl From<Errno> for Cause {
    fn from(errno: Errno) -> Cause {
        Cause::Image(errno.into())
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cause::Host(errno) => std::io::Error::from(*errno).fmt(f),
            Cause::Image(error) => error.fmt(f),
        }
    }
}

/// What the target could not be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LostProperty {
    /// The device node itself.
    Node,
    /// Its owner, and what goes with it: bits that lend the owner's rights.
    Owner,
    /// An extended attribute of this name.
    Xattr(Vec<u8>),
}

impl LostProperty {
    pub(crate) fn action(&self) -> &'static str {
        match self {
            LostProperty::Node => "make the device",
            LostProperty::Owner => "keep the owner of",
            LostProperty::Xattr(_) => "keep an extended attribute of",
        }
    }
}

/// An entry that lacks something that only the superuser may give it, or that its file system can't
/// hold, and what it should have.
#[derive(Clone, Debug)]
pub struct Lacking<'l> {
    /// Where it is below the target.
    pub way: &'l Arc<EntryPath>,
    /// It was not made at all: a device node.
    pub is_missing: bool,
    /// What it is.
    pub file_type: FileType,
    /// Its permissions, of which those that lend rights may be missing.
    pub permissions: u16,
    /// Its owner.
    pub user: u32,
    /// Its group.
    pub group: u32,
    /// When its content changed last.
    pub modified: Timestamp,
    /// The device that a device node stands for.
    pub device: DeviceNumber,
    /// The extended attributes that it lacks, full names and values.
    pub xattrs: Vec<(&'l [u8], &'l [u8])>,
}

/// An entry that could not be copied or kept as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyProblem {
    /// The entry, as its end names it: a path of the source or of the target.
    pub path: PathBuf,
    /// Which end failed.
    pub side: Side,
    /// What was tried, as a verb: "open", "make".
    pub action: &'static str,
    /// Why it failed.
    pub cause: Cause,
    /// True if the entry was copied all the same, without an attribute.
    pub is_warning: bool,
    /// True for a device node that only the superuser may make.
    pub is_not_made: bool,
    /// True if the entry was to replace another, which is still there.
    pub is_old_kept: bool,
}

impl CopyProblem {
    pub(crate) fn new(side: Side, action: &'static str, path: &Path, cause: Cause) -> CopyProblem {
        let path = path.to_path_buf();
        let (is_warning, is_not_made, is_old_kept) = (false, false, false);
        CopyProblem { path, side, action, cause, is_warning, is_not_made, is_old_kept }
    }

    /// True if nothing that is tried after this can succeed.
    pub(crate) fn is_final(&self) -> bool {
        let is_final = FINAL.iter().any(|errno| self.cause.is(*errno));
        // What the new entry has taken beside the old one is free again.
        self.side == Side::Target && is_final && (!self.is_old_kept || self.cause.is(Errno::EROFS))
    }

    /// True if the copy was stopped within the entry.
    pub fn is_cut_short(&self) -> bool {
        self.side == Side::Target && self.cause.is(Errno::EINTR)
    }
}

impl std::fmt::Display for CopyProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "can't {} {}: {}", self.action, self.path.display(), self.cause)
    }
}

impl std::error::Error for CopyProblem {}

impl From<CopyProblem> for crate::Error {
    /// The same action, on the same path.
    fn from(problem: CopyProblem) -> crate::Error {
        let CopyProblem { action, path, cause, .. } = problem;
        let error = match cause {
            Cause::Host(errno) => crate::Error::from(std::io::Error::from(errno)),
            Cause::Image(error) => error.into(),
        };
        error.during(action).at(&path)
    }
}
