//! Path walking, which a kernel does above its file systems, for callers without one.

use crate::{Entry, Errno, Error, FileSystem, FileType, RequestContext, Result};

/// Longest name in a directory, in bytes.
pub const NAME_LENGTH_MAX: usize = 255;
/// Longest path and longest symbolic link target, in bytes, without the final NUL.
pub const PATH_LENGTH_MAX: usize = 4095;
/// Symbolic links followed in one walk, as Linux counts them.
const LINKS_FOLLOWED_MAX: u32 = 40;

/// Checks that `name` may be given to a new entry: 1 to 255 bytes without `/` and NUL, not `.` or
/// `..`.
pub fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Errno::ENOENT.into()),
        b"." | b".." => Err(Errno::EEXIST.into()),
        _ if name.len() > NAME_LENGTH_MAX => Err(Errno::ENAMETOOLONG.into()),
        _ if name.iter().any(|&byte| byte == b'/' || byte == 0) => Err(Errno::EINVAL.into()),
        _ => Ok(()),
    }
}

/// Which of `.` and `..` a directory has listed so far.
#[derive(Debug, Default)]
pub struct Dots([bool; 2]);

/// Whether a listed name is an entry other than `.` and `..`.
///
/// # Errors
/// `EUCLEAN` for a name that no entry can have, which only a damaged image holds: `.` or `..` once more,
/// one that is empty or too long, or one with `/` or NUL.
pub fn check_listed(name: &[u8], dots: &mut Dots) -> Result<bool> {
    let dot = [&b"."[..], b".."].iter().position(|dot| *dot == name);
    let is_entry = match dot {
        Some(dot) if !std::mem::replace(&mut dots.0[dot], true) => return Ok(false),
        Some(_) => false,
        None => check_name(name).is_ok(),
    };
    if is_entry {
        return Ok(true);
    }
    let name = String::from_utf8_lossy(name);
    let detail = format!("the directory has the impossible name '{}'", name.escape_debug());
    Err(Error::with_detail(Errno::EUCLEAN, detail))
}

/// Finds the inode at `path`, from the root. A symbolic link at the end is followed if
/// `follow_last`. Gives a reference.
pub fn resolve(
    file_system: &dyn FileSystem,
    context: &RequestContext,
    path: &[u8],
    follow_last: bool,
) -> Result<Entry> {
    let mut links_followed = 0;
    let root = file_system.lookup(context, file_system.root(), b".")?;
    walk(file_system, context, root, path, follow_last, &mut links_followed)
}

/// Finds the directory that `path` ends in, and the last name of the path, which need not exist.
/// Gives a reference to the directory. `EINVAL` if the path ends in `.`, `..` or is the root.
pub fn resolve_parent<'p>(
    file_system: &dyn FileSystem,
    context: &RequestContext,
    path: &'p [u8],
) -> Result<(Entry, &'p [u8])> {
    let trimmed = trim_slashes(path);
    let split = trimmed.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let (parent, name) = trimmed.split_at(split);
    if name.is_empty() || name == b"." || name == b".." {
        return Err(Error::with_detail(
            Errno::EINVAL,
            format!("'{}' doesn't end in a name", String::from_utf8_lossy(path)),
        ));
    }
    Ok((resolve(file_system, context, parent, true)?, name))
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

/// Walks `path` from `start`, whose reference it consumes.
fn walk(
    file_system: &dyn FileSystem,
    context: &RequestContext,
    start: Entry,
    path: &[u8],
    follow_last: bool,
    links_followed: &mut u32,
) -> Result<Entry> {
    let must_be_directory = path.last() == Some(&b'/');
    let mut here = start;
    let mut names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        let next = file_system.lookup(context, here.inode, name);
        let follow = names.peek().is_some() || follow_last || must_be_directory;
        let stepped = match next {
            Ok(next) if next.file_type == FileType::Symlink && follow => {
                follow_link(file_system, context, here, next, links_followed)
            }
            Ok(next) => {
                file_system.forget(here.inode, 1);
                Ok(next)
            }
            Err(error) => {
                file_system.forget(here.inode, 1);
                Err(error)
            }
        };
        here = stepped?;
    }
    if must_be_directory && here.file_type != FileType::Directory {
        file_system.forget(here.inode, 1);
        return Err(Errno::ENOTDIR.into());
    }
    Ok(here)
}

/// Goes to the target of `link`, found in `directory`; consumes both references.
fn follow_link(
    file_system: &dyn FileSystem,
    context: &RequestContext,
    directory: Entry,
    link: Entry,
    links_followed: &mut u32,
) -> Result<Entry> {
    *links_followed += 1;
    let target = if *links_followed > LINKS_FOLLOWED_MAX {
        Err(Errno::ELOOP.into())
    } else {
        file_system.read_link(link.inode)
    };
    file_system.forget(link.inode, 1);
    let start = match &target {
        Ok(target) if target.first() == Some(&b'/') => {
            file_system.forget(directory.inode, 1);
            file_system.lookup(context, file_system.root(), b".")?
        }
        Ok(_) => directory,
        Err(_) => {
            file_system.forget(directory.inode, 1);
            directory
        }
    };
    walk(file_system, context, start, &target?, true, links_followed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_lists_its_dots_once() {
        let mut dots = Dots::default();
        for dot in [&b"."[..], b".."] {
            assert_eq!(check_listed(dot, &mut dots), Ok(false));
            assert_eq!(check_listed(dot, &mut dots).unwrap_err().errno, Errno::EUCLEAN);
        }
        assert_eq!(check_listed(b"...", &mut dots), Ok(true));
        for name in [&b""[..], b"a/b", b"a\0", &[b'n'; 256]] {
            assert_eq!(check_listed(name, &mut dots).unwrap_err().errno, Errno::EUCLEAN);
        }
    }
}
