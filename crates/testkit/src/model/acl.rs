//! POSIX access control lists in the form that `system.posix_acl_*` attributes have.
//!
//! # Reference
//!
//! `acl(5)`, and the POSIX.1e draft 17 for the algorithms.

use drystone_vfs::{Access, Errno, RequestContext, Result};

const VERSION: u32 = 2;
const UNDEFINED_ID: u32 = u32::MAX;
const TAG_USER_OBJECT: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP_OBJECT: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;

/// What an entry of a list applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclSubject {
    /// The owner.
    UserObject,
    /// A user.
    User(u32),
    /// The owning group.
    GroupObject,
    /// A group.
    Group(u32),
    /// The most that users and groups get.
    Mask,
    /// Everyone else.
    Other,
}

/// One entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelAclEntry {
    /// What it applies to.
    pub tag: AclSubject,
    /// Read 4, write 2, execute 1.
    pub permissions: u16,
}

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAcl(pub Vec<ModelAclEntry>);

impl ModelAcl {
    /// Reads the value of an attribute; `None` for a list without entries.
    pub fn parse(value: &[u8]) -> Result<Option<ModelAcl>> {
        let Some((version, entries)) = value.split_first_chunk::<4>() else {
            return Err(Errno::EINVAL.into());
        };
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let (entries, rest) = entries.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(Errno::EINVAL.into());
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let entries = entries.iter().map(|[t0, t1, p0, p1, id @ ..]| {
            let id = u32::from_le_bytes(*id);
            let tag = match u16::from_le_bytes([*t0, *t1]) {
                TAG_USER_OBJECT => AclSubject::UserObject,
                TAG_USER => AclSubject::User(id),
                TAG_GROUP_OBJECT => AclSubject::GroupObject,
                TAG_GROUP => AclSubject::Group(id),
                TAG_MASK => AclSubject::Mask,
                TAG_OTHER => AclSubject::Other,
                _ => return Err(Errno::EINVAL.into()),
            };
            Ok(ModelAclEntry { tag, permissions: u16::from_le_bytes([*p0, *p1]) })
        });
        Ok(Some(ModelAcl(entries.collect::<Result<_>>()?)))
    }

    /// The value of the attribute.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let (tag, id) = match entry.tag {
                AclSubject::UserObject => (TAG_USER_OBJECT, UNDEFINED_ID),
                AclSubject::User(id) => (TAG_USER, id),
                AclSubject::GroupObject => (TAG_GROUP_OBJECT, UNDEFINED_ID),
                AclSubject::Group(id) => (TAG_GROUP, id),
                AclSubject::Mask => (TAG_MASK, UNDEFINED_ID),
                AclSubject::Other => (TAG_OTHER, UNDEFINED_ID),
            };
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&entry.permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Checks the order and completeness of the entries.
    pub fn validate(&self) -> Result<()> {
        let rank = |tag| match tag {
            AclSubject::UserObject => 0,
            AclSubject::User(_) => 1,
            AclSubject::GroupObject => 2,
            AclSubject::Group(_) => 3,
            AclSubject::Mask => 4,
            AclSubject::Other => 5,
        };
        let ordered = self.0.is_sorted_by_key(|entry| rank(entry.tag));
        let count = |wanted| self.0.iter().filter(|entry| rank(entry.tag) == wanted).count();
        let extended = count(1) + count(3) > 0;
        let masks = count(4);
        let complete = count(0) == 1 && count(2) == 1 && count(5) == 1;
        let bits_known = self.0.iter().all(|entry| entry.permissions <= 7);
        let ids_known = self.0.iter().all(|entry| {
            !matches!(entry.tag, AclSubject::User(UNDEFINED_ID) | AclSubject::Group(UNDEFINED_ID))
        });
        let mask_right = if extended { masks == 1 } else { masks <= 1 };
        if ordered && complete && bits_known && ids_known && mask_right {
            Ok(())
        } else {
            Err(Errno::EINVAL.into())
        }
    }

    /// Checks an access by a caller that isn't the owner.
    pub fn check(&self, context: &RequestContext, group: u32, access: Access) -> Result<()> {
        let wanted = u16::from(access.bits());
        let grants = |permissions: u16| {
            if permissions & wanted == wanted { Ok(()) } else { Err(Errno::EACCES.into()) }
        };
        let mask = self.mask().unwrap_or(7);
        let mut in_some_group = false;
        for entry in &self.0 {
            let member = match entry.tag {
                AclSubject::User(user) if user == context.user => {
                    return grants(entry.permissions & mask);
                }
                AclSubject::GroupObject => context.in_group(group),
                AclSubject::Group(group) => context.in_group(group),
                AclSubject::Other if !in_some_group => return grants(entry.permissions),
                _ => false,
            };
            if member {
                in_some_group = true;
                if entry.permissions & wanted == wanted {
                    return grants(entry.permissions & mask);
                }
            }
        }
        Err(Errno::EACCES.into())
    }

    fn mask(&self) -> Option<u16> {
        self.0.iter().find(|entry| entry.tag == AclSubject::Mask).map(|entry| entry.permissions)
    }

    /// The nine permission bits that the list amounts to, and whether they say all it says.
    pub fn mode(&self) -> (u16, bool) {
        let mut mode = 0;
        let mut says_all = true;
        for entry in &self.0 {
            match entry.tag {
                AclSubject::UserObject => mode |= entry.permissions << 6,
                AclSubject::GroupObject => mode |= entry.permissions << 3,
                AclSubject::Other => mode |= entry.permissions,
                AclSubject::User(_) | AclSubject::Group(_) | AclSubject::Mask => says_all = false,
            }
        }
        if let Some(mask) = self.mask() {
            mode = (mode & !0o070) | (mask << 3);
        }
        (mode, says_all)
    }

    /// Makes the list agree with new permission bits.
    pub fn change_mode(&mut self, mode: u16) {
        self.change_entries(|_, bits| bits, mode);
    }

    /// Cuts an inherited list down to the permissions asked for at creation; returns the
    /// permission bits that result.
    pub fn restrict(&mut self, mode: u16) -> u16 {
        self.change_entries(|old, bits| old & bits, mode);
        (mode & !0o777) | (self.mode().0 & mode)
    }

    fn change_entries(&mut self, change: impl Fn(u16, u16) -> u16, mode: u16) {
        let group_tag =
            if self.mask().is_some() { AclSubject::Mask } else { AclSubject::GroupObject };
        for entry in &mut self.0 {
            let bits = match entry.tag {
                AclSubject::UserObject => mode >> 6,
                AclSubject::Other => mode,
                tag if tag == group_tag => mode >> 3,
                _ => continue,
            };
            entry.permissions = change(entry.permissions, bits & 7);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(AclSubject, u16)]) -> ModelAcl {
        ModelAcl(
            entries.iter().map(|&(tag, permissions)| ModelAclEntry { tag, permissions }).collect(),
        )
    }

    fn extended() -> ModelAcl {
        acl(&[
            (AclSubject::UserObject, 7),
            (AclSubject::User(5), 6),
            (AclSubject::GroupObject, 4),
            (AclSubject::Group(9), 3),
            (AclSubject::Mask, 6),
            (AclSubject::Other, 1),
        ])
    }

    #[test]
    fn bytes_round_trip() {
        let acl = extended();
        assert_eq!(ModelAcl::parse(&acl.to_bytes()).unwrap(), Some(acl.clone()));
        assert_eq!(acl.to_bytes().len(), 4 + 6 * 8);
        assert_eq!(ModelAcl::parse(&[2, 0, 0, 0]).unwrap(), None);
        assert_eq!(ModelAcl::parse(&[1, 0, 0, 0]).unwrap_err().errno, Errno::EOPNOTSUPP);
        assert_eq!(ModelAcl::parse(&[2, 0, 0, 0, 1]).unwrap_err().errno, Errno::EINVAL);
    }

    #[test]
    fn validation() {
        assert!(extended().validate().is_ok());
        assert!(
            acl(&[
                (AclSubject::UserObject, 7),
                (AclSubject::GroupObject, 4),
                (AclSubject::Other, 1)
            ])
            .validate()
            .is_ok()
        );
        assert!(acl(&[(AclSubject::UserObject, 7), (AclSubject::Other, 1)]).validate().is_err());
        let mut without_mask = extended();
        without_mask.0.remove(4);
        assert!(without_mask.validate().is_err());
        let mut swapped = extended();
        swapped.0.swap(1, 2);
        assert!(swapped.validate().is_err());
    }

    #[test]
    fn checks_follow_the_most_specific_entry() {
        let acl = extended();
        let user = |user, group| RequestContext::user(user, group, Vec::new());
        assert!(acl.check(&user(5, 1), 2, Access::READ | Access::WRITE).is_ok());
        assert!(acl.check(&user(5, 1), 2, Access::EXECUTE).is_err());
        assert!(acl.check(&user(6, 2), 2, Access::READ).is_ok());
        assert!(acl.check(&user(6, 9), 2, Access::WRITE).is_ok());
        assert!(acl.check(&user(6, 9), 2, Access::EXECUTE).is_err(), "the mask cuts it");
        assert!(acl.check(&user(6, 1), 2, Access::EXECUTE).is_ok());
        assert!(acl.check(&user(6, 1), 2, Access::READ).is_err());
    }

    #[test]
    fn mode_follows_and_leads() {
        let mut acl = extended();
        assert_eq!(acl.mode(), (0o761, false));
        acl.change_mode(0o640);
        assert_eq!(acl.mode(), (0o640, false));
        let mut inherited = extended();
        assert_eq!(inherited.restrict(0o1644), 0o1640);
        assert_eq!(inherited.mode().0, 0o640);
    }
}
