//! Tar archives: an index of what they say, made in one pass over the headers.
//!
//! All formats that GNU tar, bsdtar, star and Python write are read: v7, ustar, GNU, PAX and star;
//! sparse files, attributes and access control lists in them. Nothing is ever unpacked: files say
//! where in the archive their data lies, and the builder's threads read it from there.
//!
//! The archive ends at the first block of zeros or the end of the file; what follows is not looked
//! at, as tar doesn't, unless a lone block of zeros is followed by another entry: such an archive
//! was damaged or put together wrongly. A name's leading slashes are left out, one with `..` is
//! refused.

mod acl_text;
mod entry;
mod error;
mod header;
mod pax;
mod reader;
mod sparse;
mod text_encodings;

pub(crate) use acl_text::ACCESS;
pub use entry::{Attributes, DataRun, Entry, EntryKind, Time, clean_path};
pub use error::{NameProblem, Problem, TarError};
pub use reader::Reader;
pub(crate) use text_encodings::hex;

/// Whether a block can be a header: its checksum is right.
pub(crate) fn is_header(block: &[u8; 512]) -> bool {
    header::check_sum(block).is_ok() && block.iter().any(|&byte| byte != 0)
}
