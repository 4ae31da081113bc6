//! The layouts of FUSE over io_uring.
//!
//! A queue belongs to a core. Its entries are offered to the kernel with a `REGISTER` command each;
//! the command completes when a request has been put into the entry's two buffers. The answer goes
//! into the same buffers; a `COMMIT_AND_FETCH` command hands it over and offers the entry again.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes for the header of a request, and of its answer.
pub const HEADER_AREA_LENGTH: usize = 128;

/// Bytes for the fixed part of a request.
pub const FIXED_AREA_LENGTH: usize = 128;

/// Offers an entry, with an array of two buffers: an [`EntryHeaders`] and the payload.
pub const COMMAND_REGISTER: u32 = 1;

/// Hands over an answer and offers the entry again.
pub const COMMAND_COMMIT_AND_FETCH: u32 = 2;

/// Buffers in the array that a `REGISTER` command points to.
pub const BUFFERS_PER_ENTRY: u32 = 2;

/// What is said of the payload, in both directions.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EntryState {
    /// None are defined.
    pub flags: u64,
    /// Names the request in the command that answers it.
    pub commit_id: u64,
    /// Bytes of the payload that are used.
    pub payload_length: u32,
    padding: u32,
    reserved: u64,
}

/// The first buffer of an entry.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EntryHeaders {
    /// The header of the request, replaced by that of the answer.
    pub header: [u8; HEADER_AREA_LENGTH],
    /// The fixed part of the request.
    pub fixed: [u8; FIXED_AREA_LENGTH],
    /// The rest.
    pub state: EntryState,
}

/// What a command carries itself, in the upper half of a large submission entry.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RingCommand {
    /// None are defined.
    pub flags: u64,
    /// The request that is answered.
    pub commit_id: u64,
    /// The queue.
    pub queue: u16,
    padding: [u8; 6],
}

impl RingCommand {
    /// A command about a request of a queue; `commit_id` is zero for an entry's first one.
    pub fn new(queue: u16, commit_id: u64) -> RingCommand {
        RingCommand { commit_id, queue, ..RingCommand::default() }
    }
}

const _: () = {
    assert!(size_of::<EntryState>() == 32);
    assert!(size_of::<EntryHeaders>() == 288);
    assert!(std::mem::offset_of!(EntryHeaders, fixed) == 128);
    assert!(std::mem::offset_of!(EntryHeaders, state) == 256);
    assert!(size_of::<RingCommand>() == 24);
    assert!(std::mem::offset_of!(RingCommand, queue) == 16);
};
