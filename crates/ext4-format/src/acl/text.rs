//! The text form of entries: `user:1000:rwx`.
//!
//! # Reference
//! acl(5), "ACL text forms".

use super::{AclEntry, AclTag};
use std::fmt;

/// Whom an entry in text form applies to: users and groups as they are written, which are names or
/// numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclTagText<'t> {
    /// The file's owner.
    Owner,
    /// A named user.
    User(&'t [u8]),
    /// The file's group.
    OwningGroup,
    /// A named group.
    Group(&'t [u8]),
    /// The mask.
    Mask,
    /// Everybody else.
    Other,
}

impl<'t> AclTagText<'t> {
    /// Reads the first two fields of an entry; the second may be empty. `None` if they are none.
    #[must_use]
    pub fn parse(kind: &[u8], name: &'t [u8]) -> Option<Self> {
        Some(match (kind, name.is_empty()) {
            (b"user" | b"u", true) => Self::Owner,
            (b"user" | b"u", false) => Self::User(name),
            (b"group" | b"g", true) => Self::OwningGroup,
            (b"group" | b"g", false) => Self::Group(name),
            (b"mask" | b"m", true) => Self::Mask,
            (b"other" | b"o", true) => Self::Other,
            _ => return None,
        })
    }

    /// The tag, with the numbers that `user` and `group` find for what is written.
    ///
    /// # Errors
    /// That of `user` or `group`.
    pub fn resolve<E>(
        self,
        user: impl FnOnce(&'t [u8]) -> Result<u32, E>,
        group: impl FnOnce(&'t [u8]) -> Result<u32, E>,
    ) -> Result<AclTag, E> {
        Ok(match self {
            Self::Owner => AclTag::Owner,
            Self::User(name) => AclTag::User(user(name)?),
            Self::OwningGroup => AclTag::OwningGroup,
            Self::Group(name) => AclTag::Group(group(name)?),
            Self::Mask => AclTag::Mask,
            Self::Other => AclTag::Other,
        })
    }
}

/// The bits of permissions like `r-x`, in any order. `None` if there are other letters.
#[must_use]
pub fn parse_permissions(text: &[u8]) -> Option<u8> {
    text.iter().try_fold(0, |bits, letter| {
        Some(match letter {
            b'r' => bits | 4,
            b'w' => bits | 2,
            b'x' => bits | 1,
            b'-' => bits,
            _ => return None,
        })
    })
}

/// Permissions as three letters: `r-x`.
#[must_use]
pub fn permission_letters(bits: u8) -> String {
    let letter = |(bit, letter)| if bits & bit == 0 { '-' } else { letter };
    [(4, 'r'), (2, 'w'), (1, 'x')].into_iter().map(letter).collect()
}

impl fmt::Display for AclTag {
    /// The first two fields of an entry: `user:1000`, `mask:`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner => formatter.write_str("user:"),
            Self::User(id) => write!(formatter, "user:{id}"),
            Self::OwningGroup => formatter.write_str("group:"),
            Self::Group(id) => write!(formatter, "group:{id}"),
            Self::Mask => formatter.write_str("mask:"),
            Self::Other => formatter.write_str("other:"),
        }
    }
}

impl fmt::Display for AclEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.tag, permission_letters(self.permissions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_written() {
        let text = |tag, permissions| AclEntry { tag, permissions }.to_string();
        assert_eq!(text(AclTag::Owner, 7), "user::rwx");
        assert_eq!(text(AclTag::Group(50), 5), "group:50:r-x");
        assert_eq!(text(AclTag::Mask, 0), "mask::---");
    }

    #[test]
    fn fields_are_read() {
        assert_eq!(AclTagText::parse(b"u", b""), Some(AclTagText::Owner));
        assert_eq!(AclTagText::parse(b"group", b"x"), Some(AclTagText::Group(b"x")));
        assert_eq!(AclTagText::parse(b"mask", b"x"), None);
        assert_eq!(AclTagText::parse(b"", b""), None);
        assert_eq!(parse_permissions(b"xr"), Some(5));
        assert_eq!(parse_permissions(b"-"), Some(0));
        assert_eq!(parse_permissions(b"rX"), None);
    }
}
