//! Flags of inodes as letters, which are those of `lsattr` and `chattr`.

use drystone::vfs::FileFlags;

/// The letters in the order in which `lsattr` prints them; it has a place for some that no image here knows.
const LETTERS: [(char, FileFlags); 22] = [
    ('s', FileFlags::SECURE_REMOVE),
    ('u', FileFlags::UNDELETE),
    ('S', FileFlags::SYNC),
    ('D', FileFlags::DIRECTORY_SYNC),
    ('i', FileFlags::IMMUTABLE),
    ('a', FileFlags::APPEND),
    ('d', FileFlags::NO_DUMP),
    ('A', FileFlags::NO_ACCESS_TIME),
    ('c', FileFlags::COMPRESS),
    ('E', FileFlags::ENCRYPT),
    ('j', FileFlags::JOURNAL_DATA),
    ('I', FileFlags::INDEX),
    ('t', FileFlags::NO_TAIL),
    ('T', FileFlags::TOP_DIRECTORY),
    ('e', FileFlags::EXTENTS),
    ('C', FileFlags::empty()),
    ('x', FileFlags::DIRECT_ACCESS),
    ('F', FileFlags::CASEFOLD),
    ('N', FileFlags::INLINE_DATA),
    ('P', FileFlags::PROJECT_INHERIT),
    ('V', FileFlags::VERITY),
    ('m', FileFlags::empty()),
];

/// Flags that say how an inode is stored: nobody sets them.
const STRUCTURE: FileFlags = FileFlags::ENCRYPT
    .union(FileFlags::INDEX)
    .union(FileFlags::EXTENTS)
    .union(FileFlags::INLINE_DATA)
    .union(FileFlags::VERITY);

/// A change of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagChange {
    Add(FileFlags),
    Remove(FileFlags),
    Set(FileFlags),
}

impl FlagChange {
    /// Reads `+LETTERS`, `-LETTERS` or `=LETTERS`.
    pub fn parse(text: &str) -> Result<FlagChange, String> {
        let kind = match text.chars().next() {
            Some('+') => FlagChange::Add,
            Some('-') => FlagChange::Remove,
            Some('=') => FlagChange::Set,
            _ => return Err(format!("'{text}' doesn't begin with +, - or =")),
        };
        let mut flags = FileFlags::empty();
        for letter in text.chars().skip(1) {
            let found = LETTERS.iter().find(|(known, flag)| *known == letter && !flag.is_empty());
            let settable = found.filter(|(_, flag)| !STRUCTURE.contains(*flag));
            let (_, flag) = settable.ok_or_else(|| format!("'{letter}' isn't a flag to change"))?;
            flags |= *flag;
        }
        match (kind(flags), flags.is_empty()) {
            (FlagChange::Add(_) | FlagChange::Remove(_), true) => {
                Err("no flag is named".to_owned())
            }
            (change, _) => Ok(change),
        }
    }

    /// The flags after the change.
    pub fn apply(self, flags: FileFlags) -> FileFlags {
        match self {
            FlagChange::Add(more) => flags | more,
            FlagChange::Remove(less) => flags - less,
            FlagChange::Set(new) => (flags & STRUCTURE) | new,
        }
    }
}

/// The flags of a file that gets those of another.
pub fn copied(from: FileFlags, to: FileFlags) -> FileFlags {
    FlagChange::Set(from - STRUCTURE).apply(to)
}

/// Flags as `lsattr` prints them: a letter for each, a dash for each that isn't set.
pub fn letters(flags: FileFlags) -> String {
    let letter = |&(letter, flag): &(char, FileFlags)| match flags.intersects(flag) {
        true => letter,
        false => '-',
    };
    LETTERS.iter().map(letter).collect()
}

/// The names of flags.
pub fn names(flags: FileFlags) -> Vec<String> {
    flags.iter_names().map(|(name, _)| name.to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_a_letter() {
        let all = LETTERS.iter().fold(FileFlags::empty(), |all, (_, flag)| all | *flag);
        assert_eq!(all, FileFlags::all());
        assert_eq!(letters(FileFlags::EXTENTS | FileFlags::IMMUTABLE), "----i---------e-------");
    }

    #[test]
    fn changes_are_read_and_made() {
        let (immutable, append) = (FileFlags::IMMUTABLE, FileFlags::APPEND);
        assert_eq!(FlagChange::parse("+ia"), Ok(FlagChange::Add(immutable | append)));
        assert_eq!(FlagChange::parse("-i"), Ok(FlagChange::Remove(immutable)));
        assert_eq!(FlagChange::parse("="), Ok(FlagChange::Set(FileFlags::empty())));
        for text in ["", "i", "+", "-", "+e", "+C", "+z", "++i"] {
            assert!(FlagChange::parse(text).is_err(), "{text}");
        }
        let before = FileFlags::EXTENTS | immutable;
        assert_eq!(FlagChange::Add(append).apply(before), before | append);
        assert_eq!(FlagChange::Remove(immutable).apply(before), FileFlags::EXTENTS);
        assert_eq!(FlagChange::Set(append).apply(before), FileFlags::EXTENTS | append);
    }
}
