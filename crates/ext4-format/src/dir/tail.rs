//! The checksum tail of a directory block.

use super::{DirectoryLayout, DirectoryPlace, RawTail, TAIL_LENGTH};
use crate::checksum::InodeSeed;
use crate::error::{Corrupt, DirectoryProblem};
use zerocopy::{FromBytes, IntoBytes};

/// Whether the last 12 bytes of a block have the shape of a tail.
pub(super) fn is_present(bytes: &[u8]) -> bool {
    RawTail::ref_from_suffix(bytes).is_ok_and(|(_, tail)| {
        tail.inode.get() == 0
            && usize::from(tail.record_length.get()) == TAIL_LENGTH
            && tail.name_length == 0
            && tail.file_type == RawTail::FILE_TYPE
    })
}

/// Writes a tail with no checksum yet. Does nothing where the image has none.
pub(super) fn init(bytes: &mut [u8], layout: &DirectoryLayout) {
    if layout.checksum.is_none() {
        return;
    }
    if let Ok((_, tail)) = RawTail::mut_from_suffix(bytes) {
        *tail = RawTail {
            inode: 0.into(),
            record_length: (TAIL_LENGTH as u16).into(),
            name_length: 0,
            file_type: RawTail::FILE_TYPE,
            checksum: 0.into(),
        };
    }
}

fn compute(seed: InodeSeed, bytes: &[u8]) -> u32 {
    seed.append(&bytes[..bytes.len().saturating_sub(TAIL_LENGTH)])
}

/// Compares the checksum of a linear block or leaf. Does nothing where the image has none.
///
/// # Errors
/// The tail is missing, or its checksum differs from the block's.
pub fn verify(
    bytes: &[u8],
    layout: &DirectoryLayout,
    place: DirectoryPlace,
) -> Result<(), Corrupt> {
    let Some(seed) = layout.checksum else { return Ok(()) };
    let at = bytes.len().saturating_sub(TAIL_LENGTH);
    if !is_present(bytes) {
        return Err(place.corrupt(at, DirectoryProblem::MissingTail));
    }
    let Ok((_, tail)) = RawTail::ref_from_suffix(bytes) else {
        return Err(place.corrupt(at, DirectoryProblem::MissingTail));
    };
    let (stored, computed) = (tail.checksum.get(), compute(seed, bytes));
    if stored == computed {
        return Ok(());
    }
    Err(Corrupt::DirectoryChecksum { inode: place.inode, block: place.block, stored, computed })
}

/// Stores the checksum of a linear block or leaf. Does nothing where the image has none, or where
/// the block has no tail.
pub fn seal(bytes: &mut [u8], layout: &DirectoryLayout) {
    let Some(seed) = layout.checksum else { return };
    if is_present(bytes) {
        let checksum = compute(seed, bytes).to_le_bytes();
        let at = bytes.len() - checksum.as_bytes().len();
        bytes[at..].copy_from_slice(&checksum);
    }
}
