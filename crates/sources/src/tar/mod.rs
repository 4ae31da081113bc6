//! Tar archives, read and written.
//!
//! [`TarReader`] makes an index in one pass over the headers. It reads all formats that GNU tar, bsdtar,
//! star and Python write: v7, ustar, GNU, PAX and star; sparse files, attributes and access control
//! lists in them. It unpacks nothing: files say where in the archive their data lies, and the
//! builder's threads read it from there. [`NewTarEntry`] writes PAX.
//!
//! The crate `tar` can't replace this. It reads sparse maps only in GNU headers, and neither star
//! headers nor ACLs; it doesn't check that an entry lies within the archive; its errors don't say
//! where they are. For writing it offers only the fields of a header.
//!
//! The archive ends at two blocks of zeros or the end of the file; what follows is ignored, as by
//! tar. A single block of zeros that is followed by anything else is an error: a header was lost,
//! or archives were joined wrongly. An archive without entries is zeros only: other files, such as
//! images, begin with zeros too. Leading slashes of names are dropped; names with `..` are
//! refused.

mod acl_text;
mod entry;
mod error;
mod header;
mod pax;
mod reader;
mod sparse;
mod text_encodings;
mod writer;

pub(crate) use acl_text::ACCESS;
pub(crate) use entry::WHITEOUT;
pub use entry::{DataRun, EntryKind, TarAttributes, TarEntry, Time, clean_path};
pub use error::{NameProblem, TarError, TarProblem};
pub use reader::TarReader;
pub(crate) use text_encodings::hex;
pub use writer::{NewTarEntry, cut_off, padding};

/// Whether a block can be a header: its checksum is right.
pub(crate) fn is_header(block: &[u8; 512]) -> bool {
    header::check_sum(block).is_ok() && block.iter().any(|&byte| byte != 0)
}
