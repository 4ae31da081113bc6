//! Which operations a generator makes, and how often.

use std::ops::Range;

/// How the names of new entries look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameStyle {
    /// A few dozen short names, so that names are reused.
    Few,
    /// Numbered names, almost always new.
    Numbered,
    /// Any bytes that may be in a name, 1 to 40 of them.
    AnyBytes,
    /// Up to the longest name.
    Long,
    /// Names that differ in one bit of one byte, including the highest: only a good hash separates
    /// them, and only one with the right signedness matches.
    Alike,
}

/// Weights of operation groups, and sizes.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The name in reports.
    pub name: &'static str,
    /// Making inodes of all types, and links.
    pub create: u32,
    /// Removing names.
    pub remove: u32,
    /// Moving names.
    pub rename: u32,
    /// Making and removing directories.
    pub directory: u32,
    /// Writing and appending.
    pub write: u32,
    /// Reading and seeking.
    pub read: u32,
    /// Truncating and changing ranges.
    pub range: u32,
    /// Extended attributes and access control lists.
    pub xattr: u32,
    /// Mode, owner, times, flags.
    pub attribute: u32,
    /// Looking: attributes, listings, permissions.
    pub look: u32,
    /// Opening, closing, files without names.
    pub open: u32,
    /// Making things durable.
    pub sync: u32,
    /// How new names look, chosen with equal odds.
    pub names: &'static [NameStyle],
    /// Above this many entries, more are removed than made.
    pub entries_max: usize,
    /// The largest offset at which writes start.
    pub offset_max: u64,
    /// The most bytes of one write.
    pub write_max: u32,
    /// The largest value of an extended attribute, in bytes.
    pub xattr_value_max: u32,
    /// Lengths of values with an inode of their own, which half of the values of `user.` names get.
    /// Other names, which symbolic links have too, get none: `e2fsck` 1.47 takes the target of a fast
    /// link with such a value for block numbers, also if the kernel made it.
    pub xattr_values_large: Option<Range<u32>>,
    /// Alignment of most ranges, such as the block size.
    pub alignment: u64,
    /// Odds in percent that an ordinary user acts.
    pub users_percent: u32,
    /// Odds in percent that a new entry goes into the deepest directory known.
    pub deep_percent: u32,
    /// The immutable and append-only flags are set occasionally.
    pub guards: bool,
}

impl Profile {
    /// Some of everything.
    pub const MIXED: Profile = Profile {
        name: "mixed",
        create: 20,
        remove: 10,
        rename: 8,
        directory: 8,
        write: 14,
        read: 8,
        range: 8,
        xattr: 8,
        attribute: 6,
        look: 6,
        open: 6,
        sync: 1,
        names: &[NameStyle::Few, NameStyle::Numbered, NameStyle::AnyBytes, NameStyle::Long],
        entries_max: 300,
        offset_max: 300_000,
        write_max: 20_000,
        xattr_value_max: 200,
        xattr_values_large: None,
        alignment: 4096,
        users_percent: 25,
        deep_percent: 5,
        guards: true,
    };

    /// Names come and go; content hardly matters.
    pub const METADATA: Profile = Profile {
        name: "metadata",
        create: 40,
        remove: 25,
        directory: 15,
        write: 2,
        read: 1,
        range: 1,
        xattr: 2,
        names: &[NameStyle::Few, NameStyle::Numbered, NameStyle::Alike],
        ..Profile::MIXED
    };

    /// Content of a few files, with all kinds of ranges.
    pub const DATA: Profile = Profile {
        name: "data",
        create: 4,
        remove: 2,
        rename: 1,
        directory: 1,
        write: 40,
        read: 25,
        range: 25,
        xattr: 1,
        names: &[NameStyle::Few],
        entries_max: 20,
        offset_max: 3_000_000,
        write_max: 100_000,
        ..Profile::MIXED
    };

    /// Extended attributes that come, change size and go.
    pub const XATTRS: Profile = Profile {
        name: "xattrs",
        xattr: 120,
        entries_max: 60,
        names: &[NameStyle::Few],
        ..Profile::MIXED
    };

    /// Files and directories that move a lot.
    pub const RENAMES: Profile = Profile {
        name: "renames",
        rename: 80,
        directory: 20,
        names: &[NameStyle::Few],
        entries_max: 120,
        ..Profile::MIXED
    };

    /// Directories in directories.
    pub const DEEP: Profile = Profile {
        name: "deep",
        directory: 60,
        deep_percent: 60,
        names: &[NameStyle::Few, NameStyle::Long],
        ..Profile::MIXED
    };

    /// Few directories with many entries.
    pub const BIG_DIRECTORIES: Profile = Profile {
        name: "big-directories",
        create: 100,
        remove: 30,
        rename: 15,
        directory: 1,
        write: 1,
        read: 1,
        range: 1,
        xattr: 1,
        names: &[NameStyle::Numbered, NameStyle::Alike, NameStyle::Long, NameStyle::AnyBytes],
        entries_max: 5_000,
        ..Profile::MIXED
    };

    /// All of them.
    pub const ALL: &'static [Profile] = &[
        Profile::MIXED,
        Profile::METADATA,
        Profile::DATA,
        Profile::XATTRS,
        Profile::RENAMES,
        Profile::DEEP,
        Profile::BIG_DIRECTORIES,
    ];

    /// The profile of a name.
    pub fn by_name(name: &str) -> Option<Profile> {
        Profile::ALL.iter().find(|profile| profile.name == name).cloned()
    }
}
