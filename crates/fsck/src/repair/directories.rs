//! Directories: each block is made anew from the entries that hold.
//!
//! An index that is wrong is given up, and built anew when everything else is repaired.

use super::fields;
use super::maps;
use super::repairer::{Done, Repairer};
use crate::directory::DirectoryContext;
use crate::entries::{ENCRYPTED_NAME_BYTES_MIN, Names, can_be_encrypted};
use crate::image::Error;
use crate::mapping;
use drystone_ext4_format::dir::{
    self, DirectoryBlock, DirectoryBlockBuilder, DirectoryLayout, EntryType, NewEntry,
};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::inline::{self, InlineDirectoryMut};
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::xattr::{
    AttributeName, AttributePlace, AttributeSet, AttributeValue, XattrView,
};
use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock};
use std::collections::{HashSet, VecDeque};
use std::ops::Range;

/// Where the piece of an inline directory lies in its inode.
const BLOCK_AREA: Range<usize> = 40..100;

/// Entries that wait for room in a later block: of a block that got its dots back.
const WAITING_MAX: usize = 64;

/// An entry on its own.
struct KeptEntry {
    name: Vec<u8>,
    inode: InodeNumber,
    entry_type: EntryType,
    hash: Option<drystone_ext4_format::hash::NameHash>,
}

impl KeptEntry {
    fn as_new(&self) -> NewEntry<'_> {
        NewEntry {
            name: &self.name,
            inode: self.inode,
            entry_type: self.entry_type,
            hash: self.hash,
        }
    }
}

/// Decides which entries of a directory are kept.
struct Sieve {
    names: Names,
    met: HashSet<u64>,
    /// Names that need no change: one that does takes none of them.
    sound: HashSet<u64>,
    /// Directories that were met.
    children: HashSet<u32>,
    own: InodeNumber,
    /// An inode whose name goes.
    unwanted: Option<InodeNumber>,
    encrypted: bool,
    file_type: bool,
}

impl Sieve {
    /// A name as it can be; nothing if none can be made of it.
    fn possible_name(&self, name: &[u8]) -> Option<Vec<u8>> {
        if self.encrypted {
            return (name.len() >= ENCRYPTED_NAME_BYTES_MIN).then(|| name.to_vec());
        }
        let possible = without_impossible(name, &self.names);
        (!possible.is_empty() && possible != b"." && possible != b"..").then_some(possible)
    }

    /// Notes an entry whose name needs no change.
    fn note(&mut self, entry: &dir::Entry<'_>) {
        if self.possible_name(entry.name).is_some_and(|possible| possible == entry.name) {
            self.sound.insert(self.names.hash(entry.name));
        }
    }

    /// The entry as it should be; nothing if there should be none.
    fn keep(&mut self, repairer: &Repairer<'_, '_>, entry: &dir::Entry<'_>) -> Option<KeptEntry> {
        let states = &repairer.checker.states;
        let layout = repairer.checker.image.layout;
        let target = entry.inode;
        let mut name = self.possible_name(entry.name)?;
        let is_target = layout.contains_inode(target)
            && target >= layout.first_inode()
            && target != self.own
            && !states.holds_value(target)
            && !repairer.checker.image.serves_image(target)
            && states.is_used(target);
        let is_permitted = !self.encrypted
            || !can_be_encrypted(states.kind(target))
            || repairer.checker.found.policies.fits(self.own, target);
        if !is_target || !is_permitted || self.unwanted == Some(target) {
            return None;
        }
        // A directory has one name, in the directory that the check has met first. It may be the other one
        // that its `..` names: then it is chosen later.
        if let Some(at) = repairer.checker.found.directories.position(target) {
            let known = repairer.checker.found.directories.all[at];
            let is_elsewhere = ![0, self.own.get()].contains(&known.parent);
            if is_elsewhere && known.dotdot != self.own.get() || !self.children.insert(target.get())
            {
                return None;
            }
        }
        let first = name.clone();
        let is_changed = first != entry.name;
        // Two names may share a hash. Then one of two different files gets a longer name.
        let mut number = 0u32;
        loop {
            let hash = self.names.hash(&name);
            let is_sound_one = is_changed && self.sound.contains(&hash);
            if !is_sound_one && self.met.insert(hash) {
                break;
            }
            if self.encrypted || number == 1000 {
                return None;
            }
            number += 1;
            let suffix = format!("~{number}");
            name = first[..first.len().min(255 - suffix.len())].to_vec();
            name.extend_from_slice(suffix.as_bytes());
        }
        let entry_type = if self.file_type { states.kind(target) } else { EntryType::Unknown };
        Some(KeptEntry { name, inode: target, entry_type, hash: entry.hash })
    }
}

/// A name with dots in place of what no name has.
fn without_impossible(name: &[u8], names: &Names) -> Vec<u8> {
    let mut possible: Vec<u8> =
        name.iter().map(|&byte| if byte == 0 || byte == b'/' { b'.' } else { byte }).collect();
    if !names.accepts(&possible) {
        let chunks = possible.utf8_chunks();
        let parts = chunks.flat_map(|chunk| {
            let dots = std::iter::repeat_n(b'.', chunk.invalid().len());
            chunk.valid().bytes().chain(dots)
        });
        possible = parts.collect();
    }
    possible
}

/// Makes the blocks of a directory anew, without names of `unwanted`.
pub(super) fn rebuild(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
    unwanted: Option<InodeNumber>,
) -> Result<Done, Error> {
    const DONE: Done = Some("the directory was made anew from the entries that hold");
    if !repairer.rebuilt_directories.insert(number.get()) && unwanted.is_none() {
        return Ok(DONE);
    }
    let Some((inode, bytes)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    if !inode.is_directory() {
        return Ok(None);
    }
    let parent = parent_of(repairer, number);
    if inode.flags.contains(InodeFlags::INLINE_DATA) {
        return rebuild_inline(repairer, number, &bytes, parent, unwanted);
    }
    let context = DirectoryContext::new(&repairer.checker.image, inode);
    let mut blocks = blocks_of(repairer, &context)?;
    if blocks.is_empty() {
        let Some(block) = give_block(repairer, number)? else { return Ok(None) };
        blocks.push(block);
    }
    let layout = context.layout;
    let mut waiting: VecDeque<KeptEntry> = VecDeque::new();
    let mut buffer = repairer.checker.image.block_buffer();
    let mut new = repairer.checker.image.block_buffer();
    let mut sieve = sieve(repairer, &context, unwanted);
    for block in &blocks {
        repairer.checker.image.read_blocks(*block, &mut buffer)?;
        for (entry, _) in DirectoryBlock::trusted(&buffer, &layout).salvage() {
            sieve.note(&entry);
        }
    }
    for (position, block) in blocks.iter().enumerate() {
        repairer.checker.image.read_blocks(*block, &mut buffer)?;
        let mut builder = DirectoryBlockBuilder::new(&mut new, &layout);
        if position == 0 {
            for (name, inode) in [(&b"."[..], number), (b"..", parent)] {
                let entry_type =
                    if layout.file_type { EntryType::Directory } else { EntryType::Unknown };
                // The dots fit an empty block.
                let _ = builder.push(&NewEntry { name, inode, entry_type, hash: None });
            }
        }
        for (entry, is_doubtful) in DirectoryBlock::trusted(&buffer, &layout).salvage() {
            let kind = repairer.checker.states.kind(entry.inode);
            // What follows a damaged record has to be right in every respect.
            if is_doubtful && layout.file_type && entry.entry_type != kind {
                continue;
            }
            let Some(entry) = sieve.keep(repairer, &entry) else { continue };
            if builder.push(&entry.as_new()).is_err() && waiting.len() < WAITING_MAX {
                waiting.push_back(entry);
            }
        }
        while let Some(entry) = waiting.front() {
            if builder.push(&entry.as_new()).is_err() {
                break;
            }
            waiting.pop_front();
        }
        builder.finish();
        dir::seal(&mut new, &layout);
        if new != buffer {
            repairer.write_block(*block, &new)?;
        }
    }
    if context.inode.flags.contains(InodeFlags::INDEX) {
        repairer.unindexed.insert(number.get());
    }
    fields::clear_flags(repairer, number, InodeFlags::INDEX)?;
    Ok(DONE)
}

/// Gives a directory without blocks its first one.
fn give_block(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<Option<PhysicalBlock>, Error> {
    let Some(mut pieces) = maps::take_apart(repairer, number)? else { return Ok(None) };
    let Some(block) = repairer.allocate()? else { return Ok(None) };
    pieces.extents = vec![Extent::of_block(LogicalBlock::FIRST, block)];
    let empty = repairer.checker.image.block_buffer();
    repairer.write_block(block, &empty)?;
    if maps::store(repairer, pieces)?.is_none() {
        return Ok(None);
    }
    fields::set_size(repairer, number, empty.len() as u64)?;
    Ok(Some(block))
}

fn sieve(
    repairer: &Repairer<'_, '_>,
    context: &DirectoryContext,
    unwanted: Option<InodeNumber>,
) -> Sieve {
    Sieve {
        names: Names::new(&repairer.checker.image, &context.layout),
        met: HashSet::new(),
        sound: HashSet::new(),
        children: HashSet::new(),
        own: context.inode.number,
        unwanted,
        encrypted: context.layout.encrypted,
        file_type: context.layout.file_type,
    }
}

/// Whether an inode is a directory, and a block that it claims isn't one of a directory.
pub(super) fn is_foreign(
    repairer: &Repairer<'_, '_>,
    number: InodeNumber,
    block: PhysicalBlock,
) -> Result<bool, Error> {
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(false) };
    if !inode.is_directory() {
        return Ok(false);
    }
    let bytes = repairer.checker.image.read_block(block)?;
    let context = DirectoryContext::new(&repairer.checker.image, inode);
    let layout = DirectoryLayout { checksum: None, ..context.layout };
    Ok(DirectoryBlock::check(&bytes, &layout, context.place(LogicalBlock::FIRST)).is_err())
}

/// The parent that a directory should name.
fn parent_of(repairer: &Repairer<'_, '_>, number: InodeNumber) -> InodeNumber {
    let directories = &repairer.checker.found.directories;
    let known = directories.position(number).map(|position| directories.all[position]);
    let parent =
        known.map_or(0, |known| if known.parent == 0 { known.dotdot } else { known.parent });
    let parent = InodeNumber::new(parent);
    if number == InodeNumber::ROOT || directories.position(parent).is_none() {
        return InodeNumber::ROOT;
    }
    parent
}

/// The blocks of a directory in order, without what has a fixed place: a map that isn't one may lead there.
pub(super) fn blocks_of(
    repairer: &Repairer<'_, '_>,
    context: &DirectoryContext,
) -> Result<Vec<PhysicalBlock>, Error> {
    let extents = mapping::extents_of(&repairer.checker.image, &context.inode)?;
    let blocks = extents.iter().filter(|extent| !extent.unwritten).flat_map(|extent| {
        (0..u64::from(extent.length)).filter_map(|offset| extent.physical.checked_add(offset))
    });
    let is_fixed = |block: &PhysicalBlock| {
        let fixed = &repairer.checker.found.claims.fixed;
        fixed.iter().any(|range| (range.start..range.end).contains(&block.get()))
    };
    Ok(blocks.filter(|block| !is_fixed(block)).collect())
}

fn rebuild_inline(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
    bytes: &[u8],
    parent: InodeNumber,
    unwanted: Option<InodeNumber>,
) -> Result<Done, Error> {
    let image = &repairer.checker.image;
    let Ok(inode) = image.parse_inode(bytes, number) else { return Ok(None) };
    let area = inode.attribute_area(&image.layout);
    let context = DirectoryContext::new(image, inode);
    let place = AttributePlace { inode: number, block: None };
    let Some(Ok(attributes)) =
        bytes.get(area.clone()).map(|area| XattrView::check_in_inode(area, place))
    else {
        return Ok(None);
    };
    let mut set = AttributeSet::read(&attributes);
    let name = AttributeName::inline_data();
    let Some(AttributeValue::Inline(old)) = set.get(&name).cloned() else { return Ok(None) };
    let old_directory =
        inline::InlineDirectory::trusted(&context.inode.block_area, &old, &context.layout);
    let mut sieve = sieve(repairer, &context, unwanted);
    old_directory.entries().for_each(|entry| sieve.note(&entry));
    let kept: Vec<KeptEntry> =
        old_directory.entries().filter_map(|entry| sieve.keep(repairer, &entry)).collect();
    let mut head = inline::init_directory(parent, &context.layout);
    let mut rest = Vec::new();
    if old.len() >= 12 {
        inline::extend_piece(&mut rest, old.len() / 4 * 4, &context.layout);
    }
    let mut directory = InlineDirectoryMut::trusted(&mut head, &mut rest, &context.layout);
    for entry in &kept {
        // What has no room any more is connected to lost+found.
        let _ = directory.insert(&entry.as_new());
    }
    let size = (head.len() + rest.len()) as u64;
    set.set(name, AttributeValue::Inline(rest));
    let mut encoded = vec![0; area.len()];
    if set.encode_in_inode(&mut encoded).is_err() {
        return Ok(None);
    }
    repairer.edit_inode(number, |bytes| {
        bytes[BLOCK_AREA].copy_from_slice(&head);
        bytes[area].copy_from_slice(&encoded);
    })?;
    fields::set_size(repairer, number, size)?;
    Ok(Some("the directory was made anew from the entries that hold"))
}
