//! Why a message from the kernel can't be understood.

use super::Opcode;

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than a header.
    #[error("a message of {length} bytes is too short for a header")]
    Header {
        /// Bytes of the message.
        length: usize,
    },
    /// The length in the header is another.
    #[error("a message of {length} bytes says that it has {stated}")]
    Length {
        /// Bytes of the message.
        length: usize,
        /// Bytes that the header says.
        stated: u32,
    },
    /// No such operation.
    #[error("operation {code} is unknown")]
    Operation {
        /// The number in the header.
        code: u32,
    },
    /// Shorter than the fixed part of its operation.
    #[error("{operation:?}: {length} bytes are too few for the fixed part")]
    Fixed {
        /// The operation.
        operation: Opcode,
        /// Bytes after the header.
        length: usize,
    },
    /// A name without its end, or none where one has to be.
    #[error("{operation:?}: a name is missing or has no end")]
    Name {
        /// The operation.
        operation: Opcode,
    },
    /// Less data than announced.
    #[error("{operation:?}: {length} bytes follow where {stated} are announced")]
    Data {
        /// The operation.
        operation: Opcode,
        /// Bytes that follow.
        length: usize,
        /// Bytes announced.
        stated: u64,
    },
}
