//! Content in the inode itself: the first bytes in the block area, the rest in the attribute
//! `system.data`.
//!
//! # Reference
//! "Inline Data" in the kernel's ext4 documentation.

use super::Fields;
use crate::error::Result;
use drystone_ext4_format::inline::{self, HEAD_LENGTH, InlineData};
use drystone_ext4_format::xattr::{
    AttributeName, AttributePlace, AttributeSet, AttributeValue, Attributes,
};

/// The attributes in the inode.
fn attributes(fields: &Fields) -> Result<AttributeSet> {
    let place = AttributePlace { inode: fields.disk.number, block: None };
    Ok(AttributeSet::read(&Attributes::check_in_inode(&fields.xattr_area, place)?))
}

/// The value of `system.data`, if the inode has it.
pub(crate) fn rest(fields: &Fields) -> Result<Option<Vec<u8>>> {
    match attributes(fields)?.remove(&AttributeName::inline_data()) {
        Some(AttributeValue::Inline(value)) => Ok(Some(value)),
        _ => Ok(None),
    }
}

/// Stores the value of `system.data`, or removes it. False, and nothing changed, if the inode has
/// no room.
pub(crate) fn set_rest(fields: &mut Fields, value: Option<&[u8]>) -> Result<bool> {
    let mut attributes = attributes(fields)?;
    match value {
        Some(value) => {
            let value = AttributeValue::Inline(value.to_vec());
            attributes.set(AttributeName::inline_data(), value);
        }
        None => {
            attributes.remove(&AttributeName::inline_data());
        }
    }
    Ok(attributes.encode_in_inode(&mut fields.xattr_area).is_ok())
}

/// Most bytes of content that the inode could hold, beside its other attributes.
pub(crate) fn capacity(fields: &Fields) -> Result<usize> {
    let mut attributes = attributes(fields)?;
    attributes.set(AttributeName::inline_data(), AttributeValue::Inline(Vec::new()));
    match fields.xattr_area.len().checked_sub(attributes.length_in_inode()) {
        // Values are padded to four bytes.
        Some(room) => Ok(HEAD_LENGTH + (room & !3)),
        None => Ok(0),
    }
}

/// The whole content.
pub(crate) fn content(fields: &Fields) -> Result<Vec<u8>> {
    let rest = rest(fields)?;
    let disk = &fields.disk;
    let data = InlineData::check(&disk.block_area, rest.as_deref(), disk.size_bytes, disk.number)?;
    Ok(data.to_vec())
}

/// Replaces the whole content and the size. False, and nothing changed, if it doesn't fit.
pub(crate) fn set_content(fields: &mut Fields, content: &[u8]) -> Result<bool> {
    let (head, rest) = inline::split(content);
    if !set_rest(fields, Some(&rest))? {
        return Ok(false);
    }
    fields.disk.block_area = head;
    fields.disk.size_bytes = content.len() as u64;
    Ok(true)
}
