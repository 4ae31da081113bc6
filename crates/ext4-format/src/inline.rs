//! Inline data: contents that live in the inode.
//!
//! The first 60 bytes lie where the inode's block map would be, the rest is the value of the
//! attribute `system.data`, which every inode with inline data has, if only with an empty value. A
//! directory starts with 4 bytes for its parent's number; then come records as in a block. The
//! attribute's value is a second chain of records. There are no entries `.` and `..`. Offsets of
//! entries here count from the start of the contents, so the first is 4.
//!
//! # Reference
//! Kernel documentation, "ext4 Data Structures and Algorithms", Inline Data.

use crate::dir::{
    DirectoryBlock, DirectoryBlockMut, DirectoryLayout, DirectoryPlace, Entry, EntryType, NewEntry,
    NoEntry, NoRoom, init_empty, init_with_dots,
};
use crate::error::{Corrupt, InlineProblem};
use crate::ids::{InodeNumber, LogicalBlock};

/// Bytes of contents that the inode's block map holds.
pub const HEAD_LENGTH: usize = 60;

/// Bytes of an inline directory before its first record.
pub const PARENT_LENGTH: usize = 4;

/// Bytes that `.` and `..` take in a block.
const DOTS_LENGTH: usize = 24;

/// Shortest piece that holds records; a shorter attribute value holds none.
const PIECE_LENGTH_MIN: usize = 12;

/// The contents of a file or symbolic link with inline data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InlineData<'a> {
    head: &'a [u8],
    rest: &'a [u8],
}

impl<'a> InlineData<'a> {
    /// Checks that both pieces hold `size` bytes. `rest` is the value of `system.data`, `None`
    /// where the inode lacks it.
    ///
    /// # Errors
    /// The attribute is missing or the pieces are too short.
    pub fn check(
        head: &'a [u8; HEAD_LENGTH],
        rest: Option<&'a [u8]>,
        size: u64,
        inode: InodeNumber,
    ) -> Result<Self, Corrupt> {
        let corrupt = |problem| Corrupt::Inline { inode, problem };
        let rest = rest.ok_or(corrupt(InlineProblem::MissingAttribute))?;
        let held = HEAD_LENGTH + rest.len();
        let too_large = corrupt(InlineProblem::Size { size, held });
        let length = usize::try_from(size).map_err(|_| too_large.clone())?;
        let beyond = length.saturating_sub(HEAD_LENGTH);
        let rest = rest.get(..beyond).ok_or(too_large)?;
        Ok(Self { head: &head[..length.min(HEAD_LENGTH)], rest })
    }

    /// Bytes of contents.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.head.len() + self.rest.len()
    }

    /// The contents in one piece.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        [self.head, self.rest].concat()
    }

    /// Copies contents from `offset` on and returns how many bytes there were.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.head.iter().chain(self.rest).skip(skip);
        into.iter_mut().zip(bytes).map(|(to, from)| *to = *from).count()
    }
}

/// Cuts contents into the inode's piece and the value of `system.data`.
#[must_use]
pub fn split(contents: &[u8]) -> ([u8; HEAD_LENGTH], Vec<u8>) {
    let mut head = [0; HEAD_LENGTH];
    let (front, rest) = contents.split_at(contents.len().min(HEAD_LENGTH));
    head[..front.len()].copy_from_slice(front);
    (head, rest.to_vec())
}

/// An inline directory, its records checked.
#[derive(Debug, Clone, Copy)]
pub struct InlineDirectory<'a> {
    parent: InodeNumber,
    first: DirectoryBlock<'a>,
    second: Option<DirectoryBlock<'a>>,
}

impl<'a> InlineDirectory<'a> {
    /// Checks both pieces of a directory. `rest` is the value of `system.data`.
    ///
    /// # Errors
    /// What is wrong with the directory; record offsets in errors count within their piece, and
    /// the piece is named as logical block 0 or 1.
    pub fn check(
        head: &'a [u8; HEAD_LENGTH],
        rest: &'a [u8],
        layout: &DirectoryLayout,
        inode: InodeNumber,
    ) -> Result<Self, Corrupt> {
        let corrupt = |problem| Corrupt::Inline { inode, problem };
        let directory = Self::trusted(head, rest, layout);
        let (parent, last) = (directory.parent, layout.inode_last);
        if parent == InodeNumber::new(0) || parent > last {
            return Err(corrupt(InlineProblem::Parent { inode: parent, last }));
        }
        if !rest.is_empty() && directory.second.is_none() {
            return Err(corrupt(InlineProblem::PieceLength { length: rest.len() }));
        }
        let layout = layout.without_tail();
        let place = |piece| DirectoryPlace { inode, block: LogicalBlock::new(piece) };
        DirectoryBlock::check(&head[PARENT_LENGTH..], &layout, place(0))?;
        if directory.second.is_some() {
            DirectoryBlock::check(rest, &layout, place(1))?;
        }
        Ok(directory)
    }

    /// A view of a directory that has been checked since it was read. On other bytes it never
    /// panics.
    #[must_use]
    pub fn trusted(head: &'a [u8; HEAD_LENGTH], rest: &'a [u8], layout: &DirectoryLayout) -> Self {
        let layout = layout.without_tail();
        let [a, b, c, d, ..] = *head;
        let parent = InodeNumber::new(u32::from_le_bytes([a, b, c, d]));
        let first = DirectoryBlock::trusted(&head[PARENT_LENGTH..], &layout);
        let second =
            (rest.len() >= PIECE_LENGTH_MIN).then(|| DirectoryBlock::trusted(rest, &layout));
        Self { parent, first, second }
    }

    /// The parent: what `..` would name.
    #[must_use]
    pub const fn parent(&self) -> InodeNumber {
        self.parent
    }

    /// The live entries of both pieces in order; offsets count from the start of the contents.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let at = |base: usize| move |e: Entry<'a>| Entry { offset: e.offset + base, ..e };
        let second = self.second.into_iter().flat_map(|piece| piece.entries());
        self.first.entries().map(at(PARENT_LENGTH)).chain(second.map(at(HEAD_LENGTH)))
    }

    /// The entry with exactly this name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<Entry<'a>> {
        self.entries().find(|entry| entry.name == name)
    }

    /// Whether the directory has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries().next().is_none()
    }
}

/// An inline directory, open for changes. The second piece keeps its length: see
/// [`extend_piece`].
#[derive(Debug)]
pub struct InlineDirectoryMut<'a> {
    head: &'a mut [u8; HEAD_LENGTH],
    rest: &'a mut [u8],
    layout: DirectoryLayout,
}

impl<'a> InlineDirectoryMut<'a> {
    /// Opens a directory that has been checked since it was read. On other bytes it never panics.
    #[must_use]
    pub fn trusted(
        head: &'a mut [u8; HEAD_LENGTH],
        rest: &'a mut [u8],
        layout: &DirectoryLayout,
    ) -> Self {
        Self { head, rest, layout: layout.without_tail() }
    }

    /// The directory as it is now.
    #[must_use]
    pub fn view(&self) -> InlineDirectory<'_> {
        InlineDirectory::trusted(self.head, self.rest, &self.layout)
    }

    /// The piece that holds an offset, and where that piece starts.
    fn piece(&mut self, offset: usize) -> (DirectoryBlockMut<'_>, usize) {
        if offset < HEAD_LENGTH {
            let bytes = &mut self.head[PARENT_LENGTH..];
            (DirectoryBlockMut::trusted(bytes, &self.layout), PARENT_LENGTH)
        } else {
            (DirectoryBlockMut::trusted(self.rest, &self.layout), HEAD_LENGTH)
        }
    }

    /// Adds an entry into the first record with enough slack and returns its offset.
    ///
    /// # Errors
    /// Neither piece has room; nothing is changed.
    pub fn insert(&mut self, entry: &NewEntry<'_>) -> Result<usize, NoRoom> {
        for at in [0, HEAD_LENGTH] {
            let (mut piece, base) = self.piece(at);
            if let Ok(offset) = piece.insert(entry) {
                return Ok(base + offset);
            }
        }
        Err(NoRoom)
    }

    /// Removes the entry at `offset`.
    ///
    /// # Errors
    /// No live entry starts there.
    pub fn remove(&mut self, offset: usize) -> Result<(), NoEntry> {
        let (mut piece, base) = self.piece(offset);
        piece.remove(offset.checked_sub(base).ok_or(NoEntry)?)
    }

    /// Makes the entry at `offset` name another inode.
    ///
    /// # Errors
    /// No live entry starts there.
    pub fn set_target(
        &mut self,
        offset: usize,
        inode: InodeNumber,
        entry_type: EntryType,
    ) -> Result<(), NoEntry> {
        let (mut piece, base) = self.piece(offset);
        piece.set_target(offset.checked_sub(base).ok_or(NoEntry)?, inode, entry_type)
    }

    /// Makes another directory the parent.
    pub fn set_parent(&mut self, parent: InodeNumber) {
        self.head[..PARENT_LENGTH].copy_from_slice(&parent.get().to_le_bytes());
    }
}

/// The inode's piece of a directory without entries.
#[must_use]
pub fn init_directory(parent: InodeNumber, layout: &DirectoryLayout) -> [u8; HEAD_LENGTH] {
    let mut head = [0; HEAD_LENGTH];
    head[..PARENT_LENGTH].copy_from_slice(&parent.get().to_le_bytes());
    init_empty(&mut head[PARENT_LENGTH..], &layout.without_tail());
    head
}

/// Gives the value of `system.data` more room: `length` bytes, the entries where they were.
///
/// # Panics
/// If `length` is not a multiple of 4, below 12 or below the old one.
pub fn extend_piece(rest: &mut Vec<u8>, length: usize, layout: &DirectoryLayout) {
    assert!(length >= rest.len() && length.is_multiple_of(4), "a piece only grows");
    let layout = layout.without_tail();
    let old_length = rest.len();
    rest.resize(length, 0);
    if old_length < PIECE_LENGTH_MIN {
        init_empty(rest, &layout);
    } else {
        DirectoryBlockMut::trusted(rest, &layout).extend_last(old_length);
    }
}

/// Where the entry at `offset` of an inline directory goes in the block that [`expand`] makes.
#[must_use]
pub const fn block_offset(offset: usize) -> usize {
    offset - PARENT_LENGTH + DOTS_LENGTH
}

/// Makes the first block of a directory from its inline contents: `.`, `..`, and the records in the
/// same order and shape, so that positions in the directory stay valid.
///
/// # Errors
/// The block is too short.
pub fn expand(
    head: &[u8; HEAD_LENGTH],
    rest: &[u8],
    bytes: &mut [u8],
    layout: &DirectoryLayout,
    own: InodeNumber,
) -> Result<(), NoRoom> {
    let parent = InlineDirectory::trusted(head, rest, layout).parent();
    let end = layout.records_end(bytes.len());
    let middle = DOTS_LENGTH + HEAD_LENGTH - PARENT_LENGTH;
    let last = middle + if rest.len() < PIECE_LENGTH_MIN { 0 } else { rest.len() };
    if last > end {
        return Err(NoRoom);
    }
    init_with_dots(bytes, layout, own, parent);
    bytes[DOTS_LENGTH..middle].copy_from_slice(&head[PARENT_LENGTH..]);
    bytes[middle..last].copy_from_slice(&rest[..last - middle]);
    let mut block = DirectoryBlockMut::trusted(bytes, layout);
    block.shorten_dots(DOTS_LENGTH);
    block.extend_last(last);
    Ok(())
}

#[cfg(test)]
mod tests;
