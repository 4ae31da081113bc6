//! Walking all entries below a directory.

use std::collections::BTreeSet;

use drystone_vfs::{
    Errno, FileSystem, FileType, InodeAttributes, InodeNumber, RequestContext, Result, resolve,
};

/// The path and attributes of everything below `base`, and of `base` itself (first), in the order
/// of their paths within each directory. Fails if a directory is met twice, so that a tree with
/// a loop ends.
pub fn walk(
    file_system: &dyn FileSystem,
    context: &RequestContext,
    base: &[u8],
) -> Result<Vec<(Vec<u8>, InodeAttributes)>> {
    let start = resolve(file_system, context, base, true)?;
    let trimmed = base.strip_suffix(b"/").unwrap_or(base);
    let mut found =
        vec![(if trimmed.is_empty() { b"/".to_vec() } else { trimmed.to_vec() }, start)];
    let mut seen = BTreeSet::from([start.inode]);
    let mut pending = vec![(trimmed.to_vec(), start.inode)];
    let mut result = Ok(());
    while let Some((path, directory)) = pending.pop() {
        if result.is_ok() {
            result = children(file_system, context, &path, directory).and_then(|children| {
                for (path, attributes) in children {
                    if attributes.file_type == FileType::Directory {
                        if !seen.insert(attributes.inode) {
                            return Err(Errno::ELOOP.into());
                        }
                        pending.push((path.clone(), attributes.inode));
                    } else {
                        file_system.forget(attributes.inode, 1);
                    }
                    found.push((path, attributes));
                }
                Ok(())
            });
        }
        file_system.forget(directory, 1);
    }
    result.map(|()| found)
}

/// The entries of a directory but `.` and `..`, each with a reference.
fn children(
    file_system: &dyn FileSystem,
    context: &RequestContext,
    path: &[u8],
    directory: InodeNumber,
) -> Result<Vec<(Vec<u8>, InodeAttributes)>> {
    let mut names = names(file_system, context, directory)?;
    names.retain(|name| name != b"." && name != b"..");
    names.sort();
    let mut children = Vec::with_capacity(names.len());
    for name in names {
        let attributes = file_system.lookup(context, directory, &name)?;
        children.push(([path, b"/", &name].concat(), attributes));
    }
    Ok(children)
}

/// All names in a directory, in the order of the listing, `.` and `..` among them.
pub fn names(
    file_system: &dyn FileSystem,
    context: &RequestContext,
    directory: InodeNumber,
) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    file_system.read_directory(context, directory, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })?;
    Ok(names)
}
