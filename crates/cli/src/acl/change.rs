//! Changes of access control lists, as setfacl(1) makes them.
//!
//! # Reference
//! setfacl(1), "Automatically created entries".

use super::{AclWord, FileAcls};
use drystone::acl::{Acl, AclEntry, AclTag};

/// What becomes of the mask if a list changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaskRule {
    /// It is recomputed, unless the change names it.
    #[default]
    Unnamed,
    /// It stays.
    Keep,
    /// It is recomputed.
    Always,
}

/// A change of lists, made in the order of these fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclRequest {
    /// Remove all that permission bits can't say.
    pub clear: bool,
    /// Remove the default list.
    pub clear_default: bool,
    /// Entries that take the place of each list that one of them is meant for.
    pub replace: Vec<AclWord>,
    pub remove: Vec<AclWord>,
    pub add: Vec<AclWord>,
    pub mask: MaskRule,
}

impl AclRequest {
    /// True if it asks for a default list, which only a directory can have.
    pub fn wants_default(&self) -> bool {
        self.replace.iter().chain(&self.add).any(|word| word.is_default)
    }

    /// The lists after the change.
    pub fn apply(&self, before: &FileAcls, is_directory: bool) -> Result<FileAcls, String> {
        let invalid = |kind, problem| format!("the {kind} list would be invalid: {problem}");
        let mut access = before.access.entries().to_vec();
        if self.clear {
            strip(&mut access);
        }
        if self.edit(&mut access, false, is_directory) {
            self.settle_mask(&mut access, false);
        }
        access.sort_by_key(|entry| entry.tag);
        let access = Acl::new(access).map_err(|problem| invalid("access", problem))?;
        if !is_directory {
            return Ok(FileAcls { access, default: None });
        }
        let kept = before.default.as_ref().filter(|_| !self.clear && !self.clear_default);
        let mut default = kept.map(|list| list.entries().to_vec()).unwrap_or_default();
        let is_edited = self.edit(&mut default, true, is_directory);
        if is_edited && !default.is_empty() {
            for tag in [AclTag::Owner, AclTag::OwningGroup, AclTag::Other] {
                if !default.iter().any(|entry| entry.tag == tag) {
                    let permissions = access.get(tag).unwrap_or(0);
                    default.push(AclEntry { tag, permissions });
                }
            }
            self.settle_mask(&mut default, true);
        }
        default.sort_by_key(|entry| entry.tag);
        let default = match default.is_empty() {
            true => None,
            false => Some(Acl::new(default).map_err(|problem| invalid("default", problem))?),
        };
        Ok(FileAcls { access, default })
    }

    /// Changes the entries of one of the lists. Returns whether the request names any.
    fn edit(&self, list: &mut Vec<AclEntry>, is_default: bool, is_directory: bool) -> bool {
        let meant = |word: &&AclWord| word.is_default == is_default;
        let [replace, remove, add] = [&self.replace, &self.remove, &self.add]
            .map(|words| words.iter().filter(meant).collect::<Vec<&AclWord>>());
        let put_all = |list: &mut Vec<AclEntry>, words: &[&AclWord]| {
            for word in words {
                let others = || list.iter().any(|entry| entry.permissions & 1 != 0);
                let execute = u8::from(word.may_execute && (is_directory || others()));
                put(list, word.tag, word.permissions | execute);
            }
        };
        if !replace.is_empty() {
            list.clear();
            put_all(list, &replace);
        }
        list.retain(|entry| remove.iter().all(|word| word.tag != entry.tag));
        put_all(list, &add);
        [replace, remove, add].iter().any(|words| !words.is_empty())
    }

    /// Adds the mask that named entries need, and recomputes it as the rule says.
    fn settle_mask(&self, list: &mut Vec<AclEntry>, is_default: bool) {
        let words = self.replace.iter().chain(&self.remove).chain(&self.add);
        let mut words = words.filter(|word| word.is_default == is_default);
        let is_free = match self.mask {
            MaskRule::Always => true,
            MaskRule::Unnamed | MaskRule::Keep => !words.any(|word| word.tag == AclTag::Mask),
        };
        let group_class = |entry: &&AclEntry| {
            matches!(entry.tag, AclTag::User(_) | AclTag::OwningGroup | AclTag::Group(_))
        };
        let all = list.iter().filter(group_class).fold(0, |all, entry| all | entry.permissions);
        let of_group = list.iter().find(|entry| entry.tag == AclTag::OwningGroup);
        let of_group = of_group.map_or(0, |entry| entry.permissions);
        let is_needed = list.iter().filter(group_class).any(|e| e.tag != AclTag::OwningGroup);
        let is_there = list.iter().any(|entry| entry.tag == AclTag::Mask);
        if !is_free || !is_needed && !is_there {
            return;
        }
        match self.mask {
            MaskRule::Unnamed | MaskRule::Always => put(list, AclTag::Mask, all),
            MaskRule::Keep if !is_there => put(list, AclTag::Mask, of_group),
            MaskRule::Keep => {}
        }
    }
}

/// Removes all that permission bits can't say. The group gets no more than the mask let it have.
fn strip(list: &mut Vec<AclEntry>) {
    let mask = list.iter().find(|entry| entry.tag == AclTag::Mask).map_or(7, |e| e.permissions);
    list.retain(|entry| matches!(entry.tag, AclTag::Owner | AclTag::OwningGroup | AclTag::Other));
    for entry in list.iter_mut().filter(|entry| entry.tag == AclTag::OwningGroup) {
        entry.permissions &= mask;
    }
}

/// Sets the permissions of an entry, which is added if it isn't there.
fn put(list: &mut Vec<AclEntry>, tag: AclTag, permissions: u8) {
    match list.iter_mut().find(|entry| entry.tag == tag) {
        Some(entry) => entry.permissions = permissions,
        None => list.push(AclEntry { tag, permissions }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{parse_additions, parse_removals};
    use super::*;

    fn text(list: &Acl) -> String {
        list.entries().iter().map(AclEntry::to_string).collect::<Vec<_>>().join(",")
    }

    fn plain(mode: u16) -> FileAcls {
        FileAcls { access: Acl::from_mode(mode), default: None }
    }

    fn adding(words: &str) -> AclRequest {
        AclRequest { add: parse_additions(words).unwrap(), ..AclRequest::default() }
    }

    #[test]
    fn the_mask_follows_unless_it_is_named() {
        let after = adding("u:1:rwx").apply(&plain(0o640), false).unwrap();
        assert_eq!(text(&after.access), "user::rw-,user:1:rwx,group::r--,mask::rwx,other::---");
        let named = adding("g:2:rw,m::r").apply(&after, false).unwrap();
        assert_eq!(named.access.mode(), 0o640);
        let kept = AclRequest { mask: MaskRule::Keep, ..adding("u:3:x") };
        assert_eq!(kept.apply(&named, false).unwrap().access.mode(), 0o640);
        assert_eq!(kept.apply(&plain(0o640), false).unwrap().access.mode(), 0o640);
        let always = AclRequest { mask: MaskRule::Always, ..adding("m::r") };
        assert_eq!(always.apply(&named, false).unwrap().access.mode(), 0o670);
        let remove = parse_removals("m").unwrap();
        let request = AclRequest { remove, ..AclRequest::default() };
        let problem = request.apply(&named, false).unwrap_err();
        assert!(problem.contains("access list would be invalid"), "{problem}");
        let request = AclRequest { clear: true, ..AclRequest::default() };
        assert_eq!(request.apply(&named, false).unwrap(), plain(0o640));
    }

    #[test]
    fn a_default_list_gets_what_it_lacks_from_the_access_list() {
        let after = adding("d:u:1:rX").apply(&plain(0o751), true).unwrap();
        assert_eq!(after.access, plain(0o751).access);
        let list = after.default.as_ref().map(text);
        let expected = "user::rwx,user:1:r-x,group::r-x,mask::r-x,other::--x";
        assert_eq!(list.as_deref(), Some(expected));
        let request = AclRequest { clear_default: true, ..AclRequest::default() };
        assert_eq!(request.apply(&after, true).unwrap(), plain(0o751));
    }
}
