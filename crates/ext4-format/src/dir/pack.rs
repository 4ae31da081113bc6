//! Moving records of a block close together, in the same block or into another.

use super::record::{self, RawRecordHeader};
use super::{DirectoryLayout, tail};
use zerocopy::FromBytes;

/// An entry of a block that is to be kept: where its record starts, and the bytes that it uses of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub offset: usize,
    pub used: usize,
}

/// Keeps some entries of a block, of which there is one at least, given in the order of their places;
/// the room behind them is zeroed.
pub(crate) fn pack_within(
    bytes: &mut [u8],
    layout: &DirectoryLayout,
    kept: impl Iterator<Item = Kept>,
) {
    // What is packed so far ends where the next record starts, or before.
    let end = pack(bytes, layout, kept, |bytes, kept, to| {
        bytes.copy_within(kept.offset..kept.offset + kept.used, to);
    });
    let records_end = layout.records_end(bytes.len());
    bytes[end..records_end].fill(0);
}

/// As [`pack_within`], into another block, of zeros, with a tail whose checksum is still to be sealed.
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

/// Puts records one behind the other and returns where the last entry ends. Its record has the rest.
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
