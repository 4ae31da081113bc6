//! Access control lists as text, and the numbers behind the names in them.
//!
//! Entries are `user:NAME:rwx`, by lines or commas; star and bsdtar add the number as a fourth
//! field, GNU tar doesn't. The number of a name without one comes from the archive's own headers,
//! or else from this machine's `/etc/passwd` and `/etc/group`. A name in neither is an error: a
//! list without it could grant access to others.
//!
//! # Reference
//! acl(5), "ACL text forms"; star(5), "SCHILY.acl.access".

use super::error::TarProblem;
use crate::bytes::decimal;
use drystone_ext4_format::acl::{Acl, AclEntry, AclTagText, parse_permissions};
use std::collections::HashMap;

/// The attribute that is a file's list.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that is the list of what is made in a directory.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Numbers of users or groups by name.
#[derive(Debug)]
pub(crate) struct IdNames {
    learned: HashMap<Vec<u8>, u32>,
    /// A file like `/etc/passwd`: names in the first field, numbers in the third.
    file: &'static str,
    of_machine: Option<HashMap<Vec<u8>, u32>>,
}

impl IdNames {
    /// Those of users.
    pub fn of_users() -> IdNames {
        IdNames { learned: HashMap::new(), file: "/etc/passwd", of_machine: None }
    }

    /// Those of groups.
    pub fn of_groups() -> IdNames {
        IdNames { learned: HashMap::new(), file: "/etc/group", of_machine: None }
    }

    /// A header says both.
    pub fn learn(&mut self, name: &[u8], id: u32) {
        if !name.is_empty() && self.learned.get(name) != Some(&id) {
            self.learned.insert(name.to_vec(), id);
        }
    }

    fn find(&mut self, name: &[u8]) -> Option<u32> {
        if let Some(&id) = self.learned.get(name) {
            return Some(id);
        }
        let of_machine = self.of_machine.get_or_insert_with(|| {
            std::fs::read(self.file).map(|text| parse_names(&text)).unwrap_or_default()
        });
        of_machine.get(name).copied()
    }
}

fn parse_names(text: &[u8]) -> HashMap<Vec<u8>, u32> {
    let parse_line = |line: &[u8]| {
        let mut fields = line.split(|&byte| byte == b':');
        let name = fields.next()?.to_vec();
        Some((name, decimal(fields.nth(1)?)?.try_into().ok()?))
    };
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// Reads a list.
pub(crate) fn parse(
    text: &[u8],
    users: &mut IdNames,
    groups: &mut IdNames,
) -> Result<Acl, TarProblem> {
    let wrong = |what: String| TarProblem::Acl { text: text.to_vec(), what };
    let mut entries = Vec::new();
    for entry in text.split(|byte| matches!(byte, b',' | b'\n')) {
        // The rest is a comment: the effective permissions.
        let entry = entry.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
        if entry.is_empty() {
            continue;
        }
        entries.push(parse_entry(entry, users, groups).map_err(|what| wrong(what.into()))?);
    }
    entries.sort_by_key(|entry: &AclEntry| entry.tag);
    Acl::new(entries).map_err(|problem| wrong(problem.to_string()))
}

/// Writes a list, with numbers: `user::rwx,user:1001:r-x,group::r-x,mask::r-x,other::---`.
pub(crate) fn format(list: &Acl) -> String {
    list.entries().iter().map(AclEntry::to_string).collect::<Vec<_>>().join(",")
}

fn parse_entry(
    entry: &[u8],
    users: &mut IdNames,
    groups: &mut IdNames,
) -> Result<AclEntry, &'static str> {
    let fields: Vec<&[u8]> = entry.split(|&byte| byte == b':').map(<[u8]>::trim_ascii).collect();
    let (tag, name, permissions, id) = match fields[..] {
        [tag, permissions] => (tag, &b""[..], permissions, None),
        [tag, name, permissions] => (tag, name, permissions, None),
        [tag, name, permissions, id] => (tag, name, permissions, Some(id)),
        _ => return Err("has an entry with too many or too few fields"),
    };
    let find = |names: &mut IdNames| {
        let id = match id.or_else(|| name.iter().all(u8::is_ascii_digit).then_some(name)) {
            Some(digits) => decimal(digits).and_then(|id| id.try_into().ok()),
            None => names.find(name),
        };
        id.ok_or("has a name without a number, which this machine doesn't know")
    };
    let tag = AclTagText::parse(tag, name)
        .ok_or("has an entry for neither user, group, mask nor other")?
        .resolve(|_| find(users), |_| find(groups))?;
    let permissions =
        parse_permissions(permissions).ok_or("has permissions other than r, w and x")?;
    Ok(AclEntry { tag, permissions })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Acl, TarProblem> {
        let (mut users, mut groups) = (IdNames::of_users(), IdNames::of_groups());
        users.learn(b"lisa", 1000);
        groups.learn(b"staff 1", 50);
        super::parse(text.as_bytes(), &mut users, &mut groups)
    }

    #[test]
    fn lists_of_all_programs_mean_the_same() {
        let expected =
            parse("user::rwx\nuser:1000:rw-\ngroup::r-x\ngroup:50:r--\nmask::rwx\nother::---\n");
        let text = expected.as_ref().map(format);
        let written = "user::rwx,user:1000:rw-,group::r-x,group:50:r--,mask::rwx,other::---";
        assert_eq!(text.as_deref(), Ok(written));
        for text in [
            "user::rwx,user:lisa:rw-,group::r-x,group:staff 1:r--,mask::rwx,other::---",
            "user::rwx,user:nobody-knows:rw-:1000,group::r-x,group:x:r--:50,mask::rwx,other::---",
            "u::rwx,g::r-x,m::rwx,o::---,g:50:r--,u:lisa:rw-",
            "user::rwx\nuser:lisa:rw-\t#effective:rw-\ngroup::r-x\ngroup:50:r\nmask:rwx\nother:\n",
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn lists_that_cannot_be() {
        for (text, what) in [
            ("user::rwx", "missing"),
            ("user::rwx,user:1:rwx,group::rwx,other::rwx", "missing"),
            ("user::rwx,user:no one:rwx,group::rwx,mask::rwx,other::rwx", "machine doesn't know"),
            ("user::rwx,everyone::rwx", "neither"),
            ("user::rwz", "other than"),
            ("user", "fields"),
            ("user::rwx,user:1:rwx:99999999999", "machine doesn't know"),
        ] {
            let problem = parse(text).expect_err(text).to_string();
            assert!(problem.contains(what), "{problem}");
        }
    }

    #[test]
    fn names_of_the_machine() {
        let names = parse_names(b"root:x:0:0:root:/root:/bin/sh\nbroken\ndaemon:x:1:1::\n");
        assert_eq!(names.get(&b"daemon"[..]), Some(&1));
        assert_eq!(names.len(), 2);
    }
}
