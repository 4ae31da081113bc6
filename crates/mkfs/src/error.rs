//! Why an image can't be made.

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
        /// What has no room.
        what: &'static str,
    },
    /// The numbers don't make a valid image.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
