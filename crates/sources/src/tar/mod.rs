//! Tar archives, read and written.
//!
//! [`TarReader`] makes an index in one pass over the headers. It reads all formats that GNU tar, bsdtar,
//! star and Python write: v7, ustar, GNU, PAX and star; sparse files, attributes and access control
//! lists in them. It unpacks nothing: files say where in the archive their data lies, and the
//! builder's threads read it from there. [`NewTarEntry`] writes PAX.
//!
//! The crate `tar` does neither. It reads no maps of sparse files but those in GNU headers, no star
//! headers and no ACLs; it doesn't check that an entry lies within the archive, and an error doesn't
//! say where it is. Of what is written it only has the header's fields.
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
mod writer;

pub(crate) use acl_text::ACCESS;
pub use entry::{DataRun, EntryKind, TarAttributes, TarEntry, Time, clean_path};
pub use error::{NameProblem, TarError, TarProblem};
pub use reader::TarReader;
pub(crate) use text_encodings::hex;
pub use writer::{NewTarEntry, cut_off, padding};

/// Whether a block can be a header: its checksum is right.
pub(crate) fn is_header(block: &[u8; 512]) -> bool {
    header::check_sum(block).is_ok() && block.iter().any(|&byte| byte != 0)
}
