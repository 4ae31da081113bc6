//! From a path to a node.
//!
//! Paths are relative to the root, whether they start with a slash or not; empty components and `.`
//! are skipped, `..` is refused: it could mean anything. A symbolic link before the last component
//! is followed inside the tree, as it would be when a layer is unpacked over another.

use super::FileTree;
use super::error::{TreeError, TreeResult};
use super::node::{NodeToInsert, Payload, TreeNodeId};
use drystone_ext4_format::dir::NAME_LENGTH_MAX;

/// A directory and a name in it; no name for the root itself.
pub(super) type PathPlace<'a> = (TreeNodeId, Option<&'a [u8]>);

/// Longest path whose missing directories are made, as of a system call. A longer one lets a few bytes of
/// an archive make any number of directories; one that lists its directories needs more bytes for each.
const IMPLYING_PATH_LENGTH_MAX: usize = 4096;

/// Symbolic links that are followed on the way to a name, as Linux has it.
const LINKS_MAX: u32 = 40;

impl FileTree {
    /// What a path names. A symbolic link is followed unless it is the last component.
    #[must_use]
    pub fn lookup(&self, path: &[u8]) -> Option<TreeNodeId> {
        match split(path).ok()? {
            (_, None) => Some(TreeNodeId::ROOT),
            (parents, Some(name)) => self.child(self.directory_of(path, parents).ok()??, name),
        }
    }

    /// The directory and the name that a path means; no name for the root. None when a directory on
    /// the way isn't there.
    pub(super) fn place<'a>(&self, path: &'a [u8]) -> TreeResult<Option<PathPlace<'a>>> {
        let (parents, name) = split(path)?;
        Ok(self.directory_of(path, parents)?.map(|directory| (directory, name)))
    }

    /// The same, but makes missing directories.
    pub(super) fn make_place<'a>(&mut self, path: &'a [u8]) -> TreeResult<PathPlace<'a>> {
        let (parents, name) = split(path)?;
        if let Some(directory) = self.directory_of(path, parents)? {
            return Ok((directory, name));
        }
        let mut links = LINKS_MAX;
        Ok((self.make_directories(path, TreeNodeId::ROOT, parents, &mut links)?, name))
    }

    /// The directory that a path leads to, also by a symbolic link at its end. What is missing is made.
    ///
    /// # Errors
    /// The path is invalid, or leads to something else.
    pub fn make_directory(&mut self, path: &[u8]) -> TreeResult<TreeNodeId> {
        check_components(path)?;
        self.make_directories(path, TreeNodeId::ROOT, path, &mut { LINKS_MAX })
    }

    fn directory_of(&self, path: &[u8], parents: &[u8]) -> TreeResult<Option<TreeNodeId>> {
        self.descend(path, TreeNodeId::ROOT, parents, &mut { LINKS_MAX })
    }

    /// Walks `below` from a directory on; `path` is for messages.
    fn descend(
        &self,
        path: &[u8],
        from: TreeNodeId,
        below: &[u8],
        links: &mut u32,
    ) -> TreeResult<Option<TreeNodeId>> {
        let mut at = start(from, below);
        for name in components(below) {
            let next = if name == b".." { self.parent(at) } else { self.child(at, name) };
            let Some(next) = next else { return Ok(None) };
            at = match self.nodes[next.index()].payload {
                Payload::Directory { .. } => next,
                Payload::Symlink { target } => {
                    count_link(path, links)?;
                    let target = &self.bytes[target.range()];
                    match self.descend(path, at, target, links)? {
                        Some(directory) => directory,
                        None => return Ok(None),
                    }
                }
                _ => return Err(TreeError::NotADirectory { path: path.to_vec() }),
            };
        }
        Ok(Some(at))
    }

    /// Walks `below` and makes what is missing, also where a symbolic link dangles.
    fn make_directories(
        &mut self,
        path: &[u8],
        from: TreeNodeId,
        below: &[u8],
        links: &mut u32,
    ) -> TreeResult<TreeNodeId> {
        let mut at = start(from, below);
        for name in components(below) {
            let next = if name == b".." { self.parent(at) } else { self.child(at, name) };
            let Some(next) = next else {
                if path.len() > IMPLYING_PATH_LENGTH_MAX {
                    let (length, length_max) = (path.len(), IMPLYING_PATH_LENGTH_MAX);
                    return Err(TreeError::PathTooLong { length, length_max });
                }
                let metadata = self.parents.clone();
                let time = self.parents_time;
                at = self.insert_in(at, name, NodeToInsert::Directory, &metadata, time)?;
                continue;
            };
            at = match self.nodes[next.index()].payload {
                Payload::Directory { .. } => next,
                Payload::Symlink { target } => {
                    count_link(path, links)?;
                    let target = self.bytes[target.range()].to_vec();
                    self.make_directories(path, at, &target, links)?
                }
                _ => return Err(TreeError::NotADirectory { path: path.to_vec() }),
            };
        }
        Ok(at)
    }
}

fn count_link(path: &[u8], links: &mut u32) -> TreeResult<()> {
    *links = links.checked_sub(1).ok_or_else(|| TreeError::Loop { path: path.to_vec() })?;
    Ok(())
}

/// An absolute path starts at the root.
fn start(from: TreeNodeId, path: &[u8]) -> TreeNodeId {
    if path.first() == Some(&b'/') { TreeNodeId::ROOT } else { from }
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// The part before the last component, and that component.
fn split(path: &[u8]) -> TreeResult<(&[u8], Option<&[u8]>)> {
    check_components(path)?;
    let mut end = path.len();
    loop {
        let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let name = &path[start..end];
        if !name.is_empty() && name != b"." {
            return Ok((&path[..start], Some(name)));
        }
        if start == 0 {
            return Ok((b"", None));
        }
        end = start - 1;
    }
}

fn check_components(path: &[u8]) -> TreeResult<()> {
    for name in components(path) {
        if name == b".." {
            let what = "`..` may not be part of a path";
            return Err(TreeError::BadPath { path: path.to_vec(), what });
        }
        check_name(name).map_err(|error| error.with_path(path))?;
    }
    Ok(())
}

/// Whether a directory can have this name.
pub(super) fn check_name(name: &[u8]) -> TreeResult<()> {
    let bad = |what| Err(TreeError::BadPath { path: name.to_vec(), what });
    if name.is_empty() || name == b"." || name == b".." {
        return bad("not a name");
    }
    if name.contains(&0) {
        return bad("a name can't hold a zero byte");
    }
    if name.contains(&b'/') {
        return bad("a name can't hold a slash");
    }
    if name.len() > NAME_LENGTH_MAX {
        return Err(TreeError::NameTooLong { path: name.to_vec(), length: name.len() });
    }
    Ok(())
}
