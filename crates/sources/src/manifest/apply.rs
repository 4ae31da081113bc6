//! Applies the lines of a manifest to the tree.

use super::{Line, New};
use crate::bytes::Shown;
use crate::host_files::HostFiles;
use crate::tar::ACCESS;
use drystone_ext4_format::acl::Acl;
use drystone_mkfs::tree::{
    FileTree, InodeTimestamp, NodeContent, NodeKind, NodeMetadata, NodeToInsert, TreeError,
    TreeNodeId, Xattr,
};
use std::path::Path;

/// Applies a line; files that it names are in `directory`.
pub(super) fn line(
    tree: &mut FileTree,
    files: &mut HostFiles,
    line: &Line,
    directory: &Path,
) -> Result<(), String> {
    let wrong = |error: TreeError| error.to_string();
    if line.removes {
        let was_there = tree.remove(&line.path).map_err(wrong)?;
        return if was_there || line.is_optional { Ok(()) } else { Err(missing(line)) };
    }
    if let Some(New::HardLink(target)) = &line.new {
        let node = tree.link(&line.path, target).map_err(wrong)?;
        change(tree, node, line);
        return Ok(());
    }
    let there = tree.lookup(&line.path);
    let Some(new) = &line.new else {
        return match there {
            Some(node) => {
                change(tree, node, line);
                Ok(())
            }
            None if line.is_optional => Ok(()),
            None => Err(missing(line)),
        };
    };
    // If it already is of this kind, unmentioned properties stay.
    if let Some(node) = there
        && is_made(new, tree.node(node).kind())
    {
        change(tree, node, line);
        return Ok(());
    }
    // A file that is there gets the content under all its names.
    if let (Some(node), New::File(Some(path))) = (there, new)
        && let NodeKind::File { .. } = tree.node(node).kind()
    {
        let content = content_of(tree, files, &directory.join(path))?;
        tree.set_content(node, content).map_err(wrong)?;
        change(tree, node, line);
        return Ok(());
    }
    let (new, mode) = make(tree, files, new, directory)?;
    let metadata = NodeMetadata::new(mode, 0, 0);
    let node = tree.insert(&line.path, new, &metadata, InodeTimestamp::default()).map_err(wrong)?;
    change(tree, node, line);
    Ok(())
}

fn missing(line: &Line) -> String {
    format!("/{} isn't there, and nothing says what it shall be (type=)", Shown(&line.path))
}

/// Whether a node already is of the kind that a line makes.
fn is_made(new: &New, kind: NodeKind<'_>) -> bool {
    match (new, kind) {
        (New::File(None), NodeKind::File { .. })
        | (New::Directory, NodeKind::Directory)
        | (New::Fifo, NodeKind::Fifo)
        | (New::Socket, NodeKind::Socket) => true,
        (New::Symlink(target), NodeKind::Symlink(there)) => *target == there,
        (New::CharacterDevice(a, b), NodeKind::CharacterDevice { major, minor })
        | (New::BlockDevice(a, b), NodeKind::BlockDevice { major, minor }) => {
            (*a, *b) == (major, minor)
        }
        _ => false,
    }
}

/// What to insert, and its default mode.
fn make(
    tree: &mut FileTree,
    files: &mut HostFiles,
    new: &New,
    directory: &Path,
) -> Result<(NodeToInsert, u16), String> {
    Ok(match new {
        New::File(None) => (NodeToInsert::File(NodeContent::Bytes(Vec::new())), 0o644),
        New::File(Some(path)) => {
            (NodeToInsert::File(content_of(tree, files, &directory.join(path))?), 0o644)
        }
        New::Directory => (NodeToInsert::Directory, 0o755),
        New::Symlink(target) => (NodeToInsert::Symlink(target.clone()), 0o777),
        New::HardLink(_) => unreachable!("links are made elsewhere"),
        &New::CharacterDevice(major, minor) => {
            (NodeToInsert::CharacterDevice { major, minor }, 0o600)
        }
        &New::BlockDevice(major, minor) => (NodeToInsert::BlockDevice { major, minor }, 0o600),
        New::Fifo => (NodeToInsert::Fifo, 0o644),
        New::Socket => (NodeToInsert::Socket, 0o755),
    })
}

fn content_of(
    tree: &mut FileTree,
    files: &mut HostFiles,
    path: &Path,
) -> Result<NodeContent, String> {
    let (content, _, _) = files.add(tree, path).map_err(|error| error.to_string())?;
    Ok(content)
}

/// Changes the properties that a line mentions.
fn change(tree: &mut FileTree, node: TreeNodeId, line: &Line) {
    let mut metadata = tree.node(node).metadata().clone();
    metadata.user = line.user.unwrap_or(metadata.user);
    metadata.group = line.group.unwrap_or(metadata.group);
    for (name, value) in &line.attributes {
        metadata.xattrs.retain(|xattr| xattr.name != *name);
        if let Some(value) = value {
            metadata.xattrs.push(Xattr { name: name.clone(), value: value.clone() });
        }
    }
    let said_list = line.attributes.iter().any(|(name, _)| name == ACCESS);
    let place = metadata.xattrs.iter_mut().find(|xattr| xattr.name == ACCESS);
    let list = place.and_then(|place| Some((Acl::from_attribute(&place.value).ok()?, place)));
    // Mode and list agree on owner, mask and others, as after chmod and setfacl.
    match (line.mode, list) {
        (Some(mode), Some((list, place))) => {
            place.value = list.with_mode(mode).to_attribute();
            metadata.permissions = mode;
        }
        (Some(mode), None) => metadata.permissions = mode,
        (None, Some((list, _))) if said_list => {
            metadata.permissions = metadata.permissions & 0o7000 | list.mode();
        }
        (None, _) => {}
    }
    tree.set_metadata(node, &metadata);
    if let Some(modified) = line.modified {
        tree.set_modified(node, modified);
    }
}
