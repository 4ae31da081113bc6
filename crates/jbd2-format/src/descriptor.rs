//! Descriptor blocks: tags that say which blocks the following log blocks are copies of.
//!
//! The tag has three layouts, by feature: 16 bytes with checksums of version 3, otherwise the
//! shared start below plus a high word when block numbers are wide (and two stray bytes with
//! version 2). A tag without [`TagFlags::SAME_UUID`] is followed by a 16-byte UUID.

use crate::format::be32;
use crate::{BlockHeader, BlockKind, ChecksumKind, Corrupt, Format};
use bitflags::bitflags;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const UUID_BYTES: usize = 16;

bitflags! {
    /// What a tag says about its copy.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TagFlags: u32 {
        /// The copy's first four bytes were the journal's magic number and are zeroed.
        const ESCAPE = 0x1;
        /// No UUID follows the tag.
        const SAME_UUID = 0x2;
        /// The block was deleted by this transaction. Never written by Linux.
        const DELETED = 0x4;
        /// The last tag of the block.
        const LAST = 0x8;
    }
}

/// A tag with checksums of version 3.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTagV3 {
    block: U32,
    flags: U32,
    block_high: U32,
    checksum: U32,
}

/// The start of every other tag.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTag {
    block: U32,
    /// The lower half of a version 2 checksum.
    checksum: U16,
    flags: U16,
}

const _: () = {
    assert!(size_of::<RawTagV3>() == 16);
    assert!(size_of::<RawTag>() == 8);
};

/// Offset of the high word of the block number in a [`RawTag`] of a wide journal.
const HIGH_OFFSET: usize = size_of::<RawTag>();

/// One tag, whatever its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The block that the copy belongs to.
    pub block: u64,
    /// What was done to the copy. Unknown flags are dropped.
    pub flags: TagFlags,
    /// Checksum of the copy; 16 bits of it in version 2, zero before.
    pub checksum: u32,
}

impl Tag {
    /// Checks `copy`, found at journal block `block`, against its tag.
    ///
    /// # Errors
    /// [`Corrupt::DataChecksum`].
    pub fn check_copy(
        &self,
        format: &Format,
        sequence: u32,
        copy: &[u8],
        block: u32,
    ) -> Result<(), Corrupt> {
        if format.has_block_checksums() && format.copy_checksum(sequence, copy) != self.checksum {
            return Err(Corrupt::DataChecksum { block, target: self.block });
        }
        Ok(())
    }
}

/// Checks a descriptor block of transaction `sequence` found at journal block `block`; gives
/// its tags in order.
///
/// # Errors
/// The header, the checksum, or that there is no tag.
pub fn check_descriptor<'a>(
    format: &'a Format,
    bytes: &'a [u8],
    sequence: u32,
    block: u32,
) -> Result<Tags<'a>, Corrupt> {
    format.check_block(bytes, BlockKind::Descriptor, "descriptor", sequence, block)?;
    let body = &bytes[size_of::<BlockHeader>()..format.body_bytes()];
    if body.len() < format.tag_bytes() {
        return Err(Corrupt::EmptyDescriptor { block });
    }
    Ok(Tags { format, rest: body })
}

/// The tags of a checked descriptor block. Ends at the last tag or the end of the block.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    format: &'a Format,
    rest: &'a [u8],
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let tag_bytes = self.format.tag_bytes();
        if self.rest.len() < tag_bytes {
            return None;
        }
        let (raw, rest) = self.rest.split_at(tag_bytes);
        let tag = parse(self.format, raw)?;
        self.rest = if tag.flags.contains(TagFlags::LAST) {
            &[]
        } else if tag.flags.contains(TagFlags::SAME_UUID) {
            rest
        } else {
            rest.get(UUID_BYTES..).unwrap_or_default()
        };
        Some(tag)
    }
}

/// `raw` has the size that the format gives tags.
fn parse(format: &Format, raw: &[u8]) -> Option<Tag> {
    if format.checksums() == ChecksumKind::V3 {
        let (tag, _) = RawTagV3::ref_from_prefix(raw).ok()?;
        // The high word counts only in a wide journal.
        let high = if format.is_wide() { tag.block_high.get() } else { 0 };
        return Some(Tag {
            block: u64::from(high) << 32 | u64::from(tag.block.get()),
            flags: TagFlags::from_bits_truncate(tag.flags.get()),
            checksum: tag.checksum.get(),
        });
    }
    let (tag, _) = RawTag::ref_from_prefix(raw).ok()?;
    let high = if format.is_wide() { be32(raw, HIGH_OFFSET) } else { 0 };
    let checksum = match format.checksums() {
        ChecksumKind::V2 => u32::from(tag.checksum.get()),
        _ => 0,
    };
    Some(Tag {
        block: u64::from(high) << 32 | u64::from(tag.block.get()),
        flags: TagFlags::from_bits_truncate(u32::from(tag.flags.get())),
        checksum,
    })
}

/// A descriptor block in the making.
#[derive(Debug)]
pub struct DescriptorBuilder<'a> {
    format: &'a Format,
    bytes: Box<[u8]>,
    /// Where the next tag goes.
    end: usize,
    /// Where the last tag is, with its flags.
    last: Option<(usize, Tag)>,
}

impl<'a> DescriptorBuilder<'a> {
    /// An empty descriptor for transaction `sequence`.
    #[must_use]
    pub fn new(format: &'a Format, sequence: u32) -> Self {
        let bytes = format.new_block(BlockKind::Descriptor, sequence);
        Self { format, bytes, end: size_of::<BlockHeader>(), last: None }
    }

    /// Whether no tag fits any more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let uuid_bytes = if self.last.is_none() { UUID_BYTES } else { 0 };
        self.end + self.format.tag_bytes() + uuid_bytes > self.format.body_bytes()
    }

    /// Names the next copy: of `block`, `escaped` or not, with its checksum as it stands in
    /// the log.
    ///
    /// # Panics
    /// If the descriptor is full.
    pub fn push(&mut self, block: u64, escaped: bool, checksum: u32) {
        assert!(!self.is_full(), "a full descriptor block gets another tag");
        let mut flags = TagFlags::empty();
        flags.set(TagFlags::ESCAPE, escaped);
        flags.set(TagFlags::SAME_UUID, self.last.is_some());
        let tag = Tag { block, flags, checksum };
        let place = self.end;
        self.write(place, &tag);
        self.end += self.format.tag_bytes();
        if self.last.is_none() {
            self.bytes[self.end..self.end + UUID_BYTES].copy_from_slice(self.format.uuid());
            self.end += UUID_BYTES;
        }
        self.last = Some((place, tag));
    }

    /// Marks the last tag and computes the checksum.
    ///
    /// # Panics
    /// If there is no tag.
    #[must_use]
    pub fn finish(mut self) -> Box<[u8]> {
        let Some((place, mut tag)) = self.last else {
            panic!("a descriptor block without a tag is written")
        };
        tag.flags |= TagFlags::LAST;
        self.write(place, &tag);
        self.format.seal_tail(&mut self.bytes);
        self.bytes
    }

    fn write(&mut self, place: usize, tag: &Tag) {
        // Cuts the number into its halves on purpose.
        let (low, high) = (tag.block as u32, (tag.block >> 32) as u32);
        let raw = &mut self.bytes[place..place + self.format.tag_bytes()];
        if self.format.checksums() == ChecksumKind::V3 {
            let tag = RawTagV3 {
                block: U32::new(low),
                flags: U32::new(tag.flags.bits()),
                block_high: U32::new(high),
                checksum: U32::new(tag.checksum),
            };
            raw.copy_from_slice(tag.as_bytes());
            return;
        }
        let start = RawTag {
            block: U32::new(low),
            checksum: U16::new(tag.checksum as u16),
            flags: U16::new(tag.flags.bits() as u16),
        };
        raw[..HIGH_OFFSET].copy_from_slice(start.as_bytes());
        if self.format.is_wide() {
            raw[HIGH_OFFSET..HIGH_OFFSET + 4].copy_from_slice(&high.to_be_bytes());
        }
    }
}
