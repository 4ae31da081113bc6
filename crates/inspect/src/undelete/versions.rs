//! Finds deleted inodes in the inode tables and in the log.
//!
//! Several files may have had the same inode number. They differ in generation and creation time, which an inode keeps
//! until its number is used again.

use super::log::{JournalLog, LogCopy};
use crate::error::Result;
use crate::image::{InspectedImage, StoredInode};
use drystone_ext4_format::extent::{ExtentNode, NodeExpectation, NodePlace};
use drystone_ext4_format::inode::{Inode, InodeFlags, InodeTimestamp, ModeFileType};
use drystone_ext4_format::{GroupNumber, InodeNumber};
use std::collections::BTreeMap;

/// The age of what the device holds now, as opposed to the log.
pub(super) const PRESENT: i64 = i64::MAX - 1;
/// An age later than that.
pub(super) const FUTURE: i64 = i64::MAX;

/// Identifies a file among those that had the same inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileKey {
    pub inode: InodeNumber,
    generation: u32,
    created: Option<InodeTimestamp>,
}

impl FileKey {
    fn of(inode: &Inode) -> Self {
        Self { inode: inode.number, generation: inode.generation, created: inode.creation_time }
    }
}

/// A state of an inode: that of the table, or a copy in the log.
#[derive(Clone, Debug)]
pub(super) struct InodeVersion {
    pub inode: Inode,
    /// All of its bytes, if they hold more than fields and a map.
    pub bytes: Option<Vec<u8>>,
    /// The transaction that it is from; none for the inode table.
    pub sequence: Option<u32>,
    pub age: i64,
}

/// The known states of the inode of a deleted file.
#[derive(Clone, Debug)]
pub(super) struct FileVersions {
    /// Its newest inode, which may say no more than that it was deleted.
    pub mode: u16,
    /// The transaction that it is from; none for the inode table.
    pub newest_sequence: Option<u32>,
    pub newest_age: i64,
    pub oldest_age: i64,
    /// When it was deleted, in seconds since 1970.
    pub deleted: Option<u32>,
    /// The newest version with a name.
    pub linked: Option<Box<InodeVersion>>,
    /// The newest one without a name that still has content.
    pub unlinked: Option<Box<InodeVersion>>,
}

impl FileVersions {
    /// The version to bring back. A version without a name may be half freed.
    pub fn best(&self) -> Option<&InodeVersion> {
        match (&self.linked, &self.unlinked) {
            (Some(linked), Some(unlinked)) => {
                let (old, new) = (&linked.inode, &unlinked.inode);
                let is_whole = new.sectors >= old.sectors && new.size_bytes >= old.size_bytes;
                Some(if is_whole { unlinked } else { linked })
            }
            (linked, unlinked) => linked.as_deref().or(unlinked.as_deref()),
        }
    }
}

/// Whether an inode of a table is deleted. Orphans are: files that were deleted while they were open.
pub(super) fn is_deleted(inode: &Inode) -> bool {
    inode.links_count == 0 || inode.deletion_time != 0
}

/// All deleted files.
pub(super) struct DeletedInodes<'a, 'd> {
    image: &'a InspectedImage<'d>,
    pub files: BTreeMap<FileKey, FileVersions>,
    /// For existing files that share their number with a deleted one: the first age at which the log has them.
    pub living_since: BTreeMap<InodeNumber, i64>,
}

impl<'a, 'd> DeletedInodes<'a, 'd> {
    /// Finds them in the inode tables and the log. `progress` is called with the number of inodes that were read.
    pub fn find(
        image: &'a InspectedImage<'d>,
        log: &JournalLog,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        let mut found = Self { image, files: BTreeMap::new(), living_since: BTreeMap::new() };
        image.each_inode(&mut |stored| {
            progress(u64::from(stored.inode.number.get()));
            if is_deleted(&stored.inode) {
                found.note(&stored, None);
            }
            Ok(true)
        })?;
        let table_blocks = u64::from(image.layout.inode_table_blocks());
        image.each_descriptor(&mut |group, descriptor, _| {
            let start = descriptor.inode_table;
            if !image.layout.contains_blocks(start, table_blocks) {
                return Ok(true);
            }
            for (block, copies) in log.blocks_in(start.get()..start.get() + table_blocks) {
                let index = block.get() - start.get();
                // A table has at most 2^32 inodes.
                let first = index as u32 * image.layout.inodes_per_block();
                let Ok(present) = image.read_block(block) else { continue };
                let living = found.living_in(group, first, &present);
                let mut since = BTreeMap::new();
                for copy in copies {
                    let Some(bytes) = log.read_copy(image, copy) else { continue };
                    for stored in found.inodes_in(group, first, &bytes) {
                        if living.contains(&FileKey::of(&stored.inode)) {
                            since.insert(stored.inode.number, copy.age);
                        } else {
                            found.note(&stored, Some(copy));
                        }
                    }
                }
                since.retain(|&number, _| found.keys_of(number).next().is_some());
                found.living_since.append(&mut since);
            }
            Ok(true)
        })?;
        Ok(found)
    }

    /// The inodes in a block of the table. `first` is the index of the first one in its group.
    fn inodes_in(&self, group: GroupNumber, first: u32, bytes: &[u8]) -> Vec<StoredInode> {
        let layout = &self.image.layout;
        let records = (first..).zip(bytes.chunks_exact(layout.inode_size()));
        let read = records.filter_map(|(bit, bytes)| {
            let number = layout.inode_of_bit(group, bit)?;
            let inode = Inode::read(bytes, number, layout).ok()?;
            Some(StoredInode { inode, bytes: bytes.to_vec(), offset: 0 })
        });
        read.collect()
    }

    /// Those that aren't deleted.
    fn living_in(&self, group: GroupNumber, first: u32, bytes: &[u8]) -> Vec<FileKey> {
        let inodes = self.inodes_in(group, first, bytes).into_iter();
        let living = inodes.filter(|stored| !is_deleted(&stored.inode));
        living.map(|stored| FileKey::of(&stored.inode)).collect()
    }

    /// The deleted files that had an inode.
    pub fn keys_of(&self, inode: InodeNumber) -> impl Iterator<Item = &FileKey> {
        let first = FileKey { inode, generation: 0, created: None };
        self.files.range(first..).map(|(key, _)| key).take_while(move |key| key.inode == inode)
    }

    /// Notes a version of a deleted inode. Newer versions must come first.
    fn note(&mut self, stored: &StoredInode, copy: Option<&LogCopy>) {
        let (image, inode) = (self.image, &stored.inode);
        let layout = &image.layout;
        let is_file = ModeFileType::from_mode(inode.mode).is_some()
            && !image.serves_image(inode.number)
            && !inode.flags.contains(InodeFlags::EA_INODE);
        if !is_file || Inode::check_checksum(&stored.bytes, inode.number, layout).is_err() {
            return;
        }
        let age = copy.map_or(PRESENT, |copy| copy.age);
        let file = self.files.entry(FileKey::of(inode)).or_insert_with(|| FileVersions {
            mode: inode.mode,
            newest_sequence: copy.map(|copy| copy.sequence),
            newest_age: age,
            oldest_age: age,
            deleted: None,
            linked: None,
            unlinked: None,
        });
        file.oldest_age = file.oldest_age.min(age);
        let is_linked = !is_deleted(inode);
        // On the orphan list, this field is the number of the next orphan.
        if !is_linked && inode.deletion_time > layout.inodes_count() {
            file.deleted.get_or_insert(inode.deletion_time);
        }
        let place = if is_linked { &mut file.linked } else { &mut file.unlinked };
        if place.is_some() || !(is_linked || has_content(inode)) {
            return;
        }
        let bytes = inode.flags.contains(InodeFlags::INLINE_DATA).then(|| stored.bytes.clone());
        let sequence = copy.map(|copy| copy.sequence);
        *place = Some(Box::new(InodeVersion { inode: inode.clone(), bytes, sequence, age }));
    }
}

/// Whether an inode without a name still leads to its content.
fn has_content(inode: &Inode) -> bool {
    if inode.size_bytes == 0 {
        return false;
    }
    if inode.flags.contains(InodeFlags::INLINE_DATA) || inode.is_fast_symlink() {
        return true;
    }
    if !inode.has_block_mapping() {
        return false;
    }
    if inode.flags.contains(InodeFlags::EXTENTS) {
        let root = ExtentNode::reopen(&inode.block_area, NodePlace::root(inode.number));
        return root.is_ok_and(|root| !root.is_empty());
    }
    inode.block_area.iter().any(|&byte| byte != 0)
}

/// Whether the root of an inode's map may be followed.
pub(super) fn has_sound_root(image: &InspectedImage<'_>, inode: &Inode) -> bool {
    let place = NodePlace::root(inode.number);
    let root = ExtentNode::check(&inode.block_area, place, &NodeExpectation::ROOT, &image.layout);
    !inode.flags.contains(InodeFlags::EXTENTS) || root.is_ok()
}
