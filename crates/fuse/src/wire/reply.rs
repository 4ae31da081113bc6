//! The header and the payloads of answers.

use super::request::layouts;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

layouts! {
    /// In front of every answer.
    ReplyHeader: 16 {
        /// Bytes of the answer, this header included.
        length: u32,
        /// Zero, or an errno below zero.
        error: i32,
        /// That of the request.
        unique: u64,
    }

    /// Follows the header of a notification: the kernel is to drop its cached content of a node,
    /// after writing what isn't written yet.
    DropContent: 24 {
        /// The node.
        node: u64,
        /// Where; below zero: attributes only.
        offset: i64,
        /// How much; zero: all after the offset.
        length: i64,
    }

    /// The attributes of an inode.
    NodeAttributes: 88 {
        /// The number that callers see.
        inode: u64,
        /// Bytes.
        size: u64,
        /// Units of 512 bytes.
        sectors: u64,
        /// Seconds.
        accessed: i64,
        /// Seconds.
        modified: i64,
        /// Seconds.
        changed: i64,
        /// The rest of the time above.
        accessed_nanoseconds: u32,
        /// The rest of the time above.
        modified_nanoseconds: u32,
        /// The rest of the time above.
        changed_nanoseconds: u32,
        /// Type and permissions.
        mode: u32,
        /// Names.
        links: u32,
        /// Owner.
        user: u32,
        /// Owning group.
        group: u32,
        /// What a device node stands for.
        device: u32,
        /// The preferred size of an I/O.
        block_size: u32,
        /// The protocol's own.
        flags: u32,
    }

    /// Answers requests that find or make a node.
    EntryOut: 128 {
        /// The node; zero: there is none, and that may be remembered.
        node: u64,
        /// Distinguishes nodes of the same number.
        generation: u64,
        /// Seconds for which the name may be remembered.
        name_valid: u64,
        /// Seconds for which the attributes may be remembered.
        attributes_valid: u64,
        /// The rest of the time above.
        name_valid_nanoseconds: u32,
        /// The rest of the time above.
        attributes_valid_nanoseconds: u32,
        /// The attributes.
        attributes: NodeAttributes,
    }

    /// To `GetAttributes` and `SetAttributes`.
    AttributesOut: 104 {
        /// Seconds for which they may be remembered.
        valid: u64,
        /// The rest of the time above.
        valid_nanoseconds: u32,
        /// Zero.
        padding: u32,
        /// The attributes.
        attributes: NodeAttributes,
    }

    /// A time in a [`StatxOut`].
    StatxTime: 16 {
        /// Seconds.
        seconds: i64,
        /// The rest of it.
        nanoseconds: u32,
        /// Zero.
        padding: u32,
    }

    /// To `Attributes`.
    StatxOut: 288 {
        /// Seconds for which they may be remembered.
        valid: u64,
        /// The rest of the time above.
        valid_nanoseconds: u32,
        /// Zero.
        flags: u32,
        /// Zero.
        spare: [u64; 2],
        /// The fields that count, as those of statx(2).
        mask: u32,
        /// The preferred size of an I/O.
        block_size: u32,
        /// The kernel doesn't look at them.
        attributes: u64,
        /// Names.
        links: u32,
        /// Owner.
        user: u32,
        /// Owning group.
        group: u32,
        /// Type and permissions.
        mode: u16,
        /// Zero.
        padding: u16,
        /// The number that callers see.
        inode: u64,
        /// Bytes.
        size: u64,
        /// Units of 512 bytes.
        sectors: u64,
        /// The kernel doesn't look at them.
        attributes_mask: u64,
        /// Last read.
        accessed: StatxTime,
        /// Creation.
        created: StatxTime,
        /// Last change of anything.
        changed: StatxTime,
        /// Last change of content.
        modified: StatxTime,
        /// What a device node stands for.
        device_major: u32,
        /// What a device node stands for.
        device_minor: u32,
        /// Filled in by the kernel.
        file_system_major: u32,
        /// Filled in by the kernel.
        file_system_minor: u32,
        /// Zero.
        spare_2: [u64; 14],
    }

    /// To `Open` and `OpenDirectory`, and after an [`EntryOut`] to `Create` and `Temporary`.
    OpenOut: 16 {
        /// Names the open file in later requests.
        handle: u64,
        /// [`open_reply_flags`].
        flags: u32,
        /// Zero.
        padding: u32,
    }

    /// To `Write` and `CopyFileRange`.
    WriteOut: 8 {
        /// Bytes written.
        size: u32,
        /// Zero.
        padding: u32,
    }

    /// To `GetXattr` and `ListXattrs` with a size of zero.
    GetXattrOut: 8 {
        /// Bytes that there are.
        size: u32,
        /// Zero.
        padding: u32,
    }

    /// To `Statistics`.
    StatisticsOut: 80 {
        /// Blocks, in units of `fragment_size`.
        blocks: u64,
        /// Blocks that are free.
        blocks_free: u64,
        /// Blocks that are free for users without privileges.
        blocks_available: u64,
        /// Inodes.
        inodes: u64,
        /// Inodes that are free.
        inodes_free: u64,
        /// The preferred size of an I/O.
        block_size: u32,
        /// Bytes in the longest name.
        name_length_max: u32,
        /// The unit of the numbers of blocks.
        fragment_size: u32,
        /// Zero.
        padding: u32,
        /// Zero.
        spare: [u32; 6],
    }

    /// To `Seek`.
    SeekOut: 8 {
        /// The place found.
        offset: u64,
    }

    /// To `IoControl`; data follows.
    IoControlOut: 16 {
        /// What ioctl(2) returns.
        result: i32,
        /// The protocol's own.
        flags: u32,
        /// For commands whose data isn't described by their number.
        in_buffers: u32,
        /// For commands whose data isn't described by their number.
        out_buffers: u32,
    }

    /// In front of a name in a listing.
    EntryHeader: 24 {
        /// The number that callers see.
        inode: u64,
        /// Where to go on after this entry.
        cookie: u64,
        /// Bytes of the name.
        name_length: u32,
        /// The type, as in the upper bits of a mode.
        file_type: u32,
    }
}

/// Which fields of a [`StatxOut`] count.
pub mod statx_mask {
    /// All that [`NodeAttributes`](super::NodeAttributes) has.
    pub const BASIC: u32 = 0x7ff;
    /// The time of the creation.
    pub const CREATED: u32 = 0x800;
}

/// The protocol's own flags of an answer to `Open`.
pub mod open_reply_flags {
    /// The kernel's cache is not used.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// What the kernel has cached of the content is still right.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// A listing of the directory may be cached.
    pub const CACHE_DIRECTORY: u32 = 1 << 3;
    /// Nothing has to be flushed when a descriptor is closed.
    pub const NO_FLUSH: u32 = 1 << 5;
    /// Direct writes to one file may run at once.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Puts the entries of a listing into the payload of an answer.
pub struct ListingWriter<'a> {
    buffer: &'a mut [u8],
    used: usize,
}

impl<'a> ListingWriter<'a> {
    /// Writes into `buffer`, which is as long as the kernel allows.
    pub fn new(buffer: &'a mut [u8]) -> ListingWriter<'a> {
        ListingWriter { buffer, used: 0 }
    }

    /// Adds an entry, preceded by the answer of a lookup if `entry` is given. Returns false, with
    /// nothing added, if it doesn't fit.
    #[must_use]
    pub fn push(&mut self, entry: Option<&EntryOut>, header: EntryHeader, name: &[u8]) -> bool {
        let Some(length) = self.length_of(entry.is_some(), name) else { return false };
        let Ok(name_length) = u32::try_from(name.len()) else { return false };
        let header = EntryHeader { name_length, ..header };
        let place = &mut self.buffer[self.used..self.used + length];
        let mut at = 0;
        let parts = [entry.map_or(&[][..], IntoBytes::as_bytes), header.as_bytes(), name];
        for part in parts {
            place[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        place[at..].fill(0);
        self.used += length;
        true
    }

    /// True if an entry with this name fits.
    pub fn has_room(&self, with_attributes: bool, name: &[u8]) -> bool {
        self.length_of(with_attributes, name).is_some()
    }

    /// Bytes written.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Bytes that an entry takes, if there are as many.
    fn length_of(&self, with_attributes: bool, name: &[u8]) -> Option<usize> {
        let front = if with_attributes { size_of::<EntryOut>() } else { 0 };
        let length = (front + size_of::<EntryHeader>() + name.len()).next_multiple_of(8);
        (length <= self.buffer.len() - self.used).then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_bounded() {
        let mut buffer = [0xff; 24 + 8 + 128 + 24 + 8];
        let mut listing = ListingWriter::new(&mut buffer);
        let header = EntryHeader { inode: 2, cookie: 1, name_length: 0, file_type: 4 };
        assert!(listing.push(None, header, b"abc"));
        assert_eq!(listing.used(), 32);
        assert!(!listing.push(Some(&EntryOut::default()), header, b"123456789"));
        assert!(listing.has_room(true, b"12345678"));
        assert!(listing.push(Some(&EntryOut { node: 9, ..EntryOut::default() }), header, b"1"));
        assert_eq!(listing.used(), 192);
        assert!(!listing.push(None, header, b""));
        assert_eq!(buffer[16..24], [3, 0, 0, 0, 4, 0, 0, 0]);
        assert_eq!(buffer[24..32], *b"abc\0\0\0\0\0");
        assert_eq!(buffer[32], 9);
        assert_eq!(buffer[184..], *b"1\0\0\0\0\0\0\0");
    }
}
