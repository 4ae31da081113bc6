//! Entries of access control lists as users write them: `u:1000:rwX`, `default:mask::r`.
//!
//! # Reference
//! acl(5), "ACL text forms"; setfacl(1), "ACL entries".

use drystone::acl::{AclTag, AclTagText, parse_permissions};

/// An entry to add or to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclWord {
    /// It is meant for the list that new entries of a directory inherit.
    pub is_default: bool,
    /// The user, group or class that it applies to.
    pub tag: AclTag,
    /// Read (4), write (2) and execute (1); none for one to remove.
    pub permissions: u8,
    /// Execute too, for a directory and where somebody else may execute (`X`).
    pub may_execute: bool,
}

/// Reads entries to add.
pub fn parse_additions(text: &str) -> Result<Vec<AclWord>, String> {
    parse(text, |word, fields| {
        let (kind, name, permissions) = match *fields {
            [kind, permissions] if !is_named(kind) => (kind, "", permissions),
            [kind, name, permissions] => (kind, name, permissions),
            _ => return Err(format!("'{word}' isn't an entry like user:1000:r-x")),
        };
        let tag = parse_tag(word, kind, name)?;
        let (permissions, may_execute) = parse_letters(permissions).ok_or_else(|| {
            format!("'{word}' has other permissions than r, w, x, X and -, or than a digit up to 7")
        })?;
        Ok(AclWord { is_default: false, tag, permissions, may_execute })
    })
}

/// Reads entries to remove, which have no permissions.
pub fn parse_removals(text: &str) -> Result<Vec<AclWord>, String> {
    parse(text, |word, fields| {
        let (kind, name) = match *fields {
            [kind] | [kind, "", ""] => (kind, ""),
            [kind, name] | [kind, name, ""] => (kind, name),
            _ => {
                return Err(format!(
                    "'{word}' isn't an entry like user:1000 (no permissions here)"
                ));
            }
        };
        let tag = parse_tag(word, kind, name)?;
        Ok(AclWord { is_default: false, tag, permissions: 0, may_execute: false })
    })
}

/// Reads entries that commas, blanks or the ends of lines separate. What follows a '#' is a comment.
fn parse(
    text: &str,
    mut read: impl FnMut(&str, &[&str]) -> Result<AclWord, String>,
) -> Result<Vec<AclWord>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let words = lines.flat_map(|line| line.split(|c: char| c == ',' || c.is_whitespace()));
    let words = words.filter(|word| !word.is_empty()).map(|word| {
        let fields: Vec<&str> = word.split(':').collect();
        match fields[..] {
            ["default" | "d", ref rest @ ..] => {
                read(word, rest).map(|entry| AclWord { is_default: true, ..entry })
            }
            _ => read(word, &fields),
        }
    });
    let words: Vec<AclWord> = words.collect::<Result<_, _>>()?;
    if words.is_empty() { Err("there is no entry".to_owned()) } else { Ok(words) }
}

fn is_named(kind: &str) -> bool {
    matches!(kind, "user" | "u" | "group" | "g")
}

fn parse_tag(word: &str, kind: &str, name: &str) -> Result<AclTag, String> {
    let number = |text: &[u8]| {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        number.filter(|number| *number != u32::MAX).ok_or_else(|| {
            format!("'{word}': '{name}' isn't a number, and names aren't known here")
        })
    };
    AclTagText::parse(kind.as_bytes(), name.as_bytes())
        .ok_or_else(|| format!("'{word}' is for neither user, group, mask nor other"))?
        .resolve(number, number)
}

/// Permissions, and whether there is an `X`.
fn parse_letters(text: &str) -> Option<(u8, bool)> {
    match text.as_bytes() {
        [] => None,
        [digit @ b'0'..=b'7'] => Some((digit - b'0', false)),
        letters => {
            let others: Vec<u8> = letters.iter().copied().filter(|c| *c != b'X').collect();
            Some((parse_permissions(&others)?, others.len() < letters.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(tag: AclTag, permissions: u8) -> AclWord {
        AclWord { is_default: false, tag, permissions, may_execute: false }
    }

    #[test]
    fn additions_are_read() {
        let default = AclWord { is_default: true, ..word(AclTag::Group(5), 7) };
        assert_eq!(
            parse_additions("u::rw, u:1000:x\tm:r\nd:group:5:7 # a comment\n"),
            Ok(vec![
                word(AclTag::Owner, 6),
                word(AclTag::User(1000), 1),
                word(AclTag::Mask, 4),
                default
            ])
        );
        let conditional = AclWord { may_execute: true, ..word(AclTag::Other, 4) };
        assert_eq!(parse_additions("o::rX"), Ok(vec![conditional]));
        assert_eq!(parse_additions("other:---"), Ok(vec![word(AclTag::Other, 0)]));
        for text in [
            "",
            "#",
            "u:1000",
            "u:5:",
            "u:lisa:r",
            "u:4294967295:r",
            "x::r",
            "m:5:r",
            "u::8",
            "u::rz",
            "d",
            "u:1:r:2",
        ] {
            assert!(parse_additions(text).is_err(), "{text}");
        }
    }

    #[test]
    fn removals_are_read() {
        let default = AclWord { is_default: true, ..word(AclTag::User(1), 0) };
        assert_eq!(
            parse_removals("mask,d:u:1,g:7:"),
            Ok(vec![word(AclTag::Mask, 0), default, word(AclTag::Group(7), 0)])
        );
        for text in ["u:1:rw", "", "u:x", "who"] {
            assert!(parse_removals(text).is_err(), "{text}");
        }
    }
}
