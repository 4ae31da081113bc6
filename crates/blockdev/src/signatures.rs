//! Signatures of other formats on a file or device that is to hold an image.
//!
//! Partition tables, volume managers, RAIDs and file systems all have their signatures near one end
//! of a device. Instead of a list of signatures, which would miss the next format, both ends are
//! looked at and erased as a whole.
//!
//! # Reference
//! The offsets that `libblkid` of util-linux probes. Farthest from the start are the second header of
//! LUKS2 at 4 MiB and VMFS at 2 MiB; farthest from the end are Promise RAIDs at 1.6 MiB, copies of
//! bcachefs at 1 MiB and the labels of ZFS at 768 KiB.

use crate::{BlockDevice, DeviceResult, FileDevice};

/// Bytes at either end of a device in which all signatures are.
const EDGE_BYTES: u64 = 8 << 20;
/// Bytes that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Whether a file or device holds data. Any byte of a file counts; of a device only both ends are
/// read.
///
/// # Errors
/// It can't be read.
pub fn holds_data(device: &FileDevice) -> DeviceResult<bool> {
    let size = device.size_bytes();
    let end_edge = size.saturating_sub(EDGE_BYTES);
    let mut piece = vec![0; PIECE_BYTES as usize];
    let mut at = 0;
    while let Some(next) = device.next_data(at)? {
        let is_between = device.is_block_device() && (EDGE_BYTES..end_edge).contains(&next);
        at = if is_between { end_edge } else { next };
        let length = (size - at).min(PIECE_BYTES);
        let piece = &mut piece[..length as usize];
        device.read_at(at, piece)?;
        if piece.iter().any(|&byte| byte != 0) {
            return Ok(true);
        }
        at += length;
    }
    Ok(false)
}

/// Whether there is anything at the ends of a device, which are all that is looked at.
///
/// # Errors
/// It can't be read.
pub fn edges_hold_data(device: &dyn BlockDevice) -> DeviceResult<bool> {
    let size = device.size_bytes();
    let edge = size.min(EDGE_BYTES);
    let mut piece = vec![0; PIECE_BYTES as usize];
    for start in [0, size - edge] {
        let mut at = start;
        while at < start + edge {
            let length = (start + edge - at).min(PIECE_BYTES);
            let piece = &mut piece[..length as usize];
            device.read_at(at, piece)?;
            if piece.iter().any(|&byte| byte != 0) {
                return Ok(true);
            }
            at += length;
        }
    }
    Ok(false)
}

/// Zeroes both ends, and makes that durable, because an image must not be written below an old signature.
/// Call it before making an image on a device that isn't known to be zeros.
///
/// # Errors
/// The device can't be written.
pub fn erase_signatures(device: &dyn BlockDevice) -> DeviceResult {
    let size = device.size_bytes();
    let edge = size.min(EDGE_BYTES);
    device.zero_range(0, edge)?;
    device.zero_range(size - edge, edge)?;
    device.flush()
}
