//! Moving records of a block close together, in the same block or into another.

use super::record::{self, RawRecordHeader};
use super::{DirectoryLayout, tail};
use zerocopy::FromBytes;

/// An entry that is kept: where its record starts, and how many bytes of the record it uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub offset: usize,
    pub used: usize,
}

/// Keeps some entries of a block, at least one, given in block order; the room after them is zeroed.
pub(crate) fn pack_within(
    bytes: &mut [u8],
    layout: &DirectoryLayout,
    kept: impl Iterator<Item = Kept>,
) {
    // The packed entries end at or before the start of the next record.
    let end = pack(bytes, layout, kept, |bytes, kept, to| {
        bytes.copy_within(kept.offset..kept.offset + kept.used, to);
    });
    let records_end = layout.records_end(bytes.len());
    bytes[end..records_end].fill(0);
}

/// As [`pack_within`], but into another, zeroed block, with a tail whose checksum is still to be
/// sealed.
pub(crate) fn pack_into(
    bytes: &mut [u8],
    layout: &DirectoryLayout,
    source: &[u8],
    kept: impl Iterator<Item = Kept>,
) {
    pack(bytes, layout, kept, |bytes, kept, to| {
        let record = &source[kept.offset..kept.offset + kept.used];
        bytes[to..to + kept.used].copy_from_slice(record);
    });
    tail::init(bytes, layout);
}

/// Writes records without gaps and returns where the last entry ends. Its record gets the rest of
/// the block.
fn pack(
    bytes: &mut [u8],
    layout: &DirectoryLayout,
    kept: impl Iterator<Item = Kept>,
    copy: impl Fn(&mut [u8], Kept, usize),
) -> usize {
    let (mut last, mut end) = (0, 0);
    for kept in kept {
        copy(bytes, kept, end);
        set_length(bytes, end, kept.used);
        last = end;
        end += kept.used;
    }
    set_length(bytes, last, layout.records_end(bytes.len()) - last);
    end
}

fn set_length(bytes: &mut [u8], offset: usize, length: usize) {
    if let Ok((header, _)) = RawRecordHeader::mut_from_prefix(&mut bytes[offset..]) {
        header.record_length = record::encode_length(length).into();
    }
}
