//! Names of users and groups, as an image has them in `/etc/passwd` and `/etc/group`.
//!
//! The files may be damaged or hostile. Only the start of a large one is read, lines without a name and a
//! number are left out, and so are names that are very long or would pass for numbers. A file that can't be
//! read has no names. Names are bytes, to be escaped where they are printed.
//!
//! # Reference
//! passwd(5), group(5)

use drystone::Fs;
use drystone::vfs::{InodeAttributes, parse_id};
use std::collections::HashMap;
use std::io::Read;

/// What is read of each file: a hundred thousand users.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The longest name, as `LOGIN_NAME_MAX` has it.
const NAME_BYTES_MAX: usize = 255;

/// The users and groups that an image has names for.
#[derive(Debug, Default)]
pub struct AccountNames {
    users: AccountTable,
    groups: AccountTable,
}

/// A line of one of the files.
#[derive(Debug)]
struct Account {
    name: Box<[u8]>,
    id: u32,
    /// The field behind the number: of a user, the login group.
    next: Option<u32>,
}

/// One of the files, in its order. As for the C library, the first line with a name or a number counts.
#[derive(Debug, Default)]
struct AccountTable {
    accounts: Vec<Account>,
    by_id: HashMap<u32, usize>,
}

impl AccountTable {
    fn read(fs: &Fs<'_>, path: &str) -> AccountTable {
        let mut text = Vec::new();
        let read = fs.open(path).is_ok_and(|file| {
            // A directory can be opened, but not read.
            file.take(FILE_BYTES_MAX).read_to_end(&mut text).is_ok()
        });
        if read { AccountTable::parse(&text) } else { AccountTable::default() }
    }

    fn parse(text: &[u8]) -> AccountTable {
        let mut table = AccountTable::default();
        // The last line of a file that is too large may lack digits.
        let whole = match text.len() as u64 {
            FILE_BYTES_MAX => text.iter().rposition(|&byte| byte == b'\n').unwrap_or(0),
            _ => text.len(),
        };
        for line in text[..whole].split(|&byte| byte == b'\n') {
            let mut fields = line.split(|&byte| byte == b':');
            let (Some(name), Some(id)) = (fields.next(), fields.nth(1).and_then(parse_id)) else {
                continue;
            };
            if name.is_empty() || name.len() > NAME_BYTES_MAX || parse_id(name).is_some() {
                continue;
            }
            table.by_id.entry(id).or_insert(table.accounts.len());
            let next = fields.next().and_then(parse_id);
            table.accounts.push(Account { name: name.into(), id, next });
        }
        table
    }

    fn with_id(&self, id: u32) -> Option<&Account> {
        self.by_id.get(&id).map(|&at| &self.accounts[at])
    }

    fn with_name(&self, name: &[u8]) -> Option<&Account> {
        self.accounts.iter().find(|account| *account.name == *name)
    }
}

impl AccountNames {
    /// The names that an image has.
    pub fn of_image(fs: &Fs<'_>) -> AccountNames {
        AccountNames {
            users: AccountTable::read(fs, "/etc/passwd"),
            groups: AccountTable::read(fs, "/etc/group"),
        }
    }

    /// The name of a user, if it has one.
    fn user_name(&self, id: u32) -> Option<&[u8]> {
        self.users.with_id(id).map(|account| &*account.name)
    }

    /// The name of a group, if it has one.
    fn group_name(&self, id: u32) -> Option<&[u8]> {
        self.groups.with_id(id).map(|account| &*account.name)
    }

    /// The names of the owners of a file, if they have any.
    pub fn owners(&self, attributes: &InodeAttributes) -> [Option<&[u8]>; 2] {
        [self.user_name(attributes.user), self.group_name(attributes.group)]
    }

    /// The number of a user, who may be given by a number.
    pub fn user_id(&self, name: &str) -> Result<u32, String> {
        let named = || self.users.with_name(name.as_bytes()).map(|account| account.id);
        let id = parse_id(name.as_bytes()).or_else(named);
        id.ok_or_else(|| format!("/etc/passwd of the image has no user '{name}'"))
    }

    /// The number of a group, which may be given by a number.
    pub fn group_id(&self, name: &str) -> Result<u32, String> {
        let named = || self.groups.with_name(name.as_bytes()).map(|account| account.id);
        let id = parse_id(name.as_bytes()).or_else(named);
        id.ok_or_else(|| format!("/etc/group of the image has no group '{name}'"))
    }

    /// The group that a user logs in with.
    pub fn login_group(&self, user: u32) -> Option<u32> {
        self.users.with_id(user).and_then(|account| account.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, put, tree_of};

    #[test]
    fn the_first_line_counts_and_others_are_left_out() {
        let text =
            b"root:x:0:0::/root:/bin/sh\ntoor:x:0:5:\n\n# x:y\nroot:x:7:7\n1000:x:8:8\n:x:9:9\n\
            plus:x:+3:3\nlarge:x:4294967296:0\nshort:x\ne\x1b[2Jvil\xff:x:10:\nlast:x:11";
        let table = AccountTable::parse(text);
        let names = [0, 3, 7, 8, 9, 10, 11].map(|id| table.with_id(id).map(|found| &*found.name));
        let evil = Some(&b"e\x1b[2Jvil\xff"[..]);
        let root = Some(&b"root"[..]);
        assert_eq!(names, [root, None, root, None, None, evil, Some(b"last")]);
        let found =
            |name: &str| table.with_name(name.as_bytes()).map(|found| (found.id, found.next));
        assert_eq!((found("root"), found("toor")), (Some((0, Some(0))), Some((0, Some(5)))));
        assert_eq!((found("last"), found("1000"), found("")), (Some((11, None)), None, None));
    }

    #[test]
    fn large_files_and_names_are_cut_off() {
        let name = "n".repeat(NAME_BYTES_MAX);
        let mut text = format!("{name}:x:1\n{name}n:x:2\n").into_bytes();
        text.resize(FILE_BYTES_MAX as usize - 8, b'\n');
        text.extend(b"cut:x:33");
        let image = example(&["etc/group"]);
        put(&image, "etc/passwd", &[&text[..], b"3\nbehind:x:4\n"].concat());
        let names = AccountNames::of_image(&tree_of(&image).fs);
        let found = [1, 2, 33, 4].map(|id| names.user_name(id));
        assert_eq!(found, [Some(name.as_bytes()), None, None, None]);
        assert_eq!(image.references(), 0);
    }

    #[test]
    fn an_image_without_the_files_has_numbers() {
        for files in [&["a"][..], &["etc/passwd/is/a/directory"]] {
            let image = example(files);
            let names = AccountNames::of_image(&tree_of(&image).fs);
            assert_eq!((names.user_name(0), names.group_name(7)), (None, None));
            assert_eq!((names.user_id("5"), names.group_id("6")), (Ok(5), Ok(6)));
            assert!(names.user_id("root").is_err() && names.group_id("-1").is_err());
        }
    }
}
