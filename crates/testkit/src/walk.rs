//! Walking all entries below a directory.

use std::collections::BTreeSet;

use drystone_vfs::{
    Errno, FileSystem, InodeAttributes, InodeGuard, InodeNumber, RequestContext, Result, find_path,
};

/// The path and attributes of everything below `base`, and of `base` itself (first), in the order
/// of their paths within each directory. Fails if a directory is met twice, so that a tree with
/// a loop ends.
pub fn walk(
    file_system: &dyn FileSystem,
    context: &RequestContext,
    base: &[u8],
) -> Result<Vec<(Vec<u8>, InodeAttributes)>> {
    let start = find_path(file_system, context, base, true)?;
    let trimmed = base.strip_suffix(b"/").unwrap_or(base);
    let shown = if trimmed.is_empty() { b"/" } else { trimmed };
    let mut found = vec![(shown.to_vec(), *start.attributes())];
    let mut seen = BTreeSet::from([start.inode()]);
    let mut pending = vec![(trimmed.to_vec(), start)];
    while let Some((path, directory)) = pending.pop() {
        for (path, child) in children(file_system, context, &path, directory.inode())? {
            found.push((path.clone(), *child.attributes()));
            if child.is_directory() {
                if !seen.insert(child.inode()) {
                    return Err(Errno::ELOOP.into());
                }
                pending.push((path, child));
            }
        }
    }
    Ok(found)
}

/// The entries of a directory but `.` and `..`.
fn children<'f>(
    file_system: &'f dyn FileSystem,
    context: &RequestContext,
    path: &[u8],
    directory: InodeNumber,
) -> Result<Vec<(Vec<u8>, InodeGuard<'f>)>> {
    let mut names = names(file_system, context, directory)?;
    names.retain(|name| name != b"." && name != b"..");
    names.sort();
    let mut children = Vec::with_capacity(names.len());
    for name in names {
        let child = InodeGuard::lookup(file_system, context, directory, &name)?;
        children.push(([path, b"/", &name].concat(), child));
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
