//! The tree of directories: the root, `lost+found`, and names for what has none.

use super::directories::{blocks_of, rebuild};
use super::fields;
use super::maps;
use super::repairer::{Done, Repairer};
use crate::directories;
use crate::directory::DirectoryContext;
use crate::image::Error;
use drystone_ext4_format::block_map::set_pointer;
use drystone_ext4_format::dir::{
    self, DirectoryBlockBuilder, DirectoryBlockMut, EntryType, NewEntry,
};
use drystone_ext4_format::extent::{Extent, ExtentNodeMut, NodePlace};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::inode::{Inode, InodeFlags, InodeTimestamp, ModeFileType};
use drystone_ext4_format::{InodeNumber, LogicalBlock};

/// The name of the directory for what has no name.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Takes one of two names from a directory: it stays where `..` leads, if that is in the tree without it.
pub(super) fn choose_parent(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
    first: InodeNumber,
    second: InodeNumber,
) -> Result<Done, Error> {
    let is_second = first != second
        && repairer.checker.found.directories.get_mut(number).is_some_and(|directory| {
            directory.parent == first.get() && directory.dotdot == second.get()
        })
        && reaches_root(repairer, second, number);
    if !is_second {
        return rebuild(repairer, second, (first != second).then_some(number));
    }
    if let Some(directory) = repairer.checker.found.directories.get_mut(number) {
        directory.parent = second.get();
    }
    rebuild(repairer, first, Some(number))
}

/// Whether a directory is below the root by a way that doesn't pass another one.
fn reaches_root(repairer: &Repairer<'_, '_>, from: InodeNumber, without: InodeNumber) -> bool {
    let directories = &repairer.checker.found.directories;
    let mut at = from;
    // A longer way is a loop.
    for _ in 0..=directories.all.len() {
        if at == InodeNumber::ROOT {
            return true;
        }
        match directories.position(at) {
            Some(position) if at != without => {
                at = InodeNumber::new(directories.all[position].parent);
            }
            _ => return false,
        }
    }
    false
}

/// What the root names `lost+found`.
fn named_lost_and_found(repairer: &Repairer<'_, '_>) -> Result<Option<InodeNumber>, Error> {
    let Some((root, bytes)) = repairer.checker.image.inode(InodeNumber::ROOT)? else {
        return Ok(None);
    };
    let context = DirectoryContext::new(&repairer.checker.image, root);
    let mut found = None;
    directories::for_each_entry(
        &repairer.checker.image,
        &context,
        &bytes,
        &mut |_, _, name, inode| {
            if name == LOST_AND_FOUND {
                found = Some(inode);
            }
        },
    )?;
    Ok(found)
}

/// The directory for what has no name. One that takes no other names loses its own, and is connected like
/// the rest.
fn lost_and_found(repairer: &mut Repairer<'_, '_>) -> Result<Option<InodeNumber>, Error> {
    let Some(named) = named_lost_and_found(repairer)? else { return Ok(None) };
    if !repairer.checker.states.is_used(named) {
        return Ok(None);
    }
    match repairer.checker.image.inode(named)? {
        Some((inode, _)) if takes_names(&inode) => Ok(Some(named)),
        // Another one would have no name.
        _ if !root_takes_names(repairer)? => Ok(None),
        _ => {
            rebuild(repairer, InodeNumber::ROOT, Some(named))?;
            if let Some(directory) = repairer.checker.found.directories.get_mut(named) {
                directory.parent = 0;
            }
            Ok(None)
        }
    }
}

/// Whether the root names `lost+found`, whatever that is. A root that is lost may have.
pub(super) fn has_lost_and_found(repairer: &Repairer<'_, '_>) -> Result<bool, Error> {
    let root = repairer.checker.image.inode(InodeNumber::ROOT)?;
    let is_lost = !root.is_some_and(|(root, _)| root.is_directory());
    Ok(is_lost || named_lost_and_found(repairer)?.is_some())
}

/// Gives an inode without a name one in `lost+found`.
pub(super) fn connect(repairer: &mut Repairer<'_, '_>, number: InodeNumber) -> Result<Done, Error> {
    if repairer.lost_and_found == Some(Some(number)) {
        return Ok(Some("lost+found got its name back"));
    }
    if repairer.checker.states.holds_value(number) {
        // No attribute has this value.
        return repairer.clear_inode(number);
    }
    let target = match repairer.lost_and_found {
        Some(known) => known,
        None => {
            let found = match lost_and_found(repairer)? {
                Some(target) => Some(target),
                None => make_lost_and_found(repairer)?,
            };
            repairer.lost_and_found = Some(found);
            found
        }
    };
    if target == Some(number) {
        return Ok(Some("lost+found got its name back"));
    }
    let name = format!("#{number}");
    let kind = repairer.checker.states.kind(number);
    // Without room for a directory the root takes the names.
    let target = target.unwrap_or(InodeNumber::ROOT);
    let added = add(repairer, target, name.as_bytes(), number, kind)?;
    Ok(added.and(Some(match target {
        InodeNumber::ROOT => "the inode got a name in the root: there is no room for lost+found",
        _ => "the inode got a name in lost+found",
    })))
}

/// Whether [`add`] can give a directory another name.
fn takes_names(inode: &Inode) -> bool {
    inode.is_directory() && !inode.flags.intersects(InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT)
}

fn root_takes_names(repairer: &Repairer<'_, '_>) -> Result<bool, Error> {
    let root = repairer.checker.image.inode(InodeNumber::ROOT)?;
    Ok(root.is_some_and(|(root, _)| takes_names(&root)))
}

/// Adds a name to a directory without an index.
fn add(
    repairer: &mut Repairer<'_, '_>,
    directory: InodeNumber,
    name: &[u8],
    number: InodeNumber,
    kind: EntryType,
) -> Result<Done, Error> {
    let Some((inode, _)) = repairer.checker.image.inode(directory)? else { return Ok(None) };
    if !takes_names(&inode) {
        return Ok(None);
    }
    if inode.flags.contains(InodeFlags::INDEX) {
        rebuild(repairer, directory, None)?;
    }
    let context = DirectoryContext::new(&repairer.checker.image, inode);
    let entry_type = if context.layout.file_type { kind } else { EntryType::Unknown };
    let entry = NewEntry { name, inode: number, entry_type, hash: None };
    // The block with the last name probably has room for another.
    let is_lost_and_found = repairer.lost_and_found == Some(Some(directory));
    let last = repairer.lost_and_found_block.filter(|_| is_lost_and_found);
    let blocks = match last {
        Some(block) => vec![block],
        None => blocks_of(repairer, &context)?,
    };
    for block in blocks {
        let mut bytes = repairer.checker.image.read_block(block)?;
        if DirectoryBlockMut::trusted(&mut bytes, &context.layout).insert(&entry).is_ok() {
            dir::seal(&mut bytes, &context.layout);
            repairer.write_block(block, &bytes)?;
            repairer.lost_and_found_block = Some(block).filter(|_| is_lost_and_found);
            return Ok(Some("the name was added"));
        }
    }
    // A new block behind the others.
    let Some(mut pieces) = maps::take_apart(repairer, directory)? else { return Ok(None) };
    let layout = repairer.checker.image.layout;
    let end = pieces.extents.last().map_or(0, Extent::logical_end);
    let Ok(logical) = u32::try_from(end).map(LogicalBlock::new) else { return Ok(None) };
    let Some(block) = repairer.allocate_for(&pieces.extents, logical)? else { return Ok(None) };
    pieces.extents.push(Extent::of_block(logical, block));
    let mut bytes = repairer.checker.image.block_buffer();
    let mut builder = DirectoryBlockBuilder::new(&mut bytes, &context.layout);
    if builder.push(&entry).is_err() {
        return Ok(None);
    }
    builder.finish();
    dir::seal(&mut bytes, &context.layout);
    repairer.write_block(block, &bytes)?;
    if maps::store(repairer, pieces)?.is_none() {
        return Ok(None);
    }
    repairer.lost_and_found_block = Some(block).filter(|_| is_lost_and_found);
    fields::set_size(repairer, directory, (end + 1) << layout.log_block_size())
}

/// An inode that nothing uses: of those that readers look at, or the next one behind them.
fn free_inode(repairer: &mut Repairer<'_, '_>) -> Result<Option<InodeNumber>, Error> {
    let layout = repairer.checker.image.layout;
    let inodes = || (layout.first_inode().get()..=layout.inodes_count()).map(InodeNumber::new);
    let states = &repairer.checker.states;
    let found = inodes().find(|inode| !states.is_used(*inode) && repairer.can_use(*inode));
    if found.is_some() {
        return Ok(found);
    }
    for group in layout.groups() {
        let state = &repairer.checker.image.groups[group.index()];
        let unused = state.descriptor.unused_inodes_count;
        let is_open = state.has_inode_table && !state.flags.contains(GroupFlags::INODE_UNINIT);
        if !is_open || unused == 0 || unused > layout.inodes_per_group() {
            continue;
        }
        let Some(number) = layout.inode_of_bit(group, layout.inodes_per_group() - unused) else {
            continue;
        };
        if number >= layout.first_inode() {
            repairer.edit_descriptor(group, |descriptor| descriptor.unused_inodes_count -= 1)?;
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// Makes `lost+found` in the root.
pub(super) fn make_lost_and_found(
    repairer: &mut Repairer<'_, '_>,
) -> Result<Option<InodeNumber>, Error> {
    let layout = repairer.checker.image.layout;
    if !root_takes_names(repairer)? {
        return Ok(None);
    }
    // The one that has lost its name, or a new one.
    let old = layout.first_inode();
    let directories = &repairer.checker.found.directories;
    let is_nameless = directories.position(old).is_some_and(|at| directories.all[at].parent == 0);
    if is_nameless && repairer.checker.image.inode(old)?.is_some_and(|(old, _)| takes_names(&old)) {
        let added = add(repairer, InodeNumber::ROOT, LOST_AND_FOUND, old, EntryType::Directory)?;
        return Ok(added.map(|_| old));
    }
    let Some(number) = free_inode(repairer)? else { return Ok(None) };
    if make(repairer, number, 0o700)?.is_none() {
        return Ok(None);
    }
    repairer.checker.states.set_used(number, EntryType::Directory, 2, false);
    let added = add(repairer, InodeNumber::ROOT, LOST_AND_FOUND, number, EntryType::Directory)?;
    Ok(added.map(|_| number))
}

/// Makes the root a directory: with the blocks that it has, or an empty one.
pub(super) fn make_root(repairer: &mut Repairer<'_, '_>) -> Result<Done, Error> {
    let number = InodeNumber::ROOT;
    let pieces = maps::take_apart(repairer, number)?;
    if pieces.is_some_and(|pieces| !pieces.extents.is_empty()) {
        let mode = ModeFileType::Directory.mode_bits();
        return repairer.edit_fields(number, |inode| {
            inode.mode = inode.mode & 0o7777 | mode;
            // One without links is free. They are counted later.
            inode.links_count = inode.links_count.max(2);
            inode.deletion_time = 0;
        });
    }
    Ok(make(repairer, number, 0o755)?.and(Some("an empty root was made")))
}

/// Makes an inode an empty directory of the root.
fn make(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
    permissions: u16,
) -> Result<Done, Error> {
    let layout = repairer.checker.image.layout;
    let has_extents = layout.features().incompat.contains(Incompat::EXTENTS);
    let Some(block) = repairer.allocate()? else { return Ok(None) };
    let mode = ModeFileType::Directory.mode_bits() | permissions;
    let now = InodeTimestamp::from_seconds(i64::from(repairer.now));
    let mut inode = Inode::new(number, mode, now, &layout);
    inode.links_count = 2;
    inode.size_bytes = layout.block_size() as u64;
    inode.flags.set(InodeFlags::EXTENTS, has_extents);
    if has_extents {
        let mut root = ExtentNodeMut::init(&mut inode.block_area, NodePlace::root(number), 0);
        root.insert_extent(0, &Extent::of_block(LogicalBlock::FIRST, block));
    } else if u32::try_from(block.get()).is_ok() {
        set_pointer(&mut inode.block_area, 0, Some(block));
    } else {
        return Ok(None);
    }
    let context = DirectoryContext::new(&repairer.checker.image, inode.clone());
    let mut bytes = repairer.checker.image.block_buffer();
    dir::init_with_dots(&mut bytes, &context.layout, number, InodeNumber::ROOT);
    dir::seal(&mut bytes, &context.layout);
    repairer.write_block(block, &bytes)?;
    let mut encoded = vec![0; layout.inode_size()];
    if inode.encode_into(&mut encoded, &layout).is_err() {
        return Ok(None);
    }
    repairer.edit_inode(number, |bytes| bytes.copy_from_slice(&encoded))
}
