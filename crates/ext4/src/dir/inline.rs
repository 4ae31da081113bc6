//! Inline directories: the entries lie in the inode's block area, and behind that in the attribute
//! `system.data`.

use super::FoundEntry;
use super::block::Directory;
use crate::content::ContentStore;
use crate::content::SoughtName;
use crate::error::Result;
use crate::inode::{Fields, Inode};
use drystone_ext4_format::dir::{DirectoryLayout, EntryType, NewEntry};
use drystone_ext4_format::error::InlineProblem;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inline::{
    HEAD_LENGTH, InlineDirectory, InlineDirectoryMut, extend_piece, init_directory,
};
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::xattr::{
    AttributeName, AttributePlace, AttributeSet, AttributeValue, NoAttributeRoom, Value, XattrView,
};
use drystone_ext4_format::{Corrupt, InodeNumber, LogicalBlock};
use drystone_jbd2::Handle;

/// Shortest value of `system.data` that holds entries.
const REST_LENGTH_MIN: usize = 12;

/// A copy of the contents of an inline directory.
pub(super) struct Contents {
    pub head: [u8; HEAD_LENGTH],
    pub rest: Vec<u8>,
}

impl Contents {
    /// Looks at the entries.
    pub fn look<T>(
        &self,
        directory: &Directory<'_>,
        look: impl FnOnce(&InlineDirectory<'_>) -> T,
    ) -> T {
        look(&InlineDirectory::trusted(&self.head, &self.rest, &directory.layout))
    }
}

fn attributes(fields: &Fields) -> Result<XattrView<'_>> {
    let place = AttributePlace { inode: fields.disk.number, block: None };
    Ok(XattrView::check_in_inode(&fields.xattr_area, place)?)
}

/// The part of the contents that the attribute holds.
fn rest(fields: &Fields) -> Result<&[u8]> {
    let corrupt = |problem| Corrupt::Inline { inode: fields.disk.number, problem };
    let name = AttributeName::inline_data();
    match attributes(fields)?.find(name.index, &name.suffix).map(|entry| entry.value) {
        Some(Value::Inline(bytes)) => {
            let size = fields.disk.size_bytes;
            let beyond = usize::try_from(size).unwrap_or(usize::MAX).saturating_sub(HEAD_LENGTH);
            let held = HEAD_LENGTH + bytes.len();
            Ok(bytes.get(..beyond).ok_or(corrupt(InlineProblem::Size { size, held }))?)
        }
        _ => Err(corrupt(InlineProblem::MissingAttribute).into()),
    }
}

/// Replaces the part of the contents that the attribute holds; false if it does not fit.
fn set_rest(fields: &mut Fields, rest: Vec<u8>) -> Result<bool> {
    let mut set = AttributeSet::read(&attributes(fields)?);
    set.set(AttributeName::inline_data(), AttributeValue::Inline(rest));
    match set.encode_in_inode(&mut fields.xattr_area) {
        Ok(()) => Ok(true),
        Err(NoAttributeRoom { .. }) => Ok(false),
    }
}

/// Removes the attribute.
pub(super) fn clear(fields: &mut Fields) -> Result<()> {
    let mut set = AttributeSet::read(&attributes(fields)?);
    set.remove(&AttributeName::inline_data());
    let fits = set.encode_in_inode(&mut fields.xattr_area);
    debug_assert!(fits.is_ok(), "fewer attributes need less room");
    Ok(())
}

fn with_view<T>(
    directory: &Directory<'_>,
    look: impl FnOnce(&InlineDirectory<'_>) -> T,
) -> Result<T> {
    let fields = directory.inode.fields();
    let rest = rest(&fields)?;
    let (layout, number) = (&directory.layout, directory.inode.number);
    let view = InlineDirectory::check(&fields.disk.block_area, rest, layout, number)?;
    Ok(look(&view))
}

/// Copies the contents after a check.
pub(super) fn contents(directory: &Directory<'_>) -> Result<Contents> {
    with_view(directory, |_| ())?;
    let fields = directory.inode.fields();
    Ok(Contents { head: fields.disk.block_area, rest: rest(&fields)?.to_vec() })
}

/// Changes the contents in place, after a check.
fn change<T>(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    change: impl FnOnce(&mut InlineDirectoryMut<'_>) -> T,
) -> Result<T> {
    let Contents { mut head, rest: mut tail } = contents(directory)?;
    let changed = change(&mut InlineDirectoryMut::trusted(&mut head, &mut tail, &directory.layout));
    directory.inode.update(directory.fs, handle, |fields| {
        // It is as long as before, so it fits.
        set_rest(fields, tail)?;
        fields.disk.block_area = head;
        Ok(())
    })?;
    Ok(changed)
}

pub(super) fn find(
    directory: &Directory<'_>,
    sought: &SoughtName<'_>,
) -> Result<Option<FoundEntry>> {
    let layout = directory.layout;
    with_view(directory, |view| {
        let entry = view.entries().find(|entry| sought.matches(entry.name))?;
        let (block, buffer) = (LogicalBlock::FIRST, None);
        Some(FoundEntry {
            inode: entry.inode,
            block,
            buffer,
            offset: entry.offset,
            previous: None,
            layout,
        })
    })
}

pub(super) fn is_empty(directory: &Directory<'_>) -> Result<bool> {
    with_view(directory, |view| view.is_empty())
}

pub(super) fn parent(directory: &Directory<'_>) -> Result<InodeNumber> {
    with_view(directory, |view| view.parent())
}

/// Adds an entry; false if the inode has no room for it.
pub(super) fn insert(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    entry: &NewEntry<'_>,
) -> Result<bool> {
    let layout = &directory.layout;
    let Contents { mut head, rest: mut tail } = contents(directory)?;
    let mut inserted = InlineDirectoryMut::trusted(&mut head, &mut tail, layout).insert(entry);
    if inserted.is_err() {
        let length = rest_length_max(directory)?;
        if length < tail.len().max(REST_LENGTH_MIN) {
            return Ok(false);
        }
        extend_piece(&mut tail, length, layout);
        inserted = InlineDirectoryMut::trusted(&mut head, &mut tail, layout).insert(entry);
    }
    if inserted.is_err() {
        return Ok(false);
    }
    directory.inode.update(directory.fs, handle, |fields| {
        let size_bytes = (HEAD_LENGTH + tail.len()) as u64;
        if !set_rest(fields, tail)? {
            return Ok(false);
        }
        fields.disk.block_area = head;
        fields.disk.size_bytes = size_bytes;
        Ok(true)
    })
}

/// The longest value of the attribute that fits beside the other attributes.
fn rest_length_max(directory: &Directory<'_>) -> Result<usize> {
    let fields = directory.inode.fields();
    let mut set = AttributeSet::read(&attributes(&fields)?);
    set.set(AttributeName::inline_data(), AttributeValue::Inline(Vec::new()));
    Ok(fields.xattr_area.len().saturating_sub(set.length_in_inode()) & !3)
}

pub(super) fn remove(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    found: &FoundEntry,
) -> Result<()> {
    let removed = change(directory, handle, |view| view.remove(found.offset))?;
    assert_eq!(removed, Ok(()), "an entry that was found under the lock is there");
    Ok(())
}

pub(super) fn replace(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    found: &FoundEntry,
    inode: InodeNumber,
    entry_type: EntryType,
) -> Result<()> {
    let replaced =
        change(directory, handle, |view| view.set_target(found.offset, inode, entry_type))?;
    assert_eq!(replaced, Ok(()), "an entry that was found under the lock is there");
    Ok(())
}

pub(super) fn set_parent(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    parent: InodeNumber,
) -> Result<()> {
    change(directory, handle, |view| view.set_parent(parent))
}

/// Makes a new directory inline; false if the image has no inline data, or the inode has no room.
pub(super) fn initialise(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    directory: &Inode,
    parent: InodeNumber,
) -> Result<bool> {
    let incompat = fs.volume.features.incompat;
    if !incompat.contains(Incompat::INLINE_DATA) || directory.flags().contains(InodeFlags::ENCRYPT)
    {
        return Ok(false);
    }
    let layout = DirectoryLayout {
        file_type: incompat.contains(Incompat::FILETYPE),
        checksum: None,
        encrypted: false,
        casefolded: directory.flags().contains(InodeFlags::CASEFOLD),
        inode_last: InodeNumber::new(fs.volume.layout().inodes_count()),
    };
    directory.update(fs, handle, |fields| {
        if !set_rest(fields, Vec::new())? {
            return Ok(false);
        }
        fields.disk.block_area = init_directory(parent, &layout);
        fields.disk.size_bytes = HEAD_LENGTH as u64;
        fields.disk.flags -= InodeFlags::EXTENTS;
        fields.disk.flags |= InodeFlags::INLINE_DATA;
        Ok(true)
    })
}
