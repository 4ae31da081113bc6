//! POSIX access control lists: ext4's packed form, Linux's attribute form, and what they mean.
//!
//! ext4 stores a list more tightly than the `system.posix_acl_*` attributes that programs see:
//! entries without an id take 4 bytes instead of 8. Both forms decode to [`Acl`], which holds
//! only valid lists: one entry each for owner, owning group and others, any number for named
//! users and groups, and a mask if there is a named entry, in this order.
//!
//! # Reference
//! acl(5); POSIX 1003.1e draft 17; kernel documentation, "ext4 Data Structures and Algorithms",
//! Extended Attributes.

mod stored;
mod text;

use crate::error::AclProblem;
pub use stored::{ATTRIBUTE_VERSION, PACKED_VERSION, RawEntry, RawPackedEntry};
pub use text::{AclTagText, parse_permissions, permission_letters};

use stored::NO_ID;

/// The user, group or class that an entry applies to. The order of variants is the order in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclTag {
    /// The file's owner.
    Owner,
    /// A named user.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// A named group.
    Group(u32),
    /// The most that named entries and the owning group get.
    Mask,
    /// Everybody else.
    Other,
}

impl AclTag {
    const fn rank(self) -> u8 {
        match self {
            Self::Owner => 0,
            Self::User(_) => 1,
            Self::OwningGroup => 2,
            Self::Group(_) => 3,
            Self::Mask => 4,
            Self::Other => 5,
        }
    }
}

/// One entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// The user, group or class that it applies to.
    pub tag: AclTag,
    /// Read (4), write (2) and execute (1).
    pub permissions: u8,
}

/// A valid access control list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

/// What a program asks to do with a file: read (4), write (2), execute (1).
pub type Permissions = u8;

/// The value of an extended attribute with other users and groups, as [`Acl::with_ids`] has them; none
/// if it isn't a list, or there is no such list.
#[must_use]
pub fn with_other_ids(
    name: &[u8],
    value: &[u8],
    user: impl Fn(u32) -> u32,
    group: impl Fn(u32) -> u32,
) -> Option<Vec<u8>> {
    let is_list = name.starts_with(b"system.posix_acl_");
    let list = is_list.then(|| Acl::from_attribute(value).ok())??;
    Some(list.with_ids(user, group)?.to_attribute())
}

/// The permissions of a file that is stored without its access list, a `system.posix_acl_access`
/// attribute. Beside a list, the group's bits are the mask, the most that anybody named may do; alone
/// they are what the owning group may do, which can be less.
#[must_use]
pub fn permissions_without_list(permissions: u16, list: &[u8]) -> u16 {
    let list = Acl::from_attribute(list).ok();
    let owning_group = list.and_then(|list| list.get(AclTag::OwningGroup)).unwrap_or(7);
    permissions & !(!u16::from(owning_group) << 3 & 0o070)
}

impl Acl {
    /// A list of the given entries.
    ///
    /// # Errors
    /// What makes it invalid.
    pub fn new(entries: Vec<AclEntry>) -> Result<Self, AclProblem> {
        for (position, entry) in entries.iter().enumerate() {
            let permissions = u16::from(entry.permissions);
            if permissions > 7 {
                return Err(AclProblem::Permissions { entry: position, permissions });
            }
            if entry.tag.to_raw().1 == Some(NO_ID) {
                return Err(AclProblem::Id { entry: position });
            }
        }
        for (position, pair) in entries.windows(2).enumerate() {
            let [before, after] = [pair[0].tag, pair[1].tag];
            let repeatable = matches!(after, AclTag::User(_) | AclTag::Group(_));
            if before.rank() > after.rank() || (before.rank() == after.rank() && !repeatable) {
                return Err(AclProblem::Order { entry: position + 1 });
            }
        }
        let acl = Self { entries };
        let required = [AclTag::Owner, AclTag::OwningGroup, AclTag::Other];
        let complete = required.iter().all(|&tag| acl.get(tag).is_some());
        if !complete || (acl.has_named_entries() && acl.get(AclTag::Mask).is_none()) {
            return Err(AclProblem::Missing);
        }
        Ok(acl)
    }

    /// The list that is equivalent to permission bits.
    #[must_use]
    pub fn from_mode(mode: u16) -> Self {
        let entry = |tag, shift: u16| AclEntry { tag, permissions: (mode >> shift & 7) as u8 };
        let entries =
            vec![entry(AclTag::Owner, 6), entry(AclTag::OwningGroup, 3), entry(AclTag::Other, 0)];
        Self { entries }
    }

    /// The entries, in the order of a list.
    #[must_use]
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// The permissions of the first entry with this tag.
    #[must_use]
    pub fn get(&self, tag: AclTag) -> Option<u8> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    }

    fn has_named_entries(&self) -> bool {
        self.entries.iter().any(|e| matches!(e.tag, AclTag::User(_) | AclTag::Group(_)))
    }

    /// The list with other users and groups. Where several become one, that one may do what all of
    /// them may: the order in a list would decide otherwise. None if one becomes `u32::MAX`, which is
    /// nobody.
    #[must_use]
    pub fn with_ids(&self, user: impl Fn(u32) -> u32, group: impl Fn(u32) -> u32) -> Option<Self> {
        let map = |entry: &AclEntry| {
            let tag = match entry.tag {
                AclTag::User(id) => AclTag::User(user(id)),
                AclTag::Group(id) => AclTag::Group(group(id)),
                same => same,
            };
            AclEntry { tag, ..*entry }
        };
        let mut entries: Vec<AclEntry> = self.entries.iter().map(map).collect();
        entries.sort_by_key(|entry| entry.tag);
        entries.dedup_by(|later, first| {
            let is_same = later.tag == first.tag;
            if is_same {
                first.permissions &= later.permissions;
            }
            is_same
        });
        Self::new(entries).ok()
    }

    /// The permission bits (0 to 0o777) that go with the list: the middle ones are the mask's
    /// where there is one.
    #[must_use]
    pub fn mode(&self) -> u16 {
        let bits = |tag| u16::from(self.get(tag).unwrap_or(0));
        let group = self.get(AclTag::Mask).map_or_else(|| bits(AclTag::OwningGroup), u16::from);
        bits(AclTag::Owner) << 6 | group << 3 | bits(AclTag::Other)
    }

    /// The equivalent permission bits, if there are any: then the list need not be stored.
    #[must_use]
    pub fn equivalent_mode(&self) -> Option<u16> {
        let plain = !self.has_named_entries() && self.get(AclTag::Mask).is_none();
        plain.then(|| self.mode())
    }

    /// The list after a chmod: owner, mask (or owning group) and others follow the mode.
    #[must_use]
    pub fn with_mode(&self, mode: u16) -> Self {
        let mut changed = self.clone();
        for (tag, shift) in self.tags_of_mode() {
            changed.update(tag, |_| (mode >> shift & 7) as u8);
        }
        changed
    }

    /// What a file created with `mode` inherits from the directory's default list: the access list,
    /// unless permission bits can express it, and the permission bits (0 to 0o777). With a default
    /// list the umask isn't applied.
    #[must_use]
    pub fn inherit(&self, mode: u16) -> (Option<Self>, u16) {
        let mut access = self.clone();
        for (tag, shift) in self.tags_of_mode() {
            access.update(tag, |permissions| permissions & (mode >> shift & 7) as u8);
        }
        let bits = access.mode();
        (access.equivalent_mode().is_none().then_some(access), bits)
    }

    /// The entries that permission bits stand for, with the shift of their bits in a mode.
    fn tags_of_mode(&self) -> [(AclTag, u16); 3] {
        let has_mask = self.get(AclTag::Mask).is_some();
        let group = if has_mask { AclTag::Mask } else { AclTag::OwningGroup };
        [(AclTag::Owner, 6), (group, 3), (AclTag::Other, 0)]
    }

    fn update(&mut self, tag: AclTag, change: impl Fn(u8) -> u8) {
        for entry in self.entries.iter_mut().filter(|entry| entry.tag == tag) {
            entry.permissions = change(entry.permissions);
        }
    }

    /// Whether a process gets all of `want` on a file with this list.
    ///
    /// The first class that fits decides: owner, named user, then owning and named groups
    /// together, then others.
    #[must_use]
    pub fn permits(
        &self,
        owner: u32,
        group: u32,
        user: u32,
        groups: &[u32],
        want: Permissions,
    ) -> bool {
        let mask = self.get(AclTag::Mask).unwrap_or(7);
        let grants = |permissions: u8| permissions & want == want;
        if user == owner {
            return grants(self.get(AclTag::Owner).unwrap_or(0));
        }
        if let Some(permissions) = self.get(AclTag::User(user)) {
            return grants(permissions & mask);
        }
        let mut in_a_group = false;
        for entry in &self.entries {
            let id = match entry.tag {
                AclTag::OwningGroup => group,
                AclTag::Group(id) => id,
                _ => continue,
            };
            if groups.contains(&id) {
                in_a_group = true;
                if grants(entry.permissions & mask) {
                    return true;
                }
            }
        }
        !in_a_group && grants(self.get(AclTag::Other).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: AclTag, permissions: u8) -> AclEntry {
        AclEntry { tag, permissions }
    }

    fn sample() -> Acl {
        Acl::new(vec![
            entry(AclTag::Owner, 7),
            entry(AclTag::User(1000), 6),
            entry(AclTag::OwningGroup, 5),
            entry(AclTag::Group(50), 4),
            entry(AclTag::Mask, 6),
            entry(AclTag::Other, 0),
        ])
        .unwrap()
    }

    #[test]
    fn forms_survive_round_trips() {
        let acl = sample();
        let packed = acl.to_packed();
        assert_eq!(packed.len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(Acl::from_packed(&packed), Ok(acl.clone()));
        assert_eq!(acl.to_attribute().len(), 4 + 6 * 8);
        assert_eq!(Acl::from_attribute(&acl.to_attribute()), Ok(acl));
    }

    #[test]
    fn refuses_invalid_lists() {
        assert_eq!(Acl::new(vec![]), Err(AclProblem::Missing));
        let mut entries = sample().entries;
        entries.remove(4);
        assert_eq!(Acl::new(entries), Err(AclProblem::Missing));
        let mut entries = sample().entries;
        entries.swap(0, 1);
        assert_eq!(Acl::new(entries), Err(AclProblem::Order { entry: 1 }));
        assert_eq!(Acl::from_packed(&[]), Err(AclProblem::Length { length: 0 }));
        assert_eq!(Acl::from_packed(&[2, 0, 0, 0]), Err(AclProblem::Version { found: 2 }));
    }

    #[test]
    fn follows_the_mode() {
        assert_eq!(Acl::from_mode(0o751).equivalent_mode(), Some(0o751));
        assert_eq!(sample().mode(), 0o760);
        assert_eq!(sample().equivalent_mode(), None);
        let changed = sample().with_mode(0o640);
        assert_eq!(changed.mode(), 0o640);
        assert_eq!(changed.get(AclTag::OwningGroup), Some(5));
    }

    #[test]
    fn inherits() {
        let (access, mode) = sample().inherit(0o644);
        assert_eq!(mode, 0o640);
        assert_eq!(access.unwrap().get(AclTag::Mask), Some(4));
        assert_eq!(Acl::from_mode(0o750).inherit(0o666), (None, 0o640));
    }

    #[test]
    fn without_a_list_the_group_has_its_own_permissions() {
        let list = sample().to_attribute();
        assert_eq!(permissions_without_list(0o2760, &list), 0o2740);
        assert_eq!(permissions_without_list(0o717, &list), 0o717);
        assert_eq!(permissions_without_list(0o777, b"no list"), 0o777);
    }

    #[test]
    fn users_that_become_one_have_one_entry() {
        let list = Acl::new(vec![
            entry(AclTag::Owner, 7),
            entry(AclTag::User(1), 6),
            entry(AclTag::User(2), 5),
            entry(AclTag::User(3), 7),
            entry(AclTag::OwningGroup, 0),
            entry(AclTag::Group(1), 6),
            entry(AclTag::Group(9), 3),
            entry(AclTag::Mask, 7),
            entry(AclTag::Other, 0),
        ])
        .unwrap();
        let mapped = list.with_ids(|id| id.max(2), |_| 4).unwrap();
        let expected = [
            entry(AclTag::Owner, 7),
            entry(AclTag::User(2), 4),
            entry(AclTag::User(3), 7),
            entry(AclTag::OwningGroup, 0),
            entry(AclTag::Group(4), 2),
            entry(AclTag::Mask, 7),
            entry(AclTag::Other, 0),
        ];
        assert_eq!(mapped.entries(), expected);
        assert_eq!(list.with_ids(|_| u32::MAX, |id| id), None);
    }

    #[test]
    fn the_first_fitting_class_decides() {
        let acl = sample();
        assert!(acl.permits(1, 2, 1, &[], 7));
        assert!(acl.permits(1, 2, 1000, &[], 6));
        assert!(!acl.permits(1, 2, 1000, &[], 1));
        assert!(acl.permits(1, 2, 9, &[50], 4));
        assert!(!acl.permits(1, 2, 9, &[2], 1));
        assert!(!acl.permits(1, 2, 9, &[9], 4));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_list_or_an_error(bytes in proptest::collection::vec(0_u8..40, 0..64)) {
            if let Ok(acl) = Acl::from_packed(&bytes) {
                proptest::prop_assert_eq!(acl.to_packed(), &bytes[..]);
            }
            let _ = Acl::from_attribute(&bytes);
        }
    }
}
