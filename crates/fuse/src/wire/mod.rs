//! The FUSE protocol: requests and answers as bytes.
//!
//! A request is a header, a fixed part whose layout follows from the operation, and a payload:
//! names, values, data. On the device the three are contiguous; in a ring the first two have places
//! of their own. An answer is a header and a payload. Numbers have the byte order of the machine,
//! since both sides are on it.
//!
//! The kernel is trusted more than an image, but not blindly: sizes are checked, a malformed
//! message becomes an error that names it, and nothing here panics.
//!
//! # Reference
//! The kernel's interface `linux/fuse.h` (protocol 7.42), fuse(4), and "FUSE-over-io-uring design
//! documentation" of the kernel.

pub mod init;
mod malformed;
mod message;
mod operation;
mod reply;
mod request;
pub mod ring;

pub use malformed::Malformed;
pub use message::{Message, Request, TimeChange, forgotten, read_header};
pub use operation::{Layouts, Opcode};
pub use reply::*;
pub use request::*;

/// The node that a mount starts at.
pub const ROOT_NODE: u64 = 1;

/// The smallest buffer that the kernel accepts a read from the device with.
pub const BUFFER_LENGTH_MIN: usize = 8192;
