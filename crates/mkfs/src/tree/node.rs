//! Nodes: files, directories and all else.

use super::attributes::{AttributesId, NodeMetadata};
use super::source::SourceId;
use super::{Bytes, FileTree, InodeTimestamp};

/// Names a node of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreeNodeId(std::num::NonZeroU32);

impl TreeNodeId {
    /// The root directory.
    pub const ROOT: TreeNodeId = TreeNodeId(std::num::NonZeroU32::MIN);

    pub(super) fn new(index: usize) -> Option<TreeNodeId> {
        u32::try_from(index + 1).ok().and_then(std::num::NonZeroU32::new).map(TreeNodeId)
    }

    /// A small number, below [`FileTree::node_count`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A piece of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where in the file it lies, in bytes.
    pub logical: u64,
    /// Its bytes.
    pub length: u64,
    /// Which source it comes from.
    pub source: SourceId,
    /// Which object of the source: 0 where there is but one.
    pub object: u32,
    /// Where in the object it starts.
    pub offset: u64,
}

/// The content of a file to be inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeContent {
    /// These bytes, for small content that is made up; the tree keeps them.
    Bytes(Vec<u8>),
    /// All of it lies in one place.
    Whole {
        /// Bytes of the file.
        size: u64,
        /// Which source it comes from.
        source: SourceId,
        /// Which object of the source: 0 where there is but one.
        object: u32,
        /// Where in the object it starts.
        offset: u64,
    },
    /// Pieces in order; what lies between them is a hole.
    Pieces {
        /// Bytes of the file.
        size: u64,
        /// The pieces, by rising `logical`.
        pieces: Vec<Segment>,
    },
}

/// Something to be inserted into a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeToInsert {
    /// A directory; joins one that has the name.
    Directory,
    /// A regular file.
    File(NodeContent),
    /// A symbolic link to this path.
    Symlink(Vec<u8>),
    /// A character device.
    CharacterDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind<'a> {
    /// A directory.
    Directory,
    /// A regular file of so many bytes.
    File {
        /// Bytes of the file.
        size: u64,
    },
    /// A symbolic link to this path.
    Symlink(&'a [u8]),
    /// A character device.
    CharacterDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
}

/// Where a file's data are.
#[derive(Clone, Copy, Debug)]
pub(super) enum FileData {
    /// Nowhere: the file is one hole.
    Hole,
    /// In the byte arena.
    Inline(Bytes),
    /// In one place of a source.
    Whole { source: SourceId, object: u32, offset: u64 },
    /// In pieces: a part of the list of all segments.
    Pieces { first: u32, count: u32 },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Payload {
    Directory { parent: TreeNodeId, first: u32, last: u32 },
    File { size: u64, data: FileData },
    Symlink { target: Bytes },
    CharacterDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
    Fifo,
    Socket,
}

/// A node as it is kept.
#[derive(Clone, Debug)]
pub(super) struct StoredNode {
    pub attributes: AttributesId,
    pub modified: InodeTimestamp,
    /// Names that it has; 1 for a directory.
    pub links: u32,
    pub payload: Payload,
}

/// A node of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub(super) tree: &'a FileTree,
    pub(super) id: TreeNodeId,
    pub(super) stored: &'a StoredNode,
}

impl<'a> Node<'a> {
    /// Its name in the tree.
    #[must_use]
    pub fn id(&self) -> TreeNodeId {
        self.id
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> NodeKind<'a> {
        match self.stored.payload {
            Payload::Directory { .. } => NodeKind::Directory,
            Payload::File { size, .. } => NodeKind::File { size },
            Payload::Symlink { target } => NodeKind::Symlink(&self.tree.bytes[target.range()]),
            Payload::CharacterDevice { major, minor } => NodeKind::CharacterDevice { major, minor },
            Payload::BlockDevice { major, minor } => NodeKind::BlockDevice { major, minor },
            Payload::Fifo => NodeKind::Fifo,
            Payload::Socket => NodeKind::Socket,
        }
    }

    /// Mode, owners and extended attributes.
    #[must_use]
    pub fn metadata(&self) -> &'a NodeMetadata {
        self.tree.attributes.get(self.stored.attributes)
    }

    /// Which set of attributes it has.
    #[must_use]
    pub fn attributes(&self) -> AttributesId {
        self.stored.attributes
    }

    /// When its content was last changed.
    #[must_use]
    pub fn modified(&self) -> InodeTimestamp {
        self.stored.modified
    }

    /// Names that it has; 0 when it was replaced, 1 for a directory.
    #[must_use]
    pub fn links(&self) -> u32 {
        self.stored.links
    }

    /// The content of a small file that the tree keeps itself.
    #[must_use]
    pub fn inline_bytes(&self) -> Option<&'a [u8]> {
        match self.stored.payload {
            Payload::File { data: FileData::Inline(bytes), .. } => {
                Some(&self.tree.bytes[bytes.range()])
            }
            _ => None,
        }
    }

    /// The pieces of its content that lie in sources, in order.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = Segment> + use<'a> {
        let (whole, pieces) = match self.stored.payload {
            Payload::File { size, data: FileData::Whole { source, object, offset } } => {
                (Some(Segment { logical: 0, length: size, source, object, offset }), &[][..])
            }
            Payload::File { data: FileData::Pieces { first, count }, .. } => {
                let first = first as usize;
                (None, &self.tree.segments[first..first + count as usize])
            }
            _ => (None, &[][..]),
        };
        SegmentIter { whole, pieces: pieces.iter() }
    }
}

/// Either the one piece or those of the list.
struct SegmentIter<'a> {
    whole: Option<Segment>,
    pieces: std::slice::Iter<'a, Segment>,
}

impl Iterator for SegmentIter<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        self.whole.take().or_else(|| self.pieces.next().copied())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let length = self.pieces.len() + usize::from(self.whole.is_some());
        (length, Some(length))
    }
}

impl ExactSizeIterator for SegmentIter<'_> {}
