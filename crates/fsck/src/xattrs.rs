//! Extended attributes: in inodes, in shared blocks, and in inodes of their own.

use crate::checker::{AttributeUse, Checker, Findings, InodePass, SharedBlock, ValueInode};
use crate::encryption;
use crate::entries;
use crate::image::Error;
use crate::issue::{AttributeIssue, InodeIssue, Issue};
use crate::mapping;
use drystone_ext4_format::checksum::ChecksumSeed;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::xattr::{
    AttributeEntry, AttributeName, AttributePlace, AttributesBlock, InodeValueFields,
    VALUE_LENGTH_MAX, Value, XattrView, block_hash, inode_value_hash, verify_block,
};
use drystone_ext4_format::{Corrupt, InodeNumber, PhysicalBlock};

/// Checks the attributes of an inode; whether it has an attribute block.
pub(crate) fn check(
    pass: &mut InodePass<'_, '_>,
    inode: &Inode,
    bytes: &[u8],
) -> Result<bool, Error> {
    let has_block = check_all(pass, inode, bytes)?;
    if inode.flags.contains(InodeFlags::ENCRYPT) {
        check_encryption(pass, inode.number);
    }
    Ok(has_block)
}

fn check_encryption(pass: &mut InodePass<'_, '_>, inode: InodeNumber) {
    let context = pass.found.attributes.encryption.take();
    let issue = match context.as_deref().map(encryption::policy_of) {
        Some(Some(policy)) => return pass.found.policies.add(inode, policy),
        Some(None) => AttributeIssue::EncryptionContext,
        None => AttributeIssue::NoEncryptionContext,
    };
    pass.reporter.report(Issue::Attributes { inode, issue });
}

fn check_all(pass: &mut InodePass<'_, '_>, inode: &Inode, bytes: &[u8]) -> Result<bool, Error> {
    pass.found.attributes.charged.clear();
    pass.found.attributes.encryption = None;
    let layout = pass.image.layout;
    let place = AttributePlace { inode: inode.number, block: None };
    let area = bytes.get(inode.attribute_area(&layout)).unwrap_or(&[]);
    match XattrView::check_in_inode(area, place) {
        Ok(attributes) => {
            let values = check_entries(pass, inode, attributes, place)?;
            add_values(pass, &values);
        }
        Err(corrupt) => pass.reporter.report(corrupt),
    }
    let Some(block) = inode.attribute_block else { return Ok(false) };
    if !layout.contains_blocks(block, 1) || block.get() <= u64::from(layout.first_data_block()) {
        let blocks = layout.blocks_count();
        pass.reporter.report(Corrupt::BlockOutOfRange { block, blocks });
        return Ok(false);
    }
    check_block(pass, inode, block)?;
    Ok(true)
}

fn check_block(
    pass: &mut InodePass<'_, '_>,
    inode: &Inode,
    block: PhysicalBlock,
) -> Result<(), Error> {
    if let Some(shared) = pass.found.attributes.blocks.get_mut(&block.get()) {
        shared.counted = shared.counted.saturating_add(1);
        if let Some(context) = &shared.encryption {
            pass.found.attributes.encryption = Some(context.clone());
        }
        let values = shared.values.clone();
        add_values(pass, &values);
        return Ok(());
    }
    let problems_before = pass.reporter.count();
    let bytes = pass.image.read_block(block)?;
    let number = inode.number;
    let place = AttributePlace { inode: number, block: Some(block) };
    if let Err(corrupt) = verify_block(&bytes, pass.image.layout.checksum_seed(), number, block) {
        pass.reporter.report(corrupt);
    }
    let mut shared = SharedBlock {
        inode: number,
        stored: None,
        counted: 1,
        values: Vec::new(),
        encryption: None,
        is_sound: false,
    };
    match AttributesBlock::check(&bytes, place) {
        Ok(found) => {
            shared.stored = Some(found.reference_count());
            for entry in found.attributes().iter() {
                if let Some(context) = context_in(pass, &entry)? {
                    shared.encryption = Some(context);
                }
            }
            shared.values = check_entries(pass, inode, found.attributes(), place)?;
            let computed = block_hash(found.attributes().iter().map(|entry| entry.hash));
            let stored = found.hash();
            if stored != computed && stored != 0 {
                let issue = AttributeIssue::BlockHash { block, stored, computed };
                pass.reporter.report(Issue::Attributes { inode: number, issue });
            }
        }
        Err(corrupt) => pass.reporter.report(corrupt),
    }
    shared.is_sound = pass.reporter.count() == problems_before;
    let values = shared.values.clone();
    pass.found.attributes.blocks.insert(block.get(), shared);
    add_values(pass, &values);
    Ok(())
}

/// Checks entries; returns the inodes that hold values, and the lengths.
fn check_entries(
    pass: &mut InodePass<'_, '_>,
    inode: &Inode,
    attributes: XattrView<'_>,
    place: AttributePlace,
) -> Result<Vec<(InodeNumber, u64)>, Error> {
    let mut values = Vec::new();
    for entry in attributes.iter() {
        if let Some(context) = context_in(pass, &entry)? {
            pass.found.attributes.encryption = Some(context);
        }
        if let Some(issue) = name_issue(&entry) {
            pass.reporter.report(Issue::Attributes { inode: inode.number, issue });
        }
        // Linux doesn't look where a value without bytes is; e2fsck then reads none of the attributes.
        if matches!(entry.value, Value::Inline([])) && entry.value_start > attributes.length() {
            let issue = AttributeIssue::ValueStart { name: entries::text(entry.suffix) };
            pass.reporter.report(Issue::Attributes { inode: inode.number, issue });
        }
        let value_hash = match entry.value {
            Value::Inline(_) => Some(0),
            Value::Inode { inode: value, length } => {
                values.push((value, length as u64));
                check_value(pass, inode, value, length as u64)?
            }
        };
        let Some(value_hash) = value_hash else { continue };
        if let Err(corrupt) = attributes.verify_hash(&entry, value_hash, place) {
            pass.reporter.report(corrupt);
        } else if entry.hash == 0 && (value_hash != 0 || place.block.is_some() && entry.has_hash())
        {
            // Only entries in inodes do without, if their values are beside them.
            let issue = AttributeIssue::NoHash { name: entries::text(entry.suffix) };
            pass.reporter.report(Issue::Attributes { inode: inode.number, issue });
        }
    }
    Ok(values)
}

/// The encryption context, if the attribute is one.
fn context_in(
    pass: &InodePass<'_, '_>,
    entry: &AttributeEntry<'_>,
) -> Result<Option<Vec<u8>>, Error> {
    if entry.index != AttributeName::ENCRYPTION {
        return Ok(None);
    }
    let (value, length) = match entry.value {
        Value::Inline(bytes) => return Ok(Some(bytes.to_vec())),
        Value::Inode { inode, length, .. } => (inode, length),
    };
    // Where an inode has no room, the context is in another one.
    let found = match pass.image.inode(value)? {
        Some((inode, _)) if length <= encryption::CONTEXT_BYTES_MAX => {
            let size_bytes = length as u64;
            read_content(pass, &Inode { size_bytes, ..inode })?
        }
        _ => None,
    };
    Ok(Some(found.unwrap_or_default()))
}

/// What is wrong with a name.
fn name_issue(entry: &AttributeEntry<'_>) -> Option<AttributeIssue> {
    let name = || entries::text(entry.suffix);
    if entry.index == 0 {
        return Some(AttributeIssue::NameIndex { index: entry.index });
    }
    if entry.suffix.contains(&0) {
        return Some(AttributeIssue::Name { name: name() });
    }
    None
}

/// Checks the inode that holds a value; returns the hash of the value.
fn check_value(
    pass: &mut InodePass<'_, '_>,
    inode: &Inode,
    value: InodeNumber,
    length: u64,
) -> Result<Option<u32>, Error> {
    if !pass.found.attributes.values.contains_key(&value.get()) {
        let found = read_value(pass, value)?;
        pass.found.attributes.values.insert(value.get(), found);
    }
    let found = pass.found.attributes.values.get(&value.get()).and_then(|value| value.found);
    match found {
        Some((hash, found_length)) if found_length == length => Ok(Some(hash)),
        _ => {
            let issue = AttributeIssue::ValueInode { value, length };
            pass.reporter.report(Issue::Attributes { inode: inode.number, issue });
            Ok(None)
        }
    }
}

fn read_value(pass: &mut InodePass<'_, '_>, number: InodeNumber) -> Result<ValueInode, Error> {
    let unusable = ValueInode { found: None, stored_references: 0, counted: 0, is_sound: true };
    let Some((inode, bytes)) = pass.image.inode(number)? else { return Ok(unusable) };
    let holds_value = inode.flags.contains(InodeFlags::EA_INODE)
        && inode.links_count > 0
        && inode.is_regular()
        && !inode.flags.contains(InodeFlags::INLINE_DATA)
        && inode.size_bytes <= VALUE_LENGTH_MAX as u64;
    if !holds_value {
        return Ok(unusable);
    }
    let Some(content) = read_content(pass, &inode)? else { return Ok(unusable) };
    let superblock = &pass.image.superblock;
    let seed = pass.image.layout.checksum_seed();
    let seed = seed.unwrap_or_else(|| ChecksumSeed::from_uuid(&superblock.uuid()));
    let computed = inode_value_hash(seed, &content);
    // The fields of times and of the version, whose meaning differs here.
    let word = |at: usize| {
        bytes.get(at..at + 4).map_or(0, |raw| u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]))
    };
    let fields = InodeValueFields::from_inode(word(12), word(36), word(8));
    let is_sound = fields.hash == computed;
    if !is_sound {
        let issue = AttributeIssue::ValueHash { value: number, stored: fields.hash, computed };
        pass.reporter.report(Issue::Attributes { inode: number, issue });
    }
    let found = Some((computed, inode.size_bytes));
    Ok(ValueInode { found, stored_references: fields.reference_count, counted: 0, is_sound })
}

fn read_content(pass: &InodePass<'_, '_>, inode: &Inode) -> Result<Option<Vec<u8>>, Error> {
    let block_size = pass.image.layout.block_size();
    let mut content = vec![0; (inode.size_bytes as usize).next_multiple_of(block_size)];
    for extent in mapping::extents_of(pass.image, inode)? {
        let from = extent.logical.get() as usize * block_size;
        let Some(place) = content.get_mut(from..) else { continue };
        let length = place.len().min(extent.length as usize * block_size);
        pass.image.read_blocks(extent.physical, &mut place[..length])?;
    }
    content.truncate(inode.size_bytes as usize);
    Ok(Some(content))
}

fn add_values(pass: &mut InodePass<'_, '_>, values: &[(InodeNumber, u64)]) {
    for (value, length) in values {
        if let Some(found) = pass.found.attributes.values.get_mut(&value.get()) {
            found.counted += 1;
        }
        pass.found.attributes.charged.push(*length);
    }
}

/// Claims the blocks of attributes: each once, however many inodes share it.
pub(crate) fn claim_blocks(findings: &mut Findings) {
    for &block in findings.attributes.blocks.keys() {
        findings.claims.claim_block(PhysicalBlock::new(block));
    }
}

/// Compares how often blocks and values are referred to with what they say.
pub(crate) fn check_references(checker: &mut Checker<'_>) -> Result<(), Error> {
    let AttributeUse { blocks, values, .. } = std::mem::take(&mut checker.found.attributes);
    for (block, shared) in blocks {
        let (block, counted) = (PhysicalBlock::new(block), shared.counted);
        if let Some(stored) = shared.stored.filter(|stored| *stored != counted) {
            let issue = AttributeIssue::References { block, stored, counted };
            checker.reporter.report(Issue::Attributes { inode: shared.inode, issue });
        }
    }
    for (number, value) in values {
        let inode = InodeNumber::new(number);
        let (stored, counted) = (value.stored_references, value.counted);
        if value.found.is_some() {
            if stored != counted {
                let issue = InodeIssue::ValueReferences { stored, counted };
                checker.reporter.report(Issue::Inode { inode, issue });
            }
            // The attributes that refer to it are its name.
            checker.states.add_name(inode);
        }
    }
    Ok(())
}
