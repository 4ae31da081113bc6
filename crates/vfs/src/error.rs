//! Errors as a system call would report them, with the cause where it is known.

use std::borrow::Cow;

/// The result of an operation on a file system.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// An error number of Linux.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Errno {
            $(#[doc = $text] $name = $code,)*
        }

        impl Errno {
            /// The number, as the x86-64 and arm64 system calls return it.
            pub const fn code(self) -> i32 {
                self as i32
            }

            /// The error with this number, unless file systems don't report it.
            pub const fn from_code(code: i32) -> Option<Errno> {
                match code {
                    $($code => Some(Errno::$name),)*
                    _ => None,
                }
            }

            /// The symbolic name.
            pub const fn name(self) -> &'static str {
                match self { $(Errno::$name => stringify!($name),)* }
            }

            /// What it means, in the words of `strerror`.
            pub const fn text(self) -> &'static str {
                match self { $(Errno::$name => $text,)* }
            }
        }
    };
}

errnos! {
    EPERM = 1, "operation not permitted";
    ENOENT = 2, "no such file or directory";
    EINTR = 4, "interrupted";
    EIO = 5, "input/output error";
    ENXIO = 6, "no such device or address";
    E2BIG = 7, "argument list too long";
    EBADF = 9, "bad file descriptor";
    EAGAIN = 11, "resource temporarily unavailable";
    ENOMEM = 12, "cannot allocate memory";
    EACCES = 13, "permission denied";
    EBUSY = 16, "device or resource busy";
    EEXIST = 17, "file exists";
    EXDEV = 18, "invalid cross-device link";
    ENODEV = 19, "no such device";
    ENOTDIR = 20, "not a directory";
    EISDIR = 21, "is a directory";
    EINVAL = 22, "invalid argument";
    ENFILE = 23, "too many open files in system";
    EMFILE = 24, "too many open files";
    ENOTTY = 25, "inappropriate ioctl for device";
    ETXTBSY = 26, "text file busy";
    EFBIG = 27, "file too large";
    ENOSPC = 28, "no space left on device";
    EROFS = 30, "read-only file system";
    EMLINK = 31, "too many links";
    EPIPE = 32, "broken pipe";
    ERANGE = 34, "numerical result out of range";
    ENAMETOOLONG = 36, "file name too long";
    ENOSYS = 38, "function not implemented";
    ENOTEMPTY = 39, "directory not empty";
    ELOOP = 40, "too many levels of symbolic links";
    ENODATA = 61, "no data available";
    EOVERFLOW = 75, "value too large for defined data type";
    EOPNOTSUPP = 95, "operation not supported";
    ECONNRESET = 104, "connection reset by peer";
    ETIMEDOUT = 110, "connection timed out";
    ECONNREFUSED = 111, "connection refused";
    EHOSTUNREACH = 113, "no route to host";
    ESTALE = 116, "stale file handle";
    EUCLEAN = 117, "structure needs cleaning";
    EDQUOT = 122, "disk quota exceeded";
    ENOKEY = 126, "required key not available";
}

/// An error number and, where there is more to say, the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The number that a system call would return.
    pub errno: Errno,
    detail: Option<Cow<'static, str>>,
}

impl Error {
    /// An error without a further cause.
    pub const fn new(errno: Errno) -> Error {
        Error { errno, detail: None }
    }

    /// An error with its cause: which structure, which place, what to do.
    pub fn with_detail(errno: Errno, detail: impl Into<Cow<'static, str>>) -> Error {
        Error { errno, detail: Some(detail.into()) }
    }

    /// The cause, where it is known beyond the number.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::new(errno)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{} ({})", detail, self.errno.text()),
            None => f.write_str(self.errno.text()),
        }
    }
}

impl std::error::Error for Error {}
