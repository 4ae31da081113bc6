//! Writes the records of a directory block again, with other names and nothing between them.

use super::names::{NameShape, WrongEnd};
use drystone_ext4_format::casefold::Casefold;
use drystone_ext4_format::dir::{
    DirectoryBlock, DirectoryLayout, Entry, EntryType, RawRecordHeader, RawTail, TAIL_LENGTH,
};
use drystone_ext4_format::hash::NameHash;
use zerocopy::{FromBytes, IntoBytes};

/// A type that no entry has.
const NO_TYPE: u8 = 15;

/// Bytes that names are padded to.
const ALIGNMENT: usize = 4;

/// What an entry gets.
pub(super) struct Replacement {
    pub name: Vec<u8>,
    /// The hash after the name, where entries have one.
    pub hash: Option<NameHash>,
}

/// What the new name of an entry must be like.
pub(super) fn shape_of(
    name: &[u8],
    layout: &DirectoryLayout,
    casefold: Option<&Casefold>,
) -> NameShape {
    let end = if layout.encrypted {
        WrongEnd::None
    } else if name.contains(&b'/') {
        WrongEnd::Slash
    } else if name.contains(&0) {
        WrongEnd::Zero
    } else if casefold.is_some_and(|casefold| !casefold.accepts(name)) {
        WrongEnd::NotUtf8
    } else {
        WrongEnd::None
    };
    // Records with longer names aren't read.
    NameShape { length: name.len() as u8, end }
}

/// Whether the last bytes of a block are the place of a checksum.
fn has_tail(bytes: &[u8]) -> bool {
    RawTail::ref_from_suffix(bytes).is_ok_and(|(_, tail)| {
        tail.inode.get() == 0
            && usize::from(tail.record_length.get()) == TAIL_LENGTH
            && tail.name_length == 0
            && tail.file_type == RawTail::FILE_TYPE
    })
}

/// The layout by which the records of a block can be read: without the place of a checksum if there is none.
pub(super) fn readable_layout(bytes: &[u8], layout: &DirectoryLayout) -> DirectoryLayout {
    if has_tail(bytes) { *layout } else { layout.without_tail() }
}

/// Replaces the names of a block and clears what isn't part of a record. The checksum is still to be sealed. Returns how
/// many bytes were cleared because they are in no record.
pub(super) fn rewrite(
    bytes: &mut [u8],
    layout: &DirectoryLayout,
    replace: &mut dyn FnMut(&Entry<'_>) -> Replacement,
) -> u64 {
    let old = bytes.to_vec();
    bytes.fill(0);
    let layout = readable_layout(&old, layout);
    let (mut unclear, mut end) = (0, 0);
    for (entry, _) in DirectoryBlock::trusted(&old, &layout).salvage_records() {
        unclear += count_nonzero(&old[end..entry.offset]);
        end = entry.offset + entry.record_length;
        let (Some(from), Some(into)) =
            (old.get(entry.offset..end), bytes.get_mut(entry.offset..end))
        else {
            continue;
        };
        if entry.inode.get() == 0 {
            write_header(from, into, &layout, entry.name.len());
            continue;
        }
        let replacement = if entry.is_dot() {
            Replacement { name: entry.name.to_vec(), hash: None }
        } else {
            replace(&entry)
        };
        write_header(from, into, &layout, replacement.name.len());
        let after = size_of::<RawRecordHeader>() + replacement.name.len();
        into[size_of::<RawRecordHeader>()..after].copy_from_slice(&replacement.name);
        if let Some(hash) = replacement.hash {
            let at = after.next_multiple_of(ALIGNMENT);
            let words = [hash.major.to_le_bytes(), hash.minor.to_le_bytes()];
            if let Some(place) = into.get_mut(at..at + words.as_bytes().len()) {
                place.copy_from_slice(words.as_bytes());
            }
        }
        // A dot that doesn't end with a zero is a mistake that has to stay.
        if entry.is_dot() && from.get(after).is_some_and(|byte| *byte != 0) {
            into[after] = 1;
        }
    }
    let tail = if layout.checksum.is_some() { TAIL_LENGTH } else { 0 };
    let records_end = old.len().saturating_sub(tail);
    unclear += old.get(end..records_end).map_or(0, count_nonzero);
    if tail > 0 {
        // Without the checksum.
        let head = records_end..records_end + size_of::<RawRecordHeader>();
        bytes[head.clone()].copy_from_slice(&old[head]);
    }
    unclear
}

/// Writes the fixed part of a record: what can't be right stays wrong, but isn't copied.
fn write_header(from: &[u8], into: &mut [u8], layout: &DirectoryLayout, name_length: usize) {
    let (Ok((old, _)), Ok((new, _))) =
        (RawRecordHeader::ref_from_prefix(from), RawRecordHeader::mut_from_prefix(into))
    else {
        return;
    };
    let exists = old.inode.get() <= layout.inode_last.get();
    new.inode = if exists { old.inode } else { u32::MAX.into() };
    new.record_length = old.record_length;
    let [low, high] = (name_length as u16).to_le_bytes();
    new.name_length = low;
    new.file_type = match old.file_type {
        _ if !layout.file_type => high,
        known if EntryType::from_raw(known).is_some() || known == RawTail::FILE_TYPE => known,
        _ => NO_TYPE,
    };
}

pub(super) fn count_nonzero(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte != 0).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_ext4_format::InodeNumber;
    use drystone_ext4_format::dir::{DirectoryBlockMut, NewEntry, init_with_dots};

    const LAYOUT: DirectoryLayout = DirectoryLayout {
        file_type: true,
        checksum: None,
        encrypted: false,
        casefolded: false,
        inode_last: InodeNumber::new(100),
    };

    fn block() -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        init_with_dots(&mut bytes, &LAYOUT, InodeNumber::new(12), InodeNumber::new(2));
        let mut block = DirectoryBlockMut::trusted(&mut bytes, &LAYOUT);
        for (name, inode) in [(&b"secret"[..], 13), (b"hidden", 14), (b"private", 15)] {
            let inode = InodeNumber::new(inode);
            let entry = NewEntry { name, inode, entry_type: EntryType::Regular, hash: None };
            block.insert(&entry).unwrap();
        }
        // Its name stays in the slack.
        let removed = block.view().find(b"hidden").unwrap().offset;
        block.remove(removed).unwrap();
        bytes
    }

    fn scramble(bytes: &mut [u8]) -> u64 {
        rewrite(bytes, &LAYOUT, &mut |entry| Replacement {
            name: vec![b'x'; entry.name.len()],
            hash: None,
        })
    }

    #[test]
    fn structure_stays_and_slack_goes() {
        let before = block();
        let mut after = before.clone();
        assert_eq!(scramble(&mut after), 0);
        let shape = |bytes: &[u8]| -> Vec<_> {
            let entries = DirectoryBlock::trusted(bytes, &LAYOUT).entries();
            let shape = |entry: Entry<'_>| (entry.offset, entry.record_length, entry.inode);
            entries.map(shape).collect()
        };
        assert_eq!(shape(&before), shape(&after));
        for text in ["secret", "hidden", "private"] {
            assert!(!after.windows(text.len()).any(|window| window == text.as_bytes()));
        }
    }

    #[test]
    fn text_that_is_no_directory_is_cleared() {
        let mut bytes = b"a long text that nobody may see; ".repeat(40)[..1024].to_vec();
        assert!(scramble(&mut bytes) > 900);
        let letters = bytes.iter().filter(|byte| byte.is_ascii_alphabetic() && **byte != b'x');
        assert_eq!(letters.count(), 0);
    }

    #[test]
    fn records_behind_damage_are_found_as_before() {
        let mut bytes = block();
        // The record length of `..`.
        bytes[16] = 3;
        let salvage = |bytes: &[u8]| -> Vec<_> {
            let found = DirectoryBlock::trusted(bytes, &LAYOUT).salvage();
            found.iter().map(|(entry, behind)| (entry.offset, entry.inode, *behind)).collect()
        };
        let before = salvage(&bytes);
        scramble(&mut bytes);
        assert_eq!(salvage(&bytes), before);
        assert!(before.iter().any(|(.., behind)| *behind));
    }
}
