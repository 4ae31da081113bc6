//! A connection's bytes, over TCP or a Unix socket.

use super::address::SocketAddress;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub fn connect(address: &SocketAddress, timeout: Duration) -> io::Result<Stream> {
        let stream = match address {
            SocketAddress::Unix(path) => Stream::Unix(connect_unix(path, timeout)?),
            SocketAddress::Tcp(host, port) => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                let mut connected = None;
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, timeout) {
                        Ok(stream) => {
                            connected = Some(stream);
                            break;
                        }
                        Err(error) => last = error,
                    }
                }
                let stream = connected.ok_or(last)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        };
        // A server that doesn't take requests is as lost as one that doesn't answer.
        stream.set_write_timeout(Some(timeout))?;
        stream.set_read_timeout(Some(timeout))?;
        Ok(stream)
    }

    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_write_timeout(timeout),
            Stream::Unix(stream) => stream.set_write_timeout(timeout),
        }
    }

    /// Ends it, also for threads that are reading or writing.
    pub fn shut_down(&self) {
        // It may have ended already.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    pub fn read_exact(&self, bytes: &mut [u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => { stream }.read_exact(bytes),
            Stream::Unix(stream) => { stream }.read_exact(bytes),
        }
    }

    pub fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => { stream }.write_all(bytes),
            Stream::Unix(stream) => { stream }.write_all(bytes),
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

/// Connects to a Unix socket. Connecting waits while the server's queue is full, without end if the server
/// has stopped: the limit must be there before.
fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
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
    use drystone_sync::{clock, thread};

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
