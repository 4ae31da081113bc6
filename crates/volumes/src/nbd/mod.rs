//! Block devices behind servers of the NBD protocol.
//!
//! A request waits for its answer on one of the connections; others are under way meanwhile, on the same
//! connection or another. There are several connections if the server says that a flush on one covers all.
//!
//! # Crash
//!
//! If a connection is lost, all are given up, and new ones are made within a time limit. A server may have
//! lost what it hadn't flushed. So all changes since the last flush are kept in memory ([`UnflushedLog`])
//! and sent again, in their order, before anything else. Before that, the server must have answered what was sent
//! on the old connections, or have closed them: a change that it carries out later would replace newer data. After
//! the time limit, every request fails for good. Where nothing is written, nothing can be lost: there the next
//! request tries again.
//!
//! # Reference
//!
//! `doc/proto.md` of NetworkBlockDevice/nbd.

mod address;
mod connection;
mod device;
mod handshake;
mod lock;
mod log;
#[cfg(not(feature = "tls"))]
mod no_tls;
mod pool;
mod protocol;
mod stream;
#[cfg(feature = "tls")]
mod tls;

pub use address::NbdAddress;
pub use device::NbdDevice;
#[cfg(not(feature = "tls"))]
use no_tls::NoSession as Session;
#[cfg(feature = "tls")]
use tls::Session;

/// Whether a name is one of a volume behind a server.
pub(crate) fn is_address(name: &[u8]) -> bool {
    address::SCHEMES.iter().any(|scheme| name.starts_with(scheme.as_bytes()))
}
