//! What getfacl has written, restored: lists, owners, groups and set-id bits.
//!
//! # Reference
//! getfacl(1), "Output format".

use super::{change_one, read};
use crate::acl::{AclRequest, parse_additions};
use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{Intent, with_one};
use crate::location::Location;
use crate::tree::ImageTree;
use anyhow::Context;
use drystone::vfs::{SetAttributes, mode};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A file, and what it gets back.
#[derive(Debug, Default, PartialEq, Eq)]
struct Saved {
    path: Vec<u8>,
    user: Option<u32>,
    group: Option<u32>,
    /// Set-id bits and sticky bit.
    flags: u16,
    /// The entries as text.
    entries: String,
}

/// Restores what `file` holds, below `place`.
pub fn run(file: &Path, place: &Location, global: &Global) -> Outcome {
    let saved = parse(&read(file)?).map_err(anyhow::Error::msg);
    let saved = saved.with_context(|| file.display().to_string())?;
    with_one(&place.image, Intent::Change, global, |tree| {
        tree.for_each(&saved, |saved| restore(tree, &place.path, saved))
    })
}

/// Reads what getfacl has written.
fn parse(text: &[u8]) -> Result<Vec<Saved>, String> {
    let mut all: Vec<Saved> = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let wrong = |what: String| format!("line {}: {what}", index + 1);
        let field = |name: &str| line.strip_prefix(format!("# {name}: ").as_bytes());
        if let Some(path) = field("file") {
            all.push(Saved { path: unescape(path), ..Saved::default() });
            continue;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let saved =
            all.last_mut().ok_or_else(|| wrong("no '# file: ' comes before it".to_owned()))?;
        if let Some(user) = field("owner") {
            saved.user = Some(number(user).map_err(wrong)?);
        } else if let Some(group) = field("group") {
            saved.group = Some(number(group).map_err(wrong)?);
        } else if let Some(letters) = field("flags") {
            saved.flags =
                flags(letters).ok_or_else(|| wrong("isn't like '# flags: s--'".to_owned()))?;
        } else if !line.starts_with(b"#") {
            let entry = String::from_utf8_lossy(line);
            parse_additions(&entry).map_err(wrong)?;
            saved.entries += &format!("{entry}\n");
        }
    }
    match all.is_empty() {
        true => Err("there is no '# file: ' in it".to_owned()),
        false => Ok(all),
    }
}

fn number(text: &[u8]) -> Result<u32, String> {
    let text = String::from_utf8_lossy(text);
    text.parse().map_err(|_| {
        format!("'{text}' isn't a number, and names aren't known here: 'getfacl -n' writes numbers")
    })
}

/// Three letters or dashes: `s-t`.
fn flags(letters: &[u8]) -> Option<u16> {
    let bits = [(mode::SET_USER_ID, b's'), (mode::SET_GROUP_ID, b's'), (mode::STICKY, b't')];
    (letters.len() == bits.len()).then_some(())?;
    letters.iter().zip(bits).try_fold(0, |all, (letter, (bit, set))| match letter {
        b'-' => Some(all),
        letter if *letter == set => Some(all | bit),
        _ => None,
    })
}

/// The path without escapes and leading slashes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut path = Vec::new();
    let mut rest = text.trim_ascii_start();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digits =
            after.get(..3).filter(|digits| digits.iter().all(|d| matches!(d, b'0'..=b'7')));
        let value =
            digits.map(|digits| digits.iter().fold(0, |all, d| all * 8 + u16::from(d - b'0')));
        match (byte, value.and_then(|value| u8::try_from(value).ok())) {
            (b'\\', Some(value)) => {
                path.push(value);
                rest = &after[3..];
            }
            (b'\\', None) if after.first() == Some(&b'\\') => {
                path.push(b'\\');
                rest = &after[1..];
            }
            (byte, _) => path.push(byte),
        }
    }
    let first = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    path.split_off(first)
}

fn restore(tree: &ImageTree<'_>, directory: &Path, saved: &Saved) -> Outcome {
    let path = directory.join(OsStr::from_bytes(&saved.path));
    let bytes = path.as_os_str().as_bytes();
    let problem = |error| tree.error(bytes, &error);
    let set = |changes: &SetAttributes| -> anyhow::Result<()> {
        let node = tree.find(&path, true)?;
        let set = tree.file_system.set_attributes(&tree.context, node.inode(), changes);
        set.map(drop).map_err(problem)
    };
    // A change of owner takes capabilities away, also one to the same owner.
    let found = tree.find(&path, true)?;
    let user = saved.user.filter(|user| *user != found.attributes().user);
    let group = saved.group.filter(|group| *group != found.attributes().group);
    drop(found);
    if user.is_some() || group.is_some() {
        set(&SetAttributes { user, group, ..SetAttributes::default() })?;
    }
    if !saved.entries.is_empty() {
        let replace = parse_additions(&saved.entries).map_err(anyhow::Error::msg)?;
        let request = AclRequest { clear_default: true, replace, ..AclRequest::default() };
        change_one(tree, &tree.find(&path, true)?, bytes, &request)?;
    }
    let permissions = tree.find(&path, true)?.attributes().permissions & 0o777 | saved.flags;
    Ok(set(&SetAttributes { permissions: Some(permissions), ..SetAttributes::default() })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_getfacl_writes_is_read() {
        let text = b"# file: a\\012b\\\\\n# owner: 1\n# group: 2\n# flags: s-t\nuser::rwx\n\
            user:5:rwx\t#effective:r--\n\n# file: /\nother::r\n";
        let saved = parse(text).unwrap();
        assert_eq!(saved.len(), 2);
        let first = &saved[0];
        assert_eq!((&first.path[..], first.user, first.group), (&b"a\nb\\"[..], Some(1), Some(2)));
        assert_eq!((first.flags, first.entries.lines().count()), (0o5000, 2));
        assert_eq!((&saved[1].path[..], saved[1].user), (&b""[..], None));
        for (text, what) in [
            (&b""[..], "no '# file: '"),
            (b"user::rwx\n", "line 1: no '# file: '"),
            (b"# file: a\n# owner: root\n", "line 2: 'root' isn't a number"),
            (b"# file: a\n# flags: x--\n", "'# flags: s--'"),
            (b"# file: a\nuser:lisa:rwx\n", "line 2: 'user:lisa:rwx': 'lisa' isn't a number"),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(what), "{problem}");
        }
    }
}
