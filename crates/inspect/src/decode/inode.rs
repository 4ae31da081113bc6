//! Decodes an inode, its extent tree or block map, and its extended attributes.

use super::{Builder, Decoded, Structure, meaning};
use crate::error::{InspectError, Result};
use crate::image::{InspectedImage, StoredInode};
use crate::map::runs_of;
use drystone_ext4_format::block_map::ROOT_POINTERS;
use drystone_ext4_format::extent::{
    self, DEPTH_MAX, EXTENT_FIELDS, Extent, ExtentNode, HEADER_FIELDS, INDEX_FIELDS,
    NodeExpectation, NodePlace,
};
use drystone_ext4_format::inode::{
    self, BLOCK_AREA_BYTES, BLOCK_AREA_OFFSET, Inode, InodeFlags, KNOWN_EXTRA_BYTES,
};
use drystone_ext4_format::xattr::{
    self, AttributePlace, AttributesBlock, RawAttributeBlockHeader, RawAttributeEntry, Value,
    XattrView,
};
use drystone_ext4_format::{InodeNumber, InodeSeed, PhysicalBlock};
use std::collections::HashSet;

const BASE_BYTES: usize = 128;
const EXTENT_HEADER_BYTES: usize = 12;
const EXTENT_ENTRY_BYTES: usize = 12;

pub(super) fn inode(image: &InspectedImage<'_>, number: InodeNumber) -> Result<Decoded> {
    let (bytes, offset) = image.inode_bytes(number)?;
    let mut decoded = fields(image, number, &bytes, offset);
    let Ok(inode) = Inode::read(&bytes, number, &image.layout) else { return Ok(decoded) };
    let stored = StoredInode { inode, bytes, offset };
    let inode = &stored.inode;
    if inode.has_block_mapping() {
        let area = stored.offset + BLOCK_AREA_OFFSET as u64;
        if inode.flags.contains(InodeFlags::EXTENTS) {
            decoded.parts.push(root_node(image, inode, area));
        } else if inode.mode != 0 {
            decoded.parts.push(pointers(inode, area));
        }
    } else if let Some(target) = inode.fast_symlink_target() {
        let at = stored.offset + BLOCK_AREA_OFFSET as u64;
        let target = String::from_utf8_lossy(target);
        decoded.parts.push(Decoded::new(format!("target {target}"), at, target.len() as u64));
    }
    decoded.parts.extend(inode_attributes(image, &stored));
    if let Some(block) = inode.attribute_block {
        decoded.parts.push(attribute_block(image, number, block));
    }
    Ok(decoded)
}

/// The fields and verdicts of an inode.
pub(super) fn fields(
    image: &InspectedImage<'_>,
    number: InodeNumber,
    bytes: &[u8],
    offset: u64,
) -> Decoded {
    let layout = &image.layout;
    let structure = Structure::Inode(number);
    let mut builder = Builder::new(format!("inode {number}"), offset, bytes).structure(structure);
    builder.table(0, inode::FIELDS, &meaning::of_inode);
    let read = Inode::read(bytes, number, layout);
    if bytes.len() > BASE_BYTES {
        let extra = read.as_ref().map_or(KNOWN_EXTRA_BYTES, |inode| inode.extra_size.max(4));
        for field in inode::EXTRA_FIELDS {
            if field.offset + field.length <= usize::from(extra) {
                let at = BASE_BYTES + field.offset;
                builder.field(field.name, at, field.length, &meaning::of_inode);
            }
        }
    }
    let mut decoded = builder.decoded;
    let exists = layout.checksum_seed().is_some() && bytes.iter().any(|&byte| byte != 0);
    decoded.checksum(exists, Inode::check_checksum(bytes, number, layout));
    decoded.problem(Inode::check_unsealed(bytes, number, layout));
    decoded
}

/// The extent tree of a file with all nodes, or the runs that its block map makes.
pub(super) fn map(image: &InspectedImage<'_>, number: InodeNumber) -> Result<Decoded> {
    let stored = image.inode(number)?;
    let inode = &stored.inode;
    if !inode.has_block_mapping() {
        return Err(InspectError::Missing(format!("inode {number} maps no blocks")));
    }
    let area = stored.offset + BLOCK_AREA_OFFSET as u64;
    if inode.flags.contains(InodeFlags::EXTENTS) {
        let mut root = root_node(image, inode, area);
        if let Ok(node) = ExtentNode::reopen(&inode.block_area, NodePlace::root(number)) {
            let mut visited = HashSet::new();
            let above = DEPTH_MAX + 1;
            root.parts = children(image, inode, &node, &NodeExpectation::ROOT, above, &mut visited);
        }
        return Ok(root);
    }
    let mut decoded = pointers(inode, area);
    for run in runs_of(image, inode)? {
        let at = image.offset_of(run.physical);
        let length = u64::from(run.length) << image.layout.log_block_size();
        decoded.parts.push(Decoded::new(run_text(&run), at, length));
    }
    Ok(decoded)
}

fn run_text(run: &Extent) -> String {
    let (first, last) = (run.logical.as_u64(), run.logical_end() - 1);
    let (from, to) = (run.physical.get(), run.physical_end().get() - 1);
    let kind = if run.unwritten { ", not written yet" } else { "" };
    format!("blocks {first} to {last} at {from} to {to}{kind}")
}

fn root_node(image: &InspectedImage<'_>, inode: &Inode, area: u64) -> Decoded {
    let place = NodePlace::root(inode.number);
    let name = "extent tree, root";
    node(image, &inode.block_area, area, place, name, &NodeExpectation::ROOT)
}

/// A node of an extent tree: header and entries.
fn node(
    image: &InspectedImage<'_>,
    bytes: &[u8],
    offset: u64,
    place: NodePlace,
    name: &str,
    expectation: &NodeExpectation,
) -> Decoded {
    let mut builder = Builder::new(name, offset, bytes);
    builder.table(0, HEADER_FIELDS, &|_, _| None);
    let node = ExtentNode::reopen(bytes, place);
    if let Ok(node) = &node {
        let (fields, kind) =
            if node.is_leaf() { (EXTENT_FIELDS, "extent") } else { (INDEX_FIELDS, "index") };
        for number in 0..node.len() {
            let at = EXTENT_HEADER_BYTES + number * EXTENT_ENTRY_BYTES;
            builder.prefixed(&format!("{kind}[{number}]."), at, fields);
        }
    }
    let mut decoded = builder.decoded;
    decoded.problem(ExtentNode::check(bytes, place, expectation, &image.layout));
    if let Ok(node) = node {
        for extent in node.extents() {
            let at = image.offset_of(extent.physical);
            let length = u64::from(extent.length) << image.layout.log_block_size();
            decoded.parts.push(Decoded::new(run_text(&extent), at, length));
        }
    }
    decoded
}

/// A node that is stored in a block.
pub(super) fn node_in_block(
    image: &InspectedImage<'_>,
    owner: InodeNumber,
    seed: Option<InodeSeed>,
    block: PhysicalBlock,
    bytes: &[u8],
    expectation: Option<&NodeExpectation>,
) -> Decoded {
    let place = NodePlace::block(owner, block);
    let name = format!("node in block {block}");
    // Without the rest of its tree, its depth and range aren't known.
    let anywhere = ExtentNode::reopen(bytes, place)
        .ok()
        .and_then(|node| Some(NodeExpectation::child(node.depth(), node.logical(0)?, 1 << 32)));
    let expectation = expectation.copied().or(anywhere).unwrap_or(NodeExpectation::ROOT);
    let offset = image.offset_of(block);
    let mut decoded = node(image, bytes, offset, place, &name, &expectation);
    decoded.structure = Structure::ExtentNode(owner);
    decoded.checksum(seed.is_some(), extent::check_checksum(bytes, owner, block, seed));
    decoded
}

fn children(
    image: &InspectedImage<'_>,
    inode: &Inode,
    node: &ExtentNode<'_>,
    expectation: &NodeExpectation,
    depth_above: u16,
    visited: &mut HashSet<u64>,
) -> Vec<Decoded> {
    let mut parts = Vec::new();
    for extent in node.extents() {
        let at = image.offset_of(extent.physical);
        let length = u64::from(extent.length) << image.layout.log_block_size();
        parts.push(Decoded::new(run_text(&extent), at, length));
    }
    if node.depth() >= depth_above {
        return parts;
    }
    let seed = inode.seed(&image.layout);
    for position in 0..node.len() {
        let Some((block, expected)) = node.child(position, expectation) else { continue };
        let mut part = match image.read_block(block) {
            Ok(bytes) => {
                let mut part =
                    node_in_block(image, inode.number, seed, block, &bytes, Some(&expected));
                let place = NodePlace::block(inode.number, block);
                match ExtentNode::reopen(&bytes, place) {
                    Ok(child) if visited.insert(block.get()) => {
                        let depth = node.depth();
                        part.parts = children(image, inode, &child, &expected, depth, visited);
                    }
                    Ok(_) => part.problems.push("it is in the tree twice".to_owned()),
                    Err(_) => {}
                }
                part
            }
            Err(error) => {
                let mut part = Decoded::new(format!("node in block {block}"), 0, 0);
                part.problems.push(error.to_string());
                part
            }
        };
        part.problems.dedup();
        parts.push(part);
    }
    parts
}

fn pointers(inode: &Inode, area: u64) -> Decoded {
    let mut builder = Builder::new("block map", area, &inode.block_area);
    for index in 0..ROOT_POINTERS {
        let name = match index {
            12 => "indirect".to_owned(),
            13 => "double_indirect".to_owned(),
            14 => "triple_indirect".to_owned(),
            _ => format!("block[{index}]"),
        };
        builder.field(&name, index * BLOCK_AREA_BYTES / ROOT_POINTERS, 4, &|_, _| None);
    }
    builder.decoded
}

fn inode_attributes(image: &InspectedImage<'_>, stored: &StoredInode) -> Option<Decoded> {
    let area = stored.inode.attribute_area(&image.layout);
    let bytes = &stored.bytes[area.clone()];
    let magic = bytes.first_chunk::<4>().map(|raw| u32::from_le_bytes(*raw));
    if magic != Some(xattr::MAGIC) {
        return None;
    }
    let offset = stored.offset + area.start as u64;
    let mut builder = Builder::new("extended attributes in the inode", offset, bytes);
    builder.field("magic", 0, 4, &|_, value| Some(format!("{value:#x}")));
    let place = AttributePlace { inode: stored.inode.number, block: None };
    let checked = XattrView::check_in_inode(bytes, place);
    if let Ok(attributes) = &checked {
        entries(&mut builder, attributes);
    }
    builder.decoded.problem(checked);
    Some(builder.decoded)
}

/// A block of extended attributes.
pub(super) fn attribute_block(
    image: &InspectedImage<'_>,
    owner: InodeNumber,
    block: PhysicalBlock,
) -> Decoded {
    let name = format!("extended attributes in block {block}");
    let bytes = match image.read_block(block) {
        Ok(bytes) => bytes,
        Err(error) => {
            let mut decoded = Decoded::new(name, 0, 0);
            decoded.problems.push(error.to_string());
            return decoded;
        }
    };
    let offset = image.offset_of(block);
    let mut builder = Builder::new(name, offset, &bytes).structure(Structure::Attributes);
    builder.table(0, RawAttributeBlockHeader::FIELDS, &|name, value| {
        matches!(name, "magic" | "hash" | "checksum").then(|| format!("{value:#x}"))
    });
    let place = AttributePlace { inode: owner, block: Some(block) };
    let checked = AttributesBlock::check(&bytes, place);
    if let Ok(found) = &checked {
        entries(&mut builder, &found.attributes());
    }
    let mut decoded = builder.decoded;
    let seed = image.layout.checksum_seed();
    decoded.checksum(seed.is_some(), xattr::verify_block(&bytes, seed, owner, block));
    decoded.problem(checked);
    decoded
}

fn entries(builder: &mut Builder<'_>, attributes: &XattrView<'_>) {
    for entry in attributes.iter() {
        let name = entry.name().full();
        let name = String::from_utf8_lossy(name.as_deref().unwrap_or(entry.suffix)).into_owned();
        builder.prefixed(&format!("{name}."), entry.offset, RawAttributeEntry::FIELDS);
        if let (Some(field), Value::Inline(value)) =
            (builder.decoded.fields.last_mut(), entry.value)
        {
            field.meaning = Some(format!("value {}", meaning::digits(value)));
        }
    }
}
