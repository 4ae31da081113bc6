//! Trees built into memory and judged.

use super::*;
use crate::tree::{Content, Metadata, NewNode, Segment, SourceError, Timestamp, Xattr};
use drystone_blockdev::MemoryDevice;
use std::process::Command;

/// A source of bytes that tell their place.
#[derive(Debug)]
struct Pattern;

impl crate::tree::ContentSource for Pattern {
    fn read_at(&self, object: u32, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        for (at, byte) in (offset..).zip(buffer) {
            *byte = (at ^ at >> 8 ^ u64::from(object)) as u8 | 1;
        }
        Ok(())
    }
}

type Result<T, E = crate::error::Error> = std::result::Result<T, E>;

fn meta(permissions: u16) -> Metadata {
    Metadata::new(permissions, 1000, 100_000)
}

fn time() -> Timestamp {
    Timestamp { seconds: 1_700_000_000, nanoseconds: 123_456_789 }
}

fn build(tree: &mut Tree, options: &BuildOptions) -> MemoryDevice {
    let builder = Builder::new(tree, options).unwrap();
    let device = MemoryDevice::new(builder.size_bytes());
    builder.write(&device, true, &()).unwrap();
    device
}

/// Lets e2fsck judge an image.
fn judge(device: &MemoryDevice) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, device.to_vec()).unwrap();
    let Ok(output) = Command::new("e2fsck").arg("-fn").arg(&path).output() else {
        eprintln!("SKIPPED: e2fsck can't be run");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn varied() -> Tree {
    let mut tree = Tree::new();
    let source = tree.add_source(Box::new(Pattern));
    let mut add = |path: &str, new: NewNode| {
        tree.insert(path.as_bytes(), new, &meta(0o640), time()).unwrap();
    };
    let whole = |size, object| NewNode::File(Content::Whole { size, source, object, offset: 0 });
    add("d/empty", whole(0, 0));
    add("d/one", whole(1, 1));
    add("d/large", whole(9 << 20, 2));
    add("inline", NewNode::File(Content::Bytes(vec![7; 10_000])));
    for number in 0..300 {
        add(&format!("many/a name that is long enough {number}"), whole(number * 37, 3));
    }
    let piece = |logical, length| Segment { logical, length, source, object: 4, offset: logical };
    let pieces: Vec<Segment> = (0..2000).map(|at| piece(at * 9000 + 512, 700)).collect();
    add("sparse", NewNode::File(Content::Pieces { size: 20 << 20, pieces }));
    add("huge", NewNode::File(Content::Pieces { size: 5 << 30, pieces: vec![piece(4 << 30, 5)] }));
    add("fast", NewNode::Symlink(vec![b'x'; 59]));
    add("slow", NewNode::Symlink(vec![b'x'; 60]));
    add("slower", NewNode::Symlink(vec![b'x'; 4000]));
    add("null", NewNode::CharacterDevice { major: 1, minor: 3 });
    add("disk", NewNode::BlockDevice { major: 259, minor: 70_000 });
    add("fifo", NewNode::Fifo);
    add("socket", NewNode::Socket);
    tree.link(b"d/other", b"d/one").unwrap();
    for number in 0..20 {
        let mut metadata = meta(0o600);
        let value = vec![b'v'; 40 + 20 * (number % 10)];
        metadata.xattrs.push(Xattr { name: b"user.a".to_vec(), value });
        metadata.xattrs.push(Xattr { name: b"security.selinux".to_vec(), value: b"t".to_vec() });
        let name = format!("x{number}");
        tree.insert(name.as_bytes(), whole(5, 5), &metadata, time()).unwrap();
    }
    tree
}

#[test]
fn a_tree_of_everything_is_clean() {
    judge(&build(&mut varied(), &BuildOptions::default()));
}
