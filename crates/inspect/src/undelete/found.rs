//! A deleted file during the search: its runs, and which of them it still owns.

use super::content::MapReader;
use super::versions::{FileKey, FileVersions, InodeVersion};
use crate::block_ranges::BlockRanges;
use crate::image::{InspectedImage, StoredInode};
use crate::names::inline_rest;
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::inline::InlineData;
use drystone_ext4_format::inode::InodeTimestamp;

/// Where the content of a deleted file is stored.
#[derive(Clone, Debug)]
pub(super) enum DeletedContent {
    Unknown,
    /// It has none, like a directory.
    Empty,
    Bytes(Vec<u8>),
    /// The written runs that the file still owns.
    Blocks(Vec<Extent>),
}

/// A deleted file during the search.
pub(super) struct FoundFile {
    pub key: FileKey,
    pub version: Option<Box<InodeVersion>>,
    pub deleted: Option<u32>,
    /// An orphan still has its blocks.
    pub is_orphan: bool,
    /// Its data, within its size.
    pub runs: Vec<Extent>,
    /// Its blocks that nothing leads to any more.
    pub lost: u64,
    /// The runs that it still owns.
    pub kept: Vec<Extent>,
}

impl FoundFile {
    pub fn new(key: FileKey, versions: &mut FileVersions, reader: &mut MapReader<'_, '_>) -> Self {
        let version = versions.best().cloned().map(Box::new);
        (versions.linked, versions.unlinked) = (None, None);
        let deleted = versions.deleted;
        let mut file = Self {
            key,
            version,
            deleted,
            is_orphan: false,
            runs: Vec::new(),
            lost: 0,
            kept: Vec::new(),
        };
        let Some(version) = &file.version else { return file };
        let (inode, layout) = (&version.inode, reader.layout());
        if !inode.has_block_mapping() {
            return file;
        }
        file.is_orphan = version.sequence.is_none()
            && inode.links_count == 0
            && inode.deletion_time <= layout.inodes_count()
            && reader.bitmaps.has_inode(inode);
        let counted = match layout.clusters_for(2) {
            2 => Some(inode.sectors / layout.sectors_per_block()),
            // The inode counts whole clusters, also blocks that the file doesn't use.
            _ => None,
        };
        let map = reader.follow(inode, counted.unwrap_or(0), file.is_orphan);
        let blocks = inode.size_bytes.div_ceil(layout.block_size() as u64);
        let data = map.runs.iter().filter(|run| !run.unwritten);
        file.runs = data.filter_map(|run| run.overlap(0, blocks)).collect();
        // The inode counts the nodes, too.
        let mapped = map.runs.iter().filter_map(|run| run.overlap(0, blocks));
        let mapped: u64 = mapped.map(|run| u64::from(run.length)).sum();
        let unmapped = blocks.saturating_sub(mapped);
        file.lost = match counted {
            Some(counted) => counted.saturating_sub(map.found).min(unmapped),
            None if map.has_gap || map.found == 0 && inode.sectors > 0 => unmapped,
            None => 0,
        };
        // A file that was being freed has lost its end first.
        if inode.links_count == 0 && (version.sequence.is_some() || file.is_orphan) {
            let end = map.runs.last().map_or(0, Extent::logical_end);
            file.lost = file.lost.max(blocks.saturating_sub(end));
        }
        file
    }

    /// When its inode was last changed. Of two files that had the same block, the one with the later change had it later.
    pub fn last_change(&self) -> (Option<InodeTimestamp>, Option<u32>, FileKey) {
        (self.version.as_ref().map(|version| version.inode.change_time), self.deleted, self.key)
    }

    /// Keeps those of its blocks that are free, and takes them from `free`.
    pub fn keep_blocks(&mut self, free: &mut BlockRanges) {
        for run in &self.runs {
            for part in free.within(physical(run)) {
                free.remove(part.clone());
                // It is within the run, whose length fits 32 bits.
                let skipped = (part.start - run.physical.get()) as u32;
                let length = (part.end - part.start) as u32;
                let logical = LogicalBlock::new(run.logical.get() + skipped);
                self.kept.push(Extent { logical, length, physical: part.start.into(), ..*run });
            }
        }
    }

    pub fn content(&self, image: &InspectedImage<'_>) -> DeletedContent {
        let Some(InodeVersion { inode, bytes, .. }) = self.version.as_deref() else {
            return DeletedContent::Unknown;
        };
        if inode.is_directory() || !(inode.is_regular() || inode.is_symlink()) {
            return DeletedContent::Empty;
        }
        if let Some(target) = inode.fast_symlink_target() {
            return DeletedContent::Bytes(target.to_vec());
        }
        let Some(bytes) = bytes else { return DeletedContent::Blocks(self.kept.clone()) };
        let stored = StoredInode { inode: inode.clone(), bytes: bytes.clone(), offset: 0 };
        let rest = inline_rest(image, &stored);
        let data =
            InlineData::check(&inode.block_area, Some(&rest), inode.size_bytes, inode.number);
        data.map_or(DeletedContent::Unknown, |data| DeletedContent::Bytes(data.to_vec()))
    }
}

/// The blocks of the device in a run.
pub(super) fn physical(run: &Extent) -> std::ops::Range<u64> {
    run.physical.get()..run.physical_end().get()
}
