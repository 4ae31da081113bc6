//! Names of attributes: a number for the prefix, and the rest.

use super::NAME_LENGTH_MAX;

/// The name of an attribute as it is stored. Ordered as entries of a block are: by prefix, then
/// by length, then by bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttributeName {
    /// Number of the prefix.
    pub index: u8,
    /// What follows the prefix.
    pub suffix: Vec<u8>,
}

/// Prefixes with their numbers; longer ones first where one starts another.
const PREFIXES: [(u8, &[u8]); 8] = [
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (8, b"system.richacl"),
    (1, b"user."),
    (4, b"trusted."),
    (6, b"security."),
    (7, b"system."),
    (10, b"gnu."),
];

impl AttributeName {
    /// `user.`
    pub const USER: u8 = 1;
    /// `system.posix_acl_access`, the whole name.
    pub const ACL_ACCESS: u8 = 2;
    /// `system.posix_acl_default`, the whole name.
    pub const ACL_DEFAULT: u8 = 3;
    /// `trusted.`
    pub const TRUSTED: u8 = 4;
    /// `security.`
    pub const SECURITY: u8 = 6;
    /// `system.`
    pub const SYSTEM: u8 = 7;
    /// `system.richacl`, the whole name.
    pub const RICH_ACL: u8 = 8;
    /// The encryption context, which programs can't name.
    pub const ENCRYPTION: u8 = 9;
    /// The place of the verity descriptor, which programs can't name.
    pub const VERITY: u8 = 11;

    /// The attribute that holds what of inline data does not fit the inode's block map.
    #[must_use]
    pub fn inline_data() -> Self {
        Self { index: Self::SYSTEM, suffix: b"data".to_vec() }
    }

    /// The stored form of a full name such as `user.comment`; `None` if no prefix fits, the rest
    /// is missing or too long.
    #[must_use]
    pub fn parse(full: &[u8]) -> Option<Self> {
        for (index, prefix) in PREFIXES {
            let whole = !prefix.ends_with(b".");
            let Some(suffix) = full.strip_prefix(prefix) else { continue };
            if whole != suffix.is_empty() {
                continue;
            }
            return (suffix.len() <= NAME_LENGTH_MAX)
                .then(|| Self { index, suffix: suffix.to_vec() });
        }
        None
    }

    /// The full name; `None` for attributes that have none, such as encryption contexts.
    #[must_use]
    pub fn full(&self) -> Option<Vec<u8>> {
        full(self.index, &self.suffix)
    }

    pub(super) fn sort_key(&self) -> (u8, usize, &[u8]) {
        (self.index, self.suffix.len(), &self.suffix)
    }
}

/// The full name of a prefix number and the rest.
pub(super) fn full(index: u8, suffix: &[u8]) -> Option<Vec<u8>> {
    let (_, prefix) = PREFIXES.iter().find(|(number, _)| *number == index)?;
    Some([prefix, suffix].concat())
}

impl PartialOrd for AttributeName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AttributeName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.sort_key().cmp(&other.sort_key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip() {
        for name in ["user.a", "trusted.b", "security.selinux", "system.data"] {
            let parsed = AttributeName::parse(name.as_bytes()).unwrap();
            assert_eq!(parsed.full().unwrap(), name.as_bytes());
        }
        let acl = AttributeName::parse(b"system.posix_acl_access").unwrap();
        assert_eq!((acl.index, acl.suffix.len()), (AttributeName::ACL_ACCESS, 0));
        assert_eq!(acl.full().unwrap(), b"system.posix_acl_access");
        assert_eq!(AttributeName::parse(b"user."), None);
        assert_eq!(AttributeName::parse(b"other.a"), None);
        assert_eq!(AttributeName { index: 9, suffix: b"c".to_vec() }.full(), None);
    }

    #[test]
    fn shorter_names_sort_first() {
        let name = |full: &[u8]| AttributeName::parse(full).unwrap();
        assert!(name(b"user.z") < name(b"user.aa"));
        assert!(name(b"user.zzzz") < name(b"trusted.a"));
    }
}
