//! Extended attributes: small named values of an inode.
//!
//! They live in up to three places: in the inode's record behind its fields, in one block that
//! inodes with equal attributes share, and, where a value is too large for both, in an inode of
//! the value's own. A new value goes to the first place that has room.
//!
//! # State
//! Nothing beside the image, but for [`BlockIndex`]: blocks by the hash of what they hold.
//!
//! # Locking
//! The inode's `xattrs` lock: shared to read, exclusive to change. The area in the record also holds
//! `system.data`, which belongs to the content: where an image has inline data, who changes
//! attributes holds the content lock too, shared.
//!
//! # Crash
//! A change is one handle. A value's inode that loses its last entry goes on the orphan record in
//! that handle and is freed afterwards.
//!
//! # Reference
//! "Extended Attributes" in the kernel's ext4 documentation; xattr(7).

pub(crate) mod acl;
mod block;
mod change;
mod checked;
mod index;
mod release;
mod stored;
#[cfg(test)]
mod tests;

pub(crate) use checked::{drop_capability, get_checked, list_checked, remove_checked, set_checked};
pub(crate) use index::BlockIndex;
pub(crate) use release::{Garbage, release_all};
pub(crate) use stored::value_inodes;

use crate::engine::Engine;
use crate::error::Result;
use crate::inode::{Fields, Inode};
use drystone_ext4_format::xattr::{
    AttributeEntry, AttributeName, AttributePlace, AttributeProblem, Attributes, AttributesBlock,
    MAGIC, Value,
};
use drystone_ext4_format::{Corrupt, InodeNumber, PhysicalBlock};

/// Whether the inode may have any attributes: costs next to nothing.
pub(crate) fn has_any(fields: &Fields) -> bool {
    fields.disk.attribute_block.is_some() || fields.xattr_area.starts_with(&MAGIC.to_le_bytes())
}

/// A value as an entry gives it.
enum Found {
    Here(Vec<u8>),
    InInode(InodeNumber, usize),
}

impl Found {
    fn from_entry(entry: &AttributeEntry<'_>) -> Found {
        match entry.value {
            Value::Inline(bytes) => Found::Here(bytes.to_vec()),
            Value::Inode { inode, length } => Found::InInode(inode, length),
        }
    }
}

/// The value of an attribute. Takes the `xattrs` lock if there are any.
pub(crate) fn get(fs: &Engine, inode: &Inode, name: &AttributeName) -> Result<Option<Vec<u8>>> {
    if !has_any(&inode.fields()) {
        return Ok(None);
    }
    let _xattrs = inode.xattrs.read();
    get_locked(fs, inode, name)
}

/// The value of an attribute, under the `xattrs` lock.
fn get_locked(fs: &Engine, inode: &Inode, name: &AttributeName) -> Result<Option<Vec<u8>>> {
    let found = look(fs, inode, |attributes| {
        attributes.find(name.index, &name.suffix).map(|entry| Found::from_entry(&entry))
    })?;
    Ok(match found {
        None => None,
        Some(Found::Here(value)) => Some(value),
        Some(Found::InInode(number, length)) => Some(fs.read_value(inode, number, length)?),
    })
}

/// Looks at the attributes in the record, then at those in the block, until `look` has an answer.
fn look<T>(
    fs: &Engine,
    inode: &Inode,
    mut look: impl FnMut(&Attributes<'_>) -> Option<T>,
) -> Result<Option<T>> {
    let block = {
        let fields = inode.fields();
        let place = AttributePlace { inode: inode.number, block: None };
        if let Some(found) = look(&Attributes::check_in_inode(&fields.xattr_area, place)?) {
            return Ok(Some(found));
        }
        fields.disk.attribute_block
    };
    let Some(block) = block else { return Ok(None) };
    let buffer = block::load(fs, inode, block)?;
    let place = AttributePlace { inode: inode.number, block: Some(block) };
    let bytes = buffer.read();
    Ok(look(&AttributesBlock::check(&bytes, place)?.attributes()))
}

/// The error for an entry that names an inode which doesn't hold its value.
pub(crate) fn mismatch(
    owner: InodeNumber,
    block: Option<PhysicalBlock>,
    inode: InodeNumber,
) -> Corrupt {
    let problem = AttributeProblem::InodeValueMismatch { inode };
    Corrupt::Attributes { inode: owner, block, offset: 0, problem }
}
