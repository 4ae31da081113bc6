//! The content of a tree as text, to compare.

use drystone_mkfs::tree::{FileTree, NodeKind, TreeNodeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// A line for each path; hard links name the first path of their file.
pub type Listing = BTreeMap<String, String>;

/// What the listing includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Nanoseconds of times.
    pub nanoseconds: bool,
    /// Extended attributes.
    pub attributes: bool,
    /// Where data is and where holes are.
    pub holes: bool,
}

pub const ALL: Detail = Detail { nanoseconds: true, attributes: true, holes: true };

pub fn list(tree: &FileTree, detail: Detail) -> Listing {
    let mut paths: Vec<(Vec<u8>, TreeNodeId)> = vec![(Vec::new(), TreeNodeId::ROOT)];
    let mut directories = paths.clone();
    while let Some((path, directory)) = directories.pop() {
        for (name, node) in tree.children(directory) {
            let path = [&path[..], b"/", name].concat();
            if tree.parent(node).is_some() {
                directories.push((path.clone(), node));
            }
            paths.push((path, node));
        }
    }
    paths.sort();
    let mut first = HashMap::new();
    let mut listing = Listing::new();
    for (path, node) in paths {
        let path = path.escape_ascii().to_string();
        let text = match first.get(&node) {
            Some(other) => format!("as {other}"),
            None => describe(tree, node, detail),
        };
        first.entry(node).or_insert_with(|| path.clone());
        listing.insert(path, text);
    }
    listing
}

fn describe(tree: &FileTree, id: TreeNodeId, detail: Detail) -> String {
    let node = tree.node(id);
    let metadata = node.metadata();
    let mut text = match node.kind() {
        NodeKind::File { size } => {
            let content = content(tree, id);
            let sum =
                content.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
            format!("file of {size} bytes, sum {sum:x}")
        }
        other => format!("{other:?}"),
    };
    let (mode, user, group) = (metadata.permissions, metadata.user, metadata.group);
    let time = node.modified();
    let _ = write!(text, ", {mode:o} {user}:{group} at {}", time.seconds);
    if detail.nanoseconds {
        let _ = write!(text, ".{:09}", time.nanoseconds);
    }
    if detail.attributes {
        for xattr in &metadata.xattrs {
            let (name, value) = (xattr.name.escape_ascii(), xattr.value.escape_ascii());
            let _ = write!(text, ", {name}={value}");
        }
    }
    if detail.holes {
        let whole = |segment: drystone_mkfs::tree::Segment| segment.logical == 0;
        let segments: Vec<_> = node.segments().collect();
        if segments.len() != 1 || !whole(segments[0]) {
            for segment in segments {
                let _ = write!(text, ", data {}+{}", segment.logical, segment.length);
            }
        }
    }
    text
}

/// All bytes of a file.
pub fn content(tree: &FileTree, id: TreeNodeId) -> Vec<u8> {
    let node = tree.node(id);
    let NodeKind::File { size } = node.kind() else { panic!("no file") };
    let mut bytes = vec![0; size as usize];
    if let Some(inline) = node.inline_bytes() {
        return inline.to_vec();
    }
    for segment in node.segments() {
        let start = segment.logical as usize;
        let target = &mut bytes[start..start + segment.length as usize];
        let source = tree.source(segment.source);
        source.read_at(segment.object, segment.offset, target).expect("data is there");
    }
    bytes
}
