//! The fixed newstyle handshake.

use super::address::NbdAddress;
use super::protocol::*;
use super::stream::Stream;
use std::io::{self, ErrorKind};

/// Bytes of an answer to an option; those that are used have up to 14.
const REPLY_BYTES_MAX: u32 = 64 << 10;
/// Requests are at most as large, if the server doesn't say so: all servers take that.
const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// What the server says of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub size_bytes: u64,
    pub flags: u16,
    /// Requests begin and end at a multiple of this power of two.
    pub block_bytes: u32,
    /// The largest request.
    pub request_bytes_max: u32,
}

impl Export {
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Agrees with a server on an export, and before that on TLS if the address asks for it.
pub(super) fn shake_hands(stream: &mut Stream, address: &NbdAddress) -> io::Result<Export> {
    let name = &*address.export;
    if stream.read_u64()? != SERVER_MAGIC || stream.read_u64()? != OPTION_MAGIC {
        return Err(wrong("not an NBD server, or one with the oldstyle handshake"));
    }
    let flags = stream.read_u16()?;
    if flags & FIXED_NEWSTYLE == 0 {
        return Err(wrong("an NBD server without the fixed newstyle handshake"));
    }
    let shared = flags & (FIXED_NEWSTYLE | NO_ZEROES);
    stream.write_all(&[&u32::from(shared).to_be_bytes()])?;
    if let Some(wish) = &address.tls {
        send_option(stream, OPTION_START_TLS, &[])?;
        let (kind, data) = read_reply(stream, OPTION_START_TLS)?;
        if kind != REPLY_ACK || !data.is_empty() {
            let text = String::from_utf8_lossy(&data);
            let told = "the server, or somebody on the way to it, refuses TLS";
            return Err(wrong(&format!("{told}: {}", text.escape_debug())));
        }
        stream.start_tls(wish).map_err(explained)?;
    }
    // A server without structured replies sends simple ones.
    let asked = send_option(stream, OPTION_STRUCTURED_REPLY, &[]);
    let replied = asked.and_then(|()| read_reply(stream, OPTION_STRUCTURED_REPLY));
    let (kind, _) = match address.tls {
        Some(_) => replied.map_err(explained)?,
        None => replied?,
    };
    if kind == REPLY_TLS_REQUIRED {
        return Err(wrong("the server insists on TLS: an address with nbds: asks for it"));
    }
    let mut request = (name.len() as u32).to_be_bytes().to_vec();
    request.extend_from_slice(name.as_bytes());
    request.extend_from_slice(&1_u16.to_be_bytes());
    request.extend_from_slice(&INFO_BLOCK_SIZE.to_be_bytes());
    send_option(stream, OPTION_GO, &request)?;
    let mut export =
        Export { size_bytes: 0, flags: 0, block_bytes: 1, request_bytes_max: REQUEST_BYTES_MAX };
    let mut is_described = false;
    loop {
        let (kind, data) = read_reply(stream, OPTION_GO)?;
        match kind {
            REPLY_INFO => is_described |= export.read_info(&data)?,
            REPLY_ACK if is_described => break,
            REPLY_UNSUPPORTED => return by_export_name(stream, name, shared),
            REPLY_UNKNOWN => return Err(wrong(&format!("the server has no export '{name}'"))),
            REPLY_TLS_REQUIRED => {
                return Err(wrong("the export insists on TLS: an address with nbds: asks for it"));
            }
            _ => {
                let text = String::from_utf8_lossy(&data);
                return Err(wrong(&format!("the server refuses: {}", text.escape_debug())));
            }
        }
    }
    export.checked()
}

/// What an error in TLS may be due to: a server that doesn't like our certificate may just hang up, in the
/// handshake or after it.
fn explained(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
            let refused =
                "TLS: the server hangs up: it may want another certificate of ours, or one";
            io::Error::new(error.kind(), format!("{refused} ({error})"))
        }
        _ => error,
    }
}

/// The exchange with servers that don't know the option above.
fn by_export_name(stream: &Stream, name: &str, shared: u16) -> io::Result<Export> {
    send_option(stream, OPTION_EXPORT_NAME, name.as_bytes())?;
    let (size_bytes, flags) = (stream.read_u64()?, stream.read_u16()?);
    if shared & NO_ZEROES == 0 {
        stream.skip(124)?;
    }
    let request_bytes_max = REQUEST_BYTES_MAX;
    Export { size_bytes, flags, block_bytes: 1, request_bytes_max }.checked()
}

impl Export {
    /// Notes a piece of information. True if it is the description of the export.
    fn read_info(&mut self, data: &[u8]) -> io::Result<bool> {
        let field = |at: usize, length: usize| -> io::Result<u64> {
            let bytes = data.get(at..at + length).ok_or_else(|| wrong("too short an answer"))?;
            Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
        };
        match field(0, 2)? as u16 {
            INFO_EXPORT => {
                (self.size_bytes, self.flags) = (field(2, 8)?, field(10, 2)? as u16);
                Ok(true)
            }
            INFO_BLOCK_SIZE => {
                self.block_bytes = field(2, 4)? as u32;
                self.request_bytes_max = (field(10, 4)? as u32).min(REQUEST_BYTES_MAX);
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    fn checked(self) -> io::Result<Export> {
        let Export { size_bytes, block_bytes, request_bytes_max, .. } = self;
        let problem = if !block_bytes.is_power_of_two() || block_bytes > 1 << 20 {
            format!("blocks of {block_bytes} bytes")
        } else if request_bytes_max < block_bytes.max(4096) {
            format!("requests of at most {request_bytes_max} bytes")
        } else if size_bytes > i64::MAX as u64 {
            format!("{size_bytes} bytes")
        } else if !size_bytes.is_multiple_of(block_bytes.into()) {
            format!("{size_bytes} bytes, not a multiple of its block size of {block_bytes}")
        } else {
            return Ok(self);
        };
        Err(wrong(&format!("the export has {problem}")))
    }
}

fn send_option(stream: &Stream, option: u32, data: &[u8]) -> io::Result<()> {
    let length = (data.len() as u32).to_be_bytes();
    stream.write_all(&[&OPTION_MAGIC.to_be_bytes(), &option.to_be_bytes(), &length, data])
}

fn read_reply(stream: &Stream, option: u32) -> io::Result<(u32, Vec<u8>)> {
    if stream.read_u64()? != OPTION_REPLY_MAGIC || stream.read_u32()? != option {
        return Err(wrong("not an answer to what was asked"));
    }
    let (kind, length) = (stream.read_u32()?, stream.read_u32()?);
    if length > REPLY_BYTES_MAX {
        return Err(wrong("too long an answer"));
    }
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data)?;
    Ok((kind, data))
}
