//! Directories: blocks of entries, index blocks, inline ones.

use crate::input::{BLOCK, Input};
use drystone_ext4_format::dir::{
    self, DirectoryBlock, DirectoryBlockMut, DirectoryLayout, DirectoryPlace, EntryType, NewEntry,
};
use drystone_ext4_format::hash::{HashVersion, NameHasher};
use drystone_ext4_format::htree::{
    self, IndexBlock, IndexBlockMut, IndexEntry, IndexKind, IndexLimits, LeafSplit,
};
use drystone_ext4_format::inline::{self, InlineData, InlineDirectory, InlineDirectoryMut};
use drystone_ext4_format::{InodeNumber, LogicalBlock};

const OWN: InodeNumber = InodeNumber::new(12);
const LAST: InodeNumber = InodeNumber::new(1000);

fn layout(input: &mut Input<'_>) -> DirectoryLayout {
    let flags = input.u8();
    DirectoryLayout {
        file_type: flags & 1 == 0,
        checksum: None,
        encrypted: flags & 2 != 0,
        casefolded: flags & 4 != 0,
        inode_last: LAST,
    }
}

/// A name that callers may ask for: without slashes and zero bytes.
fn new_name(input: &mut Input<'_>) -> Vec<u8> {
    let length = usize::from(input.u8()).max(1);
    let mut name = input.bytes(length).to_vec();
    name.iter_mut().filter(|byte| matches!(byte, 0 | b'/')).for_each(|byte| *byte = b'a');
    if name.is_empty() { b"a".to_vec() } else { name }
}

fn new_entry<'a>(input: &mut Input<'_>, name: &'a [u8]) -> NewEntry<'a> {
    NewEntry {
        inode: InodeNumber::new(1 + input.u32() % 1000),
        name,
        entry_type: EntryType::Regular,
        hash: None,
    }
}

/// Blocks of entries: checks, searches, changes, splits.
pub fn directory_block(data: &[u8]) {
    let mut input = Input(data);
    let layout = layout(&mut input);
    let place = DirectoryPlace { inode: OWN, block: LogicalBlock::FIRST };
    let mut sound = vec![0; BLOCK];
    dir::init_with_dots(&mut sound, &layout, OWN, InodeNumber::ROOT);
    let mut bytes = input.change(&sound);
    let Ok(view) = DirectoryBlock::check(&bytes, &layout, place) else { return };
    let _ = (view.check_dots(place), view.is_empty(), view.parent(), view.find(b"name"));
    let offsets: Vec<usize> = view.entries().map(|entry| entry.offset).collect();
    assert!(offsets.len() <= BLOCK / 8);
    let _ = view.entries_from(usize::from(input.u16())).count();
    let hasher = NameHasher::new(HashVersion::HalfMd4, [1, 2, 3, 4]);
    let hash_of = |entry: &dir::Entry<'_>| hasher.hash(entry.name);
    if let Ok(Some(split)) = LeafSplit::plan(&view, place, hash_of) {
        let (mut lower, mut upper) = (bytes.clone(), vec![0; BLOCK]);
        split.fill_upper(&bytes, &mut upper);
        split.keep_lower(&mut lower);
        for half in [&lower, &upper] {
            DirectoryBlock::check(half, &layout, place).expect("a half of a sound block is sound");
        }
    }
    for _ in 0..8 {
        let mut view = DirectoryBlockMut::trusted(&mut bytes, &layout);
        match input.u8() % 4 {
            0 => {
                let name = new_name(&mut input);
                let _ = view.insert(&new_entry(&mut input, &name));
            }
            1 => {
                let offset = offsets.get(usize::from(input.u8())).copied();
                let _ = view.remove(offset.unwrap_or(usize::from(input.u16())));
            }
            2 => drop(view.set_parent(InodeNumber::new(5))),
            _ => {
                let offset = usize::from(input.u16());
                let _ = view.set_target(offset, InodeNumber::new(5), EntryType::Fifo);
            }
        }
        DirectoryBlock::check(&bytes, &layout, place).expect("a changed block stays sound");
    }
}

/// Index blocks of hashed directories.
pub fn htree(data: &[u8]) {
    let mut input = Input(data);
    let layout = layout(&mut input);
    let place = DirectoryPlace { inode: OWN, block: LogicalBlock::FIRST };
    let limits = IndexLimits { directory_blocks: 200, large_directory: input.u8() % 2 == 0 };
    let mut sound = vec![0; BLOCK];
    let kind = if input.u8() % 2 == 0 { IndexKind::Root } else { IndexKind::Node };
    match kind {
        IndexKind::Root => {
            let version = HashVersion::HalfMd4;
            let (parent, first) = (InodeNumber::ROOT, LogicalBlock::new(1));
            htree::init_root(&mut sound, &layout, OWN, parent, version, first);
        }
        IndexKind::Node => htree::init_node(&mut sound, &layout, LogicalBlock::new(1)),
    }
    let mut bytes = input.change(&sound);
    let _ = IndexKind::of(&bytes);
    // Blocks that are not checked have to be harmless too: two directories may share one.
    let any = IndexBlock::trusted(&bytes, kind);
    let _ = (any.search(input.u32()), any.entries().count(), any.levels(), any.hash_version());
    let checked = match kind {
        IndexKind::Root => IndexBlock::check_root(&bytes, &layout, place, &limits),
        IndexKind::Node => IndexBlock::check_node(&bytes, &layout, place, &limits),
    };
    let is_sound = checked.is_ok();
    if let Ok(view) = checked {
        let hash = input.u32();
        let position = view.search(hash);
        assert!(view.get(position).is_some());
        let _ = view.continues_after(position, hash);
    }
    let (mut upper, mut node) = (vec![0; BLOCK], vec![0; BLOCK]);
    let position = u16::from(input.u8());
    let entry = IndexEntry { hash: input.u32(), block: LogicalBlock::new(3) };
    let mut index = IndexBlockMut::trusted(&mut bytes, kind);
    if is_sound && position < index.view().count() {
        let _ = index.insert_after(position, entry);
    }
    let _ = index.split_into(&mut upper, &layout);
    let _ = index.raise_into(&mut node, &layout, LogicalBlock::new(4));
}

/// Data and directories in inodes.
pub fn inline_data(data: &[u8]) {
    let mut input = Input(data);
    let layout = layout(&mut input);
    let size = if input.u8() % 2 == 0 { u64::from(input.u8()) } else { input.u64() };
    let rest_length = usize::from(input.u8());
    let sound =
        [&inline::init_directory(InodeNumber::ROOT, &layout)[..], &vec![0; rest_length]].concat();
    let bytes = input.change(&sound);
    let Some((head, rest)) = bytes.split_first_chunk::<60>() else { return };
    let rest_given = (input.u8() % 8 != 0).then_some(rest);
    if let Ok(data) = InlineData::check(head, rest_given, size, OWN) {
        assert_eq!(data.to_vec().len(), data.length());
        let mut into = [0; 100];
        let _ = data.read(input.u64(), &mut into);
    }
    let Ok(directory) = InlineDirectory::check(head, rest, &layout, OWN) else { return };
    let offsets: Vec<usize> = directory.entries().map(|entry| entry.offset).collect();
    let _ = (directory.find(b"name"), directory.is_empty(), directory.parent());
    let (mut head, mut rest) = (*head, rest.to_vec());
    for _ in 0..6 {
        let mut directory = InlineDirectoryMut::trusted(&mut head, &mut rest, &layout);
        match input.u8() % 3 {
            0 => {
                let name = new_name(&mut input);
                let _ = directory.insert(&new_entry(&mut input, &name));
            }
            1 => {
                let offset = offsets.get(usize::from(input.u8())).copied();
                let _ = directory.remove(offset.unwrap_or(usize::from(input.u16())));
            }
            _ => drop(directory.set_target(
                usize::from(input.u16()),
                InodeNumber::new(7),
                EntryType::Regular,
            )),
        }
        InlineDirectory::check(&head, &rest, &layout, OWN)
            .expect("a changed directory stays sound");
    }
}
