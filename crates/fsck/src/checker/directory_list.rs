//! The directories of the image, as the pass over all inodes finds them, and the links that place them in the tree.

use crate::issue::{InodeIssue, Issue};
use crate::report::Reporter;
use drystone_ext4_format::{GroupNumber, InodeNumber};
use std::collections::BTreeMap;

/// One directory, and its place in the tree. 0 stands for no directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory {
    pub inode: u32,
    /// The directory that holds its name.
    pub parent: u32,
    /// The directory that its `..` names.
    pub dotdot: u32,
    /// Whether it has an index, without which it holds no more names than links can count.
    pub is_indexed: bool,
    /// By its size.
    pub blocks: u32,
}

/// All directories in the order of their inodes.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    pub all: Vec<Directory>,
    /// How many each group has, with those that are removed and still open.
    in_groups: BTreeMap<GroupNumber, u32>,
}

impl Directories {
    /// Adds a directory. They come in rising order.
    pub fn add(&mut self, inode: InodeNumber, is_indexed: bool, blocks: u64) {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        self.all.push(Directory { inode: inode.get(), parent: 0, dotdot: 0, is_indexed, blocks });
    }

    /// Counts a directory among those of its group.
    pub fn count(&mut self, group: GroupNumber) {
        *self.in_groups.entry(group).or_default() += 1;
    }

    pub fn count_in(&self, group: GroupNumber) -> u32 {
        self.in_groups.get(&group).copied().unwrap_or(0)
    }

    /// Adds those of inodes that come after all of these.
    pub fn add_part(&mut self, part: &Directories) {
        self.all.extend_from_slice(&part.all);
        for (group, count) in &part.in_groups {
            *self.in_groups.entry(*group).or_default() += count;
        }
    }

    /// Bytes that the list takes, as it grows and with copies of its numbers.
    pub fn memory_bytes(&self) -> u64 {
        (self.all.len() * (2 * size_of::<Directory>() + size_of::<u32>())) as u64
    }

    pub fn position(&self, inode: InodeNumber) -> Option<usize> {
        self.all.binary_search_by_key(&inode.get(), |directory| directory.inode).ok()
    }

    pub fn get_mut(&mut self, inode: InodeNumber) -> Option<&mut Directory> {
        let position = self.position(inode)?;
        self.all.get_mut(position)
    }
}

/// An entry that places a directory in the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DirectoryLink {
    /// The `..` of a directory.
    Up { directory: InodeNumber, parent: InodeNumber },
    /// A name of a directory.
    Down { parent: InodeNumber, directory: InodeNumber },
}

impl DirectoryLink {
    /// Places the directory; a second name is reported.
    pub fn place(self, directories: &mut Directories, reporter: &mut Reporter<'_>) {
        match self {
            DirectoryLink::Up { directory, parent } => {
                if let Some(found) = directories.get_mut(directory) {
                    found.dotdot = parent.get();
                }
            }
            DirectoryLink::Down { parent, directory } => {
                let Some(found) = directories.get_mut(directory) else { return };
                if found.parent == 0 {
                    found.parent = parent.get();
                    return;
                }
                let (first, second) = (InodeNumber::new(found.parent), parent);
                let issue = InodeIssue::SecondParent { first, second };
                reporter.report(Issue::Inode { inode: directory, issue });
            }
        }
    }
}
