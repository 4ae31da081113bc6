//! A device in memory that never gives memory back.
//!
//! The first touch of a page can cost several times the work that is measured. So the memory that
//! one run has touched stays with the device for the next: discarding does nothing, and zeros are
//! written like everything else.

use drystone_blockdev::{BlockDevice, DeviceResult, MemoryDevice};

/// Zeros that are written at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A [`MemoryDevice`] that keeps its memory.
#[derive(Debug)]
pub struct Resident(MemoryDevice);

impl Resident {
    /// A device full of zeros.
    pub fn new(size_bytes: u64) -> Resident {
        Resident(MemoryDevice::new(size_bytes))
    }
}

impl BlockDevice for Resident {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.0.write_at(offset, data)
    }

    fn flush(&self) -> DeviceResult {
        self.0.flush()
    }

    fn discard(&self, _: u64, _: u64) -> DeviceResult {
        Ok(())
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        let mut done = 0;
        while done < length {
            let piece = (length - done).min(ZEROS.len() as u64);
            self.0.write_at(offset + done, &ZEROS[..piece as usize])?;
            done += piece;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays() {
        let device = Resident::new(1 << 20);
        device.write_at(0, &[1; 200_000]).unwrap();
        let held = device.0.allocated_bytes();
        device.discard(0, 200_000).unwrap();
        device.zero_range(10, 199_000).unwrap();
        assert_eq!(device.0.allocated_bytes(), held);
        let mut bytes = [9; 20];
        device.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes[..10], [1; 10]);
        assert_eq!(bytes[10..], [0; 10]);
    }
}
