//! What can go wrong with an entry.

use drystone_vfs::Errno;
use std::path::{Path, PathBuf};

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

    pub(super) fn is(&self, errno: Errno) -> bool {
        self.code() == errno.code()
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

/// An entry that could not be copied or kept as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
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
}

impl Problem {
    pub(super) fn new(side: Side, action: &'static str, path: &Path, cause: Cause) -> Problem {
        Problem { path: path.to_path_buf(), side, action, cause, is_warning: false }
    }

    /// True if nothing that is tried after this can succeed.
    pub(super) fn is_final(&self) -> bool {
        let finals = [Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS];
        self.side == Side::Target && finals.iter().any(|errno| self.cause.is(*errno))
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "can't {} {}: {}", self.action, self.path.display(), self.cause)
    }
}

impl std::error::Error for Problem {}
