//! Why something can't be part of a tree.

/// The result of changing a tree.
pub type TreeResult<T> = Result<T, TreeError>;

/// Why something can't be part of a tree. Paths are as they were given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// A name has more than 255 bytes.
    #[error("{}: a name of {length} bytes: ext4 has room for 255", path.escape_ascii())]
    NameTooLong {
        /// The path.
        path: Vec<u8>,
        /// Bytes of the name.
        length: usize,
    },
    /// A path has a component that can't be a name.
    #[error("{}: {what}", path.escape_ascii())]
    BadPath {
        /// The path.
        path: Vec<u8>,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A long path implies directories that aren't there.
    #[error(
        "a path of {length} bytes in a directory that isn't there: missing directories are made for \
         paths of up to {length_max}"
    )]
    PathTooLong {
        /// Bytes of the path.
        length: usize,
        /// Bytes of a path whose missing directories are made.
        length_max: usize,
    },
    /// A parent of the path isn't a directory.
    #[error("{}: lies under something that isn't a directory", path.escape_ascii())]
    NotADirectory {
        /// The path.
        path: Vec<u8>,
    },
    /// Following symbolic links in the path doesn't end.
    #[error("{}: too many symbolic links on the way", path.escape_ascii())]
    Loop {
        /// The path.
        path: Vec<u8>,
    },
    /// A hard link to nothing.
    #[error("{}: hard link to {}, which isn't there", path.escape_ascii(), target.escape_ascii())]
    LinkToNothing {
        /// The path.
        path: Vec<u8>,
        /// What it should name.
        target: Vec<u8>,
    },
    /// A hard link to a directory.
    #[error("{}: hard link to the directory {}", path.escape_ascii(), target.escape_ascii())]
    LinkToDirectory {
        /// The path.
        path: Vec<u8>,
        /// What it should name.
        target: Vec<u8>,
    },
    /// The pieces of a file's content overlap, aren't in order, or go beyond its size.
    #[error("{}: the pieces of its content are out of order", path.escape_ascii())]
    Segments {
        /// The path.
        path: Vec<u8>,
    },
    /// A symbolic link without a target, or with one that is too long.
    #[error("{}: a symbolic link to {length} bytes: there can be 1 to 4095", path.escape_ascii())]
    SymlinkLength {
        /// The path.
        path: Vec<u8>,
        /// Bytes of the target.
        length: usize,
    },
    /// More than the tree can count.
    #[error("too many {what}")]
    TooMuch {
        /// What there are too many of.
        what: &'static str,
    },
}

impl TreeError {
    /// The same error for a whole path instead of a name.
    pub(super) fn with_path(self, whole: &[u8]) -> TreeError {
        match self {
            TreeError::NameTooLong { length, .. } => {
                TreeError::NameTooLong { path: whole.to_vec(), length }
            }
            TreeError::BadPath { what, .. } => TreeError::BadPath { path: whole.to_vec(), what },
            other => other,
        }
    }
}
