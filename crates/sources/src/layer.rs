//! Puts the entries of a tar archive into a tree, as it is or as a layer over what is there.
//!
//! A layer of an OCI image also removes things: an entry `.wh.NAME` removes `NAME` from the layers
//! below, and `.wh..wh..opq` all that they have in its directory. Neither affects what the layer
//! itself adds, whatever the order of its entries, so a layer over something is read twice: first
//! for what it removes, then for what it adds. A directory of the layer that replaces something
//! else, such as a symbolic link, is new: its whiteouts remove nothing.
//!
//! # Reference
//! OCI Image Format Specification, "Image Layer Filesystem Changeset".

use crate::archive::{Archive, Opener};
use crate::context::SourceContext;
use crate::error::Result;
use crate::input::Input;
use crate::tar::{EntryKind, TarEntry, TarError, TarProblem, TarReader, Time, WHITEOUT};
use crate::warnings::Warnings;
use drystone_mkfs::tree::{
    ContentSource, FileTree, InodeTimestamp, NodeContent, NodeKind, NodeMetadata, NodeToInsert,
    Segment, SourceError, SourceId, TreeError, TreeNodeId, Xattr,
};
use std::collections::{BTreeSet, HashSet};

/// Most bytes of an attribute's value, as Linux has it.
pub(crate) const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of an attribute's name, with its namespace.
pub(crate) const ATTRIBUTE_NAME_BYTES_MAX: usize = 255;
/// The prefix of names that hide nothing: properties of the directory, and bookkeeping of aufs.
const SPECIAL_WHITEOUT: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What names like `.wh.NAME` mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whiteouts {
    /// Nothing special.
    AreFiles,
    /// Something below is removed.
    TakeAway,
}

/// Puts an archive's entries into a tree, below the directory `at`.
pub(crate) fn add(
    tree: &mut FileTree,
    archive: Archive,
    at: &[u8],
    whiteouts: Whiteouts,
    context: &mut SourceContext,
) -> Result<()> {
    let is_layer = whiteouts == Whiteouts::TakeAway;
    let is_over_something = tree.children(TreeNodeId::ROOT).next().is_some();
    if is_layer && is_over_something {
        take_away(tree, &archive, at, &context.opener)?;
    }
    let source = tree.add_source(Box::new(ArchiveContent(archive.clone())));
    let source = source.map_err(|error| located(&archive, Vec::new(), 0, problem(&error)))?;
    let mut reader = match is_layer {
        true => TarReader::of_layer(&archive.name, &archive.input),
        false => TarReader::new(&archive.name, &archive.input),
    };
    // Targets of hard links that aufs keeps apart; only their other names are meant.
    let mut link_targets = BTreeSet::new();
    while let Some(entry) = reader.next_entry()? {
        context.opener.go_on()?;
        let (offset, path) = (entry.offset, entry.path.clone());
        let added = match base_name(&path).strip_prefix(WHITEOUT).filter(|_| is_layer) {
            Some(b"." | b"..") => {
                Err(TarProblem::Tree("hides a directory that it is in".to_owned()))
            }
            Some(_) => Ok(()),
            None => insert(tree, entry, at, source, &mut context.warnings),
        };
        if is_layer {
            link_targets.extend(special_directory(&path).map(<[u8]>::to_vec));
        }
        added.map_err(|problem| located(&archive, path, offset, problem))?;
    }
    for directory in link_targets {
        let removed = tree.remove(&below(at, &directory));
        removed.map_err(|error| located(&archive, directory, 0, problem(&error)))?;
    }
    Ok(())
}

/// The directory on a path that is bookkeeping of aufs, with which layers were once made.
fn special_directory(path: &[u8]) -> Option<&[u8]> {
    let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    let mut parents = slashes.map(|(end, _)| &path[..end]);
    parents.find(|parent| base_name(parent).starts_with(SPECIAL_WHITEOUT))
}

fn located(archive: &Archive, path: Vec<u8>, offset: u64, problem: TarProblem) -> Box<TarError> {
    let archive = archive.name.clone();
    Box::new(TarError { archive, entry: Some(path), offset, problem })
}

/// Applies the whiteouts.
fn take_away(tree: &mut FileTree, archive: &Archive, at: &[u8], opener: &Opener) -> Result<()> {
    let mut whiteouts = Vec::new();
    // Directories of the layer where something else is below: nothing below lies in them, also
    // not what a symbolic link there leads to.
    let mut new_directories = HashSet::new();
    let mut reader = TarReader::of_layer(&archive.name, &archive.input);
    while let Some(entry) = reader.next_entry()? {
        opener.go_on()?;
        if base_name(&entry.path).starts_with(WHITEOUT) {
            whiteouts.push((entry.path, entry.offset));
        } else if entry.kind == EntryKind::Directory
            && let Some(node) = tree.lookup(&below(at, &entry.path))
            && tree.parent(node).is_none()
        {
            new_directories.insert(entry.path);
        }
    }
    for (path, offset) in whiteouts {
        let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
        let mut parents = slashes.map(|(end, _)| &path[..end]);
        if !parents.any(|parent| new_directories.contains(parent)) {
            apply(tree, at, &path).map_err(|problem| located(archive, path, offset, problem))?;
        }
    }
    Ok(())
}

/// Applies one whiteout.
fn apply(tree: &mut FileTree, at: &[u8], path: &[u8]) -> std::result::Result<(), TarProblem> {
    let name = base_name(path);
    let directory = below(at, &path[..path.len() - name.len()]);
    let hidden = &name[WHITEOUT.len()..];
    if name == OPAQUE {
        if let Some(directory) = tree.lookup(&directory)
            && matches!(tree.node(directory).kind(), NodeKind::Directory)
        {
            tree.clear(directory);
        }
        return Ok(());
    }
    // What hides no name is an error when the layer's entries are added.
    if name.starts_with(SPECIAL_WHITEOUT) || matches!(hidden, b"" | b"." | b"..") {
        return Ok(());
    }
    tree.remove(&below(&directory, hidden)).map(|_| ()).map_err(|error| problem(&error))
}

fn insert(
    tree: &mut FileTree,
    entry: TarEntry,
    at: &[u8],
    source: SourceId,
    warnings: &mut Warnings,
) -> std::result::Result<(), TarProblem> {
    let path = below(at, &entry.path);
    let new = match entry.kind {
        EntryKind::HardLink(target) => {
            return match tree.link(&path, &below(at, &target)) {
                Ok(_) => Ok(()),
                Err(error) => Err(problem(&error)),
            };
        }
        EntryKind::File { size, runs } => NodeToInsert::File(match runs[..] {
            [run] if run.length == size => {
                NodeContent::Whole { size, source, object: 0, offset: run.position }
            }
            _ => {
                let pieces = runs.iter().map(|run| Segment {
                    logical: run.offset,
                    length: run.length,
                    source,
                    object: 0,
                    offset: run.position,
                });
                NodeContent::Pieces { size, pieces: pieces.collect() }
            }
        }),
        EntryKind::Directory => NodeToInsert::Directory,
        EntryKind::Symlink(target) => NodeToInsert::Symlink(target),
        EntryKind::CharacterDevice { major, minor } => {
            NodeToInsert::CharacterDevice { major, minor }
        }
        EntryKind::BlockDevice { major, minor } => NodeToInsert::BlockDevice { major, minor },
        EntryKind::Fifo => NodeToInsert::Fifo,
    };
    // Programs disagree about the mode of symbolic links; Linux has but one.
    let mode = if matches!(new, NodeToInsert::Symlink(_)) { 0o777 } else { entry.mode };
    let mut metadata = NodeMetadata::new(mode, entry.user, entry.group);
    for (name, value) in entry.attributes {
        if !can_be_kept(&name) {
            warnings.attribute_left_out(&name);
            continue;
        }
        if value.len() > ATTRIBUTE_BYTES_MAX || name.len() > ATTRIBUTE_NAME_BYTES_MAX {
            return Err(TarProblem::AttributeTooLong { name, length: value.len() });
        }
        metadata.xattrs.push(Xattr { name, value });
    }
    let Time { seconds, nanoseconds } = entry.modified;
    let modified = InodeTimestamp { seconds, nanoseconds }.clamp_to_inode(true);
    tree.insert(&path, new, &metadata, modified).map(|_| ()).map_err(|error| problem(&error))
}

/// Whether Linux has the namespace. Archives from other systems may have others.
pub(crate) fn can_be_kept(name: &[u8]) -> bool {
    let spaces = [&b"user."[..], b"trusted.", b"security."];
    spaces.iter().any(|space| name.len() > space.len() && name.starts_with(space))
        || matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default")
}

/// The error of a tree, for an entry whose name is known.
fn problem(error: &TreeError) -> TarProblem {
    let what = match error {
        TreeError::NotADirectory { .. } => "lies under something that isn't a directory".to_owned(),
        TreeError::LinkToNothing { target, .. } => {
            format!("a hard link to {}, which isn't there", crate::bytes::Shown(target))
        }
        TreeError::LinkToDirectory { target, .. } => {
            format!("a hard link to the directory {}", crate::bytes::Shown(target))
        }
        TreeError::Loop { .. } => "too many symbolic links on the way".to_owned(),
        TreeError::SymlinkLength { length, .. } => {
            format!("a symbolic link to {length} bytes: there can be 1 to 4095")
        }
        TreeError::BadPath { what, .. } => (*what).to_owned(),
        other => other.to_string(),
    };
    TarProblem::Tree(what)
}

/// A path below a directory.
pub(crate) fn below(directory: &[u8], path: &[u8]) -> Vec<u8> {
    if directory.is_empty() || directory.ends_with(b"/") {
        return [directory, path].concat();
    }
    [directory, b"/", path].concat()
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// An archive's bytes as the builder reads them.
#[derive(Debug)]
struct ArchiveContent(Archive);

impl ContentSource for ArchiveContent {
    fn read_at(
        &self,
        _object: u32,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<(), SourceError> {
        self.0.input.read_at(offset, buffer).map_err(|error| SourceError {
            path: self.0.name.clone().into_bytes(),
            problem: format!("can't read {} bytes at byte {offset}: {error}", buffer.len()),
        })
    }
}
