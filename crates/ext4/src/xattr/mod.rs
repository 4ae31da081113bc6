//! Extended attributes: small named values of an inode.
//!
//! They are in up to three places: in the inode's record after its fields; in one block, which inodes
//! with equal attributes share; and, if a value is too large for both, in an inode of the value's own. A
//! new value goes to the first place that has room.
//!
//! # State
//! Only [`XattrBlockIndex`](crate::content::XattrBlockIndex): attribute blocks by the hash of their
//! content. The rest is in the image.
//!
//! # Locking
//! The inode's `xattrs` lock: shared to read, exclusive to change. The area in the record also holds
//! `system.data`, which belongs to the content: if the image has inline data, a thread that changes
//! attributes holds the content lock too, shared.
//!
//! # Crash
//! A change is one handle. An inode of a value that loses its last entry is put on the orphan record in
//! that handle, and freed afterwards.
//!
//! # Reference
//! "Extended Attributes" in the kernel's ext4 documentation; xattr(7).

pub(crate) mod acl;
mod block;
mod change;
mod garbage;
mod release;
mod set;
mod stored;
#[cfg(test)]
mod tests;
mod value_inode;

pub(crate) use garbage::ValueGarbage;
pub(crate) use release::release_all;
pub(crate) use set::{change_one, drop_capability, lock_content};
pub(crate) use stored::value_inodes;

use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::Inode;
use drystone_ext4_format::error::AttributeProblem;
use drystone_ext4_format::xattr::{
    AttributeEntry, AttributeName, AttributePlace, AttributesBlock, Value, XattrView,
};
use drystone_ext4_format::{Corrupt, InodeNumber, PhysicalBlock};

/// A value as an entry gives it.
enum FoundValue {
    Here(Vec<u8>),
    InInode(InodeNumber, usize),
}

impl FoundValue {
    fn from_entry(entry: &AttributeEntry<'_>) -> FoundValue {
        match entry.value {
            Value::Inline(bytes) => FoundValue::Here(bytes.to_vec()),
            Value::Inode { inode, length } => FoundValue::InInode(inode, length),
        }
    }
}

/// The value of an attribute. Takes the `xattrs` lock if there are any.
pub(crate) fn get(
    fs: &ContentStore,
    inode: &Inode,
    name: &AttributeName,
) -> Result<Option<Vec<u8>>> {
    if !inode.fields().has_xattrs() {
        return Ok(None);
    }
    let _xattrs = inode.xattrs.read();
    get_locked(fs, inode, name)
}

/// The value of an attribute, under the `xattrs` lock.
fn get_locked(fs: &ContentStore, inode: &Inode, name: &AttributeName) -> Result<Option<Vec<u8>>> {
    let found = look(fs, inode, |attributes| {
        attributes.find(name.index, &name.suffix).map(|entry| FoundValue::from_entry(&entry))
    })?;
    Ok(match found {
        None => None,
        Some(FoundValue::Here(value)) => Some(value),
        Some(FoundValue::InInode(number, length)) => {
            Some(value_inode::read(fs, inode, number, length)?)
        }
    })
}

/// Looks at the attributes in the record, then at those in the block, until `look` has an answer.
pub(crate) fn look<T>(
    fs: &ContentStore,
    inode: &Inode,
    mut look: impl FnMut(&XattrView<'_>) -> Option<T>,
) -> Result<Option<T>> {
    let block = {
        let fields = inode.fields();
        let place = AttributePlace { inode: inode.number, block: None };
        if let Some(found) = look(&XattrView::check_in_inode(&fields.xattr_area, place)?) {
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

/// Credits for a change that stores a value of this length. The `xattrs` lock is held.
pub(crate) fn change_credits(fs: &ContentStore, inode: &Inode, value_length: usize) -> Result<u32> {
    let before = stored::StoredAttributes::load(fs, inode)?;
    Ok(change::credits(&fs.volume, value_length, before.value_inodes().len()))
}

/// The error for an entry that names an inode which doesn't hold its value.
fn mismatch(owner: InodeNumber, block: Option<PhysicalBlock>, inode: InodeNumber) -> Corrupt {
    let problem = AttributeProblem::InodeValueMismatch { inode };
    Corrupt::Attributes { inode: owner, block, offset: 0, problem }
}
