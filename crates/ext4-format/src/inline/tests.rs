//! Inline directories, changed and expanded.

use super::*;

const OWN: InodeNumber = InodeNumber::new(12);

fn layout() -> DirectoryLayout {
    DirectoryLayout {
        file_type: true,
        checksum: None,
        encrypted: false,
        casefolded: false,
        inode_last: InodeNumber::new(100),
    }
}

fn entry(name: &[u8]) -> NewEntry<'_> {
    let inode = InodeNumber::new(20);
    NewEntry { name, inode, entry_type: EntryType::Regular, hash: None }
}

#[test]
fn contents_survive_in_two_pieces() {
    let contents: Vec<u8> = (0..100).collect();
    let (head, rest) = split(&contents);
    let data = InlineData::check(&head, Some(&rest), 100, OWN).unwrap();
    assert_eq!(data.to_vec(), contents);
    let mut part = [0; 10];
    assert_eq!(data.read(55, &mut part), 10);
    assert_eq!(part[..], contents[55..65]);
    assert_eq!(data.read(95, &mut part), 5);
    assert_eq!(data.read(u64::MAX, &mut part), 0);
    assert!(InlineData::check(&head, Some(&rest), 101, OWN).is_err());
    assert!(InlineData::check(&head, Some(&rest), u64::MAX, OWN).is_err());
    assert!(InlineData::check(&head, None, 5, OWN).is_err());
}

#[test]
fn entries_fill_both_pieces() {
    let mut head = init_directory(InodeNumber::ROOT, &layout());
    let mut rest = Vec::new();
    let mut directory = InlineDirectoryMut::trusted(&mut head, &mut rest, &layout());
    assert_eq!(directory.insert(&entry(b"first name of 24 bytes..")), Ok(4));
    assert_eq!(directory.insert(&entry(b"second name")), Ok(36));
    assert_eq!(directory.insert(&entry(b"third")), Err(NoRoom));
    extend_piece(&mut rest, 24, &layout());
    let mut directory = InlineDirectoryMut::trusted(&mut head, &mut rest, &layout());
    assert_eq!(directory.insert(&entry(b"third")), Ok(60));
    directory.set_target(60, InodeNumber::new(21), EntryType::Fifo).unwrap();
    directory.remove(4).unwrap();
    directory.set_parent(InodeNumber::new(3));
    assert_eq!(directory.remove(3), Err(NoEntry));
    let view = InlineDirectory::check(&head, &rest, &layout(), OWN).unwrap();
    let names: Vec<_> = view.entries().map(|e| (e.offset, e.name, e.inode.get())).collect();
    assert_eq!(names, [(36, &b"second name"[..], 20), (60, b"third", 21)]);
    assert_eq!(view.parent(), InodeNumber::new(3));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_a_directory_or_an_error(
        head in proptest::array::uniform32(0_u8..30),
        rest in proptest::collection::vec(0_u8..30, 0..64),
    ) {
        let mut whole = [0; HEAD_LENGTH];
        whole[..32].copy_from_slice(&head);
        let _ = InlineDirectory::check(&whole, &rest, &layout(), OWN);
        let mut rest = rest;
        let mut directory = InlineDirectoryMut::trusted(&mut whole, &mut rest, &layout());
        let _ = directory.insert(&entry(b"x"));
        let offsets: Vec<_> = directory.view().entries().map(|e| e.offset).collect();
        for offset in offsets {
            let _ = directory.remove(offset);
        }
    }
}
