//! Extended attributes: in inodes, in shared blocks, and in inodes of their own.

use crate::checker::{AttributeUse, Checker, SharedBlock, ValueInode};
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
pub(crate) fn check(checker: &mut Checker<'_>, inode: &Inode, bytes: &[u8]) -> Result<bool, Error> {
    let has_block = check_all(checker, inode, bytes)?;
    if inode.flags.contains(InodeFlags::ENCRYPT) {
        check_encryption(checker, inode.number);
    }
    Ok(has_block)
}

fn check_encryption(checker: &mut Checker<'_>, inode: InodeNumber) {
    let context = checker.attributes.encryption.take();
    let issue = match context.as_deref().map(encryption::policy_of) {
        Some(Some(policy)) => return checker.policies.add(inode, policy),
        Some(None) => AttributeIssue::EncryptionContext,
        None => AttributeIssue::NoEncryptionContext,
    };
    checker.reporter.report(Issue::Attributes { inode, issue });
}

fn check_all(checker: &mut Checker<'_>, inode: &Inode, bytes: &[u8]) -> Result<bool, Error> {
    checker.attributes.charged.clear();
    checker.attributes.encryption = None;
    let layout = checker.image.layout;
    let place = AttributePlace { inode: inode.number, block: None };
    let area = bytes.get(inode.attribute_area(&layout)).unwrap_or(&[]);
    match XattrView::check_in_inode(area, place) {
        Ok(attributes) => {
            let values = check_entries(checker, inode, attributes, place)?;
            add_values(checker, &values);
        }
        Err(corrupt) => checker.reporter.report(corrupt),
    }
    let Some(block) = inode.attribute_block else { return Ok(false) };
    if !layout.contains_blocks(block, 1) || block.get() <= u64::from(layout.first_data_block()) {
        let blocks = layout.blocks_count();
        checker.reporter.report(Corrupt::BlockOutOfRange { block, blocks });
        return Ok(false);
    }
    check_block(checker, inode, block)?;
    Ok(true)
}

fn check_block(
    checker: &mut Checker<'_>,
    inode: &Inode,
    block: PhysicalBlock,
) -> Result<(), Error> {
    if let Some(shared) = checker.attributes.blocks.get_mut(&block.get()) {
        shared.counted = shared.counted.saturating_add(1);
        if let Some(context) = &shared.encryption {
            checker.attributes.encryption = Some(context.clone());
        }
        let values = shared.values.clone();
        add_values(checker, &values);
        return Ok(());
    }
    checker.claims.claim_block(block);
    let bytes = checker.image.read_block(block)?;
    let number = inode.number;
    let place = AttributePlace { inode: number, block: Some(block) };
    if let Err(corrupt) = verify_block(&bytes, checker.image.layout.checksum_seed(), number, block)
    {
        checker.reporter.report(corrupt);
    }
    let mut shared = SharedBlock {
        inode: number,
        stored: None,
        counted: 1,
        values: Vec::new(),
        encryption: None,
    };
    match AttributesBlock::check(&bytes, place) {
        Ok(found) => {
            shared.stored = Some(found.reference_count());
            for entry in found.attributes().iter() {
                if let Some(context) = context_in(checker, &entry)? {
                    shared.encryption = Some(context);
                }
            }
            shared.values = check_entries(checker, inode, found.attributes(), place)?;
            let computed = block_hash(found.attributes().iter().map(|entry| entry.hash));
            let stored = found.hash();
            if stored != computed && stored != 0 {
                let issue = AttributeIssue::BlockHash { block, stored, computed };
                checker.reporter.report(Issue::Attributes { inode: number, issue });
            }
        }
        Err(corrupt) => checker.reporter.report(corrupt),
    }
    let values = shared.values.clone();
    checker.attributes.blocks.insert(block.get(), shared);
    add_values(checker, &values);
    Ok(())
}

/// Checks entries; returns the inodes that hold values, and the lengths.
fn check_entries(
    checker: &mut Checker<'_>,
    inode: &Inode,
    attributes: XattrView<'_>,
    place: AttributePlace,
) -> Result<Vec<(InodeNumber, u64)>, Error> {
    let mut values = Vec::new();
    for entry in attributes.iter() {
        if let Some(context) = context_in(checker, &entry)? {
            checker.attributes.encryption = Some(context);
        }
        if let Some(issue) = name_issue(&entry) {
            checker.reporter.report(Issue::Attributes { inode: inode.number, issue });
        }
        // Linux doesn't look where a value without bytes is; e2fsck then reads none of the attributes.
        if matches!(entry.value, Value::Inline([])) && entry.value_start > attributes.length() {
            let issue = AttributeIssue::ValueStart { name: entries::text(entry.suffix) };
            checker.reporter.report(Issue::Attributes { inode: inode.number, issue });
        }
        let value_hash = match entry.value {
            Value::Inline(_) => Some(0),
            Value::Inode { inode: value, length } => {
                values.push((value, length as u64));
                check_value(checker, inode, value, length as u64)?
            }
        };
        let Some(value_hash) = value_hash else { continue };
        if let Err(corrupt) = attributes.verify_hash(&entry, value_hash, place) {
            checker.reporter.report(corrupt);
        } else if entry.hash == 0 && (value_hash != 0 || place.block.is_some() && entry.has_hash())
        {
            // Only entries in inodes do without, if their values are beside them.
            let issue = AttributeIssue::NoHash { name: entries::text(entry.suffix) };
            checker.reporter.report(Issue::Attributes { inode: inode.number, issue });
        }
    }
    Ok(values)
}

/// The encryption context, if the attribute is one.
fn context_in(checker: &Checker<'_>, entry: &AttributeEntry<'_>) -> Result<Option<Vec<u8>>, Error> {
    if entry.index != AttributeName::ENCRYPTION {
        return Ok(None);
    }
    let (value, length) = match entry.value {
        Value::Inline(bytes) => return Ok(Some(bytes.to_vec())),
        Value::Inode { inode, length, .. } => (inode, length),
    };
    // Where an inode has no room, the context is in another one.
    let found = match checker.inode(value)? {
        Some((inode, _)) if length <= encryption::CONTEXT_BYTES_MAX => {
            let size_bytes = length as u64;
            read_content(checker, &Inode { size_bytes, ..inode })?
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
    checker: &mut Checker<'_>,
    inode: &Inode,
    value: InodeNumber,
    length: u64,
) -> Result<Option<u32>, Error> {
    if !checker.attributes.values.contains_key(&value.get()) {
        let found = read_value(checker, value)?;
        checker.attributes.values.insert(value.get(), found);
    }
    let found = checker.attributes.values.get(&value.get()).and_then(|value| value.found);
    match found {
        Some((hash, found_length)) if found_length == length => Ok(Some(hash)),
        _ => {
            let issue = AttributeIssue::ValueInode { value, length };
            checker.reporter.report(Issue::Attributes { inode: inode.number, issue });
            Ok(None)
        }
    }
}

fn read_value(checker: &mut Checker<'_>, number: InodeNumber) -> Result<ValueInode, Error> {
    let unusable = ValueInode { found: None, stored_references: 0, counted: 0 };
    let Some((inode, bytes)) = checker.inode(number)? else { return Ok(unusable) };
    let holds_value = inode.flags.contains(InodeFlags::EA_INODE)
        && inode.links_count > 0
        && inode.is_regular()
        && !inode.flags.contains(InodeFlags::INLINE_DATA)
        && inode.size_bytes <= VALUE_LENGTH_MAX as u64;
    if !holds_value {
        return Ok(unusable);
    }
    let Some(content) = read_content(checker, &inode)? else { return Ok(unusable) };
    let superblock = &checker.image.superblock;
    let seed = checker.image.layout.checksum_seed();
    let seed = seed.unwrap_or_else(|| ChecksumSeed::from_uuid(&superblock.uuid()));
    let computed = inode_value_hash(seed, &content);
    // The fields of times and of the version, whose meaning differs here.
    let word = |at: usize| {
        bytes.get(at..at + 4).map_or(0, |raw| u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]))
    };
    let fields = InodeValueFields::from_inode(word(12), word(36), word(8));
    if fields.hash != computed {
        let issue = AttributeIssue::ValueHash { value: number, stored: fields.hash, computed };
        checker.reporter.report(Issue::Attributes { inode: number, issue });
    }
    let found = Some((computed, inode.size_bytes));
    Ok(ValueInode { found, stored_references: fields.reference_count, counted: 0 })
}

fn read_content(checker: &Checker<'_>, inode: &Inode) -> Result<Option<Vec<u8>>, Error> {
    let block_size = checker.image.layout.block_size();
    let mut content = vec![0; (inode.size_bytes as usize).next_multiple_of(block_size)];
    for extent in mapping::extents_of(&checker.image, inode)? {
        let from = extent.logical.get() as usize * block_size;
        let Some(place) = content.get_mut(from..) else { continue };
        let length = place.len().min(extent.length as usize * block_size);
        checker.image.read_blocks(extent.physical, &mut place[..length])?;
    }
    content.truncate(inode.size_bytes as usize);
    Ok(Some(content))
}

fn add_values(checker: &mut Checker<'_>, values: &[(InodeNumber, u64)]) {
    for (value, length) in values {
        if let Some(found) = checker.attributes.values.get_mut(&value.get()) {
            found.counted += 1;
        }
        checker.attributes.charged.push(*length);
    }
}

/// Compares how often blocks and values are referred to with what they say.
pub(crate) fn check_references(checker: &mut Checker<'_>) -> Result<(), Error> {
    let AttributeUse { blocks, values, .. } = std::mem::take(&mut checker.attributes);
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
