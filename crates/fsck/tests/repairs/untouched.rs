//! What damage has left alone: files whose inode, map and content are as they were, and names whose
//! directories are.

use crate::targeted::place_of;
use drystone_ext4_format::InodeNumber;
use drystone_testkit::contents::{ImageContents, blocks_of_file};
use drystone_testkit::metadata_map::MetadataMap;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::ops::Range;

/// The bytes of an image that each file lies in: its inode, its map, its content.
pub struct Extents(BTreeMap<u32, Vec<Range<usize>>>);

impl Extents {
    /// Those of the root and of all files that have a name.
    pub fn new(map: &MetadataMap, contents: &ImageContents) -> Self {
        let size = map.layout().block_size();
        let ranges = |number: u32| {
            let number = InodeNumber::new(number);
            let inode = place_of(map, number) as usize;
            let blocks = blocks_of_file(map, number).unwrap().into_iter();
            let blocks = blocks.map(|block| block as usize * size..(block as usize + 1) * size);
            blocks.chain(iter::once(inode..inode + map.layout().inode_size())).collect()
        };
        let numbers = contents.files.keys().copied().chain([InodeNumber::ROOT.get()]);
        Self(numbers.map(|number| (number, ranges(number))).collect())
    }

    /// The files of which the damage has changed nothing.
    fn untouched(&self, sound: &[u8], damaged: &[u8]) -> BTreeSet<u32> {
        let is_same = |range: &Range<usize>| sound[range.clone()] == damaged[range.clone()];
        let untouched = self.0.iter().filter(|(_, ranges)| ranges.iter().all(is_same));
        untouched.map(|(number, _)| *number).collect()
    }
}

/// What must survive a repair.
pub struct Untouched<'a> {
    sound: &'a ImageContents,
    /// Files that aren't directories.
    files: Vec<u32>,
    names: Vec<(&'a [u8], u32)>,
}

impl<'a> Untouched<'a> {
    pub fn new(sound: &'a ImageContents, extents: &Extents, before: &[u8], damaged: &[u8]) -> Self {
        let untouched = extents.untouched(before, damaged);
        let is_untouched = |(path, inode): &(&[u8], u32)| {
            let parents = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            let mut parents = parents.map(|(end, _)| match end {
                0 => InodeNumber::ROOT.get(),
                _ => sound.names[&path[..end]],
            });
            untouched.contains(inode) && parents.all(|inode| untouched.contains(&inode))
        };
        let names = sound.names.iter().map(|(path, inode)| (&path[..], *inode));
        let is_directory = |inode: &u32| sound.files.get(inode).is_none_or(|f| f.is_directory());
        Self {
            files: untouched.iter().copied().filter(|inode| !is_directory(inode)).collect(),
            names: names.filter(is_untouched).collect(),
            sound,
        }
    }

    /// The files and names of these that a repaired image has no more, or not as they were.
    pub fn lost(&self, repaired: &ImageContents) -> Vec<String> {
        let is_lost = |inode: &&u32| repaired.files.get(inode) != self.sound.files.get(inode);
        let files = self.files.iter().filter(is_lost).map(|inode| format!("<{inode}>"));
        let kind = |contents: &ImageContents, inode: u32| {
            contents.files.get(&inode).map(|file| file.mode & 0o170_000)
        };
        let is_lost = |(path, inode): &&(&[u8], u32)| {
            repaired.names.get(*path) != Some(inode)
                || kind(repaired, *inode) != kind(self.sound, *inode)
        };
        let names = self.names.iter().filter(is_lost);
        files.chain(names.map(|(path, _)| path.escape_ascii().to_string())).collect()
    }
}
