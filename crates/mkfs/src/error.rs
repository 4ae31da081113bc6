//! Why an image can't be made.

use crate::tree::{SourceError, TreeError};
use drystone_blockdev::DeviceError;
use drystone_ext4_format::FormatError;

/// The result of making an image.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an image can't be made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is out of its range, or contradicts another.
    #[error("{0}")]
    Option(String),
    /// The fixed parts of the image need more room than there is.
    #[error("{blocks} blocks are too few for {what}; make the image larger or give it less")]
    TooSmall {
        /// Blocks of the image.
        blocks: u64,
        /// The part that has no room.
        what: &'static str,
    },
    /// Files can't be built into an image of the size that was asked for.
    #[error("the image is too small by {missing_bytes} bytes: {needed_bytes} would do")]
    DoesNotFit {
        /// Bytes by which the image is too small.
        missing_bytes: u64,
        /// Bytes of an image that would hold everything.
        needed_bytes: u64,
    },
    /// A file can't be represented.
    #[error("{}: {problem}", path.escape_ascii())]
    File {
        /// Its path in the image.
        path: Vec<u8>,
        /// Why not.
        problem: String,
    },
    /// A file's data could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The tree can't be completed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The build was cancelled.
    #[error("interrupted")]
    Cancelled,
    /// The numbers don't make a valid image.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
