//! Trees to be built, and what their files hold.

use drystone_mkfs::tree::{
    ContentSource, FileTree, InodeTimestamp, NodeContent, NodeMetadata, NodeToInsert, Segment,
    SourceError, SourceId, Xattr,
};

/// A source whose bytes encode their position.
#[derive(Debug)]
pub struct Pattern;

impl ContentSource for Pattern {
    fn read_at(&self, object: u32, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        for (at, byte) in (offset..).zip(buffer) {
            *byte = (at ^ at >> 8 ^ u64::from(object)) as u8 | 1;
        }
        Ok(())
    }
}

pub fn meta(permissions: u16) -> NodeMetadata {
    NodeMetadata::new(permissions, 1000, 100_000)
}

pub fn time() -> InodeTimestamp {
    InodeTimestamp { seconds: 1_700_000_000, nanoseconds: 123_456_789 }
}

pub fn whole(source: SourceId, size: u64, object: u32) -> NodeToInsert {
    NodeToInsert::File(NodeContent::Whole { size, source, object, offset: 0 })
}

/// One of everything.
pub fn varied() -> FileTree {
    let mut tree = FileTree::new();
    let source = tree.add_source(Box::new(Pattern)).unwrap();
    let mut add = |path: &str, new: NodeToInsert| {
        tree.insert(path.as_bytes(), new, &meta(0o640), time()).unwrap();
    };
    add("d/empty", whole(source, 0, 0));
    add("d/one", whole(source, 1, 1));
    add("d/large", whole(source, 9 << 20, 2));
    add("inline", NodeToInsert::File(NodeContent::Bytes(vec![7; 10_000])));
    for number in 0..300 {
        let name = format!("many/a name that is long enough {number}");
        add(&name, whole(source, number * 37, 3));
    }
    let piece = |logical, length| Segment { logical, length, source, object: 4, offset: logical };
    let pieces = (0..2000).map(|at| piece(at * 9000 + 512, 700)).collect();
    add("sparse", NodeToInsert::File(NodeContent::Pieces { size: 20 << 20, pieces }));
    let pieces = vec![piece(100, 5), piece(200, 5), piece(4095, 2), piece(600_001, 600_000)];
    add("unaligned", NodeToInsert::File(NodeContent::Pieces { size: 2 << 20, pieces }));
    add(
        "huge",
        NodeToInsert::File(NodeContent::Pieces { size: 5 << 30, pieces: vec![piece(4 << 30, 5)] }),
    );
    add("hole", NodeToInsert::File(NodeContent::Pieces { size: 20 << 30, pieces: Vec::new() }));
    add("fast", NodeToInsert::Symlink(vec![b'x'; 59]));
    add("slow", NodeToInsert::Symlink(vec![b'x'; 60]));
    add("slower", NodeToInsert::Symlink(vec![b'x'; 4000]));
    add("null", NodeToInsert::CharacterDevice { major: 1, minor: 3 });
    add("disk", NodeToInsert::BlockDevice { major: 259, minor: 70_000 });
    add("fifo", NodeToInsert::Fifo);
    add("socket", NodeToInsert::Socket);
    add("\u{1}\u{7f}\n ü", NodeToInsert::Directory);
    tree.link(b"d/other", b"d/one").unwrap();
    for number in 0..20 {
        let mut metadata = meta(0o600);
        let value = vec![b'v'; 40 + 20 * (number % 10)];
        metadata.xattrs.push(Xattr { name: b"user.a".to_vec(), value });
        metadata.xattrs.push(Xattr { name: b"security.selinux".to_vec(), value: b"t".to_vec() });
        let name = format!("x{number}");
        tree.insert(name.as_bytes(), whole(source, 5, 5), &metadata, time()).unwrap();
    }
    let mut metadata = meta(0o670);
    // user::rw-, user:5:r--, group::r--, mask::rwx, other::---
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1_u16, 6_u16, !0_u32), (2, 4, 5), (4, 4, !0), (16, 7, !0), (32, 0, !0)]
    {
        list.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()));
        list.extend(id.to_le_bytes());
    }
    metadata.xattrs.push(Xattr { name: b"system.posix_acl_access".to_vec(), value: list });
    tree.insert(b"acl", whole(source, 5, 5), &metadata, time()).unwrap();
    tree
}

/// Files with these numbers, in this order.
pub fn plain(order: [u32; 8]) -> FileTree {
    let mut tree = FileTree::new();
    let source = tree.add_source(Box::new(Pattern)).unwrap();
    for number in order {
        let path = format!("{}/{number}", number % 3);
        let mut metadata = meta(0o600 | number as u16);
        let value = vec![b'v'; 200];
        metadata.xattrs.push(Xattr { name: b"user.a".to_vec(), value });
        let new = whole(source, u64::from(number) * 300_001, number);
        tree.insert(path.as_bytes(), new, &metadata, time()).unwrap();
        for inner in 0..200 {
            let name = format!("{}/{number} and also number {inner}", number % 3);
            tree.insert(name.as_bytes(), NodeToInsert::Fifo, &metadata, time()).unwrap();
        }
    }
    tree
}

/// The content of a file as the tree has it.
pub fn content(tree: &FileTree, node: drystone_mkfs::tree::TreeNodeId, size: u64) -> Vec<u8> {
    let node = tree.node(node);
    let mut bytes = vec![0; size as usize];
    if let Some(inline) = node.inline_bytes() {
        bytes.copy_from_slice(inline);
    }
    for piece in node.segments() {
        let start = piece.logical as usize;
        let target = &mut bytes[start..start + piece.length as usize];
        tree.source(piece.source).read_at(piece.object, piece.offset, target).unwrap();
    }
    bytes
}
