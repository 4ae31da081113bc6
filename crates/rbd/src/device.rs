//! An image as a block device.

use crate::RbdAddress;
use crate::image::{Image, RequestKind};
use crate::in_flight::InFlight;
use crate::owner::{NotLocked, await_no_owner, take_lock};
use drystone_blockdev::{
    BlockDevice, DeviceError, DeviceOperation, DeviceResult, OpenMode, check_range,
};
use drystone_sync::{Arc, clock, thread};
use std::io;
use std::path::Path;
use std::time::Duration;

/// A change of more is cut into several.
const PIECE_BYTES: u64 = 4 << 20;
/// The same for changes without data.
const QUIET_PIECE_BYTES: u64 = 64 << 20;
/// Time between two looks at whether an image is closed.
const CLOSING_INTERVAL: Duration = Duration::from_millis(1);

/// An image in a Ceph cluster.
#[derive(Debug)]
pub struct RbdDevice {
    name: String,
    mode: OpenMode,
    size_bytes: u64,
    timeout: Duration,
    /// There until the device is dropped.
    open: Option<(InFlight, Arc<Image>)>,
}

impl RbdDevice {
    /// Opens an image. To write it, takes its lock, which no other client may have; to read it, none may have
    /// it either, unless it is only looked at.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Locked`] if a client that is alive has the lock; [`DeviceError::ReadOnly`] for a snapshot
    /// that is to be written; [`DeviceError::Open`] with what the cluster says.
    pub fn open(name: &str, mode: OpenMode) -> DeviceResult<RbdDevice> {
        RbdDevice::open_as(name, mode, false)
    }

    /// Opens an image to look at it, whoever writes it.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Open`] with what the cluster says.
    pub fn open_to_look(name: &str) -> DeviceResult<RbdDevice> {
        RbdDevice::open_as(name, OpenMode::ReadOnly, true)
    }

    fn open_as(name: &str, mode: OpenMode, is_look: bool) -> DeviceResult<RbdDevice> {
        let open_error = |source| open_error(name, source);
        let address = RbdAddress::parse(name)
            .map_err(|problem| open_error(io::Error::new(io::ErrorKind::InvalidInput, problem)))?;
        let is_writable = mode == OpenMode::ReadWrite;
        if is_writable && address.snapshot.is_some() {
            return Err(DeviceError::ReadOnly);
        }
        let mut image = Image::connect(&address).map_err(open_error)?;
        image.open(&address, is_writable).map_err(open_error)?;
        let not_locked = |problem| match problem {
            NotLocked::Owned(owner) => {
                DeviceError::Locked { path: Path::new(name).to_owned(), owner }
            }
            NotLocked::Failed(error) => open_error(error),
        };
        if is_writable {
            if !image.has_exclusive_lock().map_err(open_error)? {
                let problem = "the image has no exclusive lock, so nothing would keep others from \
                               writing it; 'rbd feature enable POOL/IMAGE exclusive-lock' gives it one";
                return Err(open_error(io::Error::new(io::ErrorKind::Unsupported, problem)));
            }
            take_lock(&image, address.timeout).map_err(not_locked)?;
        } else if address.snapshot.is_none() && !is_look {
            await_no_owner(&image, address.timeout).map_err(not_locked)?;
        }
        let size_bytes = image.size_bytes().map_err(open_error)?;
        image.begin().map_err(open_error)?;
        let image = Arc::new(image);
        let in_flight = InFlight::new(Arc::clone(&image), mode, address.timeout);
        Ok(RbdDevice {
            name: name.to_owned(),
            mode,
            size_bytes,
            timeout: address.timeout,
            open: Some((in_flight, image)),
        })
    }

    fn in_flight(&self) -> &InFlight {
        // Only dropping the device takes it.
        self.open.as_ref().map(|(in_flight, _)| in_flight).expect("the device is open")
    }

    fn check_change(&self, offset: u64, length: u64) -> DeviceResult {
        if self.mode == OpenMode::ReadOnly {
            return Err(DeviceError::ReadOnly);
        }
        check_range(self.size_bytes, offset, length)
    }

    /// Sends the changes of a range, piece by piece.
    fn change(
        &self,
        (operation, kind): (DeviceOperation, RequestKind),
        (offset, length): (u64, u64),
        data: Option<&[u8]>,
    ) -> DeviceResult {
        self.check_change(offset, length)?;
        let piece_max = if data.is_some() { PIECE_BYTES } else { QUIET_PIECE_BYTES };
        let mut done = 0;
        while done < length {
            let piece = (length - done).min(piece_max);
            let at = offset + done;
            let bytes = data.map_or(&[][..], |data| &data[done as usize..(done + piece) as usize]);
            self.in_flight()
                .change(kind, at, piece as usize, bytes.to_vec())
                .map_err(|error| DeviceError::io(operation, at, piece, error))?;
            done += piece;
        }
        Ok(())
    }
}

impl BlockDevice for RbdDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        let length = buffer.len() as u64;
        check_range(self.size_bytes, offset, length)?;
        if buffer.is_empty() {
            return Ok(());
        }
        let read = self.in_flight().read(offset, buffer);
        read.map_err(|error| DeviceError::io(DeviceOperation::Read, offset, length, error))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        let kind = (DeviceOperation::Write, RequestKind::Write);
        self.change(kind, (offset, data.len() as u64), Some(data))
    }

    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        let kind = (DeviceOperation::Write, RequestKind::WriteDurably);
        self.change(kind, (offset, data.len() as u64), Some(data))
    }

    fn flush(&self) -> DeviceResult {
        if self.mode == OpenMode::ReadOnly {
            return Ok(());
        }
        let flushed = self.in_flight().flush();
        flushed.map_err(|error| DeviceError::io(DeviceOperation::Flush, 0, 0, error))
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        let kind = (DeviceOperation::Discard, RequestKind::Discard);
        self.change(kind, (offset, length), None)
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        let kind = (DeviceOperation::Zero, RequestKind::Zero);
        self.change(kind, (offset, length), None)
    }

    fn is_read_only(&self) -> bool {
        self.mode == OpenMode::ReadOnly
    }
}

impl Drop for RbdDevice {
    /// Closes the image.
    fn drop(&mut self) {
        let Some((in_flight, image)) = self.open.take() else { return };
        let must_fence = self.mode == OpenMode::ReadWrite && in_flight.has_failed();
        let name = self.name.clone();
        close_within(&self.name, self.timeout, move || {
            // What was sent must not be carried out after another client has the lock.
            if must_fence && let Err(error) = image.blocklist_self() {
                tracing::warn!("{name}: {error}");
            }
            drop((in_flight, image));
        });
    }
}

/// Closes something of an image. A cluster that doesn't answer is waited for only so long; a thread goes on with it.
pub(crate) fn close_within(name: &str, timeout: Duration, close: impl FnOnce() + Send + 'static) {
    let closing = match thread::spawn("rbd close", close) {
        Ok(closing) => closing,
        Err(error) => return tracing::warn!("{name} wasn't closed properly: {error}"),
    };
    let start = clock::now();
    while !closing.is_finished() {
        if start.elapsed() >= timeout {
            let seconds = timeout.as_secs();
            return tracing::warn!(
                "{name} isn't closed after {seconds} s: the cluster doesn't answer"
            );
        }
        thread::sleep(CLOSING_INTERVAL);
    }
}

pub(crate) fn open_error(name: &str, source: io::Error) -> DeviceError {
    DeviceError::Open { path: Path::new(name).to_owned(), source: Arc::new(source) }
}
