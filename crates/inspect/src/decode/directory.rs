//! Decodes directories: blocks of records, and the index.

use super::field::{DecodedField, FieldValue};
use super::{Builder, Decoded, Structure, meaning};
use crate::error::{InspectError, Result};
use crate::image::InspectedImage;
use crate::map::runs_of;
use drystone_ext4_format::dir::{self, DirectoryBlock, DirectoryLayout, DirectoryPlace, RawTail};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::hash::NameHasher;
use drystone_ext4_format::htree::{
    self, IndexBlock, IndexKind, IndexLimits, RawCountLimit, RawIndexEntry, RawIndexNode,
    RawIndexRoot,
};
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::superblock::SuperblockFlags;
use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock};
use std::collections::HashSet;

/// Levels of an index that are followed.
const LEVELS_MAX: usize = 4;

/// The index of a directory, and the names in its leaves.
pub(super) fn htree(image: &InspectedImage<'_>, number: InodeNumber) -> Result<Decoded> {
    let stored = image.inode(number)?;
    let inode = &stored.inode;
    if !inode.is_directory() || !inode.flags.contains(InodeFlags::INDEX) {
        let problem = format!("inode {number} isn't a directory with an index");
        return Err(InspectError::Missing(problem));
    }
    let runs = runs_of(image, inode)?;
    let mut reader = IndexReader {
        image,
        inode,
        layout: image.directory_layout(inode),
        runs: &runs,
        hasher: None,
        visited: HashSet::new(),
    };
    reader.block(LogicalBlock::FIRST, LEVELS_MAX, None)
}

struct IndexReader<'a, 'd> {
    image: &'a InspectedImage<'d>,
    inode: &'a Inode,
    layout: DirectoryLayout,
    runs: &'a [Extent],
    /// Known once the root was read.
    hasher: Option<NameHasher>,
    visited: HashSet<u32>,
}

impl IndexReader<'_, '_> {
    /// A block of the index or a leaf with the hashes `from` to before `to`.
    fn block(
        &mut self,
        logical: LogicalBlock,
        levels_left: usize,
        hashes: Option<(u32, Option<u32>)>,
    ) -> Result<Decoded> {
        let problem = |text: String| {
            let mut decoded = Decoded::new(format!("block {logical} of the directory"), 0, 0);
            decoded.problems.push(text);
            Ok(decoded)
        };
        let physical = self.runs.iter().find_map(|run| run.physical_of(logical));
        let Some(physical) = physical else { return problem("it isn't mapped".to_owned()) };
        if !self.visited.insert(logical.get()) {
            return problem("the index leads to it twice".to_owned());
        }
        let bytes = match self.image.read_block(physical) {
            Ok(bytes) => bytes,
            Err(error) => return problem(error.to_string()),
        };
        let is_leaf = levels_left == 0;
        let kind = if logical == LogicalBlock::FIRST { IndexKind::Root } else { IndexKind::Node };
        if is_leaf {
            return Ok(self.leaf(logical, physical, &bytes, hashes));
        }
        let mut decoded = index_block(self.image, self.inode, logical, physical, &bytes, kind);
        let index = IndexBlock::trusted(&bytes, kind);
        let mut levels_left = levels_left - 1;
        if kind == IndexKind::Root {
            levels_left = usize::from(index.levels().unwrap_or(0)).min(LEVELS_MAX - 1);
            let superblock = &self.image.superblock;
            let unsigned = superblock.flags().contains(SuperblockFlags::UNSIGNED_HASH);
            self.hasher = index.hash_version().map(|version| {
                NameHasher::new(version.with_unsigned_chars(unsigned), superblock.hash_seed())
            });
        }
        let entries: Vec<_> = index.entries().collect();
        for (position, entry) in entries.iter().enumerate() {
            let to = entries.get(position + 1).map(|next| next.hash);
            decoded.parts.push(self.block(entry.block, levels_left, Some((entry.hash, to)))?);
        }
        Ok(decoded)
    }

    fn leaf(
        &self,
        logical: LogicalBlock,
        physical: PhysicalBlock,
        bytes: &[u8],
        hashes: Option<(u32, Option<u32>)>,
    ) -> Decoded {
        let mut decoded = records(self.image, self.inode, logical, physical, bytes);
        let Some((from, to)) = hashes else { return decoded };
        decoded.name += &match to {
            Some(to) => format!(", hashes {from:#010x} to {to:#010x}"),
            None => format!(", hashes from {from:#010x}"),
        };
        // Hashes of encrypted or folded names can't be computed here.
        let is_plain = !self.inode.flags.intersects(InodeFlags::ENCRYPT | InodeFlags::CASEFOLD);
        let Some(hasher) = self.hasher.as_ref().filter(|_| is_plain) else { return decoded };
        let block = DirectoryBlock::trusted(bytes, &self.layout);
        let entries = block.entries();
        for (field, entry) in decoded.fields.iter_mut().zip(entries) {
            let hash = hasher.hash(entry.name).major;
            let text = field.meaning.take().unwrap_or_default();
            field.meaning = Some(format!("{text}, hash {hash:#010x}"));
            let is_before = hash < from & !htree::CONTINUATION;
            let is_behind = to.is_some_and(|to| {
                hash >= to & !htree::CONTINUATION
                    && !(to & htree::CONTINUATION != 0 && hash == to & !1)
            });
            if is_before || is_behind {
                let name = String::from_utf8_lossy(entry.name);
                decoded.problems.push(format!("{name} belongs to another block"));
            }
        }
        decoded
    }
}

/// A block of an index.
pub(super) fn index_block(
    image: &InspectedImage<'_>,
    inode: &Inode,
    logical: LogicalBlock,
    physical: PhysicalBlock,
    bytes: &[u8],
    kind: IndexKind,
) -> Decoded {
    let layout = image.directory_layout(inode);
    let place = DirectoryPlace { inode: inode.number, block: logical };
    let what = if kind == IndexKind::Root { "index root" } else { "index node" };
    let name = format!("{what}, block {physical}, block {logical} of inode {}", inode.number);
    let structure = Structure::Index(inode.number, kind);
    let mut builder = Builder::new(name, image.offset_of(physical), bytes).structure(structure);
    let start = match kind {
        IndexKind::Root => {
            builder.table(0, RawIndexRoot::FIELDS, &|name, value| {
                (name == "hash_version").then(|| meaning::hash_version(value)).flatten()
            });
            size_of::<RawIndexRoot>()
        }
        IndexKind::Node => size_of::<RawIndexNode>(),
    };
    builder.table(start, RawCountLimit::FIELDS, &|_, _| None);
    let index = IndexBlock::trusted(bytes, kind);
    builder.field("entry[0].block", start + 4, 4, &|_, _| None);
    for number in 1..usize::from(index.count().min(index.limit())) {
        let at = start + number * size_of::<RawIndexEntry>();
        for field in RawIndexEntry::FIELDS {
            let name = format!("entry[{number}].{}", field.name);
            builder.field(&name, at + field.offset, field.length, &|name, value| {
                name.ends_with("hash").then(|| format!("{value:#010x}"))
            });
        }
    }
    let mut decoded = builder.decoded;
    decoded.checksum(layout.checksum.is_some(), htree::verify(bytes, kind, &layout, place));
    let blocks = inode.size_bytes.div_ceil(image.layout.block_size() as u64);
    let limits = IndexLimits {
        directory_blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
        large_directory: image.layout.features().incompat.contains(Incompat::LARGE_DIR),
    };
    decoded.problem(match kind {
        IndexKind::Root => IndexBlock::check_root(bytes, &layout, place, &limits),
        IndexKind::Node => IndexBlock::check_node(bytes, &layout, place, &limits),
    });
    decoded
}

/// A block of records.
pub(super) fn records(
    image: &InspectedImage<'_>,
    inode: &Inode,
    logical: LogicalBlock,
    physical: PhysicalBlock,
    bytes: &[u8],
) -> Decoded {
    let layout = image.directory_layout(inode);
    let place = DirectoryPlace { inode: inode.number, block: logical };
    let name = format!("records, block {physical}, block {logical} of inode {}", inode.number);
    let structure = Structure::Records(inode.number);
    let mut builder = Builder::new(name, image.offset_of(physical), bytes).structure(structure);
    let block = DirectoryBlock::trusted(bytes, &layout);
    for entry in block.entries() {
        let name = String::from_utf8_lossy(entry.name).into_owned();
        builder.decoded.fields.push(DecodedField {
            name,
            offset: image.offset_of(physical) + entry.offset as u64,
            length: entry.record_length,
            value: FieldValue::Number(u64::from(entry.inode.get())),
            meaning: Some(format!("{:?}", entry.entry_type).to_lowercase()),
        });
    }
    if layout.checksum.is_some() {
        let tail = bytes.len().saturating_sub(size_of::<RawTail>());
        builder.prefixed("tail.", tail, RawTail::FIELDS);
    }
    let mut decoded = builder.decoded;
    decoded.checksum(layout.checksum.is_some(), dir::verify(bytes, &layout, place));
    decoded.problem(DirectoryBlock::check(bytes, &layout, place));
    decoded
}
