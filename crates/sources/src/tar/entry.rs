//! An entry of a tar archive.

use super::error::NameProblem;

/// A time as archives have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// Whole seconds since 1970, rounded down.
    pub seconds: i64,
    /// And nanoseconds, under a thousand million.
    pub nanoseconds: u32,
}

/// A run of a file's data in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRun {
    /// Where in the file, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// Where in the archive, in bytes.
    pub position: u64,
}

/// What kind of file an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file: its size, and where its data is; the rest is holes.
    File {
        /// Size with the holes.
        size: u64,
        /// Data, ascending.
        runs: Vec<DataRun>,
    },
    /// A directory.
    Directory,
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
    /// Another name of an earlier entry, whose path is given.
    HardLink(Vec<u8>),
    /// A character device.
    CharacterDevice {
        /// Kind of device.
        major: u32,
        /// Which one.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Kind of device.
        major: u32,
        /// Which one.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
}

/// Names and values of extended attributes.
pub type TarAttributes = Vec<(Vec<u8>, Vec<u8>)>;

/// An entry of a tar archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarEntry {
    /// Where its first header begins, in bytes of the uncompressed archive.
    pub offset: u64,
    /// Parts of the name joined by single slashes, without one at the start or the end, and
    /// without `.` and `..`; empty for the root.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits, with set-user-id, set-group-id and sticky.
    pub mode: u16,
    /// Owner.
    pub user: u32,
    /// Owning group.
    pub group: u32,
    /// When the content changed.
    pub modified: Time,
    /// Extended attributes by their full names, access control lists as `system.posix_acl_*`.
    pub attributes: TarAttributes,
}

/// How the name of a layer's whiteout begins; the name that it hides follows.
pub(crate) const WHITEOUT: &[u8] = b".wh.";
/// Most bytes of a part of a name.
const PART_BYTES_MAX: usize = 255;

/// The parts of a name as an image can have them: leading slashes, empty parts and `.` are left
/// out.
///
/// # Errors
/// A part is `..` or too long, or there is a NUL.
pub fn clean_path(name: &[u8]) -> Result<Vec<u8>, NameProblem> {
    clean(name, |_| PART_BYTES_MAX)
}

/// The same for an entry of a layer: what a whiteout hides may have the longest name.
pub(super) fn clean_layer_path(name: &[u8]) -> Result<Vec<u8>, NameProblem> {
    clean(name, |part| PART_BYTES_MAX + if part.starts_with(WHITEOUT) { WHITEOUT.len() } else { 0 })
}

fn clean(name: &[u8], part_bytes_max: impl Fn(&[u8]) -> usize) -> Result<Vec<u8>, NameProblem> {
    if name.contains(&0) {
        return Err(NameProblem::Nul(name.to_vec()));
    }
    let mut path = Vec::with_capacity(name.len());
    for part in name.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err(NameProblem::Parent(name.to_vec())),
            _ if part.len() > part_bytes_max(part) => {
                return Err(NameProblem::TooLong { length: part.len() });
            }
            _ => {}
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(part);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cleaned() {
        for (name, expected) in [
            ("a", "a"),
            ("./a", "a"),
            ("/a//b/./c/", "a/b/c"),
            (".", ""),
            ("./", ""),
            ("/", ""),
            ("...", "..."),
            ("a/.b", "a/.b"),
        ] {
            assert_eq!(clean_path(name.as_bytes()), Ok(expected.into()), "{name}");
        }
        for name in ["..", "a/../b", "../a", "a/.."] {
            assert!(matches!(clean_path(name.as_bytes()), Err(NameProblem::Parent(_))), "{name}");
        }
        assert!(clean_path(&[b'a'; 255]).is_ok());
        assert!(matches!(clean_path(&[b'a'; 256]), Err(NameProblem::TooLong { length: 256 })));
        assert!(matches!(clean_path(b"a\0b"), Err(NameProblem::Nul(_))));
        let whiteout = |length| [WHITEOUT, &vec![b'a'; length]].concat();
        assert_eq!(clean_layer_path(&whiteout(255)), Ok(whiteout(255)));
        for (result, expected) in [
            (clean_layer_path(&whiteout(256)), 260),
            (clean_layer_path(&[b'a'; 256]), 256),
            (clean_path(&whiteout(252)), 256),
        ] {
            assert_eq!(result, Err(NameProblem::TooLong { length: expected }));
        }
    }
}
