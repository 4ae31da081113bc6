//! An export as a block device.
//!
//! # Locking
//!
//! [`NBD_POOL`] guards the connections (`pool` says for how long). [`NBD_LOG`] is held only to add or drop
//! changes.

use super::NbdAddress;
use super::connection::{Connection, Request};
use super::handshake::Export;
use super::log::{NbdChange, UnflushedLog, ZEROED_BYTES_MAX};
use super::protocol::*;
use drystone_blockdev::{
    BlockDevice, DeviceError, DeviceOperation, DeviceResult, FileDevice, OpenMode, Region,
    check_range,
};
use drystone_sync::clock::{self, Instant};
use drystone_sync::{Arc, LockClass, Mutex};
use std::io;
use std::path::Path;

static NBD_EDGES: LockClass = LockClass::new("nbd edges", 940);
static NBD_LOCK: LockClass = LockClass::new("nbd lock", 940);
static NBD_POOL: LockClass = LockClass::new("nbd connections", 945);
static NBD_LOG: LockClass = LockClass::new("nbd unflushed changes", 950);

/// A request for more is cut into several, so that they go side by side with others.
const PIECE_BYTES: u64 = 4 << 20;
/// The same for requests without data: a slow server must be able to answer in time.
const QUIET_PIECE_BYTES: u64 = 64 << 20;

/// An export of an NBD server.
#[derive(Debug)]
pub struct NbdDevice {
    pub(super) address: NbdAddress,
    pub(super) name: String,
    pub(super) mode: OpenMode,
    pub(super) export: Export,
    pub(super) pool: Mutex<Pool>,
    pub(super) log: Mutex<UnflushedLog>,
    /// Held while a block is read that is written in part.
    edges: Mutex<()>,
    /// What keeps other programs away.
    pub(super) lock: Mutex<Option<Region<FileDevice>>>,
}

/// The connections that are in use.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pub(super) connections: Vec<Arc<Connection>>,
    /// The connection that is used next.
    pub(super) turn: usize,
    /// Counts how often the client has reconnected.
    pub(super) generation: u64,
    /// Connections that are lost, as long as the server may carry out changes that were sent on them.
    pub(super) late: Vec<Arc<Connection>>,
    /// Why the export can't be used any more, or couldn't at that time if it is only read.
    pub(super) failed: Option<(Arc<io::Error>, Instant)>,
}

impl NbdDevice {
    /// Connects to a server. Nothing keeps others from writing the export meanwhile.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Open`] with what the system or the server says.
    pub fn open(name: &str, mode: OpenMode) -> DeviceResult<NbdDevice> {
        let open_error = |source: io::Error| DeviceError::Open {
            path: Path::new(name).to_owned(),
            source: Arc::new(source),
        };
        let invalid = |problem| open_error(io::Error::new(io::ErrorKind::InvalidInput, problem));
        let address = NbdAddress::parse(name).map_err(invalid)?;
        let deadline = clock::now() + address.answer_timeout;
        let opened = Connection::open(&address, address.answer_timeout);
        let (first, export) = opened.map_err(open_error)?;
        if mode == OpenMode::ReadWrite && export.has(IS_READ_ONLY) {
            first.close();
            return Err(DeviceError::ReadOnly);
        }
        if mode == OpenMode::ReadWrite && !export.has(HAS_FLUSH) {
            tracing::warn!(
                "{name}: the server offers no flush: what fsync has confirmed can be lost if the server's machine \
                 fails; for nbd-server set 'flush = true' in the export's section"
            );
        }
        let device = NbdDevice {
            address,
            name: name.to_owned(),
            mode,
            export,
            pool: Mutex::new(&NBD_POOL, Pool::default()),
            log: Mutex::new(&NBD_LOG, UnflushedLog::default()),
            edges: Mutex::new(&NBD_EDGES, ()),
            lock: Mutex::new(&NBD_LOCK, None),
        };
        let connections = device.with_others(first, deadline);
        device.pool.lock().connections = connections;
        Ok(device)
    }

    /// Cuts a change into requests.
    pub(super) fn send_change<T>(
        &self,
        offset: u64,
        change: &NbdChange,
        flags: u16,
        mut call: impl FnMut(Request<'_>) -> io::Result<T>,
    ) -> io::Result<()> {
        let (kind, length) = match change {
            NbdChange::Write(data) => (COMMAND_WRITE, data.len() as u64),
            NbdChange::Zero(length) => (COMMAND_WRITE_ZEROES, *length),
        };
        let mut done = 0;
        while done < length {
            let piece = (length - done).min(self.piece_bytes(kind));
            let data = match change {
                NbdChange::Write(data) => &data[done as usize..(done + piece) as usize],
                NbdChange::Zero(_) => &[],
            };
            call(Request { kind, flags, offset: offset + done, length: piece as u32, data })?;
            done += piece;
        }
        Ok(())
    }

    /// The largest request of a kind.
    fn piece_bytes(&self, kind: u16) -> u64 {
        let block = u64::from(self.export.block_bytes);
        match kind {
            COMMAND_READ | COMMAND_WRITE => {
                PIECE_BYTES.min(u64::from(self.export.request_bytes_max)) & !(block - 1)
            }
            // It carries no data, but the server may write all of it before it answers.
            _ => QUIET_PIECE_BYTES,
        }
    }

    /// Makes a change, and keeps it until the next flush.
    fn change(
        &self,
        operation: DeviceOperation,
        offset: u64,
        change: NbdChange,
        flags: u16,
    ) -> DeviceResult {
        match self.export.has(HAS_FLUSH) {
            true if self.log.lock().is_full() => self.flush()?,
            true => {}
            false => self.log.lock().forget_oldest(),
        }
        let number = self.log.lock().begin(offset, change.clone());
        let done = self.send_change(offset, &change, flags, |request| self.call(request));
        match done {
            Ok(()) => {
                self.log.lock().answered(number);
                Ok(())
            }
            Err(error) => {
                self.log.lock().remove(number);
                // The server may have told of other writes that are lost, and tells of them once.
                let is_last = flags & COMMAND_FLAG_FUA != 0;
                let error = if is_last { self.fail(error) } else { error };
                let length = match change {
                    NbdChange::Write(data) => data.len() as u64,
                    NbdChange::Zero(length) => length,
                };
                Err(DeviceError::io(operation, offset, length, error))
            }
        }
    }

    fn write(&self, offset: u64, data: &[u8], flags: u16) -> DeviceResult {
        self.check_write(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        let (start, end) = self.blocks_around(offset, data.len() as u64);
        let operation = DeviceOperation::Write;
        if end - start == data.len() as u64 {
            return self.change(operation, offset, NbdChange::Write(data.into()), flags);
        }
        let _alone = self.edges.lock();
        let mut blocks = vec![0; (end - start) as usize];
        self.read_blocks(start, &mut blocks)?;
        blocks[(offset - start) as usize..][..data.len()].copy_from_slice(data);
        self.change(operation, start, NbdChange::Write(blocks.into()), flags)
    }

    /// The blocks that a range is in.
    fn blocks_around(&self, offset: u64, length: u64) -> (u64, u64) {
        let block = u64::from(self.export.block_bytes);
        (offset & !(block - 1), (offset + length).next_multiple_of(block))
    }

    /// Reads whole blocks.
    fn read_blocks(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        let piece_bytes = self.piece_bytes(COMMAND_READ);
        let mut at = offset;
        for piece in buffer.chunks_mut(piece_bytes as usize) {
            let length = piece.len() as u32;
            let request = Request { kind: COMMAND_READ, flags: 0, offset: at, length, data: &[] };
            let data = self.call(request).map_err(|error| {
                DeviceError::io(DeviceOperation::Read, at, u64::from(length), error)
            })?;
            piece.copy_from_slice(&data);
            at += u64::from(length);
        }
        Ok(())
    }

    fn check_write(&self, offset: u64, length: u64) -> DeviceResult {
        if self.mode == OpenMode::ReadOnly {
            return Err(DeviceError::ReadOnly);
        }
        self.check_failed()?;
        check_range(self.export.size_bytes, offset, length)
    }

    fn check_failed(&self) -> DeviceResult {
        match &self.pool.lock().failed {
            Some((source, _)) => Err(DeviceError::FlushFailed { source: Arc::clone(source) }),
            None => Ok(()),
        }
    }
}

impl BlockDevice for NbdDevice {
    fn size_bytes(&self) -> u64 {
        self.export.size_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        check_range(self.export.size_bytes, offset, buffer.len() as u64)?;
        let (start, end) = self.blocks_around(offset, buffer.len() as u64);
        if end - start == buffer.len() as u64 {
            return self.read_blocks(offset, buffer);
        }
        let mut blocks = vec![0; (end - start) as usize];
        self.read_blocks(start, &mut blocks)?;
        buffer.copy_from_slice(&blocks[(offset - start) as usize..][..buffer.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.write(offset, data, 0)
    }

    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        // Without the flag first: if a full server refuses that, nothing else is lost, and it can be tried again.
        self.write(offset, data, 0).inspect_err(|error| {
            if !matches!(error, DeviceError::NoSpace { .. }) {
                self.fail(io::Error::other(error.to_string()));
            }
        })?;
        match self.export.has(HAS_FUA) {
            true => self.write(offset, data, COMMAND_FLAG_FUA),
            false => self.flush(),
        }
    }

    fn flush(&self) -> DeviceResult {
        if self.mode == OpenMode::ReadOnly {
            return Ok(());
        }
        self.check_failed()?;
        // What such a server has answered may be durable or not. The last changes are kept for the case that it isn't.
        if !self.export.has(HAS_FLUSH) {
            return Ok(());
        }
        let durable = self.log.lock().answered_numbers();
        let request = Request { kind: COMMAND_FLUSH, flags: 0, offset: 0, length: 0, data: &[] };
        self.call(request).map_err(|error| {
            let source = Arc::new(self.fail(error));
            DeviceError::Io { operation: DeviceOperation::Flush, offset: 0, length: 0, source }
        })?;
        let mut log = self.log.lock();
        durable.into_iter().for_each(|number| log.remove(number));
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.check_write(offset, length)?;
        let block = u64::from(self.export.block_bytes);
        let (start, end) = (offset.next_multiple_of(block), (offset + length) & !(block - 1));
        if !self.export.has(HAS_TRIM) || start >= end {
            return Ok(());
        }
        let mut at = start;
        while at < end {
            let length = (end - at).min(self.piece_bytes(COMMAND_TRIM)) as u32;
            let request = Request { kind: COMMAND_TRIM, flags: 0, offset: at, length, data: &[] };
            // A hint: the server may refuse it. A lost connection shows with the next request.
            let _ = self.call(request);
            at += u64::from(length);
        }
        Ok(())
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.check_write(offset, length)?;
        let (start, end) = self.blocks_around(offset, length);
        if length > 0 && self.export.has(HAS_WRITE_ZEROES) && end - start == length {
            let mut at = offset;
            while at < end {
                let piece = (end - at).min(ZEROED_BYTES_MAX);
                self.change(DeviceOperation::Zero, at, NbdChange::Zero(piece), 0)?;
                at += piece;
            }
            return Ok(());
        }
        // In larger pieces than other devices: each is a round trip.
        let zeros = vec![0; length.min(PIECE_BYTES) as usize];
        let mut at = offset;
        while at < offset + length {
            let piece = (offset + length - at).min(PIECE_BYTES) as usize;
            self.write_at(at, &zeros[..piece])?;
            at += piece as u64;
        }
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        self.mode == OpenMode::ReadOnly
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        for connection in &self.pool.get_mut().connections {
            connection.close();
        }
    }
}
