//! Numbers of the protocol, and the error of a server that breaks it.

use std::io;

pub(super) const SERVER_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
pub(super) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(super) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Flags of the handshake.
pub(super) const FIXED_NEWSTYLE: u16 = 1;
pub(super) const NO_ZEROES: u16 = 1 << 1;

pub(super) const OPTION_EXPORT_NAME: u32 = 1;
pub(super) const OPTION_START_TLS: u32 = 5;
pub(super) const OPTION_GO: u32 = 7;
pub(super) const OPTION_STRUCTURED_REPLY: u32 = 8;
pub(super) const REPLY_ACK: u32 = 1;
pub(super) const REPLY_INFO: u32 = 3;
pub(super) const REPLY_ERROR: u32 = 1 << 31;
pub(super) const REPLY_UNSUPPORTED: u32 = REPLY_ERROR + 1;
pub(super) const REPLY_TLS_REQUIRED: u32 = REPLY_ERROR + 5;
pub(super) const REPLY_UNKNOWN: u32 = REPLY_ERROR + 6;
pub(super) const INFO_EXPORT: u16 = 0;
pub(super) const INFO_BLOCK_SIZE: u16 = 3;

/// Flags of an export.
pub(super) const IS_READ_ONLY: u16 = 1 << 1;
pub(super) const HAS_FLUSH: u16 = 1 << 2;
pub(super) const HAS_FUA: u16 = 1 << 3;
pub(super) const HAS_TRIM: u16 = 1 << 5;
pub(super) const HAS_WRITE_ZEROES: u16 = 1 << 6;
pub(super) const HAS_MULTI_CONNECTION: u16 = 1 << 8;

pub(super) const COMMAND_READ: u16 = 0;
pub(super) const COMMAND_WRITE: u16 = 1;
pub(super) const COMMAND_DISCONNECT: u16 = 2;
pub(super) const COMMAND_FLUSH: u16 = 3;
pub(super) const COMMAND_TRIM: u16 = 4;
pub(super) const COMMAND_WRITE_ZEROES: u16 = 6;
/// What is written is durable before the answer.
pub(super) const COMMAND_FLAG_FUA: u16 = 1;

pub(super) const CHUNK_DONE: u16 = 1;
pub(super) const CHUNK_NONE: u16 = 0;
pub(super) const CHUNK_DATA: u16 = 1;
pub(super) const CHUNK_HOLE: u16 = 2;
/// Kinds of chunks that say that the request failed have this bit.
pub(super) const CHUNK_ERROR: u16 = 1 << 15;

pub(super) fn wrong(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}
