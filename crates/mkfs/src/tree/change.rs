//! Inserting, linking, removing; the last one wins.

use super::attributes::NodeMetadata;
use super::error::{TreeError, TreeResult};
use super::node::{FileData, NodeContent, NodeToInsert, Payload, Segment, StoredNode, TreeNodeId};
use super::path::check_name;
use super::{Entry, FileTree, InodeTimestamp, NONE};

/// Longest target of a symbolic link, in bytes, as Linux has it.
const SYMLINK_LENGTH_MAX: usize = 4095;

impl FileTree {
    /// Inserts something by path. It replaces whatever has the name, with everything below; only a
    /// directory that is inserted over a directory keeps the entries and changes the metadata.
    /// Missing parent directories are made. The root's own path changes its metadata.
    ///
    /// # Errors
    /// The path is invalid or passes through something that isn't a directory; or the content is
    /// malformed.
    pub fn insert(
        &mut self,
        path: &[u8],
        new: NodeToInsert,
        metadata: &NodeMetadata,
        modified: InodeTimestamp,
    ) -> TreeResult<TreeNodeId> {
        match self.make_place(path)? {
            (directory, Some(name)) => self
                .insert_in(directory, name, new, metadata, modified)
                .map_err(|error| error.with_path(path)),
            (root, None) if new == NodeToInsert::Directory => {
                self.set_metadata(root, metadata);
                self.set_modified(root, modified);
                Ok(root)
            }
            _ => Err(TreeError::BadPath { path: path.to_vec(), what: "the root is a directory" }),
        }
    }

    /// Inserts something into a directory; see [`insert`](FileTree::insert).
    ///
    /// # Errors
    /// The name is invalid, or the content is malformed.
    ///
    /// # Panics
    /// If `directory` is none.
    pub fn insert_in(
        &mut self,
        directory: TreeNodeId,
        name: &[u8],
        new: NodeToInsert,
        metadata: &NodeMetadata,
        modified: InodeTimestamp,
    ) -> TreeResult<TreeNodeId> {
        check_name(name)?;
        let attributes = self.attributes.intern(metadata);
        let entry = self.find(directory, name);
        if new == NodeToInsert::Directory
            && let Some(node) = entry.and_then(|entry| self.entries[entry as usize].node)
            && self.parent(node).is_some()
        {
            let stored = &mut self.nodes[node.index()];
            stored.attributes = attributes;
            stored.modified = modified;
            return Ok(node);
        }
        let payload = self.payload(directory, name, new)?;
        let node = TreeNodeId::new(self.nodes.len()).ok_or(TreeError::TooMuch { what: "files" })?;
        self.nodes.push(StoredNode { attributes, modified, links: 1, payload });
        self.name(directory, name, entry, node)?;
        Ok(node)
    }

    /// Gives another name to what `target` names, as a hard link does.
    ///
    /// # Errors
    /// There is no such target, it is a directory, or the path is invalid.
    pub fn link(&mut self, path: &[u8], target: &[u8]) -> TreeResult<TreeNodeId> {
        let Some(node) = self.lookup(target) else {
            return Err(TreeError::LinkToNothing { path: path.to_vec(), target: target.to_vec() });
        };
        if self.parent(node).is_some() {
            return Err(TreeError::LinkToDirectory {
                path: path.to_vec(),
                target: target.to_vec(),
            });
        }
        match self.make_place(path)? {
            (directory, Some(name)) => self
                .link_in(directory, name, node)
                .map_err(|error| error.with_path(path))
                .map(|()| node),
            _ => Err(TreeError::BadPath { path: path.to_vec(), what: "the root is a directory" }),
        }
    }

    /// Gives another name in `directory` to a node that isn't a directory.
    ///
    /// # Errors
    /// The name can't be.
    ///
    /// # Panics
    /// If `directory` is none, or `node` is one.
    pub fn link_in(
        &mut self,
        directory: TreeNodeId,
        name: &[u8],
        node: TreeNodeId,
    ) -> TreeResult<()> {
        check_name(name)?;
        assert!(self.parent(node).is_none(), "a directory has one name");
        let entry = self.find(directory, name);
        if entry.is_some_and(|entry| self.entries[entry as usize].node == Some(node)) {
            return Ok(());
        }
        self.nodes[node.index()].links += 1;
        self.name(directory, name, entry, node)
    }

    /// Removes what a path names, with everything below. Returns whether it existed.
    ///
    /// # Errors
    /// The path is invalid, or is the root.
    pub fn remove(&mut self, path: &[u8]) -> TreeResult<bool> {
        match self.place(path)? {
            Some((directory, Some(name))) => Ok(self.remove_in(directory, name)),
            Some((_, None)) => {
                Err(TreeError::BadPath { path: path.to_vec(), what: "the root can't be removed" })
            }
            None => Ok(false),
        }
    }

    /// Removes a name from a directory, with everything below. Returns whether it existed.
    pub fn remove_in(&mut self, directory: TreeNodeId, name: &[u8]) -> bool {
        let Some(at) = self.find(directory, name) else { return false };
        let hash = self.hash(directory, name);
        if let Ok(slot) = self.index.find_entry(hash, |&other| other == at) {
            slot.remove();
        }
        if let Some(node) = self.entries[at as usize].node.take() {
            self.unlink(node);
        }
        true
    }

    /// Removes everything in a directory.
    pub fn clear(&mut self, directory: TreeNodeId) {
        let mut emptied = vec![directory];
        while let Some(directory) = emptied.pop() {
            let Payload::Directory { parent, first, .. } = self.nodes[directory.index()].payload
            else {
                continue;
            };
            self.nodes[directory.index()].payload =
                Payload::Directory { parent, first: NONE, last: NONE };
            let mut at = first;
            while at != NONE {
                let entry = self.entries[at as usize];
                if let Some(node) = entry.node {
                    let hash = self.hash(directory, &self.bytes[entry.name.range()]);
                    if let Ok(slot) = self.index.find_entry(hash, |&other| other == at) {
                        slot.remove();
                    }
                    self.entries[at as usize].node = None;
                    let stored = &mut self.nodes[node.index()];
                    stored.links -= 1;
                    if matches!(stored.payload, Payload::Directory { .. }) {
                        emptied.push(node);
                    }
                }
                at = entry.next;
            }
        }
    }

    /// Gives a node, under all its names, another mode, owner and extended attributes.
    pub fn set_metadata(&mut self, node: TreeNodeId, metadata: &NodeMetadata) {
        self.nodes[node.index()].attributes = self.attributes.intern(metadata);
    }

    /// Gives a regular file, under all its names, another content.
    ///
    /// # Errors
    /// The content is malformed.
    ///
    /// # Panics
    /// If the node is no regular file.
    pub fn set_content(&mut self, node: TreeNodeId, content: NodeContent) -> TreeResult<()> {
        let is_file = matches!(self.nodes[node.index()].payload, Payload::File { .. });
        assert!(is_file, "only regular files have content");
        let payload = self.file(b"", content).map_err(|error| match error {
            TreeError::Segments { .. } => TreeError::Segments { path: self.path_of(node) },
            other => other,
        })?;
        self.nodes[node.index()].payload = payload;
        Ok(())
    }

    /// Gives a node another time.
    pub fn set_modified(&mut self, node: TreeNodeId, modified: InodeTimestamp) {
        self.nodes[node.index()].modified = modified;
    }

    /// Changes the metadata of all nodes at once: owners that are mapped, say. `change` is called once
    /// for each distinct set and sees nothing else.
    pub fn change_metadata(&mut self, change: impl FnMut(&mut NodeMetadata)) {
        self.attributes.change(change);
    }

    /// Makes no time later than `latest`.
    pub fn clamp_times(&mut self, latest: InodeTimestamp) {
        for stored in &mut self.nodes {
            stored.modified = stored.modified.min(latest);
        }
    }

    /// Makes a name refer to `node`: the existing `entry`, or a new one at the end of the
    /// directory.
    fn name(
        &mut self,
        directory: TreeNodeId,
        name: &[u8],
        entry: Option<u32>,
        node: TreeNodeId,
    ) -> TreeResult<()> {
        if let Some(entry) = entry {
            if let Some(old) = self.entries[entry as usize].node.replace(node) {
                self.unlink(old);
            }
            return Ok(());
        }
        let at = u32::try_from(self.entries.len())
            .ok()
            .filter(|&at| at != NONE)
            .ok_or(TreeError::TooMuch { what: "names" })?;
        let stored = self.store(name)?;
        let Payload::Directory { first, last, .. } = &mut self.nodes[directory.index()].payload
        else {
            panic!("names lie in directories: the caller has checked");
        };
        let before = std::mem::replace(last, at);
        if *first == NONE {
            *first = at;
        }
        if before != NONE {
            self.entries[before as usize].next = at;
        }
        self.entries.push(Entry { directory, node: Some(node), next: NONE, name: stored });
        let FileTree { index, entries, bytes, hasher, .. } = self;
        let hash_of = |at: &u32| {
            let entry = entries[*at as usize];
            super::hash_name(hasher, entry.directory, &bytes[entry.name.range()])
        };
        index.insert_unique(super::hash_name(hasher, directory, name), at, hash_of);
        Ok(())
    }

    /// A node has lost a name.
    fn unlink(&mut self, node: TreeNodeId) {
        self.nodes[node.index()].links -= 1;
        self.clear(node);
    }

    fn payload(
        &mut self,
        directory: TreeNodeId,
        name: &[u8],
        new: NodeToInsert,
    ) -> TreeResult<Payload> {
        Ok(match new {
            NodeToInsert::Directory => {
                Payload::Directory { parent: directory, first: NONE, last: NONE }
            }
            NodeToInsert::File(content) => self.file(name, content)?,
            NodeToInsert::Symlink(target) => {
                let length = target.len();
                if length == 0 || length > SYMLINK_LENGTH_MAX {
                    return Err(TreeError::SymlinkLength { path: name.to_vec(), length });
                }
                if target.contains(&0) {
                    let what = "the target of a symbolic link can't hold a zero byte";
                    return Err(TreeError::BadPath { path: name.to_vec(), what });
                }
                Payload::Symlink { target: self.store(&target)? }
            }
            NodeToInsert::CharacterDevice { major, minor } => {
                Payload::CharacterDevice { major, minor }
            }
            NodeToInsert::BlockDevice { major, minor } => Payload::BlockDevice { major, minor },
            NodeToInsert::Fifo => Payload::Fifo,
            NodeToInsert::Socket => Payload::Socket,
        })
    }

    fn file(&mut self, name: &[u8], content: NodeContent) -> TreeResult<Payload> {
        let (size, data) = match content {
            NodeContent::Bytes(bytes) if bytes.is_empty() => (0, FileData::Hole),
            NodeContent::Bytes(bytes) => {
                (bytes.len() as u64, FileData::Inline(self.store(&bytes)?))
            }
            NodeContent::Whole { size: 0, .. } => (0, FileData::Hole),
            NodeContent::Whole { size, source, object, offset } => {
                (size, FileData::Whole { source, object, offset })
            }
            NodeContent::Pieces { size, pieces } => (size, self.pieces(name, size, &pieces)?),
        };
        Ok(Payload::File { size, data })
    }

    fn pieces(&mut self, name: &[u8], size: u64, pieces: &[Segment]) -> TreeResult<FileData> {
        let wrong = || TreeError::Segments { path: name.to_vec() };
        let first = self.segments.len();
        let mut end = 0;
        for piece in pieces.iter().filter(|piece| piece.length > 0) {
            if piece.logical < end {
                return Err(wrong());
            }
            end = piece.logical.checked_add(piece.length).ok_or_else(wrong)?;
            self.segments.push(*piece);
        }
        if end > size {
            return Err(wrong());
        }
        let count = self.segments.len() - first;
        let too_much = |_| TreeError::TooMuch { what: "pieces of files" };
        Ok(match count {
            0 => FileData::Hole,
            _ => FileData::Pieces {
                first: u32::try_from(first).map_err(too_much)?,
                count: u32::try_from(count).map_err(too_much)?,
            },
        })
    }
}
