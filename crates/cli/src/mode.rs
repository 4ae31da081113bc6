//! Permissions as people write and read them: `755`, `u+x,go=r`, `-rwxr-xr-x`.

use drystone::vfs::{FileType, mode};

/// A change of permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModeChange {
    /// These.
    Octal(u16),
    /// Clauses one after the other.
    Symbolic(Vec<Clause>),
}

/// `WHO OPERATOR PERMISSIONS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// The bits that the clause may touch.
    who: u16,
    operator: char,
    permissions: WhichPermissions,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WhichPermissions {
    /// These bits for each class, and `X`: execution if it is a directory or anybody may execute.
    Bits { bits: u16, conditional_execute: bool },
    /// Those that a class (by its shift) has.
    Copied(u32),
}

const USER: u16 = 0o4700;
const GROUP: u16 = 0o2070;
const OTHER: u16 = 0o1007;

impl ModeChange {
    /// Reads an octal number or `chmod`'s symbolic clauses. No class means all: an image has no
    /// umask.
    pub fn parse(text: &str) -> Result<ModeChange, String> {
        let wrong = || format!("'{text}' isn't a mode: try 755 or u+x,go=r");
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let bits = u16::from_str_radix(text, 8).map_err(|_| wrong())?;
            return if bits <= mode::PERMISSIONS {
                Ok(ModeChange::Octal(bits))
            } else {
                Err(wrong())
            };
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            parse_part(part, &mut clauses).ok_or_else(wrong)?;
        }
        Ok(ModeChange::Symbolic(clauses))
    }

    /// The permissions that come out.
    pub fn apply(&self, permissions: u16, is_directory: bool) -> u16 {
        match self {
            // As coreutils: a number leaves a directory's set-id bits unless it names them.
            ModeChange::Octal(bits) if is_directory && *bits <= 0o1777 => {
                bits | (permissions & (mode::SET_USER_ID | mode::SET_GROUP_ID))
            }
            ModeChange::Octal(bits) => *bits,
            ModeChange::Symbolic(clauses) => clauses
                .iter()
                .fold(permissions, |permissions, clause| clause.apply(permissions, is_directory)),
        }
    }
}

fn parse_part(part: &str, clauses: &mut Vec<Clause>) -> Option<()> {
    let operators = part.find(['+', '-', '='])?;
    let mut who = 0;
    for letter in part[..operators].chars() {
        who |= match letter {
            'u' => USER,
            'g' => GROUP,
            'o' => OTHER,
            'a' => mode::PERMISSIONS,
            _ => return None,
        };
    }
    let who = if who == 0 { mode::PERMISSIONS } else { who };
    let mut rest = &part[operators..];
    while let Some(operator) = rest.chars().next() {
        let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
        clauses.push(Clause { who, operator, permissions: parse_permissions(&rest[1..end])? });
        rest = &rest[end..];
    }
    Some(())
}

fn parse_permissions(letters: &str) -> Option<WhichPermissions> {
    match letters {
        "u" => return Some(WhichPermissions::Copied(6)),
        "g" => return Some(WhichPermissions::Copied(3)),
        "o" => return Some(WhichPermissions::Copied(0)),
        _ => {}
    }
    let (mut bits, mut conditional_execute) = (0, false);
    for letter in letters.chars() {
        bits |= match letter {
            'r' => 0o444,
            'w' => 0o222,
            'x' => 0o111,
            's' => mode::SET_USER_ID | mode::SET_GROUP_ID,
            't' => mode::STICKY,
            'X' => {
                conditional_execute = true;
                0
            }
            _ => return None,
        };
    }
    Some(WhichPermissions::Bits { bits, conditional_execute })
}

impl Clause {
    fn apply(&self, permissions: u16, is_directory: bool) -> u16 {
        let bits = match self.permissions {
            WhichPermissions::Bits { bits, conditional_execute } => {
                let executes = conditional_execute && (is_directory || permissions & 0o111 != 0);
                bits | if executes { 0o111 } else { 0 }
            }
            WhichPermissions::Copied(shift) => ((permissions >> shift) & 7) * 0o111,
        } & self.who;
        match self.operator {
            '+' => permissions | bits,
            '-' => permissions & !bits,
            _ => {
                // A directory keeps its set-id bits unless they are named.
                let kept = if is_directory { 0o6000 } else { 0 };
                (permissions & (!self.who | kept)) | bits
            }
        }
    }
}

/// Type and permissions as `ls -l` writes them.
pub fn text(file_type: FileType, permissions: u16) -> String {
    let mut text = String::with_capacity(10);
    text.push(match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    });
    let specials = [
        (mode::SET_USER_ID, 6, 's', 'S'),
        (mode::SET_GROUP_ID, 3, 's', 'S'),
        (mode::STICKY, 0, 't', 'T'),
    ];
    for (special, shift, with_execute, without) in specials {
        let bits = permissions >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (permissions & special != 0, bits & 1 != 0) {
            (true, true) => with_execute,
            (true, false) => without,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes() {
        for (change, before, is_directory, after) in [
            ("755", 0o4644, false, 0o755),
            ("755", 0o2644, true, 0o2755),
            ("0", 0o777, false, 0),
            ("u+x", 0o644, false, 0o744),
            ("+x", 0o644, false, 0o755),
            ("go-rwx", 0o777, false, 0o700),
            ("a=r", 0o777, false, 0o444),
            ("u=rw,g=r,o=", 0o777, false, 0o640),
            ("u+s", 0o755, false, 0o4755),
            ("g+s", 0o755, false, 0o2755),
            ("+t", 0o777, true, 0o1777),
            ("o=g", 0o750, false, 0o755),
            ("a+X", 0o644, false, 0o644),
            ("a+X", 0o744, false, 0o755),
            ("a+X", 0o644, true, 0o755),
            ("u+r-w", 0o200, false, 0o400),
            ("u=rwx", 0o4755, true, 0o4755),
        ] {
            let parsed = ModeChange::parse(change).unwrap();
            assert_eq!(parsed.apply(before, is_directory), after, "{change} of {before:o}");
        }
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in ["", "888", "77777", "u", "u+y", "z+x", "u+x,", "rwx"] {
            assert!(ModeChange::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn modes_as_text() {
        assert_eq!(text(FileType::Regular, 0o644), "-rw-r--r--");
        assert_eq!(text(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(text(FileType::Regular, 0o6755), "-rwsr-sr-x");
        assert_eq!(text(FileType::Regular, 0o7000), "---S--S--T");
        assert_eq!(text(FileType::Symlink, 0o777), "lrwxrwxrwx");
    }
}
