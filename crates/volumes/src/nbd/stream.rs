//! A connection's bytes, over TCP or a Unix socket.

use super::address::SocketAddress;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub fn connect(address: &SocketAddress, timeout: Duration) -> io::Result<Stream> {
        let stream = match address {
            SocketAddress::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
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
        match &stream {
            Stream::Tcp(stream) => stream.set_write_timeout(Some(timeout))?,
            Stream::Unix(stream) => stream.set_write_timeout(Some(timeout))?,
        }
        stream.set_read_timeout(Some(timeout))?;
        Ok(stream)
    }

    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
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
