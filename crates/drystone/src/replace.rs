//! Puts a new entry in the place of an old one, which stays if the new one can't be made.

use drystone_vfs::{
    Errno, Error, FileSystem, InodeGuard, InodeNumber, NewNode, RenameFlags, RequestContext, Result,
};

/// Makes an entry in place of the one called `name` in `directory`. The old entry must not be a
/// directory, nor a name of the inode that the new entry gets. `make` makes the new one under a free
/// name; it is then renamed over the old one.
///
/// # Errors
///
/// Those of `make`, and of renaming. The old entry is untouched then.
pub fn replace<'f>(
    file_system: &'f dyn FileSystem,
    context: &RequestContext,
    directory: InodeNumber,
    name: &[u8],
    make: &dyn Fn(&[u8]) -> Result<InodeGuard<'f>>,
) -> Result<InodeGuard<'f>> {
    let is_taken = |error: &Error| error.errno == Errno::EEXIST;
    let (other, made) = under_free_name(|other| make(other.as_bytes()), is_taken)?;
    settle(file_system, context, directory, other.as_bytes(), name, Ok(()))?;
    Ok(made)
}

/// Renames a new entry that isn't a directory to its name once it is complete. Otherwise the new entry goes, and what
/// is there stays.
pub(crate) fn settle(
    file_system: &dyn FileSystem,
    context: &RequestContext,
    directory: InodeNumber,
    made_as: &[u8],
    name: &[u8],
    completed: Result<()>,
) -> Result<()> {
    let flags = RenameFlags::empty();
    let settled = completed.and_then(|()| match made_as == name {
        true => Ok(()),
        false => file_system.rename(context, directory, made_as, directory, name, flags),
    });
    if settled.is_err() {
        // What went wrong before is what is told.
        let _ = file_system.unlink(context, directory, made_as);
    }
    settled
}

/// Makes an entry under `name`, or under a free name if something has it. Returns which name that is.
pub(crate) fn beside<'f>(
    name: &[u8],
    make: impl Fn(&[u8]) -> Result<InodeGuard<'f>>,
) -> Result<(Vec<u8>, InodeGuard<'f>)> {
    let is_taken = |error: &Error| error.errno == Errno::EEXIST;
    match make(name) {
        Err(error) if is_taken(&error) => {
            let (free, made) = under_free_name(|free| make(free.as_bytes()), is_taken)?;
            Ok((free.into_bytes(), made))
        }
        made => Ok((name.to_vec(), made?)),
    }
}

/// The permissions of a new inode until it is complete: nobody but its owner may use it.
pub(crate) fn private_permissions(node: NewNode<'_>) -> u16 {
    match node {
        NewNode::Symlink(_) => 0o777,
        NewNode::Directory => 0o700,
        _ => 0o600,
    }
}

/// Makes an entry under a name that nothing has, and returns that name.
pub(crate) fn under_free_name<T, E>(
    make: impl Fn(&str) -> std::result::Result<T, E>,
    is_taken: impl Fn(&E) -> bool,
) -> std::result::Result<(String, T), E> {
    let process = std::process::id();
    let mut number = 0_u32;
    loop {
        let name = format!(".drystone-{process}-{number}.part");
        match make(&name) {
            Err(error) if is_taken(&error) => number += 1,
            made => return made.map(|made| (name, made)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_testkit::model::{Configuration, MemoryFileSystem};

    #[test]
    fn what_is_replaced_stays_if_that_fails() {
        let image = MemoryFileSystem::new(Configuration::default());
        let context = RequestContext::superuser();
        let root = image.root();
        let create = |name: &[u8], node: NewNode<'_>, mode: u16| {
            InodeGuard::create(&image, &context, root, name, node, mode)
        };
        let old = create(b"a", NewNode::Regular, 0o644).unwrap().inode();
        let directory = create(b"d", NewNode::Directory, 0o755).unwrap().inode();
        let put = |name: &[u8], target: &[u8]| {
            replace(&image, &context, root, name, &|name| {
                create(name, NewNode::Symlink(target), 0o777)
            })
        };
        assert!(put(b"a", b"").is_err());
        assert!(put(b"d", b"target").is_err());
        let mut names = Vec::new();
        let listed = image.read_directory(&context, root, 0, &mut |entry| {
            names.push((entry.name.to_vec(), entry.inode));
            true
        });
        listed.unwrap();
        names.retain(|(name, _)| !name.starts_with(b".") || name.len() > 2);
        names.sort();
        assert_eq!(names, [(b"a".to_vec(), old), (b"d".to_vec(), directory)]);
        let made = put(b"a", b"target").unwrap().inode();
        assert_eq!(InodeGuard::lookup(&image, &context, root, b"a").unwrap().inode(), made);
        assert_eq!(image.references(), 0);
    }
}
