//! One connection: requests go out one after the other, and answers come in any order.
//!
//! # Locking
//!
//! [`NBD_SEND`] orders requests, and isn't held while an answer is awaited. [`NBD_PENDING`] guards what is
//! awaited. A thread of its own reads the answers.
//!
//! # Crash
//!
//! A connection is lost for its users as soon as one answer is late. What the server has taken by then it may carry
//! out much later, over newer data. So a lost connection with such changes stays open until the server has answered
//! them or has closed it ([`is_over_by`](Connection::is_over_by)).

use super::address::NbdAddress;
use super::handshake::{Export, shake_hands};
use super::protocol::*;
use super::stream::Stream;
use drystone_sync::clock::{self, Instant};
use drystone_sync::{Arc, Condvar, LockClass, Mutex, thread};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::time::Duration;

static NBD_SEND: LockClass = LockClass::new("nbd send", 955);
static NBD_PENDING: LockClass = LockClass::new("nbd pending", 960);

/// The errno of a server that is about to end.
const SHUTTING_DOWN: u32 = 108;

/// A request to the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'d> {
    pub kind: u16,
    pub flags: u16,
    pub offset: u64,
    pub length: u32,
    /// What is written.
    pub data: &'d [u8],
}

impl Request<'_> {
    /// Whether it makes a difference when the server carries it out.
    fn is_change(&self) -> bool {
        matches!(self.kind, COMMAND_WRITE | COMMAND_WRITE_ZEROES | COMMAND_TRIM)
    }
}

/// A request that was sent, by its number on the connection.
#[derive(Debug)]
pub(super) struct SentRequest(u64);

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The server reported an error.
    Refused(io::Error),
    /// The connection is lost; whether the request was carried out isn't known.
    Lost(io::Error),
}

#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    timeout: Duration,
}

#[derive(Debug)]
struct Shared {
    stream: Stream,
    send: Mutex<()>,
    pending: Mutex<PendingRequests>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct PendingRequests {
    requests: HashMap<u64, PendingRequest>,
    next: u64,
    /// Why the connection was lost.
    lost: Option<String>,
    /// The server has closed it, so it carries out nothing more.
    is_closed: bool,
}

impl PendingRequests {
    /// Whether the server may still carry out a change.
    fn has_change(&self) -> bool {
        let mut requests = self.requests.values();
        !self.is_closed && requests.any(|request| request.is_change && request.answer.is_none())
    }
}

#[derive(Debug)]
struct PendingRequest {
    is_change: bool,
    /// What is read, as far as it is there.
    data: Vec<u8>,
    /// How many bytes of it are there, holes too.
    received: u64,
    /// Where the range that is read begins, to which chunks refer.
    offset: u64,
    /// The error that a chunk reported.
    failed: Option<u32>,
    answer: Option<Result<(), u32>>,
}

impl Connection {
    /// Connects within a time limit, and starts the thread that reads answers.
    pub fn open(address: &NbdAddress, timeout: Duration) -> io::Result<(Connection, Export)> {
        let mut stream = Stream::connect(&address.socket, timeout)?;
        let export = shake_hands(&mut stream, address)?;
        stream.end_handshake(address.answer_timeout);
        let shared = Arc::new(Shared {
            stream,
            send: Mutex::new(&NBD_SEND, ()),
            pending: Mutex::new(&NBD_PENDING, PendingRequests::default()),
            answered: Condvar::new(),
        });
        let reader = Arc::clone(&shared);
        thread::spawn("nbd answers", move || reader.read_answers())?;
        Ok((Connection { shared, timeout: address.answer_timeout }, export))
    }

    /// Sends a request and waits for its answer: what was read, if it is a read.
    pub fn call(&self, request: Request<'_>) -> Result<Vec<u8>, Failed> {
        let sent = self.begin(request, None)?;
        self.finish(&sent, None)
    }

    /// Sends a request, until this time at most.
    pub fn begin(
        &self,
        request: Request<'_>,
        deadline: Option<Instant>,
    ) -> Result<SentRequest, Failed> {
        let length = if request.kind == COMMAND_READ { request.length as usize } else { 0 };
        let cookie = {
            let mut pending = self.shared.pending.lock();
            if let Some(problem) = &pending.lost {
                return Err(lost(problem));
            }
            let cookie = pending.next;
            pending.next += 1;
            let awaited = PendingRequest {
                is_change: request.is_change(),
                data: vec![0; length],
                received: 0,
                offset: request.offset,
                failed: None,
                answer: None,
            };
            pending.requests.insert(cookie, awaited);
            cookie
        };
        if let Err(error) = self.shared.send(cookie, request, deadline) {
            // The server can't carry out what it doesn't have all of.
            self.shared.pending.lock().requests.remove(&cookie);
            self.shared.lose(&error.to_string());
            return Err(Failed::Lost(error));
        }
        Ok(SentRequest(cookie))
    }

    /// Waits for the answer to a request, until this time at most.
    pub fn finish(
        &self,
        SentRequest(cookie): &SentRequest,
        deadline: Option<Instant>,
    ) -> Result<Vec<u8>, Failed> {
        let mut timeout = self.timeout;
        if let Some(deadline) = deadline {
            timeout = timeout.min(deadline.duration_since(clock::now()));
        }
        let mut pending = self.shared.pending.lock();
        let has_none = |pending: &mut PendingRequests| {
            let is_awaited = |request: &PendingRequest| request.answer.is_none();
            pending.lost.is_none() && pending.requests.get(cookie).is_some_and(is_awaited)
        };
        if self.shared.answered.wait_while_timeout(&mut pending, timeout, has_none) {
            drop(pending);
            self.shared.lose("the server doesn't answer");
            pending = self.shared.pending.lock();
        }
        // One without an answer stays: the answer may come later.
        let answer = pending.requests.get(cookie).and_then(|request| request.answer);
        let awaited = answer.and_then(|_| pending.requests.remove(cookie));
        match awaited.and_then(|request| Some((request.answer?, request.data))) {
            Some((Ok(()), data)) => Ok(data),
            Some((Err(SHUTTING_DOWN), _)) => Err(lost("the server is shutting down")),
            Some((Err(errno), _)) => {
                let errno = i32::try_from(errno).unwrap_or(i32::MAX);
                Err(Failed::Refused(io::Error::from_raw_os_error(errno)))
            }
            None => Err(lost(pending.lost.as_deref().unwrap_or("no answer"))),
        }
    }

    /// Tells the server that no more requests come, if it still listens.
    pub fn close(&self) {
        let request =
            Request { kind: COMMAND_DISCONNECT, flags: 0, offset: 0, length: 0, data: &[] };
        // It has no answer, and the connection may be lost already.
        let _ = self.shared.send(u64::MAX, request, None);
    }

    /// Gives the connection up, also for threads that wait for answers.
    pub fn lose(&self, problem: &str) {
        self.shared.lose(problem);
    }

    /// Waits, once the connection is lost, until the server carries out no more changes that were sent on it:
    /// whether that is so by this time.
    pub fn is_over_by(&self, deadline: Instant) -> bool {
        let left = deadline.duration_since(clock::now());
        let mut pending = self.shared.pending.lock();
        let is_under_way = |pending: &mut PendingRequests| pending.has_change();
        !self.shared.answered.wait_while_timeout(&mut pending, left, is_under_way)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The thread that reads answers would keep it.
        self.shared.lose("closed");
        self.shared.stream.shut_down();
    }
}

fn lost(problem: &str) -> Failed {
    Failed::Lost(io::Error::new(ErrorKind::ConnectionAborted, problem))
}

impl Shared {
    fn send(&self, cookie: u64, request: Request<'_>, deadline: Option<Instant>) -> io::Result<()> {
        let mut header = [0; 28];
        header[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[4..6].copy_from_slice(&request.flags.to_be_bytes());
        header[6..8].copy_from_slice(&request.kind.to_be_bytes());
        header[8..16].copy_from_slice(&cookie.to_be_bytes());
        header[16..24].copy_from_slice(&request.offset.to_be_bytes());
        header[24..].copy_from_slice(&request.length.to_be_bytes());
        let _order = self.send.lock();
        if let Some(problem) = &self.pending.lock().lost {
            return Err(io::Error::new(ErrorKind::ConnectionAborted, problem.clone()));
        }
        self.stream.write_all_by(&[&header, request.data], deadline).inspect_err(|error| {
            // Before another request is sent: it would be taken for the rest of this one.
            self.pending.lock().lost.get_or_insert_with(|| error.to_string());
        })
    }

    /// Gives the connection up, and wakes all threads that wait for answers.
    fn lose(&self, problem: &str) {
        let mut pending = self.pending.lock();
        pending.lost.get_or_insert_with(|| problem.to_owned());
        let is_over = !pending.has_change();
        drop(pending);
        if is_over {
            self.stream.shut_down();
        }
        self.answered.notify_all();
    }

    fn read_answers(&self) {
        let error = loop {
            if let Err(error) = self.read_answer() {
                break error;
            }
        };
        self.lose(&error.to_string());
        let is_closed = match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => true,
            // Its answers can't be understood any more.
            ErrorKind::InvalidData => self.stream.read_to_end(),
            _ => false,
        };
        self.pending.lock().is_closed = is_closed;
        self.answered.notify_all();
    }

    fn read_answer(&self) -> io::Result<()> {
        match self.stream.read_u32()? {
            SIMPLE_REPLY_MAGIC => {
                let (errno, cookie) = (self.stream.read_u32()?, self.stream.read_u64()?);
                if errno == 0 {
                    let (offset, length) = self.awaited_range(cookie)?;
                    self.receive(cookie, offset, length)?;
                }
                self.answer(cookie, (errno != 0).then_some(errno), true)
            }
            STRUCTURED_REPLY_MAGIC => self.read_chunk(),
            _ => Err(wrong("something that isn't an answer")),
        }
    }

    fn read_chunk(&self) -> io::Result<()> {
        let (flags, kind) = (self.stream.read_u16()?, self.stream.read_u16()?);
        let (cookie, length) = (self.stream.read_u64()?, self.stream.read_u32()?);
        let short = || wrong("too short a chunk");
        let mut errno = None;
        match kind {
            CHUNK_NONE => self.stream.skip(u64::from(length))?,
            CHUNK_DATA => {
                let data = length.checked_sub(8).ok_or_else(short)?;
                let offset = self.stream.read_u64()?;
                self.receive(cookie, offset, data as usize)?;
            }
            CHUNK_HOLE => {
                let rest = length.checked_sub(12).ok_or_else(short)?;
                let (_, hole) = (self.stream.read_u64()?, self.stream.read_u32()?);
                self.stream.skip(u64::from(rest))?;
                // The buffer has zeros there already.
                let mut pending = self.pending.lock();
                let request = pending.requests.get_mut(&cookie).ok_or_else(unasked)?;
                request.received += u64::from(hole);
            }
            _ if kind & CHUNK_ERROR != 0 => {
                let rest = length.checked_sub(4).ok_or_else(short)?;
                errno = Some(self.stream.read_u32()?.max(1));
                self.stream.skip(u64::from(rest))?;
            }
            _ => return Err(wrong("a chunk of a kind that wasn't asked for")),
        }
        self.answer(cookie, errno, flags & CHUNK_DONE != 0)
    }

    fn awaited_range(&self, cookie: u64) -> io::Result<(u64, usize)> {
        let pending = self.pending.lock();
        let request = pending.requests.get(&cookie).ok_or_else(unasked)?;
        Ok((request.offset, request.data.len()))
    }

    /// Reads data of an answer.
    fn receive(&self, cookie: u64, offset: u64, length: usize) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        // The buffer is taken out, so that other threads needn't wait meanwhile.
        let mut pending = self.pending.lock();
        let request = pending.requests.get_mut(&cookie).ok_or_else(unasked)?;
        let start = offset.checked_sub(request.offset).ok_or_else(unasked)?;
        let start = usize::try_from(start).map_err(|_| unasked())?;
        let mut data = std::mem::take(&mut request.data);
        drop(pending);
        let end = start.checked_add(length).filter(|end| *end <= data.len());
        self.stream.read_exact(&mut data[start..end.ok_or_else(unasked)?])?;
        if let Some(request) = self.pending.lock().requests.get_mut(&cookie) {
            request.data = data;
            request.received += length as u64;
        }
        Ok(())
    }

    /// Notes an error, and that the answer is complete.
    fn answer(&self, cookie: u64, errno: Option<u32>, is_complete: bool) -> io::Result<()> {
        let mut pending = self.pending.lock();
        let request = pending.requests.get_mut(&cookie).ok_or_else(unasked)?;
        if let Some(errno) = errno {
            request.failed = Some(errno);
        }
        if is_complete {
            // The rest of the buffer would pass for zeros.
            if request.failed.is_none() && request.received != request.data.len() as u64 {
                return Err(wrong("an answer that leaves bytes out"));
            }
            request.answer = Some(request.failed.map_or(Ok(()), Err));
            self.answered.notify_all();
        }
        Ok(())
    }
}

fn unasked() -> io::Error {
    wrong("an answer to what wasn't asked")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::address::SocketAddress;
    use super::*;
    use drystone_sync::clock;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    /// A socket in a folder of its own, and its address.
    fn listening() -> (tempfile::TempDir, UnixListener, NbdAddress) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut address = NbdAddress::parse("nbd+unix:///?socket=x").unwrap();
        address.socket = SocketAddress::Unix(socket);
        (folder, listener, address)
    }

    /// Answers the handshake of one client, and then the first request with these chunks.
    fn serve(listener: &UnixListener, chunks: &[u8]) -> io::Result<()> {
        let mut client = agree(listener)?;
        client.read_exact(&mut [0; 28])?;
        client.write_all(chunks)
    }

    /// Answers the handshake of one client.
    fn agree(listener: &UnixListener) -> io::Result<UnixStream> {
        let mut client = listener.accept()?.0;
        client.set_read_timeout(Some(Duration::from_secs(20)))?;
        let hello = [&b"NBDMAGICIHAVEOPT"[..], &[0, FIXED_NEWSTYLE as u8]].concat();
        client.write_all(&hello)?;
        client.read_exact(&mut [0; 4])?;
        let reply = |option: u32, kind: u32, data: &[u8]| {
            let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
            for number in [option, kind, data.len() as u32] {
                bytes.extend_from_slice(&number.to_be_bytes());
            }
            [&bytes, data].concat()
        };
        skip_option(&mut client)?;
        client.write_all(&reply(OPTION_STRUCTURED_REPLY, REPLY_ACK, &[]))?;
        skip_option(&mut client)?;
        let export = [&[0, 0][..], &(1_u64 << 20).to_be_bytes(), &[0, 1]].concat();
        client.write_all(&reply(OPTION_GO, REPLY_INFO, &export))?;
        client.write_all(&reply(OPTION_GO, REPLY_ACK, &[]))?;
        Ok(client)
    }

    fn skip_option(client: &mut UnixStream) -> io::Result<()> {
        let mut header = [0; 16];
        client.read_exact(&mut header)?;
        let length = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
        client.read_exact(&mut vec![0; length as usize])
    }

    fn chunk(flags: u16, kind: u16, data: &[u8]) -> Vec<u8> {
        let mut bytes = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend_from_slice(&flags.to_be_bytes());
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&0_u64.to_be_bytes());
        bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
        [&bytes, data].concat()
    }

    /// What a server leaves out isn't taken for zeros.
    #[test]
    fn an_answer_without_all_bytes_is_none() {
        let (_folder, listener, address) = listening();
        let data = chunk(0, CHUNK_DATA, &[&4096_u64.to_be_bytes()[..], &[7; 512]].concat());
        let hole = [&4608_u64.to_be_bytes()[..], &512_u32.to_be_bytes()].concat();
        let (rest, end) =
            (chunk(CHUNK_DONE, CHUNK_HOLE, &hole), chunk(CHUNK_DONE, CHUNK_NONE, &[]));
        for (chunks, is_whole) in
            [([&data[..], &rest].concat(), true), ([data, end].concat(), false)]
        {
            thread::scope(|scope| {
                let server = scope.spawn(|| serve(&listener, &chunks));
                let (connection, _) = Connection::open(&address, Duration::from_secs(20)).unwrap();
                let (kind, flags, data) = (COMMAND_READ, 0, &[][..]);
                let request = Request { kind, flags, offset: 4096, length: 1024, data };
                match connection.call(request) {
                    Ok(data) => assert!(is_whole && data[..512] == [7; 512] && data[512] == 0),
                    Err(Failed::Lost(error)) => {
                        assert!(!is_whole && error.to_string().contains("leaves bytes out"));
                    }
                    Err(error) => panic!("{error:?}"),
                }
                server.join().unwrap().unwrap();
            });
        }
    }

    /// A connection that isn't used any more mustn't take a place at the server.
    #[test]
    fn a_dropped_connection_ends() {
        let (_folder, listener, address) = listening();
        thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener, &[]));
            drop(Connection::open(&address, Duration::from_secs(20)).unwrap());
            let error = server.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        });
    }

    /// However a server stretches a request or the handshake, it has one time limit for all of it.
    #[test]
    fn a_slow_server_is_given_up() {
        let (_folder, listener, mut address) = listening();
        address.answer_timeout = Duration::from_millis(500);
        let pause = || thread::sleep(Duration::from_millis(100));
        thread::scope(|scope| {
            let server = scope.spawn(|| -> io::Result<()> {
                let mut client = listener.accept()?.0;
                for _ in 0..100 {
                    client.write_all(b"N")?;
                    pause();
                }
                Ok(())
            });
            let start = clock::now();
            let error = Connection::open(&address, address.answer_timeout).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
            server.join().unwrap().unwrap_err();
            let server = scope.spawn(|| -> io::Result<()> {
                let mut client = agree(&listener)?;
                for _ in 0..100 {
                    client.read_exact(&mut vec![0; 64 << 10])?;
                    pause();
                }
                Ok(())
            });
            let (connection, _) = Connection::open(&address, Duration::from_secs(20)).unwrap();
            let data = &vec![1; 16 << 20][..];
            let request =
                Request { kind: COMMAND_WRITE, flags: 0, offset: 0, length: 16 << 20, data };
            let start = clock::now();
            assert!(matches!(connection.call(request), Err(Failed::Lost(_))));
            assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
            server.join().unwrap().unwrap_err();
        });
    }
}
