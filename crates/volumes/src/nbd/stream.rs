//! A connection's bytes, over TCP or a Unix socket, as they are or in TLS.
//!
//! A socket's time limit applies to each wait, so a server that takes or sends a few bytes now and then could
//! stretch an exchange without end. So the limits here are deadlines, and each wait has what is left.

use super::Session;
use super::address::{SocketAddress, TlsWish};
use super::protocol::wrong;
use drystone_sync::clock::{self, Instant};
use drystone_sync::{Arc, Condvar, LockClass, Mutex, thread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

static NBD_RESOLVED: LockClass = LockClass::new("nbd resolved", 965);

/// Data comes in records of at most 16 KiB. What TLS itself has to say is much less than this.
const BYTES_WITHOUT_DATA_MAX: usize = 1 << 20;

/// How often the system asks whether a connection is still there, and how often in vain: it isn't for the system to
/// decide how long an outage may last.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_COUNT: u32 = 127;

#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    /// What encrypts, once the server has agreed.
    tls: Option<Session>,
    /// When all of the handshake must be over; `None` after it.
    deadline: Option<Instant>,
    /// How long a request may take to be sent.
    timeout: Duration,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects; within the same time the handshake must be over.
    pub fn connect(address: &SocketAddress, timeout: Duration) -> io::Result<Stream> {
        let deadline = clock::now() + timeout;
        let socket = match address {
            SocketAddress::Unix(path) => Socket::Unix(connect_unix(path, timeout)?),
            SocketAddress::Tcp(host, port) => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                let mut connected = None;
                for address in resolved(host.clone(), *port, deadline)? {
                    match TcpStream::connect_timeout(&address, time_left(deadline)?) {
                        Ok(stream) => {
                            connected = Some(stream);
                            break;
                        }
                        Err(error) => last = error,
                    }
                }
                let stream = connected.ok_or(last)?;
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                Socket::Tcp(stream)
            }
        };
        Ok(Stream { socket, tls: None, deadline: Some(deadline), timeout })
    }

    /// Ends the handshake: answers are awaited without a limit from here on, and a request may take so long
    /// to be sent.
    pub fn end_handshake(&mut self, timeout: Duration) {
        (self.deadline, self.timeout) = (None, timeout);
    }

    /// Ends it, also for threads that are reading or writing.
    pub fn shut_down(&self) {
        // It may have ended already.
        let _ = match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Says that nothing more is sent, and reads until the server ends it too: whether it does.
    pub fn read_to_end(&self) -> bool {
        // It may have ended already.
        let _ = match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
        let mut bytes = [0; 4096];
        loop {
            match retry_on_intr(|| rustix::net::recv(&self.socket, &mut bytes, RecvFlags::empty()))
            {
                Ok((0, _)) | Err(Errno::CONNRESET) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    /// Encrypts all that follows; the server has agreed to that.
    pub fn start_tls(&mut self, wish: &TlsWish) -> io::Result<()> {
        let session = Session::new(wish)?;
        loop {
            self.send(&session.outgoing()?, self.send_deadline())?;
            if !session.is_shaking_hands() {
                self.tls = Some(session);
                return Ok(());
            }
            match session.take_in(&mut Arrived(&self.socket)) {
                Ok(0) => self.wait_for_input()?,
                Ok(_) => self.check_deadline()?,
                Err(error) => {
                    // The server learns why; it may not listen any more.
                    let alert = session.outgoing().unwrap_or_default();
                    let _ = self.send(&alert, self.send_deadline());
                    return Err(error);
                }
            }
        }
    }

    pub fn read_exact(&self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.check_deadline()?;
            let count = match &self.tls {
                None => {
                    if self.deadline.is_some() {
                        self.wait_for_input()?;
                    }
                    let flags = RecvFlags::empty();
                    retry_on_intr(|| rustix::net::recv(&self.socket, &mut *bytes, flags))?.0
                }
                Some(session) => self.read_decrypted(session, bytes)?,
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes = &mut bytes[count..];
        }
        Ok(())
    }

    fn read_decrypted(&self, session: &Session, bytes: &mut [u8]) -> io::Result<usize> {
        let mut taken_in = 0;
        loop {
            if let Some(count) = session.read(bytes)? {
                return Ok(count);
            }
            match session.take_in(&mut Arrived(&self.socket))? {
                0 => self.wait_for_input()?,
                count => taken_in += count,
            }
            if taken_in > BYTES_WITHOUT_DATA_MAX {
                return Err(wrong("TLS: records without data, and no end of them"));
            }
        }
    }

    /// Sends all parts. One thread at a time may do so.
    pub fn write_all(&self, parts: &[&[u8]]) -> io::Result<()> {
        self.write_all_by(parts, None)
    }

    /// The same, until this time at most.
    pub fn write_all_by(&self, parts: &[&[u8]], limit: Option<Instant>) -> io::Result<()> {
        let deadline = self.send_deadline();
        let deadline = limit.map_or(deadline, |limit| limit.min(deadline));
        for part in parts {
            let Some(session) = &self.tls else {
                self.send(part, deadline)?;
                continue;
            };
            let mut bytes = *part;
            while !bytes.is_empty() {
                let (count, encrypted) = session.encrypt(bytes)?;
                self.send(&encrypted, deadline)?;
                bytes = &bytes[count..];
            }
        }
        Ok(())
    }

    /// Sends bytes as they are.
    fn send(&self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while !bytes.is_empty() {
            match rustix::net::send(&self.socket, bytes, flags) {
                Ok(count) => bytes = &bytes[count..],
                // A server that doesn't take requests is as lost as one that doesn't answer.
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, Some(deadline))?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn send_deadline(&self) -> Instant {
        self.deadline.unwrap_or_else(|| clock::now() + self.timeout)
    }

    /// Fails when the handshake takes too long, whether or not bytes arrive.
    fn check_deadline(&self) -> io::Result<()> {
        self.deadline.map_or(Ok(()), |deadline| time_left(deadline).map(drop))
    }

    fn wait_for_input(&self) -> io::Result<()> {
        self.wait(PollFlags::IN, self.deadline)
    }

    /// Waits until it can be read or written.
    fn wait(&self, flags: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
        loop {
            let left = deadline.map(time_left).transpose()?;
            // A limit that the system can't express is none.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&self.socket, flags)], left.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub fn read_u16(&self) -> io::Result<u16> {
        let mut bytes = [0; 2];
        self.read_exact(&mut bytes)?;
        Ok(u16::from_be_bytes(bytes))
    }

    pub fn read_u32(&self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.read_exact(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }

    pub fn read_u64(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read_exact(&mut bytes)?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// Reads bytes and drops them.
    pub fn skip(&self, mut length: u64) -> io::Result<()> {
        let mut bytes = [0; 4096];
        while length > 0 {
            let piece = length.min(bytes.len() as u64) as usize;
            self.read_exact(&mut bytes[..piece])?;
            length -= piece as u64;
        }
        Ok(())
    }
}

/// What has arrived on a socket; reading more fails with `WouldBlock`.
struct Arrived<'s>(&'s Socket);

impl Read for Arrived<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let received =
            retry_on_intr(|| rustix::net::recv(self.0, &mut *bytes, RecvFlags::DONTWAIT));
        Ok(received?.0)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

/// The time until a deadline, which hasn't passed.
fn time_left(deadline: Instant) -> io::Result<Duration> {
    match deadline.duration_since(clock::now()) {
        Duration::ZERO => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the server takes or sends too little"))
        }
        left => Ok(left),
    }
}

/// The addresses of a host.
fn resolved(host: String, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    let resolve = move || (host.as_str(), port).to_socket_addrs().map(Vec::from_iter);
    within(deadline, "nbd resolve", resolve)
}

/// Waits for what has no time limit of its own, until the deadline. A thread goes on with it.
fn within<T: Send + 'static>(
    deadline: Instant,
    name: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let result = Arc::new((Mutex::new(&NBD_RESOLVED, None), Condvar::new()));
    let given = Arc::clone(&result);
    thread::spawn(name, move || {
        *given.0.lock() = Some(work());
        given.1.notify_all();
    })?;
    let mut found = result.0.lock();
    result.1.wait_while_timeout(&mut found, time_left(deadline)?, |found| found.is_none());
    found.take().unwrap_or_else(|| {
        Err(io::Error::new(io::ErrorKind::TimedOut, "the host's name isn't resolved in time"))
    })
}

/// Lets the system ask now and then whether the other side still knows the connection. A server's machine that was
/// started again doesn't, but says so only if it is asked.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_INTERVAL)?;
    Ok(sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE_COUNT)?)
}

/// Connects to a Unix socket. Connecting waits while the server's queue is full, without end if the server
/// has stopped: the limit must be there before.
fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    let address = SocketAddrUnix::new(path)?;
    match retry_on_intr(|| rustix::net::connect(&socket, &address)) {
        Err(Errno::AGAIN) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the server takes no connection"))
        }
        connected => connected.map(|()| socket.into()).map_err(io::Error::from),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A machine that was started again has to be asked: it says nothing of connections that it has forgotten.
    #[test]
    fn tcp_connections_are_kept_alive() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = SocketAddress::Tcp("localhost".to_owned(), port);
        let stream = Stream::connect(&address, Duration::from_secs(20)).unwrap();
        assert!(sockopt::socket_keepalive(&stream.socket).unwrap());
        assert_eq!(sockopt::tcp_keepcnt(&stream.socket).unwrap(), KEEP_ALIVE_COUNT);
    }

    /// Nothing bounds the time in which the system resolves a name.
    #[test]
    fn a_name_that_is_not_resolved_is_given_up() {
        let start = clock::now();
        let deadline = start + Duration::from_millis(200);
        let error = within(deadline, "slow", || {
            thread::sleep(Duration::from_secs(5));
            Ok(())
        });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        let found = resolved("localhost".to_owned(), 9, clock::now() + Duration::from_secs(20));
        assert!(found.unwrap().iter().all(|address| address.ip().is_loopback()));
    }

    /// A server that has stopped fills its queue with connections that it doesn't take.
    #[test]
    fn connecting_to_a_full_queue_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let flags = SocketFlags::CLOEXEC;
        let kind = SocketType::STREAM;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = SocketAddress::Unix(path);
        let timeout = Duration::from_millis(200);
        let first = Stream::connect(&address, timeout).unwrap();
        let start = clock::now();
        let last = thread::scope(|scope| {
            let last = scope.spawn(|| Stream::connect(&address, timeout).map(drop));
            while !last.is_finished() && start.elapsed() < Duration::from_secs(20) {
                thread::sleep(Duration::from_millis(10));
            }
            let is_finished = last.is_finished();
            // Ends what still waits.
            drop(listener);
            assert!(is_finished, "it waits for ever");
            last.join().unwrap()
        });
        assert_eq!(last.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(first);
    }
}
