//! What is wrong with an archive, and where.

use crate::bytes::Shown;
use std::fmt;

/// What is wrong with an archive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TarProblem {
    /// It is empty, without even an end.
    #[error("the file is empty; an empty archive has an end")]
    Empty,
    /// It ends within an entry.
    #[error("the archive ends here, {missing_bytes} bytes early")]
    Truncated {
        /// What is missing of the entry.
        missing_bytes: u64,
    },
    /// The bytes where an entry must begin aren't a header.
    #[error("this isn't a tar header")]
    NotAHeader,
    /// A header's checksum is wrong.
    #[error("the header's checksum is {stored:#o}, its bytes add up to {computed:#o}")]
    Checksum {
        /// What is stored.
        stored: i64,
        /// The sum of the bytes.
        computed: i64,
    },
    /// A lone block of zeros, where an archive's end has two. Some programs end there, some read on.
    #[error("a lone block of zeros, with data after it: the archive is damaged, cut or joined")]
    LoneZeroBlock,
    /// A header's number has other bytes than digits, or is out of range.
    #[error("the field \"{field}\" isn't a number, or is out of range")]
    Field {
        /// The field, in the words of POSIX.
        field: &'static str,
    },
    /// An extended header isn't a list of records.
    #[error("the extended header is malformed {offset} bytes from its start")]
    Records {
        /// Where in the extended header.
        offset: usize,
    },
    /// A record of an extended header has an impossible value.
    #[error("the extended header's record {key} has a value that can't be read")]
    Record {
        /// The record's key.
        key: String,
    },
    /// An extended header or long name is unreasonably long.
    #[error("{what} of {length} bytes, over the limit of {limit}")]
    TooLong {
        /// What it is.
        what: &'static str,
        /// How long it is.
        length: u64,
        /// How long it may be.
        limit: u64,
    },
    /// An extended header or long name isn't followed by an entry.
    #[error("an extended header is not followed by an entry")]
    Dangling,
    /// The map of a sparse file is impossible.
    #[error("the sparse file's map {what}")]
    Sparse {
        /// What is wrong with it.
        what: &'static str,
    },
    /// An entry type that isn't a file.
    #[error("entry type {} {what}", Shown(&[*.kind]))]
    Kind {
        /// The type's character.
        kind: u8,
        /// What it stands for.
        what: &'static str,
    },
    /// A name that can't be in an image.
    #[error("{0}")]
    Name(#[from] NameProblem),
    /// An access control list that can't be read.
    #[error("the access control list \"{}\" {what}", Shown(.text))]
    Acl {
        /// The list.
        text: Vec<u8>,
        /// What is wrong with it.
        what: String,
    },
    /// An extended attribute that Linux has no room for.
    #[error(
        "the attribute {} of {length} bytes: a name can have 255, a value 65536",
        Shown(.name)
    )]
    AttributeTooLong {
        /// The attribute's name.
        name: Vec<u8>,
        /// How long its value is.
        length: usize,
    },
    /// There is no place for the entry among those before it.
    #[error("{0}")]
    Tree(String),
    /// The archive can't be read.
    #[error("can't read: {0}")]
    Read(String),
}

/// A path that can't be in an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// A part is `..`.
    #[error("the name {} has \"..\" in it, which may lead out of the image", Shown(.0))]
    Parent(Vec<u8>),
    /// A part is too long.
    #[error("the name has a part of {length} bytes; 255 fit")]
    TooLong {
        /// How long it is.
        length: usize,
    },
    /// It has a NUL in it.
    #[error("the name {} has a NUL in it", Shown(.0))]
    Nul(Vec<u8>),
}

/// Most bytes of an entry's name in a message.
const SHOWN_BYTES_MAX: usize = 4096;

/// What is wrong with an archive, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarError {
    /// What the user called the archive.
    pub archive: String,
    /// The entry's name as far as it is known.
    pub entry: Option<Vec<u8>>,
    /// Where the entry begins, in bytes of the uncompressed archive.
    pub offset: u64,
    /// What is wrong.
    pub problem: TarProblem,
}

impl fmt::Display for TarError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.archive)?;
        if let Some(entry) = &self.entry {
            let shown = &entry[..entry.len().min(SHOWN_BYTES_MAX)];
            let rest = if shown.len() < entry.len() { "…" } else { "" };
            write!(formatter, "entry {}{rest} ", Shown(shown))?;
        }
        write!(formatter, "at byte {}: {}", self.offset, self.problem)
    }
}

impl std::error::Error for TarError {}
