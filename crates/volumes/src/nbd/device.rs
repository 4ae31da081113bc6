//! An export as a block device.
//!
//! # Locking
//!
//! [`NBD_POOL`] guards the connections. The thread that finds them lost holds it while it makes new ones, so
//! that everybody else waits. [`NBD_LOG`] is held for moments only.

use super::NbdAddress;
use super::connection::{Connection, Failed, Request};
use super::handshake::{Export, wrong};
use super::log::{NbdChange, UnflushedLog};
use super::protocol::*;
use drystone_blockdev::{
    BlockDevice, DeviceError, DeviceOperation, DeviceResult, OpenMode, check_range,
};
use drystone_sync::{Arc, LockClass, Mutex, clock, thread};
use std::io;
use std::path::Path;
use std::time::Duration;

static NBD_EDGES: LockClass = LockClass::new("nbd edges", 940);
static NBD_POOL: LockClass = LockClass::new("nbd connections", 945);
static NBD_LOG: LockClass = LockClass::new("nbd unflushed changes", 950);

/// Memory for changes that aren't flushed yet. With more, the device flushes by itself.
const LOG_BYTES_MAX: usize = 64 << 20;
/// How long to wait before a lost connection is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// A request for more is cut into several, so that they go side by side with others.
const PIECE_BYTES: u64 = 4 << 20;

/// An export of an NBD server.
#[derive(Debug)]
pub struct NbdDevice {
    address: NbdAddress,
    name: String,
    mode: OpenMode,
    export: Export,
    pool: Mutex<Pool>,
    log: Mutex<UnflushedLog>,
    /// Held while a block is read that is written in part.
    edges: Mutex<()>,
}

#[derive(Debug, Default)]
struct Pool {
    connections: Vec<Arc<Connection>>,
    /// The connection that is used next.
    turn: usize,
    /// Counts how often all connections were made anew.
    generation: u64,
    /// Why nothing is tried any more.
    failed: Option<Arc<io::Error>>,
}

impl NbdDevice {
    /// Connects to a server.
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
        let opened = Connection::open(&address, address.answer_timeout);
        let (first, export) = opened.map_err(open_error)?;
        if mode == OpenMode::ReadWrite && export.has(IS_READ_ONLY) {
            first.close();
            return Err(DeviceError::ReadOnly);
        }
        let device = NbdDevice {
            address,
            name: name.to_owned(),
            mode,
            export,
            pool: Mutex::new(&NBD_POOL, Pool::default()),
            log: Mutex::new(&NBD_LOG, UnflushedLog::default()),
            edges: Mutex::new(&NBD_EDGES, ()),
        };
        let connections = device.with_others(first).map_err(open_error)?;
        device.pool.lock().connections = connections;
        Ok(device)
    }

    /// Adds connections to a first one, where the server allows several.
    fn with_others(&self, first: Connection) -> io::Result<Vec<Arc<Connection>>> {
        let mut connections = vec![Arc::new(first)];
        let count = match self.export.has(HAS_MULTI_CONNECTION) {
            true => self.address.connections,
            false => 1,
        };
        while connections.len() < count {
            let (connection, _) = Connection::open(&self.address, self.address.answer_timeout)?;
            connections.push(Arc::new(connection));
        }
        Ok(connections)
    }

    /// Has a request carried out, on new connections if the old ones are lost.
    fn call(&self, request: Request<'_>) -> io::Result<Vec<u8>> {
        let mut first_loss = None;
        loop {
            let (connection, generation) = self.connection()?;
            let error = match connection.call(request) {
                Ok(data) => return Ok(data),
                Err(Failed::Refused(error)) => return Err(error),
                Err(Failed::Lost(error)) => error,
            };
            self.give_up(generation, &error);
            // A server may take every connection, and answer nothing.
            if first_loss.get_or_insert_with(clock::now).elapsed() > self.address.reconnect_timeout
            {
                return Err(self.fail(error));
            }
        }
    }

    /// Ends all use of the server.
    fn fail(&self, error: io::Error) -> io::Error {
        tracing::error!("{}: {error}", self.name);
        let told = io::Error::new(error.kind(), error.to_string());
        self.pool.lock().failed.get_or_insert_with(|| Arc::new(error));
        told
    }

    /// A connection for one request.
    fn connection(&self) -> io::Result<(Arc<Connection>, u64)> {
        let mut pool = self.pool.lock();
        if let Some(error) = &pool.failed {
            return Err(io::Error::new(error.kind(), error.to_string()));
        }
        if pool.connections.is_empty() {
            match self.reconnect() {
                Ok(connections) => {
                    tracing::warn!("{}: connected again", self.name);
                    pool.connections = connections;
                }
                Err(error) => {
                    tracing::error!("{}: {error}", self.name);
                    let told = io::Error::new(error.kind(), error.to_string());
                    pool.failed = Some(Arc::new(error));
                    return Err(told);
                }
            }
        }
        pool.turn = (pool.turn + 1) % pool.connections.len();
        Ok((Arc::clone(&pool.connections[pool.turn]), pool.generation))
    }

    /// Drops all connections: what one of them has lost, the others may not show.
    fn give_up(&self, generation: u64, error: &io::Error) {
        let mut pool = self.pool.lock();
        if pool.generation == generation {
            tracing::warn!("{}: connection lost: {error}", self.name);
            pool.generation += 1;
            for connection in pool.connections.drain(..) {
                connection.close();
            }
        }
    }

    /// Makes new connections within the time limit, and brings the server up to date.
    fn reconnect(&self) -> io::Result<Vec<Arc<Connection>>> {
        let start = clock::now();
        loop {
            let error = match self.reconnect_once() {
                Ok(connections) => return Ok(connections),
                // Another disk, or one that refuses what it took before.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
                Err(error) => error,
            };
            if start.elapsed() + RETRY_INTERVAL > self.address.reconnect_timeout {
                let seconds = self.address.reconnect_timeout.as_secs();
                let problem = format!("no connection to the server for {seconds} s: {error}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
            thread::sleep(RETRY_INTERVAL);
        }
    }

    fn reconnect_once(&self) -> io::Result<Vec<Arc<Connection>>> {
        let (first, export) = Connection::open(&self.address, self.address.answer_timeout)?;
        if export != self.export {
            return Err(wrong("the server comes back with an export of another size or kind"));
        }
        let connections = self.with_others(first)?;
        let changes = self.log.lock().all();
        for (offset, change) in &changes {
            self.send_change(*offset, change, 0, |request| {
                connections[0].call(request).map_err(|failed| match failed {
                    Failed::Refused(error) => wrong(&format!("unflushed data is lost: {error}")),
                    Failed::Lost(error) => error,
                })
            })?;
        }
        Ok(connections)
    }

    /// Cuts a change into requests.
    fn send_change(
        &self,
        offset: u64,
        change: &NbdChange,
        flags: u16,
        mut call: impl FnMut(Request<'_>) -> io::Result<Vec<u8>>,
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
            // It carries no data.
            _ => 1 << 30,
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
        if self.log.lock().bytes() > LOG_BYTES_MAX {
            self.flush()?;
        }
        let number = self.log.lock().begin(offset, change.clone());
        let done = self.send_change(offset, &change, flags, |request| self.call(request));
        let mut log = self.log.lock();
        match done {
            Ok(()) => {
                log.answered(number);
                Ok(())
            }
            Err(error) => {
                log.remove(number);
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
            Some(source) => Err(DeviceError::FlushFailed { source: Arc::clone(source) }),
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
        if self.export.has(HAS_FUA) {
            return self.write(offset, data, COMMAND_FLAG_FUA);
        }
        self.write(offset, data, 0)?;
        self.flush()
    }

    fn flush(&self) -> DeviceResult {
        if self.mode == OpenMode::ReadOnly {
            return Ok(());
        }
        self.check_failed()?;
        let durable = self.log.lock().answered_numbers();
        // A server without this request promises that nothing is cached.
        if self.export.has(HAS_FLUSH) {
            let request =
                Request { kind: COMMAND_FLUSH, flags: 0, offset: 0, length: 0, data: &[] };
            self.call(request).map_err(|error| {
                let source = Arc::new(error);
                self.pool.lock().failed.get_or_insert_with(|| Arc::clone(&source));
                DeviceError::Io { operation: DeviceOperation::Flush, offset: 0, length: 0, source }
            })?;
        }
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
            return self.change(DeviceOperation::Zero, offset, NbdChange::Zero(length), 0);
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
