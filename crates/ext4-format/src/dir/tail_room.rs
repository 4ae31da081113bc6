//! Blocks that get a checksum tail, or lose it.

use super::heads::{Head, Heads};
use super::pack::{Kept, pack_within};
use super::record::{RECORD_LENGTH_MIN, RawRecordHeader, encode_length, record_length};
use super::{DirectoryBlock, DirectoryLayout, NoRoom, init_empty, tail};
use zerocopy::FromBytes;

/// Gives a block of entries without a tail one, its checksum still to be sealed. Entries move only if the last
/// record needs the room.
///
/// # Errors
/// The entries leave too little room; the block is unchanged.
pub fn add_tail(bytes: &mut [u8], layout: &DirectoryLayout) -> Result<(), NoRoom> {
    let bare = layout.without_tail();
    let end = layout.records_end(bytes.len());
    let view = DirectoryBlock::trusted(bytes, &bare);
    let kept: Vec<Kept> = view
        .entries()
        .map(|entry| Kept { offset: entry.offset, used: record_length(entry.name, layout) })
        .collect();
    let Some(last_kept) = kept.last() else {
        init_empty(bytes, layout);
        return Ok(());
    };
    if kept.iter().map(|kept| kept.used).sum::<usize>() > end {
        return Err(NoRoom);
    }
    let behind = last_kept.offset + last_kept.used;
    match last_record(bytes, bytes.len(), &bare) {
        Some(last) if behind <= end && last.offset + RECORD_LENGTH_MIN <= end => {
            set_length(bytes, last.offset, end - last.offset);
        }
        _ => pack_within(bytes, layout, kept.into_iter()),
    }
    tail::init(bytes, layout);
    Ok(())
}

/// Takes the tail of a block away, which `layout` says it has: its last record gets the room.
pub fn remove_tail(bytes: &mut [u8], layout: &DirectoryLayout) {
    let end = layout.records_end(bytes.len());
    if !tail::is_present(bytes) {
        return;
    }
    if let Some(last) = last_record(bytes, end, layout) {
        let length = bytes.len() - last.offset;
        set_length(bytes, last.offset, length);
        bytes[end..].fill(0);
    }
}

fn last_record(bytes: &[u8], end: usize, layout: &DirectoryLayout) -> Option<Head> {
    Heads::new(bytes, end, layout).last()
}

fn set_length(bytes: &mut [u8], offset: usize, length: usize) {
    if let Ok((header, _)) = RawRecordHeader::mut_from_prefix(&mut bytes[offset..]) {
        header.record_length = encode_length(length).into();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DirectoryBlockBuilder, DirectoryPlace, EntryType, NewEntry, TAIL_LENGTH};
    use super::*;
    use crate::checksum::ChecksumSeed;
    use crate::ids::InodeNumber;

    fn layout() -> DirectoryLayout {
        let seed = ChecksumSeed::from_stored(1).inode(InodeNumber::new(12), 0);
        DirectoryLayout {
            file_type: true,
            checksum: Some(seed),
            encrypted: false,
            casefolded: false,
            inode_last: InodeNumber::new(1000),
        }
    }

    /// A block without a tail that is full of names but for `room` bytes.
    fn full_block(room: usize) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        let bare = layout().without_tail();
        let mut builder = DirectoryBlockBuilder::new(&mut bytes, &bare);
        while builder.room() > room {
            // Never leaves less than the shortest record.
            let left = builder.room() - room;
            let length = if (65..76).contains(&left) { 24 } else { left.min(64) - 8 };
            let name = vec![b'a' + (builder.room() / 64) as u8; length];
            let inode = InodeNumber::new(20);
            let entry = NewEntry { name: &name, inode, entry_type: EntryType::Regular, hash: None };
            builder.push(&entry).unwrap();
        }
        builder.finish();
        bytes
    }

    fn names(bytes: &[u8], layout: &DirectoryLayout) -> Vec<Vec<u8>> {
        DirectoryBlock::trusted(bytes, layout).entries().map(|entry| entry.name.to_vec()).collect()
    }

    #[test]
    fn tails_come_and_go_where_there_is_room() {
        let layout = layout();
        let bare = layout.without_tail();
        for room in (0..64).step_by(4) {
            let mut bytes = full_block(room);
            let before = bytes.clone();
            if room < TAIL_LENGTH {
                assert_eq!(add_tail(&mut bytes, &layout), Err(NoRoom));
                assert_eq!(bytes, before);
                continue;
            }
            add_tail(&mut bytes, &layout).unwrap();
            tail::seal(&mut bytes, &layout);
            let place = DirectoryPlace {
                inode: InodeNumber::new(12),
                block: crate::ids::LogicalBlock::FIRST,
            };
            DirectoryBlock::check(&bytes, &layout, place).unwrap();
            tail::verify(&bytes, &layout, place).unwrap();
            assert_eq!(names(&bytes, &layout), names(&before, &bare));
            remove_tail(&mut bytes, &layout);
            DirectoryBlock::check(&bytes, &bare, place).unwrap();
            assert_eq!(names(&bytes, &bare), names(&before, &bare));
        }
    }

    /// A last record that is unused and no longer than a tail.
    #[test]
    fn entries_move_if_the_last_record_has_to_go() {
        let layout = layout();
        let bare = layout.without_tail();
        let mut bytes = full_block(16);
        let last = last_record(&bytes, 1024, &bare).unwrap();
        let rest = 1024 - 12 - last.offset;
        set_length(&mut bytes, last.offset, rest);
        bytes[1012..].fill(0);
        set_length(&mut bytes, 1012, 12);
        let before = names(&bytes, &bare);
        add_tail(&mut bytes, &layout).unwrap();
        assert_eq!(names(&bytes, &layout), before);
    }
}
