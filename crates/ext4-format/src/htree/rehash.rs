//! Writing an index block again for other hashes, with nothing in it but its structure.

use super::raw::{BLOCK_MASK, RawCountLimit, RawIndexEntry, RawIndexNode, RawIndexRoot};
use super::view::{ENTRY_LENGTH, IndexBlock, IndexKind};
use crate::dir::{DirectoryLayout, RawRecordHeader};
use crate::ids::LogicalBlock;
use std::mem::size_of;
use zerocopy::{FromBytes, IntoBytes};

/// A number that no hash function has.
const NO_HASH_VERSION: u8 = 7;

/// Clears an index block but for its structure, and replaces its hashes; `directory_blocks` is the length of its
/// directory. Whatever can't be right becomes a number that can't be right either, so that a damaged block stays
/// damaged. The checksum is still to be sealed.
///
/// Returns whether the block has the shape of an index block; otherwise nothing is changed.
pub fn rehash(
    bytes: &mut [u8],
    kind: IndexKind,
    layout: &DirectoryLayout,
    directory_blocks: u32,
    replace: &mut dyn FnMut(u32) -> u32,
) -> bool {
    let length = bytes.len();
    let Some(head) = clean_head(bytes, kind) else { return false };
    let view = IndexBlock::trusted(bytes, kind);
    // A limit of at most 64 KiB / 8 fits.
    let expected = kind.limit(length, layout.checksum.is_some()) as u16;
    let entries: Vec<RawIndexEntry> = (0..view.count().min(expected))
        .filter_map(|position| view.get(position))
        .map(|entry| {
            let fits = entry.block.get() < directory_blocks;
            let block = if fits { entry.block } else { LogicalBlock::new(BLOCK_MASK) };
            RawIndexEntry { hash: replace(entry.hash).into(), block: block.get().into() }
        })
        .collect();
    let beyond = |number: u16| if number > expected { expected.saturating_add(1) } else { number };
    let counts =
        RawCountLimit { limit: beyond(view.limit()).into(), count: beyond(view.count()).into() };
    bytes.fill(0);
    bytes[..head.len()].copy_from_slice(&head);
    let mut at = head.len();
    for entry in &entries {
        bytes[at..at + ENTRY_LENGTH].copy_from_slice(entry.as_bytes());
        at += ENTRY_LENGTH;
    }
    // In place of the first hash.
    bytes[head.len()..head.len() + size_of::<RawCountLimit>()].copy_from_slice(counts.as_bytes());
    true
}

/// The bytes in front of the entries.
fn clean_head(bytes: &[u8], kind: IndexKind) -> Option<Vec<u8>> {
    // Room for the head and an entry.
    bytes.get(..kind.entries_offset() + ENTRY_LENGTH)?;
    let whole = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    if kind == IndexKind::Node {
        let (node, _) = RawIndexNode::ref_from_prefix(bytes).ok()?;
        let found = node.record.record_length.get();
        if found != whole && !(whole == u16::MAX && found == 0) || node.record.inode.get() != 0 {
            return None;
        }
        // A name that isn't empty is a mistake that has to stay.
        let name_length = u8::from(node.record.name_length != 0);
        let record = RawRecordHeader { name_length, file_type: 0, ..node.record };
        return Some(RawIndexNode { record }.as_bytes().to_vec());
    }
    let (root, _) = RawIndexRoot::ref_from_prefix(bytes).ok()?;
    let is_disguised = root.dot.record_length.get() == 12
        && root.dot.name_length == 1
        && root.dot_name[0] == b'.'
        && usize::from(root.dotdot.record_length.get()) == bytes.len() - 12
        && root.dotdot.name_length == 2
        && root.dotdot_name[..2] == *b"..";
    let end = |byte: u8| u8::from(byte != 0);
    is_disguised.then(|| {
        let clean = RawIndexRoot {
            dot: root.dot,
            dot_name: [b'.', end(root.dot_name[1]), 0, 0],
            dotdot: root.dotdot,
            dotdot_name: [b'.', b'.', end(root.dotdot_name[2]), 0],
            reserved: u32::from(root.reserved.get() != 0).into(),
            hash_version: root.hash_version.min(NO_HASH_VERSION),
            info_length: if root.info_length == 8 { 8 } else { 0 },
            levels: root.levels,
            unused_flags: root.unused_flags & 1,
        };
        clean.as_bytes().to_vec()
    })
}

#[cfg(test)]
mod tests {
    use super::super::{IndexBlockMut, IndexEntry, IndexLimits, init_node, seal};
    use super::*;
    use crate::dir::DirectoryPlace;
    use crate::ids::InodeNumber;

    const LAYOUT: DirectoryLayout = DirectoryLayout {
        file_type: true,
        checksum: None,
        encrypted: false,
        casefolded: false,
        inode_last: InodeNumber::new(100),
    };

    #[test]
    fn only_the_structure_stays() {
        let mut bytes = vec![0; 1024];
        init_node(&mut bytes, &LAYOUT, LogicalBlock::new(3));
        let mut block = IndexBlockMut::trusted(&mut bytes, IndexKind::Node);
        let block_4 = LogicalBlock::new(4);
        block.insert_after(0, IndexEntry { hash: 0x5555_0001, block: block_4 }).unwrap();
        bytes[600..610].fill(7);
        assert!(rehash(&mut bytes, IndexKind::Node, &LAYOUT, 9, &mut |hash| hash & 1 | 0x40));
        seal(&mut bytes, IndexKind::Node, &LAYOUT);
        let place = DirectoryPlace { inode: InodeNumber::new(12), block: LogicalBlock::new(2) };
        let limits = IndexLimits { directory_blocks: 9, large_directory: false };
        let view = IndexBlock::check_node(&bytes, &LAYOUT, place, &limits).unwrap();
        let entries: Vec<_> = view.entries().map(|entry| (entry.hash, entry.block.get())).collect();
        assert_eq!(entries, [(0, 3), (0x41, 4)]);
        assert!(bytes[32..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn nothing_else_is_changed() {
        let text = b"some text of a file, ".repeat(60);
        let mut bytes = text[..1024].to_vec();
        for kind in [IndexKind::Root, IndexKind::Node] {
            assert!(!rehash(&mut bytes, kind, &LAYOUT, 9, &mut |hash| hash));
        }
        assert_eq!(bytes, text[..1024]);
        assert!(!rehash(&mut [0; 8], IndexKind::Node, &LAYOUT, 9, &mut |hash| hash));
    }
}
