//! What is wrong with an OCI layout, or can't be chosen in it.

use std::fmt;

/// What is wrong with an OCI layout, or can't be chosen in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OciProblem {
    /// A file that should be there isn't.
    #[error("{path} is missing")]
    Missing {
        /// Path in the layout.
        path: String,
    },
    /// A path, or a symbolic link on it, leads to a file that isn't in the layout.
    #[error("{path} leads out of the layout")]
    Outside {
        /// Path in the layout.
        path: String,
    },
    /// A file can't be read.
    #[error("{path} can't be read: {problem}")]
    Read {
        /// Path in the layout.
        path: String,
        /// What happened.
        problem: String,
    },
    /// A file isn't what it should be.
    #[error("{path} isn't a valid {what}: {problem}")]
    Json {
        /// Path in the layout.
        path: String,
        /// What it should be.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A file's length isn't the stated one.
    #[error("{path} has {found} bytes, its descriptor says {expected}")]
    Size {
        /// Path in the layout.
        path: String,
        /// What the descriptor says.
        expected: u64,
        /// What there is.
        found: u64,
    },
    /// A file's bytes don't match the digest in its name.
    #[error("{path} is damaged: the sum of its bytes is {computed}")]
    Digest {
        /// Path in the layout.
        path: String,
        /// The digest of its bytes.
        computed: String,
    },
    /// A saved image has other layers than its configuration counts.
    #[error("the image has {found} layers, its configuration says {expected}")]
    LayerCount {
        /// What the configuration says.
        expected: usize,
        /// What there is.
        found: usize,
    },
    /// A digest of an unknown kind.
    #[error("the digest {digest} is neither sha256 nor sha512")]
    Algorithm {
        /// The digest.
        digest: String,
    },
    /// Nothing matches what the user asked for.
    #[error("no image {wanted}; there is {found}")]
    NoImage {
        /// What was asked for.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// There is more than one image, and the user didn't choose.
    #[error("more than one image {wanted}: name one of {found}")]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// A layer is encrypted, or of a kind that isn't a tar.
    #[error("a layer is of type {media_type}, which is not read")]
    Layer {
        /// The type.
        media_type: String,
    },
    /// Indexes are nested too deeply.
    #[error("the indexes are nested more than {0} deep")]
    Nesting(u32),
    /// Too many images in the indexes.
    #[error("the indexes name more than {0} images; make a layout with fewer")]
    TooMany(usize),
}

/// What is wrong with an OCI layout, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OciError {
    /// What the user called the layout.
    pub layout: String,
    /// What is wrong.
    pub problem: OciProblem,
}

impl fmt::Display for OciError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.layout, self.problem)
    }
}

impl std::error::Error for OciError {}
