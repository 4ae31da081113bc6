//! The entries of one directory block: structure, names, and the inodes they refer to.

use crate::checker::DirectoryPass;
use crate::directory::{DirectoryContext, casefold_of};
use crate::htree::Index;
use crate::image::Image;
use crate::issue::{DirectoryIssue, IndexIssue, Issue};
use drystone_ext4_format::casefold::Casefold;
use drystone_ext4_format::dir::{self, DirectoryBlock, DirectoryLayout, Entry, EntryType};
use drystone_ext4_format::error::DirectoryProblem;
use drystone_ext4_format::{Corrupt, InodeNumber, LogicalBlock};
use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Where the name starts in a record.
const RECORD_HEADER_BYTES: usize = size_of::<dir::RawRecordHeader>();

/// Where the type lies in a record.
const RECORD_TYPE_OFFSET: usize = std::mem::offset_of!(dir::RawRecordHeader, file_type);

/// A block of the cipher: the shortest encrypted name.
pub(crate) const ENCRYPTED_NAME_BYTES_MIN: usize = 16;

/// The names of one directory, as hashes: memory for a directory of millions.
pub(crate) struct Names {
    casefold: Option<Casefold>,
    hashes: Vec<u64>,
}

impl Names {
    pub fn new(image: &Image<'_>, layout: &DirectoryLayout) -> Self {
        // Nobody can fold a name that is encrypted.
        let folds = layout.casefolded && !layout.encrypted;
        let casefold = if folds { casefold_of(image) } else { None };
        Self { casefold, hashes: Vec::new() }
    }

    /// What is compared of a name.
    pub fn key<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        match &self.casefold {
            Some(casefold) => casefold.key(name),
            None => Cow::Borrowed(name),
        }
    }

    /// Whether names may have these characters.
    pub fn accepts(&self, name: &[u8]) -> bool {
        self.casefold.as_ref().is_none_or(|casefold| casefold.accepts(name))
    }

    pub fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.key(name).hash(&mut hasher);
        hasher.finish()
    }

    pub fn add(&mut self, name: &[u8]) {
        self.hashes.push(self.hash(name));
    }

    /// Bytes that the hashes take.
    pub fn memory_bytes(&self) -> u64 {
        (self.hashes.capacity() * size_of::<u64>()) as u64
    }

    /// Whether two names have one hash.
    pub fn may_repeat(&mut self) -> bool {
        self.hashes.sort_unstable();
        self.hashes.windows(2).any(|pair| pair[0] == pair[1])
    }
}

/// Finds names that are in a directory twice, among those whose hashes are.
pub(crate) struct Repeated<'a> {
    names: &'a Names,
    hashes: HashSet<u64>,
    seen: HashSet<Vec<u8>>,
    pub issues: Vec<(LogicalBlock, usize, DirectoryIssue)>,
}

impl<'a> Repeated<'a> {
    /// The hashes are sorted.
    pub fn new(names: &'a Names) -> Self {
        let pairs = names.hashes.windows(2).filter(|pair| pair[0] == pair[1]);
        let hashes = pairs.map(|pair| pair[0]).collect();
        Self { names, hashes, seen: HashSet::new(), issues: Vec::new() }
    }

    pub fn visit(&mut self, block: LogicalBlock, offset: usize, name: &[u8]) {
        let is_dot = name == b"." || name == b"..";
        if is_dot || !self.hashes.contains(&self.names.hash(name)) {
            return;
        }
        if !self.seen.insert(self.names.key(name).into_owned()) {
            self.issues.push((block, offset, DirectoryIssue::Duplicate { name: text(name) }));
        }
    }
}

/// A name for people.
pub(crate) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Calls back for each entry of a block up to the first record that can't be.
pub(crate) fn for_each(
    bytes: &[u8],
    layout: &DirectoryLayout,
    visit: &mut dyn FnMut(usize, &[u8], InodeNumber),
) {
    for entry in DirectoryBlock::trusted(bytes, layout).entries() {
        visit(entry.offset, entry.name, entry.inode);
    }
}

/// Checks a block that holds entries.
pub(crate) fn check_block(
    pass: &mut DirectoryPass<'_, '_>,
    context: &DirectoryContext,
    names: &mut Names,
    index: &Index,
    logical: LogicalBlock,
    bytes: &[u8],
) {
    let layout = &context.layout;
    let place = context.place(logical);
    match dir::verify(bytes, layout, place) {
        // A missing tail is found below, with the records.
        Ok(()) | Err(Corrupt::Directory { .. }) => {}
        Err(corrupt) => pass.reporter.report(corrupt),
    }
    if let Err(corrupt) = DirectoryBlock::check(bytes, layout, place)
        && !is_about_entry(&corrupt)
    {
        pass.reporter.report(corrupt);
    }
    let block = DirectoryBlock::trusted(bytes, layout);
    for (position, entry) in block.entries().enumerate() {
        let at = At { logical, offset: entry.offset };
        let dots_due = logical == LogicalBlock::FIRST && position < 2;
        if dots_due {
            check_dot(pass, context, at, position, &entry);
            check_dot_end(pass, context, at, &entry, bytes);
            continue;
        }
        if entry.is_dot() {
            report(pass, context, at, DirectoryIssue::Dot { name: text(entry.name) });
        }
        check_entry(pass, context, names, at, &entry);
        if let Some((range, hash)) = index.outside(logical, &entry, layout) {
            let issue = IndexIssue::LeafRange {
                name: text(entry.name),
                hash,
                low: range.low,
                high: range.high,
            };
            let inode = context.inode.number;
            pass.reporter.report(Issue::Index { inode, block: logical, issue });
        }
    }
    if logical == LogicalBlock::FIRST {
        let missing = [DirectoryIssue::MissingDot, DirectoryIssue::MissingDotDot];
        for issue in missing.into_iter().skip(block.entries().count().min(2)) {
            report(pass, context, At { logical, offset: 0 }, issue);
        }
    }
}

/// Counts the dots of a root of an index, whose names and place the index's own check has looked at.
pub(crate) fn check_root(
    pass: &mut DirectoryPass<'_, '_>,
    context: &DirectoryContext,
    index: &Index,
    bytes: &[u8],
) {
    // The record of `..` claims the place of the checksum as well.
    let layout = DirectoryLayout { checksum: None, ..context.layout };
    for entry in DirectoryBlock::trusted(bytes, &layout).entries().take(2) {
        let at = At { logical: LogicalBlock::FIRST, offset: entry.offset };
        check_type(pass, context, at, &entry, EntryType::Directory);
        let raw = bytes.get(entry.offset + RECORD_TYPE_OFFSET).copied().unwrap_or(0);
        if layout.file_type && EntryType::from_raw(raw).is_none() {
            let (name, found) = (text(entry.name), EntryType::Unknown);
            let (target, expected) = (entry.inode, EntryType::Directory);
            report(pass, context, at, DirectoryIssue::Type { name, target, found, expected });
        }
        check_dot_end(pass, context, at, &entry, bytes);
    }
    let own = context.inode.number;
    pass.add_name(own);
    set_parent(pass, context, index.parent);
}

fn set_parent(pass: &mut DirectoryPass<'_, '_>, context: &DirectoryContext, parent: InodeNumber) {
    pass.set_dotdot(context.inode.number, parent);
    pass.add_parent_name(parent);
}

/// Counts what an inline directory, which has no dots, implies.
pub(crate) fn add_implied_dots(
    pass: &mut DirectoryPass<'_, '_>,
    context: &DirectoryContext,
    parent: InodeNumber,
) {
    pass.add_name(context.inode.number);
    set_parent(pass, context, parent);
}

/// Problems that the check of single entries reports, with more to say.
fn is_about_entry(corrupt: &Corrupt) -> bool {
    matches!(
        corrupt,
        Corrupt::Directory {
            problem: DirectoryProblem::InodeNumber { .. }
                | DirectoryProblem::EmptyName { .. }
                | DirectoryProblem::NameByte { .. },
            ..
        }
    )
}

/// Where an entry is.
#[derive(Clone, Copy)]
pub(crate) struct At {
    pub logical: LogicalBlock,
    pub offset: usize,
}

fn report(
    pass: &mut DirectoryPass<'_, '_>,
    context: &DirectoryContext,
    at: At,
    issue: DirectoryIssue,
) {
    let (inode, block, offset) = (context.inode.number, at.logical, at.offset);
    pass.reporter.report(Issue::Directory { inode, block, offset, issue });
}

fn check_dot(
    pass: &mut DirectoryPass<'_, '_>,
    context: &DirectoryContext,
    at: At,
    position: usize,
    entry: &Entry<'_>,
) {
    let own = context.inode.number;
    let fits = if position == 0 {
        // The record of `.` must be its shortest, as the index hides behind the next one.
        at.offset == 0 && entry.name == b"." && entry.inode == own
    } else {
        entry.name == b".."
    };
    if !fits {
        let missing = [DirectoryIssue::MissingDot, DirectoryIssue::MissingDotDot];
        if let Some(issue) = missing.into_iter().nth(position) {
            report(pass, context, at, issue);
        }
        return;
    }
    check_type(pass, context, at, entry, EntryType::Directory);
    if position == 0 {
        pass.add_name(own);
    } else {
        set_parent(pass, context, entry.inode);
    }
}

/// The name of a dot ends with a zero: some readers compare it as text.
fn check_dot_end(
    pass: &mut DirectoryPass<'_, '_>,
    context: &DirectoryContext,
    at: At,
    entry: &Entry<'_>,
    bytes: &[u8],
) {
    let end = entry.offset + RECORD_HEADER_BYTES + entry.name.len();
    if entry.is_dot() && bytes.get(end).is_some_and(|&byte| byte != 0) {
        report(pass, context, at, DirectoryIssue::DotEnd { name: text(entry.name) });
    }
}

fn check_type(
    pass: &mut DirectoryPass<'_, '_>,
    context: &DirectoryContext,
    at: At,
    entry: &Entry<'_>,
    expected: EntryType,
) {
    let found = entry.entry_type;
    // A reader that finds no type asks the inode. Undefined types were reported with the block.
    if context.layout.file_type && found != expected && found != EntryType::Unknown {
        let (name, target) = (text(entry.name), entry.inode);
        report(pass, context, at, DirectoryIssue::Type { name, target, found, expected });
    }
}

/// Whether inodes of a type have something that is encrypted.
pub(crate) fn can_be_encrypted(kind: EntryType) -> bool {
    matches!(kind, EntryType::Regular | EntryType::Directory | EntryType::Symlink)
}

/// Checks an ordinary entry.
pub(crate) fn check_entry(
    pass: &mut DirectoryPass<'_, '_>,
    context: &DirectoryContext,
    names: &mut Names,
    at: At,
    entry: &Entry<'_>,
) {
    let layout = pass.image.layout;
    let target = entry.inode;
    let name = || text(entry.name);
    let is_illegal = |byte: &u8| *byte == 0 || *byte == b'/';
    let is_short = context.layout.encrypted && entry.name.len() < ENCRYPTED_NAME_BYTES_MIN;
    if is_short
        || entry.name.is_empty()
        || !context.layout.encrypted && entry.name.iter().any(is_illegal)
    {
        report(pass, context, at, DirectoryIssue::Name { name: name() });
    } else if !names.accepts(entry.name) {
        report(pass, context, at, DirectoryIssue::Encoding { name: name() });
    }
    names.add(entry.name);
    if !layout.contains_inode(target) {
        report(pass, context, at, DirectoryIssue::NoInode { name: name(), target });
        return;
    }
    // The root has no name but its own dots.
    if target < layout.first_inode()
        || pass.states.holds_value(target)
        || pass.image.serves_image(target)
    {
        report(pass, context, at, DirectoryIssue::Reserved { name: name(), target });
        pass.note_uncounted(target);
        return;
    }
    if !pass.states.is_used(target) {
        report(pass, context, at, DirectoryIssue::Unused { name: name(), target });
        pass.note_uncounted(target);
        return;
    }
    let kind = pass.states.kind(target);
    check_type(pass, context, at, entry, kind);
    if context.layout.encrypted
        && can_be_encrypted(kind)
        && !pass.has_policy(context.inode.number, target)
    {
        report(pass, context, at, DirectoryIssue::Policy { name: name(), target });
    }
    pass.add_name(target);
    // A dot in the wrong place, which goes, isn't a place of its directory.
    if kind == EntryType::Directory && !entry.is_dot() {
        pass.add_child(context.inode.number, target);
    }
}
