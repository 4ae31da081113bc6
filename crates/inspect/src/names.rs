//! Finds the paths of inodes, and the inodes of paths.

use crate::block_ranges::BlockRanges;
use crate::error::{InspectError, Result};
use crate::image::{InspectedImage, StoredInode};
use crate::map::runs_of;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::dir::DirectoryBlock;
use drystone_ext4_format::inline::InlineDirectory;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::xattr::{AttributePlace, Value, XattrView};
use std::collections::{BTreeMap, HashMap};

/// The deepest path that is followed upwards, so that a cycle ends.
const DEPTH_MAX: usize = 4096;

/// An inode and a path to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeName {
    /// The inode.
    pub inode: InodeNumber,
    /// A path from the root; from `…` if a directory above has no name.
    pub path: Vec<u8>,
}

/// An entry of a directory.
pub(crate) struct NamedEntry {
    pub inode: InodeNumber,
    pub name: Vec<u8>,
}

/// The entries of a directory except `.` and `..`, as far as its records can be followed.
/// Skips blocks in `read`, and adds those that it reads.
pub(crate) fn entries_of(
    image: &InspectedImage<'_>,
    stored: &StoredInode,
    read: &mut BlockRanges,
) -> Result<Vec<NamedEntry>> {
    let inode = &stored.inode;
    let layout = image.directory_layout(inode);
    let named = |entry: drystone_ext4_format::dir::Entry<'_>| {
        (!entry.is_dot()).then(|| NamedEntry { inode: entry.inode, name: entry.name.to_vec() })
    };
    if inode.flags.contains(InodeFlags::INLINE_DATA) {
        let rest = inline_rest(image, stored);
        let directory = InlineDirectory::trusted(&inode.block_area, &rest, &layout.without_tail());
        return Ok(directory.entries().filter_map(named).collect());
    }
    let mut entries = Vec::new();
    image.each_block(read.insert_runs(&runs_of(image, inode)?), &mut |_, _, bytes| {
        // Blocks of the index have records that name nothing.
        let records = DirectoryBlock::trusted(bytes, &layout);
        entries.extend(records.entries().filter_map(named));
    });
    Ok(entries)
}

/// The content of an inline file or directory beyond the inode's block area.
pub(crate) fn inline_rest(image: &InspectedImage<'_>, stored: &StoredInode) -> Vec<u8> {
    let area = stored.inode.attribute_area(&image.layout);
    let place = AttributePlace { inode: stored.inode.number, block: None };
    let name = drystone_ext4_format::xattr::AttributeName::inline_data();
    let Ok(attributes) = XattrView::check_in_inode(&stored.bytes[area], place) else {
        return Vec::new();
    };
    match attributes.iter().find(|entry| entry.name() == name).map(|entry| entry.value) {
        Some(Value::Inline(value)) => value.to_vec(),
        _ => Vec::new(),
    }
}

/// Finds a path from the root.
pub(crate) fn find_path(image: &InspectedImage<'_>, path: &[u8]) -> Result<Option<InodeNumber>> {
    let mut at = InodeNumber::ROOT;
    for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        let stored = image.inode(at)?;
        if !stored.inode.is_directory() {
            return Ok(None);
        }
        let entries = entries_of(image, &stored, &mut BlockRanges::default())?;
        let Some(entry) = entries.into_iter().find(|entry| entry.name == name) else {
            return Ok(None);
        };
        at = entry.inode;
    }
    Ok(Some(at))
}

/// All paths of these inodes, in the order of the inodes. An inode without a name has none.
///
/// # Errors
/// The device fails.
pub fn names_of(image: &InspectedImage<'_>, inodes: &[InodeNumber]) -> Result<Vec<InodeName>> {
    if let Some(inode) = inodes.iter().find(|inode| !image.layout.contains_inode(**inode)) {
        let count = image.layout.inodes_count();
        return Err(InspectError::missing(format!(
            "there is no inode {inode}: the image has inodes 1 to {count}"
        )));
    }
    let mut found: BTreeMap<InodeNumber, Vec<(InodeNumber, Vec<u8>)>> =
        inodes.iter().map(|&inode| (inode, Vec::new())).collect();
    // The parent and name of each directory, by inode number.
    let mut directories: HashMap<InodeNumber, Option<(InodeNumber, Vec<u8>)>> = HashMap::new();
    image.each_inode(&mut |stored| {
        if is_live_directory(&stored.inode) {
            directories.insert(stored.inode.number, None);
        }
        Ok(true)
    })?;
    let mut numbers: Vec<InodeNumber> = directories.keys().copied().collect();
    numbers.sort();
    let mut read = BlockRanges::default();
    for number in numbers {
        let stored = image.inode(number)?;
        for entry in entries_of(image, &stored, &mut read)? {
            if let Some(names) = found.get_mut(&entry.inode) {
                names.push((number, entry.name.clone()));
            }
            if let Some(above) = directories.get_mut(&entry.inode) {
                above.get_or_insert((number, entry.name));
            }
        }
    }
    let mut names = Vec::new();
    for (inode, places) in found {
        if inode == InodeNumber::ROOT {
            names.push(InodeName { inode, path: b"/".to_vec() });
        }
        let mut paths: Vec<_> =
            places.iter().map(|(above, name)| path_to(&directories, *above, name)).collect();
        paths.sort();
        names.extend(paths.into_iter().map(|path| InodeName { inode, path }));
    }
    Ok(names)
}

pub(crate) fn is_live_directory(inode: &Inode) -> bool {
    inode.is_directory() && inode.links_count > 0
}

fn path_to(
    directories: &HashMap<InodeNumber, Option<(InodeNumber, Vec<u8>)>>,
    above: InodeNumber,
    name: &[u8],
) -> Vec<u8> {
    let mut parts = vec![name];
    let mut at = above;
    let mut is_rooted = true;
    while at != InodeNumber::ROOT {
        match directories.get(&at) {
            Some(Some((next, name))) if parts.len() < DEPTH_MAX => {
                parts.push(name);
                at = *next;
            }
            _ => {
                is_rooted = false;
                break;
            }
        }
    }
    let mut path = if is_rooted { Vec::new() } else { "…".as_bytes().to_vec() };
    for part in parts.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    path
}
