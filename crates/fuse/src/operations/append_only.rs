//! Gathered writes to append-only files.
//!
//! The kernel doesn't know that a file is append-only. It checks `O_APPEND`, but a descriptor may lose that
//! flag, and the file may be mapped. So gathered pages may hold anything, and are compared with what is
//! stored. An append brings back the bytes before it in its page, unchanged. Pages come in any order, so
//! the bytes of an earlier page are zeros until it comes.

use super::Operations;
use drystone_vfs::{InodeNumber, Result};
use std::borrow::Cow;

impl Operations {
    /// What a gathered write of `data` at `offset` may store in an append-only file of `size` bytes: `data`,
    /// but with what is already stored wherever that isn't zero. Owned if this makes a difference.
    pub(super) fn append_only_data<'d>(
        &self,
        inode: InodeNumber,
        size: u64,
        offset: u64,
        data: &'d [u8],
    ) -> Result<Cow<'d, [u8]>> {
        // At most the length of the data.
        let below = size.saturating_sub(offset).min(data.len() as u64) as usize;
        let mut stored = vec![0; below];
        let read = self.file_system.read(inode, offset, &mut stored)?;
        let mut kept = Cow::Borrowed(data);
        for (index, byte) in stored[..read].iter().enumerate() {
            if *byte != 0 && *byte != data[index] {
                kept.to_mut()[index] = *byte;
            }
        }
        Ok(kept)
    }
}
