//! Decodes a block as the structure that it holds.

use super::{Builder, Decoded, Structure, directory, group, inode, journal, superblock};
use crate::error::{InspectError, Result};
use crate::image::InspectedImage;
use crate::owners::{BlockPurpose, owners_of};
use drystone_ext4_format::htree::IndexKind;
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::mmp::{Mmp, RawMmp};
use drystone_ext4_format::orphan_file::{OrphanBlock, OrphanPlace, RawOrphanTail};
use drystone_ext4_format::superblock::SUPERBLOCK_BYTES;
use drystone_ext4_format::{GroupNumber, InodeNumber, LogicalBlock, PhysicalBlock};

/// Bytes of a block that are shown if nothing is known about them.
const SHOWN_BYTES: usize = 256;
const LINE_BYTES: usize = 32;

pub(super) fn block(image: &InspectedImage<'_>, block: PhysicalBlock) -> Result<Decoded> {
    let bytes = image.read_block(block)?;
    if !image.layout.contains_blocks(block, 1) && block.get() != 0 {
        return Err(InspectError::missing(format!("block {block} isn't part of the image")));
    }
    let owners = owners_of(image, &[block.get()])?;
    let mut parts: Vec<Decoded> = Vec::new();
    for owner in &owners {
        parts.extend(decoded(image, block, &bytes, owner.used_as)?);
    }
    let uses: Vec<String> = owners.iter().map(|owner| owner.used_as.to_string()).collect();
    let name = format!("block {block}: {}", uses.join("; "));
    let mut whole = Decoded::new(name, image.offset_of(block), bytes.len() as u64);
    if owners.len() > 1 {
        whole.problems.push(format!("it has {} owners", owners.len()));
    }
    whole.parts = parts;
    Ok(whole)
}

fn decoded(
    image: &InspectedImage<'_>,
    block: PhysicalBlock,
    bytes: &[u8],
    used_as: BlockPurpose,
) -> Result<Vec<Decoded>> {
    let offset = image.offset_of(block);
    Ok(match used_as {
        BlockPurpose::Superblock { group } => {
            let place = image.layout.superblock_location(GroupNumber::new(group));
            let start = place.map_or(0, |(_, offset)| offset);
            let Some(raw) = bytes.get(start..start + SUPERBLOCK_BYTES) else {
                return Ok(Vec::new());
            };
            vec![superblock::fields("superblock", offset + start as u64, raw)]
        }
        BlockPurpose::Descriptors { .. } => descriptors(image, block, bytes)?,
        BlockPurpose::BlockBitmap { group } | BlockPurpose::InodeBitmap { group } => {
            group::group(image, GroupNumber::new(group))?
                .parts
                .into_iter()
                .filter(|part| part.offset == offset)
                .collect()
        }
        BlockPurpose::InodeTable { inode: first, .. } => {
            let size = image.layout.inode_size();
            let each = (first..).zip(bytes.chunks_exact(size)).enumerate();
            each.filter(|(_, (_, raw))| raw.iter().any(|&byte| byte != 0))
                .map(|(index, (number, raw))| {
                    let at = offset + (index * size) as u64;
                    inode::fields(image, InodeNumber::new(number), raw, at)
                })
                .collect()
        }
        BlockPurpose::MultiMount => vec![multi_mount(image, block, bytes)],
        BlockPurpose::MapNode { inode: number, .. } => vec![map_node(image, number, block, bytes)?],
        BlockPurpose::Attributes { inode: number } => {
            vec![inode::attribute_block(image, InodeNumber::new(number), block)]
        }
        BlockPurpose::Data { inode, logical, .. } => {
            vec![data(image, inode, logical, block, bytes)?]
        }
        BlockPurpose::Free | BlockPurpose::Unknown => vec![raw(offset, bytes)],
    })
}

fn descriptors(
    image: &InspectedImage<'_>,
    block: PhysicalBlock,
    bytes: &[u8],
) -> Result<Vec<Decoded>> {
    let layout = &image.layout;
    let per_block = layout.descriptors_per_block();
    let is_here = |index: &u32| {
        layout.descriptor_block(*index) == Some(block)
            || layout.descriptor_backups(*index).contains(&block)
    };
    let Some(index) = (0..layout.descriptor_blocks()).find(is_here) else {
        return Ok(vec![Decoded::new(
            "reserved for descriptors",
            image.offset_of(block),
            bytes.len() as u64,
        )]);
    };
    let first = index * per_block;
    let last = (first + per_block).min(layout.group_count());
    let mut parts = Vec::new();
    for (position, raw) in (first..last).zip(bytes.chunks_exact(layout.descriptor_size())) {
        let mut part = group::fields(image, GroupNumber::new(position), raw)?;
        // A copy has a place of its own.
        let at = image.offset_of(block) + (position - first) as u64 * raw.len() as u64;
        for field in &mut part.fields {
            field.offset = field.offset - part.offset + at;
        }
        part.offset = at;
        parts.push(part);
    }
    Ok(parts)
}

fn multi_mount(image: &InspectedImage<'_>, block: PhysicalBlock, bytes: &[u8]) -> Decoded {
    let offset = image.offset_of(block);
    let mut builder =
        Builder::new("multi-mount protection", offset, bytes).structure(Structure::MultiMount);
    builder.table(0, RawMmp::FIELDS, &|_, _| None);
    let mut decoded = builder.decoded;
    let seed = image.layout.checksum_seed();
    decoded.checksum(seed.is_some(), Mmp::check(bytes, seed, block).map(drop));
    decoded
}

fn map_node(
    image: &InspectedImage<'_>,
    number: u32,
    block: PhysicalBlock,
    bytes: &[u8],
) -> Result<Decoded> {
    let number = InodeNumber::new(number);
    let stored = image.inode(number)?;
    if stored.inode.flags.contains(InodeFlags::EXTENTS) {
        let seed = stored.inode.seed(&image.layout);
        return Ok(inode::node_in_block(image, number, seed, block, bytes, None));
    }
    let mut builder = Builder::new("pointers", image.offset_of(block), bytes);
    for index in (0..bytes.len() / 4).filter(|index| bytes[index * 4..index * 4 + 4] != [0; 4]) {
        builder.field(&format!("pointer[{index}]"), index * 4, 4, &|_, _| None);
    }
    Ok(builder.decoded)
}

/// A block of a file: of a directory or one of the file system's own it is taken apart.
fn data(
    image: &InspectedImage<'_>,
    number: u32,
    logical: u32,
    block: PhysicalBlock,
    bytes: &[u8],
) -> Result<Decoded> {
    let (number, logical) = (InodeNumber::new(number), LogicalBlock::new(logical));
    let stored = image.inode(number)?;
    let inode = &stored.inode;
    let offset = image.offset_of(block);
    if inode.is_directory() {
        let kind = IndexKind::of(bytes).filter(|kind| {
            let is_first = logical == LogicalBlock::FIRST;
            inode.flags.contains(InodeFlags::INDEX) && (*kind == IndexKind::Root) == is_first
        });
        return Ok(match kind {
            Some(kind) => directory::index_block(image, inode, logical, block, bytes, kind),
            None => directory::records(image, inode, logical, block, bytes),
        });
    }
    if image.superblock.journal_inode() == Some(number) && logical == LogicalBlock::FIRST {
        return Ok(journal::head(number.get(), offset, bytes));
    }
    if image.superblock.orphan_file_inode() == Some(number) {
        let place = OrphanPlace { inode: number, block, checksum: inode.seed(&image.layout) };
        let structure = Structure::Orphans(number);
        let mut builder = Builder::new("orphan file", offset, bytes).structure(structure);
        let last = InodeNumber::new(image.layout.inodes_count());
        let checked = OrphanBlock::check(bytes, &place, last);
        for (slot, _) in checked.iter().flat_map(OrphanBlock::orphans) {
            builder.field(&format!("slot[{slot}]"), slot * 4, 4, &|_, _| None);
        }
        builder.table(bytes.len().saturating_sub(8), RawOrphanTail::FIELDS, &|_, value| {
            Some(format!("{value:#x}"))
        });
        let mut decoded = builder.decoded;
        decoded.checksum(place.checksum.is_some(), OrphanBlock::verify(bytes, &place));
        decoded.problem(checked);
        return Ok(decoded);
    }
    Ok(raw(offset, bytes))
}

/// Bytes of which nothing is known.
fn raw(offset: u64, bytes: &[u8]) -> Decoded {
    if bytes.iter().all(|&byte| byte == 0) {
        return Decoded::new("all zeros", offset, bytes.len() as u64);
    }
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let mut builder = Builder::new("its first bytes", offset, shown);
    for (at, line) in shown.chunks(LINE_BYTES).enumerate() {
        let start = at * LINE_BYTES;
        builder.field(&format!("bytes[{start}]"), start, line.len(), &|_, _| None);
        let text: String = line
            .iter()
            .map(|&b| if b.is_ascii_graphic() || b == b' ' { b as char } else { '.' })
            .collect();
        if let Some(field) = builder.decoded.fields.last_mut() {
            field.meaning = Some(text);
        }
    }
    builder.decoded
}
